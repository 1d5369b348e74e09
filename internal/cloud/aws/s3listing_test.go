package aws

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// object is an object of the bucket under test.
type object struct {
	key   string
	size  int64
	age   time.Duration
	class string
}

// bucketServer serves ListObjectsV2 for one bucket with a given page size.
type bucketServer struct {
	objects []object // by key
	page    int
	calls   atomic.Int32
}

func (s *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.calls.Add(1)
	type content struct {
		Key, LastModified, StorageClass string
		Size                            int64
	}
	type commonPrefix struct{ Prefix string }
	var out struct {
		XMLName        xml.Name `xml:"ListBucketResult"`
		IsTruncated    bool
		Contents       []content
		CommonPrefixes []commonPrefix
	}
	q := r.URL.Query()
	n, last := 0, ""
	for _, o := range s.objects {
		if !strings.HasPrefix(o.key, q.Get("prefix")) ||
			(q.Get("start-after") != "" && o.key <= q.Get("start-after")) {
			continue
		}
		top := topPrefix(o.key)
		grouped := q.Get("delimiter") == "/" && top != ""
		if grouped && top == last {
			continue
		}
		if n == s.page {
			out.IsTruncated = true
			break
		}
		n++
		if grouped {
			last = top
			out.CommonPrefixes = append(out.CommonPrefixes, commonPrefix{top})
			continue
		}
		out.Contents = append(out.Contents, content{o.key, now.Add(-o.age).Format(time.RFC3339), o.class, o.size})
	}
	if err := xml.NewEncoder(w).Encode(out); err != nil {
		panic(err)
	}
}

// lister returns a place that uses the server as S3.
func lister(url string, listPages int) *place {
	cfg := awssdk.Config{
		Region: "us-east-1", BaseEndpoint: &url,
		Credentials: awscredentials.NewStaticCredentialsProvider("a", "b", ""),
	}
	c := &Cloud{options: Options{ListPages: listPages, RequestsPerSecond: 1e6}, config: cfg}
	s := c.scan(round.Query{Now: now}, newLimits(1e6))
	return s.place(&account{id: "1", cfg: cfg}, "us-east-1")
}

// sumUnder sums objects under a top-level prefix.
func sumUnder(objects []object, prefix string) (s inventory.Stored) {
	for _, o := range objects {
		if topPrefix(o.key) == prefix {
			s = plus(s, o.size)
		}
	}
	return s
}

// TestListingIsBounded checks for any bucket and bound that a listing never
// exceeds the bound of calls, never counts an object twice, and marks a prefix as complete only if
// it is.
func TestListingIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "a/", "b/", "data/", "data/x/", "z/"}).Draw(t, "folder") +
				rapid.StringMatching(`[a-d]{1,3}`).Draw(t, "name")
		}), 0, 60, rapid.ID[string]).Draw(t, "keys")
		sort.Strings(keys)
		srv := &bucketServer{page: rapid.IntRange(1, 20).Draw(t, "page")}
		for _, k := range keys {
			srv.objects = append(srv.objects, object{key: k, size: rapid.Int64Range(0, 1<<20).Draw(t, "size"),
				age: time.Duration(rapid.IntRange(0, 200).Draw(t, "days")) * 24 * time.Hour, class: "STANDARD"})
		}
		web := httptest.NewServer(srv)
		defer web.Close()
		bound := rapid.IntRange(1, 12).Draw(t, "bound")
		l, ok := lister(web.URL, bound).prefixes(t.Context(), "bucket", nil, nil)
		if !ok {
			t.Fatal("the bucket could not be listed")
		}
		if n := int(srv.calls.Load()); n > bound {
			t.Fatalf("%d calls under a bound of %d", n, bound)
		}
		var all, seen inventory.Stored
		for _, o := range srv.objects {
			all = plus(all, o.size)
		}
		for _, f := range l.prefixes() {
			want := sumUnder(srv.objects, f.Name)
			switch {
			case f.Complete && f.Stored != want:
				t.Fatalf("prefix %q is complete with %+v, it holds %+v", f.Name, f.Stored, want)
			case f.Bytes > want.Bytes || f.Objects > want.Objects:
				t.Fatalf("prefix %q has %+v, more than the %+v it holds", f.Name, f.Stored, want)
			case f.OlderThan[90].Objects > f.OlderThan[30].Objects ||
				f.OlderThan[30].Objects+f.Small.Objects > f.Objects:
				t.Fatalf("prefix %q: %+v", f.Name, f)
			}
			seen.Bytes += f.Bytes
			seen.Objects += f.Objects
		}
		if l.complete && (seen != all || l.classes["STANDARD"] != all) {
			t.Fatalf("a complete listing saw %+v of %+v", seen, all)
		}
		if !l.complete && seen == all && len(keys) <= srv.page {
			t.Fatal("a bucket of one page was not listed to its end")
		}
	})
}

