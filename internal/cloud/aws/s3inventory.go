package aws

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	// inventoryAge is the maximum age of the newest inventory; it may be weekly.
	inventoryAge = 8 * day
	// inventoryBytes bounds the compressed bytes read of one inventory: about ten million objects.
	inventoryBytes = 512 << 20
	// manifestBytes bounds a manifest.
	manifestBytes = 8 << 20
)

// manifest is the manifest of an inventory's files (Amazon S3 User Guide, "Inventory manifest").
type manifest struct {
	SourceBucket      string `json:"sourceBucket"`
	CreationTimestamp string `json:"creationTimestamp"` // milliseconds since 1970
	FileFormat        string `json:"fileFormat"`
	FileSchema        string `json:"fileSchema"`
	Files             []struct {
		Key  string `json:"key"`
		Size int64  `json:"size"`
	} `json:"files"`
}

// errNoInventory is returned if an inventory lacks a required column.
var errNoInventory = errors.New("it lacks size, date or class of some objects")

// errNotRecent is returned without a recent inventory: it is paused, or the first is not written
// yet. The bucket is listed instead, and nothing is missing.
var errNotRecent = errors.New("there is none of the last days")

// errORC is returned for an inventory in an unsupported format.
var errORC = errors.New("it is written as ORC, which is not read: CSV and Parquet are")

// inventoried reads the objects of a bucket from its newest S3 Inventory; nil if there is none with
// sizes, dates and classes, or it is unreadable. Then the bucket is listed, and a blind spot says
// why.
func (p *place) inventoried(ctx context.Context, bucket string, rules []reaching) *listing {
	out, err := s3Client(p.reading).ListBucketInventoryConfigurations(ctx, &s3.ListBucketInventoryConfigurationsInput{
		Bucket: &bucket,
	})
	p.missed(ctx, "s3:ListBucketInventoryConfigurations", bucket, err)
	if err != nil {
		return nil
	}
	var failed error
	for _, c := range out.InventoryConfigurationList {
		if c.Destination == nil || c.Destination.S3BucketDestination == nil || !awssdk.ToBool(c.IsEnabled) ||
			(c.Filter != nil && awssdk.ToString(c.Filter.Prefix) != "") {
			continue
		}
		l, err := p.readInventory(ctx, bucket, c, rules)
		if err == nil {
			return l
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, errNotRecent) {
			failed = err
		}
	}
	if failed != nil {
		p.passedOver(bucket, failed)
	}
	return nil
}

// passedOver records that a bucket is listed because its inventory is unreadable.
func (p *place) passedOver(bucket string, err error) {
	why := "its S3 Inventory is passed over: "
	switch {
	case errors.Is(err, errNoInventory), errors.Is(err, errORC):
		why += err.Error()
	default:
		code, _ := reason(err)
		why += code + ": s3:ListBucket and s3:GetObject where the inventory is"
	}
	p.partly(partialKey{
		"s3 " + p.String(), why,
		"the bucket was listed instead: the ages of what the listing did not reach are not known",
	}, "bucket", bucket)
}

// readInventory reads the newest inventory of a configuration.
func (p *place) readInventory(ctx context.Context, bucket string, c types.InventoryConfiguration, rules []reaching) (
	*listing, error) {
	to := c.Destination.S3BucketDestination
	from := bucketOfARN(awssdk.ToString(to.Bucket))
	root := bucket + "/" + awssdk.ToString(c.Id) + "/"
	if prefix := strings.TrimSuffix(awssdk.ToString(to.Prefix), "/"); prefix != "" {
		root = prefix + "/" + root
	}
	// Folders are named by the inventory's time, so recent ones come last.
	after := root + p.now().Add(-inventoryAge).Format("2006-01-02T15-04Z")
	if to.Format == types.InventoryFormatOrc {
		return nil, errORC
	}
	list, err := s3Client(p.reading).ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket:     &from,
		Prefix:     &root,
		Delimiter:  awssdk.String("/"),
		StartAfter: &after,
	})
	if err != nil {
		return nil, err
	}
	for _, folder := range slices.Backward(list.CommonPrefixes) {
		name := strings.TrimSuffix(strings.TrimPrefix(awssdk.ToString(folder.Prefix), root), "/")
		at, err := time.Parse("2006-01-02T15-04Z", name)
		if err != nil || at.After(p.now()) {
			continue // skip the folders data and hive
		}
		m, err := p.manifest(ctx, from, awssdk.ToString(folder.Prefix)+"manifest.json")
		if is(err, "NoSuchKey") {
			continue // it is being written
		}
		if err != nil {
			return nil, err
		}
		l := newListing(p.now(), rules)
		l.seenBy = "S3 Inventory of " + at.Format(time.DateOnly)
		return l, p.take(ctx, l, from, bucket, m)
	}
	return nil, errNotRecent
}

// object opens an object of a bucket in the place's region.
func (p *place) object(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	out, err := s3Client(p.reading).GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		return nil, err
	}
	return out.Body, nil
}

func (p *place) manifest(ctx context.Context, bucket, key string) (*manifest, error) {
	body, err := p.object(ctx, bucket, key)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var m manifest
	return &m, json.NewDecoder(io.LimitReader(body, manifestBytes)).Decode(&m)
}

// take adds the objects of an inventory to a listing.
func (p *place) take(ctx context.Context, l *listing, from, bucket string, m *manifest) error {
	total := int64(0)
	for _, f := range m.Files {
		total += f.Size
	}
	read := inventoryFormats[m.FileFormat]
	switch {
	case m.FileFormat == "ORC":
		return errORC
	case read == nil || m.SourceBucket != bucket || total > inventoryBytes:
		return errNoInventory
	}
	for _, f := range m.Files {
		body, err := p.object(ctx, from, f.Key)
		if err != nil {
			return err
		}
		err = read(body, m.FileSchema, l.add)
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
	}
	l.finish()
	l.complete = !l.crowded
	return nil
}
