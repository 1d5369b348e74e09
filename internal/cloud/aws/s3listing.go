package aws

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

const (
	standardClass = "STANDARD"
	// smallObject is the minimum billed size in infrequent access, and the size under which
	// lifecycle rules leave objects in place.
	smallObject = 128 << 10
	// maxPrefixes bounds the top-level prefixes of a bucket that are distinguished.
	maxPrefixes = 200
)

// ages are the days by which a listing counts older objects.
var ages = []int{30, 90, 180}

// listing is the result of a bounded listing of a bucket.
type listing struct {
	now      time.Time
	rules    []reaching
	complete bool
	// seenBy names the source of the objects.
	seenBy   string
	byPrefix map[string]*prefix
	crowded  bool // there are more prefixes than maxPrefixes
	classes  map[string]inventory.Stored
	// whole is the Storage Class Analysis of the whole bucket, wholeBy its day; analyzedBy names
	// the analyses used for prefixes.
	whole               *inventory.Prefix
	wholeBy, analyzedBy string
}

// prefix is the content under one top-level prefix.
type prefix struct {
	inventory.Prefix
	classes map[string]int64 // objects by storage class
	after   string           // the last listed key, after which the listing continues
}

// largeFactor multiplies the bound of calls for a bucket of at least largeBucket, whose possible
// saving justifies them.
const (
	largeFactor = 20
	largeBucket = 1 << 40
)

// prefixes lists a bucket within the bound. A small bucket takes one call. For a large one it reads
// the first page, one list of the top-level prefixes, and then pages of each prefix in turn, so
// that the first prefix does not use up all pages.
func (p *place) prefixes(ctx context.Context, bucket string, size *bucketSize, rules []reaching) (*listing, bool) {
	l := newListing(p.now(), rules)
	budget, calls := p.scan.cloud.options.ListPages, 0
	if size != nil && size.classes[standardClass] >= largeBucket {
		budget *= largeFactor
	}
	defer func() { l.seenBy = "listing of " + plain.Count(calls, "call") }()
	list := func(in *s3.ListObjectsV2Input) (*s3.ListObjectsV2Output, bool) {
		in.Bucket, in.MaxKeys = &bucket, awssdk.Int32(objectsPage)
		out, err := s3Client(p.reading).ListObjectsV2(ctx, in)
		p.missed(ctx, "s3:ListObjectsV2", bucket, err)
		budget--
		calls++
		return out, err == nil
	}
	out, ok := list(&s3.ListObjectsV2Input{})
	if !ok {
		return nil, false
	}
	last := l.add(out.Contents)
	if !awssdk.ToBool(out.IsTruncated) {
		l.finish()
		return l, true
	}
	if budget <= 0 {
		l.closeBefore(last)
		return l, true
	}
	names, ok := list(&s3.ListObjectsV2Input{Delimiter: awssdk.String("/")})
	if !ok {
		l.closeBefore(last)
		return l, true
	}
	l.roots(names, last)
	l.closeBefore(last)
	for budget > 0 {
		open := l.open()
		if len(open) == 0 {
			break
		}
		for _, f := range open {
			if budget <= 0 {
				break
			}
			in := &s3.ListObjectsV2Input{Prefix: awssdk.String(f.Name)}
			if f.after != "" {
				in.StartAfter = awssdk.String(f.after)
			}
			out, ok := list(in)
			if !ok {
				return l, true
			}
			before := f.after
			l.add(out.Contents)
			f.Complete = !awssdk.ToBool(out.IsTruncated)
			if !f.Complete && f.after == before {
				p.missed(ctx, "s3:ListObjectsV2", bucket,
					errors.New("the page after "+strconv.Quote(before)+" is said to follow, and does not"))
				return l, true
			}
		}
	}
	l.complete = !awssdk.ToBool(names.IsTruncated) && !l.crowded && len(l.open()) == 0
	return l, true
}

func newListing(now time.Time, rules []reaching) *listing {
	return &listing{now: now, rules: rules, byPrefix: map[string]*prefix{}, classes: map[string]inventory.Stored{}}
}

// topPrefix returns the part of a key up to and including its first slash; empty without one.
func topPrefix(key string) string {
	if i := strings.IndexByte(key, '/'); i >= 0 {
		return key[:i+1]
	}
	return ""
}

