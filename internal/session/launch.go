package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Errors of a launch that started nothing. Only ErrCapacity is tried in another pool.
var (
	// ErrCapacity means that the pool has no machine now.
	ErrCapacity = errors.New("no capacity")
	// ErrQuota means that an account limit is reached.
	ErrQuota = errors.New("over a quota")
	// ErrUnsupported means that the pool never offers such a machine.
	ErrUnsupported = errors.New("not offered")
	// ErrMismatch means that the token belongs to another launch.
	ErrMismatch = errors.New("the token was used for another launch")
	// ErrNoRole means that no IAM role could be created for the session's machines. Sessions never
	// share a role, so nothing is launched.
	ErrNoRole = errors.New("its machines can have no role of their own")
)

// Launch requests all machines of a session from one pool, all or none.
type Launch struct {
	// Token is the idempotency token: the same token and pool never launch twice.
	Token   string
	Session Session
	Spec    *spec.Spec
	Pool    Pool
	// Nodes is the number of machines, FirstNode the node of the first: above 0 it takes the place of a
	// machine that was lost.
	Nodes, FirstNode int
	// Tags are set on every created resource: owner, lease, session, hold, managed, intent and
	// installation.
	Tags map[string]string
	// Host is the configuration of node 0; the launcher sets Node and GPUs for each machine.
	Host HostConfig
}

// Launcher starts and ends machines at one provider, as cloud/local and cloud/aws do. The
// conformance suite is cloudtest.TestLauncher.
type Launcher interface {
	// Pools returns the pools that can run the specification, best first: by price of useful work
	// where prices are known. It is read-only. ErrUnsupported means that there are none.
	Pools(ctx context.Context, s *spec.Spec) ([]Pool, error)
	// Launch starts the machines, or returns those that the token started before. A refused launch
	// may leave resources behind for Leftovers.
	Launch(ctx context.Context, l Launch) ([]Machine, error)
	// Find returns all machines of an installation and session ("" for all sessions) as the
	// provider lists them now, terminating ones included. A machine launched just now may be
	// absent.
	Find(ctx context.Context, installation, session string) ([]FoundMachine, error)
	// End releases machines and returns once the provider has accepted; Find shows when they are
	// gone. Machines that ended already are no error.
	End(ctx context.Context, session string, machines []string) error
	// Leftovers deletes what a session's machines leave behind once all are gone (volumes,
	// addresses, interfaces, control folders), and returns the names of the resources that it could
	// not delete.
	Leftovers(ctx context.Context, installation, session string) ([]string, error)
}

// FilePreserver is a Launcher that can keep the files of ended machines.
type FilePreserver interface {
	// PreserveFiles marks the files of machines to be kept at the end because they hold unsaved
	// work. It returns their future location, empty if the machines have no files.
	PreserveFiles(ctx context.Context, session string, machines []string) (where string, err error)
}

// RoleLister is a [Launcher] that creates a role per session, which [Launcher.Leftovers] deletes.
type RoleLister interface {
	// Roles returns the session roles of an installation. Recent creations and deletions may not
	// show yet.
	Roles(ctx context.Context, installation string) ([]Role, error)
}

// Role is the provider's role of one session.
type Role struct {
	Session, Name string
	CreatedAt     time.Time
}

// FoundMachine is a machine as the provider lists it.
type FoundMachine struct {
	Machine
	Session, Token string
	// Account is the provider account of the machine.
	Account    string
	LeaseUntil time.Time
	// LaunchPending reports that the launch crashed midway: the machine starts only when the launch
	// is repeated with its token.
	LaunchPending bool
	// Owner is read from the machine's tags.
	Owner inventory.Owner
}

// TagName holds the session name; provider permissions match TagAllowedUser to let a user connect.
const (
	TagName        = "curfew:session-name"
	TagAllowedUser = "curfew:owner"
)

// machineTags returns the tags for all resources of a session.
func (k *Keeper) machineTags(s *Session, sp *spec.Spec, key string) map[string]string {
	tags := map[string]string{
		"Name": s.Name, inventory.TagSession: s.ID, TagName: s.Name, inventory.TagIntent: key,
		inventory.TagInstallation: k.Installation,
		inventory.TagManaged:      "true", inventory.TagLifetime: string(inventory.Ephemeral),
		inventory.TagLease: firstLease(s, sp).Format(time.RFC3339),
		TagAllowedUser:     cmp.Or(s.AllowedUser, s.Owner.User, s.RequestedBy, KeeperActor),
	}
	if sp.Resources.Nodes > 1 { // the nodes are judged together
		tags[inventory.TagGang] = s.ID
	}
	if s.WorkPrefix != "" { // the work is saved before any end
		tags[inventory.TagDisks] = inventory.DisksScratch
	}
	for key, v := range map[string]string{
		inventory.TagHold: s.HoldID, "curfew:team": s.Owner.Team, "curfew:project": s.Owner.Project,
		"curfew:user":        cmp.Or(s.Owner.User, s.RequestedBy),
		"curfew:environment": s.Owner.Environment, "curfew:cost-center": s.Owner.CostCenter} {
		if v != "" {
			tags[key] = v
		}
	}
	if sp.Purpose != "" {
		tags[inventory.TagPurpose] = string(sp.Purpose)
	}
	return tags
}
