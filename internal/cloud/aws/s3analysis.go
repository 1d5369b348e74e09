package aws

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

const (
	// analysisBytes bounds one export in bytes: 13 age groups and a few classes a day, for years.
	analysisBytes = 64 << 20
	// maxAnalyses bounds the exports read per bucket.
	maxAnalyses = 20
	// analysisMB is the unit of an export's columns.
	analysisMB = 1 << 20
	// readDays is the number of days over which reads are summed.
	readDays = 30
)

// analysisColumns are the columns of an export in their order, for files without a header
// (Amazon S3 User Guide, "Exported file layout").
var analysisColumns = []string{
	"Date", "ConfigId", "Filter", "StorageClass", "ObjectAge", "ObjectCount", "DataUploaded_MB", "Storage_MB",
	"DataRetrieved_MB",
}

// errNoAnalysis is returned if an export lacks the ages of the standard class.
var errNoAnalysis = errors.New("it lacks the size of the standard class by age")

// analysis is the newest day of an export.
type analysis struct {
	day time.Time
	// total is the size of all classes, standard of the standard class, and small of its objects
	// under 128 KiB, whose number is zero if unknown.
	total, standard, small inventory.Stored
	// older is the size of the standard class above each of ages, and read the part of it that was
	// read in the last 30 days. An age group that spans an age counts as younger.
	older map[int]inventory.Stored
	read  map[int]int64
	// since is the first day of the export, and lastRead the last day with reads of objects of the
	// standard class above the lowest of ages; zero if never.
	since, lastRead time.Time
}

// ageGroup is an age group of a class on a day.
type ageGroup struct {
	day       time.Time
	class     string
	all       bool
	from      int
	held      inventory.Stored
	retrieved int64
}

// readAnalysis reads the export of a configuration.
func readAnalysis(r io.Reader, id string) (*analysis, error) {
	rows := csv.NewReader(io.LimitReader(r, analysisBytes))
	rows.ReuseRecord, rows.FieldsPerRecord, rows.TrimLeadingSpace = true, -1, true
	column := map[string]int{}
	for i, name := range analysisColumns {
		column[name] = i
	}
	type key struct {
		day   time.Time
		class string
		from  int
	}
	groups := map[key]ageGroup{}
	newest := time.Time{}
	for first := true; ; first = false {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if first && slices.Contains(row, "StorageClass") {
			for i, name := range row {
				column[strings.TrimPrefix(strings.TrimSpace(name), "\ufeff")] = i
			}
			continue
		}
		g, named, err := analysisRow(row, column)
		if err != nil {
			return nil, err
		}
		if named != id {
			continue
		}
		from := g.from
		if g.all {
			from = -1
		}
		groups[key{g.day, g.class, from}] = g // a later row of the same group replaces an earlier one
		if g.day.After(newest) {
			newest = g.day
		}
	}
	return sumAnalysis(groups, newest)
}

// sumAnalysis sums the groups of the newest day, and the reads before it.
func sumAnalysis[K comparable](groups map[K]ageGroup, newest time.Time) (*analysis, error) {
	a := &analysis{day: newest, older: map[int]inventory.Stored{}, read: map[int]int64{}}
	aged := inventory.Stored{}
	told, all := false, false
	for _, g := range groups {
		recent := g.day.After(newest.AddDate(0, 0, -readDays))
		if a.since.IsZero() || g.day.Before(a.since) {
			a.since = g.day
		}
		if !g.all && g.class == standardClass && g.from >= slices.Min(ages) && g.retrieved > 0 &&
			g.day.After(a.lastRead) {
			a.lastRead = g.day
		}
		for _, age := range ages {
			if !g.all && g.class == standardClass && g.from >= age && recent {
				a.read[age] = saturated(a.read[age], g.retrieved)
			}
		}
		if !g.day.Equal(newest) {
			continue
		}
		if g.all {
			a.total = both(a.total, g.held)
		}
		switch {
		case g.class != standardClass:
		case g.all:
			a.standard, all = g.held, true
		default:
			told = true
			aged = both(aged, g.held)
			for _, age := range ages {
				if g.from >= age {
					a.older[age] = both(a.older[age], g.held)
				}
			}
		}
	}
	if !all || !told || a.standard.Bytes > 0 && a.standard.Objects == 0 {
		return nil, errNoAnalysis
	}
	a.small = inventory.Stored{Bytes: max(0, a.standard.Bytes-aged.Bytes)}
	if aged.Objects > 0 || aged.Bytes == 0 {
		a.small.Objects = max(0, a.standard.Objects-aged.Objects)
	}
	return a, nil
}

func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func both(a, b inventory.Stored) inventory.Stored {
	return inventory.Stored{Bytes: saturated(a.Bytes, b.Bytes), Objects: saturated(a.Objects, b.Objects)}
}

// analysisRow parses a row.
func analysisRow(row []string, column map[string]int) (g ageGroup, id string, err error) {
	field := func(name string) string {
		if i, ok := column[name]; ok && i < len(row) {
			return strings.TrimSpace(row[i])
		}
		return ""
	}
	number := func(name string, unit float64) (n int64) {
		text := field(name)
		if text == "" || err != nil {
			return 0
		}
		v, bad := strconv.ParseFloat(text, 64)
		if v *= unit; bad != nil || math.IsNaN(v) || v < 0 || v >= math.MaxInt64 {
			err = fmt.Errorf("%s: %q is no amount", name, text)
			return 0
		}
		return int64(v)
	}
	g.class, id = field("StorageClass"), field("ConfigId")
	g.held = inventory.Stored{Bytes: number("Storage_MB", analysisMB), Objects: number("ObjectCount", 1)}
	g.retrieved = number("DataRetrieved_MB", analysisMB)
	if err != nil {
		return g, id, err
	}
	if g.day, err = time.Parse("01-02-2006", field("Date")); err != nil {
		return g, id, fmt.Errorf("the date %q is not MM-DD-YYYY", field("Date"))
	}
	age := field("ObjectAge")
	if g.all = age == "ALL"; g.all {
		return g, id, nil
	}
	from, _, _ := strings.Cut(strings.TrimSuffix(age, "+"), "-")
	if g.from, err = strconv.Atoi(from); err != nil || g.from < 0 {
		return g, id, fmt.Errorf("the age group %q is none", age)
	}
	return g, id, nil
}

