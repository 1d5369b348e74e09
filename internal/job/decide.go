package job

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Step is the next action that Decide asks for.
type Step string

// The steps. After each step the job is observed again.
const (
	StepWait  Step = "wait"  // do nothing now
	StepAdmit Step = "admit" // call the gate
	StepWrite Step = "write" // write Decision.Job
	StepStart Step = "start" // record the session of Decision.Attempt
	StepStop  Step = "stop"  // end the session of Decision.Attempt, for Decision.Why
	StepPlace Step = "place" // give the session of Decision.Attempt other places
	StepBegin Step = "begin" // let the session of the current attempt set up
	StepRaise Step = "raise" // give the session of the current attempt the dollars that are left
	StepClose Step = "close" // settle the hold, then write Decision.Job
)

// Observation is the input of Decide.
type Observation struct {
	Now time.Time
	Job Job
	// Spec is the specification of the job.
	Spec *spec.Spec
	// Session is the record of the current attempt and NextSession that of the next one; nil if it is
	// not recorded.
	Session, NextSession *session.Session
	// Place is the choice of a place; nil leaves it to the launch.
	Place *Advice
	// HasGate reports that this process can call the gate.
	HasGate bool
	// HoldLimit bounds the time that an attempt waits for the end of the one before it.
	HoldLimit time.Duration
}

// Decision is the next step of a job and the time to decide again if nothing happens.
type Decision struct {
	Step Step
	Job  Job
	// Attempt is that of StepStart, StepPlace and StepStop; StepStop saves unless Discard, for the reason Why, or
	// because the job is canceled.
	Attempt    *Attempt
	Why        string
	Discard    bool
	Events     []session.Event
	RetryAfter time.Duration
}

// Waiting times of jobs. An undecided job is given up like an undecided session.
const (
	gateTimeout     = 15 * time.Minute
	approvalTimeout = 24 * time.Hour
	// pollInterval is the time between looks at the session of an attempt.
	pollInterval = 2 * time.Second
	// capacityBackoff is the time until a place without capacity is tried again, and firstBackoff the
	// time before the second attempt in a row without progress, doubled up to maxBackoff.
	capacityBackoff = time.Minute
	firstBackoff    = 5 * time.Second
	maxBackoff      = 10 * time.Minute
)

// maxRendezvous is the number of rendezvous time-outs in a row without progress that end a job.
const maxRendezvous = 3

// Decide returns the next step of a job. It is a pure function of the observation.
func Decide(v Observation) Decision {
	v.Job.Attempts = slices.Clone(v.Job.Attempts)
	d := &decider{Observation: v, decision: Decision{Step: StepWait, Job: v.Job, RetryAfter: time.Minute}}
	switch j := &v.Job; {
	case j.State.IsFinal():
		d.decision.RetryAfter = time.Hour
	case j.Current() != nil:
		d.follow()
	case !j.CanceledAt.IsZero():
		d.finish(Canceled, "by %s", j.CanceledBy)
	case j.AdmittedAt.IsZero():
		d.admit()
	default:
		d.startNext()
	}
	return d.decision
}

type decider struct {
	Observation
	decision Decision
}

func (d *decider) job() *Job { return &d.decision.Job }

func (d *decider) event(kind, format string, a ...any) {
	d.decision.Events = append(d.decision.Events, session.Event{
		At: d.Now, Node: session.KeeperNode, Kind: kind, Text: fmt.Sprintf(format, a...),
	})
}

func (d *decider) wait(after time.Duration) {
	d.decision.Step, d.decision.RetryAfter = StepWait, max(after, 0)
}

func (d *decider) write() { d.decision.Step = StepWrite }

// finish ends the job.
func (d *decider) finish(state State, format string, a ...any) {
	j := d.job()
	j.State, j.Why, j.EndedAt = state, fmt.Sprintf(format, a...), d.Now
	d.event("ended", "%s: %s", state, j.Why)
	d.decision.Step = StepClose
}

func (d *decider) admit() {
	age := d.Now.Sub(d.Job.RequestedAt)
	switch {
	case d.Job.ApprovalID != "" && age > approvalTimeout:
		d.finish(Failed, "no one approved request %s within %s", d.Job.ApprovalID, plain.Duration(approvalTimeout))
	case d.HasGate:
		d.decision.Step = StepAdmit
	case d.Job.ApprovalID == "" && age > gateTimeout:
		d.finish(Failed, "it was given up before the gate decided")
	default:
		d.wait(30 * time.Second)
	}
}

