package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// fromAccount checks --from of planners that read an account.
func fromAccount(command, from string, file bool) error {
	switch {
	case from != "scan" && from != "ledger":
		return usageError("curfew plan %s --from %q: expected scan or ledger", command, from)
	case file:
		return usageError("curfew plan %s: give --from or a file, not both", command)
	}
	return nil
}

// scanned reads and judges the machines of an account as scan does, and keeps nothing.
func (a *app) scanned(ctx context.Context, f sourceFlags) (*round.Result, config.Config, *price.Book, error) {
	cfg, err := a.config()
	if err == nil {
		err = f.checkAudit()
	}
	if err != nil {
		return nil, cfg, nil, err
	}
	setting, err := a.setting(ctx, cfg, f)
	if err != nil {
		return nil, cfg, nil, err
	}
	bar := a.newProgress(f.Cloud)
	defer bar.Finish()
	if err := audit.SetAudit(a.req, cfg, &setting, f.Cloud, nil); err != nil {
		return nil, cfg, nil, err
	}
	setting.Source, setting.Query.Progress = "plan", bar.Report
	setting.Query.Kinds = map[inventory.Kind]bool{inventory.KindInstance: true}
	r, err := round.New(setting).Round(ctx)
	if err != nil {
		return nil, cfg, nil, clouds.CloudError(err)
	}
	return r, cfg, setting.Prices, nil
}

// planLedger shows how many machines of each group are needed by the duty in the ledger.
func (a *app) planLedger(ctx context.Context, verb, schema string, period runtime.Period, purpose inventory.Purpose,
	target float64) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	since, until, err := period.Bounds(a.Now())
	if err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	doc, err := accountplan.FromLedger(ctx, s.Ledger(), schema, since, until, purpose, target)
	if err != nil {
		return err
	}
	if len(doc.Groups) == 0 {
		what := map[bool]string{true: "a machine", false: "a machine with purpose " + string(purpose)}[purpose == ""]
		return &failure{
			exit: ExitError, code: "no_usage",
			err: fmt.Errorf(
				"plan %s: the ledger has no hour of %s from %s to %s; run curfew scan regularly to fill it",
				verb, what, since.Format(time.DateOnly), until.Format(time.DateOnly))}
	}
	return a.show(doc, func() report.Sheet { return report.Groups(verb, doc) })
}

// accountFlags are the flags of plan account.
type accountFlags struct {
	source   sourceFlags
	period   runtime.Period
	bill     string
	offers   string
	existing string
	noSave   bool
}

func (a *app) newPlanAccount() *cobra.Command {
	var f accountFlags
	c := &cobra.Command{
		Use:   "account",
		Short: "Plan all changes of an account in order, from today's bill to the bill after",
		Long: `Audits the account once, and puts everything that it finds into one plan: idle resources,
storage, egress, spot, right-sizing and sharing, and commitments for what remains. Each
step saves on what the ones before left, so that the savings add up. Commitments are
planned on the hours of the ledger without those of machines that the steps before end,
move to spot or replace. Shows the bill before and after by step, team and risk, the work
in person-days, and the command of each change. Nothing is changed. The audit is kept as
that of curfew scan, so that the commands find its findings; --no-save keeps nothing.`,
		Example: `  curfew plan account --demo
  curfew plan account --regions us-east-1,us-west-2 --since 90d
  curfew plan account --bill focus-2026-11.csv.gz --offers examples/data/offers.csv
  curfew plan account -o html > plan.html`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.planAccount(c.Context(), f) },
	}
	fl := c.Flags()
	f.source.add(fl)
	ops.AddFlags(fl, &f.period, map[string]string{"since": "90d"})
	fl.StringVar(&f.offers, "offers", "", "CSV `file` of offers of commitments (default: the price book's)")
	fl.StringVar(&f.existing, "existing", "", "CSV `file` of existing commitments with their expiry dates")
	fl.StringVar(&f.bill, "bill", "", billUse)
	fl.BoolVar(&f.noSave, "no-save", false, saveUse)
	a.outputs(c, reports...)
	return c
}

func (a *app) planAccount(ctx context.Context, f accountFlags) error {
	if err := f.source.checkAudit(); err != nil {
		return err
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	plan, err := a.planOptions(f)
	if err != nil {
		return err
	}
	o := audit.ScanOptions{Source: f.source.Source, Bill: f.bill, NoSave: f.noSave, Version: a.Version, Plan: &plan}
	out, err := audit.Scan(ctx, a.req, cfg, o, func(view.Scan, bool) error { return nil })
	if out == nil || out.Plan == nil {
		return err
	}
	if shown := a.show(*out.Plan, func() report.Sheet { return report.Account(*out.Plan) }); shown != nil {
		return shown
	}
	return err
}

// planOptions reads the period and the files of commitments.
func (a *app) planOptions(f accountFlags) (o audit.PlanOptions, err error) {
	o.CommitCommand = f.commitCommand()
	if f.offers != "" {
		if o.Offers, err = runtime.ReadPlan(a.req, f.offers, commit.ReadOffers); err != nil {
			return o, err
		}
	}
	if f.existing != "" {
		if o.Existing, err = runtime.ReadPlan(a.req, f.existing, commit.ReadExisting); err != nil {
			return o, err
		}
	}
	o.Since, o.Until, err = a.bounds(f.period)
	return o, err
}

// commitCommand is the command that shows the plan of the last step.
func (f *accountFlags) commitCommand() string {
	words := []string{"curfew plan commit --from ledger"}
	for _, w := range []struct{ name, value string }{
		{"since", f.period.Since}, {"until", f.period.Until}, {"offers", f.offers}, {"existing", f.existing},
	} {
		if w.value != "" {
			words = append(words, "--"+w.name, plain.Shell(w.value))
		}
	}
	return strings.Join(words, " ")
}
