package action

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	// maxFactsAge is the maximum age of facts when they are acted on, the same as of an intent:
	// five minutes.
	maxFactsAge = intent.Fresh
	// maxCheckpointAge is the maximum age of a checkpoint for ending a busy machine: one hour, the
	// most work that may be lost.
	maxCheckpointAge = time.Hour
)

// RuleBusy is the [Line.Rule] of an action that would end work.
const RuleBusy = "busy"

// rule is a reason to refuse actions, with the name used by Refusals and the documentation.
type rule struct {
	name string
	// why returns the reason for the refusal; empty if the rule allows the action.
	why func(c *ruleInput) string
}

// ruleInput is the input of the rules.
type ruleInput struct {
	Proposal
	item   Item
	now    time.Time
	keeps  []Keep
	assume Assumptions
}

// rules are checked in this order; the first refusal counts.
var rules = []rule{
	{"unknown", unknown},
	{"stale", stale},
	{"verb", unknownVerb},
	{"bounds", outOfBounds},
	{"identity", identityChanged},
	{"kept", kept},
	{"persistent", persistent},
	{"deletion", deletion},
	{"self-governed", selfGoverned},
	{"ungoverned", ungoverned},
	{"group-member", groupMember},
	{"protected", protected},
	{"no-grace", noGrace},
	{RuleBusy, busy},
	{ruleUnsavedDisk, unsavedDiskRefusal},
	{"gang", gangIncomplete},
	{"unpriced", unpriced},
}

// Refuse returns why an item must not be acted on as proposed, or nil. It is checked in every
// round, before any warning, and once more with everything read again at act time. A cloud's Plan
// has refusals of its own.
func Refuse(p Proposal, it Item, now time.Time, keeps []Keep) *Refusal {
	return Assumptions{}.Refuse(p, it, now, keeps)
}

func unknown(c *ruleInput) string {
	switch r := c.Resource; {
	case c.Condition != usage.True:
		return "its condition is " + c.Condition.String()
	case r == nil:
		return "the resource could not be read"
	case r.Tags == nil:
		return "its tags could not be read, so it may be exempt"
	case r.Kind == inventory.KindInstance && c.Do.Verb.IsDestructive() && instance(r) == nil:
		return "its details could not be read, so its manager is unknown"
	}
	return ""
}

func stale(c *ruleInput) string {
	if age := c.now.Sub(c.ReadAt); c.ReadAt.IsZero() || age > maxFactsAge || age < -clockSlack {
		return "what is known of it is older than " + plain.Duration(maxFactsAge)
	}
	if c.Class == policy.ClassDuty && c.Do.Verb.IsDestructive() {
		return c.staleSampleReason()
	}
	return ""
}

// staleSampleReason returns why the resource's duty is unknown any more, or "".
func (c *ruleInput) staleSampleReason() string {
	if c.Duty == nil || c.now.After(c.Duty.Expires) {
		return "its newest sample is too old"
	}
	return ""
}

func unknownVerb(c *ruleInput) string {
	switch c.Do.Verb {
	case policy.Notify, policy.Tag, policy.Checkpoint, policy.Suspend, policy.Scale, policy.Stop, policy.Hibernate,
		policy.Terminate, policy.Delete, policy.Release, policy.PutRetention, policy.PutLifecycle:
		return ""
	}
	return fmt.Sprintf("the verb %q is unknown", c.Do.Verb)
}

func identityChanged(c *ruleInput) string {
	now := Identity(c.Resource)
	switch {
	case c.item.Phase != "" && (now != c.item.Identity || c.Resource.Ref() != c.item.Ref):
		return "it is not the one that the warning was about: it was created or launched again"
	case now == "" && c.Do.Verb.IsDestructive() && c.Resource.Kind.Traits().Compute:
		return "its creation time is unknown, so it cannot be told from another one under its name"
	}
	return ""
}

// kept exempts a resource from policies, and from destructive requests of people.
func kept(c *ruleInput) string {
	if c.ByPerson && !c.Do.Verb.IsDestructive() {
		return ""
	}
	if until := c.Resource.KeepUntil; c.now.Before(until) {
		if !until.Before(inventory.KeepForever) {
			return "its tag " + inventory.TagKeepUntil + " keeps it; when until cannot be read"
		}
		return "its tag " + inventory.TagKeepUntil + " keeps it until " + plain.Time(until)
	}
	for _, k := range c.keeps {
		switch {
		case !c.now.Before(k.Until):
		case k.Ref == c.Resource.Ref():
			return k.By + " keeps it until " + plain.Time(k.Until) + ": " + k.Reason
		case c.mayEnd(k.Ref):
			return k.By + " keeps its machine " + k.Ref.ID + " until " + plain.Time(k.Until) + ": " + k.Reason
		}
	}
	return ""
}

// mayEnd reports whether a machine may end because its group shrinks.
func (c *ruleInput) mayEnd(ref inventory.Ref) bool {
	g, ok := c.Resource.Detail.(*inventory.AutoScalingGroup)
	if !ok || c.Do.Verb != policy.Scale {
		return false
	}
	ids := c.Do.Members
	if len(ids) == 0 { // the group chooses
		ids = g.Instances
	}
	group := c.Resource.Ref()
	return slices.Contains(ids, ref.ID) && ref == inventory.Ref{
		Cloud: group.Cloud, Account: group.Account, Region: group.Region, Kind: inventory.KindInstance, ID: ref.ID,
	}
}

