package cli

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

// service is what has the state: this machine ([thisMachine]) or a server ([remote]). Both answer
// with the same documents, so that a command is the same wherever the state is.
type service interface {
	keeper
	freezer
	fuser
	decider
	holder
	accountant
	biller
	gatekeeper
	settler
	tokener
	auditor
	fixer
	policer
	sessioner
}

type keeper interface {
	Keeps(ctx context.Context) (view.Keeps, error)
	Exempt(ctx context.Context, f daemon.Source, name, duration, reason string) (view.Keep, error)
}

type freezer interface {
	Freeze(ctx context.Context, reason string, on bool) (view.Freeze, error)
}

type fuser interface {
	Fuses(ctx context.Context) (view.Fuses, error)
	Confirm(ctx context.Context, policy, account, duration, reason string) (view.Fuses, error)
}

type decider interface {
	Approvals(ctx context.Context, id string, all bool) (view.Approvals, time.Time, error)
	Decide(ctx context.Context, id string, allow bool, reason, proof string) (view.Decision, error)
	Whoami(ctx context.Context) (view.Whoami, error)
}

type holder interface {
	Budgets(ctx context.Context) (view.Budgets, error)
	Holds(ctx context.Context, period daemon.Period) (view.Holds, time.Time, error)
	ChangeHold(ctx context.Context, id string, do holdChange) (view.OneHold, error)
}

type accountant interface {
	Costs(ctx context.Context, f daemon.CostsQuery) (view.Costs, error)
	Units(ctx context.Context, f daemon.UnitsQuery, names []string) (view.Units, error)
	Shares(ctx context.Context, name, text string, period daemon.Period) (view.Shares, error)
	TenantShares(ctx context.Context, f daemon.Source, period daemon.Period, by string) (view.Shares, error)
}

type biller interface {
	BillImport(ctx context.Context, path, profile string, dry bool) (view.Bill, error)
	BillShow(ctx context.Context, f daemon.Period, by bill.Dimension, basis bill.Basis) (view.BillShow, error)
	Reconcile(ctx context.Context, f daemon.Period, basis bill.Basis, post bool) (view.Reconciliation, error)
}

type gatekeeper interface {
	Estimated(ctx context.Context, name string, f daemon.EstimateOptions) (view.Estimate, error)
	Gate(ctx context.Context, name string, f daemon.GateOptions) (view.Gate, error)
	GateReport(ctx context.Context, period daemon.Period) (view.GateReport, error)
}

type settler interface {
	Settings(ctx context.Context) (view.Settings, error)
	SetSettings(ctx context.Context, name, prices, reason string) (view.SettingsSet, error)
}

type tokener interface {
	CreateToken(ctx context.Context, o daemon.TokenOptions) (view.NewToken, error)
	Tokens(ctx context.Context) (view.Tokens, error)
	RevokeToken(ctx context.Context, id string) (view.OneToken, error)
}

type auditor interface {
	Entries(ctx context.Context, q action.Query, each func(view.AuditEntry) error) error
	VerifyAudit(ctx context.Context, anchor, profile string) (view.Verified, error)
}

type fixer interface {
	FixPreviews(ctx context.Context, ids []string, o daemon.FixOptions) ([]view.Fix, error)
	CarryOut(ctx context.Context, ids []string, f daemon.FixOptions, show func(view.Fixes) error) error
	Undo(ctx context.Context, ids []string, f daemon.Source, enforce bool, show func(view.Undo) error) error
}

type policer interface {
	PolicyCheck(ctx context.Context, files []string, against string) (view.PolicyCheck, error)
	LastScan(ctx context.Context, cfg config.Config, cloud string) (view.Scan, error)
}

// holdChange is what is done with a reservation: settle with an actual amount or what the
// ledger charged, release, or extend to an amount and a length.
type holdChange struct {
	verb   string
	actual *money.Amount
	amount money.Amount
	length time.Duration
}

// thisMachine is the state of this machine.
type thisMachine struct{ *daemon.Runtime }

var _ service = thisMachine{}

// ChangeHold implements holder.
func (l thisMachine) ChangeHold(ctx context.Context, id string, do holdChange) (view.OneHold, error) {
	act := map[string]daemon.HoldAction{"settle": daemon.Settle(do.actual), "release": daemon.Release, "extend": daemon.Extend(do.amount, do.length)}[do.verb]
	return l.Hold(ctx, do.verb, id, act)
}

// Estimated implements gatekeeper.
func (l thisMachine) Estimated(ctx context.Context, name string, f daemon.EstimateOptions) (view.Estimate, error) {
	cfg, err := l.Config()
	if err != nil {
		return view.Estimate{}, err
	}
	e, err := l.Estimate(ctx, cfg, name, f)
	if err != nil {
		return view.Estimate{}, err
	}
	return view.NewEstimate(e), nil
}
