package commit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plan"
)

const (
	usageHead    = "time,key,quantity,on_demand_rate\n"
	offersHead   = "key,kind,term_months,payment,hourly_rate,upfront,discount\n"
	existingHead = "key,kind,quantity,dollars_per_hour,hourly_rate,upfront,discount,expires\n"
)

func TestRead(t *testing.T) {
	usage, err := ReadUsage("u.csv",
		strings.NewReader(
			"key,time,quantity,on_demand_rate,idle_quantity\na,2026-03-01T02:00:00+01:00,1.25,3.06,0.5\na,1772330400,2,3.06,\n"))
	if err != nil || len(usage) != 2 ||
		usage[0] != (Usage{start.Add(time.Hour), "a", 1_250_000, 500_000, 0, 3_060_000_000}) ||
		!usage[1].Hour.Equal(start.Add(2*time.Hour)) {
		t.Errorf("got %+v, %v", usage, err)
	}
	offers, err := ReadOffers("o.csv",
		strings.NewReader(offersHead+"a,reserved,12,No Upfront,1.82,,\n*,savings-plan,36,all-upfront,,,0.45\n"))
	if err != nil || len(offers) != 2 ||
		offers[0] != (Offer{"a", Reserved, 12, NoUpfront, 1_820_000_000, 0, 0, false}) ||
		offers[1] != (Offer{"*", SavingsPlan, 36, AllUpfront, 0, 0, 450_000_000, false}) {
		t.Errorf("got %+v, %v", offers, err)
	}
	held, err := ReadExisting("e.csv",
		strings.NewReader(
			existingHead+"a,reserved,3,,1.82,,,2026-09-01\na*,savings-plan,,4.5,,,0.3,2026-09-01 00:00:00\n"))
	if err == nil || !strings.Contains(err.Error(), `e.csv:2:22: expires "2026-09-01" is not RFC 3339`) {
		t.Errorf("a day passes as a time: %+v, %v", held, err)
	}
	held, err = ReadExisting("e.csv",
		strings.NewReader(
			existingHead+
				"a,reserved,3,,1.82,,,2026-09-01T00:00:00Z\na*,savings-plan,,4.5,,,0.3,2026-09-01 00:00:00\n"))
	if err != nil || len(held) != 2 || held[0].Machines != 3 || held[1].DollarsPerHour != 4_500_000_000 ||
		!held[1].Expires.Equal(held[0].Expires) {
		t.Errorf("got %+v, %v", held, err)
	}
}

func TestErrorsHavePositions(t *testing.T) {
	usage := func(s string) error { _, err := ReadUsage("u.csv", strings.NewReader(s)); return err }
	offers := func(s string) error { _, err := ReadOffers("o.csv", strings.NewReader(s)); return err }
	existing := func(s string) error { _, err := ReadExisting("e.csv", strings.NewReader(s)); return err }
	const row = "2026-03-01T00:00:00Z,a,1,2\n"
	for _, tc := range []struct {
		name string
		read func(string) error
		text string
		want string
	}{
		{"no hour", usage, usageHead, "u.csv: no hour of usage"},
		{
			"not an hour", usage, usageHead + "2026-03-01T00:30:00Z,a,1,2\n",
			`u.csv:2:1: time "2026-03-01T00:30:00Z" is not a full hour in UTC`,
		},
		{
			"no time", usage, usageHead + "noon,a,1,2\n",
			`u.csv:2:1: time "noon" is not RFC 3339, such as 2026-03-01T14:00:00Z`,
		},
		{
			"twice", usage, usageHead + row + row,
			`u.csv:3:1: 2026-03-01T00:00:00Z of "a" appears twice, first in line 2`,
		},
		{"negative", usage, usageHead + "0,a,-1,2\n", "u.csv:2:5: quantity is -1: expected 0 to 1e+06"},
		{"no number", usage, usageHead + "0,a,NaN,2\n", `u.csv:2:5: quantity "NaN" is not a number`},
		{"unknown price", usage, usageHead + "0,a,1,\n", `u.csv:2:7: on_demand_rate "" is not an amount of dollars`},
		{"price of zero", usage, usageHead + "0,a,1,0\n", "u.csv:2:7: on_demand_rate is 0: expected a price over 0"},
		{"no key", usage, usageHead + "0,,1,2\n", "u.csv:2:3: key is empty"},
		{
			"more idle", usage, "time,key,quantity,on_demand_rate,idle_quantity\n0,a,1,2,3\n",
			"u.csv:2:9: idle_quantity 3 is more than quantity 1",
		},
		{"no offer", offers, offersHead, "o.csv: no offer"},
		{
			"kind", offers, offersHead + "a,spot,12,no-upfront,1,,\n",
			`o.csv:2:3: kind "spot": expected reserved or savings-plan`,
		},
		{
			"term", offers, offersHead + "a,reserved,0,no-upfront,1,,\n",
			"o.csv:2:12: term_months is 0: expected 1 to 120",
		},
		{
			"payment", offers, offersHead + "a,reserved,12,later,1,,\n",
			`o.csv:2:15: payment "later": expected no-upfront, partial-upfront or all-upfront`,
		},
		{
			"no rate", offers, offersHead + "a,reserved,12,no-upfront,,,\n",
			`o.csv:2:26: hourly_rate "" is not an amount of dollars`,
		},
		{
			"upfront without", offers, offersHead + "a,reserved,12,no-upfront,1,5,\n",
			"o.csv:2:28: upfront is 5, but payment is no-upfront",
		},
		{
			"rate with all upfront", offers, offersHead + "a,reserved,12,all-upfront,1,5,\n",
			"o.csv:2:27: hourly_rate is 1, but payment is all-upfront",
		},
		{
			"free", offers, offersHead + "a,reserved,12,no-upfront,0,0,\n",
			"o.csv:2:26: hourly_rate and upfront are both 0: expected a price",
		},
		{
			"pattern of machines", offers, offersHead + "a*,reserved,12,no-upfront,1,,\n",
			`o.csv:2:1: key "a*" has a *: reserved machines need exactly one key`,
		},
		{
			"discount", offers, offersHead + "a,savings-plan,12,no-upfront,,,28\n",
			"o.csv:2:32: discount is 28: expected 0 to 1",
		},
		{
			"no discount", offers, offersHead + "a,savings-plan,12,no-upfront,,,0\n",
			"o.csv:2:32: discount is 0: expected over 0 and under 1",
		},
		{
			"rate of a plan", offers, offersHead + "a,savings-plan,12,no-upfront,5,,0.2\n",
			"o.csv:2:30: hourly_rate of a savings plan is 5: leave it empty; a savings plan has a discount, and the planner " +
				"finds the dollars per hour",
		},
		{
			"quantity of a plan", existing, existingHead + "a,savings-plan,1,,,,0.2,0\n",
			"e.csv:2:16: a savings plan takes dollars_per_hour, not quantity",
		},
		{
			"dollars of machines", existing, existingHead + "a,reserved,1,2,1,,,0\n",
			"e.csv:2:14: reserved machines take quantity, not dollars_per_hour",
		},
		{
			"nothing", existing, existingHead + "a,savings-plan,,0,,,0.2,0\n",
			"e.csv:2:17: dollars_per_hour is 0: expected more than 0",
		},
		{
			"upfront without a term", existing, existingHead + "a,reserved,1,,1,5,,0\n",
			"e.csv:2:17: upfront needs term_months, over which it is spread",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.read(tc.text)
			var file *plan.FileError
			if !errors.As(err, &file) || err.Error() != tc.want {
				t.Errorf("got  %v\nwant %s", err, tc.want)
			}
		})
	}
}

