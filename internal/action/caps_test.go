package action_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// fleet adds machines that cost so much an hour.
func (w *world) fleet(hourly ...money.Amount) (ids []string) {
	for i, each := range hourly {
		r := machine(fmt.Sprintf("i-%02d", i+1))
		r.Hourly = each * money.USD
		w.cloud.Put(r)
		ids = append(ids, r.ID)
	}
	return ids
}

// TestCaps: what a cap leaves is carried out, the most expensive first; the rest stays warned and
// comes when the hour is over.
func TestCaps(t *testing.T) {
	t.Run("a cap defers and does not stop everything", func(t *testing.T) {
		w := newWorld()
		w.wants.Limits = policy.Limits{PerHour: 2, Share: 1, DollarsPerHour: 1000 * money.USD}
		w.fleet(1, 5, 3, 4, 2)
		w.round(t)
		r := w.rounds(t, 15*time.Minute, time.Minute)
		if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, []string{"i-02", "i-04"}) {
			t.Fatalf("terminated %v, want the two most expensive", got)
		}
		for _, id := range []string{"i-01", "i-03", "i-05"} {
			want(t, r, id, action.ResultDeferred)
		}
		if !r.Partial || r.NextAt.IsZero() ||
			!strings.Contains(why(r, "i-01"),
				"deferred: with the last hour it is 3 actions within an hour, over the cap of 2 an hour") {
			t.Errorf("partial %v, next %s, %s", r.Partial, r.NextAt, why(r, "i-01"))
		}
		for _, it := range w.store.All() {
			if it.Phase.IsOpen() && it.Phase != action.Warned {
				t.Errorf("%s is %s, want it to stay warned", it.Ref.ID, it.Phase)
			}
		}
		// What changes meanwhile is verified again and goes back.
		w.cloud.Change("i-03", func(r *actiontest.Resource) { r.Duty = duty.Busy })
		w.rounds(t, 59*time.Minute, time.Minute)
		if got := len(w.cloud.Carried("terminate")); got != 2 {
			t.Fatalf("%d machines within the hour", got)
		}
		w.rounds(t, 2*time.Minute, time.Minute)
		if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, []string{"i-01", "i-02", "i-04", "i-05"}) {
			t.Errorf("after the hour: %v", got)
		}
		if n := len(slices.DeleteFunc(w.people.Told(), func(m actiontest.Told) bool {
			return m.Kind != "warning"
		})); n != 5 {
			t.Errorf("%d warnings: a deferral is no new one", n)
		}
	})
	t.Run("a single one is always allowed", func(t *testing.T) {
		w := newWorld()
		w.wants.Limits = policy.Limits{PerHour: 1, Share: 0.001, DollarsPerHour: money.USD * 10}
		w.idle("i-1")
		w.round(t)
		want(t, w.rounds(t, 15*time.Minute, time.Minute), "i-1", action.ResultConfirmed)
	})
	t.Run("a resource over the dollar cap alone is never admitted, and no warning is sent", func(t *testing.T) {
		w := newWorld()
		w.wants.Limits = policy.Limits{PerHour: 10, Share: 1, DollarsPerHour: money.USD * 4}
		w.fleet(5, 3)
		r := w.round(t)
		want(t, r, "i-01", action.ResultOverCap)
		want(t, r, "i-02", action.ResultWarned)
		if got := why(r, "i-01"); !strings.Contains(got,
			"$5.00 an hour alone, over the cap of $4.00 an hour: it is never") {
			t.Errorf("the reason is %q", got)
		}
		want(t, w.rounds(t, 3*time.Hour, time.Minute), "i-01", action.ResultOverCap)
		if got := w.cloud.Carried("terminate"); !slices.Equal(got, []string{"i-02"}) {
			t.Errorf("terminated %v", got)
		}
		for _, m := range w.people.Told() {
			if m.Resource == "i-01" {
				t.Errorf("people were told: %+v", m)
			}
		}
	})
	t.Run("the machines of one run go together", func(t *testing.T) {
		w := newWorld()
		w.wants.Limits = policy.Limits{PerHour: 3, Share: 1, DollarsPerHour: 1000 * money.USD}
		ids := w.fleet(4, 3, 2, 2)
		for _, id := range ids[2:] {
			w.cloud.Change(id, func(r *actiontest.Resource) {
				r.Tags = map[string]string{
					"owner": "ana", inventory.TagLifetime: "ephemeral", inventory.TagGang: "run-1",
				}
			})
		}
		// The run costs as much as the most expensive machine; both it and one machine fit.
		w.round(t)
		r := w.rounds(t, 15*time.Minute, time.Minute)
		if got := sorted(w.cloud.Carried("terminate")); !slices.Equal(got, []string{"i-01", "i-03", "i-04"}) {
			t.Fatalf("terminated %v", got)
		}
		want(t, r, "i-02", action.ResultDeferred)
	})
	t.Run("the preview shows everything", func(t *testing.T) {
		w := newWorld()
		w.wants.Limits = policy.Limits{PerHour: 2, Share: 1, DollarsPerHour: 1000 * money.USD}
		w.fleet(1, 5, 3)
		w.round(t)
		w.rounds(t, 14*time.Minute, time.Minute)
		w.ladder.Enforce = false
		r := w.rounds(t, time.Minute, time.Minute)
		caps := map[string]string{}
		for _, l := range r.Lines {
			if l.Result != action.ResultWouldAct {
				t.Errorf("%s: %s", l.Resource.ID, l.Result)
			}
			caps[l.Resource.ID] = l.Cap
		}
		if len(caps) != 3 || caps["i-01"] != "count" || caps["i-02"] != "" || caps["i-03"] != "" {
			t.Errorf("held back by %v", caps)
		}
		w.untouched(t)
	})
}

