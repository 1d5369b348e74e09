package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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

// adopted runs session adopt and returns its document.
func (l *ladderTest) adopted(want int, args ...string) view.Adoption {
	l.t.Helper()
	var doc view.Adoption
	if err := json.Unmarshal(
		[]byte(l.curfew(want,
			append([]string{"session", "adopt", "-o", "json", "--regions", "us-east-1"}, args...)...)),
		&doc); err != nil {
		l.t.Fatal(err)
	}
	return doc
}

// run is the session of a name, as status shows it.
func (l *ladderTest) run(name string) view.Run {
	l.t.Helper()
	var doc view.Runs
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, "status", name, "-o", "json")), &doc); err != nil ||
		len(doc.Runs) != 1 {
		l.t.Fatalf("status %s: %v, %v", name, doc, err)
	}
	return doc.Runs[0]
}

// asPet takes the tags of the seed away that put a machine under policies, as of a machine
// that someone started by hand.
func (l *ladderTest) asPet(name string) string {
	l.t.Helper()
	l.untag(name, inventory.TagManaged, inventory.TagLifetime, inventory.TagPurpose, inventory.TagGang)
	return l.account.IDs[name]
}

func rules(doc view.Adoption) (names []string) {
	for _, r := range doc.Refusals {
		names = append(names, r.Rule)
	}
	return names
}

// calls are the operations that changed something since the last time.
func (l *ladderTest) calls() (names []string) {
	for _, c := range l.sandbox.Wire.Recorder.Mutating() {
		if c.Operation == "PutMetricData" {
			continue // the machines report
		}
		names = append(names, c.Operation)
	}
	l.sandbox.Wire.Recorder.Reset()
	return names
}

const adoptPolicy = `apiVersion: curfew.policy/v1
policies:
  - name: adopted-lease
    select: {kind: instance, lifetime: ephemeral}
    when: lease.expired
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: stop
        even_if_busy: true
    limits: {per_hour: 10, share: "100%", dollars_per_hour: 500}
    mode: enforce
`

