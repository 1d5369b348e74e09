package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/curfew-dev/curfew/internal/view"
)

// keysOf makes a user of the account and returns the environment of their credentials.
func (l *ladderTest) keysOf(name string) (arn string, use func()) {
	l.t.Helper()
	call := func(action string) string {
		req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, os.Getenv("AWS_ENDPOINT_URL"),
			strings.NewReader(url.Values{"Action": {action}, "Version": {"2010-05-08"}, "UserName": {name}}.Encode()))
		if err != nil {
			l.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Authorization",
			"AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			l.t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK {
			l.t.Fatalf("%s: %s, %v", action, body, err)
		}
		return string(body)
	}
	field := func(answer, name string) string {
		m := regexp.MustCompile("<" + name + ">([^<]*)<").FindStringSubmatch(answer)
		if m == nil {
			l.t.Fatalf("no %s in %s", name, answer)
		}
		return m[1]
	}
	arn = field(call("CreateUser"), "Arn")
	key := call("CreateAccessKey")
	return arn, func() {
		l.t.Setenv("AWS_ACCESS_KEY_ID", field(key, "AccessKeyId"))
		l.t.Setenv("AWS_SECRET_ACCESS_KEY", field(key, "SecretAccessKey"))
	}
}

// TestApproverNeedsProof checks that a fix is asked for at once with its whole plan, a name alone
// opens nothing, the identity that STS gives for an approver's own credentials does, and only to a
// process that looks within 15 minutes.
func TestApproverNeedsProof(t *testing.T) {
	l := newLadder(t)
	if _, err := l.sandbox.Seed(t.Context()); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(l.dir + "/curfew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ana, asAna := l.keysOf("ana")
	bo, asBo := l.keysOf("bo")
	_, asEve := l.keysOf("eve")
	text := strings.Replace(string(config), "approvals: {accept: [self-declared]}",
		fmt.Sprintf("approvals: {sts_endpoint: %q, notify: [desk]}\npeople: {ana: {aws: [%q]}, bo: {aws: [%q]}}",
			os.Getenv("AWS_ENDPOINT_URL"), ana, bo), 1)
	text = strings.Replace(text, "notify:\n", "notify:\n  names: {desk: [\"slack:#desk\"]}\n", 1)
	l.write("curfew.yaml", text)
	asAna()
	l.who = "stranger"
	var who struct {
		Name, Subject string
		Verified      bool
		VerifiedBy    string `json:"verified_by"`
		OpensFixes    bool   `json:"opens_fixes"`
		Roles         []string
	}
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "whoami", "-o", "json")), &who); err != nil {
		t.Fatal(err)
	}
	if who.Name != "ana" || who.Subject != ana || !who.Verified || !who.OpensFixes || len(who.Roles) != 1 ||
		!strings.Contains(who.VerifiedBy, "a sandbox") {
		t.Errorf("whoami says %+v", who)
	}

	volume := ""
	for _, f := range scanJSONOf(t, l).Findings {
		if f.Rule == "volume-unattached" && f.Resource.Owner.User == "ana" {
			volume, l.finding = f.Resource.ID, f.ID
		}
	}
	api := ec2.NewFromConfig(l.sandbox.Config("us-east-1"))
	there := func() bool {
		out, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{volume}})
		return err == nil && len(out.Volumes) == 1
	}
	if out := l.curfew(ExitDone, "fix", l.finding); !strings.Contains(out, "approval   needed: a second person") {
		t.Errorf("the preview does not say that an approval is needed:\n%s", out)
	}
	before := l.messages()
	if out := l.curfew(ExitDone, "fix", l.finding, "--enforce"); !strings.Contains(out,
		"needs the approval of another person") {
		t.Errorf("no request was made at once:\n%s", out)
	}
	if l.messages() != before+2 { // the owner, and the desk
		t.Errorf("%d messages, want a warning and a request", l.messages()-before)
	}
	if told := l.told[len(l.told)-2] + l.told[len(l.told)-1]; !strings.Contains(told, "curfew+approve+") ||
		!strings.Contains(told, "delete-volume") {
		t.Errorf("the desk was told %s", told)
	}
	var asked struct{ Requests []view.Request }
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "approvals", "-o", "json")), &asked); err != nil ||
		len(asked.Requests) != 1 {
		t.Fatalf("%d requests, %v", len(asked.Requests), err)
	}
	r := asked.Requests[0]
	if r.Plan == nil || len(r.Plan.Changes) != 1 || !strings.HasSuffix(r.Plan.Changes[0].Resource, "/"+volume) ||
		len(r.Plan.Changes[0].Calls) != 2 ||
		len(r.Plan.Changes[0].Commands) == 0 || r.Plan.Undo == "" || len(r.Plan.Costs) != 2 ||
		r.AmountUnit != "an hour" {
		t.Errorf("the plan is %+v", r.Plan)
	}
	if r.AskedBy != "ana" || r.AskedProof.Subject != ana || !r.AskedProof.Verified {
		t.Errorf("asked by %s, %+v", r.AskedBy, r.AskedProof)
	}
	table := l.curfew(ExitDone, "approvals", r.ID[:5])
	for _, want := range []string{
		"call: delete-volume", "by hand: aws ec2 delete-volume", "saves: $", " a month", "undo: ", "loses: ",
		"aws-caller " + ana,
	} {
		if !strings.Contains(table, want) {
			t.Errorf("approvals does not show %q:\n%s", want, table)
		}
	}

	l.who = "bo"
	// whatever the name, the keys are ana's
	if _, _, errs := l.curfewAny("approve", r.ID); !strings.Contains(errs, "ana asked for") {
		t.Errorf("the asker's keys approve under another name: %s", errs)
	}
	l.curfew(ExitDenied, "approve", r.ID, "--proof", "none")
	asEve()
	l.curfew(ExitDenied, "approve", r.ID) // has no role
	asBo()
	if out := l.curfew(ExitDone, "approve", r.ID); !strings.Contains(out, "by bo (aws-caller "+bo) {
		t.Errorf("approved: %s", out)
	}
	asAna()
	l.pass(16 * time.Minute)
	// The proof grew old before it was used.
	if _, out, errs := l.curfewAny("fix", l.finding, "--enforce"); !strings.Contains(out+errs, "old, over 15m") ||
		!there() {
		t.Fatalf("an old proof: there %v\n%s%s", there(), out, errs)
	}
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "approvals", "-o", "json")), &asked); err != nil ||
		len(asked.Requests) != 1 || asked.Requests[0].ID == r.ID {
		t.Fatalf("it is not asked again: %+v, %v", asked.Requests, err)
	}
	asBo()
	l.curfew(ExitDone, "approve", asked.Requests[0].ID)
	// An approver carries out another person's request: two people agreed to it, but this process
	// is not theirs.
	if _, out, errs := l.curfewAny("fix", l.finding, "--enforce"); !there() ||
		!strings.Contains(out+errs, "both are bo") {
		t.Errorf("bo carries out what bo approved: there %v\n%s%s", there(), out, errs)
	}
	var again struct{ Requests []view.Request }
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "approvals", "-o", "json")), &again); err != nil ||
		len(again.Requests) != 1 {
		t.Fatalf("%+v, %v", again.Requests, err)
	}
	if again.Requests[0].AskedBy != "bo" {
		t.Fatalf("asked by %s", again.Requests[0].AskedBy)
	}
	asAna()
	l.curfew(ExitDone, "approve", again.Requests[0].ID)
	asBo()
	for range 6 {
		if l.curfewAny("fix", l.finding, "--enforce"); !there() {
			break
		}
		l.pass(2 * time.Minute)
	}
	if there() {
		t.Error("an approved fix was not carried out")
	}
}
