package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
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
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/store"
)

func (a *app) newBill() *cobra.Command {
	c := &cobra.Command{
		Use:   "bill",
		Short: "The provider's bill: import it, look at it, hold the ledger against it",
		Long: `Reads exports of FOCUS 1.0 to 1.3 (AWS, Azure, Google Cloud, Oracle) and of the AWS Cost
and Usage Report 2.0, in CSV, CSV.gz and Parquet: a file, a folder, or s3://bucket/prefix.`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.newBillImport(), a.newBillShow(), a.newBillReconcile())
	return c
}

func (a *app) newBillImport() *cobra.Command {
	var output, profile string
	var dry bool
	c := &cobra.Command{
		Use:   "import PATH",
		Short: "Import a bill: each billing period is replaced as a whole, and importing again changes nothing",
		Example: `  curfew bill import focus-2026-10.csv.gz
  curfew bill import s3://finops-exports/focus/daily
  curfew bill import ./exports -o json`,
		Args: oneFile,
		RunE: func(c *cobra.Command, args []string) error {
			if err := oneOf("output", output, "table", "json"); err != nil {
				return err
			}
			return a.billImport(c.Context(), args[0], profile, dry, output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table or json")
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

// importTries is how often an import is planned anew because another came between.
const importTries = 5

func (a *app) billImport(ctx context.Context, path, profile string, dry bool, output string) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	// What a large bill comes to stays until it is written: half as much beside it is
	// enough for what comes and goes.
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
	doc := bill.NewDocument(b, planned)
	if output == "json" {
		return a.printJSON(doc)
	}
	return a.printBill(doc, dry)
}

func (a *app) printBill(d bill.Document, dry bool) error {
	what := "imported"
	if dry {
		what = "would be imported"
	}
	s := report.Sheet{Verb: "bill import", Title: fmt.Sprintf("%s of %s %s: %s billed", plain.Count(d.Rows, "row"), d.Source, what, money.ForPeople(d.BilledCost)),
		Coverage: d.Notes, Figures: []report.Figure{{Label: "written in", Value: d.Written}}}
	for _, f := range []struct {
		label string
		value *string
	}{{"effective", d.EffectiveCost}, {"list", d.ListCost}, {"contracted", d.ContractedCost}} {
		value := "not in the bill"
		if f.value != nil {
			value = "$" + *f.value
		}
		s.Figures = append(s.Figures, report.Figure{Label: f.label, Value: value})
	}
	g := report.Grid{Head: []string{"period", "account", "rows", "billed", ""}, Right: []bool{false, false, true, true, false}}
	for _, p := range d.Periods {
		for _, account := range p.Accounts {
			g.Rows = append(g.Rows, []string{p.Start.Format("2006-01"), account.Account, fmt.Sprint(account.Rows), money.ForPeople(account.BilledCost), string(account.Change)})
		}
	}
	for _, r := range d.Removed {
		g.Rows = append(g.Rows, []string{r, "", "", "", string(bill.Removed)})
	}
	s.Tables = []report.Grid{g}
	if len(d.MissingColumns) > 0 {
		s.Coverage = append(s.Coverage, fmt.Sprintf("columns that the bill lacks: %v", d.MissingColumns))
	}
	s.Color = a.color()
	return s.Text(a.Stdout, a.Width)
}

// billFlags are the flags of bill show.
type billFlags struct {
	periodFlags
	by, basis, output string
}

func (a *app) newBillShow() *cobra.Command {
	var f billFlags
	c := &cobra.Command{
		Use:   "show",
		Short: "What was billed: the five categories, who it belongs to, transfers, commitments",
		Long: `Shows imported bills: the five categories (storage, idle, active, egress, overhead) beside
the shares that are usual in the field, the bill divided among teams by tags and by the
rules of shared_costs, what data transfer cost and where it went, and what became of
commitments. The ledger says which machines were idle; compute that it did not measure is
shown apart.`,
		Example: `  curfew bill show --since 2026-10-01 --until 2026-11-01
  curfew bill show --by project --basis effective -o html > bill.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", f.output, planOutputs...); err != nil {
				return err
			}
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
	c.Flags().StringVarP(&f.output, "output", "o", "table", "table, json, html or md")
	return c
}

// billed is what `bill show` says.
type billed struct {
	Schema      string           `json:"schema"`
	Since       time.Time        `json:"since"`
	Until       time.Time        `json:"until"`
	Categories  []bill.Part      `json:"categories"`
	ByDuty      []bill.Slice     `json:"categories_by_duty"`
	Allocation  *bill.Allocation `json:"allocation"`
	Egress      []bill.Flow      `json:"egress"`
	Commitments bill.Commitments `json:"commitments"`
}

// rowsOf yields the rows of a query; the first error ends them and is put in err.
func rowsOf(ctx context.Context, s bill.Store, q bill.Query, err *error) iter.Seq[bill.Row] {
	return func(yield func(bill.Row) bool) {
		for r, e := range s.Rows(ctx, q) {
			if e != nil {
				*err = errors.Join(*err, e)
				return
			}
			if !yield(r) {
				return
			}
		}
	}
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
	b := billed{Schema: "curfew.bill.show/v1", Since: since, Until: until}
	var broken error
	rows := rowsOf(ctx, s.Bills(), bill.Query{From: since, To: until}, &broken)
	split, found, err := measuredCompute(ctx, s, rows, since, until)
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
	return a.show(f.output, b, func() report.Sheet { return billSheet(b, f) })
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

// measuredCompute says what the machines of a bill did, by the ledger, and whether there is
// a bill.
func measuredCompute(ctx context.Context, s *store.Store, rows iter.Seq[bill.Row], since, until time.Time) (bill.Split, bool, error) {
	type machine struct {
		account, id string
		day         time.Time
	}
	type sums struct{ idle, active, unmeasured money.Amount }
	accounts, found := map[ledger.Account]bool{}, false
	for r := range rows {
		d := billedDay(r)
		accounts[ledger.Account{Cloud: d.Cloud, ID: d.Account}], found = true, true
	}
	did := map[machine]sums{}
	for a := range accounts {
		days, err := s.Ledger().ResourceDays(ctx, a, since, until)
		if err != nil {
			return nil, found, fmt.Errorf("read what accrued in %s: %w", a, err)
		}
		for _, d := range days {
			if d.Category != ledger.Compute || d.Accrued <= 0 {
				continue
			}
			k := machine{a.String(), costs.BillID(d.Ref.ID), d.Day.UTC()}
			m := did[k]
			sum := &m.idle
			switch state := duty.State(d.Duty); {
			case state.Used():
				sum = &m.active
			case state == duty.Unknown || state == "":
				sum = &m.unmeasured
			}
			if *sum, err = sum.Add(d.Accrued); err != nil {
				return nil, found, fmt.Errorf("add up what accrued for %s: %w", d.Ref.ID, err)
			}
			did[k] = m
		}
	}
	return func(r *bill.Row) (idle, active, unmeasured money.Amount) {
		d := billedDay(*r)
		m := did[machine{ledger.Account{Cloud: d.Cloud, ID: d.Account}.String(), costs.BillID(d.Resource), d.Day.UTC()}]
		return m.idle, m.active, m.unmeasured
	}, found, nil
}

// categoriesPicture draws each category's share beside the one usual in the field.
func categoriesPicture(parts []bill.Slice) string {
	var all []report.Measure
	for _, p := range parts {
		if p.Billed == nil {
			continue
		}
		m := report.Measure{Label: string(p.Category), Share: *p.Share, From: float64(p.UsualLow) / 100, To: float64(p.UsualHigh) / 100, Value: p.Billed.Dollars() + ", " + plain.Share(*p.Share, 1)}
		if p.UsualHigh > 0 {
			m.Value += fmt.Sprintf(" (usual %d-%d%%)", p.UsualLow, p.UsualHigh)
		}
		all = append(all, m)
	}
	return report.Bars("The bill by category, beside the shares usual in the field", all)
}

// maxFlows is how many transfers a table for people has.
const maxFlows = 15

// gigabytes returns an amount of data for people, empty where the bill gives none.
func gigabytes(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	if n := float64(bytes) / 1e9; n >= 0.05 {
		return plain.Number(n, 1)
	}
	return "<0.1"
}

func billSheet(b billed, f billFlags) report.Sheet {
	s := report.Sheet{Verb: "bill show", Title: fmt.Sprintf("%s on the bill from %s to %s", b.Allocation.Total.Dollars(), b.Since.Format(time.DateOnly), b.Until.Format(time.DateOnly)),
		Picture: categoriesPicture(b.ByDuty), Caption: "What was billed by category; the outlined band is the share usual in the field."}
	g := report.Grid{Title: "categories", Head: []string{"category", "billed", "share", "usual"}, Right: []bool{false, true, true, true}}
	for _, p := range b.ByDuty {
		usual, billed, share := "", "unknown", ""
		if p.Billed != nil {
			billed, share = "$"+p.Billed.Cents(), plain.Share(*p.Share, 1)
		}
		if p.UsualHigh > 0 {
			usual = fmt.Sprintf("%d-%d%%", p.UsualLow, p.UsualHigh)
		}
		if p.Billed == nil || *p.Billed != 0 || p.UsualHigh > 0 {
			g.Rows = append(g.Rows, []string{string(p.Category), billed, share, usual})
		}
		if p.Reason != "" && p.Category == bill.Idle {
			s.Coverage = append(s.Coverage, "idle and active compute are unknown: "+p.Reason+"; passes of curfew scan measure it")
		}
	}
	s.Tables = append(s.Tables, g)
	g = report.Grid{Title: "by " + f.by + ", " + f.basis, Head: []string{f.by, "direct", "shared", "total"}, Right: []bool{false, true, true, true}}
	for _, p := range b.Allocation.Parties {
		g.Rows = append(g.Rows, []string{p.Name, p.Direct.Dollars(), p.Shared.Dollars(), (p.Direct + p.Shared).Dollars()})
	}
	g.Rows = append(g.Rows, []string{"(nobody named)", b.Allocation.Unattributed.Dollars(), "", b.Allocation.Unattributed.Dollars()})
	s.Tables = append(s.Tables, g)
	if len(b.Egress) > 0 {
		g = report.Grid{Title: "data transfer", Head: []string{"billed", "GB", "what", "from", "to", "resource"}, Right: []bool{true, true}}
		n := slices.IndexFunc(b.Egress, func(t bill.Flow) bool { return t.Billed < money.USD/200 }) // the dearest come first
		if n < 0 {
			n = len(b.Egress)
		}
		n = min(n, maxFlows)
		for _, t := range b.Egress[:n] {
			g.Rows = append(g.Rows, []string{t.Billed.Dollars(), gigabytes(t.Bytes), string(t.Transfer), t.Region, t.ToRegion, first(t.Resource, t.Service)})
		}
		if rest := b.Egress[n:]; len(rest) > 0 {
			var more money.Amount
			for _, t := range rest {
				more += t.Billed // of one bill, whose total fits
			}
			g.Rows = append(g.Rows, []string{more.Dollars(), "", plain.Count(len(rest), "other flow"), "", "", ""})
		}
		s.Tables = append(s.Tables, g)
	}
	if len(b.Commitments.Commitments) > 0 {
		g = report.Grid{Title: "commitments", Head: []string{"commitment", "bought", "used", "unused"}, Right: []bool{false, true, true, true}}
		for _, c := range b.Commitments.Commitments {
			g.Rows = append(g.Rows, []string{c.ID, c.Purchased.Dollars(), c.Used.Dollars(), c.Unused.Dollars()})
		}
		s.Tables = append(s.Tables, g)
	}
	if n := len(b.Commitments.OnDemand); n > 0 {
		var sum money.Amount
		for _, o := range b.Commitments.OnDemand {
			sum += o.Billed // of one bill, whose total fits
		}
		s.Figures = append(s.Figures, report.Figure{Label: "on-demand compute", Value: sum.Dollars(), Note: "at most " + b.Commitments.Missed.Dollars() + " of it could have been covered by commitments that lay unused"})
	}
	for _, r := range b.Allocation.Shared {
		note := fmt.Sprintf("the rule %s shares %s", r.Rule, r.Amount.Dollars())
		if r.Reason != "" {
			note = fmt.Sprintf("the rule %s leaves %s to nobody: %s", r.Rule, r.Amount.Dollars(), r.Reason)
		}
		s.Coverage = append(s.Coverage, note)
	}
	if n := b.Allocation.Unknown; n > 0 {
		s.Coverage = append(s.Coverage, plain.Count(n, "row has", "rows have")+" no "+f.basis+" cost, which is in no sum of the division")
	}
	return s
}
