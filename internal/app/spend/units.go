package spend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/metrics"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// UnitsQuery selects unit costs. Counts names a file, or GPU hours, of one unit in addition to the
// configured ones.
type UnitsQuery struct {
	CostsQuery
	Name, Counts, Target string
	Per                  int64
}

// counted is a unit with its costs and the source of its counts.
type counted struct {
	unit   costs.Unit
	query  costs.Query
	counts func(ctx context.Context, s *store.Store, q costs.Query) ([]costs.Count, error)
	// narrow restricts the charges to those of the unit; nil keeps all.
	narrow func(ctx context.Context, s *store.Store, q costs.Query) (costs.Query, error)
}

// Units returns the unit costs of the named units, of all configured ones, or of the one in the
// query.
func Units(ctx context.Context, req *runtime.Request, f UnitsQuery, names []string) (view.Units, error) {
	var none view.Units
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	all, err := countedUnits(req, cfg, f, names)
	if err != nil {
		return none, err
	}
	docs := make([]*costs.UnitCosts, 0, len(all))
	for _, u := range all {
		if u.narrow != nil {
			if u.query, err = u.narrow(ctx, s, u.query); err != nil {
				return none, err
			}
		}
		charged, err := u.spent(ctx, s)
		if err != nil {
			return none, err
		}
		counts, err := u.counts(ctx, s, u.query)
		if err != nil {
			return none, err
		}
		doc, err := costs.Units(u.unit, charged, counts)
		if err != nil {
			return none, err
		}
		docs = append(docs, doc)
	}
	return view.NewUnits(docs), nil
}

// spent returns the cost of a unit: from the ledger, and from imported bills for months before the
// ledger. Counts from the ledger only combine with its costs.
func (u *counted) spent(ctx context.Context, s *store.Store) (*costs.Costs, error) {
	if u.narrow != nil {
		return costs.Spent(ctx, s.Ledger(), u.query)
	}
	return costs.SpentOrBilled(ctx, s.Ledger(), s.Bills(), u.query)
}

// countedUnits returns the requested units.
func countedUnits(req *runtime.Request, cfg config.Config, f UnitsQuery, names []string) ([]counted, error) {
	base := f.CostsQuery
	if f.Counts != "" {
		if f.Counts == config.GPUHours {
			f.Name = cmp.Or(f.Name, "GPU-hour")
		}
		if len(names) > 0 {
			return nil, runtime.Invalid(
				"curfew costs units %s --counts %s: a name is that of a unit in curfew.yaml; --unit "+
					"says what --counts counts", strings.Join(names, " "), f.Counts)
		}
		if f.Name == "" {
			return nil, runtime.Invalid("curfew costs units --counts %s: name its unit with --unit", f.Counts)
		}
		u, err := countedUnit(req, config.Unit{
			Name: f.Name, Per: f.Per, Target: f.Target, Counts: config.Counts{File: f.Counts},
		}, base)
		return []counted{u}, err
	}
	for _, name := range names {
		if !slices.ContainsFunc(cfg.Units, func(u config.Unit) bool { return u.Name == name }) {
			return nil, &runtime.Error{
				Class: runtime.Usage, Code: "no_units", Err: fmt.Errorf("there is no unit %q", name),
				Hint: "add it to curfew.yaml, or give --unit and --counts; docs/costs.md has examples"}
		}
	}
	var out []counted
	for _, unit := range cfg.Units {
		if len(names) > 0 && !slices.Contains(names, unit.Name) {
			continue
		}
		own := base
		for by, value := range unit.Where {
			own.Where = append(slices.Clone(own.Where), by+"="+value)
		}
		u, err := countedUnit(req, unit, own)
		if err != nil {
			return nil, err
		}
		out = append(out, u)
	}
	if len(out) == 0 {
		return nil, &runtime.Error{Class: runtime.Usage, Code: "no_units", Err: errors.New("no unit is given"),
			Hint: "add units to curfew.yaml, or give --unit and --counts; docs/costs.md has examples"}
	}
	return out, nil
}

