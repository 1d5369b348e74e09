package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
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
		offers, more, err = bookOffers(book, use)
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
	var given *float64
	if leave {
		given = &f.leaveRate
	}
	options.Leave = leaving(book, a.Now(), given)
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
	return a.show(f.output, r, func() report.Sheet { return commitSheet(r) })
}

func commitSheet(r commit.Report) report.Sheet {
	proof := "no choice from these offers costs less"
	if !r.Optimal {
		proof = "no choice costs less than $" + r.LowerBoundUSD
	}
	s := report.Sheet{Verb: "plan commit", Picture: r.SVG(), Caption: "Use by the hour, with what commitments cover in layers and the rest on demand.",
		Title: fmt.Sprintf("%s of %s on demand would be saved by %s", plain.Share(r.EffectiveSavingsRate, 1), money.ForPeople(r.OnDemandUSD),
			plain.Count(len(r.Commitments), "commitment")),
		Figures: []report.Figure{
			{Label: "on demand", Value: money.ForPeople(r.OnDemandUSD), Note: plain.Count(r.Hours, "hour")},
			{Label: "planned", Value: money.ForPeople(r.PlannedUSD), Note: proof},
			{Label: "effective savings rate", Value: plain.Share(r.EffectiveSavingsRate, 1)},
			{Label: "coverage", Value: plain.Share(r.Coverage, 1), Note: "of use, at on-demand prices"},
			{Label: "utilization", Value: plain.Share(r.Utilization, 1), Note: "of what commitments charge"},
		},
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	if len(r.Commitments) == 0 {
		s.Title = "nothing is worth committing to: $" + r.OnDemandUSD + " on demand is the least"
	}
	s.Tables = append(s.Tables, commitments("to buy", r.Commitments))
	if len(r.Existing) > 0 {
		s.Tables = append(s.Tables, commitments("there already", r.Existing))
	}
	if len(r.WhatIf) > 0 {
		g := report.Grid{Title: "if demand fell", Head: []string{"by", "on demand", "planned", "saved", "utilization"}, Right: []bool{true, true, true, true, true}}
		for _, w := range r.WhatIf {
			g.Rows = append(g.Rows, []string{plain.Share(w.Drop, 1), money.ForPeople(w.OnDemandUSD), money.ForPeople(w.PlannedUSD), plain.Share(w.EffectiveSavingsRate, 1), plain.Share(w.Utilization, 1)})
		}
		s.Tables = append(s.Tables, g)
	}
	if o := r.Online; o != nil {
		s.Figures = append(s.Figures, report.Figure{Label: "without foresight", Value: money.ForPeople(o.CostUSD),
			Note: fmt.Sprintf("%s times the least that these offers could have cost; never over %s", plain.Number(o.Ratio, 3), plain.Number(o.Bound, 3))})
	}
	return s
}

func commitments(title string, all []commit.Commitment) report.Grid {
	g := report.Grid{Title: title, Head: []string{"what", "kind", "term", "payment", "used", "least month", "breaks even", "if the type is left", "advised"},
		Right: []bool{false, false, true, false, true, true, true, false, false}}
	for _, c := range all {
		what := fmt.Sprintf("%d × %s", c.Quantity, c.Key)
		if c.Kind == commit.SavingsPlan {
			what = money.ForPeople(c.DollarsPerHour) + "/h on " + c.Key
		}
		breakEven := "never"
		if c.BreakEvenDays != nil {
			breakEven = plain.Number(*c.BreakEvenDays, 0) + " d"
		}
		risk := ""
		if k := c.Risk; k != nil {
			risk = money.ForPeople(k.SavingUSD) + " expected at " + plain.Share(k.LeavePerYear, 1) + " a year"
			if k.PaysFromMonths != nil {
				risk += ", pays from month " + plain.Number(*k.PaysFromMonths, 0)
			}
		}
		advised := "yes"
		if !c.Advised {
			advised = strings.TrimSpace("no: " + c.Why)
		}
		g.Rows = append(g.Rows, []string{what, string(c.Kind), fmt.Sprintf("%d months", c.TermMonths), string(c.Payment), plain.Share(c.Utilization, 1),
			plain.Share(c.LowestMonth, 1), breakEven, risk, advised})
	}
	return g
}
