package sessions

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/store"
)

// AWSActions returns the actions on an AWS account, with those on session machines replaced by
// ending the session.
func AWSActions(req *runtime.Request, cfg config.Config, s *store.Store, cloud *clouds.AWS) action.Cloud {
	return sessionActions{cloud.Actions(), s.Sessions(), func(ctx context.Context, id, why string) error {
		return Stop(ctx, req, cfg, s, id, why)
	}}
}

// sessionActions ends sessions instead of acting on their machines: the machines are released only
// after their work is confirmed as saved, which justifies the tag that declares their disks
// scratch. Machines of sessions that are not in this database are left alone.
type sessionActions struct {
	clouds.AWSActions
	store session.Store
	// endSession moves a session to Ending.
	endSession func(ctx context.Context, id, why string) error
}

// stepEndSession is the only step of an action on a session's machine.
const stepEndSession = "end-session"

// releasesMachine reports whether a verb would take a machine from its session.
func releasesMachine(v policy.Verb) bool {
	return v == policy.Stop || v == policy.Hibernate || v == policy.Terminate || v == policy.Scale
}

// Plan implements action.Cloud.
func (a sessionActions) Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	id := r.Tags[inventory.TagSession]
	if r.Kind == inventory.KindInstance && r.Tags[inventory.TagAdopted] != "" && do.Verb == policy.Terminate {
		return nil, &action.Refusal{
			Rule: "session",
			Why: "machine " + r.ID + " was started by a person and adopted (" + inventory.TagAdopted +
				"): it may be stopped, which keeps its disks, and not terminated",
		}
	}
	if r.Kind != inventory.KindInstance || id == "" || !releasesMachine(do.Verb) {
		return a.AWSActions.Plan(ctx, r, do)
	}
	refuse := func(format string, args ...any) ([]action.Step, error) {
		return nil, &action.Refusal{Rule: "session", Why: fmt.Sprintf(format, args...)}
	}
	s, err := a.store.Session(ctx, id)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return refuse(
			"machine %s belongs to session %s, which is not in these records: only the curfew that keeps it "+
				"knows whether its work is saved", r.ID, id)
	case err != nil:
		return nil, err
	case s.State.IsFinal():
		return refuse("session %s of machine %s is over: its keeper releases the remaining resources", s.Name, r.ID)
	case do.Verb != policy.Terminate:
		return refuse("machine %s belongs to session %s, which can end and not %s: its work is saved, and curfew up "+
			"starts it again", r.ID, s.Name, do.Verb)
	}
	// All other protections of a machine apply here too. The session's end saves its disks.
	do.ScratchDisks = true
	if _, err := a.AWSActions.Plan(ctx, r, do); err != nil {
		return nil, err
	}
	return []action.Step{{Name: stepEndSession, Params: "{}"}}, nil
}

// sessionOf returns the recorded session of a machine.
func (a sessionActions) sessionOf(ctx context.Context, ref inventory.Ref) (session.Session, error) {
	all, err := a.store.Sessions(ctx, session.Query{})
	if err != nil {
		return session.Session{}, err
	}
	for _, s := range all {
		if s.Provider == ref.Cloud && slices.Contains(s.MachineIDs(), ref.ID) {
			return s, nil
		}
	}
	return session.Session{}, fmt.Errorf("end the session of %s: no record names it", ref.ID)
}

// Do implements action.Cloud.
func (a sessionActions) Do(ctx context.Context, t action.Task) (receipt string, err error) {
	if t.Step.Name != stepEndSession {
		return a.AWSActions.Do(ctx, t)
	}
	s, err := a.sessionOf(ctx, t.Ref)
	if err != nil || s.State.IsFinal() {
		return s.ID, err
	}
	if err := a.endSession(ctx, s.ID, "a policy ends it"); err != nil {
		return "", fmt.Errorf("end session %s: %w", s.Name, err)
	}
	return s.ID, nil
}

// Look implements action.Cloud. A session is over only after two lookups without machines.
func (a sessionActions) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	if t.Step.Name != stepEndSession {
		return a.AWSActions.Look(ctx, t)
	}
	s, err := a.sessionOf(ctx, t.Ref)
	switch {
	case err != nil:
		return "", "", err
	case s.State.IsFinal():
		return action.Complete, s.ID, nil
	case s.State == session.Ending:
		return action.InProgress, s.ID, nil
	}
	return action.NotDone, "", nil
}

// Undo implements action.Cloud.
func (a sessionActions) Undo(ctx context.Context, t action.Task) error {
	if t.Step.Name != stepEndSession {
		return a.AWSActions.Undo(ctx, t)
	}
	return errSessionEnded
}

// Rehearse implements action.Cloud.
func (a sessionActions) Rehearse(ctx context.Context, t action.Task) (string, error) {
	if t.Step.Name != stepEndSession {
		return a.AWSActions.Rehearse(ctx, t)
	}
	return "", errSessionEnded
}

var errSessionEnded = errors.New(
	"an ended session is not resumed; `curfew up` starts it again with its saved work")
