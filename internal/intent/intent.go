// Package intent carries out calls that change the world, so that a crash anywhere is
// resumed without doing anything twice, and nothing that may have been done is forgotten.
//
// A [Step] is one call with its intent and its outcome. Its subject (an item of the
// ladder, a session) keeps the step in its own record, so that one transaction holds both,
// and every write is conditional on the version that was read: of two processes one goes
// on, the other gives up its pass.
//
//	Planned --intent--> Intended --call--> Accepted --look-up--> Confirmed
//	                        |                  |
//	                        |                  `-- "it never will" --> GivenUp
//	                        `-- "no", with its class ---------------> Refused
//
//	A step that is found Intended or Accepted (after a crash, a lost answer, or by the
//	next pass) is looked up at the provider before anything else:
//
//	    a trace           -> Accepted, Confirmed or GivenUp
//	    none, young       -> Due: called again with its key, where the provider knows keys;
//	                         Unseen, and looked up again, where it does not
//	    none, refused     -> Refused, once every earlier call is over and would show
//	    none, old         -> Lapsed: it goes back to what decided it
//
// Between the intent and the outcome it is unknown whether the call was made, so whoever
// finds the step there asks the provider first, whether or not it made the call itself.
// A call is made again only with its key, only where the provider knows keys
// ([Run.Idempotent]), and only while the intent is young ([Run.FreshFor]). An older intent
// that left no trace rests on facts that are too old to act on: it is not carried out, and
// what decided it has to decide again.
package intent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// Fresh is the maximum age of an intent before it is given up: five minutes.
	Fresh = 5 * time.Minute
	// Patience bounds one call or look-up: one minute. The last call of an intent begins at least
	// this long before the intent is given up.
	Patience = time.Minute
)

// Step is one call with a lasting effect. Zero times mean that it has not happened yet.
type Step struct {
	// Name is the operation: "launch", "snapshot", "terminate".
	Name string `json:"name"`
	// Key is the idempotency key, written before the call.
	Key string `json:"key"`
	// Params are the parameters of the call, and Undo those of its reversal (a former document byte
	// for byte), both in the adapter's format.
	Params   string    `json:"params,omitempty"`
	Undo     string    `json:"undo,omitempty"`
	IntentAt time.Time `json:"intent_at,omitzero"`
	// RepeatedAt is when a repetition of the call was last recorded: an earlier call may have taken
	// effect.
	RepeatedAt time.Time `json:"repeated_at,omitzero"`
	// Receipt identifies the result at the provider ("snap-0abc").
	Receipt     string    `json:"receipt,omitempty"`
	AcceptedAt  time.Time `json:"accepted_at,omitzero"`
	ConfirmedAt time.Time `json:"confirmed_at,omitzero"`
	// Attempts counts the calls known to have been made; Error is the error of the last one.
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
	// Refused is the class of the provider's refusal, and RefusedAt when it was certain that
	// nothing was done. FailedAt is when the provider gave up an accepted call.
	Refused   string    `json:"refused,omitempty"`
	RefusedAt time.Time `json:"refused_at,omitzero"`
	FailedAt  time.Time `json:"failed_at,omitzero"`
}

// State is the progress of a step.
type State string

// The states.
const (
	Planned   State = "planned"
	Intended  State = "intended" // the call may or may not have been made
	Accepted  State = "accepted" // the provider accepted it, or shows a trace of it
	Confirmed State = "confirmed"
	Refused   State = "refused"  // nothing was done
	GivenUp   State = "given-up" // it can never complete
)

// Settled reports whether nothing remains to be done for the step.
func (s State) Settled() bool { return s == Confirmed || s == Refused || s == GivenUp }

// State returns the state of the step.
func (s Step) State() State {
	switch {
	case !s.ConfirmedAt.IsZero():
		return Confirmed
	case !s.FailedAt.IsZero():
		return GivenUp
	case !s.RefusedAt.IsZero():
		return Refused
	case !s.AcceptedAt.IsZero():
		return Accepted
	case !s.IntentAt.IsZero():
		return Intended
	}
	return Planned
}

