package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestADryRunWritesNothing checks that whatever the answer, no store is written to, and the answer
// is the one that the gate then gives.
func TestADryRunWritesNothing(t *testing.T) {
	for _, tc := range []struct {
		dollars int64
		want    Verdict
	}{{40, Allow}, {400, Held}, {4000, Denied}} {
		h := newMemoryStores(t, team)
		h.fault = func(point string) error {
			if point != "read" {
				return fmt.Errorf("a dry run writes: %s", point)
			}
			return nil
		}
		p := h.params(now)
		p.DryRun = true
		dry, err := Decide(context.Background(), job(tc.dollars), p)
		if err != nil {
			t.Fatal(err)
		}
		h.fault = nil
		real := decide(t, h, job(tc.dollars), now)
		if dry.Decision != tc.want || real.Decision != tc.want || dry.HoldID != "" || dry.ApprovalID != "" ||
			strings.Join(dry.Reasons, "\n") != strings.Join(real.Reasons, "\n") {
			t.Errorf("$%d: dry %+v, then %+v; want %s", tc.dollars, dry, real, tc.want)
		}
	}
}

// TestAKeyHasOneRequestAndOneHold checks that an edited file replaces the request and the hold of
// its key, and that the key is taken once the run has begun.
func TestAKeyHasOneRequestAndOneHold(t *testing.T) {
	ctx, h := context.Background(), newMemoryStores(t, team)
	edit := func(dollars int64, hash string) Ask {
		a := job(dollars)
		a.Key, a.SpecHash = "build 7", hash
		return a
	}
	open := func() (n int) {
		for _, r := range h.requests {
			if s := r.At(now); s == approval.Pending || s == approval.Approved {
				n++
			}
		}
		return n
	}
	decide(t, h, edit(400, "1"), now)
	second := decide(t, h, edit(400, "2"), now)
	if open() != 1 {
		t.Errorf("one key has %d open requests", open())
	}
	h.approve(t, second.ApprovalID, now)
	first := decide(t, h, edit(400, "2"), now)
	want(t, first, Allow, "bo approved")
	// $700 fits only where the $400 of the same key are given back.
	third := decide(t, h, edit(700, "3"), now)
	want(t, third, Held, "it replaces hold "+first.HoldID)
	if held := h.liveHolds(t, now); len(held) != 1 || held[0].ID != first.HoldID {
		t.Errorf("a request gave a hold back: %+v", held)
	}
	h.approve(t, third.ApprovalID, now)
	last := decide(t, h, edit(700, "3"), now)
	want(t, last, Allow, "it replaces hold "+first.HoldID)
	if held := h.liveHolds(t, now); len(held) != 1 || held[0].ID != last.HoldID {
		t.Errorf("one key holds %+v", held)
	}
	h.holds.Charge(budgettest.Charge{
		At: now, Hold: last.HoldID, Owner: job(1).Owner, Purpose: inventory.Training, Amount: money.USD,
	})
	if _, err := Decide(ctx, edit(40, "4"), h.params(now)); err == nil ||
		!strings.Contains(err.Error(), "has begun (hold "+last.HoldID) {
		t.Errorf("a key of a run that has begun names another: %v", err)
	}
}

// TestAnUnusedHoldIsReported: without a key the same work holds money twice, and is told.
func TestAnUnusedHoldIsReported(t *testing.T) {
	h := newMemoryStores(t, team)
	first := decide(t, h, job(40), now)
	if len(first.Unused) != 0 {
		t.Errorf("the first run has unused holds %v", first.Unused)
	}
	second := decide(t, h, job(40), now.Add(time.Minute))
	want(t, second, Allow, "hold "+first.HoldID+" reserves $40.00 for the same work")
	if len(second.Unused) != 1 || second.Unused[0] != first.HoldID {
		t.Errorf("unused are %v, want %s", second.Unused, first.HoldID)
	}
	for _, id := range []string{first.HoldID, second.HoldID} {
		h.holds.Charge(budgettest.Charge{
			At: now, Hold: id, Owner: job(1).Owner, Purpose: inventory.Training, Amount: money.USD,
		})
	}
	if third := decide(t, h, job(40), now.Add(2*time.Minute)); len(third.Unused) != 0 {
		t.Errorf("holds of runs that were charged are unused: %v", third.Unused)
	}
}

