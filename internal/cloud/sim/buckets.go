package sim

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

const (
	gib = int64(1) << 30
	tib = int64(1) << 40
)

// folder is the content of one prefix of a bucket: sizes spread evenly over the ages of its
// objects.
type folder struct {
	name    string
	bytes   int64
	objects int64
	// small is how many of the objects are under 128 KiB.
	small          int64
	newest, oldest float64 // days ago
	class          string
}

// pail is a bucket to be made.
type pail struct {
	name, region string
	owner        owner
	age          float64
	folders      []folder
	lifecycle    []change.Rule
	versioned    bool
	// noncurrent is the size of replaced versions; uploads counts the multipart uploads that were
	// never completed, with their size.
	noncurrent inventory.Stored
	uploads    int
	uploaded   int64
	planted    Planted
}

// kept is the lifecycle of a bucket that is looked after.
func kept(noncurrentDays int, transitions ...change.Transition) []change.Rule {
	return []change.Rule{{ID: "keep-tidy", Transitions: transitions, NoncurrentDays: noncurrentDays, AbortDays: 7}}
}

// setLifecycle gives a bucket a lifecycle; an empty document takes it away.
func setLifecycle(b *inventory.Bucket, document string) {
	rules, err := change.Rules(document)
	if err != nil {
		panic("read a lifecycle of the simulated account: " + err.Error()) // it was written here
	}
	known := []inventory.LifecycleRule{}
	for _, r := range rules {
		k := inventory.LifecycleRule{ID: r.ID, Enabled: true, Prefix: r.Prefix, TransitionDays: map[string]int{},
			ExpirationDays: r.ExpireDays, NoncurrentExpirationDays: r.NoncurrentDays, AbortMultipartDays: r.AbortDays}
		for _, t := range r.Transitions {
			k.TransitionDays[t.Class] = t.Days
		}
		known = append(known, k)
	}
	b.Lifecycle, b.LifecycleDocument, b.MinimumSize = inventory.Known(known), inventory.Known(document), ""
	if document != "" {
		b.MinimumSize = "all_storage_classes_128K"
	}
}

// buckets adds the object store.
func (a *account) buckets() {
	for _, p := range []pail{
		{
			name: "acme-vision-datasets", region: east, owner: ana.as("dataset"), age: 760,
			folders: []folder{
				{"imagenet", 21 * tib, 310_000, 1200, 190, 700, "STANDARD"},
				{"raw-video", 46 * tib, 92_000, 0, 4, 540, "STANDARD"},
				{"defect-frames", 17 * tib, 1_900_000, 240_000, 1, 210, "STANDARD"},
			},
			planted: waste("84 TB in Standard, most of it read last year, and no lifecycle", "bucket-no-lifecycle"),
		},
		{
			name: "acme-llm-checkpoints", region: west, owner: dmitri.as("artifacts"), age: 420, versioned: true,
			folders: []folder{
				{"sft-a100", 11 * tib, 5200, 300, 0, 30, "STANDARD"},
				{"checkpoints-llama-7b", 13 * tib, 6100, 400, 128, 330, "STANDARD"},
				{"checkpoints-moe-pilot", 8 * tib, 2900, 100, 210, 400, "STANDARD"},
			},
			lifecycle:  []change.Rule{{ID: "abort", AbortDays: 7}},
			noncurrent: inventory.Stored{Bytes: 9 * tib, Objects: 4100},
			planted: waste("checkpoints of runs that ended months ago, and every overwritten version",
				"checkpoint-stale", "bucket-noncurrent"),
		},
		{
			name: "acme-experiments", region: east, owner: fatima.as("experiment"), age: 610,
			folders: []folder{
				{"experiments", 14 * tib, 2_300_000, 1_100_000, 0, 580, "STANDARD"},
				{"tmp", 3 * tib, 40_000, 9000, 20, 500, "STANDARD"},
			},
			uploads: 318, uploaded: 2 * tib,
			planted: waste("experiments of two years, and uploads that never ended",
				"bucket-no-lifecycle", "bucket-multipart"),
		},
		{
			name: "acme-ranking-features", region: ireland, owner: goran.production().as("data"), age: 510,
			folders: []folder{
				{"daily", 19 * tib, 160_000, 2000, 0, 400, "STANDARD"},
				{"archive", 24 * tib, 52_000, 0, 91, 500, "GLACIER"},
			},
			lifecycle: kept(0, change.Transition{Days: 30, Class: "STANDARD_IA"},
				change.Transition{Days: 90, Class: "GLACIER"}),
			planted: honest("a bucket that is looked after"),
		},
		{
			name: "acme-model-artifacts", region: east, owner: ops.production().as("artifacts"),
			age: 690, versioned: true,
			folders:    []folder{{"releases", 2 * tib, 3100, 200, 1, 600, "STANDARD"}},
			lifecycle:  kept(30, change.Transition{Days: 60, Class: "STANDARD_IA"}),
			noncurrent: inventory.Stored{Bytes: 120 * gib, Objects: 210},
			planted:    honest("a bucket that is looked after"),
		},
		{
			name: "acme-access-logs", region: east, owner: ops.production(), age: 690,
			folders:   []folder{{"alb", 600 * gib, 410_000, 380_000, 0, 89, "STANDARD"}},
			lifecycle: []change.Rule{{ID: "expire", ExpireDays: 90, AbortDays: 7}},
			planted:   honest("expires after 90 days"),
		},
		{
			name: "nmt-scratch", region: west, owner: owner{care: careless}, age: 470,
			folders: []folder{
				{"corpora", 6 * tib, 71_000, 800, 160, 460, "STANDARD"},
				{"dumps", 2 * tib, 900, 0, 230, 430, "STANDARD"},
			},
			planted: waste("unowned, and not read for half a year", "bucket-no-lifecycle"),
		},
	} {
		a.bucket(p)
	}
}

