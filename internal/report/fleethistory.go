package report

import (
	"cmp"
	"slices"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// FleetHistory shows the changes of the size of a serving fleet with their reasons, newest first.
func FleetHistory(doc view.FleetHistory) layout.Sheet {
	s := layout.Sheet{Verb: "explain", Title: "The size of " + doc.Fleet + " was never changed"}
	if len(doc.Changes) == 0 {
		return s
	}
	g := layout.Grid{
		Title: "Changes of size, newest first", Head: []string{"time", "who", "what", "outcome"},
		States: []bool{false, false, true, false},
	}
	for _, c := range slices.Backward(doc.Changes) {
		g.Rows = append(g.Rows, []string{plain.Time(c.At), c.Actor, c.Event, c.Outcome})
		g.Notes = append(g.Notes, c.Because)
	}
	last := doc.Changes[len(doc.Changes)-1]
	s.Title = doc.Fleet + ": " + cmp.Or(last.Because, last.Outcome, last.Event)
	s.Tables = append(s.Tables, g)
	return s
}
