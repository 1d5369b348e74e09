package aws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Bucket reads the objects of one bucket, such as those of a bill. It is safe for
// concurrent use.
type Bucket struct {
	cloud   *Cloud
	name    string
	region  string
	clients *clients
}

// bucketRegion is the header with a bucket's region, also in refusals.
const bucketRegion = "X-Amz-Bucket-Region"

// Bucket finds a bucket in any region. It needs s3:ListBucket and s3:GetObject, which [PolicyJSON]
// includes only if a bill is read. A missing bucket is fs.ErrNotExist.
func (c *Cloud) Bucket(ctx context.Context, name string) (*Bucket, error) {
	home := c.first()
	in := c.clientsOf(home)
	out, err := s3Client(in).HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &name})
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
		home, in = region, c.clientsOf(region)
	}
	return &Bucket{cloud: c, name: name, region: home, clients: in}, nil
}

// List calls each with the key and size of every object under a prefix, in key order. An error of
// each stops it and is returned.
func (b *Bucket) List(ctx context.Context, prefix string, each func(key string, size int64) error) error {
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix}
	return pages(ctx, func(token *string) (*string, error) {
		in.ContinuationToken = token
		out, err := s3Client(b.clients).ListObjectsV2(ctx, in)
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

// Open returns an object's content; if the connection breaks the reader fails. A missing object is
// fs.ErrNotExist.
func (b *Bucket) Open(ctx context.Context, key string) (io.ReadCloser, error) {
	out, err := s3Client(b.clients).GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &key})
	var refused *smithyhttp.ResponseError
	if errors.As(err, &refused) && refused.HTTPStatusCode() == http.StatusNotFound {
		return nil, fmt.Errorf("read s3://%s/%s: there is no such object: %w", b.name, key, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fetchError(ctx, "read s3://"+b.name+"/"+key, err)
	}
	return out.Body, nil
}

// Put writes an object, with a client limited to s3:PutObject.
func (b *Bucket) Put(ctx context.Context, key string, body []byte) error {
	cfg := b.cloud.config.Copy()
	cfg.Region = b.region
	cfg.APIOptions = append(cfg.APIOptions[:len(cfg.APIOptions):len(cfg.APIOptions)],
		guarded("s3", b.cloud.limits().of("", b.region, "s3"), "CurfewExport",
			func(ctx context.Context, _ any) (func(time.Time), error) {
				if api := "s3:" + awsmiddleware.GetOperationName(ctx); api != "s3:PutObject" {
					return nil, &RefusedError{API: api}
				}
				return nil, nil
			}))
	_, err := s3.NewFromConfig(cfg, pathStyle).PutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.name, Key: &key, Body: bytes.NewReader(body), ContentType: awssdk.String("application/json"),
	})
	if err != nil {
		return fetchError(ctx, "write s3://"+b.name+"/"+key, err)
	}
	return nil
}
