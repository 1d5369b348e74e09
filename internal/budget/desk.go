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
	// PendingFor is how long a hold counts while its admission is being decided, which bounds the
	// effect of a crashed process.
	PendingFor = 15 * time.Minute
	// Slack is the minimum time that an unsettled hold counts after the end of its run. It counts
	// until the ledger has observed the run.
	Slack = time.Hour
	// SettleFor is how long the actual cost of a settled hold counts at least if the ledger has
	// charged less; charges arrive within that time.
	SettleFor = 72 * time.Hour
)

// Desk makes, changes and releases holds. Random is the source of ids; nil uses crypto/rand.
type Desk struct {
	Store  Store
	Set    Set
	Random io.Reader
}

// Reserve makes a pending hold, or returns the hold of the same key if that reserves at least as
// much; an expired or smaller pending hold is replaced under its id. It returns *Overdrawn if the
// hold does not fit. The desk sets id, state, expiry, times and version.
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
	made, err := d.writeHold(ctx, h, now, Event{})
	if err != nil || made.ID == h.ID {
		return made, err
	}
	// made by another process or an earlier attempt
	if made.State != Pending || made.At(now) == Pending && made.covers(h) {
		return made, nil
	}
	h.ID, h.CreatedAt, h.Version = made.ID, made.CreatedAt, made.Version
	return d.writeHold(ctx, h, now, Event{})
}

// Check returns the standings of all budgets that a hold has to fit in, and *Overdrawn if it does
// not fit. It reserves nothing. The hold with the given ID is ignored.
func (d Desk) Check(ctx context.Context, h Hold, now time.Time) ([]Standing, error) {
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
		s, err := r.standing(l, r.otherHolds(holds), spendOfLine(spent, i))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, r.Check(holds, spent)
}

// Admit makes a pending hold live until its run ends plus Slack. An expired hold is checked against
// newer reservations. Of concurrent calls one succeeds and the others return ErrConflict.
func (d Desk) Admit(ctx context.Context, h Hold, now time.Time) (Hold, error) {
	if h.State != Pending {
		return Hold{}, ErrConflict
	}
	h.State = Live
	return d.writeHold(ctx, h, now, Event{})
}

// writeHold writes a hold that has to fit.
func (d Desk) writeHold(ctx context.Context, h Hold, now time.Time, e Event) (Hold, error) {
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

// Extend changes the amount and end of a live hold if that fits, else it returns *Overdrawn and
// changes nothing. It never shortens a run.
func (d Desk) Extend(ctx context.Context, id string, amount money.Amount, until time.Time, by string,
	now time.Time) (Hold, error) {
	h, err := d.liveHold(ctx, id, now)
	if err != nil {
		return Hold{}, fmt.Errorf("extend hold %s: %w", id, err)
	}
	h.Amount = amount
	if until.After(h.Until) {
		h.Until = until.UTC()
	}
	return d.writeHold(ctx, h, now, Event{At: now, By: by, Verb: Extend})
}

// Settle ends a live hold with the actual cost of its run, which counts for SettleFor if the ledger
// has charged less.
func (d Desk) Settle(ctx context.Context, id string, actual money.Amount, by string, now time.Time) (Hold, error) {
	if actual < 0 {
		return Hold{}, fmt.Errorf("settle hold %s: it cannot have cost %s", id, actual.Exact())
	}
	return d.endHold(ctx, id, Event{At: now, By: by, Verb: Settle}, func(h *Hold) {
		h.State, h.Actual, h.ExpiresAt = Settled, actual, now.Add(SettleFor).UTC()
		if now.Before(h.Until) {
			h.Until = now.UTC()
		}
		if h.Until.Before(h.From) {
			h.Until = h.From
		}
	})
}

// Release releases a hold whose work did not start.
func (d Desk) Release(ctx context.Context, id, by string, now time.Time) (Hold, error) {
	return d.endHold(ctx, id, Event{At: now, By: by, Verb: Release}, func(h *Hold) { h.State = Released })
}

// Unobserved returns the IDs of holds whose runs are over but whose money stays held, because the
// ledger has not observed their cost.
func (d Desk) Unobserved(ctx context.Context, holds []Hold, now time.Time) (map[string]bool, error) {
	all := Line{Window: Window{From: now.Add(time.Hour)}}
	s, err := d.Store.Spent(ctx, Match{}, all.timeBefore(holds).From, all.Window.From)
	if err != nil {
		return nil, err
	}
	missed := map[string]bool{}
	for _, h := range holds {
		if h.isUnobserved(now, h.observed(s.Through, s.ByHold[h.ID] > 0)) {
			missed[h.ID] = true
		}
	}
	return missed, nil
}

// endHold ends a hold. Repeating it has no effect.
func (d Desk) endHold(ctx context.Context, id string, e Event, how func(*Hold)) (Hold, error) {
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

// liveHold returns a live hold.
func (d Desk) liveHold(ctx context.Context, id string, now time.Time) (Hold, error) {
	h, err := d.Store.Hold(ctx, id)
	if err == nil && h.At(now) != Live {
		err = fmt.Errorf("it is %s", h.At(now))
	}
	return h, err
}
