package aws

import (
	"context"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/opensearch"
	"github.com/aws/aws-sdk-go-v2/service/opensearch/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const domainsPerCall = 5 // the maximum

func (p *place) searchClusters(ctx context.Context) {
	list, err := opensearchClient(p.reading).ListDomainNames(ctx, &opensearch.ListDomainNamesInput{})
	if err != nil {
		p.failed(ctx, "es:ListDomainNames", err)
		return
	}
	names := make([]string, len(list.DomainNames))
	for i, d := range list.DomainNames {
		names[i] = awssdk.ToString(d.DomainName)
	}
	each(ctx, slices.Collect(slices.Chunk(names, domainsPerCall)), func(chunk []string) {
		out, err := opensearchClient(p.reading).DescribeDomains(ctx, &opensearch.DescribeDomainsInput{
			DomainNames: chunk,
		})
		if err != nil {
			p.failed(ctx, "es:DescribeDomains", err)
			return
		}
		for _, d := range out.DomainStatusList {
			r := p.searchCluster(d)
			tags, err := opensearchClient(p.reading).ListTags(ctx, &opensearch.ListTagsInput{ARN: d.ARN})
			p.missed(ctx, "es:ListTags", r.ID, err)
			if err == nil {
				r.Tags = tagged(tags.TagList, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
			}
			p.scan.add(r)
		}
	})
}

func (p *place) searchCluster(d types.DomainStatus) *inventory.Resource {
	r := p.resource(inventory.KindDatabase, awssdk.ToString(d.DomainName))
	r.Name = r.ID
	switch {
	case awssdk.ToBool(d.Deleted):
		r.State = inventory.StateDeleting
	case awssdk.ToBool(d.Created):
		r.State = inventory.StateRunning
	default:
		r.State = inventory.StatePending
	}
	db := &inventory.Database{Count: 1}
	engine, _, _ := strings.Cut(awssdk.ToString(d.EngineVersion), "_") // "OpenSearch_2.11"
	db.Engine = firstOf(strings.ToLower(engine), "opensearch")
	if c := d.ClusterConfig; c != nil {
		r.Type = string(c.InstanceType)
		db.Count = int64(max(1, awssdk.ToInt32(c.InstanceCount)))
		if awssdk.ToBool(c.DedicatedMasterEnabled) {
			db.Nodes = append(db.Nodes, inventory.NodeGroup{
				Name: "masters", Type: string(c.DedicatedMasterType),
				Count: int64(awssdk.ToInt32(c.DedicatedMasterCount)),
			})
		}
		if awssdk.ToBool(c.WarmEnabled) {
			db.Nodes = append(db.Nodes, inventory.NodeGroup{
				Name: "warm", Type: string(c.WarmType), Count: int64(awssdk.ToInt32(c.WarmCount)),
			})
		}
	}
	if e := d.EBSOptions; e != nil && awssdk.ToBool(e.EBSEnabled) {
		db.StorageGiB, db.StorageType = int64(awssdk.ToInt32(e.VolumeSize)), string(e.VolumeType)
		db.IOPS, db.ThroughputMiBps = int64(awssdk.ToInt32(e.Iops)), int64(awssdk.ToInt32(e.Throughput))
	}
	r.Detail = db
	return r
}