func (a *account) bucket(p pail) {
	sizes := map[string]int64{}
	var objects int64
	prefixes := make([]inventory.Prefix, 0, len(p.folders))
	for _, f := range p.folders {
		sizes[f.class] += f.bytes
		objects += f.objects
		prefixes = append(prefixes, a.prefix(f))
	}
	sizes["STANDARD"] += p.noncurrent.Bytes + p.uploaded
	d := &inventory.Bucket{
		Versioned: inventory.Known(p.versioned), Sizes: inventory.Known(sizes),
		Objects: inventory.Known(objects + p.noncurrent.Objects), Prefixes: inventory.Known(prefixes),
		Uploads:   inventory.Known(inventory.Uploads{Complete: true}),
		MFADelete: inventory.Known(false), ObjectLock: inventory.Known(inventory.ObjectLock{}),
		ReplicatesTo: inventory.Known([]string{}), ReplicatedFrom: inventory.Known([]string{}),
	}
	setLifecycle(d, change.WriteRules(p.lifecycle))
	if p.versioned {
		d.Noncurrent = inventory.Known(inventory.Listing{Stored: p.noncurrent, Complete: true})
	}
	if p.uploads > 0 {
		d.Uploads = inventory.Known(inventory.Uploads{
			Count: p.uploads, Bytes: inventory.Known(p.uploaded), Oldest: a.ago(days(p.age - 40)), Complete: true})
	}
	a.add(inventory.Resource{
		ID: p.name, Name: p.name, Kind: inventory.KindBucket, Region: p.region, State: inventory.StateAvailable,
		CreatedAt: a.ago(days(p.age)), Detail: d,
	}, "", 0, p.owner, p.planted)
}

func (a *account) prefix(f folder) inventory.Prefix {
	// A small object is 40 KiB on average.
	small := inventory.Stored{Bytes: f.small * 40 << 10, Objects: f.small}
	older := map[int]inventory.Stored{}
	for _, age := range []int{30, 90, 180} {
		share := (f.oldest - float64(age)) / (f.oldest - f.newest)
		if share = min(max(share, 0), 1); share > 0 {
			older[age] = inventory.Stored{
				Bytes:   int64(float64(f.bytes-small.Bytes) * share),
				Objects: int64(float64(f.objects-small.Objects) * share),
			}
		}
	}
	return inventory.Prefix{
		Name: f.name + "/", Listing: inventory.Listing{
			Stored: inventory.Stored{Bytes: f.bytes, Objects: f.objects}, Complete: true,
		},
		Small: small, OlderThan: older, Newest: a.ago(days(f.newest) + 25*time.Minute), Oldest: a.ago(days(f.oldest)),
		Class: f.class,
	}
}

