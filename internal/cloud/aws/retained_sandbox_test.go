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

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/test/wire"
)

// listed returns what the scratch account has of some kinds, by its id, with the blind spots.
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

// TestManagersOfDisks: volumes that Kubernetes made for claims and snapshots that AWS Backup made
// say so by their tags.
func TestManagersOfDisks(t *testing.T) {
	environOf(t, scratch)
	api := ec2.NewFromConfig(scratch.Config("us-east-1"))
	volume := func(tags ...string) *string {
		t.Helper()
		out, err := api.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: awssdk.String("us-east-1a"), Size: awssdk.Int32(8),
			TagSpecifications: tagged(ec2types.ResourceTypeVolume, tags)})
		if err != nil {
			t.Fatal(err)
		}
		return out.VolumeId
	}
	snapshot := func(of *string, tags ...string) *string {
		t.Helper()
		out, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: of, TagSpecifications: tagged(ec2types.ResourceTypeSnapshot, tags)})
		if err != nil {
			t.Fatal(err)
		}
		return out.SnapshotId
	}
	plain := volume("Name", "mine")
	claim := volume("kubernetes.io/created-for/pvc/name", "data-db-0", "kubernetes.io/created-for/pvc/namespace", "ml", "ebs.csi.aws.com/cluster", "true")
	bare := volume("CSIVolumeName", "pvc-17", "kubernetes.io/cluster/prod", "owned")
	own, backup := snapshot(plain, "Name", "mine"), snapshot(plain, "aws:backup:source-resource", "arn:aws:ec2:us-east-1:123456789012:volume/vol-1")
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
			t.Errorf("%s with tags %v: manager %v, claim %q; want %v, %q", r.ID, r.Tags, r.Manager, of, want.manager, want.claim)
		}
	}
}

// TestLaunchersOfImages: launch templates in the versions that anything starts, launch
// configurations and fleets name the images and snapshots that they start machines from. Where one
// of those lists is not read, none of them is known.
func TestLaunchersOfImages(t *testing.T) {
	environOf(t, scratch)
	api, scaling := ec2.NewFromConfig(scratch.Config("us-east-1")), autoscaling.NewFromConfig(scratch.Config("us-east-1"))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	image := func(name string) string {
		t.Helper()
		out, err := api.RegisterImage(t.Context(), &ec2.RegisterImageInput{Name: &name, RootDeviceName: awssdk.String("/dev/sda1")})
		must(err)
		return *out.ImageId
	}
	first, pinned, latest, configured, spot, free := image("first"), image("pinned"), image("latest"), image("configured"), image("spot"), image("free")
	volume, err := api.CreateVolume(t.Context(), &ec2.CreateVolumeInput{AvailabilityZone: awssdk.String("us-east-1a"), Size: awssdk.Int32(4)})
	must(err)
	snapshot, err := api.CreateSnapshot(t.Context(), &ec2.CreateSnapshotInput{VolumeId: volume.VolumeId})
	must(err)
	name := awssdk.String("web-fleet")
	for i, id := range []string{first, pinned, first, latest} {
		data := &ec2types.RequestLaunchTemplateData{ImageId: &id, InstanceType: ec2types.InstanceTypeM5Large}
		if i == 0 {
			_, err = api.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{LaunchTemplateName: name, LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
				ImageId: &latest, InstanceType: ec2types.InstanceTypeM5Large}})
			must(err)
		}
		if id == latest {
			data.BlockDeviceMappings = []ec2types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: awssdk.String("/dev/sdf"),
				Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{SnapshotId: snapshot.SnapshotId}}}
		}
		_, err = api.CreateLaunchTemplateVersion(t.Context(), &ec2.CreateLaunchTemplateVersionInput{LaunchTemplateName: name, LaunchTemplateData: data})
		must(err)
	}
	_, err = scaling.CreateAutoScalingGroup(t.Context(), &autoscaling.CreateAutoScalingGroupInput{AutoScalingGroupName: awssdk.String("pinned"),
		LaunchTemplate: &scalingtypes.LaunchTemplateSpecification{LaunchTemplateName: name, Version: awssdk.String("3")},
		MinSize:        awssdk.Int32(0), MaxSize: awssdk.Int32(1), AvailabilityZones: []string{"us-east-1a"}})
	must(err)
	_, err = scaling.CreateLaunchConfiguration(t.Context(), &autoscaling.CreateLaunchConfigurationInput{LaunchConfigurationName: awssdk.String("old"), ImageId: &configured,
		InstanceType: awssdk.String("m5.large")})
	must(err)
	fleet, err := api.RequestSpotFleet(t.Context(), &ec2.RequestSpotFleetInput{SpotFleetRequestConfig: &ec2types.SpotFleetRequestConfigData{
		IamFleetRole: awssdk.String("arn:aws:iam::123456789012:role/fleet"), TargetCapacity: awssdk.Int32(1), SpotPrice: awssdk.String("0.1"),
		AllocationStrategy: ec2types.AllocationStrategyLowestPrice, LaunchSpecifications: []ec2types.SpotFleetLaunchSpecification{
			{ImageId: &spot, InstanceType: ec2types.InstanceTypeM5Large, Placement: &ec2types.SpotPlacement{AvailabilityZone: awssdk.String("us-east-1a")}}}}})
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
	got, blind := launchers()
	for _, want := range []struct {
		id  string
		by  []string
		why string
	}{
		{first, nil, "a version that nothing starts"},
		{pinned, []string{"launch template web-fleet version 3"}, "a version that a group names"},
		{latest, []string{"launch template web-fleet version 1", "launch template web-fleet version 5"}, "the default and the latest version"},
		{*snapshot.SnapshotId, []string{"launch template web-fleet version 5"}, "a disk of the latest version"},
		{configured, []string{"launch configuration old"}, "a launch configuration"},
		{spot, []string{"spot fleet " + *fleet.SpotFleetRequestId}, "a spot fleet"},
		{free, nil, "no launcher"},
	} {
		if by, known := got[want.id].Get(); !known || !slices.Equal(by, want.by) {
			t.Errorf("%s: %v, known %v; want %v (blind spots %+v)", want.why, by, known, want.by, blind)
		}
	}
	for _, call := range []string{"ec2:DescribeLaunchTemplateVersions", "ec2:DescribeFleets", "ec2:DescribeSpotFleetRequests",
		"autoscaling:DescribeLaunchConfigurations", "autoscaling:DescribeAutoScalingGroups"} {
		service, operation, _ := strings.Cut(call, ":")
		remove := scratch.Wire.Inject(wire.Fault{Service: service, Operation: operation, Kind: wire.AccessDenied})
		got, blind := launchers()
		remove()
		if got[free].Known() || !slices.ContainsFunc(blind, func(b inventory.BlindSpot) bool { return strings.Contains(b.Why, call) }) {
			t.Errorf("%s is denied: %+v, blind spots %+v; want unknown, and named", call, got[free], blind)
		}
	}
}

// tagged gives a new resource tags, which are named in pairs.
func tagged(of ec2types.ResourceType, pairs []string) []ec2types.TagSpecification {
	spec := ec2types.TagSpecification{ResourceType: of}
	for i := 0; i < len(pairs); i += 2 {
		spec.Tags = append(spec.Tags, ec2types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}
	return []ec2types.TagSpecification{spec}
}
