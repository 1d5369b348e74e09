package spend

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

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/billfile"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// BillSource is the location of a bill, on this machine or in a bucket, and how to read it.
type BillSource struct {
	Path string
	// Profile is the AWS profile, for buckets.
	Profile string
	// ZeroPurchases is that of [bill.Options].
	ZeroPurchases bool
}

// ReadBill reads a whole bill.
func ReadBill(ctx context.Context, req *runtime.Request, cfg config.Config, from BillSource) (*bill.Bill, error) {
	path, profile := from.Path, from.Profile
	at := path
	if !runtime.IsBucket(path) {
		// Use the full name, because imports of the same source replace one another.
		var err error
		if at, err = filepath.Abs(req.Path(path)); err != nil {
			return nil, fmt.Errorf("find %s: %w", path, err)
		}
	}
	export, err := billfile.Open(ctx, at, billfile.Options{
		Mapping: cfg.Tags, ZeroPurchases: from.ZeroPurchases,
		Bucket: func(ctx context.Context, name string) (billfile.Bucket, error) {
			cloud, err := clouds.OpenAWS(ctx, cfg, profile, nil)
			if err != nil {
				return nil, err
			}
			return cloud.Bucket(ctx, name)
		}})
	if err != nil {
		return nil, billFailure(err)
	}
	bar := req.Progress("the bill")
	defer bar.Finish()
	b, err := export.Read(ctx)
	return b, billFailure(err)
}

// billFailure sets the exit code for a bill that cannot be read.
func billFailure(err error) error {
	var mistake *billfile.Error
	var twice *bill.CountedTwice
	switch {
	case err == nil:
		return nil
	case errors.As(err, &twice):
		return &runtime.Error{Class: runtime.Usage, Code: "counted_twice", Err: err, Hint: "nothing was imported"}
	case errors.As(err, &mistake), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return &runtime.Error{Class: runtime.Usage, Code: "invalid_file", Err: err, Hint: "nothing was imported"}
	case errors.Is(err, bill.ErrTooManyRows):
		return &runtime.Error{Code: "too_large", Err: err, Hint: "import one billing period at a time"}
	}
	return clouds.CloudError(err)
}

// importTries is how often an import is planned again after another one changed the bill.
const importTries = 5

// BillImport imports a bill; dry only reports what it would replace.
func BillImport(ctx context.Context, req *runtime.Request, from BillSource, dry bool) (view.Bill, error) {
	var none view.Bill
	cfg, err := req.Config()
	if err != nil {
		return none, err
	}
	// The sums of a large bill stay in memory until they are written, so limit the additional
	// memory for temporary values to half as much.
	defer debug.SetGCPercent(debug.SetGCPercent(50))
	b, err := ReadBill(ctx, req, cfg, from)
	if err != nil {
		return none, err
	}
	return importBill(ctx, req, cfg, b, from.Path, dry, nil)
}

// importBill stores a bill with its audit entries.
func importBill(ctx context.Context, req *runtime.Request, cfg config.Config, b *bill.Bill, path string, dry bool,
	entries []action.Entry) (view.Bill, error) {
	var none view.Bill
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return none, err
	}
	defer s.Close()
	var planned []bill.Planned
	for try := 1; ; try++ {
		stored, err := s.Bills().Periods(ctx, time.Time{}, time.Time{})
		if err != nil {
			return none, fmt.Errorf("read what was imported before: %w", err)
		}
		var replace []bill.Replacement
		if replace, planned, err = bill.Plan(b, stored, req.Now().UTC()); err != nil {
			return none, billFailure(err)
		}
		if dry {
			break
		}
		err = s.Transact(ctx, func(in *store.Store) error {
			if err := in.Bills().Replace(ctx, replace); err != nil {
				return err
			}
			return in.Actions().Record(ctx, entries...)
		})
		if err == nil {
			break
		}
		if !errors.Is(err, bill.ErrChanged) || try == importTries {
			return none, fmt.Errorf("import %s: %w", path, err)
		}
	}
	return view.NewBill(b, planned), nil
}

