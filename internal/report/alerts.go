package report

import (
	"strings"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Alerts shows alerts that are still active.
func Alerts(d view.Alerts) layout.Sheet {
	s := layout.Sheet{Verb: "alerts", Title: "nothing to look at"}
	n := len(d.Alerts)
	if n == 0 {
		return s
	}
	s.Title = plain.Count(n, "alert")
	var spent money.Amount
	g := layout.Grid{
		Title: "alerts", Head: []string{"spent", "what", "resource", "owner", "since", "notified"},
		Right: []bool{true}, Code: []bool{false, true, true}, Priority: []int{5, 4, 3, 2, 1, 0},
	}
	for i := range d.Alerts {
		a := &d.Alerts[i]
		if v, known := a.SpentUSD.Get(); known {
			if sum, err := spent.Add(v); err == nil {
				spent = sum
			}
		}
		g.Rows = append(g.Rows, []string{
			spentOn(a), a.What, resourceOf(a), ownerOf(a.Owner), ago(d, a), notified(d, a),
		})
		g.Notes = append(g.Notes, a.Because)
		g.Commands = append(g.Commands, strings.Trim(a.Next, "`"))
	}
	if spent > 0 {
		s.Title += ", " + spent.Dollars() + " spent on what they are about"
	}
	s.Tables = append(s.Tables, g)
	return s
}

func spentOn(a *view.Alert) string {
	if !a.SpentUSD.Known() {
		return layout.None
	}
	return a.SpentUSD.String()
}

func resourceOf(a *view.Alert) string {
	if a.Resource == "" {
		return layout.None
	}
	if a.Name == a.ResourceID {
		return layout.Joined(" ", a.Type, a.Name)
	}
	return layout.Joined(" ", a.Type, a.Name, a.ResourceID)
}

func ownerOf(o inventory.Owner) string {
	return owner(&view.Resource{Description: view.Description{Owner: o}})
}

func ago(d view.Alerts, a *view.Alert) string {
	if a.Since.IsZero() {
		return layout.None
	}
	return plain.Duration(d.At.Sub(a.Since)) + " ago"
}

func notified(d view.Alerts, a *view.Alert) string {
	if a.NotifiedAt.IsZero() {
		return layout.None
	}
	return plain.Duration(d.At.Sub(a.NotifiedAt)) + " ago"
}
