package spend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// desk returns the desk of the configured budgets with their state.
func desk(cfg config.Config, s *store.Store) (budget.Desk, error) {
	set, err := budget.NewSet(cfg.Budgets, cfg.Quotas)
	if err != nil {
		return budget.Desk{}, fmt.Errorf("budgets: %w", err)
	}
	return budget.Desk{Store: s.Budgets(), Set: set}, nil
}

// Budgets returns the status of each budget in force.
func Budgets(ctx context.Context, req *runtime.Request) (view.Budgets, error) {
	all, now, err := budgetsInForce(ctx, req)
	if err != nil {
		return view.Budgets{}, err
	}
	return view.NewBudgets(all, now), nil
}

// budgetsInForce returns the status of each budget in force at the time of the state.
func budgetsInForce(ctx context.Context, req *runtime.Request) (all []budget.Status, now time.Time, err error) {
	cfg, _, s, err := req.InForce(ctx)
	if err != nil {
		return nil, now, err
	}
	defer s.Close()
	if len(cfg.Budgets) == 0 {
		return nil, now, NoBudgets()
	}
	if now, err = req.StateTime(ctx, s); err != nil {
		return nil, now, err
	}
	all, err = statuses(ctx, cfg, s, now)
	return all, now, err
}

// NoBudgets returns the error that no budget is in force.
func NoBudgets() error {
	return &runtime.Error{
		Class: runtime.Usage, Code: "no_budgets", Err: errors.New("no budget is given"),
		Hint: "add budgets to curfew.yaml; docs/budgets.md has examples",
	}
}

// statuses returns the status of each budget of a configuration.
func statuses(ctx context.Context, cfg config.Config, s *store.Store, now time.Time) ([]budget.Status, error) {
	d, err := desk(cfg, s)
	if err != nil {
		return nil, err
	}
	all, err := d.Statuses(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("read where the budgets stand: %w", err)
	}
	return all, nil
}

// Holds returns the reservations of a period, and the time of the state.
func Holds(ctx context.Context, req *runtime.Request, period runtime.Period) (view.Holds, time.Time, error) {
	fail := func(err error) (view.Holds, time.Time, error) { return view.Holds{}, time.Time{}, err }
	_, s, err := req.State(ctx)
	if err != nil {
		return fail(err)
	}
	defer s.Close()
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return fail(err)
	}
	since, until, err := period.Bounds(now)
	if err != nil {
		return fail(err)
	}
	holds, err := s.Budgets().Holds(ctx, since, until)
	if err != nil {
		return fail(fmt.Errorf("list the holds: %w", err))
	}
	missed, err := (budget.Desk{Store: s.Budgets()}).Unobserved(ctx, holds, now)
	if err != nil {
		return fail(fmt.Errorf("read what was charged under the holds: %w", err))
	}
	return view.NewHolds(holds, missed, now), now, nil
}

// HoldAction is the action of a command on one hold; if it returns a decision, the hold is
// unchanged.
type HoldAction func(ctx context.Context, p gate.Params, id, who string) (budget.Hold, *gate.Decision, error)