// keepsTen is the lifecycle of a repository that is looked after.
const keepsTen = `{"rules":[{"rulePriority":1,"selection":{"tagStatus":"any","countType":"imageCountMoreThan","countNumber":10},"action":{"type":"expire"}}]}`

// digests names images of a repository.
func digests(repository string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "%s %d", repository, i)))
	}
	slices.Sort(out)
	return out
}

// registries adds image repositories and log groups.
func (a *account) registries() {
	for _, x := range []struct {
		name                           string
		region                         string
		owner                          owner
		images, untagged, unpulled     int
		bytes, untaggedGiB, unpulledGB int64
		policy                         bool
		planted                        Planted
	}{
		{"vision/train", east, ana, 214, 151, 38, 1450 * gib, 980, 260, false,
			waste("every build of two years", "repository-no-lifecycle", "repository-untagged")},
		{"language/serve", east, dmitri, 96, 41, 22, 1100 * gib, 460, 270, false,
			waste("images of 11 GB each, none ever removed", "repository-no-lifecycle", "repository-untagged")},
		{"language/train", west, emeka, 44, 0, 9, 380 * gib, 0, 70, true, honest("a policy keeps the last builds")},
		{"ranking/ranker", east, goran, 31, 2, 0, 160 * gib, 9, 0, true, honest("a policy keeps the last builds")},
		{"ranking/features", ireland, hana, 78, 0, 51, 240 * gib, 0, 150, false,
			waste("no policy, most images unused for a quarter", "repository-no-lifecycle")},
		{"platform/base", east, ops, 18, 0, 0, 90 * gib, 0, 0, true, honest("a policy keeps the last builds")},
	} {
		document := ""
		if x.policy {
			document = keepsTen
		}
		a.add(inventory.Resource{
			ID: x.name, Name: x.name, Kind: inventory.KindRepository, Region: x.region,
			State:     inventory.StateAvailable,
			CreatedAt: a.ago(days(500)),
			Detail: &inventory.Repository{
				Images: x.images, UntaggedImages: x.untagged, UnpulledImages: x.unpulled,
				LifecyclePolicy:   inventory.Known(x.policy),
				LifecycleDocument: inventory.Known(document), UntaggedDigests: digests(x.name, x.untagged),
				Bytes: inventory.Known(x.bytes), UntaggedBytes: inventory.Known(x.untaggedGiB * gib),
				UnpulledBytes: inventory.Known(x.unpulledGB * gib),
			},
		}, "", 0, x.owner, x.planted)
	}
	for _, x := range []struct {
		name, region string
		gib          int64
		retention    int
		owner        owner
		planted      Planted
	}{
		{
			"/aws/sagemaker/TrainingJobs", east, 412, 0, ops,
			waste("training logs kept without expiry", "log-group-no-retention"),
		},
		{
			"/aws/sagemaker/Endpoints/feed-ranker", east, 230, 0, goran,
			waste("request logs kept without expiry", "log-group-no-retention"),
		},
		{
			"/ml/nmt/trainer", west, 96, 0, emeka,
			waste("logs of training kept without expiry", "log-group-no-retention"),
		},
		{"/ml/ctr/features", ireland, 64, 90, hana, honest("kept for 90 days")},
		{"/ml/console", east, 21, 30, ops, honest("kept for 30 days")},
		{"/aws/lambda/label-hook", east, 3, 14, ben, honest("kept for 14 days")},
		{"/ecs/rag-gateway", east, 48, 60, fatima, honest("kept for 60 days")},
	} {
		a.add(inventory.Resource{
			ID: x.name, Name: x.name, Kind: inventory.KindLogGroup, Region: x.region, State: inventory.StateAvailable,
			CreatedAt: a.ago(days(480)),
			Detail: &inventory.LogGroup{
				StoredBytes: inventory.Known(x.gib * gib), RetentionDays: inventory.Known(x.retention),
			},
		}, "", 0, x.owner, x.planted)
	}
}
