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

// postBatch is the number of resources that are read and posted together.
const postBatch = 2000

// MaxConflicts bounds the retries of a batch after concurrent writes.
const MaxConflicts = 20

// MaxAhead bounds the lead of a round's time over the store's. Synchronized hosts differ by
// seconds.
const MaxAhead = 10 * time.Minute

// Posted counts the additions of a posting.
type Posted struct {
	// Rounds is the number of posted rounds, including older ones left by a crash.
	Rounds int
	// Entries is the number of added entries, Corrections that of corrections among them.
	Entries, Corrections int
	// Resources is the number of resources whose charges were derived.
	Resources int
}

// Post records a round with its observations and adds the resulting entries. It is idempotent, may
// be interrupted and run concurrently, and rounds may come in any order: the entries always sum to
// the charges of all observations. It returns ErrConflict if others keep writing; the next Post
// continues. A round more than MaxAhead ahead of the store's time is ErrAhead and is not recorded.
func Post(ctx context.Context, s Poster, r Round, observations []Observation) (Posted, error) {
	var p Posted
	r.At = clean(r.At)
	now, err := s.Now(ctx)
	if err != nil {
		return p, err
	}
	if ahead := r.At.Sub(now); ahead > MaxAhead {
		return p, fmt.Errorf("the round of %s is at %s, and the time of the state is %s: %w by %s; set it right, or "+
			"restart the host if it is right now",
			r.Account, r.At.Format(time.RFC3339), now.Format(time.RFC3339), ErrAhead, ahead.Round(time.Second))
	}
	if err := s.Record(ctx, r, observations); err != nil {
		return p, fmt.Errorf("record the round of %s at %s: %w", r.Account, r.At.Format(time.RFC3339), err)
	}
	return p, p.settle(ctx, s, r.Account)
}

// settle posts every pending round of an account.
func (p *Posted) settle(ctx context.Context, s Poster, a Account) error {
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

// post adds the entries of one round.
func (p *Posted) post(ctx context.Context, s Poster, r Round) error {
	touched, err := s.Touched(ctx, r)
	if err != nil {
		return err
	}
	for i := range touched {
		touched[i].From = clean(touched[i].From).Truncate(time.Hour)
		touched[i].To = clean(touched[i].To).Truncate(time.Hour).Add(time.Hour)
	}
	// Resources with equal ranges are read together, so that one that returns after a year does not
	// cause a year of all others to be read.
	slices.SortStableFunc(touched, func(a, b Touch) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	for len(touched) > 0 {
		n := 1
		for n < min(len(touched), postBatch) && touched[n].From.Equal(touched[0].From) &&
			touched[n].To.Equal(touched[0].To) {
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

// batch updates the entries of some resources over [from, to).
func (p *Posted) batch(ctx context.Context, s Poster, r Round, refs []inventory.Ref, from, to time.Time) error {
	for tries := 1; ; tries++ {
		histories, version, err := s.Histories(ctx, r.Account, refs, from, to)
		if err != nil {
			return err
		}
		var a accrual
		entries := make([]Entry, 0, 2*len(histories))
		for i := range histories {
			if entries, err = a.differences(entries, &histories[i], from, to, r.At); err != nil {
				return err
			}
		}
		if len(entries) > 0 {
			_, err = s.Append(ctx, r.Account, version, entries)
		}
		switch {
		case errors.Is(err, ErrConflict) && tries < MaxConflicts:
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

// differences appends the entries that change the posted ones of a history over [from, to) to the
// derived ones. If an hour loses something, its entries are corrections.
func (a *accrual) differences(others []Entry, h *History, from, to, round time.Time) ([]Entry, error) {
	out, err := a.derive(others, h, from, to)
	if err != nil {
		return nil, err
	}
	first := len(others)
	for i := range h.Posted {
		e := Entry{Kind: Accrual, Hour: clean(h.Posted[i].Hour), Line: h.Posted[i].Line, Sums: h.Posted[i].negative()}
		e.AsOf = clean(e.AsOf)
		out = append(out, e)
	}
	if len(h.Posted) > 0 {
		rest, err := merged(out[first:])
		if err != nil {
			return nil, fmt.Errorf("correct %s: %w", h.Ref, err)
		}
		out = out[:first+len(rest)]
	}
	entries := out[first:]
	for i := range entries {
		entries[i].Round = round
	}
	for i := range entries {
		// Rounding may move a nano-dollar between the parts of a growing hour.
		if e := &entries[i]; e.Seconds < 0 || e.AtMost < -1 {
			for j := range entries {
				if entries[j].Hour.Equal(e.Hour) {
					entries[j].Kind = Correction
				}
			}
		}
	}
	return out, nil
}

// merged returns entries of one resource in order, merged by hour and line, without zeros.
func merged(entries []Entry) ([]Entry, error) {
	sortEntries(entries)
	n := 0
	for i := range entries {
		if e := &entries[i]; n == 0 || entries[n-1].Hour != e.Hour || entries[n-1].Line != e.Line {
			entries[n] = *e
			n++
			continue
		}
		var err error
		if entries[n-1].Sums, err = entries[n-1].Plus(entries[i].Sums); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(entries[:n], func(e Entry) bool { return e.Sums == Sums{} }), nil
}
