package objectstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/time/rate"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/wait"
)

// bucket is a prefix of an S3 bucket.
type bucket struct {
	api          *s3.Client
	name, prefix string
	// region is where the bucket is, as S3 said; nil: it did not say that it is elsewhere.
	region atomic.Pointer[string]
}

// in has a call go to the bucket's region.
func (b *bucket) in(o *s3.Options) {
	if r := b.region.Load(); r != nil {
		o.Region = *r
	}
}

// bucketRegion is the header in which S3 says where a bucket is, also when it refuses.
const bucketRegion = "X-Amz-Bucket-Region"

// moved learns from a refusal that the bucket is in another region than was asked.
func (b *bucket) moved(err error) bool {
	var r *awshttp.ResponseError
	if !errors.As(err, &r) || r.Response == nil || r.HTTPStatusCode() != http.StatusMovedPermanently &&
		r.HTTPStatusCode() != http.StatusBadRequest && r.HTTPStatusCode() != http.StatusTemporaryRedirect {
		return false
	}
	region := r.Response.Header.Get(bucketRegion)
	if old := b.region.Load(); region == "" || old != nil && *old == region || old == nil &&
		region == b.api.Options().Region {
		return false
	}
	b.region.Store(&region)
	return true
}

// there makes a call, and makes it again where S3 says that the bucket is in another region.
func there[T any](b *bucket, call func() (T, error)) (T, error) {
	out, err := call()
	if b.moved(err) {
		return call()
	}
	return out, err
}

// tries is how often a call is made before it fails.
const tries = 6

func newS3(ctx context.Context, name, prefix string, o Options) (*bucket, error) {
	if o.Stall <= 0 {
		o.Stall = 30 * time.Second
	}
	limit := limiter(o.Bandwidth)
	dialer := &net.Dialer{Timeout: min(o.Stall, 10*time.Second), KeepAlive: 30 * time.Second}
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &conn{c, limit, o.Stall}, nil
		}
		t.ResponseHeaderTimeout = o.Stall
		t.MaxIdleConnsPerHost = 16
		t.ForceAttemptHTTP2 = false
	})
	cfg, err := config.LoadDefaultConfig(ctx,
		config.WithSharedConfigProfile(o.Profile),
		config.WithHTTPClient(client),
		config.WithRetryer(func() aws.Retryer {
			// S3 answers 409 when another conditional write of the object is under way.
			return retry.AddWithErrorCodes(retry.NewStandard(func(s *retry.StandardOptions) { s.MaxAttempts = tries }),
				"ConditionalRequestConflict")
		}))
	if err != nil {
		return nil, fmt.Errorf("read the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	return &bucket{api: s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = o.BaseEndpoint != nil
		o.DisableLogOutputChecksumValidationSkipped = true // the format has checksums of its own
	}), name: name, prefix: prefix}, nil
}

// conn is a connection that carries so much in a second, and fails when it carries nothing
// for too long.
type conn struct {
	net.Conn
	limit *rate.Limiter
	stall time.Duration
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	if c.limit != nil && len(b) > granule {
		b = b[:granule]
	}
	if err := c.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if c.limit != nil && n > 0 {
		err = errors.Join(err, c.limit.WaitN(context.Background(), n))
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (n int, err error) {
	for err == nil && len(b) > 0 {
		some := b[:min(len(b), granule)]
		if c.limit != nil {
			if err := c.limit.WaitN(context.Background(), len(some)); err != nil {
				return n, err
			}
		}
		if err := c.SetWriteDeadline(time.Now().Add(c.stall)); err != nil {
			return n, err
		}
		var k int
		k, err = c.Conn.Write(some)
		n, b = n+k, b[k:]
	}
	return n, err
}

func (b *bucket) key(key string) *string { return aws.String(b.prefix + key) }

// answered reports whether an error is an answer with a status.
func answered(err error, status int) bool {
	var r *awshttp.ResponseError
	return errors.As(err, &r) && r.HTTPStatusCode() == status
}

// Get implements checkpoint.Reader. An answer that breaks off is asked for again.
func (b *bucket) Get(ctx context.Context, key string, limit int64) (o checkpoint.Object, err error) {
	for try := range tries {
		if o, err = b.get(ctx, key, limit); err == nil || ctx.Err() != nil || !errors.Is(err, errBrokenOff) {
			return o, err
		}
		if err := wait.For(ctx, backoff(try)); err != nil {
			return o, err
		}
	}
	return o, err
}

var errBrokenOff = errors.New("the answer broke off")

func (b *bucket) get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	got, err := there(b, func() (*s3.GetObjectOutput, error) {
		return b.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.name, Key: b.key(key)}, b.in)
	})
	if answered(err, http.StatusNotFound) && !missingBucket(err) || answered(err, http.StatusForbidden) &&
		b.absent(ctx, key) {
		return checkpoint.Object{}, checkpoint.ErrNotFound
	}
	if err != nil {
		return checkpoint.Object{}, err
	}
	defer func() { _ = got.Body.Close() }()
	size := aws.ToInt64(got.ContentLength)
	if got.ContentLength == nil || size > limit {
		return checkpoint.Object{}, checkpoint.ErrTooLarge
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(got.Body, data); err != nil {
		return checkpoint.Object{}, fmt.Errorf("%w: %w", errBrokenOff, err)
	}
	return checkpoint.Object{Data: data, Version: aws.ToString(got.ETag)}, nil
}

