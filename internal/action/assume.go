package action

import (
	"strings"
	"sync"
	"time"
)

// Assumptions replace facts that a recording lacks and that no person can supply later. Only
// replays of recorded accounts set them: the zero value is the rules of a live account.
type Assumptions struct {
	// NoGrace allows a grace period of 0, because owners cannot object in a recording. The action
	// comes in the round after the warning, which may have the same time.
	NoGrace bool
	// Unpriced allows a policy to end unpriced resources. The dollar cap ignores them; the caps by
	// count and share do not.
	Unpriced bool
	// NoDisks assumes that machines have no disks that are deleted with them.
	NoDisks bool
	// FuseConfirmed assumes that a person confirms every blown fuse at once.
	FuseConfirmed bool
}

// ruleInputs are reused: a replay checks the rules millions of times, and their input is large.
var ruleInputs = sync.Pool{New: func() any { return new(ruleInput) }}

// Refuse is [Refuse] under the assumptions.
func (a Assumptions) Refuse(p Proposal, it Item, now time.Time, keeps []Keep) *Refusal {
	c := ruleInputs.Get().(*ruleInput)
	defer ruleInputs.Put(c)
	*c = ruleInput{Proposal: p, item: it, now: now, keeps: keeps, assume: a}
	for _, r := range rules {
		if why := r.why(c); why != "" {
			return &Refusal{Rule: r.name, Why: why}
		}
	}
	return nil
}

// assumedText describes the assumptions without which the rules of a live account would refuse a
// proposal; empty without any.
func (a Assumptions) assumedText(p *Proposal) string {
	var said []string
	if a.NoGrace && p.Do.Verb.IsDestructive() && p.Grace == 0 {
		said = append(said, "its owner got no time to object: the action has no grace")
	}
	if a.Unpriced && hasNoPrice(p) {
		said = append(said, "its price is unknown: the limit in dollars does not apply")
	}
	return strings.Join(said, "; ")
}
