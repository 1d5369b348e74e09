package costs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan"
)

// Quantity is a number of units in thousandths: 1500 is one and a half. Its range is 0 to about 9.2
// × 10^15 units.
type Quantity int64

// perUnit is the resolution of a Quantity.
const perUnit = 1000

// String returns "1.5".
func (q Quantity) String() string {
	s := fmt.Sprintf("%d.%03d", q/perUnit, q%perUnit)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// MarshalJSON writes a number.
func (q Quantity) MarshalJSON() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	v, err := ParseQuantity(string(b))
	*q = v
	return err
}

// ParseQuantity reads a non-negative decimal number with at most three fractional digits.
func ParseQuantity(s string) (Quantity, error) {
	whole, frac, point := strings.Cut(s, ".")
	if len(frac) > 3 || (point && frac == "") || whole == "" || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, fmt.Errorf("count %q is not a number of at most three digits after the point, 0 or more", s)
	}
	v, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 3-len(frac)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count %q is out of range", s)
	}
	return Quantity(v), nil
}

// Count is the number of units of one key in the period that starts at Time.
type Count struct {
	Time  time.Time
	Count Quantity
	// Key is the value of the dimension that costs are grouped by. Empty means all keys together,
	// or with Unallocated the costs without a value.
	Key         string
	Unallocated bool
}

// CountsFile is the format of a file of counted units.
var CountsFile = plan.Layout{
	Required: []plan.Column{
		{Name: "time", Doc: "start of the period: RFC 3339, or a date"},
		{Name: "count", Doc: "units of the period, with at most three decimals"},
	},
	Optional: []plan.Column{
		{Name: "key", Doc: "value of the dimension of --by"},
	},
}

