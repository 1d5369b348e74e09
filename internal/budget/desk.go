package budget

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Times of holds.
const (
	// PendingFor is how long a hold counts whose admission is being decided. A process
	// that dies meanwhile blocks its money no longer than that.
	PendingFor = 15 * time.Minute
	// Slack is the least time for which an unsettled hold counts after the end of its run.
	// It counts on until the ledger has observed the run.
	Slack = time.Hour
	// SettleFor is how long what a hold came to counts at least where the ledger has
	// charged less: charges come late, but not later than that once the run was observed.
	SettleFor = 72 * time.Hour
)

// Desk makes, changes and gives back holds. Random is where ids come from; nil means the
// system's own.
type Desk struct {
	Store  Store
	Set    Set
	Random io.Reader
}

// Reserve makes a pending hold, or returns the one of the same key if it reserves at
// least as much; an expired or smaller pending one is made again under its id. It returns
// an *Overdrawn where it does not fit. The id, the state, the expiry, the times of change
// and the version are the desk's own to set.
func (d Desk) Reserve(ctx context.Context, h Hold, now time.Time) (Hold, error) {
	if h.Key == "" {
		return Hold{}, errors.New("reserve: a hold needs a key")
	}
	id := make([]byte, 6)
	source := d.Random
	if source == nil {
		source = rand.Reader
	}
	if _, err := io.ReadFull(source, id); err != nil {
		return Hold{}, fmt.Errorf("make an id: %w", err)
	}
	h.ID, h.State, h.CreatedAt, h.Version = hex.EncodeToString(id), Pending, now.UTC(), 0
	made, err := d.put(ctx, h, now, Event{})
	if err != nil || made.ID == h.ID {
		return made, err
	}
	// Another's, or an earlier try's.
	if made.State != Pending || made.At(now) == Pending && made.fits(h) {
		return made, nil
	}
	h.ID, h.CreatedAt, h.Version = made.ID, made.CreatedAt, made.Version
	return d.put(ctx, h, now, Event{})
}

// Look says where everything stands that a hold has to fit in, and as an *Overdrawn that
// it does not fit. It reserves nothing, so another may be faster. An ID leaves the hold
// of that id out.
func (d Desk) Look(ctx context.Context, h Hold, now time.Time) ([]Standing, error) {
	h.State, h.ExpiresAt = Pending, h.Until.Add(Slack)
	r, err := d.Set.Reservation(h, now)
	if err != nil {
		return nil, err
	}
	span := r.Span()
	holds, err := d.Store.Holds(ctx, span.From, span.To)
	if err != nil {
		return nil, err
	}
	var spent []Spend
	for _, q := range r.Reads(holds) {
		s, err := d.Store.Spent(ctx, q.Match, q.From, q.To)
		if err != nil {
			return nil, err
		}
		spent = append(spent, s)
	}
	var out []Standing
	for i, l := range r.Lines {
		s, err := r.standing(l, r.others(holds), accountOf(spent, i))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, r.Check(holds, spent)
}

// Admit makes a pending hold live until its run ends and a Slack after it. What others
// reserved after it expired meanwhile is looked at again. Of several who admit one hold,
// one does; the others get ErrConflict.
func (d Desk) Admit(ctx context.Context, h Hold, now time.Time) (Hold, error) {
	if h.State != Pending {
		return Hold{}, ErrConflict
	}
	h.State = Live
	return d.put(ctx, h, now, Event{})
}

// put writes a hold that has to fit.
func (d Desk) put(ctx context.Context, h Hold, now time.Time, e Event) (Hold, error) {
	h.UpdatedAt, h.ExpiresAt = now.UTC(), h.Until.Add(Slack).UTC()
	r, err := d.Set.Reservation(h, now)
	if err != nil {
		return Hold{}, fmt.Errorf("reserve: %w", err)
	}
	if h.State == Pending {
		r.Hold.ExpiresAt = now.Add(PendingFor).UTC()
	}
	r.Event = e
	return d.Store.Reserve(ctx, r)
}

// Extend gives a live hold another amount and end, if that fits; an *Overdrawn otherwise,
// and then the hold stays as it was. It never shortens a run. By is who extends it.
func (d Desk) Extend(ctx context.Context, id string, amount money.Amount, until time.Time, by string,
	now time.Time) (Hold, error) {
	h, err := d.open(ctx, id, now)
	if err != nil {
		return Hold{}, fmt.Errorf("extend hold %s: %w", id, err)
	}
	h.Amount = amount
	if until.After(h.Until) {
		h.Until = until.UTC()
	}
	return d.put(ctx, h, now, Event{At: now, By: by, Verb: Extend})
}

// Settle ends a live hold by what its run came to. That goes on counting for SettleFor
// where the ledger has charged less so far. By is who settles it.
func (d Desk) Settle(ctx context.Context, id string, actual money.Amount, by string, now time.Time) (Hold, error) {
	if actual < 0 {
		return Hold{}, fmt.Errorf("settle hold %s: it cannot have come to %s", id, actual.Exact())
	}
	return d.end(ctx, id, Event{At: now, By: by, Verb: Settle}, func(h *Hold) {
		h.State, h.Actual, h.ExpiresAt = Settled, actual, now.Add(SettleFor).UTC()
		if now.Before(h.Until) {
			h.Until = now.UTC()
		}
		if h.Until.Before(h.From) {
			h.Until = h.From
		}
	})
}

// Release gives a hold back whose work did not start. By is who releases it.
func (d Desk) Release(ctx context.Context, id, by string, now time.Time) (Hold, error) {
	return d.end(ctx, id, Event{At: now, By: by, Verb: Release}, func(h *Hold) { h.State = Released })
}

// Unobserved are those of some holds whose runs are over, whose money is held all the
// same because the ledger has not seen what they cost, by their ids.
func (d Desk) Unobserved(ctx context.Context, holds []Hold, now time.Time) (map[string]bool, error) {
	all := Line{Window: Window{From: now.Add(time.Hour)}}
	s, err := d.Store.Spent(ctx, Match{}, all.before(holds).From, all.Window.From)
	if err != nil {
		return nil, err
	}
	missed := map[string]bool{}
	for _, h := range holds {
		if h.missed(now, h.observed(s.Through, s.ByHold[h.ID] > 0)) {
			missed[h.ID] = true
		}
	}
	return missed, nil
}

// end ends a hold, once: ending it again the same way changes nothing.
func (d Desk) end(ctx context.Context, id string, e Event, how func(*Hold)) (Hold, error) {
	h, err := d.Store.Hold(ctx, id)
	if err != nil {
		return Hold{}, err
	}
	ended := h
	how(&ended)
	switch h.State {
	case ended.State:
		return h, nil
	case Pending, Live:
		ended.UpdatedAt = e.At.UTC()
		return d.Store.PutHold(ctx, ended, e)
	}
	return h, fmt.Errorf("hold %s is %s already: %w", h.ID, h.State, ErrConflict)
}

// open returns a live hold.
func (d Desk) open(ctx context.Context, id string, now time.Time) (Hold, error) {
	h, err := d.Store.Hold(ctx, id)
	if err == nil && h.At(now) != Live {
		err = fmt.Errorf("it is %s", h.At(now))
	}
	return h, err
}
