// Package action carries out what policies and people propose, by the ladder:
// observe, warn, grace, re-verify, act, confirm, record. Nothing is acted on that
// was not warned about, verified again, and admitted under the caps; every call is a
// step of [intent], so that a crash anywhere is resumed without acting twice.
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

// Proposal is what a policy or a person wants done to one resource, with everything
// that the ladder judges it by. Every round makes it again, and so does the last check,
// from facts read at act time.
type Proposal struct {
	// Source is what proposes: a policy's name, or "finding:<id>".
	Source   string
	Resource *inventory.Resource
	Do       policy.Do
	// Mode is the policy's; the ladder combines it with the run's own by AND.
	Mode   policy.Mode
	Notify []string
	Grace  time.Duration
	Limits policy.Limits
	// Governed says that curfew made the resource, or it carries curfew:managed=true,
	// or the governance section of the configuration matches it.
	Governed bool
	// ByPerson says that a person asks for this one resource (fix), not a policy.
	ByPerson bool
	// Duty is what the resource does; nil where that was not judged.
	Duty *duty.Verdict
	// Gang are the other machines of the same run, judged together with it.
	Gang       []inventory.Ref
	Checkpoint inventory.Fact[time.Time]
	Hourly     inventory.Fact[money.Amount]
	// Condition is the condition's answer in this round; only True climbs.
	Condition usage.Answer
	// Because is the reason in one line, for people; Evidence what it rests on, and
	// Class what kind of evidence: "duty", "age", "schedule", "lease", "finding".
	Because  string
	Class    string
	Evidence []usage.Evidence
	// ReadAt is when the facts were read. The ladder sets it where it is zero: to the
	// beginning of the round, or of the verification. Zero is too old to act on.
	ReadAt time.Time
	// Together are the members of Gang for which the same source proposes the same.
	// The ladder fills it in.
	Together []inventory.Ref
}

// Phase is where an item stands on the ladder.
type Phase string

// The phases.
const (
	Observed   Phase = "observed"   // the condition is true; nothing was said yet
	Warned     Phase = "warned"     // a named recipient's channel accepted the warning
	Acting     Phase = "acting"     // an intent is written; the call may or may not have been made
	Confirming Phase = "confirming" // the provider accepted the call
	Done       Phase = "done"       // the provider confirmed
	Failed     Phase = "failed"     // given up on, with an alarm
	Withdrawn  Phase = "withdrawn"  // the condition no longer holds, or a keep came
	Undone     Phase = "undone"
)

// Open says whether the ladder still has something to do for the item.
func (p Phase) Open() bool {
	return p == Observed || p == Warned || p.underWay()
}

// underWay says whether a call was, or may have been, made that the provider has not
// confirmed.
func (p Phase) underWay() bool { return p == Acting || p == Confirming }

// Item is one proposal's way up the ladder, as it is kept.
type Item struct {
	ID string
	// Account is "cloud/account", the scope of rounds, caps and freezes.
	Account string
	Ref     inventory.Ref
	// Identity tells the resource from another one under the same name, as [Identity]
	// does.
	Identity string
	Source   string
	Do       policy.Do
	// Gang are the other machines of the same run, read again with it.
	Gang    []inventory.Ref
	Phase   Phase
	Because string
	Class   string
	// FirstRound and FirstAt are when the condition was first seen true, without a
	// break since.
	FirstRound int64
	FirstAt    time.Time
	// WarnedRound, WarnedAt: when the warning was accepted, by which channels and
	// recipients. GraceFrom is when grace began to run; a clock jump sets it again.
	WarnedRound         int64
	WarnedAt, GraceFrom time.Time
	Grace               time.Duration
	// HeldTo is up to when the samples show that the condition has held since the
	// warning; zero where it does not rest on what was measured.
	HeldTo     time.Time
	Recipients []string
	// Steps are the calls that the action takes, in order; Step is the one under way.
	Steps []Step
	Step  int
	// ApprovedAt is when an approval was used up for the item; zero where none was, or
	// none was needed.
	ApprovedAt time.Time
	// Briefing is the content of the notices about the action's outcome; nil before its
	// first intent.
	Briefing *Briefing
	// Alarm is what a person has to know: retries that go on, a refusal at act time.
	Alarm string
	// UpdatedAt, Boot and Uptime are the clocks when a round last vouched for the
	// item; a warned item that no round vouched for in time starts its grace over.
	UpdatedAt time.Time
	Boot      string
	Uptime    time.Duration
	Version   int64
}