// absent reports whether a list shows that an object is not there. S3 refuses to read such an object
// to whoever may not list the whole bucket, as the machines of sessions may not.
func (b *bucket) absent(ctx context.Context, key string) bool {
	out, err := there(b, func() (*s3.ListObjectsV2Output, error) {
		return b.api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
			Bucket: &b.name, Prefix: b.key(key), MaxKeys: aws.Int32(1),
		},
			b.in)
	})
	return err == nil && (len(out.Contents) == 0 || aws.ToString(out.Contents[0].Key) != *b.key(key))
}

func missingBucket(err error) bool {
	var no *types.NoSuchBucket
	return errors.As(err, &no) || err != nil && strings.Contains(err.Error(), "NoSuchBucket")
}

// backoff is the pause after a try.
func backoff(try int) time.Duration { return time.Duration(100<<try) * time.Millisecond }

// List implements checkpoint.Reader.
func (b *bucket) List(ctx context.Context, prefix string, each func(checkpoint.Info) error) error {
	pages := s3.NewListObjectsV2Paginator(b.api, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: b.key(prefix)})
	for pages.HasMorePages() {
		page, err := there(b, func() (*s3.ListObjectsV2Output, error) { return pages.NextPage(ctx, b.in) })
		if err != nil {
			return err
		}
		for _, o := range page.Contents {
			key, ours := strings.CutPrefix(aws.ToString(o.Key), b.prefix)
			if !ours || key == "" {
				continue
			}
			if err := each(checkpoint.Info{
				Key: key, Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified),
			}); err !=
				nil {
				return err
			}
		}
	}
	return nil
}

// put writes an object. The server verifies its SHA-256, which is signed, so the content
// needs no second hash.
func (b *bucket) put(ctx context.Context, key string, data []byte, condition func(*s3.PutObjectInput)) (string,
	error) {
	sum := sha256.Sum256(data)
	out, err := there(b, func() (*s3.PutObjectOutput, error) {
		in := &s3.PutObjectInput{
			Bucket: &b.name, Key: b.key(key), Body: bytes.NewReader(data), ContentLength: aws.Int64(int64(len(data))),
			ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum[:]))}
		condition(in)
		return b.api.PutObject(ctx, in,
			s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware), b.in)
	})
	if answered(err, http.StatusInsufficientStorage) { // servers on disks of their own
		return "", fmt.Errorf("%w: %w", checkpoint.ErrFull, err)
	}
	if err != nil {
		return "", err
	}
	if aws.ToString(out.ETag) == "" {
		return "", fmt.Errorf("the answer names no version: it is not from an object store")
	}
	return *out.ETag, nil
}

// Create implements checkpoint.Writer.
func (b *bucket) Create(ctx context.Context, key string, data []byte) error {
	_, err := b.put(ctx, key, data, func(in *s3.PutObjectInput) { in.IfNoneMatch = aws.String("*") })
	if answered(err, http.StatusPreconditionFailed) {
		return checkpoint.ErrExists
	}
	return err
}

// Replace implements checkpoint.Writer.
func (b *bucket) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	now, err := b.put(ctx, key, data, func(in *s3.PutObjectInput) {
		if version == "" {
			in.IfNoneMatch = aws.String("*")
		} else {
			in.IfMatch = &version
		}
	})
	if answered(err, http.StatusPreconditionFailed) || version != "" && answered(err, http.StatusNotFound) &&
		!missingBucket(err) {
		return "", checkpoint.ErrConflict
	}
	return now, err
}

// Delete implements checkpoint.Collector.
func (b *bucket) Delete(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	list := make([]types.ObjectIdentifier, len(keys))
	for i, k := range keys {
		list[i].Key = b.key(k)
	}
	out, err := there(b, func() (*s3.DeleteObjectsOutput, error) {
		return b.api.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: &b.name, Delete: &types.Delete{Objects: list, Quiet: aws.Bool(true)},
		}, b.in)
	})
	if err != nil {
		return err
	}
	for _, e := range out.Errors {
		return fmt.Errorf("delete %s: %s (%s)", aws.ToString(e.Key), aws.ToString(e.Message), aws.ToString(e.Code))
	}
	return nil
}

// Abandoned implements checkpoint.Collector: multipart uploads. Whoever may not list those of the
// whole bucket is shown none: S3 knows no permission for a prefix. The rules of the bucket end them.
func (b *bucket) Abandoned(ctx context.Context) ([]checkpoint.Upload, error) {
	var list []checkpoint.Upload
	pages := s3.NewListMultipartUploadsPaginator(b.api, &s3.ListMultipartUploadsInput{
		Bucket: &b.name, Prefix: &b.prefix,
	})
	for pages.HasMorePages() {
		page, err := there(b, func() (*s3.ListMultipartUploadsOutput, error) { return pages.NextPage(ctx, b.in) })
		if answered(err, http.StatusForbidden) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		for _, u := range page.Uploads {
			if key, ours := strings.CutPrefix(aws.ToString(u.Key), b.prefix); ours {
				list = append(list, checkpoint.Upload{
					Key: key, ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated),
				})
			}
		}
	}
	return list, nil
}

// Abort implements checkpoint.Collector.
func (b *bucket) Abort(ctx context.Context, u checkpoint.Upload) error {
	_, err := there(b, func() (*s3.AbortMultipartUploadOutput, error) {
		return b.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
			Bucket: &b.name, Key: b.key(u.Key), UploadId: &u.ID,
		}, b.in)
	})
	if answered(err, http.StatusNotFound) {
		return nil
	}
	return err
}
