package gate

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/money"
)

// admitRunningJob admits ana's job of $40 and returns its hold.
func admitRunningJob(t testing.TB, h *memoryStores) budget.Hold {
	t.Helper()
	decide(t, h, job(40), now)
	return h.liveHolds(t, now)[0]
}

func extendBy(t testing.TB, h *memoryStores, id string, dollars int64, by time.Duration) Decision {
	t.Helper()
	d, err := Extend(context.Background(), id, money.Amount(dollars)*money.USD, now.Add(by), "ana", h.params(now))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestExtensionIsGated(t *testing.T) {
	for _, tc := range []struct {
		name    string
		dollars int64
		by      time.Duration
		want    Verdict
		says    string
		amount  money.Amount // of the hold afterwards
	}{
		{
			"under the threshold", 100, 24 * time.Hour, Allow, "it may cost up to $100.00 until 2026-11-22T12:30:00Z",
			100,
		},
		{"over the threshold", 400, 24 * time.Hour, Held, "over $100.00 it needs approval", 40},
		{"over the budget", 1001, 24 * time.Hour, Denied, "$1,001.00 asked for, $1,000.00 of $1,000.00 is left", 40},
		{"for less, and shorter", 30, time.Hour, Allow, "until 2026-11-22T00:30:00Z", 30},
		{"a time that costs the threshold", 40, 25 * time.Hour, Allow, "until 2026-11-22T13:30:00Z", 40},
		{
			"a time that costs more than the threshold", 40, 25*time.Hour + time.Second, Held,
			"it may cost up to $100.00, and over $100.00 it needs approval", 40,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newMemoryStores(t, team)
			hold := admitRunningJob(t, h)
			want(t, extendBy(t, h, hold.ID, tc.dollars, tc.by), tc.want, tc.says)
			if after := h.liveHolds(t, now); len(after) != 1 || after[0].Amount != tc.amount*money.USD ||
				after[0].Until.Before(hold.Until) {
				t.Errorf("the holds are %+v", after)
			}
		})
	}
}

func TestApprovedExtensionOnce(t *testing.T) {
	h := newMemoryStores(t, team)
	hold := admitRunningJob(t, h)
	h.approve(t, extendBy(t, h, hold.ID, 400, 24*time.Hour).ApprovalID, now)
	want(t, extendBy(t, h, hold.ID, 401, 24*time.Hour), Held, "")
	want(t, extendBy(t, h, hold.ID, 400, 24*time.Hour+1), Held, "") // the approval is for 24 hours
	want(t, extendBy(t, h, hold.ID, 400, 24*time.Hour), Allow, "bo approved up to $400.00")
	if h.usedApprovals() != 1 {
		t.Errorf("%d approvals were used", h.usedApprovals())
	}
	want(t, extendBy(t, h, hold.ID, 400, 24*time.Hour), Allow, "") // no more than it has
	want(t, extendBy(t, h, hold.ID, 400, 48*time.Hour), Held, "")  // more time
	d, err := Extend(context.Background(), hold.ID, 400*money.USD, now.Add(25*time.Hour), "ana",
		h.params(now.Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	want(t, d, Held, "") // 24 hours once more: the approval was used
	if _, err := h.params(now).Budgets.Release(context.Background(), hold.ID, "ana", now); err != nil {
		t.Fatal(err)
	}
	if _, err := Extend(context.Background(), hold.ID, money.USD, now, "ana", h.params(now)); err == nil {
		t.Error("what was released was extended")
	}
}

func TestExtensionKilledAtEveryWrite(t *testing.T) {
	for kill := 1; ; kill++ {
		h := newMemoryStores(t, team)
		hold := admitRunningJob(t, h)
		h.approve(t, extendBy(t, h, hold.ID, 400, 24*time.Hour).ApprovalID, now)
		points := 0
		h.fault = func(string) error {
			if points++; points >= kill {
				return errKilled
			}
			return nil
		}
		d, err := Extend(context.Background(), hold.ID, 400*money.USD, now.Add(24*time.Hour), "ana", h.params(now))
		h.fault = nil
		if err == nil {
			if kill < 7 || d.Decision != Allow {
				t.Errorf("an extension has only %d points to die at, and is %+v", kill-1, d)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		d = extendBy(t, h, hold.ID, 400, 24*time.Hour)
		if live := h.liveHolds(t, now); d.Decision != Allow || h.usedApprovals() != 1 || len(live) != 1 ||
			live[0].Amount != 400*money.USD {
			t.Errorf("killed at point %d: %+v, %d approvals used, holds %s", kill, d,
				h.usedApprovals(), fmt.Sprint(live))
		}
	}
}

// TestExtensionThreshold checks to the nano-dollar that the admitted amount does not raise the
// threshold.
func TestExtensionThreshold(t *testing.T) {
	for more, verdict := range map[money.Amount]Verdict{0: Allow, 1: Held} {
		h := newMemoryStores(t, team)
		hold := admitRunningJob(t, h)
		d, err := Extend(context.Background(), hold.ID, DefaultThreshold+more, hold.Until, "ana", h.params(now))
		if err != nil {
			t.Fatal(err)
		}
		want(t, d, verdict, "")
	}
	h := newMemoryStores(t, team)
	h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
	decide(t, h, job(400), now)
	hold := h.liveHolds(t, now)[0]
	d, err := Extend(context.Background(), hold.ID, 400*money.USD+1, hold.Until, "ana", h.params(now))
	if err != nil {
		t.Fatal(err)
	}
	want(t, d, Held, "over $100.00 it needs approval")
}

func TestExtensionHourlyLimit(t *testing.T) {
	h := newMemoryStores(t, `budgets: [{id: vision, team: vision, purpose: training, amount: 1000, per_hour: 5}]`)
	hold := admitRunningJob(t, h)
	want(t, extendBy(t, h, hold.ID, 50, 12*time.Hour), Allow, "")
	set, err := budget.Parse("budgets.yaml",
		[]byte(`budgets: [{id: vision, team: vision, purpose: training, amount: 1000, per_hour: 3}]`))
	if err != nil {
		t.Fatal(err)
	}
	h.set = set
	want(t, extendBy(t, h, hold.ID, 60, 12*time.Hour), Denied, "$4.00 an hour asked for, $3.00 of $3.00 is left")
}

// TestExtensionsRespectBudget launches jobs of $90 and extends each over a year: a hold reserves in
// each month all that can be spent in it, so that a budget of $200 admits two.
func TestExtensionsRespectBudget(t *testing.T) {
	h := newMemoryStores(t,
		`budgets: [{id: vision, team: vision, purpose: training, amount: 200, thresholds: {warn: 98%, gate: 99%}}]`)
	admitted := 0
	for i := range 24 {
		a := job(90)
		a.Name = fmt.Sprint("job ", i)
		d := decide(t, h, a, now)
		if d.Decision != Allow {
			want(t, d, Denied, "budget vision: $90.00 asked for, $20.00 of $200.00 is left")
			continue
		}
		admitted++
		asked := extendBy(t, h, d.HoldID, 90, 8700*time.Hour)
		want(t, asked, Held, "it may cost up to $78,300.00")
		h.approve(t, asked.ApprovalID, now)
		want(t, extendBy(t, h, d.HoldID, 90, 8700*time.Hour), Allow, "")
	}
	if admitted != 2 {
		t.Errorf("%d jobs of $90 were admitted under $200", admitted)
	}
}
