package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// seededFixes is the seeded account with people for all its owners; ana asks.
type seededFixes struct {
	*ladderTest
	truth   *sandbox.Truth
	regions string
}

func newSeededFixes(t *testing.T) *seededFixes {
	t.Helper()
	l := newLadder(t)
	b := l.read("curfew.yaml")
	l.write("curfew.yaml", strings.Replace(b, "users: {ana: U0ANA}", "users: {ana: U0ANA, ben: U0BEN, bo: U0BO, dana: U0DANA, chen: U0CHEN, emil: U0EMIL}", 1))
	truth, err := l.sandbox.Seed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.who = "ana"
	return &seededFixes{l, truth, "--regions=" + strings.Join(truth.Regions, ",")}
}

// scan audits the account and keeps the scan, as a person does.
func (s *seededFixes) scan() report.Document {
	s.t.Helper()
	doc, err := report.Load(strings.NewReader(s.curfew(ExitDone, "scan", s.regions, "-o", "json")))
	if err != nil {
		s.t.Fatal(err)
	}
	return doc
}

// fixes runs fix over findings and returns what became of each.
func (s *seededFixes) fixes(args ...string) map[string]fixDoc {
	s.t.Helper()
	_, out, errs := s.curfewAny(append(append([]string{"fix"}, args...), "-o", "json")...)
	var doc struct {
		Schema string   `json:"schema"`
		Fixes  []fixDoc `json:"fixes"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Schema != "curfew.fix/v1" {
		s.t.Fatalf("curfew fix %v: %v\n%s%s", args, err, out, errs)
	}
	got := map[string]fixDoc{}
	for _, f := range doc.Fixes {
		got[f.Finding.ID] = f
	}
	return got
}

// approve lets another person approve what is asked for.
func (s *seededFixes) approve(got map[string]fixDoc) {
	s.t.Helper()
	s.who = "bo"
	for _, f := range got {
		if f.State == fixAsked {
			s.curfew(ExitDone, "approve", f.ApprovalID)
		}
	}
	s.who = "ana"
}

// kindOfFix is one kind of fix that is carried out, and what the provider says itself.
type kindOfFix struct {
	rule, name string
	// shows says whether the provider's own answer is what the change says.
	shows func(s *seededFixes, f *fixDoc) bool
	// document is what the provider holds in the place of the change's document.
	document func(s *seededFixes, id string) string
	// stays says that undo has nothing to take back.
	stays bool
}

func bucketDocument(s *seededFixes, id string) string {
	text, _ := s.sandbox.Wire.State.Lifecycle(wire.DefaultAccount, id)
	return text
}

func repositoryDocument(s *seededFixes, id string) string {
	out, err := ecr.NewFromConfig(s.sandbox.Config("us-east-1")).GetLifecyclePolicy(s.t.Context(), &ecr.GetLifecyclePolicyInput{RepositoryName: &id})
	if err != nil {
		return ""
	}
	return aws.ToString(out.LifecyclePolicyText)
}

func retentionOf(s *seededFixes, f *fixDoc) bool {
	out, err := cloudwatchlogs.NewFromConfig(s.sandbox.Config("us-east-1")).DescribeLogGroups(s.t.Context(), &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &f.Finding.Resource.ID})
	return err == nil && len(out.LogGroups) == 1 && int(aws.ToInt32(out.LogGroups[0].RetentionInDays)) == f.Change.Arguments.RetentionDays
}

func savedAndGone(s *seededFixes, f *fixDoc) bool {
	api := ec2.NewFromConfig(s.sandbox.Config(f.Region))
	out, err := api.DescribeVolumes(s.t.Context(), &ec2.DescribeVolumesInput{Filters: []types.Filter{{Name: aws.String("volume-id"), Values: f.Change.Arguments.Snapshot}}})
	if err != nil || len(out.Volumes) > 0 {
		return false
	}
	for _, v := range f.Change.Arguments.Snapshot {
		of, err := api.DescribeSnapshots(s.t.Context(), &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: []types.Filter{{Name: aws.String("volume-id"), Values: []string{v}}}})
		if err != nil || len(of.Snapshots) != 1 || of.Snapshots[0].State != types.SnapshotStateCompleted {
			return false
		}
	}
	return len(f.Change.Arguments.Snapshot) > 0
}

func addressGone(s *seededFixes, f *fixDoc) bool {
	out, err := ec2.NewFromConfig(s.sandbox.Config(f.Region)).DescribeAddresses(s.t.Context(), &ec2.DescribeAddressesInput{})
	return err == nil && !slices.ContainsFunc(out.Addresses, func(a types.Address) bool { return aws.ToString(a.AllocationId) == f.Finding.Resource.ID })
}

func endpointGone(s *seededFixes, f *fixDoc) bool {
	_, err := sagemaker.NewFromConfig(s.sandbox.Config(f.Region)).DescribeEndpoint(s.t.Context(), &sagemaker.DescribeEndpointInput{EndpointName: &f.Finding.Resource.ID})
	return err != nil
}

// machineIs says whether a machine is in the state that a change leads to.
func machineIs(s *seededFixes, f *fixDoc) bool {
	out, err := ec2.NewFromConfig(s.sandbox.Config(f.Region)).DescribeInstances(s.t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{f.Finding.Resource.ID}})
	want := map[change.Verb]types.InstanceStateName{change.Stop: types.InstanceStateNameStopped, change.Terminate: types.InstanceStateNameTerminated}[f.Change.Verb]
	return err == nil && len(out.Reservations) == 1 && out.Reservations[0].Instances[0].State.Name == want
}

var kindsOfFixes = []kindOfFix{
	{rule: "bucket-no-lifecycle", name: "acme-vision-datasets", document: bucketDocument},
	{rule: "checkpoint-stale", name: "acme-language-checkpoints", document: bucketDocument},
	{rule: "bucket-multipart", name: "acme-language-uploads", document: bucketDocument},
	{rule: "bucket-noncurrent", name: "acme-ranking-models", document: bucketDocument},
	{rule: "repository-no-lifecycle", name: "vision/trainer", document: repositoryDocument},
	{rule: "log-group-no-retention", name: "/vision/training", shows: retentionOf},
	{rule: "volume-unattached", name: "detector-scratch", shows: savedAndGone, stays: true},
	{rule: "instance-stopped", name: "old-workstation", shows: func(s *seededFixes, f *fixDoc) bool { return savedAndGone(s, f) && machineIs(s, f) }, stays: true},
	{rule: "address-unused", name: "old-demo", shows: addressGone, stays: true},
	{rule: "endpoint-idle", name: "old-detector", shows: endpointGone, stays: true},
}

// TestFixesDoWhatTheySay takes each kind of fix through audit, preview, approval by another
// person, act and undo: what the provider answers itself is what the preview showed.
func TestFixesDoWhatTheySay(t *testing.T) {
	s := newSeededFixes(t)
	first := s.scan()
	var planted []sandbox.Planted
	ids := map[string]kindOfFix{}
	var args []string
	for _, k := range kindsOfFixes {
		i := slices.IndexFunc(first.Findings, func(f report.Finding) bool {
			return f.Rule == k.rule && (f.Resource.Name == k.name || f.Resource.ID == k.name)
		})
		if i < 0 {
			t.Errorf("%s of %s is not found", k.rule, k.name)
			continue
		}
		f := first.Findings[i]
		ids[f.ID] = k
		args = append(args, f.ID)
		at := slices.IndexFunc(s.truth.Planted, func(p sandbox.Planted) bool { return p.Rule == k.rule && p.ID == f.Resource.ID })
		if at < 0 {
			t.Errorf("%s of %s was not planted, so its dollars are not known", k.rule, k.name)
			continue
		}
		planted = append(planted, s.truth.Planted[at])
	}
	checkPlanted(t, first, planted) // the dollars of the seed are computed apart from the rules

	previews := s.fixes(args...)
	before := map[string]string{}
	for id, k := range ids {
		p := previews[id]
		if p.State != fixPreview || p.Change.Verb == "" || len(p.Change.Commands) == 0 || p.Account != wire.DefaultAccount {
			t.Errorf("%s: the preview is %+v", k.name, p)
		}
		if k.document != nil {
			if p.Change.Document == "" {
				t.Fatalf("%s: no document is shown", k.name)
			}
			before[id] = k.document(s, p.Finding.Resource.ID)
			if before[id] != p.Change.Before {
				t.Errorf("%s: the document that is replaced is\n%s\nand is shown as\n%s", k.name, before[id], p.Change.Before)
			}
		}
	}

	enforce := append(append([]string{}, args...), "--enforce", "--scratch-disks")
	for id, f := range s.fixes(enforce...) {
		if f.State != fixWaiting {
			t.Errorf("%s, first run: %s %+v", ids[id].name, f.State, f.Refusals)
		}
	}
	s.pass(16 * time.Minute)
	asked := s.fixes(enforce...)
	for id, f := range asked {
		if f.NeedsApproval != (f.State == fixAsked) {
			t.Errorf("%s needs an approval: %v, and is %s %+v", ids[id].name, f.NeedsApproval, f.State, f.Refusals)
		}
	}
	s.approve(asked)
	after := map[string]fixDoc{}
	for range 4 {
		for id, f := range s.fixes(enforce...) {
			if after[id].State != fixConfirmed {
				after[id] = f
			}
		}
		s.pass(2 * time.Minute)
	}
	for id, k := range ids {
		t.Run(k.rule, func(t *testing.T) {
			f := after[id]
			if f.State != fixConfirmed || !f.Change.Equal(previews[id].Change.Change) {
				t.Fatalf("%s %+v, change %+v", f.State, f.Refusals, f.Change.Change)
			}
			if k.document == nil {
				if !k.shows(s, &f) {
					t.Errorf("the provider does not show what the preview said: %+v", f.Change.Change)
				}
				return
			}
			if now := k.document(s, f.Finding.Resource.ID); !change.Same(now, f.Change.Document) {
				t.Errorf("the provider has\n%s\nand the preview showed\n%s", now, f.Change.Document)
			}
		})
	}

	left := found(s.scan())
	for _, f := range first.Findings {
		k, fixed := ids[f.ID]
		_, there := left[key(f.Rule, f.Resource.Region, f.Resource.ID)]
		switch {
		case fixed && there && k.document == nil:
			t.Errorf("%s of %s is found again", f.Rule, k.name)
		case !fixed && !there && !slices.ContainsFunc(kindsOfFixes, func(k kindOfFix) bool { return k.name == f.Resource.Name || k.name == f.Resource.ID }) && f.Rule == "bucket-no-lifecycle":
			t.Errorf("%s of %s is gone, and nobody fixed it", f.Rule, f.Resource.ID)
		}
	}

	for id, k := range ids {
		t.Run("undo "+k.rule, func(t *testing.T) {
			f := after[id]
			want := ExitDone
			if k.stays {
				want = ExitDenied
			}
			s.curfew(want, "fix", "--undo", f.Item, "--enforce", s.regions)
			if k.document != nil {
				if now := k.document(s, f.Finding.Resource.ID); now != before[id] {
					t.Errorf("after it was taken back there is\n%q\nand there was\n%q", now, before[id])
				}
			}
		})
	}
}

func (l *ladderTest) read(name string) string {
	l.t.Helper()
	b, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil {
		l.t.Fatal(err)
	}
	return string(b)
}

// lookup returns the id of a rule's finding about a resource, by its name.
func (s *seededFixes) lookup(doc report.Document, rule, name string) string {
	s.t.Helper()
	i := slices.IndexFunc(doc.Findings, func(f report.Finding) bool {
		return f.Rule == rule && (f.Resource.Name == name || f.Resource.ID == name)
	})
	if i < 0 {
		s.t.Fatalf("%s of %s is not found", rule, name)
	}
	return doc.Findings[i].ID
}

// TestFixesMeetChange lets others change what a fix was made from: before the first run,
// after the approval, in price, and by a second fix of the same bucket.
func TestFixesMeetChange(t *testing.T) {
	s := newSeededFixes(t)
	const shared, early, late = "acme-ranking-models", "acme-vision-datasets", "acme-language-checkpoints"
	if _, err := s3.NewFromConfig(s.sandbox.Config("us-west-2"), func(o *s3.Options) { o.UsePathStyle = true }).DeleteBucketLifecycle(t.Context(),
		&s3.DeleteBucketLifecycleInput{Bucket: aws.String(shared)}); err != nil {
		t.Fatal(err)
	}
	doc := s.scan()
	theirs := change.WriteRules([]change.Rule{{ID: "theirs", Prefix: "x/", ExpireDays: 9}})
	changedEarly := s.lookup(doc, "bucket-no-lifecycle", early)
	changedLate := s.lookup(doc, "checkpoint-stale", late)
	colder, versions := s.lookup(doc, "bucket-no-lifecycle", shared), s.lookup(doc, "bucket-noncurrent", shared)
	volume := s.lookup(doc, "volume-unattached", "detector-scratch")
	all := []string{changedEarly, changedLate, colder, versions, volume, "--enforce"}

	s.sandbox.Wire.State.PutLifecycle(wire.DefaultAccount, early, theirs, "all_storage_classes_128K")
	got := s.fixes(all...)
	if state := got[changedEarly].State; state != fixChanged && state != fixGone {
		t.Errorf("a lifecycle that was changed after the scan: %s", state)
	}
	s.pass(16 * time.Minute)
	asked := s.fixes(all...)
	s.approve(asked)

	s.sandbox.Wire.State.PutLifecycle(wire.DefaultAccount, late, theirs, "all_storage_classes_128K")
	size := asked[volume].Finding.Resource.ID
	api := ec2.NewFromConfig(s.sandbox.Config("us-east-1"))
	if _, err := api.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &size, Size: aws.Int32(16000)}); err != nil {
		t.Fatal(err)
	}
	got = s.fixes(all...)
	if f := got[changedLate]; f.State != fixChanged && f.State != fixGone {
		t.Errorf("a lifecycle that was changed after the approval: %s %+v", f.State, f.Refusals)
	}
	for _, name := range []string{early, late} {
		if now := bucketDocument(s, name); now != theirs {
			t.Errorf("%s: what others have put is\n%s", name, now)
		}
	}
	if f := got[volume]; f.State != fixAsked || f.ApprovalID == asked[volume].ApprovalID {
		t.Errorf("a volume that costs more than was approved: %s, approval %s, before %s", f.State, f.ApprovalID, asked[volume].ApprovalID)
	}
	if out, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{size}}); err != nil || len(out.Volumes) != 1 {
		t.Errorf("the volume is gone: %v", err)
	}

	done, left := colder, versions
	if got[versions].State == fixConfirmed {
		done, left = versions, colder
	}
	if got[done].State != fixConfirmed || got[left].State == fixConfirmed {
		t.Fatalf("two fixes of one bucket: %s %+v and %s %+v", got[done].State, got[done].Refusals, got[left].State, got[left].Refusals)
	}
	if now := bucketDocument(s, shared); !change.Same(now, got[done].Change.Document) {
		t.Errorf("after the first of two fixes:\n%s\nwant\n%s", now, got[done].Change.Document)
	}
	if f := s.fixes(left, "--enforce")[left]; f.State != fixChanged && f.State != fixGone {
		t.Errorf("the second of two fixes: %s, want that it has changed", f.State)
	}
}