// TestAdopt adopts a running machine with a lease and an owner on a real API: it is previewed,
// written once, subject to policies from then on, extended, stopped by the ladder at the end of its
// lease, and never terminated.
func TestAdopt(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	pet := l.asPet(sandbox.Idle)
	before := l.tagsOf(sandbox.Idle)
	l.sandbox.Wire.Recorder.Reset()

	// The preview changes nothing, here or there.
	doc := l.adopted(ExitDone, pet, "--lease", "2h", "--idle", "45m", "--name", "box")
	if calls := l.calls(); len(calls) > 0 || doc.State != view.AdoptPreview || !doc.DryRun {
		t.Fatalf("the preview made the calls %v: %+v", calls, doc)
	}
	if diff := cmp.Diff(before, l.tagsOf(sandbox.Idle)); diff != "" {
		t.Fatal(diff)
	}
	if out := l.curfew(ExitDone, "ls"); !strings.Contains(out, "No sessions") {
		t.Fatal(out)
	}
	if doc.Session != "box" || doc.Owner.User != "ana" || !doc.HourlyUSD.Known() ||
		!doc.LeaseUntil.Equal(l.clock().Add(2*time.Hour)) || doc.Idle != "45m0s" {
		t.Errorf("it shows %+v", doc)
	}

	// Under a freeze nothing is written, and the same command goes on afterwards.
	l.curfew(ExitDone, "freeze", "--reason", "incident")
	if doc = l.adopted(ExitPartial, pet, "--lease", "2h", "--idle", "45m", "--name", "box",
		"--enforce"); doc.State != view.AdoptUnfinished {
		t.Fatalf("under a freeze: %+v", doc)
	}
	if diff := cmp.Diff(before, l.tagsOf(sandbox.Idle)); diff != "" {
		t.Fatal(diff)
	}
	l.curfew(ExitDone, "unfreeze", "--reason", "over")
	l.calls()
	id := doc.SessionID
	doc = l.adopted(ExitDone, pet, "--lease", "2h", "--name", "box", "--enforce")
	if calls := l.calls(); !slices.Equal(calls, []string{"CreateTags"}) {
		t.Errorf("it made the calls %v", calls)
	}
	if doc.State != view.AdoptDone || doc.SessionID != id || doc.Item == "" {
		t.Fatalf("adopted: %+v, was %s", doc, id)
	}
	want := map[string]string{
		inventory.TagAdopted: id, inventory.TagManaged: "true", inventory.TagLifetime: "ephemeral",
		inventory.TagLease: doc.LeaseUntil.Format(time.RFC3339), inventory.TagIdle: "45m0s",
	}
	for k, v := range before {
		want[k] = v
	}
	if diff := cmp.Diff(want, l.tagsOf(sandbox.Idle)); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	r := l.run("box")
	if r.State != "ready" || r.Owner.User != "ana" || r.AskedBy != "ana" ||
		!slices.Equal(r.ResourceIDs, []string{pet}) ||
		r.Type != "g5g.xlarge" || r.HourlyUSD == nil {
		t.Errorf("the session is %+v", r)
	}
	if got := rules(l.adopted(ExitDenied, pet, "--enforce")); !slices.Equal(got, []string{"adopted"}) {
		t.Errorf("a second time: %v", got)
	}
	// the name is taken
	l.curfew(ExitUsage, "session", "adopt", l.asPet(sandbox.Turning), "--regions", "us-east-1", "--name", "box",
		"--enforce")
	if tags := l.tagsOf(sandbox.Turning); tags[inventory.TagAdopted] != "" {
		t.Errorf("it was tagged: %v", tags)
	}

	// The lease is prolonged in the record and in the tag, by which policies go.
	l.calls()
	l.curfew(ExitDone, "extend", "box", "--for", "1h")
	until := doc.LeaseUntil.Add(time.Hour)
	if got := l.tagsOf(sandbox.Idle)[inventory.TagLease]; got != until.Format(time.RFC3339) ||
		!l.run("box").LeaseUntil.Equal(until) {
		t.Errorf("the lease ends at %s, want %s", got, until)
	}
	if calls := l.calls(); !slices.Equal(calls, []string{"CreateTags"}) {
		t.Errorf("it made the calls %v", calls)
	}

	// No policy terminates it, whatever it declares of its disks.
	l.write("policies.yaml", strings.NewReplacer("lease.expired", `resource.state == "running"`, "do: stop",
		"do: terminate\n        disks: {instance_store: scratch, root: scratch}\n        even_if_unknown: true").
		Replace(
			adoptPolicy))
	if got := l.enforce(ExitDone)[sandbox.Idle]; got != "refused" {
		t.Errorf("a policy that terminates it: %q", got)
	}

	// While its lease holds no policy acts on it; when it is over its owner is warned, and it is
	// stopped, and not terminated.
	l.write("policies.yaml", adoptPolicy)
	l.pass(2 * time.Hour)
	if got := l.enforce(ExitDone)[sandbox.Idle]; got != "" {
		t.Errorf("within its lease it is %s", got)
	}
	l.pass(61 * time.Minute)
	l.calls()
	if r := l.run("box"); r.State != "ready" || !strings.Contains(r.Why, "its lease ended") {
		t.Errorf("after its lease it is %s: %s", r.State, r.Why)
	}
	if calls := l.calls(); len(calls) > 0 {
		t.Errorf("the keeper made the calls %v", calls)
	}
	if got := l.enforce(ExitDone)[sandbox.Idle]; got != "warned" {
		t.Fatalf("after its lease it is %q", got)
	}
	for range 4 {
		l.pass(16 * time.Minute)
		l.enforceAny()
	}
	if state := l.state(sandbox.Idle); state != "stopped" {
		t.Fatalf("it is %s", state)
	}
	if calls := l.calls(); slices.Contains(calls, "TerminateInstances") {
		t.Errorf("calls %v", calls)
	}
	l.pass(10 * time.Minute)
	l.run("box")
	l.pass(time.Minute)
	if r := l.run("box"); r.State != "ended" && r.State != "ending" {
		t.Errorf("after the stop the session is %s: %s", r.State, r.Why)
	}
}

