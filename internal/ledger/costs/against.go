package costs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// PeriodChange is the change of the cost against the previous period.
type PeriodChange struct {
	// Since and Until bound the previous period: the same part of the previous month if the costs
	// start on the first of a month, else an equal time directly before.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Unknown is the reason why the periods are not compared; the amounts are null then.
	Unknown string `json:"unknown,omitempty"`
	// Total is the cost of the previous period, and Change the increase since.
	Total  *money.Amount `json:"total_usd"`
	Change *money.Amount `json:"change_usd"`
	// UnknownSeconds is uncharged time of the previous period, see [Cost].
	UnknownSeconds int64 `json:"unknown_seconds"`
	// By is the dimension of Changes, which sum to Change, the largest first.
	By      ledger.Dimension `json:"by"`
	Changes []Change         `json:"changes"`
}

// Change is the change of the cost of one value of a dimension.
type Change struct {
	Key    string       `json:"key"`
	Change money.Amount `json:"change_usd"`
}

// compare compares costs with the previous period by the first dimension of the query, by team
// without any. Periods with an unrecorded day are not compared.
func compare(ctx context.Context, s ledger.Store, q Query) (*PeriodChange, error) {
	c := &PeriodChange{By: ledger.ByTeam, Changes: []Change{}}
	if len(q.By) > 0 {
		c.By = q.By[0]
	}
	c.Since, c.Until = periodBefore(q.Since, q.Until)
	missing, days, err := unrecorded(ctx, s, c.Since, c.Until)
	if err != nil {
		return nil, err
	}
	if missing == 0 {
		if missing, days, err = unrecorded(ctx, s, q.Since, q.Until); err != nil {
			return nil, err
		}
	}
	if missing > 0 {
		c.Unknown = fmt.Sprintf("%d of %s not recorded", missing, plain.Count(days, "day is", "days are"))
		return c, nil
	}
	one := Query{By: []ledger.Dimension{c.By}, Filter: q.Filter, Since: q.Since, Until: q.Until}
	now, err := Spent(ctx, s, one)
	if err != nil {
		return nil, err
	}
	one.Since, one.Until = c.Since, c.Until
	before, err := Spent(ctx, s, one)
	if err != nil {
		return nil, err
	}
	return c, c.fill(now, before)
}

// fill sets the amounts of a change from the costs by its dimension.
func (c *PeriodChange) fill(now, before *Costs) error {
	changes := map[string]money.Amount{}
	for _, r := range now.Rows {
		changes[r.Key[0]] = r.Amount
	}
	for _, r := range before.Rows {
		change, err := changes[r.Key[0]].Add(-r.Amount)
		if err != nil {
			return fmt.Errorf("compare costs: %w", err)
		}
		changes[r.Key[0]] = change
	}
	change, err := now.Total.Amount.Add(-before.Total.Amount)
	if err != nil {
		return fmt.Errorf("compare costs: %w", err)
	}
	total := before.Total.Amount
	c.Total, c.Change, c.UnknownSeconds = &total, &change, before.Total.UnknownSeconds
	for key, change := range changes {
		if change != 0 {
			c.Changes = append(c.Changes, Change{key, change})
		}
	}
	slices.SortFunc(c.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(max(b.Change, -b.Change), max(a.Change, -a.Change)), cmp.Compare(a.Key, b.Key))
	})
	return nil
}

// periodBefore returns the period that [since, until) is compared with.
func periodBefore(since, until time.Time) (time.Time, time.Time) {
	next := since.AddDate(0, 1, 0)
	if since.Day() != 1 || !since.Equal(since.Truncate(day)) || until.After(next) {
		return since.Add(since.Sub(until)), since
	}
	before := since.AddDate(0, -1, 0)
	if until.Equal(next) {
		return before, since
	}
	return before, earliest(before.Add(until.Sub(since)), since)
}

// unrecorded counts the unrecorded days of a period, and all of its days.
func unrecorded(ctx context.Context, s ledger.Store, since, until time.Time) (missing, days int, err error) {
	sums, err := s.Sums(ctx, ledger.SumQuery{Since: since, Until: until, Granularity: ledger.Daily})
	if err != nil {
		return 0, 0, fmt.Errorf("read what was spent on which day: %w", err)
	}
	recorded := map[time.Time]bool{}
	for _, sum := range sums {
		recorded[sum.Period.UTC().Truncate(day)] = true
	}
	for d := since.Truncate(day); d.Before(until); d = d.Add(day) {
		days++
		if !recorded[d] {
			missing++
		}
	}
	return missing, days, nil
}
