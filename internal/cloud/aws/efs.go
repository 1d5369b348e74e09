package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/efs"
	"github.com/aws/aws-sdk-go-v2/service/efs/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const fileSystemsPage = 100

func (p *place) elasticFileSystems(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := efsClient(p.reading).DescribeFileSystems(ctx, &efs.DescribeFileSystemsInput{
			MaxItems: awssdk.Int32(fileSystemsPage),
			Marker:   token,
		})
		if err != nil {
			return nil, err
		}
		for _, f := range out.FileSystems {
			if f.LifeCycleState != types.LifeCycleStateDeleted {
				p.scan.add(p.elasticFileSystem(f))
			}
		}
		return out.NextMarker, nil
	})
	p.failed(ctx, "elasticfilesystem:DescribeFileSystems", err)
}

func (p *place) elasticFileSystem(f types.FileSystemDescription) *inventory.Resource {
	r := p.resource(inventory.KindFileSystem, awssdk.ToString(f.FileSystemId))
	r.Type, r.Zone, r.CreatedAt = "efs", awssdk.ToString(f.AvailabilityZoneName), utc(f.CreationTime)
	r.Tags = tagged(f.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
	r.Name = firstOf(awssdk.ToString(f.Name), r.Tags["Name"])
	r.State = map[types.LifeCycleState]inventory.State{
		types.LifeCycleStateCreating: inventory.StatePending, types.LifeCycleStateAvailable: inventory.StateAvailable,
		types.LifeCycleStateUpdating: inventory.StateAvailable, types.LifeCycleStateDeleting: inventory.StateDeleting,
		types.LifeCycleStateError: inventory.StateFailed,
	}[f.LifeCycleState]
	d := &inventory.FileSystem{}
	if s := f.SizeInBytes; s != nil {
		d.Sizes = inventory.Known(efsSizes(*s, r.Zone != ""))
	}
	r.Detail = d
	return r
}

// efsSizes returns bytes by storage class. One-zone file systems have their own classes and prices.
func efsSizes(s types.FileSystemSize, oneZone bool) map[string]int64 {
	standard, infrequent, archive := "STANDARD", "IA", "ARCHIVE"
	if oneZone {
		standard, infrequent = "ONEZONE", "ONEZONE_IA"
	}
	if s.ValueInStandard == nil {
		rest := s.Value - awssdk.ToInt64(s.ValueInIA) - awssdk.ToInt64(s.ValueInArchive)
		s.ValueInStandard = &rest
	}
	sizes := map[string]int64{standard: *s.ValueInStandard}
	for class, v := range map[string]*int64{infrequent: s.ValueInIA, archive: s.ValueInArchive} {
		if awssdk.ToInt64(v) > 0 {
			sizes[class] = *v
		}
	}
	return sizes
}
