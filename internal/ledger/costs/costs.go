// Package costs reports on the ledger: [Spent] sums charges, [Reconcile] compares them with a bill,
// and [Units] divides them by counted units.
package costs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Query selects costs.
type Query struct {
	// By are the dimensions to group costs by; none yields only totals.
	By []ledger.Dimension
	// Since and Until bound the time in whole hours; both are required.
	Since, Until time.Time
	Granularity  ledger.Granularity
	Filter       ledger.Filter
	// Days requests [Costs.Days], Compare [Costs.Comparison].
	Days, Compare bool
}

// Costs are the costs of a period at list price, as accrued and reconciled.
type Costs struct {
	Since       time.Time          `json:"since"`
	Until       time.Time          `json:"until"`
	Granularity string             `json:"granularity"`
	By          []ledger.Dimension `json:"by"`
	// Rows are sorted by period, then by cost, the largest first. They sum to Total.
	Rows  []Cost `json:"rows"`
	Total Cost   `json:"total"`
	// Comparison is the change against the previous period; nil if not requested, see
	// [Query.Compare].
	Comparison *PeriodChange `json:"against,omitempty"`
	// Committed is the cost of commitments in the period. It is not part of Total, which includes
	// the covered usage at list price.
	Committed money.Amount `json:"committed_usd"`
	// Recorded is false if nothing of the period was recorded: then zero amounts are unknown.
	Recorded bool `json:"recorded"`
	// Days are the recorded days by their midnight UTC: those between rounds and those with a
	// charge. Nil if not requested, see [Query.Days].
	Days map[time.Time]bool `json:"-"`

	Assumptions   []string `json:"assumptions"`
	CoverageNotes []string `json:"coverage_notes"`
	Changes       []string `json:"changes"`
}

// Cost is the cost of a period and key. Used, Wasted, CannotJudge and Other sum to Amount.
type Cost struct {
	Period time.Time `json:"period"`
	// Key holds a value for each dimension; empty is unknown.
	Key []string `json:"key"`
	// Used is compute that was busy, starved or warming. Wasted is compute that was idle, held or
	// stalled, and unused reserved capacity, volumes and addresses. CannotJudge is unmeasured
	// compute. Other has no duty: storage, network, and overhead not known to be unused.
	Used money.Amount `json:"used_usd"`
	// Starved and Warming are the parts of Used that waited for data, and that booted or loaded.
	Starved     money.Amount `json:"starved_usd"`
	Warming     money.Amount `json:"warming_usd"`
	Wasted      money.Amount `json:"wasted_usd"`
	CannotJudge money.Amount `json:"cannot_judge_usd"`
	Other       money.Amount `json:"other_usd"`
	Amount      money.Amount `json:"total_usd"`
	// UnknownSeconds is the time of all meters with unknown state or price. It is not in Amount; it
	// costs at most AtMost, which is null with a reason if a price is missing.
	UnknownSeconds   int64         `json:"unknown_seconds"`
	AtMost           *money.Amount `json:"unknown_at_most_usd"`
	AtMostReason     string        `json:"unknown_at_most_reason,omitempty"`
	UnboundedSeconds int64         `json:"unbounded_seconds"`
}

// UnknownHours is UnknownSeconds in hours.
func (c Cost) UnknownHours() float64 { return float64(c.UnknownSeconds) / 3600 }

// Spent answers a query. Rows exclude the cost of commitments unless the query selects only that
// category.
func Spent(ctx context.Context, s ledger.Store, q Query) (*Costs, error) {
	q.Since, q.Until = q.Since.UTC(), q.Until.UTC()
	if !q.Since.Before(q.Until) || !q.Since.Equal(q.Since.Truncate(time.Hour)) ||
		!q.Until.Equal(q.Until.Truncate(time.Hour)) {
		return nil, fmt.Errorf("show costs from %s to %s: whole hours are expected, the first before the last",
			q.Since.Format(time.RFC3339), q.Until.Format(time.RFC3339))
	}
	by := withFolded(q.By)
	sums, err := s.Sums(ctx, ledger.SumQuery{
		By: by, Since: q.Since, Until: q.Until, Granularity: q.Granularity, Filter: q.Filter,
	})
	if err != nil {
		return nil, fmt.Errorf("read what was spent: %w", err)
	}
	c, err := fold(q, by, sums)
	if err != nil {
		return nil, err
	}
	if q.Days {
		sums, err := s.Sums(ctx, ledger.SumQuery{
			Since: q.Since, Until: q.Until, Granularity: ledger.Daily, Filter: q.Filter,
		})
		if err != nil {
			return nil, fmt.Errorf("read what was spent on which day: %w", err)
		}
		c.Days = make(map[time.Time]bool, len(sums))
		for _, sum := range sums {
			c.Days[sum.Period.UTC().Truncate(day)] = true
		}
	}
	if q.Compare {
		if c.Comparison, err = compare(ctx, s, q); err != nil {
			return nil, err
		}
	}
	if err := c.limits(ctx, s, q.Filter); err != nil {
		return nil, err
	}
	return c, nil
}

