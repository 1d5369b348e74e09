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

// Reconcile compares the machines of the installation at a provider with the records, and
// resolves what does not agree: machines whose session is over end again, and machines that no record knows
// get one, so that people see them; they end after a warning and once their own lease is
// over. Machines of another installation are left alone.
func (k *Keeper) Reconcile(ctx context.Context, provider string) error {
	found, err := k.Launchers[provider].Find(ctx, k.Installation, "")
	if err != nil {
		return fmt.Errorf("list the machines of %s: %w", provider, err)
	}
	by := map[string][]Found{}
	for _, f := range found {
		if f.Session != "" {
			by[f.Session] = append(by[f.Session], f)
		}
	}
	var errs []error
	for id, machines := range by {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := k.resolve(ctx, provider, id, machines); err != nil && !errors.Is(err, ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, k.reconcileRoles(ctx, provider, by))...)
}

// reconcileRoles removes the roles of sessions that are over, and makes a record for those that
// no record knows: its end removes them after a while, as it does machines. Those of sessions with
// machines are theirs.
func (k *Keeper) reconcileRoles(ctx context.Context, provider string, machines map[string][]Found) error {
	lister, makes := k.Launchers[provider].(RoleLister)
	if !makes {
		return nil
	}
	roles, err := lister.Roles(ctx, k.Installation)
	if err != nil {
		return fmt.Errorf("list the roles of %s: %w", provider, err)
	}
	by := map[string][]Role{}
	for _, r := range roles {
		if len(machines[r.Session]) == 0 {
			by[r.Session] = append(by[r.Session], r)
		}
	}
	var errs []error
	for id, left := range by {
		if err := k.resolveRoles(ctx, provider, id, left); err != nil && !errors.Is(err, ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// resolveRoles removes the roles of a session that is over. What stays is said in its record.
func (k *Keeper) resolveRoles(ctx context.Context, provider, id string, roles []Role) error {
	now := k.Now().UTC()
	s, err := k.Store.Session(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		if slices.ContainsFunc(roles, func(r Role) bool { return now.Sub(r.CreatedAt) < k.Timing[provider].Fill().Stray }) {
			return nil // a launch whose record is elsewhere may be under way
		}
		return k.adopt(ctx, provider, id, nil, now)
	case err != nil, !s.State.Over(), s.EndedAt.Add(k.timing(&s).Apart).After(now):
		return err
	}
	left, err := k.Launchers[provider].Leftovers(ctx, k.Installation, id)
	if err != nil {
		return fmt.Errorf("remove what session %s left: %w", s.Name, err)
	}
	next := s
	if next.Why = s.EndWhy; len(left) > 0 {
		next.Why += "; not removed yet: " + strings.Join(left, ", ")
	}
	if next.Why == s.Why {
		return nil
	}
	_, err = k.put(ctx, &s, next, []Event{{At: now, Node: Keepers, Kind: "leftovers", Text: next.Why}})
	return err
}

// resolve gives the machines of a session a record that is not over.
func (k *Keeper) resolve(ctx context.Context, provider, id string, found []Found) error {
	now := k.Now().UTC()
	s, err := k.Store.Session(ctx, id)
	switch {
	case errors.Is(err, ErrNotFound):
		return k.adopt(ctx, provider, id, found, now)
	case err != nil, !s.State.Over():
		return err
	case s.EndedAt.Add(k.timing(&s).Apart).After(now):
		return nil // it may be shown late
	}
	next := s
	next.State, next.EndedAt, next.Gone, next.End = Ending, time.Time{}, time.Time{}, intent.Step{}
	next.EndWhy = "its machines were seen again after its end"
	next.Why = next.EndWhy
	next.Discard = true // its work was saved, or given up, before it was over
	next.Machines = joined(s.Machines, found)
	events := []Event{{At: now, Node: Keepers, Kind: "alarm", Text: next.Why}}
	_, err = k.put(ctx, &s, next, events)
	if errors.Is(err, ErrConflict) { // or another session has the name by now
		next.Name = stray(id)
		_, err = k.put(ctx, &s, next, events)
	}
	return err
}

// stray is the name of a session that no one named.
func stray(id string) string { return "stray-" + id[:min(40, len(id))] }

// adopt makes a record of machines that have none.
func (k *Keeper) adopt(ctx context.Context, provider, id string, found []Found, now time.Time) error {
	s := Session{
		ID: id, Name: stray(id), By: keeper, Provider: provider, State: Ending, Adopted: true, RequestedAt: now,
		EndingAt: now, EndBy: keeper,
		EndWhy: "it was found without a record", Epoch: 1}
	t := k.timing(&s)
	s.NotBefore = now.Add(t.Stray)
	for _, f := range found {
		if s.Owner == (inventory.Owner{}) {
			s.Owner = f.Owner
		}
		s.Region, s.Account = cmp.Or(s.Region, f.Pool.Region), cmp.Or(s.Account, f.Account)
		if end := f.LeaseUntil.Add(t.End); f.LeaseUntil.After(s.LeaseUntil) {
			s.LeaseUntil = f.LeaseUntil.UTC()
			if end.After(s.NotBefore) {
				s.NotBefore = end.UTC()
			}
		}
	}
	s.Machines = joined(nil, found)
	s.LaunchedAt = earliest(s.Machines, now)
	if len(found) == 0 {
		s.EndWhy = "its role was found without a record"
	}
	s.Why = fmt.Sprintf("%s; it ends after %s", s.EndWhy, s.NotBefore.Format(time.RFC3339))
	_, err := k.put(ctx, nil, s, []Event{
		{At: now, Node: Keepers, Kind: "alarm", Text: s.Why}, {At: now, Node: Keepers, Kind: "warned", Text: s.Why},
	})
	if errors.Is(err, ErrTaken) {
		return nil // another keeper was faster
	}
	return err
}

// joined are machines of a record and those that were found, by their nodes.
func joined(machines []Machine, found []Found) []Machine {
	out := slices.Clone(machines)
	for _, f := range found {
		if !slices.ContainsFunc(out, func(m Machine) bool { return m.ID == f.ID }) {
			out = append(out, f.Machine)
		}
	}
	slices.SortStableFunc(out, func(a, b Machine) int { return a.Node - b.Node })
	return out
}

// Stop turns a session to its end: its work is saved and confirmed, unless discard gives it
// up, and then its machines are released. One that is ending already takes a discard on.
func (k *Keeper) Stop(ctx context.Context, id, by, why string, discard bool) (Session, error) {
	for range maxActs {
		if err := ctx.Err(); err != nil {
			return Session{}, err
		}
		s, err := k.Store.Session(ctx, id)
		if err != nil || s.State.Over() {
			return s, err
		}
		next := s
		switch {
		case s.State != Ending:
			endSession(&next, k.Now().UTC(), by, why)
			next.Discard = discard
		case discard && !s.Discard:
			next.Discard = true
			next.Serial++
		default:
			return s, nil
		}
		what := End{Why: why, By: by}.Reason()
		if discard {
			what += "; unsaved work is given up"
		}
		made, err := k.put(ctx, &s, next, []Event{{At: k.Now().UTC(), Node: Keepers, Kind: "down", Text: what}})
		if errors.Is(err, ErrConflict) {
			continue
		}
		return made, err
	}
	return Session{}, ErrConflict
}

// Prolong lets a session run until a time, which is not before its lease ends.
func (k *Keeper) Prolong(ctx context.Context, id, by string, until time.Time) (Session, error) {
	for range maxActs {
		if err := ctx.Err(); err != nil {
			return Session{}, err
		}
		s, err := k.Store.Session(ctx, id)
		switch {
		case err != nil:
			return s, err
		case s.State == Ending || s.State.Over():
			return s, fmt.Errorf("session %s is %s", s.Name, s.State)
		case !until.After(s.LeaseUntil):
			return s, nil
		}
		next := s
		next.LeaseUntil = until.UTC()
		next.Serial++
		made, err := k.put(ctx, &s, next, []Event{
			{
				At: k.Now().UTC(), Node: Keepers, Kind: "extended",
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
