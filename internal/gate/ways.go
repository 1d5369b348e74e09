package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/money"
)

// Way is an alternative to a denied request that passes by everything known now.
type Way struct {
	// Kind is "smaller", "later", "cheaper" or "raise".
	Kind string `json:"kind"`
	// What to do, as a sentence: "max_runtime 12h".
	What string `json:"what"`
	// P95 is its cost at the 95th percentile.
	P95 money.Amount `json:"p95_usd"`
	// At is when it passes; nil: now.
	At *time.Time `json:"at,omitempty"`
	// Decision is allow, or ask where it still needs an approval.
	Decision Verdict `json:"decision"`
}

// candidates is how many future start times to try.
const candidates = 32

// ways are the ways around a denial: a shorter run or fewer machines, a later start,
// another machine, a larger budget.
func (d *decision) ways(ctx context.Context, over *budget.Overdrawn) ([]Way, error) {
	if d.Kind == Extension {
		return nil, nil // the run has its machines
	}
	var out []Way
	for _, find := range []func(context.Context, *budget.Overdrawn) (*Way, error){
		d.shorter, d.fewer, d.cheaper, d.later,
	} {
		w, err := find(ctx, over)
		if err != nil {
			return nil, fmt.Errorf("look for what would pass: %w", err)
		}
		if w != nil {
			out = append(out, *w)
		}
	}
	if over.Budget != "" && !over.PerHour {
		missing, err := money.Sum(over.Used, over.Unknown, over.Held, over.Asked)
		if err == nil && missing > over.Limit {
			out = append(out, Way{
				Kind: "raise",
				What: fmt.Sprintf("budget %s raised by %s; no approval of the run exceeds a budget", over.Budget,
					(missing - over.Limit).Exact()),
				P95: d.P95, Decision: Held,
			})
		}
	}
	return out, nil
}

// try decides an ask at a time, and names the budget that it would exceed.
func (d *decision) try(ctx context.Context, ask Ask, at time.Time) (Verdict, *budget.Overdrawn, error) {
	p := d.Params
	p.Now = at
	t := &decision{Ask: ask, Params: p, hash: d.hash, replaced: d.replaced}
	over, asks, err := t.judge(ctx, t.newHold(nil))
	switch {
	case err != nil:
		return "", nil, err
	case over != nil:
		return Denied, over, nil
	case len(asks) > 0:
		return Held, nil, nil
	}
	return Allow, nil, nil
}

// shorter is the longest run in whole hours, or minutes under one, that fits.
func (d *decision) shorter(ctx context.Context, over *budget.Overdrawn) (*Way, error) {
	if over.Quota != "" || over.PerHour || d.Hourly == 0 || d.MaxRuntime == 0 {
		return nil, nil
	}
	whole, err := d.Hourly.Mul(int64(d.MaxRuntime), int64(time.Hour))
	if err != nil {
		return nil, err
	}
	fixed := max(0, d.P95-whole) // what does not depend on the time
	length := d.MaxRuntime
	for range candidates {
		left := over.Limit - over.Used - over.Unknown - over.Held - fixed
		if left <= 0 {
			return nil, nil
		}
		fits := time.Duration(float64(left) / float64(d.Hourly) * float64(time.Hour))
		if unit := step(fits); fits >= unit {
			fits = fits.Truncate(unit)
		}
		if length = min(fits, length-step(length)); length < time.Minute {
			return nil, nil
		}
		ask := d.Ask
		if ask.P95, err = d.Hourly.Mul(int64(length), int64(time.Hour)); err != nil {
			return nil, err
		}
		ask.P95 += fixed
		ask.P50, ask.MaxRuntime = min(ask.P50, ask.P95), length
		verdict, next, err := d.try(ctx, ask, d.Now)
		if err != nil {
			return nil, err
		}
		if verdict != Denied {
			return &Way{Kind: "smaller", What: "max_runtime " + short(length), P95: ask.P95, Decision: verdict}, nil
		}
		if next.Quota != "" || next.PerHour {
			return nil, nil
		}
		over = next
	}
	return nil, nil
}

