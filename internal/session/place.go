package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/intent"
	"github.com/curfew-dev/curfew/internal/money"
)

// Placing is a choice of places for an attempt that has no machine.
type Placing struct {
	// Number numbers the choices of an attempt, from 1 for the second one.
	Number int
	Places []Pool
	Bounds
	// Snapshot is the newest of the job, RestoreStep the step of which all its nodes keep one.
	Snapshot    Snapshot
	RestoreStep *int64
}

// Bounds are the LeaseLimit and the CostLimit of an attempt.
type Bounds struct {
	LeaseLimit time.Time
	CostLimit  money.Amount
}

// Raise gives a running attempt higher bounds.
func (k *Keeper) Raise(ctx context.Context, id string, b Bounds) error {
	for range maxStepsPerPass {
		s, err := k.Store.Session(ctx, id)
		if err != nil || s.State != Starting && s.State != Ready ||
			!b.LeaseLimit.After(s.LeaseLimit) && b.CostLimit <= s.CostLimit {
			return err
		}
		next := s
		next.raise(b, k.Now().UTC())
		_, err = k.writeRecord(ctx, &s, next, []Event{{
			At: k.Now().UTC(), Node: KeeperNode, Kind: "extended",
			Text: "until " + next.LeaseUntil.Format(time.RFC3339) + ": nothing else is launched for its job",
		}})
		if errors.Is(err, ErrConflict) {
			continue
		}
		return err
	}
	return ErrConflict
}

// raise sets the bounds of an attempt, whose dollars count from its launch.
func (s *Session) raise(b Bounds, now time.Time) {
	s.LeaseLimit, s.CostLimit = b.LeaseLimit.UTC(), b.CostLimit
	if len(s.Restarts) == 0 {
		s.boundLease(cmp.Or(s.LaunchedAt, now), max(1, len(s.Machines)))
	} else if end := s.paidUntil(now); end.After(s.LeaseUntil) {
		s.LeaseUntil = end
	}
	s.OrderSerial++
}

// Place lets an attempt whose places have no machine try others. A choice that was made before changes
// nothing.
func (k *Keeper) Place(ctx context.Context, id string, p Placing) error {
	for range maxStepsPerPass {
		s, err := k.Store.Session(ctx, id)
		if err != nil || s.State != Launching || !s.Unplaced || s.Placings >= p.Number {
			return err
		}
		next := s
		next.Placings, next.Places, next.PlacedAt, next.Unplaced = p.Number, p.Places, k.Now().UTC(), false
		next.LeaseLimit, next.LeaseUntil, next.CostLimit = p.LeaseLimit, p.LeaseLimit, p.CostLimit
		next.PreviousSnapshot, next.RestoreStep, next.Why = p.Snapshot, p.RestoreStep, ""
		next.CapacityFailures = pastFailures(s.CapacityFailures)
		_, err = k.writeRecord(ctx, &s, next, nil)
		if errors.Is(err, ErrConflict) {
			continue
		}
		return err
	}
	return ErrConflict
}

// pastFailures marks failures as past. Of each pool it keeps the first and the last one, which tell
// since when and until when it was seen without capacity.
func pastFailures(all []CapacityFailure) (out []CapacityFailure) {
	for i, f := range all {
		same := func(o CapacityFailure) bool { return o.Pool.SamePlace(f.Pool) }
		if slices.ContainsFunc(all[:i], same) && slices.ContainsFunc(all[i+1:], same) {
			continue
		}
		f.Past = true
		out = append(out, f)
	}
	return out
}

