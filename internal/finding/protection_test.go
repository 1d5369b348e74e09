package finding

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// versioned makes a bucket versioned, with a known empty lifecycle.
func versioned(b *inventory.Bucket) {
	b.Versioned, b.MFADelete = inventory.Known(true), inventory.Known(false)
	b.LifecycleDocument = inventory.Known("")
	b.ObjectLock, b.ReplicatesTo, b.ReplicatedFrom = inventory.Known(inventory.ObjectLock{}), inventory.Known(
		[]string{}), inventory.Known([]string{})
	b.Noncurrent = inventory.Known(inventory.Listing{
		Stored: inventory.Stored{Bytes: 3 * tib, Objects: 9}, Complete: true,
	})
}

// locking sets the Object Lock of a bucket.
func locking(days int) func(b *inventory.Bucket) {
	return func(b *inventory.Bucket) {
		b.ObjectLock = inventory.Known(inventory.ObjectLock{Enabled: true, Mode: "GOVERNANCE", RetentionDays: days})
	}
}

// experiments fills a bucket with old experiments, and data next to them.
func experiments(b *inventory.Bucket) {
	b.Sizes = inventory.Known(map[string]int64{"STANDARD": 2*tib + 3*tib})
	b.Prefixes = inventory.Known([]inventory.Prefix{
		prefix("experiments/", tib, 1000, all(tib, 1000)), prefix("imagenet/", tib, 1000, all(tib, 1000)),
	})
}

// TestProtectedVersions checks that versions kept by Object Lock, MFA delete or replication are
// neither deleted nor counted. A TiB of the standard class costs $23.55 a month, in the archive
// $3.69 (0.0036 a GiB, with 40 KiB more for each of 1,000 objects).
func TestProtectedVersions(t *testing.T) {
	bucket := func(change ...func(b *inventory.Bucket)) func(f *fixture) {
		return func(f *fixture) {
			f.bucket("data", append([]func(b *inventory.Bucket){versioned}, change...)...)
		}
	}
	archived := func(b *inventory.Bucket) {
		b.Sizes = inventory.Known(map[string]int64{"STANDARD": 3 * tib})
		b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
			{Enabled: true, TransitionDays: map[string]int{"GLACIER": 90}},
		})
		b.LifecycleDocument = inventory.Known(
			change.WriteRules([]change.Rule{
				{ID: "theirs", Transitions: []change.Transition{{Days: 90, Class: "GLACIER"}}},
			}))
	}
	runScenarios(t, []scenario{
		{name: "no protection", build: bucket(archived), want: []string{"bucket-noncurrent data <=70.66"}},
		{
			name: "a third is kept by the default retention",
			build: bucket(archived, locking(400), func(b *inventory.Bucket) {
				b.Locked, b.LockedUntil = inventory.Stored{Bytes: tib, Objects: 3}, ago(-90*day)
			}),
			want: []string{"bucket-noncurrent data <=47.10"},
		},
		{
			name: "all is kept by the default retention",
			build: bucket(archived, locking(400), func(b *inventory.Bucket) {
				b.Locked = inventory.Stored{Bytes: 3 * tib, Objects: 9}
			}),
			want: []string{"bucket-noncurrent data 0.00"},
		},
		{
			name:  "S3 takes no lifecycle with MFA delete",
			build: bucket(func(b *inventory.Bucket) { b.MFADelete = inventory.Known(true) }),
			want:  []string{"bucket-no-lifecycle data 0.00", "bucket-noncurrent data 0.00"},
		},
		{
			name: "copies of another bucket",
			build: bucket(archived, func(b *inventory.Bucket) {
				b.ReplicatedFrom = inventory.Known([]string{"origin"})
			}),
			want: []string{"bucket-noncurrent data 0.00"},
		},
		{
			name:  "experiments that Object Lock keeps longer than they would be move as the other data does",
			build: bucket(experiments, locking(365)),
			want:  []string{"bucket-no-lifecycle data 39.73 wasting 0.00", "bucket-noncurrent data <=70.66"},
		},
		{
			name:  "experiments that Object Lock keeps for a shorter time",
			build: bucket(experiments, locking(20)),
			want:  []string{"bucket-no-lifecycle data <=43.42", "bucket-noncurrent data <=70.66"},
		},
		{
			name: "experiments that are copies of another bucket move too",
			build: bucket(experiments, func(b *inventory.Bucket) {
				b.ReplicatedFrom = inventory.Known([]string{"origin"})
			}),
			want: []string{"bucket-no-lifecycle data 39.73 wasting 0.00", "bucket-noncurrent data 0.00"},
		},
	})
}

