package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

// checkPeriod refuses an invalid period.
func checkPeriod(c *Call, p runtime.Period, standard string) error {
	_, _, err := p.Or(standard).Bounds(c.Request.Now())
	return err
}

// ListBudgets shows the budgets.
var ListBudgets = declare(Operation[None, view.Budgets]{
	Info: Info{ID: "list-budgets", Method: get, Path: "budgets", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show where the budgets stand", Schema: view.BudgetSchema,
		Command: "budget", Why: "budgets are those of the state",
		Flags: demoFlags},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.Budgets], error) {
		return reply(c.budgets(ctx))
	},
})

// GetBudget shows one budget.
var GetBudget = declare(Operation[ByID, view.Budgets]{
	Info: Info{ID: "get-budget", Method: get, Path: "budgets/{id}", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show one budget", Schema: view.BudgetSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.Budgets], error) {
		doc, err := c.budgets(ctx)
		if err != nil {
			return reply(doc, err)
		}
		doc.Budgets = only(doc.Budgets, func(b view.Budget) bool { return b.ID == in.ID })
		if len(doc.Budgets) == 0 {
			return reply(view.Budgets{}, missing("budget", in.ID))
		}
		return reply(doc, nil)
	},
})

// budgets returns the budgets that the caller may see; having none is not an error.
func (c *Call) budgets(ctx context.Context) (view.Budgets, error) {
	doc, err := spend.Budgets(ctx, c.Request)
	var none *runtime.Error
	if errors.As(err, &none) && none.Code == "no_budgets" {
		return view.NewBudgets(nil, c.Request.Now()), nil
	}
	if _, all := c.Teams(approval.RoleViewer); err != nil || all {
		return doc, err
	}
	doc.Budgets = only(doc.Budgets, func(b view.Budget) bool { return c.Sees(approval.RoleViewer, b.Match.Team) })
	doc.CoverageNotes, doc.Changes = []string{}, []string{} // they name other budgets
	return doc, nil
}

// HoldsInput selects reservations.
type HoldsInput struct {
	runtime.Period
	Paging
}

// ListHolds lists budget reservations.
var ListHolds = declare(Operation[HoldsInput, view.Holds]{
	Info: Info{ID: "list-holds", Method: get, Path: "holds", Role: approval.RoleViewer, Scoped: true,
		Summary: "List the budget reservations of a period", Schema: view.HoldsSchema,
		Command: "budget holds", Why: "reservations are in the state",
		Flags: demoFlags},
	FlagDefaults: map[string]string{"since": "30d"},
	List: listOf(func(d *view.Holds) *[]view.Hold {
		return &d.Holds
	}, func(h view.Hold) string { return h.ID }),
	Do: func(ctx context.Context, c *Call, in HoldsInput) (Reply[view.Holds], error) {
		return c.holds(ctx, in.Or("month"), approval.RoleViewer)
	},
})

// holds returns the reservations that the caller may see.
func (c *Call) holds(ctx context.Context, p runtime.Period, role string) (Reply[view.Holds], error) {
	doc, now, err := spend.Holds(ctx, c.Request, p)
	if err == nil {
		doc.Holds = only(doc.Holds, func(h view.Hold) bool { return c.Sees(role, h.Owner.Team) })
	}
	return Reply[view.Holds]{Doc: doc, At: now}, err
}

// changeHold changes one reservation that the caller may change.
func (c *Call) changeHold(ctx context.Context, verb, id string, change spend.HoldAction) (Reply[view.OneHold], error) {
	if _, all := c.Teams(approval.RoleUser); !all {
		mine, err := c.holds(ctx, runtime.Period{Since: "366d"}, approval.RoleUser)
		if err != nil {
			return Reply[view.OneHold]{}, err
		}
		if len(only(mine.Doc.Holds, func(h view.Hold) bool { return strings.HasPrefix(h.ID, id) })) != 1 {
			return Reply[view.OneHold]{}, missing("hold", id)
		}
	}
	return reply(spend.Hold(ctx, c.Request, verb, id, change))
}

