package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	smtypes "github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// seededFixes is the seeded account with people for all its owners. Ana asks and bo
// approves, each with AWS credentials of their own.
type seededFixes struct {
	*ladderTest
	truth       *sandbox.Truth
	regions     string
	asAna, asBo func()
	// idle are machines that go on doing nothing while time passes, by their regions.
	idle map[string]string
	// measured is a notebook whose host's use is recorded, as idle all the time.
	measured string
}

func newSeededFixes(t *testing.T) *seededFixes {
	t.Helper()
	l := newLadder(t)
	b := l.read("curfew.yaml")
	l.write("curfew.yaml",
		strings.Replace(b, "users: {ana: U0ANA}",
			"users: {ana: U0ANA, ben: U0BEN, bo: U0BO, dana: U0DANA, chen: U0CHEN, emil: U0EMIL}", 1))
	truth, err := l.sandbox.Seed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &seededFixes{
		ladderTest: l, truth: truth, regions: "--regions=" + strings.Join(truth.Regions, ","),
		idle: map[string]string{},
	}
	var ana, bo string
	ana, s.asAna = l.keysOf("ana")
	bo, s.asBo = l.keysOf("bo")
	l.write("curfew.yaml", strings.Replace(l.read("curfew.yaml"), "approvals: {accept: [self-declared]}",
		fmt.Sprintf("approvals: {sts_endpoint: %q}\npeople: {ana: {aws: [%q]}, bo: {aws: [%q]}}",
			os.Getenv("AWS_ENDPOINT_URL"), ana, bo), 1)+`owners:
  defaults: {team: vision, project: ranking, environment: dev, cost-center: "4711"}
`+requiredTags)
	s.asAna()
	return s
}

