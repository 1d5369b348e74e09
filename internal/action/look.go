package action

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Look is what a round goes by: what was looked at, and what is wanted of it. That
// nothing is proposed for an item means something only where the round speaks for the
// item's source and looked at its resource; other items are not its business.
type Look struct {
	// Proposals is all that Sources want of the resources that were looked at. Whoever
	// looks at one machine of a gang looks at all of it, or else the gang is refused. The
	// round completes them in place.
	Proposals []Proposal
	// Sources are those that the round speaks for: names of policies, or the findings
	// that a person wants fixed. Nil is all policies, and no
	// request of a person.
	Sources []string
	// Seen are the resources that were looked at, those that are gone among them; nil is
	// all of the account.
	Seen map[inventory.Ref]bool
	// Within narrows Seen to a part of the account, such as the regions and kinds that
	// were read, without naming what is there; nil is no bound.
	Within func(inventory.Ref) bool
	// Selected is how many machines each source selects in all of the account, for the
	// cap by share.
	Selected map[string]int
}

// byPerson says whether a source is a person's request and not a policy, which has no
// colon in its name.
func byPerson(source string) bool {
	return strings.HasPrefix(source, "finding:") || strings.HasPrefix(source, "tag:")
}

// speaksFor says whether the look is one of a source's.
func (k *Look) speaksFor(source string) bool {
	if k.Sources == nil {
		return !byPerson(source)
	}
	return slices.Contains(k.Sources, source)
}

// covers says whether that nothing is proposed for an item means anything.
func (k *Look) covers(source string, ref inventory.Ref) bool {
	return k.speaksFor(source) && (k.Seen == nil || k.Seen[ref]) && (k.Within == nil || k.Within(ref))
}

// check refuses proposals that the look does not cover: they would come and go with
// the rounds that do.
func (k *Look) check() error {
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

// fewRefs is for how many resources items are asked for by resource; a round about
// more reads all items of its sources.
const fewRefs = 1000

// forever is later than any time at which a round vouched.
var forever = time.Unix(1<<40, 0)

// items reads what the round may touch: what it covers, what is under way, and the
// warned items that it has to vouch for.
func (s *pass) items(ctx context.Context) ([]Item, error) {
	q := ItemQuery{Sources: s.Sources, UnderWay: true, Unvouched: s.r.Now.Add(-s.gap / 4)}
	if s.r.Restart {
		q.Unvouched = forever
	}
	if n := len(s.Seen); s.Seen != nil && n <= fewRefs {
		q.Refs = make([]inventory.Ref, 0, n)
		for ref, seen := range s.Seen {
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
