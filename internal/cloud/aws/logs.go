package aws

import (
	"context"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const logGroupsPage = 50 // the most the call gives

func (p *place) logGroups(ctx context.Context) {
	var groups []types.LogGroup
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := logsClient(p.reading).DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{
			Limit:     awssdk.Int32(logGroupsPage),
			NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, g := range out.LogGroups {
			if p.wants(inventory.KindLogGroup, awssdk.ToString(g.LogGroupName)) {
				groups = append(groups, g)
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "logs:DescribeLogGroups", err)
	each(ctx, groups, func(g types.LogGroup) {
		r := p.resource(inventory.KindLogGroup, awssdk.ToString(g.LogGroupName))
		r.Name, r.State = r.ID, inventory.StateAvailable
		if g.CreationTime != nil {
			r.CreatedAt = time.UnixMilli(*g.CreationTime).UTC()
		}
		r.Detail = &inventory.LogGroup{
			StoredBytes:   known(g.StoredBytes),
			RetentionDays: inventory.Known(retentionDays(g)),
		}
		if p.scan.only == nil && g.StoredBytes != nil && *g.StoredBytes == 0 {
			p.scan.add(r) // it costs nothing: reading its tags would take thousands of calls in large accounts
			return
		}
		arn := strings.TrimSuffix(firstOf(awssdk.ToString(g.LogGroupArn), awssdk.ToString(g.Arn)), ":*")
		out, err := logsClient(p.reading).ListTagsForResource(ctx, &cloudwatchlogs.ListTagsForResourceInput{
			ResourceArn: &arn,
		})
		p.missed(ctx, "logs:ListTagsForResource", r.ID, err)
		if err == nil {
			r.Tags = orEmpty(out.Tags)
		}
		p.scan.add(r)
	})
}

// retentionDays is how long a group keeps its logs, 0 without end: the API leaves the field out
// then. The delivery class passes them on and keeps them for a day (CloudWatch Logs API
// reference, LogGroup), whatever the field says.
func retentionDays(g types.LogGroup) int {
	if g.LogGroupClass == types.LogGroupClassDelivery {
		return 1
	}
	return int(awssdk.ToInt32(g.RetentionInDays))
}

// orEmpty returns tags that were read: none is an empty map.
func orEmpty(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}