// step is the grain in which people give a time of that length.
func step(length time.Duration) time.Duration {
	if length > time.Hour {
		return time.Hour
	}
	return time.Minute
}

func short(length time.Duration) string {
	if length%time.Hour == 0 {
		return fmt.Sprintf("%dh", length/time.Hour)
	}
	return fmt.Sprintf("%dm", length/time.Minute)
}

// fewer is the most machines that fit.
func (d *decision) fewer(ctx context.Context, _ *budget.Overdrawn) (*Way, error) {
	var best *Way
	var failed error
	sort.Search(max(0, d.Machines-1), func(i int) bool { // the first count, from the most down, that passes
		n := int64(d.Machines - 1 - i)
		ask, all := d.Ask, int64(d.Machines)
		var errs [3]error
		ask.Machines, ask.GPUs = int(n), maps.Clone(d.GPUs)
		for kind, gpus := range ask.GPUs {
			ask.GPUs[kind] = int((int64(gpus)*n + all - 1) / all)
		}
		ask.P50, errs[0] = d.P50.Mul(n, all)
		ask.P95, errs[1] = d.P95.Mul(n, all)
		ask.Hourly, errs[2] = d.Hourly.Mul(n, all)
		verdict, _, err := d.try(ctx, ask, d.Now)
		if err = errors.Join(append(errs[:], err)...); err != nil {
			failed = err
			return true
		}
		if verdict == Denied {
			return false
		}
		noun := "machines"
		if n == 1 {
			noun = "machine"
		}
		best = &Way{
			Kind: "smaller", What: fmt.Sprintf("%d %s at once for as long", n, noun), P95: ask.P95, Decision: verdict,
		}
		return true
	})
	return best, failed
}

// cheaper is the cheapest other machine that fits.
func (d *decision) cheaper(ctx context.Context, _ *budget.Overdrawn) (*Way, error) {
	for _, o := range d.Alternatives {
		ask := d.Ask
		ask.P50, ask.P95, ask.Hourly, ask.GPUs, ask.Machines = o.P50, o.P95, o.Hourly, o.GPUs, o.Machines
		verdict, _, err := d.try(ctx, ask, d.Now)
		if err != nil {
			return nil, err
		}
		if verdict != Denied {
			return &Way{Kind: "cheaper", What: o.What, P95: o.P95, Decision: verdict}, nil
		}
	}
	return nil, nil
}

// later is the first time at which it fits: a new period of the budget, or the end of a
// hold. It takes for granted that nothing else is charged or reserved until then.
func (d *decision) later(ctx context.Context, over *budget.Overdrawn) (*Way, error) {
	holds, err := d.Budgets.Store.Holds(ctx, d.Now, d.Now.AddDate(0, 3, 0))
	if err != nil {
		return nil, err
	}
	var times []time.Time
	if over.Window.To.After(d.Now) {
		times = append(times, over.Window.To)
	}
	for _, h := range holds {
		if h.ExpiresAt.After(d.Now) && h.State != budget.Released && h.State != budget.Settled {
			times = append(times, h.ExpiresAt)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.CompactFunc(times, time.Time.Equal)
	for _, at := range times[:min(len(times), candidates)] {
		verdict, _, err := d.try(ctx, d.Ask, at)
		if err != nil {
			return nil, err
		}
		if verdict != Denied && d.limited(over, at) {
			at = at.UTC()
			return &Way{
				Kind: "later",
				What: "a start at " + at.Format(time.RFC3339) + ", if nothing else is charged or reserved until then",
				P95:  d.P95, At: &at, Decision: verdict,
			}, nil
		}
	}
	return nil, nil
}

// limited reports whether what refused the ask still limits it at a time: a budget that has
// ended by then does not, and its end is no advice.
func (d *decision) limited(over *budget.Overdrawn, at time.Time) bool {
	if over.Budget == "" {
		return true
	}
	return slices.ContainsFunc(d.Budgets.Set.Covering(d.Owner, d.Purpose, at, at.Add(time.Hour)),
		func(b budget.Budget) bool { return b.ID == over.Budget })
}
