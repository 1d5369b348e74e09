package round

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
)

// charge prices the resources and posts the observation to the ledger; an audit charges its window
// by the same rules, in memory. An account that cannot be charged is not acted on; the round
// continues without it.
func (e *Engine) charge(ctx context.Context, r *Result, now time.Time) error {
	if !e.chargesCurrent {
		e.charges = ledger.RunRates(r.Resources, e.Prices)
		for ref, s := range e.subjects {
			hour, err := ledger.AnHour(e.charges[ref])
			if err != nil {
				return fmt.Errorf("price %s: %w", s.ID, err)
			}
			s.hourly = hour
		}
		e.chargesCurrent = true
	}
	r.Charges = e.charges
	if e.Books == nil && e.Query.Window <= 0 {
		return nil
	}
	all := e.LedgerObservations(r, now)
	if e.Query.Window > 0 {
		var err error
		if r.Window, err = costs.Window(all, now.Add(-e.Query.Window), []ledger.Dimension{ledger.ByTeam}); err != nil {
			return fmt.Errorf("charge the last %s: %w", e.Query.Window, err)
		}
	}
	if e.Books == nil {
		return nil
	}
	for _, seen := range all {
		err := checkClock(seen, r.ProviderTime)
		if err == nil {
			err = e.Books.Post(ctx, seen)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if r.Unposted == nil {
				r.Unposted = map[string]error{}
			}
			r.Unposted[seen.Account.String()] = err
		}
	}
	return nil
}

// readChargeFacts reads the facts that depend on the charges.
func (e *Engine) readChargeFacts(ctx context.Context, now time.Time) (err error) {
	if e.ChargeFacts != nil {
		e.chargeFacts, err = e.ChargeFacts(ctx, now)
	}
	return err
}

// checkClock rejects a round whose time is far ahead of the provider's clock: a file-based state
// may have no other clock to compare with.
func checkClock(seen ledger.Seen, provider time.Time) error {
	if off := seen.At.Sub(provider); !provider.IsZero() && off > ledger.MaxAhead {
		return fmt.Errorf("the round of %s is at %s, and the provider's answers are of %s: %w by %s; set it right",
			seen.Account, seen.At.Format(time.RFC3339), provider.Format(time.RFC3339),
			ledger.ErrAhead, off.Round(time.Second))
	}
	return nil
}

// LedgerObservations returns one ledger observation for each account. An account of which nothing
// could be listed has none.
func (e *Engine) LedgerObservations(r *Result, now time.Time) []ledger.Seen {
	spans := map[inventory.Ref][]ledger.Span{}
	if e.Query.Window > 0 {
		spans = e.pastSpans(r, now)
	}
	for _, res := range r.Resources {
		ref := res.Ref()
		s := e.subjects[ref]
		if s == nil || s.groupVerdict == nil || s.groupVerdict.State == duty.Unknown {
			continue
		}
		from, to := s.groupVerdict.Since, s.groupVerdict.Until
		if s.groupVerdict == s.ownVerdict {
			from = s.tracker.StateSince(now, *s.groupVerdict, duty.MachineOf(s.Resource))
		}
		if from.IsZero() {
			continue
		}
		if to.IsZero() || to.After(now) {
			to = now
		}
		spans[ref] = append([]ledger.Span{{From: from, To: to, State: s.groupVerdict.State}}, spans[ref]...)
	}
	accounts := map[string]bool{}
	for _, id := range r.Accounts {
		accounts[id] = true
	}
	out := make([]ledger.Seen, 0, len(accounts))
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		out = append(out, ledger.Seen{
			Account: ledger.Account{Cloud: r.Cloud, ID: id}, At: now.Truncate(time.Second), Source: e.Source,
			Regions: r.RegionsRead(id), Kinds: e.Query.Kinds, Unread: r.Unread,
			Resources: slices.Concat(r.Resources, r.Ended),
			Rates:     r.Charges, Spans: spans,
		})
	}
	return out
}

// Hourly returns the current hourly cost of a resource; unknown if a meter has no price.
func (r *Result) Hourly(ref inventory.Ref) inventory.Fact[money.Amount] {
	v, err := ledger.AnHour(r.Charges[ref])
	if err != nil {
		return inventory.Fact[money.Amount]{}
	}
	return v
}
