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
	f, err := view.FindBilledFigure(periods, figure)
	why := view.Why{}
	if err == nil {
		q := bill.Query{Starts: []time.Time{f.Period.Start}, Accounts: []string{f.Period.Account}}
		why, err = f.Why(bill.RowsOf(ctx, s.Bills(), q, &broken), req.Now())
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
