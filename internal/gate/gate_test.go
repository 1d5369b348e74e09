package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

var now = time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC)

// memoryStores are the stores of a decision in memory. Fault is called before and after every
// write.
type memoryStores struct {
	holds    budgettest.Store
	mu       sync.Mutex
	requests []approval.Request
	records  map[string]Record
	fault    func(point string) error
	set      budget.Set
}

func newMemoryStores(t testing.TB, budgets string) *memoryStores {
	t.Helper()
	set, err := budget.Parse("budgets.yaml", []byte(budgets))
	if err != nil {
		t.Fatal(err)
	}
	h := &memoryStores{set: set, records: map[string]Record{}}
	h.holds.Fault = h.callFault
	return h
}

func (h *memoryStores) callFault(point string) error {
	if h.fault == nil {
		return nil
	}
	return h.fault(point)
}

func (h *memoryStores) params(at time.Time) Params {
	return Params{
		Desk: approval.Desk{Store: h}, Budgets: budget.Desk{Store: &h.holds, Set: h.set}, Store: h,
		Threshold: DefaultThreshold, Now: at,
		// In memory each write is separate, so that partial decisions occur.
		Transact: func(_ context.Context, do func(Stores) error) error { return do(Stores{h, &h.holds, h}) }}
}

func (h *memoryStores) PutRequest(_ context.Context, r approval.Request, _ approval.Event) (approval.Request, error) {
	if err := h.callFault("before request"); err != nil {
		return approval.Request{}, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.IndexFunc(h.requests, func(old approval.Request) bool { return old.ID == r.ID })
	switch {
	case i < 0:
		r.Version = 1
		h.requests = slices.Insert(h.requests, 0, r)
	case h.requests[i].Version != r.Version:
		return approval.Request{}, approval.ErrConflict
	default:
		r.Version++
		h.requests[i] = r
	}
	return r, h.callFault("after request")
}

func (h *memoryStores) Request(_ context.Context, id string) (approval.Request, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.requests {
		if r.ID == id {
			return r, nil
		}
	}
	return approval.Request{}, approval.ErrNotFound
}

func (h *memoryStores) Requests(_ context.Context, hash string) ([]approval.Request, error) {
	if err := h.callFault("read"); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.requests), func(r approval.Request) bool {
		return hash != "" && r.PlanHash != hash
	}), nil
}

func (h *memoryStores) PutDecision(_ context.Context, r Record) error {
	if err := h.callFault("before record"); err != nil {
		return err
	}
	h.mu.Lock()
	h.records[r.ID] = r
	h.mu.Unlock()
	return h.callFault("after record")
}

