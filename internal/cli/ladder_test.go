package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// ladderTest is an account, its people, and a clock that the test sets.
type ladderTest struct {
	// host tells machines apart, each with a witness of its own.
	host    string
	t       *testing.T
	sandbox *sandbox.Sandbox
	account *sandbox.Ladder
	dir     string
	who     string // gives the commands

	mu       sync.Mutex
	now      time.Time
	up       time.Duration
	boot     string
	told     []string // the texts that people got
	refusing bool     // their channel takes nothing
	finding  string
}

const ladderPolicies = `apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance}
    where: resource.gpus > 0 && resource.environment != "production"
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: terminate
    limits: {per_hour: 10, share: "100%", dollars_per_hour: 500}
    mode: enforce
`

const ladderConfig = noTurns + `notify:
  slack: {token_env: SLACK_TOKEN, base_url: "%s/api/", users: {ana: U0ANA}}
enforce: {window: 2h}
approvers: {bo: [approver], ana: [approver]}
approvals: {accept: [self-declared]}
`

// newLadder starts an account and people who are told over real HTTP. It is 12:00.
func newLadder(t *testing.T) *ladderTest {
	t.Helper()
	l := &ladderTest{t: t, dir: t.TempDir(), now: time.Now().UTC().Truncate(time.Hour), up: 50 * time.Hour, boot: "b1"}
	s, err := sandbox.Start(t.Context(), sandbox.Options{Now: l.clock})
	if err != nil {
		t.Fatal(err)
	}
	l.sandbox = s
	if l.account, err = s.SeedLadder(t.Context(), "us-east-1"); err != nil {
		t.Fatal(err)
	}
	slack := httptest.NewServer(http.HandlerFunc(l.slack))
	t.Cleanup(func() {
		slack.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, e := range s.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	t.Setenv("SLACK_TOKEN", "xoxb-secret-token")
	l.write("curfew.yaml", fmt.Sprintf(ladderConfig, slack.URL))
	l.write("policies.yaml", ladderPolicies)
	return l
}

func (l *ladderTest) write(name, text string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *ladderTest) slack(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if l.refusing {
		fmt.Fprint(w, `{"ok":false,"error":"is_archived"}`)
		return
	}
	l.told = append(l.told, string(body))
	fmt.Fprint(w, `{"ok":true,"channel":"U0ANA","ts":"1.1"}`)
}

func (l *ladderTest) clock() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now
}

// jump sets the wall clock and nothing else.
func (l *ladderTest) jump(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// refuse lets the people's channel take nothing.
func (l *ladderTest) refuse(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusing = on
}

// messages returns how many people were told so far.
func (l *ladderTest) messages() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told)
}

// curfew runs a command line and returns its output.
func (l *ladderTest) curfew(want int, args ...string) string {
	l.t.Helper()
	got, out, errs := l.curfewAny(args...)
	if got != want {
		l.t.Fatalf("curfew %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, want, out, errs)
	}
	return out
}

// enforceAny makes one pass, however it ends.
func (l *ladderTest) enforceAny() {
	l.curfewAny("enforce", "--once", "--enforce", "--policy", "policies.yaml")
}

func (l *ladderTest) curfewAny(args ...string) (exit int, stdout, stderr string) {
	l.t.Helper()
	var out, errs bytes.Buffer
	lookup := func(name string) (string, bool) {
		if name == "CURFEW_IDENTITY" {
			return l.who, l.who != ""
		}
		return os.LookupEnv(name)
	}
	p := Process{
		Args: args, Stdout: &out, Stderr: &errs, Lookup: lookup, Now: l.clock, Dir: l.dir,
		DataDir: filepath.Join(l.dir, "data"), WitnessDir: filepath.Join(l.dir, "witness"+l.host), Version: "test",
		Uptime: func() (string, time.Duration) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.boot, l.up
		}}
	exit = Run(context.Background(), p)
	if strings.Contains(out.String()+errs.String(), "xoxb") {
		l.t.Errorf("curfew %s shows a secret", strings.Join(args, " "))
	}
	validates(l.t, args, out.String())
	return exit, out.String(), errs.String()
}

