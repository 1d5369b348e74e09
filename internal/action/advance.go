package action

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Round is one round of the ladder.
type Round struct {
	// Number rises with every round of an account.
	Number int64
	Now    time.Time
	// Restart is set if no round confirms the time since the previous round: a clock was set, or no
	// round ran for too long. Grace periods restart.
	Restart bool
}

// NextStep is the step that an item needs next.
type NextStep string

// The steps.
const (
	NoStep NextStep = "nothing" // only observed, or not on the ladder any more
	Warn   NextStep = "warn"    // warn its recipients
	Wait   NextStep = "wait"    // they were warned; the grace period runs, or the policy goes no further
	Verify NextStep = "verify"  // the action is due: read everything again, then act
)

// Advance moves an item by one round and returns its next step. A zero item starts at the first
// phase; p is the current proposal of its source, nil without one. Accepted warnings
// ([Item.Accepted]) and refusals ([Refuse]) are handled elsewhere. Items whose call may have been
// made are unchanged: they are looked up at the provider.
//
// Any change resets an item: a condition that is not true, another machine under the same name,
// another action. An action is due once its grace period has passed, in a later round than the
// warning; a restart starts the grace period over. A measured condition must have held without a
// break since the warning, according to the samples between the rounds: any work and any gap resets
// the item as well.
func Advance(it Item, p *Proposal, r Round) (next Item, want NextStep) {
	switch it.Phase {
	case "", Observed, Warned:
	default:
		return it, NoStep
	}
	holds := p != nil && p.Resource != nil && p.Condition == usage.True
	if it.Phase == "" {
		if !holds {
			return it, NoStep
		}
		it = newItem(it, *p, r)
	}
	if !holds || it.Identity != Identity(p.Resource) || !it.Do.Equal(&p.Do) {
		it.Phase = Withdrawn
		return it, NoStep
	}
	it.Gang = p.Gang
	if p.Mode != policy.Warn && p.Mode != policy.Enforce {
		return it.withoutWarning(), NoStep
	}
	if it.Phase == Warned {
		return it.waitForGrace(*p, r)
	}
	if p.Mode == policy.Enforce && it.needsNoWarning() {
		return it, Verify
	}
	return it, Warn
}

// waitForGrace advances a warned item.
func (it Item) waitForGrace(p Proposal, r Round) (Item, NextStep) {
	switch {
	case p.Do.Verb == policy.Notify && it.notifyAgain(p, r.Now):
		return it, Warn
	case p.Do.Verb == policy.Notify:
		return it, Wait
	case p.Mode == policy.Warn:
		it.GraceFrom = time.Time{}
		return it, Wait
	case it.GraceFrom.IsZero(): // the warning announced no action
		it = it.withoutWarning()
		if it.needsNoWarning() {
			return it, Verify
		}
		return it, Warn
	case it.conditionBroken(p):
		it = it.withoutWarning()
		return it, Warn
	}
	it.ConditionHeldUntil = conditionHeldUntil(p, r.Now)
	if r.Restart {
		it.GraceFrom = r.Now
		return it, Wait
	}
	// The announced grace period is never shortened.
	it.Grace = max(it.Grace, p.Grace)
	if r.Number <= it.WarnedRound || r.Now.Before(it.DueAt()) {
		return it, Wait
	}
	return it, Verify
}

// notifyEvery is the longest time between two notifications of an alarm that goes on.
const notifyEvery = 24 * time.Hour

// notifyAgain reports whether an alarm is due for another notification: each day, and
// when its dollars are twice those of the notification before.
func (it Item) notifyAgain(p Proposal, now time.Time) bool {
	if now.Sub(it.WarnedAt) >= notifyEvery {
		return true
	}
	spent, known := p.Spent.Get()
	return known && it.Briefing != nil && it.Briefing.Spent != nil && *it.Briefing.Spent > 0 &&
		spent >= 2**it.Briefing.Spent
}

// conditionBroken reports whether samples show that a measured condition did not hold all the time
// since the warning, in or between rounds: the resource worked, changed its state, or was not
// measured.
func (it Item) conditionBroken(p Proposal) bool {
	return p.Class == policy.ClassDuty && p.Duty != nil && p.Duty.Since.After(it.ConditionHeldUntil)
}

// conditionHeldUntil returns the time up to which the samples confirm the proposal's condition.
func conditionHeldUntil(p Proposal, now time.Time) time.Time {
	if p.Class != policy.ClassDuty || p.Duty == nil {
		return time.Time{}
	}
	if p.Duty.Until.Before(now) {
		return p.Duty.Until
	}
	return now
}

// DueAt returns the earliest time of the action, the end of the grace period; zero without one.
func (it Item) DueAt() time.Time {
	if it.GraceFrom.IsZero() {
		return time.Time{}
	}
	return it.GraceFrom.Add(it.Grace)
}

// Accepted returns the item as warned: these recipients' channels accepted the warning in this
// round. The grace period starts, but only under an enforcing policy, because other warnings
// announce no action.
func (it Item) Accepted(recipients []string, p Proposal, r Round) Item {
	it.Phase, it.Recipients, it.Alarm = Warned, recipients, ""
	it.Because, it.Class, it.Grace = p.Because, p.Class, p.Grace
	it.WarnedRound, it.WarnedAt, it.GraceFrom = r.Number, r.Now, time.Time{}
	if p.Mode == policy.Enforce && p.Do.Verb != policy.Notify {
		it.GraceFrom = r.Now
	}
	it.ConditionHeldUntil = conditionHeldUntil(p, r.Now)
	return it
}

// Identity distinguishes resources that reuse a name: by their incarnation if the adapter has one,
// else by the time of creation; empty if both are unknown.
func Identity(r *inventory.Resource) string {
	if r.Incarnation != "" {
		return r.Incarnation
	}
	if r.CreatedAt.IsZero() {
		return ""
	}
	return r.CreatedAt.UTC().Format(time.RFC3339Nano)
}

// newItem puts a proposal in the first phase. The id is derived from the resource, the source and
// the round, so that no two rounds make the same.
func newItem(it Item, p Proposal, r Round) Item {
	it.Ref, it.Identity, it.Source, it.Do = p.Resource.Ref(), Identity(p.Resource), p.Source, p.Do
	it.Phase, it.Because, it.Class, it.Gang = Observed, p.Because, p.Class, p.Gang
	it.FirstRound, it.FirstAt = r.Number, r.Now
	sum := sha256.Sum256(
		[]byte(it.Account + "\n" + it.Ref.String() + "\n" + it.Source + "\n" + strconv.FormatInt(r.Number, 10)))
	it.ID = hex.EncodeToString(sum[:8])
	return it
}

// withoutWarning returns the item in the first phase, as if no warning had been sent.
func (it Item) withoutWarning() Item {
	it.Phase, it.Recipients = Observed, nil
	it.WarnedRound, it.WarnedAt, it.GraceFrom, it.Grace, it.ConditionHeldUntil = 0, time.Time{},
		time.Time{}, 0, time.Time{}
	it.Steps, it.Step, it.ApprovedAt = nil, 0, time.Time{}
	return it
}

// Reset returns the item in the first phase, without its warnings and calls.
func (it Item) Reset() Item {
	it = it.withoutWarning()
	it.Alarm = ""
	return it
}

// needsNoWarning reports whether the item's action needs no warning because it destroys nothing, or
// resizes a fleet by its demand.
func (it Item) needsNoWarning() bool {
	return it.Do.IsFleet() || !it.Do.Verb.IsDestructive() && it.Do.Verb != policy.Notify
}
