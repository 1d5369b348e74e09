package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newBill() *cobra.Command {
	c := &cobra.Command{
		Use:   "bill",
		Short: "Import the provider's bill, show it, and reconcile it with the ledger",
		Long: `Reads exports of FOCUS 1.0 to 1.3 (AWS, Azure, Google Cloud, Oracle) and of the AWS Cost
and Usage Report 2.0, in CSV, CSV.gz and Parquet: a file, a folder, or s3://bucket/prefix.`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newBillImport(), a.newBillShow(), a.newBillReconcile())
	return c
}

func (a *app) newBillImport() *cobra.Command {
	var profile string
	var dry bool
	c := &cobra.Command{
		Use:   "import PATH",
		Short: "Import a bill: each billing period is replaced as a whole, and importing again changes nothing",
		Example: `  curfew bill import focus-2026-10.csv.gz
  curfew bill import s3://finops-exports/focus/daily
  curfew bill import ./exports -o json`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			doc, err := a.at.BillImport(c.Context(), args[0], profile, dry)
			return shown(a, func(d view.Bill) report.Sheet { return report.Bill(d, dry) })(doc, err)
		},
	}
	a.outputs(c, reports...)
	c.Flags().StringVar(&profile, "profile", "", "AWS profile, for s3://")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be replaced, and keep nothing")
	return c
}

// bases are the amounts of a bill that can be added up, dividedBy what a bill is divided
// by; the first is the default.
var (
	bases     = []string{string(bill.OnBilled), string(bill.OnEffective)}
	dividedBy = []string{"team", "project", "user", "environment", "cost_center", "purpose", "sub_account"}
)

func (a *app) newBillShow() *cobra.Command {
	var p daemon.Period
	by, basis := dividedBy[0], bases[0]
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the bill by category and by team, data transfer, and commitments",
		Long: `Shows imported bills: the five categories (storage, idle, active, egress, overhead) with
the shares that are usual in the field, the bill divided among teams by tags and by the
rules of shared_costs, what data transfer cost and where it went, and what became of
commitments. The ledger says which machines were idle; compute that it did not measure is
shown apart.`,
		Example: `  curfew bill show --demo
  curfew bill show --since 2026-10-01 --until 2026-11-01
  curfew bill show --by project --basis effective -o html > bill.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := a.at.BillShow(c.Context(), p, bill.Dimension(by), bill.Basis(basis))
			return shown(a, func(d view.BillShow) report.Sheet { return report.BillShow(d, by, basis) })(doc, err)
		},
	}
	periodFlags(c, &p, "month")
	c.Flags().Var(&choice{"by", &by, dividedBy}, "by", "who it is divided among: team, project, user, environment, cost_center, purpose, sub_account")
	c.Flags().Var(&choice{"basis", &basis, bases}, "basis", "billed, or effective, which spreads what was paid for commitments")
	a.outputs(c, reports...)
	a.simulated(c)
	return c
}