// Intend returns the planned step with the intent to call it. Results of an earlier intent are
// cleared.
func (s Step) Intend(key string, now time.Time) Step {
	return Step{Name: s.Name, Key: key, Params: s.Params, Undo: s.Undo, IntentAt: now}
}

// Progress is the provider's progress with a call.
type Progress string

// The values of Progress.
const (
	NotDone    Progress = "not-done"    // no trace of the call at the provider
	InProgress Progress = "in-progress" // under way
	Complete   Progress = "complete"    // confirmed
	Impossible Progress = "impossible"  // it can never complete: a snapshot in error
)

// Event is the reason for writing a step.
type Event string

// The events.
const (
	EventIntended   Event = "intended"   // the call is about to be made
	EventRepeated   Event = "repeated"   // the call is about to be made again
	EventUnanswered Event = "unanswered" // it was made; its response was lost or inconclusive
	EventAccepted   Event = "accepted"   // the provider accepted it
	EventFound      Event = "found"      // the provider shows it, though no response was recorded
	EventConfirmed  Event = "confirmed"
	EventRefused    Event = "refused"
	EventGivenUp    Event = "given-up"
)

// ErrConflict means that another process wrote first. A [Subject] returns it, or an error that
// wraps it; the pass ends, and the next one reads the new state.
var ErrConflict = errors.New("another process changed it meanwhile")

// Subject is the object of a step, such as a resource or a launch.
type Subject interface {
	// Keep writes the step for an event, provided that the subject still has the version that was
	// read. Related changes of the subject (machines returned by a launch, an audit entry) are
	// written in the same transaction.
	Keep(ctx context.Context, s Step, what Event) error
	// Call makes the step's call with its key, and returns the receipt. It returns when its context
	// ends, and makes no call afterwards.
	Call(ctx context.Context, s Step) (receipt string, err error)
	// Look returns the provider's progress with a call of this or another process, and the receipt
	// if there is one. No trace is no proof if the provider lists things late.
	Look(ctx context.Context, s Step) (p Progress, receipt string, err error)
}

// Outcome is the result of a pass over a step.
type Outcome string

// The outcomes. Due is only Resume's.
const (
	Done     Outcome = "done"      // confirmed by the provider
	UnderWay Outcome = "under-way" // the provider is working on it: look again later
	Unseen   Outcome = "unseen"    // no trace yet: look again later
	Due      Outcome = "due"       // no trace, and the call may be repeated
	// Lapsed: there is no trace, and the intent is too old. The decision must be made again, with a
	// new key, or with [Step.Intend] and the same key if the call has to prove that the earlier one
	// had no effect, as a launch does before trying another pool.
	Lapsed   Outcome = "lapsed"
	Rejected Outcome = "refused"    // the provider refused it, see Step.Refused
	Failed   Outcome = "impossible" // the provider gave it up
)

// Run executes steps. It keeps no state between passes, and never sleeps.
type Run struct {
	// Now tells the time.
	Now func() time.Time
	// Idempotent reports that the provider supports keys: a call with the same key never has a
	// second effect. Otherwise a call with an unknown outcome is never repeated.
	Idempotent bool
	// Class returns the class of an error with which the provider refuses a call without effect;
	// empty for other errors. Nil knows no refusals.
	Class func(error) string
	// FreshFor is the maximum age of an intent without a trace before it lapses; 0 means [Fresh].
	// It must exceed Patience.
	FreshFor time.Duration
	// Patience bounds one call or look-up; 0 means [Patience].
	Patience time.Duration
	// Redact removes secrets from an error text; nil keeps it unchanged.
	Redact func(string) string
}

