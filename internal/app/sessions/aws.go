package sessions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// awsSessions launches sessions in the AWS account of the credentials. It calls AWS only once a
// session exists, so that local users need no credentials.
type awsSessions struct {
	store session.Store
	// machines opens the account, once.
	machines func() (*clouds.AWSMachines, error)
	// documents opens the store of a control prefix.
	documents func(ctx context.Context, at string) (checkpoint.Backend, error)

	mu sync.Mutex
	// reportedAccounts holds the sessions of other accounts that were reported already.
	reportedAccounts map[string]bool
}

var (
	_ session.Launcher   = (*awsSessions)(nil)
	_ session.RoleLister = (*awsSessions)(nil)
)

// sessionRegions returns the regions that may hold session machines: those of open sessions and of
// recently ended ones.
func sessionRegions(ctx context.Context, s session.Store, now time.Time) ([]string, error) {
	all, err := s.Sessions(ctx, session.Query{})
	var regions []string
	for _, s := range all {
		if s.Provider == clouds.ProviderAWS && !s.UserLaunched && s.Region != "" &&
			(!s.State.IsFinal() || now.Sub(s.EndedAt) < regionWatchTime) && !slices.Contains(regions, s.Region) {
			regions = append(regions, s.Region)
		}
	}
	return regions, err
}

// regionWatchTime is how long the region of an ended session is still listed.
const regionWatchTime = 30 * 24 * time.Hour

// Pools implements session.Launcher.
func (a *awsSessions) Pools(ctx context.Context, s *spec.Spec) ([]session.Pool, error) {
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	return m.Pools(ctx, s)
}

// Launch implements session.Launcher.
func (a *awsSessions) Launch(ctx context.Context, l session.Launch) ([]session.Machine, error) {
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	return m.Launch(ctx, l)
}

// everLaunched reports whether any session was recorded; records precede launches.
func (a *awsSessions) everLaunched(ctx context.Context) (bool, error) {
	all, err := a.store.Sessions(ctx, session.Query{})
	return slices.ContainsFunc(all, func(s session.Session) bool {
		return s.Provider == clouds.ProviderAWS && !s.UserLaunched
	}), err
}

// Roles implements session.RoleLister. It calls AWS only if a session was recorded.
func (a *awsSessions) Roles(ctx context.Context, installation string) ([]session.Role, error) {
	if launched, err := a.everLaunched(ctx); err != nil || !launched {
		return nil, err
	}
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	return m.Roles(ctx, installation)
}

// Find implements session.Launcher. It calls AWS only if a session was recorded.
func (a *awsSessions) Find(ctx context.Context, installation, id string) ([]session.FoundMachine, error) {
	if id == "" {
		if launched, err := a.everLaunched(ctx); err != nil || !launched {
			return nil, err
		}
	}
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	if _, _, err := m.Account(ctx); err != nil {
		return nil, err
	}
	return m.Find(ctx, installation, id)
}

// End implements session.Launcher.
func (a *awsSessions) End(ctx context.Context, id string, machines []string) error {
	m, err := a.machines()
	if err != nil {
		return err
	}
	return m.End(ctx, id, machines)
}

