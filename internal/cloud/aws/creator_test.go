package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// event is one of CloudTrail's, as its answers hold it.
func event(name, identity string) map[string]any {
	return map[string]any{
		"EventName": name, "CloudTrailEvent": `{"eventVersion":"1.11","userIdentity":` + identity + `}`,
	}
}

const (
	ana     = `{"type":"IAMUser","userName":"ana","arn":"arn:aws:iam::123456789012:user/ana"}`
	signed  = `{"type":"AssumedRole","arn":"arn:aws:sts::123456789012:assumed-role/AWSReservedSSO_Dev_0a1b/bo","sessionContext":{"sessionIssuer":{"userName":"AWSReservedSSO_Dev_0a1b"}}}`
	mailed  = `{"type":"AssumedRole","arn":"arn:aws:sts::123456789012:assumed-role/dev/eve@example.com","sessionContext":{"sessionIssuer":{"userName":"dev"}}}`
	machine = `{"type":"AssumedRole","arn":"arn:aws:sts::123456789012:assumed-role/ci/i-0abc","sessionContext":{"sessionIssuer":{"userName":"ci"}}}`
	scaling = `{"type":"AssumedRole","arn":"arn:aws:sts::123456789012:assumed-role/AWSServiceRoleForAutoScaling/AutoScaling","invokedBy":"autoscaling.amazonaws.com"}`
	owner   = `{"type":"Root","arn":"arn:aws:iam::123456789012:root"}`
)

// TestCreator queries a fake CloudTrail page by page.
func TestCreator(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pages [][]map[string]any
		want  string
		asked int
	}{
		{"a user", [][]map[string]any{{event("CreateTags", signed), event("RunInstances", ana)}}, "ana", 1},
		{"a person who has signed in", [][]map[string]any{{event("RunInstances", signed)}}, "bo", 1},
		{
			"a session that is a mail address", [][]map[string]any{{event("RunInstances", mailed)}}, "eve@example.com",
			1,
		},
		{"a machine", [][]map[string]any{{event("RunInstances", machine)}}, "", 1},
		{"a service", [][]map[string]any{{event("RunInstances", scaling)}}, "", 1},
		{"the account itself", [][]map[string]any{{event("RunInstances", owner)}}, "", 1},
		{
			"who only stopped and started it",
			[][]map[string]any{{event("StartInstances", ana), event("StopInstances", ana)}}, "", 1,
		},
		{
			"an event of an older page",
			[][]map[string]any{{event("StopInstances", signed)}, {}, {event("RunInstances", ana)}}, "ana", 3,
		},
		{"too many pages", [][]map[string]any{{}, {}, {}, {}, {event("RunInstances", ana)}}, "", 4},
		{"what is no event", [][]map[string]any{{{"EventName": "RunInstances", "CloudTrailEvent": "null"}}}, "", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			asked := 0
			endpoint(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if !strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".LookupEvents") {
					fmt.Fprint(w,
						"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>")
					return
				}
				if !strings.Contains(string(body), `"AttributeKey":"ResourceName"`) ||
					!strings.Contains(string(body), `"AttributeValue":"i-0abc"`) {
					t.Errorf("asked for %s", body)
				}
				answer := map[string]any{"Events": tc.pages[asked]}
				if asked++; asked < len(tc.pages) {
					answer["NextToken"] = fmt.Sprint(asked)
				}
				w.Header().Set("Content-Type", "application/x-amz-json-1.1")
				_ = json.NewEncoder(w).Encode(answer)
			})
			c, err := New(t.Context(), Options{Regions: []string{"us-east-1"}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Actions().Creator(t.Context(), &inventory.Resource{
				ID: "i-0abc", Kind: inventory.KindInstance, Cloud: "aws", Account: "123456789012", Region: "us-east-1",
			})
			if err != nil || got != tc.want || asked != tc.asked {
				t.Errorf("it was made by %q after %d pages, %v; want %q after %d", got, asked, err, tc.want, tc.asked)
			}
		})
	}
	t.Run("that is not readable", func(t *testing.T) {
		endpoint(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Amz-Target") == "" {
				fmt.Fprint(w,
					"<GetCallerIdentityResponse><GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>")
				return
			}
			w.Header().Set("X-Amzn-ErrorType", "AccessDeniedException")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"message":"not authorized to perform cloudtrail:LookupEvents"}`)
		})
		c, err := New(t.Context(), Options{Regions: []string{"us-east-1"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Actions().Creator(t.Context(), &inventory.Resource{
			ID: "i-0abc", Kind: inventory.KindInstance, Cloud: "aws", Account: "123456789012", Region: "us-east-1",
		}); !errors.Is(err, inventory.ErrDenied) {
			t.Errorf("got %v, want ErrDenied", err)
		}
	})
}
