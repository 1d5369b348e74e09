package aws_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scalingtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/test/wire"
)

// listed returns the resources of some kinds in the scratch account, by id, with the blind spots.
func listed(t *testing.T, kinds ...inventory.Kind) (map[string]*inventory.Resource, []inventory.BlindSpot) {
	t.Helper()
	c, err := aws.New(t.Context(), aws.Options{Regions: []string{"us-east-1"}, RequestsPerSecond: 10_000, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	asked := map[inventory.Kind]bool{}
	for _, k := range kinds {
		asked[k] = true
	}
	o, err := c.List(t.Context(), round.Query{Now: time.Now().UTC(), Kinds: asked})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*inventory.Resource{}
	for _, r := range o.Resources {
		out[r.ID] = r
	}
	return out, o.BlindSpots
}

// TestManagersOfDisks checks that volumes of Kubernetes claims and snapshots of AWS Backup are
// recognized by their tags.
func TestManagersOfDisks(t *testing.T) {
	environOf(t, scratch)
	api := ec2.NewFromConfig(scratch.Config("us-east-1"))
	volume := func(tags ...string) *string {
		t.Helper()
		out, err := api.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
			AvailabilityZone:  awssdk.String("us-east-1a"),
			Size:              awssdk.Int32(8),
			TagSpecifications: tagged(ec2types.ResourceTypeVolume, tags),
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.VolumeId
	}
	snapshot := func(of *string, tags ...string) *string {
		t.Helper()
		out, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{
			VolumeId:          of,
			TagSpecifications: tagged(ec2types.ResourceTypeSnapshot, tags),
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.SnapshotId
	}
	plain := volume("Name", "mine")
	claim := volume("kubernetes.io/created-for/pvc/name", "data-db-0", "kubernetes.io/created-for/pvc/namespace", "ml",
		"ebs.csi.aws.com/cluster", "true")
	bare := volume("CSIVolumeName", "pvc-17", "kubernetes.io/cluster/prod", "owned")
	own := snapshot(plain, "Name", "mine")
	backup := snapshot(plain, "aws:backup:source-resource", "arn:aws:ec2:us-east-1:123456789012:volume/vol-1")
	got, _ := listed(t, inventory.KindVolume, inventory.KindSnapshot)
	for _, want := range []struct {
		id      *string
		manager inventory.Manager
		claim   string
	}{
		{plain, inventory.Manager{}, ""},
		{claim, inventory.Manager{Kind: inventory.ManagerKubernetes}, "ml/data-db-0"},
		{bare, inventory.Manager{Kind: inventory.ManagerKubernetes, Name: "prod"}, "pvc-17"},
		{own, inventory.Manager{}, ""},
		{backup, inventory.Manager{Kind: inventory.ManagerBackup}, ""},
	} {
		r := got[*want.id]
		if r == nil {
			t.Fatalf("%s was not listed", *want.id)
		}
		of := ""
		if v, ok := r.Detail.(*inventory.Volume); ok {
			of = v.Claim
		}
		if r.Manager != want.manager || of != want.claim {
			t.Errorf("%s with tags %v: manager %v, claim %q; want %v, %q", r.ID, r.Tags, r.Manager, of,
				want.manager, want.claim)
		}
	}
}

// TestLaunchersOfImages checks that launch templates in the used versions, launch configurations
// and fleets name the images and snapshots they start machines from. If one of these lists is
// unread, all are unknown.
func TestLaunchersOfImages(t *testing.T) {
	environOf(t, scratch)
	api, scaling := ec2.NewFromConfig(scratch.Config("us-east-1")), autoscaling.NewFromConfig(
		scratch.Config("us-east-1"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	image := func(name string) string {
		t.Helper()
		out, err := api.RegisterImage(t.Context(), &ec2.RegisterImageInput{
			Name:           &name,
			RootDeviceName: awssdk.String("/dev/sda1"),
		})
		must(err)
		return *out.ImageId
	}
	first, pinned, latest := image("first"), image("pinned"), image("latest")
	configured, spot, free := image("configured"), image("spot"), image("free")
	volume, err := api.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: awssdk.String("us-east-1a"),
		Size:             awssdk.Int32(4),
	})
	must(err)
	snapshot, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: volume.VolumeId})
	must(err)
	name := awssdk.String("web-fleet")
	template := func(id string) *ec2types.RequestLaunchTemplateData {
		return &ec2types.RequestLaunchTemplateData{ImageId: &id, InstanceType: ec2types.InstanceTypeM5Large}
	}
	_, err = api.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: name, LaunchTemplateData: template(latest),
	})
	must(err)
	for i, id := range []string{first, pinned, first, latest} {
		data := template(id)
		if i == 3 {
			data.BlockDeviceMappings = []ec2types.LaunchTemplateBlockDeviceMappingRequest{{
				DeviceName: awssdk.String("/dev/sdf"),
				Ebs:        &ec2types.LaunchTemplateEbsBlockDeviceRequest{SnapshotId: snapshot.SnapshotId},
			}}
		}
		_, err = api.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{
			LaunchTemplateName: name,
			LaunchTemplateData: data,
		})
		must(err)
	}
	_, err = scaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{
		AutoScalingGroupName: awssdk.String("pinned"),
		LaunchTemplate: &scalingtypes.LaunchTemplateSpecification{
			LaunchTemplateName: name, Version: awssdk.String("3"),
		},
		MinSize:           awssdk.Int32(0),
		MaxSize:           awssdk.Int32(1),
		AvailabilityZones: []string{"us-east-1a"},
	})
	must(err)
	_, err = scaling.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{
		LaunchConfigurationName: awssdk.String("old"),
		ImageId:                 &configured,
		InstanceType:            awssdk.String("m5.large"),
	})
	must(err)
	request := &ec2types.SpotFleetRequestConfigData{
		IamFleetRole:       awssdk.String("arn:aws:iam::123456789012:role/fleet"),
		TargetCapacity:     awssdk.Int32(1),
		SpotPrice:          awssdk.String("0.1"),
		AllocationStrategy: ec2types.AllocationStrategyLowestPrice,
		LaunchSpecifications: []ec2types.SpotFleetLaunchSpecification{{
			ImageId:      &spot,
			InstanceType: ec2types.InstanceTypeM5Large,
			Placement:    &ec2types.SpotPlacement{AvailabilityZone: awssdk.String("us-east-1a")},
		}},
	}
	fleet, err := api.RequestSpotFleet(t.Context(), &ec2.RequestSpotFleetInput{SpotFleetRequestConfig: request})
	must(err)

	launchers := func() (map[string]inventory.Fact[[]string], []inventory.BlindSpot) {
		found, blind := listed(t, inventory.KindImage, inventory.KindSnapshot)
		out := map[string]inventory.Fact[[]string]{}
		for id, r := range found {
			switch d := r.Detail.(type) {
			case *inventory.Image:
				out[id] = d.Launchers
			case *inventory.Snapshot:
				out[id] = d.Launchers
			}
		}
		return out, blind
	}
	scratch.Wire.Patch(wire.Patch{Service: "ec2", Operation: "DescribeImages", IDField: "imageId", ID: pinned,
		Add: map[string]any{"deregistrationProtection": "enabled-without-cooldown"}})
	scratch.Wire.Patch(wire.Patch{Service: "ec2", Operation: "DescribeImages", IDField: "imageId", ID: free,
		Add: map[string]any{"deregistrationProtection": "disabled"}})
	images, _ := listed(t, inventory.KindImage)
	for id, r := range images {
		if image := r.Detail.(*inventory.Image); image.Protected != (id == pinned) {
			t.Errorf("%s is protected: %v", id, image.Protected)
		}
	}
	got, blind := launchers()
	for _, want := range []struct {
		id  string
		by  []string
		why string
	}{
		{first, nil, "a version that nothing starts"},
		{pinned, []string{"launch template web-fleet version 3"}, "a version that a group names"},
		{
			latest, []string{"launch template web-fleet version 1", "launch template web-fleet version 5"},
			"the default and the latest version",
		},
		{*snapshot.SnapshotId, []string{"launch template web-fleet version 5"}, "a disk of the latest version"},
		{configured, []string{"launch configuration old"}, "a launch configuration"},
		{spot, []string{"spot fleet " + *fleet.SpotFleetRequestId}, "a spot fleet"},
		{free, nil, "no launcher"},
	} {
		if by, known := got[want.id].Get(); !known || !slices.Equal(by, want.by) {
			t.Errorf("%s: %v, known %v; want %v (blind spots %+v)", want.why, by, known, want.by, blind)
		}
	}
	for _, call := range []string{
		"ec2:DescribeLaunchTemplateVersions", "ec2:DescribeFleets", "ec2:DescribeSpotFleetRequests",
		"autoscaling:DescribeLaunchConfigurations", "autoscaling:DescribeAutoScalingGroups"} {
		service, operation, _ := strings.Cut(call, ":")
		remove := scratch.Wire.Inject(wire.Fault{Service: service, Operation: operation, Kind: wire.AccessDenied})
		got, blind := launchers()
		remove()
		if got[free].Known() || !blindTo(blind, call) {
			t.Errorf("%s is denied: %+v, blind spots %+v; want unknown, and named", call, got[free], blind)
		}
	}
}

