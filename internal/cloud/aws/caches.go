package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	cachetypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"
	"github.com/aws/aws-sdk-go-v2/service/redshift"
	redshifttypes "github.com/aws/aws-sdk-go-v2/service/redshift/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const cachesPage = 100

// caches lists the clusters of ElastiCache. Serverless caches, which have no nodes, are excluded.
func (p *place) caches(ctx context.Context) {
	var found []cachetypes.CacheCluster
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := elasticacheClient(p.reading).DescribeCacheClusters(ctx, &elasticache.DescribeCacheClustersInput{
			MaxRecords: awssdk.Int32(cachesPage),
			Marker:     token,
		})
		if err != nil {
			return nil, err
		}
		found = append(found, out.CacheClusters...)
		return out.Marker, nil
	})
	p.failed(ctx, "elasticache:DescribeCacheClusters", err)
	each(ctx, found, func(c cachetypes.CacheCluster) {
		r := p.resource(inventory.KindCache, awssdk.ToString(c.CacheClusterId))
		r.Name, r.Type, r.Zone, r.CreatedAt = r.ID, awssdk.ToString(c.CacheNodeType), awssdk.ToString(
			c.PreferredAvailabilityZone), utc(c.CacheClusterCreateTime)
		r.State = databaseState(awssdk.ToString(c.CacheClusterStatus))
		r.Detail = &inventory.Database{
			Engine: awssdk.ToString(c.Engine), Count: int64(max(1, awssdk.ToInt32(c.NumCacheNodes))),
		}
		out, err := elasticacheClient(p.reading).ListTagsForResource(ctx, &elasticache.ListTagsForResourceInput{
			ResourceName: c.ARN,
		})
		p.missed(ctx, "elasticache:ListTagsForResource", r.ID, err)
		if err == nil {
			r.Tags = tagged(out.TagList, func(t cachetypes.Tag) (*string, *string) { return t.Key, t.Value })
		}
		p.scan.add(r)
	})
}

// warehouses lists the provisioned clusters of Redshift.
func (p *place) warehouses(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := redshiftClient(p.reading).DescribeClusters(ctx, &redshift.DescribeClustersInput{
			MaxRecords: awssdk.Int32(cachesPage),
			Marker:     token,
		})
		if err != nil {
			return nil, err
		}
		for _, c := range out.Clusters {
			r := p.resource(inventory.KindWarehouse, awssdk.ToString(c.ClusterIdentifier))
			r.Name, r.Type, r.Zone, r.CreatedAt = r.ID, awssdk.ToString(c.NodeType), awssdk.ToString(
				c.AvailabilityZone), utc(
				c.ClusterCreateTime)
			r.Tags = tagged(c.Tags, func(t redshifttypes.Tag) (*string, *string) { return t.Key, t.Value })
			switch status := awssdk.ToString(c.ClusterStatus); status {
			case "paused":
				r.State = inventory.StateStopped // its storage still costs
			case "pausing":
				r.State = inventory.StateStopping
			default:
				r.State = databaseState(status)
			}
			r.Detail = &inventory.Database{Engine: "redshift", Count: int64(max(1, awssdk.ToInt32(c.NumberOfNodes)))}
			p.scan.add(r)
		}
		return out.Marker, nil
	})
	p.failed(ctx, "redshift:DescribeClusters", err)
}
