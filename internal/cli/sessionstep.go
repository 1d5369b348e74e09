package cli

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/app/connect"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/view"
)

// pace is when this process works on a session again: at a time, or once the session's record
// has a newer version.
type pace struct {
	due     time.Time
	version int64
}

func newPace() *pace { return &pace{version: -1} }

// keep makes a pass if one is due, or the record has a new version.
func (p *pace) keep(version int64, pass func() (time.Duration, error)) error {
	if p.version == version && time.Now().Before(p.due) { //nolint:forbidigo // the pace of this process
		return nil
	}
	p.version = version
	after, err := pass()
	if err != nil {
		after = time.Second
	}
	p.due = time.Now().Add(after) //nolint:forbidigo // the pace of this process
	return err
}

// remotePoll is how often a session at a service is looked at.
const remotePoll = 500 * time.Millisecond

// step advances a session as far as possible now, if this machine keeps sessions, and returns when
// to look again. The keeper in the background works on the session as well; each step is done by
// whichever is first.
func (a *app) step(ctx context.Context, p *pace, id string) (time.Duration, error) {
	if a.at.Service != nil {
		return remotePoll, nil
	}
	all, err := a.at.Local.Sessions(ctx)
	if err != nil {
		return 0, err
	}
	_, s, err := all.Run(ctx, id)
	if err != nil {
		return 0, err
	}
	err = p.keep(s.Version, func() (time.Duration, error) { return all.Keeper.Keep(ctx, id) })
	return min(max(time.Until(p.due), 20*time.Millisecond), 250*time.Millisecond), err
}

// ensureKeeper starts the keeper that works on sessions after this command; a service keeps its own.
func (a *app) ensureKeeper(ctx context.Context) error {
	if a.at.Service != nil {
		return nil
	}
	all, err := a.at.Local.Sessions(ctx)
	if err != nil {
		return err
	}
	return all.EnsureKeeper(ctx)
}

// keeperCheck is the time between looks at the keeper while a command follows a run.
const keeperCheck = 5 * time.Second

// reviveKeeper starts a keeper where the one before ended since the last look.
func (a *app) reviveKeeper(ctx context.Context, checked *time.Time) error {
	if a.Now().Sub(*checked) <= keeperCheck {
		return nil
	}
	*checked = a.Now()
	return a.ensureKeeper(ctx)
}

// replaceKeeper starts a keeper where some of these runs are open and the one that kept them is gone.
func (a *app) replaceKeeper(ctx context.Context, doc view.Runs) error {
	for _, r := range doc.Runs {
		if !over(r) {
			return a.ensureKeeper(ctx)
		}
	}
	return nil
}

// disconnect ends the connections of this machine to sessions that are over.
func (a *app) disconnect(ctx context.Context) error {
	if a.at.Service != nil {
		return nil
	}
	all, err := a.at.Local.Sessions(ctx)
	if err != nil {
		return err
	}
	return connect.Disconnect(ctx, all)
}

// session returns one session without the messages of its machines.
func (a *app) session(ctx context.Context, name string) (view.Run, error) {
	return ops.One(ops.GetSession.Call(ctx, a.at, ops.SessionInput{ByID: ops.ByID{ID: name}}))
}

// sessionLog returns the events of one session.
func (a *app) sessionLog(ctx context.Context, name string) (view.SessionLog, error) {
	return ops.GetSessionLog.Call(ctx, a.at, ops.SessionLogInput{ByID: ops.ByID{ID: name}})
}