// TestFuse checks that a policy of which most is due at once does nothing until a person confirms.
func TestFuse(t *testing.T) {
	w := newWorld()
	w.wants.Limits, w.wants.Notify = policy.Limits{PerHour: 2}, []string{"owner", "#ml"} // the other defaults
	ids := w.fleet(slices.Repeat([]money.Amount{3}, 30)...)
	w.round(t)
	w.rounds(t, 14*time.Minute, time.Minute)
	w.ladder.Enforce = false
	r := w.rounds(t, time.Minute, time.Minute)
	if len(r.Lines) != 30 || r.Lines[0].Result != action.ResultWouldAct || r.Lines[0].Cap != action.CapFuse ||
		len(r.Fuses) != 1 {
		t.Fatalf("the preview shows %d lines, first %+v", len(r.Lines), r.Lines[0])
	}
	if all, err := w.store.Fuses(t.Context()); err != nil || all != nil {
		t.Fatalf("a preview blows the fuse: %+v, %v", all, err)
	}
	w.ladder.Enforce = true
	reads := 0
	w.reading = func() { reads++ }
	r = w.rounds(t, time.Hour, time.Minute)
	w.untouched(t)
	for _, id := range ids {
		want(t, r, id, action.ResultFuse)
	}
	if len(r.Fuses) != 1 || r.Fuses[0].Due != 30 || r.Fuses[0].Selected != 30 || reads != 0 {
		t.Errorf("fuses %+v, read again %d times", r.Fuses, reads)
	}
	var told []string
	for _, m := range w.people.Told() {
		if m.Kind == "alarm" {
			told = append(told, m.By)
		}
	}
	if slices.Sort(told); !slices.Equal(told, []string{"test:#ml", "test:ana"}) {
		t.Errorf("told were %q, want the owner of the machines and the channel once", told)
	}
	if audit := len(slices.DeleteFunc(w.entries(""), func(e action.Entry) bool {
		return e.What != "fuse"
	})); audit != 1 {
		t.Errorf("the audit log has it %d times", audit)
	}
	// It stands when the reason for it is gone, and after a restart.
	for _, id := range ids[3:] {
		w.cloud.Change(id, func(r *actiontest.Resource) { r.Duty = duty.Busy })
	}
	w.connect(w.store, w.cloud, w.people)
	want(t, w.rounds(t, time.Minute, time.Minute), "i-01", action.ResultFuse)
	for _, id := range ids[3:] {
		w.cloud.Change(id, func(r *actiontest.Resource) { r.Duty = duty.Idle })
	}
	w.rounds(t, 16*time.Minute, time.Minute)
	w.untouched(t)

	if _, err := w.ladder.Confirm(t.Context(), w.wants.Source, " ", time.Time{}); err == nil {
		t.Error("it is confirmed without a reason")
	}
	if _, err := w.ladder.Confirm(t.Context(), "another", "it is meant",
		time.Time{}); !errors.Is(err, action.ErrNoFuse) {
		t.Errorf("another policy: %v", err)
	}
	got, err := w.ladder.Confirm(t.Context(), w.wants.Source, "it is meant", time.Time{})
	if err != nil || len(got) != 1 || got[0].IsBlown() {
		t.Fatalf("confirmed %+v, %v", got, err)
	}
	// The confirmation means the three machines that were due all the time: the others
	// were warned about again.
	r = w.rounds(t, time.Minute, time.Minute)
	w.untouched(t)
	want(t, r, "i-01", action.ResultFuse)
	if _, err := w.ladder.Confirm(t.Context(), w.wants.Source, "these too", w.now().Add(3*time.Hour)); err != nil {
		t.Fatal(err)
	}
	r = w.rounds(t, time.Minute, time.Minute)
	if n := len(w.cloud.Carried("terminate")); n != 2 {
		t.Fatalf("%d machines were ended, %+v; the caps allow 2", n, r.Lines[0])
	}
	want(t, r, ids[29], action.ResultDeferred)
	w.rounds(t, 2*time.Hour, time.Minute)
	if n := len(w.cloud.Carried("terminate")); n != 6 {
		t.Errorf("%d machines in three hours, the caps allow 2 an hour", n)
	}
}

