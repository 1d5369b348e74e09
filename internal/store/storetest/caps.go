package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

var caps = []test{
	{"intents are written with their entries", func(t *testing.T, b *Backend) {
		known := must(b.Actions.Save(t.Context(), machine("known")))(t)
		want := batch("new")
		want.Admissions = append(want.Admissions, action.Admission{
			Item: intended(known), Entries: []action.Entry{entry("intent", known)},
		})
		got := must(b.Actions.Admit(t.Context(), want))(t)
		if len(got) != 2 || got[0].Item.Version != 1 || got[1].Item.Version != 2 || got[0].Deferred != nil ||
			got[1].Deferred != nil {
			t.Fatalf("admitted %+v", got)
		}
		for _, a := range got {
			if read := must(b.Reopen(t).Actions.Item(t.Context(), a.Item.ID))(t); read.Phase != action.Acting ||
				read.Steps[0].Key == "" {
				t.Errorf("kept as %+v", read)
			}
		}
		if all := lines(t, b, action.Query{}); len(all) != 1 || all[0].What != "intent" {
			t.Errorf("recorded %+v", all)
		}
	}},
	{"limits", limits},
	{"the last hour, by clocks that go back and forth", lastHour},
	{"what is not of the batch or holds no intent is refused", func(t *testing.T, b *Backend) {
		for name, change := range map[string]func(*action.Admission){
			"other source":     func(a *action.Admission) { a.Item.Source = "other" },
			"other account":    func(a *action.Admission) { a.Item.Account = "aws/other" },
			"warned":           func(a *action.Admission) { a.Item.Phase = action.Warned },
			"no step":          func(a *action.Admission) { a.Item.Steps = nil },
			"past the steps":   func(a *action.Admission) { a.Item.Step = 1 },
			"no key":           func(a *action.Admission) { a.Item.Steps[0].Key = "" },
			"no time":          func(a *action.Admission) { a.Item.Steps[0].IntentAt = time.Time{} },
			"negative dollars": func(a *action.Admission) { a.Hourly = -1 },
		} {
			asked := batch("a")
			change(&asked.Admissions[0])
			if _, err := b.Actions.Admit(t.Context(), asked); err == nil {
				t.Errorf("%s: admitted", name)
			}
		}
	}},
	{"what is over a cap is deferred and the rest admitted, in one transaction", func(t *testing.T, b *Backend) {
		asked := batch()
		asked.Limits.DollarsPerHour = 10 * money.USD
		for _, one := range []struct {
			id     string
			hourly money.Amount
		}{{"new", 6}, {"large", 8}, {"fits", 2}} {
			it := machine(one.id)
			asked.Admissions = append(asked.Admissions, action.Admission{
				Item: intended(it), Hourly: one.hourly * money.USD, Entries: []action.Entry{entry("intent", it)},
			})
		}
		got := must(b.Actions.Admit(t.Context(), asked))(t)
		if d := got[0].Deferred; len(got) != 3 || d == nil || d.Cap != "dollars" || d.Never ||
			got[1].Item.Version != 1 ||
			got[2].Item.Version != 1 {
			t.Fatalf("got %+v", got)
		}
		if _, err := b.Actions.Item(t.Context(), "new"); !errors.Is(err, action.ErrNotFound) {
			t.Errorf("what is deferred: %v, want ErrNotFound", err)
		}
		if n := len(lines(t, b, action.Query{What: "intent"})); n != 2 {
			t.Errorf("%d intents are recorded", n)
		}
		asked.Admissions = asked.Admissions[:1]
		if got := must(b.Actions.Admit(t.Context(), asked))(t); got[0].Deferred == nil {
			t.Error("an admission in the same request as a deferral does not count")
		}
		asked.Now = asked.Now.Add(time.Hour)
		if got := must(b.Actions.Admit(t.Context(), asked))(t); got[0].Deferred != nil {
			t.Errorf("an hour later: %+v", got[0].Deferred)
		}
	}},
	{
		"of what is due alike the first resource is admitted, whatever the ids and the order",
		func(t *testing.T, b *Backend) {
			for _, ids := range [][]string{{"a", "b"}, {"d", "c"}} {
				for first := range ids {
					asked := batch()
					asked.Account += ids[0] + fmt.Sprint(first) // which has an hour of its own
					asked.Limits.PerHour = 1
					for i := range ids {
						n := (first + i) % len(ids)
						it := intended(machine(asked.Account + ids[n]))
						it.Account, it.Ref.ID = asked.Account, fmt.Sprint("i-", n)
						asked.Admissions = append(asked.Admissions, action.Admission{Item: it, Due: noon})
					}
					for _, a := range must(b.Actions.Admit(t.Context(), asked))(t) {
						if a.Deferred == nil && a.Item.Ref.ID != "i-0" {
							t.Errorf("ids %v from %d: %s is admitted", ids, first, a.Item.Ref.ID)
						}
					}
				}
			}
		}},
	{"an item that has changed admits nothing of the batch", func(t *testing.T, b *Backend) {
		it := must(b.Actions.Save(t.Context(), machine("changed")))(t)
		must(b.Actions.Save(t.Context(), it))(t)
		asked := batch("new")
		asked.Admissions = append(asked.Admissions, action.Admission{
			Item: intended(it), Entries: []action.Entry{entry("intent", it)},
		})
		if _, err := b.Actions.Admit(t.Context(), asked); !errors.Is(err, action.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
		nothing(t, b)
		if got := must(b.Actions.Item(t.Context(), "changed"))(t); got.Phase != action.Observed {
			t.Errorf("it is %s", got.Phase)
		}
		asked = batch("alone")
		asked.Limits.PerHour = 1
		if _, err := b.Actions.Admit(t.Context(), asked); err != nil {
			t.Errorf("what was not admitted counts: %v", err)
		}
	}},
	{"a frozen batch admits nothing", func(t *testing.T, b *Backend) {
		no(t, b.Actions.Freeze(t.Context(), action.Freeze{At: noon, By: "ana", Reason: "incident"}))
		asked := batch("new")
		asked.Admissions[0].Entries = []action.Entry{entry("intent", asked.Admissions[0].Item)}
		if _, err := b.Actions.Admit(t.Context(), asked); !errors.Is(err, action.ErrFrozen) {
			t.Errorf("got %v, want ErrFrozen", err)
		}
		nothing(t, b)
	}},
	{"batches at once never exceed the count", func(t *testing.T, b *Backend) {
		together(t, b, func(b *action.Batch) { b.Limits.PerHour = 7 }, 7)
	}},
	{"batches at once never exceed the share", func(t *testing.T, b *Backend) {
		together(t, b, func(b *action.Batch) { b.Limits.Share, b.Selected = 0.3, 20 }, 6)
	}},
	{"batches at once never exceed the dollars", func(t *testing.T, b *Backend) {
		together(t, b, func(b *action.Batch) {
			b.Limits.DollarsPerHour, b.Admissions[0].Hourly = 100*money.USD, 12*money.USD
		}, 8)
	}},
}

// limits admits batches in turn and checks the result of the last.
func limits(t *testing.T, b *Backend) {
	type ask struct {
		n      int           // machines
		ago    time.Duration // before noon
		source string
		where  string
		hourly money.Amount
	}
	full := policy.Limits{PerHour: 3, Share: 0.5, DollarsPerHour: 100 * money.USD}
	for i, tc := range []struct {
		name     string
		limits   policy.Limits
		selected int
		before   []ask
		last     ask
		want     string // the cap
		deferred int
	}{
		{name: "within", limits: full, selected: 6, last: ask{n: 3}},
		{name: "count", limits: full, selected: 100, last: ask{n: 4}, deferred: 1, want: "count"},
		{
			name: "count with the last hour", limits: full, selected: 100,
			before: []ask{{n: 2, ago: 59 * time.Minute}},
			last:   ask{n: 2}, deferred: 1, want: "count",
		},
		{
			name: "an hour ago is not in the last hour", limits: full, selected: 100,
			before: []ask{{n: 3, ago: time.Hour}},
			last:   ask{n: 3},
		},
		{
			name: "a clock that is ahead counts", limits: full, selected: 100,
			before: []ask{{n: 3, ago: -24 * time.Hour}},
			last:   ask{n: 1}, deferred: 1, want: "count",
		},
		{
			name: "another source does not count", limits: full, selected: 100, before: []ask{{n: 3, source: "other"}},
			last: ask{n: 3},
		},
		{
			name: "another account does not count", limits: full, selected: 100,
			before: []ask{{n: 3, where: "aws/other"}},
			last:   ask{n: 3},
		},
		{name: "share", limits: full, selected: 4, last: ask{n: 3}, deferred: 1, want: "share"},
		{name: "share is rounded up", limits: full, selected: 3, last: ask{n: 2}},
		{
			name: "share with the last hour", limits: full, selected: 4, before: []ask{{n: 2}},
			last: ask{n: 1}, deferred: 1,
			want: "share",
		},
		{name: "a single one over the share", limits: full, selected: 0, last: ask{n: 1}},
		{
			name: "a second single one over the share", limits: full, selected: 1,
			before: []ask{{n: 1}}, last: ask{n: 1},
			deferred: 1, want: "share",
		},
		{
			name: "dollars", limits: full, selected: 100, last: ask{n: 2, hourly: 51 * money.USD}, deferred: 1,
			want: "dollars",
		},
		{name: "dollars to the cent", limits: full, selected: 100, last: ask{n: 2, hourly: 50 * money.USD}},
		{
			name: "dollars with the last hour", limits: full, selected: 100,
			before: []ask{{n: 1, hourly: 60 * money.USD}},
			last:   ask{n: 1, hourly: 41 * money.USD}, deferred: 1, want: "dollars",
		},
		{
			name: "a single one over the dollars", limits: full, selected: 100,
			last:     ask{n: 1, hourly: 101 * money.USD},
			deferred: 1, want: "dollars",
		},
		{
			name: "no limits are the default ones", limits: policy.Limits{}, selected: 1000,
			last: ask{n: 11}, deferred: 1,
			want: "count",
		},
	} {
		var err error
		var got []action.AdmissionResult
		for j, a := range append(tc.before, tc.last) {
			asked := action.Batch{
				Account: fmt.Sprintf("%s%s-%d", account, a.where, i), Source: source + a.source, Now: noon.Add(-a.ago),
				Limits: tc.limits, Selected: tc.selected,
			}
			if j < len(tc.before) {
				asked.Limits, asked.Selected = ample, 1<<20
			}
			for k := range a.n {
				it := intended(machine(fmt.Sprintf("%d-%d-%d", i, j, k)))
				it.Account, it.Source = asked.Account, asked.Source
				asked.Admissions = append(asked.Admissions, action.Admission{Item: it, Hourly: a.hourly})
			}
			if got, err = b.Actions.Admit(t.Context(), asked); j < len(tc.before) {
				no(t, err)
			}
		}
		caps, admitted := map[string]bool{}, 0
		for _, a := range got {
			if a.Deferred == nil {
				admitted++
			} else {
				caps[a.Deferred.Cap] = true
			}
		}
		switch {
		case err != nil || admitted != tc.last.n-tc.deferred:
			t.Errorf("%s: %d admitted of %d, want %d to be deferred: %v", tc.name, admitted,
				tc.last.n, tc.deferred, err)
		case (len(caps) > 0) != (tc.want != "") || tc.want != "" && !caps[tc.want]:
			t.Errorf("%s: deferred by %v, want the cap %s", tc.name, caps, tc.want)
		}
	}
}

// lastHour compares batches with a sum over everything admitted before.
func lastHour(t *testing.T, b *Backend) {
	run, admitted, deferred := 0, 0, 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		type one struct {
			source string
			at     time.Time
			hourly money.Amount
		}
		var all []one
		for i := range rapid.IntRange(1, 15).Draw(r, "batches") {
			asked := action.Batch{
				Account: fmt.Sprint("aws/", run), Source: rapid.SampledFrom([]string{"idle", "old"}).Draw(r, "source"),
				Now:      noon.Add(time.Duration(rapid.IntRange(-100, 100).Draw(r, "minutes")) * time.Minute),
				Selected: 100, Limits: policy.Limits{PerHour: 4, Share: 1, DollarsPerHour: 10 * money.USD},
			}
			for k := range rapid.IntRange(1, 3).Draw(r, "machines") {
				it := intended(machine(fmt.Sprintf("%d-%d-%d", run, i, k)))
				it.Account, it.Source = asked.Account, asked.Source
				asked.Admissions = append(asked.Admissions, action.Admission{
					Item: it, Hourly: money.Amount(rapid.IntRange(0, 4).Draw(r, "dollars")) * money.USD,
				})
			}
			n, sum := 0, money.Amount(0)
			for _, a := range all {
				if a.source == asked.Source && asked.Now.Sub(a.at) < time.Hour {
					n, sum = n+1, sum+a.hourly
				}
			}
			want := asked.Defer(n, sum)
			got, err := b.Actions.Admit(t.Context(), asked)
			if err != nil || len(got) != len(want) {
				r.Fatalf("at %s: %d of %d answers, %v", asked.Now, len(got), len(want), err)
			}
			for i, a := range got {
				if diff := cmp.Diff(want[i], a.Deferred); diff != "" {
					r.Fatalf("at %s with %d of %s in the hour (-want +got):\n%s", asked.Now, n, sum, diff)
				}
				if a.Deferred != nil {
					deferred++
					continue
				}
				admitted++
				all = append(all, one{asked.Source, asked.Now, asked.Admissions[i].Hourly})
			}
		}
	})
	if admitted == 0 || deferred == 0 {
		t.Errorf("%d admitted and %d deferred: the test says too little", admitted, deferred)
	}
}