// Limits are the rest of a job's bounds.
type Limits struct {
	// Until is the end by max_runtime and deadline, named by Key. Dollars is what is left of the cost
	// limit; 0 if it has none. Runtime is the end by max_runtime alone; zero if there is none.
	Until   time.Time
	Key     string
	Runtime time.Time
	Dollars money.Amount
}

// limits returns what is left for an attempt whose machines run since a time. Spent explains which bound
// is used up; empty while none is.
func (d *decider) limits(since time.Time) (l Limits, spent string) {
	j, sp := &d.Job, d.Spec
	l.Until, l.Key = since.Add(365*24*time.Hour), ""
	if sp.MaxRuntime > 0 {
		left := sp.MaxRuntime - j.Runtime()
		if left <= 0 {
			return l, "max_runtime " + plain.Duration(sp.MaxRuntime) + " is used up"
		}
		l.Until, l.Key, l.Runtime = since.Add(left), "max_runtime", since.Add(left)
	}
	if sp.Deadline > 0 {
		by := j.RequestedAt.Add(sp.Deadline)
		if !d.Now.Before(by) {
			return l, "its deadline was " + plain.Time(by)
		}
		if by.Before(l.Until) {
			l.Until, l.Key = by, "deadline"
		}
	}
	if j.CostLimit <= 0 {
		return l, ""
	}
	cost, err := j.Spent()
	if err != nil {
		return l, "its cost is unknown: " + err.Error()
	}
	if l.Dollars = j.CostLimit - cost; l.Dollars <= 0 {
		return l, fmt.Sprintf("it has cost %s, and its limit is %s", cost.Dollars(), j.CostLimit.Dollars())
	}
	return l, ""
}

// startNext decides the next attempt, or the end of a job that has no bounds left.
func (d *decider) startNext() {
	j := d.job()
	if _, spent := d.limits(d.Now); spent != "" {
		d.finish(Failed, "%s", spent)
		return
	}
	if d.Now.Before(j.NotBefore) {
		d.wait(j.NotBefore.Sub(d.Now))
		return
	}
	if d.Place != nil && len(d.Place.Places) == 0 {
		d.waitForPlace()
		return
	}
	if d.Place != nil && d.waitAfterFault() {
		return
	}
	again := false
	if n := len(j.Attempts); n > 0 && j.Attempts[n-1].EndedBy == session.NoCapacity &&
		j.Attempts[n-1].LaunchedAt.IsZero() {
		j.Launches, j.Attempts = j.launches(), j.Attempts[:n-1] // it left nothing
		again = true
	}
	a := d.begin(false)
	j.State, j.Why = Launching, ""
	if a.IsRetry = again; !again {
		d.announceStart(a)
	}
	d.write()
}

// announceStart adds the event of the start of an attempt.
func (d *decider) announceStart(a *Attempt) {
	from := "from the beginning"
	if s := d.job().Snapshot; s.Manifest != "" {
		from = "from " + snapshotText(s)
	}
	d.event("attempt", "attempt %d starts %s", a.Number, from)
}

// begin adds an attempt.
func (d *decider) begin(held bool) *Attempt {
	j := d.job()
	j.Launches = j.launches() + 1
	a := Attempt{
		Session: attemptID(j.ID, j.Launches), Number: len(j.Attempts) + 1,
		Epoch:   j.FirstEpoch + (j.Launches-1)*max(1, j.EpochSpan),
		BeganAt: d.Now, Start: j.Snapshot, Held: held,
	}
	if d.Place != nil {
		a.Places, a.Tried, a.TryAgainAt, j.Placed = d.Place.Places, d.Place.Places, d.Place.Next, d.Place
		a.Reserved, a.ReservedTime = d.reserve(), d.reserveTime()
	}
	j.Attempts = append(j.Attempts, a)
	return &j.Attempts[len(j.Attempts)-1]
}

// attemptID returns the id of the session of an attempt: the same for every keeper.
func attemptID(job string, launch int64) string {
	sum := sha256.Sum256([]byte("curfew.attempt/v1\x00" + job + "\x00" + strconv.FormatInt(launch, 10)))
	return hex.EncodeToString(sum[:8])
}

