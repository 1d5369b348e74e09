package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

func (a *app) newBudget() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "budget",
		Short: "Show each budget: spent, reserved, remaining, and the forecast",
		Long: `Shows the budgets of curfew.yaml: what was charged, what is held for work that was
admitted, what is left, and a forecast to the end of the period with its range.`,
		Example: `  curfew budget
  curfew budget -o html > budgets.html
  curfew budget holds
  curfew budget settle 4f1c --actual 38.20
  curfew budget release 4f1c`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, planOutputs...); err != nil {
				return err
			}
			return a.budgets(c.Context(), output)
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html or md")
	c.AddCommand(a.newHolds(), a.newSettle(), a.newRelease(), a.newExtend())
	return c
}

// desk is the budgets of the configuration over the state.
func desk(cfg config.Config, s *store.Store) (budget.Desk, error) {
	set, err := budget.NewSet(cfg.Budgets, cfg.Quotas)
	if err != nil {
		return budget.Desk{}, fmt.Errorf("budgets: %w", err)
	}
	return budget.Desk{Store: s.Budgets(), Set: set}, nil
}

func (a *app) budgets(ctx context.Context, output string) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = a.governed(ctx, cfg, s); err != nil {
		return err
	}
	if len(cfg.Budgets) == 0 {
		return &failure{exit: ExitUsage, code: "no_budgets", err: errors.New("no budget is given"), hint: "add budgets to curfew.yaml; docs/budgets.md has examples"}
	}
	d, err := desk(cfg, s)
	if err != nil {
		return err
	}
	now, err := a.stateTime(ctx, s)
	if err != nil {
		return err
	}
	all, err := d.Statuses(ctx, now)
	if err != nil {
		return fmt.Errorf("read where the budgets stand: %w", err)
	}
	doc := view.NewBudgets(all, now)
	return a.show(output, doc, func() report.Sheet { return report.Budgets(doc) })
}

func (a *app) newHolds() *cobra.Command {
	var f periodFlags
	var output string
	c := &cobra.Command{
		Use:   "holds",
		Short: "List reservations of budget for approved work",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", output, planOutputs...); err != nil {
				return err
			}
			return a.holds(c.Context(), f, output)
		},
	}
	f.add(c, "30d")
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json, html or md")
	return c
}

func (a *app) holds(ctx context.Context, f periodFlags, output string) error {
	_, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	now, err := a.stateTime(ctx, s)
	if err != nil {
		return err
	}
	since, until, err := f.bounds(now)
	if err != nil {
		return err
	}
	holds, err := s.Budgets().Holds(ctx, since, until)
	if err != nil {
		return fmt.Errorf("list the holds: %w", err)
	}
	missed, err := (budget.Desk{Store: s.Budgets()}).Unobserved(ctx, holds, now)
	if err != nil {
		return fmt.Errorf("read what was charged under the holds: %w", err)
	}
	doc := view.NewHolds(holds, missed, now)
	return a.show(output, doc, func() report.Sheet { return report.Holds(doc, now) })
}

// holdAction is what a command does with one hold; where it returns a decision, nothing is
// done.
type holdAction func(ctx context.Context, p gate.Params, id, who string) (budget.Hold, *gate.Decision, error)

// holdCommand is a command about one hold.
func (a *app) holdCommand(c *cobra.Command, do holdAction) *cobra.Command {
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError("%s takes the id of one hold; `curfew budget holds` lists them", c.CommandPath())
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, args []string) error { return a.withHold(c.Context(), c.Name(), args[0], do) }
	return c
}

