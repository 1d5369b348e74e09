package spend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/view"
)

// WhyBudget explains a figure of a budget in force.
func WhyBudget(ctx context.Context, req *runtime.Request, figure string) (view.Why, error) {
	all, now, err := budgetsInForce(ctx, req)
	if err != nil {
		return view.Why{}, err
	}
	why, err := view.NewBudgetWhy(all, figure, now)
	var unknown *view.ErrNoFigure
	if errors.As(err, &unknown) {
		err = &runtime.Error{Code: "not_found", Err: err, Hint: "`curfew why` lists the figures"}
	}
	return why, err
}

// Figures lists the figures of the budgets in force and of the imported bills; empty without any.
func Figures(ctx context.Context, req *runtime.Request) (figures []view.WhyRow, err error) {
	cfg, _, s, err := req.InForce(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if len(cfg.Budgets) > 0 {
		now, err := req.StateTime(ctx, s)
		if err != nil {
			return nil, err
		}
		all, err := statuses(ctx, cfg, s, now)
		if err != nil {
			return nil, err
		}
		figures = view.BudgetFigures(all)
	}
	periods, err := s.Bills().Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("read what was imported: %w", err)
	}
	return append(figures, view.BillFigures(periods)...), nil
}
