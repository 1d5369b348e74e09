package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Admission is the gate's decision about a job.
type Admission struct {
	session.Admission
	// Reserved is the reserved amount; 0 if there is no price. OnDemandRate is the hourly price of
	// the machines on demand; nil if unknown.
	Reserved     money.Amount
	OnDemandRate *money.Rate
}

// Gate decides whether a job may start.
type Gate interface {
	// Admit decides. It is idempotent: a second call returns the existing hold.
	Admit(ctx context.Context, j *Job) (Admission, error)
}

// Holds manages the budget reservations of jobs.
type Holds interface {
	// Close closes every hold of a job: it settles them at the actual cost if machines ran, and
	// releases them otherwise. Closed holds are no error.
	Close(ctx context.Context, j *Job, actual money.Amount, ran bool) error
}

// Keeper takes the missing steps of jobs. It holds no state between passes, and any number of keepers
// may share a database.
type Keeper struct {
	Store Store
	// Sessions keeps the sessions of attempts.
	Sessions *session.Keeper
	// Gate decides about new jobs; nil leaves that to another process.
	Gate  Gate
	Holds Holds
	// Placer chooses places; nil leaves that to the launch.
	Placer *Placer
	// ControlPrefix returns the prefix of the documents of an attempt's session.
	ControlPrefix func(ctx context.Context, j *Job, sp *spec.Spec, session string) (string, error)
	Log           *slog.Logger
}

// maxStepsPerPass bounds the steps of one pass over a job.
const maxStepsPerPass = 32

func (k *Keeper) now() time.Time { return k.Sessions.Now().UTC() }

// Keep takes steps for a job until it has to wait, and returns the time until the next pass.
func (k *Keeper) Keep(ctx context.Context, id string) (after time.Duration, err error) {
	for range maxStepsPerPass {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		v, err := k.observe(ctx, id)
		if err != nil {
			return 0, err
		}
		d := Decide(v)
		if d.Step == StepWait {
			if v.Job.State.IsFinal() {
				k.Sessions.Specs.Forget(id)
			}
			return d.RetryAfter, nil
		}
		waits, err := k.execute(ctx, v, d)
		switch {
		case errors.Is(err, ErrConflict), errors.Is(err, session.ErrConflict):
			continue // another keeper wrote first: read again
		case err != nil:
			return 0, fmt.Errorf("job %s: %w", v.Job.Name, err)
		case waits:
			return d.RetryAfter, nil
		}
	}
	return 0, nil
}

// observe gathers the input of Decide.
func (k *Keeper) observe(ctx context.Context, id string) (Observation, error) {
	j, err := k.Store.Job(ctx, id)
	if err != nil {
		return Observation{}, err
	}
	t := k.Sessions.Timeouts[j.Provider].WithDefaults()
	v := Observation{Now: k.now(), Job: j, HasGate: k.Gate != nil, HoldLimit: t.Launch + t.End}
	if v.Spec, err = k.Sessions.Specs.Parse(j.ID, j.Name, j.Spec); err != nil {
		return v, err
	}
	if v.Session, err = k.session(ctx, j.Current()); err != nil {
		return v, err
	}
	if v.NextSession, err = k.session(ctx, j.Next()); err != nil {
		return v, err
	}
	if k.Placer != nil && !j.AdmittedAt.IsZero() && !j.State.IsFinal() && j.CanceledAt.IsZero() {
		if v.Place, err = k.Placer.Place(ctx, &v, v.Now); err != nil {
			k.Log.WarnContext(ctx, "a place for a job could not be chosen", "job", j.Name, "error", err)
		}
	}
	return v, nil
}

// session returns the session of an attempt; nil if it is not recorded.
func (k *Keeper) session(ctx context.Context, a *Attempt) (*session.Session, error) {
	if a == nil {
		return nil, nil
	}
	s, err := k.Sessions.Store.Session(ctx, a.Session)
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	return &s, err
}

