package spend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/view"
)

// BillUpload is a bill that a caller of the service names or sends.
type BillUpload struct {
	// Path is a file, a folder or s3://bucket/prefix under serve.bill_paths.
	Path string
	// Content is the text of a CSV file instead of a path, Name its name: an import of the same
	// name replaces it.
	Content, Name string
	// DryRun stores nothing and lists the months that would be replaced.
	DryRun bool
	// ZeroPurchases is that of [bill.Options].
	ZeroPurchases bool
}

// uploadName matches the allowed names of an uploaded bill.
var uploadName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// CheckBill reads a bill of this machine as an import would, but stores nothing.
func CheckBill(ctx context.Context, req *runtime.Request, path string) error {
	cfg, err := req.Config()
	if err == nil {
		_, err = ReadBill(ctx, req, cfg, BillSource{Path: path})
	}
	return err
}

// ImportBill imports a bill for a caller of the service, and records that.
func ImportBill(ctx context.Context, req *runtime.Request, u BillUpload) (view.Bill, error) {
	var none view.Bill
	cfg, err := req.Config()
	if err != nil {
		return none, err
	}
	if (u.Path == "") == (u.Content == "") {
		return none, runtime.Invalid("import a bill: give its path, or its content and name")
	}
	var at, source string
	if u.Path != "" {
		if at, err = req.AllowedPath(u.Path, "serve.bill_paths", cfg.Serve.BillPaths); err != nil {
			return none, err
		}
		source = at
	} else {
		if !uploadName.MatchString(u.Name) {
			return none, runtime.Invalid(
				"import a bill: its name is of letters, digits, dots, dashes and underscores, such as " +
					"focus-2026-10.csv")
		}
		dir, err := os.MkdirTemp("", "curfew-bill-*")
		if err != nil {
			return none, fmt.Errorf("keep the bill while it is read: %w", err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		at, source = filepath.Join(dir, "bill.csv"), "upload/"+u.Name
		if err := os.WriteFile(at, []byte(u.Content), 0o600); err != nil {
			return none, fmt.Errorf("keep the bill while it is read: %w", err)
		}
	}
	b, err := ReadBill(ctx, req, cfg, BillSource{Path: at, ZeroPurchases: u.ZeroPurchases})
	// the file belongs to the caller, who knows it by another name
	if wrong := (*runtime.Error)(nil); u.Path == "" && errors.As(err, &wrong) {
		err = &runtime.Error{
			Class: wrong.Class, Code: wrong.Code, Hint: wrong.Hint,
			Err: errors.New(strings.ReplaceAll(wrong.Error(), at, u.Name)),
		}
	}
	if err != nil {
		return none, err
	}
	b.Source = source
	for _, p := range b.Periods {
		p.Source = source
	}
	var entries []action.Entry
	if !u.DryRun {
		by, err := req.Person(cfg)
		if err != nil {
			return none, err
		}
		entries = append(entries, action.Entry{
			At: req.Now().UTC(), Actor: by, What: action.EventBill, Because: action.Redact(source),
			Outcome: fmt.Sprintf("%d periods", len(b.Periods))})
	}
	return importBill(ctx, req, cfg, b, source, u.DryRun, entries)
}

// BillPeriods returns the imported billing periods, oldest first.
func BillPeriods(ctx context.Context, req *runtime.Request) (view.BillPeriods, error) {
	doc := view.BillPeriods{Schema: view.BillPeriodsSchema, Periods: []view.BillPeriod{}}
	_, s, err := req.State(ctx)
	if err != nil {
		return doc, err
	}
	defer s.Close()
	all, err := s.Bills().Periods(ctx, time.Time{}, time.Time{})
	if err != nil {
		return doc, fmt.Errorf("read what was imported: %w", err)
	}
	for _, p := range all {
		one := view.BillPeriod{
			ID: view.BillPeriodID(p.PeriodKey), Account: p.Account, Start: p.Start.UTC(),
			Source: p.Source, ImportedAt: p.ImportedAt.UTC(),
			Lines: p.Lines, Rows: p.Rows, BilledCost: bill.Dollars(p.Exact.Billed)}
		if !p.End.IsZero() {
			end := p.End.UTC()
			one.End = &end
		}
		if p.NoEffective == 0 {
			effective := bill.Dollars(p.Exact.Effective)
			one.EffectiveCost = &effective
		}
		doc.Periods = append(doc.Periods, one)
	}
	return doc, nil
}
