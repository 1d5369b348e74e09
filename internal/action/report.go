package action

import (
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Result is what became of one resource in a round.
type Result string

// The results.
const (
	ResultObserved  Result = "observed"   // its policy only observes, or no warning could be sent
	ResultWouldWarn Result = "would-warn" // without --enforce no warning is sent
	ResultWarned    Result = "warned"     // a named recipient's channel accepted it
	ResultWaiting   Result = "waiting"    // grace runs, or something has to be read first
	ResultWouldAct  Result = "would-act"  // without --enforce nothing is
	ResultActed     Result = "acted"      // the call was made; the provider has not confirmed
	ResultConfirmed Result = "confirmed"  // the provider confirmed
	ResultRefused   Result = "refused"    // a rule forbids it
	ResultWithdrawn Result = "withdrawn"  // it no longer holds
	ResultFailed    Result = "failed"
	ResultDeferred  Result = "deferred" // a cap holds it back for now; it stays warned
	ResultOverCap   Result = "over-cap" // over a cap by itself: never carried out under these limits
	ResultFuse      Result = "fuse"     // too much was due at once; a person has to confirm
	ResultFrozen    Result = "frozen"
	ResultUndone    Result = "undone"
	ResultWouldUndo Result = "would-undo" // without --enforce nothing is
)

// CapFuse is what a fuse is called among the caps.
const CapFuse = "fuse"

// Line is what became of one resource, for people.
type Line struct {
	Item     string // empty where nothing is kept of it
	Resource inventory.Ref
	Source   string
	Verb     policy.Verb
	Result   Result
	Why      string
	// Rule names the rule that forbids it, where Result is ResultRefused: that of a
	// [Refusal], or [RuleUnapproved].
	Rule string
	// Cap names what holds it back, where Result is ResultDeferred, ResultOverCap,
	// ResultFuse or, without --enforce, ResultWouldAct: that of a [Deferral], or CapFuse.
	Cap string
	// Assumed is what was assumed of the resource so that it may be acted on, in words;
	// empty except for recorded accounts, whose owners cannot answer (see [Assumptions]).
	Assumed string
	// DueAt is the earliest time at which it is acted on; zero where none is set.
	DueAt time.Time
	// NextAt is when a round has something to do for it again; zero is not before
	// something changes.
	NextAt time.Time
	// KeptUntil is until when policies leave it alone because it was undone; zero where they
	// do not.
	KeptUntil time.Time
}

// Report is what came of a round.
type Report struct {
	Round int64
	At    time.Time
	Lines []Line
	// NextAt is when there is something to do again, the earliest of the lines; zero is
	// not before something changes.
	NextAt time.Time
	// Frozen is the freeze that held everything back; nil is none.
	Frozen *Freeze
	// Fuses have blown and hold their sources back, or would without --enforce.
	Fuses []Fuse
	// Partial says that something failed or could not be read; its line says what.
	Partial bool
}
