// Package action carries out proposals of policies and people by the safety ladder: observe, warn,
// grace period, verify, act, confirm, record. No action without a warning, a verification and an
// admission under the caps; every call is a step of [intent], so that a crash anywhere is resumed
// without acting twice.
package action

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Proposal is an action that a policy or a person wants for one resource, with the facts that the
// ladder checks. Every round makes it again, and so does the verification, from facts read at act
// time.
type Proposal struct {
	// Source names the proposer: a policy's name, or "finding:<id>".
	Source   string
	Resource *inventory.Resource
	Do       policy.Do
	// Mode is the policy's; the ladder acts only if both the policy and the run enforce.
	Mode   policy.Mode
	Notify []string
	Grace  time.Duration
	Limits policy.Limits
	// Governed is set if curfew made the resource, it carries curfew:managed=true, or the
	// governance section of the configuration matches it.
	Governed bool
	// ByPerson is set if a person asks for this resource (fix), not a policy.
	ByPerson bool
	// Duty is the resource's verdict; nil if it was not judged.
	Duty *duty.Verdict
	// Gang are the other machines of the same run, judged together with it.
	Gang       []inventory.Ref
	Checkpoint inventory.Fact[time.Time]
	Hourly     inventory.Fact[money.Amount]
	// Spent is the dollars that an alarm is about, so far.
	Spent inventory.Fact[money.Amount]
	// Condition is the condition's answer in this round; only True climbs.
	Condition usage.Tristate
	// Because is the reason in one line, Evidence supports it, and Class is the class of the
	// evidence: "duty", "age", "schedule", "lease", "finding".
	Because  string
	Class    string
	Evidence []usage.Evidence
	// ReadAt is the time at which the facts were read. The ladder replaces zero by the start of the
	// round or of the verification. Zero is too old to act on.
	ReadAt time.Time
	// Together are the members of Gang with the same proposal from the same source. The ladder sets
	// it.
	Together []inventory.Ref
}

// Phase is the position of an item on the ladder.
type Phase string

// The phases.
const (
	Observed   Phase = "observed"   // the condition is true; no one was warned yet
	Warned     Phase = "warned"     // a named recipient's channel accepted the warning
	Acting     Phase = "acting"     // an intent is written; the call may or may not have been made
	Confirming Phase = "confirming" // the provider accepted the call
	Done       Phase = "done"       // the provider confirmed
	Failed     Phase = "failed"     // given up, with an alarm
	Withdrawn  Phase = "withdrawn"  // the condition does not hold any more, or a keep was written
	Undone     Phase = "undone"
)

// IsOpen reports whether the ladder may still act on the item.
func (p Phase) IsOpen() bool {
	return p == Observed || p == Warned || p.isUnderWay()
}

// isUnderWay reports whether a call was, or may have been, made that the provider has not
// confirmed.
func (p Phase) isUnderWay() bool { return p == Acting || p == Confirming }

// Item is the stored state of one proposal on the ladder.
type Item struct {
	ID string
	// Account is "cloud/account", the scope of rounds, caps and freezes.
	Account string
	Ref     inventory.Ref
	// Identity distinguishes resources that reuse a name, as [Identity] does.
	Identity string
	Source   string
	Do       policy.Do
	// Gang are the other machines of the same run, read again with it.
	Gang    []inventory.Ref
	Phase   Phase
	Because string
	Class   string
	// FirstRound and FirstAt are the round and time since which the condition has been true.
	FirstRound int64
	FirstAt    time.Time
	// WarnedRound and WarnedAt are the round and time at which the warning was accepted. GraceFrom
	// is the start of the grace period; a clock jump restarts it.
	WarnedRound         int64
	WarnedAt, GraceFrom time.Time
	Grace               time.Duration
	// ConditionHeldUntil is the time up to which samples show that the condition has held since the
	// warning; zero if it does not depend on samples.
	ConditionHeldUntil time.Time
	Recipients         []string
	// Steps are the calls of the action, in order; Step is the index of the current one.
	Steps []Step
	Step  int
	// ApprovedAt is when an approval was used for the item; zero if none was needed.
	ApprovedAt time.Time
	// Briefing is the content of the notices about the action's outcome; nil before its first
	// intent.
	Briefing *Briefing
	// Alarm asks for a person's attention: repeated failures, or a refusal at act time.
	Alarm string
	// UpdatedAt, Boot and Uptime are the clocks at which a round last confirmed the item. A warned
	// item that was not confirmed in time restarts its grace period.
	UpdatedAt time.Time
	Boot      string
	Uptime    time.Duration
	Version   int64
}

