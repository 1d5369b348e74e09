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

const logGroupsPage = 50 // the maximum

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
			p.scan.add(r) // it is free: reading its tags would take thousands of calls in large accounts
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

// retentionDays returns the retention of a group, 0 for unlimited, for which the API omits the
// field. The delivery class keeps logs for a day, whatever the field says (CloudWatch Logs API
// reference, LogGroup).
func retentionDays(g types.LogGroup) int {
	if g.LogGroupClass == types.LogGroupClassDelivery {
		return 1
	}
	return int(awssdk.ToInt32(g.RetentionInDays))
}

// orEmpty returns readable tags; nil becomes an empty map.
func orEmpty(tags map[string]string) map[string]string {
	if tags == nil {
		return map[string]string{}
	}
	return tags
}
