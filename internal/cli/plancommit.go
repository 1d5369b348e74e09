package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/store"
)

// commitFlags are the flags of plan commit.
type commitFlags struct {
	runtime.Period
	usage, from, offers, existing string
	online                        bool
	drop, leaveRate               float64
	minHistory                    int
}

func (a *app) newPlanCommit() *cobra.Command {
	var f commitFlags
	c := &cobra.Command{
		Use:   "commit",
		Short: "Plan reserved machines and savings plans for steady use",
		Long: `Replays every hour of recorded use in the order in which the provider applies
commitments, and finds the cheapest set of offers for the period after it, with a proven
lower bound on the cost of any other choice. Existing commitments that ended cover
nothing, and what replaces those that end within 90 days starts on that day. Idle machines
are excluded, and with --from those that findings stop, move to spot or replace. A
commitment is advised only if its utilization stays above 60%, the history is long enough,
and it is expected to save even if work leaves its machine type before the term ends.
--from reads the ledger or imported bills, and the offers of the price book.`,
		Example: `  curfew plan commit --from ledger --since 90d --offers examples/data/offers.csv
  curfew plan commit --from bill --offers examples/data/offers.csv --since 6mo
  curfew plan commit --usage examples/data/hourly.csv.gz --offers examples/data/offers.csv
  curfew plan commit --usage examples/data/hourly.csv.gz --offers examples/data/offers.csv --online -o html > commit.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.planCommit(c.Context(), f, c.Flags().Changed("leave-rate"))
		},
	}
	fl := c.Flags()
	ops.AddFlags(c.Flags(), &f.Period, map[string]string{"since": "90d"})
	fl.StringVar(&f.from, "from", "", "source of the hours instead of --usage: ledger or bill")
	fl.IntVar(&f.minHistory, "min-history", 1440, "hours of history that a commitment needs; 0 for no check")
	fl.Float64Var(&f.leaveRate, "leave-rate", 0,
		"yearly rate at which work leaves a machine type (default: by its age)")
	fl.StringVar(&f.usage, "usage", "",
		"CSV `file` of hourly use: time,key,quantity,on_demand_rate and optional idle_quantity")
	fl.StringVar(&f.offers, "offers", "",
		"CSV `file` of offers: key, kind, term_months, payment, hourly_rate, upfront, discount")
	fl.StringVar(&f.existing, "existing", "", "CSV `file` of existing commitments with their expiry dates")
	fl.BoolVar(&f.online, "online", false, "compare with an online policy, which sees only the past")
	fl.Float64Var(&f.drop, "drop", 0, "one more drop in demand to evaluate, 0 to 1")
	a.outputs(c, reports...)
	return c
}

func (a *app) planCommit(ctx context.Context, f commitFlags, leave bool) error {
	switch {
	case f.from != "" && f.usage != "":
		return usageError("curfew plan commit: give --from or --usage, not both")
	case f.from == "" && (f.usage == "" || f.offers == ""):
		return usageError("curfew plan commit: give --usage FILE and --offers FILE, or --from ledger")
	case f.from == "bill" && f.offers == "":
		return usageError(
			"curfew plan commit --from bill: give --offers FILE with savings plans: a bill has dollars by " +
				"region (key compute/REGION or *)")
	case f.from == "scan":
		return usageError(
			"curfew plan commit --from scan: one scan is too short for a commitment of years: use --from " +
				"ledger after regular scans, or import bills and use --from bill")
	case f.minHistory < 0 || !(f.leaveRate >= 0 && f.leaveRate <= 100):
		return usageError("curfew plan commit: --min-history must be 0 or more, and --leave-rate 0 to 100 a year")
	}
	if f.from != "" {
		if err := oneOf("from", f.from, "ledger", "bill"); err != nil {
			return err
		}
	}
	cfg, book, err := a.req.Priced()
	if err != nil {
		return err
	}
	var offers []commit.Offer
	if f.offers != "" {
		if offers, err = runtime.ReadPlan(a.req, f.offers, commit.ReadOffers); err != nil {
			return err
		}
	}
	var existing []commit.Existing
	if f.existing != "" {
		if existing, err = runtime.ReadPlan(a.req, f.existing, commit.ReadExisting); err != nil {
			return err
		}
	}
	var use []commit.Usage
	var notes []string
	if f.from == "" {
		use, err = runtime.ReadPlan(a.req, f.usage, commit.ReadUsage)
	} else {
		var h history
		if h, err = a.openHistory(ctx, cfg, f.Period); err != nil {
			return err
		}
		defer h.Close()
		if f.from == "bill" {
			use, notes, err = billedHours(ctx, h, offers, existing)
		} else {
			use, notes, err = recordedHours(ctx, h, book)
		}
	}
	if err != nil {
		return err
	}
	if f.offers == "" {
		var more []string
		offers, more, err = commit.BookOffers(book, use)
		if errors.Is(err, commit.ErrNoOffers) {
			err = &failure{exit: ExitError, code: "no_offers", err: err, hint: "give --offers FILE"}
		}
		notes = append(notes, more...)
	}
	if err != nil {
		return err
	}
	options := commit.Options{Drop: f.drop, MinHours: f.minHistory}
	if f.minHistory == 0 {
		options.MinHours = -1
	}
	options.Leave = commit.LeavingByAge(book, a.Now())
	if leave {
		options.Leave = func(string) commit.Leaving {
			return commit.Leaving{PerYear: f.leaveRate, Why: "--leave-rate"}
		}
	}
	r, err := commit.Plan(use, offers, existing, options)
	if err != nil {
		return runtime.PlanError(err)
	}
	r.Assumptions = append(notes, r.Assumptions...)
	if f.online {
		online, err := commit.Online(use, offers, existing)
		if err != nil {
			return runtime.PlanError(err)
		}
		r.Online = &online
	}
	return a.show(r, func() report.Sheet { return report.Commit(r) })
}

// bounds are the whole hours of the period that are over.
func (a *app) bounds(p runtime.Period) (since, until time.Time, err error) {
	since, until, err = p.Bounds(a.Now())
	if until.After(a.Now()) {
		until = until.Add(-time.Hour) // the hour that runs is not over
	}
	return since, until, err
}

// leavingMachines returns the machines that the findings of kept scans remove from the commitment,
// with a note on them.
func leavingMachines(ctx context.Context, s *store.Store) (accountplan.Leaving, string, error) {
	fixes, at, err := audit.Fixes(ctx, s)
	switch {
	case err != nil:
		return nil, "", err
	case at.IsZero():
		return nil, "no scan is kept: machines that are idle, could be spot or are too large are committed to " +
			"as they are; run curfew scan first", nil
	}
	leaves := accountplan.NewLeaving(fixes)
	return leaves, fmt.Sprintf("machines with findings up to %s come off first: %s", at.Format(time.DateOnly),
		leaves), nil
}

// history is the state that hours are read from, their bounds and the machines that leave.
type history struct {
	*store.Store
	since, until time.Time
	leaves       accountplan.Leaving
	note         string
}

// openHistory opens the history of a period. The caller closes it.
func (a *app) openHistory(ctx context.Context, cfg config.Config, p runtime.Period) (h history, err error) {
	if h.since, h.until, err = a.bounds(p); err != nil {
		return h, err
	}
	if h.Store, err = a.open(ctx, cfg); err != nil {
		return h, err
	}
	if h.leaves, h.note, err = leavingMachines(ctx, h.Store); err != nil {
		return h, errors.Join(err, h.Close())
	}
	return h, nil
}

// recordedHours reads the hours of the ledger.
func recordedHours(ctx context.Context, h history, book *price.Book) ([]commit.Usage, []string, error) {
	use, more, err := accountplan.Hours(ctx, h.Ledger(), h.since, h.until, h.leaves, book)
	if err == nil && len(use) == 0 {
		err = noUsage("the ledger has no on-demand machine hour from %s to %s; run curfew scan regularly to fill it",
			h.since, h.until)
	}
	notes := []string{"usage is the on-demand machine hours of the ledger at list price; " +
		"hours without an observation count as unused", h.note}
	return use, append(notes, more...), err
}

// billedHours reads imported bills, and holds offers and existing commitments against them.
func billedHours(
	ctx context.Context, h history, offers []commit.Offer, existing []commit.Existing,
) ([]commit.Usage, []string, error) {
	rows := h.Bills().Rows(ctx, bill.Query{From: h.since, To: h.until, Categories: []bill.Category{bill.Compute}})
	use, err := commit.FromBill(rows, h.leaves.Billed())
	if err != nil {
		return nil, nil, err
	}
	if err := use.Scope(offers, existing); err != nil {
		return nil, nil, runtime.PlanError(err)
	}
	if len(use.Usage) == 0 {
		missing := "no imported bill has on-demand compute from %s to %s; import one with curfew bill import PATH"
		if len(use.LeftOut) > 0 {
			missing = "imported bills have no on-demand compute from %s to %s that a plan covers; " + use.Notes()[0]
		}
		return nil, nil, noUsage(missing, h.since, h.until)
	}
	notes := []string{"imported bills are daily: each hour has a twenty-fourth of its day, " +
		"and one machine stands for one dollar an hour on demand", h.note}
	return use.Usage, append(notes, use.Notes()...), nil
}

// noUsage is the error of a period in which nothing ran on demand.
func noUsage(format string, since, until time.Time) error {
	err := fmt.Errorf("plan commitments: "+format, since.Format(time.DateOnly), until.Format(time.DateOnly))
	return &failure{exit: ExitError, code: "no_usage", err: err}
}
