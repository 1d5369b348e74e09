package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Scope is the scope of a round: the evaluated resources, the sources, and their proposals. A
// missing proposal matters only for an item in scope, whose source and resource were evaluated.
type Scope struct {
	// Proposals are all proposals of Sources about the evaluated resources. If one machine of a
	// gang is evaluated, all must be, or the gang is refused. The round completes them in place.
	Proposals []Proposal
	// Sources are the sources in scope: names of policies, or the findings that a person wants
	// fixed. Nil is all policies, and no request of a person.
	Sources []string
	// Evaluated are the evaluated resources, including those that are gone; nil is the whole
	// account.
	Evaluated map[inventory.Ref]bool
	// Includes restricts Evaluated to a part of the account, such as the regions and kinds that
	// were read; nil is no restriction.
	Includes func(inventory.Ref) bool
	// Unknown reports whether a source cannot tell what holds for a resource. No one is then told
	// that an alarm is over. Nil is never.
	Unknown func(source string, ref inventory.Ref) bool
	// Selected is the number of machines that each source selects in the whole account, for the cap
	// by share.
	Selected map[string]int
}

// isPersonSource reports whether a source is a person's request, not a policy, whose name has no
// colon.
func isPersonSource(source string) bool {
	return strings.HasPrefix(source, "finding:") || strings.HasPrefix(source, "tag:")
}

// includesSource reports whether a source is in scope.
func (k *Scope) includesSource(source string) bool {
	if k.Sources == nil {
		return !isPersonSource(source)
	}
	return slices.Contains(k.Sources, source)
}

// covers reports whether an item is in scope, so that a missing proposal matters.
func (k *Scope) covers(source string, ref inventory.Ref) bool {
	return k.includesSource(source) && (k.Evaluated == nil || k.Evaluated[ref]) &&
		(k.Includes == nil || k.Includes(ref))
}

// validate rejects proposals outside of the scope: they would come and go with the rounds that
// cover them.
func (k *Scope) validate() error {
	for i := range k.Proposals {
		p := &k.Proposals[i]
		if p.Resource == nil {
			return fmt.Errorf("begin a round: %s proposes something about no resource", p.Source)
		}
		if ref := p.Resource.Ref(); !k.covers(p.Source, ref) {
			return fmt.Errorf(
				"begin a round: %s proposes something about %s, which is outside of what the round looked at",
				p.Source, ref)
		}
	}
	return nil
}

// maxRefsByQuery is the largest number of resources for which items are queried by resource; larger
// rounds read all items of their sources.
const maxRefsByQuery = 1000

// distantFuture is later than any confirmation.
var distantFuture = time.Unix(1<<40, 0)

// openItems reads the items that the round may touch: those in scope, those under way, and the
// warned items to confirm.
func (s *pass) openItems(ctx context.Context) ([]Item, error) {
	q := ItemQuery{Sources: s.Sources, UnderWay: true, UnconfirmedSince: s.round.Now.Add(-s.maxGap / 4)}
	if s.round.Restart {
		q.UnconfirmedSince = distantFuture
	}
	if n := len(s.Evaluated); s.Evaluated != nil && n <= maxRefsByQuery {
		q.Refs = make([]inventory.Ref, 0, n)
		for ref, seen := range s.Evaluated {
			if seen {
				q.Refs = append(q.Refs, ref)
			}
		}
	}
	items, err := s.Store.Items(ctx, s.Account, q)
	if err != nil {
		return nil, fmt.Errorf("read the ladder: %w", err)
	}
	return items, nil
}
