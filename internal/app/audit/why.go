package audit

import (
	"context"
	"errors"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/view"
)

// Why explains a figure of the newest kept audit of a cloud, or lists its figures if figure is empty.
func Why(ctx context.Context, req *runtime.Request, cfg config.Config, cloud, figure string) (view.Why, error) {
	doc, err := LastScan(ctx, req, cfg, cloud)
	if err != nil {
		return view.Why{}, err
	}
	if doc.Kept == nil {
		return view.Why{}, &runtime.Error{
			Code: "no_scan", Err: errors.New("the kept audit is of an earlier version, which kept no charges"),
			Hint: scanAgain,
		}
	}
	why, err := view.NewWhy(&doc, figure)
	var unknown *view.ErrNoFigure
	if errors.As(err, &unknown) {
		return why, &runtime.Error{
			Code: "not_found", Err: err, Hint: "`curfew why` lists the figures; findings and resources go by their ids",
		}
	}
	return why, err
}