func snapshotText(s session.Snapshot) string {
	if s.Step != nil {
		return fmt.Sprintf("step %d", *s.Step)
	}
	return "the snapshot of " + plain.Time(s.At)
}

// follow takes over what became of the current attempt.
func (d *decider) follow() {
	s, a := d.Session, d.job().Current()
	if s == nil {
		d.start(a) // also of a canceled job: another keeper may be recording it
		return
	}
	changed := d.takeProgress(a, s)
	if s.State.IsFinal() {
		if n := d.job().Next(); n != nil && d.endsWith(s) {
			d.dropNext(n)
			return
		}
		d.endAttempt(a, s)
		return
	}
	if !d.Job.CanceledAt.IsZero() && (s.State != session.Ending || d.Job.Discard && !s.Discard) {
		d.stop(a, "the job is canceled", d.Job.Discard)
		return
	}
	if s.Held && !s.Begun && s.State != session.Ending {
		d.decision.Step = StepBegin
		return
	}
	if s.Unplaced && d.followUnplaced(a, s) {
		return
	}
	if changed {
		d.write()
		return
	}
	if s.Unplaced && d.Place != nil {
		d.wait(d.Place.Next.Sub(d.Now))
		return
	}
	if d.Job.CanceledAt.IsZero() && (d.move(a, s) || d.raise(a, s)) {
		return
	}
	d.wait(pollInterval)
}

func (d *decider) start(a *Attempt) { d.decision.Step, d.decision.Attempt = StepStart, a }

func (d *decider) stop(a *Attempt, why string, discard bool) {
	d.decision.Step, d.decision.Attempt, d.decision.Why, d.decision.Discard = StepStop, a, why, discard
	d.decision.RetryAfter = pollInterval
}

// takeProgress copies the progress of a session to the job. It returns true if the record changes.
func (d *decider) takeProgress(a *Attempt, s *session.Session) (changed bool) {
	j := d.job()
	state, why := Launching, s.Why
	switch {
	case s.Unplaced:
		state = Waiting
		if d.Place != nil && len(d.Place.Places) == 0 {
			why = d.Place.Why
		}
		if why != j.Why {
			j.Placed = d.Place
		}
	case s.State == session.Starting:
		state = Starting
	case s.State == session.Ready:
		state = Running
	case s.State == session.Ending, s.State.IsFinal():
		state = Saving
	}
	if state != j.State || why != j.Why {
		if state != j.State && !(a.IsRetry && s.LaunchedAt.IsZero()) && !triesAgain(s, state, j.State) {
			d.event("state", "%s", state)
		}
		j.State, j.Why, changed = state, why, true
	}
	if a.IsRetry && !s.LaunchedAt.IsZero() {
		a.IsRetry, changed = false, true
		d.announceStart(a)
	}
	if !a.Pool.SamePlace(s.Pool) || !a.LaunchedAt.Equal(s.LaunchedAt) || !a.CommandAt.Equal(s.CommandAt) {
		a.Pool, a.LaunchedAt, a.CommandAt, changed = s.Pool, s.LaunchedAt, s.CommandAt, true
	}
	if n := s.CommonStep; n != nil && (j.CommonStep == nil || *n != *j.CommonStep) {
		j.CommonStep, changed = n, true
	}
	if len(s.Restarts) != len(a.Restarts) || len(s.Restarts) > 0 &&
		!s.Restarts[len(s.Restarts)-1].CommandAt.Equal(a.Restarts[len(a.Restarts)-1].CommandAt) {
		a.Restarts, changed = s.Restarts, true
	}
	if n := s.Restored; n.Manifest != "" && n.Manifest != a.Start.Manifest {
		a.Start, changed = n, true
		d.creditSaved(a)
	}
	// Of a snapshot that is not complete only one with a step is restored.
	if n := s.Snapshot; n.Manifest != "" && (n.Complete || n.Step != nil) && n.Manifest != a.Saved.Manifest &&
		n.Manifest != a.Start.Manifest {
		a.Saved, changed = n, true
	}
	if a.Saved.Manifest != "" && a.Saved.Manifest != j.Snapshot.Manifest {
		j.Snapshot, changed = a.Saved, true
	}
	if s.Step != nil && (j.Step == nil || *s.Step > *j.Step) {
		step := *s.Step
		j.Step, changed = &step, true
	}
	return changed
}

