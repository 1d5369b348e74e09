package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newBill() *cobra.Command {
	c := &cobra.Command{
		Use:   "bill",
		Short: "Import the provider's bill, show it, and reconcile it with the ledger",
		Long: `Reads exports of FOCUS 1.0 to 1.3 (AWS, Azure, Google Cloud, Oracle) and of the AWS Cost
and Usage Report (2.0 and legacy), in CSV, CSV.gz and Parquet: a file, a folder, or
s3://bucket/prefix.`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newBillImport(), a.newBillShow(), a.newBillReconcile())
	return c
}

func (a *app) newBillImport() *cobra.Command {
	var in ops.ImportBillInput
	c := &cobra.Command{
		Use:   "import PATH",
		Short: "Import a bill: each billing period is replaced as a whole, and importing again changes nothing",
		Example: `  curfew bill import focus-2026-10.csv.gz
  curfew bill import s3://finops-exports/focus/daily
  curfew bill import ./exports -o json`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			in.File = args[0]
			doc, err := ops.ImportBill.Call(c.Context(), a.at, in)
			return shown(a, func(d view.Bill) report.Sheet { return report.Bill(d, in.Body.DryRun) })(doc, err)
		},
	}
	a.outputs(c, reports...)
	ops.ImportBill.AddFlags(c.Flags(), &in)
	return c
}

func (a *app) newBillShow() *cobra.Command {
	var in ops.BillInput
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the bill by category and by team, data transfer, and commitments",
		Long: `Shows imported bills: the five categories (storage, idle, active, egress, overhead) with
the shares that are usual in the field, the bill divided among teams by tags and by the
rules of shared_costs, the cost and destination of data transfer, and the use of
commitments. Idle machines are those of the ledger; unmeasured compute is shown
separately.`,
		Example: `  curfew bill show --demo
  curfew bill show --since 2026-10-01 --until 2026-11-01
  curfew bill show --by service -o csv                  # any dimension of ` + "`curfew costs`" + `
  curfew bill show --by project --basis effective -o html > bill.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.GetBills.Call(c.Context(), a.at, in)
			if err == nil && a.format == "csv" {
				return report.BillCSV(a.Stdout, doc)
			}
			return shown(a, func(d view.BillShow) report.Sheet {
				return report.BillShow(d, in.By, in.Basis)
			})(doc, err)
		},
	}
	ops.GetBills.AddFlags(c.Flags(), &in)
	a.outputs(c, "table", "json", "csv", "html", "md")
	a.simulated(c)
	return c
}