func persistent(c *ruleInput) string {
	switch {
	case c.ByPerson || c.Do.Verb == policy.Notify || c.Resource.Lifetime == inventory.Ephemeral || c.resizesFleet():
		return ""
	case c.Resource.Lifetime == inventory.Persistent:
		return "it is persistent, and no policy acts on persistent resources"
	}
	return "its lifetime is unknown, which counts as persistent; " + inventory.TagLifetime +
		"=ephemeral would say otherwise"
}

func deletion(c *ruleInput) string {
	if !c.ByPerson && (c.Do.Verb == policy.PutLifecycle || c.Do.Verb == policy.PutRetention) {
		return "a rule that lets data expire is a deletion and needs an approval; no policy has one"
	}
	return ""
}

// selfGoverned prevents a policy from granting itself, or another one, the right to act.
func selfGoverned(c *ruleInput) string {
	if c.ByPerson || c.Do.Verb != policy.Tag {
		return ""
	}
	if inventory.DefaultTagMapping().AffectsPolicies(c.Do.Tags) {
		return "its tags decide what policies may do to it, and a policy must not write those"
	}
	return ""
}

func ungoverned(c *ruleInput) string {
	if c.ByPerson || c.Governed || c.resizesFleet() || !c.Do.Verb.IsDestructive() ||
		!c.Resource.Kind.Traits().Compute {
		return ""
	}
	return "policies do not govern it: it was not made by curfew, has no " + inventory.TagManaged +
		"=true, and nothing under governance in curfew.yaml matches it"
}

func groupMember(c *ruleInput) string {
	m := c.Resource.Manager
	// Scaling ends the machine through its group.
	throughIt := c.Do.Verb == policy.Scale && m.Kind == inventory.ManagerAutoScaling
	if !c.Do.Verb.IsDestructive() || m == (inventory.Manager{}) || throughIt {
		return ""
	}
	return cmp.Or(m.Name, m.Kind) + " manages it and would replace it; change its size there"
}

func protected(c *ruleInput) string {
	in := instance(c.Resource)
	if in == nil || (c.Do.Verb != policy.Terminate && c.Do.Verb != policy.Delete && c.Do.Verb != policy.Scale) {
		return ""
	}
	if on, _ := in.TerminationProtected.Get(); on {
		return "it is protected against termination"
	}
	return ""
}

func noGrace(c *ruleInput) string {
	if c.Do.Verb.IsDestructive() && !c.resizesFleet() && (c.Grace < 0 || (c.Grace == 0 && !c.assume.NoGrace)) {
		return "its owner gets no time to object: the action has no grace"
	}
	return ""
}

// busy protects work. Only measured rest counts as rest.
func busy(c *ruleInput) string {
	if !c.Do.Verb.IsDestructive() || !c.Resource.Kind.Traits().Compute || c.Resource.State == inventory.StateStopped ||
		c.Do.EvenIfBusy || c.resizesFleet() {
		return ""
	}
	if at, ok := c.Checkpoint.Get(); ok && !at.After(c.now) && c.now.Sub(at) <= maxCheckpointAge {
		return ""
	}
	const without = "; there is neither a confirmed checkpoint of the last hour nor even_if_busy"
	if c.Do.EvenIfUnknown && (c.Duty == nil || c.Duty.State == duty.Unknown || c.staleSampleReason() != "") {
		return ""
	}
	switch {
	case c.Duty == nil:
		return "whether it is busy is unknown" + without
	case c.Duty.State == duty.Unknown:
		return "whether it is busy is unknown: " + c.Duty.Why + without
	case c.staleSampleReason() != "":
		return c.staleSampleReason() + without
	case c.Duty.State == duty.Idle || c.Duty.State == duty.Held || c.Duty.State == duty.Stalled:
		return ""
	}
	return "it is " + c.Duty.State.String() + ": " + c.Duty.Why + without
}

func gangIncomplete(c *ruleInput) string {
	if !c.Do.Verb.IsDestructive() {
		return ""
	}
	var others []string
	for _, ref := range c.Gang {
		if ref != c.Resource.Ref() && !slices.Contains(c.Together, ref) {
			others = append(others, ref.ID)
		}
	}
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("it works together with %d others, of which the same does not hold for %s", len(c.Gang),
		firstFew(others))
}

func unpriced(c *ruleInput) string {
	if hasNoPrice(&c.Proposal) && !c.assume.Unpriced {
		return "its price is unknown, so the limit in dollars cannot apply"
	}
	return ""
}

// hasNoPrice reports whether a policy would end an unpriced resource.
func hasNoPrice(p *Proposal) bool {
	return !p.ByPerson && p.Do.Verb.IsDestructive() && !p.Hourly.Known()
}

func instance(r *inventory.Resource) *inventory.Instance {
	in, _ := r.Detail.(*inventory.Instance)
	return in
}

// firstFew lists the first few names.
func firstFew(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
