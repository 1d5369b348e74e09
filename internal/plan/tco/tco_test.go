package tco

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/money"
)

func TestWeigh(t *testing.T) {
	for _, tc := range []struct {
		name                         string
		saving, effort, rate, upkeep string
		months                       float64 // under 0: never
		advised                      bool
		first, least                 string
	}{
		// 3 weeks are 120 h, $14,400; 1200 - 240 = 960 a month; 15 months.
		{"the example", "1200/month", "3w", "120/h", "2h/month", 15, false, "-2880.00", "1440.00"},
		{"worth it", "3000/month", "3w", "120/h", "2h/month", 14400.0 / 2760, true, "18720.00", "1440.00"},
		{"exactly a year", "1440/month", "3w", "120/h", "2h/month", 12, true, "0.00", "1440.00"},
		{"a cent less", "1439.99/month", "3w", "120/h", "2h/month", 14400 / 1199.99, false, "-0.12", "1440.00"},
		{"upkeep eats it", "240/month", "1h", "120/h", "2h/month", -1, false, "-120.00", "250.00"},
		{"nothing to do", "10/month", "0h", "120/h", "0h/month", 0, true, "120.00", "0.00"},
		{"nothing saved", "0/month", "0h", "120/h", "0h/month", -1, false, "0.00", "0.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := weigh(tc.saving, tc.effort, tc.rate, tc.upkeep)
			if err != nil {
				t.Fatal(err)
			}
			if r.Advised != tc.advised || r.FirstYearUSD.String() != tc.first ||
				r.LeastSavingUSD.String() != tc.least {
				t.Errorf("advised %v, first year %s, least %s; want %v, %s, %s", r.Advised,
					r.FirstYearUSD, r.LeastSavingUSD,
					tc.advised, tc.first, tc.least)
			}
			switch {
			case tc.months < 0 && r.BreakEvenMonths != nil:
				t.Errorf("break-even after %v months, want never", *r.BreakEvenMonths)
			case tc.months >= 0 && (r.BreakEvenMonths == nil || math.Abs(*r.BreakEvenMonths-tc.months) > 1e-9):
				t.Errorf("break-even %v, want %v", r.BreakEvenMonths, tc.months)
			}
			if against := strings.HasPrefix(r.Verdict, "Do not"); against == r.Advised {
				t.Errorf("verdict %q with advised %v", r.Verdict, r.Advised)
			}
		})
	}
}

func weigh(saving, effort, rate, upkeep string) (Report, error) {
	var p Params
	var err error
	if p.Saving, err = ParseSaving(saving); err != nil {
		return Report{}, err
	}
	if p.Effort, err = ParseWork(effort); err != nil {
		return Report{}, err
	}
	if p.Rate, err = ParseRate(rate); err != nil {
		return Report{}, err
	}
	if p.Upkeep, err = ParseUpkeep(upkeep); err != nil {
		return Report{}, err
	}
	return Weigh(p)
}

func TestParse(t *testing.T) {
	for in, want := range map[string]money.Amount{
		"1200/month": 1200 * money.USD, "$1/h": 730 * money.USD, "12/year": money.USD, "12/day": 365 * money.USD,
		"84/week": 365 * money.USD,
	} {
		if got, err := ParseSaving(in); err != nil || got != want {
			t.Errorf("ParseSaving(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	for in, want := range map[string]time.Duration{
		"3w": 120 * time.Hour, "2d": 16 * time.Hour, "1w2d": 56 * time.Hour, "1.5d": 12 * time.Hour,
		"30m": 30 * time.Minute,
	} {
		if got, err := ParseWork(in); err != nil || got != want {
			t.Errorf("ParseWork(%q) = %s, %v; want %s", in, got, err, want)
		}
	}
	if got, err := ParseRate("960/d"); err != nil || got != 120*money.USD {
		t.Errorf("ParseRate: %s, %v", got, err)
	}
	for _, bad := range []string{"", "1200", "-1/month", "x/month", "1/decade", "1/"} {
		if v, err := ParseSaving(bad); err == nil {
			t.Errorf("ParseSaving(%q) = %s", bad, v)
		}
	}
	for _, bad := range []string{"", "3", "w", "3x", "-1w", "1..2w", "99999999w"} {
		if v, err := ParseWork(bad); err == nil {
			t.Errorf("ParseWork(%q) = %s", bad, v)
		}
	}
}

// TestTheLeastSavingIsTheLine checks that a dollar over it is advised, a dollar under is not.
func TestTheLeastSavingIsTheLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{Effort: time.Duration(rapid.IntRange(0, 5000).Draw(t, "hours")) * time.Hour,
			Rate:   money.Amount(rapid.IntRange(1, 500).Draw(t, "rate")) * money.USD,
			Upkeep: time.Duration(rapid.IntRange(0, 100).Draw(t, "upkeep")) * time.Hour}
		r, err := Weigh(p)
		if err != nil {
			t.Fatal(err)
		}
		least := r.LeastSavingUSD
		for _, d := range []money.Amount{-money.USD, money.USD} {
			if p.Saving = least + d; p.Saving < 0 {
				continue
			}
			if r, err = Weigh(p); err != nil || r.Advised != (d > 0) {
				t.Fatalf("%s a month: advised %v, %v; the least is %s", p.Saving, r.Advised, err, least)
			}
		}
	})
}

func FuzzParseWork(f *testing.F) {
	for _, s := range []string{"3w", "1w2d", "", "1e9h", "0.1m", "month"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseWork(s); err == nil && (d < 0 || d > maxWork) {
			t.Fatalf("ParseWork(%q) = %s", s, d)
		}
		if d, err := ParseUpkeep(s); err == nil && (d < 0 || d > maxWork) {
			t.Fatalf("ParseUpkeep(%q) = %s", s, d)
		}
	})
}

func BenchmarkWeigh(b *testing.B) {
	p := Params{Saving: 1200 * money.USD, Effort: 120 * time.Hour, Rate: 120 * money.USD, Upkeep: 2 * time.Hour}
	for b.Loop() {
		if _, err := Weigh(p); err != nil {
			b.Fatal(err)
		}
	}
}