func TestListsLargeBucketByPrefix(t *testing.T) {
	srv := &bucketServer{page: 10}
	for _, p := range []string{"checkpoints/", "datasets/", "experiments/"} {
		for i := range 100 {
			srv.objects = append(srv.objects, object{
				key: fmt.Sprintf("%s%03d", p, i), size: 1 << 20, age: 100 * 24 * time.Hour, class: "STANDARD",
			})
		}
	}
	web := httptest.NewServer(srv)
	defer web.Close()
	l, ok := lister(web.URL, 5).prefixes(t.Context(), "bucket", nil, nil)
	if !ok || l.complete {
		t.Fatalf("listed %v, to its end %v", ok, l.complete)
	}
	for _, f := range l.prefixes() {
		if f.Objects == 0 || f.Complete || f.OlderThan[90].Objects != f.Objects || f.OlderThan[180].Objects != 0 ||
			f.Class != "STANDARD" {
			t.Errorf("%s: %+v", f.Name, f)
		}
	}
	if got := len(l.prefixes()); got != 3 {
		t.Errorf("%d prefixes, want 3", got)
	}
}

func TestBucketSize(t *testing.T) {
	at := func(daysAgo int, v float64) point { return point{now.Truncate(day).AddDate(0, 0, -daysAgo), v} }
	for _, tc := range []struct {
		name     string
		readings map[string]point
		classes  map[string]int64
		objects  inventory.Fact[int64]
	}{
		{name: "by class, overheads where they are charged", readings: map[string]point{
			"StandardStorage": at(1, 10), "GlacierStorage": at(1, 100), "GlacierObjectOverhead": at(1, 4),
			"GlacierS3ObjectOverhead": at(1, 1), allTypes: at(1, 3),
		}, classes: map[string]int64{"STANDARD": 11, "GLACIER": 104}, objects: inventory.Known[int64](3)},
		{
			name:     "a class that is gone",
			readings: map[string]point{"StandardStorage": at(3, 10), "GlacierStorage": at(1, 100)},
			classes:  map[string]int64{"GLACIER": 100},
		},
		{
			name: "a class that comes a day late", readings: map[string]point{
				"StandardStorage": at(2, 10), "GlacierStorage": at(1, 100),
			},
			classes: map[string]int64{"STANDARD": 10, "GLACIER": 100}},
		{
			name: "an unknown class", readings: map[string]point{"NewStorage": at(1, 5)},
			classes: map[string]int64{"NewStorage": 5},
		},
		{name: "only a number of objects", readings: map[string]point{allTypes: at(1, 3)}},
		{name: "nothing", readings: nil},
	} {
		got := sizeOf(tc.readings)
		if tc.classes == nil {
			if got != nil {
				t.Errorf("%s: got %+v, want it unknown", tc.name, got)
			}
			continue
		}
		if got == nil || fmt.Sprint(got.classes) != fmt.Sprint(tc.classes) || got.objects != tc.objects {
			t.Errorf("%s: got %+v, want %v", tc.name, got, tc.classes)
		}
	}
}

func TestSizesFromListings(t *testing.T) {
	listed := &listing{complete: true, classes: map[string]inventory.Stored{"STANDARD": {Bytes: 10, Objects: 1}}}
	for _, tc := range []struct {
		name      string
		versioned inventory.Fact[bool]
		versions  *versionSum
		want      int64 // -1: unknown
	}{
		{"without versions", inventory.Known(false), nil, 10},
		{
			"with all versions", inventory.Known(true),
			&versionSum{
				Listing: inventory.Listing{Stored: inventory.Stored{Bytes: 5, Objects: 1}, Complete: true},
				classes: map[string]int64{"STANDARD": 5},
			},
			15,
		},
		{"with some versions", inventory.Known(true), &versionSum{classes: map[string]int64{"STANDARD": 5}}, -1},
		{"with unreadable versions", inventory.Known(true), nil, -1},
		{"unknown whether it keeps versions", inventory.Fact[bool]{}, nil, -1},
	} {
		d := &inventory.Bucket{Versioned: tc.versioned}
		fillSizes(d, listed, tc.versions)
		sizes, known := d.Sizes.Get()
		if known != (tc.want >= 0) || (known && sizes["STANDARD"] != tc.want) {
			t.Errorf("%s: got %v, known %v; want %d", tc.name, sizes, known, tc.want)
		}
	}
	if !slices.Contains(ages, 90) {
		t.Error("the ages do not hold the 90 days of the archive rule")
	}
}
