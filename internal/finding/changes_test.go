package finding

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
)

// TestChangesMatchFindings checks that the document of each bucket's finding holds exactly the
// described rules at the configured ages.
func TestChangesMatchFindings(t *testing.T) {
	theirs := change.WriteRules([]change.Rule{{ID: "theirs", Prefix: "logs/", ExpireDays: 9}})
	their := change.Rule{ID: "theirs", Prefix: "logs/", ExpireDays: 9}
	f := newFixture(t)
	f.bucket("checkpoints", func(b *inventory.Bucket) {
		p := prefix("checkpoints/", bigSize, 100, all(bigSize, 100))
		p.Newest = ago(120 * day)
		b.Prefixes, b.Versioned = inventory.Known([]inventory.Prefix{p}), inventory.Known(true)
		b.Noncurrent = inventory.Known(inventory.Listing{
			Stored: inventory.Stored{Bytes: 5 << 30, Objects: 3}, Complete: true,
		})
		b.Uploads = inventory.Known(inventory.Uploads{
			Count: 3, Bytes: inventory.Known(int64(1 << 30)), Oldest: ago(40 * day), Complete: true,
		})
		b.Lifecycle = inventory.Known([]inventory.LifecycleRule{
			{ID: "theirs", Enabled: true, Prefix: "logs/", ExpirationDays: 9},
		})
		b.LifecycleDocument, b.MinimumSize = inventory.Known(theirs), "varies_by_storage_class"
	})
	f.add(inventory.Resource{
		ID: "logs", Kind: inventory.KindLogGroup, State: inventory.StateAvailable, CreatedAt: ago(500 * day),
		Detail: &inventory.LogGroup{StoredBytes: inventory.Known(int64(5 << 30)), RetentionDays: inventory.Known(0)}})
	found, err := Evaluate(f.charged(), Thresholds{
		MultipartDays: 3, NoncurrentDays: 45, LogRetentionDays: 365, CheckpointStale: 100 * day,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]change.Rule{
		"checkpoint-stale": {
			their,
			{
				Prefix: "checkpoints/", LargerThan: 128<<10 - 1,
				Transitions: []change.Transition{{Days: 100, Class: "GLACIER"}},
			},
		},
		"bucket-multipart":  {their, {AbortDays: 3}},
		"bucket-noncurrent": {their, {NoncurrentDays: 45}},
	}
	seen := 0
	for _, x := range found {
		if x.Rule == "log-group-no-retention" && x.Fix.Change.Arguments.RetentionDays != 365 {
			t.Errorf("logs are kept for %d days, want 365", x.Fix.Change.Arguments.RetentionDays)
		}
		rules, ok := want[x.Rule]
		if !ok {
			continue
		}
		seen++
		c := x.Fix.Change
		got, err := change.Rules(c.Document)
		if err != nil {
			t.Fatalf("%s: %v", x.Rule, err)
		}
		for i := range got {
			if strings.HasPrefix(got[i].ID, change.RulePrefix) {
				got[i].ID = ""
			}
		}
		if diff := cmp.Diff(rules, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", x.Rule, diff)
		}
		if c.Before != theirs || c.Arguments.MinimumSize != "varies_by_storage_class" ||
			!strings.Contains(c.Document, "<ID>theirs</ID>") {
			t.Errorf("%s: %+v", x.Rule, c)
		}
	}
	if seen != len(want) {
		t.Errorf("%d of %d findings", seen, len(want))
	}
}

// charged returns the account with its meters.
func (f *fixture) charged() *Account {
	f.evaluate()
	return &f.Account
}

// TestProposedRulesMatchPrices generates buckets and applies the proposed rules to their objects
// like S3: the finding must count the same objects as moved and expired.
func TestProposedRulesMatchPrices(t *testing.T) {
	tb := t
	ages := []int{10, 45, 120, 300} // days; one group of objects of each age under every prefix
	rapid.Check(t, func(t *rapid.T) {
		heaps := map[string][]int64{}
		var prefixes []inventory.Prefix
		var total int64
		for _, name := range rapid.SliceOfNDistinct(
			rapid.SampledFrom([]string{"", "data/", "raw video/", "checkpoints/", "tmp/", "experiments/"}), 1, 5,
			rapid.ID).Draw(t, "prefixes") {
			older := map[int]inventory.Stored{}
			var sum int64
			for _, age := range ages {
				n := rapid.Int64Range(1, 900).Draw(t, "GiB") << 30
				heaps[name] = append(heaps[name], n)
				sum += n
				for _, line := range []int{30, 90, 180} {
					if age >= line {
						s := older[line]
						older[line] = inventory.Stored{Bytes: s.Bytes + n, Objects: s.Objects + 1}
					}
				}
			}
			prefixes = append(prefixes, prefix(name, sum, int64(len(ages)), older))
			total += sum
		}
		f := newFixture(tb)
		f.bucket("b", func(b *inventory.Bucket) {
			b.Prefixes, b.Sizes = inventory.Known(prefixes), inventory.Known(map[string]int64{"STANDARD": total})
			b.LifecycleDocument = inventory.Known("")
		})
		for _, x := range f.evaluate() {
			if x.Rule != "bucket-no-lifecycle" || x.Fix.Change.Document == "" {
				continue
			}
			rules, err := change.Rules(x.Fix.Change.Document)
			if err != nil {
				t.Fatal(err)
			}
			moved := map[string]int64{}
			for name, heap := range heaps {
				for i, n := range heap {
					if to := outcome(rules, name+"object", ages[i]); to != "" {
						moved[to] += n
					}
				}
			}
			for signal, class := range map[string]string{
				"to_infrequent_access": "STANDARD_IA", "to_archive": "GLACIER", "to_expire": "expired",
			} {
				got, _, _ := strings.Cut(evidence(x, signal), " in ")
				want := "no " + signal
				if n := moved[class]; n > 0 {
					want = plain.Size(n)
				}
				if got != want {
					t.Fatalf("%s is %q, and the rules do that to %q:\n%s", signal, got, want, x.Fix.Change.Document)
				}
			}
		}
	})
}

// outcome returns the storage class of an object of an age in days under rules: the coldest class
// due, unless it expires (Amazon S3 User Guide, "Conflicts in lifecycle rules").
func outcome(rules []change.Rule, key string, age int) string {
	to, colder := "", map[string]int{"": 0, "STANDARD_IA": 1, "GLACIER": 2}
	for _, r := range rules {
		if !strings.HasPrefix(key, r.Prefix) {
			continue
		}
		if r.ExpireDays > 0 && age >= r.ExpireDays {
			return "expired"
		}
		for _, x := range r.Transitions {
			if age >= x.Days && colder[x.Class] > colder[to] {
				to = x.Class
			}
		}
	}
	return to
}

// TestScheduleSavesStoppedHours generates weeks and checks that the schedule runs the
// machine in every hour with work, also across midnight, and counts the other hours as saved.
func TestScheduleSavesStoppedHours(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w week
		for _, h := range rapid.SliceOfN(rapid.IntRange(0, hoursOfWeek-1), 1, 30).Draw(t, "hours") {
			w[h] = true
		}
		on, hours := w.span()
		start, err := time.Parse("15:04", on.Start)
		if err != nil {
			t.Fatal(err)
		}
		stop, err := time.Parse("15:04", on.Stop)
		if err != nil {
			t.Fatal(err)
		}
		long := (stop.Hour() - start.Hour() + 24) % 24
		if long == 0 {
			long = 24
		}
		var runs week
		for _, d := range on.Days {
			for i, name := range change.Weekdays {
				if name == d {
					for h := range long {
						runs[(i*24+start.Hour()+h)%hoursOfWeek] = true
					}
				}
			}
		}
		n := 0
		for h := range hoursOfWeek {
			if runs[h] {
				n++
			}
			if w[h] && !runs[h] {
				t.Fatalf("there is work in hour %d, and %+v stops it", h, on)
			}
		}
		if n != hours {
			t.Fatalf("%+v runs %d hours, counted as %d", on, n, hours)
		}
	})
}

