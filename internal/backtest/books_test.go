package backtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/ledgertest"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// minutes is a trace of machines that are sampled every minute from the same time on,
// each as a picture of it says: '#' is work, '.' is rest.
func minutes(machines ...string) string {
	var b strings.Builder
	b.WriteString("time,resource,team,gpu_util\n")
	for i, m := range machines {
		for at, c := range m {
			fmt.Fprintf(&b, "%d,m%d,t%d,%d\n", at*60, i, i%2, map[rune]int{'#': 80}[c])
		}
	}
	return b.String()
}

func priced(p Params, hour money.Amount) Params {
	p.Baselines, p.Price = false, &hour
	return p
}

func budgets(t testingTB, all ...budget.Budget) budget.Set {
	t.Helper()
	set, err := budget.NewSet(all, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestAReplaySeesItsCharges replays a policy on a budget: it acts once the rounds before
// cost enough, at the hour, or at a finer cadence at the round that posts the charge.
func TestAReplaySeesItsCharges(t *testing.T) {
	const overHalf = `  - name: over-half
    when: budget.used_share > 0.5
    then: [{warn: {grace: 0s}}, {do: stop, even_if_busy: true}]
`
	trace := minutes(strings.Repeat("#", 240), strings.Repeat("#", 240))
	for _, tc := range []struct {
		every  time.Duration
		amount money.Amount
		want   time.Duration // after the first sample, 0 is never
	}{
		{0, 300 * money.USD, 2 * time.Hour}, // $120 an hour: $150 are spent at 1h15m
		{15 * time.Minute, 300 * money.USD, 90 * time.Minute},
		{0, 100 * money.USD, time.Hour},
		{15 * time.Minute, 100 * money.USD, 30 * time.Minute},
		{0, 2000 * money.USD, 0},
	} {
		p := priced(params(0), 60*money.USD)
		p.Every, p.Policies, p.MaxRoundGap = tc.every, policies(t, overHalf), time.Hour
		p.Budgets = budgets(t, budget.Budget{ID: "all", Shared: true, Period: budget.Period{}, Amount: tc.amount})
		var first time.Time
		p.Decided = func(d Decision) {
			if d.Step == "warn" && first.IsZero() {
				first = d.Time
			}
		}
		replayed(t, trace, p)
		want := time.Time{}
		if tc.want > 0 {
			want = time.Unix(0, 0).UTC().Add(tc.want)
		}
		if !first.Equal(want) {
			t.Errorf("every %s, of %s: first warned at %s, want %s", tc.every, tc.amount, first, want)
		}
	}
}

// TestBudgetsWithoutPricesAreUnknown: resources without a price leave budgets unknown.
func TestBudgetsWithoutPricesAreUnknown(t *testing.T) {
	p := params(0)
	p.Baselines, p.Policies = false, policies(t, "  - name: within\n    when: budget.used_share < 0.5\n    then: "+
		"[{warn: {grace: 0s}}, {do: stop, even_if_busy: true}]\n")
	p.Budgets = budgets(t, budget.Budget{ID: "all", Shared: true, Amount: money.USD})
	p.Decided = func(d Decision) { t.Errorf("it decided %+v", d) }
	r := replayed(t, minutes("####"), p)
	if len(r.Results[0].WhyNot) != 1 || r.Results[0].WhyNot[0].Answer != "unknown" {
		t.Errorf("why nothing was done: %+v", r.Results[0].WhyNot)
	}
}

// full are books that take no charge.
type full struct{}

var errFull = errors.New("the books are full")

func (full) Post(context.Context, ledger.Seen) error { return errFull }

// TestAReplayThatCannotChargeEnds with that error, and without a decision on budgets that are
// unknown.
func TestAReplayThatCannotChargeEnds(t *testing.T) {
	for _, every := range []time.Duration{0, 10 * time.Minute} {
		p := priced(params(0), money.USD)
		p.Every, p.Policies, p.Setting.Books = every, parsed(t, livePolicies), full{}
		p.Decided = func(d Decision) { t.Errorf("it decided %+v", d) }
		if r, err := Run(context.Background(), strings.NewReader(minutes("....", "####")),
			p); !errors.Is(err, errFull) {
			t.Errorf("every %s: %+v, %v", every, r, err)
		}
	}
}

// TestEntriesAreTheDollars: without gaps, a replay posts the cost of the machines in its report,
// less the time in which they were released.
func TestEntriesAreTheDollars(t *testing.T) {
	var all money.Amount
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.IntRange(70, 400).Draw(t, "minutes")
		var machines []string
		for range rapid.IntRange(1, 4).Draw(t, "machines") {
			var b strings.Builder
			for b.Len() < length {
				b.WriteString(strings.Repeat(rapid.SampledFrom([]string{"#", "."}).Draw(t, "duty"),
					rapid.IntRange(1, 90).Draw(t, "length")))
			}
			machines = append(machines, b.String()[:length])
		}
		books := &ledger.Memory{}
		p := priced(params(0), 6*money.USD) // ten cents a minute
		p.Policies = policies(t, fmt.Sprintf(`  - name: resting
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("%dm")
    then: [{warn: {grace: 0s}}, {do: stop}]
`, rapid.IntRange(1, 30).Draw(t, "wait")))
		p.Setting.Books = ledger.Journal{Store: books}
		r := replayed(t, minutes(machines...), p).Results[0]
		var got money.Amount
		for e := range books.Entries(time.Time{}, time.Unix(1<<40, 0)) {
			if e.Gap != "" {
				t.Fatalf("a gap: %+v", e)
			}
			got += e.Amount
		}
		naive := money.Amount(int64(len(machines)*length)) * money.USD / 10
		if cost := known(t, r.CostUSD); cost != naive {
			t.Fatalf("the report says %s, the samples come to %s", cost, naive)
		}
		released := money.Amount(r.ReleasedHours*60+0.5) * money.USD / 10
		if all += released; got != naive-released {
			t.Fatalf("posted %s, want %s less %s released\n%s", got, naive, released, strings.Join(machines, "\n"))
		}
	})
	if all == 0 {
		t.Error("nothing was released")
	}
}

