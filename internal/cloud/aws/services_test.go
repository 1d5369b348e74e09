package aws

import (
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	sagetypes "github.com/aws/aws-sdk-go-v2/service/sagemaker/types"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
)

func TestExtendedSupport(t *testing.T) {
	at := func(day string) time.Time {
		v, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	standard := &ekstypes.UpgradePolicyResponse{SupportType: ekstypes.SupportTypeStandard}
	for _, tc := range []struct {
		version, now, want string
		policy             *ekstypes.UpgradePolicyResponse
	}{
		{"1.29", "2025-03-22", "", nil}, {"1.29", "2025-03-23", "2025-03-23", nil},
		{"1.19", "2026-01-01", "2023-10-11", nil},
		{"1.99", "2026-11-01", "", nil}, {"", "2026-11-01", "", nil}, {"1.x", "2026-11-01", "", nil},
		{"1.29", "2026-11-01", "", standard},
	} {
		got := extendedSince(&ekstypes.Cluster{Version: &tc.version, UpgradePolicy: tc.policy}, at(tc.now))
		if (tc.want == "") != got.IsZero() || (tc.want != "" && !got.Equal(at(tc.want))) {
			t.Errorf("%s on %s: %s, want %q", tc.version, tc.now, got, tc.want)
		}
	}
}

func TestProvisionedCapacity(t *testing.T) {
	units := func(read, write int64) *dynamotypes.ProvisionedThroughputDescription {
		return &dynamotypes.ProvisionedThroughputDescription{ReadCapacityUnits: &read, WriteCapacityUnits: &write}
	}
	var d inventory.Table
	fillTable(&d, &dynamotypes.TableDescription{
		ProvisionedThroughput: units(5, 7), GlobalSecondaryIndexes: []dynamotypes.GlobalSecondaryIndexDescription{
			{IndexName: awssdk.String("by-day"), ProvisionedThroughput: units(10, 20)}}})
	if d.OnDemand || d.ReadUnits != 15 || d.WriteUnits != 27 || len(d.Indexes) != 1 {
		t.Errorf("%+v", d)
	}
	d = inventory.Table{}
	fillTable(&d, &dynamotypes.TableDescription{ProvisionedThroughput: units(0, 0),
		BillingModeSummary: &dynamotypes.BillingModeSummary{BillingMode: dynamotypes.BillingModePayPerRequest}})
	if !d.OnDemand || d.ReadUnits != 0 {
		t.Errorf("%+v", d)
	}
}

// TestGroupsOfHyperPod checks that current machines are counted by type, with purchase option and
// additional volumes.
func TestGroupsOfHyperPod(t *testing.T) {
	volume := func(root bool, gib int32) sagetypes.ClusterInstanceStorageConfig {
		return &sagetypes.ClusterInstanceStorageConfigMemberEbsVolumeConfig{
			Value: sagetypes.ClusterEbsVolumeConfig{RootVolume: &root, VolumeSizeInGB: &gib},
		}
	}
	got := hyperPodGroups(&sagemaker.DescribeClusterOutput{
		InstanceGroups: []sagetypes.ClusterInstanceGroupDetails{
			{
				InstanceGroupName: awssdk.String("head"), InstanceType: "ml.m5.xlarge", CurrentCount: awssdk.Int32(1),
				TargetCount: awssdk.Int32(1),
			},
			{
				InstanceGroupName: awssdk.String("workers"), InstanceType: "ml.p5.48xlarge",
				CurrentCount: awssdk.Int32(3),
				TargetCount:  awssdk.Int32(4),
				InstanceStorageConfigs: []sagetypes.ClusterInstanceStorageConfig{
					volume(true, 100), volume(false, 500),
				}},
			{
				InstanceGroupName: awssdk.String("plan"), InstanceType: "ml.p5.48xlarge",
				CurrentCount:    awssdk.Int32(8),
				TrainingPlanArn: awssdk.String("arn:aws:sagemaker:x"),
			},
			{InstanceGroupName: awssdk.String("spot"), InstanceType: "ml.g5.xlarge", CurrentCount: awssdk.Int32(2),
				CapacityRequirements: &sagetypes.ClusterCapacityRequirements{Spot: &sagetypes.ClusterSpotOptions{}}},
			{
				InstanceGroupName: awssdk.String("any"), CurrentCount: awssdk.Int32(5),
				InstanceTypeDetails: []sagetypes.ClusterInstanceTypeDetail{
					{
						InstanceType: "ml.g5.xlarge", CurrentCount: awssdk.Int32(2),
					}, {InstanceType: "ml.g6.xlarge", CurrentCount: awssdk.Int32(3)}}},
		},
		RestrictedInstanceGroups: []sagetypes.ClusterRestrictedInstanceGroupDetails{
			{
				InstanceGroupName: awssdk.String("model"), InstanceType: "ml.p4d.24xlarge",
				CurrentCount: awssdk.Int32(2),
			}},
	})
	of := func(name, machine string, n int64) inventory.NodeGroup {
		return inventory.NodeGroup{Name: name, Type: machine, Count: n}
	}
	want := []inventory.HyperPodGroup{
		{NodeGroup: of("head", "m5.xlarge", 1)}, {NodeGroup: of("workers", "p5.48xlarge", 3), VolumeGiB: 500},
		{
			NodeGroup: of("plan", "p5.48xlarge", 8), TrainingPlan: true,
		}, {NodeGroup: of("spot", "g5.xlarge", 2), Spot: true},
		{NodeGroup: of("any/g5.xlarge", "g5.xlarge", 2)}, {NodeGroup: of("any/g6.xlarge", "g6.xlarge", 3)},
		{NodeGroup: of("model", "p4d.24xlarge", 2)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if one, several := onlyType(got[1:3]), onlyType(got); one != "p5.48xlarge" || several != "" {
		t.Errorf("the only types are %q and %q", one, several)
	}
}
