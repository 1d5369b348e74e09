package backtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/usage"
)

// trace is a recorded trace in memory.
type trace struct {
	summary usage.Summary
	step    int64
	restart int64
	account *Account
	// resources are those whose utilization was measured, in the order of their names,
	// and tracks when they worked; place says where a resource of the account is among
	// them, -1 where it is not.
	resources []learn.Resource
	tracks    []*track
	place     []int
	// hourly are the hourly costs of those resources; nil is unknown.
	hourly []*money.Amount
}

// span returns when the first sample begins and the last one ends.
func (t *trace) span() (from, to int64) {
	from = t.tracks[0].first
	for _, track := range t.tracks {
		from, to = min(from, track.first), max(to, track.last+t.step)
	}
	return from, to
}

// load reads a trace.
func load(ctx context.Context, source io.Reader, p Params) (*trace, error) {
	p, err := p.complete()
	if err != nil {
		return nil, err
	}
	a, err := ReadAccount(ctx, source, p.Account)
	if errors.Is(err, usage.ErrNoSamples) {
		err = fmt.Errorf("replay %s: %w", p.Format.Name, ErrNothingMeasured)
	}
	if err != nil {
		return nil, err
	}
	t := &trace{
		summary: a.Summary(), step: a.step, restart: micros(p.RestartCost), account: a, place: make([]int, a.Len()),
	}
	for i, r := range a.resources {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("replay %s: %w", p.Format.Name, context.Cause(ctx))
		}
		t.place[i] = -1
		var parts []*part
		var unmeasured []*series // GPUs whose utilization cannot be measured
		for _, s := range r.series {
			if p := s.part(t.step, len(parts), p.IdleBelow); p.count > 0 {
				parts = append(parts, p)
			} else if s.unsupported > 0 {
				unmeasured = append(unmeasured, s)
			}
		}
		if len(parts)+len(unmeasured) == 0 {
			continue
		}
		t.place[i] = len(t.resources)
		t.resources = append(t.resources, learn.Resource{Name: r.name, Description: r.describedAt(r.known)})
		t.tracks = append(t.tracks, merged(parts, len(parts), t.step, unmeasured))
		t.hourly = append(t.hourly, a.hourly(i, p.Setting.Prices))
	}
	if len(t.tracks) == 0 {
		return nil, fmt.Errorf("replay %s: %w", p.Format.Name, ErrNothingMeasured)
	}
	return t, nil
}

// hourly returns the hourly cost of a resource by its description in the trace; nil if that is
// unknown, or changes.
func (a *Account) hourly(i int, prices *price.Book) *money.Amount {
	said := a.resources[i].stated
	if len(said) == 0 {
		said = []stated{{known: a.resources[i].known}}
	}
	var out *money.Amount
	for n, d := range said {
		if n > 0 && d.Type == said[n-1].Type && d.Kind == said[n-1].Kind {
			continue
		}
		r := a.Resource(i, instant(d.known))
		hour, err := ledger.AnHour(ledger.RunRates([]*inventory.Resource{r}, prices)[r.Ref()])
		v, known := hour.Get()
		if err != nil || !known || out != nil && *out != v {
			return nil
		}
		out = &v
	}
	return out
}

// unpriced is how many resources have no price.
func (a *Account) unpriced(prices *price.Book) int {
	n := 0
	for i := range a.resources {
		if a.hourly(i, prices) == nil {
			n++
		}
	}
	return n
}

// instant returns a time of microseconds.
func instant(us int64) time.Time { return time.UnixMicro(us).UTC() }

// never is a time that does not come.
const never = math.MaxInt64

// source is the source name of the samples of a trace.
const source = "recorded"

// Read reads a trace as an account, by the parameters of a replay.
func Read(ctx context.Context, source io.Reader, p Params) (*Account, error) {
	p, err := p.complete()
	if err != nil {
		return nil, err
	}
	return ReadAccount(ctx, source, p.Account)
}
