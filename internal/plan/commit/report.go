package commit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Report is a plan, in the shape of its JSON. Shares are 0 to 1.
type Report struct {
	Schema string `json:"schema"`
	// Start and End bound the window, Hours is how many hours it has.
	Start time.Time `json:"window_start"`
	End   time.Time `json:"window_end"`
	Hours int       `json:"hours"`
	// OnDemandUSD is the cost of the window without any commitment, PlannedUSD the cost of the
	// same use in the period ahead with the existing commitments that remain and the cheapest set of
	// all offers, whether or not it is advised, charges of unused hours included.
	OnDemandUSD money.Amount `json:"on_demand_cost_usd"`
	PlannedUSD  money.Amount `json:"planned_cost_usd"`
	// LowerBoundUSD is proven: no choice from these offers costs less.
	LowerBoundUSD money.Amount `json:"lower_bound_usd"`
	// Optimal is true if the plan meets the bound, to a hundred-millionth of the cost
	// without commitments.
	Optimal bool `json:"optimal"`
	// EffectiveSavingsRate is 1 − planned / on demand, after what goes unused.
	EffectiveSavingsRate float64 `json:"effective_savings_rate"`
	// Coverage is the share of use, at on-demand prices, that commitments cover;
	// Utilization the share of what commitments charge that is used.
	Coverage    float64 `json:"coverage"`
	Utilization float64 `json:"utilization"`
	// IdleUSD is the on-demand cost of idle machines. They were taken off first, and are in no
	// other figure.
	IdleUSD money.Amount `json:"idle_cost_usd"`
	// LeavingUSD is the on-demand cost of machines that findings stop, move to spot or replace.
	// They were taken off as well.
	LeavingUSD money.Amount `json:"leaving_cost_usd"`
	// Commitments are the advised ones, to buy, and after them those of the cheapest set of
	// all offers that the advice refuses. The advised ones are the cheapest set without the offers
	// that are refused. Existing are present ones, by their use in the window.
	Commitments []Commitment `json:"commitments"`
	Existing    []Commitment `json:"existing"`
	// AdvisedUSD is the cost with the advised commitments alone.
	AdvisedUSD money.Amount `json:"advised_cost_usd"`
	// ExpectedYearlyUSD is the expected yearly saving of the advised commitments over their terms,
	// although work leaves their types; null if no rate of leaving is known.
	ExpectedYearlyUSD money.Dollars `json:"expected_yearly_saving_usd"`
	// YearlyUSD is their saving in a year in which the use of the window stays.
	YearlyUSD money.Amount `json:"yearly_saving_usd"`
	// AdvisedLossDrop is the least fall of demand, to a thousandth, from which the advised
	// commitments cost more than they save; null if nothing is advised.
	AdvisedLossDrop *float64 `json:"advised_loss_drop"`
	// WhatIf is the plan on less demand: the advised commitments, or all where none is advised.
	// LossDrop is the least fall of demand, to a thousandth, from which they cost more than they
	// save; null if no offer saves anything.
	WhatIf   []WhatIf `json:"what_if"`
	LossDrop *float64 `json:"loss_drop"`
	// Online is the same window under the online policy, where the caller asked for it.
	Online *OnlineReport `json:"online,omitempty"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes are the gaps of the data.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes would change the answer.
	Changes []string `json:"changes"`

	// Layers are the uses that each commitment covers and, last, that stay on demand.
	Layers []Layer `json:"-"`
}

// Commitment is one that a plan holds.
type Commitment struct {
	// Key is the offer's: a pattern where it is a savings plan.
	Key  string `json:"key"`
	Kind Kind   `json:"kind"`
	// TermMonths is the term in months.
	TermMonths int64 `json:"term_months,omitempty"`
	// Payment is how it is paid.
	Payment Payment `json:"payment,omitempty"`
	// Quantity is whole reserved machines, DollarsPerHour what a savings plan commits to.
	Quantity       int64  `json:"quantity,omitempty"`
	DollarsPerHour string `json:"dollars_per_hour,omitempty"`
	// Discount is off the on-demand price: of a savings plan as offered, of reserved machines at
	// full use and the mean price of the window, below 0 if they cost more.
	Discount float64 `json:"discount"`
	// Utilization is the share of it that is used over the window, LowestMonth that of
	// the 730 hours of the window that use it least.
	Utilization float64 `json:"utilization"`
	LowestMonth float64 `json:"lowest_month_utilization"`
	// BreakEvenUtilization is the share of use from which it costs no more than on
	// demand.
	BreakEvenUtilization float64 `json:"break_even_utilization"`
	// CostUSD is charged in the window, CoveredUSD what its use costs on demand.
	CostUSD    money.Amount `json:"cost_usd"`
	CoveredUSD money.Amount `json:"covered_usd"`
	// UpfrontUSD is paid when it is bought.
	UpfrontUSD money.Amount `json:"upfront_usd"`
	// BreakEvenDays is when the mean saving of the window has brought back what was paid upfront: 0
	// if nothing was, null if it never does.
	BreakEvenDays *float64 `json:"break_even_days"`
	// YearlyUSD is the saving in a year in which the use of the window stays, and ExpectedYearlyUSD
	// the expected one in a year of its term although work leaves its types; null if no rate is
	// known, and for an existing commitment.
	YearlyUSD         money.Amount  `json:"yearly_saving_usd"`
	ExpectedYearlyUSD money.Dollars `json:"expected_yearly_saving_usd"`
	// Starts is when a new one begins: where the window ends, or when what it replaces ends.
	Starts *time.Time `json:"starts,omitempty"`
	// Expires is when one that exists ends, State what becomes of it in the period ahead, and
	// Follows what comes after one that ends.
	Expires *time.Time `json:"expires,omitempty"`
	State   State      `json:"state,omitempty"`
	Follows string     `json:"follows,omitempty"`
	// HistoryHours is for how many hours anything is recorded of what it covers.
	HistoryHours int `json:"history_hours"`
	// Risk is that work leaves the types it covers; null if the rate is unknown.
	Risk *Risk `json:"risk"`
	// Advised is true if its use stays above 60%, on enough history, and that it is
	// expected to save although types are left; Why says what speaks against it.
	Advised bool   `json:"advised"`
	Why     string `json:"why,omitempty"`
}

// WhatIf is a plan replayed on less demand.
type WhatIf struct {
	// Drop is the fall of demand, 0 to 1.
	Drop float64 `json:"drop"`
	// OnDemandUSD is the cost without commitments in dollars.
	OnDemandUSD money.Amount `json:"on_demand_cost_usd"`
	// PlannedUSD is the cost with the plan in dollars.
	PlannedUSD money.Amount `json:"planned_cost_usd"`
	// EffectiveSavingsRate is 1 − planned / on demand.
	EffectiveSavingsRate float64 `json:"effective_savings_rate"`
	// Utilization is the share of capacity in use.
	Utilization float64 `json:"utilization"`
}

// drops are the falls of demand that every report looks at, in thousandths.
var drops = []int64{100, 200, 300, 500}

// report replays a plan with the existing commitments that last, and writes it down.
func (d *demand) report(p groupPlan, held []line, o Options) (Report, error) {
	lasting := d.inState(held, o.Soon, Active)
	lines := d.lines(p.best, lasting)
	out, layers, err := d.layers(lines)
	if err != nil {
		return Report{}, err
	}
	r := Report{Schema: Schema, Start: d.start, End: d.start.Add(time.Duration(d.hours) * time.Hour), Hours: d.hours,
		OnDemandUSD: d.onDemand, PlannedUSD: out.cost, LowerBoundUSD: out.cost - p.gap, Optimal: p.gap == 0,
		EffectiveSavingsRate: saved(d.onDemand, out.cost), Coverage: money.Ratio(out.covered, d.onDemand),
		Utilization: out.utilization(d.hours),
		IdleUSD:     d.idle, LeavingUSD: d.leaving, Commitments: []Commitment{}, Layers: layers}
	refused, err := r.list(d, lines, out, o, false)
	if err != nil {
		return Report{}, err
	}
	againstAdvice := r.Commitments
	r.Commitments = []Commitment{}
	if len(refused) > 0 && len(p.advised) > 0 {
		lines = d.lines(p.advised, lasting)
		if out, r.Layers, err = d.layers(lines); err != nil {
			return Report{}, err
		}
	}
	var added []line
	if len(refused) == 0 || len(p.advised) > 0 {
		if added, err = r.list(d, lines, out, o, true); err != nil {
			return Report{}, err
		}
	}
	r.Commitments = append(r.Commitments, againstAdvice...)
	if r.Existing, err = d.existing(held, slices.Concat(added, refused), o); err != nil {
		return Report{}, err
	}
	if err := r.advise(d, p.advised, lasting, o); err != nil {
		return Report{}, err
	}
	if err := r.ask(d, lines, lasting, o); err != nil {
		return Report{}, err
	}
	r.explain(d, lines, p.gap)
	return r, nil
}

// list adds the new commitments of a replay that are advised, or those that are refused, and
// returns their lines.
func (r *Report) list(d *demand, lines []line, out outcome, o Options, advised bool) ([]line, error) {
	var added []line
	for i, l := range lines {
		if l.existing != nil {
			continue
		}
		c, err := d.commitment(l, out.lines[i], o)
		if err != nil {
			return nil, err
		}
		if c.Advised != advised {
			continue
		}
		c.Starts = &l.starts
		added, r.Commitments = append(added, l), append(r.Commitments, c)
	}
	return added, nil
}

// advise weighs what is advised, without the rest of the plan.
func (r *Report) advise(d *demand, advised []purchase, lasting []line, o Options) error {
	lines := d.lines(advised, lasting)
	with, err := d.replay(lines, nil)
	if err != nil {
		return err
	}
	r.AdvisedUSD, r.ExpectedYearlyUSD = with.cost, money.Known(0)
	if len(advised) == 0 {
		return nil
	}
	without, err := d.replay(lasting, nil)
	if err != nil {
		return err
	}
	if r.YearlyUSD, err = yearly(without.cost-with.cost, d.hours); err != nil {
		return err
	}
	// What the new commitments take from those that last is no saving.
	taken := without.covered
	for i, l := range lines {
		if l.existing != nil {
			taken -= with.lines[i].covered
			continue
		}
		risk, err := d.risk(l, with.lines[i], o.Leave)
		if err != nil {
			return err
		}
		if risk == nil {
			r.ExpectedYearlyUSD = money.Dollars{}
			break
		}
		expected, err := risk.yearly(l.offer.TermMonths)
		if err != nil {
			return err
		}
		r.ExpectedYearlyUSD = r.ExpectedYearlyUSD.Plus(expected)
	}
	if v, known := r.ExpectedYearlyUSD.Get(); known {
		if taken, err = yearly(taken, d.hours); err != nil {
			return err
		}
		r.ExpectedYearlyUSD = money.Known(v - taken)
	}
	r.AdvisedLossDrop, err = d.lossDrop(lines, lasting)
	return err
}

// saved is the effective savings rate.
func saved(onDemand, cost money.Amount) float64 {
	if onDemand == 0 {
		return 0
	}
	return 1 - money.Ratio(cost, onDemand)
}

// utilization is the share of the charges that is for what is used.
func (o outcome) utilization(hours int) float64 {
	used, charged := 0.0, 0.0
	for _, y := range o.lines {
		mean, _ := y.utilization(hours)
		used, charged = used+mean*float64(y.charge), charged+float64(y.charge)
	}
	if charged == 0 {
		return 0
	}
	return used / charged
}

// commitment writes one line down.
func (d *demand) commitment(l line, y tally, options Options) (Commitment, error) {
	o := l.offer
	c := Commitment{
		Key: o.Key, Kind: o.Kind, TermMonths: o.TermMonths, Payment: o.Payment,
		CostUSD: y.charge, CoveredUSD: y.covered,
	}
	c.Utilization, c.LowestMonth = y.utilization(d.hours)
	// running is what is charged hour by hour, upfront what was paid at once.
	var running, upfront money.Amount
	var err error
	if o.Kind == Reserved {
		c.Quantity = l.level
		c.BreakEvenUtilization = d.share(l)
		if upfront, err = o.Upfront.Mul(l.level, 1); err == nil {
			running, err = o.Hourly.Mul(l.level*int64(l.until), 1)
		}
	} else {
		c.DollarsPerHour = money.Amount(l.level).String()
		c.BreakEvenUtilization = 1 - o.Discount.Share()
		// AWS takes half of a partial upfront at once
		halves := map[Payment]int64{AllUpfront: 2, PartialUpfront: 1}[o.Payment]
		if upfront, err = money.Amount(l.level).Mul(o.TermMonths*money.HoursPerMonth*halves, 2); err == nil {
			running, err = y.charge.Mul(2-halves, 2)
		}
	}
	if err != nil {
		return c, fmt.Errorf("add up the upfront of %s: %w", o.Key, err)
	}
	c.Discount, c.UpfrontUSD = 1-c.BreakEvenUtilization, upfront
	switch {
	case l.existing != nil:
	case upfront == 0:
		c.BreakEvenDays = new(float64)
	case y.covered > running:
		days := float64(upfront) / float64(y.covered-running) * float64(l.until) / 24
		c.BreakEvenDays = &days
	}
	switch {
	case c.Utilization <= minUtilization:
		c.Why = fmt.Sprintf("utilization %s: a commitment needs more than %s", plain.Share(c.Utilization, 1),
			plain.Share(minUtilization, 1))
	case c.LowestMonth <= minUtilization:
		c.Why = fmt.Sprintf("utilization %s in its lowest month: a commitment needs more than %s",
			plain.Share(c.LowestMonth, 1), plain.Share(minUtilization, 1))
	}
	c.HistoryHours = d.history(l)
	if c.YearlyUSD, err = yearly(y.covered-y.charge, l.until); err != nil {
		return c, err
	}
	if c.Risk, err = d.risk(l, y, options.Leave); err != nil {
		return c, err
	}
	if c.Risk != nil {
		expected, err := c.Risk.yearly(o.TermMonths)
		if err != nil {
			return c, err
		}
		c.ExpectedYearlyUSD = money.Known(expected)
	}
	if c.Why == "" && l.existing == nil {
		c.Why = c.against(options.minHistory())
	}
	c.Advised = c.Why == ""
	return c, nil
}

// share is the price of a reserved machine as a share of on demand, at the mean price a unit
// of the hours that are recorded.
func (d *demand) share(l line) float64 {
	var sum, n float64
	for _, k := range l.keys {
		units := float64(l.offer.units()) / float64(d.unitsOf(l.offer, k))
		for _, r := range d.rate[k] {
			if r > 0 {
				sum, n = sum+float64(r)*units, n+1
			}
		}
	}
	one, err := l.offer.charge(int64(l.until))
	if err != nil || n == 0 {
		return 1
	}
	return float64(one) / float64(l.until) / (sum / n)
}

// ask replays the plan on less demand.
func (r *Report) ask(d *demand, lines, held []line, o Options) error {
	asked := slices.Clone(drops)
	if o.Drop > 0 {
		asked = append(asked, int64(math.Round(o.Drop*1000)))
		slices.Sort(asked)
		asked = slices.Compact(asked)
	}
	for _, drop := range asked {
		less, err := d.scaled(1000 - drop)
		if err != nil {
			return err
		}
		out, err := less.replay(lines, nil)
		if err != nil {
			return err
		}
		r.WhatIf = append(r.WhatIf, WhatIf{
			Drop: float64(drop) / 1000, OnDemandUSD: less.onDemand, PlannedUSD: out.cost,
			EffectiveSavingsRate: saved(less.onDemand, out.cost), Utilization: out.utilization(d.hours)})
	}
	if len(r.Commitments) == 0 || r.AdvisedLossDrop != nil {
		r.LossDrop = r.AdvisedLossDrop
		return nil
	}
	var err error
	r.LossDrop, err = d.lossDrop(lines, held)
	return err
}

// lossDrop is the least fall of demand, to a thousandth, from which lines cost more than
// those that are held alone.
func (d *demand) lossDrop(lines, held []line) (*float64, error) {
	var failed error
	least := sort.Search(1000, func(drop int) bool {
		less, err := d.scaled(int64(1000 - drop))
		if err != nil {
			failed = err
			return true
		}
		with, err := less.replay(lines, nil)
		without, err2 := less.replay(held, nil)
		failed = errors.Join(failed, err, err2)
		return with.cost > without.cost
	})
	return new(float64(least) / 1000), failed
}

// explain adds the assumptions of the plan.
func (r *Report) explain(d *demand, lines []line, gap money.Amount) {
	r.Assumptions = []string{
		"the use of the window repeats in the period ahead; commitments are charged for every hour, " +
			"with upfront payments spread over the term",
		"usage is covered by reserved machines first, then by savings plans with the highest discount first; the rest is " +
			"on demand",
		"commitments do not cover capacity blocks and spot: leave them out of the usage",
	}
	if names := d.flexible(lines); len(names) > 0 {
		r.Assumptions = append(r.Assumptions,
			"reserved "+plain.Few(names)+" are regional, for Linux/UNIX and with default "+
				"tenancy: they cover every size of their family in the region, the smallest first; give sizes one "+
				"in the file "+
				"where they do not")
	}
	if d.idle > 0 {
		r.Assumptions = append(r.Assumptions,
			"idle machines are excluded: "+d.idle.Dollars()+" on demand that no commitment should cover")
	} else {
		r.Assumptions = append(r.Assumptions,
			"the usage has no idle hours: a commitment to idle machines makes waste permanent")
	}
	if d.leaving > 0 {
		r.Assumptions = append(r.Assumptions,
			"machines that are to stop, to move to spot or to be replaced are excluded: "+
				d.leaving.Dollars()+" on demand in the window")
	}
	if gap > 0 {
		r.Assumptions = append(r.Assumptions,
			fmt.Sprintf("the search ended without a proof: a better plan may save up to %s more", gap.Dollars()))
	}
	r.CoverageNotes = []string{
		fmt.Sprintf("%s hours from %s to %s, %d keys, %s rows", money.Thousands(int64(d.hours)),
			d.start.Format(time.DateOnly),
			r.End.Add(-time.Hour).Format(time.DateOnly), len(d.keys), money.Thousands(int64(d.rows)))}
	if d.empty > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			fmt.Sprintf("%s hours have no row: they count as unused, and commitments are charged for them",
				money.Thousands(int64(d.empty))))
	}
	if missing := len(d.keys)*(d.hours-d.empty) - d.rows; missing > 0 {
		r.CoverageNotes = append(r.CoverageNotes,
			fmt.Sprintf("%s hours of single keys have no row: they count as unused",
				money.Thousands(int64(missing))))
	}
	if d.hours < minHours {
		r.CoverageNotes = append(r.CoverageNotes, "the window is shorter than 60 days: a year may differ")
	}
	if slices.ContainsFunc(r.Commitments, func(c Commitment) bool { return c.Risk != nil }) {
		r.Assumptions = append(r.Assumptions,
			"work leaves a machine type at the yearly rate shown with each commitment; "+
				"after that the commitment is paid but unused")
	}
	if r.LossDrop != nil {
		r.Changes = append(r.Changes,
			fmt.Sprintf("if demand drops by %s or more, the new commitments cost more than they save",
				plain.Share(*r.LossDrop, 1)))
	}
	cost := r.PlannedUSD
	if r.AdvisedLossDrop != nil {
		cost = r.AdvisedUSD
	}
	for _, w := range r.WhatIf {
		r.Changes = append(r.Changes, fmt.Sprintf("if demand drops by %s, the same plan saves %s instead of %s",
			plain.Share(w.Drop, 1), plain.Share(w.EffectiveSavingsRate, 1),
			plain.Share(saved(r.OnDemandUSD, cost), 1)))
	}
	for _, c := range r.Commitments {
		if !c.Advised {
			r.Changes = append(r.Changes, fmt.Sprintf("%s %s: %s", c.Key, c.Kind, c.Why))
		}
	}
}