// TestFuseDoesNotBlow: few machines, or not most of what is selected, blow no fuse; what
// was confirmed does not count again.
func TestFuseDoesNotBlow(t *testing.T) {
	for _, tc := range []struct {
		due, selected int
		want          bool
	}{
		{5, 5, false}, {6, 12, false}, {6, 11, true}, {7, 12, true}, {6, 0, true}, {0, 0, false}, {50, 100, false},
		{51, 100, true}, {math.MaxInt, math.MaxInt, true},
	} {
		if got := action.WouldBlow(tc.due, tc.selected); got != tc.want {
			t.Errorf("%d of %d: %v, want %v", tc.due, tc.selected, got, tc.want)
		}
	}
	w := newWorld()
	w.wants.Limits = policy.Limits{PerHour: 4, Share: 1}
	w.fleet(slices.Repeat([]money.Amount{3}, 6)...)
	w.round(t)
	w.rounds(t, 15*time.Minute, time.Minute)
	if _, err := w.ladder.Confirm(t.Context(), w.wants.Source, "it is meant", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.rounds(t, 2*time.Minute, time.Minute)
	for i := range 5 { // with the two that are left seven of seven are due
		w.idle(fmt.Sprintf("j-%d", i))
	}
	w.rounds(t, 20*time.Minute, time.Minute)
	if all, err := w.store.Fuses(t.Context()); err != nil || len(all) != 1 || all[0].IsBlown() {
		t.Fatalf("%+v, %v", all, err)
	}
	w.idle("j-5") // the sixth, unconfirmed
	r := w.rounds(t, 20*time.Minute, time.Minute)
	want(t, r, "j-0", action.ResultFuse)
}

// TestFuseStopsItemsUnderWay: while a fuse stands, no further call is made for what was
// begun before.
func TestFuseStopsItemsUnderWay(t *testing.T) {
	w := newWorld()
	w.wants.Do.SaveDisks = true
	r := machine("i-1")
	r.Unsaved = true
	w.cloud.Put(r)
	w.round(t)
	w.cloud.Slow(2)
	w.rounds(t, 15*time.Minute, time.Minute) // its disks are being saved
	if err := w.store.Blow(t.Context(), action.Fuse{
		Account: actiontest.Account, Source: w.wants.Source, At: w.now(), Due: 6, Selected: 6,
	}); err != nil {
		t.Fatal(err)
	}
	want(t, w.rounds(t, 10*time.Minute, time.Minute), "i-1", action.ResultFuse)
	if got := w.cloud.Carried("terminate"); len(got) > 0 {
		t.Fatalf("terminated %v", got)
	}
	if _, err := w.ladder.Confirm(t.Context(), w.wants.Source, "it is meant", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.rounds(t, 3*time.Minute, time.Minute)
	if got := w.cloud.Carried("terminate"); !slices.Equal(got, []string{"i-1"}) {
		t.Errorf("terminated %v", got)
	}
}

func TestDefer(t *testing.T) {
	batch := func(n, selected int, each money.Amount, l policy.Limits) action.Batch {
		return action.Batch{
			Source: "idle", Limits: l, Selected: selected,
			Admissions: slices.Repeat([]action.Admission{{Hourly: each}}, n),
		}
	}
	loose := policy.Limits{PerHour: 100, Share: 1, DollarsPerHour: 1000 * money.USD}
	for _, tc := range []struct {
		name     string
		b        action.Batch
		before   int
		spent    money.Amount
		want     string
		deferred int
		never    bool
	}{
		{"nothing", batch(0, 0, 0, loose), 0, 0, "", 0, false},
		{"one of none selected", batch(1, 0, 0, loose), 0, 0, "", 0, false},
		{"two of none selected", batch(2, 0, 0, loose), 0, 0, "share", 1, false},
		{"one after one", batch(1, 1, 0, loose), 1, 0, "share", 1, false},
		{"exactly the count", batch(100, 1000, 0, loose), 0, 0, "", 0, false},
		{"over the count with the hour before", batch(60, 1000, 0, loose), 41, 0, "count", 1, false},
		{"the share is rounded up", batch(3, 11, 0, policy.Limits{Share: 0.2}), 0, 0, "", 0, false},
		{"over the share", batch(4, 11, 0, policy.Limits{Share: 0.2}), 0, 0, "share", 1, false},
		{
			"a share without a remainder is not rounded up",
			batch(8, 70, 0, policy.Limits{Share: 0.1}), 0, 0, "share", 1,
			false,
		},
		{"exactly the dollars", batch(2, 2, 500*money.USD, loose), 0, 0, "", 0, false},
		{"over the dollars by a nano", batch(2, 2, 500*money.USD, loose), 0, 1, "dollars", 1, false},
		{"over the dollars alone", batch(2, 2, 1000*money.USD+1, loose), 0, 0, "dollars", 2, true},
		{
			"dollars that overflow",
			batch(2, 2, 1<<62, policy.Limits{PerHour: 100, Share: 1, DollarsPerHour: math.MaxInt64}),
			0, 1 << 62, "dollars", 2, false,
		},
		{"no limits are the defaults", batch(11, 1000, 0, policy.Limits{}), 0, 0, "count", 1, false},
		{
			"limits under zero are the defaults",
			batch(11, 1000, 0, policy.Limits{PerHour: -1, Share: -1, DollarsPerHour: -1}), 0, 0, "count", 1, false,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for i := range tc.b.Admissions {
				tc.b.Admissions[i].Item = action.Item{ID: fmt.Sprint(i), Ref: inventory.Ref{ID: fmt.Sprint(i)}}
			}
			n := 0
			for _, d := range tc.b.Defer(tc.before, tc.spent) {
				if d == nil {
					continue
				}
				if n++; d.Cap != tc.want || d.Never != tc.never {
					t.Errorf("deferred by %+v, want %q, never %v", d, tc.want, tc.never)
				}
			}
			if n != tc.deferred {
				t.Errorf("%d are deferred, want %d", n, tc.deferred)
			}
		})
	}
}

// asking is an action on a machine, alone or in a run, that is due since some minutes.
func asking(id string, hourly money.Amount, since time.Duration, run ...string) action.Admission {
	a := action.Admission{Hourly: hourly * money.USD, Due: start.Add(-since)}
	a.Item = action.Item{ID: id, Ref: inventory.Ref{ID: id}, Do: policy.Do{Verb: policy.Terminate}}
	for _, other := range run {
		if other != id {
			a.Item.Gang = append(a.Item.Gang, inventory.Ref{ID: other})
		}
	}
	return a
}

// TestOverdueActionGoesFirst: what waits for over an hour has the next hour for
// itself, however many cheaper ones come in between.
func TestOverdueActionGoesFirst(t *testing.T) {
	limits := policy.Limits{PerHour: 100, Share: 1, DollarsPerHour: 10 * money.USD}
	var past []time.Time // of actions of a dollar
	for minute := range 180 {
		now := start.Add(time.Duration(minute) * time.Minute)
		b := action.Batch{
			Now: now, Limits: limits, Selected: 1000,
			Admissions: []action.Admission{
				asking("expensive", 10, 0), asking("cheap", 1, -time.Duration(minute)*time.Minute),
			},
		}
		n := 0
		for _, at := range past {
			if now.Sub(at) < time.Hour {
				n++
			}
		}
		if minute == 0 {
			n = 1 // so that the expensive one does not fit from the start
		}
		d := b.Defer(n, money.Amount(n)*money.USD)
		switch {
		case d[0] == nil:
			if minute < 61 || minute > 121 {
				t.Errorf("the expensive one goes after %d minutes", minute)
			}
			return
		case d[1] == nil:
			past = append(past, now)
		case minute > 61 && !strings.Contains(d[1].String(), "costs more and has waited longer"):
			t.Fatalf("after %d minutes: %s", minute, d[1])
		}
	}
	t.Error("the expensive one starves")
}

// TestDeferStaysWithinCaps compares batches with the sentences of docs/safety.md, one by one and by
// other means than Defer's own.
func TestDeferStaysWithinCaps(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		limits := policy.Limits{
			PerHour: rapid.IntRange(1, 6).Draw(t, "count"), Share: rapid.Float64Range(0.05, 1).Draw(t, "share"),
			DollarsPerHour: money.Amount(rapid.IntRange(5, 60).Draw(t, "dollars")) * money.USD}
		b := action.Batch{Now: start, Limits: limits, Selected: rapid.IntRange(0, 30).Draw(t, "selected")}
		runs := [][]string{}
		for i := range rapid.IntRange(0, 6).Draw(t, "jobs") {
			var ids []string
			for k := range rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "machines") {
				ids = append(ids, fmt.Sprintf("i-%d-%d", i, k))
			}
			runs = append(runs, ids)
			since := time.Duration(rapid.SampledFrom([]int{0, 30, 60, 61, 90}).Draw(t, "minutes")) * time.Minute
			for _, id := range ids {
				b.Admissions = append(b.Admissions,
					asking(id, money.Amount(5*rapid.IntRange(0, 3).Draw(t, "hourly")), since,
						ids...))
			}
		}
		b.Admissions = rapid.Permutation(b.Admissions).Draw(t, "order")
		for i := range b.Admissions { // ids decide nothing
			b.Admissions[i].Item.ID = fmt.Sprint(rapid.Uint64().Draw(t, "id"))
		}
		before := rapid.IntRange(0, 4).Draw(t, "before")
		spent := money.Amount(rapid.IntRange(0, 20).Draw(t, "spent")) * money.USD
		if before == 0 {
			spent = 0
		}
		of := map[string]*action.Deferral{}
		by := map[string]action.Admission{}
		for i, d := range b.Defer(before, spent) {
			id := b.Admissions[i].Item.Ref.ID
			of[id], by[id] = d, b.Admissions[i]
		}
		share := int(math.Ceil(limits.Share*float64(b.Selected) - 1e-9))
		fits := func(n int, sum money.Amount) bool {
			return (n <= 1 || n <= limits.PerHour && n <= share) && sum <= limits.DollarsPerHour
		}
		cost := func(ids []string) (sum money.Amount) {
			for _, id := range ids {
				sum += by[id].Hourly
			}
			return sum
		}
		n, sum := before, spent
		for _, ids := range runs {
			for _, id := range ids {
				if (of[id] == nil) != (of[ids[0]] == nil) {
					t.Fatalf("the run %v is torn apart", ids)
				}
			}
			if of[ids[0]] == nil {
				n, sum = n+len(ids), sum+cost(ids)
				seen["admitted"]++
			}
		}
		if n > before && !fits(n, sum) {
			t.Fatalf("%d actions of %s an hour are over %+v of %d", n, sum, limits, b.Selected)
		}
		for _, ids := range runs {
			d := of[ids[0]]
			if d == nil {
				continue
			}
			if alone := fits(len(ids), cost(ids)); d.Never == alone {
				t.Fatalf("%v: never is %v, alone it fits: %v", ids, d.Never, alone)
			}
			if d.Never {
				seen["never"]++
				continue
			}
			seen["deferred"]++
			// With what went before it, it does not fit; or something overdue goes first.
			n, sum, blocked := before, spent, false
			for _, other := range runs {
				a, b := by[ids[0]], by[other[0]]
				goes := cost(other) > cost(ids) || cost(other) == cost(ids) &&
					(b.Due.Before(a.Due) || b.Due.Equal(a.Due) && other[0] < ids[0])
				if !goes {
					continue
				}
				switch e := of[other[0]]; {
				case e == nil:
					n, sum = n+len(other), sum+cost(other)
				case !e.Never && start.Sub(b.Due) > time.Hour:
					blocked = true
				}
			}
			if fits(n+len(ids), sum+cost(ids)) && !blocked {
				t.Fatalf("%v is deferred by %+v and fits after the %d actions before it", ids, d, n)
			}
		}
	})
	for _, what := range []string{"admitted", "deferred", "never"} {
		if seen[what] < 5 { // of 100 draws
			t.Errorf("too few cases to tell: %v", seen)
		}
	}
}

// TestFleetsAreCappedByDollars checks that the bounds of a fleet take the place of the caps by
// count and share; the dollars of the machines that end are capped.
func TestFleetsAreCappedByDollars(t *testing.T) {
	resize := policy.Do{Verb: policy.Scale, Fleet: "asg/embed", Min: 1, Max: 9, To: 3}
	for _, tc := range []struct {
		name    string
		do      policy.Do
		hourly  money.Amount
		earlier int
		want    string
	}{
		{"many changes within an hour", resize, 0, 200, ""},
		{"dollars", resize, 150 * money.USD, 200, "dollars"},
		{"another action", policy.Do{Verb: policy.Scale, To: 3}, 0, 200, "count"},
	} {
		adm := action.Admission{Item: action.Item{Do: tc.do}, Hourly: tc.hourly}
		b := action.Batch{Selected: 1, Admissions: []action.Admission{adm}}
		got := b.Defer(tc.earlier, 100*money.USD)[0]
		if tc.want == "" && got != nil || tc.want != "" && (got == nil || got.Cap != tc.want) {
			t.Errorf("%s: deferred by %v, want %q", tc.name, got, tc.want)
		}
	}
}
