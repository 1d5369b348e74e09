package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/backtest"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	priceaws "github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TraceOptions are the format of a trace and the cost of a restart, as people write them.
type TraceOptions struct {
	Trace, Columns, Step, Price, RestartCost, Resource, TZ string
	IdleBelow                                              float64
}

// Params parses the options. named returns what people call one of: map, step, price, restart-cost,
// idle-below.
func (o TraceOptions) Params(named func(option string) string) (backtest.Params, error) {
	p := backtest.Params{IdleBelow: o.IdleBelow}
	if !(o.IdleBelow >= 0 && o.IdleBelow <= 100) {
		return p, runtime.Invalid("%s %v: it is a percentage from 0 to 100", named("idle-below"), o.IdleBelow)
	}
	columns, err := usage.ParseMap(o.Columns)
	if err != nil {
		return p, runtime.Invalid("%s: %w", named("map"), err)
	}
	location, err := clouds.Location(o.TZ)
	if err != nil {
		return p, runtime.Invalid("%s %w", named("tz"), err)
	}
	p.Format = usage.Format{Name: o.Trace, Map: columns, Resource: o.Resource, Location: location}
	for _, d := range []struct {
		option, text string
		to           *time.Duration
		least        time.Duration
	}{{"step", o.Step, &p.Format.Step, time.Millisecond}, {"restart-cost", o.RestartCost, &p.RestartCost, 0}} {
		if d.text == "" {
			continue
		}
		if *d.to, err = config.ParseDuration(d.text); err != nil || *d.to < d.least {
			return p, runtime.Invalid("%s %q: it is a duration such as 60s", named(d.option), d.text)
		}
	}
	if o.Price != "" {
		v, err := money.ParseAmount(strings.TrimPrefix(o.Price, "$"))
		if err != nil || v <= 0 {
			return p, runtime.Invalid("%s %q: it is dollars an hour such as 3.06", named("price"), o.Price)
		}
		p.Price = &v
	}
	return p, nil
}

// TracedRegion is the region for the prices of machines in a trace whose type is stated.
const TracedRegion = "us-east-1"

// Replayed completes the parameters of a replay with the configuration that rounds use.
func Replayed(req *runtime.Request, cfg config.Config, p backtest.Params, set *policy.Set) (backtest.Params, error) {
	book, err := req.PriceBook(cfg)
	if err != nil {
		return p, err
	}
	p.Thresholds, p.Policies = cfg.Duty, set
	p.Account.Tags = cfg.Tags
	p.Account.Meters = metersOf
	p.Setting = round.Setting{Prices: book, Governance: cfg.Governance}
	if set != nil {
		p.Setting.LookBack = govern.LookBack(cfg, set)
	}
	p.MaxRoundGap = cfg.Enforce.MaxRoundGap
	if p.Budgets, err = budget.NewSet(cfg.Budgets, nil); err != nil {
		return p, fmt.Errorf("budgets: %w", err)
	}
	return p, nil
}

// metersOf returns the meters of a trace's resources: on-demand machines of the stated type. A
// resource without a stated type is unpriced.
func metersOf(r *inventory.Resource) []inventory.Meter {
	if r.Type == "" || r.Kind != inventory.KindInstance {
		return nil
	}
	machine := &inventory.Resource{
		ID: r.ID, Kind: r.Kind, Cloud: "aws", Region: TracedRegion, Type: r.Type, State: inventory.StateRunning,
		Detail: &inventory.Instance{
			Market: inventory.OnDemand, Platform: inventory.LinuxPlatform, Tenancy: inventory.SharedTenancy,
		}}
	priceaws.Attach([]*inventory.Resource{machine})
	return machine.Meters
}

// OpenTrace opens the recorded usage of a replay and determines its step.
func OpenTrace(ctx context.Context, req *runtime.Request, name string, format *usage.Format) (*os.File, error) {
	path, err := clouds.Regular(req, name)
	if err != nil {
		return nil, err
	}
	if err := clouds.Prepare(ctx, req, path, format); err != nil {
		return nil, err
	}
	file, err := config.Open(path)
	if err != nil {
		return nil, runtime.InvalidFile(fmt.Errorf("read trace %s: %w", name, runtime.Cause(err)))
	}
	if err := clouds.SettleStep(ctx, file, format); err != nil {
		_ = file.Close() // it was only read
		return nil, clouds.CloudError(err)
	}
	return file, nil
}

// TraceError adds the next step to an error in a trace.
func TraceError(trace string, err error) error {
	if errors.Is(err, backtest.ErrNothingMeasured) {
		return &runtime.Error{
			Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("%s: %w", trace, err),
			Hint: "--map gpu_util=COLUMN names the column",
		}
	}
	return clouds.CloudError(err)
}
