package action

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Result is the result for one resource in a round.
type Result string

// The results.
const (
	ResultObserved  Result = "observed"   // its policy only observes, or no warning could be sent
	ResultWouldWarn Result = "would-warn" // without --enforce no warning is sent
	ResultWarned    Result = "warned"     // a named recipient's channel accepted it
	ResultWaiting   Result = "waiting"    // grace runs, or something has to be read first
	ResultWouldAct  Result = "would-act"  // without --enforce nothing is done
	ResultActed     Result = "acted"      // the call was made; the provider has not confirmed
	ResultConfirmed Result = "confirmed"  // the provider confirmed the action
	ResultRefused   Result = "refused"    // a rule forbids it
	ResultWithdrawn Result = "withdrawn"  // the condition does not hold any more
	ResultFailed    Result = "failed"
	ResultDeferred  Result = "deferred" // a cap holds it back for now; it stays warned
	ResultOverCap   Result = "over-cap" // over a cap by itself: never carried out under these limits
	ResultFuse      Result = "fuse"     // too many actions were due at once; a person has to confirm
	ResultFrozen    Result = "frozen"
	ResultUndone    Result = "undone"
	ResultWouldUndo Result = "would-undo" // without --enforce nothing is done
)

// CapFuse is the name of the fuse among the caps.
const CapFuse = "fuse"

// Line reports the result for one resource.
type Line struct {
	Item     string // empty for an unsaved item
	Resource inventory.Ref
	Source   string
	Verb     policy.Verb
	Result   Result
	Why      string
	// Rule is the refusing rule, if Result is ResultRefused: that of a [Refusal], or
	// [RuleUnapproved].
	Rule string
	// Cap is the cap that holds it back, if Result is ResultDeferred, ResultOverCap, ResultFuse or,
	// without --enforce, ResultWouldAct: that of a [Deferral], or CapFuse.
	Cap string
	// Assumed describes the assumptions about the resource; only for recorded accounts, whose
	// owners cannot answer (see [Assumptions]).
	Assumed string
	// DueAt is the earliest time of the action; zero if none is set.
	DueAt time.Time
	// NextAt is when a round has work for it again; zero if not before something changes.
	NextAt time.Time
	// KeptUntil is the end of the keep after an undo; zero without one.
	KeptUntil time.Time
}

// Report is the result of a round.
type Report struct {
	Round int64
	At    time.Time
	Lines []Line
	// NextAt is the earliest NextAt of the lines; zero if not before something changes.
	NextAt time.Time
	// Frozen is the freeze that held back all actions; nil without one.
	Frozen *Freeze
	// Fuses are the blown fuses, or those that would blow with --enforce.
	Fuses []Fuse
	// Partial is set if something failed or could not be read; its line has the details.
	Partial bool
}
