package finding

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	tib     = 1 << 40
	bigSize = 10 * tib
)

func (f *fixture) volume(id, kind string, size int64,
	change ...func(*inventory.Resource, *inventory.Volume)) *inventory.Resource {
	d := &inventory.Volume{SizeGiB: size}
	r := inventory.Resource{
		ID: id, Kind: inventory.KindVolume, Type: kind, State: inventory.StateAvailable, CreatedAt: ago(60 * day),
		Detail: d,
	}
	for _, c := range change {
		c(&r, d)
	}
	return f.add(r)
}

func TestVolumes(t *testing.T) {
	attached := func(r *inventory.Resource, d *inventory.Volume) {
		r.State, d.AttachedTo = inventory.StateInUse, []string{"i-1"}
	}
	runScenarios(t, []scenario{
		{
			name:  "unattached, no I/O",
			build: func(f *fixture) { f.window(f.volume("vol-1", "gp3", 500), 14*day) },
			want:  []string{"volume-unattached vol-1 15.00 wasting 40.00"},
		},
		{
			name: "provisioned IOPS and throughput are saved too",
			build: func(f *fixture) {
				f.window(f.volume("vol-1", "gp3", 500, func(_ *inventory.Resource, d *inventory.Volume) {
					d.IOPS, d.ThroughputMiBps = 4000, 225
				}), 14*day)
			},
			want: []string{"volume-unattached vol-1 24.00 wasting 49.00"},
		},
		{
			name: "detached yesterday: its I/O says so",
			build: func(f *fixture) {
				w := f.window(f.volume("vol-1", "gp3", 500), 14*day)
				w.Add("", usage.DiskOps, usage.Point{Time: ago(26 * time.Hour), Mean: 12, Max: 12})
			},
		},
		{
			name: "I/O of zero was still published: it was attached two days ago",
			build: func(f *fixture) {
				w := f.window(f.volume("vol-1", "gp3", 500), 14*day)
				w.Add("", usage.DiskOps, usage.Point{Time: ago(2 * day)})
			},
		},
		{
			name:  "its metrics could not be read while others' could: unknown",
			build: func(f *fixture) { f.volume("vol-1", "gp3", 500); f.window(f.running("i-1", "m5.large"), 14*day) },
		},
		{
			name: "I/O nine days ago",
			build: func(f *fixture) {
				w := f.window(f.volume("vol-1", "gp3", 500), 14*day)
				w.Add("", usage.DiskOps, usage.Point{Time: ago(9 * day), Mean: 12, Max: 12})
			},
			want: []string{"volume-unattached vol-1 15.00 wasting 40.00"},
		},
		{
			name: "detached yesterday: its state says so",
			build: func(f *fixture) {
				f.window(f.volume("vol-1", "gp3", 500, func(r *inventory.Resource, _ *inventory.Volume) {
					r.StateSince = ago(day)
				}), 14*day)
			},
		},
		{
			name:  "no metric of the region was read: its I/O is unknown",
			build: func(f *fixture) { f.volume("vol-1", "gp3", 500) },
		},
		{
			name: "made three days ago",
			build: func(f *fixture) {
				f.window(f.volume("vol-1", "gp3", 500, func(r *inventory.Resource, _ *inventory.Volume) {
					r.CreatedAt = ago(3 * day)
				}), 14*day)
			},
		},
		{
			name: "kept",
			build: func(f *fixture) {
				f.window(f.volume("vol-1", "gp3", 500, func(r *inventory.Resource, _ *inventory.Volume) {
					r.KeepUntil = now.Add(day)
				}), 14*day)
			},
		},
		{
			name: "the data of a claim of Kubernetes: no more than a bound, and no waste",
			build: func(f *fixture) {
				f.window(f.volume("vol-1", "gp3", 500, func(r *inventory.Resource, d *inventory.Volume) {
					r.Manager, d.Claim = inventory.Manager{
						Kind: inventory.ManagerKubernetes, Name: "prod",
					}, "ml/data-db-0"
				}), 14*day)
			},
			want: []string{"volume-unattached vol-1 <=40.00"},
		},
		{
			name: "a volume of a service",
			build: func(f *fixture) {
				f.window(f.volume("vol-1", "gp3", 100, func(r *inventory.Resource, _ *inventory.Volume) {
					r.Manager = inventory.Manager{Kind: inventory.ManagerService, Name: "eks.amazonaws.com"}
				}), 14*day)
			},
			want: []string{"volume-unattached vol-1 <=8.00"},
		},
		{
			name:  "attached gp2 of 100 GiB",
			build: func(f *fixture) { f.volume("vol-1", "gp2", 100, attached) },
			want:  []string{"volume-gp2 vol-1 2.00 wasting 0.00"},
		},
		{
			// 500 GiB of gp2 sustain 250 MiB/s, of which gp3 includes 125.
			name:  "gp2 of 500 GiB: throughput must be bought",
			build: func(f *fixture) { f.volume("vol-1", "gp2", 500, attached) },
			want:  []string{"volume-gp2 vol-1 5.00 wasting 0.00"},
		},
		{
			// 2,000 GiB of gp2 have 6,000 IOPS, of which gp3 includes 3,000.
			name:  "gp2 of 2,000 GiB: IOPS must be bought too",
			build: func(f *fixture) { f.volume("vol-1", "gp2", 2000, attached) },
			want:  []string{"volume-gp2 vol-1 20.00 wasting 0.00"},
		},
		{
			name:  "an unattached gp2 volume is counted once",
			build: func(f *fixture) { f.window(f.volume("vol-1", "gp2", 100), 14*day) },
			want: []string{
				"volume-unattached vol-1 5.00 wasting 10.00", "volume-gp2 vol-1 0.00 after volume-unattached vol-1",
			},
		},
		{
			name: "a region without prices",
			build: func(f *fixture) {
				f.volume("vol-1", "gp2", 100, attached, func(r *inventory.Resource, _ *inventory.Volume) {
					r.Region = "mars-1"
				})
			},
			want: []string{"volume-gp2 vol-1 ?"},
		},
	})
}