// enforce makes one pass and returns the result of each machine by its name; more
// results than one are joined.
func (l *ladderTest) enforce(want int) map[string]string {
	l.t.Helper()
	text := l.curfew(want, "enforce", "--once", "--enforce", "--policy", "policies.yaml", "-o", "json")
	var doc view.Enforce
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		l.t.Fatal(err)
	}
	got := map[string]string{}
	for _, line := range doc.Lines {
		for name, id := range l.account.IDs {
			if strings.HasSuffix(line.Resource, "/"+id) {
				got[name] = strings.TrimSpace(got[name] + " " + line.Result)
			}
		}
	}
	return got
}

// state is the provider's own word on a machine.
func (l *ladderTest) state(name string) string {
	l.t.Helper()
	out, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).DescribeInstances(l.t.Context(),
		&ec2.DescribeInstancesInput{InstanceIds: []string{l.account.IDs[name]}})
	if err != nil {
		l.t.Fatal(err)
	}
	return string(out.Reservations[0].Instances[0].State.Name)
}

// retag takes a machine out of its gang, lets it rest, and changes one tag; an empty
// value takes it away.
func (l *ladderTest) retag(name, key, value string) {
	l.t.Helper()
	api, ids := ec2.NewFromConfig(l.sandbox.Config("us-east-1")), []string{l.account.IDs[name]}
	l.account.Turn(name, sandbox.AtRest)
	if _, err := api.DeleteTags(l.t.Context(), &ec2.DeleteTagsInput{
		Resources: ids, Tags: []types.Tag{{Key: aws.String(inventory.TagGang)}, {Key: aws.String(key)}},
	}); err != nil {
		l.t.Fatal(err)
	}
	if value == "" {
		return
	}
	if _, err := api.CreateTags(l.t.Context(), &ec2.CreateTagsInput{
		Resources: ids, Tags: []types.Tag{{Key: aws.String(key), Value: aws.String(value)}},
	}); err != nil {
		l.t.Fatal(err)
	}
}

// pass advances the time while the machines report.
func (l *ladderTest) pass(d time.Duration) {
	l.t.Helper()
	l.mu.Lock()
	l.now, l.up = l.now.Add(d), l.up+d
	l.mu.Unlock()
	if err := l.account.Advance(l.t.Context(), l.clock()); err != nil {
		l.t.Fatal(err)
	}
}

// TestLadderLive takes a machine that is idle by the CloudWatch agent's metrics
// through warning, grace, verification, termination and confirmation, and leaves all
// others alone.
func TestLadderLive(t *testing.T) {
	l := newLadder(t)
	l.retag("gang-4", inventory.TagLifetime, "")
	l.retag("gang-5", inventory.TagManaged, "")
	l.retag("gang-6", "environment", "")
	l.retag("gang-7", "environment", "production")
	l.pass(40 * time.Minute)

	preview := l.curfew(ExitDone, "enforce", "--once", "--policy", "policies.yaml")
	if !strings.Contains(preview, "would-warn") || l.messages() != 0 {
		t.Errorf("a dry run must send no message (%d told):\n%s", l.messages(), preview)
	}
	got := l.enforce(ExitDone)
	want := map[string]string{
		sandbox.Idle: "warned", sandbox.Turning: "warned", sandbox.Persistent: "refused", sandbox.Protected: "refused",
		sandbox.Exempt:  "refused",
		sandbox.Grouped: "refused", sandbox.Unsaved: "refused", "gang-4": "refused", "gang-5": "refused"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("first pass (-want +got):\n%s", diff)
	}
	if l.messages() != 3 { // two are warned, and the owner of Unsaved is asked about its disk
		t.Errorf("%d people were told, want 3", l.messages())
	}

	l.pass(10 * time.Minute)
	if got := l.enforce(ExitDone); got[sandbox.Idle] != "waiting" {
		t.Errorf("within the grace: %v", got)
	}
	l.pass(4 * time.Minute)
	l.account.Turn(sandbox.Turning, sandbox.AtWork) // in the last minute
	l.pass(2 * time.Minute)
	if got := l.enforce(ExitDone); !strings.HasSuffix(got[sandbox.Idle], "confirmed") &&
		!strings.HasSuffix(got[sandbox.Idle], "acted") || got[sandbox.Turning] != "withdrawn" {
		t.Errorf("after the grace: %v", got)
	}
	l.pass(time.Minute)
	l.enforce(ExitDone)
	for name := range l.account.IDs {
		want := "running"
		if name == sandbox.Idle {
			want = "terminated"
		}
		if s := l.state(name); s != want {
			t.Errorf("%s is %s, want %s", name, s, want)
		}
	}

	log := l.curfew(ExitDone, "audit", "--resource", l.account.IDs[sandbox.Idle], "-o", "jsonl")
	for _, what := range []string{"observed", "warned", "intent", "outcome", "confirmed"} {
		_, after, found := strings.Cut(log, `"what":"`+what+`"`)
		if !found {
			t.Errorf("the audit log has no %q after what comes before it:\n%s", what, log)
		}
		log = after
	}
}

