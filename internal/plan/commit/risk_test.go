package commit

import (
	"math"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestAdviceNeedsHistoryAndWeighsRisk checks that the computed plan stays the same, its advice does
// not: 36 months are not advised on 30 days, nor on a type that is left before they pay.
func TestAdviceNeedsHistoryAndWeighsRisk(t *testing.T) {
	long := []Offer{{Key: "p3", Kind: Reserved, TermMonths: 36, Payment: AllUpfront, Upfront: 985350000 * 26280}}
	rate := func(r float64) func(string) Leaving {
		return func(string) Leaving { return Leaving{PerYear: r, Why: "released 2017"} }
	}
	for _, tc := range []struct {
		name    string
		hours   int
		options Options
		why     string // "" if it is advised
		saving  float64
	}{
		{"30 days", 720, Options{}, "720 hours of history; a recommendation needs 1,440", 0},
		{"30 days where that is enough", 720, Options{MinHours: 700}, "", 0},
		{"60 days", 1440, Options{}, "", 0},
		{"60 days of a type that stays", 1440, Options{Leave: rate(0)}, "", 3*26280.0 - 25895.0},
		{
			"60 days of a type that is left slowly", 1440, Options{Leave: rate(0.3)}, "",
			3*26280.0*(1-math.Exp(-0.9))/0.9 - 25895.0,
		},
		{
			"60 days of a type that is left soon", 1440, Options{Leave: rate(1)},
			"expected use is 31.7% of its 36 months (released 2017)", 3*26280.0*(1-math.Exp(-3))/3 - 25895.0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			need := make([]float64, tc.hours)
			for i := range need {
				need[i] = 1
			}
			r, err := Plan(steady("p3", 3, need...), long, nil, tc.options)
			if err != nil || len(r.Commitments) != 1 {
				t.Fatalf("%d commitments, %v", len(r.Commitments), err)
			}
			c := r.Commitments[0]
			if c.Quantity != 1 || c.HistoryHours != tc.hours || c.Advised != (tc.why == "") ||
				!strings.Contains(c.Why, tc.why) {
				t.Errorf("%d machines on %d hours, advised %v: %q; want %q", c.Quantity, c.HistoryHours,
					c.Advised, c.Why, tc.why)
			}
			if advised := r.AdvisedUSD == r.PlannedUSD; advised != c.Advised {
				t.Errorf("what is advised costs %s, the plan %s", r.AdvisedUSD, r.PlannedUSD)
			}
			if tc.options.Leave == nil {
				if c.Risk != nil {
					t.Errorf("a risk without a rate: %+v", c.Risk)
				}
				return
			}
			if got := float64(c.Risk.SavingUSD) / float64(money.USD); math.Abs(got-tc.saving) > 1 {
				t.Errorf("expected to save %s over the term, want %.2f", c.Risk.SavingUSD, tc.saving)
			}
			if c.Risk.PaysFromMonths == nil || math.Abs(*c.Risk.PaysFromMonths-36*25895.0/(3*26280)) > 0.01 {
				t.Errorf("it pays from %v months on", c.Risk.PaysFromMonths)
			}
		})
	}
}