// TestTagMissingWritesOwnerTags checks that tags from owner rules are written, and that the others
// are left to a person.
func TestTagMissingWritesOwnerTags(t *testing.T) {
	for _, tc := range []struct {
		name string
		add  map[string]string
		left []string
		want change.Arguments
		note string
	}{
		{
			"all", map[string]string{"team": "vision", "project": "ranking"}, nil,
			change.Arguments{Tags: map[string]string{"team": "vision", "project": "ranking"}}, "",
		},
		{"some", map[string]string{"team": "vision"}, []string{"project"},
			change.Arguments{Tags: map[string]string{"team": "vision"}, Keys: []string{"project"}},
			"no rule of owners gives project"},
		{"none", nil, []string{"team", "project"}, change.Arguments{Keys: []string{"team", "project"}}, ""},
	} {
		f := newFixture(t)
		f.running("i-1", "m5.large")
		f.TagsFor = func(r *inventory.Resource) (map[string]string, []string) {
			if r.ID != "i-1" {
				t.Errorf("%s: asked about %s", tc.name, r.ID)
			}
			return tc.add, tc.left
		}
		fix := only(t, f.evaluate("team", "project"), "tag-missing").Fix
		if want := (change.Change{Verb: change.Tag, Arguments: tc.want}); !fix.Change.Equal(want) ||
			!strings.Contains(fix.Note, tc.note) {
			t.Errorf("%s: %+v, %s; want %+v", tc.name, fix.Change, fix.Note, want)
		}
	}
	f := newFixture(t)
	f.running("i-1", "m5.large")
	if got := only(t, f.evaluate("team"), "tag-missing").Fix.Change; !got.Equal(change.Change{
		Verb: change.Tag, Arguments: change.Arguments{Keys: []string{"team"}},
	}) {
		t.Errorf("without rules: %+v", got)
	}
}
