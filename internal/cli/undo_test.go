package cli

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// finds scans and returns the id of a rule's finding about a resource.
func (l *ladderTest) finds(rule, resource string, flags ...string) string {
	l.t.Helper()
	_, out, errs := l.curfewAny(append([]string{"scan", "-o", "json", "--regions", "us-east-1"}, flags...)...)
	doc, err := view.LoadScan(strings.NewReader(out))
	if err != nil {
		l.t.Fatalf("%v\n%s", err, errs)
	}
	for _, f := range doc.Findings {
		if f.Rule == rule && f.Resource.ID == resource {
			return f.ID
		}
	}
	l.t.Fatalf("no %s about %s", rule, resource)
	return ""
}

// fixed returns the lines of a fix, and where each fix stands.
func (l *ladderTest) fixed(want int, args ...string) ([]view.Line, []view.Fix) {
	l.t.Helper()
	var doc struct {
		Lines []view.Line `json:"lines"`
		Fixes []view.Fix  `json:"fixes"`
	}
	text := l.curfew(want, append([]string{"fix", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		l.t.Fatalf("%v\n%s", err, text)
	}
	return doc.Lines, doc.Fixes
}

// TestUndoPreviewsByDefault checks that a stopped machine is started again only with --enforce, by
// the id that the audit log's table shows.
func TestUndoPreviewsByDefault(t *testing.T) {
	l := newLadder(t)
	l.write("policies.yaml", strings.Replace(ladderPolicies, "do: terminate", "do: stop", 1))
	l.pass(40 * time.Minute)
	l.enforceAny()
	l.pass(16 * time.Minute)
	l.enforceAny()
	l.pass(2 * time.Minute)
	l.enforceAny()
	if s := l.state(sandbox.Idle); s != "stopped" {
		t.Fatalf("it is %s", s)
	}
	item := ""
	for line := range strings.Lines(l.curfew(ExitDone, "audit", "--resource", l.account.IDs[sandbox.Idle], "--what",
		"confirmed")) {
		if _, after, found := strings.Cut(line, "  item "); found {
			item = strings.Fields(after)[0]
		}
	}
	if item == "" {
		t.Fatal("the audit log's table has no id to undo by")
	}
	l.sandbox.Wire.Recorder.Reset()
	for _, flags := range [][]string{nil, {"--dry-run"}} {
		out := l.curfew(ExitDone, append([]string{"fix", "--undo", item}, flags...)...)
		for _, want := range []string{
			"would-undo", "ec2:StartInstances", l.account.IDs[sandbox.Idle], "nothing is changed", "--enforce",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", flags, want, out)
			}
		}
	}
	if calls := l.sandbox.Wire.Recorder.Mutating(); len(calls) > 0 || l.state(sandbox.Idle) != "stopped" {
		t.Fatalf("showing it made the calls %v", calls)
	}
	l.curfew(ExitUsage, "fix", "--undo", item, "--enforce", "--dry-run")
	l.jump(5 * time.Hour)
	if code, out, errs := l.curfewAny("fix", "--undo", item, "--enforce"); code != ExitError ||
		!strings.Contains(errs, "5h ahead of the state's") || l.state(sandbox.Idle) != "stopped" {
		t.Errorf("an undo by a wrong clock: exit %d\n%s%s", code, out, errs)
	}
	l.jump(-5 * time.Hour)
	l.curfew(ExitDone, "fix", "--undo", item, "-o", "json")
	l.curfew(ExitUsage, "fix", "--undo", item, "--enforce", "--keep", "soon")
	l.curfew(ExitUsage, "fix", "--undo", item, "--enforce", "--keep", "100d")
	if out := l.curfew(ExitDone, "fix", "--undo", item, "--enforce", "--keep", "3h"); !strings.Contains(out,
		"policies leave it alone until") {
		t.Errorf("it does not say that it is kept:\n%s", out)
	}
	if s := l.state(sandbox.Idle); s != "running" {
		t.Errorf("after it was taken back it is %s", s)
	}
	l.curfew(ExitDenied, "fix", "--undo", item) // there is nothing left
	// The policy that stopped it leaves it alone, and says why.
	said := ""
	for range 4 {
		l.pass(20 * time.Minute)
		_, out, _ := l.curfewAny("enforce", "--once", "--enforce", "--policy", "policies.yaml")
		said += out
	}
	if s := l.state(sandbox.Idle); s != "running" || !strings.Contains(said, "was undone (item "+item) {
		t.Errorf("an hour after the undo it is %s:\n%s", s, said)
	}
}

// TestAFixKnowsGoneFromChangedFromUnread checks that a resource is gone only if the provider says
// so.
func TestAFixKnowsGoneFromChangedFromUnread(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	truth, err := l.sandbox.Seed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.pass(40 * time.Minute)
	i := slices.IndexFunc(truth.Other, func(p sandbox.Planted) bool { return p.Rule == "volume-unattached" })
	if i < 0 {
		t.Fatal("the other account has no volume to find")
	}
	result := func(want int, id string, flags ...string) string {
		t.Helper()
		lines, fixes := l.fixed(want, append([]string{id, "--enforce"}, flags...)...)
		if len(lines) != 1 || lines[0].Why == "" || len(fixes) != 1 {
			t.Fatalf("%d lines, want one with a reason: %+v, %d fixes", len(lines), lines, len(fixes))
		}
		if state := string(fixes[0].State); state != lines[0].Result && lines[0].Result != "observed" {
			t.Errorf("the fix is %s, and its line says %s", state, lines[0].Result)
		}
		return lines[0].Result
	}

	other := l.finds("volume-unattached", truth.Other[i].ID, "--assume-role", truth.OtherRole)
	// It is read; its owner has no address here, so that no warning can be sent.
	if got := result(ExitPartial, other); got != "observed" {
		t.Errorf("a finding of an assumed role, fixed without --assume-role: %s", got)
	}
	// The role is gone between the audit and the fix.
	end := l.sandbox.Wire.Inject(wire.Fault{Service: "sts", Operation: "AssumeRole", Kind: wire.AccessDenied})
	if got := result(ExitError, other); got != "unread" {
		t.Errorf("a finding of a role that cannot be assumed: %s", got)
	}
	end()
	alterState(t, filepath.Join(l.dir, "data"), "UPDATE snapshot_accounts SET role = ? WHERE role = ?",
		"arn:aws:iam::"+truth.OtherAccount+":role/none", truth.OtherRole)

	for _, tc := range []struct {
		name, want string
		exit       int
		meanwhile  func(id string) (end func())
	}{
		{"the list is denied", "unread", ExitError, func(string) func() {
			return l.sandbox.Wire.Inject(wire.Fault{
				Service: "ec2", Operation: "DescribeVolumes", Kind: wire.AccessDenied,
			})
		}},
		{"it is kept", "changed", ExitPartial, func(id string) func() {
			l.tagResource(id, inventory.TagKeepUntil, l.clock().Add(48*time.Hour).Format(time.RFC3339))
			return func() { l.tagResource(id, inventory.TagKeepUntil, l.clock().Add(-time.Hour).Format(time.RFC3339)) }
		}},
		{"it is deleted", "gone", ExitDone, func(id string) func() { l.deleteVolume(id); return func() {} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			volume := ""
			for _, p := range truth.Planted {
				if p.Rule == "volume-unattached" && p.Region == "us-east-1" {
					volume = p.ID
				}
			}
			id := l.finds("volume-unattached", volume)
			end := tc.meanwhile(volume)
			defer end()
			if got := result(tc.exit, id); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func (l *ladderTest) tagResource(id, key, value string) {
	l.t.Helper()
	_, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).CreateTags(l.t.Context(),
		&ec2.CreateTagsInput{Resources: []string{id},
			Tags: []types.Tag{{Key: aws.String(key), Value: aws.String(value)}}})
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *ladderTest) deleteVolume(id string) {
	l.t.Helper()
	if _, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).DeleteVolume(l.t.Context(),
		&ec2.DeleteVolumeInput{VolumeId: &id}); err != nil {
		l.t.Fatal(err)
	}
}