// ReadCounts reads `time,count[,key]`: times as RFC 3339 or dates, counts as in [ParseQuantity].
// Mistakes, such as a second count of one time and key, are a *plan.FileError with their position.
func ReadCounts(name string, r io.Reader) ([]Count, error) {
	var out []Count
	seen := map[Count]bool{}
	err := plan.ReadCSV(name, r, CountsFile, func(row plan.Row) error {
		at, err := time.Parse(time.RFC3339, row.Text("time"))
		if err != nil {
			if at, err = time.Parse(time.DateOnly, row.Text("time")); err != nil {
				return row.Error("time", "time %q is neither 2026-01-31T15:00:00Z nor 2026-01-31", row.Text("time"))
			}
		}
		n, err := ParseQuantity(row.Text("count"))
		if err != nil {
			return row.Error("count", "%s", err)
		}
		c := Count{Time: at.UTC(), Key: row.Text("key")}
		if seen[c] {
			return row.Error("time", "there is already a count of %s at this time", cmp.Or(c.Key, "all"))
		}
		seen[c] = true
		c.Count = n
		out = append(out, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// CountBasis selects the cost that is divided by the units.
type CountBasis string

// The bases.
const (
	UsedBasis      CountBasis = "used"      // compute that worked
	AllocatedBasis CountBasis = "allocated" // all compute that was allocated
	IdleBasis      CountBasis = "idle"      // wasted compute
)

// Unit describes the counted unit.
type Unit struct {
	// Name is the name of one unit: "prediction", "token", "training run", "GPU-hour".
	Name string
	// Per is the number of units that a unit cost refers to: 1, or 1,000,000 tokens. 0 means 1.
	Per int64
	// Target is the maximum cost of Per units on the allocated basis; nil for none.
	Target *money.Rate
}

// UnitCost is the cost of Per units of one key and period on one basis.
type UnitCost struct {
	Period time.Time  `json:"period"`
	Key    []string   `json:"key"`
	Basis  CountBasis `json:"basis"`
	// Amount is null if the cost is unknown.
	Amount *money.Amount `json:"amount_usd"`
	Count  Quantity      `json:"count"`
	// Cost is exact to the pico-dollar; null with a reason if nothing was counted or the cost is
	// unknown.
	Cost   *money.Rate `json:"unit_cost_usd"`
	Reason string      `json:"reason,omitempty"`
	// AtLeast is true if part of the cost is unknown, so that Cost is a lower bound.
	AtLeast bool `json:"at_least"`
	// Change is the relative change of the allocated unit cost against the last period that has
	// one: 0.1 is a tenth more.
	Change *float64 `json:"change"`
	// OverTarget is true if the cost on the allocated basis exceeds the target.
	OverTarget bool `json:"over_target"`
}

// UnitCosts are unit costs over time.
type UnitCosts struct {
	Unit   string      `json:"unit"`
	Per    int64       `json:"per"`
	Target *money.Rate `json:"target_usd"`
	// Rows follow the order of the costs' rows, with a row for each basis.
	Rows []UnitCost `json:"rows"`
	// Total covers the whole time, by basis.
	Total []UnitCost `json:"total"`
	// Trend is the relative change of the allocated unit cost from the first period that has one to
	// the last: 0.1 is a tenth more. Null with fewer than two.
	Trend *float64 `json:"trend"`

	Assumptions   []string `json:"assumptions"`
	CoverageNotes []string `json:"coverage_notes"`
	Changes       []string `json:"changes"`
}

// Units divides costs by counts, for each period and key. Counts with a key apply to the costs of
// that key, which must be grouped by exactly one dimension; counts without a key apply to costs
// without grouping. Counts outside the period, or of days with unknown cost, are left out, and the
// total covers the counted periods and keys. Daily or monthly counts with costs by a shorter period
// are an error: a day's count would apply to its first hour.
func Units(u Unit, c *Costs, counts []Count) (*UnitCosts, error) {
	u.Per = max(u.Per, 1)
	if len(c.By) > 1 {
		return nil, fmt.Errorf("divide costs by %s: they are shown by %d dimensions, and a count has one key", u.Name,
			len(c.By))
	}
	made := map[countKey]Quantity{}
	dark := map[countKey]bool{}
	granularity := ledger.Granularity(strings.TrimSuffix(c.Granularity, "total"))
	outside, keyless, unknown := 0, 0, 0
	var all Quantity
	for _, n := range counts {
		if n.Time.Before(c.Since) || !n.Time.Before(c.Until) {
			outside++
			continue
		}
		if (n.Key == "" && !n.Unallocated) != (len(c.By) == 0) {
			keyless++
			continue
		}
		k := countKey{granularity.Start(n.Time, c.Since), n.Key}
		if c.Days != nil && !c.Days[n.Time.UTC().Truncate(day)] {
			unknown++
			dark[k] = true
			continue
		}
		if n.Count < 0 || all > math.MaxInt64-n.Count {
			return nil, fmt.Errorf("add up %s: count out of range", u.Name)
		}
		made[k] += n.Count
		all += n.Count
	}
	if keyless > 0 {
		want := "a key for each, because costs are shown by one dimension"
		if len(c.By) == 0 {
			want = "no key, because costs are not shown by any dimension"
		}
		return nil, fmt.Errorf("divide costs by %s: %d counts do not fit: they need %s", u.Name, keyless, want)
	}
	if err := coarse(granularity, made, c); err != nil {
		return nil, fmt.Errorf("divide costs by %s: %w", u.Name, err)
	}
	out := &UnitCosts{Unit: u.Name, Per: u.Per, Target: u.Target, Rows: []UnitCost{}}
	total := Cost{Period: c.Since, Key: []string{}}
	var counted Quantity
	var idle money.Amount
	left := 0
	for _, r := range c.Rows {
		k := countKey{r.Period, strings.Join(r.Key, "")}
		n, ok := made[k]
		why := "nothing was counted"
		if dark[k] {
			why = "it was counted only on days whose dollars are unknown"
		}
		rows, err := u.divide(r, n, why)
		if err != nil {
			return nil, err
		}
		out.Rows = append(out.Rows, rows...)
		if !ok {
			left++
			if idle, err = idle.Add(r.Amount); err != nil {
				return nil, err
			}
			continue
		}
		delete(made, k)
		counted += n
		if err := total.add(r); err != nil {
			return nil, fmt.Errorf("add up what was spent on %s: %w", u.Name, err)
		}
	}
	free := slices.Compact(slices.Sorted(withPositiveCount(made)))
	for _, n := range made {
		counted += n
	}
	var err error
	why := "nothing was counted"
	switch {
	case !c.Recorded && len(c.Rows) == 0:
		why, counted = "nothing was recorded in this time", 0
	case unknown > 0:
		why = "it was counted only on days whose dollars are unknown"
	}
	if left == len(c.Rows) && counted == 0 {
		total = c.Total // nothing was counted
	}
	if out.Total, err = u.divide(total, counted, why); err != nil {
		return nil, err
	}
	if !c.Recorded && len(c.Rows) == 0 {
		for i := range out.Total {
			out.Total[i].Amount = nil
		}
	}
	out.trend()
	out.Assumptions = append([]string{}, c.Assumptions...)
	out.CoverageNotes, out.Changes = append([]string{}, c.CoverageNotes...), append([]string{}, c.Changes...)
	if outside > 0 {
		out.CoverageNotes = append(out.CoverageNotes,
			fmt.Sprintf("%d counts are outside the time of the costs and left out",
				outside))
	}
	if unknown > 0 {
		out.CoverageNotes = append(out.CoverageNotes,
			fmt.Sprintf("%d counts are of days whose dollars are unknown and left out", unknown))
	}
	if left > 0 && counted > 0 {
		out.CoverageNotes = append(out.CoverageNotes,
			fmt.Sprintf("%s was spent where nothing was counted, and is not in the total", idle.Dollars()))
	}
	if len(free) > 0 {
		out.CoverageNotes = append(out.CoverageNotes,
			fmt.Sprintf("nothing was spent on %s in periods in which something "+
				"was counted; those counts are in the total all the same",
				strings.Join(free[:min(len(free), maxKindNames)], ", ")))
	}
	return out, nil
}

// countKey is the key of a sum of counts.
type countKey struct {
	period time.Time
	key    string
}

// withPositiveCount returns the keys with a positive count.
func withPositiveCount(made map[countKey]Quantity) iter.Seq[string] {
	return func(yield func(string) bool) {
		for k, n := range made {
			if n > 0 && !yield(cmp.Or(k.key, "anything")) {
				return
			}
		}
	}
}

// coarse returns an error if the costs' periods are shorter than those of the counts: all costs
// fall in hours other than midnight, or on days other than the first of a month, that have no
// count.
func coarse(g ledger.Granularity, made map[countKey]Quantity, c *Costs) error {
	longer, name, least := ledger.Daily, "day", 24*time.Hour
	switch g {
	case ledger.Daily:
		longer, name, least = ledger.Monthly, "month", 28*24*time.Hour
	case ledger.Hourly:
	default:
		return nil
	}
	first := func(t time.Time) bool { return t.Equal(c.Since) || t.Equal(longer.Start(t, time.Time{})) }
	// rows are in time order
	if n := len(c.Rows); len(made) == 0 || n == 0 || c.Rows[n-1].Period.Sub(c.Rows[0].Period) < least {
		return nil
	}
	for k := range made {
		if !first(k.period) {
			return nil
		}
	}
	return fmt.Errorf("all counts are at the start of a %s and costs are shown by %s: show them by %s", name, g, name)
}

// add adds the amounts and the unknown time of another cost.
func (c *Cost) add(o Cost) error {
	var errs error
	for _, p := range []struct {
		to *money.Amount
		of money.Amount
	}{
		{&c.Used, o.Used}, {&c.Wasted, o.Wasted}, {&c.CannotJudge, o.CannotJudge}, {&c.Other, o.Other},
		{&c.Amount, o.Amount},
	} {
		sum, err := p.to.Add(p.of)
		*p.to, errs = sum, errors.Join(errs, err)
	}
	c.UnknownSeconds += o.UnknownSeconds
	return errs
}

// divide returns the unit costs of one cost on every basis; why is the reason to state if nothing
// was counted. A zero amount with unknown cost or time is unknown, and any other amount is then a
// lower bound.
func (u *Unit) divide(c Cost, n Quantity, why string) ([]UnitCost, error) {
	out := make([]UnitCost, 0, 3)
	for _, b := range []struct {
		basis   CountBasis
		amount  money.Amount
		unknown bool
	}{
		{UsedBasis, c.Used, c.CannotJudge != 0 || c.UnknownSeconds > 0},
		{AllocatedBasis, c.Amount, c.UnknownSeconds > 0},
		{IdleBasis, c.Wasted, c.CannotJudge != 0 || c.UnknownSeconds > 0},
	} {
		x := UnitCost{Period: c.Period, Key: c.Key, Basis: b.basis, Amount: &b.amount, Count: n, AtLeast: b.unknown}
		switch {
		case b.unknown && b.amount == 0:
			x.Amount, x.AtLeast, x.Reason = nil, false, "its cost is unknown"
			if c.CannotJudge != 0 && b.basis != AllocatedBasis {
				x.Reason = "compute was not measured"
			}
		case n == 0:
			x.AtLeast, x.Reason = false, why
		default:
			rate, err := unitRate(b.amount, u.Per, n)
			if err != nil {
				return nil, fmt.Errorf("divide %s by %s %s: %w", b.amount, n, u.Name, err)
			}
			x.Cost = &rate
			x.OverTarget = b.basis == AllocatedBasis && u.Target != nil && rate > *u.Target
		}
		out = append(out, x)
	}
	return out, nil
}

// unitRate returns the cost of per units, rounded half up to the pico-dollar.
func unitRate(a money.Amount, per int64, n Quantity) (money.Rate, error) {
	const picoPerNano = 1000
	v := new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(per))
	v.Mul(v, big.NewInt(2*picoPerNano*perUnit))
	d := big.NewInt(int64(n))
	v.Add(v, d)
	v.Div(v, d.Lsh(d, 1))
	if !v.IsInt64() {
		return 0, money.ErrOverflow
	}
	return money.Rate(v.Int64()), nil
}

// trend sets the change of the allocated unit cost from the first to the last period that has one,
// over all keys, and for each key from period to period.
func (u *UnitCosts) trend() {
	type sum struct {
		amount money.Amount
		count  Quantity
	}
	change := func(from, to sum) *float64 {
		if from.amount <= 0 {
			return nil
		}
		c := float64(to.amount)/float64(to.count)/(float64(from.amount)/float64(from.count)) - 1
		return &c
	}
	by, before := map[time.Time]sum{}, map[string]sum{}
	var periods []time.Time
	for i := range u.Rows {
		r := &u.Rows[i]
		if r.Basis != AllocatedBasis || r.Cost == nil {
			continue
		}
		key, now := strings.Join(r.Key, ""), sum{*r.Amount, r.Count}
		if last, ok := before[key]; ok {
			r.Change = change(last, now)
		}
		before[key] = now
		s, ok := by[r.Period]
		if !ok {
			periods = append(periods, r.Period)
		}
		by[r.Period] = sum{s.amount + now.amount, s.count + now.count}
	}
	if len(periods) < 2 {
		return
	}
	slices.SortFunc(periods, time.Time.Compare)
	u.Trend = change(by[periods[0]], by[periods[len(periods)-1]])
}
