package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/budget/budgettest"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// limit is the number of one-dollar launches that the budget of most tests allows.
const limit = 7

// sevenDollars is a budget of seven dollars for the team vision, with a parent budget and a quota
// that would allow more.
func sevenDollars(tb testing.TB) budget.Set {
	machines := 100
	return must(budget.NewSet([]budget.Budget{
		{ID: "all", Amount: 100 * money.USD, Shared: true},
		{ID: "vision", Parent: "all", Match: budget.Match{Team: "vision"}, Amount: limit * money.USD, Shared: true},
	}, []budget.Quota{{ID: "machines", Machines: &machines}}))(tb)
}

// launch requests a dollar.
func launch(key string) budget.Hold {
	return budget.Hold{
		Key: key, Kind: "job", Name: "train", SpecHash: "hash", Owner: inventory.Owner{
			Team: "vision",
		}, Purpose: "training",
		Amount: money.USD, Machines: 1, GPUs: map[string]int{"H100": 8}, From: noon, Until: noon.Add(time.Hour),
		AskedBy: "ana",
	}
}

// hold returns a valid hold.
func hold(id string) budget.Hold {
	h := launch("key of " + id)
	h.ID, h.State, h.ExpiresAt = id, budget.Live, noon.Add(2*time.Hour)
	return h
}

// reserved reserves without limits.
func reserved(t *testing.T, s budget.Store, h budget.Hold) budget.Hold {
	t.Helper()
	return must(s.Reserve(t.Context(), budget.Reservation{Hold: h, Now: noon}))(t)
}

// held counts the stored holds.
func held(t *testing.T, b *Backend) int {
	t.Helper()
	return len(must(b.Budgets.Holds(t.Context(), noon.AddDate(-1, 0, 0), noon.AddDate(1, 0, 0)))(t))
}