func (h *memoryStores) Decisions(_ context.Context, from, to time.Time) ([]Record, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Record
	for _, r := range h.records {
		if !r.At.Before(from) && r.At.Before(to) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// liveHolds returns the live holds, and usedApprovals the number of used requests.
func (h *memoryStores) liveHolds(t testing.TB, at time.Time) (out []budget.Hold) {
	t.Helper()
	all, err := h.holds.Holds(context.Background(), at.AddDate(-1, 0, 0), at.AddDate(1, 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(b budget.Hold) bool { return b.At(at) != budget.Live })
}

func (h *memoryStores) usedApprovals() (n int) {
	for _, r := range h.requests {
		if r.State == approval.Used {
			n++
		}
	}
	return n
}

// approve approves a request as bo.
func (h *memoryStores) approve(t testing.TB, id string, at time.Time) {
	t.Helper()
	if _, err := (approval.Desk{Store: h}).Decide(context.Background(), id, bo, true, "", at); err != nil {
		t.Fatal(err)
	}
}

var bo = approval.Person{Name: "bo", Roles: []string{approval.DefaultRole}}

const team = `budgets: [{id: vision, team: vision, purpose: training, amount: 1000}]`

// job returns ana's training job for team vision.
func job(dollars int64) Ask {
	p95 := money.Amount(dollars) * money.USD
	return Ask{
		Kind: "job", Name: "resnet50", SpecHash: "5eed", Owner: inventory.Owner{Team: "vision", User: "ana"},
		Purpose: inventory.Training,
		P50:     p95 / 2, P95: p95, Hourly: p95 / 10, GPUs: map[string]int{"A100": 8}, Machines: 1,
		MaxRuntime: 12 * time.Hour, AskedBy: "ana"}
}

func decide(t testing.TB, h *memoryStores, a Ask, at time.Time) Decision {
	t.Helper()
	d, err := Decide(context.Background(), a, h.params(at))
	if err != nil {
		t.Fatal(err)
	}
	if allowed := d.Decision == Allow; allowed != (d.HoldID != "") {
		t.Fatalf("a hold is for what is allowed, and for that alone: %+v", d)
	}
	return d
}

func want(t testing.TB, d Decision, v Verdict, says string) {
	t.Helper()
	if d.Decision != v || !strings.Contains(strings.Join(d.Reasons, "\n"), says) {
		t.Fatalf("got %s: %q, want %s: %q", d.Decision, d.Reasons, v, says)
	}
}

func TestAllowsCheapJob(t *testing.T) {
	h := newMemoryStores(t, team)
	d := decide(t, h, job(40), now)
	want(t, d, Allow, "allowed: at most $40.00, of $100.00 that a run may cost (gate.ask_over)")
	if l := d.Budget[0]; l.Budget != "vision" || l.LeftBefore != 1000*money.USD || l.LeftAfter != 960*money.USD ||
		l.Asked != 40*money.USD || l.State != budget.OK {
		t.Errorf("the budget is %+v", l)
	}
	held := h.liveHolds(t, now)
	if len(held) != 1 || held[0].ID != d.HoldID || held[0].Amount != 40*money.USD ||
		held[0].ExpiresAt != now.Add(12*time.Hour+budget.Slack) {
		t.Errorf("held is %+v", held)
	}
	if d = decide(t, h, job(100), now); d.Decision != Allow {
		t.Errorf("$100 is not over $100: %+v", d)
	}
}

func TestExpensiveJobNeedsApprovalOnce(t *testing.T) {
	h := newMemoryStores(t, team)
	asked := decide(t, h, job(400), now)
	want(t, asked, Held, "it may cost up to $400.00, and over $100.00 it needs approval")
	if again := decide(t, h, job(400), now); again.ApprovalID != asked.ApprovalID || len(h.requests) != 1 {
		t.Errorf("asking twice made two requests: %+v", again)
	}
	for _, self := range []string{"ana", "Ana@example.com"} {
		_, err := (approval.Desk{Store: h}).Decide(context.Background(), asked.ApprovalID,
			approval.Person{Name: self, Roles: bo.Roles}, true, "", now)
		var refusal *approval.Refusal
		if !errors.As(err, &refusal) || refusal.Rule != "self" {
			t.Errorf("%s approved the own request: %v", self, err)
		}
	}
	h.approve(t, asked.ApprovalID, now.Add(time.Hour))
	passed := decide(t, h, job(400), now.Add(2*time.Hour))
	want(t, passed, Allow, "bo approved up to $400.00")
	if passed.ApprovalID != asked.ApprovalID || len(h.liveHolds(t, now.Add(2*time.Hour))) != 1 {
		t.Errorf("passed by %s, want %s", passed.ApprovalID, asked.ApprovalID)
	}
	again := decide(t, h, job(400), now.Add(3*time.Hour))
	want(t, again, Held, "it needs approval")
	if again.ApprovalID == asked.ApprovalID {
		t.Error("an approval was used twice")
	}
}

func TestApprovalCoversExactPlan(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Ask)
		after  time.Duration
		want   Verdict
		says   string
	}{
		{"the same", func(*Ask) {}, 0, Allow, "bo approved"},
		{"cheaper", func(a *Ask) { a.P95-- }, 0, Allow, "bo approved"},
		{"a nano-dollar more", func(a *Ask) { a.P95++ }, 0, Held, "was for $400.00; it now costs up to"},
		{"an edited file", func(a *Ask) { a.SpecHash = "ed17" }, 0, Held, "it needs approval"},
		{"another name", func(a *Ask) { a.Name = "other" }, 0, Held, "it needs approval"},
		{"another owner", func(a *Ask) { a.Owner.Project = "other" }, 0, Held, "it needs approval"},
		{"asked by whoever approved", func(a *Ask) { a.AskedBy = "bo" }, 0, Held, "it needs approval"},
		{"too late", func(*Ask) {}, approval.DefaultExpiry, Held, "it needs approval"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newMemoryStores(t, team)
			h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
			a := job(400)
			tc.change(&a)
			want(t, decide(t, h, a, now.Add(tc.after)), tc.want, tc.says)
		})
	}
}