// choosePool starts a launch in the best pool that has not failed lately and costs no more than the
// ceiling.
func (d *decider) choosePool() {
	if len(d.Pools) == 0 {
		d.beginEnding(KeeperActor, "no place to launch it from is known")
		return
	}
	failed := func(p Pool) bool {
		return d.triedBefore(p) || slices.ContainsFunc(d.CapacityFailures, func(t CapacityFailure) bool {
			return t.Pool.SamePlace(p) && d.Now.Before(t.Until)
		})
	}
	pools := d.Pools
	if d.Session.Places != nil { // whoever chose them knows what failed for other sessions
		pools, failed = d.chosenPools(), d.triedBefore
	}
	overCeiling := 0
	for _, p := range pools {
		if failed(p) {
			continue
		}
		if d.overCeiling(p) {
			overCeiling++
			continue
		}
		s := d.record()
		s.LaunchAttempts++
		s.Pool, s.LaunchStep = p, intent.Step{Name: "launch", Key: launchToken(s)}
		s.boundLease(d.Now, max(1, d.Nodes))
		if s.Job != "" {
			s.FirstLease = s.LeaseUntil
		}
		if !s.FoundWithout(p) {
			d.addEvent("launching", "%s", p)
		}
		d.writeRecord()
		return
	}
	var tried []string
	for _, t := range d.Session.CapacityFailures {
		if !t.Past {
			tried = append(tried, t.Pool.String())
		}
	}
	ceilingNote := ""
	if overCeiling > 0 {
		ceilingNote = fmt.Sprintf(
			"; %d of %d pools cost more than the gate let pass (%s an hour): name a machine type to ask for one",
			overCeiling,
			len(pools), d.Session.HourlyCeiling.Dollars())
	}
	switch {
	case d.Session.Job != "" && d.Session.Places != nil:
		d.waitForPlaces(tried, ceilingNote)
	case len(tried) > 0:
		d.beginEnding(KeeperActor, "no capacity in %s%s", strings.Join(tried, ", "), ceilingNote)
	case overCeiling == len(pools):
		d.beginEnding(KeeperActor, "no place is as cheap as what the gate let pass%s", ceilingNote)
	default:
		d.beginEnding(KeeperActor, "no capacity: %d pools had none for other sessions within %s%s",
			len(pools)-overCeiling,
			d.timeouts.PoolBackoff, ceilingNote)
	}
}

// waitForPlaces lets an attempt wait until the keeper of its job chooses places again. It keeps its
// record, so that a job that waits for capacity for days has one attempt.
func (d *decider) waitForPlaces(tried []string, note string) {
	s := d.record()
	s.Unplaced, s.LeaseUntil = true, s.LeaseLimit
	s.Why = "no place is left to be tried" + note
	if len(tried) > 0 {
		s.Why = "no capacity in " + strings.Join(tried, ", ") + note
	}
	d.writeRecord()
}

// triedBefore reports whether the session found a pool without capacity since its places were chosen.
func (d *decider) triedBefore(p Pool) bool {
	return slices.ContainsFunc(d.Session.CapacityFailures, func(t CapacityFailure) bool {
		return !t.Past && t.Pool.SamePlace(p)
	})
}

// FoundWithout reports whether the session found a place without capacity before.
func (s *Session) FoundWithout(p Pool) bool {
	return slices.ContainsFunc(s.CapacityFailures, func(t CapacityFailure) bool { return t.Pool.SamePlace(p) })
}

// chosenPools returns the pools of the session's places, in their order.
func (d *decider) chosenPools() (out []Pool) {
	for _, place := range d.Session.Places {
		if i := slices.IndexFunc(d.Pools, place.SamePlace); i >= 0 {
			out = append(out, d.Pools[i])
		}
	}
	return out
}

// overCeiling reports whether machines of a pool cost more than the gate allowed. An unpriced pool
// does.
func (d *decider) overCeiling(p Pool) bool {
	all := poolRate(p, max(1, d.Nodes))
	if d.Session.CostLimit > 0 && all == nil {
		return true // its dollars could not be bounded
	}
	if d.Session.HourlyCeiling <= 0 {
		return false
	}
	if all == nil {
		return true
	}
	hourly, err := all.Times(1)
	return err != nil || hourly > d.Session.HourlyCeiling
}
