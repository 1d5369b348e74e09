package aws_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	smtypes "github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/test/wire"
)

// actingCloud returns a cloud that reads and acts on the scratch account.
func actingCloud(t testing.TB) *aws.Cloud {
	t.Helper()
	environOf(t, scratch)
	c, err := aws.New(t.Context(), aws.Options{Regions: []string{elsewhere}, RequestsPerSecond: 10_000, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lossy are the calls that a deaf provider accepts without effect.
var lossy = []string{
	"TerminateInstances", "ReleaseAddress", "DeleteEndpoint", "StopTrainingJob", "PutRetentionPolicy",
	"PutBucketLifecycleConfiguration",
}

func TestActionsConform(t *testing.T) {
	scratch.Wire.Pending.Snapshots(true)
	t.Cleanup(func() { scratch.Wire.Pending.Snapshots(false) })
	cloudtest.RunActions(t, func(tb testing.TB) cloudtest.ActionsCase {
		c := actingCloud(tb)
		acts := c.Actions()
		m := &maker{TB: tb}
		return cloudtest.ActionsCase{
			Cloud: acts, Lister: c, Now: time.Now,
			Make: func(tb testing.TB, s cloudtest.Subject) inventory.Ref { m.TB = tb; return m.make(s) },
			Pass: func(testing.TB) { scratch.Wire.Pending.Settle() },
			Deaf: func(tb testing.TB, _ inventory.Ref) action.Cloud {
				for _, op := range lossy {
					tb.Cleanup(scratch.Wire.Inject(wire.Fault{Operation: op, Kind: wire.Deaf}))
				}
				return acts
			},
			Snapshots: func(tb testing.TB, volume inventory.Ref) int {
				m.TB = tb
				out, err := m.ec2().DescribeSnapshots(tb.Context(), &ec2.DescribeSnapshotsInput{
					OwnerIds: []string{"self"},
					Filters:  []ec2types.Filter{{Name: awssdk.String("volume-id"), Values: []string{volume.ID}}}})
				m.must(err)
				return len(out.Snapshots)
			},
		}
	})
}

// acted plans a verb on a resource and returns its tasks with keys.
func acted(t *testing.T, c *aws.Cloud, a *aws.Actions, ref inventory.Ref, do policy.Do) []action.Task {
	t.Helper()
	o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{ref}, round.Query{Now: time.Now(), Window: time.Hour})
	if err != nil || len(o.Resources) != 1 {
		t.Fatalf("read %s again: %v, %v", ref, o, err)
	}
	if do.Verb == policy.PutLifecycle {
		do.Change = cloudtest.Lifecycle(t, o.Resources[0])
	}
	steps, err := a.Plan(t.Context(), o.Resources[0], do)
	if err != nil {
		t.Fatalf("plan to %s %s: %v", do.Verb, ref, err)
	}
	tasks := make([]action.Task, len(steps))
	for i, s := range steps {
		s.Key = fmt.Sprintf("%s-%d", t.Name(), i)
		tasks[i] = action.Task{Ref: ref, Identity: action.Identity(o.Resources[0]), Do: do, Step: s}
	}
	return tasks
}

// TestUndoRestoresLifecycle adds rules to lifecycles of several kinds and reverts them.
func TestUndoRestoresLifecycle(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	for _, tc := range []struct{ name, document string }{
		{"none", ""},
		{"with rules that moto does not know", formerLifecycle},
		{
			"of before 2016",
			`<?xml version="1.0" encoding="UTF-8"?><LifecycleConfiguration><Rule><ID>a</ID><Prefix>x/</Prefix><Status>Enabled</Status><Expiration><Days>3</Days></Expiration></Rule></LifecycleConfiguration>`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ref := m.bucket(tc.document)
			document := func() (string, string) {
				return scratch.Wire.State.Lifecycle(wire.DefaultAccount, ref.ID)
			}
			task := acted(t, c, a, ref, policy.Do{Verb: policy.PutLifecycle})[0]
			if task.Step.Undo != tc.document {
				t.Fatalf("what takes it back is %q, want %q", task.Step.Undo, tc.document)
			}
			if _, err := a.Do(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			put, minimum := document()
			if !strings.Contains(task.Step.Params, "curfew-incomplete-uploads") ||
				!strings.Contains(put, "<ID>curfew-incomplete-uploads</ID>") ||
				!strings.Contains(put, "<ID>curfew-replaced-versions</ID>") {
				t.Errorf("the rules are not in what was put: %s", put)
			}
			if tc.document != "" && minimum != "varies_by_storage_class" {
				t.Errorf("the setting of which small objects move has changed: %s", minimum)
			}
			if err := a.Undo(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			if got, minimum := document(); got != tc.document || tc.document != "" &&
				minimum != "varies_by_storage_class" {
				t.Errorf("after it was taken back: %q (%s), want %q", got, minimum, tc.document)
			}
			if err := a.Undo(t.Context(), task); err != nil {
				t.Errorf("once more: %v", err)
			}
		})
	}
}

// TestActionsRespectForeignChanges changes the resources of steps before the steps are made and
// before they are undone.
func TestActionsRespectForeignChanges(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	theirs := strings.Replace(formerLifecycle, "365", "30", 1)
	logs := cloudwatchlogs.NewFromConfig(scratch.Config(elsewhere))
	registry := ecr.NewFromConfig(scratch.Config(elsewhere))
	for _, tc := range []struct {
		name    string
		subject cloudtest.Subject
		do      policy.Do
		// change is a change by another caller.
		change func(t *testing.T, ref inventory.Ref)
	}{
		{"lifecycle", cloudtest.Bucket, policy.Do{Verb: policy.PutLifecycle}, func(_ *testing.T, ref inventory.Ref) {
			scratch.Wire.State.PutLifecycle(wire.DefaultAccount, ref.ID, theirs, "varies_by_storage_class")
		}},
		{
			"retention", cloudtest.LogGroup, policy.Do{Verb: policy.PutRetention, RetentionDays: 30},
			func(t *testing.T, ref inventory.Ref) {
				_, err := logs.PutRetentionPolicy(t.Context(), &cloudwatchlogs.PutRetentionPolicyInput{
					LogGroupName: &ref.ID, RetentionInDays: awssdk.Int32(90),
				})
				m.must(err)
			}},
		{
			"repository", cloudtest.Repository, policy.Do{Verb: policy.PutLifecycle},
			func(t *testing.T, ref inventory.Ref) {
				_, err := registry.PutLifecyclePolicy(t.Context(), &ecr.PutLifecyclePolicyInput{
					RepositoryName: &ref.ID, LifecyclePolicyText: awssdk.String(
						`{"rules": [{"rulePriority": 4, "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 5}, "action": {"type": "expire"}}]}`)})
				m.must(err)
			}},
		{
			"size of a group", cloudtest.Group, policy.Do{Verb: policy.Scale, To: 1, ScratchDisks: true},
			func(t *testing.T, ref inventory.Ref) {
				_, err := autoscaling.NewFromConfig(scratch.Config(elsewhere)).UpdateAutoScalingGroup(t.Context(),
					&autoscaling.UpdateAutoScalingGroupInput{
						AutoScalingGroupName: &ref.ID, DesiredCapacity: awssdk.Int32(2)})
				m.must(err)
			}},
		{
			"machines of an endpoint", cloudtest.Fleet, policy.Do{Verb: policy.Scale, To: 1},
			func(t *testing.T, ref inventory.Ref) {
				_, err := sagemaker.NewFromConfig(
					scratch.Config(elsewhere)).UpdateEndpointWeightsAndCapacities(t.Context(),
					&sagemaker.UpdateEndpointWeightsAndCapacitiesInput{EndpointName: &ref.ID,
						DesiredWeightsAndCapacities: []smtypes.DesiredWeightAndCapacity{
							{VariantName: awssdk.String("main"), DesiredInstanceCount: awssdk.Int32(2)},
						}})
				m.must(err)
			}},
		{
			"tags", cloudtest.Machine, policy.Do{Verb: policy.Tag, Tags: map[string]string{"team": "language"}},
			func(t *testing.T, ref inventory.Ref) {
				_, err := m.ec2().CreateTags(t.Context(), &ec2.CreateTagsInput{
					Resources: []string{ref.ID},
					Tags:      []ec2types.Tag{{Key: awssdk.String("team"), Value: awssdk.String("ranking")}},
				})
				m.must(err)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var refused *action.Refusal
			ref := m.make(tc.subject)
			task := acted(t, c, a, ref, tc.do)[0]
			tc.change(t, ref)
			if _, err := a.Do(t.Context(), task); !errors.As(err, &refused) || refused.Rule != "changed" {
				t.Errorf("made on changed ground: %v, want a refusal", err)
			}
			ref = m.make(tc.subject)
			task = acted(t, c, a, ref, tc.do)[0]
			if _, err := a.Do(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			tc.change(t, ref)
			if err := a.Undo(t.Context(), task); !errors.As(err, &refused) || refused.Rule != "changed" {
				t.Errorf("taken back from changed ground: %v, want a refusal", err)
			}
		})
	}
}

// TestActionsOnSpotMachines checks that actions on a spot machine depend on the type and state of
// its request.
func TestActionsOnSpotMachines(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	for _, tc := range []struct {
		name, kind, state string
		verb              policy.Verb
		rule              string // empty: it is done
	}{
		{"one-time requests end with their machine", "one-time", "active", policy.Terminate, ""},
		{"one-time machines cannot be stopped", "one-time", "active", policy.Stop, "spot-request"},
		{"persistent machines can be stopped", "persistent", "active", policy.Stop, ""},
		{"persistent requests start another", "persistent", "active", policy.Terminate, "group-member"},
		{"persistent requests that are canceled do not", "persistent", "cancelled", policy.Terminate, ""},
		{"a request of another kind", "strange", "active", policy.Terminate, "unknown"},
		{"no request", "", "", policy.Stop, "unknown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ref := m.launch("t3.medium", func(in *ec2.RunInstancesInput) {
				in.InstanceMarketOptions = &ec2types.InstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeSpot}
			})
			if tc.kind != "" {
				request := "sir-" + ref.ID[2:]
				scratch.Wire.Patch(wire.Patch{
					Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime",
					IDField: "instanceId", ID: ref.ID,
					Add: map[string]any{"spotInstanceRequestId": request},
				})
				scratch.Wire.State.At(wire.DefaultAccount, elsewhere, func(p *wire.Place) {
					p.SpotRequests = append(p.SpotRequests, wire.SpotRequest{
						ID: request, Type: tc.kind, State: tc.state, Instance: ref.ID,
					})
				})
			}
			o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{ref},
				round.Query{Now: time.Now(), Window: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			in := o.Resources[0].Detail.(*inventory.Instance)
			if once, known := in.SpotOnce.Get(); known != (tc.kind == "one-time" || tc.kind == "persistent" ||
				tc.kind == "strange") || once != (tc.kind == "one-time") {
				t.Errorf("one-time: %t, known: %t", once, known)
			}
			for _, d := range in.Disks {
				if d.DeleteOnTermination && (d.SizeGiB.Or(0) == 0 || d.Device == "") {
					t.Errorf("disk %+v has no size or no name", d)
				}
			}
			_, err = a.Plan(t.Context(), o.Resources[0], policy.Do{Verb: tc.verb, ScratchDisks: true})
			var refused *action.Refusal
			switch {
			case tc.rule == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.rule != "" && (!errors.As(err, &refused) || refused.Rule != tc.rule):
				t.Errorf("got %v, want a refusal by %q", err, tc.rule)
			}
		})
	}
}

// TestActionsRefuseUnansweredChecks denies one call at a time: an unknown result means no action.
func TestActionsRefuseUnansweredChecks(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	ref := m.make(cloudtest.Machine)
	o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{ref}, round.Query{Now: time.Now(), Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	task := acted(t, c, a, ref, policy.Do{Verb: policy.Stop})[0]
	for _, op := range []string{"DescribeInstanceAttribute", "DescribeInstanceTypes", "DescribeInstances"} {
		t.Run(op, func(t *testing.T) {
			for _, kind := range []wire.FaultKind{wire.AccessDenied, wire.NotOffered} {
				remove := scratch.Wire.Inject(wire.Fault{Operation: op, Kind: kind})
				_, planned := a.Plan(t.Context(), o.Resources[0], policy.Do{Verb: policy.Stop})
				_, done := a.Do(t.Context(), task)
				remove()
				if planned == nil || done == nil {
					t.Errorf("planned: %v, done: %v; want neither", planned, done)
				}
			}
		})
	}
	scratch.Wire.Recorder.Reset()
	defer scratch.Wire.Inject(wire.Fault{Operation: "DescribeInstanceAttribute", Kind: wire.AccessDenied})()
	again, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{ref},
		round.Query{Now: time.Now(), Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if again.Resources[0].Detail.(*inventory.Instance).TerminationProtected.Known() || len(again.BlindSpots) != 1 {
		t.Errorf("protection that cannot be read is known: %+v", again.BlindSpots)
	}
	if changed := scratch.Wire.Recorder.Mutating(); len(changed) > 0 {
		t.Errorf("reading again changed something: %v", changed)
	}
}

// TestRecheckDistinguishesFailureFromAbsence denies each list call: resources that cannot be listed
// are unread, not gone.
func TestRecheckDistinguishesFailureFromAbsence(t *testing.T) {
	c := actingCloud(t)
	m := &maker{TB: t}
	for _, tc := range []struct {
		subject   cloudtest.Subject
		operation string
	}{
		{cloudtest.Machine, "DescribeInstances"}, {cloudtest.Volume, "DescribeVolumes"},
		{cloudtest.Address, "DescribeAddresses"},
		{cloudtest.LogGroup, "DescribeLogGroups"}, {cloudtest.Bucket, "ListBuckets"},
		{cloudtest.Repository, "DescribeRepositories"},
		{cloudtest.Notebook, "ListNotebookInstances"}, {cloudtest.Endpoint, "ListEndpoints"},
		{cloudtest.TrainingJob, "ListTrainingJobs"},
	} {
		t.Run(string(tc.subject), func(t *testing.T) {
			ref := m.make(tc.subject)
			for _, kind := range []wire.FaultKind{wire.AccessDenied, wire.Empty, wire.LoginPage} {
				remove := scratch.Wire.Inject(wire.Fault{Operation: tc.operation, Kind: kind})
				o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{ref},
					round.Query{Now: time.Now(), Window: time.Hour})
				remove()
				if err != nil {
					t.Fatal(err)
				}
				if key := ref.Account + "/" + ref.Region + "/" + string(ref.Kind); !o.Unread[key] ||
					len(o.BlindSpots) == 0 {
					t.Errorf("fault %d: unread %v, blind spots %+v; want %s", kind, o.Unread, o.BlindSpots, key)
				}
			}
		})
	}
	t.Run("measurements", func(t *testing.T) {
		ref := m.make(cloudtest.Machine)
		for _, op := range []string{"GetMetricData", "ListMetrics"} {
			remove := scratch.Wire.Inject(wire.Fault{Service: "cloudwatch", Operation: op, Kind: wire.AccessDenied})
			o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{m.launch("g5.xlarge", nil), ref},
				round.Query{Now: time.Now().Add(time.Hour), Window: time.Hour})
			remove()
			if err != nil || len(o.Resources) != 2 || len(o.BlindSpots) == 0 {
				t.Fatalf("%s: %+v, %v; want both machines and a blind spot", op, o, err)
			}
			if op == "GetMetricData" && len(o.Windows) > 0 {
				t.Errorf("machines were measured by calls that were denied: %v", o.Windows)
			}
		}
	})
	other := inventory.Ref{
		Cloud: "aws", Account: "999999999999", Region: elsewhere, Kind: inventory.KindVolume, ID: "vol-1",
	}
	o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{other},
		round.Query{Now: time.Now(), Window: time.Hour})
	if err != nil || !o.Unread["999999999999/"+elsewhere+"/volume"] {
		t.Errorf("a volume of an account out of reach: unread %v, %v", o.Unread, err)
	}
}

