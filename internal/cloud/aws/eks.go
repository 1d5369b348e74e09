package aws

import (
	"context"
	"fmt"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// clusters lists the control planes of EKS.
func (p *place) clusters(ctx context.Context) {
	var names []string
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := eksClient(p.reading).ListClusters(ctx, &eks.ListClustersInput{NextToken: token})
		if err != nil {
			return nil, err
		}
		names = append(names, out.Clusters...)
		return out.NextToken, nil
	})
	p.failed(ctx, "eks:ListClusters", err)
	each(ctx, names, func(name string) {
		r := p.resource(inventory.KindCluster, name)
		r.Name = name
		d := &inventory.Cluster{}
		r.Detail = d
		out, err := eksClient(p.reading).DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &name})
		p.missed(ctx, "eks:DescribeCluster", name, err)
		if err == nil && out.Cluster != nil {
			c := out.Cluster
			r.CreatedAt, r.State, r.Tags = utc(c.CreatedAt), clusterStates[c.Status], c.Tags
			if r.Tags == nil {
				r.Tags = map[string]string{}
			}
			d.Version = awssdk.ToString(c.Version)
			d.ExtendedSince = extendedSince(c, p.now())
		}
		p.scan.add(r)
	})
}

// standardEnds is when EKS ends the standard support of a minor version of Kubernetes 1 (Amazon EKS
// User Guide, "Amazon EKS Kubernetes release calendar"). Earlier versions are past it; later
// versions are unknown.
var standardEnds = map[int]string{
	23: "2023-10-11", 24: "2024-01-31", 25: "2024-05-01", 26: "2024-06-11", 27: "2024-07-24", 28: "2024-11-26",
	29: "2025-03-23", 30: "2025-07-23", 31: "2025-11-26", 32: "2026-03-23", 33: "2026-07-29",
}

// extendedSince returns the start of extended support of a cluster's version; zero before. A
// cluster that is upgraded automatically never enters it.
func extendedSince(c *types.Cluster, now time.Time) time.Time {
	var minor int
	if n, err := fmt.Sscanf(awssdk.ToString(c.Version), "1.%d", &minor); n != 1 || err != nil ||
		(c.UpgradePolicy != nil && c.UpgradePolicy.SupportType == types.SupportTypeStandard) {
		return time.Time{}
	}
	ends, err := time.Parse(time.DateOnly, standardEnds[max(minor, 23)])
	if err != nil || ends.After(now) {
		return time.Time{}
	}
	return ends
}

var clusterStates = map[types.ClusterStatus]inventory.State{
	types.ClusterStatusCreating: inventory.StatePending, types.ClusterStatusActive: inventory.StateRunning,
	types.ClusterStatusUpdating: inventory.StateRunning, types.ClusterStatusPending: inventory.StatePending,
	types.ClusterStatusDeleting: inventory.StateDeleting, types.ClusterStatusFailed: inventory.StateFailed,
}
