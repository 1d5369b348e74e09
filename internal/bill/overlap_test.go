package bill

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// imported returns a bill of one line, and its stored period.
func imported(t testing.TB, source, account string, start, end time.Time, cost string) (*Bill, []Period) {
	t.Helper()
	l := line("i-1", cost, 0)
	l.BillingAccountID, l.BillingPeriodStart, l.BillingPeriodEnd, l.ChargePeriodStart = account, start, end, start
	o := options()
	o.Source = source
	a := NewAggregate(o)
	if err := a.Add(l); err != nil {
		t.Fatal(err)
	}
	b, err := a.Settle()
	if err != nil {
		t.Fatal(err)
	}
	replace, _, err := Plan(b, nil, september)
	if err != nil {
		t.Fatal(err)
	}
	return b, []Period{replace[0].Period}
}

// TestBillsThatCountTwice imports a month and then something of the same time.
func TestBillsThatCountTwice(t *testing.T) {
	month := func(offset time.Duration, n int) time.Time { return september.AddDate(0, n, 0).Add(offset) }
	const zone = -2 * time.Hour
	for _, tc := range []struct {
		name                  string
		account, then         string // billing accounts
		source                string
		from, until           time.Time
		cost                  string
		want                  []Change
		refused, removesFirst bool
	}{
		{
			name: "the same", account: "acc", then: "acc", source: "a.csv", from: month(0, 0),
			until: month(0, 1), cost: "1",
			want: []Change{Unchanged},
		},
		{
			name: "the same from elsewhere", account: "acc", then: "acc", source: "b.csv", from: month(0, 0),
			until: month(0, 1), cost: "1", want: []Change{Unchanged},
		},
		{
			name: "restated from elsewhere", account: "acc", then: "acc", source: "b.csv", from: month(0, 0),
			until: month(0, 1), cost: "2", want: []Change{Restated},
		},
		{
			name: "another UTC offset", account: "acc", then: "acc", source: "b.csv", from: month(zone, 0),
			until: month(zone, 1), cost: "1", refused: true,
		},
		{
			name: "another UTC offset and no end", account: "acc", then: "acc", source: "b.csv", from: month(zone, 0),
			cost: "1", refused: true,
		},
		{
			name: "another UTC offset, the same source", account: "acc", then: "acc",
			source: "a.csv", from: month(zone, 0),
			until: month(zone, 1), cost: "1", want: []Change{Added, Removed}, removesFirst: true,
		},
		{
			name: "the month after with another offset", account: "acc", then: "acc",
			source: "b.csv", from: month(zone, 1),
			until: month(zone, 2), cost: "1", refused: true,
		},
		{
			name: "the month after", account: "acc", then: "acc", source: "b.csv",
			from: month(0, 1), until: month(0, 2),
			cost: "1", want: []Change{Added},
		},
		{
			name: "the month before", account: "acc", then: "acc", source: "b.csv",
			from: month(0, -1), until: month(0, 0),
			cost: "1", want: []Change{Added},
		},
		{
			name: "the second half", account: "acc", then: "acc", source: "b.csv", from: september.AddDate(0, 0, 15),
			until: month(0, 1), cost: "1", refused: true,
		},
		{
			name: "another account", account: "acc", then: "other", source: "b.csv", from: month(zone, 0),
			until: month(zone, 1), cost: "1", want: []Change{Added},
		},
		{
			name: "no account, renamed", source: "b.csv", from: month(0, 0), until: month(0, 1), cost: "1",
			want: []Change{Unchanged},
		},
		{
			name: "no account, renamed and restated", source: "b.csv", from: month(0, 0),
			until: month(0, 1), cost: "2",
			refused: true,
		},
		{
			name: "no account, restated", source: "a.csv", from: month(0, 0), until: month(0, 1), cost: "2",
			want: []Change{Restated},
		},
		{
			name: "no account, the month after", source: "b.csv", from: month(0, 1), until: month(0, 2), cost: "1",
			want: []Change{Added},
		},
		{
			name: "a bill without an account and one with it", account: "acc", source: "b.csv", from: month(0, 0),
			until: month(0, 1), cost: "2", want: []Change{Added},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, stored := imported(t, "a.csv", tc.account, month(0, 0), month(0, 1), "1")
			b, _ := imported(t, tc.source, tc.then, tc.from, tc.until, tc.cost)
			replace, planned, err := Plan(b, stored, september)
			var twice *CountedTwice
			if errors.As(err, &twice) != tc.refused || tc.refused &&
				(len(replace) > 0 || !strings.Contains(err.Error(), "import it as a.csv again")) {
				t.Fatalf("got %+v, %v", planned, err)
			}
			var got []Change
			removes := false
			for _, p := range planned {
				got = append(got, p.Change)
				removes = removes || p.Change == Removed && p.PeriodKey == stored[0].utc()
			}
			for i := range tc.want {
				if len(got) != len(tc.want) || got[i] != tc.want[i] {
					t.Fatalf("got %v, want %v", got, tc.want)
				}
			}
			if removes != tc.removesFirst {
				t.Errorf("what was there is removed: %v", removes)
			}
		})
	}
}

// TestHalvesOfAMonthDoNotOverlap checks that the end that a bill gives is its period's.
func TestHalvesOfAMonthDoNotOverlap(t *testing.T) {
	middle := september.AddDate(0, 0, 15)
	_, stored := imported(t, "a.csv", "acc", september, middle, "1")
	b, _ := imported(t, "b.csv", "acc", middle, september.AddDate(0, 1, 0), "1")
	if _, planned, err := Plan(b, stored, september); err != nil || len(planned) != 1 || planned[0].Change != Added {
		t.Errorf("got %+v, %v", planned, err)
	}
}

// TestABillThatOverlapsItself is refused with advice that fits.
func TestABillThatOverlapsItself(t *testing.T) {
	for account, advice := range map[string]string{
		"acc": "export both with the same start of the period", "": "give the export a BillingAccountId",
	} {
		a := NewAggregate(options())
		for _, offset := range []time.Duration{0, -2 * time.Hour} {
			l := line("i-1", "1", 1)
			l.BillingAccountID, l.BillingPeriodStart, l.BillingPeriodEnd = account, l.BillingPeriodStart.Add(
				offset), l.BillingPeriodEnd.Add(offset)
			if err := a.Add(l); err != nil {
				t.Fatal(err)
			}
		}
		var twice *CountedTwice
		if _, err := a.Settle(); !errors.As(err, &twice) || !strings.HasSuffix(err.Error(), advice) {
			t.Errorf("account %q: %v", account, err)
		}
	}
}
