package aws_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestReadsAccessLogs checks that a bucket's access log shows the prefixes that were read, and that
// an unreadable one is a blind spot.
func TestReadsAccessLogs(t *testing.T) {
	environOf(t, scratch)
	const region = "us-east-1"
	api := s3.NewFromConfig(scratch.Config(region), func(o *s3.Options) { o.UsePathStyle = true })
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().UTC().Truncate(time.Second)
	bucket, logs := awssdk.String("logged-test"), awssdk.String("logged-test-logs")
	must(api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: logs}))
	must(api.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{
		Bucket: logs, ACL: s3types.BucketCannedACL("log-delivery-write"),
	}))
	must(api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: bucket}))
	put := func(bucket *string, key, text string) {
		t.Helper()
		must(api.PutObject(t.Context(), &s3.PutObjectInput{Bucket: bucket, Key: &key, Body: strings.NewReader(text)}))
	}
	put(bucket, "imagenet/a.tar", "x")
	put(bucket, "raw/a", "x")
	must(api.PutBucketLogging(t.Context(), &s3.PutBucketLoggingInput{
		Bucket: bucket, BucketLoggingStatus: &s3types.BucketLoggingStatus{LoggingEnabled: &s3types.LoggingEnabled{
			TargetBucket: logs, TargetPrefix: awssdk.String("access/"),
		}},
	}))
	read := now.AddDate(0, 0, -3)
	put(logs, "access/"+read.Format(time.DateOnly)+"-00-00-00-ABCDEF", "owner "+*bucket+" ["+
		read.Format("02/Jan/2006:15:04:05 -0700")+`] 192.0.2.3 - ID REST.GET.OBJECT imagenet/a.tar "GET / HTTP/1.1" 200 -`+"\n")
	c, err := aws.New(t.Context(), aws.Options{Regions: []string{region}, RequestsPerSecond: 10_000, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	list := func() (map[string]time.Time, []string) {
		t.Helper()
		o, err := c.List(t.Context(), round.Query{
			Now: now, Kinds: map[inventory.Kind]bool{inventory.KindBucket: true},
		})
		if err != nil {
			t.Fatal(err)
		}
		var blind []string
		for _, b := range o.BlindSpots {
			if strings.Contains(b.Why, "access log") {
				blind = append(blind, b.Why)
			}
		}
		at := slices.IndexFunc(o.Resources, func(r *inventory.Resource) bool { return r.ID == *bucket })
		reads := map[string]time.Time{}
		for _, p := range o.Resources[at].Detail.(*inventory.Bucket).Prefixes.Or(nil) {
			reads[p.Name] = p.LoggedRead
		}
		return reads, blind
	}
	if reads, blind := list(); !reads["imagenet/"].Equal(read) || !reads["raw/"].IsZero() || len(reads) != 2 ||
		len(blind) > 0 {
		t.Errorf("got %v, %q", reads, blind)
	}
	defer scratch.Wire.Inject(wire.Fault{Service: "s3", Operation: "GetObject", Kind: wire.AccessDenied})()
	if _, blind := list(); len(blind) != 1 || !strings.Contains(blind[0], "s3:GetObject on "+*logs) {
		t.Errorf("nothing says that the log may not be read: %q", blind)
	}
}