// TestImagesBehindParameters checks that a template with an AWS parameter starts none of the
// account's images, and that an unresolved parameter may stand for any of them.
func TestImagesBehindParameters(t *testing.T) {
	environOf(t, scratch)
	api := ec2.NewFromConfig(scratch.Config("us-east-1"))
	image, err := api.RegisterImage(t.Context(), &ec2.RegisterImageInput{
		Name:           awssdk.String("behind-a-parameter"),
		RootDeviceName: awssdk.String("/dev/sda1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for parameter, known := range map[string]bool{
		"resolve:ssm:/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id": true,
		"resolve:ssm:/ml/base-image": false,
	} {
		name := awssdk.String("by-parameter")
		_, err := api.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
			LaunchTemplateName: name,
			LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
				ImageId: &parameter, InstanceType: ec2types.InstanceTypeM5Large,
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		found, blind := listed(t, inventory.KindImage)
		if _, err := api.DeleteLaunchTemplate(t.Context(), &ec2.DeleteLaunchTemplateInput{
			LaunchTemplateName: name,
		}); err !=
			nil {
			t.Fatal(err)
		}
		got := found[*image.ImageId].Detail.(*inventory.Image).Launchers
		if got.Known() != known || blindTo(blind, "parameters not resolved") == known {
			t.Errorf("%s: launchers %+v, want known %v; blind spots %+v", parameter, got, known, blind)
		}
	}
}

// TestSnapshotLocks checks that a lock protects its snapshot until it expires, and that unread
// locks make every snapshot's lock unknown.
func TestSnapshotLocks(t *testing.T) {
	environOf(t, scratch)
	api := ec2.NewFromConfig(scratch.Config("us-east-1"))
	volume, err := api.CreateVolume(t.Context(), &ec2.CreateVolumeInput{
		AvailabilityZone: awssdk.String("us-east-1a"),
		Size:             awssdk.Int32(2),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	var locks []wire.SnapshotLock
	for _, state := range []string{"", "governance", "compliance", "compliance-cooloff", "expired"} {
		out, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: volume.VolumeId})
		if err != nil {
			t.Fatal(err)
		}
		want[*out.SnapshotId] = state != "" && state != "expired"
		if state != "" {
			locks = append(locks, wire.SnapshotLock{Snapshot: *out.SnapshotId, State: state})
		}
	}
	set := func(locks []wire.SnapshotLock) {
		scratch.Wire.State.At(truth.Account, "us-east-1", func(p *wire.Place) { p.SnapshotLocks = locks })
	}
	set(locks)
	defer set(nil)
	got, _ := listed(t, inventory.KindSnapshot)
	for id, locked := range want {
		if is, known := got[id].Detail.(*inventory.Snapshot).Locked.Get(); !known || is != locked {
			t.Errorf("%s is locked: %v, known %v; want %v (%+v)", id, is, known, locked, locks)
		}
	}
	defer scratch.Wire.Inject(wire.Fault{
		Service: "ec2", Operation: "DescribeLockedSnapshots", Kind: wire.AccessDenied,
	})()
	got, blind := listed(t, inventory.KindSnapshot)
	named := blindTo(blind, "ec2:DescribeLockedSnapshots")
	for id := range want {
		if got[id].Detail.(*inventory.Snapshot).Locked.Known() || !named {
			t.Errorf("%s: locks were denied and are known, or not named: %+v", id, blind)
		}
	}
}

// TestProtectionOfBuckets checks Object Lock with its default retention, retained versions, delete
// markers and replication in both directions. Buckets that were never versioned are not queried.
func TestProtectionOfBuckets(t *testing.T) {
	environOf(t, scratch)
	api := s3.NewFromConfig(scratch.Config("us-east-1"), func(o *s3.Options) { o.UsePathStyle = true })
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const held, origin, copied, bare = "protected-held", "protected-origin", "protected-copy", "protected-bare"
	for _, name := range []string{held, origin, copied, bare} {
		must(api.CreateBucket(t.Context(), &s3.CreateBucketInput{
			Bucket: &name, ObjectLockEnabledForBucket: awssdk.Bool(name == held),
		}))
		if name != bare {
			must(api.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{Bucket: &name,
				VersioningConfiguration: &s3types.VersioningConfiguration{
					Status: s3types.BucketVersioningStatusEnabled,
				}}))
		}
	}
	must(api.PutObjectLockConfiguration(t.Context(), &s3.PutObjectLockConfigurationInput{
		Bucket: awssdk.String(held),
		ObjectLockConfiguration: &s3types.ObjectLockConfiguration{
			ObjectLockEnabled: s3types.ObjectLockEnabledEnabled,
			Rule: &s3types.ObjectLockRule{DefaultRetention: &s3types.DefaultRetention{
				Mode:  s3types.ObjectLockRetentionModeCompliance,
				Years: awssdk.Int32(2),
			}},
		},
	}))
	put := func(bucket, key, body string) {
		t.Helper()
		must(api.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: strings.NewReader(body),
			ChecksumAlgorithm: s3types.ChecksumAlgorithmSha256}))
	}
	for _, bucket := range []string{held, copied} {
		put(bucket, "a", "older")
		put(bucket, "a", "newer")
		must(api.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: awssdk.String("a")}))
	}
	must(api.PutBucketReplication(t.Context(), &s3.PutBucketReplicationInput{
		Bucket: awssdk.String(origin),
		ReplicationConfiguration: &s3types.ReplicationConfiguration{
			Role: awssdk.String("arn:aws:iam::123456789012:role/copy"),
			Rules: []s3types.ReplicationRule{{
				Status:   s3types.ReplicationRuleStatusEnabled,
				Priority: awssdk.Int32(1),
				Filter:   &s3types.ReplicationRuleFilter{Prefix: awssdk.String("")},
				DeleteMarkerReplication: &s3types.DeleteMarkerReplication{
					Status: s3types.DeleteMarkerReplicationStatusDisabled,
				},
				Destination: &s3types.Destination{Bucket: awssdk.String("arn:aws:s3:::" + copied)},
			}},
		},
	}))

	buckets := func() (func(string) *inventory.Bucket, []inventory.BlindSpot) {
		t.Helper()
		scratch.Wire.Recorder.Reset()
		found, blind := listed(t, inventory.KindBucket)
		return func(name string) *inventory.Bucket { return found[name].Detail.(*inventory.Bucket) }, blind
	}
	at, _ := buckets()
	lock := at(held)
	if got, known := lock.ObjectLock.Get(); !known ||
		got != (inventory.ObjectLock{Enabled: true, Mode: "COMPLIANCE", RetentionDays: 730}) {
		t.Errorf("Object Lock of %s: %+v, known %v", held, got, known)
	}
	until := time.Now().AddDate(0, 0, 730)
	if lock.Locked != (inventory.Stored{Bytes: 10, Objects: 2}) || lock.LockedUntil.Sub(until).Abs() > time.Hour ||
		lock.DeleteMarkers != 1 {
		t.Errorf("%s keeps %+v until %s behind %d delete markers; want 10 bytes in 2 versions until %s, and 1",
			held, lock.Locked, lock.LockedUntil, lock.DeleteMarkers, until)
	}
	open := at(copied)
	if lock, known := open.ObjectLock.Get(); !known || lock.Enabled || open.Locked.Objects != 0 ||
		open.Noncurrent.Or(inventory.Listing{}).Objects != 2 {
		t.Errorf("%s: %+v", copied, open)
	}
	if got, known := at(origin).ReplicatesTo.Get(); !known || !slices.Equal(got, []string{copied}) {
		t.Errorf("%s replicates to %v, known %v", origin, got, known)
	}
	if got, known := at(copied).ReplicatedFrom.Get(); !known || !slices.Equal(got, []string{origin}) {
		t.Errorf("%s is replicated from %v, known %v", copied, got, known)
	}
	if got, known := at(held).ReplicatedFrom.Get(); !known || len(got) > 0 {
		t.Errorf("%s is replicated from %v, known %v", held, got, known)
	}
	asked := func() (n int) { return scratch.Wire.Recorder.Count("s3:GetObjectLockConfiguration") }
	if b := at(bare); !b.ObjectLock.Known() || !b.ReplicatesTo.Known() {
		t.Errorf("%s was never versioned, and its protection is not known: %+v", bare, b)
	}
	if n := asked(); n < 3 {
		t.Errorf("Object Lock was asked for %d times, want 3 for the versioned buckets", n)
	}
	if mfa, known := lock.MFADelete.Get(); !known || mfa {
		t.Errorf("MFA delete of %s: %v, known %v", held, mfa, known)
	}
	scratch.Wire.Patch(wire.Patch{Service: "s3", Operation: "GetBucketVersioning", IDField: "Status", ID: "Enabled",
		Add: map[string]any{"MfaDelete": "Enabled"}})
	if at, _ := buckets(); !at(held).MFADelete.Or(false) || at(bare).MFADelete.Or(true) {
		t.Errorf("MFA delete of %s and %s: %+v, %+v", held, bare, at(held).MFADelete, at(bare).MFADelete)
	}
	broken := map[string]wire.FaultKind{
		"denied":    wire.AccessDenied,
		"garbled":   wire.Garbled,
		"truncated": wire.Truncated,
		"empty":     wire.Empty,
	}
	for _, call := range []struct{ operation, action string }{
		{"GetObjectLockConfiguration", "s3:GetBucketObjectLockConfiguration"},
		{"GetBucketReplication", "s3:GetReplicationConfiguration"},
	} {
		for way, kind := range broken {
			remove := scratch.Wire.Inject(wire.Fault{Service: "s3", Operation: call.operation, Kind: kind})
			at, blind := buckets()
			remove()
			known := at(held).ObjectLock.Known()
			if call.operation == "GetBucketReplication" {
				known = at(origin).ReplicatesTo.Known() || at(held).ReplicatedFrom.Known()
			}
			if known || !blindTo(blind, call.action) {
				t.Errorf("%s is %s: known %v, blind spots %+v", call.operation, way, known, blind)
			}
		}
	}
}

// blindTo reports whether a blind spot names a call or its IAM action.
func blindTo(spots []inventory.BlindSpot, call string) bool {
	return slices.ContainsFunc(spots, func(b inventory.BlindSpot) bool { return strings.Contains(b.Why, call) })
}

// tagged gives a new resource tags, as alternating keys and values.
func tagged(of ec2types.ResourceType, pairs []string) []ec2types.TagSpecification {
	spec := ec2types.TagSpecification{ResourceType: of}
	for i := 0; i < len(pairs); i += 2 {
		spec.Tags = append(spec.Tags, ec2types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return []ec2types.TagSpecification{spec}
}
