package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestThresholdIsExact checks that one nano-dollar above the threshold asks and the threshold does
// not.
func TestThresholdIsExact(t *testing.T) {
	for more, verdict := range map[money.Amount]Verdict{-1: Allow, 0: Allow, 1: Held} {
		a := job(100)
		a.P95 += more
		want(t, decide(t, newMemoryStores(t, team), a, now), verdict, "")
	}
}

// TestKeyCoversHourlyRate checks that a higher hourly rate under the same key is another run.
func TestKeyCoversHourlyRate(t *testing.T) {
	h := newMemoryStores(t, team)
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
	if d, err := Decide(context.Background(), faster, h.params(now)); err == nil ||
		!strings.Contains(err.Error(), "was admitted for") {
		t.Errorf("a faster run has %+v, %v", d, err)
	}
}

// killBeforeHoldIsLive lets a process use an approval of $400 and crash before its hold is live.
func killBeforeHoldIsLive(t *testing.T, h *memoryStores) {
	t.Helper()
	h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
	reserved := false
	h.fault = func(point string) error {
		if point == "before reserve" && reserved { // the second reserve makes the pending hold live
			return errKilled
		}
		reserved = reserved || point == "after reserve"
		return nil
	}
	if _, err := Decide(context.Background(), job(400), h.params(now)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	h.fault = nil
	if h.usedApprovals() != 1 || len(h.liveHolds(t, now)) != 0 {
		t.Fatalf("%d approvals were used, %d holds are live", h.usedApprovals(), len(h.liveHolds(t, now)))
	}
}

// TestUsedApprovalCoversItsAmount checks that an approval used before a crash is found for the same
// or a smaller amount only.
func TestUsedApprovalCoversItsAmount(t *testing.T) {
	for _, tc := range []struct {
		more money.Amount
		want Verdict
	}{{-1, Allow}, {0, Allow}, {1, Held}} {
		h := newMemoryStores(t, team)
		killBeforeHoldIsLive(t, h)
		a := job(400)
		a.P95 += tc.more
		want(t, decide(t, h, a, now), tc.want, "")
		if live := h.liveHolds(t, now); (len(live) == 1) != (tc.want == Allow) || h.usedApprovals() != 1 {
			t.Errorf("%d nano-dollars more: %d holds are live, %d approvals used", tc.more,
				len(live), h.usedApprovals())
		}
	}
}

// TestUsesFoundApprovalOnly checks that a newer approval of the same plan stays unused.
func TestUsesFoundApprovalOnly(t *testing.T) {
	h := newMemoryStores(t, team)
	h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
	other := h.requests[0]
	other.ID, other.Version = "0ther", 0
	h.fault = func(point string) error {
		if point == "after reserve" {
			h.fault = nil
			_, err := h.PutRequest(context.Background(), other, approval.Event{})
			return err
		}
		return nil
	}
	d, err := Decide(context.Background(), job(400), h.params(now))
	if err != nil || d.Decision != Allow || d.ApprovalID == "0ther" || len(h.liveHolds(t, now)) != 1 {
		t.Fatalf("got %+v, %v with %d live holds", d, err, len(h.liveHolds(t, now)))
	}
	if r, err := h.Request(context.Background(), "0ther"); err != nil || r.State != approval.Approved {
		t.Errorf("the other approval is %+v, %v", r, err)
	}
}

// TestRefusedProofAdmitsNothing checks that an approval with a refused proof requires a new
// request, and that an uncheckable proof is an error.
func TestRefusedProofAdmitsNothing(t *testing.T) {
	for name, do := range map[string]func(h *memoryStores, id string, p Params) (Decision, error){
		"launch": func(_ *memoryStores, _ string, p Params) (Decision, error) {
			return Decide(context.Background(), job(400), p)
		},
		"extension": func(_ *memoryStores, id string, p Params) (Decision, error) {
			return Extend(context.Background(), id, 400*money.USD, now.Add(12*time.Hour), "ana", p)
		},
	} {
		h := newMemoryStores(t, team)
		id := admitRunningJob(t, h).ID
		d, err := do(h, id, h.params(now))
		if err != nil {
			t.Fatal(err)
		}
		h.approve(t, d.ApprovalID, now)
		p := h.params(now)
		unread := 1
		p.Desk.Check = func(context.Context, approval.Request) error {
			if unread--; unread >= 0 {
				return errKilled
			}
			return &approval.Refusal{Rule: "proof", Why: "its session is over"}
		}
		if d, err := do(h, id, p); !errors.Is(err, errKilled) || h.usedApprovals() != 0 ||
			h.requests[0].State != approval.Approved {
			t.Errorf("%s: not to be checked: %+v, %v", name, d, err)
		}
		d, err = do(h, id, p)
		if err != nil {
			t.Fatal(err)
		}
		want(t, d, Held, "its session is over")
		if h.usedApprovals() != 0 || len(h.requests) != 2 || h.requests[1].State != approval.Void {
			t.Errorf("%s: refused: the requests are %+v", name, h.requests)
		}
	}
}

func TestRecordsEveryDenial(t *testing.T) {
	h := newMemoryStores(t, team)
	for i := range 3 {
		want(t, decide(t, h, job(4000), now.Add(time.Duration(i)*time.Minute)), Denied, "")
	}
	if _, nameless := h.records[""]; nameless || len(h.records) != 3 {
		t.Errorf("3 denials are recorded as %+v", h.records)
	}
}

// TestPlanDescribesRun checks that an approver sees duration, machines and remaining budget.
func TestPlanDescribesRun(t *testing.T) {
	h := newMemoryStores(t, team)
	decide(t, h, job(400), now)
	plan, _ := h.requests[0].Shown()
	for _, note := range []string{
		"runs for at most 12h", "machines: 1", "GPUs: 8 A100",
		"budget vision until 2026-12-01: $1,000.00 of $1,000.00 left before, $600.00 after",
	} {
		if !strings.Contains(strings.Join(plan.Notes, "\n"), note) {
			t.Errorf("no %q in %q", note, plan.Notes)
		}
	}
	a := job(400)
	a.MaxRuntime, a.Machines, a.GPUs = 0, 0, nil
	h = newMemoryStores(t, team)
	decide(t, h, a, now)
	if plan, _ := h.requests[0].Shown(); len(plan.Notes) != 2 {
		t.Errorf("its duration and its machines are unknown: %q", plan.Notes)
	}
}

// TestUsesNewestApproval checks that the newest of two approvals admits one run and the other
// stays.
func TestUsesNewestApproval(t *testing.T) {
	h := newMemoryStores(t, team)
	h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
	newer := h.requests[0]
	newer.ID, newer.Version = "newer", 0
	if _, err := h.PutRequest(context.Background(), newer, approval.Event{}); err != nil {
		t.Fatal(err)
	}
	if d := decide(t, h, job(400), now); d.Decision != Allow || d.ApprovalID != "newer" || h.usedApprovals() != 1 {
		t.Errorf("got %+v, %d approvals were used", d, h.usedApprovals())
	}
}

// TestUsedApprovalCoversItsExtension checks that a used approval of an extension covers nothing
// that costs more.
func TestUsedApprovalCoversItsExtension(t *testing.T) {
	h := newMemoryStores(t, team)
	hold := admitRunningJob(t, h)
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
	if _, err := extend(400 * money.USD); !errors.Is(err, errKilled) || h.usedApprovals() != 1 {
		t.Fatalf("%v, %d approvals used", err, h.usedApprovals())
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

func TestExtendsOnlyLiveHolds(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(d budget.Desk, id string) error
	}{
		{"released", func(d budget.Desk, id string) error {
			_, err := d.Release(context.Background(), id, "ana", now)
			return err
		}},
		{"settled", func(d budget.Desk, id string) error {
			_, err := d.Settle(context.Background(), id, money.USD, "ana", now)
			return err
		}},
	} {
		h := newMemoryStores(t, team)
		hold := admitRunningJob(t, h)
		if err := tc.end(h.params(now).Budgets, hold.ID); err != nil {
			t.Fatal(err)
		}
		for _, dollars := range []money.Amount{1, 400, 4000} {
			d, err := Extend(context.Background(), hold.ID, dollars*money.USD, hold.Until, "ana", h.params(now))
			if err == nil || !strings.Contains(err.Error(), tc.name) || len(h.requests) != 0 {
				t.Errorf("a %s hold was extended to $%d: %+v, %v", tc.name, dollars, d, err)
			}
		}
	}
	h := newMemoryStores(t, team)
	hold := admitRunningJob(t, h)
	if _, err := Extend(context.Background(), hold.ID, money.USD, hold.Until, "ana",
		h.params(hold.ExpiresAt)); err == nil {
		t.Error("an expired hold was extended")
	}
	if state := hold.At(hold.ExpiresAt); state != budget.Expired {
		t.Errorf("it is %s", state)
	}
	if got := (approval.Request{State: approval.Approved, ExpiresAt: now}).At(now); got != approval.Expired {
		t.Errorf("an approval is %s when it expires", got)
	}
}

func TestRejectsInvalidAsks(t *testing.T) {
	for name, change := range map[string]func(*Ask){
		"no kind": func(a *Ask) {
			a.Kind = ""
		}, "no name": func(a *Ask) { a.Name = "" }, "no hash": func(a *Ask) { a.SpecHash = "" },
		"less than nothing": func(a *Ask) { a.P50 = -1 }, "less an hour": func(a *Ask) { a.Hourly = -1 },
		"fewer machines": func(a *Ask) { a.Machines = -1 }, "a shorter run": func(a *Ask) { a.MaxRuntime = -1 },
	} {
		a := job(40)
		change(&a)
		if d, err := Decide(context.Background(), a, newMemoryStores(t, team).params(now)); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
	}
	a := job(40)
	a.Machines = 0
	want(t, decide(t, newMemoryStores(t, team), a, now), Allow, "")
}

// TestHoldDuration checks that work without a time limit is held for as long as its money lasts.
func TestHoldDuration(t *testing.T) {
	for _, tc := range []struct {
		max    time.Duration
		hourly money.Amount
		want   time.Duration
	}{
		{7 * time.Hour, 4 * money.USD, 7 * time.Hour}, {0, 4 * money.USD, 11 * time.Hour}, {0, 1, budget.MaxRun},
		{0, 0, defaultHoldTime},
	} {
		h := newMemoryStores(t, team)
		a := job(40)
		a.MaxRuntime, a.Hourly = tc.max, tc.hourly
		decide(t, h, a, now)
		if held := h.liveHolds(t, now); len(held) != 1 || held[0].Until.Sub(held[0].From) != tc.want {
			t.Errorf("at $%s an hour for %s: held are %+v, want %s", tc.hourly, tc.max, held, tc.want)
		}
	}
}

// TestStoreErrorsAdmitNothing fails each read or write once: the result is an error or the normal
// decision.
func TestStoreErrorsAdmitNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(h *memoryStores, hold string) (Decision, error)
		want Verdict
	}{
		{"allow", func(h *memoryStores, _ string) (Decision, error) {
			return Decide(context.Background(), job(40), h.params(now))
		}, Allow},
		{"by a key", func(h *memoryStores, _ string) (Decision, error) {
			a := job(40)
			a.Key = "k"
			return Decide(context.Background(), a, h.params(now))
		}, Allow},
		{"ask", func(h *memoryStores, _ string) (Decision, error) {
			return Decide(context.Background(), job(400), h.params(now))
		}, Held},
		{"deny", func(h *memoryStores, _ string) (Decision, error) {
			return Decide(context.Background(), job(4000), h.params(now))
		}, Denied},
		{"extend", func(h *memoryStores, hold string) (Decision, error) {
			return Extend(context.Background(), hold, 50*money.USD, now.Add(time.Hour), "ana", h.params(now))
		}, Allow},
	} {
		for kill := 1; ; kill++ {
			h := newMemoryStores(t, team)
			id := admitRunningJob(t, h).ID
			points, point := 0, ""
			h.fault = func(at string) error {
				if points++; points == kill {
					point = at
					return errKilled
				}
				return nil
			}
			d, err := tc.do(h, id)
			if points < kill {
				if kill < 4 || err != nil || d.Decision != tc.want {
					t.Errorf("%s with %d points to fail at is %+v, %v", tc.name, kill-1, d, err)
				}
				break
			}
			if !errors.Is(err, errKilled) || d.Decision != "" {
				t.Errorf("%s failed at %s, point %d, and is %+v, %v", tc.name, point, kill, d, err)
			}
		}
	}
}
