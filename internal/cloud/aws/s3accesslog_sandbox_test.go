package aws_test

import (
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/test/wire"
)

// TestReadsAccessLogs checks that a bucket's access log shows the prefixes that were read, and that
// an unreadable one is a blind spot.
func TestReadsAccessLogs(t *testing.T) {
	b := newBuckets(t)
	const bucket, logs = "logged-test", "logged-test-logs"
	b.create(logs)
	b.must(b.PutBucketAcl(t.Context(), &s3.PutBucketAclInput{
		Bucket: awssdk.String(logs), ACL: s3types.BucketCannedACL("log-delivery-write"),
	}))
	b.create(bucket)
	b.put(bucket, "imagenet/a.tar", []byte("x"))
	b.put(bucket, "raw/a", []byte("x"))
	b.must(b.PutBucketLogging(t.Context(), &s3.PutBucketLoggingInput{
		Bucket: awssdk.String(bucket),
		BucketLoggingStatus: &s3types.BucketLoggingStatus{LoggingEnabled: &s3types.LoggingEnabled{
			TargetBucket: awssdk.String(logs), TargetPrefix: awssdk.String("access/"),
		}},
	}))
	read := b.now.AddDate(0, 0, -3)
	b.put(logs, "access/"+read.Format(time.DateOnly)+"-00-00-00-ABCDEF", []byte("owner "+bucket+" ["+
		read.Format("02/Jan/2006:15:04:05 -0700")+`] 192.0.2.3 - ID REST.GET.OBJECT imagenet/a.tar "GET / HTTP/1.1" 200 -`+"\n"))
	seen := b.lister("access log", 0)
	list := func() (map[string]time.Time, []string) {
		t.Helper()
		all, blind := seen()
		reads := map[string]time.Time{}
		for _, p := range all[bucket].Prefixes.Or(nil) {
			reads[p.Name] = p.LoggedRead
		}
		return reads, reasons(blind)
	}
	if reads, blind := list(); !reads["imagenet/"].Equal(read) || !reads["raw/"].IsZero() || len(reads) != 2 ||
		len(blind) > 0 {
		t.Errorf("got %v, %q", reads, blind)
	}
	defer scratch.Wire.Inject(wire.Fault{Service: "s3", Operation: "GetObject", Kind: wire.AccessDenied})()
	if _, blind := list(); len(blind) != 1 || !strings.Contains(blind[0], "s3:GetObject on "+logs) {
		t.Errorf("nothing says that the log may not be read: %q", blind)
	}
}
