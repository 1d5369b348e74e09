package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/metrics"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// unitFlags are the flags of costs units.
type unitFlags struct {
	periodFlags
	granularity, output string
	// One unit from flags, in addition to those of the configuration.
	name, counts, target, by string
	per                      int64
	where                    []string
}

func (a *app) newUnits() *cobra.Command {
	var f unitFlags
	c := &cobra.Command{
		Use:   "units [NAME…]",
		Short: "Show unit costs: per prediction, million tokens, training run, GPU-hour",
		Long: `Divides costs by units: the used, the allocated and the idle cost, for this month and the
two before it, with the target and the change since the month before. A unit cost needs both: a count, and dollars that the ledger knows. Units are those of curfew.yaml, counted in files or by queries of a
Prometheus server, or one that --counts names.`,
		Example: `  curfew costs units
  curfew costs units --unit prediction --counts counts.csv --where team=search --since 2026-10-01 --until 2026-11-01
  curfew costs units --counts gpu-hours --by team --since 7d
  curfew costs units --unit token --per 1000000 --target 0.20 --counts tokens.csv --granularity day`,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", f.output, planOutputs...); err != nil {
				return err
			}
			return a.units(c.Context(), f, args)
		},
	}
	f.add(c, "3mo")
	fl := c.Flags()
	fl.StringVar(&f.granularity, "granularity", "month", "hour, day, month or total")
	fl.StringVar(&f.name, "unit", "", "what --counts counts: prediction")
	fl.StringVar(&f.counts, "counts", "", "how many were made, as CSV `file`: time,count, and key with --by; or gpu-hours, which the ledger knows")
	fl.StringVar(&f.target, "target", "", "the most that one, or --per of them, should cost in `dollars`")
	fl.Int64Var(&f.per, "per", 1, "how many a unit cost is for: 1000000")
	fl.StringVar(&f.by, "by", "", "the dimension that the keys of --counts are values of: project")
	fl.StringArrayVar(&f.where, "where", nil, "only costs that have a value: team=search; repeatable")
	fl.StringVarP(&f.output, "output", "o", "table", "table, json, html or md")
	return c
}

// counted is a unit with its costs and where its counts come from.
type counted struct {
	unit   costs.Unit
	query  costs.Query
	counts func(ctx context.Context, s *store.Store, q costs.Query) ([]costs.Count, error)
	// narrow leaves only the costs that the unit is about; nil is all.
	narrow func(ctx context.Context, s *store.Store, q costs.Query) (costs.Query, error)
}

func (a *app) units(ctx context.Context, f unitFlags, names []string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	all, err := a.countedUnits(cfg, f, names)
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	docs := make([]*costs.UnitCosts, 0, len(all))
	for _, u := range all {
		if u.narrow != nil {
			if u.query, err = u.narrow(ctx, s, u.query); err != nil {
				return err
			}
		}
		u.query.Days = true
		charged, err := costs.Spent(ctx, s.Ledger(), u.query)
		if err != nil {
			return err
		}
		counts, err := u.counts(ctx, s, u.query)
		if err != nil {
			return err
		}
		doc, err := costs.Units(u.unit, charged, counts)
		if err != nil {
			return err
		}
		docs = append(docs, doc)
	}
	doc := view.NewUnits(docs)
	return a.show(f.output, doc, func() report.Sheet { return report.Units(doc) })
}