// endpoint makes an endpoint of machines that are far too many, measured for two weeks.
func (s *seededFixes) endpoint(name string, machines int32) {
	s.t.Helper()
	api := sagemaker.NewFromConfig(s.sandbox.Config("us-east-1"))
	var tags []smtypes.Tag
	for k, v := range map[string]string{
		"owner": "ana", "team": "vision", "project": "detector", "environment": "dev", "cost-center": "1",
		inventory.TagLifetime: "persistent",
	} {
		tags = append(tags, smtypes.Tag{Key: &k, Value: &v})
	}
	_, err := api.CreateModel(s.t.Context(), &sagemaker.CreateModelInput{
		ModelName: &name, ExecutionRoleArn: aws.String("arn:aws:iam::" + wire.DefaultAccount + ":role/sagemaker"),
		PrimaryContainer: &smtypes.ContainerDefinition{
			Image: aws.String(wire.DefaultAccount + ".dkr.ecr.us-east-1.amazonaws.com/server:1"),
		}})
	if err == nil {
		_, err = api.CreateEndpointConfig(s.t.Context(), &sagemaker.CreateEndpointConfigInput{
			EndpointConfigName: &name, ProductionVariants: []smtypes.ProductionVariant{{
				VariantName: aws.String("main"), ModelName: &name, InstanceType: "ml.g4dn.xlarge",
				InitialInstanceCount: &machines,
				InitialVariantWeight: aws.Float32(1)}}})
	}
	if err == nil {
		_, err = api.CreateEndpoint(s.t.Context(), &sagemaker.CreateEndpointInput{
			EndpointName: &name, EndpointConfigName: &name, Tags: tags,
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	of := []wire.Dimension{{Name: "EndpointName", Value: name}, {Name: "VariantName", Value: "main"}}
	for metric, v := range map[string]float64{
		"CPUUtilization": 8, "GPUUtilization": 12, "GPUMemoryUtilization": 20, "MemoryUtilization": 20,
	} {
		s.report("us-east-1", "/aws/sagemaker/Endpoints", metric, of, v, 15*24*time.Hour, time.Hour)
	}
	s.report("us-east-1", "AWS/SageMaker", "Invocations", of, 500, 15*24*time.Hour, time.Hour)
	made := s.clock().Add(-90 * 24 * time.Hour)
	s.sandbox.Wire.Patch(wire.Patch{
		Service: "sagemaker", IDField: "EndpointName", ID: name,
		Set: map[string]any{"CreationTime": made, "LastModifiedTime": made},
	})
}

// notebook makes a notebook and records that it did nothing for two weeks.
func (s *seededFixes) notebook(name string) {
	s.t.Helper()
	var tags []smtypes.Tag
	for k, v := range map[string]string{
		"owner": "ana", "team": "vision", "project": "detector", "environment": "dev", "cost-center": "1",
		inventory.TagLifetime: "ephemeral",
	} {
		tags = append(tags, smtypes.Tag{Key: &k, Value: &v})
	}
	if _, err := sagemaker.NewFromConfig(s.sandbox.Config("us-east-1")).CreateNotebookInstance(s.t.Context(),
		&sagemaker.CreateNotebookInstanceInput{NotebookInstanceName: &name,
			InstanceType:   "ml.t3.medium",
			RoleArn:        aws.String("arn:aws:iam::" + wire.DefaultAccount + ":role/sagemaker"),
			VolumeSizeInGB: aws.Int32(20), Tags: tags}); err != nil {
		s.t.Fatal(err)
	}
	made := s.clock().Add(-60 * 24 * time.Hour)
	s.sandbox.Wire.Patch(wire.Patch{
		Service: "sagemaker", IDField: "NotebookInstanceName", ID: name,
		Set: map[string]any{"CreationTime": made, "LastModifiedTime": made},
	})
	s.measured = name
	s.record()
}

// record writes the use of the notebook up to now.
func (s *seededFixes) record() {
	if s.measured == "" {
		return
	}
	var b strings.Builder
	b.WriteString("time,resource,cpu_util,net_bytes,sessions\n")
	now := s.clock()
	for at := now.Add(-15 * 24 * time.Hour); !at.After(now); at = at.Add(time.Minute) {
		fmt.Fprintf(&b, "%s,%s,1,100,0\n", at.Format(time.RFC3339), s.measured)
	}
	s.write("notebook.csv", b.String())
}

// sources returns the flags of the sources to read.
func (s *seededFixes) sources() []string {
	if s.measured == "" {
		return []string{s.regions}
	}
	return []string{s.regions, "--usage=notebook.csv"}
}

// report adds a steady value of a metric up to now.
func (s *seededFixes) report(region, namespace, name string, of []wire.Dimension, v float64, since,
	step time.Duration) {
	now := s.clock()
	var data []wire.Datum
	for at := now.Add(-since); !at.After(now); at = at.Add(step) {
		data = append(data, wire.Datum{Time: at, Sum: v * 12, Min: v, Max: v, Count: 12})
	}
	s.sandbox.Wire.Metrics.Put(wire.DefaultAccount, region, namespace, name, of, data...)
}

// wait lets time pass in which machines that do nothing are measured.
func (s *seededFixes) wait(d time.Duration) {
	s.pass(d)
	s.record()
	for id, region := range s.idle {
		of := []wire.Dimension{{Name: "InstanceId", Value: id}}
		for name, v := range map[string]float64{"CPUUtilization": 1, "NetworkIn": 100, "NetworkOut": 100} {
			s.report(region, "AWS/EC2", name, of, v, d-time.Minute, time.Minute)
		}
	}
}

// scan audits the account and keeps the scan, as a person does.
func (s *seededFixes) scan() view.Scan {
	s.t.Helper()
	doc, err := view.LoadScan(
		strings.NewReader(s.curfew(ExitDone, append([]string{"scan", "-o", "json"}, s.sources()...)...)))
	if err != nil {
		s.t.Fatal(err)
	}
	return doc
}

// fixes runs fix over findings and returns the result of each.
func (s *seededFixes) fixes(args ...string) map[string]view.Fix {
	s.t.Helper()
	_, out, errs := s.curfewAny(append(append([]string{"fix", "-o", "json"}, args...), s.sources()[1:]...)...)
	var doc struct {
		Schema string     `json:"schema"`
		Fixes  []view.Fix `json:"fixes"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Schema != "curfew.fix/v1" {
		s.t.Fatalf("curfew fix %v: %v\n%s%s", args, err, out, errs)
	}
	got := map[string]view.Fix{}
	for _, f := range doc.Fixes {
		got[f.Finding.ID] = f
	}
	return got
}

// approve lets another person approve the requested fixes.
func (s *seededFixes) approve(got map[string]view.Fix) {
	s.t.Helper()
	s.asBo()
	defer s.asAna()
	for _, f := range got {
		if f.State == view.FixAsked {
			if out := s.curfew(ExitDone, "approve", f.ApprovalID); !strings.Contains(out, "by bo (aws-caller ") {
				s.t.Errorf("approved by a name alone: %s", out)
			}
		}
	}
}

// kindOfFix is one kind of fix with the provider's own answers.
type kindOfFix struct {
	rule, name string
	// shows reports whether the provider's own answer has the change.
	shows func(s *seededFixes, f *view.Fix) bool
	// document returns the provider's present document in place of the change's.
	document func(s *seededFixes, id string) string
	// undone reports whether the provider shows the former state again.
	undone func(s *seededFixes, f *view.Fix) bool
	// stays is true if undo has nothing to take back; quiet that no warning is sent.
	stays, quiet bool
	// unplanted is true if the seed does not hold it.
	unplanted bool
}

func bucketDocument(s *seededFixes, id string) string {
	text, _ := s.sandbox.Wire.State.Lifecycle(wire.DefaultAccount, id)
	return text
}

func repositoryDocument(s *seededFixes, id string) string {
	out, err := ecr.NewFromConfig(s.sandbox.Config("us-east-1")).GetLifecyclePolicy(s.t.Context(),
		&ecr.GetLifecyclePolicyInput{RepositoryName: &id})
	if err != nil {
		return ""
	}
	return aws.ToString(out.LifecyclePolicyText)
}

func retentionOf(s *seededFixes, f *view.Fix) bool {
	out, err := cloudwatchlogs.NewFromConfig(s.sandbox.Config("us-east-1")).DescribeLogGroups(s.t.Context(),
		&cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: &f.Finding.Resource.ID})
	return err == nil && len(out.LogGroups) == 1 &&
		int(aws.ToInt32(out.LogGroups[0].RetentionInDays)) == f.Change.Arguments.RetentionDays
}

func savedAndGone(s *seededFixes, f *view.Fix) bool {
	api := ec2.NewFromConfig(s.sandbox.Config(f.Region))
	out, err := api.DescribeVolumes(s.t.Context(), &ec2.DescribeVolumesInput{
		Filters: []types.Filter{{Name: aws.String("volume-id"), Values: f.Change.Arguments.Snapshot}},
	})
	if err != nil || len(out.Volumes) > 0 {
		return false
	}
	for _, v := range f.Change.Arguments.Snapshot {
		of, err := api.DescribeSnapshots(s.t.Context(), &ec2.DescribeSnapshotsInput{
			OwnerIds: []string{"self"}, Filters: []types.Filter{{Name: aws.String("volume-id"), Values: []string{v}}},
		})
		if err != nil || len(of.Snapshots) != 1 || of.Snapshots[0].State != types.SnapshotStateCompleted {
			return false
		}
	}
	return len(f.Change.Arguments.Snapshot) > 0
}

func addressGone(s *seededFixes, f *view.Fix) bool {
	out, err := ec2.NewFromConfig(s.sandbox.Config(f.Region)).DescribeAddresses(s.t.Context(),
		&ec2.DescribeAddressesInput{})
	return err == nil && !slices.ContainsFunc(out.Addresses, func(a types.Address) bool {
		return aws.ToString(a.AllocationId) == f.Finding.Resource.ID
	})
}

func endpointGone(s *seededFixes, f *view.Fix) bool {
	_, err := sagemaker.NewFromConfig(s.sandbox.Config(f.Region)).DescribeEndpoint(s.t.Context(),
		&sagemaker.DescribeEndpointInput{EndpointName: &f.Finding.Resource.ID})
	return err != nil
}

func stateOf(s *seededFixes, f *view.Fix) types.InstanceStateName {
	out, err := ec2.NewFromConfig(s.sandbox.Config(f.Region)).DescribeInstances(s.t.Context(),
		&ec2.DescribeInstancesInput{InstanceIds: []string{f.Finding.Resource.ID}})
	if err != nil || len(out.Reservations) != 1 {
		return ""
	}
	return out.Reservations[0].Instances[0].State.Name
}

// machineIs reports whether a machine is in the state that a change leads to.
func machineIs(s *seededFixes, f *view.Fix) bool {
	want, known := map[change.Verb]types.InstanceStateName{
		change.Stop: types.InstanceStateNameStopped, change.Terminate: types.InstanceStateNameTerminated,
	}[f.Change.Verb]
	return known && stateOf(s, f) == want
}

func groupOf(s *seededFixes, f *view.Fix) (g astypes.AutoScalingGroup) {
	out, err := autoscaling.NewFromConfig(s.sandbox.Config(f.Region)).DescribeAutoScalingGroups(s.t.Context(),
		&autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{f.Finding.Resource.ID}})
	if err == nil && len(out.AutoScalingGroups) == 1 {
		g = out.AutoScalingGroups[0]
	}
	return g
}

func groupSize(s *seededFixes, f *view.Fix) int64 {
	return int64(aws.ToInt32(groupOf(s, f).DesiredCapacity))
}

// groupLeft reports whether exactly the members that a change names have left their group.
func groupLeft(s *seededFixes, f *view.Fix) bool {
	g, a := groupOf(s, f), f.Change.Arguments
	return groupSize(s, f) == *a.Count && len(g.Instances) == int(*a.Count) && len(a.Members) == 2 &&
		!slices.ContainsFunc(g.Instances, func(i astypes.Instance) bool {
			return slices.Contains(a.Members, *i.InstanceId)
		})
}

// machinesOf is the number of machines an endpoint of one variant has.
func machinesOf(s *seededFixes, f *view.Fix) int64 {
	out, err := sagemaker.NewFromConfig(s.sandbox.Config(f.Region)).DescribeEndpoint(s.t.Context(),
		&sagemaker.DescribeEndpointInput{EndpointName: &f.Finding.Resource.ID})
	if err != nil || len(out.ProductionVariants) != 1 {
		return -1
	}
	return int64(aws.ToInt32(out.ProductionVariants[0].CurrentInstanceCount))
}

func notebookStatus(s *seededFixes, f *view.Fix) smtypes.NotebookInstanceStatus {
	out, err := sagemaker.NewFromConfig(s.sandbox.Config(f.Region)).DescribeNotebookInstance(s.t.Context(),
		&sagemaker.DescribeNotebookInstanceInput{NotebookInstanceName: &f.Finding.Resource.ID})
	if err != nil {
		return ""
	}
	return out.NotebookInstanceStatus
}

// tagsOf are those tags of a resource of EC2 that a change writes.
func tagsOf(s *seededFixes, f *view.Fix) map[string]string {
	out, err := ec2.NewFromConfig(s.sandbox.Config(f.Region)).DescribeTags(s.t.Context(),
		&ec2.DescribeTagsInput{
			Filters: []types.Filter{{Name: aws.String("resource-id"), Values: []string{f.Finding.Resource.ID}}},
		})
	if err != nil {
		s.t.Fatal(err)
	}
	has := map[string]string{}
	for _, t := range out.Tags {
		if _, written := f.Change.Arguments.Tags[aws.ToString(t.Key)]; written {
			has[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
	}
	return has
}

func tagsWritten(s *seededFixes, f *view.Fix) bool {
	return len(f.Change.Arguments.Tags) == 4 && maps.Equal(tagsOf(s, f), f.Change.Arguments.Tags)
}

var kindsOfFixes = []kindOfFix{
	{rule: "tag-missing", shows: tagsWritten, quiet: true, undone: func(s *seededFixes, f *view.Fix) bool {
		return len(tagsOf(s, f)) == 0
	}},
	{
		rule: "autoscaling-sticky", name: "feed-workers", shows: groupLeft,
		undone: func(s *seededFixes, f *view.Fix) bool {
			return groupSize(s, f) == 3
		}},
	{rule: "inference-overprovisioned", name: "old-embedder", shows: func(s *seededFixes, f *view.Fix) bool {
		return machinesOf(s, f) == *f.Change.Arguments.Count
	}, unplanted: true,
		undone: func(s *seededFixes, f *view.Fix) bool { return machinesOf(s, f) == 3 }},
	{rule: "notebook-idle", name: "old-notebook", shows: func(s *seededFixes, f *view.Fix) bool {
		return notebookStatus(s, f) == smtypes.NotebookInstanceStatusStopped
	}, unplanted: true,
		undone: func(s *seededFixes, f *view.Fix) bool {
			return notebookStatus(s, f) == smtypes.NotebookInstanceStatusInService
		}},
	{rule: "instance-idle", name: "feature-builder", shows: machineIs, undone: func(s *seededFixes, f *view.Fix) bool {
		return stateOf(s, f) == types.InstanceStateNameRunning
	}},
	{rule: "bucket-no-lifecycle", name: "acme-vision-datasets", document: bucketDocument},
	{rule: "checkpoint-stale", name: "acme-language-checkpoints", document: bucketDocument},
	{rule: "bucket-multipart", name: "acme-language-uploads", document: bucketDocument},
	{rule: "bucket-noncurrent", name: "acme-ranking-models", document: bucketDocument},
	{rule: "repository-no-lifecycle", name: "vision/trainer", document: repositoryDocument},
	{rule: "log-group-no-retention", name: "/vision/training", shows: retentionOf},
	{rule: "volume-unattached", name: "detector-scratch", shows: savedAndGone, stays: true},
	{rule: "instance-stopped", name: "old-workstation", shows: func(s *seededFixes, f *view.Fix) bool {
		return savedAndGone(s, f) && machineIs(s, f)
	}, stays: true},
	{rule: "address-unused", name: "old-demo", shows: addressGone, stays: true},
	{rule: "endpoint-idle", name: "old-detector", shows: endpointGone, stays: true},
}

// TestFixesDoWhatTheySay takes each kind of fix through audit, preview, approval by another person,
// act and undo: the provider's own answer equals the preview.
func TestFixesDoWhatTheySay(t *testing.T) {
	s := newSeededFixes(t)
	s.endpoint("old-embedder", 3)
	s.notebook("old-notebook")
	for _, r := range s.truth.Find("instance-idle") {
		s.idle[r.ID] = r.Region
		if r.Region == "eu-west-1" {
			s.tagIn(r.Region, r.ID, inventory.TagLifetime, "persistent") // so that it is stopped
		}
	}
	first := s.scan()
	var planted []sandbox.Planted
	ids := map[string]kindOfFix{}
	var args []string
	for _, k := range kindsOfFixes {
		i := slices.IndexFunc(first.Findings, func(f view.Finding) bool {
			return f.Rule == k.rule && (f.Resource.Name == k.name || f.Resource.ID == k.name)
		})
		if i < 0 {
			t.Errorf("%s of %s is not found", k.rule, k.name)
			continue
		}
		f := first.Findings[i]
		ids[f.ID] = k
		args = append(args, f.ID)
		at := slices.IndexFunc(s.truth.Planted, func(p sandbox.Planted) bool {
			return p.Rule == k.rule && p.ID == f.Resource.ID
		})
		if k.unplanted {
			continue
		}
		if at < 0 {
			t.Errorf("%s of %s was not planted, so its dollars are not known", k.rule, k.name)
			continue
		}
		planted = append(planted, s.truth.Planted[at])
	}
	checkPlanted(t, first, planted) // the dollars of the seed are computed apart from the rules
	// Two of three machines go, of the type of which another endpoint has one.
	saved := func(rule, name string) money.Amount {
		i := slices.IndexFunc(first.Findings, func(f view.Finding) bool {
			return f.Rule == rule && f.Resource.ID == name
		})
		v, _ := first.Findings[i].MonthlySavingsUSD.Get()
		return v
	}
	if two, one := saved("inference-overprovisioned", "old-embedder"), saved("endpoint-idle",
		"old-detector"); two != 2*
		one || one == 0 {
		t.Errorf("two machines of an endpoint save %s, and one costs %s", two, one)
	}

	previews := s.fixes(args...)
	before := map[string]string{}
	for id, k := range ids {
		p := previews[id]
		if p.State != view.FixPreview || p.Change.Verb == "" || len(p.Change.Commands) == 0 ||
			p.Account != wire.DefaultAccount {
			t.Errorf("%s: the preview is %+v", k.name, p)
		}
		if k.document != nil {
			if p.Change.Document == "" {
				t.Fatalf("%s: no document is shown", k.name)
			}
			before[id] = k.document(s, p.Finding.Resource.ID)
			if before[id] != p.Change.Before {
				t.Errorf("%s: the document that is replaced is\n%s\nand is shown as\n%s", k.name,
					before[id], p.Change.Before)
			}
		}
	}

	enforce := append(append([]string{}, args...), "--enforce", "--scratch-disks")
	for id, f := range s.fixes(enforce...) {
		if f.State != view.FixWaiting && !(ids[id].quiet && f.State == view.FixConfirmed) {
			t.Errorf("%s, first run: %s %+v", ids[id].name, f.State, f.Refusals)
		}
	}
	s.wait(16 * time.Minute)
	asked := s.fixes(enforce...)
	for id, f := range asked {
		if f.NeedsApproval != (f.State == view.FixAsked) {
			t.Errorf("%s needs an approval: %v, and is %s %+v", ids[id].name, f.NeedsApproval, f.State, f.Refusals)
		}
	}
	s.approve(asked)
	after := map[string]view.Fix{}
	for range 4 {
		for id, f := range s.fixes(enforce...) {
			if after[id].State != view.FixConfirmed {
				after[id] = f
			}
		}
		s.wait(2 * time.Minute)
	}
	for id, k := range ids {
		t.Run(k.rule, func(t *testing.T) {
			f := after[id]
			if f.State != view.FixConfirmed || !f.Change.Equal(previews[id].Change.Change) {
				t.Fatalf("%s %+v, change %+v", f.State, f.Refusals, f.Change.Change)
			}
			if k.document == nil {
				if !k.shows(s, &f) {
					t.Errorf("the provider does not show what the preview said: %+v", f.Change.Change)
				}
				return
			}
			if now := k.document(s, f.Finding.Resource.ID); !change.Equivalent(now, f.Change.Document) {
				t.Errorf("the provider has\n%s\nand the preview showed\n%s", now, f.Change.Document)
			}
		})
	}

	left := found(s.scan())
	for _, f := range first.Findings {
		k, fixed := ids[f.ID]
		_, there := left[key(f.Rule, f.Resource.Region, f.Resource.ID)]
		switch {
		case fixed && there:
			t.Errorf("%s of %s is found again", f.Rule, k.name)
		case !fixed && !there && !slices.ContainsFunc(kindsOfFixes, func(k kindOfFix) bool {
			return k.name == f.Resource.Name || k.name == f.Resource.ID
		}) && f.Rule == "bucket-no-lifecycle":
			t.Errorf("%s of %s is gone without a fix", f.Rule, f.Resource.ID)
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
			if k.undone != nil && !k.undone(s, &f) {
				t.Errorf("after it was taken back it is not as it was: %+v", f.Change.Change)
			}
			if k.document != nil {
				if now := k.document(s, f.Finding.Resource.ID); now != before[id] {
					t.Errorf("after it was taken back there is\n%q\nand there was\n%q", now, before[id])
				}
			}
		})
	}
}

// tagIn writes a tag of a resource of EC2.
func (s *seededFixes) tagIn(region, id, key, value string) {
	s.t.Helper()
	if _, err := ec2.NewFromConfig(s.sandbox.Config(region)).CreateTags(s.t.Context(),
		&ec2.CreateTagsInput{Resources: []string{id}, Tags: []types.Tag{{Key: &key, Value: &value}}}); err != nil {
		s.t.Fatal(err)
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
func (s *seededFixes) lookup(doc view.Scan, rule, name string) string {
	s.t.Helper()
	i := slices.IndexFunc(doc.Findings, func(f view.Finding) bool {
		return f.Rule == rule && (f.Resource.Name == name || f.Resource.ID == name)
	})
	if i < 0 {
		s.t.Fatalf("%s of %s is not found", rule, name)
	}
	return doc.Findings[i].ID
}

// TestFixesMeetChange lets others change the basis of a fix: before the first run, after the
// approval, in price, and by a second fix of the same bucket.
func TestFixesMeetChange(t *testing.T) {
	s := newSeededFixes(t)
	const shared, early, late = "acme-ranking-models", "acme-vision-datasets", "acme-language-checkpoints"
	if _, err := s3.NewFromConfig(s.sandbox.Config("us-west-2"), func(o *s3.Options) {
		o.UsePathStyle = true
	}).DeleteBucketLifecycle(t.Context(),
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
	if state := got[changedEarly].State; state != view.FixChanged && state != view.FixGone {
		t.Errorf("a lifecycle that was changed after the scan: %s", state)
	}
	s.pass(16 * time.Minute)
	asked := s.fixes(all...)
	s.approve(asked)

	s.sandbox.Wire.State.PutLifecycle(wire.DefaultAccount, late, theirs, "all_storage_classes_128K")
	size := asked[volume].Finding.Resource.ID
	api := ec2.NewFromConfig(s.sandbox.Config("us-east-1"))
	if _, err := api.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: &size, Size: aws.Int32(16000)}); err !=
		nil {
		t.Fatal(err)
	}
	got = s.fixes(all...)
	if f := got[changedLate]; f.State != view.FixChanged && f.State != view.FixGone {
		t.Errorf("a lifecycle that was changed after the approval: %s %+v", f.State, f.Refusals)
	}
	for _, name := range []string{early, late} {
		if now := bucketDocument(s, name); now != theirs {
			t.Errorf("%s: what others have put is\n%s", name, now)
		}
	}
	if f := got[volume]; f.State != view.FixAsked || f.ApprovalID == asked[volume].ApprovalID {
		t.Errorf("a volume that costs more than was approved: %s, approval %s, before %s", f.State, f.ApprovalID,
			asked[volume].ApprovalID)
	}
	if out, err := api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{
		VolumeIds: []string{size},
	}); err != nil ||
		len(out.Volumes) != 1 {
		t.Errorf("the volume is gone: %v", err)
	}

	done, left := colder, versions
	if got[versions].State == view.FixConfirmed {
		done, left = versions, colder
	}
	if got[done].State != view.FixConfirmed || got[left].State == view.FixConfirmed {
		t.Fatalf("two fixes of one bucket: %s %+v and %s %+v", got[done].State, got[done].Refusals, got[left].State,
			got[left].Refusals)
	}
	if now := bucketDocument(s, shared); !change.Equivalent(now, got[done].Change.Document) {
		t.Errorf("after the first of two fixes:\n%s\nwant\n%s", now, got[done].Change.Document)
	}
	if f := s.fixes(left, "--enforce")[left]; f.State != view.FixChanged && f.State != view.FixGone {
		t.Errorf("the second of two fixes: %s, want that it has changed", f.State)
	}
}

// TestAPreviewShowsRefusals checks that a preview shows the obstacles that the last scan saw, by
// the rules that refuse the fix itself.
func TestAPreviewShowsRefusals(t *testing.T) {
	s := newSeededFixes(t)
	for _, r := range s.truth.Find("instance-idle") {
		s.idle[r.ID] = r.Region
	}
	doc := s.scan()
	s.wait(2 * time.Minute)
	group := s.lookup(doc, "autoscaling-sticky", "feed-workers")
	i := slices.IndexFunc(doc.Findings, func(f view.Finding) bool { return f.ID == group })
	member := s.lookup(doc, "instance-idle", doc.Findings[i].Fix.Change.Arguments.Members[0])
	notebook := s.lookup(doc, "notebook-idle", "exploration-2025")
	measure := s.lookup(doc, "telemetry-missing", "feed-experiment")
	want := map[string]string{member: "unsaved-disk", notebook: "busy", measure: "by-hand"}
	rules := func(f view.Fix) (out string) {
		for _, r := range f.Refusals {
			out += r.Rule
		}
		return out
	}
	all := []string{member, notebook, measure, s.lookup(doc, "tag-missing", "")}
	previews, acted := s.fixes(all...), s.fixes(append(all, "--enforce")...)
	for _, id := range all {
		p, a := previews[id], acted[id]
		if p.State != view.FixPreview || rules(p) != want[id] || rules(a) != want[id] {
			t.Errorf("%s: the preview says %q, the fix %q, want %q: %+v", p.Finding.Rule, rules(p), rules(a), want[id],
				a.Refusals)
		}
	}
	if f := s.fixes(member, "--scratch-disks")[member]; len(f.Refusals) != 0 {
		t.Errorf("with scratch disks: %+v", f.Refusals)
	}
	if out := s.curfew(ExitDone, "fix", member); !strings.Contains(out, "Refused, unsaved-disk: ") ||
		strings.Contains(out, "Refused, by-hand") {
		t.Errorf("the table says\n%s", out)
	}
}
