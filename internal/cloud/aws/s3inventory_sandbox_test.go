package aws_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// TestAgesComeFromS3Inventory: the newest inventory tells sizes, ages and classes, and
// each object is held against the rules that are there. An inventory that is old or lacks a
// column leaves the bucket to be listed.
func TestAgesComeFromS3Inventory(t *testing.T) {
	environOf(t, scratch)
	const region = "us-east-1"
	api := s3.NewFromConfig(scratch.Config(region), func(o *s3.Options) { o.UsePathStyle = true })
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	name := func(s string) *string { return awssdk.String("inventory-test-" + s) }
	put := func(bucket, key string, body []byte) {
		t.Helper()
		must(api.PutObject(t.Context(), &s3.PutObjectInput{Bucket: name(bucket), Key: &key, Body: bytes.NewReader(body)}))
	}
	now := time.Now().UTC().Truncate(time.Second)
	must(api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: name("lists")}))
	rules := &s3types.BucketLifecycleConfiguration{Rules: []s3types.LifecycleRule{
		{ID: awssdk.String("raw"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{Prefix: awssdk.String("data/raw/")},
			Transitions: []s3types.Transition{{Days: awssdk.Int32(90), StorageClass: s3types.TransitionStorageClassGlacier}}},
		{ID: awssdk.String("tagged"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{And: &s3types.LifecycleRuleAndOperator{
			Prefix: awssdk.String("data/tagged/"), Tags: []s3types.Tag{{Key: awssdk.String("a"), Value: awssdk.String("b")}}}},
			Transitions: []s3types.Transition{{Days: awssdk.Int32(90), StorageClass: s3types.TransitionStorageClassGlacier}}},
	}}
	schema := "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, StorageClass"
	inventoryOf := func(bucket, schema string, at time.Time) {
		t.Helper()
		must(api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: name(bucket)}))
		put(bucket, "data/one", []byte("x"))
		must(api.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{Bucket: name(bucket), LifecycleConfiguration: rules}))
		must(api.PutBucketInventoryConfiguration(t.Context(), &s3.PutBucketInventoryConfigurationInput{Bucket: name(bucket), Id: awssdk.String("weekly"),
			InventoryConfiguration: &s3types.InventoryConfiguration{Id: awssdk.String("weekly"), IsEnabled: awssdk.Bool(true),
				IncludedObjectVersions: s3types.InventoryIncludedObjectVersionsAll, Schedule: &s3types.InventorySchedule{Frequency: s3types.InventoryFrequencyWeekly},
				Destination: &s3types.InventoryDestination{S3BucketDestination: &s3types.InventoryS3BucketDestination{
					Bucket: awssdk.String("arn:aws:s3:::" + *name("lists")), Format: s3types.InventoryFormatCsv, Prefix: awssdk.String("of")}}}}))
		var csv strings.Builder
		for _, o := range []struct {
			key, latest string
			gib, days   int
			class       string
		}{
			{"data/raw/a+b", "true", 10, 200, "STANDARD"}, {"data/tagged/a", "true", 20, 200, "STANDARD"}, {"data/kept%2Fa", "true", 40, 100, "STANDARD"},
			{"data/cold", "true", 80, 400, "GLACIER"}, {"data/kept/a", "false", 160, 300, "STANDARD"}, {"other", "true", 1, 1, "STANDARD"},
		} {
			fmt.Fprintf(&csv, "%q,%q,%q,%q,%q,%q,%q,%q\n", *name(bucket), o.key, "", o.latest, "false", fmt.Sprint(o.gib<<30),
				now.AddDate(0, 0, -o.days).Format(time.RFC3339), o.class)
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		must(z.Write([]byte(csv.String())))
		must(nil, z.Close())
		root := "of/" + *name(bucket) + "/weekly/"
		put("lists", root+"data/1.csv.gz", packed.Bytes())
		put("lists", root+at.Format("2006-01-02T15-04Z")+"/manifest.json", fmt.Appendf(nil,
			`{"sourceBucket":%q,"destinationBucket":"x","version":"2016-11-30","fileFormat":"CSV","fileSchema":%q,"files":[{"key":%q,"size":%d}]}`,
			*name(bucket), schema, root+"data/1.csv.gz", packed.Len()))
	}
	inventoryOf("fresh", schema, now.AddDate(0, 0, -2))
	inventoryOf("old", schema, now.AddDate(0, 0, -20))
	inventoryOf("thin", "Bucket, Key", now.AddDate(0, 0, -2))

	c, err := aws.New(t.Context(), aws.Options{Regions: []string{region}, RequestsPerSecond: 10_000, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.List(t.Context(), round.Query{Now: now, Kinds: map[inventory.Kind]bool{inventory.KindBucket: true}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]*inventory.Bucket{}
	for _, r := range o.Resources {
		seen[r.ID] = r.Detail.(*inventory.Bucket)
	}
	for _, bucket := range []string{"old", "thin"} {
		if b := seen[*name(bucket)]; b == nil || !strings.HasPrefix(b.SeenBy, "listing of 1 call") {
			t.Errorf("%s: %+v; want it listed", bucket, b)
		}
	}
	fresh := seen[*name("fresh")]
	if want := "S3 Inventory of " + now.AddDate(0, 0, -2).Format(time.DateOnly); fresh == nil || fresh.SeenBy != want {
		t.Fatalf("%+v; want it seen by %s", fresh, want)
	}
	gib := func(n int64) inventory.Stored { return inventory.Stored{Bytes: n << 30, Objects: 1} }
	prefixes := fresh.Prefixes.Or(nil)
	if len(prefixes) != 2 || prefixes[0].Name != "" || prefixes[1].Name != "data/" {
		t.Fatalf("prefixes %+v", prefixes)
	}
	p := prefixes[1]
	if p.Standard.Bytes != 70<<30 || p.Bytes != 150<<30 || p.Reached != gib(10) || p.Perhaps != gib(20) || p.Older[90] != gib(40) || p.Older[180].Objects != 0 || !p.Complete {
		t.Errorf("%+v", p)
	}
}