// TestApprovalForLessBoundsTheRun admits a run that keeps to its limit for what was approved, less
// than it asked for, and no other run.
func TestApprovalForLessBoundsTheRun(t *testing.T) {
	approved := func(t *testing.T) *memoryStores {
		h := newMemoryStores(t, team)
		a := job(656)
		a.Bounded = true
		first := decide(t, h, a, now)
		desk := approval.Desk{Store: h}
		if _, err := desk.ApproveUpTo(t.Context(), first.ApprovalID, bo, 400*money.USD, "", now); err != nil {
			t.Fatal(err)
		}
		return h
	}
	for _, tc := range []struct {
		name   string
		change func(*Ask)
		want   Verdict
		says   string
		held   money.Amount
	}{
		{"the same", func(*Ask) {}, Allow, "bo approved up to $400.00", 400 * money.USD},
		{
			"cheaper than approved", func(a *Ask) { a.P50, a.P95 = 0, 300*money.USD }, Allow, "bo approved",
			300 * money.USD,
		},
		{"over what was asked for", func(a *Ask) { a.P95++ }, Held, "was for $400.00; it now costs up to", 0},
		{"an edited file", func(a *Ask) { a.SpecHash = "ed17" }, Held, "it needs approval", 0},
		{"a run without a limit", func(a *Ask) { a.Bounded = false }, Held, "curfew run keeps a job to", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, a := approved(t), job(656)
			a.Bounded, a.Key = true, "run-1"
			tc.change(&a)
			d := decide(t, h, a, now)
			want(t, d, tc.want, tc.says)
			if d.Reserved != tc.held {
				t.Errorf("it reserves %s", d.Reserved.Exact())
			}
			if tc.want != Allow {
				return
			}
			if again := decide(t, h, a, now); again.HoldID != d.HoldID || again.Reserved != tc.held {
				t.Errorf("repeated: %+v", again)
			}
		})
	}
}

// TestHigherPriceVoidsApproval checks that the approval stays void when the price falls again.
func TestHigherPriceVoidsApproval(t *testing.T) {
	h := newMemoryStores(t, team)
	first := decide(t, h, job(400), now).ApprovalID
	h.approve(t, first, now)
	second := decide(t, h, job(401), now)
	want(t, second, Held, "needs a new approval")
	if r, _ := h.Request(context.Background(), first); r.State != approval.Void {
		t.Errorf("the first request is %s", r.State)
	}
	want(t, decide(t, h, job(400), now), Held, "")
	h.approve(t, second.ApprovalID, now)
	want(t, decide(t, h, job(400), now), Allow, "bo approved up to $401.00")
}