// TestReportsProtection checks that a finding names the protection of versions, including parts
// that could not be read.
func TestReportsProtection(t *testing.T) {
	for _, tc := range []struct {
		name       string
		protection func(b *inventory.Bucket)
		signal     string
		value      string
		why, note  string
	}{
		{
			"a default retention", locking(400), "object_lock", "GOVERNANCE for 400 days",
			"Object Lock keeps versions for 400 days", "",
		},
		{
			"no default retention", locking(0), "object_lock", "no default retention",
			"versions with a retention or legal hold stay", "",
		},
		{"Object Lock was not read", func(b *inventory.Bucket) {
			b.ObjectLock = inventory.Fact[inventory.ObjectLock]{}
		}, "object_lock", "not read",
			"whether Object Lock keeps versions was not read", ""},
		{"a part is locked", func(b *inventory.Bucket) {
			locking(400)(b)
			b.Locked, b.LockedUntil = inventory.Stored{Bytes: tib, Objects: 3}, now.AddDate(0, 0, 50)
		}, "locked_until", now.AddDate(0, 0, 50).Format("2006-01-02"), "400 days",
			"1 TiB stay until their retention ends"},
		{"delete markers", func(b *inventory.Bucket) {
			b.DeleteMarkers = 7
		}, "delete_markers", "7", "", "7 delete markers stay"},
		{"copies elsewhere", func(b *inventory.Bucket) {
			b.ReplicatesTo = inventory.Known([]string{"dr"})
		}, "replicated_to", "dr", "", "the copies in dr stay"},
		{"replication was not read", func(b *inventory.Bucket) {
			b.ReplicatesTo, b.ReplicatedFrom = inventory.Fact[[]string]{}, inventory.Fact[[]string]{}
		}, "replicated_from", "not read", "", ""},
	} {
		f := newFixture(t)
		f.bucket("data", versioned, tc.protection)
		got := only(t, f.evaluate(), "bucket-noncurrent")
		if v := evidence(got, tc.signal); v != tc.value || !strings.Contains(got.Savings.Why, tc.why) ||
			!strings.Contains(got.Fix.Note, tc.note) {
			t.Errorf("%s: %s is %q, want %q; why %q, note %q", tc.name, tc.signal, v, tc.value,
				got.Savings.Why, got.Fix.Note)
		}
	}
}

// TestReplacedVersionsAreUpperBound checks that expired objects of a versioned bucket, which still
// cost, are not part of the minimum saving if rules restricted by tags may apply too.
func TestReplacedVersionsAreUpperBound(t *testing.T) {
	for _, versions := range []bool{false, true} {
		f := newFixture(t)
		f.bucket("data", func(b *inventory.Bucket) {
			b.Versioned = inventory.Known(versions)
			p := prefix("experiments/", bigSize, 1000, all(tib, 100))
			p.PossiblyCovered = inventory.Stored{Bytes: tib, Objects: 100}
			b.Prefixes = inventory.Known([]inventory.Prefix{p})
			b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
				{Enabled: true, Prefix: "experiments/", Filtered: true, ExpirationDays: 90},
			})
		})
		got := only(t, f.evaluate(), "bucket-no-lifecycle")
		if least := got.Savings.LowerBound > 0; least == versions {
			t.Errorf("versioned %v: %+v", versions, got.Savings)
		}
	}
}