// SettleInput settles a reservation.
type SettleInput struct {
	ByID
	Body struct {
		ActualUSD string `json:"actual_usd,omitempty" pattern:"^[0-9]{1,9}(\\.[0-9]{1,9})?$" example:"12.50" doc:"What was spent; without it what the ledger charged." flag:"actual" help:"what the run came to, in <dollars> (default: what the ledger charged)"`
	}
}

func (in SettleInput) actual() (*money.Amount, error) {
	if in.Body.ActualUSD == "" {
		return nil, nil
	}
	v, err := ParseDollars("actual", in.Body.ActualUSD)
	return &v, err
}

// SettleHold ends a reservation with its actual cost.
var SettleHold = declare(Operation[SettleInput, view.OneHold]{
	Info: Info{ID: "settle-hold", Method: post, Path: "holds/{id}/settle", Role: approval.RoleUser, Scoped: true,
		Summary: "Settle a reservation with the amount spent", Schema: view.HoldSchema,
		Command: "budget settle", Why: "reservations are in the state"},
	Send: func(_ context.Context, _ *Call, in *SettleInput) error {
		actual, err := in.actual()
		if actual != nil {
			in.Body.ActualUSD = actual.String()
		}
		return err
	},
	Do: func(ctx context.Context, c *Call, in SettleInput) (Reply[view.OneHold], error) {
		actual, err := in.actual()
		if err != nil {
			return Reply[view.OneHold]{}, err
		}
		return c.changeHold(ctx, "settle", in.ID, spend.Settle(actual))
	},
})

// ReleaseHold frees a reservation.
var ReleaseHold = declare(Operation[ByID, view.OneHold]{
	Info: Info{ID: "release-hold", Method: post, Path: "holds/{id}/release", Role: approval.RoleUser, Scoped: true,
		Summary: "Free the reservation of work that did not start", Schema: view.HoldSchema,
		Command: "budget release", Why: "reservations are in the state"},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.OneHold], error) {
		return c.changeHold(ctx, "release", in.ID, spend.Release)
	},
})

// ExtendInput extends a reservation.
type ExtendInput struct {
	ByID
	Body struct {
		AmountUSD string `json:"amount_usd" pattern:"^[0-9]{1,9}(\\.[0-9]{1,9})?$" example:"25" doc:"What it may cost in all." flag:"amount" help:"what it may cost in all, in <dollars>"`
		For       string `json:"for" minLength:"1" maxLength:"20" example:"24h" doc:"How long it may run in all: 24h." flag:"for" help:"how long from now it may run"`
	}
}

func (in ExtendInput) change() (amount money.Amount, change spend.HoldAction, err error) {
	if amount, err = ParseDollars("amount", in.Body.AmountUSD); err != nil {
		return 0, nil, err
	}
	length, err := config.ParseDuration(in.Body.For)
	if err != nil || length <= 0 {
		return 0, nil, usage(fmt.Errorf("--for %q: it is a duration such as 12h", in.Body.For))
	}
	return amount, spend.Extend(amount, length), nil
}

// ExtendHold asks the gate to let a run cost more or run longer.
var ExtendHold = declare(Operation[ExtendInput, view.OneHold]{
	Info: Info{ID: "extend-hold", Method: post, Path: "holds/{id}/extend", Role: approval.RoleUser, Scoped: true,
		Summary: "Ask whether a live run may cost more or run longer", Schema: view.HoldSchema,
		Command: "budget extend", Why: "reservations are in the state"},
	Send: func(_ context.Context, _ *Call, in *ExtendInput) error {
		amount, _, err := in.change()
		if err == nil {
			in.Body.AmountUSD = amount.String()
		}
		return err
	},
	Do: func(ctx context.Context, c *Call, in ExtendInput) (Reply[view.OneHold], error) {
		_, change, err := in.change()
		if err != nil {
			return Reply[view.OneHold]{}, err
		}
		return c.changeHold(ctx, "extend", in.ID, change)
	},
})

// costsOf restricts a query to the costs that the caller may see.
func (c *Call) costsOf(q spend.CostsQuery) (spend.CostsQuery, error) {
	q.Period = q.Or("month")
	if teams, all := c.Teams(approval.RoleViewer); !all {
		for _, t := range teams {
			if strings.ContainsAny(t, ",=") {
				return q, denied("forbidden", "the team "+t+" cannot be distinguished from others", "")
			}
		}
		q.Where = append(slices.Clone(q.Where), "team="+strings.Join(teams, ","))
	}
	return q, nil
}