// Step is one call to the provider with its intent and outcome.
type Step = intent.Step

// Entry is one line of the audit log. It contains no secrets.
type Entry struct {
	// ID is the number of the entry; the log has no gaps.
	ID int64 `json:"id"`
	// At is when it happened.
	At time.Time `json:"at"`
	// Account is the cloud and account, such as aws/123456789012; empty if no account is meant.
	Account string `json:"account"`
	// Round is the number of the pass; absent outside of passes.
	Round int64 `json:"round,omitempty"`
	// Actor is who acted: "policy idle-gpu-machines", "ana".
	Actor string `json:"actor"`
	// What is the event.
	What string `json:"what"`
	// Resource is the full identity of the resource.
	Resource string `json:"resource,omitempty"`
	// Item is the id of one action on one resource; fix --undo takes it.
	Item string `json:"item,omitempty"`
	// Verb is the action: stop, terminate, tag and so on.
	Verb string `json:"verb,omitempty"`
	// Because is the reason, in words.
	Because string `json:"because,omitempty"`
	// Outcome is the result: the provider's answer, or who was notified.
	Outcome string `json:"outcome,omitempty"`
	// Evidence supports the reason.
	Evidence []usage.Evidence `json:"evidence,omitempty"`
}

// Clock is a reading of the machine's clocks. Two readings of one Boot whose walls and uptimes
// differ by different durations mean that the wall clock was set.
type Clock struct {
	Wall time.Time
	// Boot identifies the boot of the machine; empty if unreadable.
	Boot   string
	Uptime time.Duration
}

// Keep exempts a resource until a time.
type Keep struct {
	Ref    inventory.Ref
	Until  time.Time
	Reason string
	By     string
	At     time.Time
}

// Freeze stops all actions.
type Freeze struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Errors of the store.
var (
	ErrConflict = errors.New("the item changed meanwhile")
	ErrFrozen   = errors.New("all actions are frozen")
	ErrNotFound = errors.New("no such item")
)

