package aws_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// bucketRegion is the region of the buckets of tests.
const bucketRegion = "us-east-1"

// buckets are the buckets of the scratch account, with the client that fills them.
type buckets struct {
	*s3.Client
	t   *testing.T
	now time.Time
}

func newBuckets(t *testing.T) *buckets {
	t.Helper()
	environOf(t, scratch)
	return &buckets{
		t: t, now: time.Now().UTC().Truncate(time.Second),
		Client: s3.NewFromConfig(scratch.Config(bucketRegion), func(o *s3.Options) { o.UsePathStyle = true }),
	}
}

// must ends the test on the error of a call.
func (b *buckets) must(_ any, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *buckets) create(name string) {
	b.t.Helper()
	b.must(b.CreateBucket(b.t.Context(), &s3.CreateBucketInput{Bucket: awssdk.String(name)}))
}

func (b *buckets) put(bucket, key string, body []byte) {
	b.t.Helper()
	b.must(b.PutObject(b.t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)}))
}

// lister returns a function that lists the buckets, and the blind spots whose reason contains a word. Pages bounds
// the listing of a bucket; 0 is the default.
func (b *buckets) lister(word string, pages int) func() (map[string]*inventory.Bucket, []inventory.BlindSpot) {
	b.t.Helper()
	c, err := aws.New(b.t.Context(), aws.Options{
		Regions: []string{bucketRegion}, RequestsPerSecond: 10_000, Size: size, ListPages: pages,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return func() (map[string]*inventory.Bucket, []inventory.BlindSpot) {
		b.t.Helper()
		o, err := c.List(b.t.Context(), round.Query{
			Now: b.now, Kinds: map[inventory.Kind]bool{inventory.KindBucket: true},
		})
		if err != nil {
			b.t.Fatal(err)
		}
		seen := map[string]*inventory.Bucket{}
		for _, r := range o.Resources {
			seen[r.ID] = r.Detail.(*inventory.Bucket)
		}
		return seen, slices.DeleteFunc(o.BlindSpots, func(s inventory.BlindSpot) bool {
			return !strings.Contains(s.Why, word)
		})
	}
}

// reasons are those of blind spots.
func reasons(spots []inventory.BlindSpot) (out []string) {
	for _, s := range spots {
		out = append(out, s.Why)
	}
	return out
}