func TestBudgetVerdicts(t *testing.T) {
	charge := func(dollars int64) budgettest.Charge {
		return budgettest.Charge{
			At: now.Add(-time.Hour), Owner: job(1).Owner, Purpose: inventory.Training,
			Amount: money.Amount(dollars) * money.USD,
		}
	}
	for _, tc := range []struct {
		name    string
		budgets string
		spent   int64
		change  func(*Ask)
		want    Verdict
		says    string
	}{
		{
			"at 100%", team, 1000, nil, Denied,
			"budget vision: $40.00 asked for, $0.00 of $1,000.00 is left ($1,000.00 spent, $0.00 held)",
		},
		{"a cent short", team, 960, func(a *Ask) {
			a.P95 += money.Cent
		}, Denied, "$40.01 asked for, $40.00 of $1,000.00 is left"},
		{"up to the gate", team, 859, nil, Allow, "$899.00 of $1,000.00 is spent or reserved"},
		{"from the gate on", team, 860, nil, Held, "from 90% on it needs approval"},
		{"warned", team, 760, nil, Allow, "$800.00 of $1,000.00 is spent or reserved"},
		{"another purpose", team, 0, func(a *Ask) {
			a.Purpose = inventory.Inference
		}, Held, "no budget covers team vision, user ana, purpose inference"},
		{"data of an unknown size", team, 0, func(a *Ask) {
			a.Unknown = []string{"what is read of s3://datasets"}
		}, Held, "costs that cannot be estimated are in no amount: what is read of s3://datasets"},
		{"an unknown owner", team, 0, func(a *Ask) {
			a.Owner, a.Purpose = inventory.Owner{}, ""
		}, Held, "no budget covers work without an owner"},
		{"a mistyped team", team, 0, func(a *Ask) { a.Owner.Team = "visoin" }, Held, "no budget covers team visoin"},
		{"without any budget", "", 0, nil, Allow, "at most $40.00"},
		{"for nothing", team, 1001, func(a *Ask) { a.P50, a.P95, a.Hourly = 0, 0, 0 }, Allow, ""},
		{"deny beats ask", team, 700, func(a *Ask) {
			a.P95 = 400 * money.USD
		}, Denied, "$300.00 of $1,000.00 is left"},
		{
			"a quota of GPUs", "quotas: [{id: a100, gpus: {a100: 7}}]", 0, nil, Denied,
			"quota a100: 8 a100 asked for, 0 of 7 are reserved",
		},
		{
			"a quota of machines", "quotas: [{id: none, team: vision, machines: 0}]", 0, nil, Denied,
			"quota none: 1 machines asked for, 0 of 0 are reserved",
		},
		{
			"dollars an hour", "budgets: [{id: vision, team: vision, purpose: training, amount: 1000, per_hour: 3}]",
			0, nil,
			Denied, "$4.00 an hour asked for, $3.00 of $3.00 is left",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newMemoryStores(t, tc.budgets)
			h.holds.Charge(charge(tc.spent))
			a := job(40)
			if tc.change != nil {
				tc.change(&a)
			}
			want(t, decide(t, h, a, now), tc.want, tc.says)
			if records, _ := h.Decisions(context.Background(), now, now.Add(1)); len(records) != 1 ||
				records[0].Decision != tc.want {
				t.Errorf("recorded %+v", records)
			}
		})
	}
}

// TestDenialKeepsApproval checks that a denied run can pass later with its approval.
func TestDenialKeepsApproval(t *testing.T) {
	h := newMemoryStores(t, team)
	h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
	other := decide(t, h, func() Ask { a := job(100); a.Name = "other"; return a }(), now)
	h.holds.Charge(budgettest.Charge{
		At: now, Owner: job(1).Owner, Purpose: inventory.Training, Amount: 501 * money.USD,
	})
	want(t, decide(t, h, job(400), now), Denied, "$399.00 of $1,000.00 is left ($501.00 spent, $100.00 held)")
	if h.usedApprovals() != 0 {
		t.Fatal("a denial used the approval up")
	}
	if _, err := h.params(now).Budgets.Release(context.Background(), other.HoldID, "ana", now); err != nil {
		t.Fatal(err)
	}
	want(t, decide(t, h, job(400), now), Allow, "bo approved")
}

func TestRejectsUnknownInputs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Ask)
		says   string
	}{
		{"who asks", func(a *Ask) { a.AskedBy = " " }, "not known who asks"},
		{"the specification", func(a *Ask) { a.SpecHash = "" }, "the hash of its specification"},
		{"an estimate", func(a *Ask) { a.P95 = a.P50 - 1 }, "no estimate"},
		{"its end", func(a *Ask) { a.MaxRuntime = 9000 * time.Hour }, "at most 366 days"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newMemoryStores(t, team)
			a := job(40)
			tc.change(&a)
			d, err := Decide(context.Background(), a, h.params(now))
			if err == nil || !strings.Contains(err.Error(), tc.says) || d.Decision != "" {
				t.Errorf("got %+v, %v; want %q", d, err, tc.says)
			}
		})
	}
}