// Store stores the ladder's state for all processes that act on an account. Every write that
// decides something is conditional on the version read. It is implemented by internal/store; its
// conformance suite is internal/store/storetest.
type Store interface {
	// Now returns the store's time, zero if it has none. common is set if all machines share that
	// clock, as that of a database server; a file uses the clock of the machine that read it last.
	Now(ctx context.Context) (now time.Time, common bool, err error)
	// BeginRound records a round's clocks and returns its number, which rises with each round, and
	// the clocks of the account's last round (nil for the first).
	BeginRound(ctx context.Context, account string, c Clock) (round int64, last *Clock, err error)
	// Items returns the account's open items selected by a query, ordered by id. Its cost depends
	// on the result, not on the number of open items.
	Items(ctx context.Context, account string, q ItemQuery) ([]Item, error)
	// Item returns an item by its id, or by a unique prefix of it.
	Item(ctx context.Context, id string) (Item, error)
	// Save writes an item with its audit entries in one transaction if its Version is the stored
	// one (0 for a new item), and returns it with the next version; ErrConflict otherwise. A second
	// open item of the same resource and source is ErrConflict.
	Save(ctx context.Context, it Item, entries ...Entry) (Item, error)
	// SaveKept is Save and PutKeep in one transaction.
	SaveKept(ctx context.Context, it Item, k Keep, entries ...Entry) (Item, error)
	// SaveOwing is Save with notices about the change in the same transaction.
	SaveOwing(ctx context.Context, it Item, notices []Notice, entries ...Entry) (Item, error)
	// ClaimNotice returns the notice of an account that has been due longest, nil if none is due,
	// and reserves it for this process until a time. It counts the attempt. No notice is due while
	// the state is in quarantine: an older state would repeat notices.
	ClaimNotice(ctx context.Context, account string, now, until time.Time) (*Notice, error)
	// PutNotice writes the result of a delivery with its entries; ErrConflict if another process
	// has claimed the notice since. Notices closed for a month are deleted.
	PutNotice(ctx context.Context, n Notice, entries ...Entry) error
	// Owed returns the notices that no channel accepted yet, oldest first.
	Owed(ctx context.Context) ([]Notice, error)
	// Admit writes the intents of a batch that the caps allow ([Batch.Defer]), including the
	// source's admissions of the last hour, and returns one result per admission. It writes nothing
	// under a freeze (ErrFrozen), while a fuse of the source is blown (ErrFuse), or if an
	// admissible item or its approval has changed (ErrConflict). An approval is used up together
	// with its intent. Concurrent batches of any processes never exceed a cap together.
	Admit(ctx context.Context, b Batch) ([]AdmissionResult, error)
	// Blow stores a blown fuse with its notices and records it; a fuse that is already blown stays.
	// Confirm stores the confirmation of the fuse that blew at that time, and records it;
	// ErrConflict if there is none. Fuses returns the newest fuse of each source in each account,
	// confirmed or not, ordered by account and source.
	Blow(ctx context.Context, f Fuse, notices ...Notice) error
	Confirm(ctx context.Context, f Fuse) error
	Fuses(ctx context.Context) ([]Fuse, error)
	// Freeze stops actions in all accounts and survives restarts; Frozen returns nil if there is
	// none. Both changes are recorded in the same transaction.
	Freeze(ctx context.Context, f Freeze) error
	Unfreeze(ctx context.Context, by, reason string, at time.Time) error
	Frozen(ctx context.Context) (*Freeze, error)
	// PutKeep replaces a resource's keep and records it in the same transaction; Keeps returns the
	// keeps in force at a time.
	PutKeep(ctx context.Context, k Keep) error
	Keeps(ctx context.Context, at time.Time) ([]Keep, error)
	// Record appends to the audit log; Entries calls visit for matching entries, oldest first,
	// until it returns an error.
	Record(ctx context.Context, entries ...Entry) error
	Entries(ctx context.Context, q Query, visit func(Entry) error) error
}

// ItemQuery selects open items: those of Refs and Sources, and those that UnderWay and
// UnconfirmedSince add.
type ItemQuery struct {
	// Refs and Sources restrict the items; nil is no restriction.
	Refs    []inventory.Ref
	Sources []string
	// UnderWay adds the items in the phases Acting and Confirming.
	UnderWay bool
	// UnconfirmedSince adds warned items with an earlier UpdatedAt; zero adds none.
	UnconfirmedSince time.Time
}

// Selects returns a function that reports whether the query selects an item.
func (q ItemQuery) Selects() func(it Item) bool {
	refs := make(map[inventory.Ref]bool, len(q.Refs))
	for _, ref := range q.Refs {
		refs[ref] = true
	}
	return func(it Item) bool {
		switch {
		case !it.Phase.IsOpen():
			return false
		case (q.Refs == nil || refs[it.Ref]) && (q.Sources == nil || slices.Contains(q.Sources, it.Source)):
			return true
		case it.Phase == Warned:
			return !it.UpdatedAt.IsZero() && it.UpdatedAt.Before(q.UnconfirmedSince)
		}
		return q.UnderWay && it.Phase.isUnderWay()
	}
}

// Query selects entries of the audit log. Zero fields match all.
type Query struct {
	Since, Until   time.Time
	Account, Actor string
	What, Item     string
	// Resource matches a part of the resource's identity.
	Resource string
	// After is the number of the entry after which to start; 0 starts at the beginning.
	After int64
	Limit int
}

