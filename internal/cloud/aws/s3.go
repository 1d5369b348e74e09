package aws

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const (
	bucketsPage = 1000
	objectsPage = 1000
	// listedFrom is the size in bytes from which a bucket's objects are listed: smaller ones offer
	// no saving.
	listedFrom = 1 << 30
	// staleUpload is the age from which an incomplete upload counts as abandoned.
	staleUpload = 7 * 24 * time.Hour
	// maxPartLists is the maximum number of incomplete uploads whose parts are listed; with more
	// their size is unknown.
	maxPartLists = 5
)

// buckets lists the account's buckets once and reads those in scanned regions, each in its region.
// Directory buckets are not listed.
func (p *place) buckets(ctx context.Context, regions map[string]*place) {
	wanted := func(name *string) bool {
		for _, at := range regions {
			if at.wants(inventory.KindBucket, awssdk.ToString(name)) {
				return true
			}
		}
		return false
	}
	var found []types.Bucket
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := s3Client(p.reading).ListBuckets(ctx, &s3.ListBucketsInput{
			MaxBuckets:        awssdk.Int32(bucketsPage),
			ContinuationToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, b := range out.Buckets {
			if wanted(b.Name) {
				found = append(found, b)
			}
		}
		return out.ContinuationToken, nil
	})
	p.failedIn(ctx, "s3:ListBuckets", err, slices.Sorted(maps.Keys(regions))...)
	bare := slices.Collect(func(yield func(*types.Bucket) bool) {
		for i := range found {
			if awssdk.ToString(found[i].BucketRegion) == "" && !yield(&found[i]) {
				return
			}
		}
	})
	each(ctx, bare, func(b *types.Bucket) {
		out, err := s3Client(p.reading).HeadBucket(ctx, &s3.HeadBucketInput{Bucket: b.Name})
		if err == nil && awssdk.ToString(out.BucketRegion) == "" {
			err = errors.New("the answer does not say in which region it is")
		}
		p.missed(ctx, "s3:HeadBucket", awssdk.ToString(b.Name), err)
		if err != nil { // it exists, but in an unknown region
			p.scan.leaveUnread(p.account.id, inventory.KindBucket, slices.Collect(maps.Keys(regions)))
			return
		}
		b.BucketRegion = out.BucketRegion
	})
	byRegion := map[string][]types.Bucket{}
	for _, b := range found {
		if region := awssdk.ToString(b.BucketRegion); regions[region] != nil {
			byRegion[region] = append(byRegion[region], b)
		}
	}
	places := make([]*place, 0, len(byRegion))
	for region := range byRegion {
		places = append(places, regions[region])
	}
	each(ctx, places, func(at *place) { at.regionBuckets(ctx, byRegion[at.region]) })
}

func (p *place) regionBuckets(ctx context.Context, buckets []types.Bucket) {
	names := make([]string, len(buckets))
	for i, b := range buckets {
		names[i] = awssdk.ToString(b.Name)
	}
	stored := p.bucketSizes(ctx, names)
	each(ctx, buckets, func(b types.Bucket) { p.scan.add(p.bucket(ctx, b, stored[awssdk.ToString(b.Name)])) })
}

func (p *place) bucket(ctx context.Context, b types.Bucket, size *bucketSize) *inventory.Resource {
	name := awssdk.ToString(b.Name)
	r := p.resource(inventory.KindBucket, name)
	r.Name, r.CreatedAt, r.State = name, utc(b.CreationDate), inventory.StateAvailable
	d := &inventory.Bucket{}
	r.Detail = d
	if size != nil {
		d.Sizes, d.Objects = inventory.Known(size.classes), size.objects
	}
	versioning, err := s3Client(p.reading).GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: b.Name})
	p.missed(ctx, "s3:GetBucketVersioning", name, err)
	if err == nil {
		d.Versioned = inventory.Known(versioning.Status != "") // suspended: old versions still exist
		d.MFADelete = inventory.Known(versioning.MFADelete == types.MFADeleteStatusEnabled)
	}
	p.protection(ctx, name, d)
	var document []byte
	var rules []reaching
	lifecycle, err := s3Client(p.reading).GetBucketLifecycleConfiguration(ctx,
		&s3.GetBucketLifecycleConfigurationInput{
			Bucket: b.Name,
		}, s3.WithAPIOptions(captured(&document)))
	switch {
	case err == nil:
		d.Lifecycle, d.LifecycleDocument = inventory.Known(lifecycleRules(lifecycle.Rules)), inventory.Known(
			string(document))
		d.MinimumSize = string(lifecycle.TransitionDefaultMinimumObjectSize)
		rules = reachingRules(lifecycle.Rules)
	case is(err, "NoSuchLifecycleConfiguration"):
		d.Lifecycle, d.LifecycleDocument = inventory.Known([]inventory.LifecycleRule{}), inventory.Known("")
	default:
		p.missed(ctx, "s3:GetBucketLifecycleConfiguration", name, err)
	}
	tags, err := s3Client(p.reading).GetBucketTagging(ctx, &s3.GetBucketTaggingInput{Bucket: b.Name})
	switch {
	case err == nil:
		r.Tags = tagged(tags.TagSet, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
	case is(err, "NoSuchTagSet"):
		r.Tags = map[string]string{}
	default:
		p.missed(ctx, "s3:GetBucketTagging", name, err)
	}
	d.Uploads = p.uploads(ctx, name)
	if size != nil && size.total() < listedFrom {
		return r
	}
	listing, listed := p.inventoried(ctx, name, rules), true
	if listing == nil {
		if listing, listed = p.prefixes(ctx, name, size, rules); listed {
			p.analyzed(ctx, name, listing)
		}
	}
	if listed {
		p.accessed(ctx, name, listing)
		d.Prefixes, d.ListedBy = inventory.Known(listing.prefixes()), listing.seenBy+listing.analyzedBy
		if listing.whole != nil {
			d.Ages, d.AgesSource = inventory.Known(*listing.whole), listing.wholeBy
		}
	}
	var versions *versionSum
	if d.Versioned.Or(false) {
		if versions = p.noncurrent(ctx, name, d.ObjectLock.Or(inventory.ObjectLock{}).RetentionDays); versions != nil {
			d.Noncurrent = inventory.Known(versions.Listing)
			d.Locked, d.LockedUntil, d.DeleteMarkers = versions.locked, versions.lockedUntil, versions.deleteMarkers
		}
	}
	if size == nil && listed && listing.complete {
		fillSizes(d, listing, versions)
	}
	return r
}

