package spend

import (
	"context"
	"errors"

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

// BudgetFigures lists the figures of the budgets in force; empty without budgets.
func BudgetFigures(ctx context.Context, req *runtime.Request) ([]view.WhyRow, error) {
	all, _, err := budgetsInForce(ctx, req)
	var f *runtime.Error
	if errors.As(err, &f) && f.Code == noBudgets {
		return nil, nil
	}
	return view.BudgetFigures(all), err
}