// TestAdoptIdle checks that an adopted machine ends after its idle time, by the shipped policy and
// in the steps of the ladder: measured, warned, verified again, stopped, confirmed, and undone. A
// machine that works, or was not measured, continues.
func TestAdoptIdle(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	shipped, err := os.ReadFile("../../examples/policies/expired-leases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l.write("policies.yaml", strings.NewReplacer("share: 20%", `share: "100%"`, "dollars_per_hour: 200}\n",
		"dollars_per_hour: 200}\n    mode: enforce\n").Replace(string(shipped)))
	l.account.Turn(sandbox.Turning, sandbox.AtWork)
	pets := map[string][]string{
		sandbox.Turning: {"--name", "box", "--idle", "45m"}, sandbox.Unmeasured: {"--name", "dark", "--idle", "10m"},
		sandbox.Busy: {"--name", "hot", "--idle", "10m"},
		sandbox.Idle: {"--name", "slow", "--idle", "11h"}} // measured for seven hours
	for name, flags := range pets {
		l.adopted(ExitDone, append(flags, l.asPet(name), "--lease", "20h", "--enforce")...)
	}
	l.pass(10 * time.Minute)
	l.account.Turn(sandbox.Turning, sandbox.AtRest)
	l.pass(40 * time.Minute)
	for name, result := range l.enforce(ExitDone) {
		if pets[name] != nil {
			t.Errorf("after 40 minutes %s is %s", name, result)
		}
	}
	l.pass(10 * time.Minute)
	if preview := l.curfew(ExitDone, "enforce", "--once", "--policy", "policies.yaml"); !strings.Contains(preview,
		"would-warn") || l.messages() != 0 {
		t.Errorf("without --enforce %d were told:\n%s", l.messages(), preview)
	}
	if got := l.enforce(ExitDone); got[sandbox.Turning] != "warned" || l.messages() != 1 {
		t.Fatalf("after 50 minutes: %v, %d told", got, l.messages())
	}
	l.pass(10 * time.Minute)
	l.calls()
	if got := l.enforce(ExitDone); got[sandbox.Turning] != "waiting" {
		t.Errorf("within the grace period: %v", got)
	}
	// It works in the last minute: the warning is taken back, and its idle time begins again.
	l.account.Turn(sandbox.Turning, sandbox.AtWork)
	l.pass(6 * time.Minute)
	if got := l.enforce(ExitDone); got[sandbox.Turning] != "withdrawn" {
		t.Errorf("while it works: %v", got)
	}
	l.account.Turn(sandbox.Turning, sandbox.AtRest)
	l.pass(52 * time.Minute) // EC2 reports the CPU of five minutes at once
	if got := l.enforce(ExitDone); got[sandbox.Turning] != "warned" {
		t.Errorf("it rests again: %v", got)
	}
	for range 3 {
		l.pass(16 * time.Minute)
		l.enforce(ExitDone)
	}
	for name := range pets {
		want := "running"
		if name == sandbox.Turning {
			want = "stopped"
		}
		if state := l.state(name); state != want {
			t.Errorf("%s is %s, want %s", name, state, want)
		}
	}
	if calls := l.calls(); slices.Contains(calls, "TerminateInstances") {
		t.Errorf("calls %v", calls)
	}
	log, item := l.curfew(ExitDone, "audit", "--resource", l.account.IDs[sandbox.Turning], "-o", "jsonl"), ""
	for line := range strings.Lines(log) {
		var e struct{ What, Item string }
		if err := json.Unmarshal([]byte(line), &e); err == nil && e.What == "confirmed" {
			item = e.Item
		}
	}
	for _, what := range []string{"warned", "withdrawn", "warned", "intent", "outcome", "confirmed"} {
		_, after, found := strings.Cut(log, `"what":"`+what+`"`)
		if !found {
			t.Fatalf("the audit log has no %q after what comes before it:\n%s", what, log)
		}
		log = after
	}
	l.curfew(ExitDone, "fix", "--undo", item, "--enforce")
	if state := l.state(sandbox.Turning); state != "running" {
		t.Errorf("taken back it is %s", state)
	}
}

