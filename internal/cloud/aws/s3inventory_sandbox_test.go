package aws_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// TestReadsAgesFromS3Inventory checks that the newest inventory supplies sizes, ages and classes,
// matched against the lifecycle rules. With an old, incomplete, ORC or unreadable inventory the
// bucket is listed, and a blind spot says so.
func TestReadsAgesFromS3Inventory(t *testing.T) {
	b := newBuckets(t)
	name := func(s string) string { return "inventory-test-" + s }
	b.create(name("lists"))
	rules := &s3types.BucketLifecycleConfiguration{Rules: []s3types.LifecycleRule{
		{
			ID: awssdk.String("raw"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{
				Prefix: awssdk.String("data/raw/"),
			},
			Transitions: []s3types.Transition{
				{Days: awssdk.Int32(90), StorageClass: s3types.TransitionStorageClassGlacier},
			}},
		{
			ID: awssdk.String("tagged"), Status: s3types.ExpirationStatusEnabled,
			Filter: &s3types.LifecycleRuleFilter{And: &s3types.LifecycleRuleAndOperator{
				Prefix: awssdk.String("data/tagged/"), Tags: []s3types.Tag{
					{Key: awssdk.String("a"), Value: awssdk.String("b")},
				}}},
			Transitions: []s3types.Transition{
				{Days: awssdk.Int32(90), StorageClass: s3types.TransitionStorageClassGlacier},
			}},
	}}
	schema := "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, StorageClass"
	type row struct {
		Bucket         string    `parquet:"bucket"`
		Key            string    `parquet:"key"`
		IsLatest       *bool     `parquet:"is_latest,optional"`
		IsDeleteMarker *bool     `parquet:"is_delete_marker,optional"`
		Size           int64     `parquet:"size,optional"`
		Modified       time.Time `parquet:"last_modified_date,optional,timestamp(millisecond)"`
		StorageClass   string    `parquet:"storage_class,optional"`
	}
	objects := func(bucket string) (rows []row) {
		for _, o := range []struct {
			key       string
			latest    bool
			gib, days int
			class     string
		}{
			{"data/raw/a b", true, 10, 200, "STANDARD"}, {"data/tagged/a", true, 20, 200, "STANDARD"},
			{"data/kept/a", true, 40, 100, "STANDARD"},
			{"data/cold", true, 80, 400, "GLACIER"}, {"data/kept/a", false, 160, 300, "STANDARD"},
			{"other", true, 1, 1, "STANDARD"},
		} {
			rows = append(rows, row{
				name(bucket), o.key, &o.latest, awssdk.Bool(false), int64(o.gib) << 30,
				b.now.AddDate(0, 0, -o.days), o.class,
			})
		}
		return rows
	}
	inventoryOf := func(bucket, schema string, at time.Time, format s3types.InventoryFormat) {
		t.Helper()
		b.create(name(bucket))
		b.put(name(bucket), "data/one", []byte("x"))
		b.must(b.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{
			Bucket: awssdk.String(name(bucket)), LifecycleConfiguration: rules,
		}))
		b.must(b.PutBucketInventoryConfiguration(t.Context(), &s3.PutBucketInventoryConfigurationInput{
			Bucket: awssdk.String(name(bucket)), Id: awssdk.String("weekly"),
			InventoryConfiguration: &s3types.InventoryConfiguration{
				Id: awssdk.String("weekly"), IsEnabled: awssdk.Bool(true),
				IncludedObjectVersions: s3types.InventoryIncludedObjectVersionsAll,
				Schedule:               &s3types.InventorySchedule{Frequency: s3types.InventoryFrequencyWeekly},
				Destination: &s3types.InventoryDestination{S3BucketDestination: &s3types.InventoryS3BucketDestination{
					Bucket: awssdk.String("arn:aws:s3:::" + name("lists")), Format: format,
					Prefix: awssdk.String("of")}}}}))
		var packed bytes.Buffer
		file, extension := "Parquet", "parquet"
		switch format {
		case s3types.InventoryFormatParquet:
			b.must(nil, parquet.Write(&packed, objects(bucket), parquet.Compression(&parquet.Snappy),
				parquet.MaxRowsPerRowGroup(4)))
		default:
			file, extension = string(format), "csv.gz"
			z := gzip.NewWriter(&packed)
			for _, o := range objects(bucket) {
				b.must(fmt.Fprintf(z, "%q,%q,%q,\"%t\",\"%t\",\"%d\",%q,%q\n", o.Bucket,
					url.QueryEscape(o.Key), "", *o.IsLatest,
					*o.IsDeleteMarker, o.Size,
					o.Modified.Format(time.RFC3339), o.StorageClass))
			}
			b.must(nil, z.Close())
		}
		root := "of/" + name(bucket) + "/weekly/"
		data := root + "data/d794c570-95bb-4271-9128-26023c8b4900." + extension
		b.put(name("lists"), data, packed.Bytes())
		b.put(name("lists"), root+at.Format("2006-01-02T15-04Z")+"/manifest.json", fmt.Appendf(nil,
			`{"sourceBucket":%q,"destinationBucket":"x","version":"2016-11-30","fileFormat":%q,"fileSchema":%q,"files":[{"key":%q,"size":%d}]}`,
			name(bucket), file, schema, data, packed.Len()))
	}
	recent := b.now.AddDate(0, 0, -2)
	inventoryOf("fresh", schema, recent, s3types.InventoryFormatCsv)
	inventoryOf("columns", "message s3.inventory { required binary key (UTF8); }", recent,
		s3types.InventoryFormatParquet)
	inventoryOf("old", schema, b.now.AddDate(0, 0, -20), s3types.InventoryFormatCsv)
	inventoryOf("thin", "Bucket, Key", recent, s3types.InventoryFormatCsv)
	inventoryOf("orc", "struct<key:string>", recent, s3types.InventoryFormatOrc)

	list := b.lister("S3 Inventory", 0)
	seen, blind := list()
	for _, bucket := range []string{"old", "thin", "orc"} {
		if b := seen[name(bucket)]; b == nil || !strings.HasPrefix(b.ListedBy, "listing of 1 call") {
			t.Errorf("%s: %+v; want it listed", bucket, b)
		}
	}
	effect := "the bucket was listed instead: the ages of what the listing did not reach are not known"
	want := []inventory.BlindSpot{
		{
			What: "s3 us-east-1",
			Why: "its S3 Inventory is passed over: it lacks size, date or class of some objects on 1 bucket " +
				"(inventory-test-thin)",
			Effect: effect,
		},
		{
			What: "s3 us-east-1",
			Why: "its S3 Inventory is passed over: it is written as ORC, which is not read: CSV and Parquet are on 1 " +
				"bucket (inventory-test-orc)",
			Effect: effect,
		},
	}
	byWhy := func(a, b inventory.BlindSpot) int { return strings.Compare(a.Why, b.Why) }
	slices.SortFunc(want, byWhy)
	slices.SortFunc(blind, byWhy)
	if diff := cmp.Diff(want, blind); diff != "" {
		t.Errorf("blind spots (-want +got):\n%s", diff)
	}
	gib := func(n int64) inventory.Stored { return inventory.Stored{Bytes: n << 30, Objects: 1} }
	for _, bucket := range []string{"fresh", "columns"} {
		b := seen[name(bucket)]
		if want := "S3 Inventory of " + recent.Format(time.DateOnly); b == nil || b.ListedBy != want {
			t.Errorf("%s: %+v; want it seen by %s", bucket, b, want)
			continue
		}
		prefixes := b.Prefixes.Or(nil)
		if len(prefixes) != 2 || prefixes[0].Name != "" || prefixes[1].Name != "data/" {
			t.Fatalf("%s: prefixes %+v", bucket, prefixes)
		}
		p := prefixes[1]
		if p.Standard.Bytes != 70<<30 || p.Bytes != 150<<30 || p.CoveredByRules != gib(10) ||
			p.PossiblyCovered != gib(20) ||
			p.OlderThan[90] != gib(40) || p.OlderThan[180].Objects != 0 || !p.Complete {
			t.Errorf("%s: %+v", bucket, p)
		}
	}

	// Without the permission the buckets are listed, with a blind spot.
	defer scratch.Wire.Inject(wire.Fault{Service: "s3", Operation: "GetObject", Kind: wire.AccessDenied})()
	seen, blind = list()
	if b := seen[name("columns")]; b == nil || !strings.HasPrefix(b.ListedBy, "listing of 1 call") {
		t.Errorf("%+v; want it listed", b)
	}
	if !slices.ContainsFunc(blind, func(b inventory.BlindSpot) bool {
		return b.Effect == effect &&
			strings.HasSuffix(b.Why, "AccessDenied: s3:ListBucket and s3:GetObject where the "+
				"inventory is on 3 buckets (inventory-test-columns, inventory-test-fresh, inventory-test-thin)")
	}) {
		t.Errorf("nothing says that the buckets were listed: %+v", blind)
	}
}