// fillSizes sets a bucket's size from complete listings if CloudWatch has none: the bucket is less
// than a day old, or empty.
func fillSizes(d *inventory.Bucket, listing *listing, versions *versionSum) {
	versioned, known := d.Versioned.Get()
	if !known || (versioned && (versions == nil || !versions.Complete)) {
		return
	}
	sizes, objects := map[string]int64{}, int64(0)
	for class, s := range listing.classes {
		sizes[class] += s.Bytes
		objects += s.Objects
	}
	if versions != nil {
		for class, bytes := range versions.classes {
			sizes[class] += bytes
		}
		objects += versions.Objects
	}
	d.Sizes, d.Objects = inventory.Known(sizes), inventory.Known(objects)
}

func lifecycleRules(rules []types.LifecycleRule) []inventory.LifecycleRule {
	out := make([]inventory.LifecycleRule, 0, len(rules))
	for _, r := range rules {
		l := inventory.LifecycleRule{
			ID: awssdk.ToString(r.ID), Enabled: r.Status == types.ExpirationStatusEnabled,
			TransitionDays: map[string]int{},
		}
		l.Prefix = awssdk.ToString(r.Prefix) //nolint:staticcheck // rules of before 2016 have it here
		if f := r.Filter; f != nil {
			l.Prefix = firstOf(awssdk.ToString(f.Prefix), l.Prefix)
			l.Filtered = f.Tag != nil || f.ObjectSizeGreaterThan != nil || f.ObjectSizeLessThan != nil
			if a := f.And; a != nil {
				l.Prefix = firstOf(awssdk.ToString(a.Prefix), l.Prefix)
				l.Filtered = len(a.Tags) > 0 || a.ObjectSizeGreaterThan != nil || a.ObjectSizeLessThan != nil
			}
		}
		if onlyLeavesSmall(r) {
			l.Filtered = false
		}
		for _, t := range r.Transitions {
			if t.Date == nil {
				l.TransitionDays[string(t.StorageClass)] = int(awssdk.ToInt32(t.Days))
			}
		}
		if e := r.Expiration; e != nil {
			l.ExpirationDays = int(awssdk.ToInt32(e.Days))
		}
		if n := r.NoncurrentVersionExpiration; n != nil {
			l.NoncurrentExpirationDays = int(awssdk.ToInt32(n.NoncurrentDays))
		}
		if a := r.AbortIncompleteMultipartUpload; a != nil {
			l.AbortMultipartDays = int(awssdk.ToInt32(a.DaysAfterInitiation))
		}
		l.NoncurrentTransition = len(r.NoncurrentVersionTransitions) > 0
		out = append(out, l)
	}
	return out
}

// onlyLeavesSmall reports whether a rule moves objects and its filter excludes only small ones,
// which gain nothing by moving.
func onlyLeavesSmall(r types.LifecycleRule) bool {
	deletes := r.Expiration != nil || r.NoncurrentVersionExpiration != nil
	if r.Filter == nil || deletes || len(r.NoncurrentVersionTransitions) > 0 {
		return false
	}
	greater := r.Filter.ObjectSizeGreaterThan
	narrowed := r.Filter.Tag != nil || r.Filter.ObjectSizeLessThan != nil
	if a := r.Filter.And; a != nil {
		greater, narrowed = a.ObjectSizeGreaterThan, len(a.Tags) > 0 || a.ObjectSizeLessThan != nil
	}
	return !narrowed && greater != nil && *greater < smallObject
}