// GetCosts shows charges of the ledger.
var GetCosts = declare(Operation[spend.CostsQuery, view.Costs]{
	Info: Info{ID: "get-costs", Method: get, Path: "costs", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show what the ledger charged, by dimensions", Schema: view.CostsSchema,
		Command: "costs", Why: "the ledger is in the state",
		Flags: demoFlags},
	FlagDefaults: map[string]string{"since": "month", "by": "team"},
	Send: func(_ context.Context, c *Call, in *spend.CostsQuery) error {
		q, err := c.costsOf(*in)
		if err == nil {
			err = q.Check(c.Request.Now())
		}
		return err
	},
	Do: func(ctx context.Context, c *Call, in spend.CostsQuery) (Reply[view.Costs], error) {
		q, err := c.costsOf(in)
		if err != nil {
			return Reply[view.Costs]{}, err
		}
		if err := q.Check(c.Request.Now()); err != nil {
			return Reply[view.Costs]{}, err
		}
		cfg, s, err := c.Request.State(ctx)
		if err != nil {
			return Reply[view.Costs]{}, err
		}
		defer s.Close()
		doc, err := spend.Costs(ctx, s, c.Request.Now(), q)
		if err == nil {
			err = audit.AddCostProgress(ctx, s, cfg.Tags, &doc)
		}
		return reply(doc, err)
	},
})

// UnitsInput selects unit costs.
type UnitsInput struct {
	runtime.Period
	By          string   `query:"by" maxLength:"200" doc:"Dimensions, separated by commas." flag:"by" help:"the dimension that the keys of --counts are values of: project"`
	Granularity string   `query:"granularity" enum:"hour,day,month,total" default:"total" flag:"granularity" help:"hour, day, month or total"`
	Where       []string `query:"where,explode" maxItems:"20" doc:"DIMENSION=VALUE, such as team=vision." flag:"where" help:"only costs that have a value: team=search; repeatable"`
	// On the command line Counts may also name a file.
	Counts string   `query:"counts" enum:"gpu-hours" doc:"gpu-hours for the used GPU hours of the ledger; without it the units of the configuration."`
	Units  []string `query:"unit,explode" maxItems:"20" doc:"Only these units of the configuration; with counts, what the unit is called."`
	Per    int64    `query:"per" minimum:"1" maximum:"1000000000000" default:"1" doc:"With counts, how many a unit cost is for." flag:"per" help:"how many a unit cost is for: 1000000"`
	Target string   `query:"target" maxLength:"40" doc:"With counts, the most that one should cost, in dollars." flag:"target" help:"the most that one, or --per of them, should cost in <dollars>"`
}

func (in UnitsInput) query(c *Call) (q spend.UnitsQuery, names []string, err error) {
	costs, err := c.costsOf(spend.CostsQuery{
		Period: in.Period, By: in.By, Granularity: in.Granularity, Where: in.Where,
	})
	q = spend.UnitsQuery{CostsQuery: costs, Counts: in.Counts, Per: in.Per, Target: in.Target}
	names = in.Units
	if in.Counts != "" && len(names) > 0 {
		q.Name, names = names[0], names[1:]
	}
	return q, names, err
}

// GetUnitCosts shows unit costs.
var GetUnitCosts = declare(Operation[UnitsInput, view.Units]{
	Info: Info{ID: "get-unit-costs", Method: get, Path: "costs/units", Role: approval.RoleViewer,
		Summary: "Show unit costs", Schema: view.UnitsSchema,
		Command: "costs units", Why: "the ledger is in the state, and the counts of the configured units are there",
		Flags: map[string]Location{"demo": Here, "counts": ByState, "counts=gpu-hours": Anywhere}},
	FlagDefaults: map[string]string{"since": "3mo", "granularity": "month"},
	Send: func(_ context.Context, c *Call, in *UnitsInput) error {
		q, _, err := in.query(c)
		if err == nil {
			err = q.Check(c.Request.Now())
		}
		if in.Counts == "" {
			in.Per, in.Target = 1, "" // they apply to counts
		}
		return err
	},
	Do: func(ctx context.Context, c *Call, in UnitsInput) (Reply[view.Units], error) {
		q, names, err := in.query(c)
		if err != nil {
			return Reply[view.Units]{}, err
		}
		doc, err := spend.Units(ctx, c.Request, q, names)
		if in.Counts != "" {
			err = inputError("not_counted", err)
		}
		return reply(doc, err)
	},
})

