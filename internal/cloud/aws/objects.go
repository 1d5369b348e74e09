package aws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Bucket reads the objects of one bucket, such as those of a bill. It is safe for
// concurrent use.
type Bucket struct {
	name   string
	client *s3.Client
}

// bucketRegion is the header in which S3 says where a bucket is, also when it refuses.
const bucketRegion = "X-Amz-Bucket-Region"

// Bucket finds a bucket, in whichever region it is. It needs s3:ListBucket and
// s3:GetObject on it, which are no part of [PolicyJSON] where no bill is read. A bucket
// that is not there is fs.ErrNotExist.
func (c *Cloud) Bucket(ctx context.Context, name string) (*Bucket, error) {
	home := c.first()
	client := s3.NewFromConfig(c.client("s3", home), pathStyle)
	out, err := client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
	region := ""
	var refused *smithyhttp.ResponseError
	switch {
	case err == nil:
		region = awssdk.ToString(out.BucketRegion)
	case errors.As(err, &refused) && refused.Response != nil:
		region = refused.Response.Header.Get(bucketRegion)
	}
	if refused != nil && refused.HTTPStatusCode() == http.StatusNotFound {
		return nil, fmt.Errorf("find bucket %s: there is none of that name: %w", name, fs.ErrNotExist)
	}
	if err != nil && (region == "" || region == home) {
		return nil, fetchError(ctx, "find bucket "+name, err)
	}
	if region != "" && region != home {
		if err := checkName(region); err != nil {
			return nil, fmt.Errorf("find bucket %s: %w", name, err)
		}
		client = s3.NewFromConfig(c.client("s3", region), pathStyle)
	}
	return &Bucket{name: name, client: client}, nil
}

// List calls each with the key and the size of every object under a prefix, in the order
// of keys. An error of each ends it and is returned.
func (b *Bucket) List(ctx context.Context, prefix string, each func(key string, size int64) error) error {
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix}
	return pages(ctx, func(token *string) (*string, error) {
		in.ContinuationToken = token
		out, err := b.client.ListObjectsV2(ctx, in)
		if err != nil {
			return nil, fetchError(ctx, "list s3://"+b.name+"/"+prefix, err)
		}
		for _, o := range out.Contents {
			if err := each(awssdk.ToString(o.Key), awssdk.ToInt64(o.Size)); err != nil {
				return nil, err
			}
		}
		return out.NextContinuationToken, nil
	})
}

// Open returns an object's content; a connection that breaks off while it is read is an
// error of the reader.
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	if err != nil {
		return nil, fetchError(ctx, "read s3://"+b.name+"/"+key, err)
	}
	return out.Body, nil
}
