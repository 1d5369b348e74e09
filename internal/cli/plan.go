package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newPlan() *cobra.Command {
	c := &cobra.Command{
		Use:   "plan",
		Short: "Plan machine types, MIG slices, commitments, spot use and replicas",
		Long: `Planners read files, or with --from a scan of the account, its ledger or imported bills.
They change nothing. Each plan lists its assumptions, the data that it covers, and what
would change the answer.`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newPlanAccount(), a.newPlanRightsize(), a.newPlanMIG(), a.newPlanCommit(),
		a.newPlanCapacity(), a.newPlanSpot(),
		a.newPlanCheckpoint(), a.newPlanMarket(), a.newPlanTCO())
	return c
}

// show writes a planner's result: its document as JSON, or its sheet for people.
func (a *app) show(doc any, sheet func() report.Sheet) error {
	switch a.format {
	case "json":
		return a.printJSON(doc)
	case "html":
		return sheet().HTML(a.Stdout)
	case "md":
		return sheet().Markdown(a.Stdout)
	}
	return a.draw(sheet())
}

// shown shows the document that a command makes, or returns its error.
func shown[D any](a *app, sheet func(D) report.Sheet) func(D, error) error {
	return func(doc D, err error) error {
		if err != nil {
			return err
		}
		return a.show(doc, func() report.Sheet { return sheet(doc) })
	}
}

// text writes a document as show does, but for the terminal as draw does.
func text[D any](a *app, doc D, draw func(io.Writer, D, report.Options) error, sheet func() report.Sheet) error {
	if a.format != "table" {
		return a.show(doc, sheet)
	}
	return draw(a.Stdout, doc, report.Options{Width: a.Width, Color: a.color()})
}

func (a *app) printJSON(doc any) error { return view.WriteJSON(a.Stdout, doc) }

// draw writes a report for the terminal.
func (a *app) draw(s report.Sheet) error {
	s.Color = a.color()
	return s.Text(a.Stdout, a.Width)
}
