package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/money"
)

// Extension is the Kind of a request for more money or time for a run that is live.
const Extension = "extension"

// Extend decides whether a live hold may come to an amount in all and last until a time.
// More money or more time passes the gate as a new launch does: deny where it exceeds a
// budget or its hourly limit, ask where the amount, or what the time asked for costs at
// the hold's hourly rate, is over the threshold, allow otherwise. An extension that asks
// for no more than the hold has needs no approval. It never shortens a run.
//
// An approval names the hold as it was when the extension was asked for. A process that
// died after it used one up carries the same extension out again; once the hold has
// changed, the approval is for nothing any more.
func Extend(ctx context.Context, id string, amount money.Amount, until time.Time, askedBy string, p Params) (Decision,
	error) {
	for range tries {
		out, err := extend(ctx, id, amount, until, askedBy, p)
		if errors.Is(err, errAgain) {
			continue
		}
		if err != nil {
			return Decision{}, fmt.Errorf("extend hold %s: %w", id, err)
		}
		return out, nil
	}
	return Decision{}, fmt.Errorf("extend hold %s: %w, %d times; try again", id, errAgain, tries)
}

func extend(ctx context.Context, id string, amount money.Amount, until time.Time, askedBy string, p Params) (Decision,
	error) {
	h, err := p.Budgets.Store.Hold(ctx, id)
	if err != nil {
		return Decision{}, err
	}
	if state := h.At(p.Now); state != budget.Live {
		return Decision{}, fmt.Errorf("it is %s; only what is live can be extended", state)
	}
	length := max(0, until.Sub(p.Now))
	cost, err := h.Hourly.Mul(int64(length), int64(time.Hour))
	if err != nil {
		return Decision{}, fmt.Errorf("%s at %s an hour: %w", length, h.Hourly.Exact(), err)
	}
	cost = max(cost, amount)
	ask := Ask{
		Kind: Extension, Name: h.Name + ", hold " + h.ID, SpecHash: hashOf(h.SpecHash, h.ID, h.Version, length.String()),
		Owner: h.Owner, Purpose: h.Purpose,
		P50: amount, P95: cost, Hourly: h.Hourly, GPUs: h.GPUs, Machines: h.Machines, MaxRuntime: length, AskedBy: askedBy,
		AskedProof: p.AskedProof}
	if err := ask.check(); err != nil {
		return Decision{}, err
	}
	d := &decision{Ask: ask, Params: p, hash: ask.PlanHash()}
	granted, err := d.granted(ctx)
	if err != nil {
		return Decision{}, err
	}
	next := h
	if next.Amount = amount; until.After(next.Until) {
		next.Until = until.UTC()
	}
	standings, err := p.Budgets.Look(ctx, next, p.Now)
	var over *budget.Overdrawn
	if err != nil && !errors.As(err, &over) {
		return Decision{}, err
	}
	asks, err := d.weigh(standings)
	if amount <= h.Amount && next.Until.Equal(h.Until) {
		asks = nil
	}
	switch {
	case err != nil:
		return Decision{}, err
	case over != nil:
		return d.deny(ctx, over, "")
	case len(asks) > 0 && granted == nil:
		return d.ask(ctx, asks)
	case len(asks) == 0:
		granted = nil
	}
	out, err := d.transact(ctx, func(d *decision) (Decision, error) { return d.prolong(ctx, h.ID, until, granted) })
	if errors.As(err, &over) {
		return d.deny(ctx, over, "")
	}
	return out, err
}

// prolong uses an approval up where one is needed, and extends the hold.
func (d *decision) prolong(ctx context.Context, id string, until time.Time, granted *approval.Request) (Decision,
	error) {
	out := Decision{Decision: Allow, Reasons: slices.Clone(d.reasons)}
	if granted != nil {
		if err := d.use(ctx, granted); err != nil {
			return Decision{}, err
		}
		out.ApprovalID = granted.ID
		out.Reasons = append(out.Reasons, fmt.Sprintf("%s approved up to %s", granted.DecidedBy, granted.Amount.Exact()))
	}
	h, err := d.Budgets.Extend(ctx, id, d.P50, until, d.AskedBy, d.Now)
	switch {
	case errors.Is(err, budget.ErrConflict):
		return Decision{}, errAgain
	case err != nil:
		return Decision{}, err
	}
	out.HoldID = h.ID
	out.Reasons = append(out.Reasons, fmt.Sprintf("it may cost up to %s until %s", h.Amount.Exact(),
		h.Until.Format(time.RFC3339)))
	return d.record(ctx, hashOf(h.ID, h.Version)[:24], d.Now, out)
}

// granted returns an approval of exactly this extension, used up for it or not yet.
func (d *decision) granted(ctx context.Context) (*approval.Request, error) {
	requests, err := d.Desk.Store.Requests(ctx, d.hash)
	if err != nil {
		return nil, fmt.Errorf("look for an approval: %w", err)
	}
	for _, r := range requests {
		if state := r.At(d.Now); r.Amount >= d.P95 && (state == approval.Approved || state == approval.Used) {
			var refusal *approval.Refusal
			if err := d.Desk.Proven(ctx, r); state == approval.Approved && errors.As(err, &refusal) {
				d.reasons = append(d.reasons, refusal.Why)
				if err := d.void(ctx, r, refusal.Why); err != nil {
					return nil, err
				}
				continue
			} else if state == approval.Approved && err != nil {
				return nil, err
			}
			return &r, nil
		}
	}
	return nil, nil
}
