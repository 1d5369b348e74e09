package alert_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

const (
	dollar money.Amount = 1_000_000_000
	day                 = 24 * time.Hour
)

// through is a Monday noon, the end of the ledger.
var through = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func days(n int, of func(ago int) money.Amount) []money.Amount {
	out := make([]money.Amount, n)
	for i := range out {
		out[i] = of(i + 1)
	}
	return out
}

func flat(amount money.Amount) func(int) money.Amount {
	return func(int) money.Amount { return amount }
}

// found returns the sources and subjects of what is proposed.
func found(c alert.Conditions) string {
	var out []string
	for _, p := range c.Proposals {
		out = append(out, p.Source+" "+string(p.Resource.Kind)+" "+p.Resource.ID)
	}
	return strings.Join(out, ", ")
}

// TestJumps compares days that are unusual with those that only look so.
func TestJumps(t *testing.T) {
	for _, tc := range []struct {
		name string
		last money.Amount
		days []money.Amount
		want bool
	}{
		{"twice as much and $50 more", 201 * dollar, days(40, flat(100*dollar)), true},
		{"just twice as much", 200 * dollar, days(40, flat(100*dollar)), false},
		{"ten times as much, of little", 40 * dollar, days(40, flat(4*dollar)), false},
		{"who spent nothing before", 60 * dollar, days(20, flat(0)), true},
		{"a ledger of 13 days", 900 * dollar, days(13, flat(1*dollar)), false},
		{"weekends are quiet", 300 * dollar, days(40, func(ago int) money.Amount {
			if wd := through.Add(-day).AddDate(0, 0, -ago).Weekday(); wd == time.Sunday {
				return 290 * dollar
			}
			return 10 * dollar
		}), false},
		{"a batch at each month's end", 500 * dollar, days(62, func(ago int) money.Amount {
			then := through.Add(-day).AddDate(0, 0, -ago)
			if then.AddDate(0, 0, 2).Month() != then.Month() {
				return 480 * dollar
			}
			return 10 * dollar
		}), false},
		{"one expensive day lately makes none usual", 500 * dollar, days(62, func(ago int) money.Amount {
			if ago == 5 {
				return 480 * dollar
			}
			return 10 * dollar
		}), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := alert.Series{
				Kind: alert.KindPerson, Name: "ana", Owner: inventory.Owner{User: "ana"}, Last: tc.last, Days: tc.days,
			}
			got := alert.Find(alert.Facts{Now: through, LedgerEnd: through, Spenders: []alert.Series{s}})
			if want := map[bool]string{true: "spend-jump person ana"}[tc.want]; found(got) != want {
				t.Errorf("%q, want %q", found(got), want)
			}
		})
	}
}

// TestStorageThatGrowsFaster: growth alone is usual, and only growth that speeds up counts.
func TestStorageThatGrowsFaster(t *testing.T) {
	grown := func(of func(ago int) money.Amount) alert.Series {
		return alert.Series{Kind: alert.KindStorage, Last: of(0), Days: days(40, of)}
	}
	for _, tc := range []struct {
		name string
		of   func(ago int) money.Amount
		want bool
	}{
		{"as always", func(ago int) money.Amount { return 100*dollar - money.Amount(ago)*dollar }, false},
		{"faster", func(ago int) money.Amount {
			return 100*dollar + money.Amount(max(0, 7-ago))*dollar - money.Amount(ago)*dollar/10
		}, true},
		{"faster, of little", func(ago int) money.Amount {
			return dollar + money.Amount(max(0, 7-ago))*dollar/10
		}, false},
		{"shrinks", func(ago int) money.Amount { return 100*dollar + money.Amount(ago)*dollar }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := alert.Find(alert.Facts{Now: through, LedgerEnd: through, Storage: []alert.Series{grown(tc.of)}})
			if want := map[bool]string{true: "storage-growth storage unallocated"}[tc.want]; found(got) != want {
				t.Errorf("%q, want %q", found(got), want)
			}
		})
	}
}