// Window returns the costs from since to a round from the observations of that round alone, one
// Seen per account, see [ledger.Window]. It is nil if nothing was observed.
func Window(seen []ledger.Seen, since time.Time, by []ledger.Dimension) (*Costs, error) {
	if len(seen) == 0 {
		return nil, nil
	}
	all := withFolded(by)
	sums, err := ledger.Window(seen, since, all)
	if err != nil {
		return nil, err
	}
	q := Query{By: by, Since: since.UTC().Truncate(time.Second), Until: seen[0].At.UTC().Truncate(time.Second)}
	c, err := fold(q, all, sums)
	if err != nil {
		return nil, err
	}
	c.Recorded = true
	return c, nil
}

const day = 24 * time.Hour

// latest returns the later of two times.
func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// withFolded adds the dimensions that fold needs.
func withFolded(by []ledger.Dimension) []ledger.Dimension {
	out := slices.Clone(by)
	for _, d := range []ledger.Dimension{ledger.ByDuty, ledger.ByCategory} {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// commitmentsOnly reports whether a query selects only the cost of commitments.
func (q *Query) commitmentsOnly() bool {
	return slices.ContainsFunc(q.Filter, func(m ledger.Match) bool {
		return m.By == ledger.ByCategory && len(m.Values) == 1 && m.Values[0] == string(ledger.Committed)
	})
}

// tally accumulates a cost.
type tally struct {
	period                           time.Time
	key                              []string
	used, wasted, dark, other, total money.Amount
	starved, warming                 money.Amount // parts of used
	unknown                          ledger.Sums
}

// fold merges sums by duty and category into rows.
func fold(q Query, by []ledger.Dimension, sums []ledger.Sum) (*Costs, error) {
	c := &Costs{
		Since: q.Since, Until: q.Until, Granularity: cmp.Or(string(q.Granularity), "total"),
		By: append([]ledger.Dimension{}, q.By...), Rows: []Cost{},
	}
	dutyAt, categoryAt := slices.Index(by, ledger.ByDuty), slices.Index(by, ledger.ByCategory)
	rows := map[string]*tally{}
	total := &tally{period: q.Since, key: []string{}}
	var committed money.Amount
	for _, s := range sums {
		if ledger.Category(s.Key[categoryAt]) == ledger.Committed && !q.commitmentsOnly() {
			var err error
			if committed, err = committed.Add(s.Sums.Amount); err != nil {
				return nil, err
			}
			continue
		}
		key := s.Key[:len(q.By)]
		id := s.Period.UTC().Format(time.RFC3339) + "\x00" + strings.Join(key, "\x00")
		row, ok := rows[id]
		if !ok {
			row = &tally{period: s.Period.UTC(), key: slices.Clone(key)}
			rows[id] = row
		}
		for _, t := range []*tally{row, total} {
			if err := t.add(s, s.Key[dutyAt], ledger.Category(s.Key[categoryAt])); err != nil {
				return nil, fmt.Errorf("add up what was spent: %w", err)
			}
		}
	}
	sorted := make([]*tally, 0, len(rows))
	for _, t := range rows {
		if !t.nothing() { // for example an accrual without a service, after a bill named the service
			sorted = append(sorted, t)
		}
	}
	slices.SortFunc(sorted, func(a, b *tally) int {
		return cmp.Or(a.period.Compare(b.period), cmp.Compare(b.total, a.total), slices.Compare(a.key, b.key))
	})
	for _, t := range sorted {
		c.Rows = append(c.Rows, t.cost())
	}
	c.Total, c.Committed = total.cost(), committed
	c.explain()
	return c, nil
}

// add adds a sum of one duty. Compute without a duty is from a bill and was never observed.
func (t *tally) add(s ledger.Sum, state string, category ledger.Category) error {
	place := &t.used
	var part *money.Amount
	switch {
	case state == "" && category == ledger.Compute:
		place = &t.dark
	case state == "":
		place = &t.other
	case state == duty.Unknown.String():
		place = &t.dark
	case !duty.State(state).Productive():
		place = &t.wasted
	case state == duty.Starved.String():
		part = &t.starved
	case state == duty.Warming.String():
		part = &t.warming
	}
	var err error
	if part != nil {
		if *part, err = part.Add(s.Sums.Amount); err != nil {
			return err
		}
	}
	if *place, err = place.Add(s.Sums.Amount); err != nil {
		return err
	}
	if t.total, err = t.total.Add(s.Sums.Amount); err != nil {
		return err
	}
	t.unknown, err = t.unknown.Plus(s.Unknown)
	return err
}

// nothing reports whether there is no amount and no unknown time.
func (t *tally) nothing() bool {
	return t.used == 0 && t.wasted == 0 && t.dark == 0 && t.other == 0 && t.starved == 0 && t.warming == 0 &&
		t.unknown == ledger.Sums{}
}

func (t *tally) cost() Cost {
	c := Cost{
		Period: t.period, Key: t.key, Used: t.used, Starved: t.starved, Warming: t.warming,
		Wasted: t.wasted, CannotJudge: t.dark, Other: t.other,
		Amount: t.total, UnknownSeconds: t.unknown.Seconds, UnboundedSeconds: t.unknown.Unbounded,
	}
	if t.unknown.Unbounded != 0 {
		c.AtMostReason = "no price for " + plain.MeteredHours(t.unknown.Unbounded)
		return c
	}
	most := t.unknown.AtMost
	c.AtMost = &most
	return c
}

// explain adds the assumptions of the costs.
func (c *Costs) explain() {
	c.Assumptions = []string{
		"list prices as they were when each resource was seen; a discount shows only after `curfew bill reconcile`",
		fmt.Sprintf("between two passes at most %s apart the earlier state is assumed where the provider does not say more",
			plain.Duration(ledger.MaxGap)),
	}
	c.CoverageNotes, c.Changes = []string{}, []string{}
	if t := c.Total; t.UnknownSeconds > 0 {
		note := fmt.Sprintf("%s not charged, because it is not known", plain.MeteredHours(t.UnknownSeconds))
		if t.AtMost != nil {
			note += ", at most " + t.AtMost.Dollars()
		} else {
			note += "; " + t.AtMostReason
		}
		c.CoverageNotes = append(c.CoverageNotes, note)
		if t.UnknownSeconds > t.UnboundedSeconds {
			c.Changes = append(c.Changes,
				"more frequent passes leave less time unknown: `curfew serve` makes them, and so does "+
					"`curfew scan` from cron")
		}
		if t.UnboundedSeconds > 0 {
			c.Changes = append(c.Changes,
				"a price for unpriced resources adds their time to the figures: `curfew scan` names it, "+
					"`curfew price update --from aws` brings newer prices")
		}
	}
	if c.Total.CannotJudge > 0 {
		c.CoverageNotes = append(c.CoverageNotes,
			c.Total.CannotJudge.Dollars()+" of compute was not measured, so it is neither used nor wasted")
		c.Changes = append(c.Changes,
			"GPU metrics for every machine show whether unmeasured compute is used or wasted")
	}
	for _, part := range []struct {
		amount money.Amount
		what   string
	}{{c.Total.Starved, "waited for data (starved)"}, {c.Total.Warming, "booted or loaded (warming)"}} {
		if part.amount != 0 {
			c.CoverageNotes = append(c.CoverageNotes, "of the used compute, "+part.amount.Dollars()+" "+part.what)
		}
	}
	if c.Committed != 0 {
		c.CoverageNotes = append(c.CoverageNotes,
			"commitments cost "+c.Committed.Dollars()+
				" in this time whatever ran; what they cover is in the total at its list price")
	}
}
