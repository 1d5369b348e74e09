package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// postBatch is how many resources are read and posted at once.
const postBatch = 2000

// maxConflicts is how often a batch is derived again because others wrote meanwhile.
const maxConflicts = 20

// Posted says what a posting added.
type Posted struct {
	// Rounds that were posted, older ones that a crash had left among them.
	Rounds int
	// Entries added, and how many of them are corrections.
	Entries, Corrections int
	// Resources whose charges were derived.
	Resources int
}

// Post records a round with its observations and adds the entries that follow. It may
// be repeated, interrupted and run beside others, and rounds may come in any order: the
// entries always add up to what [Accrue] says of all observations. Where others keep
// writing it returns ErrConflict; the next Post goes on where it stopped.
func Post(ctx context.Context, s Store, r Round, observations []Observation) (Posted, error) {
	var p Posted
	r.At = clean(r.At)
	if err := s.Record(ctx, r, observations); err != nil {
		return p, fmt.Errorf("record the round of %s at %s: %w", r.Account, r.At.Format(time.RFC3339), err)
	}
	return p, p.settle(ctx, s, r.Account)
}

// settle posts every round of an account that is pending.
func (p *Posted) settle(ctx context.Context, s Store, a Account) error {
	pending, err := s.Pending(ctx, a)
	if err != nil {
		return fmt.Errorf("read the rounds of %s that are not posted: %w", a, err)
	}
	for _, r := range pending {
		if err := p.post(ctx, s, r.Round); err != nil {
			return fmt.Errorf("post the round of %s at %s: %w", a, r.At.Format(time.RFC3339), err)
		}
		if err := s.Settle(ctx, r); err != nil {
			return fmt.Errorf("settle the round of %s at %s: %w", a, r.At.Format(time.RFC3339), err)
		}
		p.Rounds++
	}
	return nil
}

// post adds what follows from one round.
func (p *Posted) post(ctx context.Context, s Store, r Round) error {
	touched, err := s.Touched(ctx, r)
	if err != nil {
		return err
	}
	for i := range touched {
		touched[i].From = clean(touched[i].From).Truncate(time.Hour)
		touched[i].To = clean(touched[i].To).Truncate(time.Hour).Add(time.Hour)
	}
	// Resources of one range are read together, so that one that comes back after a
	// year does not read the year of all others.
	slices.SortStableFunc(touched, func(a, b Touch) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	for len(touched) > 0 {
		n := 1
		for n < min(len(touched), postBatch) && touched[n].From.Equal(touched[0].From) && touched[n].To.Equal(touched[0].To) {
			n++
		}
		refs := make([]inventory.Ref, n)
		for i, t := range touched[:n] {
			refs[i] = t.Ref
		}
		if err := p.batch(ctx, s, r, refs, touched[0].From, touched[0].To); err != nil {
			return err
		}
		touched = touched[n:]
	}
	return nil
}

// batch brings the entries of some resources over [from, to) to what is known of them.
func (p *Posted) batch(ctx context.Context, s Store, r Round, refs []inventory.Ref, from, to time.Time) error {
	for tries := 1; ; tries++ {
		histories, version, err := s.Histories(ctx, r.Account, refs, from, to)
		if err != nil {
			return err
		}
		var entries []Entry
		for i := range histories {
			more, err := histories[i].differences(from, to, r.At)
			if err != nil {
				return err
			}
			entries = append(entries, more...)
		}
		if len(entries) > 0 {
			_, err = s.Append(ctx, r.Account, version, entries)
		}
		switch {
		case errors.Is(err, ErrConflict) && tries < maxConflicts:
			continue
		case err != nil:
			return err
		}
		p.Resources += len(refs)
		p.Entries += len(entries)
		for _, e := range entries {
			if e.Kind == Correction {
				p.Corrections++
			}
		}
		return nil
	}
}

// differences returns the entries that bring what is posted over [from, to) to what is
// known. Where an hour loses something, its entries are corrections.
func (h *History) differences(from, to, round time.Time) ([]Entry, error) {
	entries, err := h.accrue(from, to)
	if err != nil || len(h.Posted) == 0 {
		for i := range entries {
			entries[i].Round = round
		}
		return entries, err
	}
	type key struct {
		hour time.Time
		line Line
	}
	at := make(map[key]int, len(entries)+len(h.Posted))
	for i, e := range entries {
		at[key{e.Hour, e.Line}] = i
	}
	for _, e := range h.Posted {
		e.Hour, e.AsOf = clean(e.Hour), clean(e.AsOf)
		k := key{e.Hour, e.Line}
		i, ok := at[k]
		if !ok {
			i = len(entries)
			at[k] = i
			entries = append(entries, Entry{Kind: Accrual, Hour: e.Hour, Line: e.Line})
		}
		if entries[i].Sums, err = entries[i].plus(e.negative()); err != nil {
			return nil, fmt.Errorf("correct %s of %s: %w", e.Meter, e.Ref, err)
		}
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool { return e.Sums == Sums{} })
	lost := map[time.Time]bool{}
	for _, e := range entries {
		// Rounding may move a nano-dollar between an hour's parts as it goes on.
		if e.Seconds < 0 || e.AtMost < -1 {
			lost[e.Hour] = true
		}
	}
	for i := range entries {
		if entries[i].Round = round; lost[entries[i].Hour] {
			entries[i].Kind = Correction
		}
	}
	slices.SortFunc(entries, func(x, y Entry) int { return cmp.Or(x.Hour.Compare(y.Hour), compareLines(&x.Line, &y.Line)) })
	return entries, nil
}