// TestUndoneAdoptionEndsSession checks that an undone adoption is no session any more, and the
// machine is left alone.
func TestUndoneAdoptionEndsSession(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	pet := l.asPet(sandbox.Idle)
	before := l.tagsOf(sandbox.Idle)
	doc := l.adopted(ExitDone, pet, "--name", "box", "--enforce")
	l.pass(10 * time.Minute)
	l.curfew(ExitDone, "fix", "--undo", doc.Item, "--enforce")
	if diff := cmp.Diff(before, l.tagsOf(sandbox.Idle)); diff != "" {
		t.Fatalf("undo (-want +got):\n%s", diff)
	}
	l.calls()
	for range 6 { // it is looked at twice, some time apart
		l.pass(time.Minute)
		if l.run("box").EndedAt != nil {
			break
		}
	}
	if r := l.run("box"); r.EndedAt == nil {
		t.Errorf("the session is %s: %s", r.State, r.Why)
	}
	if calls := l.calls(); len(calls) > 0 || l.state(sandbox.Idle) != "running" {
		t.Errorf("it made the calls %v; the machine is %s", calls, l.state(sandbox.Idle))
	}
}

// TestAdoptDown: down stops the machine, unless one of several reasons prevents it.
func TestAdoptDown(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	pet := l.asPet(sandbox.Idle)
	l.adopted(ExitDone, pet, "--name", "box", "--enforce")
	// This test keeps the sessions: no process of its own is started for that.
	lock, err := os.OpenFile(filepath.Join(l.dir, "data", "keeper.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	l.pass(3 * time.Minute)
	l.calls()
	l.curfew(ExitDone, "freeze", "--reason", "incident")
	l.curfew(ExitDenied, "down", "box", "--detach")
	l.curfew(ExitDone, "unfreeze", "--reason", "over")
	protect := func(on bool) {
		api := ec2.NewFromConfig(l.sandbox.Config("us-east-1"))
		if _, err := api.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
			InstanceId: aws.String(pet), DisableApiStop: boolean(on),
		}); err != nil {
			t.Fatal(err)
		}
	}
	protect(true)
	l.curfew(ExitDenied, "down", "box", "--detach")
	protect(false)
	l.calls()
	if r := l.run("box"); r.State != "ready" || l.state(sandbox.Idle) != "running" {
		t.Fatalf("it is %s and its session %s", l.state(sandbox.Idle), r.State)
	}
	stop := make(chan bool)
	go func() { // time goes on while it is waited for
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				l.mu.Lock()
				l.now, l.up = l.now.Add(200*time.Millisecond), l.up+200*time.Millisecond
				l.mu.Unlock()
			}
		}
	}()
	l.curfew(ExitDone, "down", "box")
	close(stop)
	if state := l.state(sandbox.Idle); state != "stopped" {
		t.Errorf("it is %s", state)
	}
	if calls := l.calls(); !slices.Contains(calls, "StopInstances") || slices.Contains(calls, "TerminateInstances") {
		t.Errorf("calls %v", calls)
	}
}

