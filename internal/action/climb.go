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

// Round is one step of time on the ladder.
type Round struct {
	// Number rises with every round of an account.
	Number int64
	Now    time.Time
	// Restart says that no round vouches for the time since the round before: a clock
	// was set, or no round ran for too long. Grace starts over.
	Restart bool
}

// Want is what an item asks for next.
type Want string

// What an item may want.
const (
	Nothing Want = "nothing" // it is only observed, or not on the ladder any more
	Warn    Want = "warn"    // its people have to be told
	Wait    Want = "wait"    // they were; grace runs, or the policy goes no further
	Verify  Want = "verify"  // it is due: read everything again, then act
)

// Climb takes one item one round further, and says what it wants then. A zero item
// begins at the first step; p is what its source proposes for it now, nil where it
// proposes nothing. It knows nothing of who accepted a warning ([Item.Accepted]) nor
// of what forbids an action ([Refuse]), and leaves items alone whose call may have
// been made: those are looked up at the provider.
//
// Whatever changes puts an item back: a condition that is not true, another machine
// under the same name, another action. An action is due when its grace has elapsed,
// in a later round than that of the warning; a restart starts grace over. What rests on
// measurements must have held without a break since the warning, by the samples between
// the rounds: any work, and any gap, puts it back as well.
func Climb(it Item, p *Proposal, r Round) (next Item, want Want) {
	switch it.Phase {
	case "", Observed, Warned:
	default:
		return it, Nothing
	}
	if it.Do.Verb == policy.Notify && it.Phase == Warned && p.unknown() && it.Identity == Identity(p.Resource) {
		return it, Nothing
	}
	holds := p != nil && p.Resource != nil && p.Condition == usage.True
	if it.Phase == "" {
		if !holds {
			return it, Nothing
		}
		it = begin(it, *p, r)
	}
	if !holds || it.Identity != Identity(p.Resource) || !it.Do.Equal(&p.Do) {
		it.Phase = Withdrawn
		return it, Nothing
	}
	it.Gang = p.Gang
	if p.Mode != policy.Warn && p.Mode != policy.Enforce {
		return it.unwarned(), Nothing
	}
	if it.Phase == Warned {
		return it.await(*p, r)
	}
	if p.Mode == policy.Enforce && it.quiet() {
		return it, Verify
	}
	return it, Warn
}

// await is the step of a warned item: for how long does it wait?
func (it Item) await(p Proposal, r Round) (Item, Want) {
	switch {
	case p.Do.Verb == policy.Notify && it.notifyAgain(p, r.Now):
		return it, Warn
	case p.Do.Verb == policy.Notify:
		return it, Wait
	case p.Mode == policy.Warn:
		it.GraceFrom = time.Time{}
		return it, Wait
	case it.GraceFrom.IsZero(): // it was announced that nothing would be done
		it = it.unwarned()
		if it.quiet() {
			return it, Verify
		}
		return it, Warn
	case it.broken(p):
		it = it.unwarned()
		return it, Warn
	}
	it.HeldTo = heldTo(p, r.Now)
	if r.Restart {
		it.GraceFrom = r.Now
		return it, Wait
	}
	// What was announced is not shortened afterwards.
	it.Grace = max(it.Grace, p.Grace)
	if r.Number <= it.WarnedRound || r.Now.Before(it.DueAt()) {
		return it, Wait
	}
	return it, Verify
}

// unknown says whether a source cannot tell what it wants done to a resource.
func (p *Proposal) unknown() bool {
	return p != nil && p.Resource != nil && p.Condition == usage.Unknown
}

// notifyEvery is the longest time between two notifications of an alarm that goes on.
const notifyEvery = 24 * time.Hour

