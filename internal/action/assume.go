package action

import (
	"strings"
	"sync"
	"time"
)

// Assumptions replace facts that a recording lacks and that no person can supply later.
// Only the replay of recorded accounts sets them: the zero value is the
// rules of a live account.
type Assumptions struct {
	// NoGrace allows a grace of 0, because owners cannot object in a recording. The action
	// comes in the round after that of the warning, which may be of the same time.
	NoGrace bool
	// Unpriced allows a policy to end unpriced resources. The cap in dollars does not
	// count them then; those by count and share do.
	Unpriced bool
	// NoDisks takes it that machines have no disks that end with them.
	NoDisks bool
	// Confirmed says that a person confirms at once whatever blows a fuse.
	Confirmed bool
}

// ruleInputs are used again: a replay asks the rules millions of times, and what they
// look at is large.
var ruleInputs = sync.Pool{New: func() any { return new(ruleInput) }}

// Refuse is what [Refuse] returns under the assumptions.
func (a Assumptions) Refuse(p Proposal, it Item, now time.Time, keeps []Keep) *Refusal {
	c := ruleInputs.Get().(*ruleInput)
	defer ruleInputs.Put(c)
	*c = ruleInput{Proposal: p, it: it, now: now, keeps: keeps, assume: a}
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
	if a.NoGrace && p.Do.Verb.IsDestructive() && p.Grace == 0 {
		said = append(said, "its owner got no time to object: the action has no grace")
	}
	if a.Unpriced && hasNoPrice(p) {
		said = append(said, "its price is unknown: the limit in dollars does not apply")
	}
	return strings.Join(said, "; ")
}