// TenantSharesInput selects the shares of workloads on machines.
type TenantSharesInput struct {
	runtime.Period
	By string `query:"by" enum:"pod,controller,namespace,team,project,user" default:"pod" doc:"What workloads are shown by." flag:"by" help:"what workloads of a metrics server are shown by: pod, controller, namespace, team, project, user"`
	// Source is the account and the metrics servers of the command line.
	Source clouds.Source
}

// GetCostShares divides machine costs by the use that metrics servers report.
var GetCostShares = declare(Operation[TenantSharesInput, view.Shares]{
	Info: Info{ID: "get-cost-shares", Method: get, Path: "costs/shares", Role: approval.RoleViewer,
		Summary: "Divide the cost of machines among the workloads that held their GPUs, by the configured metrics servers",
		Schema:  view.SharesSchema,
		Command: "costs shares",
		Why:     "the ledger is in the state, and the metrics servers that are configured are there",
		Flags: map[string]Location{
			"demo": Here, "regions": ByState, "assume-role": ByState, "profile": ByState, "metrics-source": ByState,
			"cloud": ByState, "cloud=aws": Anywhere,
		}},
	FlagDefaults: map[string]string{"since": "month"},
	Send: func(_ context.Context, c *Call, in *TenantSharesInput) error {
		return checkPeriod(c, in.Period, "month")
	},
	Do: func(ctx context.Context, c *Call, in TenantSharesInput) (Reply[view.Shares], error) {
		doc, err := spend.TenantShares(ctx, c.Request, FixOptions{Source: in.Source}.source(), in.Or("month"), in.By)
		return reply(doc, inputError("not_counted", err))
	},
})

// DivideInput is a file of shares.
type DivideInput struct {
	Body struct {
		Content string `json:"content" minLength:"1" maxLength:"900000" doc:"The text of a CSV file with resource, workload, share and used."`
		Name    string `json:"name,omitempty" maxLength:"400" default:"shares.csv" doc:"What the text is called, for messages."`
		Since   string `json:"since,omitempty" maxLength:"40" default:"month" doc:"From then on: 7d, month, 2026-11-01."`
		Until   string `json:"until,omitempty" maxLength:"40" doc:"Before then."`
	}
}

// DivideCosts divides machine costs among the workloads in a file.
var DivideCosts = declare(Operation[DivideInput, view.Shares]{
	Info: Info{ID: "divide-costs", Method: post, Path: "costs/shares", Role: approval.RoleUser,
		Summary: "Divide what machines cost among the workloads of a file", Schema: view.SharesSchema,
		Example: map[string]any{"content": "resource,workload,share,used\ni-0f3a,train,3/8,80%\n", "since": "7d"}},
	Send: func(_ context.Context, c *Call, in *DivideInput) error {
		if err := checkPeriod(c, runtime.Period{Since: in.Body.Since, Until: in.Body.Until}, "month"); err != nil {
			return err
		}
		file, err := c.Request.Input(in.Body.Name)
		if err != nil {
			return err
		}
		in.Body.Content, err = readSent(in.Body.Name, file)
		return errors.Join(err, file.Close())
	},
	Do: func(ctx context.Context, c *Call, in DivideInput) (Reply[view.Shares], error) {
		doc, err := spend.Shares(ctx, c.Request, in.Body.Name, in.Body.Content,
			runtime.Period{Since: in.Body.Since, Until: in.Body.Until})
		return reply(doc, inputError("not_counted", err))
	},
})

// BillInput selects imported bills.
type BillInput struct {
	runtime.Period
	By    string `query:"by" enum:"team,project,user,environment,cost_center,cost-center,purpose,resource,kind,type,region,account,category,duty,pricing,lifetime,service,sub_account,provider,charge_category,commitment,day" default:"team" flag:"by" help:"what it is divided by: the dimensions of costs, or sub_account, provider, charge_category, commitment, day"`
	Basis string `query:"basis" enum:"billed,effective" default:"billed" flag:"basis" help:"billed, or effective, which spreads the payments for commitments"`
}