// TestLeavesOutVolumesOfKubernetesClaims checks that no fix deletes the volume of a claim.
func TestLeavesOutVolumesOfKubernetesClaims(t *testing.T) {
	f := newFixture(t)
	f.window(f.volume("vol-1", "gp3", 500, func(r *inventory.Resource, d *inventory.Volume) {
		r.Manager, d.Claim = inventory.Manager{Kind: inventory.ManagerKubernetes}, "ml/data-db-0"
	}), 14*day)
	got := only(t, f.evaluate(), "volume-unattached")
	if got.Fix.Change.Verb != change.Advise || got.Fix.Undo != UndoNone || got.Waste != 0 ||
		evidence(got, "claim") != "ml/data-db-0" {
		t.Errorf("the fix is %+v, waste %s, evidence %+v", got.Fix, got.Waste, got.Evidence)
	}
	if !strings.Contains(got.Savings.Why, "ml/data-db-0") {
		t.Errorf("why the saving is not known: %q", got.Savings.Why)
	}
}

func (f *fixture) bucket(id string, change ...func(*inventory.Bucket)) *inventory.Resource {
	d := &inventory.Bucket{Lifecycle: inventory.Known([]inventory.LifecycleRule{}), Versioned: inventory.Known(false),
		Sizes: inventory.Known(map[string]int64{"STANDARD": bigSize}), Objects: inventory.Known(int64(10_000))}
	for _, c := range change {
		c(d)
	}
	return f.add(inventory.Resource{ID: id, Kind: inventory.KindBucket, State: inventory.StateAvailable, Detail: d})
}

func prefix(name string, bytes, objects int64, older map[int]inventory.Stored) inventory.Prefix {
	return inventory.Prefix{
		Name: name, Listing: inventory.Listing{
			Stored: inventory.Stored{Bytes: bytes, Objects: objects}, Complete: true,
		},
		OlderThan: older, Newest: ago(day), Oldest: ago(300 * day), Class: "STANDARD"}
}

func all(bytes, objects int64) map[int]inventory.Stored {
	s := inventory.Stored{Bytes: bytes, Objects: objects}
	return map[int]inventory.Stored{30: s, 90: s, 180: s}
}

