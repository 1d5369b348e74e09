package cli

import (
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/plan/market"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
)

func (a *app) newPlanMarket() *cobra.Command {
	var kind string
	var p market.Params
	var options []string
	var parameters float64
	c := &cobra.Command{
		Use:   "market",
		Short: "Rank machines by work per dollar and purchase option",
		Long: `Ranks the machines of the price book by work per dollar: dense tensor throughput, GPU
memory, memory bandwidth, or tokens of a language model. Every price has its source and
date. Capacity blocks, which are paid upfront, are listed separately. Machines without a
price are listed and never ranked.`,
		Example: `  curfew plan market --for bf16-tflops
  curfew plan market --for tokens --parameters 70 --region us-east-1 --option spot -o html > market.html`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			f, err := market.ParseFor(kind)
			if err != nil {
				return usageError("--for: %w", err)
			}
			for _, o := range options {
				p.Options = append(p.Options, price.Term(o))
			}
			p.Model.Parameters = parameters * 1e9
			_, book, err := a.req.Priced()
			if err != nil {
				return err
			}
			a.req.CheckRegion(book, p.Region)
			r, err := market.Rank(book, f, p)
			if err != nil {
				return &failure{exit: ExitUsage, code: "usage", err: err}
			}
			return a.show(r, func() report.Sheet { return report.Market(r) })
		},
	}
	fl := c.Flags()
	fl.StringVar(&kind, "for", "bf16-tflops", "bf16-tflops, memory-gib, memory-bandwidth or tokens")
	fl.StringVar(&p.Cloud, "cloud", "", "only this cloud")
	fl.StringVar(&p.Region, "region", "", "only this region (default: the cheapest of each machine)")
	fl.StringVar(&p.Accelerator, "accelerator", "", "only this accelerator")
	fl.StringVar(&p.Vendor, "vendor", "", "only accelerators of this vendor, such as NVIDIA")
	fl.StringSliceVar(&options, "option", nil, "purchase options: on-demand, spot, … (default: all)")
	fl.Float64Var(&parameters, "parameters", 0, "size of the language model in `billions` of parameters (default 8)")
	a.outputs(c, reports...)
	return c
}