var budgets = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		h := filled[budget.Hold]()
		h.Version = 0
		saved := reserved(t, b.Budgets, h)
		h.Version = 1
		other := b.Reopen(t).Budgets
		for name, got := range map[string]budget.Hold{
			"Reserve": saved, "Hold": must(other.Hold(t.Context(), h.ID))(t),
			"Keyed": must(other.Keyed(t.Context(), h.Key))(t),
		} {
			if diff := cmp.Diff(h, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		h.State, h.GPUs = budget.Released, nil
		saved = must(b.Budgets.PutHold(t.Context(), h, budget.Event{At: noon, By: "ana", Verb: budget.Settle}))(t)
		h.Version = 2
		if diff := cmp.Diff([]budget.Hold{
			h, h,
		}, []budget.Hold{saved, must(other.Hold(t.Context(), h.ID))(t)}); diff != "" {
			t.Errorf("PutHold and what is kept (-want +got):\n%s", diff)
		}
	}},
	{"what cannot be kept is refused", func(t *testing.T, b *Backend) {
		for name, change := range map[string]func(*budget.Hold){
			"no id": func(h *budget.Hold) {
				h.ID = ""
			}, "no key": func(h *budget.Hold) {
				h.Key = ""
			}, "no begin": func(h *budget.Hold) { h.From = time.Time{} },
			"no text": func(h *budget.Hold) {
				h.Name = "\xff"
			}, "a type that is no text": func(h *budget.Hold) { h.GPUs = map[string]int{"\xff": 1} },
		} {
			h := hold("a")
			change(&h)
			if _, err := b.Budgets.Reserve(t.Context(), budget.Reservation{Hold: h, Now: noon}); err == nil ||
				held(t, b) != 0 {
				t.Errorf("%s: it was written", name)
			}
		}
	}},
	{"versions", holdVersions},
	{"what is done with a hold has its entry, in the same transaction", func(t *testing.T, b *Backend) {
		h := reserved(t, b.Budgets, hold("a")) // the gate keeps its own records
		e := budget.Event{At: noon, By: "ana", Verb: budget.Extend}
		h = must(b.Budgets.Reserve(t.Context(), budget.Reservation{Hold: h, Now: noon, Event: e}))(t)
		ended := h
		ended.State, ended.Actual, e.Verb = budget.Settled, 3*money.USD, budget.Settle
		must(b.Budgets.PutHold(t.Context(), ended, e))(t)
		if _, err := b.Budgets.PutHold(t.Context(), h, budget.Event{
			At: noon, By: "ana", Verb: budget.Release,
		}); !errors.Is(
			err, budget.ErrConflict) {
			t.Errorf("a write that changes nothing: %v", err)
		}
		want := []action.Entry{
			{
				ID: 1, At: noon, Actor: "ana", What: action.EventHoldExtend, Because: "job train",
				Outcome: "hold a live, $1.00",
			},
			{
				ID: 2, At: noon, Actor: "ana", What: action.EventHoldSettle, Because: "job train",
				Outcome: "hold a settled, $3.00",
			},
		}
		if diff := cmp.Diff(want, lines(t, b.Reopen(t), action.Query{})); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	}},
	{"ids are found by their beginning", func(t *testing.T, b *Backend) {
		for _, id := range []string{"ab1", "ab2", "ab", "c1"} {
			reserved(t, b.Budgets, hold(id))
		}
		for id, want := range map[string]string{"ab": "ab", "ab1": "ab1", "c": "c1", "a": "", "": "", "d": ""} {
			if got, err := b.Budgets.Hold(t.Context(), id); got.ID != want ||
				(want == "") != errors.Is(err, budget.ErrNotFound) {
				t.Errorf("%q: got %q, %v; want %q", id, got.ID, err, want)
			}
		}
		if _, err := b.Budgets.Keyed(t.Context(), "key"); !errors.Is(err, budget.ErrNotFound) {
			t.Errorf("a key that is not there: %v", err)
		}
	}},
	{"holds overlap a time to the nanosecond", func(t *testing.T, b *Backend) {
		h := hold("a")
		h.From = noon.Add(time.Nanosecond)
		reserved(t, b.Budgets, h)
		for _, tc := range []struct {
			name     string
			from, to time.Time
			want     int
		}{
			{"all of it", noon, h.ExpiresAt, 1},
			{"up to its begin", noon.Add(-time.Hour), noon, 0},
			{"just past its begin", noon, noon.Add(2 * time.Nanosecond), 1},
			{"from its expiry", h.ExpiresAt, h.ExpiresAt.Add(time.Hour), 0},
			{"from just before it", h.ExpiresAt.Add(-time.Microsecond), h.ExpiresAt.Add(time.Hour), 1},
		} {
			if got := must(b.Budgets.Holds(t.Context(), tc.from, tc.to))(t); len(got) != tc.want {
				t.Errorf("%s: %d holds, want %d", tc.name, len(got), tc.want)
			}
		}
	}},
	{"what does not fit is refused with its numbers and not written", func(t *testing.T, b *Backend) {
		desk := budget.Desk{Store: b.Budgets, Set: sevenDollars(t)}
		big := launch("big")
		big.Amount = limit*money.USD + 1
		var over *budget.Overdrawn
		if _, err := desk.Reserve(t.Context(), big, noon); !errors.As(err, &over) || over.Budget != "vision" ||
			over.Limit != limit*money.USD || held(t, b) != 0 {
			t.Errorf("got %v with %d holds", err, held(t, b))
		}
		big.Amount--
		h := must(desk.Reserve(t.Context(), big, noon))(t)
		if h = must(desk.Admit(t.Context(), h, noon))(t); h.State != budget.Live {
			t.Errorf("it is %s", h.State)
		}
		if _, err := desk.Reserve(t.Context(), launch("more"), noon); !errors.As(err, &over) ||
			over.Held != limit*money.USD {
			t.Errorf("over what is held: got %v", err)
		}
		if _, err := desk.Extend(t.Context(), h.ID, big.Amount+1, h.Until, "ana", noon); !errors.As(err, &over) ||
			must(b.Budgets.Hold(t.Context(), h.ID))(t).Amount != big.Amount {
			t.Errorf("extended past the limit: %v", err)
		}
		must(desk.Release(t.Context(), h.ID, "ana", noon))(t)
		must(desk.Reserve(t.Context(), launch("more"), noon))(t)
	}},
	{"charges count once with the hold that they carry", func(t *testing.T, b *Backend) {
		desk := budget.Desk{Store: b.Budgets, Set: sevenDollars(t)}
		h := launch("five")
		h.Amount = 5 * money.USD
		h = must(desk.Reserve(t.Context(), h, noon))(t)
		own, other := charge(noon, "i-1"), charge(noon, "i-2")
		own.Hold, own.Amount = h.ID, 4*money.USD
		appended(t, b.Ledger, own, other)
		must(desk.Reserve(t.Context(), launch("the last dollar"), noon))(t)
		if _, err := desk.Reserve(t.Context(), launch("one more"), noon); !errors.As(err, new(*budget.Overdrawn)) {
			t.Errorf("with $5 held, $1 of another charge and $1 more held: got %v", err)
		}
	}},
	{"what was spent is that of the model", spending},
	{"launches at once never exceed a budget", func(t *testing.T, b *Backend) {
		var made atomic.Int64
		var wg sync.WaitGroup
		for worker := range 6 {
			desk := budget.Desk{Store: b.Reopen(t).Budgets, Set: sevenDollars(t)}
			wg.Go(func() {
				for i := range 2 * limit {
					_, err := desk.Reserve(t.Context(), launch(fmt.Sprint(worker, i)), noon)
					if errors.As(err, new(*budget.Overdrawn)) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					made.Add(1)
				}
				t.Error("no budget stopped a connection")
			})
		}
		wg.Wait()
		if kept := held(t, b); made.Load() != limit || kept != limit {
			t.Errorf("%d were made and %d are kept, want %d", made.Load(), kept, limit)
		}
	}},
	{"of two launches for one remainder one wins", func(t *testing.T, b *Backend) {
		set := sevenDollars(t)
		big := launch("big")
		big.Amount = (limit - 1) * money.USD
		must(budget.Desk{Store: b.Budgets, Set: set}.Reserve(t.Context(), big, noon))(t)
		var won, lost atomic.Int64
		var wg sync.WaitGroup
		begin := make(chan struct{})
		for worker := range 2 {
			desk := budget.Desk{Store: b.Reopen(t).Budgets, Set: set}
			wg.Go(func() {
				<-begin
				_, err := desk.Reserve(t.Context(), launch(fmt.Sprint(worker)), noon)
				switch {
				case err == nil:
					won.Add(1)
				case errors.As(err, new(*budget.Overdrawn)):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		close(begin)
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 1 {
			t.Errorf("%d won and %d lost", won.Load(), lost.Load())
		}
	}},
	{"of one key at once there is one hold", func(t *testing.T, b *Backend) {
		for _, set := range []budget.Set{sevenDollars(t), {}} { // with and without a row to lock
			key := fmt.Sprint("key ", len(set.Budgets()))
			ids := make([]string, 6)
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for worker := range ids {
				s := b.Reopen(t).Budgets
				wg.Go(func() {
					<-begin
					h := hold(fmt.Sprint(key, worker))
					h.Key = key
					r, err := set.Reservation(h, noon)
					if err == nil {
						h, err = s.Reserve(t.Context(), r)
					}
					if err != nil {
						t.Error(err)
					}
					ids[worker] = h.ID
				})
			}
			close(begin)
			wg.Wait()
			for _, id := range ids {
				if id != ids[0] {
					t.Errorf("%s: the holds are %q", key, ids)
					break
				}
			}
		}
		if n := held(t, b); n != 2 {
			t.Errorf("%d holds, want one of each key", n)
		}
	}},
}

func holdVersions(t *testing.T, b *Backend) {
	first := reserved(t, b.Budgets, hold("a"))
	reserved(t, b.Budgets, hold("b"))
	put := func(h budget.Hold) (budget.Hold, error) {
		return b.Budgets.PutHold(t.Context(), h, budget.Event{At: noon, By: "ana", Verb: budget.Settle})
	}
	reserve := func(h budget.Hold) (budget.Hold, error) {
		return b.Budgets.Reserve(t.Context(), budget.Reservation{Hold: h, Now: noon})
	}
	for _, tc := range []struct {
		name        string
		do          func(budget.Hold) (budget.Hold, error)
		id, key     string
		version     int64
		want        error
		wantVersion int64
	}{
		{"reserve under a key that is there", reserve, "new", first.Key, 0, nil, 1},
		{"reserve under an id that is taken", reserve, "a", "another", 0, budget.ErrConflict, 0},
		{"reserve again", reserve, "a", first.Key, 1, nil, 2},
		{"reserve what was changed", reserve, "a", first.Key, 1, budget.ErrConflict, 0},
		{"reserve what is not there", reserve, "x", "x", 1, budget.ErrNotFound, 0},
		{"reserve under another's key", reserve, "a", "key of b", 2, budget.ErrConflict, 0},
		{"put what was read", put, "a", first.Key, 2, nil, 3},
		{"put what was changed", put, "a", first.Key, 2, budget.ErrConflict, 0},
		{"put what is new", put, "y", "y", 0, budget.ErrConflict, 0},
		{"put what is not there", put, "y", "y", 1, budget.ErrConflict, 0},
		{"put under another's key", put, "a", "key of b", 3, budget.ErrConflict, 0},
	} {
		h := hold(tc.id)
		h.Key, h.Version = tc.key, tc.version
		got, err := tc.do(h)
		if !errors.Is(err, tc.want) || got.Version != tc.wantVersion || err == nil && got.ID != "a" {
			t.Errorf("%s: got %s at version %d, %v; want version %d, %v", tc.name, got.ID,
				got.Version, err, tc.wantVersion,
				tc.want)
		}
	}
	if n := held(t, b); n != 2 {
		t.Errorf("%d holds, want 2", n)
	}
}

// spending compares the spending of a ledger with a model.
func spending(t *testing.T, b *Backend) {
	want := &budgettest.Store{}
	for _, batch := range varied(400) {
		appended(t, b.Ledger, batch...)
		for _, e := range batch {
			c := budgettest.Charge{At: e.Hour, Owner: e.Owner, Purpose: e.Purpose, Hold: e.Hold, Amount: e.Amount}
			if e.Gap != "" {
				c.Amount, c.Unpriced, c.Unbounded = e.AtMost, true, time.Duration(e.Unbounded)*time.Second
			}
			want.Charge(c)
		}
	}
	month := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	// Charges under a hold without an owner count for the owner of the hold.
	under := hold("under")
	set := must(budget.NewSet(nil, nil))(t)
	for _, s := range []budget.Store{want, b.Budgets} {
		must(s.Reserve(t.Context(), must(set.Reservation(under, noon))(t)))(t)
	}
	nameless := ledger.Entry{
		Kind: ledger.Accrual, Hour: month.Add(50 * time.Hour), Round: month.Add(51 * time.Hour),
		Sums: ledger.Sums{Seconds: 3600, Amount: 3 * money.USD},
	}
	nameless.Ref = inventory.Ref{
		Cloud: "aws", Account: "123456789012", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-nameless",
	}
	nameless.Meter, nameless.Category, nameless.ChargeCategory, nameless.Hold = "compute",
		ledger.Compute, ledger.Usage,
		under.ID
	// Charges of another team under the hold are its own and do not reduce the hold.
	others := nameless
	others.Ref.ID, others.Owner = "i-others", inventory.Owner{Team: "speech", User: "ANA"}
	appended(t, b.Ledger, others)
	want.Charge(budgettest.Charge{At: others.Hour, Owner: others.Owner, Hold: under.ID, Amount: others.Amount})
	open := nameless
	open.Gap, open.Why, open.Sums = ledger.Unpriced, "no price", ledger.Sums{Seconds: 3600, Unbounded: 3600}
	appended(t, b.Ledger, nameless, open)
	want.Charge(budgettest.Charge{At: nameless.Hour, Hold: under.ID, Amount: nameless.Amount},
		budgettest.Charge{At: open.Hour, Hold: under.ID, Unpriced: true, Unbounded: time.Hour})
	if spent := must(b.Budgets.Spent(t.Context(), budget.Match{}, nameless.Hour, nameless.Hour.Add(time.Hour)))(
		t); spent.ByHold[under.ID] != 3*money.USD {
		t.Errorf("what another team was charged under the hold took $%s off it", spent.ByHold[under.ID]-3*money.USD)
	}
	if spent := must(b.Budgets.Spent(t.Context(), budget.Match{
		Team: "vision", Purposes: []inventory.Purpose{"training"},
	},
		nameless.Hour, nameless.Hour.Add(time.Hour)))(t); spent.ByHold[under.ID] != 3*money.USD ||
		spent.Unbounded != time.Hour {
		t.Errorf("charges without an owner under a hold of vision come to %+v", spent)
	}
	for _, m := range []budget.Match{
		{}, {
			Team: "VISION",
		}, {User: "bo", Environment: "dev"}, {Project: "p", Purposes: []inventory.Purpose{"training"}},
		{Team: "none"},
	} {
		for _, w := range []budget.Window{
			{
				From: month, To: month.AddDate(0, 1, 0),
			}, {From: month.Add(-5 * time.Hour), To: month.AddDate(0, 1, 0).Add(-5 * time.Hour)},
			{From: month.Add(-330 * time.Minute), To: month.AddDate(0, 0, 7).Add(-330 * time.Minute)},
			{From: noon, To: noon.Add(time.Hour)},
			{
				From: month, To: month.Add(30*time.Hour + time.Nanosecond),
			}, {From: noon.AddDate(1, 0, 0), To: noon.AddDate(1, 0, 3)}, {From: noon, To: noon},
			{From: noon, To: month.AddDate(-1, 0, 0)},
		} {
			spent := must(want.Spent(t.Context(), m, w.From, w.To))(t)
			// A hold with a sum of zero may be omitted.
			if diff := cmp.Diff(spent, must(b.Budgets.Spent(t.Context(), m, w.From, w.To))(t),
				cmpopts.IgnoreMapEntries(func(_ string, a money.Amount) bool { return a == 0 })); diff != "" {
				t.Errorf("%+v in %v (-want +got):\n%s", m, w, diff)
			}
		}
	}
}

// reserveAll reserves until the budget refuses.
func reserveAll(ctx context.Context, b *Backend, worker int, out io.Writer) error {
	set, err := budget.NewSet([]budget.Budget{
		{ID: "vision", Match: budget.Match{Team: "vision"}, Amount: 40 * money.USD, Shared: true},
	}, nil)
	if err != nil {
		return err
	}
	desk := budget.Desk{Store: b.Budgets, Set: set}
	for i := 0; ; i++ {
		h, err := desk.Reserve(ctx, launch(fmt.Sprint(worker, "-", i)), noon)
		if err == nil {
			h, err = desk.Admit(ctx, h, noon)
		}
		if errors.As(err, new(*budget.Overdrawn)) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, h.ID, h.Version)
	}
}

// heldTogether lets processes reserve while charges are posted and some of them are killed, and
// checks that the sum of holds never exceeds the budget.
func heldTogether(t *testing.T, b *Backend) {
	var all []*process
	told := map[string]int64{}
	for worker := range 4 {
		all = append(all, spawn(t, b, Job{"hold", worker}))
	}
	for _, p := range all {
		p.begin(t)
	}
	appended(t, b.Ledger, charge(noon, "i-1"), charge(noon, "i-2"), charge(noon, "i-3"))
	for i, p := range all[:2] {
		if p.lines.Scan() {
			note(t, told, p.lines.Text())
		}
		time.Sleep(time.Duration(i+1) * time.Millisecond) // during a reservation
		no(t, p.cmd.Process.Kill())
	}
	for i, p := range all {
		for _, line := range p.rest() {
			note(t, told, line)
		}
		if err := p.cmd.Wait(); i >= 2 && err != nil {
			t.Error(err)
		}
	}
	holds := must(b.Budgets.Holds(t.Context(), noon, noon.Add(time.Hour)))(t)
	kept := map[string]int64{}
	for _, h := range holds {
		kept[h.ID] = h.Version
	}
	for id, version := range told {
		if kept[id] < version {
			t.Errorf("hold %s is at version %d; a process was told %d", id, kept[id], version)
		}
	}
	// $3 are charged without a hold, before or after any hold is decided, so that between 37 and 40
	// holds fit.
	if len(holds) < 37 || len(holds) > 40 {
		t.Errorf("%d holds of a dollar in a budget of $40 with $3 charged", len(holds))
	}
	desk := budget.Desk{
		Store: b.Budgets,
		Set: must(budget.NewSet([]budget.Budget{
			{ID: "vision", Match: budget.Match{Team: "vision"}, Amount: 40 * money.USD, Shared: true},
		}, nil))(t),
	}
	if _, err := desk.Reserve(t.Context(), launch("one more"), noon); !errors.As(err, new(*budget.Overdrawn)) {
		t.Errorf("one more: got %v", err)
	}
	b.Check(t)
}

var gates = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		r := filled[gate.Record]()
		no(t, b.Gate.PutDecision(t.Context(), r))
		if diff := cmp.Diff([]gate.Record{
			r,
		}, must(b.Reopen(t).Gate.Decisions(t.Context(), r.At, r.At.Add(time.Second)))(t)); diff != "" {
			t.Errorf("the decisions (-want +got):\n%s", diff)
		}
		replaced := gate.Record{ID: r.ID, At: noon, Decision: "deny"}
		no(t, b.Gate.PutDecision(t.Context(), replaced))
		if diff := cmp.Diff([]gate.Record{replaced}, must(b.Gate.Decisions(t.Context(), time.Time{}, time.Time{}))(t),
			cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("the one that replaces it (-want +got):\n%s", diff)
		}
	}},
	{"those of a time, oldest first", func(t *testing.T, b *Backend) {
		for i, id := range []string{"d", "b", "C", "a"} {
			no(t, b.Gate.PutDecision(t.Context(), gate.Record{
				ID: id, At: noon.Add(time.Duration(i/2) * time.Minute), Reasons: []string{"\xff"},
			}))
		}
		for name, tc := range map[string]struct {
			from, to time.Time
			want     string
		}{
			"all": {want: "b d C a"}, "from": {from: noon.Add(time.Second), want: "C a"},
			"to": {to: noon.Add(time.Minute), want: "b d"},
		} {
			var got []string
			for _, r := range must(b.Gate.Decisions(t.Context(), tc.from, tc.to))(t) {
				got = append(got, r.ID)
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("%s: got %q, want %q", name, got, tc.want)
			}
		}
		for name, r := range map[string]gate.Record{
			"no id": {At: noon}, "no time": {ID: "x"}, "no text": {ID: "\xff", At: noon},
		} {
			if err := b.Gate.PutDecision(t.Context(), r); err == nil {
				t.Errorf("%s: it was written", name)
			}
		}
	}},
}
