package aws

import (
	"context"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/fsx"
	"github.com/aws/aws-sdk-go-v2/service/fsx/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

func (p *place) fsxFileSystems(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := fsxClient(p.reading).DescribeFileSystems(ctx, &fsx.DescribeFileSystemsInput{
			MaxResults: awssdk.Int32(fileSystemsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, f := range out.FileSystems {
			p.scan.add(p.fsxFileSystem(f))
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "fsx:DescribeFileSystems", err)
}

var fsxStates = map[types.FileSystemLifecycle]inventory.State{
	types.FileSystemLifecycleAvailable:                inventory.StateAvailable,
	types.FileSystemLifecycleCreating:                 inventory.StatePending,
	types.FileSystemLifecycleFailed:                   inventory.StateFailed,
	types.FileSystemLifecycleDeleting:                 inventory.StateDeleting,
	types.FileSystemLifecycleMisconfigured:            inventory.StateAvailable,
	types.FileSystemLifecycleUpdating:                 inventory.StateAvailable,
	types.FileSystemLifecycleMisconfiguredUnavailable: inventory.StateFailed,
}

func (p *place) fsxFileSystem(f types.FileSystem) *inventory.Resource {
	r := p.resource(inventory.KindFileSystem, awssdk.ToString(f.FileSystemId))
	r.Type = "fsx-" + strings.ToLower(string(f.FileSystemType))
	r.CreatedAt = utc(f.CreationTime)
	r.Tags = tagged(f.Tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
	r.Name = r.Tags["Name"]
	r.State = fsxStates[f.Lifecycle]
	d := &inventory.FileSystem{
		CapacityGiB: int64(awssdk.ToInt32(f.StorageCapacity)), StorageType: string(f.StorageType),
	}
	switch {
	case f.LustreConfiguration != nil:
		d.Deployment = string(f.LustreConfiguration.DeploymentType)
		d.ThroughputMBpsPerTiB = int64(awssdk.ToInt32(f.LustreConfiguration.PerUnitStorageThroughput))
	case f.WindowsConfiguration != nil:
		d.Deployment = string(f.WindowsConfiguration.DeploymentType)
	case f.OntapConfiguration != nil:
		d.Deployment = string(f.OntapConfiguration.DeploymentType)
	case f.OpenZFSConfiguration != nil:
		d.Deployment = string(f.OpenZFSConfiguration.DeploymentType)
	}
	r.Detail = d
	return r
}