// Hold applies an action to one hold, by its id or a prefix of it.
func Hold(ctx context.Context, req *runtime.Request, verb, id string, do HoldAction) (view.OneHold, error) {
	var none view.OneHold
	cfg, by, s, err := req.InForce(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	asker, err := identity.Asker(ctx, req, cfg, by)
	if err != nil {
		return none, err
	}
	p, err := GateParams(ctx, req, cfg, by, s)
	if err != nil {
		return none, err
	}
	p.AskedProof = asker.Proof
	h, d, err := do(ctx, p, id, asker.Name)
	var over *budget.Overdrawn
	switch {
	case errors.As(err, &over):
		return none, &runtime.Error{Class: runtime.Denied, Code: "over_budget", Err: err}
	case errors.Is(err, budget.ErrNotFound):
		return none, &runtime.Error{
			Code: "not_found", Err: fmt.Errorf("there is no hold whose id begins with %q", id),
			Hint: "`curfew budget holds` lists them",
		}
	case err != nil:
		return none, err
	case d != nil && d.Decision == gate.Held:
		return none, &runtime.Error{
			Class: runtime.Held, Code: "needs_approval",
			Err:  fmt.Errorf("%s hold %s: %s", verb, id, strings.Join(d.Reasons, "; ")),
			Hint: "another person runs `curfew approve " + d.ApprovalID + "`, then give the command again"}
	case d != nil && d.Decision != gate.Allow:
		return none, &runtime.Error{
			Class: runtime.Denied, Code: "denied",
			Err: fmt.Errorf("%s hold %s: %s", verb, id, strings.Join(d.Reasons, "; ")),
		}
	}
	return view.NewOneHold(h, p.Now), nil
}

// Settle returns the action that settles a hold with an amount, or with its charges in the ledger
// if the amount is nil.
func Settle(actual *money.Amount) HoldAction {
	return func(ctx context.Context, p gate.Params, id, who string) (budget.Hold, *gate.Decision, error) {
		if actual != nil {
			h, err := p.Budgets.Settle(ctx, id, *actual, who, p.Now)
			return h, nil, err
		}
		h, err := p.Budgets.Store.Hold(ctx, id)
		if err != nil {
			return h, nil, err
		}
		spent, err := p.Budgets.Store.Spent(ctx, budget.Match{}, h.From.Truncate(time.Hour), p.Now.Add(time.Hour))
		if err != nil {
			return h, nil, fmt.Errorf("read what was charged under hold %s: %w", h.ID, err)
		}
		v, charged := spent.ByHold[h.ID]
		if !charged {
			return h, nil, &runtime.Error{
				Code: "not_charged", Err: fmt.Errorf("the ledger has charged nothing under hold %s", h.ID),
				Hint: "give --actual DOLLARS, or run `curfew scan` so that machines with the tag " +
					inventory.TagHold + "=" +
					h.ID + " are charged"}
		}
		h, err = p.Budgets.Settle(ctx, h.ID, v, who, p.Now)
		return h, nil, err
	}
}

// Release releases the hold of work that did not start.
func Release(ctx context.Context, p gate.Params, id, who string) (budget.Hold, *gate.Decision, error) {
	h, err := p.Budgets.Release(ctx, id, who, p.Now)
	return h, nil, err
}

// Extend returns the action that asks the gate whether a running run may cost an amount in total
// and run for a time.
func Extend(amount money.Amount, length time.Duration) HoldAction {
	return func(ctx context.Context, p gate.Params, id, who string) (budget.Hold, *gate.Decision, error) {
		if length > budget.MaxRun {
			return budget.Hold{}, nil, runtime.Invalid("extend hold %s: a hold is for a run of at most %d days", id,
				budget.MaxRun/(24*time.Hour))
		}
		decision, err := gate.Extend(ctx, id, amount, p.Now.Add(length), who, p)
		if err != nil || decision.Decision != gate.Allow {
			return budget.Hold{}, &decision, err
		}
		h, err := p.Budgets.Store.Hold(ctx, id)
		return h, nil, err
	}
}

// GateParams returns the inputs of gate decisions.
func GateParams(ctx context.Context, req *runtime.Request, cfg config.Config, by view.Decider, s *store.Store) (
	gate.Params, error) {
	limit, err := cfg.Gate.Limit()
	if err != nil {
		return gate.Params{}, runtime.Invalid("gate.ask_over: %w", err)
	}
	budgets, err := desk(cfg, s)
	if err != nil {
		return gate.Params{}, err
	}
	if err := checkQuotas(req, cfg, budgets.Set.Quotas()); err != nil {
		return gate.Params{}, err
	}
	now, err := req.InTime(ctx, s)
	if err != nil {
		return gate.Params{}, err
	}
	declared := by.Advisory || cfg.Approvals.Accepts(approval.SelfDeclared)
	return gate.Params{
		Desk: approval.Desk{
			Store: s.Approvals(), Known: cfg.Known, Check: identity.CheckProof(req, cfg, declared, nil),
		},
		Settings: by.String(), Budgets: budgets, Store: s.Gate(),
		Threshold: limit, Roles: cfg.Gate.Roles, Expiry: cfg.Gate.Expiry, Now: now,
		Transact: func(ctx context.Context, do func(gate.Stores) error) error {
			return s.Transact(ctx, func(in *store.Store) error {
				return do(gate.Stores{Approvals: in.Approvals(), Budgets: in.Budgets(), Decisions: in.Gate()})
			})
		}}, nil
}

// checkQuotas returns an error for a quota on GPUs that no price book contains, which would limit
// nothing.
func checkQuotas(req *runtime.Request, cfg config.Config, quotas []budget.Quota) error {
	book, err := req.PriceBook(cfg)
	if err != nil {
		return err
	}
	for _, q := range quotas {
		for _, kind := range slices.Sorted(maps.Keys(q.GPUs)) {
			if !slices.ContainsFunc(book.Accelerators(), func(g price.Accelerator) bool {
				return budget.IsGPU(kind, g.Name)
			}) {
				return runtime.Invalid("quotas: %s: there is no GPU %q%s; `curfew price list` shows those there are",
					q.ID, kind,
					book.DidYouMean(kind))
			}
		}
	}
	return nil
}

// Facts returns the facts of a resource in the state: its budgets, and the difference of its actual
// price from the list price.
func Facts(ctx context.Context, cfg config.Config, s *store.Store, now time.Time) (func(*policy.Facts), error) {
	var know []func(*policy.Facts)
	if len(cfg.Budgets) > 0 {
		d, err := desk(cfg, s)
		if err != nil {
			return nil, err
		}
		all, err := d.Statuses(ctx, now)
		if err != nil {
			return nil, fmt.Errorf("read where the budgets stand: %w", err)
		}
		know = append(know, round.BudgetFacts(all))
	}
	drift, err := costs.Comparison{Bills: s.Bills(), Ledger: s.Ledger()}.PriceDrift(ctx, now)
	if err != nil {
		return nil, err
	}
	if drift != nil {
		know = append(know, func(f *policy.Facts) { f.PriceDrift = drift(f.Resource) })
	}
	return func(f *policy.Facts) {
		for _, add := range know {
			add(f)
		}
	}, nil
}
