package action

import (
	"strings"
	"sync"
	"time"
)

// Assumptions stand for what a recorded account does not say, and nobody can be asked
// about any more. Only the replay of recorded accounts sets them: the zero value is the
// rules of a live account.
type Assumptions struct {
	// NoGrace allows a grace of 0, because nobody could object in a recording. The action
	// comes in the round after that of the warning, which may be of the same time.
	NoGrace bool
	// Unpriced allows a policy to end what nobody knows the price of. The cap in dollars
	// does not count it then; those by count and share do.
	Unpriced bool
	// NoDisks takes it that machines have no disks that end with them.
	NoDisks bool
	// Confirmed says that a person confirms at once whatever blows a fuse.
	Confirmed bool
}

// petitions are used again: a replay asks the rules millions of times, and what they
// look at is large.
var petitions = sync.Pool{New: func() any { return new(petition) }}

// Refuse is what [Refuse] returns under the assumptions.
func (a Assumptions) Refuse(p Proposal, it Item, now time.Time, keeps []Keep) *Refusal {
	c := petitions.Get().(*petition)
	defer petitions.Put(c)
	*c = petition{Proposal: p, it: it, now: now, keeps: keeps, assume: a}
	for _, r := range rules {
		if why := r.why(c); why != "" {
			return &Refusal{Rule: r.name, Why: why}
		}
	}
	return nil
}

// of says what is assumed of a proposal that the rules of a live account would refuse;
// empty where that is nothing.
func (a Assumptions) of(p *Proposal) string {
	var said []string
	if a.NoGrace && p.Do.Verb.Destructive() && p.Grace == 0 {
		said = append(said, "nobody could object: the action has no grace")
	}
	if a.Unpriced && hasNoPrice(p) {
		said = append(said, "nobody knows what it costs: the limit in dollars does not hold")
	}
	return strings.Join(said, "; ")
}
