package report

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Record shows the recorded usage, with suggested commands.
func Record(d view.Record, globals string) layout.Sheet {
	s := layout.Sheet{
		Verb: "record",
		Title: fmt.Sprintf("%s of %s written to %s", plain.Count(d.Samples, "sample"),
			plain.Count(d.Machines, "machine"),
			d.Output),
	}
	s.Figures = []layout.Figure{
		{Label: "from", Value: d.From}, {Label: "since", Value: plain.Time(d.Since)},
		{Label: "until", Value: plain.Time(d.Until)},
	}
	if d.Samples > 0 {
		file := plain.Shell(d.Output)
		s.Next = []string{
			"curfew backtest --trace " + file + " --policy examples/policies" + globals,
			"curfew plan rightsize --usage " + file + globals,
		}
	}
	s.Assumptions = []string{"Machines that no longer run are not in it: the account does not list them."}
	for _, b := range d.BlindSpots {
		s.Coverage = append(s.Coverage, "not visible: "+b.What+": "+b.Why+"; "+b.Effect)
	}
	return s
}