// notifyAgain says whether people are to be notified of an alarm another time: each day, and
// when what it is about has cost twice the dollars of the notification before.
func (it Item) notifyAgain(p Proposal, now time.Time) bool {
	if now.Sub(it.WarnedAt) >= notifyEvery {
		return true
	}
	spent, known := p.Spent.Get()
	return known && it.Briefing != nil && it.Briefing.Spent != nil && *it.Briefing.Spent > 0 &&
		spent >= 2**it.Briefing.Spent
}

// broken says whether the samples show that what was measured did not hold all the time
// since the warning, however often rounds came meanwhile: it worked, or changed its
// state, or was not measured.
func (it Item) broken(p Proposal) bool {
	return p.Class == policy.ClassDuty && p.Duty != nil && p.Duty.Since.After(it.HeldTo)
}

// heldTo is up to when samples show that what a proposal rests on holds.
func heldTo(p Proposal, now time.Time) time.Time {
	if p.Class != policy.ClassDuty || p.Duty == nil {
		return time.Time{}
	}
	if p.Duty.Until.Before(now) {
		return p.Duty.Until
	}
	return now
}

// DueAt returns the earliest time at which the item may be acted on: when its grace
// ends. It is zero while no grace runs.
func (it Item) DueAt() time.Time {
	if it.GraceFrom.IsZero() {
		return time.Time{}
	}
	return it.GraceFrom.Add(it.Grace)
}

// Accepted returns the item as warned: these recipients' channels accepted the
// warning in this round. Grace runs from then on, but only under a policy that
// enforces, because any other warning announces nothing.
func (it Item) Accepted(recipients []string, p Proposal, r Round) Item {
	it.Phase, it.Recipients, it.Alarm = Warned, recipients, ""
	it.Because, it.Class, it.Grace = p.Because, p.Class, p.Grace
	it.WarnedRound, it.WarnedAt, it.GraceFrom = r.Number, r.Now, time.Time{}
	if p.Mode == policy.Enforce && p.Do.Verb != policy.Notify {
		it.GraceFrom = r.Now
	}
	it.HeldTo = heldTo(p, r.Now)
	return it
}

// Identity tells a resource from another one under the same name: by its incarnation
// where its adapter knows that, else by its time of creation; empty where neither is
// known.
func Identity(r *inventory.Resource) string {
	if r.Incarnation != "" {
		return r.Incarnation
	}
	if r.CreatedAt.IsZero() {
		return ""
	}
	return r.CreatedAt.UTC().Format(time.RFC3339Nano)
}

// begin puts a proposal on the first step. Its id is made from what it is about and
// from the round, so that no two rounds make the same.
func begin(it Item, p Proposal, r Round) Item {
	it.Ref, it.Identity, it.Source, it.Do = p.Resource.Ref(), Identity(p.Resource), p.Source, p.Do
	it.Phase, it.Because, it.Class, it.Gang = Observed, p.Because, p.Class, p.Gang
	it.FirstRound, it.FirstAt = r.Number, r.Now
	sum := sha256.Sum256(
		[]byte(it.Account + "\n" + it.Ref.String() + "\n" + it.Source + "\n" + strconv.FormatInt(r.Number, 10)))
	it.ID = hex.EncodeToString(sum[:8])
	return it
}

// unwarned returns the item on the first step again, as if no warning had been sent.
func (it Item) unwarned() Item {
	it.Phase, it.Recipients = Observed, nil
	it.WarnedRound, it.WarnedAt, it.GraceFrom, it.Grace, it.HeldTo = 0, time.Time{}, time.Time{}, 0, time.Time{}
	it.Steps, it.Step, it.ApprovedAt = nil, 0, time.Time{}
	return it
}

// PutBack returns the item on the first step, whatever was announced or called for it before.
func (it Item) PutBack() Item {
	it = it.unwarned()
	it.Alarm = ""
	return it
}

// quiet says whether the item is acted on without a warning: its action takes
// nothing away.
func (it Item) quiet() bool { return !it.Do.Verb.IsDestructive() && it.Do.Verb != policy.Notify }
