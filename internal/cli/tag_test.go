package cli

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// tagsOf is the provider's own word on the tags of a machine.
func (l *ladderTest) tagsOf(name string) map[string]string {
	l.t.Helper()
	out, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).DescribeInstances(l.t.Context(),
		&ec2.DescribeInstancesInput{InstanceIds: []string{l.account.IDs[name]}})
	if err != nil {
		l.t.Fatal(err)
	}
	tags := map[string]string{}
	for _, t := range out.Reservations[0].Instances[0].Tags {
		tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return tags
}

// untag takes tags of a machine away.
func (l *ladderTest) untag(name string, keys ...string) {
	l.t.Helper()
	var tags []types.Tag
	for _, k := range keys {
		tags = append(tags, types.Tag{Key: aws.String(k)})
	}
	if _, err := ec2.NewFromConfig(l.sandbox.Config("us-east-1")).DeleteTags(l.t.Context(),
		&ec2.DeleteTagsInput{Resources: []string{l.account.IDs[name]}, Tags: tags}); err != nil {
		l.t.Fatal(err)
	}
}

// tagRun runs curfew tag and returns its line for each machine, by name.
func (l *ladderTest) tagRun(want int, args ...string) map[string]view.Tagged {
	l.t.Helper()
	var doc struct {
		Resources []view.Tagged `json:"resources"`
	}
	text := l.curfew(want, append([]string{"tag", "-o", "json", "--kind", "instance"}, args...)...)
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		l.t.Fatal(err)
	}
	got := map[string]view.Tagged{}
	for _, v := range doc.Resources {
		for name, id := range l.account.IDs {
			if strings.HasSuffix(v.Resource, "/"+id) {
				got[name] = v
			}
		}
	}
	return got
}

// TestTag writes owner tags by rules and defaults: shown first, then written, read back,
// and taken back. What has a value keeps it.
func TestTag(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	text, err := os.ReadFile(filepath.Join(l.dir, "curfew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l.write("curfew.yaml", string(text)+`owners:
  rules:
    - {region: us-east-1, tags: {"curfew:lifetime": ephemeral}, set: {project: ranking, team: never}, reason: ticket 7}
  defaults: {cost-center: "4711"}
required_tags: [team, project, cost-center, auditor]
`)
	for name := range l.account.IDs {
		l.untag(name, "project")
	}
	l.untag(sandbox.Persistent, "cost-center", "CostCenter", "Cost-Center")
	before := map[string]map[string]string{}
	for name := range l.account.IDs {
		before[name] = l.tagsOf(name)
	}

	l.sandbox.Wire.Recorder.Reset()
	shown := l.tagRun(ExitDone)
	if calls := l.sandbox.Wire.Recorder.Mutating(); len(calls) > 0 {
		t.Fatalf("showing it made the calls %v", calls)
	}
	if v := shown[sandbox.Idle]; v.State != "preview" || !slices.ContainsFunc(v.Add, func(a view.AddedTag) bool {
		return a.Key == "project" && a.Value == "ranking" && a.Before == nil && strings.Contains(a.From, "ticket 7")
	}) || !slices.Equal(v.Left, []string{"auditor"}) {
		t.Fatalf("of an idle machine it shows %+v", v)
	}
	if v := shown[sandbox.Persistent]; slices.ContainsFunc(v.Add, func(a view.AddedTag) bool {
		return a.Key == "project"
	}) || !slices.Contains(v.Left, "project") {
		t.Errorf("a machine that no rule matches gets %+v", v)
	}

	l.curfew(ExitUsage, "tag", "--enforce", "--dry-run")
	l.curfew(ExitError, "tag", "i-0none", "--kind", "instance")
	l.curfew(ExitDone, "freeze", "--reason", "incident")
	l.tagRun(ExitDenied, "--enforce")
	if diff := cmp.Diff(before[sandbox.Idle], l.tagsOf(sandbox.Idle)); diff != "" {
		t.Fatalf("under a freeze:\n%s", diff)
	}
	l.curfew(ExitDone, "unfreeze", "--reason", "over")

	// Another person tags one while the others are written, and one cannot be written.
	end := l.sandbox.Wire.Inject(wire.Fault{Operation: "CreateTags", Kind: wire.AccessDenied, Times: 1})
	l.tagRun(ExitPartial, "--enforce", l.account.IDs[sandbox.Busy])
	end()
	done := l.tagRun(ExitDone, "--enforce")
	for name := range l.account.IDs {
		want := maps.Clone(before[name])
		for _, a := range shown[name].Add {
			want[a.Key] = a.Value
		}
		if diff := cmp.Diff(want, l.tagsOf(name)); diff != "" {
			t.Errorf("tags of %s (-want +got):\n%s", name, diff)
		}
		if v := done[name]; len(shown[name].Add) > 0 && (v.State != "confirmed" || v.Item == "") {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if l.messages() > 0 {
		t.Errorf("%d people were told of tags", l.messages())
	}
	for name, v := range l.tagRun(ExitDone, "--enforce") {
		if len(v.Add) > 0 {
			t.Errorf("%s is tagged again: %+v", name, v.Add)
		}
	}

	both := done[sandbox.Idle].Item + "," + done[sandbox.Exempt].Item
	if out := l.curfew(ExitDone, "fix", "--undo", both); !strings.Contains(out, "ec2:DeleteTags") ||
		!strings.Contains(out, "--enforce") {
		t.Errorf("what would be taken back:\n%s", out)
	}
	l.tagResource(l.account.IDs[sandbox.Exempt], "project", "theirs")
	l.curfew(ExitDenied, "fix", "--undo", both, "--enforce")
	if diff := cmp.Diff(before[sandbox.Idle], l.tagsOf(sandbox.Idle)); diff != "" {
		t.Errorf("after it was taken back:\n%s", diff)
	}
	if got := l.tagsOf(sandbox.Exempt)["project"]; got != "theirs" {
		t.Errorf("a later tag of another person became %q", got)
	}
	if log := l.curfew(ExitDone, "audit", "--resource",
		l.account.IDs[sandbox.Idle]); !strings.Contains(log, "by ana") ||
		strings.Contains(log, "by policy") {
		t.Errorf("the audit log says\n%s", log)
	}
}

// TestTagRulesCannotWriteProtectionTags checks that no rule writes a tag that decides over
// policies.
func TestTagRulesCannotWriteProtectionTags(t *testing.T) {
	l := &ladderTest{t: t, dir: t.TempDir()}
	for _, key := range []string{inventory.TagManaged, inventory.TagKeepUntil, inventory.TagLifetime} {
		l.write("curfew.yaml",
			"owners:\n  defaults: {\""+key+"\": \"true\", \"purpose\": \"transient-ml-training\"}\n")
		if exit, _, errs := l.curfewAny("tag", "--demo"); exit != ExitUsage ||
			!strings.Contains(errs, "owners.defaults") {
			t.Errorf("%s: exit %d: %s", key, exit, errs)
		}
	}
}