// TestTenTerabytesToArchive checks a well-known example: 10 TB from Standard to Glacier save about
// $190 a month before fees.
func TestTenTerabytesToArchive(t *testing.T) {
	f := newFixture(t)
	f.bucket("data", func(b *inventory.Bucket) {
		p := prefix("imagenet/", bigSize+100<<20, 12_000, all(bigSize, 10_000))
		p.Small = inventory.Stored{Bytes: 100 << 20, Objects: 2000}
		b.Prefixes = inventory.Known([]inventory.Prefix{p})
		b.Sizes = inventory.Known(map[string]int64{"STANDARD": bigSize + 100<<20})
	})
	got := only(t, f.evaluate(), "bucket-no-lifecycle")
	if a := got.Savings.Amount.Cents(); !got.Savings.Known || a < "185.00" || a > "200.00" {
		t.Errorf("saves %+v; want about 190", got.Savings)
	}
	for signal, want := range map[string]string{
		"to_archive":           "10 TiB in 10,000 objects",
		"small_objects_stay":   "100 MiB in 2,000 objects",
		"transition_fees_usd":  "0.30",
		"months_to_repay_fees": "0",
		"least_days_GLACIER":   "90",
	} {
		if v := evidence(got, signal); v != want {
			t.Errorf("evidence %s is %q, want %q", signal, v, want)
		}
	}
	for _, word := range []string{
		"once", "bills at least 90 days", "reading it back", "2,000 objects under 128 KiB do not move",
	} {
		if !strings.Contains(got.Fix.Note, word) {
			t.Errorf("note %q lacks %q", got.Fix.Note, word)
		}
	}
	if got.Waste != 0 || got.Fix.Undo != UndoPartial {
		t.Errorf("waste %s, undo %s; want none and partial", got.Waste, got.Fix.Undo)
	}
}

func TestBucketLifecycle(t *testing.T) {
	runScenarios(t, []scenario{
		{
			name:  "nothing is known of its objects: a bound",
			build: func(f *fixture) { f.bucket("data") },
			want:  []string{"bucket-no-lifecycle data <=198.66"},
		},
		{
			name: "a listing that stopped at its bound: a bound",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					p := prefix("imagenet/", tib, 1000, all(tib, 1000))
					p.Complete = false
					b.Prefixes = inventory.Known([]inventory.Prefix{p})
				})
			},
			want: []string{"bucket-no-lifecycle data 19.87..<=198.66"},
		},
		{
			name: "the listing holds a tenth of the bucket: a bound",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Prefixes = inventory.Known([]inventory.Prefix{prefix("imagenet/", tib, 1000, all(tib, 1000))})
				})
			},
			want: []string{"bucket-no-lifecycle data 19.87..<=198.66"},
		},
		{
			name: "young data: nothing to move yet",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Prefixes = inventory.Known([]inventory.Prefix{prefix("imagenet/", bigSize, 10_000, nil)})
				})
			},
			want: []string{"bucket-no-lifecycle data 0.00"},
		},
		{
			// 10 TiB in infrequent access: 10240 × (0.023 − 0.0125).
			name: "data of 30 to 90 days goes to infrequent access",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Prefixes = inventory.Known([]inventory.Prefix{
						prefix("imagenet/", bigSize, 10_000, map[int]inventory.Stored{
							30: {Bytes: bigSize, Objects: 10_000},
						}),
					})
				})
			},
			want: []string{"bucket-no-lifecycle data 107.52 wasting 0.00"},
		},
		{
			name: "old experiments expire: all of their cost",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Prefixes = inventory.Known([]inventory.Prefix{
						prefix("experiments/", bigSize, 10_000, all(bigSize, 10_000)),
					})
				})
			},
			want: []string{"bucket-no-lifecycle data 235.52 wasting 0.00"},
		},
		{
			name: "in a versioned bucket what expires is kept as a replaced version: a bound",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Versioned = inventory.Known(true)
					b.Noncurrent = inventory.Known(inventory.Listing{Complete: true})
					b.Prefixes = inventory.Known([]inventory.Prefix{
						prefix("experiments/", bigSize, 100, all(bigSize, 100)),
					})
				})
			},
			want: []string{"bucket-no-lifecycle data <=235.52"},
		},
		{
			// A million objects of 200 KiB: 32 KiB of index each in the archive and 8 in the
			// standard class reduce the saving.
			name: "what the archive adds to each object is counted",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					n := int64(1_000_000)
					b.Sizes = inventory.Known(map[string]int64{"STANDARD": n * 200 << 10})
					b.Prefixes = inventory.Known([]inventory.Prefix{
						prefix("imagenet/", n*200<<10, n, all(n*200<<10, n)),
					})
				})
			},
			want: []string{"bucket-no-lifecycle data 3.41 wasting 0.00"},
		},
		{
			name: "all in the archive already",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Sizes = inventory.Known(map[string]int64{"GLACIER": bigSize})
				})
			},
		},
		{
			name: "an empty bucket",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) { b.Sizes = inventory.Known(map[string]int64{}) })
			},
		},
		{
			name: "a bucket with rules",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Versioned = inventory.Known(true)
					b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
						{Enabled: true, TransitionDays: map[string]int{"GLACIER": 90},
							AbortMultipartDays: 7, NoncurrentExpirationDays: 30}})
					b.Uploads = inventory.Known(inventory.Uploads{Count: 3, Oldest: ago(20 * day), Complete: true})
				})
			},
		},
		{
			name: "a lifecycle that could not be read",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Lifecycle = inventory.Fact[[]inventory.LifecycleRule]{}
					b.Versioned = inventory.Known(true)
					b.Uploads = inventory.Known(inventory.Uploads{Count: 3, Oldest: ago(20 * day), Complete: true})
				})
			},
		},
		{
			name: "a disabled rule does nothing",
			build: func(f *fixture) {
				f.bucket("data", func(b *inventory.Bucket) {
					b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
						{TransitionDays: map[string]int{"GLACIER": 90}},
					})
				})
			},
			want: []string{"bucket-no-lifecycle data <=198.66"},
		},
	})
}

