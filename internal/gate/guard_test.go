package gate

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestOneNanoOverTheThresholdAsks, and the threshold itself does not.
func TestOneNanoOverTheThresholdAsks(t *testing.T) {
	for more, verdict := range map[money.Amount]Verdict{-1: Allow, 0: Allow, 1: Held} {
		a := job(100)
		a.P95 += more
		want(t, decide(t, newHouse(t, team), a, now), verdict, "")
	}
}

// TestAKeyIsForItsHourlyRate: the run of a key was admitted at a rate, and a faster one of
// the same amount is another run.
func TestAKeyIsForItsHourlyRate(t *testing.T) {
	h := newHouse(t, team)
	a := job(40)
	a.Key = "build 7"
	first := decide(t, h, a, now)
	slower := a
	slower.Hourly--
	if d := decide(t, h, slower, now); d.HoldID != first.HoldID {
		t.Errorf("a slower run has hold %s, not %s", d.HoldID, first.HoldID)
	}
	faster := a
	faster.Hourly++
	if d, err := Decide(context.Background(), faster, h.params(now)); err == nil || !strings.Contains(err.Error(), "was admitted for") {
		t.Errorf("a faster run has %+v, %v", d, err)
	}
}

// killedBeforeItsHoldIsLive lets a process use an approval of $400 up and die before the
// hold is live.
func killedBeforeItsHoldIsLive(t *testing.T, h *house) {
	t.Helper()
	h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
	reserved := false
	h.fault = func(point string) error {
		if point == "before reserve" && reserved { // making the pending hold live is the second
			return errKilled
		}
		reserved = reserved || point == "after reserve"
		return nil
	}
	if _, err := Decide(context.Background(), job(400), h.params(now)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	h.fault = nil
	if h.used() != 1 || len(h.live(t, now)) != 0 {
		t.Fatalf("%d approvals were used, %d holds are live", h.used(), len(h.live(t, now)))
	}
}

// TestAUsedApprovalIsForItsAmount: the approval that a process used up before it died is
// found again for as much or less, and not for more.
func TestAUsedApprovalIsForItsAmount(t *testing.T) {
	for _, tc := range []struct {
		more money.Amount
		want Verdict
	}{{-1, Allow}, {0, Allow}, {1, Held}} {
		h := newHouse(t, team)
		killedBeforeItsHoldIsLive(t, h)
		a := job(400)
		a.P95 += tc.more
		want(t, decide(t, h, a, now), tc.want, "")
		if live := h.live(t, now); (len(live) == 1) != (tc.want == Allow) || h.used() != 1 {
			t.Errorf("%d nano-dollars more: %d holds are live, %d approvals used", tc.more, len(live), h.used())
		}
	}
}

// TestAnotherApprovalIsNotUsedInstead: where another approval of the same plan comes
// between, nothing becomes live under the one that was not used.
func TestAnotherApprovalIsNotUsedInstead(t *testing.T) {
	h := newHouse(t, team)
	h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
	other := h.requests[0]
	other.ID, other.Version = "0ther", 0
	h.fault = func(point string) error {
		if point == "after reserve" {
			h.fault = nil
			_, err := h.PutRequest(context.Background(), other)
			return err
		}
		return nil
	}
	d, err := Decide(context.Background(), job(400), h.params(now))
	if err == nil || !strings.Contains(err.Error(), "approval 0ther was used instead of") || len(h.live(t, now)) != 0 {
		t.Errorf("got %+v, %v with %d live holds", d, err, len(h.live(t, now)))
	}
}

// TestAUsedApprovalExtendsNothingElse: of an extension too, an approval that was used up
// carries out what it was for and nothing that costs more.
func TestAUsedApprovalExtendsNothingElse(t *testing.T) {
	h := newHouse(t, team)
	hold := running(t, h)
	until := hold.Until
	extend := func(dollars money.Amount) (Decision, error) {
		return Extend(context.Background(), hold.ID, dollars, until, "ana", h.params(now))
	}
	asked, err := extend(400 * money.USD)
	if err != nil {
		t.Fatal(err)
	}
	h.approve(t, asked.ApprovalID, now)
	h.fault = func(point string) error {
		if point == "before reserve" {
			return errKilled
		}
		return nil
	}
	if _, err := extend(400 * money.USD); !errors.Is(err, errKilled) || h.used() != 1 {
		t.Fatalf("%v, %d approvals used", err, h.used())
	}
	h.fault = nil
	d, err := extend(400*money.USD + 1)
	if err != nil {
		t.Fatal(err)
	}
	want(t, d, Held, "")
	if d, err = extend(400 * money.USD); err != nil {
		t.Fatal(err)
	}
	want(t, d, Allow, "bo approved up to $400.00")
}

// TestOnlyWhatIsLiveIsExtended, by an approval or under the threshold.
func TestOnlyWhatIsLiveIsExtended(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(d budget.Desk, id string) error
	}{
		{"released", func(d budget.Desk, id string) error { _, err := d.Release(context.Background(), id, now); return err }},
		{"settled", func(d budget.Desk, id string) error {
			_, err := d.Settle(context.Background(), id, money.USD, now)
			return err
		}},
	} {
		h := newHouse(t, team)
		hold := running(t, h)
		if err := tc.end(h.params(now).Budgets, hold.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := Extend(context.Background(), hold.ID, money.USD, hold.Until, "ana", h.params(now)); err == nil || !strings.Contains(err.Error(), tc.name) {
			t.Errorf("a %s hold was extended: %v", tc.name, err)
		}
	}
	h := newHouse(t, team)
	hold := running(t, h)
	if _, err := Extend(context.Background(), hold.ID, money.USD, hold.Until, "ana", h.params(hold.ExpiresAt)); err == nil {
		t.Error("an expired hold was extended")
	}
	if state := hold.At(hold.ExpiresAt); state != budget.Expired {
		t.Errorf("it is %s", state)
	}
	if got := (approval.Request{State: approval.Approved, ExpiresAt: now}).At(now); got != approval.Expired {
		t.Errorf("an approval is %s when it expires", got)
	}
}
