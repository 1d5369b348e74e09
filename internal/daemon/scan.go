package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// ScanOptions say what is audited, and what is kept of it.
type ScanOptions struct {
	Source
	// Window is how far back usage is read; 0 is as configured.
	Window time.Duration
	// Bill is a bill that is read with the account: a file, a folder, s3://bucket/prefix, or
	// imported.
	Bill string
	// NoSave keeps neither the findings nor what was observed.
	NoSave  bool
	Version string
}

// Scan audits an account. Show gets the audit before anything of it is kept, and whether it
// is kept.
func (rt *Runtime) Scan(ctx context.Context, cfg config.Config, f ScanOptions, show func(doc view.Scan, kept bool) error) (*round.Result, error) {
	if f.Window > 0 {
		cfg.Scan.Window = f.Window
	}
	billed, err := rt.auditedBill(ctx, cfg, f)
	if err != nil {
		return nil, err
	}
	f.Transient = f.NoSave
	setting, err := rt.Setting(ctx, cfg, f.Source)
	if err != nil {
		return nil, err
	}
	keeps := !f.NoSave && cfg.DataDir != ""
	if keeps && f.Cloud != sim.CloudName { // what the simulated account spends is not spent
		books := &openedBooks{open: func(ctx context.Context) (*store.Store, error) { return rt.Open(ctx, cfg) }}
		defer books.close()
		setting.Books = books
	}
	bar := rt.bar(f.Cloud)
	setting.Source, setting.Query = "scan", round.Query{Window: cfg.Scan.Window, Progress: bar.Report}
	if cfg.Thresholds.Interruptions, err = rt.Interruptions(cfg); err != nil {
		return nil, err
	}
	setting.Audit = &round.Audit{Thresholds: cfg.Thresholds, Rules: RulesOf(f.Cloud), Required: cfg.RequiredTags, Owners: cfg.Owners, Tags: cfg.Tags, Bill: billed}
	audit, err := round.New(setting).Round(ctx)
	bar.Finish()
	if err != nil {
		return nil, CloudError(err)
	}
	doc := view.NewScan(audit, view.ScanOptions{Version: f.Version, Profile: f.Profile})
	if err := show(doc, keeps); err != nil {
		return nil, err
	}
	if keeps {
		err := saveScan(cfg.DataDir, f.Cloud, doc)
		if err == nil {
			err = SaveInventory(cfg.DataDir, f.Cloud, audit)
		}
		if err != nil {
			return nil, &Error{Code: "not_saved", Err: fmt.Errorf("keep the findings: %w", err),
				Hint: "the audit itself is complete; give --data-dir, or --no-save to keep nothing"}
		}
	}
	if len(audit.Unposted) > 0 {
		return nil, Unposted(audit, "what was shown is complete")
	}
	return audit, nil
}

// LastScan is the kept audit of a cloud; an empty one is the cloud of the newest.
func LastScan(dataDir, cloud string) (view.Scan, error) {
	kept, err := KeptScans(dataDir)
	if err != nil {
		return view.Scan{}, err
	}
	if cloud != "" {
		kept = slices.DeleteFunc(kept, func(d view.Scan) bool { return d.Cloud != cloud })
	}
	if len(kept) == 0 {
		return view.Scan{}, &Error{Code: "no_scan", Err: fmt.Errorf("there is no kept scan of %s", cloud), Hint: "run `curfew scan --cloud " + cloud + "` first"}
	}
	return slices.MaxFunc(kept, func(x, y view.Scan) int { return x.FinishedAt.Compare(y.FinishedAt) }), nil
}

// auditedBill reads the bill that --bill names; nil without one.
func (rt *Runtime) auditedBill(ctx context.Context, cfg config.Config, f ScanOptions) (*round.Bill, error) {
	if f.Bill == "" {
		return nil, nil
	}
	var rows iter.Seq[bill.Row]
	var broken error
	if f.Bill == importedBill {
		s, err := rt.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		rows = bill.RowsOf(ctx, s.Bills(), bill.Query{From: rt.Now().UTC().AddDate(0, 0, -billedDays)}, &broken)
	} else {
		b, err := rt.readBill(ctx, cfg, f.Bill, f.Profile)
		if err != nil {
			return nil, err
		}
		rows = b.Rows()
	}
	out, err := round.BillOf(rows, f.Cloud, f.Bill)
	if err := errors.Join(err, broken); err != nil {
		return nil, fmt.Errorf("add up the bill: %w", err)
	}
	return out, nil
}

// saveScan keeps the findings for later commands: the whole file or none.
func saveScan(dir, cloud string, doc view.Scan) error {
	dir = filepath.Join(dir, "scans")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return ReplaceFile(filepath.Join(dir, cloud+".json"), func(w io.Writer) error { return view.WriteJSON(w, doc) })
}

// openedBooks are the ledger of the state, which is opened when the first charges come: an
// audit is shown also where there is none.
type openedBooks struct {
	open  func(ctx context.Context) (*store.Store, error)
	state *store.Store
}

// Post implements round.Books.
func (b *openedBooks) Post(ctx context.Context, seen ledger.Seen) (err error) {
	if b.state == nil {
		if b.state, err = b.open(ctx); err != nil {
			b.state = nil
			return err
		}
	}
	return ledger.Journal{Store: b.state.Ledger()}.Post(ctx, seen)
}

func (b *openedBooks) close() {
	if b.state != nil {
		b.state.Close()
	}
}

// Unposted says which accounts could not be charged, and what holds all the same.
func Unposted(r *round.Result, holds string) error {
	var errs []error
	for _, account := range slices.Sorted(maps.Keys(r.Unposted)) {
		errs = append(errs, fmt.Errorf("%s: %w", account, r.Unposted[account]))
	}
	return &Error{Class: Partial, Code: "not_recorded", Err: fmt.Errorf("record the round in the ledger: %w", errors.Join(errs...)),
		Hint: holds + "; the next round charges for the time where the provider tells since when a resource runs"}
}

// importedBill names, in place of a path, what was imported before, of which the newest
// billedDays are read.
const (
	importedBill = "imported"
	billedDays   = 60
)