// uploads reads the incomplete uploads that are at least a week old.
func (p *place) uploads(ctx context.Context, bucket string) inventory.Fact[inventory.Uploads] {
	found := inventory.Uploads{Complete: true}
	var old []types.MultipartUpload
	in := &s3.ListMultipartUploadsInput{Bucket: &bucket, MaxUploads: awssdk.Int32(objectsPage)}
	for page := 1; ; page++ {
		out, err := s3Client(p.reading).ListMultipartUploads(ctx, in)
		if err != nil {
			p.missed(ctx, "s3:ListMultipartUploads", bucket, err)
			return inventory.Fact[inventory.Uploads]{}
		}
		for _, u := range out.Uploads {
			begun := utc(u.Initiated)
			if begun.IsZero() || p.now().Sub(begun) < staleUpload {
				continue
			}
			found.Count++
			if found.Oldest.IsZero() || begun.Before(found.Oldest) {
				found.Oldest = begun
			}
			if len(old) <= maxPartLists {
				old = append(old, u)
			}
		}
		if !awssdk.ToBool(out.IsTruncated) {
			break
		}
		same := awssdk.ToString(out.NextKeyMarker) == awssdk.ToString(in.KeyMarker) &&
			awssdk.ToString(out.NextUploadIdMarker) == awssdk.ToString(in.UploadIdMarker)
		if page >= p.scan.cloud.options.ListPages || same {
			found.Complete = false
			break
		}
		in.KeyMarker, in.UploadIdMarker = out.NextKeyMarker, out.NextUploadIdMarker
	}
	if found.Complete && len(old) <= maxPartLists {
		found.Bytes = p.uploadedBytes(ctx, bucket, old)
	}
	return inventory.Known(found)
}

// uploadedBytes sums the parts of a few uploads; unknown if one has more than a page of parts or
// cannot be read.
func (p *place) uploadedBytes(ctx context.Context, bucket string,
	uploads []types.MultipartUpload) inventory.Fact[int64] {
	var sum int64
	for _, u := range uploads {
		out, err := s3Client(p.reading).ListParts(ctx, &s3.ListPartsInput{
			Bucket:   &bucket,
			Key:      u.Key,
			UploadId: u.UploadId,
		})
		if err != nil {
			p.missed(ctx, "s3:ListParts", bucket, err)
			return inventory.Fact[int64]{}
		}
		if awssdk.ToBool(out.IsTruncated) {
			return inventory.Fact[int64]{}
		}
		for _, part := range out.Parts {
			sum += awssdk.ToInt64(part.Size)
		}
	}
	return inventory.Known(sum)
}

// versionSum sums noncurrent versions.
type versionSum struct {
	inventory.Listing
	classes map[string]int64
	// locked is the size under the bucket's default retention, the last of it until lockedUntil.
	locked      inventory.Stored
	lockedUntil time.Time
	// deleteMarkers counts delete markers.
	deleteMarkers int64
}

// add adds a noncurrent version.
func (s *versionSum) add(v types.ObjectVersion, now time.Time, retentionDays int) {
	size := awssdk.ToInt64(v.Size)
	s.Stored = plus(s.Stored, size)
	s.classes[firstOf(string(v.StorageClass), standardClass)] += size
	if retentionDays == 0 {
		return
	}
	until := utc(v.LastModified).AddDate(0, 0, retentionDays)
	if v.LastModified == nil || until.After(now) {
		s.locked = plus(s.locked, size)
		if until.After(s.lockedUntil) {
			s.lockedUntil = until
		}
	}
}

// noncurrent sums noncurrent versions, up to the bound; nil if they cannot be read. A default
// retention counts from the creation of a version.
func (p *place) noncurrent(ctx context.Context, bucket string, retentionDays int) *versionSum {
	sum := &versionSum{classes: map[string]int64{}}
	in := &s3.ListObjectVersionsInput{Bucket: &bucket, MaxKeys: awssdk.Int32(objectsPage)}
	for range p.scan.cloud.options.ListPages {
		out, err := s3Client(p.reading).ListObjectVersions(ctx, in)
		if err != nil {
			p.missed(ctx, "s3:ListObjectVersions", bucket, err)
			return nil
		}
		for _, v := range out.Versions {
			if !awssdk.ToBool(v.IsLatest) {
				sum.add(v, p.now(), retentionDays)
			}
		}
		for _, m := range out.DeleteMarkers {
			if awssdk.ToBool(m.IsLatest) {
				sum.deleteMarkers++
			}
		}
		if !awssdk.ToBool(out.IsTruncated) {
			sum.Complete = true
			break
		}
		if awssdk.ToString(out.NextKeyMarker) == awssdk.ToString(in.KeyMarker) &&
			awssdk.ToString(out.NextVersionIdMarker) == awssdk.ToString(in.VersionIdMarker) {
			break
		}
		in.KeyMarker, in.VersionIdMarker = out.NextKeyMarker, out.NextVersionIdMarker
	}
	return sum
}