// execute takes one step. It returns true if the job has to wait.
func (k *Keeper) execute(ctx context.Context, v Observation, d Decision) (waits bool, err error) {
	switch d.Step {
	case StepAdmit:
		return k.admit(ctx, &v.Job)
	case StepWrite:
		_, err = k.write(ctx, &v.Job, d.Job, d.Events)
	case StepStart:
		err = k.start(ctx, v, d.Attempt)
		if errors.Is(err, session.ErrNameTaken) {
			next := v.Job
			if next.Why = "a session of the name is not over"; next.Why == v.Job.Why {
				return true, nil
			}
			_, err = k.write(ctx, &v.Job, next, nil)
			return true, err
		}
	case StepStop:
		by := cmp.Or(v.Job.CanceledBy, session.JobActor)
		_, err = k.Sessions.Stop(ctx, d.Attempt.Session, by, d.Why, d.Discard)
		return true, err
	case StepPlace:
		return false, k.Sessions.Place(ctx, d.Attempt.Session, session.Placing{
			Number: d.Attempt.Placings, Places: d.Attempt.Places, Bounds: attemptBounds(&v, d.Attempt),
			Snapshot: v.Job.Snapshot, RestoreStep: v.Job.restoreStep(d.Attempt),
		})
	case StepBegin:
		return false, k.Sessions.Begin(ctx, v.Session.ID, attemptBounds(&v, v.Job.Current()))
	case StepRaise:
		b := attemptBounds(&v, v.Job.Current())
		if !v.Job.Current().Raised || b.LeaseLimit.Before(v.Session.LeaseLimit) {
			b.LeaseLimit = v.Session.LeaseLimit
		}
		return false, k.Sessions.Raise(ctx, v.Session.ID, b)
	case StepClose:
		if k.Holds != nil {
			actual, err := d.Job.Spent()
			if err != nil {
				return false, err
			}
			if err := k.Holds.Close(ctx, &d.Job, actual, d.Job.Runtime() > 0); err != nil {
				return false, err
			}
		}
		_, err = k.write(ctx, &v.Job, d.Job, d.Events)
	}
	return false, err
}

// start records the session of an attempt. The gate allowed it with the job, so it begins with its
// launch.
func (k *Keeper) start(ctx context.Context, v Observation, a *Attempt) error {
	j := &v.Job
	b := attemptBounds(&v, a)
	name := j.Name
	if a.Held { // the session of the name is that of the attempt before
		name = fmt.Sprintf("%s.%d", j.Name, j.launches())
	}
	control, err := k.ControlPrefix(ctx, j, v.Spec, a.Session)
	if err != nil {
		return err
	}
	now := k.now()
	s := session.Session{
		ID: a.Session, Name: name, RequestedBy: j.RequestedBy, Owner: j.Owner, Spec: j.Spec, Hash: j.Hash,
		Provider: j.Provider, Account: j.Account, AllowedUser: j.AllowedUser, RunAs: j.RunAs,
		Job: j.ID, Attempt: a.Number, KeepOnFailure: j.KeepOnFailure, Code: j.Code,
		Places: a.Places, Placings: a.Placings, Held: a.Held,
		Epoch: a.Epoch, State: session.Launching, HoldID: j.HoldID, HourlyCeiling: j.HourlyCeiling,
		LeaseUntil: b.LeaseLimit, LeaseLimit: b.LeaseLimit, CostLimit: b.CostLimit,
		WorkPrefix: j.WorkPrefix, ControlPrefix: control, PreviousSnapshot: j.Snapshot, RequestedAt: now,
		MaxReplacements: j.replacements(v.Spec), RestoreStep: j.restoreStep(a),
	}
	_, err = k.Sessions.Store.Put(ctx, s, []session.Event{{
		At: now, Node: session.KeeperNode, Kind: "requested",
		Text: fmt.Sprintf("attempt %d of job %s", a.Number, j.Name),
	}}, action.Entry{
		At: now, Account: j.Provider + "/" + j.Account, Actor: session.JobActor, What: action.EventSession,
		Resource: "session/" + s.Name, Item: s.ID, Verb: string(s.State), Outcome: "attempt of job " + j.ID,
	})
	return err
}

// attemptBounds returns the bounds of an attempt: what is left of those of its job. An attempt that waits
// for the end of the current one may use what that one has reserved for it, for a short time.
func attemptBounds(v *Observation, a *Attempt) session.Bounds {
	d := &decider{Observation: *v, decision: Decision{Job: v.Job}}
	since := v.Now
	if !a.LaunchedAt.IsZero() {
		since = a.LaunchedAt
	}
	l, _ := d.limits(since)
	b := session.Bounds{LeaseLimit: l.Until.UTC(), CostLimit: l.Dollars}
	if by := l.Runtime.Add(-a.ReservedTime).UTC(); !l.Runtime.IsZero() && by.Before(b.LeaseLimit) {
		b.LeaseLimit = by
	}
	if b.CostLimit > 0 {
		b.CostLimit = max(1, l.Dollars-a.Reserved)
	}
	current := v.Job.Current()
	if current == nil || current.Session == a.Session {
		return b
	}
	if held := v.Now.Add(v.HoldLimit).UTC(); held.Before(b.LeaseLimit) {
		b.LeaseLimit = held
	}
	if b.CostLimit > 0 {
		b.CostLimit = max(1, current.Reserved)
	}
	return b
}