// triesAgain reports whether a job that waits for capacity tries places that it tried before, or waits again.
func triesAgain(s *session.Session, to, from State) bool {
	return s.Placings > 0 && s.LaunchedAt.IsZero() &&
		(to == Launching && from == Waiting || to == Waiting && from == Launching)
}

// creditSaved credits the attempt before one with the snapshot that this one started from: the host
// confirmed it, and its machine was gone before the keeper heard of it.
func (d *decider) creditSaved(a *Attempt) {
	j := d.job()
	if j.Snapshot.At.Before(a.Start.At) {
		j.Snapshot = a.Start
	}
	i := slices.IndexFunc(j.Attempts, func(b Attempt) bool { return b.Session == a.Session }) - 1
	for i >= 0 && j.Attempts[i].CommandAt.IsZero() {
		i--
	}
	if i < 0 {
		return
	}
	before := &j.Attempts[i]
	if before.Over() && before.Saved.At.Before(a.Start.At) {
		before.Saved = a.Start
		if err := before.divide(); err != nil {
			before.Evidence += "; its cost cannot be divided: " + err.Error()
		}
	}
}

// endAttempt accounts for an attempt that is over, and decides what follows.
func (d *decider) endAttempt(a *Attempt, s *session.Session) {
	d.account(a, s)
	if !a.IsRetry || a.EndedBy != session.NoCapacity {
		d.event("attempt", "attempt %d ended: %s: %s", a.Number, a.EndedBy, a.Evidence)
	}
	j := d.job()
	d.Job = *j // its limits count this attempt
	switch {
	case a.EndedBy == session.Succeeded:
		d.finish(Succeeded, "%s", a.Evidence)
		return
	case !j.CanceledAt.IsZero():
		d.finish(Canceled, "by %s", j.CanceledBy)
		return
	case a.EndedBy == Ended:
		j.CanceledBy = cmp.Or(s.EndedBy, "keeper")
		d.finish(Canceled, "%s", a.Evidence)
		return
	}
	if why := d.exhausted(a); why != "" {
		d.finish(Failed, "%s (%s)", why, a.Evidence)
		return
	}
	after := d.backoff(a)
	j.State, j.NotBefore = Waiting, d.Now.Add(after)
	j.Why = fmt.Sprintf("attempt %d ended: %s", a.Number, a.EndedBy)
	if after > 0 {
		j.Why += "; the next one starts at " + plain.Time(j.NotBefore)
	}
	d.write()
}

// account records how an attempt ended, and what it cost.
func (d *decider) account(a *Attempt, s *session.Session) {
	a.EndedBy, a.Evidence = classify(&d.Job, d.Spec, s)
	if s.Outcome != nil {
		a.ExitCode = s.Outcome.ExitCode
	}
	if err := a.account(s); err != nil {
		a.Unpriced, a.Evidence = true, a.Evidence+"; its cost is unknown: "+err.Error()
	}
	if a.EndedAt.IsZero() {
		a.EndedAt = d.Now
	}
}

// Ended, Refused and Moved are classes of attempts that their session does not know: someone ended it
// from outside, the provider refused the launch for good, or the job goes on in another place.
const (
	Ended   session.Class = "ended"
	Refused session.Class = "refused"
	Moved   session.Class = "moved"
)

// classify returns the class of the end of an attempt, with its evidence.
func classify(j *Job, sp *spec.Spec, s *session.Session) (session.Class, string) {
	if o := s.Outcome; o != nil && o.Class != session.Stopped {
		return o.Class, cmp.Or(o.Evidence, string(o.Class))
	}
	why := cmp.Or(s.EndReason, s.Why, "its session is "+string(s.State))
	switch {
	case !j.CanceledAt.IsZero():
		return session.Stopped, "canceled by " + j.CanceledBy
	case s.Held && !s.Begun && len(s.Machines) > 0:
		return Moved, "it did not begin: " + why
	case !s.EndingAt.IsZero() && !s.EndingAt.Before(s.LeaseUntil):
		return session.LimitReached, limitText(j, sp, s)
	case len(s.Machines) == 0 && s.LaunchStep.Refused != "" && s.LaunchStep.Refused != session.ClassCapacity:
		return Refused, why
	case len(s.Machines) == 0 && (len(s.CapacityFailures) > 0 || s.LaunchStep.Key == ""):
		return session.NoCapacity, why
	case s.EndedBy == session.JobActor && s.ReadyAt.IsZero():
		return Moved, why
	case s.ReadyAt.IsZero() && s.EndedBy == session.HostActor:
		return session.SetupFailed, why
	case s.ReadyAt.IsZero():
		return session.LostAtStart, why
	case s.EndedBy == session.JobActor:
		return Moved, why
	case s.EndedBy != session.KeeperActor && s.EndedBy != session.HostActor:
		return Ended, why
	case s.Pool.Spot:
		return session.Interrupted, why
	}
	return session.MachineLost, why
}

