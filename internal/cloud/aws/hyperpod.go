package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker"
	"github.com/aws/aws-sdk-go-v2/service/sagemaker/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// hyperPods lists the clusters of SageMaker HyperPod with their instance groups.
func (p *place) hyperPods(ctx context.Context) {
	var found []types.ClusterSummary
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := sagemakerClient(p.reading).ListClusters(ctx, &sagemaker.ListClustersInput{
			MaxResults: awssdk.Int32(sageMakerPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, c := range out.ClusterSummaries {
			if p.wants(inventory.KindHyperPod, awssdk.ToString(c.ClusterName)) {
				found = append(found, c)
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "sagemaker:ListClusters", err)
	each(ctx, found, func(c types.ClusterSummary) {
		r := p.resource(inventory.KindHyperPod, awssdk.ToString(c.ClusterName))
		r.Name, r.CreatedAt, r.State = r.ID, utc(c.CreationTime), hyperPodStates[c.ClusterStatus]
		d := &inventory.HyperPod{}
		out, err := sagemakerClient(p.reading).DescribeCluster(ctx, &sagemaker.DescribeClusterInput{
			ClusterName: c.ClusterName,
		})
		p.missed(ctx, "sagemaker:DescribeCluster", r.ID, err)
		if err == nil {
			groups := hyperPodGroups(out)
			d.Groups = inventory.Known(groups)
			r.Type = onlyType(groups)
		}
		r.Detail = d
		r.Tags = p.sageMakerTags(ctx, c.ClusterArn, r.ID)
		p.scan.add(r)
	})
}

// hyperPodStates maps the states of clusters. Machines keep running while a cluster updates or
// after a failed update.
var hyperPodStates = map[types.ClusterStatus]inventory.State{
	types.ClusterStatusCreating:       inventory.StateRunning,
	types.ClusterStatusDeleting:       inventory.StateDeleting,
	types.ClusterStatusFailed:         inventory.StateFailed,
	types.ClusterStatusInservice:      inventory.StateRunning,
	types.ClusterStatusRollingback:    inventory.StateRunning,
	types.ClusterStatusSystemupdating: inventory.StateRunning,
	types.ClusterStatusUpdating:       inventory.StateRunning,
}

// hyperPodGroups returns the current machines of a cluster, by group and type.
func hyperPodGroups(out *sagemaker.DescribeClusterOutput) []inventory.HyperPodGroup {
	groups := []inventory.HyperPodGroup{}
	for _, g := range out.InstanceGroups {
		group := inventory.HyperPodGroup{
			Spot:         g.CapacityRequirements != nil && g.CapacityRequirements.Spot != nil,
			TrainingPlan: awssdk.ToString(g.TrainingPlanArn) != "",
			VolumeGiB:    additionalGiB(g.InstanceStorageConfigs),
		}
		group.NodeGroup = inventory.NodeGroup{
			Name: awssdk.ToString(g.InstanceGroupName), Type: machineType(g.InstanceType),
			Count: int64(awssdk.ToInt32(g.CurrentCount)),
		}
		if len(g.InstanceTypeDetails) == 0 {
			groups = append(groups, group)
		}
		for _, t := range g.InstanceTypeDetails {
			of := group
			of.Type, of.Count = machineType(t.InstanceType), int64(awssdk.ToInt32(t.CurrentCount))
			if len(g.InstanceTypeDetails) > 1 {
				of.Name += "/" + of.Type
			}
			groups = append(groups, of)
		}
	}
	for _, g := range out.RestrictedInstanceGroups {
		groups = append(groups, inventory.HyperPodGroup{
			NodeGroup: inventory.NodeGroup{
				Name: awssdk.ToString(g.InstanceGroupName), Type: machineType(g.InstanceType),
				Count: int64(awssdk.ToInt32(g.CurrentCount)),
			},
			TrainingPlan: awssdk.ToString(g.TrainingPlanArn) != "", VolumeGiB: additionalGiB(g.InstanceStorageConfigs),
		})
	}
	return groups
}

// additionalGiB returns the size of each machine's additional volume.
func additionalGiB(configs []types.ClusterInstanceStorageConfig) (gib int64) {
	for _, c := range configs {
		ebs, ok := c.(*types.ClusterInstanceStorageConfigMemberEbsVolumeConfig)
		if ok && !awssdk.ToBool(ebs.Value.RootVolume) {
			gib += int64(awssdk.ToInt32(ebs.Value.VolumeSizeInGB))
		}
	}
	return gib
}

// onlyType returns the machine type shared by all groups, or "".
func onlyType(groups []inventory.HyperPodGroup) string {
	found := ""
	for _, g := range groups {
		if found != "" && g.Type != found {
			return ""
		}
		found = g.Type
	}
	return found
}