// TestProposalsRespectProtection generates the protection of a bucket: no rule may be proposed
// that S3 refuses, that deletes copies, that has no effect during the retention, or that moves
// objects meant to stay.
func TestProposalsRespectProtection(t *testing.T) {
	tb, put := t, 0
	rapid.Check(t, func(t *rapid.T) {
		lock := inventory.ObjectLock{Enabled: rapid.Bool().Draw(t, "locking")}
		if lock.Enabled {
			lock.RetentionDays = rapid.SampledFrom([]int{0, 1, 30, 179, 180, 181, 4000}).Draw(t, "retention")
		}
		mfa, from := rapid.IntRange(0, 4).Draw(t, "MFA delete") == 0, rapid.SampledFrom(
			[][]string{{}, {}, {"origin"}}).Draw(
			t, "replicated from")
		setting := rapid.SampledFrom([]string{"", "varies_by_storage_class", "all_storage_classes_128K"}).Draw(t,
			"minimum size")
		document := rapid.SampledFrom([]string{
			"", change.WriteRules([]change.Rule{{ID: "theirs", Prefix: "logs/", ExpireDays: 9}}),
		}).Draw(t, "lifecycle")
		instant := map[string]bool{}
		sizes := map[string]int64{"STANDARD": 8 * tib}
		var prefixes []inventory.Prefix
		for _, name := range []string{"experiments/", "imagenet/", "checkpoints/", "raw/"} {
			p := prefix(name, tib, 1000, all(tib, 1000))
			p.Standard, p.Newest = p.Stored, ago(200*day)
			if instant[name] = rapid.IntRange(0, 3).Draw(t, "instant") == 0; instant[name] {
				p.Tiered = inventory.Stored{Bytes: tib, Objects: 9}
				sizes["INTELLIGENT_TIERING"] += tib
			}
			prefixes = append(prefixes, p)
		}
		f := newFixture(tb)
		f.bucket("data", versioned, func(b *inventory.Bucket) {
			b.ObjectLock, b.MFADelete, b.ReplicatedFrom = inventory.Known(lock), inventory.Known(
				mfa), inventory.Known(from)
			b.LifecycleDocument, b.MinimumSize, b.Sizes, b.Prefixes = inventory.Known(
				document), setting, inventory.Known(
				sizes), inventory.Known(prefixes)
			b.Uploads = inventory.Known(inventory.Uploads{
				Count: 3, Bytes: inventory.Known(int64(1 << 30)), Complete: true,
			})
		})
		for _, x := range f.evaluate() {
			rules, err := change.Rules(x.Fix.Change.Document)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rules {
				if !strings.HasPrefix(r.ID, change.RulePrefix) {
					continue
				}
				put++
				if mfa || len(from) > 0 && (r.ExpireDays > 0 || r.NoncurrentDays > 0) || r.ExpireDays > 0 &&
					lock.RetentionDays >= r.ExpireDays {
					t.Fatalf("%s puts %s", x.Rule, r)
				}
				for _, m := range r.Transitions {
					small := document != "" && setting != "all_storage_classes_128K" && r.LargerThan < 128<<10-1
					if m.Class == "GLACIER" && (small || instant[r.Prefix]) {
						t.Fatalf("%s moves small or instant objects: %s", x.Rule, r)
					}
				}
			}
		}
	})
	if put == 0 {
		t.Error("no rule was put: the draws show nothing")
	}
}

// TestSmallObjectsAreNotMoved checks that archive rules exclude small objects if the bucket's setting
// would move them or is unknown; a lifecycle from before 2016 cannot exclude them and gets no rule.
func TestSmallObjectsAreNotMoved(t *testing.T) {
	const head = `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule><ID>theirs</ID>`
	filters, old := head+
		`<Filter><Prefix>logs/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>9</Days></Expiration></Rule></LifecycleConfiguration>`,
		head+
			`<Prefix>logs/</Prefix><Status>Enabled</Status><Expiration><Days>9</Days></Expiration></Rule></LifecycleConfiguration>`
	for _, tc := range []struct {
		name, document, setting string
		larger                  int64
		put                     bool
	}{
		{"none yet", "", "", 0, true},
		{"small objects stay", filters, "all_storage_classes_128K", 0, true},
		{"small objects go to the archive", filters, "varies_by_storage_class", 128<<10 - 1, true},
		{"not told", filters, "", 128<<10 - 1, true},
		{"of before 2016, and small objects stay", old, "all_storage_classes_128K", 0, true},
		{"of before 2016", old, "varies_by_storage_class", 0, false},
	} {
		f := newFixture(t)
		f.bucket("data", func(b *inventory.Bucket) {
			b.LifecycleDocument, b.MinimumSize = inventory.Known(tc.document), tc.setting
			b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
				{ID: "theirs", Enabled: true, Prefix: "logs/", ExpirationDays: 9},
			})
			b.Prefixes = inventory.Known([]inventory.Prefix{prefix("imagenet/", bigSize, 100, all(bigSize, 100))})
		})
		got := only(t, f.evaluate(), "bucket-no-lifecycle")
		rules, err := change.Rules(got.Fix.Change.Document)
		if err != nil {
			t.Fatal(err)
		}
		if !tc.put {
			if len(rules) > 0 || got.Savings.Amount != 0 ||
				!strings.Contains(got.Fix.Note, "small objects would go to the archive too") {
				t.Errorf("%s: %d rules, %+v, note %q", tc.name, len(rules), got.Savings, got.Fix.Note)
			}
			continue
		}
		if last := rules[len(rules)-1]; last.Prefix != "imagenet/" || last.LargerThan != tc.larger {
			t.Errorf("%s: the rule is %+v, want one for objects over %d bytes", tc.name, last, tc.larger)
		}
	}
}