// analyzed adds ages of objects beyond a bounded listing from exports of Storage Class Analysis, of
// the whole bucket and of top-level prefixes, if there are any.
func (p *place) analyzed(ctx context.Context, bucket string, l *listing) {
	in := &s3.ListBucketAnalyticsConfigurationsInput{Bucket: &bucket}
	reads := 0
	for range p.scan.cloud.options.ListPages {
		out, err := s3Client(p.reading).ListBucketAnalyticsConfigurations(ctx, in)
		p.missed(ctx, "s3:ListBucketAnalyticsConfigurations", bucket, err)
		if err != nil {
			return
		}
		for _, c := range out.AnalyticsConfigurationList {
			of, ok := analyzedPrefix(c)
			// the listing takes precedence
			if f := l.byPrefix[of]; !ok || of != "" &&
				(f == nil || f.Complete || l.ruled(of)) || reads >= maxAnalyses {
				continue
			}
			reads++
			a, err := p.export(ctx, bucket, c)
			switch {
			case err == nil:
				l.take(of, a)
			case ctx.Err() != nil:
				return
			case !errors.Is(err, errNotRecent):
				p.notAnalyzed(bucket, err)
			}
		}
		if !awssdk.ToBool(out.IsTruncated) || awssdk.ToString(out.NextContinuationToken) == "" {
			return
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// analyzedPrefix returns the prefix that a configuration analyzes and exports; empty for the whole
// bucket. Configurations filtered by tags are not comparable with a listing.
func analyzedPrefix(c types.AnalyticsConfiguration) (prefix string, ok bool) {
	if c.StorageClassAnalysis == nil || c.StorageClassAnalysis.DataExport == nil ||
		c.StorageClassAnalysis.DataExport.Destination == nil ||
		c.StorageClassAnalysis.DataExport.Destination.S3BucketDestination == nil {
		return "", false
	}
	switch f := c.Filter.(type) {
	case nil:
		return "", true
	case *types.AnalyticsFilterMemberPrefix:
		return f.Value, true
	}
	return "", false
}

func (p *place) notAnalyzed(bucket string, err error) {
	why := "its Storage Class Analysis is passed over: "
	if code, _ := reason(err); is(err, "AccessDenied") {
		why += code + ": s3:ListBucket and s3:GetObject on PREFIX/BUCKET/*.csv where the export is"
	} else {
		why += err.Error()
	}
	p.partly(partialKey{"s3 " + p.String(), why, "the ages of what the listing did not reach are not known"}, "bucket",
		bucket)
}

// export reads the newest export of a configuration.
func (p *place) export(ctx context.Context, bucket string, c types.AnalyticsConfiguration) (*analysis, error) {
	to := c.StorageClassAnalysis.DataExport.Destination.S3BucketDestination
	from, root := bucketOfARN(awssdk.ToString(to.Bucket)), bucket+"/"
	if prefix := strings.TrimSuffix(awssdk.ToString(to.Prefix), "/"); prefix != "" {
		root = prefix + "/" + root
	}
	root += awssdk.ToString(c.Id)
	list, err := s3Client(p.reading).ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &from, Prefix: &root})
	if err != nil {
		return nil, err
	}
	newest := types.Object{}
	for _, o := range list.Contents {
		if strings.HasSuffix(awssdk.ToString(o.Key), ".csv") && utc(o.LastModified).After(utc(newest.LastModified)) {
			newest = o
		}
	}
	if newest.Key == nil || p.now().Sub(utc(newest.LastModified)) > inventoryAge {
		return nil, errNotRecent
	}
	body, err := p.object(ctx, from, *newest.Key)
	if err != nil {
		return nil, err
	}
	a, err := readAnalysis(body, awssdk.ToString(c.Id))
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, err
	}
	if age := p.now().Sub(a.day); age > inventoryAge || age < -day {
		return nil, errNotRecent
	}
	return a, nil
}

// ruled reports whether a lifecycle rule may move objects under a prefix.
func (l *listing) ruled(prefix string) bool {
	for i := range l.rules {
		if at := l.rules[i].prefix; strings.HasPrefix(prefix, at) || strings.HasPrefix(at, prefix) {
			return true
		}
	}
	return false
}

// take replaces the listing of a prefix by an analysis, or adds an analysis of the whole bucket. It
// lacks the writer of the last object.
func (l *listing) take(of string, a *analysis) {
	by := "Storage Class Analysis of " + a.day.Format(time.DateOnly)
	p := inventory.Prefix{
		Name: of, Listing: inventory.Listing{Stored: a.total, Complete: true}, Standard: a.standard, Small: a.small,
		OlderThan: a.older, ReadBytes: a.read, Class: standardClass, LastRead: a.lastRead, ReadsSince: a.since,
	}
	if of == "" {
		l.whole, l.wholeBy = &p, by
		return
	}
	f := l.byPrefix[of]
	f.Prefix, f.classes = p, map[string]int64{standardClass: a.standard.Objects}
	if !strings.Contains(l.analyzedBy, by) {
		l.analyzedBy += ", " + by
	}
}
