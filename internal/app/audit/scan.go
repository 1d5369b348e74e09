package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// ScanOptions choose the scope of an audit, and the part of its result to keep.
type ScanOptions struct {
	clouds.Source
	// Window is how far back usage is read; 0 is as configured.
	Window time.Duration
	// Bill is a bill that is read with the account: a file, a folder, s3://bucket/prefix, or
	// imported.
	Bill string
	// NoSave keeps neither the findings nor what was observed.
	NoSave  bool
	Version string
	// Plan asks for the plan of the account also where nothing is kept.
	Plan *PlanOptions
}

// Audited is an audit with its plan of the account.
type Audited struct {
	*round.Result
	// Plan is nil where none was made.
	Plan *accountplan.Account
}

// Scan audits an account. Show gets the audit before anything of it is kept, and whether it
// is kept. An audit of which something could not be planned or charged is returned with a partial error.
func Scan(ctx context.Context, req *runtime.Request, cfg config.Config, f ScanOptions,
	show func(doc view.Scan, kept bool) error) (*Audited, error) {
	if f.Window > 0 {
		cfg.Scan.Window = f.Window
	}
	billed, err := readAuditedBill(ctx, req, cfg, f)
	if err != nil {
		return nil, err
	}
	f.Transient = f.NoSave
	setting, err := clouds.Setting(ctx, req, cfg, f.Source)
	if err != nil {
		return nil, err
	}
	keeps := !f.NoSave && cfg.DataDir+cfg.DatabaseURL != ""
	state := &openedState{open: func(ctx context.Context) (*store.Store, error) { return req.Open(ctx, cfg) }}
	defer state.close()
	if keeps && !clouds.Of(f.Cloud).Simulated { // what the simulated account spends is not spent
		setting.Books = state
	}
	bar := req.Progress(f.Cloud)
	if err := SetAudit(req, cfg, &setting, f.Cloud, billed); err != nil {
		return nil, err
	}
	setting.Query.Progress = bar.Report
	audit, err := round.New(setting).Round(ctx)
	bar.Finish()
	if err != nil {
		return nil, clouds.CloudError(err)
	}
	doc := view.NewScan(audit, view.ScanOptions{Version: f.Version, Profile: f.Profile})
	if err := show(doc, keeps); err != nil {
		return nil, err
	}
	out := &Audited{Result: audit}
	in := PlanInput{Result: audit, Cloud: doc.Cloud, Book: setting.Prices}
	if f.Plan != nil {
		in.PlanOptions = *f.Plan
	}
	var unplanned error
	if keeps {
		if unplanned, err = keep(ctx, state, in, &doc, cfg.Tags); err != nil {
			return nil, err
		}
		if doc.Kept != nil {
			out.Plan = doc.Kept.Plan
		}
	}
	switch {
	case unplanned != nil:
		return out, notPlanned(unplanned)
	case out.Plan == nil && f.Plan != nil:
		if out.Plan, err = planUnkept(ctx, req, cfg, state, in); err != nil {
			return out, err
		}
	}
	if len(audit.Unposted) > 0 {
		return out, Unposted(audit, "what was shown is complete")
	}
	return out, nil
}

// keep keeps an audit with its plan. Unplanned is the reason for the absence of the plan.
func keep(ctx context.Context, state *openedState, in PlanInput, doc *view.Scan, tags inventory.TagMapping) (
	unplanned, err error) {
	s, err := state.opened(ctx)
	if err == nil {
		if !clouds.Of(doc.Cloud).Simulated {
			in.Ledger = s.Ledger()
		}
		unplanned = AddPlan(ctx, in, doc)
		err = SaveScan(ctx, s, in.Result, *doc, tags, false)
	}
	if err != nil {
		return nil, &runtime.Error{Code: "not_saved", Err: fmt.Errorf("keep the findings: %w", err),
			Hint: "the audit itself is complete; give --data-dir, or --no-save to keep nothing"}
	}
	return unplanned, nil
}

