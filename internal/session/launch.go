package session

import (
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Classes of a launch that did not happen. Only ErrCapacity is tried in another pool.
var (
	// ErrCapacity: the pool has no machine now.
	ErrCapacity = errors.New("no capacity")
	// ErrQuota: a limit of the account; it is shown and not tried again elsewhere.
	ErrQuota = errors.New("over a quota")
	// ErrUnsupported: the pool never has such a machine.
	ErrUnsupported = errors.New("not offered")
	// ErrMismatch: the token was used for another launch.
	ErrMismatch = errors.New("the token was used for another launch")
	// ErrNoRole: the provider lets no role be made for the session's machines. They share none, so
	// none is launched.
	ErrNoRole = errors.New("its machines can have no role of their own")
)

// Launch is one call for all machines of a session from one pool: all or none.
type Launch struct {
	// Token makes the call repeatable: the same token and pool never launch twice.
	Token   string
	Session Session
	Spec    *spec.Spec
	Pool    Pool
	Nodes   int
	// Tags are put on everything that is made: owner, lease, session, hold, managed, intent
	// and installation.
	Tags map[string]string
	// Host is what node 0 is told; the launcher sets Node and GPUs for each machine.
	Host Host
}

// Launcher starts and ends machines at one provider. Implementations: cloud/local,
// cloud/aws. The conformance suite is cloudtest.TestLauncher.
type Launcher interface {
	// Pools returns where the specification can be launched, the best first: by price of
	// useful work where prices are known. It reads only. ErrUnsupported where none can.
	Pools(ctx context.Context, s *spec.Spec) ([]Pool, error)
	// Launch starts the machines, or returns those that the token started before. Leftovers
	// removes what a refused launch leaves.
	Launch(ctx context.Context, l Launch) ([]Machine, error)
	// Find returns all machines of an installation that carry a session (of all sessions:
	// ""), those included that are ending, by what the provider says now. It may not show a
	// machine yet that was just launched.
	Find(ctx context.Context, installation, session string) ([]Found, error)
	// End releases machines; ended ones are no error. It returns as soon as the provider has
	// accepted; Find says when they are gone.
	End(ctx context.Context, session string, machines []string) error
	// Leftovers removes what machines leave behind (volumes, addresses, interfaces, folders
	// of control) once all of them are gone, and names what it could not.
	Leftovers(ctx context.Context, installation, session string) ([]string, error)
}

// Rescuer is a Launcher whose machines' files stay after the end where that is asked for.
type Rescuer interface {
	// Rescue has the end of machines put their files aside instead of removing them, because they
	// hold work that is not saved. It says where they will be; empty where there are none.
	Rescue(ctx context.Context, session string, machines []string) (where string, err error)
}

// RoleLister is a [Launcher] that makes a role for the machines of each session, which
// [Launcher.Leftovers] deletes.
type RoleLister interface {
	// Roles returns the roles of the sessions of an installation. A role that was just made or
	// deleted may show late.
	Roles(ctx context.Context, installation string) ([]Role, error)
}

// Role is the role of a session's machines as the provider shows it.
type Role struct {
	Session, Name string
	CreatedAt     time.Time
}

// Found is a machine as the provider shows it.
type Found struct {
	Machine
	Session, Token string
	// Account is the provider's account that it is in.
	Account    string
	LeaseUntil time.Time
	// Unstarted says that its launch died on the way: it begins only when the launch is asked
	// for again, with its token.
	Unstarted bool
	// Owner is who its tags say that it belongs to.
	Owner inventory.Owner
}