// Matches reports whether the query selects an entry, ignoring Limit.
func (q Query) Matches(e Entry) bool {
	equal := func(asked, has string) bool { return asked == "" || asked == has }
	return e.ID > q.After && equal(q.Account, e.Account) && equal(q.Actor, e.Actor) && equal(q.What, e.What) &&
		equal(q.Item, e.Item) &&
		strings.Contains(e.Resource, q.Resource) &&
		(q.Since.IsZero() || !e.At.Before(q.Since)) && (q.Until.IsZero() || e.At.Before(q.Until))
}

// Task is one call to a cloud.
type Task struct {
	Ref      inventory.Ref
	Identity string
	Do       policy.Do
	Step     Step
	// Earlier are the previous steps, with their receipts.
	Earlier []Step
}

// Progress is the provider's progress with a call.
type Progress = intent.Progress

// The values of Progress.
const (
	NotDone    = intent.NotDone
	InProgress = intent.InProgress
	Complete   = intent.Complete
	Impossible = intent.Impossible
)

// Cloud makes the calls. It is implemented by cloud/aws and cloud/sim.
type Cloud interface {
	// Plan returns the steps of the verb for a resource in its current state, or why it is refused
	// (a *Refusal): protection, unsaved disks, membership in a group, an unsupported verb. It
	// changes nothing.
	Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]Step, error)
	// Do makes the call of one step with its key, and returns the receipt. It is safe to call again
	// with the same key.
	Do(ctx context.Context, t Task) (receipt string, err error)
	// Look returns the provider's progress with a step, whether or not this process made the call:
	// it is called after every call, and first of all after a restart. It also returns the receipt
	// if the task has none.
	Look(ctx context.Context, t Task) (p Progress, receipt string, err error)
	// Undo reverts a confirmed step, as far as possible.
	Undo(ctx context.Context, t Task) error
	// Rehearse describes the calls that Undo would make now, and changes nothing. It is empty if
	// nothing is left to undo, and fails as Undo would.
	Rehearse(ctx context.Context, t Task) (calls string, err error)
}

// Refusal is the reason why an action is not allowed. It is a result, not a failure.
type Refusal struct {
	// Rule is the rule's name in the documentation: "protected", "unsaved-disk", "group-member",
	// "persistent", "busy", "kept", ….
	Rule string
	Why  string
}

// Error returns the reason.
func (r *Refusal) Error() string { return r.Why }

// Message is a message to people.
type Message struct {
	// Kind is "warning", "acted", "alarm", "notice", "resolved" where what a notice was about is
	// over, or "approval" where an approver has to approve Item.
	Kind     string
	To       string // the recipient as the policy names it, resolved: "ana", "team vision", "#ml-cost"
	Resource *inventory.Resource
	Item     string
	Verb     policy.Verb
	Because  string
	// ActsAt is the earliest time of the action; zero for notices.
	ActsAt time.Time
	Hourly inventory.Fact[money.Amount]
	// LostDisks are the disks whose content the action destroys.
	LostDisks []LostDisk
	// Consent is the command with which the owner accepts that loss, if the action needs it; empty
	// otherwise.
	Consent string
	// Creator is who made the resource according to the provider's log, if no tag names an owner;
	// empty if unknown.
	Creator string
	// Lost describes what the action destroys ("nothing" is known to be nothing); empty if unknown.
	Lost string
	// Keep is the command that exempts the resource, and KeepTag the provider's command that writes
	// the tag for it; may be empty.
	Keep, KeepTag string
	// Undo is full, partial or none; Know holds the consequences to consider first.
	Undo, Know string
	Evidence   []usage.Evidence
	// Plan are the lines of the plan to approve; only for approvals.
	Plan []string
}

// Notifier delivers messages. It is implemented by internal/notify.
type Notifier interface {
	// Notify delivers a message to one recipient ("owner", "team", or a configured name) and
	// returns the recipient whose channel accepted it ("slack:#vision"). An error means that no
	// recipient was reached: no route, no known owner, or a rejecting channel.
	Notify(ctx context.Context, recipient string, m Message) (accepted string, err error)
}