// Step is one call to the provider with its intent and outcome.
type Step = intent.Step

// Entry is one line of the audit log. It holds no secrets.
type Entry struct {
	// ID is the number of the entry; the log has no gaps.
	ID int64 `json:"id"`
	// At is when it happened.
	At time.Time `json:"at"`
	// Account is the cloud and account, such as aws/123456789012; empty where none is meant.
	Account string `json:"account"`
	// Round is the number of the pass; absent outside of passes.
	Round int64 `json:"round,omitempty"`
	// Actor is who did it: "policy idle-gpu-machines", "ana".
	Actor string `json:"actor"`
	// What is what happened: one of the events.
	What string `json:"what"`
	// Resource is the full identity of the resource.
	Resource string `json:"resource,omitempty"`
	// Item is the id of one action on one resource; fix --undo takes it.
	Item string `json:"item,omitempty"`
	// Verb is the action: stop, terminate, tag and so on.
	Verb string `json:"verb,omitempty"`
	// Because is the reason, in words.
	Because string `json:"because,omitempty"`
	// Outcome is what came of it: the provider's answer, or who was told.
	Outcome string `json:"outcome,omitempty"`
	// Evidence is what was measured.
	Evidence []usage.Evidence `json:"evidence,omitempty"`
}

// Clock is one reading of the clocks of the machine that curfew runs on. Two
// readings of one Boot whose walls and uptimes differ by different spans mean that
// the wall clock was set.
type Clock struct {
	Wall time.Time
	// Boot names the boot of the machine; empty where that cannot be read.
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

// Store keeps the ladder's state. One store binds every process that acts on an
// account. Every write that decides something is conditional on what was read. The
// implementation is internal/store, its conformance suite internal/store/storetest.
type Store interface {
	// Now is the time of the state, zero where it has none. It is common where all machines
	// ask one clock for it, the database server's; a file goes by the clock of the machine
	// that read it last.
	Now(ctx context.Context) (now time.Time, common bool, err error)
	// BeginRound records a round's clocks and returns its number, which rises by at
	// least one with each, and the clocks of the account's last round (nil for the
	// first).
	BeginRound(ctx context.Context, account string, c Clock) (round int64, last *Clock, err error)
	// Items returns the account's open items that a query selects, in the order of
	// their ids. It costs as much as it returns, however many are open.
	Items(ctx context.Context, account string, q ItemQuery) ([]Item, error)
	// Item returns any item by its id, or the only one whose id begins so.
	Item(ctx context.Context, id string) (Item, error)
	// Save writes an item whose Version is the one it was read with (0 for a new one)
	// with its audit entries in one transaction, and returns it with the next
	// version; ErrConflict otherwise. Only one open item of a resource and source
	// can exist; a second is ErrConflict.
	Save(ctx context.Context, it Item, entries ...Entry) (Item, error)
	// SaveKept is Save and PutKeep in one transaction.
	SaveKept(ctx context.Context, it Item, k Keep, entries ...Entry) (Item, error)
	// SaveOwing is Save, and writes what people are owed about the change in the same
	// transaction.
	SaveOwing(ctx context.Context, it Item, notices []Notice, entries ...Entry) (Item, error)
	// ClaimNotice returns the notice of an account that has been due the longest, nil where
	// none is due, and keeps it from other processes until a time. It counts the attempt.
	// Nothing is due while the state is in quarantine: an older state would say again what was
	// said.
	ClaimNotice(ctx context.Context, account string, now, until time.Time) (*Notice, error)
	// PutNotice writes what a delivery came to, with its entries; ErrConflict where another
	// process has claimed the notice since. One that was closed a month ago is forgotten.
	PutNotice(ctx context.Context, n Notice, entries ...Entry) error
	// Owed returns the notices that no channel accepted yet, in the order of their making.
	Owed(ctx context.Context) ([]Notice, error)
	// Admit writes the intents of what the caps allow of a batch ([Batch.Defer]), added to
	// what the source was admitted in the last hour, and returns what became of each
	// admission, in their order. It writes nothing at all under a freeze (ErrFrozen), while
	// a fuse of the source stands (ErrFuse), and where an item that the caps allow, or its
	// approval, has changed (ErrConflict). An approval is used up with the intent that it
	// allows, or not at all. Concurrent batches of any processes never exceed a cap
	// together.
	Admit(ctx context.Context, b Batch) ([]Admitted, error)
	// Blow keeps that a fuse has blown, with what people are owed about it, and records it;
	// one that stands already stays as it is. Confirm keeps the confirmation of the one that stands, and records it;
	// ErrConflict where none does that blew at that time. Fuses returns the newest of each
	// source in each account, confirmed or not, in the order of accounts and sources.
	Blow(ctx context.Context, f Fuse, notices ...Notice) error
	Confirm(ctx context.Context, f Fuse) error
	Fuses(ctx context.Context) ([]Fuse, error)
	// Freeze, Unfreeze and Frozen: nil is not frozen. A freeze binds every account
	// and survives restarts. Either is recorded in the same transaction.
	Freeze(ctx context.Context, f Freeze) error
	Unfreeze(ctx context.Context, by, reason string, at time.Time) error
	Frozen(ctx context.Context) (*Freeze, error)
	// PutKeep replaces a resource's keep and records it in the same transaction; Keeps
	// returns those that hold at a time.
	PutKeep(ctx context.Context, k Keep) error
	Keeps(ctx context.Context, at time.Time) ([]Keep, error)
	// Record appends to the audit log; Entries hands out what a query matches, oldest
	// first, until visit returns an error.
	Record(ctx context.Context, entries ...Entry) error
	Entries(ctx context.Context, q Query, visit func(Entry) error) error
}

// ItemQuery selects open items: those about one of Refs from one of Sources, and those
// that UnderWay and Unvouched add.
type ItemQuery struct {
	// Refs and Sources: nil is all of them.
	Refs    []inventory.Ref
	Sources []string
	// UnderWay adds the items in the phases Acting and Confirming.
	UnderWay bool
	// Unvouched adds the warned items whose UpdatedAt is known and earlier; zero adds
	// none.
	Unvouched time.Time
}

// Selects returns what says whether the query selects an item.
func (q ItemQuery) Selects() func(it Item) bool {
	refs := make(map[inventory.Ref]bool, len(q.Refs))
	for _, ref := range q.Refs {
		refs[ref] = true
	}
	return func(it Item) bool {
		switch {
		case !it.Phase.Open():
			return false
		case (q.Refs == nil || refs[it.Ref]) && (q.Sources == nil || slices.Contains(q.Sources, it.Source)):
			return true
		case it.Phase == Warned:
			return !it.UpdatedAt.IsZero() && it.UpdatedAt.Before(q.Unvouched)
		}
		return q.UnderWay && it.Phase.underWay()
	}
}

// Query selects entries of the audit log. Zero fields match all.
type Query struct {
	Since, Until   time.Time
	Account, Actor string
	What, Item     string
	// Resource matches a part of the resource's identity.
	Resource string
	// After is the number of the entry before the first that is asked for; 0 is from the
	// beginning.
	After int64
	Limit int
}

// Matches says whether the query selects an entry, but for the limit.
func (q Query) Matches(e Entry) bool {
	equal := func(asked, has string) bool { return asked == "" || asked == has }
	return e.ID > q.After && equal(q.Account, e.Account) && equal(q.Actor, e.Actor) && equal(q.What, e.What) &&
		equal(q.Item, e.Item) &&
		strings.Contains(e.Resource, q.Resource) &&
		(q.Since.IsZero() || !e.At.Before(q.Since)) && (q.Until.IsZero() || e.At.Before(q.Until))
}

// Task is one call that the ladder asks of a cloud.
type Task struct {
	Ref      inventory.Ref
	Identity string
	Do       policy.Do
	Step     Step
	// Earlier are the steps before this one, with their receipts.
	Earlier []Step
}

// Progress is how far the provider has come with a call.
type Progress = intent.Progress

// How far.
const (
	NotDone    = intent.NotDone
	InProgress = intent.InProgress
	Complete   = intent.Complete
	Impossible = intent.Impossible
)

// Cloud carries out calls. Implementations: cloud/aws, cloud/sim.
type Cloud interface {
	// Plan returns the steps that the verb takes on a resource as it is now, or why
	// it is refused (a *Refusal): protection, unsaved disks, membership in a group, a
	// verb that the kind does not have. It reads and changes nothing.
	Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]Step, error)
	// Do makes the call of one step, with its key, and returns the receipt. It is
	// safe to call again with the same key.
	Do(ctx context.Context, t Task) (receipt string, err error)
	// Look says how far the provider has come with a step, whether or not this
	// process made the call: it is asked after every call, and first of all after a
	// restart. Receipt may be empty then; it returns the receipt it found.
	Look(ctx context.Context, t Task) (p Progress, receipt string, err error)
	// Undo takes a confirmed step back, as far as that can be done.
	Undo(ctx context.Context, t Task) error
	// Rehearse says which calls Undo would make now, in words for people, and changes
	// nothing. It is empty where nothing is left to take back, and fails as Undo would.
	Rehearse(ctx context.Context, t Task) (calls string, err error)
}

