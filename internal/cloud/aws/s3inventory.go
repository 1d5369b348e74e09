package aws

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

const (
	// inventoryAge is how old the newest inventory may be: one that is made weekly.
	inventoryAge = 8 * day
	// inventoryBytes bounds what is read of one inventory, compressed: about ten million
	// objects.
	inventoryBytes = 512 << 20
	// manifestBytes bounds a manifest.
	manifestBytes = 8 << 20
	// inventoryBatch is how many rows are taken at once.
	inventoryBatch = 1000
)

// manifest is what S3 writes beside the files of an inventory (Amazon S3 User Guide,
// "Inventory manifest").
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

// errNoInventory says that an inventory does not tell what is asked.
var errNoInventory = errors.New("the inventory does not list all objects with size, date and class as CSV")

// inventoried reads the objects of a bucket from its newest S3 Inventory; nil where it has
// none that tells their sizes, dates and classes, or it may not be read. Then the bucket is
// listed.
func (p *place) inventoried(ctx context.Context, bucket string, rules []reaching) *listing {
	out, err := p.s3.ListBucketInventoryConfigurations(ctx, &s3.ListBucketInventoryConfigurationsInput{Bucket: &bucket})
	p.missed(ctx, "s3:ListBucketInventoryConfigurations", bucket, err)
	if err != nil {
		return nil
	}
	for _, c := range out.InventoryConfigurationList {
		if c.Destination == nil || c.Destination.S3BucketDestination == nil || !awssdk.ToBool(c.IsEnabled) ||
			(c.Filter != nil && awssdk.ToString(c.Filter.Prefix) != "") || c.Destination.S3BucketDestination.Format != types.InventoryFormatCsv {
			continue
		}
		if l, err := p.readInventory(ctx, bucket, c, rules); err == nil {
			return l
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// readInventory reads the newest inventory of a configuration.
func (p *place) readInventory(ctx context.Context, bucket string, c types.InventoryConfiguration, rules []reaching) (*listing, error) {
	to := c.Destination.S3BucketDestination
	from := strings.TrimPrefix(awssdk.ToString(to.Bucket), "arn:aws:s3:::")
	root := bucket + "/" + awssdk.ToString(c.Id) + "/"
	if prefix := strings.TrimSuffix(awssdk.ToString(to.Prefix), "/"); prefix != "" {
		root = prefix + "/" + root
	}
	// Folders are named by the time of the inventory, so those of the last days come last.
	after := root + p.now().Add(-inventoryAge).Format("2006-01-02T15-04Z")
	list, err := p.s3.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &from, Prefix: &root, Delimiter: awssdk.String("/"), StartAfter: &after})
	if err != nil {
		return nil, err
	}
	for _, folder := range slices.Backward(list.CommonPrefixes) {
		name := strings.TrimSuffix(strings.TrimPrefix(awssdk.ToString(folder.Prefix), root), "/")
		at, err := time.Parse("2006-01-02T15-04Z", name)
		if err != nil || at.After(p.now()) {
			continue // data and hive lie beside them
		}
		m, err := p.manifest(ctx, from, awssdk.ToString(folder.Prefix)+"manifest.json")
		if err != nil {
			continue // it is being written
		}
		l := newListing(p.now(), rules)
		l.seenBy = "S3 Inventory of " + at.Format(time.DateOnly)
		return l, p.take(ctx, l, from, bucket, m)
	}
	return nil, errNoInventory
}

// object opens an object of a bucket in the place's region.
func (p *place) object(ctx context.Context, bucket, key string) (io.ReadCloser, error) {
	out, err := p.s3.GetObject(ctx, &s3.GetObjectInput{Bucket: &bucket, Key: &key})
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
	columns, total := map[string]int{}, int64(0)
	for i, name := range strings.Split(m.FileSchema, ",") {
		columns[strings.TrimSpace(name)] = i
	}
	for _, need := range []string{"Key", "Size", "LastModifiedDate", "StorageClass"} {
		if _, ok := columns[need]; !ok {
			return errNoInventory
		}
	}
	for _, f := range m.Files {
		total += f.Size
	}
	if m.FileFormat != "CSV" || m.SourceBucket != bucket || total > inventoryBytes {
		return errNoInventory
	}
	for _, f := range m.Files {
		body, err := p.object(ctx, from, f.Key)
		if err != nil {
			return err
		}
		err = readInventoryFile(body, columns, l.add)
		if err = errors.Join(err, body.Close()); err != nil {
			return err
		}
	}
	l.finish()
	l.complete = !l.crowded
	return nil
}

// readInventoryFile hands the current objects of a file to add, in batches.
func readInventoryFile(r io.Reader, columns map[string]int, add func([]types.Object) string) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	rows := csv.NewReader(z)
	rows.ReuseRecord, rows.FieldsPerRecord = true, len(columns)
	batch := make([]types.Object, 0, inventoryBatch)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			add(batch)
			return nil
		}
		if err != nil {
			return err
		}
		field := func(name string) string {
			if i, ok := columns[name]; ok {
				return row[i]
			}
			return ""
		}
		if field("IsLatest") == "false" || field("IsDeleteMarker") == "true" {
			continue
		}
		key, err := url.QueryUnescape(field("Key"))
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(field("Size"), 10, 64)
		if err != nil || size < 0 {
			return errNoInventory
		}
		modified, err := time.Parse(time.RFC3339, field("LastModifiedDate"))
		if err != nil {
			return err
		}
		batch = append(batch, types.Object{Key: &key, Size: &size, LastModified: &modified, StorageClass: types.ObjectStorageClass(field("StorageClass"))})
		if len(batch) == inventoryBatch {
			add(batch)
			batch = batch[:0]
		}
	}
}