// countedUnits are the units that are asked for.
func (a *app) countedUnits(cfg config.Config, f unitFlags, names []string) ([]counted, error) {
	base := costsFlags{periodFlags: f.periodFlags, granularity: f.granularity, by: f.by, where: f.where}
	if f.counts != "" {
		if f.counts == config.GPUHours {
			f.name = first(f.name, "GPU-hour")
		}
		if f.name == "" || len(names) > 0 {
			return nil, usageError("curfew costs units --counts %s: name what it counts with --unit", f.counts)
		}
		u, err := a.countedUnit(config.Unit{Name: f.name, Per: f.per, Target: f.target, Counts: config.Counts{File: f.counts}}, base)
		return []counted{u}, err
	}
	var out []counted
	for _, unit := range cfg.Units {
		if len(names) > 0 && !slices.Contains(names, unit.Name) {
			continue
		}
		own := base
		for by, value := range unit.Where {
			own.where = append(slices.Clone(own.where), by+"="+value)
		}
		u, err := a.countedUnit(unit, own)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	if len(out) == 0 {
		return nil, &failure{exit: ExitUsage, code: "no_units", err: fmt.Errorf("no unit is given%s", strings.TrimRight(": "+strings.Join(names, ", "), ": ")),
			hint: "add units to curfew.yaml, or give --unit and --counts; docs/costs.md has examples"}
	}
	return out, nil
}

func (a *app) countedUnit(u config.Unit, f costsFlags) (counted, error) {
	q, err := f.query(a.Now())
	if err != nil {
		return counted{}, err
	}
	c := counted{unit: costs.Unit{Name: u.Name, Per: u.Per}, query: q}
	if u.Target != "" {
		rate, err := money.ParseRate(strings.TrimPrefix(u.Target, "$"))
		if err != nil || rate <= 0 {
			return c, usageError("--target %q: it is an amount of dollars such as 0.20", u.Target)
		}
		c.unit.Target = &rate
	}
	switch {
	case u.Counts.File == config.GPUHours:
		return a.countGPUHours(c)
	case u.Counts.File != "":
		c.counts = func(context.Context, *store.Store, costs.Query) ([]costs.Count, error) {
			return readPlan(a, u.Counts.File, costs.ReadCounts)
		}
		return c, nil
	}
	client, err := metrics.New(metrics.Options{URL: u.Counts.URL, Token: a.env(u.Counts.TokenEnv)})
	if err != nil {
		return c, usageError("units %s: %w", u.Name, err)
	}
	c.counts = func(ctx context.Context, _ *store.Store, q costs.Query) ([]costs.Count, error) {
		return measured(ctx, client, u, q)
	}
	return c, nil
}

// countGPUHours divides the cost of machines with GPUs by the hours of their GPUs in
// which the machine was used. A machine type with an unknown number of GPUs is an error.
func (a *app) countGPUHours(c counted) (counted, error) {
	cfg, err := a.config()
	if err != nil {
		return c, err
	}
	book, err := a.prices(cfg)
	if err != nil {
		return c, err
	}
	size := book.Size
	if len(cfg.Machines) > 0 {
		fleet, err := daemon.NewFleet(cfg, book)
		if err != nil {
			return c, err
		}
		own := fleet.Sizes()
		size = func(machineType string) inventory.Size {
			if s, ok := own[machineType]; ok {
				return s
			}
			return book.Size(machineType)
		}
	}
	c.narrow = func(ctx context.Context, s *store.Store, q costs.Query) (costs.Query, error) {
		sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{By: []ledger.Dimension{ledger.ByType}, Since: q.Since, Until: q.Until, Filter: computeOf(q)})
		if err != nil {
			return q, fmt.Errorf("look which machines have GPUs: %w", err)
		}
		types := []string{"a machine with GPUs"} // no type's name: without any nothing is left
		for _, sum := range sums {
			n, known := size(sum.Key[0]).GPUs.Get()
			if !known {
				return q, &failure{exit: ExitError, code: "not_counted", err: fmt.Errorf("count GPU-hours: how many GPUs a %s has is not known", sum.Key[0]), hint: "leave it out with --where type=…"}
			}
			if n > 0 {
				types = append(types, sum.Key[0])
			}
		}
		q.Filter = append(computeOf(q), ledger.Match{By: ledger.ByType, Values: types})
		return q, nil
	}
	c.counts = func(ctx context.Context, s *store.Store, q costs.Query) ([]costs.Count, error) {
		by := append(slices.Clone(q.By), ledger.ByType, ledger.ByDuty)
		sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{By: by, Since: q.Since, Until: q.Until, Granularity: q.Granularity, Filter: q.Filter})
		if err != nil {
			return nil, fmt.Errorf("count GPU-hours: %w", err)
		}
		var out []costs.Count
		for _, sum := range sums {
			n := len(q.By)
			gpus := int64(0) // what was not used is counted as none
			if duty.State(sum.Key[n+1]).Used() {
				gpus = int64(size(sum.Key[n]).GPUs.Or(0))
			}
			count := costs.Count{Time: sum.Period, Count: costs.Quantity(sum.Sums.Seconds * gpus * 1000 / 3600)}
			if n == 1 {
				count.Key, count.Unallocated = sum.Key[0], sum.Key[0] == ""
			}
			out = append(out, count)
		}
		return out, nil
	}
	return c, nil
}

// computeOf is a query's filter, and compute alone.
func computeOf(q costs.Query) ledger.Filter {
	return append(slices.Clone(q.Filter), ledger.Match{By: ledger.ByCategory, Values: []string{string(ledger.Compute)}})
}

// measured asks a server how many units were made on each day. A day of which nothing
// is known ends it: a unit cost over half of the counts would be twice what it is.
func measured(ctx context.Context, client *metrics.Client, u config.Unit, q costs.Query) ([]costs.Count, error) {
	days, err := client.CountByDay(ctx, u.Counts.Query, q.Since, q.Until)
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", u.Name, err)
	}
	out := make([]costs.Count, 0, len(days))
	for _, d := range days {
		if !d.Known {
			return nil, &failure{exit: ExitError, code: "not_counted", err: fmt.Errorf("count %s: nothing was measured from %s to %s", u.Name, d.From.Format(time.RFC3339), d.To.Format(time.RFC3339)),
				hint: "narrow --since and --until to the time in which it was counted"}
		}
		if d.Units > math.MaxInt64/2000 {
			return nil, errors.New("count " + u.Name + ": out of range")
		}
		out = append(out, costs.Count{Time: d.From, Count: costs.Quantity(math.Round(d.Units * 1000))})
	}
	return out, nil
}
