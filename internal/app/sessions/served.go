package sessions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/view"
)

// checkLocalAllowed refuses local sessions to callers of a service unless the configuration allows
// them and the service can run them as other Unix users.
func checkLocalAllowed(a *Sessions, cloud string) error {
	if !a.Request.Storage.Serves() || cloud != clouds.ProviderLocal {
		return nil
	}
	if !a.Config.Local.Serve {
		return &runtime.Error{
			Class: runtime.Denied, Code: "local_not_served",
			Err:  errors.New("the service starts and extends no sessions on its own machine"),
			Hint: "set local.serve: true in the service's curfew.yaml, or ask for another --cloud"}
	}
	if os.Geteuid() != 0 {
		return &runtime.Error{
			Class: runtime.Denied, Code: "local_not_root",
			Err: fmt.Errorf(
				"the service runs as %s and not as root, so it cannot start sessions on its machine as other users",
				local.CurrentUserName()),
			Hint: "run the service as root with local.users, or ask for another --cloud"}
	}
	return nil
}

// unixUser returns the Unix user of a local session: for a caller of a service the one in
// local.users, else the current user.
func unixUser(ctx context.Context, a *Sessions, cloud, person string) (string, error) {
	if cloud != clouds.ProviderLocal {
		return "", nil
	}
	if !a.Request.Storage.Serves() {
		return local.CurrentUserName(), nil
	}
	if err := checkLocalAllowed(a, cloud); err != nil {
		return "", err
	}
	refused := func(err error) error {
		return &runtime.Error{
			Class: runtime.Denied, Code: "no_local_user",
			Err: fmt.Errorf("start a session on the service's machine for %s: %w",
				person, err),
			Hint: "set local.users in the service's curfew.yaml, or ask for another --cloud"}
	}
	name, ok := a.Config.Local.Users[person]
	if !ok {
		return "", refused(errors.New("local.users names no Unix user for this person"))
	}
	u, err := local.LookupUser(ctx, name)
	if err != nil {
		return "", refused(err)
	}
	return u.Name, nil
}

// checkUnixUsers returns errors for configured Unix users that cannot run sessions.
func checkUnixUsers(ctx context.Context, cfg config.Config) (wrong []error) {
	if !cfg.Local.Serve {
		return nil
	}
	if os.Geteuid() != 0 {
		return []error{
			fmt.Errorf("local.serve: the service runs as %s and not as root: it starts no sessions on its machine",
				local.CurrentUserName()),
		}
	}
	for _, person := range slices.Sorted(maps.Keys(cfg.Local.Users)) {
		if _, err := local.LookupUser(ctx, cfg.Local.Users[person]); err != nil {
			wrong = append(wrong, fmt.Errorf("local.users: %s: %w", person, err))
		}
	}
	return wrong
}

// authorizeCaller checks the caller's permission for the sessions of a name and for an owner.
func authorizeCaller(a *Sessions, o UpOptions, before []session.Session, owner *inventory.Owner) error {
	if o.Authorize == nil {
		return nil
	}
	var run *view.Run
	if s := newestSession(before); s != nil {
		r := view.NewRun(*s, a.now())
		run = &r
	}
	return o.Authorize(run, owner)
}

// Describe returns the document of a requested or extended session with the gate's decision, nil if
// there was none. The error explains why the session does not continue.
func (a *Sessions) Describe(ctx context.Context, s session.Session, d *gate.Decision) (view.Run, error) {
	run, now, err := a.Run(ctx, s.ID)
	if err != nil {
		return run, err
	}
	run.Notes = a.Notes(now)
	if d == nil {
		return run, nil
	}
	run.Gate = &view.RunGate{Decision: string(d.Decision), Reasons: append([]string{}, d.Reasons...)}
	return run, Undecided("session "+s.Name, d)
}

// Undecided returns the error of a run that the gate did not allow; nil if it did.
func Undecided(what string, d *gate.Decision) error {
	why := strings.Join(d.Reasons, "; ")
	switch d.Decision {
	case gate.Allow:
		return nil
	case gate.Held:
		return &runtime.Error{
			Class: runtime.Held, Code: "needs_approval", Err: fmt.Errorf("%s needs approval: %s", what, why),
			Hint: fmt.Sprintf("an approver gives `curfew approve %s`; then give the same command again", d.ApprovalID)}
	}
	return &runtime.Error{Class: runtime.Denied, Code: "denied", Err: fmt.Errorf("%s is denied: %s", what, why)}
}
