package aws

import (
	"bufio"
	"context"
	"io"
	"net/url"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	// accessLogDays is the number of sampled days of an access log, accessLogFiles the maximum
	// number of files per day: reads found in them are known, but nothing counts as unread because
	// of them.
	accessLogDays, accessLogFiles = 14, 2
	// accessLogBytes bounds the bytes read of one file.
	accessLogBytes = 8 << 20
	// accessLogTime is the layout of the time of a record.
	accessLogTime = "02/Jan/2006:15:04:05 -0700"
)

// accessed marks the prefixes of a listing that were read according to the bucket's server access
// log, if it has one.
func (p *place) accessed(ctx context.Context, bucket string, l *listing) {
	out, err := s3Client(p.reading).GetBucketLogging(ctx, &s3.GetBucketLoggingInput{Bucket: &bucket})
	p.missed(ctx, "s3:GetBucketLogging", bucket, err)
	if err != nil || out.LoggingEnabled == nil {
		return
	}
	target := out.LoggingEnabled
	at := awssdk.ToString(target.TargetPrefix)
	layout := time.DateOnly
	if f := target.TargetObjectKeyFormat; f != nil && f.PartitionedPrefix != nil {
		at += p.account.id + "/" + p.region + "/" + bucket + "/"
		layout = "2006/01/02"
	}
	for day := range accessLogDays {
		err := p.accessLog(ctx, awssdk.ToString(target.TargetBucket), at+p.now().AddDate(0, 0, -day).Format(layout),
			bucket, l)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.notAccessed(bucket, awssdk.ToString(target.TargetBucket), err)
			return
		}
	}
}

// accessLog reads files of one day of an access log. Logs of several buckets may share a prefix.
func (p *place) accessLog(ctx context.Context, from, day, bucket string, l *listing) error {
	list, err := s3Client(p.reading).ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: &from, Prefix: &day, MaxKeys: awssdk.Int32(accessLogFiles),
	})
	if err != nil {
		return err
	}
	for _, o := range list.Contents {
		body, err := p.object(ctx, from, awssdk.ToString(o.Key))
		if err != nil {
			return err
		}
		err = readAccessLog(body, bucket, l)
		if closed := body.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// notAccessed reports an unreadable access log.
func (p *place) notAccessed(bucket, target string, err error) {
	why := "its access log is passed over: "
	if code, _ := reason(err); is(err, "AccessDenied") {
		why += code + ": s3:ListBucket and s3:GetObject on " + target
	} else {
		why += err.Error()
	}
	p.partly(partialKey{"s3 " + p.String(), why, "reads that it records are not known"}, "bucket", bucket)
}

// readAccessLog marks the prefixes read according to records of a bucket.
func readAccessLog(r io.Reader, bucket string, l *listing) error {
	lines := bufio.NewScanner(io.LimitReader(r, accessLogBytes))
	lines.Buffer(nil, accessLogBytes)
	for lines.Scan() {
		of, key, at, ok := accessRecord(lines.Text())
		if !ok || of != bucket {
			continue
		}
		if f := l.byPrefix[topPrefix(key)]; f != nil && at.After(f.LoggedRead) {
			f.LoggedRead = at
		}
	}
	return lines.Err()
}

// accessRecord parses a record of a successful read of an object into bucket, key and time. A
// record begins: owner bucket [time] address requester id operation key "request" status (Amazon S3
// User Guide, "Server access log format").
func accessRecord(line string) (bucket, key string, at time.Time, ok bool) {
	head, rest, found := strings.Cut(line, " [")
	when, rest, closed := strings.Cut(rest, "] ")
	owner := strings.Fields(head)
	if !found || !closed || len(owner) != 2 {
		return "", "", at, false
	}
	fields, request, quoted := strings.Cut(rest, ` "`)
	names := strings.Fields(fields)
	_, after, ended := strings.Cut(request, `" `)
	if !quoted || !ended || len(names) != 5 || !strings.HasPrefix(after, "20") {
		return "", "", at, false
	}
	switch names[3] {
	case "REST.GET.OBJECT", "REST.COPY.OBJECT_GET", "REST.COPY.PART_GET", "WEBSITE.GET.OBJECT":
	default:
		return "", "", at, false
	}
	at, err := time.Parse(accessLogTime, when)
	if err != nil {
		return "", "", at, false
	}
	key = names[4]
	for range 2 { // keys are encoded twice
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
	}
	return owner[1], key, at.UTC(), true
}