// GetBills shows the imported bills of a period.
var GetBills = declare(Operation[BillInput, view.BillShow]{
	Info: Info{ID: "get-bills", Method: get, Path: "bills", Role: approval.RoleViewer,
		Summary: "Show the imported bills of a period", Schema: view.BillShowSchema,
		Command: "bill show", Why: "bills are in the state",
		Flags: demoFlags},
	FlagDefaults: map[string]string{"since": "month"},
	Do: func(ctx context.Context, c *Call, in BillInput) (Reply[view.BillShow], error) {
		return reply(spend.BillShow(ctx, c.Request, in.Or("month"), in.By, bill.Basis(in.Basis)))
	},
})

// ReconcileInput selects a period to reconcile.
type ReconcileInput struct {
	runtime.Period
	Basis string `query:"basis" enum:"billed,effective" default:"billed" flag:"basis" help:"billed or effective"`
}

// GetReconciliation compares billed and accrued costs.
var GetReconciliation = declare(Operation[ReconcileInput, view.Reconciliation]{
	Info: Info{ID: "get-reconciliation", Method: get, Path: "bills/reconciliation", Role: approval.RoleViewer,
		Summary: "Compare billed and accrued costs of a period", Schema: view.ReconciliationSchema,
		Command: "bill reconcile", Why: "bills and ledger are in the state",
		Flags: demoFlags},
	FlagDefaults: map[string]string{"since": "month"},
	Do: func(ctx context.Context, c *Call, in ReconcileInput) (Reply[view.Reconciliation], error) {
		return reply(spend.Reconcile(ctx, c.Request, in.Or("month"), bill.Basis(in.Basis), false))
	},
})

// PostReconciliationInput selects a period whose variance is to be posted.
type PostReconciliationInput struct {
	Body struct {
		Since string `json:"since" minLength:"1" maxLength:"40" example:"2026-10-01" doc:"From then on: 7d, month, 2026-11-01."`
		Until string `json:"until,omitempty" maxLength:"40" example:"2026-11-01" doc:"Before then."`
		Basis string `json:"basis,omitempty" enum:"billed,effective" default:"billed"`
	}
}

// PostReconciliation posts the variance of billed and accrued costs to the ledger.
var PostReconciliation = declare(Operation[PostReconciliationInput, view.Reconciliation]{
	Info: Info{ID: "post-reconciliation", Method: post, Path: "bills/reconciliation", Role: approval.RoleAdmin,
		Summary: "Post the difference of billed and accrued costs of a period to the ledger",
		Schema:  view.ReconciliationSchema},
	Do: func(ctx context.Context, c *Call, in PostReconciliationInput) (Reply[view.Reconciliation], error) {
		return reply(spend.Reconcile(ctx, c.Request, runtime.Period{Since: in.Body.Since, Until: in.Body.Until},
			bill.Basis(in.Body.Basis), true))
	},
})

// ListBillPeriods lists the imported billing periods.
var ListBillPeriods = declare(Operation[Paging, view.BillPeriods]{
	Info: Info{ID: "list-bill-periods", Method: get, Path: "bills/periods", Role: approval.RoleViewer,
		Summary: "List the billing periods that were imported", Schema: view.BillPeriodsSchema},
	List: listOf(func(d *view.BillPeriods) *[]view.BillPeriod {
		return &d.Periods
	}, func(p view.BillPeriod) string { return p.ID }),
	Do: func(ctx context.Context, c *Call, _ Paging) (Reply[view.BillPeriods], error) {
		return reply(spend.BillPeriods(ctx, c.Request))
	},
})

// GetGateways shows the registered gateways.
var GetGateways = declare(Operation[None, view.Gateways]{
	Info: Info{ID: "get-gateways", Method: get, Path: "gateways", Role: approval.RoleViewer,
		Summary: "Show the registered gateways: batch times, utilization, unit costs, refused requests",
		Schema:  view.GatewaysSchema, Command: "gateway list", Why: "the service registers gateways"},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.Gateways], error) {
		return reply(spend.Gateways(ctx, c.Request))
	},
})
