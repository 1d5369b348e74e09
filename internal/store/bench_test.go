package store_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	fleet        = 10_000
	benchAccount = "aws/123456789012"
	benchSource  = "idle-gpu-machines"
)

// acting returns an item with an intent, of typical size.
func acting(id string) action.Item {
	return action.Item{
		ID: id, Account: benchAccount, Source: benchSource, Phase: action.Acting, FirstAt: noon, WarnedAt: noon,
		GraceFrom: noon, UpdatedAt: noon,
		Ref: inventory.Ref{
			Cloud: "aws", Account: "123456789012", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-" + id,
		},
		Because: "92% of memory held, 0% compute for 6d 4h", Class: "duty", Grace: 15 * time.Minute,
		Recipients: []string{"slack:#vision"},
		Do:         policy.Do{Verb: policy.Terminate, SaveDisks: true},
		Steps: []action.Step{
			{Name: "snapshot", Key: id + "-0", Params: `{"volume":"vol-0abc"}`, IntentAt: noon}, {Name: "terminate"},
		},
	}
}

func benchEntry(it action.Item) action.Entry {
	return action.Entry{
		At: noon, Account: it.Account, Round: 7, Actor: "policy " + it.Source, What: "intent",
		Resource: it.Ref.String(),
		Item:     it.ID, Verb: "terminate", Because: it.Because,
		Evidence: []usage.Evidence{
			{Signal: "gpu_util_max_pct", Value: "0.4", Window: time.Hour, Coverage: 0.99, Source: "cloudwatch"},
		},
	}
}

// stocked returns a SQLite state with a fleet of open items, each with an entry, and the items.
func stocked(b *testing.B) (*store.Store, []action.Item) {
	s := open(b, store.Options{Dir: b.TempDir()})
	all := action.Batch{
		Account: benchAccount, Source: benchSource, Now: noon, Selected: fleet,
		Limits: policy.Limits{PerHour: fleet, Share: 1},
	}
	for i := range fleet {
		it := acting(fmt.Sprintf("%016x", i))
		all.Admissions = append(all.Admissions, action.Admission{Item: it, Entries: []action.Entry{benchEntry(it)}})
	}
	admitted, err := s.Actions().Admit(b.Context(), all)
	if err != nil {
		b.Fatal(err)
	}
	var items []action.Item
	for _, a := range admitted {
		items = append(items, a.Item)
	}
	b.ResetTimer()
	return s, items
}

func BenchmarkSave(b *testing.B) {
	s, items := stocked(b)
	for i := 0; b.Loop(); i++ {
		it, err := s.Actions().Save(b.Context(), items[i%fleet], benchEntry(items[i%fleet]))
		if err != nil {
			b.Fatal(err)
		}
		items[i%fleet] = it
	}
}

// BenchmarkAdmit admits ten new items at a time, each batch in a separate hour.
func BenchmarkAdmit(b *testing.B) {
	s, _ := stocked(b)
	for i := 0; b.Loop(); i++ {
		batch := action.Batch{
			Account: benchAccount, Source: benchSource, Now: noon.Add(time.Duration(i+1) * time.Hour), Selected: fleet,
		}
		for j := range 10 {
			it := acting(fmt.Sprintf("new-%d-%d", i, j))
			batch.Admissions = append(batch.Admissions, action.Admission{
				Item: it, Entries: []action.Entry{benchEntry(it)},
			})
		}
		if _, err := s.Actions().Admit(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkItems(b *testing.B) {
	s, _ := stocked(b)
	for b.Loop() {
		if items, err := s.Actions().Items(b.Context(), benchAccount, action.ItemQuery{}); err != nil ||
			len(items) != fleet {
			b.Fatal(len(items), err)
		}
	}
}

// BenchmarkItemsOfOne reads the open items of one machine of a fleet and its pending calls: none,
// after all other items were postponed.
func BenchmarkItemsOfOne(b *testing.B) {
	s, items := stocked(b)
	for _, it := range items {
		it.Phase = action.Observed
		if _, err := s.Actions().Save(b.Context(), it); err != nil {
			b.Fatal(err)
		}
	}
	q := action.ItemQuery{Refs: []inventory.Ref{items[fleet/2].Ref}, UnderWay: true, UnconfirmedSince: noon}
	for b.Loop() {
		if items, err := s.Actions().Items(b.Context(), benchAccount, q); err != nil || len(items) != 1 {
			b.Fatal(len(items), err)
		}
	}
}

func BenchmarkEntries(b *testing.B) {
	s, _ := stocked(b)
	for b.Loop() {
		n := 0
		err := s.Actions().Entries(b.Context(), action.Query{}, func(action.Entry) error { n++; return nil })
		if err != nil || n != fleet {
			b.Fatal(n, err)
		}
	}
}

func BenchmarkVerifyAudit(b *testing.B) {
	s, _ := stocked(b)
	for b.Loop() {
		if n, err := s.VerifyAudit(b.Context()); err != nil || n.Entry != fleet {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkReadPages reads a state larger than SQLite's cache, so that every page is read from its
// file and checked.
func BenchmarkReadPages(b *testing.B) {
	o := store.Options{Dir: b.TempDir(), Temporary: true}
	s, err := store.Open(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var entries []action.Entry
	for range 20000 {
		entries = append(entries, action.Entry{
			At: noon, Actor: "policy idle", What: action.EventObserved, Because: strings.Repeat("idle ", 40),
		})
	}
	if err := s.Actions().Record(b.Context(), entries...); err != nil {
		b.Fatal(err)
	}
	db, err := sql.Open("sqlite",
		"file:"+filepath.Join(o.Dir, store.FileName)+
			"?vfs=curfew&_pragma=wal_checkpoint(truncate)&_pragma=cache_size(10)")
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for b.Loop() {
		var n int
		if err := db.QueryRowContext(b.Context(), "SELECT SUM(LENGTH(because)) FROM audit").Scan(&n); err != nil {
			b.Fatal(err)
		}
	}
}
