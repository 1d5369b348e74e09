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
	"github.com/curfew-dev/curfew/internal/inventory"
)

// Reconcile compares the installation's machines at a provider with the records. It ends again the
// machines of sessions that are over, and records machines without a session as orphans, which
// people see and which end after a warning and their own lease. Machines of other installations are
// left alone.
func (k *Keeper) Reconcile(ctx context.Context, provider string) error {
	found, err := k.Launchers[provider].Find(ctx, k.Installation, "")
	if err != nil {
		return fmt.Errorf("list the machines of %s: %w", provider, err)
	}
	bySession := map[string][]FoundMachine{}
	for _, f := range found {
		if f.Session != "" {
			bySession[f.Session] = append(bySession[f.Session], f)
		}
	}
	var errs []error
	for id, machines := range bySession {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := k.reconcileMachines(ctx, provider, id, machines); err != nil && !errors.Is(err, ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, k.reconcileRoles(ctx, provider, bySession))...)
}

// reconcileRoles deletes the roles of sessions that are over and records roles without a session as
// orphans. It skips sessions with machines, whose end deletes the role.
func (k *Keeper) reconcileRoles(ctx context.Context, provider string, machines map[string][]FoundMachine) error {
	lister, listsRoles := k.Launchers[provider].(RoleLister)
	if !listsRoles {
		return nil
	}
	roles, err := lister.Roles(ctx, k.Installation)
	if err != nil {
		return fmt.Errorf("list the roles of %s: %w", provider, err)
	}
	bySession := map[string][]Role{}
	for _, r := range roles {
		if len(machines[r.Session]) == 0 {
			bySession[r.Session] = append(bySession[r.Session], r)
		}
	}
	var errs []error
	for id, left := range bySession {
		if err := k.reconcileSessionRoles(ctx, provider, id, left); err != nil && !errors.Is(err, ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// reconcileSessionRoles deletes the roles of a session that is over, and records those that remain.
func (k *Keeper) reconcileSessionRoles(ctx context.Context, provider, id string, roles []Role) error {
	now := k.Now().UTC()
	s, err := k.Store.Session(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		if slices.ContainsFunc(roles, func(r Role) bool {
			return now.Sub(r.CreatedAt) < k.Timeouts[provider].WithDefaults().OrphanGrace
		}) {
			return nil // a launch recorded in another database may be under way
		}
		return k.recordOrphan(ctx, provider, id, nil, now)
	case err != nil, !s.State.IsFinal(), s.EndedAt.Add(k.timeouts(&s).LookupInterval).After(now):
		return err
	}
	left, err := k.Launchers[provider].Leftovers(ctx, k.Installation, id)
	if err != nil {
		return fmt.Errorf("remove what session %s left: %w", s.Name, err)
	}
	next := s
	if next.Why = s.EndReason; len(left) > 0 {
		next.Why += "; not removed yet: " + strings.Join(left, ", ")
	}
	if next.Why == s.Why {
		return nil
	}
	_, err = k.writeRecord(ctx, &s, next, []Event{{At: now, Node: KeeperNode, Kind: "leftovers", Text: next.Why}})
	return err
}

// reconcileMachines makes sure that an open record exists for found machines.
func (k *Keeper) reconcileMachines(ctx context.Context, provider, id string, found []FoundMachine) error {
	now := k.Now().UTC()
	s, err := k.Store.Session(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return k.recordOrphan(ctx, provider, id, found, now)
	case err != nil, !s.State.IsFinal():
		return err
	case s.EndedAt.Add(k.timeouts(&s).LookupInterval).After(now):
		return nil // the listing may lag behind the end
	}
	next := s
	next.State, next.EndedAt, next.GoneSince, next.EndStep = Ending, time.Time{}, time.Time{}, intent.Step{}
	next.EndReason = "its machines were seen again after its end"
	next.Why = next.EndReason
	next.Discard = true // its work was saved or discarded before it was over
	next.Machines = mergeMachines(s.Machines, found)
	next.Former = slices.DeleteFunc(slices.Clone(s.Former), func(m Machine) bool {
		return slices.ContainsFunc(next.Machines, func(n Machine) bool { return n.ID == m.ID })
	})
	events := []Event{{At: now, Node: KeeperNode, Kind: "alarm", Text: next.Why}}
	_, err = k.writeRecord(ctx, &s, next, events)
	if errors.Is(err, ErrConflict) { // an open session may have taken the name
		next.Name = orphanName(id)
		_, err = k.writeRecord(ctx, &s, next, events)
	}
	return err
}

// orphanName returns the session name for machines without a record.
func orphanName(id string) string { return "stray-" + id[:min(40, len(id))] }

// recordOrphan creates a record for machines or roles that have none.
func (k *Keeper) recordOrphan(ctx context.Context, provider, id string, found []FoundMachine, now time.Time) error {
	s := Session{
		ID: id, Name: orphanName(id), RequestedBy: KeeperActor, Provider: provider, State: Ending, Orphan: true,
		RequestedAt: now,
		EndingAt:    now, EndedBy: KeeperActor,
		EndReason: "it was found without a record", Epoch: 1}
	t := k.timeouts(&s)
	s.EndNotBefore = now.Add(t.OrphanGrace)
	for _, f := range found {
		if s.Owner == (inventory.Owner{}) {
			s.Owner = f.Owner
		}
		s.Region, s.Account = cmp.Or(s.Region, f.Pool.Region), cmp.Or(s.Account, f.Account)
		if end := f.LeaseUntil.Add(t.End); f.LeaseUntil.After(s.LeaseUntil) {
			s.LeaseUntil = f.LeaseUntil.UTC()
			if end.After(s.EndNotBefore) {
				s.EndNotBefore = end.UTC()
			}
		}
	}
	s.Machines = mergeMachines(nil, found)
	s.LaunchedAt = earliestLaunch(s.Machines, now)
	if len(found) == 0 {
		s.EndReason = "its role was found without a record"
	}
	s.Why = fmt.Sprintf("%s; it ends after %s", s.EndReason, s.EndNotBefore.Format(time.RFC3339))
	_, err := k.writeRecord(ctx, nil, s, []Event{
		{
			At: now, Node: KeeperNode, Kind: "alarm", Text: s.Why,
		}, {At: now, Node: KeeperNode, Kind: "warned", Text: s.Why},
	})
	if errors.Is(err, ErrNameTaken) {
		return nil // another keeper wrote first
	}
	return err
}

// mergeMachines returns recorded and found machines in node order.
func mergeMachines(machines []Machine, found []FoundMachine) []Machine {
	out := slices.Clone(machines)
	for _, f := range found {
		if !slices.ContainsFunc(out, func(m Machine) bool { return m.ID == f.ID }) {
			out = append(out, f.Machine)
		}
	}
	slices.SortStableFunc(out, func(a, b Machine) int { return a.Node - b.Node })
	return out
}

// Stop moves a session to Ending: its work is saved, unless discarded, and then its machines are
// released. A session that is ending already can still be discarded.
func (k *Keeper) Stop(ctx context.Context, id, by, why string, discard bool) (Session, error) {
	for range maxStepsPerPass {
		if err := ctx.Err(); err != nil {
			return Session{}, err
		}
		s, err := k.Store.Session(ctx, id)
		if err != nil || s.State.IsFinal() {
			return s, err
		}
		next := s
		switch {
		case s.State != Ending:
			setEnding(&next, k.Now().UTC(), by, why)
			next.Discard = discard
		case discard && !s.Discard:
			next.Discard = true
			next.OrderSerial++
		default:
			return s, nil
		}
		what := End{Why: why, By: by}.Reason()
		if discard {
			what += "; unsaved work is given up"
		}
		made, err := k.writeRecord(ctx, &s, next, []Event{
			{At: k.Now().UTC(), Node: KeeperNode, Kind: "down", Text: what},
		})
		if errors.Is(err, ErrConflict) {
			continue
		}
		return made, err
	}
	return Session{}, ErrConflict
}

// Extend extends the lease of a session to a time; an earlier time changes nothing.
func (k *Keeper) Extend(ctx context.Context, id, by string, until time.Time) (Session, error) {
	for range maxStepsPerPass {
		if err := ctx.Err(); err != nil {
			return Session{}, err
		}
		s, err := k.Store.Session(ctx, id)
		switch {
		case err != nil:
			return s, err
		case s.State == Ending || s.State.IsFinal():
			return s, fmt.Errorf("session %s is %s", s.Name, s.State)
		case !until.After(s.LeaseUntil):
			return s, nil
		}
		next := s
		next.LeaseUntil = until.UTC()
		next.OrderSerial++
		made, err := k.writeRecord(ctx, &s, next, []Event{
			{
				At: k.Now().UTC(), Node: KeeperNode, Kind: "extended",
				Text: "until " + next.LeaseUntil.Format(time.RFC3339) + " (" + by + ")",
			},
		})
		if errors.Is(err, ErrConflict) {
			continue
		}
		return made, err
	}
	return Session{}, ErrConflict
}

// Begin lets the hosts of a held session set up, with the bounds that are left: the attempt before it is
// over.
func (k *Keeper) Begin(ctx context.Context, id string, b Bounds) error {
	for range maxStepsPerPass {
		s, err := k.Store.Session(ctx, id)
		if err != nil || !s.Held || s.Begun || s.State.IsFinal() {
			return err
		}
		next := s
		next.Begun = true
		next.raise(b, k.Now().UTC())
		_, err = k.writeRecord(ctx, &s, next, []Event{
			{At: k.Now().UTC(), Node: KeeperNode, Kind: "begun", Text: "the attempt before it is over"},
		})
		if errors.Is(err, ErrConflict) {
			continue
		}
		return err
	}
	return ErrConflict
}