// BillShow returns the imported bills of a period, grouped by a dimension of the ledger or of
// bills.
func BillShow(ctx context.Context, req *runtime.Request, f runtime.Period, by string, basis bill.Basis) (view.BillShow,
	error) {
	var none view.BillShow
	since, until, err := f.Bounds(req.Now())
	if err != nil {
		return none, err
	}
	cfg, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	b := view.BillShow{Schema: view.BillShowSchema, Since: since, Until: until, CoverageNotes: []string{}}
	var broken error
	rows := bill.RowsOf(ctx, s.Bills(), bill.Query{From: since, To: until}, &broken)
	attribution, found, err := costs.NewAttribution(ctx, s.Ledger(), rows, since, until)
	if err = errors.Join(err, broken); err != nil {
		return none, fmt.Errorf("read the bill: %w", err)
	}
	if !found {
		return none, noBill(ctx, s.Bills(), since, until)
	}
	lines := attribution.Rows(rows, &broken)
	var errs [6]error
	b.Categories, errs[0] = bill.Categories(rows)
	b.Allocation, errs[1] = bill.Allocate(named(lines, by), bill.Dimension(by), basis, cfg.SharedCosts)
	b.Egress, errs[2] = bill.EgressFlows(rows)
	b.Commitments, errs[3] = bill.CommitmentUse(rows)
	b.ByDuty, errs[4] = bill.ByDuty(func(yield func(bill.Category, bill.Row) bool) {
		for line, r := range lines {
			if !yield(costs.CategoryOf(&line, &r), r) {
				return
			}
		}
	})
	b.CoverageNotes, errs[5] = costs.Comparison{Bills: s.Bills()}.LateUsage(ctx, since, until)
	if err := errors.Join(append(errs[:], broken)...); err != nil {
		return none, fmt.Errorf("add up the bill: %w", err)
	}
	return b, nil
}

// named yields rows with their values of a dimension: one of the ledger, as in `costs --by`, or one
// that only bills have.
func named(lines iter.Seq2[ledger.Line, bill.Row], by string) iter.Seq2[string, bill.Row] {
	d := ledger.Dimension(strings.ReplaceAll(by, "_", "-"))
	ofLedger := slices.Contains(ledger.Dimensions, d)
	return func(yield func(string, bill.Row) bool) {
		for line, r := range lines {
			name := ""
			if ofLedger {
				name = line.Value(d)
			} else {
				name = r.Value(bill.Dimension(by))
			}
			if !yield(name, r) {
				return
			}
		}
	}
}

// noBill returns the error if no imported bill has a charge in a period, because an unknown amount
// is not $0.
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
	return &runtime.Error{
		Code: "no_bill",
		Err: fmt.Errorf("show the bill: no imported bill has charges from %s to %s", since.Format(time.DateOnly),
			until.Format(time.DateOnly)),
		Hint: hint,
	}
}

// maxPeriods limits the billing periods that an error names.
const maxPeriods = 12

// Reconcile compares billed and accrued costs of a period, and posts the difference if post is
// true.
func Reconcile(ctx context.Context, req *runtime.Request, f runtime.Period, basis bill.Basis,
	post bool) (view.Reconciliation, error) {
	var none view.Reconciliation
	since, until, err := f.Bounds(req.Now())
	if err != nil {
		return none, err
	}
	day := 24 * time.Hour
	since = since.Truncate(day)
	if end := until.Truncate(day); end.Before(until) {
		until = end.Add(day)
	}
	_, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	column := costs.BilledCost
	if basis == bill.OnEffective {
		column = costs.EffectiveCost
	}
	r, posted, err := costs.Comparison{Bills: s.Bills(), Ledger: s.Ledger()}.Reconcile(ctx, since, until, column, post)
	if errors.Is(err, costs.ErrNoEffectiveCost) {
		return none, &runtime.Error{
			Code: "no_effective_cost", Err: err, Hint: "compare with billed costs: --basis billed",
		}
	}
	if err != nil {
		return none, err
	}
	return view.NewReconciliation(r, posted), nil
}
