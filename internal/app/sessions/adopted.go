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

// resourceActions reach the machines of sessions that a person started: by what acts on resources, and
// not by what launched them. A machine is under its session while it runs and has the
// session's tag; one without it was given back and is left alone.
type resourceActions struct{ a *Sessions }

var _ session.Launcher = resourceActions{}

// Pools implements session.Launcher: nothing is launched this way.
func (h resourceActions) Pools(context.Context, *spec.Spec) ([]session.Pool, error) {
	return nil, session.ErrUnsupported
}

// Launch implements session.Launcher: nothing is launched this way.
func (h resourceActions) Launch(context.Context, session.Launch) ([]session.Machine, error) {
	return nil, session.ErrUnsupported
}

// Leftovers implements session.Launcher: machines that are stopped leave what they had.
func (h resourceActions) Leftovers(context.Context, string, string) ([]string, error) {
	return nil, nil
}

// cloud is the account of a session's machines.
func (h resourceActions) cloud(ctx context.Context, s *session.Session) (*clouds.AWS, error) {
	f := clouds.Source{Cloud: clouds.ProviderAWS, Regions: []string{s.Region}, Profile: s.Place.Profile}
	if s.Place.Role != "" {
		f.AssumeRoles = []string{s.Place.Role}
	}
	return clouds.OpenActionable(ctx, h.a.Request, h.a.Config, f)
}

// Find implements session.Launcher.
func (h resourceActions) Find(ctx context.Context, _, id string) ([]session.FoundMachine, error) {
	if id == "" {
		return nil, nil
	}
	s, err := h.a.store.Sessions().Session(ctx, id)
	if err != nil {
		return nil, err
	}
	seen, _, err := h.mine(ctx, &s)
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

// mine are the machines of a session that are under it and not stopped.
func (h resourceActions) mine(ctx context.Context, s *session.Session) ([]*inventory.Resource, *clouds.AWS, error) {
	cloud, err := h.cloud(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	var out []*inventory.Resource
	for _, ref := range s.Place.Refs {
		r, err := readAgain(ctx, cloud, ref, h.a.now().UTC())
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

// stopOf is how a machine is stopped whose owner asks for it: discard gives up what a stop
// loses.
func stopOf(discard bool) policy.Do {
	return policy.Do{Verb: policy.Stop, ScratchInstanceStore: discard}
}

// End implements session.Launcher: it stops the machines that are under the session, by what
// carries out policies as well. Machines that have something against it stay, with the reason.
func (h resourceActions) End(ctx context.Context, id string, ids []string) error {
	s, err := h.a.store.Sessions().Session(ctx, id)
	if err != nil {
		return err
	}
	seen, cloud, err := h.mine(ctx, &s)
	if err != nil {
		return err
	}
	if frozen, err := h.a.store.Actions().Frozen(ctx); err != nil || frozen != nil {
		return cmp.Or(err, errors.New("all actions are frozen"))
	}
	var errs []error
	for _, r := range seen {
		if slices.Contains(ids, r.ID) && r.State == inventory.StateRunning {
			errs = append(errs, h.stop(ctx, cloud, r, stopOf(s.Discard), s.EndStep.Key))
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

// checkStop says why the machines of a session that a person started cannot be stopped; nil
// where nothing is against it. Freezes hold for it as for every action.
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
	seen, cloud, err := resourceActions{a}.mine(ctx, s)
	if err != nil {
		return err
	}
	for _, r := range seen {
		var refusal *action.Refusal
		_, err := cloud.Actions().Plan(ctx, r, stopOf(discard))
		if errors.As(err, &refusal) {
			return &runtime.Error{
				Class: runtime.Denied, Code: "refused", Err: fmt.Errorf("session %s is not stopped: %s", s.Name, refusal.Why),
				Hint: "--discard gives up what instance-store disks hold",
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// extendByHand prolongs the lease of machines that a person started: past the gate, which asked
// nothing when they were started, and in their tag, by which policies go.
func extendByHand(ctx context.Context, a *Sessions, s session.Session, until time.Time, who approval.Person) (
	session.Session, *gate.Decision, error) {
	d, err := holdByHand(ctx, a, &s, until, who)
	if err != nil || d.Decision != gate.Allow {
		return s, d, err
	}
	seen, cloud, err := resourceActions{a}.mine(ctx, &s)
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

// holdByHand asks the gate for what the machines cost from the end of the lease on.
func holdByHand(ctx context.Context, a *Sessions, s *session.Session, until time.Time, who approval.Person) (
	*gate.Decision, error) {
	if s.HoldID != "" {
		return a.prolongHold(ctx, *s, until, who)
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
	c := &gate.Counter{Ask: gate.AskOf(e, who, s.ID), Params: params}
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