// Refusal is why something is not done. It is an answer, not a failure.
type Refusal struct {
	// Rule names the rule of the documentation: "protected", "unsaved-disk",
	// "group-member", "persistent", "busy", "kept", ….
	Rule string
	Why  string
}

// Error gives the reason.
func (r *Refusal) Error() string { return r.Why }

// Message is what people are told.
type Message struct {
	// Kind is "warning", "acted", "alarm", "notice", or "approval" where an approver has to
	// approve Item.
	Kind     string
	To       string // the recipient as the policy names it, resolved: "ana", "team vision", "#ml-cost"
	Resource *inventory.Resource
	Item     string
	Verb     policy.Verb
	Because  string
	// ActsAt is the earliest time at which it is carried out; zero for notices.
	ActsAt time.Time
	Hourly inventory.Fact[money.Amount]
	// Loses are the disks whose content the action destroys.
	Loses []Loss
	// Consent is the command by which the owner lets that happen, where nothing is done
	// without it; empty otherwise.
	Consent string
	// Creator is who made the resource, as the provider's log says, where no tag says whose
	// it is; empty where that is not known.
	Creator string
	// Lost is what is gone once it was carried out ("nothing" is known to be nothing); empty
	// where that is not known.
	Lost string
	// Keep is the command that exempts the resource, and KeepTag the provider's own command
	// that writes the tag which does; it is empty where there is none.
	Keep, KeepTag string
	// Undo is full, partial or none; Know what to know before.
	Undo, Know string
	Evidence   []usage.Evidence
	// Plan is what would be approved, line by line; only of an approval.
	Plan []string
}

// Notifier reaches people. Implementations: internal/notify.
type Notifier interface {
	// Notify delivers a message to one recipient ("owner", "team", or a configured
	// name) and returns the named recipient whose channel accepted it
	// ("slack:#vision"). An error means that no recipient was reached: no route, no owner
	// known, the channel refused.
	Notify(ctx context.Context, recipient string, m Message) (accepted string, err error)
}
