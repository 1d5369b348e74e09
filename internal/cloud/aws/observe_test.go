package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// endpoint serves AWS by a handler and points the SDK at it.
func endpoint(t *testing.T, answer http.HandlerFunc) {
	t.Helper()
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	credentials(t)
	t.Setenv("AWS_ENDPOINT_URL", srv.URL)
}

// credentials replaces the user's credentials by fake ones.
func credentials(t *testing.T) {
	t.Helper()
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
		"AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
		"AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ENDPOINT_URL":          ""} {
		t.Setenv(k, v)
	}
}

// refuse responds with an error in the protocol of the request.
func refuse(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	switch {
	case r.Header.Get("X-Amz-Target") != "" || strings.Contains(r.Header.Get("Content-Type"), "json") ||
		strings.HasPrefix(r.URL.Path, "/20") || r.URL.Path == "/clusters":
		w.Header().Set("X-Amzn-Errortype", code)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"__type":%q,"message":%q}`, code, message)
	default:
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		e := fmt.Sprintf("<Code>%s</Code><Message>%s</Message>", code, message)
		// EC2, query, S3
		fmt.Fprintf(w, "<ErrorResponse><Errors><Error>%s</Error></Errors><Error>%s</Error>%s</ErrorResponse>", e, e, e)
	}
}

const identityXML = `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::111122223333:user/a</Arn><UserId>A</UserId><Account>111122223333</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`

// asks reports whether a request of the query protocol is for an action.
func asks(body []byte, action string) bool {
	return strings.Contains(string(body), "Action="+action+"&")
}

//nolint:revive // t comes first in tests
func observe(t *testing.T, ctx context.Context, o Options) (*round.Observation, error) {
	t.Helper()
	o.RequestsPerSecond = 10_000
	c, err := New(ctx, o)
	if err != nil {
		return nil, err
	}
	return cloudtest.Observe(ctx, c, round.Query{Now: time.Date(2026, 11, 21, 9, 37, 0, 0, time.UTC)})
}

func TestEverythingDenied(t *testing.T) {
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asks(body, "GetCallerIdentity") {
			fmt.Fprint(w, identityXML)
			return
		}
		refuse(w, r, http.StatusForbidden, "AccessDenied", "User a is\nnot authorized")
	})
	o, err := observe(t, t.Context(), Options{})
	if err != nil {
		t.Fatalf("an account that denies everything but its name: %v", err)
	}
	if len(o.Resources) != 0 || len(o.Windows) != 0 || o.CommitmentsKnown || o.Billed != nil {
		t.Errorf("something was read: %+v", o)
	}
	for _, op := range operations {
		for _, k := range op.Kinds {
			if !o.Unread["111122223333/us-east-1/"+string(k)] {
				t.Errorf("%s is not marked as unread", k)
			}
		}
	}
	for _, b := range o.BlindSpots {
		if !strings.Contains(b.What, "us-east-1") || !strings.HasPrefix(b.Why, "AccessDenied: ") || b.Effect == "" ||
			strings.Contains(b.Why, "\n") {
			t.Errorf("the blind spot is %+v", b)
		}
	}
	if len(o.BlindSpots) < 20 {
		t.Errorf("%d blind spots, want one for each list", len(o.BlindSpots))
	}
}

func TestNothingCanBeRead(t *testing.T) {
	deny := func(status int, code string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { refuse(w, r, status, code, "no") }
	}
	for _, tc := range []struct {
		name   string
		answer http.HandlerFunc
		setup  func(t *testing.T)
		want   error
	}{
		{
			name: "expired token", answer: deny(http.StatusForbidden, "ExpiredToken"),
			want: inventory.ErrUnauthenticated,
		},
		{
			name: "unknown key", answer: deny(http.StatusForbidden, "InvalidClientTokenId"),
			want: inventory.ErrUnauthenticated,
		},
		{name: "not AWS", answer: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<html>no such page</html>", http.StatusInternalServerError)
		}, want: inventory.ErrUnavailable},
		{name: "no credentials", answer: deny(http.StatusForbidden, "AccessDenied"), setup: func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", "")
			t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		}, want: inventory.ErrUnauthenticated},
		{name: "unreachable", answer: deny(http.StatusForbidden, "AccessDenied"), setup: func(t *testing.T) {
			t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
		}, want: inventory.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			endpoint(t, tc.answer)
			if tc.setup != nil {
				tc.setup(t)
			}
			_, err := observe(t, t.Context(), Options{})
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want one that is %v", err, tc.want)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error takes several lines: %q", err)
			}
		})
	}
}

func TestObserveStopsOnCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if asks(body, "GetCallerIdentity") {
			fmt.Fprint(w, identityXML)
			return
		}
		cancel()
		<-r.Context().Done()
	})
	began := time.Now()
	if _, err := observe(t, ctx, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %s to stop", took)
	}
}

// TestChangesAreRefused tries to change something through a client of an observation.
func TestChangesAreRefused(t *testing.T) {
	sent := false
	endpoint(t, func(http.ResponseWriter, *http.Request) { sent = true })
	c, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := c.scan(round.Query{}, newLimits(10))
	p := s.place(&account{id: "1", cfg: c.config}, "us-east-1")
	_, err = ec2Client(p.reading).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{
		InstanceIds: []string{"i-1"},
	})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.API != "ec2:TerminateInstances" || sent {
		t.Errorf("terminating: got %v, sent %v; want a refusal and nothing sent", err, sent)
	}
	if calls, err := s.tally.list(); err != nil || len(calls) != 0 {
		t.Errorf("a refused call was counted: %v, %v", calls, err)
	}
}

func TestTallyPricesUnits(t *testing.T) {
	tally := newTally()
	for range 3 {
		tally.add(index["cloudwatch:GetMetricData"], 300, time.Time{})
	}
	tally.add(index["s3:ListObjectsV2"], 1, time.Time{})
	tally.add(index["ec2:DescribeInstances"], 1, time.Time{})
	calls, err := tally.list()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, c := range calls {
		got[c.API] = fmt.Sprint(c.Count, " ", c.Units, " ", c.Cost)
	}
	for api, want := range map[string]string{
		"cloudwatch:GetMetricData": "3 900 0.009", "s3:ListObjectsV2": "1 1 0.000005",
		"ec2:DescribeInstances": "1 1 0.00",
	} {
		if got[api] != want {
			t.Errorf("%s: got %q, want %q", api, got[api], want)
		}
	}
}

// TestPages checks pages for every shape of token chain: each page is visited once and in order,
// and a repeated token is an error, not an endless loop.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "pages")
		back := rapid.IntRange(-1, n-1).Draw(t, "back") // target of the last page's token; -1 for none
		var visited []int
		err := pages(context.Background(), func(token *string) (*string, error) {
			page := 0
			if token != nil {
				if _, err := fmt.Sscan(*token, &page); err != nil {
					t.Fatal(err)
				}
			}
			visited = append(visited, page)
			switch {
			case page < n-1:
				return awssdk.String(fmt.Sprint(page + 1)), nil
			case back >= 0:
				return awssdk.String(fmt.Sprint(back)), nil
			}
			return awssdk.String(""), nil
		})
		if looped := errors.Is(err, errRepeated); looped != (back >= 0) {
			t.Fatalf("pages to %d and back to %d: got %v", n, back, err)
		}
		for i := range n {
			if visited[i] != i {
				t.Fatalf("the pages were visited in the order %v", visited)
			}
		}
		if len(visited) > n+1 {
			t.Fatalf("%d pages were asked for %d times", n, len(visited))
		}
	})
}

func TestJoinsPartialFailures(t *testing.T) {
	s := &scan{partial: map[partialKey]*partialFailure{}}
	p := &place{scan: s, region: "us-east-1", account: &account{id: "1"}}
	var g sync.WaitGroup
	for _, name := range []string{"d", "b", "a", "c", "a"} {
		g.Go(func() {
			p.missed(context.Background(), "s3:GetBucketLifecycleConfiguration", name, &apiError{"AccessDenied", "no"})
		})
	}
	g.Wait()
	p.missed(context.Background(), "ecr:DescribeImages", "only", &apiError{"ServerException", "no"})
	p.missed(context.Background(), "ecr:DescribeImages", "only", nil)
	s.flushPartial()
	got := map[string]string{}
	for _, b := range s.blindSpots {
		got[b.What] = b.Why
	}
	for what, want := range map[string]string{
		"s3 us-east-1":  "AccessDenied: s3:GetLifecycleConfiguration on 4 buckets (a, b, c, …)",
		"ecr us-east-1": "ServerException: ecr:DescribeImages on 1 repository (only)",
	} {
		if got[what] != want {
			t.Errorf("%s: got %q, want %q", what, got[what], want)
		}
	}
}

func TestRegionNames(t *testing.T) {
	for _, tc := range []struct {
		region, says string
	}{
		{region: "us-east-1"}, {region: "ap-southeast-5"}, {region: "us-gov-west-1"}, {region: "cn-north-1"},
		{region: "eusc-de-east-1"},
		{region: "us-east-1a", says: "its region is us-east-1"},
		{region: "mars", says: "no region has such a name"},
		{region: "us-east", says: "no region has such a name"},
		{region: "US-EAST-1", says: "no region has such a name"},
		{region: "all", says: "cannot be combined"},
		{region: "", says: "empty"},
	} {
		err := checkName(tc.region)
		var bad *RegionError
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%q: got %v, want it accepted", tc.region, err)
		case tc.says != "" && (!errors.As(err, &bad) || !strings.Contains(bad.Reason, tc.says)):
			t.Errorf("%q: got %v, want a RegionError with %q", tc.region, err, tc.says)
		}
	}
}

func TestNewRefusesRegions(t *testing.T) {
	credentials(t)
	for _, regions := range [][]string{{"mars"}, {"us-east-1", "all"}, {"us-east-1", ""}} {
		_, err := New(t.Context(), Options{Regions: regions})
		var bad *RegionError
		if !errors.As(err, &bad) {
			t.Errorf("regions %q: got %v, want a RegionError", regions, err)
		}
	}
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	var bad *RegionError
	if _, err := New(t.Context(), Options{}); !errors.As(err, &bad) {
		t.Errorf("no region anywhere: got %v, want a RegionError", err)
	}
	if _, err := New(t.Context(), Options{Regions: []string{"us-east-1"}, Profile: "missing"}); !errors.Is(err,
		inventory.ErrUnauthenticated) {
		t.Errorf("a profile that is not there: got %v, want ErrUnauthenticated", err)
	}
}
