package fleets

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

const (
	// drainLease is the time for which a gateway keeps requests from machines that are to end, unless it
	// is renewed; endLease is that from their verification on, in which they shut down. A gateway forgets
	// both once the machine does not answer.
	drainLease = 2 * time.Minute
	endLease   = 10 * time.Minute
	// asleepInterval is the time between two readings of a fleet without a replica.
	asleepInterval = time.Second
)

// drainer is a source of demand that can keep new requests from servers.
type drainer interface {
	// Drain keeps new requests from the servers of some hosts for a time, from all without hosts, and
	// returns how many requests they still have and how many wait. Zero gives them requests again.
	Drain(ctx context.Context, hosts []string, lasts time.Duration) (open int, err error)
}

// drainers returns the gateways of a fleet, where they are all of its sources of demand.
func (one *watched) drainers() []drainer {
	var out []drainer
	for _, r := range one.readers {
		d, ok := r.(drainer)
		if !ok {
			return nil
		}
		out = append(out, d)
	}
	return out
}

// drain keeps new requests from hosts, from the whole fleet without any, and returns how many requests
// are left.
func (one *watched) drain(ctx context.Context, hosts []string, lasts time.Duration) (open int, err error) {
	var errs []error
	for _, d := range one.drainers() {
		n, err := d.Drain(ctx, hosts, lasts)
		open, errs = open+n, append(errs, err)
	}
	return open, errors.Join(errs...)
}

// empties reports whether a change ends all replicas of a fleet that does not name them, which takes
// gateways that hold its requests back.
func (one *watched) empties(at action.Fleet, to int) bool {
	return to == 0 && at.Desired > 0 && len(at.Replicas) == 0 && len(one.drainers()) > 0
}

// drainFor keeps new requests from n machines that may end, and returns them once they have none; nil
// before that. The hosts without requests are those of before.
func (z *resize) drainFor(ctx context.Context, n int, idle []string) ([]string, error) {
	if len(z.fleet.drainers()) == 0 || z.at.Drains {
		return drained(z.at, idle, n), nil
	}
	// Those that are drained already come first, so that a second round goes on with them.
	order := slices.Clone(z.at.Replicas)
	rank := func(r action.Replica) int {
		switch {
		case slices.ContainsFunc(r.Hosts, func(h string) bool { return slices.Contains(z.fleet.draining, h) }):
			return 0
		case isIdle(r, idle):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(order, func(a, b action.Replica) int { return rank(a) - rank(b) })
	var hosts []string
	chosen := z.at
	chosen.Replicas = nil
	for _, r := range order {
		if len(chosen.Replicas) < n && r.Serving && !r.Protected {
			chosen.Replicas = append(chosen.Replicas, r)
			hosts = append(hosts, r.Hosts...)
		}
	}
	if len(hosts) == 0 {
		return nil, nil
	}
	if err := z.hold(ctx, hosts); err != nil {
		return nil, err
	}
	_, _, _, idle = z.fleet.read(ctx, z.clock().Wall)
	return drained(chosen, idle, n), nil
}

// hold keeps new requests from hosts in place of others.
func (z *resize) hold(ctx context.Context, hosts []string) error {
	if others := slices.DeleteFunc(slices.Clone(z.fleet.draining), func(h string) bool {
		return slices.Contains(hosts, h)
	}); len(others) > 0 {
		if _, err := z.fleet.drain(ctx, others, 0); err != nil {
			return fmt.Errorf("give machines requests again: %w", err)
		}
	}
	z.fleet.draining = hosts
	if _, err := z.fleet.drain(ctx, hosts, drainLease); err != nil {
		return fmt.Errorf("drain machines: %w", err)
	}
	return nil
}

// allDrained keeps new requests from the whole fleet, and reports whether it has none.
func (z *resize) allDrained(ctx context.Context, lasts time.Duration) (bool, error) {
	z.fleet.drainsAll = true
	open, err := z.fleet.drain(ctx, nil, lasts)
	if err != nil {
		return false, fmt.Errorf("drain the fleet: %w", err)
	}
	return open == 0, nil
}

// resume gives machines requests again that are not to end any more.
func (one *watched) resume(ctx context.Context) error {
	if !one.drainsAll && len(one.draining) == 0 {
		return nil
	}
	hosts := one.draining
	if one.drainsAll {
		hosts = nil
	}
	one.draining, one.drainsAll = nil, false
	_, err := one.drain(context.WithoutCancel(ctx), hosts, 0)
	return err
}

// stillDrained renews the drain of the machines that an action ends, and reports whether they have no
// request.
func (z *resize) stillDrained(ctx context.Context, at action.Fleet, to int, members []string) (bool, error) {
	if z.fleet.empties(at, to) {
		return z.allDrained(ctx, endLease)
	}
	if len(z.fleet.drainers()) == 0 || at.Drains {
		return true, nil
	}
	var hosts []string
	for _, r := range at.Replicas {
		if slices.Contains(members, r.ID) {
			hosts = append(hosts, r.Hosts...)
		}
	}
	if len(hosts) == 0 {
		return false, nil
	}
	z.fleet.draining = hosts
	_, err := z.fleet.drain(ctx, hosts, endLease)
	return err == nil, err
}

// hurries reports whether a fleet has no replica, so that a request waits for each moment of a decision.
func (one *watched) hurries() bool {
	return one.status.ReplicasKnown && one.status.Replicas == 0 && len(one.readers) > 0
}

// Hurries reports whether a fleet has no replica.
func (w *Watcher) Hurries() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.fleets {
		if one.hurries() {
			return true
		}
	}
	return false
}
