package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

const gib = 1 << 30

// objects is a number of equal objects under a prefix.
type objects struct {
	prefix string
	count  int
	bytes  int64 // of each
	age    time.Duration
}

// bucket is a bucket to seed.
type bucket struct {
	name, region string
	owner        inventory.Owner
	objects      []objects
	versioned    bool
	rules        []s3types.LifecycleRule
	uploads      int
	rule         string
	want         Planted
	not          []string
	note         string
}

func lifecycleRule(id, prefix string, change func(*s3types.LifecycleRule)) s3types.LifecycleRule {
	r := s3types.LifecycleRule{
		ID: &id, Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{Prefix: &prefix},
	}
	change(&r)
	return r
}

var (
	toArchive = lifecycleRule("archive", "", func(r *s3types.LifecycleRule) {
		r.Transitions = []s3types.Transition{
			{Days: aws.Int32(30), StorageClass: s3types.TransitionStorageClassStandardIa},
			{Days: aws.Int32(90), StorageClass: s3types.TransitionStorageClassGlacier}}
	})
	exportsToArchive = lifecycleRule("exports", "exports/", func(r *s3types.LifecycleRule) {
		r.Transitions = []s3types.Transition{
			{Days: aws.Int32(90), StorageClass: s3types.TransitionStorageClassGlacier},
		}
	})
	abortUploads = lifecycleRule("uploads", "", func(r *s3types.LifecycleRule) {
		r.AbortIncompleteMultipartUpload = &s3types.AbortIncompleteMultipartUpload{DaysAfterInitiation: aws.Int32(7)}
	})
	dropVersions = lifecycleRule("versions", "", func(r *s3types.LifecycleRule) {
		r.NoncurrentVersionExpiration = &s3types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(30)}
	})
)

func (b *seeder) buckets(ctx context.Context) error {
	if _, err := b.launch(ctx, machine{
		name: "events-reader", kind: "m5.xlarge", region: east, owner: emil, age: days(40), disk: 50,
		lifetime: persistent, purpose: inventory.Inference, tags: []string{
			inventory.TagDataURI, "s3://acme-ranking-events/events/",
		},
		does: busy(50, 0, 0, 0), rule: "compute-away-from-data", want: Planted{
			Unknown: true, Note: "reads from eu-west-1",
		},
		not: idleRules}); err != nil {
		return err
	}
	for _, x := range []bucket{
		{
			name: "acme-vision-datasets", region: east, owner: ana, objects: []objects{
				{"datasets/imagenet/", 160, 64 * gib, days(200)},
			},
			rule: "bucket-no-lifecycle", want: Planted{
				SavingsUSD: archived("10240"), Note: "10,240 GiB in Standard, all of it 200 days old",
			}},
		{
			name: "acme-vision-frames", region: east, owner: ben, objects: []objects{
				{"frames/", 16, 640 * gib, days(200)}, {"exports/", 4, gib, days(200)},
			},
			rules: []s3types.LifecycleRule{abortUploads, exportsToArchive}, rule: "bucket-no-lifecycle",
			want: Planted{
				SavingsUSD: archived("10240"),
				Note:       "a rule archives exports/, nothing moves the 10,240 GiB of frames/",
			}},
		{name: "acme-language-checkpoints", region: east, owner: bo, objects: []objects{
			{"checkpoints/run-1/", 20, 40 * gib, days(150)}, {"checkpoints/run-2/", 20, 40 * gib, days(120)}},
			rules: []s3types.LifecycleRule{abortUploads}, rule: "checkpoint-stale",
			want: Planted{SavingsUSD: archived("1600"), Note: "1,600 GiB, the newest 120 days old"}},
		{
			name: "acme-ranking-models", region: west, owner: chen, versioned: true,
			objects: []objects{{"models/", 5, 10 * gib, days(60)}},
			rules:   []s3types.LifecycleRule{toArchive, abortUploads}, rule: "bucket-noncurrent",
			want: Planted{
				Unknown: true, UpperBoundUSD: cost(term{"50", "s3:STANDARD"}),
				Note: "five replaced versions of 10 GiB",
			}},
		{name: "acme-language-uploads", region: east, owner: dana, objects: []objects{{"corpus/", 5, gib, days(20)}},
			rules: []s3types.LifecycleRule{toArchive}, uploads: 3, rule: "bucket-multipart",
			want: Planted{SavingsUSD: "0.00"}},
		{
			name: "acme-vision-results", region: east, owner: ben, versioned: true,
			objects: []objects{{"results/", 10, 2 * gib, days(200)}},
			rules:   []s3types.LifecycleRule{toArchive, abortUploads, dropVersions}, not: storageRules,
			note: "every rule there is"},
		{
			name: "acme-ranking-events", region: ireland, owner: emil, objects: []objects{
				{"events/", 10, 5 * gib, days(10)},
			},
			rules: []s3types.LifecycleRule{toArchive, abortUploads}, not: storageRules, note: "full lifecycle"},
	} {
		if err := b.bucket(ctx, x); err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
	}
	return nil
}

