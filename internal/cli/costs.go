package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

// periodFlags choose a stretch of time.
type periodFlags struct{ since, until string }

func (f *periodFlags) add(c *cobra.Command, since string) {
	c.Flags().StringVar(&f.since, "since", since, "from when: a date, a time, months with this one (3mo), or a duration back from now (7d)")
	c.Flags().StringVar(&f.until, "until", "", "until when (default now)")
}

// bounds returns whole hours: the first is not after --since, the last not before --until.
func (f periodFlags) bounds(now time.Time) (since, until time.Time, err error) {
	if since, err = moment("since", f.since, now); err != nil {
		return
	}
	until = now
	if f.until != "" {
		if until, err = moment("until", f.until, now); err != nil {
			return
		}
	}
	since = since.Truncate(time.Hour)
	if end := until.Truncate(time.Hour); end.Before(until) {
		until = end.Add(time.Hour)
	}
	if !since.Before(until) {
		err = usageError("--since %s is not before --until %s", since.Format(time.RFC3339), until.Format(time.RFC3339))
	}
	return
}

// moment reads "month" (its first day), "3mo" (the first day of the third month, this one
// counted), "7d" (ago), a date or a time.
func moment(flag, text string, now time.Time) (time.Time, error) {
	now = now.UTC()
	first := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	if text == "month" {
		return first, nil
	}
	if n, ok := strings.CutSuffix(text, "mo"); ok {
		if months, err := strconv.Atoi(n); err == nil && months > 0 && months <= 1200 {
			return first.AddDate(0, 1-months, 0), nil
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	if d, err := config.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, usageError("--%s %q: it is a date (2026-11-01), a time (2026-11-01T12:00:00Z), month, months with this one (3mo), or a duration back from now (7d)", flag, text)
}

// costsFlags are the flags of costs.
type costsFlags struct {
	periodFlags
	by, granularity, output string
	where                   []string
}

var costsOutputs = []string{"table", "json", "csv", "html", "md"}

func (a *app) newCosts() *cobra.Command {
	var f costsFlags
	c := &cobra.Command{
		Use:   "costs",
		Short: "Show costs as they accrue, used and wasted: by team, purpose, resource, duty",
		Long: `Shows the ledger: what every resource cost while it was there, at the price of the hour,
with used, wasted and unmeasured compute apart. Rounds fill it: every scan and every pass
of enforce. Time of which nothing is known is shown and not charged.`,
		Example: `  curfew costs                                          # this month by team
  curfew costs --by purpose,duty --since 7d --granularity day
  curfew costs --by resource --where team=vision --where duty=idle
  curfew costs --by team -o html > costs.html
  curfew costs units                                    # what a million tokens costs`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.costs(c.Context(), f) },
	}
	f.add(c, "month")
	fl := c.Flags()
	fl.StringVar(&f.by, "by", "team", "dimensions, separated by commas: "+dimensionNames())
	fl.StringVar(&f.granularity, "granularity", "total", "hour, day, month or total")
	fl.StringArrayVar(&f.where, "where", nil, "only what has a value: team=vision; repeatable; an empty value selects unallocated costs")
	fl.StringVarP(&f.output, "output", "o", "table", "table, json, csv, html or md")
	c.AddCommand(a.newUnits(), a.newShares())
	return c
}

func dimensionNames() string {
	names := make([]string, 0, len(ledger.Dimensions))
	for _, d := range ledger.Dimensions {
		names = append(names, string(d))
	}
	return strings.Join(names, ", ")
}

func (f costsFlags) query(now time.Time) (costs.Query, error) {
	var q costs.Query
	var err error
	if f.by != "" {
		if q.By, err = ledger.ParseDimensions(f.by); err != nil {
			return q, usageError("--by: %w", err)
		}
	}
	if q.Granularity, err = ledger.ParseGranularity(f.granularity); err != nil {
		return q, usageError("--granularity: %w", err)
	}
	if q.Since, q.Until, err = f.bounds(now); err != nil {
		return q, err
	}
	for _, w := range f.where {
		by, value, ok := strings.Cut(w, "=")
		d, err := ledger.ParseDimensions(by)
		if !ok || err != nil || len(d) != 1 {
			return q, usageError("--where %q: it is DIMENSION=VALUE such as team=vision; dimensions are %s", w, dimensionNames())
		}
		q.Filter = append(q.Filter, ledger.Match{By: d[0], Values: strings.Split(value, ",")})
	}
	return q, nil
}

func (a *app) costs(ctx context.Context, f costsFlags) error {
	if err := oneOf("output", f.output, costsOutputs...); err != nil {
		return err
	}
	q, err := f.query(a.Now())
	if err != nil {
		return err
	}
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := costs.Spent(ctx, s.Ledger(), q)
	if err != nil {
		return err
	}
	doc := view.NewCosts(c)
	if f.output == "csv" {
		return report.CostsCSV(a.Stdout, doc)
	}
	return a.show(f.output, doc, func() report.Sheet { return report.Costs(doc) })
}