// Leftovers implements session.Launcher: EC2 and IAM resources first, then the control documents.
func (a *awsSessions) Leftovers(ctx context.Context, installation, id string) ([]string, error) {
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	left, err := m.Leftovers(ctx, installation, id)
	if err != nil || len(left) > 0 {
		return left, err
	}
	s, err := a.store.Session(ctx, id)
	switch {
	case errors.Is(err, session.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case s.ControlPrefix == "" || path.Base(s.ControlPrefix) != id:
		return nil, nil
	}
	if err := a.deleteDocuments(ctx, s.ControlPrefix); err != nil {
		return []string{s.ControlPrefix + ": " + err.Error()}, nil //nolint:nilerr // reported and deleted later
	}
	return nil, nil
}

// deleteBatch is the number of objects per delete call, the maximum of S3.
const deleteBatch = 1000

// deleteDocuments deletes all documents below a prefix.
func (a *awsSessions) deleteDocuments(ctx context.Context, control string) error {
	at, err := a.documents(ctx, control)
	if err != nil {
		return err
	}
	var keys []string
	if err := at.List(ctx, "", func(i checkpoint.Info) error { keys = append(keys, i.Key); return nil }); err != nil {
		return err
	}
	for some := range slices.Chunk(keys, deleteBatch) {
		if err := at.Delete(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// Notes returns remarks about a session's machines for people.
func (a *awsSessions) Notes(s session.Session) []string {
	var out []string
	if s.Pool.Spot {
		out = append(out,
			"spot capacity: EC2 may take the machine back with two minutes' notice; its work is saved then")
	}
	return out
}

// account returns the current account and the IAM id of the caller.
func (a *awsSessions) account(ctx context.Context) (account, person string, err error) {
	m, err := a.machines()
	if err != nil {
		return "", "", err
	}
	account, person, err = m.Account(ctx)
	return account, person, clouds.CloudErrorOrNil(err)
}

// backboneFor returns the backbone whose bucket a session uses by default.
func (a *awsSessions) backboneFor(ctx context.Context, sp *spec.Spec) (*clouds.AWSBackbone, error) {
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	regions, err := m.Regions(ctx, sp)
	if err != nil {
		return nil, noBackboneError(sp, err)
	}
	b, err := m.Backbone(ctx, regions[0])
	if err != nil {
		return nil, noBackboneError(sp, err)
	}
	return b, nil
}

// noBackboneError is the error for a session without a region to launch in.
func noBackboneError(sp *spec.Spec, err error) error {
	return &runtime.Error{
		Code: "no_machine", Err: fmt.Errorf("look for a place for session %s: %w", sp.Name, err),
		Hint: "docs/sessions.md says what sessions on AWS need",
	}
}

// otherAccount explains that a session's machines are in another account than the credentials;
// empty if they are not. If the account is unknown, nothing is done.
func (a *awsSessions) otherAccount(ctx context.Context, s *session.Session) (why string, err error) {
	here, _, err := a.account(ctx)
	if err != nil || s.Account == "" || s.Account == here {
		return "", err
	}
	return fmt.Sprintf("session %s is in AWS account %s, and the credentials are of account %s: it is left alone",
		s.Name,
		s.Account, here), nil
}

// isReachable reports whether the credentials belong to a session's account. A mismatch is reported
// once.
func (a *awsSessions) isReachable(ctx context.Context, s *session.Session, tell func(string)) bool {
	bounded, stop := context.WithTimeout(ctx, accountTimeout)
	defer stop()
	why, err := a.otherAccount(bounded, s)
	if err != nil {
		why = fmt.Sprintf("session %s is left alone: whose the AWS credentials are is not known: %v", s.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reportedAccounts == nil {
		a.reportedAccounts = map[string]bool{}
	}
	if why != "" && !a.reportedAccounts[s.ID] && ctx.Err() == nil {
		tell(why)
	}
	a.reportedAccounts[s.ID] = why != ""
	return why == ""
}

// accountTimeout bounds the call that identifies the credentials.
const accountTimeout = 30 * time.Second

// checkReachable returns an error if this process cannot act on a session.
func checkReachable(ctx context.Context, a *Sessions, s *session.Session) error {
	if s.Provider != clouds.ProviderAWS {
		return nil
	}
	why, err := a.aws.otherAccount(ctx, s)
	if err != nil {
		return err
	}
	if why != "" {
		return &runtime.Error{
			Class: runtime.Usage, Code: "other_account", Err: errors.New(why),
			Hint: "use credentials of that account: AWS_PROFILE, or aws.profile in curfew.yaml",
		}
	}
	return nil
}

// Notes returns remarks about the machines of a ready session for people.
func (a *Sessions) Notes(s session.Session) []string {
	if s.State != session.Ready {
		return nil
	}
	switch l := a.Keeper.Launchers[s.Provider].(type) {
	case *awsSessions:
		return l.Notes(s)
	case clouds.OwnMachine:
		notes, err := l.Notes(s.ID)
		if err != nil {
			return []string{"what holds its processes cannot be read: " + err.Error()}
		}
		return notes
	}
	return nil
}

// joinPrefix joins a prefix and a name.
func joinPrefix(prefix, name string) string { return strings.TrimSuffix(prefix, "/") + "/" + name }

// awsPrefixes returns the control and work prefixes of an AWS session: the configured ones, or
// those in the backbone's bucket below the prefixes that the session's role may use. The work
// prefix includes the installation, because others may use the same names.
func awsPrefixes(ctx context.Context, a *Sessions, sp *spec.Spec, id, control, work string) (string, string, error) {
	b, err := a.aws.backboneFor(ctx, sp)
	if err != nil {
		return "", "", err
	}
	installation := a.Keeper.Installation
	control, work = joinPrefix(cmp.Or(control, b.ControlPrefix()),
		id), joinPrefix(cmp.Or(work, b.WorkPrefix(installation)),
		sp.Name)
	if err := b.CheckPlaces(installation, id, sp.Name, control, work); err != nil {
		return "", "", &runtime.Error{
			Class: runtime.Usage, Code: "not_its_place", Err: err,
			Hint: "leave out work.to of the file, and sessions.work and sessions.control of curfew.yaml, or name " +
				"another bucket",
		}
	}
	return control, work, nil
}