// TestLadderSparesMachineBeforeAction lists the reasons that keep an idle machine alive between the end of its grace
// and the pass that would act.
func TestLadderSparesMachineBeforeAction(t *testing.T) {
	l := newLadder(t)
	fault := func(service, operation string) func() {
		return l.sandbox.Wire.Inject(wire.Fault{Service: service, Operation: operation, Kind: wire.AccessDenied})
	}
	nothing := func() {}
	for _, tc := range []struct {
		name string
		hold func() (end func())
	}{
		{"a freeze, whoever made it", func() func() {
			l.curfew(ExitDone, "freeze", "--reason", "incident")
			return func() { l.curfew(ExitDone, "unfreeze", "--reason", "over") }
		}},
		{"the caps allow none of them", func() func() {
			l.write("policies.yaml", strings.Replace(ladderPolicies, `dollars_per_hour: 500`,
				`dollars_per_hour: 0.01`, 1))
			return func() { l.write("policies.yaml", ladderPolicies) }
		}},
		{"the usage cannot be read", func() func() { return fault("cloudwatch", "GetMetricData") }},
		{"the machines cannot be read", func() func() { return fault("ec2", "DescribeInstances") }},
		{"the clock jumped a day ahead", func() func() {
			l.jump(24 * time.Hour)
			return func() { l.jump(-24 * time.Hour) }
		}},
		{"a keep", func() func() {
			for _, name := range []string{sandbox.Idle, sandbox.Turning} {
				l.curfew(ExitDone, "keep", l.account.Ref(name).String(), "--for", "24h", "--reason", "demo")
			}
			return nothing
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			outer := l.t
			l.t = t
			defer func() { l.t = outer }()
			l.enforceAny() // warns, or has warned
			l.pass(16 * time.Minute)
			end := tc.hold()
			l.enforceAny()
			end()
			for _, name := range []string{sandbox.Idle, sandbox.Turning} {
				if s := l.state(name); s != "running" {
					t.Fatalf("%s is %s", name, s)
				}
			}
			l.curfewAny("freeze", "--reason", "between the cases")
			l.pass(3 * time.Hour) // every grace period starts again
			l.curfewAny("unfreeze", "--reason", "between the cases")
		})
	}
}

