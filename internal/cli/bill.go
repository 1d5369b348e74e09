package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/billfile"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
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
			return a.billImport(c.Context(), args[0], profile, dry)
		},
	}
	a.outputs(c, reports...)
	c.Flags().StringVar(&profile, "profile", "", "AWS profile, for s3://")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be replaced, and keep nothing")
	return c
}

// readBill reads a bill as a whole.
func (a *app) readBill(ctx context.Context, cfg config.Config, path, profile string) (*bill.Bill, error) {
	at := path
	if !isBucket(path) {
		// Its full name, because imports of the same source replace one another.
		var err error
		if at, err = filepath.Abs(a.path(path)); err != nil {
			return nil, fmt.Errorf("find %s: %w", path, err)
		}
	}
	export, err := billfile.Open(ctx, at, billfile.Options{Mapping: cfg.Tags, Bucket: func(ctx context.Context, name string) (billfile.Bucket, error) {
		cloud, err := daemon.OpenAWS(ctx, cfg, profile, nil)
		if err != nil {
			return nil, err
		}
		return cloud.Bucket(ctx, name)
	}})
	if err != nil {
		return nil, billFailure(err)
	}
	bar := a.newProgress("the bill")
	defer bar.finish()
	b, err := export.Read(ctx)
	return b, billFailure(err)
}

func isBucket(path string) bool { return strings.HasPrefix(path, "s3://") }

// billFailure gives a bill that cannot be read its exit code.
func billFailure(err error) error {
	var mistake *billfile.Error
	var twice *bill.CountedTwice
	switch {
	case err == nil:
		return nil
	case errors.As(err, &twice):
		return &failure{exit: ExitUsage, code: "counted_twice", err: err, hint: "nothing was imported"}
	case errors.As(err, &mistake), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return &failure{exit: ExitUsage, code: "invalid_file", err: err, hint: "nothing was imported"}
	case errors.Is(err, bill.ErrTooManyRows):
		return &failure{exit: ExitError, code: "too_large", err: err, hint: "import one billing period at a time"}
	}
	return daemon.CloudError(err)
}

// importTries is how often an import is planned again because another one changed the bill.
const importTries = 5

func (a *app) billImport(ctx context.Context, path, profile string, dry bool) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	// The sums of a large bill stay until they are written: half as much memory in
	// addition is enough for temporary values.
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	b, err := a.readBill(ctx, cfg, path, profile)
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	var planned []bill.Planned
	for try := 1; ; try++ {
		stored, err := s.Bills().Periods(ctx, time.Time{}, time.Time{})
		if err != nil {
			return fmt.Errorf("read what was imported before: %w", err)
		}
		var replace []bill.Replacement
		if replace, planned, err = bill.Plan(b, stored, a.Now().UTC()); err != nil {
			return billFailure(err)
		}
		if dry {
			break
		}
		err = s.Bills().Replace(ctx, replace)
		if err == nil {
			break
		}
		if !errors.Is(err, bill.ErrChanged) || try == importTries {
			return fmt.Errorf("import %s: %w", path, err)
		}
	}
	doc := view.NewBill(b, planned)
	return a.show(doc, func() report.Sheet { return report.Bill(doc, dry) })
}

// billFlags are the flags of bill show.
type billFlags struct {
	periodFlags
	by, basis string
}

func (a *app) newBillShow() *cobra.Command {
	var f billFlags
	c := &cobra.Command{
		Use:   "show",
		Short: "Show the bill by category and by team, data transfer, and commitments",
		Long: `Shows imported bills: the five categories (storage, idle, active, egress, overhead) with
the shares that are usual in the field, the bill divided among teams by tags and by the
rules of shared_costs, what data transfer cost and where it went, and what became of
commitments. The ledger says which machines were idle; compute that it did not measure is
shown apart.`,
		Example: `  curfew bill show --since 2026-10-01 --until 2026-11-01
  curfew bill show --by project --basis effective -o html > bill.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("by", f.by, "team", "project", "user", "environment", "cost_center", "purpose", "sub_account"); err != nil {
				return err
			}
			if err := oneOf("basis", f.basis, string(bill.OnBilled), string(bill.OnEffective)); err != nil {
				return err
			}
			return a.billShow(c.Context(), f)
		},
	}
	f.add(c, "month")
	c.Flags().StringVar(&f.by, "by", "team", "who it is divided among: team, project, user, environment, cost_center, purpose, sub_account")
	c.Flags().StringVar(&f.basis, "basis", string(bill.OnBilled), "billed, or effective, which spreads what was paid for commitments")
	a.outputs(c, reports...)
	return c
}

func (a *app) billShow(ctx context.Context, f billFlags) error {
	since, until, err := f.bounds(a.Now())
	if err != nil {
		return err
	}
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	b := view.BillShow{Schema: view.BillShowSchema, Since: since, Until: until}
	var broken error
	rows := bill.RowsOf(ctx, s.Bills(), bill.Query{From: since, To: until}, &broken)
	split, found, err := costs.ComputeSplit(ctx, s.Ledger(), rows, since, until)
	if err = errors.Join(err, broken); err != nil {
		return fmt.Errorf("read the bill: %w", err)
	}
	if !found {
		return noBill(ctx, s.Bills(), since, until)
	}
	var errs [5]error
	b.Categories, errs[0] = bill.Categories(rows)
	b.Allocation, errs[1] = bill.Allocate(rows, bill.Dimension(f.by), bill.Basis(f.basis), cfg.SharedCosts)
	b.Egress, errs[2] = bill.EgressFlows(rows)
	b.Commitments, errs[3] = bill.CommitmentUse(rows)
	b.ByDuty, errs[4] = bill.ByDuty(rows, split)
	if err := errors.Join(append(errs[:], broken)...); err != nil {
		return fmt.Errorf("add up the bill: %w", err)
	}
	return a.show(b, func() report.Sheet { return report.BillShow(b, f.by, f.basis) })
}

// noBill is the answer where no imported bill has a charge in some time: no amount is $0.
func noBill(ctx context.Context, s bill.Store, since, until time.Time) error {
	periods, err := s.Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return fmt.Errorf("read what was imported: %w", err)
	}
	var have []string
	for _, p := range periods {
		have = append(have, p.Start.Format("2006-01"))
	}
	have = slices.Compact(have)
	hint := "import it: curfew bill import PATH"
	if n := len(have); n > 0 {
		hint += "; imported are " + strings.Join(have[max(0, n-maxPeriods):], ", ")
	}
	return &failure{exit: ExitError, code: "no_bill", err: fmt.Errorf("show the bill: no imported bill has charges from %s to %s", since.Format(time.DateOnly), until.Format(time.DateOnly)), hint: hint}
}

// maxPeriods is how many billing periods an error names.
const maxPeriods = 12
