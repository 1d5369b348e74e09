package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
)

// machine returns a round with one machine at a dollar an hour, running since start.
func machine(at time.Time, did ...ledger.Span) (ledger.Round, []ledger.Observation) {
	part := ledger.Part{Region: "us-east-1", Kind: inventory.KindInstance}
	o := ledger.Observation{
		At: at, Ref: inventory.Ref{Cloud: "aws", Account: "1", Region: part.Region, Kind: part.Kind, ID: "i-1"},
		State: inventory.StateRunning, CreatedAt: start, Duty: did,
		Meters: []ledger.Meter{{Name: "compute", Category: ledger.Compute, Monthly: 730 * money.USD}}}
	return ledger.Round{
		Account: account, At: at, Source: "test", Complete: []ledger.Part{part},
	}, []ledger.Observation{o}
}

func posted(t *testing.T, store ledger.Store, at time.Time, did ...ledger.Span) ledger.Posted {
	t.Helper()
	r, seen := machine(at, did...)
	p, err := ledger.Post(ctx, store, r, seen)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPostAddsOnlyChanges checks that charged hours are not charged again, and that nothing is
// appended without a change.
func TestPostAddsOnlyChanges(t *testing.T) {
	store := ledgertest.NewStore()
	appends := 0
	store.Before = func(method string) error {
		if method == "Append" {
			appends++
		}
		return nil
	}
	for hour := range 5 {
		p := posted(t, store, start.Add(time.Duration(hour)*time.Hour))
		if want := min(hour, 1); p.Entries != want || p.Corrections != 0 || p.Resources != 1 || appends != hour {
			t.Errorf("hour %d added %+v with %d appends in all", hour, p, appends)
		}
	}
	posted(t, store, start.Add(4*time.Hour+30*time.Minute))
	if p := posted(t, store, start.Add(4*time.Hour+45*time.Minute)); p.Entries != 1 || p.Corrections != 0 {
		t.Errorf("a quarter more of an hour added %+v", p)
	}
	seconds := map[time.Time]int64{}
	for _, e := range store.All(account) {
		seconds[e.Hour] += e.Seconds
		if e.Kind != ledger.Accrual || e.Seconds <= 0 || e.Amount <= 0 {
			t.Errorf("what only goes on is %+v", e)
		}
	}
	for hour, want := range map[int]int64{0: 3600, 3: 3600, 4: 2700} {
		if got := seconds[start.Add(time.Duration(hour)*time.Hour)]; got != want {
			t.Errorf("hour %d has %d seconds, want %d", hour, got, want)
		}
	}
}

// TestCorrectsOnlyReducedHour checks that a late round with the duty of a charged hour
// corrects that hour, and charges an hour that was unknown.
func TestCorrectsOnlyReducedHour(t *testing.T) {
	store := ledgertest.NewStore()
	posted(t, store, start)
	posted(t, store, start.Add(time.Hour))
	before := len(store.All(account))
	late := start.Add(30 * time.Minute)
	p := posted(t, store, late, ledger.Span{From: start, To: late, State: duty.Busy})
	if entries := store.All(account)[before:]; p.Entries != 2 || p.Corrections != 2 || len(entries) != 2 {
		t.Errorf("half an hour that was busy added %+v: %+v", p, entries)
	}
	// Rounds at two and four, then one at three: the hour between was charged as running, so only
	// its duty is new.
	posted(t, store, start.Add(2*time.Hour))
	posted(t, store, start.Add(4*time.Hour))
	before = len(store.All(account))
	three := start.Add(3 * time.Hour)
	p = posted(t, store, three, ledger.Span{From: three.Add(-time.Hour), To: three, State: duty.Idle})
	for _, e := range store.All(account)[before:] {
		if e.Kind != ledger.Correction || !e.Hour.Equal(start.Add(2*time.Hour)) {
			t.Errorf("added is %+v", e)
		}
	}
	if p.Corrections != 2 {
		t.Errorf("an hour that was idle added %+v", p)
	}
	// A launch learned later removes the end of one hour and leaves the next.
	var sum money.Amount
	for _, e := range store.All(account) {
		sum += e.Amount
	}
	if sum != 4*money.USD {
		t.Errorf("four hours come to $%s", sum)
	}
}

// TestCorrectionMarksOnlyReducedHour checks that a posting that reduces one hour and adds
// another marks only the first as corrected.
func TestCorrectionMarksOnlyReducedHour(t *testing.T) {
	store := ledgertest.NewStore()
	posted(t, store, start)
	posted(t, store, start.Add(90*time.Minute))
	before := len(store.All(account))
	end := start.Add(3 * time.Hour)
	r, seen := machine(end, ledger.Span{From: start.Add(90 * time.Minute), To: end, State: duty.Idle})
	r2, seen2 := machine(start.Add(80*time.Minute), ledger.Span{
		From: start.Add(time.Hour), To: start.Add(80 * time.Minute), State: duty.Busy,
	})
	if err := store.Record(ctx, r, seen); err != nil {
		t.Fatal(err)
	}
	p, err := ledger.Post(ctx, store, r2, seen2)
	if err != nil || p.Rounds != 2 {
		t.Fatalf("%+v, %v", p, err)
	}
	corrections := 0
	for _, e := range store.All(account)[before:] {
		corrected := e.Kind == ledger.Correction
		if corrected {
			corrections++
		}
		if e.Seconds < 0 && !corrected || corrected && !e.Hour.Equal(start.Add(time.Hour)) {
			t.Errorf("added is %+v", e)
		}
	}
	if corrections != p.Corrections || corrections == 0 || corrections == p.Entries {
		t.Errorf("%d corrections among %+v", corrections, p)
	}
}

// TestPostBoundsRetries checks that Post retries conflicts up to MaxConflicts.
func TestPostBoundsRetries(t *testing.T) {
	for _, conflicts := range []int{1, ledger.MaxConflicts - 1, ledger.MaxConflicts} {
		store := ledgertest.NewStore()
		posted(t, store, start)
		appends := 0
		store.Before = func(method string) error {
			if method != "Append" {
				return nil
			}
			if appends++; appends > conflicts {
				return nil
			}
			return ledger.ErrConflict
		}
		r, seen := machine(start.Add(time.Hour))
		_, err := ledger.Post(ctx, store, r, seen)
		if conflicts < ledger.MaxConflicts && (err != nil || appends != conflicts+1) ||
			conflicts == ledger.MaxConflicts &&
				(!errors.Is(err, ledger.ErrConflict) || appends != conflicts) {
			t.Errorf("after %d conflicts: %v with %d tries", conflicts, err, appends)
		}
	}
}

// failingStore is a store with one method that fails.
type failingStore struct {
	ledger.Store
	method string
}

var errBlind = errors.New("it cannot be read")

func (b failingStore) Pending(ctx context.Context, a ledger.Account) ([]ledger.PendingRound, error) {
	if b.method == "Pending" {
		return nil, errBlind
	}
	return b.Store.Pending(ctx, a)
}

func (b failingStore) Touched(ctx context.Context, r ledger.Round) ([]ledger.Touch, error) {
	if b.method == "Touched" {
		return nil, errBlind
	}
	return b.Store.Touched(ctx, r)
}

func (b failingStore) Histories(ctx context.Context, a ledger.Account, refs []inventory.Ref, from,
	to time.Time) ([]ledger.History, int64, error) {
	if b.method == "Histories" {
		return nil, 0, errBlind
	}
	return b.Store.Histories(ctx, a, refs, from, to)
}

// TestFailedRoundStaysPending checks that the next posting completes a failed one.
func TestFailedRoundStaysPending(t *testing.T) {
	for _, method := range []string{"Pending", "Touched", "Histories"} {
		store := ledgertest.NewStore()
		posted(t, store, start)
		r, seen := machine(start.Add(time.Hour))
		if _, err := ledger.Post(ctx, failingStore{store, method}, r, seen); !errors.Is(err, errBlind) {
			t.Errorf("%s: %v", method, err)
		}
		if pending, err := store.Pending(ctx, account); err != nil || len(pending) != 1 {
			t.Errorf("%s: %d rounds are pending, %v", method, len(pending), err)
		}
		if p := posted(t, store, start.Add(2*time.Hour)); p.Rounds != 2 || p.Entries != 2 {
			t.Errorf("%s: made up for are %+v", method, p)
		}
	}
}

// TestConcurrentlyRecordedRounds covers two rounds without a machine that were recorded but not
// posted, or one with it that was posted but not settled. Charges posted before, up to a later
// round, are still corrected.
func TestConcurrentlyRecordedRounds(t *testing.T) {
	at := func(h int) time.Time { return start.Add(time.Duration(h) * time.Hour) }
	empty := func(h int) ledger.Round { r, _ := machine(at(h)); return r }
	first, seen := machine(at(0))
	last, again := machine(at(8))

	gone, back := ledgertest.NewStore(), ledgertest.NewStore()
	post := func(s *ledgertest.Store, r ledger.Round, seen []ledger.Observation) {
		t.Helper()
		if _, err := ledger.Post(ctx, s, r, seen); err != nil {
			t.Fatal(err)
		}
	}
	post(gone, first, seen)
	post(gone, empty(8), nil)
	if err := gone.Record(ctx, empty(4), nil); err != nil {
		t.Fatal(err)
	}
	post(gone, empty(2), nil)
	got := map[string]ledger.Sums{}
	addUp(got, gone.All(account))
	compare(t, got, want(t, []ledgertest.Delivery{
		{Round: first, Seen: seen}, {Round: empty(2)}, {Round: empty(4)}, {Round: empty(8)},
	}))

	post(back, empty(0), nil)
	crash := errors.New("crash")
	back.Before = func(method string) error {
		if method == "Settle" {
			return crash
		}
		return nil
	}
	if _, err := ledger.Post(ctx, back, last, again); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	back.Before = nil
	post(back, empty(4), nil)
	got = map[string]ledger.Sums{}
	addUp(got, back.All(account))
	compare(t, got, want(t, []ledgertest.Delivery{{Round: empty(0)}, {Round: empty(4)}, {Round: last, Seen: again}}))
}

// TestCorrectsLoweredBound checks that a late round that lowers the bound of a gap
// corrects the hour, though the unknown time is the same. A nano-dollar is rounding.
func TestCorrectsLoweredBound(t *testing.T) {
	for less, want := range map[money.Amount]ledger.Kind{
		1: ledger.Accrual, 2: ledger.Correction, money.USD: ledger.Correction,
	} {
		store := ledgertest.NewStore()
		at := func(hour int, most money.Amount) {
			r, seen := machine(start.Add(time.Duration(hour) * time.Hour))
			seen[0].Meters[0].Moves, seen[0].Meters[0].AtMost = true, 730*most
			if _, err := ledger.Post(ctx, store, r, seen); err != nil {
				t.Fatal(err)
			}
		}
		at(0, 2*money.USD)
		at(8, 2*money.USD)
		before := len(store.All(account))
		at(3, 2*money.USD-less)
		lowered := 0
		for _, e := range store.All(account)[before:] {
			if e.Seconds != 0 {
				continue // the late round's price is valid for two hours
			}
			if lowered++; e.Kind != want || e.AtMost != -less {
				t.Errorf("a bound that is lower by %d appends %+v", less, e)
			}
		}
		if lowered != 3 {
			t.Errorf("%d hours cost less at most, want 3", lowered)
		}
	}
}
