package aws

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

const (
	bucketNamespace = "AWS/S3"
	bytesMetric     = "BucketSizeBytes"
	objectsMetric   = "NumberOfObjects"
	allTypes        = "AllStorageTypes"
	// sizeSpan is the lookback for a bucket's daily size, which is published a day late or more.
	sizeSpan = 4 * 24 * time.Hour
	day      = 24 * time.Hour
)

// storageTypes maps storage types of S3's daily metrics to the class with the same price; automatic
// tiers have the prices of the classes with the same access. The overhead of an archived object has
// documented prices: its index entry as the archive, its name as Standard; parts of uploads cost as
// Standard. (Amazon S3 User Guide, "Metrics and dimensions".)
var storageTypes = map[string]string{
	"StandardStorage":                     standardClass,
	"StandardIAStorage":                   "STANDARD_IA",
	"StandardIASizeOverhead":              "STANDARD_IA",
	"StandardIAObjectOverhead":            "STANDARD_IA",
	"OneZoneIAStorage":                    "ONEZONE_IA",
	"OneZoneIASizeOverhead":               "ONEZONE_IA",
	"ReducedRedundancyStorage":            "REDUCED_REDUNDANCY",
	"GlacierInstantRetrievalStorage":      "GLACIER_IR",
	"GlacierIRSizeOverhead":               "GLACIER_IR",
	"GlacierInstantRetrievalSizeOverhead": "GLACIER_IR",
	"GlacierStorage":                      "GLACIER",
	"GlacierObjectOverhead":               "GLACIER",
	"GlacierS3ObjectOverhead":             standardClass,
	"GlacierStagingStorage":               standardClass,
	"DeepArchiveStorage":                  "DEEP_ARCHIVE",
	"DeepArchiveObjectOverhead":           "DEEP_ARCHIVE",
	"DeepArchiveS3ObjectOverhead":         standardClass,
	"DeepArchiveStagingStorage":           standardClass,
	"IntelligentTieringFAStorage":         "INTELLIGENT_TIERING",
	"IntelligentTieringIAStorage":         "STANDARD_IA",
	"IntelligentTieringAAStorage":         "GLACIER",
	"IntelligentTieringAIAStorage":        "GLACIER_IR",
	"IntelligentTieringDAAStorage":        "DEEP_ARCHIVE",
	"IntAAObjectOverhead":                 "GLACIER",
	"IntAAS3ObjectOverhead":               standardClass,
	"IntDAAObjectOverhead":                "DEEP_ARCHIVE",
	"IntDAAS3ObjectOverhead":              standardClass,
	"ExpressOneZone":                      "EXPRESS_ONEZONE",
}

// bucketSize is the size of a bucket according to CloudWatch.
type bucketSize struct {
	classes map[string]int64
	objects inventory.Fact[int64]
}

func (s *bucketSize) total() int64 {
	var n int64
	for _, bytes := range s.classes {
		n += bytes
	}
	return n
}

// bucketSizes returns the sizes of buckets by CloudWatch. A bucket without metrics is absent: it is
// empty, new, or its metrics could not be read.
func (p *place) bucketSizes(ctx context.Context, buckets []string) map[string]*bucketSize {
	wanted := map[string][]string{} // storage types by bucket
	for _, b := range buckets {
		wanted[b] = nil
	}
	err := p.listMetrics(ctx, bucketNamespace, bytesMetric, func(m types.Metric) {
		d := tagged(m.Dimensions, func(d types.Dimension) (*string, *string) { return d.Name, d.Value })
		if types, ok := wanted[d["BucketName"]]; ok && d["StorageType"] != "" {
			wanted[d["BucketName"]] = append(types, d["StorageType"])
		}
	})
	if err != nil {
		op := index["cloudwatch:ListMetrics"]
		p.explain(ctx, op, err, "the size of buckets is asked for class by class")
		for _, b := range buckets {
			wanted[b] = slices.Sorted(maps.Keys(storageTypes))
		}
	}
	readings := map[string]map[string]point{} // newest by bucket and storage type
	b := batch{from: p.now().Truncate(day).Add(-sizeSpan), to: p.now(), period: day}
	for _, name := range buckets {
		if len(wanted[name]) == 0 {
			continue
		}
		owner := p.resource(inventory.KindBucket, name)
		read := func(metricName, storage string) {
			b.series = append(b.series, series{resource: owner,
				statistics: []statistic{
					{metric{bucketNamespace, metricName, dims("BucketName", name, "StorageType", storage)}, average},
				},
				fold: func(data [][]point) {
					for _, pt := range data[0] {
						if readings[name] == nil {
							readings[name] = map[string]point{}
						}
						if old, ok := readings[name][storage]; !ok || pt.at.After(old.at) {
							readings[name][storage] = pt
						}
					}
				}})
		}
		for _, storage := range wanted[name] {
			read(bytesMetric, storage)
		}
		read(objectsMetric, allTypes)
	}
	outcome := p.read(ctx, b)
	if outcome.err != nil {
		p.explain(ctx, index["cloudwatch:GetMetricData"], outcome.err,
			"the size of "+plain.Count(len(outcome.failed), "bucket")+" is not known from metrics")
	}
	sizes := map[string]*bucketSize{}
	unsized := map[string]bool{}
	for r := range outcome.failed {
		unsized[r.ID] = true
	}
	for name, byType := range readings {
		if !unsized[name] {
			if s := sizeOf(byType); s != nil {
				sizes[name] = s
			}
		}
	}
	return sizes
}

// sizeOf sums a bucket's newest readings by class; nil without any. A storage type whose newest
// reading is over a day older than the bucket's no longer exists.
func sizeOf(readings map[string]point) *bucketSize {
	var newest time.Time
	for storage, pt := range readings {
		if storage != allTypes && pt.at.After(newest) {
			newest = pt.at
		}
	}
	if newest.IsZero() {
		return nil
	}
	s := &bucketSize{classes: map[string]int64{}}
	for storage, pt := range readings {
		if storage == allTypes {
			if pt.value >= 0 {
				s.objects = inventory.Known(int64(pt.value))
			}
			continue
		}
		if newest.Sub(pt.at) > day || pt.value < 0 {
			continue
		}
		class := storageTypes[storage]
		if class == "" {
			class = storage // an unknown class has no price, which is reported
		}
		s.classes[class] += int64(pt.value)
	}
	return s
}
