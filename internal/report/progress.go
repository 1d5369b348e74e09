package report

import (
	"fmt"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// runaways sums up busy machines that spend without progress; empty if there are none.
func (d *audit) runaways() []layout.Figure {
	spent, n, silent := money.Known(0), 0, 0
	for i := range d.Progress {
		p := &d.Progress[i]
		if !p.Runaway(d.FinishedAt) {
			continue
		}
		n++
		spent = spent.Plus(p.SpentUSD.Or(0))
		if !p.Reported {
			silent++
		}
	}
	if n == 0 {
		return nil
	}
	note := "spent by " + plain.Count(n, "busy machine") + " since the last step or checkpoint"
	if silent > 0 {
		note += fmt.Sprintf("; %d never reported any: call curfew.step(n)", silent)
	}
	return []layout.Figure{{Label: "no progress", Value: spent.String(), Note: note}}
}

// progressGrid lists the progress of busy machines, on pages and if all findings are shown.
func (d *audit) progressGrid() layout.Grid {
	g := layout.Grid{
		Title: "Busy machines by progress", Head: []string{"spent since", "machine", "owner", "last progress"},
		Right: []bool{true}, Folded: true, PageOnly: !d.o.All,
	}
	for i := range d.Progress {
		p := &d.Progress[i]
		g.Rows = append(g.Rows, []string{
			p.SpentUSD.String(), thing(&p.Resource), owner(&p.Resource), plain.Time(p.Since),
		})
		g.Notes = append(g.Notes, p.Because)
	}
	return g
}
