// Package job runs a command to its end across machines that come and go. An attempt of a job is a
// session whose machines run the command: its launch, host, snapshots, end and charges are those of
// package session. This package decides when the next attempt starts, and when the job is over. Its
// keeper is level-triggered like that of sessions, so a crash is only a restart.
package job

import (
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// State is the phase of a job's life.
type State string

// The states.
const (
	Waiting   State = "waiting" // for the gate, an approver, capacity or the end of a back-off
	Launching State = "launching"
	Starting  State = "starting"
	Running   State = "running"
	Saving    State = "saving" // an attempt is saved and its machines are released
	Succeeded State = "succeeded"
	Failed    State = "failed"
	Canceled  State = "canceled"
)

// IsFinal reports whether the job is over and nothing of it remains.
func (s State) IsFinal() bool { return s == Succeeded || s == Failed || s == Canceled }

// Job is the record of one job. Zero times mean "not yet". It is stored as JSON.
type Job struct {
	// ID is unique; Name is chosen by the person and unique among open jobs and sessions.
	ID, Name string
	// RequestedBy is the actor who requested the job; Owner pays for it.
	RequestedBy string
	Owner       inventory.Owner
	// Spec is the canonical specification, Hash its hash, which covers the code.
	Spec []byte
	Hash string
	// Code is the URL of the archive of the code; empty if there is none.
	Code string
	// Provider, Account, AllowedUser and RunAs are those of the attempts' sessions.
	Provider, Account, AllowedUser, RunAs string
	// WorkPrefix is the prefix of the snapshots. FirstEpoch is the epoch of the first attempt; each
	// attempt has the next one.
	WorkPrefix string
	FirstEpoch int64
	// EpochSpan is the distance between the epochs of attempts; 0 is 1.
	EpochSpan int64 `json:",omitempty"`
	// KeepOnFailure keeps the machine of a failed attempt so long.
	KeepOnFailure time.Duration
	// HoldID is the budget reservation, ApprovalID the pending or used approval request. HourlyCeiling
	// is the highest hourly cost that the gate allowed, and CostLimit the most that the job may cost:
	// the lower of max_cost and what the gate reserved; 0 if there is no price.
	HoldID, ApprovalID string
	HourlyCeiling      money.Amount
	CostLimit          money.Amount
	// OnDemandRate is the hourly price of the machines on demand; nil if unknown.
	OnDemandRate *money.Rate
	State        State
	// Why explains the state to people.
	Why      string
	Attempts []Attempt
	// Work is the duration of earlier runs of the name without interruption; 0 is unknown.
	Work time.Duration `json:",omitempty"`
	// Launches counts the attempts that ever began, also those that found no machine and are not kept.
	Launches int64 `json:",omitempty"`
	// Placed is the last choice of a place.
	Placed *Advice `json:",omitempty"`
	// NotBefore is the earliest start of the next attempt.
	NotBefore time.Time
	// Snapshot is the newest confirmed snapshot, Step the highest declared step.
	Snapshot session.Snapshot
	Step     *int64
	// CommonStep is the highest step of which every node of the last attempt kept a snapshot.
	CommonStep *int64 `json:",omitempty"`
	// CanceledBy requested the end of the job at CanceledAt, Discard without saving.
	CanceledBy string
	CanceledAt time.Time
	Discard    bool
	// RerunOf is the job that this one repeats; empty if none.
	RerunOf                          string
	RequestedAt, AdmittedAt, EndedAt time.Time
	// Version is the version of the record for conditional writes; 0 for a new one.
	Version int64
}

// Attempt is one launch of a job.
type Attempt struct {
	// Session is the session that carries it out, Number counts from 1.
	Session string
	Number  int
	Epoch   int64
	// Pool is the place of its machines, Places those that it may try; nil: all.
	Pool   session.Pool
	Places []session.Pool `json:",omitempty"`
	// Placings counts the choices of Places after the first. Of Tried, the places since the last look at
	// their prices, none is tried again before TryAgainAt.
	Placings int            `json:",omitempty"`
	Tried    []session.Pool `json:",omitempty"`
	// Restarts are the restarts of its nodes after the loss of one, which was replaced.
	Restarts   []session.Restart `json:",omitempty"`
	TryAgainAt time.Time         `json:",omitzero"`
	// Reserved are the dollars that its session may not spend: those of the attempt that may be launched
	// next to it.
	Reserved money.Amount `json:",omitempty"`
	// ReservedTime is the machine time that it leaves for the attempt next to it, and Raised marks one that got
	// it at last.
	ReservedTime time.Duration `json:",omitempty"`
	Raised       bool          `json:",omitempty"`
	// IsRetry marks one that follows an attempt without a machine: its start is announced once it has one.
	IsRetry bool `json:",omitempty"`
	// Held marks an attempt that begins before the one before it is over, and waits for its end.
	Held bool `json:",omitempty"`
	// BeganAt is the time of its decision, LaunchedAt that of its launch, CommandAt the start of the
	// command and StoppedAt its end, and EndedAt the end of the machines.
	BeganAt, LaunchedAt, CommandAt, StoppedAt, EndedAt time.Time
	// Start is the snapshot that it started from, Saved the newest that it made.
	Start, Saved session.Snapshot
	// EndedBy is the class of its end, Evidence what the class rests on; ExitCode is that of the
	// command.
	EndedBy  session.Class
	Evidence string
	ExitCode *int
	// Cost is the cost of its machines, the sum of the parts; Unpriced reports that they have no price.
	// Useful paid for work that is saved, Repeated for work that was lost, Waiting for start and end.
	Cost, Useful, Repeated, Waiting money.Amount
	Unpriced                        bool
	// Lost and Idle are the times that Repeated and Waiting paid for.
	Lost, Idle time.Duration
}

// progressed reports whether the attempt saved work that the one before it had not: a higher step, or
// anything where no steps are known.
func (a *Attempt) progressed() bool {
	if a.Saved.Manifest == "" {
		return false
	}
	if a.Saved.Step == nil {
		return a.Start.Step == nil
	}
	return a.Start.Step == nil || *a.Saved.Step > *a.Start.Step
}

// Over reports whether nothing of the attempt is left.
func (a *Attempt) Over() bool { return !a.EndedAt.IsZero() }

// Current returns the attempt that works, the first that is not over; nil if there is none.
func (j *Job) Current() *Attempt { return j.open(0) }

// Next returns the attempt that waits for the end of the current one; nil if there is none.
func (j *Job) Next() *Attempt { return j.open(1) }

// open returns an attempt that is not over, by its place among those.
func (j *Job) open(n int) *Attempt {
	for i := range j.Attempts {
		if a := &j.Attempts[i]; !a.Over() {
			if n == 0 {
				return a
			}
			n--
		}
	}
	return nil
}

// NextEpoch returns an epoch above those of all attempts.
func (j *Job) NextEpoch() int64 { return j.FirstEpoch + j.launches()*max(1, j.EpochSpan) }

// RoundSpan is the number of epochs of an attempt whose nodes are replaced: each restart takes the next one.
const RoundSpan = 1 << 14

// launches returns the number of attempts that ever began.
func (j *Job) launches() int64 { return max(j.Launches, int64(len(j.Attempts))) }

// Spent returns the cost of the attempts that are over.
func (j *Job) Spent() (money.Amount, error) {
	var total money.Amount
	for _, a := range j.Attempts {
		var err error
		if total, err = total.Add(a.Cost); err != nil {
			return 0, err
		}
	}
	return total, nil
}

// Runtime returns the machine time of the attempts that are over.
func (j *Job) Runtime() (ran time.Duration) {
	for _, a := range j.Attempts {
		if a.Over() && !a.LaunchedAt.IsZero() {
			ran += a.EndedAt.Sub(a.LaunchedAt)
		}
	}
	return ran
}

// Worked returns how long the command worked in the attempts that are over, without what was lost.
func (j *Job) Worked() (worked time.Duration) {
	for _, a := range j.Attempts {
		if a.Over() && !a.CommandAt.IsZero() {
			worked += max(0, a.StoppedAt.Sub(a.CommandAt)-a.Lost).Round(time.Second)
		}
	}
	return worked
}

// Interruptions returns the attempts that were taken away, and the time that they cost: lost work,
// and the time from each until the command ran again.
func (j *Job) Interruptions() (count int, cost time.Duration) {
	for i, a := range j.Attempts {
		for _, r := range a.Restarts {
			if cost += a.lostBefore(r); !r.CommandAt.IsZero() { // otherwise the attempt ended with it
				count++
				cost += a.restarted(r)
			}
		}
		if !a.Over() || !interruption(a.EndedBy) {
			continue
		}
		count++
		cost += a.lostLast()
		if i+1 < len(j.Attempts) && !j.Attempts[i+1].CommandAt.IsZero() && !a.CommandAt.IsZero() {
			cost += max(0, j.Attempts[i+1].CommandAt.Sub(a.EndedAt))
		}
	}
	return count, cost
}

// replacements returns the number of nodes that the next attempt may replace: each counts as an interruption.
func (j *Job) replacements(sp *spec.Spec) int {
	if !sp.ReplaceOne || sp.Resources.Nodes < 2 || j.EpochSpan < RoundSpan {
		return 0
	}
	count, _ := j.Interruptions()
	return max(0, sp.Retries.Interruptions-count)
}

// restoreStep returns the step that all nodes of an attempt begin from; nil lets each take its newest snapshot,
// as those of an attempt do that is launched before the last snapshot of the one before it.
func (j *Job) restoreStep(a *Attempt) *int64 {
	if a.Held {
		return nil
	}
	return j.CommonStep
}

// OnDemandCost returns what the work of the attempts would have cost on demand, without what was
// lost. It returns false if no attempt ran on spot capacity, or the price is unknown.
func (j *Job) OnDemandCost() (money.Amount, bool) {
	if j.OnDemandRate == nil || !slices.ContainsFunc(j.Attempts, func(a Attempt) bool { return a.Pool.Spot }) {
		return 0, false
	}
	kept, started := time.Duration(0), false
	for _, a := range j.Attempts {
		if !a.Over() || a.LaunchedAt.IsZero() {
			continue
		}
		kept += a.EndedAt.Sub(a.LaunchedAt) - a.Lost
		if started {
			kept -= a.Idle // one start would have been enough
		}
		started = true
	}
	cost, err := j.OnDemandRate.For(int64(max(0, kept)/time.Second), 3600)
	return cost, err == nil
}

// interruption reports whether an end is none of the job's own doing.
func interruption(c session.Class) bool {
	return c == session.Interrupted || c == session.MachineLost || c == session.LostAtStart || c == session.GPUFault ||
		c == session.Rendezvous
}

// account fills in the times and the cost of an attempt that is over.
func (a *Attempt) account(s *session.Session) error {
	a.Restarts = s.Restarts
	a.EndedAt, a.LaunchedAt, a.CommandAt = s.EndedAt, s.LaunchedAt, s.CommandAt
	if a.EndedAt.IsZero() {
		a.EndedAt = s.EndingAt
	}
	if len(s.Machines) == 0 || a.LaunchedAt.IsZero() {
		return nil
	}
	a.StoppedAt = a.EndedAt
	if o := s.Outcome; o != nil && o.At.Before(a.StoppedAt) {
		a.StoppedAt = o.At
	} else if !s.EndingAt.IsZero() && s.EndingAt.Before(a.StoppedAt) {
		a.StoppedAt = s.EndingAt
	}
	cost, priced, err := s.Cost(a.EndedAt)
	if err != nil {
		return err
	}
	a.Cost, a.Unpriced = cost, !priced
	return a.divide()
}

// divide divides the cost of an attempt by what it paid for. The parts sum to the cost.
func (a *Attempt) divide() (err error) {
	ran := max(0, a.EndedAt.Sub(a.LaunchedAt))
	worked := time.Duration(0)
	a.Lost = 0
	if !a.CommandAt.IsZero() {
		worked = min(max(0, a.StoppedAt.Sub(a.CommandAt)), ran)
		a.Lost = a.lostLast()
		for _, r := range a.Restarts {
			worked = max(0, worked-a.restarted(r))
			a.Lost += a.lostBefore(r)
		}
		a.Lost = min(a.Lost, worked)
	}
	a.Idle = ran - worked
	if a.Repeated, err = share(a.Cost, a.Lost, ran); err != nil {
		return err
	}
	if a.Waiting, err = share(a.Cost, a.Idle, ran); err != nil {
		return err
	}
	a.Useful = a.Cost - a.Repeated - a.Waiting
	if a.Useful < 0 { // both were rounded up
		a.Waiting += a.Useful
		a.Useful = 0
	}
	return nil
}

// lostLast returns the work at the end of an attempt that was not saved.
func (a *Attempt) lostLast() time.Duration {
	if a.EndedBy == session.Succeeded || a.CommandAt.IsZero() {
		return 0
	}
	from := a.CommandAt
	for _, r := range a.Restarts {
		if r.CommandAt.IsZero() { // it ended before all nodes ran again
			return 0
		}
		from = r.CommandAt
	}
	if saved := a.Saved.Until; a.progressed() && saved.After(from) {
		from = saved
	}
	return max(0, a.StoppedAt.Sub(from))
}

// lostBefore returns the work before a restart that was not saved.
func (a *Attempt) lostBefore(r session.Restart) time.Duration {
	from := a.CommandAt
	for _, before := range a.Restarts {
		if before.At.Before(r.At) && before.CommandAt.After(from) {
			from = before.CommandAt
		}
	}
	if r.Until.After(from) {
		from = r.Until
	}
	return max(0, r.At.Sub(from))
}

// restarted returns the time of a restart, from the loss of the node until the command runs again.
func (a *Attempt) restarted(r session.Restart) time.Duration {
	to := r.CommandAt
	if to.IsZero() {
		to = a.StoppedAt
	}
	return max(0, to.Sub(r.At))
}

// share returns the part of a cost that some of its time paid for.
func share(cost money.Amount, part, all time.Duration) (money.Amount, error) {
	if part <= 0 || all <= 0 {
		return 0, nil
	}
	return cost.Mul(int64(min(part, all)/time.Millisecond), max(1, int64(all/time.Millisecond)))
}