// TestTheSmallestThatFits checks that a run under an hour is shortened by minutes, down to one, and
// a machine has its part of the GPUs and no more.
func TestTheSmallestThatFits(t *testing.T) {
	for left, want := range map[int64]string{50: "max_runtime 50m", 1: "max_runtime 1m", 0: ""} {
		h := newMemoryStores(t,
			fmt.Sprintf(`budgets: [{id: vision, team: vision, purpose: training, amount: %d}]`, left+1))
		h.holds.Charge(budgettest.Charge{At: now, Owner: job(1).Owner, Purpose: inventory.Training, Amount: money.USD})
		a := job(60)
		a.Hourly, a.MaxRuntime, a.Machines, a.GPUs = 60*money.USD, time.Hour, 1, nil
		got := ""
		for _, w := range decide(t, h, a, now).WouldPass {
			if w.Kind == "smaller" {
				got = w.What
			}
		}
		if got != want {
			t.Errorf("with $%d left: %q, want %q", left, got, want)
		}
	}
	h := newMemoryStores(t, `quotas: [{id: a100, team: vision, gpus: {A100: 8}}]`)
	a := job(40)
	a.Machines, a.GPUs = 2, map[string]int{"A100": 16}
	d := decide(t, h, a, now)
	if !slices.ContainsFunc(d.WouldPass, func(w Way) bool { return w.What == "1 machine at once for as long" }) {
		t.Errorf("one of two machines has half of their GPUs: %+v", d)
	}
}

// TestADenialSaysWhatPasses checks that each way is taken, and passes as it says.
func TestADenialSaysWhatPasses(t *testing.T) {
	const budgets = `budgets: [{id: vision, team: vision, purpose: training, amount: 1000, per_hour: 150}]
quotas: [{id: a100, team: vision, gpus: {A100: 16}}]`
	a := job(1200) // 12 h at $100, 8 A100
	a.Hourly, a.Machines, a.GPUs = 100*money.USD, 2, map[string]int{"A100": 16}
	a.Alternatives = []Alternative{
		{What: "2 × expensive", P50: 900 * money.USD, P95: 1100 * money.USD, Hourly: 90 * money.USD, Machines: 2},
		{What: "4 × spot", P50: 300 * money.USD, P95: 800 * money.USD, Hourly: 60 * money.USD, Machines: 4},
	}
	ways := func(h *memoryStores, a Ask) map[string]Way {
		d := decide(t, h, a, now)
		want(t, d, Denied, "")
		out := map[string]Way{}
		for _, w := range d.WouldPass {
			out[w.Kind+" "+strings.Fields(w.What)[0]] = w
			if w.Kind == "raise" {
				continue
			}
			b, at := a, now
			switch {
			case w.At != nil:
				at = *w.At
			case w.Kind == "cheaper":
				b.P50, b.P95, b.Hourly, b.Machines, b.GPUs = a.Alternatives[1].P50, w.P95, a.Alternatives[1].Hourly,
					a.Alternatives[1].Machines,
					nil
			case strings.HasPrefix(w.What, "max_runtime"):
				length, err := time.ParseDuration(strings.Fields(w.What)[1])
				if err != nil {
					t.Fatal(err)
				}
				b.MaxRuntime, b.P95 = length, w.P95
				b.P50 = min(b.P50, b.P95)
			default:
				b.Machines, b.GPUs, b.P50, b.P95, b.Hourly = 1, map[string]int{"A100": 8}, a.P50/2, w.P95, a.Hourly/2
			}
			p := h.params(at)
			p.DryRun = true
			if got, err := Decide(context.Background(), b, p); err != nil || got.Decision != w.Decision {
				t.Errorf("%s %q is %s, and is decided %+v, %v", w.Kind, w.What, w.Decision, got, err)
			}
		}
		return out
	}
	h := newMemoryStores(t, budgets)
	got := ways(h, a)
	if w := got["smaller max_runtime"]; w.What != "max_runtime 10h" || w.P95 != 1000*money.USD || w.Decision != Held {
		t.Errorf("a shorter run is %+v", w)
	}
	if w := got["smaller 1"]; w.What != "1 machine at once for as long" || w.P95 != 600*money.USD {
		t.Errorf("fewer machines are %+v", w)
	}
	if w := got["cheaper 4"]; w.What != "4 × spot" {
		t.Errorf("cheaper is %+v", w)
	}
	if w := got["raise budget"]; !strings.Contains(w.What, "raised by $200.00") {
		t.Errorf("a larger budget is %+v", w)
	}
	if _, ok := got["later a"]; ok {
		t.Error("a run that exceeds the whole budget passes later")
	}

	// The budget of the month is spent: the next one begins on the first.
	h = newMemoryStores(t, budgets)
	h.holds.Charge(budgettest.Charge{At: now, Owner: a.Owner, Purpose: inventory.Training, Amount: 950 * money.USD})
	b := a
	b.P95, b.P50, b.Hourly = 600*money.USD, 300*money.USD, 50*money.USD
	if w := ways(h, b)["later a"]; w.At == nil || !w.At.Equal(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("later is %+v", w)
	}

	// All GPUs are held until the hold of another ends.
	h = newMemoryStores(t, budgets)
	other := job(90)
	held := decide(t, h, other, now)
	c := a
	c.P95, c.P50, c.Hourly = 90*money.USD, 45*money.USD, 10*money.USD
	w := ways(h, c)["later a"]
	if want := now.Add(12*time.Hour + budget.Slack); w.At == nil || !w.At.Equal(want) {
		t.Errorf("capacity is free at %+v, want the end of hold %s at %s", w, held.HoldID, want)
	}
}
