package ledger

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Sparing posts the rounds of one account like a [Journal] but skips redundant ones: of consecutive
// equal observations only the first and the last matter. A full round is posted at a fixed
// interval, and at once if resources appeared or disappeared; for resources that changed, the
// observations before and after the change are posted at once. Duty measured in skipped rounds is
// posted with the next observation of each resource.
//
// It is not safe for concurrent use. If the process ends, the duty of skipped rounds is lost: the
// next process charges the time, but the duty may become unknown.
type Sparing struct {
	Store Poster
	// Every is the maximum time between full rounds; 0 posts every round.
	Every time.Duration

	// round is the newest round, seen its observations, and whole the time of the last full
	// posting.
	round Round
	seen  map[inventory.Ref]lastSeen
	whole time.Time
}

// lastSeen is the newest observation of a resource with the duty since its last posted observation.
type lastSeen struct {
	Observation
	posted bool
}

// Post records the observations of a round or defers them.
func (p *Sparing) Post(ctx context.Context, s Seen) error {
	r, observations := Observe(s)
	if err := p.post(ctx, r, observations); err != nil {
		return fmt.Errorf("charge %s: %w", s.Account, err)
	}
	return nil
}

func (p *Sparing) post(ctx context.Context, r Round, observations []Observation) error {
	if p.seen == nil || r.Account != p.round.Account || !r.At.After(p.round.At) {
		return p.all(ctx, r, observations)
	}
	now := make(map[inventory.Ref]lastSeen, len(observations))
	var changed, before []Observation
	other := !slices.Equal(r.Complete, p.round.Complete)
	for _, o := range observations {
		last, known := p.seen[o.Ref]
		next := lastSeen{Observation: o}
		switch {
		case !known:
			// If the resource is older than the previous round, which did not list it, post that
			// round too: it bounds when the resource appeared.
			other = other || !o.CreatedAt.After(p.round.At)
			changed, next.posted = append(changed, o), true
		case !last.sameAs(&o):
			if !last.posted {
				before = append(before, last.Observation)
			}
			changed, next.posted = append(changed, o), true
		case !last.posted:
			next.Duty = joined(slices.Concat(last.Duty, after(o.Duty, last.At)))
		}
		now[o.Ref] = next
	}
	for ref := range p.seen {
		if _, there := now[ref]; !there {
			other = true
		}
	}
	switch {
	case other:
		if err := p.rest(ctx); err != nil {
			return err
		}
		return p.all(ctx, r, observations)
	case r.At.Sub(p.whole) >= p.Every:
		for i := range observations {
			observations[i] = now[observations[i].Ref].Observation
		}
		// A change needs the observation before it.
		if err := p.part(ctx, p.round, before); err != nil {
			return err
		}
		return p.all(ctx, r, observations)
	}
	if err := p.part(ctx, p.round, before); err != nil {
		return err
	}
	if err := p.part(ctx, r, changed); err != nil {
		return err
	}
	p.round, p.seen = r, now
	return nil
}

// all posts a full round.
func (p *Sparing) all(ctx context.Context, r Round, observations []Observation) error {
	if _, err := Post(ctx, p.Store, r, observations); err != nil {
		return err
	}
	p.round, p.whole, p.seen = r, r.At, make(map[inventory.Ref]lastSeen, len(observations))
	for _, o := range observations {
		p.seen[o.Ref] = lastSeen{o, true}
	}
	return nil
}

// rest posts the newest round in full unless that was done.
func (p *Sparing) rest(ctx context.Context) error {
	if p.whole.Equal(p.round.At) {
		return nil
	}
	var left []Observation
	for _, l := range p.seen {
		if !l.posted {
			left = append(left, l.Observation)
		}
	}
	slices.SortFunc(left, func(a, b Observation) int { return inventory.CompareRefs(a.Ref, b.Ref) })
	_, err := Post(ctx, p.Store, p.round, left)
	return err
}

// part posts some observations of a round without its complete parts.
func (p *Sparing) part(ctx context.Context, r Round, observations []Observation) error {
	if len(observations) == 0 {
		return nil
	}
	r.Complete = nil
	_, err := Post(ctx, p.Store, r, observations)
	return err
}

// sameAs reports whether a later observation is equal. Times in the future of the earlier one must
// still be in the future.
func (l *lastSeen) sameAs(o *Observation) bool {
	a, b := l.Observation, *o
	if a.CreatedAt.After(a.At) || a.StateSince.After(a.At) {
		return false
	}
	a.At, b.At, a.Duty, b.Duty = time.Time{}, time.Time{}, nil, nil
	return reflect.DeepEqual(a, b)
}

// after returns the part of spans after a time.
func after(spans []Span, t time.Time) []Span {
	var out []Span
	for _, s := range spans {
		if s.From.Before(t) {
			s.From = t
		}
		if s.From.Before(s.To) {
			out = append(out, s)
		}
	}
	return out
}
