package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// resourceActions finds and stops machines that people launched, through resource actions instead
// of a launcher. A machine belongs to its session while it runs with the session's tag; without the
// tag it was given back and is left alone.
type resourceActions struct{ sessions *Sessions }

var _ session.Launcher = resourceActions{}

// Pools implements session.Launcher. There are no pools for existing machines.
func (h resourceActions) Pools(context.Context, *spec.Spec) ([]session.Pool, error) {
	return nil, session.ErrUnsupported
}

// Launch implements session.Launcher. Existing machines are never launched.
func (h resourceActions) Launch(context.Context, session.Launch) ([]session.Machine, error) {
	return nil, session.ErrUnsupported
}

// Leftovers implements session.Launcher. A stopped machine keeps its resources.
func (h resourceActions) Leftovers(context.Context, string, string) ([]string, error) {
	return nil, nil
}

// cloud returns the account of a session's machines.
func (h resourceActions) cloud(ctx context.Context, s *session.Session) (*clouds.AWS, error) {
	f := clouds.Source{Cloud: clouds.ProviderAWS, Regions: []string{s.Region}, Profile: s.Place.Profile}
	if s.Place.Role != "" {
		f.AssumeRoles = []string{s.Place.Role}
	}
	return clouds.OpenActionable(ctx, h.sessions.Request, h.sessions.Config, f)
}

// Find implements session.Launcher.
func (h resourceActions) Find(ctx context.Context, _, id string) ([]session.FoundMachine, error) {
	if id == "" {
		return nil, nil
	}
	s, err := h.sessions.store.Sessions().Session(ctx, id)
	if err != nil {
		return nil, err
	}
	seen, _, err := h.sessionMachines(ctx, &s)
	if err != nil {
		return nil, err
	}
	var found []session.FoundMachine
	for _, r := range seen {
		node := slices.Index(s.Place.Refs, r.Ref())
		found = append(found, session.FoundMachine{Session: id, LeaseUntil: r.LeaseUntil,
			Machine: session.Machine{ID: r.ID, Node: node, Pool: s.Pool, State: r.State, LaunchedAt: s.LaunchedAt}})
	}
	return found, nil
}