// Do advances a step by one pass: it writes the intent of a planned step and makes its call; it
// looks up a step in progress, and repeats its call if that is due. It returns the step as last
// written. After an error of the subject, including an *[Unread] of its look-up, the next pass
// continues.
func (r Run) Do(ctx context.Context, on Subject, s Step) (Step, Outcome, error) {
	if s.State() == Planned {
		if s.Name == "" || s.Key == "" {
			return s, "", fmt.Errorf("intend %q: it has no name or no key", s.Name)
		}
		s, err := r.keep(ctx, on, s, s.Intend(s.Key, r.Now()), EventIntended)
		if err != nil {
			return s, "", err
		}
		return r.Call(ctx, on, s)
	}
	s, out, err := r.Resume(ctx, on, s)
	if err != nil || out != Due {
		return s, out, err
	}
	if s, err = r.Repeat(ctx, on, s); err != nil {
		return s, "", err
	}
	return r.Call(ctx, on, s)
}

// Resume looks up a step with an intent, and records the provider's progress. It makes no call, but
// returns Due if one is due.
func (r Run) Resume(ctx context.Context, on Subject, s Step) (Step, Outcome, error) {
	if out, ok := settled(s); ok {
		return s, out, nil
	}
	s, out, err := r.look(ctx, on, s)
	if err != nil || out != Unseen {
		return s, out, err
	}
	switch {
	// time for the call and for the provider to list it
	case s.Refused != "" && r.Now().Sub(s.RepeatedAt) > 2*r.patience():
		next := s
		next.RefusedAt, next.AcceptedAt = r.Now(), time.Time{}
		s, err = r.keep(ctx, on, s, next, EventRefused)
		return s, Rejected, err
	case r.lapsed(s):
		return s, Lapsed, nil
	case r.Idempotent && s.Refused == "" && r.Callable(s):
		return s, Due, nil
	}
	return s, Unseen, nil
}

// Repeat records that the call of a step is about to be repeated: of two processes that find it
// due, one makes it.
func (r Run) Repeat(ctx context.Context, on Subject, s Step) (Step, error) {
	next := s
	next.RepeatedAt = r.Now()
	return r.keep(ctx, on, s, next, EventRepeated)
}

// Call makes the call of a step whose intent, or repetition, this process has written, records the
// response, and looks up the result. A process suspended in between makes no call, because the
// intent is too old. The result is recorded even if ctx ends meanwhile.
func (r Run) Call(ctx context.Context, on Subject, s Step) (Step, Outcome, error) {
	switch {
	case s.State() == Planned || s.Key == "":
		return s, "", fmt.Errorf("call %s: its intent is not written", s.Name)
	case s.State().Settled():
		return s, "", fmt.Errorf("call %s: it is %s", s.Name, s.State())
	case r.lapsed(s):
		return s, Lapsed, nil
	case !r.Callable(s), !s.RepeatedAt.IsZero() && !r.Idempotent:
		return s, Unseen, nil
	}
	var receipt string
	err := Within(ctx, r.patience(), "wait for the provider to "+s.Name, func(ctx context.Context) (err error) {
		receipt, err = on.Call(ctx, s)
		return err
	})
	ctx = context.WithoutCancel(ctx) // always record the result
	next, class := s, ""
	next.Attempts++
	if err != nil && r.Class != nil {
		class = r.Class(err)
	}
	switch {
	case err == nil:
		next.Error, next.Receipt, next.AcceptedAt = "", cmp.Or(receipt, s.Receipt), r.Now()
		s, err = r.keep(ctx, on, s, next, EventAccepted)
	case class == "":
		next.Error = r.redact(err)
		s, err = r.keep(ctx, on, s, next, EventUnanswered)
	default:
		return r.refused(ctx, on, s, next, class, err)
	}
	if err != nil {
		return s, "", err
	}
	return r.look(ctx, on, s)
}