// TestAdoptRefuses checks every rule that refuses a machine, each with nothing written.
func TestAdoptRefuses(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	tag := func(key, value string) func(name string) {
		return func(name string) { l.tagResource(l.account.IDs[name], key, value) }
	}
	for i, c := range []struct {
		rule  string
		name  string
		make  func(name string)
		flags []string
	}{
		{"", "gang-1", nil, nil},
		{"launched", "gang-1", tag(inventory.TagSession, "s1"), nil},
		{"launched", "gang-1", tag(inventory.TagInstallation, "another"), nil},
		{"adopted", "gang-1", tag(inventory.TagAdopted, "another"), nil},
		{"persistent", "gang-1", tag(inventory.TagLifetime, "persistent"), nil},
		{"not-managed", "gang-1", tag(inventory.TagManaged, "false"), nil},
		{"production", "gang-1", tag("environment", "production"), nil},
		{"production", "gang-1", tag(inventory.TagPurpose, "inference"), nil},
		{"gang", "gang-1", tag(inventory.TagGang, "llama"), nil},
		{"owner", "gang-1", nil, []string{"--user", "bo"}},
		{"owner", "gang-1", func(name string) {
			l.untag(name, "owner", "user", "team", "Owner", "Team", "project")
		}, nil},
		{"lease-policy", "gang-1", nil, []string{"--lease", "90d"}},
		{"idle-limit", "gang-1", nil, []string{"--idle", "13h"}},
		{"state", "gang-2", func(name string) {
			if _, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).StopInstances(t.Context(),
				&ec2.StopInstancesInput{InstanceIds: []string{l.account.IDs[name]}}); err != nil {
				t.Fatal(err)
			}
		}, nil},
		{"group-member", sandbox.Grouped, nil, nil},
	} {
		before := map[string]string{}
		if c.name == "gang-1" {
			l.asPet(c.name)
			before = l.tagsOf(c.name)
		} else if c.name != sandbox.Grouped {
			l.asPet(c.name)
		}
		if c.make != nil {
			c.make(c.name)
		}
		l.calls()
		want, args := ExitDenied, append([]string{l.account.IDs[c.name]}, c.flags...)
		if c.rule == "" {
			want = ExitDone
		} else {
			args = append(args, "--enforce")
		}
		doc := l.adopted(want, args...)
		if got := rules(doc); c.rule != "" && (!slices.Contains(got, c.rule) || len(got) != 1) || c.rule == "" &&
			len(got) > 0 {
			t.Errorf("%d: it is refused by %v, want %s: %+v", i, got, c.rule, doc.Refusals)
		}
		if calls := l.calls(); len(calls) > 0 {
			t.Errorf("%d: %s made the calls %v", i, c.rule, calls)
		}
		if c.name == "gang-1" {
			for key := range l.tagsOf(c.name) {
				if _, was := before[key]; !was {
					l.untag(c.name, key)
				}
			}
			for key, v := range before {
				l.tagResource(l.account.IDs[c.name], key, v)
			}
		}
	}
	if out := l.curfew(ExitDone, "ls", "--all"); !strings.Contains(out, "No sessions") {
		t.Errorf("records were written:\n%s", out)
	}

	// Machines that cannot be read are not adopted, and neither are those without a lease.
	end := l.sandbox.Wire.Inject(wire.Fault{Service: "ec2", Operation: "DescribeInstances", Kind: wire.AccessDenied})
	l.curfew(ExitError, "session", "adopt", l.account.Ref("gang-1").String(), "--enforce")
	end()
	l.curfew(ExitUsage, "session", "adopt", "aws/"+wire.DefaultAccount+"/us-east-1/volume/vol-0abc")
	l.curfew(ExitUsage, "session", "adopt", "sim/000000000000/us-east-1/instance/i-0f3a")
	l.curfew(ExitUsage, "session", "adopt", "x", "--enforce", "--dry-run")
}

// TestTemplateOfAMachine writes the session file of a machine of the scan, which the price of a
// session and the reader of session files take.
func TestTemplateOfAMachine(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	l.curfewAny("scan", "--regions", "us-east-1")
	file := l.curfew(ExitDone, "session", "template", "--from", l.account.IDs[sandbox.Busy])
	for _, want := range []string{
		"name: busy\n", "resources: {instance_type: g5g.xlarge}\n", "regions: [us-east-1]\n", "user: ana", "disk: ",
		"image: ami-", "an hour at list price",
	} {
		if !strings.Contains(file, want) {
			t.Errorf("no %q in\n%s", want, file)
		}
	}
	if err := os.WriteFile(filepath.Join(l.dir, "busy.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := l.curfew(ExitDone, "estimate", "busy.yaml", "-o", "json"); !strings.Contains(out, `"p95_usd"`) {
		t.Error(out)
	}
	l.curfew(ExitError, "session", "template", "--from", "nothing-of-that-name")
	l.curfew(ExitUsage, "session", "template")
	l.curfew(ExitUsage, "session", "template", "--from", "x", "--step", "60s")
}

func boolean(on bool) *types.AttributeBooleanValue {
	return &types.AttributeBooleanValue{Value: aws.Bool(on)}
}