// TestAReplayPostsAsProcessesDo: over the same samples at the same cadence, a replay posts the same
// entries as processes that cron starts, whose ledger outlives them, and policies on budgets decide
// the same.
func TestAReplayPostsAsProcessesDo(t *testing.T) {
	set := parsed(t, livePolicies+budgetPolicies)
	acted, charged := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		i := len(set.Policies) - 1
		if rapid.Bool().Draw(t, "another policy") {
			i = rapid.IntRange(0, i-1).Draw(t, "policy")
		}
		p := priced(liveParams(t, set.Policies[i]), 60*money.USD)
		p.Every = time.Duration(rapid.IntRange(1, 40).Draw(t, "cadence")) * 30 * time.Second
		p.MaxRoundGap = 2 * time.Hour
		p.Budgets = budgets(t, budget.Budget{
			ID: "all", Shared: true, Amount: money.Amount(rapid.IntRange(20, 400).Draw(t, "amount")) * money.USD,
		})
		trace := liveTrace(liveMachines().Draw(t, "machines"))
		books, kept := &ledger.Memory{}, ledgertest.NewStore()
		p.Setting.Books = ledger.Journal{Store: books}
		p.Setting.ChargeFacts = standing(p.Budgets, budget.ReplayedLedger{Ledger: books})
		var got []Decision
		p.Decided = func(d Decision) { got = append(got, d) }
		if _, err := Run(context.Background(), strings.NewReader(trace), p); err != nil {
			t.Fatal(err)
		}
		p.Setting.Books = ledger.Journal{Store: kept}
		p.Setting.ChargeFacts = standing(p.Budgets, naive{kept})
		want := processes(t, trace, p.Policies.Policies[0], p, Allowed)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("decisions (-processes +replay):\n%s\n%s", diff, trace)
		}
		posted := map[ledger.Entry]ledger.Sums{}
		for _, e := range kept.All(ledger.Account{Cloud: Cloud}) {
			add(posted, e)
		}
		mine := map[ledger.Entry]ledger.Sums{}
		for e := range books.Entries(time.Time{}, time.Unix(1<<40, 0)) {
			add(mine, e)
		}
		if diff := cmp.Diff(posted, mine); diff != "" {
			t.Fatalf("charges (-processes +replay):\n%s\n%s", diff, trace)
		}
		charged += len(mine)
		if i == len(set.Policies)-1 {
			acted += len(got)
		}
	})
	if acted == 0 || charged == 0 {
		t.Errorf("%d decisions on budgets and %d sums of charges were compared", acted, charged)
	}
}

// add adds an entry up as a ledger in memory does.
func add(to map[ledger.Entry]ledger.Sums, e ledger.Entry) {
	key := ledger.Entry{
		Hour: e.Hour,
		Line: ledger.Line{
			Attributes: ledger.Attributes{Owner: e.Owner, Purpose: e.Purpose}, Category: e.Category,
			Duty: e.Duty, Gap: e.Gap,
		},
	}
	s := to[key]
	s.Seconds, s.Amount, s.AtMost, s.Unbounded = s.Seconds+e.Seconds, s.Amount+
		e.Amount, s.AtMost+e.AtMost, s.Unbounded+
		e.Unbounded
	if delete(to, key); s != (ledger.Sums{}) {
		to[key] = s
	}
}

func standing(set budget.Set, on budget.Reading) func(context.Context, time.Time) (func(*policy.Facts), error) {
	return func(ctx context.Context, now time.Time) (func(*policy.Facts), error) {
		all, err := set.Statuses(ctx, on, now)
		return round.BudgetFacts(all), err
	}
}

// naive sums spending entry by entry.
type naive struct{ *ledgertest.Store }

func (n naive) Holds(context.Context, time.Time, time.Time) ([]budget.Hold, error) { return nil, nil }

func (n naive) Spent(_ context.Context, m budget.Match, from, to time.Time) (budget.Spend, error) {
	var out budget.Spend
	if from.Before(to) {
		out.Daily = make([]money.Amount, int((to.Sub(from)+24*time.Hour-1)/(24*time.Hour)))
	}
	for _, e := range n.All(ledger.Account{Cloud: Cloud}) {
		if from.Before(to) && e.Hour.Before(to) && e.Hour.Add(time.Hour).After(out.Through) {
			out.Through = e.Hour.Add(time.Hour)
		}
		if e.Hour.Before(from) || !e.Hour.Before(to) || !m.Covers(e.Owner, e.Purpose) {
			continue
		}
		if e.Gap == "" {
			out.Used += e.Amount
			out.Daily[e.Hour.Sub(from)/(24*time.Hour)] += e.Amount
		} else {
			out.Unknown += e.AtMost
			out.Unbounded += time.Duration(e.Unbounded) * time.Second
		}
	}
	return out, nil
}