func (a *app) withHold(ctx context.Context, verb, id string, do holdAction) error {
	cfg, s, err := a.state(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	cfg, by, err := a.governed(ctx, cfg, s)
	if err != nil {
		return err
	}
	asker, err := a.rt.Asker(ctx, cfg, by)
	if err != nil {
		return err
	}
	p, err := a.gateParams(ctx, cfg, by, s)
	if err != nil {
		return err
	}
	p.AskedProof = asker.Proof
	who := asker.Name
	h, d, err := do(ctx, p, id, who)
	var over *budget.Overdrawn
	switch {
	case errors.As(err, &over):
		return &failure{exit: ExitDenied, code: "over_budget", err: err}
	case errors.Is(err, budget.ErrNotFound):
		return &failure{exit: ExitError, code: "not_found", err: fmt.Errorf("there is no hold whose id begins with %q", id), hint: "`curfew budget holds` lists them"}
	case err != nil:
		return err
	case d != nil && d.Decision == gate.Held:
		return &failure{exit: ExitHeld, code: "needs_approval", err: fmt.Errorf("%s hold %s: %s", verb, id, strings.Join(d.Reasons, "; ")),
			hint: "another person runs `curfew approve " + d.ApprovalID + "`, then give the command again"}
	case d != nil && d.Decision != gate.Allow:
		return &failure{exit: ExitDenied, code: "denied", err: fmt.Errorf("%s hold %s: %s", verb, id, strings.Join(d.Reasons, "; "))}
	}
	if err := s.Actions().Record(ctx, holdEntry(p.Now, who, "hold-"+verb, h)); err != nil {
		return fmt.Errorf("record what became of hold %s: %w", h.ID, err)
	}
	amount := h.Amount
	if h.State == budget.Settled {
		amount = h.Actual
	}
	plain.Fprintf(a.Stdout, "%s %s: %s %s, %s\n", h.ID, h.At(p.Now), h.Kind, h.Name, amount.Exact())
	return nil
}

func (a *app) newSettle() *cobra.Command {
	var actual string
	c := &cobra.Command{
		Use:   "settle HOLD",
		Short: "Settle a reservation with the actual cost of its run, and free the rest",
		Long: `Ends a hold by what the ledger charged to machines with the tag curfew:hold=HOLD, or by
--actual. What it came to goes on counting until the ledger has charged as much.`,
		Example: "  curfew budget settle 4f1c\n  curfew budget settle 4f1c --actual 38.20",
	}
	c.Flags().StringVar(&actual, "actual", "", "what the run came to, in `dollars` (default: what the ledger charged)")
	return a.holdCommand(c, func(ctx context.Context, p gate.Params, id, _ string) (budget.Hold, *gate.Decision, error) {
		if actual != "" {
			v, err := amountFlag("actual", actual)
			if err != nil {
				return budget.Hold{}, nil, err
			}
			h, err := p.Budgets.Settle(ctx, id, v, p.Now)
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
			return h, nil, &failure{exit: ExitError, code: "not_charged", err: fmt.Errorf("the ledger has charged nothing under hold %s", h.ID),
				hint: "give --actual DOLLARS, or run `curfew scan` so that machines with the tag " + inventory.TagHold + "=" + h.ID + " are charged"}
		}
		h, err = p.Budgets.Settle(ctx, h.ID, v, p.Now)
		return h, nil, err
	})
}

func (a *app) newRelease() *cobra.Command {
	c := &cobra.Command{Use: "release HOLD", Short: "Release the reservation of work that did not start", Example: "  curfew budget release 4f1c"}
	return a.holdCommand(c, func(ctx context.Context, p gate.Params, id, _ string) (budget.Hold, *gate.Decision, error) {
		h, err := p.Budgets.Release(ctx, id, p.Now)
		return h, nil, err
	})
}

func (a *app) newExtend() *cobra.Command {
	var amount, length string
	c := &cobra.Command{
		Use:   "extend HOLD --amount DOLLARS --for DURATION",
		Short: "Extend a reservation by the rules of the gate",
		Long: `Asks the gate whether a live run may cost an amount in total and run for a time. Over the
threshold, and over the amount that was admitted, an approver has to approve.`,
		Example: "  curfew budget extend 4f1c --amount 120 --for 12h   # exit code 3: it needs an approval",
	}
	c.Flags().StringVar(&amount, "amount", "", "what it may cost in all, in `dollars`")
	c.Flags().StringVar(&length, "for", "", "how long from now it may run")
	return a.holdCommand(c, func(ctx context.Context, p gate.Params, id, who string) (budget.Hold, *gate.Decision, error) {
		v, err := amountFlag("amount", amount)
		if err != nil {
			return budget.Hold{}, nil, err
		}
		d, err := durationFlag("for", length)
		if err != nil {
			return budget.Hold{}, nil, err
		}
		decision, err := gate.Extend(ctx, id, v, p.Now.Add(d), who, p)
		if err != nil || decision.Decision != gate.Allow {
			return budget.Hold{}, &decision, err
		}
		h, err := p.Budgets.Store.Hold(ctx, id)
		return h, nil, err
	})
}

// amountFlag reads an amount of dollars.
func amountFlag(flag, text string) (money.Amount, error) {
	v, err := money.ParseAmount(strings.TrimPrefix(text, "$"))
	if err != nil || v < 0 {
		return 0, usageError("--%s %q: it is an amount of dollars such as 38.20", flag, text)
	}
	return v, nil
}

// budgetFacts returns what adds where a resource's budgets stand to what is known of it;
// nil where no budget is given.
func budgetFacts(ctx context.Context, cfg config.Config, s *store.Store, now time.Time) (func(*policy.Facts), error) {
	if len(cfg.Budgets) == 0 {
		return nil, nil
	}
	d, err := desk(cfg, s)
	if err != nil {
		return nil, err
	}
	all, err := d.Statuses(ctx, now)
	if err != nil {
		return nil, fmt.Errorf("read where the budgets stand: %w", err)
	}
	return round.Budgets(all), nil
}