// FuzzReadUsage: what passes can be planned for, or is out of range and says so.
func FuzzReadUsage(f *testing.F) {
	f.Add("")
	f.Add(usageHead + "2026-03-01T00:00:00Z,a,1.5,3.06\n2026-03-01 01:00,b,2,0.1\n")
	f.Add("time,key,quantity,on_demand_rate,idle_quantity\n0,a,1,2,1\n3600,a,1e3,2,\n")
	offers := []Offer{
		{
			Key: "a", Kind: Reserved, TermMonths: 12, Hourly: 1,
		}, {Key: "*", Kind: SavingsPlan, TermMonths: 12, Discount: 1},
	}
	f.Fuzz(func(t *testing.T, s string) {
		usage, err := ReadUsage("u.csv", strings.NewReader(s))
		var file *plan.FileError
		if err != nil {
			if !errors.As(err, &file) {
				t.Fatalf("%v is not a *FileError", err)
			}
			return
		}
		for _, u := range usage {
			if u.OnDemand <= 0 || u.Key == "" || u.Quantity < u.Idle || !u.Hour.Equal(u.Hour.Truncate(time.Hour)) {
				t.Fatalf("%q passes as %+v", s, u)
			}
		}
		if span := usage[len(usage)-1].Hour.Sub(usage[0].Hour).Abs(); span > 100*time.Hour {
			return // slow, and nothing new
		}
		r, err := Plan(usage, offers, nil, Options{Effort: 20})
		if err == nil && r.Hours < 1 {
			t.Fatalf("%q is %d hours", s, r.Hours)
		}
	})
}

// FuzzReadOffers: what passes is within its range, in both files.
func FuzzReadOffers(f *testing.F) {
	f.Add(offersHead + "a,reserved,12,No Upfront,1.82,,\n*,savings-plan,36,all-upfront,,,0.45\n")
	f.Add(existingHead + "a,reserved,3,,1.82,,,2026-09-01T00:00:00Z\na*,savings-plan,,4.5,,,0.3,0\n")
	f.Fuzz(func(t *testing.T, s string) {
		offers, err := ReadOffers("o.csv", strings.NewReader(s))
		var file *plan.FileError
		if err != nil && !errors.As(err, &file) {
			t.Fatalf("%v is not a *FileError", err)
		}
		held, err := ReadExisting("e.csv", strings.NewReader(s))
		if err != nil && !errors.As(err, &file) {
			t.Fatalf("%v is not a *FileError", err)
		}
		if _, _, err := open([]Usage{{Hour: start, Key: "a", OnDemand: 1}}, offers, held); err != nil {
			t.Fatalf("%q passes, and cannot be planned with: %v", s, err)
		}
	})
}

// FuzzMatches compares the pattern with the definition of *, letter by letter.
func FuzzMatches(f *testing.F) {
	f.Add("a*b", "axb")
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if len(pattern)*len(key) > 10_000 {
			return
		}
		at := make([]bool, len(key)+1) // what the pattern so far can end at
		at[0] = true
		for i := range len(pattern) {
			next := make([]bool, len(key)+1)
			for j := range at {
				switch {
				case pattern[i] == '*':
					next[j] = at[j] || j > 0 && next[j-1]
				case j > 0:
					next[j] = at[j-1] && key[j-1] == pattern[i]
				}
			}
			at = next
		}
		if got := matches(pattern, key); got != at[len(key)] {
			t.Fatalf("%q matches %q: got %v", pattern, key, got)
		}
	})
}