// TestInstantClassesAreNotArchived checks that no rule archives objects that their owner keeps in a class
// with instant access, and that the monitoring cost of Intelligent-Tiering is noted.
func TestInstantClassesAreNotArchived(t *testing.T) {
	tiered := inventory.Stored{Bytes: tib, Objects: 40_000}
	for _, tc := range []struct {
		name     string
		change   func(b *inventory.Bucket, p []inventory.Prefix)
		prefixes []string // with proposed rules
	}{
		{"none", func(*inventory.Bucket, []inventory.Prefix) {}, []string{""}},
		{"one prefix has some", func(b *inventory.Bucket, p []inventory.Prefix) {
			b.Sizes = inventory.Known(map[string]int64{"STANDARD": 2 * bigSize, "INTELLIGENT_TIERING": tib})
			p[0].Tiered = tiered
			p[0].Bytes += tib
		}, []string{"logs/"}},
		{"Glacier Instant Retrieval", func(b *inventory.Bucket, p []inventory.Prefix) {
			b.Sizes = inventory.Known(map[string]int64{"STANDARD": 2 * bigSize, "GLACIER_IR": tib})
			p[1].Instant = tiered
			p[1].Bytes += tib
		}, []string{"imagenet/"}},
		{"somewhere in what was not seen", func(b *inventory.Bucket, p []inventory.Prefix) {
			b.Sizes = inventory.Known(map[string]int64{"STANDARD": 2 * bigSize, "INTELLIGENT_TIERING": tib})
			p[0].Complete = false
		}, []string{"logs/"}},
	} {
		f := newFixture(t)
		f.bucket("data", func(b *inventory.Bucket) {
			b.LifecycleDocument = inventory.Known("")
			b.Sizes = inventory.Known(map[string]int64{"STANDARD": 2 * bigSize})
			p := []inventory.Prefix{
				prefix("imagenet/", bigSize, 1000, all(bigSize, 1000)),
				prefix("logs/", bigSize, 1000, all(bigSize, 1000)),
			}
			for i := range p {
				p[i].Standard = p[i].Stored
			}
			tc.change(b, p)
			b.Prefixes = inventory.Known(p)
		})
		got := only(t, f.evaluate(), "bucket-no-lifecycle")
		rules, err := change.Rules(got.Fix.Change.Document)
		if err != nil {
			t.Fatal(err)
		}
		var under []string
		for _, r := range rules {
			under = append(under, r.Prefix)
		}
		if strings.Join(under, " ") != strings.Join(tc.prefixes, " ") || len(under) != len(tc.prefixes) {
			t.Errorf("%s: rules for %q, want %q; note %q", tc.name, under, tc.prefixes, got.Fix.Note)
		}
		if tc.name == "one prefix has some" { // 40,000 objects at 0.0025 a thousand
			if fee := evidence(got, "intelligent_tiering_monitoring_usd_at_most"); fee != "0.1" && fee != "0.10" {
				t.Errorf("%s: monitoring %s, want 0.10", tc.name, fee)
			}
		}
	}
}

// TestExplainsProtectedCheckpoints checks that stale checkpoints without a permitted rule yield a
// finding without dollars that states the reason.
func TestExplainsProtectedCheckpoints(t *testing.T) {
	f := newFixture(t)
	f.bucket("data", func(b *inventory.Bucket) {
		b.LifecycleDocument = inventory.Known("")
		p := prefix("checkpoints/", bigSize, 100, all(bigSize, 100))
		p.Standard, p.Newest = p.Stored, ago(120*day)
		p.Instant = inventory.Stored{Bytes: tib, Objects: 4}
		b.Sizes = inventory.Known(map[string]int64{"STANDARD": bigSize, "GLACIER_IR": tib})
		b.Prefixes = inventory.Known([]inventory.Prefix{p})
	})
	got := only(t, f.evaluate(), "checkpoint-stale")
	if !got.Savings.Known || got.Savings.Amount != 0 || got.Fix.Change.Document != "" ||
		!strings.Contains(got.Fix.Note, "1 TiB of Intelligent-Tiering or Glacier Instant Retrieval") {
		t.Errorf("saves %+v, note %q, document %q", got.Savings, got.Fix.Note, got.Fix.Change.Document)
	}
}
