package job

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// waitForPlace waits until a place is worth its price.
func (d *decider) waitForPlace() {
	j := d.job()
	if why := d.Place.Why; j.Why != why || j.State != Waiting {
		j.State, j.Why, j.Placed, j.NotBefore = Waiting, why, d.Place, d.Place.Next
		d.event("waits", "%s; the next look is at %s", why, plain.Time(d.Place.Next))
		d.write()
		return
	}
	d.wait(d.Place.Next.Sub(d.Now))
}

// waitAfterFault waits where the only place left is that of the GPU that failed last: the provider may hand
// out the same machine. It returns false if there is nothing to wait for.
func (d *decider) waitAfterFault() bool {
	j := d.job()
	if len(j.Attempts) == 0 {
		return false
	}
	last := j.Attempts[len(j.Attempts)-1]
	fault := session.PoolFault{Pool: last.Pool, At: last.EndedAt}
	if last.EndedBy != session.GPUFault || !fault.Concerns(d.Place.Places[0]) {
		return false
	}
	until := last.EndedAt.Add(min(maxBackoff, capacityBackoff<<min(max(0, d.withoutProgress()-1), 10)))
	if !d.Now.Before(until) {
		return false
	}
	j.NotBefore = until
	j.Why = fmt.Sprintf("a GPU failed in %s, and there is no other place; the next attempt starts at %s", last.Pool,
		plain.Time(until))
	d.write()
	return true
}

// followUnplaced gives the current attempt other places, or ends it once the job has no bounds left. It
// returns false if there is nothing to do.
func (d *decider) followUnplaced(a *Attempt, s *session.Session) bool {
	if _, spent := d.limits(d.Now); spent != "" {
		d.stop(a, spent, false)
		return true
	}
	return d.place(a, s)
}

// place gives an attempt without a machine other places. It returns false if there are none, or they
// were tried since the last look.
func (d *decider) place(a *Attempt, s *session.Session) bool {
	if a.Placings > s.Placings {
		d.decision.Step, d.decision.Attempt = StepPlace, a
		return true
	}
	p, j := d.Place, d.job()
	if p == nil {
		return false
	}
	if !d.Now.Before(a.TryAgainAt) {
		a.Tried = nil
	}
	places := slices.DeleteFunc(slices.Clone(p.Places), func(n session.Pool) bool {
		return slices.ContainsFunc(a.Tried, n.SamePlace)
	})
	if len(places) == 0 {
		return false
	}
	a.Placings, a.Places, a.Tried = a.Placings+1, places, slices.Concat(a.Tried, places)
	a.TryAgainAt, a.Start, j.Placed = p.Next, j.Snapshot, p
	if i := slices.IndexFunc(places, func(n session.Pool) bool { return !s.FoundWithout(n) }); i >= 0 {
		d.event("attempt", "attempt %d tries %s: %s", a.Number, places[i], p.Why)
	}
	d.write()
	return true
}

// move brings a running attempt to a better place. The machines there are launched first, so that
// trying for them costs nothing, and they wait for the last snapshot of this attempt. It returns false
// if there is nothing to do.
func (d *decider) move(a *Attempt, s *session.Session) bool {
	if n := d.job().Next(); n != nil {
		return d.followNext(a, s, n)
	}
	p := d.Place
	if p == nil || p.Stay || s.State == session.Ending || a.LaunchedAt.IsZero() {
		return false
	}
	if len(p.Places) == 0 {
		d.stop(a, p.Why, false)
		return true
	}
	if d.Job.CostLimit > 0 && a.Reserved == 0 || d.Spec.MaxRuntime > 0 && a.ReservedTime == 0 {
		// Two machines at once could cost more than the limit, or run for longer.
		if p.Places[0].Spot {
			return false
		}
		d.stop(a, "it moves to "+p.Places[0].String(), false)
		return true
	}
	n := d.begin(true)
	d.event("attempt", "attempt %d tries %s: %s", n.Number, p.Places[0], p.Why)
	d.write()
	return true
}

// reserve returns the dollars that a move may need: those of the most expensive place while an attempt waits for
// the end of the one before it. It returns 0 where little more than that is left.
func (d *decider) reserve() money.Amount {
	j := d.job()
	if j.CostLimit <= 0 || d.Spec.Capacity != spec.Auto {
		return 0
	}
	hourly := money.Amount(0)
	for _, o := range j.Placed.Options {
		if j.HourlyCeiling <= 0 || o.Hourly <= j.HourlyCeiling {
			hourly = max(hourly, o.Hourly)
		}
	}
	dollars, err := hourly.Mul(int64(d.HoldLimit/time.Second), 3600)
	l, spent := d.limits(d.Now)
	left := l.Dollars
	if a := j.Current(); a != nil && d.Session != nil && a.Session == d.Session.ID {
		cost, _, costErr := d.Session.Cost(d.Now)
		left, err = left-cost, cmp.Or(err, costErr)
	}
	if err != nil || spent != "" || left/reserveShare < dollars {
		return 0
	}
	return dollars
}

