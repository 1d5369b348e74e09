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

// running admits ana's job of $40 and returns its hold.
func running(t testing.TB, h *house) budget.Hold {
	t.Helper()
	decide(t, h, job(40), now)
	return h.live(t, now)[0]
}

func extended(t testing.TB, h *house, id string, dollars int64, by time.Duration) Decision {
	t.Helper()
	d, err := Extend(context.Background(), id, money.Amount(dollars)*money.USD, now.Add(by), "ana", h.params(now))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAnExtensionPassesTheGate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		dollars int64
		by      time.Duration
		want    Verdict
		says    string
		amount  money.Amount // of the hold, after it
	}{
		{"under the threshold", 100, 24 * time.Hour, Allow, "it may cost up to $100.00 until 2026-11-22T12:30:00Z", 100},
		{"over the threshold", 400, 24 * time.Hour, Held, "over $100.00 somebody has to approve it", 40},
		{"over the budget", 1001, 24 * time.Hour, Denied, "$1001.00 asked for, $1000.00 of $1000.00 is left", 40},
		{"for less, and shorter", 30, time.Hour, Allow, "until 2026-11-22T00:30:00Z", 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newHouse(t, team)
			hold := running(t, h)
			want(t, extended(t, h, hold.ID, tc.dollars, tc.by), tc.want, tc.says)
			if after := h.live(t, now); len(after) != 1 || after[0].Amount != tc.amount*money.USD || after[0].Until.Before(hold.Until) {
				t.Errorf("the holds are %+v", after)
			}
		})
	}
}

func TestAnApprovedExtension(t *testing.T) {
	h := newHouse(t, team)
	hold := running(t, h)
	h.approve(t, extended(t, h, hold.ID, 400, 24*time.Hour).ApprovalID, now)
	want(t, extended(t, h, hold.ID, 401, 24*time.Hour), Held, "")
	want(t, extended(t, h, hold.ID, 400, 24*time.Hour), Allow, "bo approved up to $400.00")
	if h.used() != 1 {
		t.Errorf("%d approvals were used", h.used())
	}
	want(t, extended(t, h, hold.ID, 400, 48*time.Hour), Allow, "") // time alone, for money that is held
	if _, err := h.params(now).Budgets.Release(context.Background(), hold.ID, now); err != nil {
		t.Fatal(err)
	}
	if _, err := Extend(context.Background(), hold.ID, money.USD, now, "ana", h.params(now)); err == nil {
		t.Error("what was released was extended")
	}
}

func TestAnExtensionKilledAnywhere(t *testing.T) {
	for kill := 1; ; kill++ {
		h := newHouse(t, team)
		hold := running(t, h)
		h.approve(t, extended(t, h, hold.ID, 400, 24*time.Hour).ApprovalID, now)
		points := 0
		h.fault = func(string) error {
			if points++; points >= kill {
				return errKilled
			}
			return nil
		}
		_, err := Extend(context.Background(), hold.ID, 400*money.USD, now.Add(24*time.Hour), "ana", h.params(now))
		h.fault = nil
		if err == nil {
			if kill < 7 {
				t.Errorf("an extension has only %d points to die at", kill-1)
			}
			return
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		d := extended(t, h, hold.ID, 400, 24*time.Hour)
		if live := h.live(t, now); d.Decision != Allow || h.used() != 1 || len(live) != 1 || live[0].Amount != 400*money.USD {
			t.Errorf("killed at point %d: %+v, %d approvals used, holds %s", kill, d, h.used(), fmt.Sprint(live))
		}
	}
}