// planUnkept plans the account of an audit that is not kept, on the ledger of the state, if there is one.
func planUnkept(ctx context.Context, req *runtime.Request, cfg config.Config, state *openedState, in PlanInput) (
	*accountplan.Account, error) {
	if !clouds.Of(in.Cloud).Simulated && req.Storage.Exists(cfg) {
		s, err := state.opened(ctx)
		if err != nil {
			return nil, err
		}
		in.Ledger = s.Ledger()
	}
	plan, err := PlanAccount(ctx, in)
	if err != nil {
		return nil, err
	}
	return &plan, nil
}

// notPlanned is the error of a complete audit without its plan.
func notPlanned(err error) error {
	return &runtime.Error{
		Class: runtime.Partial, Code: "not_planned", Err: err,
		Hint: "the audit itself is complete and kept; `curfew plan account` plans again",
	}
}

// SetAudit makes a setting one that audits an account of a cloud.
func SetAudit(req *runtime.Request, cfg config.Config, setting *round.Setting, cloud string, billed *round.Bill) (
	err error) {
	setting.Source, setting.Query = "scan", round.Query{Window: cfg.Scan.Window}
	if cfg.Thresholds.Interruptions, err = req.Interruptions(cfg); err != nil {
		return err
	}
	if cfg.Thresholds.Advisor, err = req.Advisor(cfg.Spot.Advisor); err != nil {
		return err
	}
	setting.Audit = &round.Audit{
		Thresholds: cfg.Thresholds, Rules: clouds.RulesOf(cloud), Required: cfg.RequiredTags, Owners: cfg.Owners,
		ReadData: cfg.ReadData,
		Tags:     cfg.Tags, Bill: billed,
	}
	return nil
}

// readAuditedBill reads the bill that --bill names; nil without one.
func readAuditedBill(ctx context.Context, req *runtime.Request, cfg config.Config, f ScanOptions) (*round.Bill,
	error) {
	if f.Bill == "" {
		return nil, nil
	}
	var rows iter.Seq[bill.Row]
	var broken error
	if f.Bill == importedBill {
		s, err := req.Open(ctx, cfg)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		rows = bill.RowsOf(ctx, s.Bills(), bill.Query{From: req.Now().UTC().AddDate(0, 0, -billedDays)}, &broken)
	} else {
		b, err := spend.ReadBill(ctx, req, cfg, spend.BillSource{Path: f.Bill, Profile: f.Profile})
		if err != nil {
			return nil, err
		}
		rows = b.Rows()
	}
	out, err := round.NewBill(rows, f.Cloud, f.Bill)
	if err := errors.Join(err, broken); err != nil {
		return nil, fmt.Errorf("add up the bill: %w", err)
	}
	return out, nil
}

// openedState is the state, which is opened when the first charges come: an audit is shown
// also where there is none.
type openedState struct {
	open  func(ctx context.Context) (*store.Store, error)
	state *store.Store
}

func (o *openedState) opened(ctx context.Context) (_ *store.Store, err error) {
	if o.state == nil {
		if o.state, err = o.open(ctx); err != nil {
			o.state = nil
			return nil, err
		}
	}
	return o.state, nil
}

// Post implements round.Books.
func (o *openedState) Post(ctx context.Context, seen ledger.Seen) error {
	s, err := o.opened(ctx)
	if err != nil {
		return err
	}
	return ledger.Journal{Store: s.Ledger()}.Post(ctx, seen)
}

func (o *openedState) close() {
	if o.state != nil {
		o.state.Close()
	}
}

// Unposted names the accounts that could not be charged, and the results that are valid regardless.
func Unposted(r *round.Result, holds string) error {
	var errs []error
	for _, account := range slices.Sorted(maps.Keys(r.Unposted)) {
		errs = append(errs, fmt.Errorf("%s: %w", account, r.Unposted[account]))
	}
	return &runtime.Error{
		Class: runtime.Partial, Code: "not_recorded", Err: fmt.Errorf("record the pass in the ledger: %w",
			errors.Join(errs...)),
		Hint: holds + "; the next pass charges for the time where the provider states when a resource started"}
}

// importedBill names, in place of a path, what was imported before, of which the newest
// billedDays are read.
const (
	importedBill = "imported"
	billedDays   = 60
)