func (b *seeder) bucket(ctx context.Context, x bucket) error {
	api := s3.NewFromConfig(b.Config(x.region), func(o *s3.Options) { o.UsePathStyle = true })
	in := &s3.CreateBucketInput{Bucket: &x.name}
	if x.region != east {
		in.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{
			LocationConstraint: s3types.BucketLocationConstraint(x.region),
		}
	}
	if _, err := api.CreateBucket(ctx, in); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	b.Wire.Patch(wire.Patch{
		Service: "s3", Operation: "ListBuckets", IDField: "Name", ID: x.name,
		Set: map[string]any{"CreationDate": b.ago(days(400))},
	})
	var t []s3types.Tag
	for k, v := range tags(x.owner, "") {
		t = append(t, s3types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	if _, err := api.PutBucketTagging(ctx, &s3.PutBucketTaggingInput{
		Bucket: &x.name, Tagging: &s3types.Tagging{TagSet: t},
	}); err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	if len(x.rules) > 0 {
		if _, err := api.PutBucketLifecycleConfiguration(ctx, &s3.PutBucketLifecycleConfigurationInput{Bucket: &x.name,
			LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: x.rules}}); err != nil {
			return fmt.Errorf("lifecycle: %w", err)
		}
	}
	if x.versioned {
		if _, err := api.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{Bucket: &x.name,
			VersioningConfiguration: &s3types.VersioningConfiguration{
				Status: s3types.BucketVersioningStatusEnabled,
			}}); err != nil {
			return fmt.Errorf("versioning: %w", err)
		}
	}
	if err := b.fill(ctx, api, x); err != nil {
		return err
	}
	for i := range x.uploads {
		key := fmt.Sprintf("corpus/part-%d", i)
		out, err := api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &x.name, Key: &key})
		if err != nil {
			return fmt.Errorf("upload: %w", err)
		}
		b.age("s3", "UploadId", *out.UploadId, b.ago(days(float64(20+i))), "Initiated")
	}
	r := b.record(inventory.KindBucket, x.name, x.region, x.owner)
	if x.rule != "" {
		b.plant(r, x.rule, x.want)
	}
	if len(x.not) > 0 {
		b.innocent(r, x.note, x.not...)
	}
	return nil
}

// fill creates a bucket's objects: empty ones that appear with their intended size and age, twice
// if the bucket keeps versions. It creates them sequentially, because concurrent calls would draw
// random ids in varying order, which affects everything created later.
func (b *seeder) fill(ctx context.Context, api *s3.Client, x bucket) error {
	copies := 1
	if x.versioned {
		copies = 2
	}
	var bytes, count float64
	for _, o := range x.objects {
		bytes += float64(o.bytes) * float64(o.count*copies)
		count += float64(o.count * copies)
		for i := range o.count {
			key := fmt.Sprintf("%s%s-%04d", o.prefix, x.name, i)
			made := b.ago(o.age + time.Duration(i)*time.Minute)
			b.Wire.Patch(wire.Patch{Service: "s3", Operation: "ListObjectsV2", IDField: "Key", ID: key,
				Set: map[string]any{"Size": o.bytes, "LastModified": made}})
			for n := range copies {
				out, err := api.PutObject(ctx, &s3.PutObjectInput{
					Bucket: &x.name, Key: &key, Body: strings.NewReader(""),
				})
				if err != nil {
					return fmt.Errorf("put %s: %w", key, err)
				}
				if out.VersionId != nil {
					b.Wire.Patch(wire.Patch{
						Service: "s3", Operation: "ListObjectVersions", IDField: "VersionId", ID: *out.VersionId,
						Set: map[string]any{
							"Size": o.bytes, "LastModified": made.Add(time.Duration(n) * time.Hour),
						}})
				}
			}
		}
	}
	daily := func(name, class string, v float64) {
		var data []wire.Datum
		for d := 15; d >= 1; d-- {
			data = append(data, wire.Datum{
				Time: b.ago(days(float64(d))).Truncate(24 * time.Hour), Sum: v, Min: v, Max: v, Count: 1,
			})
		}
		b.put(x.region, "AWS/S3", name, dims("BucketName", x.name, "StorageType", class), data)
	}
	daily("BucketSizeBytes", "StandardStorage", bytes)
	daily("NumberOfObjects", "AllStorageTypes", count)
	return nil
}
