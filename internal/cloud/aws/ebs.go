package aws

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

func (p *place) volumes(ctx context.Context) {
	only := p.filter(inventory.KindVolume, "volume-id")
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
			Filters:    only,
			MaxResults: awssdk.Int32(volumesPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, v := range out.Volumes {
			if v.State != types.VolumeStateDeleted {
				p.scan.add(p.volume(v))
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeVolumes", err)
}

var volumeStates = map[types.VolumeState]inventory.State{
	types.VolumeStateCreating:  inventory.StatePending,
	types.VolumeStateAvailable: inventory.StateAvailable,
	types.VolumeStateInUse:     inventory.StateInUse,
	types.VolumeStateDeleting:  inventory.StateDeleting,
	types.VolumeStateError:     inventory.StateFailed,
}

func (p *place) volume(v types.Volume) *inventory.Resource {
	r := p.resource(inventory.KindVolume, awssdk.ToString(v.VolumeId))
	r.Type = string(v.VolumeType)
	r.Zone = awssdk.ToString(v.AvailabilityZone)
	r.State = volumeStates[v.State]
	r.CreatedAt = utc(v.CreateTime)
	r.Tags = ec2Tags(v.Tags)
	r.Name = r.Tags["Name"]
	r.Manager = managerOf(v.Operator, v.Tags)
	d := &inventory.Volume{
		SizeGiB:         int64(awssdk.ToInt32(v.Size)),
		ThroughputMiBps: int64(awssdk.ToInt32(v.Throughput)),
		Claim:           claimOf(r.Tags),
	}
	switch v.VolumeType {
	case types.VolumeTypeGp3, types.VolumeTypeIo1, types.VolumeTypeIo2:
		d.IOPS = int64(awssdk.ToInt32(v.Iops)) // for gp2 it follows from the size
	}
	for _, a := range v.Attachments {
		if id := awssdk.ToString(a.InstanceId); id != "" && a.State != types.VolumeAttachmentStateDetached {
			d.AttachedTo = append(d.AttachedTo, id)
		}
	}
	r.Detail = d
	return r
}

func (p *place) snapshots(ctx context.Context) {
	only := p.filter(inventory.KindSnapshot, "snapshot-id")
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{
			OwnerIds:   []string{"self"},
			Filters:    only,
			MaxResults: awssdk.Int32(snapshotsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, s := range out.Snapshots {
			if awssdk.ToString(s.OwnerId) == p.account.id {
				p.scan.add(p.snapshot(s))
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeSnapshots", err)
}

// snapshotLocks reads the locks of snapshots: EC2 does not delete a snapshot before its lock
// expires, in any mode (Amazon EBS User Guide, "Amazon EBS snapshot lock").
func (p *place) snapshotLocks(ctx context.Context) {
	locked := map[string]bool{}
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeLockedSnapshots(ctx, &ec2.DescribeLockedSnapshotsInput{
			MaxResults: awssdk.Int32(snapshotsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, l := range out.Snapshots {
			if l.LockState != types.LockStateExpired {
				locked[awssdk.ToString(l.SnapshotId)] = true
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeLockedSnapshots", err)
	if err == nil {
		p.locked = locked
	}
}

// lockOf reports whether a snapshot is locked.
func (s *scan) lockOf(r *inventory.Resource) inventory.Fact[bool] {
	for _, p := range s.places {
		if p.account.id == r.Account && p.region == r.Region && p.locked != nil {
			return inventory.Known(p.locked[r.ID])
		}
	}
	return inventory.Fact[bool]{}
}

var snapshotStates = map[types.SnapshotState]inventory.State{
	types.SnapshotStatePending:    inventory.StatePending,
	types.SnapshotStateCompleted:  inventory.StateAvailable,
	types.SnapshotStateError:      inventory.StateFailed,
	types.SnapshotStateRecovering: inventory.StatePending,
	// In the recycle bin: still charged, but to be deleted.
	types.SnapshotStateRecoverable: inventory.StateDeleting,
}

func (p *place) snapshot(s types.Snapshot) *inventory.Resource {
	r := p.resource(inventory.KindSnapshot, awssdk.ToString(s.SnapshotId))
	r.State = snapshotStates[s.State]
	r.CreatedAt = utc(s.StartTime)
	r.Tags = ec2Tags(s.Tags)
	r.Name = r.Tags["Name"]
	r.Manager = backupOf(r.Tags)
	d := &inventory.Snapshot{
		VolumeID:      awssdk.ToString(s.VolumeId),
		VolumeSizeGiB: int64(awssdk.ToInt32(s.VolumeSize)),
		Archived:      s.StorageTier == types.StorageTierArchive,
	}
	if n := awssdk.ToInt64(s.FullSnapshotSizeInBytes); n > 0 {
		d.FullBytes = inventory.Known(n)
	}
	r.Detail = d
	return r
}