// limitText returns the bound that ended an attempt.
func limitText(j *Job, sp *spec.Spec, s *session.Session) string {
	switch {
	case s.LeaseUntil.Before(s.LeaseLimit):
		return "its dollars were used up: the limit is " + j.CostLimit.Dollars()
	case sp.Deadline > 0 && !s.LeaseLimit.Before(j.RequestedAt.Add(sp.Deadline)):
		return "its deadline was " + plain.Time(s.LeaseLimit)
	}
	return "max_runtime " + plain.Duration(sp.MaxRuntime) + " is used up"
}

// exhausted explains why no attempt follows one that failed; empty if one does.
func (d *decider) exhausted(a *Attempt) string {
	if a.EndedBy == session.LimitReached || a.EndedBy == Refused {
		return string(a.EndedBy)
	}
	if _, spent := d.limits(d.Now); spent != "" {
		return spent
	}
	interruptions, errors, rendezvous := 0, 0, 0
	for _, b := range d.Job.Attempts {
		for _, r := range b.Restarts {
			if !r.CommandAt.IsZero() { // otherwise the attempt ended with it
				interruptions++
			}
		}
		switch {
		case b.EndedBy == session.NoCapacity, b.EndedBy == Moved:
		case interruption(b.EndedBy):
			interruptions++
			if rendezvous++; b.EndedBy != session.Rendezvous || advanced(&b) {
				rendezvous = 0
			}
		default:
			errors++
		}
	}
	r := d.Spec.Retries
	switch {
	case a.EndedBy == session.NoCapacity, a.EndedBy == Moved:
		return ""
	case interruption(a.EndedBy) && interruptions > r.Interruptions:
		return fmt.Sprintf("%s, and retries.interruptions is %d", plain.Count(interruptions, "interruption"),
			r.Interruptions)
	case a.EndedBy == session.Rendezvous && rendezvous >= maxRendezvous:
		return fmt.Sprintf("%d rendezvous time-outs in a row", rendezvous)
	case !interruption(a.EndedBy) && errors > r.Errors:
		return fmt.Sprintf("%s, and retries.errors is %d", a.EndedBy, r.Errors)
	}
	return ""
}

// shortAttempt is the working time under which an attempt without steps is no progress.
const shortAttempt = time.Minute

// advanced reports whether an attempt brought the job forward.
func advanced(a *Attempt) bool {
	if a.Saved.Step == nil && a.Over() && !a.CommandAt.IsZero() && a.EndedAt.Sub(a.CommandAt) < shortAttempt {
		return false // a last snapshot is always taken
	}
	return a.progressed()
}

// backoff returns the time until the next attempt: none after an attempt with progress.
func (d *decider) backoff(a *Attempt) time.Duration {
	switch {
	case a.EndedBy == session.NoCapacity && d.Place == nil:
		return capacityBackoff
	case a.EndedBy == session.NoCapacity, a.EndedBy == Moved, d.Place != nil && a.Pool.Spot && interruption(a.EndedBy):
		return 0 // the place is not tried again before the next look
	}
	row := d.withoutProgress()
	if row == 0 || row == 1 && interruption(a.EndedBy) {
		return 0
	}
	return min(maxBackoff, firstBackoff<<min(row-1, 10))
}

// withoutProgress counts the last attempts in a row without progress.
func (d *decider) withoutProgress() (row int) {
	for _, b := range slices.Backward(d.Job.Attempts) {
		if advanced(&b) {
			break
		}
		row++
	}
	return row
}