func (l *listing) prefix(name string) *prefix {
	f := l.byPrefix[name]
	if f == nil {
		if len(l.byPrefix) >= maxPrefixes {
			l.crowded = true
			return nil
		}
		f = &prefix{
			Prefix: inventory.Prefix{Name: name, OlderThan: map[int]inventory.Stored{}}, classes: map[string]int64{},
		}
		l.byPrefix[name] = f
	}
	return f
}

// add counts objects and returns the last key.
func (l *listing) add(objects []types.Object) (last string) {
	for _, o := range objects {
		last = awssdk.ToString(o.Key)
		size := awssdk.ToInt64(o.Size)
		class := firstOf(string(o.StorageClass), standardClass)
		l.classes[class] = plus(l.classes[class], size)
		f := l.prefix(topPrefix(last))
		if f == nil {
			continue
		}
		f.after = last
		f.Stored = plus(f.Stored, size)
		f.classes[class]++
		modified := utc(o.LastModified)
		if !modified.IsZero() {
			if f.Oldest.IsZero() || modified.Before(f.Oldest) {
				f.Oldest = modified
			}
			if modified.After(f.Newest) {
				f.Newest = modified
			}
		}
		switch class {
		case standardClass:
		case string(types.ObjectStorageClassIntelligentTiering):
			f.Tiered = plus(f.Tiered, size)
			continue
		case string(types.ObjectStorageClassGlacierIr):
			f.Instant = plus(f.Instant, size)
			continue
		default:
			continue
		}
		f.Standard = plus(f.Standard, size)
		if size < smallObject {
			f.Small = plus(f.Small, size)
			continue
		}
		switch reaches(l.rules, last, size) {
		case reached:
			f.CoveredByRules = plus(f.CoveredByRules, size)
			continue
		case perhaps:
			f.PossiblyCovered = plus(f.PossiblyCovered, size)
			continue
		}
		for _, days := range ages {
			if !modified.IsZero() && l.now.Sub(modified) >= time.Duration(days)*24*time.Hour {
				f.OlderThan[days] = plus(f.OlderThan[days], size)
			}
		}
	}
	return last
}

func plus(s inventory.Stored, size int64) inventory.Stored {
	return inventory.Stored{Bytes: s.Bytes + size, Objects: s.Objects + 1}
}

// roots adds the list of top-level prefixes, and objects outside of them after the last listed key.
func (l *listing) roots(out *s3.ListObjectsV2Output, last string) {
	for _, c := range out.CommonPrefixes {
		l.prefix(awssdk.ToString(c.Prefix))
	}
	var fresh []types.Object
	for _, o := range out.Contents {
		if awssdk.ToString(o.Key) > last {
			fresh = append(fresh, o)
		}
	}
	l.add(fresh)
	if f := l.byPrefix[""]; f != nil {
		f.Complete = !awssdk.ToBool(out.IsTruncated)
	}
}

// closeBefore marks the prefixes before the last key of the first page as complete, because keys
// are listed in order.
func (l *listing) closeBefore(last string) {
	for name, f := range l.byPrefix {
		if name != "" && name < last && !strings.HasPrefix(last, name) {
			f.Complete = true
		}
	}
}

// finish marks everything as complete.
func (l *listing) finish() {
	l.complete = true
	for _, f := range l.byPrefix {
		f.Complete = true
	}
}

// open returns the incomplete prefixes by name.
func (l *listing) open() []*prefix {
	var out []*prefix
	for _, name := range slices.Sorted(maps.Keys(l.byPrefix)) {
		if f := l.byPrefix[name]; !f.Complete && name != "" {
			out = append(out, f)
		}
	}
	return out
}

// prefixes returns the listed prefixes, by name.
func (l *listing) prefixes() []inventory.Prefix {
	out := make([]inventory.Prefix, 0, len(l.byPrefix))
	for _, name := range slices.Sorted(maps.Keys(l.byPrefix)) {
		f := l.byPrefix[name]
		most := slices.SortedFunc(maps.Keys(f.classes), func(a, b string) int {
			return cmp.Or(cmp.Compare(f.classes[b], f.classes[a]), cmp.Compare(a, b))
		})
		if len(most) > 0 {
			f.Class = most[0]
		}
		out = append(out, f.Prefix)
	}
	return out
}