func countedUnit(req *runtime.Request, u config.Unit, f CostsQuery) (counted, error) {
	q, err := f.query(req.Now())
	if err != nil {
		return counted{}, err
	}
	c := counted{unit: costs.Unit{Name: u.Name, Per: u.Per}, query: q}
	if u.Target != "" {
		rate, err := money.ParseRate(strings.TrimPrefix(u.Target, "$"))
		if err != nil || rate <= 0 {
			return c, runtime.Invalid("--target %q: it is an amount of dollars such as 0.20", u.Target)
		}
		c.unit.Target = &rate
	}
	switch {
	case u.Counts.File == config.GPUHours:
		return countGPUHours(req, c)
	case u.Counts.File != "":
		c.counts = func(context.Context, *store.Store, costs.Query) ([]costs.Count, error) {
			return runtime.ReadPlan(req, u.Counts.File, costs.ReadCounts)
		}
		return c, nil
	case u.Counts.Gateway != "":
		return countAtGateway(req, u, c)
	}
	client, err := metrics.New(metrics.Options{URL: u.Counts.URL, Token: req.Env(u.Counts.TokenEnv)})
	if err != nil {
		return c, runtime.Invalid("units %s: %w", u.Name, err)
	}
	c.counts = func(ctx context.Context, _ *store.Store, q costs.Query) ([]costs.Count, error) {
		return measured(ctx, client, u, q)
	}
	return c, nil
}

// countGPUHours divides the cost of machines with GPUs by the hours of their GPUs in
// which the machine was used. A machine type with an unknown number of GPUs is an error.
func countGPUHours(req *runtime.Request, c counted) (counted, error) {
	cfg, err := req.Config()
	if err != nil {
		return c, err
	}
	book, err := req.PriceBook(cfg)
	if err != nil {
		return c, err
	}
	size := book.Size
	if len(cfg.Machines) > 0 {
		fleet, err := clouds.NewFleet(cfg, book, nil)
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
		sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{
			By: []ledger.Dimension{ledger.ByType}, Since: q.Since, Until: q.Until, Filter: computeOf(q),
		})
		if err != nil {
			return q, fmt.Errorf("look which machines have GPUs: %w", err)
		}
		types := []string{"a machine with GPUs"} // not the name of a type, so that an empty list matches nothing
		for _, sum := range sums {
			n, known := size(sum.Key[0]).GPUs.Get()
			if !known {
				return q, &runtime.Error{
					Code: "not_counted",
					Err:  fmt.Errorf("count GPU-hours: how many GPUs a %s has is not known", sum.Key[0]),
					Hint: "leave it out with --where type=…",
				}
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
		sums, err := s.Ledger().Sums(ctx, ledger.SumQuery{
			By: by, Since: q.Since, Until: q.Until, Granularity: q.Granularity, Filter: q.Filter,
		})
		if err != nil {
			return nil, fmt.Errorf("count GPU-hours: %w", err)
		}
		var out []costs.Count
		for _, sum := range sums {
			n := len(q.By)
			gpus := int64(0) // unused machines count as none
			if duty.State(sum.Key[n+1]).Productive() {
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

// computeOf restricts a query's filter to compute.
func computeOf(q costs.Query) ledger.Filter {
	return append(slices.Clone(q.Filter), ledger.Match{
		By: ledger.ByCategory, Values: []string{string(ledger.Compute)},
	})
}

// measured queries a server for the number of units on each day. It fails on a day without data,
// because the unit cost over half of the counts would be twice the true one.
func measured(ctx context.Context, client *metrics.Client, u config.Unit, q costs.Query) ([]costs.Count, error) {
	days, err := client.CountByDay(ctx, u.Counts.Query, q.Since, q.Until)
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", u.Name, err)
	}
	out := make([]costs.Count, 0, len(days))
	for _, d := range days {
		if !d.Known {
			return nil, &runtime.Error{
				Code: "not_counted", Err: fmt.Errorf("count %s: nothing was measured from %s to %s", u.Name,
					d.From.Format(time.RFC3339), d.To.Format(time.RFC3339)),
				Hint: "narrow --since and --until to the time in which it was counted"}
		}
		if d.Units > math.MaxInt64/2000 {
			return nil, errors.New("count " + u.Name + ": out of range")
		}
		out = append(out, costs.Count{Time: d.From, Count: costs.Quantity(math.Round(d.Units * 1000))})
	}
	return out, nil
}
