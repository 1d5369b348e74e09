package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/report"
)

// commitFlags are the flags of plan commit.
type commitFlags struct {
	periodFlags
	usage, from, offers, existing, output string
	online                                bool
	drop, leaveRate                       float64
	minHistory                            int
}

func (a *app) newPlanCommit() *cobra.Command {
	var f commitFlags
	c := &cobra.Command{
		Use:   "commit",
		Short: "How much steady use to commit to: reserved machines and savings plans",
		Long: `Replays every hour of recorded use in the order in which the provider applies
commitments, and finds the cheapest set of offers with a proven bound on what any other
choice costs. Idle machines come off first. A commitment is advised only where its use
stays above 60 %, on enough history, and where it is expected to save although work may
leave its machine type before the term ends. --from reads curfew's own ledger, or imported
bills, and the offers of the price book.`,
		Example: `  curfew plan commit --from ledger --since 90d
  curfew plan commit --from bill --offers offers.csv --since 6mo
  curfew plan commit --usage hourly.csv --offers offers.csv
  curfew plan commit --usage hourly.csv.gz --offers offers.csv --existing now.csv --online -o html > commit.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", f.output, planOutputs...); err != nil {
				return err
			}
			return a.planCommit(c.Context(), f, c.Flags().Changed("leave-rate"))
		},
	}
	fl := c.Flags()
	f.add(c, "90d")
	fl.StringVar(&f.from, "from", "", "where the hours come from in place of --usage: ledger, or bill (imported)")
	fl.IntVar(&f.minHistory, "min-history", 1440, "how many hours of history advice needs; 0 is none")
	fl.Float64Var(&f.leaveRate, "leave-rate", 0, "the rate a year at which work leaves a machine type (default: by its age)")
	fl.StringVar(&f.usage, "usage", "", "hourly use as CSV `file`: time,key,quantity,on_demand_rate, and idle")
	fl.StringVar(&f.offers, "offers", "", "offers as CSV `file`: key,kind,term_months,payment,hourly_rate,upfront,discount")
	fl.StringVar(&f.existing, "existing", "", "commitments that exist, with their expiries, as CSV `file`")
	fl.BoolVar(&f.online, "online", false, "replay the history buying without foresight, and compare")
	fl.Float64Var(&f.drop, "drop", 0, "a fall of demand to look at beside the usual ones, 0 to 1")
	fl.StringVarP(&f.output, "output", "o", "table", "table, json, html or md")
	return c
}

// readPlan reads one file of a planner.
func readPlan[T any](a *app, name string, read func(string, io.Reader) (T, error)) (T, error) {
	in, err := a.input(name)
	if err != nil {
		var none T
		return none, err
	}
	v, err := read(name, in)
	return v, planFailure(errors.Join(err, in.Close()))
}

func (a *app) planCommit(ctx context.Context, f commitFlags, leave bool) error {
	switch {
	case f.from != "" && f.usage != "":
		return usageError("curfew plan commit: --from and --usage are one or the other")
	case f.from == "" && (f.usage == "" || f.offers == ""):
		return usageError("curfew plan commit: give --usage FILE and --offers FILE, or --from ledger")
	case f.from == "bill" && f.offers == "":
		return usageError("curfew plan commit --from bill: give --offers FILE: a bill is dollars by region, to which savings plans apply (key compute/REGION or *)")
	case f.from == "scan":
		return usageError("curfew plan commit --from scan: one scan is an hour, and a commitment lasts years: let passes of curfew scan fill the ledger, then --from ledger, or import bills and --from bill")
	case f.minHistory < 0 || !(f.leaveRate >= 0 && f.leaveRate <= 100):
		return usageError("curfew plan commit: --min-history and --leave-rate (0 to 100 a year) must not be negative")
	}
	if f.from != "" {
		if err := oneOf("from", f.from, "ledger", "bill"); err != nil {
			return err
		}
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	var use []commit.Usage
	var notes []string
	if f.from == "" {
		use, err = readPlan(a, f.usage, commit.ReadUsage)
	} else {
		use, notes, err = a.recordedHours(ctx, cfg, f)
	}
	if err != nil {
		return err
	}
	var offers []commit.Offer
	if f.offers != "" {
		offers, err = readPlan(a, f.offers, commit.ReadOffers)
	} else {
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
	var existing []commit.Existing
	if f.existing != "" {
		if existing, err = readPlan(a, f.existing, commit.ReadExisting); err != nil {
			return err
		}
	}
	options := commit.Options{Drop: f.drop, MinHours: f.minHistory}
	if f.minHistory == 0 {
		options.MinHours = -1
	}
	options.Leave = commit.LeavingByAge(book, a.Now())
	if leave {
		options.Leave = func(string) commit.Leaving { return commit.Leaving{PerYear: f.leaveRate, Why: "--leave-rate"} }
	}
	r, err := commit.Plan(use, offers, existing, options)
	if err != nil {
		return planFailure(err)
	}
	r.Assumptions = append(notes, r.Assumptions...)
	if f.online {
		online, err := commit.Online(use, offers, existing)
		if err != nil {
			return planFailure(err)
		}
		r.Online = &online
	}
	return a.show(f.output, r, func() report.Sheet { return report.Commit(r) })
}

// recordedHours reads what --from names.
func (a *app) recordedHours(ctx context.Context, cfg config.Config, f commitFlags) ([]commit.Usage, []string, error) {
	since, until, err := f.bounds(a.Now())
	if err != nil {
		return nil, nil, err
	}
	if until.After(a.Now()) {
		until = until.Add(-time.Hour) // the hour that runs is not over
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	notes, empty := []string{"the hours are those of curfew's ledger: machines on demand, at the list price of the hour; hours that no pass saw count as no use"},
		"the ledger has no hour of a machine on demand from %s to %s; passes of curfew scan fill it"
	if f.from == "bill" {
		notes, empty = []string{"imported bills are kept by day: each hour has a twenty-fourth of its day, and one machine stands for one dollar an hour on demand"},
			"no imported bill has compute on demand from %s to %s; import one: curfew bill import PATH"
	}
	var use []commit.Usage
	if f.from == "bill" {
		use, err = commit.FromBill(s.Bills().Rows(ctx, bill.Query{From: since, To: until, Categories: []bill.Category{bill.Compute}}))
	} else {
		use, err = accountplan.Hours(ctx, s.Ledger(), since, until)
	}
	if err == nil && len(use) == 0 {
		err = &failure{exit: ExitError, code: "no_usage", err: fmt.Errorf("plan commitments: "+empty, since.Format(time.DateOnly), until.Format(time.DateOnly))}
	}
	return use, notes, err
}
