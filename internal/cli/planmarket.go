package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/market"
	"github.com/curfew-dev/curfew/internal/plan/rightsize"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/usage"
)

func (a *app) newPlanMarket() *cobra.Command {
	var kind, output string
	var p market.Params
	var options []string
	var parameters float64
	c := &cobra.Command{
		Use:   "market",
		Short: "Which machine does the most work for a dollar, by purchase option",
		Long: `Ranks the machines of the price book by work per dollar: dense tensor throughput, device
memory, its bandwidth, or the tokens of a language model. Every price has its source and
date; capacity blocks, which are paid up front, stand apart; what has no price is listed
and never ranked.`,
		Example: `  curfew plan market --for bf16-tflops
  curfew plan market --for tokens --parameters 70 --region us-east-1 --option spot -o html > market.html`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := oneOf("output", output, planOutputs...); err != nil {
				return err
			}
			f, err := market.ParseFor(kind)
			if err != nil {
				return usageError("--for: %w", err)
			}
			for _, o := range options {
				p.Options = append(p.Options, price.Term(o))
			}
			p.Model.Parameters = parameters * 1e9
			cfg, err := a.config()
			if err != nil {
				return err
			}
			book, err := a.prices(cfg)
			if err != nil {
				return err
			}
			r, err := market.Rank(book, f, p)
			if err != nil {
				return &failure{exit: ExitUsage, code: "usage", err: err}
			}
			return a.show(output, r, func() report.Sheet { return marketSheet(r) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&kind, "for", "bf16-tflops", "bf16-tflops, memory-gib, memory-bandwidth or tokens")
	fl.StringVar(&p.Cloud, "cloud", "", "only this cloud")
	fl.StringVar(&p.Region, "region", "", "only this region (default: each machine's cheapest)")
	fl.StringVar(&p.Accelerator, "accelerator", "", "only this accelerator")
	fl.StringVar(&p.Vendor, "vendor", "", "only accelerators of this vendor, such as NVIDIA")
	fl.StringSliceVar(&options, "option", nil, "purchase options: on-demand, spot, … (default: all)")
	fl.Float64Var(&parameters, "parameters", 0, "size of the language model in `billions` of parameters (default 8)")
	fl.StringVarP(&output, "output", "o", "table", "table, json, html or md")
	return c
}

// shownOffers is how many offers the table shows; JSON has all.
const shownOffers = 25

func marketSheet(r market.Report) report.Sheet {
	s := report.Sheet{Verb: "plan market", Picture: r.SVG(), Caption: "The best offer of each accelerator and purchase option, by year of release.",
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes, Title: "no machine has a price to be ranked by"}
	if len(r.Offers) > 0 {
		best := r.Offers[0]
		s.Title = fmt.Sprintf("%s in %s, %s, gives the most: %s %s", best.Machine, best.Region, best.Option, plain.Number(best.PerDollar, 2), r.Unit)
	}
	g := report.Grid{Title: "work per dollar", Head: []string{"#", "machine", "accelerator", "year", "region", "option", r.Unit, "$/h", "price of"},
		Right: []bool{true, false, false, true, false, false, true, true, false}}
	for _, o := range r.Offers[:min(len(r.Offers), shownOffers)] {
		g.Rows = append(g.Rows, []string{fmt.Sprint(o.Rank), o.Machine, plain.Number(o.Devices, 2) + " × " + o.Accelerator, fmt.Sprint(o.Released), o.Region,
			string(o.Option), plain.Number(o.PerDollar, 2), o.HourlyUSD, o.AsOf})
	}
	s.Tables = append(s.Tables, g)
	if len(r.Blocks) > 0 {
		g := report.Grid{Title: "capacity blocks, paid up front", Head: []string{"machine", "region", r.Unit, "whole", "price of"}, Right: []bool{false, false, true, true, false}}
		for _, b := range r.Blocks[:min(len(r.Blocks), shownOffers)] {
			g.Rows = append(g.Rows, []string{b.Machine, b.Region, plain.Number(b.PerDollar, 2), money.ForPeople(b.UpfrontUSD), b.AsOf})
		}
		s.Tables = append(s.Tables, g)
	}
	if n := len(r.Offers) - shownOffers; n > 0 {
		s.Coverage = append(s.Coverage, plain.Count(n, "more offer is", "more offers are")+" in -o json")
	}
	if len(r.Unranked) > 0 {
		s.Coverage = append(s.Coverage, plain.Count(len(r.Unranked), "machine is", "machines are")+" not ranked for want of a price or a figure; -o json names them")
	}
	return s
}

// rightsizeFlags are the flags of plan rightsize.
type rightsizeFlags struct {
	source                                                        sourceFlags
	period                                                        periodFlags // of --from ledger
	usage, from, columns, step, resource, machine, region, output string
}

func (a *app) newPlanRightsize() *cobra.Command {
	var f rightsizeFlags
	c := &cobra.Command{
		Use:   "rightsize",
		Short: "The smallest accelerator and count that fit what was measured",
		Long: `Reads recorded usage and says how well GPUs are used, why not better where the series
tell, and which machine types would fit the memory and the measured compute, with prices
and what speaks against each. --from ledger has no samples: it says how many machines of a kind
were more than worked at once.`,
		Example: `  curfew plan rightsize --from scan --regions us-east-1
  curfew plan rightsize --from ledger --since 30d
  curfew plan rightsize --usage gpus.csv.gz --type p3.8xlarge
  nvidia-smi --query-gpu=timestamp,index,utilization.gpu,memory.used,memory.total --format=csv -l 60 > g.csv
  curfew plan rightsize --usage g.csv --resource box --type g5.12xlarge -o html > rightsize.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", f.output, planOutputs...); err != nil {
				return err
			}
			if f.from == "" {
				return a.planRightsize(c.Context(), f)
			}
			if err := fromAccount("rightsize", f.from, f.usage != ""); err != nil {
				return err
			}
			if f.from == "ledger" {
				return a.planLedger(c.Context(), "rightsize", rightsize.Schema, f.period, f.output, "", 1)
			}
			return a.rightsizeScan(c.Context(), f)
		},
	}
	fl := c.Flags()
	f.source.addAccount(fl)
	fl.StringVar(&f.source.profile, "profile", "", "AWS profile")
	fl.StringVar(&f.from, "from", "", "in place of --usage, scan: read and measure the account; ledger: how many machines worked at once")
	f.period.add(c, "30d")
	fl.StringVar(&f.usage, "usage", "", "recorded GPU samples (CSV, CSV.gz, Parquet or nvidia-smi CSV) `file`")
	fl.StringVar(&f.columns, "map", "", "columns under other names: `resource=host,time=ts`")
	fl.StringVar(&f.step, "step", "", "sampling step, such as 60s (default: seen in the file)")
	fl.StringVar(&f.resource, "resource", "", "the resource that nvidia-smi's output is about")
	fl.StringVar(&f.machine, "type", "", "today's machine `type` (default: what the file says)")
	fl.StringVar(&f.region, "region", "", "where it runs (default us-east-1)")
	fl.StringVarP(&f.output, "output", "o", "table", "table, json, html or md")
	return c
}

func (a *app) planRightsize(ctx context.Context, f rightsizeFlags) error {
	if f.usage == "" {
		return usageError("curfew plan rightsize: give the recorded usage, --usage FILE")
	}
	t, err := backtestFlags{trace: f.usage, columns: f.columns, step: f.step, restartCost: "0s", resource: f.resource}.params()
	if err != nil {
		return err
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	if err := a.warnUnread(ctx, recording{path: a.path(f.usage), format: t.Format}); err != nil {
		return err
	}
	file, err := config.Open(a.path(f.usage))
	if err != nil {
		return &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("read %s: %w", f.usage, unwrapPath(err))}
	}
	defer file.Close()
	r, err := rightsize.FromUsage(ctx, file, t.Format, f.machine, book, rightsize.Params{Region: f.region})
	if err != nil {
		return scanFailure(err)
	}
	return a.show(f.output, r, func() report.Sheet { return rightsizeSheet(r) })
}

func rightsizeSheet(r rightsize.Report) report.Sheet {
	s := report.Sheet{Verb: "plan rightsize", Title: r.Verdict + ": " + r.Why, Picture: r.SVG(), Caption: "What was measured of each GPU, and the types that fit.",
		Assumptions: r.Assumptions, Coverage: r.CoverageNotes, Changes: r.Changes}
	figure := func(label string, v *float64, unit string) {
		value := "not measured"
		if v != nil {
			value = plain.Number(*v, 1) + unit
		}
		s.Figures = append(s.Figures, report.Figure{Label: label, Value: value})
	}
	figure("GPU utilization, median", r.UtilP50, "%")
	figure("GPU utilization, 95th percentile", r.UtilP95, "%")
	figure("memory, peak", r.MemoryPeakGiB, " GiB")
	s.Figures = append(s.Figures, report.Figure{Label: "GPUs that computed", Value: fmt.Sprintf("%d of %d", r.GPUsUsedMax, r.GPUs)},
		report.Figure{Label: "samples", Value: plain.Count(r.Samples, "sample"), Note: "coverage " + plain.Share(r.Coverage, 1)})
	if r.SavingUSD != nil {
		s.Figures = append(s.Figures, report.Figure{Label: "could save", Value: money.ForPeople(*r.SavingUSD) + " a month", Note: "at list price"})
	}
	g := report.Grid{Title: "types that fit, cheapest first", Head: []string{"type", "GPUs", "memory", "$/h", "saves a month", "against"}, Right: []bool{false, false, true, true, true, false}}
	for _, f := range r.Fits {
		saving := "?"
		if f.SavingUSD != nil {
			saving = money.ForPeople(*f.SavingUSD)
		}
		g.Rows = append(g.Rows, []string{f.Type, fmt.Sprintf("%d × %s", f.GPUs, f.Accelerator), plain.Number(f.MemoryGiB, 0) + " GiB", f.HourlyUSD, saving, strings.Join(f.Against, "; ")})
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	if len(r.Resources) > 0 {
		g := report.Grid{Title: "machines", Head: []string{"resource", "type", "verdict", "p50%", "p95%", "fits", "why it is low"}, Right: []bool{false, false, false, true, true, false, false}}
		number := func(v *float64) string {
			if v == nil {
				return "-"
			}
			return plain.Number(*v, 1)
		}
		for _, res := range r.Resources[:min(len(r.Resources), shownOffers)] {
			fits, why := "-", []string{}
			if len(res.Fits) > 0 {
				fits = res.Fits[0].Type
			}
			for _, reason := range res.Reasons {
				if reason.Answer == usage.True.String() {
					why = append(why, reason.Name)
				}
			}
			g.Rows = append(g.Rows, []string{res.Name, res.Type, res.Verdict, number(res.UtilP50), number(res.UtilP95), fits, strings.Join(why, ", ")})
		}
		s.Tables = append(s.Tables, g)
	}
	return s
}