// nothing checks that no item "new" and no intent is stored.
func nothing(t *testing.T, b *Backend) {
	t.Helper()
	if _, err := b.Actions.Item(t.Context(), "new"); !errors.Is(err, action.ErrNotFound) {
		t.Errorf("item new: got %v, want ErrNotFound", err)
	}
	if n := len(lines(t, b, action.Query{What: "intent"})); n != 0 {
		t.Errorf("%d intents are recorded", n)
	}
}

// together lets many connections admit single items until the cap stops each, and checks that
// exactly the limit was admitted.
func together(t *testing.T, b *Backend, limit func(*action.Batch), want int64) {
	t.Helper()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for worker := range 6 {
		s := b.Reopen(t).Actions
		wg.Go(func() {
			for i := range 2 * want {
				asked := batch(fmt.Sprintf("%d-%d", worker, i))
				limit(&asked)
				got, err := s.Admit(t.Context(), asked)
				if err != nil {
					t.Error(err)
					return
				}
				if got[0].Deferred != nil {
					return
				}
				admitted.Add(1)
			}
			t.Error("no cap stopped a connection")
		})
	}
	wg.Wait()
	if kept := len(must(b.Actions.Items(t.Context(), account, action.ItemQuery{}))(t)); admitted.Load() != want ||
		int64(kept) != want {
		t.Errorf("%d were admitted and %d are kept, want %d", admitted.Load(), kept, want)
	}
}