// TestActionsSurviveThrottling throttles calls in the middle of a plan and of a step.
func TestActionsSurviveThrottling(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	defer scratch.Wire.Inject(wire.Fault{
		Region: elsewhere, Operation: "DescribeInstanceAttribute", Kind: wire.Throttling, Times: 1, After: 2,
	})()
	defer scratch.Wire.Inject(wire.Fault{
		Region: elsewhere, Operation: "StopInstances", Kind: wire.Throttling, Times: 1,
	})()
	ref := m.make(cloudtest.Machine)
	task := acted(t, c, a, ref, policy.Do{Verb: policy.Stop})[0]
	if _, err := a.Do(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if got, _, err := a.Look(t.Context(), task); err != nil || got != action.Complete {
		t.Errorf("a stop that was throttled: %s, %v", got, err)
	}
}

// TestSnapshotCallIsNotRepeated checks the snapshot call, which is not idempotent: it is not repeated after
// a lost response, but is after throttling.
func TestSnapshotCallIsNotRepeated(t *testing.T) {
	for _, tc := range []struct {
		kind  wire.FaultKind
		calls int
	}{{wire.Reset, 1}, {wire.Empty, 1}, {wire.ServerError, 1}, {wire.Throttling, 2}} {
		c := actingCloud(t)
		a := c.Actions()
		m := &maker{TB: t}
		machine := acted(t, c, a, m.make(cloudtest.Machine), policy.Do{Verb: policy.Terminate, SaveDisks: true})[0]
		volume := acted(t, c, a, m.make(cloudtest.Volume), policy.Do{Verb: policy.Delete})[0]
		for operation, task := range map[string]action.Task{"CreateSnapshots": machine, "CreateSnapshot": volume} {
			task.Step.Key += operation
			scratch.Wire.Recorder.Reset()
			stop := scratch.Wire.Inject(wire.Fault{Region: elsewhere, Operation: operation, Kind: tc.kind, Times: 1})
			_, err := a.Do(t.Context(), task)
			stop()
			if n := scratch.Wire.Recorder.Count("ec2:" + operation); n != tc.calls || (err == nil) != (tc.calls > 1) {
				t.Errorf("%s, fault %d: %d calls, %v", operation, tc.kind, n, err)
			}
		}
	}
}

// TestActionsSnapshotDeletedDisks checks that one call saves exactly the disks that are deleted
// with a machine.
func TestActionsSnapshotDeletedDisks(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	ref := m.launch("t3.medium", func(in *ec2.RunInstancesInput) {
		in.BlockDeviceMappings = append(in.BlockDeviceMappings, ec2types.BlockDeviceMapping{
			DeviceName: awssdk.String("/dev/sdb"),
			Ebs: &ec2types.EbsBlockDevice{
				VolumeSize: awssdk.Int32(20), DeleteOnTermination: awssdk.Bool(true),
			}})
	})
	tasks := acted(t, c, a, ref, policy.Do{Verb: policy.Terminate, SaveDisks: true})
	scratch.Wire.Recorder.Reset()
	receipt, err := a.Do(t.Context(), tasks[0])
	if err != nil {
		t.Fatal(err)
	}
	snapshots, err := m.ec2().DescribeSnapshots(t.Context(), &ec2.DescribeSnapshotsInput{
		SnapshotIds: strings.Split(receipt, ","),
	})
	if err != nil || len(snapshots.Snapshots) != 2 {
		t.Fatalf("snapshots %q: %v, want two", receipt, err)
	}
	if n := scratch.Wire.Recorder.Count("ec2:CreateSnapshots"); n != 1 {
		t.Errorf("%d calls to save, want one for all disks", n)
	}
	for _, s := range snapshots.Snapshots {
		tags := map[string]string{}
		for _, x := range s.Tags {
			tags[*x.Key] = *x.Value
		}
		if tags["team"] != "vision" || tags["curfew:action"] != tasks[0].Step.Key ||
			tags["curfew:lifetime"] != "persistent" || tags["curfew:source"] != ref.ID {
			t.Errorf("the snapshot's tags are %v", tags)
		}
	}
}

// TestActionsTagEveryKind writes tags of one resource of each kind and type that has some,
// and restores them.
func TestActionsTagEveryKind(t *testing.T) {
	environ(t)
	c, err := aws.New(t.Context(), options())
	if err != nil {
		t.Fatal(err)
	}
	a := c.Actions()
	seen := map[string]bool{}
	for _, r := range mustObserve(t, options()).Resources {
		what := string(r.Kind)
		if r.Kind == inventory.KindLoadBalancer || r.Kind == inventory.KindFileSystem {
			what += " " + r.Type
		}
		if d, ok := r.Detail.(*inventory.Database); ok {
			what += " " + d.Engine
		}
		if d, ok := r.Detail.(*inventory.Notebook); ok && d.IsApp {
			continue // moto does not tag the fake's applications
		}
		switch r.Kind { // services without actions
		case inventory.KindCache, inventory.KindCluster, inventory.KindHyperPod, inventory.KindTable,
			inventory.KindVPCEndpoint, inventory.KindWarehouse:
			continue
		}
		if seen[what] || r.Kind == inventory.KindCommitment || r.Kind == inventory.KindCapacityReservation ||
			len(r.Tags) == 0 {
			continue
		}
		seen[what] = true
		t.Run(what, func(t *testing.T) {
			do := policy.Do{Verb: policy.Tag, Tags: map[string]string{"cost-center": "4799", "curfew-test": "yes"}}
			steps, err := a.Plan(t.Context(), r, do)
			if err != nil {
				t.Fatal(err)
			}
			steps[0].Key = "tag-" + what
			task := action.Task{Ref: r.Ref(), Identity: action.Identity(r), Do: do, Step: steps[0]}
			tags := func() map[string]string {
				o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{r.Ref()}, query())
				if err != nil || len(o.Resources) != 1 {
					t.Fatalf("read it again: %+v, %v", o, err)
				}
				return o.Resources[0].Tags
			}
			if _, err := a.Do(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			if now := tags(); now["cost-center"] != "4799" || now["curfew-test"] != "yes" {
				t.Errorf("the tags are %v", now)
			}
			if p, _, err := a.Look(t.Context(), task); err != nil || p != action.Complete {
				t.Errorf("look: %s, %v", p, err)
			}
			if err := a.Undo(t.Context(), task); err != nil {
				t.Fatal(err)
			}
			if now := tags(); !maps.Equal(now, r.Tags) {
				t.Errorf("the tags are %v after they were restored, they were %v", now, r.Tags)
			}
		})
	}
	for _, kind := range []string{
		"instance", "volume", "snapshot", "image", "address", "nat-gateway", "load-balancer application",
		"load-balancer classic", "autoscaling-group", "bucket",
		"repository", "log-group", "notebook", "endpoint", "training-job", "file-system efs", "file-system fsx-lustre",
		"secret"} {
		if !seen[kind] {
			t.Errorf("no %s was tagged; there are %v", kind, slices.Sorted(maps.Keys(seen)))
		}
	}
	commitment := &inventory.Resource{
		Cloud: "aws", Account: wire.DefaultAccount, Region: "us-east-1", Kind: inventory.KindCommitment, ID: "none",
	}
	if _, err := a.Plan(t.Context(), commitment, policy.Do{
		Verb: policy.Tag, Tags: map[string]string{"a": "b"},
	}); err ==
		nil {
		t.Error("a commitment that is not there was tagged")
	}
	reserved := &inventory.Resource{
		Cloud: "aws", Account: wire.DefaultAccount, Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1",
	}
	var refused *action.Refusal
	if _, err := a.Plan(t.Context(), reserved, policy.Do{
		Verb: policy.Tag, Tags: map[string]string{"AWS:x": "b"},
	}); !errors.As(err, &refused) || refused.Rule != "not-enabled" {
		t.Errorf("a tag of Amazon's was written: %v", err)
	}
}

// TestActionsRefuseResourcesInUse attaches a volume and associates an address after planning their
// removal.
func TestActionsRefuseResourcesInUse(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	var refused *action.Refusal
	machine := m.make(cloudtest.Machine)

	volume := m.make(cloudtest.Volume)
	tasks := acted(t, c, a, volume, policy.Do{Verb: policy.Delete})
	if _, err := a.Do(t.Context(), tasks[0]); err != nil {
		t.Fatal(err)
	}
	tasks[1].Earlier = []action.Step{tasks[0].Step}
	_, err := m.ec2().AttachVolume(t.Context(), &ec2.AttachVolumeInput{
		InstanceId: &machine.ID, VolumeId: &volume.ID, Device: awssdk.String("/dev/sdf"),
	})
	m.must(err)
	if _, err := a.Do(t.Context(), tasks[1]); !errors.As(err, &refused) || refused.Rule != "in-use" {
		t.Errorf("a volume that was attached meanwhile: %v, want a refusal", err)
	}

	address := m.make(cloudtest.Address)
	task := acted(t, c, a, address, policy.Do{Verb: policy.Release})[0]
	_, err = m.ec2().AssociateAddress(t.Context(), &ec2.AssociateAddressInput{
		AllocationId: &address.ID, InstanceId: &machine.ID,
	})
	m.must(err)
	if _, err := a.Do(t.Context(), task); !errors.As(err, &refused) || refused.Rule != "in-use" {
		t.Errorf("an address that was associated meanwhile: %v, want a refusal", err)
	}
	task.Step.Params = `{"public_ip":"203.0.113.9"}`
	if _, err := a.Do(t.Context(), task); !errors.As(err, &refused) || refused.Rule != "identity" {
		t.Errorf("another address under the same allocation: %v, want a refusal", err)
	}
	if p, _, err := a.Look(t.Context(), task); err != nil || p != action.NotDone {
		t.Errorf("the address was released: %s, %v", p, err)
	}
}

// TestActionsKeepForeignParts checks that no training job of a tuning job is stopped, which would
// restart it, and that no endpoint is deleted while it is being updated.
func TestActionsKeepForeignParts(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	job, endpoint := m.make(cloudtest.TrainingJob), m.make(cloudtest.Endpoint)
	scratch.Wire.Patch(wire.Patch{
		Service: "sagemaker", Operation: "DescribeTrainingJob", IDField: "TrainingJobName", ID: job.ID,
		Add: map[string]any{"TuningJobArn": "arn:aws:sagemaker:us-east-2:1:hyper-parameter-tuning-job/t"},
	})
	scratch.Wire.Patch(wire.Patch{
		Service: "sagemaker", IDField: "EndpointName", ID: endpoint.ID,
		Set: map[string]any{"EndpointStatus": "Updating"},
	})
	for _, tc := range []struct {
		ref  inventory.Ref
		do   policy.Do
		rule string
	}{{job, policy.Do{Verb: policy.Stop}, "group-member"}, {endpoint, policy.Do{Verb: policy.Delete}, "state"}} {
		o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{tc.ref},
			round.Query{Now: time.Now(), Window: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		var refused *action.Refusal
		if _, err := a.Plan(t.Context(), o.Resources[0], tc.do); !errors.As(err, &refused) || refused.Rule != tc.rule {
			t.Errorf("%s: %v, want a refusal by %q", tc.ref, err, tc.rule)
		}
	}
	task := action.Task{
		Ref: endpoint, Identity: time.Now().Format(time.RFC3339),
		Step: action.Step{Name: "delete", Key: "k", Params: "{}"},
	}
	if _, err := a.Do(t.Context(), task); err == nil {
		t.Error("an endpoint that is being changed was deleted")
	}
}

// TestEmptyResponseIsNoAbsence checks that after a failed call a response without the resource
// does not prove that it is gone.
func TestEmptyResponseIsNoAbsence(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	for _, tc := range []struct {
		subject    cloudtest.Subject
		verb       policy.Verb
		call, look string
	}{
		{cloudtest.Machine, policy.Terminate, "TerminateInstances", "DescribeInstances"},
		{cloudtest.Machine, policy.Stop, "StopInstances", "DescribeInstances"},
		{cloudtest.Address, policy.Release, "ReleaseAddress", "DescribeAddresses"},
		{cloudtest.Endpoint, policy.Delete, "DeleteEndpoint", "ListEndpoints"},
	} {
		ref := m.make(tc.subject)
		task := acted(t, c, a, ref, policy.Do{Verb: tc.verb, ScratchDisks: true})[0]
		remove := scratch.Wire.Inject(wire.Fault{Operation: tc.call, Kind: wire.ServerError})
		_, err := a.Do(t.Context(), task)
		remove()
		if err == nil {
			t.Fatalf("%s: it was carried out", tc.call)
		}
		for name, kind := range map[string]wire.FaultKind{
			"empty": wire.Empty, "a login page": wire.LoginPage, "hollow": wire.Hollow,
		} {
			remove := scratch.Wire.Inject(wire.Fault{Operation: tc.look, Kind: kind})
			got, _, err := a.Look(t.Context(), task)
			remove()
			if err == nil || got == action.Complete || got == action.Impossible {
				t.Errorf("%s, %s: %s, %v; want an unknown result", tc.call, name, got, err)
			}
		}
		remove = scratch.Wire.Inject(wire.Fault{Operation: tc.call, Kind: wire.LoginPage})
		if _, err := a.Do(t.Context(), task); err == nil && tc.look != "ListEndpoints" {
			t.Errorf("%s: a login page accepted it", tc.call)
		}
		remove()
	}
}

// TestScalingRefusesUnansweredChecks denies one query at a time, and protects machines of a group
// in each possible way.
func TestScalingRefusesUnansweredChecks(t *testing.T) {
	c := actingCloud(t)
	a := c.Actions()
	m := &maker{TB: t}
	ref := m.group(2)
	do := policy.Do{Verb: policy.Scale, To: 1, ScratchDisks: true}
	o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{ref}, round.Query{Now: time.Now(), Window: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	r := o.Resources[0]
	for _, op := range []string{"DescribeAutoScalingGroups", "DescribeInstances", "DescribeInstanceAttribute"} {
		remove := scratch.Wire.Inject(wire.Fault{Operation: op, Kind: wire.AccessDenied})
		_, err := a.Plan(t.Context(), r, do)
		remove()
		if err == nil {
			t.Errorf("planned without %s", op)
		}
	}
	members := r.Detail.(*inventory.AutoScalingGroup).Instances
	api := autoscaling.NewFromConfig(scratch.Config(elsewhere))
	for _, tc := range []struct {
		name    string
		do      policy.Do
		protect func()
	}{
		{"termination protection", do, func() {
			_, err := m.ec2().ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
				InstanceId: &members[0], DisableApiTermination: &ec2types.AttributeBooleanValue{
					Value: awssdk.Bool(true),
				},
			})
			m.must(err)
		}},
		{
			"scale-in protection of the one that is named", policy.Do{
				Verb: policy.Scale, Members: members[:1], ScratchDisks: true,
			}, func() {
				_, err := m.ec2().ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
					InstanceId: &members[0], DisableApiTermination: &ec2types.AttributeBooleanValue{
						Value: awssdk.Bool(false),
					},
				})
				m.must(err)
				_, err = api.SetInstanceProtection(t.Context(), &autoscaling.SetInstanceProtectionInput{
					AutoScalingGroupName: &ref.ID, InstanceIds: members[:1], ProtectedFromScaleIn: awssdk.Bool(true),
				})
				m.must(err)
			}},
		{"scale-in protection of all", do, func() {
			_, err := api.SetInstanceProtection(t.Context(), &autoscaling.SetInstanceProtectionInput{
				AutoScalingGroupName: &ref.ID, InstanceIds: members, ProtectedFromScaleIn: awssdk.Bool(true),
			})
			m.must(err)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name == "termination protection" {
				if _, err := a.Plan(t.Context(), r, tc.do); err != nil {
					t.Fatalf("before: %v", err)
				}
			}
			tc.protect()
			var refused *action.Refusal
			if _, err := a.Plan(t.Context(), r, tc.do); !errors.As(err, &refused) || refused.Rule != "protected" {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}
