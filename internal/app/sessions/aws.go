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

// awsSessions are the sessions of the account of the credentials. AWS is not asked anything
// before one is asked for, or kept: who has none needs no credentials.
type awsSessions struct {
	store session.Store
	// machines opens the account, once.
	machines func() (*clouds.AWSMachines, error)
	// documents opens the store of a control prefix.
	documents func(ctx context.Context, at string) (checkpoint.Backend, error)

	mu sync.Mutex
	// others are the sessions of other accounts that were told of.
	others map[string]bool
}

var (
	_ session.Launcher   = (*awsSessions)(nil)
	_ session.RoleLister = (*awsSessions)(nil)
)

// sessionRegions are the regions of sessions that may have machines: those that are not over, and
// those that were not long ago.
func sessionRegions(ctx context.Context, s session.Store, now time.Time) ([]string, error) {
	all, err := s.Sessions(ctx, session.Query{})
	var regions []string
	for _, s := range all {
		if s.Provider == clouds.ProviderAWS && !s.UserLaunched && s.Region != "" &&
			(!s.State.IsFinal() || now.Sub(s.EndedAt) < watchFor) && !slices.Contains(regions, s.Region) {
			regions = append(regions, s.Region)
		}
	}
	return regions, err
}

// watchFor is how long the region of a session that is over is looked at.
const watchFor = 30 * 24 * time.Hour

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

// launched says whether a session was ever asked for: every launch has a record before it.
func (a *awsSessions) launched(ctx context.Context) (bool, error) {
	all, err := a.store.Sessions(ctx, session.Query{})
	return slices.ContainsFunc(all, func(s session.Session) bool {
		return s.Provider == clouds.ProviderAWS && !s.UserLaunched
	}), err
}

// Roles implements session.RoleLister. Where no session was ever asked for, there is none.
func (a *awsSessions) Roles(ctx context.Context, installation string) ([]session.Role, error) {
	if launched, err := a.launched(ctx); err != nil || !launched {
		return nil, err
	}
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	return m.Roles(ctx, installation)
}

// Find implements session.Launcher. Where no session was ever asked for, there is none.
func (a *awsSessions) Find(ctx context.Context, installation, id string) ([]session.FoundMachine, error) {
	if id == "" {
		if launched, err := a.launched(ctx); err != nil || !launched {
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

// Leftovers implements session.Launcher: what EC2 holds of it, and then its control documents.
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
	if err := a.forget(ctx, s.ControlPrefix); err != nil {
		return []string{s.ControlPrefix + ": " + err.Error()}, nil //nolint:nilerr // it is named, and removed later
	}
	return nil, nil
}

// forgetAtOnce is how many documents are deleted in one call: as many as S3 takes.
const forgetAtOnce = 1000

// forget deletes all documents below a prefix.
func (a *awsSessions) forget(ctx context.Context, control string) error {
	at, err := a.documents(ctx, control)
	if err != nil {
		return err
	}
	var keys []string
	if err := at.List(ctx, "", func(i checkpoint.Info) error { keys = append(keys, i.Key); return nil }); err != nil {
		return err
	}
	for some := range slices.Chunk(keys, forgetAtOnce) {
		if err := at.Delete(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

// Notes says what to know of a session's machines, for people.
func (a *awsSessions) Notes(s session.Session) []string {
	var out []string
	if s.Pool.Spot {
		out = append(out, "spot capacity: EC2 may take the machine back with two minutes' notice; its work is saved then")
	}
	return out
}

// account is whose the credentials are now, and the id by which IAM knows who has them.
func (a *awsSessions) account(ctx context.Context) (account, person string, err error) {
	m, err := a.machines()
	if err != nil {
		return "", "", err
	}
	account, person, err = m.Account(ctx)
	return account, person, clouds.CloudErrorOrNil(err)
}

// home is the backbone whose bucket a session uses where nothing else is configured.
func (a *awsSessions) home(ctx context.Context, sp *spec.Spec) (*clouds.AWSBackbone, error) {
	m, err := a.machines()
	if err != nil {
		return nil, err
	}
	regions, err := m.Regions(ctx, sp)
	if err != nil {
		return nil, noPlace(sp, err)
	}
	b, err := m.Backbone(ctx, regions[0])
	if err != nil {
		return nil, noPlace(sp, err)
	}
	return b, nil
}

// noPlace is the error for a session that nothing can be launched for.
func noPlace(sp *spec.Spec, err error) error {
	return &runtime.Error{
		Code: "no_machine", Err: fmt.Errorf("look for a place for session %s: %w", sp.Name, err),
		Hint: "docs/sessions.md says what sessions on AWS need",
	}
}

// otherAccount says that the machines of a session are in another account than that of the
// credentials; empty where they are in this one. Nothing is known where the account cannot be
// read, and nothing is done then.
func (a *awsSessions) otherAccount(ctx context.Context, s *session.Session) (why string, err error) {
	here, _, err := a.account(ctx)
	if err != nil || s.Account == "" || s.Account == here {
		return "", err
	}
	return fmt.Sprintf("session %s is in AWS account %s, and the credentials are of account %s: it is left alone", s.Name,
		s.Account, here), nil
}

// mine says whether the credentials are those of a session's account. What is not is told
// once.
func (a *awsSessions) mine(ctx context.Context, s *session.Session, tell func(string)) bool {
	bounded, stop := context.WithTimeout(ctx, accountPatience)
	defer stop()
	why, err := a.otherAccount(bounded, s)
	if err != nil {
		why = fmt.Sprintf("session %s is left alone: whose the AWS credentials are is not known: %v", s.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.others == nil {
		a.others = map[string]bool{}
	}
	if why != "" && !a.others[s.ID] && ctx.Err() == nil {
		tell(why)
	}
	a.others[s.ID] = why != ""
	return why == ""
}

// accountPatience is how long AWS may take to say whose credentials these are.
const accountPatience = 30 * time.Second

// checkReachable is an error where this process cannot do anything with a session.
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

// Notes are what to know of the machines of a session that is ready, for people.
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

// below joins a prefix and a name.
func below(prefix, name string) string { return strings.TrimSuffix(prefix, "/") + "/" + name }

// folders are the documents of a session of AWS and its work, by what is configured or else in the
// backbone's bucket, below the prefixes that its role may use. The work is that of the
// installation, because others may use the same names.
func folders(ctx context.Context, a *Sessions, sp *spec.Spec, id, control, work string) (string, string, error) {
	b, err := a.aws.home(ctx, sp)
	if err != nil {
		return "", "", err
	}
	installation := a.Keeper.Installation
	control, work = below(cmp.Or(control, b.ControlPrefix()), id), below(cmp.Or(work, b.WorkPrefix(installation)),
		sp.Name)
	if err := b.CheckPlaces(installation, id, sp.Name, control, work); err != nil {
		return "", "", &runtime.Error{
			Class: runtime.Usage, Code: "not_its_place", Err: err,
			Hint: "leave out work.to of the file, and sessions.work and sessions.control of curfew.yaml, or name another bucket",
		}
	}
	return control, work, nil
}
