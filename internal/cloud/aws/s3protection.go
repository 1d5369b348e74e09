package aws

import (
	"context"
	"errors"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// yearDays is the number of days a year of a retention has.
const yearDays = 365

// protection reads the protection of a bucket's versions from deletion: Object Lock and
// replication. Both require versioning (Amazon S3 User Guide, "Locking objects with Object Lock",
// "Requirements for replication"), so a bucket that never had it has neither.
func (p *place) protection(ctx context.Context, name string, d *inventory.Bucket) {
	if versioned, known := d.Versioned.Get(); known && !versioned {
		d.ObjectLock = inventory.Known(inventory.ObjectLock{})
		d.ReplicatesTo = inventory.Known([]string{})
		return
	}
	lock, err := s3Client(p.reading).GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{
		Bucket: &name,
	})
	switch {
	case is(err, "ObjectLockConfigurationNotFoundError"):
		d.ObjectLock = inventory.Known(inventory.ObjectLock{})
	case err == nil && lock.ObjectLockConfiguration == nil:
		p.missed(ctx, "s3:GetObjectLockConfiguration", name, errors.New("the answer has no configuration"))
	case err == nil:
		d.ObjectLock = inventory.Known(objectLock(lock.ObjectLockConfiguration))
	default:
		p.missed(ctx, "s3:GetObjectLockConfiguration", name, err)
	}
	copies, err := s3Client(p.reading).GetBucketReplication(ctx, &s3.GetBucketReplicationInput{Bucket: &name})
	switch {
	case is(err, "ReplicationConfigurationNotFoundError"):
		d.ReplicatesTo = inventory.Known([]string{})
	case err == nil && copies.ReplicationConfiguration == nil:
		p.missed(ctx, "s3:GetBucketReplication", name, errors.New("the answer has no configuration"))
	case err == nil:
		d.ReplicatesTo = inventory.Known(replicatesTo(copies.ReplicationConfiguration.Rules))
	default:
		p.missed(ctx, "s3:GetBucketReplication", name, err)
	}
}

// objectLock converts a bucket's Object Lock configuration.
func objectLock(c *types.ObjectLockConfiguration) inventory.ObjectLock {
	lock := inventory.ObjectLock{Enabled: c.ObjectLockEnabled == types.ObjectLockEnabledEnabled}
	if c.Rule != nil && c.Rule.DefaultRetention != nil {
		r := c.Rule.DefaultRetention
		lock.Mode = string(r.Mode)
		lock.RetentionDays = int(awssdk.ToInt32(r.Days)) + yearDays*int(awssdk.ToInt32(r.Years))
	}
	return lock
}

// replicatesTo returns the target buckets of enabled replication rules.
func replicatesTo(rules []types.ReplicationRule) []string {
	to := []string{}
	for _, r := range rules {
		if r.Status == types.ReplicationRuleStatusEnabled && r.Destination != nil {
			to = append(to, strings.TrimPrefix(awssdk.ToString(r.Destination.Bucket), "arn:aws:s3:::"))
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// linkReplicas sets on each bucket the buckets that replicate into it, as far as the replication of
// all observed buckets was read. Buckets of other accounts may do so too.
func linkReplicas(resources []*inventory.Resource) {
	from, known := map[string][]string{}, true
	for _, r := range resources {
		if b, ok := r.Detail.(*inventory.Bucket); ok {
			to, read := b.ReplicatesTo.Get()
			known = known && read
			for _, name := range to {
				from[name] = append(from[name], r.ID)
			}
		}
	}
	for _, r := range resources {
		if b, ok := r.Detail.(*inventory.Bucket); ok && (known || len(from[r.ID]) > 0) {
			slices.Sort(from[r.ID])
			b.ReplicatedFrom = inventory.Known(slices.Concat([]string{}, from[r.ID]))
		}
	}
}
