package sessions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// DrainTimeout is the part of a one-shot session's lease reserved for copying results and ending
// it.
const DrainTimeout = 10 * time.Minute

// makeOneShot turns a specification into that of a one-shot session. It has no idle end and no
// snapshots: it ends with its command, and results are copied. The lease ends it if its starter is
// killed.
func makeOneShot(sp *spec.Spec, timeout time.Duration) {
	if timeout > 0 {
		sp.Lease = timeout + DrainTimeout
	}
	sp.Idle = sp.Lease
	work := spec.Work{Dir: session.DefaultWorkDir}
	if sp.Work != nil {
		work = *sp.Work
	}
	work.Every = sp.Lease
	sp.Work = &work
}

// Withdraw ends a session that the gate has not allowed.
func (a *Sessions) Withdraw(ctx context.Context, s session.Session, why string) error {
	if _, err := a.Keeper.Stop(ctx, s.ID, s.RequestedBy, why, true); err != nil {
		return err
	}
	_, err := a.Keeper.Keep(ctx, s.ID)
	return err
}

// checkOneShot refuses a one-shot session whose command could not be passed to it, before anything
// costs money. Before is an earlier request that waits for approval, or nil.
func checkOneShot(ctx context.Context, a *Sessions, cloud string, before *session.Session) error {
	if cloud != clouds.ProviderAWS {
		return nil
	}
	if _, err := clouds.FindPlugin(ctx); errors.Is(err, clouds.ErrNoPlugin) {
		return MissingPlugin("run a command at aws")
	} else if err != nil {
		return err
	}
	_, person, err := a.aws.account(ctx)
	if err != nil {
		return err
	}
	mine := func(owner string) bool { return !UniqueID.MatchString(owner) || owner == person }
	refuse := func(owner, hint string) error {
		return &runtime.Error{
			Class: runtime.Denied, Code: "not_yours",
			Err: fmt.Errorf(
				"run a command at aws: the machine would be of %s, and these credentials are %s, which may not "+
					"connect to it", owner, person),
			Hint: hint,
		}
	}
	switch {
	case !mine(a.Config.Sessions.Owner):
		return refuse(a.Config.Sessions.Owner, "leave sessions.owner out, or use the credentials of that owner")
	case before != nil && before.Provider == cloud && !mine(before.AllowedUser):
		return refuse(before.AllowedUser, "use the same role session name at each try, or another --name")
	}
	return nil
}

// MissingPlugin returns the error that explains how to install a plugin.
func MissingPlugin(attempt string) error {
	return &runtime.Error{
		Code: "no_plugin", Err: fmt.Errorf("%s: %w", attempt, clouds.ErrNoPlugin),
		Hint: "install it: " + clouds.InstallPlugin(),
	}
}

// UniqueID matches aws:userid: that of a user, of a role session, or of an account's root.
var UniqueID = lazyregexp.New(`^(A[A-Z]{2}A[A-Z0-9]{8,}(:.*)?|[0-9]{12})$`)