// Account corrects the cost of an attempt that is over, if its machines were seen again and are gone now.
func (k *Keeper) Account(ctx context.Context, s *session.Session) error {
	for range maxStepsPerPass {
		j, err := k.Store.Job(ctx, s.Job)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		j.Attempts = slices.Clone(j.Attempts)
		i := slices.IndexFunc(j.Attempts, func(a Attempt) bool { return a.Session == s.ID })
		if i < 0 || !j.Attempts[i].Over() || j.Attempts[i].EndedAt.Equal(s.EndedAt) {
			return nil
		}
		a, old := &j.Attempts[i], j
		stopped, before := a.StoppedAt, a.Cost
		if err := a.account(s); err != nil {
			return err
		}
		if !stopped.IsZero() { // what it did since was not saved
			a.StoppedAt = stopped
			if err := a.divide(); err != nil {
				return err
			}
		}
		_, err = k.write(ctx, &old, j, []session.Event{{
			At: k.now(), Node: session.KeeperNode, Kind: "alarm", Text: fmt.Sprintf(
				"the machines of attempt %d were seen again after its end: it cost %s instead of %s", a.Number,
				a.Cost.Dollars(), before.Dollars()),
		}})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
	return ErrConflict
}

// write writes a record and its audit entry.
func (k *Keeper) write(ctx context.Context, old *Job, j Job, events []session.Event) (Job, error) {
	e := action.Entry{
		At: k.now(), Account: j.Provider + "/" + j.Account, Actor: cmp.Or(j.CanceledBy, j.RequestedBy),
		What: action.EventSession, Resource: "job/" + j.Name, Item: j.ID, Verb: string(j.State), Because: j.Why,
	}
	if j.CanceledBy == "" && old != nil {
		e.Actor = session.KeeperActor
	}
	for _, event := range events {
		e.Outcome = strings.TrimPrefix(e.Outcome+"; "+strings.TrimSpace(event.Kind+" "+event.Text), "; ")
	}
	return k.Store.Put(ctx, j, events, e)
}

// admit calls the gate and records its decision.
func (k *Keeper) admit(ctx context.Context, j *Job) (waits bool, err error) {
	a, err := k.Gate.Admit(ctx, j)
	if err != nil {
		return false, err
	}
	next, now := *j, k.now()
	next.ApprovalID, next.Why = a.ApprovalID, strings.Join(a.Reasons, "; ")
	event := session.Event{
		At: now, Node: session.KeeperNode, Kind: "gate", Text: string(a.Verdict) + ": " + next.Why,
	}
	switch a.Verdict {
	case gate.Allow:
		next.HoldID, next.Why, next.HourlyCeiling, next.AdmittedAt = a.HoldID, "", a.HourlyLimit, now
		next.CostLimit, next.OnDemandRate = a.Reserved, a.OnDemandRate
		sp, err := k.Sessions.Specs.Parse(j.ID, j.Name, j.Spec)
		if err != nil {
			return false, err
		}
		if sp.MaxCost > 0 && (next.CostLimit <= 0 || sp.MaxCost < next.CostLimit) {
			next.CostLimit = sp.MaxCost
		}
	case gate.Held:
		if next.ApprovalID == j.ApprovalID && next.Why == j.Why {
			return true, nil
		}
		_, err = k.write(ctx, j, next, []session.Event{event})
		return true, err
	default:
		next.State, next.EndedAt, next.Why = Failed, now, "denied: "+next.Why
	}
	_, err = k.write(ctx, j, next, []session.Event{event})
	return false, err
}

// Cancel requests the end of a job: its work is saved, unless discarded, and its machines are
// released. A job that is canceled already can still be discarded.
func (k *Keeper) Cancel(ctx context.Context, id, by string, discard bool) (Job, error) {
	for range maxStepsPerPass {
		j, err := k.Store.Job(ctx, id)
		if err != nil || j.State.IsFinal() || !j.CanceledAt.IsZero() && (!discard || j.Discard) {
			return j, err
		}
		next := j
		next.CanceledBy, next.CanceledAt, next.Discard = by, k.now(), discard
		text := "by " + by
		if discard {
			text += "; unsaved work is given up"
		}
		made, err := k.write(ctx, &j, next, []session.Event{
			{At: k.now(), Node: session.KeeperNode, Kind: "cancel", Text: text},
		})
		if errors.Is(err, ErrConflict) {
			continue
		}
		return made, err
	}
	return Job{}, ErrConflict
}
