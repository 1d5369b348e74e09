// Package backtest replays recorded usage and says what releasing idle resources
// would have saved: by policies, by fixed waits, by a dead man's switch, by a rule that
// learns from the past, and by an oracle that has perfect foresight. What decides sees only
// the past, as it would live; policies are asked by the code that asks them live, and
// decide the same at the same times.
//
// A sample at t covers [t, t + step) and is known at t. A stretch is a run of
// consecutive idle samples of one resource; a missing sample ends it, because what
// was not measured is unknown and not idle.
package backtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Params configure the reading of a trace and the cost of a restart.
type Params struct {
	// Format says how to read the trace. Its Step is the time one sample stands for
	// and must be known (see [usage.InferStep]).
	Format usage.Format
	// IdleBelow is the GPU utilization in percent, 0 to 100, under which a sample is
	// idle. At 0 only a utilization of exactly 0 is.
	IdleBelow float64
	// RestartCost is the time of the resource that is lost when work comes back to a
	// resource that was released. 0 is a restart that costs nothing.
	RestartCost time.Duration
	// Price is the hourly cost of a resource; nil prices its meters by the setting, if Account
	// describes them.
	Price *money.Amount
	// Baselines adds the baselines to the results.
	Baselines bool
	// Policies are replayed each for itself, as if it were enforced, before all else; nil if there
	// is none. What the trace does not say of a resource is assumed ([Account.Resource]).
	Policies *policy.Set
	// AsSessions is the time at rest of the SessionRule that Policies hold, whose result shows the
	// resources as sessions; 0 for none.
	AsSessions time.Duration
	// Account maps the trace's columns; its Format and Only are those above and below. Without tags
	// the default mapping holds.
	Account AccountParams
	// Setting configures the engine in addition to the trace: prices, governance, the look-back.
	// Without prices the embedded book holds.
	Setting round.Setting
	// Budgets are those that conditions may ask about. They begin with nothing spent, and
	// the rounds of a replay are charged to them in memory.
	Budgets budget.Set
	// Every replays rounds at the multiples of a duration, as processes do that cron
	// starts, of which MaxRoundGap is the longest pause that is vouched for; 0 wakes at
	// every sample and every computed deadline.
	Every, MaxRoundGap time.Duration
	// Caps applies the limits of policies: at once, as a share of those selected, and in dollars an
	// hour.
	Caps bool
	// Thresholds are the lines between the states of duty; the zero value is the
	// defaults.
	Thresholds duty.Thresholds
	// Decided receives the decisions of policies, policy by policy, in the order of time; nil
	// receives none.
	Decided func(Decision)
	// Deciders are replayed after one another, before the baselines.
	Deciders []learn.Named
	// Draw is of how many resources, up to 48, the report holds a [Timeline]; 0 is
	// none.
	Draw int
	// Only leaves out resources for which it answers false; nil takes all.
	Only func(resource string) bool
}

// ErrNothingMeasured says that a trace holds no sample of GPU utilization.
var ErrNothingMeasured = errors.New("no sample of gpu_util")

// Run reads a trace in any format and order of rows that [usage.Read] knows and
// replays it. Memory grows with the number of changes between busy and idle, and of
// samples that are early or late, one to five bytes each, and not with the number of
// samples; where policies are replayed on more than utilization, with all that was
// measured.
//
// It returns ErrNothingMeasured, never a result of zero, for a trace without GPU
// utilization; a *usage.FileError for a malformed one; and the error of ctx.
func Run(ctx context.Context, source io.Reader, p Params) (Report, error) {
	if err := p.check(); err != nil {
		return Report{}, fmt.Errorf("replay %s: %w", p.Format.Name, err)
	}
	p, err := p.complete()
	if err != nil {
		return Report{}, err
	}
	t, err := load(ctx, source, p)
	if err != nil {
		return Report{}, err
	}
	r, err := t.replay(ctx, p)
	if err != nil {
		return Report{}, fmt.Errorf("replay %s: %w", p.Format.Name, err)
	}
	return r, nil
}

// complete fills in the defaults.
func (p Params) complete() (Params, error) {
	if p.Setting.Prices == nil {
		book, err := price.Embedded()
		if err != nil {
			return p, err
		}
		p.Setting.Prices = book
	}
	a := &p.Account
	a.Format, a.Only = p.Format, p.Only
	if len(a.Tags.Team) == 0 {
		a.Tags = inventory.DefaultTagMapping()
	}
	if a.Size == nil {
		a.Size = p.Setting.Prices.TypeSize
	}
	a.Governed = a.Governed || len(p.Setting.Governance) > 0
	if p.Price == nil {
		return p, nil
	}
	rate, err := p.Price.Rate()
	if err != nil {
		return p, fmt.Errorf("a price of %s an hour: %w", *p.Price, err)
	}
	given := []inventory.Meter{
		{Name: "compute", Category: inventory.CategoryCompute, Unit: "hour", Quantity: money.HoursPerMonth, Per: 1,
			Price: &inventory.Price{Rate: rate, Source: "given"}}}
	a.Meters = func(*inventory.Resource) []inventory.Meter { return given }
	return p, nil
}

// maxSpan bounds step and restart cost, so that no sum of spans overflows.
const maxSpan = 366 * 24 * time.Hour

func (p Params) check() error {
	switch {
	case p.Format.Step < time.Millisecond || p.Format.Step > maxSpan:
		return fmt.Errorf("a step of %s between samples: it has to be known, from 1ms to a year", p.Format.Step)
	case p.Format.Step%time.Microsecond != 0:
		return fmt.Errorf("a step of %s: steps are whole microseconds", p.Format.Step)
	case p.RestartCost < 0 || p.RestartCost > maxSpan:
		return fmt.Errorf("a restart cost of %s: it must be between 0 and a year", p.RestartCost)
	case math.IsNaN(p.IdleBelow) || p.IdleBelow < 0 || p.IdleBelow > 100:
		return fmt.Errorf("idle below %v%%: it must be between 0 and 100", p.IdleBelow)
	case p.Price != nil && *p.Price < 0:
		return fmt.Errorf("a price of %s an hour is negative", *p.Price)
	}
	return nil
}

func micros(d time.Duration) int64 { return d.Microseconds() }

func span(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func hours(us int64) float64 { return float64(us) / float64(time.Hour/time.Microsecond) }