// TestBudgetsThatDoNotLast checks that two windows in a row have to agree, and a spent budget
// always counts.
func TestBudgetsThatDoNotLast(t *testing.T) {
	for _, tc := range []struct {
		left, hour, day, week money.Amount
		want                  string
	}{
		{1000, 0, 0, 0, ""},
		{1000, 10, 20, 100, ""},     // an hour's burst
		{1000, 10, 120, 200, "day"}, // 100 hours at 10, 200 hours at 5
		{1000, 0, 120, 900, "week"}, // 186 hours at the week's rate
		{1000, 0, 20, 900, ""},      // it ended
		{1000, 4, 96, 672, ""},      // 250 hours
		{0, 0, 0, 0, "is spent"},    // nothing is left
		{-10, 0, 0, 0, "is spent"},  // overdrawn
		{1000, 5, 120, 840, "day"},  // 200 hours, and 240 remain
		{1000, 1, 120, 840, "week"}, // an hour in which less ran
	} {
		b := alert.Burn{
			Status: budget.Status{
				Budget: budget.Budget{ID: "vision", Amount: 2000 * dollar, Match: budget.Match{Team: "vision"}},
				Window: budget.Window{To: through.Add(240 * time.Hour)},
				Balance: budget.Balance{
					Used: 1000 * dollar, Left: tc.left * dollar,
				},
			},
			Hour: tc.hour * dollar, Day: tc.day * dollar, Week: tc.week * dollar,
		}
		got := alert.Find(alert.Facts{Now: through, LedgerEnd: through, Budgets: []alert.Burn{b}}).Proposals
		switch {
		case tc.want == "" && len(got) > 0:
			t.Errorf("%+v: %s", tc, got[0].Because)
		case tc.want != "" && (len(got) != 1 || !strings.Contains(got[0].Because, tc.want)):
			t.Errorf("%+v: %+v", tc, got)
		case tc.want != "" && (got[0].Resource.Owner.Team != "vision" || got[0].Notify[0] != "team"):
			t.Errorf("%+v: of %+v, for %v", tc, got[0].Resource.Owner, got[0].Notify)
		}
	}
}

// TestUnknownIsNotOver: what cannot be told now is neither found nor over, and accounts that are no
// longer read are found without a ledger.
func TestUnknownIsNotOver(t *testing.T) {
	spent := []alert.Series{{Kind: alert.KindTeam, Name: "vision", Last: 900 * dollar, Days: days(40, flat(0))}}
	reach := []alert.Reach{
		{"aws/1", through.Add(-37 * time.Hour)}, {"aws/2", through.Add(-35 * time.Hour)},
		{"aws/3", through.Add(-15 * day)},
	}
	for _, f := range []alert.Facts{
		{Now: through, Spenders: spent, Reach: reach},
		{Now: through, LedgerEnd: through.Add(-4 * time.Hour), Spenders: spent, Reach: reach},
	} {
		c := alert.Find(f)
		if found(c) != "blind-account account aws/1" || c.Unknown[alert.SpendJump] == "" ||
			c.Unknown[alert.BudgetBurn] == "" || c.Unknown[alert.StorageGrowth] == "" ||
			c.Unknown[alert.BlindAccount] != "" {
			t.Errorf("%s, unknown: %v", found(c), c.Unknown)
		}
	}
}

// TestProposalsClimbTheLadder checks that a proposal about a subject that no provider has is
// refused by no rule.
func TestProposalsClimbTheLadder(t *testing.T) {
	c := alert.Find(alert.Facts{Now: through, LedgerEnd: through, Spenders: []alert.Series{
		{Kind: alert.KindTeam, Name: "vision", Last: 900 * dollar, Days: days(40, flat(0))},
	}})
	if len(c.Proposals) != 1 {
		t.Fatal(found(c))
	}
	if refused := action.Refuse(c.Proposals[0], action.Item{}, through, nil); refused != nil {
		t.Error(refused)
	}
	if next := alert.Next(c.Proposals[0].Resource.Ref()); !strings.Contains(next, "--by team") {
		t.Error(fmt.Sprint(next))
	}
}
