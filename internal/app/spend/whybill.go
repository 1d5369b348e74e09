package spend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/view"
)

// WhyBill explains a figure of an imported bill.
func WhyBill(ctx context.Context, req *runtime.Request, figure string) (view.Why, error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return view.Why{}, err
	}
	defer s.Close()
	periods, err := s.Bills().Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return view.Why{}, fmt.Errorf("read what was imported: %w", err)
	}
	var broken error
	p, err := view.BillPeriodOf(periods, figure)
	why := view.Why{}
	if err == nil {
		q := bill.Query{Starts: []time.Time{p.Start}, Accounts: []string{p.Account}}
		why, err = view.NewBillWhy(periods, bill.RowsOf(ctx, s.Bills(), q, &broken), figure, req.Now())
	}
	if broken != nil {
		return why, fmt.Errorf("read the bill: %w", broken)
	}
	var unknown *view.ErrNoFigure
	if errors.As(err, &unknown) {
		err = &runtime.Error{
			Code: "not_found", Err: err, Hint: "`curfew why` lists the figures; `curfew bill import PATH` imports a bill",
		}
	}
	return why, err
}

// BillFigures lists the figures of the imported bills; none without bills.
func BillFigures(ctx context.Context, req *runtime.Request) ([]view.WhyRow, error) {
	_, s, err := req.State(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	periods, err := s.Bills().Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return nil, fmt.Errorf("read what was imported: %w", err)
	}
	return view.BillFigures(periods), nil
}
