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

// charge prices what is there and posts what the round saw; an audit charges its window by
// the same rules, in memory. An account that cannot be charged is not acted on; the round
// goes on without it.
func (e *Engine) charge(ctx context.Context, r *Result, now time.Time) error {
	if !e.charged {
		e.charges = ledger.RunRates(r.Resources, e.Prices)
		for ref, s := range e.subjects {
			hour, err := ledger.AnHour(e.charges[ref])
			if err != nil {
				return fmt.Errorf("price %s: %w", s.ID, err)
			}
			s.hourly = hour
		}
		e.charged = true
	}
	r.Charges = e.charges
	if e.Books == nil && e.Query.Window <= 0 {
		return nil
	}
	all := e.Seen(r, now)
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
		err := ahead(seen, r.ProviderTime)
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

// stand reads what follows from the charges.
func (e *Engine) stand(ctx context.Context, now time.Time) (err error) {
	if e.Standing != nil {
		e.standing, err = e.Standing(ctx, now)
	}
	return err
}

// ahead refuses a round whose time the provider's clock has not reached by far: a state in a
// file may have no other clock than the one that is wrong.
func ahead(seen ledger.Seen, provider time.Time) error {
	if off := seen.At.Sub(provider); !provider.IsZero() && off > ledger.MaxAhead {
		return fmt.Errorf("the round of %s is at %s, and the provider's answers are of %s: %w by %s; set it right",
			seen.Account, seen.At.Format(time.RFC3339), provider.Format(time.RFC3339),
			ledger.ErrAhead, off.Round(time.Second))
	}
	return nil
}

// Seen returns what a round's observation comes to, one for each account. An account of
// which nothing could be listed is in none.
func (e *Engine) Seen(r *Result, now time.Time) []ledger.Seen {
	spans := map[inventory.Ref][]ledger.Span{}
	if e.Query.Window > 0 {
		spans = e.past(r, now)
	}
	for _, res := range r.Resources {
		ref := res.Ref()
		s := e.subjects[ref]
		if s == nil || s.does == nil || s.does.State == duty.Unknown {
			continue
		}
		from, to := s.does.Since, s.does.Until
		if s.does == s.own {
			from = s.tracker.StateSince(now, *s.does, duty.MachineOf(s.Resource))
		}
		if from.IsZero() {
			continue
		}
		if to.IsZero() || to.After(now) {
			to = now
		}
		spans[ref] = append([]ledger.Span{{From: from, To: to, State: s.does.State}}, spans[ref]...)
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

// Hourly returns what a resource costs an hour as it runs now; unknown where one of its
// meters has no price.
func (r *Result) Hourly(ref inventory.Ref) inventory.Fact[money.Amount] {
	v, err := ledger.AnHour(r.Charges[ref])
	if err != nil {
		return inventory.Fact[money.Amount]{}
	}
	return v
}