// reserveShare is the least multiple of the reserve that is left for it to be kept.
const reserveShare = 4

// reserveTime returns the machine time that a move may need: that of a machine which waits for the end of the
// current one. It returns 0 where max_runtime leaves little more than that.
func (d *decider) reserveTime() time.Duration {
	if d.Spec.MaxRuntime <= 0 || d.Spec.Capacity != spec.Auto {
		return 0
	}
	left := d.Spec.MaxRuntime - d.job().Runtime()
	if a := d.job().Current(); a != nil && !a.LaunchedAt.IsZero() {
		left -= d.Now.Sub(a.LaunchedAt)
	}
	if left/reserveShare < d.HoldLimit {
		return 0
	}
	return d.HoldLimit
}

// raise gives a running attempt the reserved dollars and the reserved time at last, after which the job does not
// move any more. It returns false if there is nothing to do.
func (d *decider) raise(a *Attempt, s *session.Session) bool {
	l, spent := d.limits(d.Now)
	if s.State != session.Ready || spent != "" {
		return false
	}
	soon := s.LeaseUntil.Sub(d.Now) < d.HoldLimit
	switch {
	case a.Reserved > 0 && s.LeaseUntil.Before(s.LeaseLimit) && soon:
		a.Reserved = 0
		d.write()
	case a.ReservedTime > 0 && !s.LeaseUntil.Before(s.LeaseLimit) && soon:
		a.ReservedTime, a.Raised = 0, true
		d.write()
	case a.Reserved == 0 && s.CostLimit > 0 && s.CostLimit < l.Dollars,
		a.Raised && attemptBounds(&d.Observation, a).LeaseLimit.After(s.LeaseLimit):
		d.decision.Step = StepRaise
	default:
		return false
	}
	return true
}

// followNext follows the attempt that is to replace the current one.
func (d *decider) followNext(a *Attempt, s *session.Session, n *Attempt) bool {
	next := d.NextSession
	switch {
	case next == nil:
		d.start(n)
	case next.State.IsFinal():
		d.removeNext(n, next)
	case next.Unplaced:
		p := d.Place
		if p == nil || p.Stay || s.State == session.Ending {
			return false
		}
		if len(p.Places) > 0 {
			return d.place(n, next)
		}
		d.stop(a, p.Why, false)
	case len(next.Machines) > 0 && s.State != session.Ending && next.State != session.Ending:
		if !n.Pool.SamePlace(next.Pool) || !n.LaunchedAt.Equal(next.LaunchedAt) {
			n.Pool, n.LaunchedAt = next.Pool, next.LaunchedAt
			d.write()
			return true
		}
		d.stop(a, "it moves to "+next.Pool.String(), false)
	default:
		return false
	}
	return true
}

// removeNext takes an attempt away that ended before it worked. What its machines cost stays.
func (d *decider) removeNext(n *Attempt, next *session.Session) {
	j := d.job()
	d.account(n, next)
	if n.Cost == 0 && !n.Unpriced {
		d.event("attempt", "attempt %d found no machine: %s", n.Number, n.Evidence)
		j.Launches, j.Attempts = j.launches(), j.Attempts[:len(j.Attempts)-1]
	}
	d.write()
}

// dropNext ends the attempt that is not needed any more, because the job ends.
func (d *decider) dropNext(n *Attempt) {
	next := d.NextSession
	switch {
	case next == nil:
		d.start(n) // another keeper may be recording it
	case next.State.IsFinal():
		d.removeNext(n, next)
	case next.State != session.Ending || !next.Discard:
		d.stop(n, "the job is over", true)
	default:
		d.wait(pollInterval)
	}
}

// endsWith reports whether the job ends with the session of the current attempt.
func (d *decider) endsWith(s *session.Session) bool {
	trial := *d
	j := *d.job()
	j.Attempts, trial.decision.Events = slices.Clone(j.Attempts), nil
	trial.decision.Job = j
	trial.endAttempt(trial.job().Current(), s)
	return trial.decision.Step == StepClose
}