// refused records a refusal. If the call was repeated, an earlier one may still take effect: the
// refusal counts once all calls are over and the provider has had time to show a trace.
func (r Run) refused(ctx context.Context, on Subject, s, next Step, class string, why error) (Step, Outcome, error) {
	next.Error, next.Refused = r.redact(why), class
	if s.RepeatedAt.IsZero() {
		next.RefusedAt = r.Now()
		s, err := r.keep(ctx, on, s, next, EventRefused)
		return s, Rejected, err
	}
	s, err := r.keep(ctx, on, s, next, EventUnanswered)
	if err != nil {
		return s, "", err
	}
	return r.look(ctx, on, s)
}

// look asks the provider for the progress of a step, and records changes.
func (r Run) look(ctx context.Context, on Subject, s Step) (Step, Outcome, error) {
	var progress Progress
	var receipt string
	err := Within(ctx, r.patience(), "ask the provider about it", func(ctx context.Context) (err error) {
		progress, receipt, err = on.Look(ctx, s)
		return err
	})
	if err != nil {
		return s, "", &Unread{Step: s.Name, Err: err}
	}
	next, now := s, r.Now()
	next.Receipt = cmp.Or(receipt, s.Receipt)
	if progress != NotDone {
		next.Refused = ""
		if s.AcceptedAt.IsZero() {
			next.AcceptedAt = now
		}
	}
	switch progress {
	case Complete:
		next.ConfirmedAt, next.Error = now, ""
		s, err = r.keep(ctx, on, s, next, EventConfirmed)
		return s, Done, err
	case Impossible:
		next.FailedAt = now
		s, err = r.keep(ctx, on, s, next, EventGivenUp)
		return s, Failed, err
	case InProgress:
		if next != s {
			s, err = r.keep(ctx, on, s, next, EventFound)
		}
		return s, UnderWay, err
	case NotDone:
		return s, Unseen, nil
	}
	return s, "", &Unread{Step: s.Name, Err: fmt.Errorf("it answers %q", progress)}
}

// keep writes a step and returns it as written.
func (r Run) keep(ctx context.Context, on Subject, old, next Step, what Event) (Step, error) {
	if err := on.Keep(ctx, next, what); err != nil {
		return old, err
	}
	return next, nil
}

// lapsed reports whether an intent is too old for the facts that it was decided on, or in the
// future.
func (r Run) lapsed(s Step) bool {
	age := r.Now().Sub(s.IntentAt)
	return age < 0 || age > r.freshFor()
}

// Callable reports whether the call of an intent would end before the intent is given up.
func (r Run) Callable(s Step) bool {
	age := r.Now().Sub(s.IntentAt)
	return age >= 0 && age <= r.freshFor()-r.patience()
}

func (r Run) freshFor() time.Duration { return cmp.Or(r.FreshFor, Fresh) }

func (r Run) patience() time.Duration { return cmp.Or(r.Patience, Patience) }

func (r Run) redact(err error) string {
	if r.Redact == nil {
		return err.Error()
	}
	return r.Redact(err.Error())
}

// settled returns the outcome of a step that is settled.
func settled(s Step) (Outcome, bool) {
	switch s.State() {
	case Confirmed:
		return Done, true
	case Refused:
		return Rejected, true
	case GivenUp:
		return Failed, true
	}
	return "", false
}

// Unread means that a step could not be looked up at the provider.
type Unread struct {
	Step string
	Err  error
}

// Error names the look-up and its cause.
func (u *Unread) Error() string { return "look up " + u.Step + " at the provider: " + u.Err.Error() }

// Unwrap returns the cause.
func (u *Unread) Unwrap() error { return u.Err }

// Within runs a function with a time limit, and names the operation if it is exceeded.
func Within(ctx context.Context, limit time.Duration, what string, do func(context.Context) error) error {
	bounded, stop := context.WithTimeout(ctx, limit)
	defer stop()
	err := do(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s: no answer within %s: %w", what, limit, err)
	}
	return err
}