// TestPartialLifecycles checks that a rule counts only for objects that it moves or expires itself.
func TestPartialLifecycles(t *testing.T) {
	half := int64(bigSize / 2)
	bucket := func(rules []inventory.LifecycleRule, prefixes ...inventory.Prefix) func(f *fixture) {
		return func(f *fixture) {
			f.bucket("data", func(b *inventory.Bucket) {
				b.Lifecycle = inventory.Known(rules)
				if len(prefixes) > 0 {
					b.Prefixes = inventory.Known(prefixes)
				}
			})
		}
	}
	archive := func(prefix string, filtered bool) inventory.LifecycleRule {
		return inventory.LifecycleRule{
			Enabled: true, Prefix: prefix, Filtered: filtered, TransitionDays: map[string]int{"GLACIER": 90},
		}
	}
	two := func(change ...func(p *inventory.Prefix)) []inventory.Prefix {
		out := []inventory.Prefix{
			prefix("imagenet/", half, 5000, all(half, 5000)), prefix("logs/", half, 5000, all(half, 5000)),
		}
		for _, c := range change {
			c(&out[0])
		}
		return out
	}
	some := inventory.Stored{Bytes: half / 2, Objects: 2500}
	unseen := func(p *inventory.Prefix) {
		p.Complete, p.Stored, p.OlderThan = false, some, all(some.Bytes, some.Objects)
	}
	ages := func(read int64) inventory.Fact[inventory.Prefix] {
		p := prefix("", bigSize, 10_000, all(half, 5000))
		p.Standard, p.ReadBytes = p.Stored, map[int]int64{30: read, 90: read, 180: read}
		return inventory.Known(p)
	}
	analyzed := func(rules []inventory.LifecycleRule, prefixes ...inventory.Prefix) func(f *fixture) {
		return func(f *fixture) {
			f.bucket("data", func(b *inventory.Bucket) {
				b.Lifecycle, b.Prefixes, b.Ages, b.AgesSource = inventory.Known(
					rules), inventory.Known(prefixes), ages(
					0), "Storage Class Analysis of 2026-11-20"
			})
		}
	}
	runScenarios(t, []scenario{
		{
			name:  "a rule for another prefix",
			build: bucket([]inventory.LifecycleRule{archive("other/", false)}, two()...),
			want:  []string{"bucket-no-lifecycle data 198.65 wasting 0.00"},
		},
		{
			name:  "a rule that only aborts uploads",
			build: bucket([]inventory.LifecycleRule{{Enabled: true, AbortMultipartDays: 7}}, two()...),
			want:  []string{"bucket-no-lifecycle data 198.65 wasting 0.00"},
		},
		{
			name:  "a rule that only ends replaced versions",
			build: bucket([]inventory.LifecycleRule{{Enabled: true, NoncurrentExpirationDays: 7}}, two()...),
			want:  []string{"bucket-no-lifecycle data 198.65 wasting 0.00"},
		},
		{
			name:  "a rule for one of two prefixes",
			build: bucket([]inventory.LifecycleRule{archive("logs/", false)}, two()...),
			want:  []string{"bucket-no-lifecycle data 99.33 wasting 0.00"},
		},
		{
			name:  "a rule for each prefix",
			build: bucket([]inventory.LifecycleRule{archive("logs/", false), archive("imagenet/", false)}, two()...),
		},
		{name: "a rule for the whole bucket", build: bucket([]inventory.LifecycleRule{archive("", false)}, two()...)},
		{
			name:  "the whole bucket, and how old it is is not known",
			build: bucket([]inventory.LifecycleRule{archive("", false)}),
		},
		{
			name:  "one prefix, and what is where is not known",
			build: bucket([]inventory.LifecycleRule{archive("logs/", false)}),
			want:  []string{"bucket-no-lifecycle data <=198.66"},
		},
		{
			name: "a rule reaches half of a prefix",
			build: bucket([]inventory.LifecycleRule{archive("imagenet/raw/", false), archive("logs/", false)},
				two(func(p *inventory.Prefix) {
					p.Standard, p.CoveredByRules, p.OlderThan = p.Stored, some, all(some.Bytes, some.Objects)
				})...),
			want: []string{"bucket-no-lifecycle data 49.66 wasting 0.00"},
		},
		{
			name: "a rule that tags narrow: a minimum and a maximum",
			build: bucket([]inventory.LifecycleRule{archive("imagenet/", true), archive("logs/", false)},
				two(func(p *inventory.Prefix) {
					p.Standard, p.PossiblyCovered, p.OlderThan = p.Stored, some, all(some.Bytes, some.Objects)
				})...),
			want: []string{"bucket-no-lifecycle data 49.66..<=99.33"},
		},
		{
			name: "half of a prefix is in the archive already",
			build: bucket(nil, two(func(p *inventory.Prefix) {
				p.Standard, p.OlderThan, p.Class = some, all(some.Bytes, some.Objects), "GLACIER"
			})...),
			want: []string{"bucket-no-lifecycle data 148.99 wasting 0.00"},
		},
		{
			name: "a listing past its bound: a minimum and a maximum",
			build: bucket(nil, two(func(p *inventory.Prefix) {
				p.Complete, p.Stored, p.OlderThan = false, some, all(some.Bytes, some.Objects)
			})...),
			want: []string{"bucket-no-lifecycle data 148.99..<=198.66"},
		},
		{
			// Half of it is old, a quarter of that was read: 2.5 TiB are saved by archiving, less
			// reading at $0.01 a GiB.
			name:  "past its bound, with an analysis of the whole bucket",
			build: analyzed(nil, two(unseen)...),
			want:  []string{"bucket-no-lifecycle data 99.33 wasting 0.00"},
		},
		{
			// Which part is read is unknown.
			name: "an analysis that shows reads of old objects",
			build: func(f *fixture) {
				analyzed(nil, two(unseen)...)(f)
				f.Resources[len(f.Resources)-1].Detail.(*inventory.Bucket).Ages = ages(1024 << 30)
			},
		},
		{
			name:  "an analysis of a bucket whose prefixes are treated apart: the maximum is what is old",
			build: analyzed(nil, append(two(unseen)[:1], prefix("experiments/", 1, 1, nil))...),
			want:  []string{"bucket-no-lifecycle data 49.66..<=99.33"},
		},
		{
			name: "past its bound with a rule for the other prefix",
			build: bucket([]inventory.LifecycleRule{archive("logs/", false)}, two(func(p *inventory.Prefix) {
				p.Complete, p.Stored, p.OlderThan = false, some, all(some.Bytes, some.Objects)
			})...),
			want: []string{"bucket-no-lifecycle data 49.66..<=99.33"},
		},
	})
}

