package act

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// staleRound is the age of an account's newest round from which its refusals are unknown.
const staleRound = 3 * time.Hour

// Refusals holds the machines of each account that the newest round refused to end because they are
// at work. The zero value is empty. It is safe for concurrent use.
type Refusals struct {
	mu       sync.Mutex
	accounts map[string]judgedAccount
}

// judgedAccount is the newest round of an account.
type judgedAccount struct {
	at       time.Time
	complete bool
	refused  []alert.Refused
}

// Add records the newest round of accounts.
func (a *Refusals) Add(r *round.Result) {
	refused := refusedAsBusy(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.accounts == nil {
		a.accounts = map[string]judgedAccount{}
	}
	for _, account := range r.Accounts {
		a.accounts[r.Cloud+"/"+account] = judgedAccount{r.StartedAt, !r.IsPartial(), refused[account]}
	}
}

// none reports whether no round was added.
func (a *Refusals) none() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.accounts) == 0
}

// refusedAsBusy returns the machines of each account that policies in force would have ended in a round,
// had they not been measured at work.
func refusedAsBusy(r *round.Result) map[string][]alert.Refused {
	type about struct {
		ref    inventory.Ref
		source string
	}
	facts := make(map[inventory.Ref]*policy.Facts, len(r.Facts))
	for _, f := range r.Facts {
		facts[f.Resource.Ref()] = f
	}
	enforced := map[about]bool{}
	for _, p := range r.Proposals {
		if p.Mode == policy.Enforce {
			enforced[about{p.Resource.Ref(), p.Source}] = true
		}
	}
	at := map[inventory.Ref]int{}
	out := map[string][]alert.Refused{}
	for _, l := range r.Lines() {
		f := facts[l.Resource]
		if l.Result != action.ResultRefused || l.Rule != action.RuleBusy || !enforced[about{l.Resource, l.Source}] ||
			f == nil || f.Duty == nil || f.Duty.State == duty.Unknown {
			continue
		}
		list := out[l.Resource.Account]
		if i, seen := at[l.Resource]; seen {
			list[i].Policies = append(list[i].Policies, l.Source)
			continue
		}
		at[l.Resource] = len(list)
		out[l.Resource.Account] = append(list, alert.Refused{
			Resource: f.Resource, Policies: []string{l.Source}, Verb: l.Verb, Why: f.Duty.Why, Hourly: f.Hourly,
		})
	}
	return out
}

// facts returns the refusals, each with the time since which people are notified of it, and the
// accounts whose newest round is recent and complete.
func (a *Refusals) facts(ctx context.Context, s *store.Store, now time.Time) (refused []alert.Refused,
	judged []string, err error) {
	items, err := s.Notified(ctx)
	if err != nil {
		return nil, nil, err
	}
	since := map[string]time.Time{}
	for _, it := range items {
		if it.Source == alert.RefusedAsBusy {
			since[it.Ref.ID] = it.FirstAt
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, account := range slices.Sorted(maps.Keys(a.accounts)) {
		j := a.accounts[account]
		if now.Sub(j.at) > staleRound {
			continue
		}
		if j.complete {
			judged = append(judged, account)
		}
		for _, r := range j.refused {
			r.Since = since[r.Resource.Ref().String()]
			refused = append(refused, r)
		}
	}
	return refused, judged, nil
}