func TestZeroThresholdAsks(t *testing.T) {
	h := newMemoryStores(t, "")
	p := h.params(now)
	p.Threshold = 0
	if d, err := Decide(context.Background(), job(1), p); err != nil || d.Decision != Held {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestConcurrentLaunchesRespectBudget(t *testing.T) {
	for range 50 {
		h := newMemoryStores(t, team)
		h.holds.Charge(budgettest.Charge{
			At: now, Owner: job(1).Owner, Purpose: inventory.Training, Amount: 800 * money.USD,
		})
		var wg sync.WaitGroup
		won := make([]Verdict, 8)
		for i := range won {
			wg.Go(func() {
				a := job(90)
				a.Name = fmt.Sprint(i % 2)
				p := h.params(now)
				p.Budgets.Set, _ = budget.NewSet([]budget.Budget{
					{ID: "vision", Shared: true, Amount: 900 * money.USD, Thresholds: budget.Thresholds{Gate: 100}},
				}, nil)
				d, err := Decide(context.Background(), a, p)
				if err != nil {
					t.Error(err)
				}
				won[i] = d.Decision
			})
		}
		wg.Wait()
		if n := len(slices.DeleteFunc(won, func(v Verdict) bool { return v != Allow })); n != 1 ||
			len(h.liveHolds(t, now)) != 1 {
			t.Fatalf("%d of %d launches won one remainder", n, len(won))
		}
	}
}

// TestOneApprovalAdmitsOneRun lets many processes find the same approval concurrently, some with
// their own key.
func TestOneApprovalAdmitsOneRun(t *testing.T) {
	for range 50 {
		h := newMemoryStores(t, team)
		h.approve(t, decide(t, h, job(400), now).ApprovalID, now)
		var wg sync.WaitGroup
		allowed := make(chan string, 8)
		for i := range cap(allowed) {
			wg.Go(func() {
				a := job(400)
				if i%2 == 0 {
					a.Key = fmt.Sprint(i)
				}
				d, err := Decide(context.Background(), a, h.params(now))
				if err != nil {
					t.Error(err)
				}
				if d.Decision == Allow {
					allowed <- d.HoldID
				}
			})
		}
		wg.Wait()
		if len(allowed) != 1 || len(h.liveHolds(t, now)) != 1 || h.usedApprovals() != 1 {
			t.Fatalf("one approval let %d runs in, holds %d, and was used %d times", len(allowed),
				len(h.liveHolds(t, now)),
				h.usedApprovals())
		}
	}
}

func TestReportsEarlierDenial(t *testing.T) {
	h := newMemoryStores(t, team)
	first := decide(t, h, job(400), now)
	if _, err := (approval.Desk{Store: h}).Decide(context.Background(), first.ApprovalID, bo, false,
		"use the reserved machines", now); err != nil {
		t.Fatal(err)
	}
	again := decide(t, h, job(400), now)
	want(t, again, Held, "request "+first.ApprovalID+" was denied by bo: use the reserved machines")
	if again.ApprovalID == first.ApprovalID {
		t.Error("a request that was denied is asked again")
	}
}

var errKilled = errors.New("killed")

// TestKilledAtEveryWrite kills the process before and after every write of a decision and decides
// again: the run is admitted once, with one hold and one used approval.
func TestKilledAtEveryWrite(t *testing.T) {
	for _, dollars := range []int64{40, 600} { // a leftover hold must not count against its own retry
		for _, key := range []string{"", "build 7"} {
			for _, later := range []time.Duration{time.Minute, budget.PendingFor + time.Hour} {
				t.Run(fmt.Sprintf("$%d, key %q, again after %s", dollars, key, later), func(t *testing.T) {
					kill := 1
					for killAndRetry(t, dollars, key, kill, later) {
						kill++
					}
					if kill < 7 {
						t.Errorf("a decision has only %d points to die at", kill-1)
					}
				})
			}
		}
	}
}

// killAndRetry kills a decision at one point and retries later; it returns false if the decision
// has fewer points.
func killAndRetry(t *testing.T, dollars int64, key string, kill int, later time.Duration) bool {
	h := newMemoryStores(t, team)
	a := job(dollars)
	a.Key = key
	approvals := 0
	if dollars > 100 {
		approvals = 1
		h.approve(t, decide(t, h, a, now).ApprovalID, now)
	}
	points, point := 0, ""
	h.fault = func(p string) error {
		if points++; points >= kill {
			point = cmp.Or(point, p)
			return errKilled
		}
		return nil
	}
	_, err := Decide(context.Background(), a, h.params(now))
	h.fault = nil
	if err == nil {
		return false
	}
	if !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	verdict, holds := Allow, 1
	if admitted := len(h.liveHolds(t, now)) == 1; admitted && key == "" {
		if verdict = Denied; approvals == 0 { // the run's hold leaves too little for another
			verdict, holds = Allow, 2
		}
	}
	at := now.Add(later)
	d := decide(t, h, a, at)
	if d.Decision != verdict || len(h.liveHolds(t, at)) != holds || h.usedApprovals() != approvals {
		t.Errorf("killed %s (%d): decided %s: %q with %d holds live and %d approvals used, want %s, %d, %d",
			point, kill, d.Decision, d.Reasons, len(h.liveHolds(t, at)), h.usedApprovals(), verdict, holds, approvals)
	}
	return true
}

func TestReportCounts(t *testing.T) {
	at := func(minutes int) time.Time { return now.Add(time.Duration(minutes) * time.Minute) }
	requests := []approval.Request{
		{ID: "a1", State: approval.Used, AskedAt: now, DecidedAt: at(10), ExpiresAt: at(999)},
		{ID: "a2", State: approval.Denied, AskedAt: now, DecidedAt: at(30), ExpiresAt: at(999)},
		{ID: "a3", State: approval.Pending, AskedAt: now, ExpiresAt: at(999)},
		{ID: "a4", State: approval.Pending, AskedAt: now, ExpiresAt: at(5)},
	}
	records := []Record{
		{ID: "h1", At: at(1), Decision: Allow, PlanHash: "1"},
		{ID: "h2", At: at(2), Decision: Allow, PlanHash: "2"},
		{ID: "a1", At: at(2), Decision: Held, PlanHash: "3", ApprovalID: "a1"},
		{ID: "h3", At: at(12), Decision: Allow, PlanHash: "3", ApprovalID: "a1"},
		{ID: "a2", At: at(2), Decision: Held, PlanHash: "4", ApprovalID: "a2"},
		{ID: "a3", At: at(2), Decision: Held, PlanHash: "5", ApprovalID: "a3"},
		{ID: "a4", At: at(2), Decision: Held, PlanHash: "6", ApprovalID: "a4"},
		{ID: "d1", At: at(2), Decision: Denied, PlanHash: "7"},
		{ID: "d2", At: at(3), Decision: Denied, PlanHash: "7"},
		{ID: "d3", At: at(1), Decision: Denied, PlanHash: "1"},
		{ID: "h9", At: at(60), Decision: Allow, PlanHash: "9"},
	}
	r := NewReport(records, requests, now, at(60), at(60))
	got := []any{r.Runs, r.Asked, r.Denied, r.Waiting, r.Answered, r.WaitP50, r.WaitP95}
	if want := []any{6, 4, 1, 1, 2, 10 * time.Minute, 30 * time.Minute}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if share, ok := r.AskedShare(); !ok || share != 4.0/6 {
		t.Errorf("got a share of %v", share)
	}
	if len(r.Changes) != 1 || len(r.CoverageNotes) != 2 {
		t.Errorf("got %+v", r)
	}
	if _, ok := (NewReport(nil, nil, now, at(1), at(1))).AskedShare(); ok {
		t.Error("nothing was decided, and a share of it asked")
	}
}

// TestReportOfRecordedDecisions reports decisions that Decide recorded.
func TestReportOfRecordedDecisions(t *testing.T) {
	ctx, h := context.Background(), newMemoryStores(t, team)
	decide(t, h, job(40), now)
	asked := decide(t, h, job(400), now)
	decide(t, h, job(400), now.Add(time.Minute))
	h.approve(t, asked.ApprovalID, now.Add(20*time.Minute))
	decide(t, h, job(400), now.Add(30*time.Minute))
	decide(t, h, job(900), now.Add(40*time.Minute))
	end := now.Add(time.Hour)
	records, err := h.Decisions(ctx, now, end)
	if err != nil {
		t.Fatal(err)
	}
	requests, _ := h.Requests(ctx, "")
	r := NewReport(records, requests, now, end, end)
	if r.Runs != 2 || r.Asked != 1 || r.WaitP50 != 20*time.Minute || r.Answered != 1 {
		t.Errorf("got %+v from %+v", r, records)
	}
}

// TestUnpricedUsageAsks checks that a budget that counts unknown spend asks while some usage has no
// price.
func TestUnpricedUsageAsks(t *testing.T) {
	for _, counts := range []bool{false, true} {
		h := newMemoryStores(t,
			fmt.Sprintf("budgets: [{id: vision, team: vision, purpose: training, amount: 1000, count_unknown: %v}]",
				counts))
		h.holds.Charge(budgettest.Charge{
			At: now.Add(-time.Hour), Owner: job(1).Owner, Purpose: inventory.Training,
			Unpriced: true, Unbounded: time.Hour,
		})
		if counts {
			want(t, decide(t, h, job(40), now), Held,
				"budget vision: 1.0 resource hours are unpriced, so the remainder is unknown")
		} else {
			want(t, decide(t, h, job(40), now), Allow, "")
		}
	}
}

// TestHoldsLastWithoutScans launches hourly jobs of $90 every two hours under $200 without scans:
// admitted amounts stay held until settled or observed.
func TestHoldsLastWithoutScans(t *testing.T) {
	h := newMemoryStores(t,
		`budgets: [{id: vision, team: vision, purpose: training, amount: 200, thresholds: {warn: 98%, gate: 99%}}]`)
	var ids []string
	at := now
	for i := range 8 {
		a := job(90)
		a.Name, a.MaxRuntime = fmt.Sprint("job ", i), time.Hour
		d := decide(t, h, a, at)
		if d.Decision == Allow {
			ids = append(ids, d.HoldID)
		} else {
			want(t, d, Denied,
				"$20.00 of $200.00 is left ($0.00 spent, $180.00 held, of that $180.00 by runs that are over "+
					"and were never charged")
		}
		at = at.Add(3 * time.Hour)
	}
	if len(ids) != 2 {
		t.Fatalf("%d jobs of $90 were admitted under $200", len(ids))
	}
	ctx, desk := context.Background(), h.params(at).Budgets
	if _, err := desk.Settle(ctx, ids[0], 10*money.USD, "ana", at); err != nil {
		t.Fatal(err)
	}
	h.holds.Charge(budgettest.Charge{
		At: now.Add(3 * time.Hour), Owner: job(1).Owner, Purpose: inventory.Training,
		Hold: ids[1], Amount: 50 * money.USD,
	},
		budgettest.Charge{At: at})
	a := job(90)
	a.Name = "after"
	d := decide(t, h, a, at)
	want(t, d, Allow, "")
	if l := d.Budget[0]; l.Used != 50*money.USD || l.Held != 10*money.USD {
		t.Errorf("settled at $10 and charged $50: the budget is %+v", l)
	}
}

func BenchmarkDecide(b *testing.B) {
	var h *memoryStores
	for n := 0; b.Loop(); n++ {
		if n%500 == 0 { // as many live holds as in a large installation
			h = newMemoryStores(b, "budgets: [{id: all, purpose: any, amount: 1000000}]")
		}
		if d, err := Decide(context.Background(), job(40), h.params(now)); err != nil || d.Decision != Allow {
			b.Fatal(d, err)
		}
	}
}
