// Package spot says what work that can be interrupted costs on spot machines, by replay
// of recorded availability and prices: strategies that must meet a deadline, and how
// often to save a checkpoint. Strategies are shown one sample after another and never
// see what comes.
package spot

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Schemas name the shapes of a [Report] and a [CheckpointReport] in JSON.
const (
	Schema           = "curfew.plan.spot/v1"
	CheckpointSchema = "curfew.plan.checkpoint/v1"
)

// The strategies of a replay. Greedy and UniformProgress are those of Wu et al., Can't
// Be Late (NSDI 2024), as the documentation of plan spot defines them; Bound is what no
// strategy can pass, because it knows what comes and never restarts.
const (
	Greedy          = "greedy"
	UniformProgress = "uniform-progress"
	Curfew          = "curfew"
	Bound           = "bound"
)

// maxPrice is the highest price of a machine for an hour, over a hundred times that of
// the most expensive one.
const maxPrice = 100_000 * money.USD

// Params is the work and what it may cost. All but Restart and AcrossZones must be over 0.
type Params struct {
	// Work is how long the work takes on one machine that is never interrupted, Deadline
	// how long it may take from its start.
	Work, Deadline time.Duration
	// Restart is paid without progress at every start and every change of machine.
	Restart time.Duration
	// Every is the time from the start of one case to that of the next.
	Every time.Duration
	// SpotPrice is for an hour, and needed where the trace has no prices. OnDemandPrice
	// is for an hour; on-demand machines are taken to be there always.
	SpotPrice, OnDemandPrice money.Amount
	// AcrossZones lets one case move between all zones of the trace.
	AcrossZones bool
}

// ParseDeadline reads "1.15x", a multiple of the work from 1 to 1000, or a duration.
func ParseDeadline(text string, work time.Duration) (time.Duration, error) {
	if factor, ok := strings.CutSuffix(text, "x"); ok {
		f, err := strconv.ParseFloat(factor, 64)
		if err != nil || !(f >= 1 && f <= 1000) {
			return 0, fmt.Errorf("deadline %q: expected a multiple of the work from 1x to 1000x, such as 1.15x", text)
		}
		ms := f * float64(work.Milliseconds())
		if ms > float64(math.MaxInt64/int64(time.Millisecond)) {
			return 0, fmt.Errorf("deadline %q of %s is too long", text, work)
		}
		return time.Duration(math.Round(ms)) * time.Millisecond, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("deadline %q: expected a multiple of the work, such as 1.15x, or a duration, such as 55h",
			text)
	}
	return d, nil
}

// window is the number of whole gaps a case has.
func (p Params) window(gap time.Duration) int { return int(p.Deadline / gap) }

// stride is how many gaps lie between the starts of cases.
func (p Params) stride(gap time.Duration) int { return int(p.Every / gap) }

func (p Params) check(tr Trace) error {
	if err := tr.check(); err != nil {
		return fmt.Errorf("plan spot: %w", err)
	}
	switch {
	case p.Work <= 0:
		return errors.New("plan spot: the work takes no time: give its duration on one machine")
	case p.Restart < 0:
		return fmt.Errorf("plan spot: restart %s: expected 0 or more", p.Restart)
	case p.Every < tr.Gap:
		return fmt.Errorf("plan spot: a case every %s is more often than the sampling step of %s", p.Every, tr.Gap)
	case p.OnDemandPrice <= 0 || p.OnDemandPrice > maxPrice:
		return fmt.Errorf("plan spot: the on-demand price is $%s an hour: expected more than 0", p.OnDemandPrice)
	case p.SpotPrice < 0 || p.SpotPrice > maxPrice:
		return fmt.Errorf("plan spot: the spot price is $%s an hour: expected more than 0", p.SpotPrice)
	case p.Restart > math.MaxInt64/4 || p.Work > math.MaxInt64/4 || p.Deadline > math.MaxInt64/4:
		return fmt.Errorf("plan spot: work of %s, a deadline of %s or a restart of %s is too long", p.Work, p.Deadline,
			p.Restart)
	}
	window := time.Duration(p.window(tr.Gap)) * tr.Gap
	if window < p.Work+p.Restart {
		return fmt.Errorf(
			"plan spot: a deadline of %s is %s in whole sampling steps of %s, less than the work and one "+
				"restart (%s): on-demand misses it too",
			p.Deadline, window, tr.Gap, p.Work+p.Restart)
	}
	for _, z := range tr.Zones {
		if z.Prices == nil && p.SpotPrice == 0 {
			return fmt.Errorf("plan spot: no spot price for %q: give --spot-price, or a trace with a price column",
				z.Name)
		}
	}
	return nil
}