// TestClockAheadAddsNoCharges: scans under a clock that was set 30 days ahead charge for
// nothing, for as long as it is, and those after it charge for the time that was.
func TestClockAheadAddsNoCharges(t *testing.T) {
	l := newLadder(t)
	spent := func() float64 {
		t.Helper()
		l.pass(30 * time.Minute)
		l.curfew(ExitDone, "scan", "--regions", "us-east-1")
		var doc struct {
			Total struct {
				USD string `json:"total_usd"`
			}
		}
		text := l.curfew(ExitDone, "costs", "--since", "2d", "-o", "json")
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		v, err := strconv.ParseFloat(doc.Total.USD, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	spent()
	half := spent()
	l.jump(30 * 24 * time.Hour)
	for range 2 {
		l.mu.Lock()
		l.now, l.up = l.now.Add(15*time.Minute), l.up+15*time.Minute
		l.mu.Unlock()
		if exit, _, errs := l.curfewAny("scan", "--regions", "us-east-1"); exit == ExitDone ||
			!strings.Contains(errs, "the clock of this host is ahead by 720h0m0s") {
			t.Fatalf("exit %d: %s", exit, errs)
		}
	}
	l.jump(-30 * 24 * time.Hour)
	if got := spent(); half <= 0 || got < 2.9*half || got > 3.1*half {
		t.Errorf("$%v after half an hour, $%v an hour later", half, got)
	}
}

// TestRefusedWarningStartsNoGrace: without an accepted warning nothing happens,
// however long it lasts.
func TestRefusedWarningStartsNoGrace(t *testing.T) {
	l := newLadder(t)
	l.refuse(true)
	for range 4 {
		l.pass(30 * time.Minute)
		if got := l.enforce(ExitPartial); got[sandbox.Idle] != "observed" {
			t.Errorf("got %v", got)
		}
	}
	if s := l.state(sandbox.Idle); s != "running" {
		t.Errorf("it is %s", s)
	}
}

// scanJSONOf audits the account and keeps the findings.
func scanJSONOf(t *testing.T, l *ladderTest) view.Scan {
	t.Helper()
	_, out, errs := l.curfewAny("scan", "-o", "json", "--regions", "us-east-1")
	doc, err := view.LoadScan(strings.NewReader(out))
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	return doc
}

// TestFixClimbsTheLadder fixes an unused volume: its owner is warned, a second
// person approves exactly that, and it is deleted only after its snapshot is complete.
func TestFixClimbsTheLadder(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	if _, err := l.sandbox.Seed(t.Context()); err != nil {
		t.Fatal(err)
	}
	doc := scanJSONOf(t, l)
	volume := ""
	for _, f := range doc.Findings {
		if f.Rule == "volume-unattached" && f.Resource.Owner.User == "ana" {
			volume = f.Resource.ID
			l.finding = f.ID
		}
	}
	if volume == "" {
		t.Fatal("no volume of ana's is found")
	}
	api := ec2.NewFromConfig(l.sandbox.Config("us-east-1"))
	there := func() bool {
		out, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{volume}})
		return err == nil && len(out.Volumes) == 1
	}
	fix := func(want int) string { return l.curfew(want, "fix", l.finding, "--enforce") }

	if out := fix(ExitDone); !strings.Contains(out, "warned") {
		t.Errorf("first run:\n%s", out)
	}
	l.pass(5 * time.Minute)
	if out := fix(ExitDone); !strings.Contains(out, "waiting") {
		t.Errorf("within the grace:\n%s", out)
	}
	l.pass(11 * time.Minute)
	fix(ExitHeld) // not approved yet
	var asked struct {
		Requests []view.Request `json:"requests"`
	}
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "approvals", "-o", "json")), &asked); err != nil ||
		len(asked.Requests) != 1 {
		t.Fatalf("%d requests, %v", len(asked.Requests), err)
	}
	id := asked.Requests[0].ID
	l.curfew(ExitDenied, "approve", id) // self-approval is denied
	l.who = "cy"
	l.curfew(ExitDenied, "approve", id) // so is a person without the role
	l.who = "bo"
	l.curfew(ExitDone, "approve", id[:6])
	l.who = "ana"
	if !there() {
		t.Fatal("the volume is gone before the fix was carried out")
	}
	done := false
	for range 6 {
		out := fix(ExitDone)
		if done = strings.Contains(out, "confirmed") && !there(); done {
			break
		}
		l.pass(2 * time.Minute)
	}
	snapshots, err := api.DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{
		OwnerIds: []string{"self"}, Filters: []types.Filter{{Name: aws.String("volume-id"), Values: []string{volume}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !done || len(snapshots.Snapshots) != 1 || snapshots.Snapshots[0].State != types.SnapshotStateCompleted {
		t.Errorf("done %v, %d snapshots of the volume", done, len(snapshots.Snapshots))
	}
	l.curfew(ExitDenied, "approve", id) // it was used
}
