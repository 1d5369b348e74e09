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

// Extension is the Kind of a request for more money or time for a live run.
const Extension = "extension"

// Extend decides whether a live hold may reach a total amount and last until a time. Like a launch,
// it is denied if it exceeds a budget or hourly limit, asks if the added amount, or the added time
// at the hourly rate, exceeds the threshold, and is allowed otherwise. It never shortens a run.
//
// An approval is bound to the hold as it was when the extension was requested. A process that
// crashed after using it can repeat the same extension; once the hold has changed, the approval is
// void.
func Extend(ctx context.Context, id string, amount money.Amount, until time.Time, askedBy string, p Params) (Decision,
	error) {
	for range maxRetries {
		out, err := extendOnce(ctx, id, amount, until, askedBy, p)
		if errors.Is(err, errRetry) {
			continue
		}
		if err != nil {
			return Decision{}, fmt.Errorf("extend hold %s: %w", id, err)
		}
		return out, nil
	}
	return Decision{}, fmt.Errorf("extend hold %s: %w, %d times; try again", id, errRetry, maxRetries)
}

func extendOnce(ctx context.Context, id string, amount money.Amount, until time.Time, askedBy string,
	p Params) (Decision,
	error) {
	h, err := p.Budgets.Store.Hold(ctx, id)
	if err != nil {
		return Decision{}, err
	}
	if state := h.At(p.Now); state != budget.Live {
		return Decision{}, fmt.Errorf("it is %s; only a live reservation can be extended", state)
	}
	length := max(0, until.Sub(p.Now))
	cost, err := h.Hourly.Mul(int64(length), int64(time.Hour))
	if err != nil {
		return Decision{}, fmt.Errorf("%s at %s an hour: %w", length, h.Hourly.Exact(), err)
	}
	cost = max(cost, amount)
	ask := Ask{
		Kind: Extension, Name: h.Name + ", hold " + h.ID,
		SpecHash: hashOf(h.SpecHash, h.ID, h.Version, length.String()),
		Owner:    h.Owner, Purpose: h.Purpose,
		P50: amount, P95: cost, Hourly: h.Hourly, GPUs: h.GPUs, Machines: h.Machines,
		MaxRuntime: length, AskedBy: askedBy,
		AskedProof: p.AskedProof}
	if err := ask.check(); err != nil {
		return Decision{}, err
	}
	d := &decision{Ask: ask, Params: p, hash: ask.PlanHash()}
	granted, err := d.usableApprovalForExtension(ctx)
	if err != nil {
		return Decision{}, err
	}
	next := h
	if next.Amount = amount; until.After(next.Until) {
		next.Until = until.UTC()
	}
	standings, err := p.Budgets.Check(ctx, next, p.Now)
	var over *budget.Overdrawn
	if err != nil && !errors.As(err, &over) {
		return Decision{}, err
	}
	asks, err := d.checkBudgets(standings)
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
	out, err := d.transact(ctx, func(d *decision) (Decision, error) {
		return d.applyExtension(ctx, h.ID, until, granted)
	})
	if errors.As(err, &over) {
		return d.deny(ctx, over, "")
	}
	return out, err
}

// applyExtension uses a required approval and extends the hold.
func (d *decision) applyExtension(ctx context.Context, id string, until time.Time, granted *approval.Request) (
	Decision,
	error) {
	out := Decision{Decision: Allow, Reasons: slices.Clone(d.reasons)}
	if granted != nil {
		if err := d.useApproval(ctx, granted); err != nil {
			return Decision{}, err
		}
		out.ApprovalID = granted.ID
		out.Reasons = append(out.Reasons, fmt.Sprintf("%s approved up to %s", granted.DecidedBy,
			granted.Amount.Exact()))
	}
	h, err := d.Budgets.Extend(ctx, id, d.P50, until, d.AskedBy, d.Now)
	switch {
	case errors.Is(err, budget.ErrConflict):
		return Decision{}, errRetry
	case err != nil:
		return Decision{}, err
	}
	out.HoldID = h.ID
	out.Reasons = append(out.Reasons, fmt.Sprintf("it may cost up to %s until %s", h.Amount.Exact(),
		h.Until.Format(time.RFC3339)))
	return d.record(ctx, hashOf(h.ID, h.Version)[:24], d.Now, out)
}

// usableApprovalForExtension returns an approval for exactly this extension, used or not.
func (d *decision) usableApprovalForExtension(ctx context.Context) (*approval.Request, error) {
	requests, err := d.Desk.Store.Requests(ctx, d.hash)
	if err != nil {
		return nil, fmt.Errorf("look for an approval: %w", err)
	}
	for _, r := range requests {
		if state := r.At(d.Now); r.Amount >= d.P95 && (state == approval.Approved || state == approval.Used) {
			var refusal *approval.Refusal
			if err := d.Desk.Proven(ctx, r); state == approval.Approved && errors.As(err, &refusal) {
				d.reasons = append(d.reasons, refusal.Why)
				if err := d.voidRequest(ctx, r, refusal.Why); err != nil {
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