// sessionMachines returns the running machines that carry the session's tag.
func (h resourceActions) sessionMachines(ctx context.Context, s *session.Session) ([]*inventory.Resource, *clouds.AWS,
	error) {
	cloud, err := h.cloud(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	var out []*inventory.Resource
	for _, ref := range s.Place.Refs {
		r, err := readMachine(ctx, cloud, ref, h.sessions.now().UTC())
		switch {
		case err != nil:
			return nil, nil, err
		case r == nil || r.State == inventory.StateStopped || r.State == inventory.StateDeleting:
		case r.Tags == nil:
			return nil, nil, fmt.Errorf("the tags of %s could not be read", ref)
		case r.Tags[inventory.TagAdopted] == s.ID:
			out = append(out, r)
		}
	}
	return out, cloud, nil
}

// stopAction returns the action to stop a machine on its owner's request; discard accepts the loss
// of what a stop loses.
func stopAction(discard bool) policy.Do {
	return policy.Do{Verb: policy.Stop, ScratchInstanceStore: discard}
}

// End implements session.Launcher. It stops the session's machines with the same checks as
// policies; refused machines stay, with the reason.
func (h resourceActions) End(ctx context.Context, id string, ids []string) error {
	s, err := h.sessions.store.Sessions().Session(ctx, id)
	if err != nil {
		return err
	}
	seen, cloud, err := h.sessionMachines(ctx, &s)
	if err != nil {
		return err
	}
	if frozen, err := h.sessions.store.Actions().Frozen(ctx); err != nil || frozen != nil {
		return cmp.Or(err, errors.New("all actions are frozen"))
	}
	var errs []error
	for _, r := range seen {
		if slices.Contains(ids, r.ID) && r.State == inventory.StateRunning {
			errs = append(errs, h.stop(ctx, cloud, r, stopAction(s.Discard), s.EndStep.Key))
		}
	}
	return errors.Join(errs...)
}

func (h resourceActions) stop(ctx context.Context, cloud *clouds.AWS, r *inventory.Resource, do policy.Do,
	key string) error {
	actions := cloud.Actions()
	steps, err := actions.Plan(ctx, r, do)
	if err != nil {
		return err
	}
	return clouds.CarryOut(ctx, actions, r, do, steps, key)
}

// checkStop returns why machines that a person launched cannot be stopped; nil if they can. Freezes
// apply too.
func checkStop(ctx context.Context, a *Sessions, s *session.Session, discard bool) error {
	frozen, err := a.store.Actions().Frozen(ctx)
	if err != nil {
		return err
	}
	if frozen != nil {
		return &runtime.Error{
			Class: runtime.Denied, Code: "frozen",
			Err:  fmt.Errorf("session %s is not stopped: all actions are frozen", s.Name),
			Hint: "`curfew unfreeze` allows them again",
		}
	}
	seen, cloud, err := resourceActions{a}.sessionMachines(ctx, s)
	if err != nil {
		return err
	}
	for _, r := range seen {
		var refusal *action.Refusal
		_, err := cloud.Actions().Plan(ctx, r, stopAction(discard))
		if errors.As(err, &refusal) {
			return &runtime.Error{
				Class: runtime.Denied, Code: "refused",
				Err:  fmt.Errorf("session %s is not stopped: %s", s.Name, refusal.Why),
				Hint: "--discard gives up what instance-store disks hold",
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// extendUserLaunched extends the lease of machines that a person launched: through the gate, which
// was not asked at their launch, and in their tag, which policies read.
func extendUserLaunched(ctx context.Context, a *Sessions, s session.Session, until time.Time, who approval.Person) (
	session.Session, *gate.Decision, error) {
	d, err := holdUserLaunched(ctx, a, &s, until, who)
	if err != nil || d.Decision != gate.Allow {
		return s, d, err
	}
	seen, cloud, err := resourceActions{a}.sessionMachines(ctx, &s)
	if err != nil {
		return s, d, err
	}
	if len(seen) < len(s.Place.Refs) {
		return s, d, &runtime.Error{
			Code: "over", Err: fmt.Errorf("the machine of session %s was stopped, ended or given back", s.Name),
			Hint: "`curfew session adopt` takes it on again once it runs",
		}
	}
	for _, r := range seen {
		text := until.UTC().Truncate(time.Second).Format(time.RFC3339)
		if err := clouds.WriteTags(ctx, cloud.Actions(), r, map[string]string{inventory.TagLease: text},
			"extend-"+s.ID+"-"+text); err != nil {
			return s, d, fmt.Errorf("prolong the lease of %s: %w", r.ID, err)
		}
	}
	s, err = a.Keeper.Extend(ctx, s.ID, who.Name, until.Truncate(time.Second))
	return s, d, err
}

// holdUserLaunched asks the gate to reserve the cost of the machines after their lease.
func holdUserLaunched(ctx context.Context, a *Sessions, s *session.Session, until time.Time, who approval.Person) (
	*gate.Decision, error) {
	if s.HoldID != "" {
		return a.extendHold(ctx, *s, until, who)
	}
	sp, err := spec.Parse(s.Name, s.Spec)
	if err != nil {
		return nil, err
	}
	more := sp.Clone()
	if more.Lease = until.Sub(s.LeaseUntil); a.now().After(s.LeaseUntil) {
		more.Lease = until.Sub(a.now())
	}
	e, err := estimate.At(more, estimate.Place{
		Machine: s.Pool.Type, Region: s.Region, Hourly: s.Rate, Source: "list price", AsOf: a.now(),
	})
	if err != nil {
		return nil, err
	}
	params, err := spend.GateParams(ctx, a.Request, a.Config, a.Decider, a.store)
	if err != nil {
		return nil, err
	}
	c := &gate.Counter{Ask: gate.NewAsk(e, who, s.ID), Params: params}
	d, err := c.Decide(ctx)
	if err != nil || d.Decision != gate.Allow {
		return &d, err
	}
	next := *s
	next.HoldID = d.HoldID
	*s, err = a.store.Sessions().Put(ctx, next, nil,
		sessionEntry(a, next, who.Name, "reserved until "+until.UTC().Format(time.RFC3339)))
	return &d, err
}