func TestBucketLeftovers(t *testing.T) {
	ruled := func(b *inventory.Bucket) {
		b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
			{Enabled: true, TransitionDays: map[string]int{"STANDARD_IA": 30}},
		})
	}
	stale := func(b *inventory.Bucket) {
		p := prefix("llm/checkpoints/", bigSize, 100, all(bigSize, 100))
		p.Newest = ago(120 * day)
		b.Prefixes = inventory.Known([]inventory.Prefix{p})
	}
	runScenarios(t, []scenario{
		{
			name: "uploads that were never completed",
			build: func(f *fixture) {
				f.bucket("data", ruled, func(b *inventory.Bucket) {
					b.Uploads = inventory.Known(inventory.Uploads{
						Count: 3, Bytes: inventory.Known(int64(100 << 30)), Oldest: ago(20 * day), Complete: true,
					})
				})
			},
			want: []string{"bucket-multipart data 2.30"},
		},
		{
			name: "uploads that hold nothing",
			build: func(f *fixture) {
				f.bucket("data", ruled, func(b *inventory.Bucket) {
					b.Uploads = inventory.Known(inventory.Uploads{
						Count: 3, Bytes: inventory.Known(int64(0)), Oldest: ago(20 * day), Complete: true,
					})
				})
			},
			want: []string{"bucket-multipart data 0.00"},
		},
		{
			name: "uploads of unknown size",
			build: func(f *fixture) {
				f.bucket("data", ruled, func(b *inventory.Bucket) {
					b.Uploads = inventory.Known(inventory.Uploads{Count: 3, Oldest: ago(20 * day), Complete: true})
				})
			},
			want: []string{"bucket-multipart data <=235.52"},
		},
		{
			name: "an upload of three days",
			build: func(f *fixture) {
				f.bucket("data", ruled, func(b *inventory.Bucket) {
					b.Uploads = inventory.Known(inventory.Uploads{Count: 1, Oldest: ago(3 * day), Complete: true})
				})
			},
		},
		{
			name: "replaced versions of unknown age",
			build: func(f *fixture) {
				f.bucket("data", ruled, func(b *inventory.Bucket) {
					b.Versioned = inventory.Known(true)
					b.Noncurrent = inventory.Known(inventory.Listing{
						Stored: inventory.Stored{Bytes: tib, Objects: 5}, Complete: true,
					})
				})
			},
			want: []string{"bucket-noncurrent data <=23.55"},
		},
		{
			name: "versioned without any replaced version",
			build: func(f *fixture) {
				f.bucket("data", ruled, func(b *inventory.Bucket) {
					b.Versioned = inventory.Known(true)
					b.Noncurrent = inventory.Known(inventory.Listing{Complete: true})
				})
			},
		},
		{
			name:  "stale checkpoints are archived",
			build: func(f *fixture) { f.bucket("data", ruled, stale) },
			want:  []string{"checkpoint-stale data 198.66 wasting 0.00"},
		},
		{
			name: "checkpoints and a bucket without rules: each dollar once",
			build: func(f *fixture) {
				f.bucket("data", stale)
			},
			want: []string{"checkpoint-stale data 198.66 wasting 0.00", "bucket-no-lifecycle data 0.00"},
		},
		{
			name: "checkpoints of a run that goes on",
			build: func(f *fixture) {
				f.bucket("data", ruled, stale, func(b *inventory.Bucket) {
					p, _ := b.Prefixes.Get()
					p[0].Newest = ago(time.Hour)
				})
			},
		},
		{
			name: "a listing that may have missed the newest checkpoint",
			build: func(f *fixture) {
				f.bucket("data", ruled, stale, func(b *inventory.Bucket) {
					p, _ := b.Prefixes.Get()
					p[0].Complete = false
				})
			},
		},
		{
			name: "a rule archives them already",
			build: func(f *fixture) {
				f.bucket("data", stale, func(b *inventory.Bucket) {
					b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
						{Enabled: true, Prefix: "llm/", TransitionDays: map[string]int{"GLACIER": 90}},
					})
				})
			},
		},
	})
}

