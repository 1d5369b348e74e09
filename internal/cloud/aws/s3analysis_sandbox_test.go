package aws_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestReadsAgesFromStorageClassAnalysis checks that beyond a bounded listing the newest export
// supplies the ages of the whole bucket and of a prefix, that an old export is not used, and that
// an unreadable one is a blind spot.
func TestReadsAgesFromStorageClassAnalysis(t *testing.T) {
	b := newBuckets(t)
	const bucket, exports = "analysis-test", "analysis-test-exports"
	b.create(exports)
	b.create(bucket)
	var puts errgroup.Group
	puts.SetLimit(16)
	for i := range 1100 { // the first page ends within raw/
		key := fmt.Sprintf("%s/%04d", map[bool]string{true: "data", false: "raw"}[i < 500], i)
		puts.Go(func() error {
			_, err := b.PutObject(t.Context(), &s3.PutObjectInput{
				Bucket: awssdk.String(bucket), Key: &key, Body: strings.NewReader("x"),
			})
			return err
		})
	}
	b.must(nil, puts.Wait())
	analyze := func(id, prefix string, day time.Time) {
		t.Helper()
		c := &s3types.AnalyticsConfiguration{
			Id: &id, StorageClassAnalysis: &s3types.StorageClassAnalysis{
				DataExport: &s3types.StorageClassAnalysisDataExport{
					OutputSchemaVersion: s3types.StorageClassAnalysisSchemaVersionV1,
					Destination: &s3types.AnalyticsExportDestination{
						S3BucketDestination: &s3types.AnalyticsS3BucketDestination{
							Bucket: awssdk.String("arn:aws:s3:::" + exports),
							Format: s3types.AnalyticsS3ExportFileFormatCsv,
							Prefix: awssdk.String("of/")}}}}}
		if prefix != "" {
			c.Filter = &s3types.AnalyticsFilterMemberPrefix{Value: prefix}
		}
		b.must(b.PutBucketAnalyticsConfiguration(t.Context(), &s3.PutBucketAnalyticsConfigurationInput{
			Bucket: awssdk.String(bucket), Id: &id, AnalyticsConfiguration: c,
		}))
		text := fmt.Sprintf(
			"%[1]s,%[2]s,%[3]s,STANDARD,000-014,1,,1024,0\n%[1]s,%[2]s,%[3]s,STANDARD,180-364,3,,3072,1024\n%[1]s,%[2]s,%[3]s,STANDARD,ALL,5,,4097,1024\n", day.Format("01-02-2006"), id, prefix)
		b.put(exports, "of/"+bucket+"/"+id+".csv", []byte(text))
	}
	seen := b.lister("Storage Class Analysis", 1)
	list := func() (*inventory.Bucket, []string) {
		t.Helper()
		all, blind := seen()
		return all[bucket], reasons(blind)
	}
	raw := func(b *inventory.Bucket) inventory.Prefix {
		prefixes := b.Prefixes.Or(nil)
		at := slices.IndexFunc(prefixes, func(p inventory.Prefix) bool { return p.Name == "raw/" })
		return prefixes[at]
	}
	if b, blind := list(); raw(b).Complete || b.Ages.Known() || len(blind) > 0 {
		t.Fatalf("without an analysis: %+v, %v", b, blind)
	}
	const gib = 1 << 30
	yesterday := b.now.AddDate(0, 0, -1)
	by := "Storage Class Analysis of " + yesterday.Format(time.DateOnly)
	analyze("all", "", yesterday)
	whole, blind := list()
	if w := whole.Ages.Or(inventory.Prefix{}); len(blind) > 0 || whole.AgesSource != by ||
		w.Standard.Bytes != 4097<<20 ||
		w.OlderThan[30].Bytes != 3*gib || w.OlderThan[180].Objects != 3 || w.Small.Bytes != 1<<20 ||
		w.ReadBytes[90] != gib ||
		raw(whole).Complete {
		t.Errorf("the whole bucket: %+v by %q, %v", w, whole.AgesSource, blind)
	}
	analyze("raw", "raw/", yesterday)
	analyze("deep", "raw/deep/", yesterday) // within a prefix that a listing separates
	if b, _ := list(); !raw(b).Complete || raw(b).OlderThan[90].Bytes != 3*gib || !raw(b).Newest.IsZero() ||
		!strings.HasSuffix(b.ListedBy, ", "+by) {
		t.Errorf("a prefix: %+v by %q", raw(b), b.ListedBy)
	}
	rule := s3types.LifecycleRule{
		ID: awssdk.String("raw"), Status: s3types.ExpirationStatusEnabled,
		Filter:     &s3types.LifecycleRuleFilter{Prefix: awssdk.String("raw/new/")},
		Expiration: &s3types.LifecycleExpiration{Days: awssdk.Int32(9)},
	}
	b.must(b.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{
		Bucket:                 awssdk.String(bucket),
		LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: []s3types.LifecycleRule{rule}},
	}))
	if b, _ := list(); raw(b).Complete {
		t.Errorf("what a rule moves of it is not in an analysis: %+v", raw(b))
	}
	analyze("all", "", b.now.AddDate(0, 0, -20))
	if b, blind := list(); b.Ages.Known() || len(blind) > 0 {
		t.Errorf("an old export counts: %+v, %v", b.Ages, blind)
	}
	defer scratch.Wire.Inject(wire.Fault{Service: "s3", Operation: "GetObject", Kind: wire.AccessDenied})()
	if _, blind := list(); len(blind) != 1 ||
		!strings.Contains(blind[0], "AccessDenied: s3:ListBucket and s3:GetObject on PREFIX/BUCKET/*.csv") {
		t.Errorf("nothing says that the export may not be read: %q", blind)
	}
}
