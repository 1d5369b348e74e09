package cli

import (
	"context"

	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// demo lets the policies act on the simulated account, pass by pass, or with -o json for a
// day.
func (a *app) demo(ctx context.Context, f enforceFlags) error {
	var set *policy.Set
	var err error
	if len(f.policies) > 0 {
		if set, err = govern.ReadPolicies(a.req, f.policies); err != nil {
			return err
		}
	}
	if a.format == "json" {
		doc, err := simulation.DemoDay(ctx, a.req, set, f.seed)
		if err != nil {
			return err
		}
		return a.printJSON(doc)
	}
	show := report.NewDemo(a.Stdout, a.Width, a.color())
	bar := a.newProgress("the simulated account")
	entries, err := simulation.Demo(ctx, a.req, set, f.seed, func(p view.DemoPass) error {
		bar.Report(round.Progress{What: p.At.Format("Mon 15:04")})
		return show.Pass(p)
	})
	bar.Finish()
	if err != nil {
		return err
	}
	return show.End(entries)
}
