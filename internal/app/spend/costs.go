package spend

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// CostsQuery selects charges of the ledger, as written in flags and parameters.
type CostsQuery struct {
	runtime.Period
	By          string   `query:"by" maxLength:"200" doc:"Dimensions, separated by commas." flag:"by" help:"dimensions, separated by commas: team, project, user, environment, cost-center, purpose, resource, kind, type, region, account, category, duty, pricing, lifetime, service, session"`
	Granularity string   `query:"granularity" enum:"hour,day,month,total" default:"total" flag:"granularity" help:"hour, day, month or total"`
	Where       []string `query:"where,explode" maxItems:"20" doc:"DIMENSION=VALUE, such as team=vision." flag:"where" help:"only charges with a value: team=vision; repeatable; an empty value selects unallocated costs"`
}

// DimensionNames lists the dimensions to group costs by.
func DimensionNames() string {
	names := make([]string, 0, len(ledger.Dimensions))
	for _, d := range append(slices.Clone(ledger.Dimensions), ledger.BySession) {
		names = append(names, string(d))
	}
	return strings.Join(names, ", ")
}

func (f CostsQuery) query(now time.Time) (costs.Query, error) {
	var q costs.Query
	var err error
	if f.By != "" {
		if q.By, err = ledger.ParseDimensions(f.By); err != nil {
			return q, runtime.Invalid("--by: %w", err)
		}
	}
	if q.Granularity, err = ledger.ParseGranularity(f.Granularity); err != nil {
		return q, runtime.Invalid("--granularity: %w", err)
	}
	if q.Since, q.Until, err = f.Bounds(now); err != nil {
		return q, err
	}
	for _, w := range f.Where {
		by, value, ok := strings.Cut(w, "=")
		d, err := ledger.ParseDimensions(by)
		if !ok || err != nil || len(d) != 1 {
			return q, runtime.Invalid("--where %q: it is DIMENSION=VALUE such as team=vision; dimensions are %s%s", w,
				DimensionNames(), document.DidYouMean(by, strings.Split(DimensionNames(), ", ")))
		}
		q.Filter = append(q.Filter, ledger.Match{By: d[0], Values: strings.Split(value, ",")})
	}
	return q, nil
}

// Check returns an error for an invalid query at a time.
func (f CostsQuery) Check(now time.Time) error {
	_, err := f.query(now)
	return err
}

// Costs returns the charges of the ledger at a time.
func Costs(ctx context.Context, s *store.Store, now time.Time, f CostsQuery) (view.Costs, error) {
	q, err := f.query(now)
	if err != nil {
		return view.Costs{}, err
	}
	q.Compare = true
	books := s.Ledger()
	if bySession(ledger.SumQuery{By: q.By, Filter: q.Filter}) {
		if books, err = withSessions(ctx, s); err != nil {
			return view.Costs{}, err
		}
	}
	c, err := costs.Spent(ctx, books, q)
	return view.NewCosts(c), err
}