// TestNoncurrentVersionsStateSize also covers a bucket whose lifecycle was not read, so that no
// rule can be proposed.
func TestNoncurrentVersionsStateSize(t *testing.T) {
	for name, document := range map[string]inventory.Fact[string]{"read": inventory.Known(""), "not read": {}} {
		f := newFixture(t)
		f.bucket("data", func(b *inventory.Bucket) {
			b.LifecycleDocument, b.Versioned = document, inventory.Known(true)
			b.Noncurrent = inventory.Known(inventory.Listing{
				Stored: inventory.Stored{Bytes: 3 * tib, Objects: 9}, Complete: true,
			})
		})
		got := only(t, f.evaluate(), "bucket-noncurrent")
		if want := "3 TiB of noncurrent versions that never expire"; got.Because != want {
			t.Errorf("document %s: because %q, want %q", name, got.Because, want)
		}
	}
}

func TestLogsAndRegistries(t *testing.T) {
	logs := func(bytes int64, retention inventory.Fact[int]) func(f *fixture) {
		return func(f *fixture) {
			f.add(inventory.Resource{ID: "/train", Kind: inventory.KindLogGroup, CreatedAt: ago(300 * day),
				Detail: &inventory.LogGroup{StoredBytes: inventory.Known(bytes), RetentionDays: retention}})
		}
	}
	images := func(change func(*inventory.Repository)) func(f *fixture) {
		return func(f *fixture) {
			d := &inventory.Repository{
				Images: 10, Bytes: inventory.Known(int64(100 << 30)), LifecyclePolicy: inventory.Known(true),
			}
			change(d)
			f.add(inventory.Resource{ID: "trainer", Kind: inventory.KindRepository, Detail: d})
		}
	}
	runScenarios(t, []scenario{
		{
			name: "logs without a retention", build: logs(100<<30, inventory.Known(0)),
			want: []string{"log-group-no-retention /train <=3.00"},
		},
		{name: "logs with a retention", build: logs(100<<30, inventory.Known(30))},
		{name: "a retention that could not be read", build: logs(100<<30, inventory.Fact[int]{})},
		{name: "an empty log group", build: logs(0, inventory.Known(0))},
		{
			name: "untagged images share layers",
			build: images(func(d *inventory.Repository) {
				d.UntaggedImages, d.UntaggedBytes = 4, inventory.Known(int64(40<<30))
			}),
			want: []string{"repository-untagged trainer <=4.00"},
		},
		{
			name: "no policy and unpulled images, which the rule leaves alone",
			build: images(func(d *inventory.Repository) {
				d.LifecyclePolicy, d.UnpulledImages, d.UnpulledBytes = inventory.Known(
					false), 3, inventory.Known(int64(30<<30))
			}),
			want: []string{"repository-no-lifecycle trainer 0.00"},
		},
		{
			name:  "no policy and all images in use",
			build: images(func(d *inventory.Repository) { d.LifecyclePolicy = inventory.Known(false) }),
			want:  []string{"repository-no-lifecycle trainer 0.00"},
		},
		{
			name:  "a policy that could not be read",
			build: images(func(d *inventory.Repository) { d.LifecyclePolicy = inventory.Fact[bool]{} }),
		},
	})
	for _, tc := range []struct {
		bytes int64
		want  Level
	}{{1 << 30, High}, {1<<30 - 1, Medium}} {
		f := newFixture(t)
		logs(tc.bytes, inventory.Known(0))(f)
		if got := only(t, f.evaluate(), "log-group-no-retention").Confidence; got != tc.want {
			t.Errorf("%s of logs: confidence %s, want %s", fmt.Sprint(tc.bytes), got, tc.want)
		}
	}
}
