package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
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

// scanned reads and judges an account as scan does, and keeps nothing.
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
	setting.Source, setting.Query = "plan", round.Query{
		Window: cfg.Scan.Window, Progress: bar.Report, Kinds: map[inventory.Kind]bool{inventory.KindInstance: true},
	}
	setting.Audit = &round.Audit{Thresholds: cfg.Thresholds, Required: cfg.RequiredTags}
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
