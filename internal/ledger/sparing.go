package ledger

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Sparing charges for what the rounds of one account see, as a [Journal] does, and leaves out
// what adds nothing: of observations that say the same one after another the first and the
// last charge for the time between them. A round is posted whole at least every so often, and
// at once where what is there is not what was there before; of resources that changed, the
// observation before the change and the one after it are posted at once. What the resources
// did in rounds that are left out is posted with the next observation of each.
//
// It is not safe for concurrent use. Where a process ends, what was left out since is lost:
// the time is charged by the next process all the same, and what resources did in it may
// become unknown.
type Sparing struct {
	Store Poster
	// Every is the longest time between two rounds that are posted whole; 0 posts them all.
	Every time.Duration

	// round is the newest round, seen what it saw, and whole when one was last posted whole.
	round Round
	seen  map[inventory.Ref]look
	whole time.Time
}

// look is the newest observation of a resource, with what it did since the one before it that
// was posted.
type look struct {
	Observation
	posted bool
}

// Post records what a round saw, or leaves it to a later one.
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
	now := make(map[inventory.Ref]look, len(observations))
	var changed, before []Observation
	other := !slices.Equal(r.Complete, p.round.Complete)
	for _, o := range observations {
		last, known := p.seen[o.Ref]
		next := look{Observation: o}
		switch {
		case !known:
			// Where it began is told by the last round without it, unless it was made since.
			other = other || !o.CreatedAt.After(p.round.At)
			changed, next.posted = append(changed, o), true
		case !last.lasts(&o):
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
		// What changed needs what was before.
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

// all posts a round whole.
func (p *Sparing) all(ctx context.Context, r Round, observations []Observation) error {
	if _, err := Post(ctx, p.Store, r, observations); err != nil {
		return err
	}
	p.round, p.whole, p.seen = r, r.At, make(map[inventory.Ref]look, len(observations))
	for _, o := range observations {
		p.seen[o.Ref] = look{o, true}
	}
	return nil
}

// rest posts the newest round whole, unless that was done.
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

// part posts some observations of a round, which says nothing of others.
func (p *Sparing) part(ctx context.Context, r Round, observations []Observation) error {
	if len(observations) == 0 {
		return nil
	}
	r.Complete = nil
	_, err := Post(ctx, p.Store, r, observations)
	return err
}

// lasts says whether a later observation says the same. Times that the earlier one was ahead
// of say something else once they are past.
func (l *look) lasts(o *Observation) bool {
	a, b := l.Observation, *o
	if a.CreatedAt.After(a.At) || a.StateSince.After(a.At) {
		return false
	}
	a.At, b.At, a.Duty, b.Duty = time.Time{}, time.Time{}, nil, nil
	return reflect.DeepEqual(a, b)
}

// after is the part of spans that is after a time.
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
