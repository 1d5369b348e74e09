package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const vpcEndpointsPage = 1000

// interfaceEndpoints lists the interface endpoints, which are charged by hour and zone; gateway
// endpoints are free.
func (p *place) interfaceEndpoints(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{
			MaxResults: awssdk.Int32(vpcEndpointsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, e := range out.VpcEndpoints {
			if e.VpcEndpointType != types.VpcEndpointTypeInterface {
				continue
			}
			r := p.resource(inventory.KindVPCEndpoint, awssdk.ToString(e.VpcEndpointId))
			r.CreatedAt, r.State = utc(e.CreationTimestamp), vpcEndpointState(e.State)
			r.Tags = tagged(e.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
			r.Name = r.Tags["Name"]
			r.Detail = &inventory.VPCEndpoint{
				Service: awssdk.ToString(e.ServiceName), VPC: awssdk.ToString(e.VpcId), Zones: int64(len(e.SubnetIds)),
			}
			p.scan.add(r)
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeVpcEndpoints", err)
}

// vpcEndpointState maps a state, which EC2 writes in varying case.
func vpcEndpointState(s types.State) inventory.State {
	switch s {
	case types.StateAvailable, "available":
		return inventory.StateAvailable
	case types.StatePending, types.StatePendingAcceptance, "pending", "pendingAcceptance":
		return inventory.StatePending
	case types.StateDeleting, types.StateDeleted, "deleting", "deleted":
		return inventory.StateDeleting
	case types.StateFailed, types.StateRejected, types.StateExpired, "failed", "rejected", "expired":
		return inventory.StateFailed
	}
	return inventory.StateUnknown
}
