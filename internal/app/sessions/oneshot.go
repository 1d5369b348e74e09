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

// DrainTimeout is what is left of the lease of a one-shot session when its time is up: to copy
// what it made, and to end it.
const DrainTimeout = 10 * time.Minute

// once makes a specification that of a one-shot session. It never ends at rest and saves
// nothing while it runs: it ends with its command, and what is wanted of it is copied. Its
// lease ends it where whoever started it is killed.
func once(sp *spec.Spec, timeout time.Duration) {
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

// Withdraw takes a session back that the gate has not let pass.
func (a *Sessions) Withdraw(ctx context.Context, s session.Session, why string) error {
	if _, err := a.Keeper.Stop(ctx, s.ID, s.RequestedBy, why, true); err != nil {
		return err
	}
	_, err := a.Keeper.Keep(ctx, s.ID)
	return err
}

// checkOneShot refuses a one-shot session whose command could not be given to it, before anything is
// started that costs money. The session is the one that was asked for before and waits for an
// approval; nil: there is none.
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
			Err: fmt.Errorf("run a command at aws: the machine would be of %s, and these credentials are %s, which may not "+
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

// MissingPlugin says how the plugin is installed that an attempt needs.
func MissingPlugin(attempt string) error {
	return &runtime.Error{
		Code: "no_plugin", Err: fmt.Errorf("%s: %w", attempt, clouds.ErrNoPlugin),
		Hint: "install it: " + clouds.InstallPlugin(),
	}
}

// UniqueID is the form of aws:userid: that of a user, of a role with its session, or of the
// root of an account.
var UniqueID = lazyregexp.New(`^(A[A-Z]{2}A[A-Z0-9]{8,}(:.*)?|[0-9]{12})$`)
