package sessions

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
)

// UpOptions configure the request for a session. Zero fields are taken from the file or the
// previous session of the name.
type UpOptions struct {
	SpecOptions
	Name        string
	Lease, Idle time.Duration
	DiskGiB     int64
	Image       string
	// Authorize, if set, refuses what a service's caller may not do. It gets the newest session of
	// the name (nil if none) and the owner of the request (nil if the session is only shown).
	Authorize func(before *view.Run, owner *inventory.Owner) error
	// OneShot requests a session that ends with its command; Timeout bounds the command, 0 uses the
	// lease.
	OneShot bool
	Timeout time.Duration
}

// namesMachine reports whether the options select a machine.
func (o UpOptions) namesMachine() bool {
	return o.File != "" || o.GPU != "" || o.Type != "" || o.CPUs > 0
}

// isSet reports whether any option besides the name is set.
func (o UpOptions) isSet() bool {
	return o.namesMachine() || o.Nodes > 0 || o.Spot || len(o.Regions) > 0 || o.Cloud != "" || o.Lease > 0 ||
		o.Idle > 0 ||
		o.DiskGiB > 0 || o.Image != ""
}

// Sessions manages the sessions of a database for one process.
type Sessions struct {
	Request *runtime.Request
	Config  config.Config
	Decider view.Decider
	store   *store.Store
	// now is the clock of the database.
	now func() time.Time
	// aws launches sessions at AWS.
	aws *awsSessions
	// documents are the documents of hosts.
	documents session.Documents
	// Keeper takes the missing steps of sessions, Jobs those of jobs.
	Keeper *session.Keeper
	Jobs   *job.Keeper
	// heldBackReason explains why sessions are not kept; empty while they are.
	heldBackReason string
}

// Open opens the sessions of the current database.
func Open(ctx context.Context, req *runtime.Request) (*Sessions, error) {
	cfg, by, s, err := req.InForce(ctx)
	if err != nil {
		return nil, err
	}
	all, err := OpenWithStore(ctx, req, cfg, by, s)
	if err != nil {
		s.Close()
		return nil, err
	}
	return all, nil
}

// Close closes the database.
func (a *Sessions) Close() error { return a.store.Close() }

// OpenWithStore returns the sessions of an open database.
func OpenWithStore(ctx context.Context, req *runtime.Request, cfg config.Config, by view.Decider, s *store.Store) (
	*Sessions,
	error) {
	now, err := req.StateClock(ctx, s)
	if err != nil {
		return nil, err
	}
	installation, err := s.Sessions().Installation(ctx)
	if err != nil {
		return nil, err
	}
	a := &Sessions{Request: req, Config: cfg, Decider: by, store: s, now: now}
	launchers, timings, err := clouds.Launchers(ctx, req, cfg)
	if err != nil {
		return nil, err
	}
	host, log := runtime.HostName(), req.Logger(false)
	documents := func(ctx context.Context, at string) (checkpoint.Backend, error) {
		return objectstore.Open(ctx, at, objectstore.Options{Profile: cfg.AWS.Profile})
	}
	a.aws = &awsSessions{
		store: s.Sessions(), documents: documents, machines: openedOnce(func() (*clouds.AWSMachines, error) {
			// the result serves later callers too
			open, stop := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
			defer stop()
			return clouds.OpenAWSMachines(open, req, cfg, func(ctx context.Context) ([]string, error) {
				return sessionRegions(ctx, s.Sessions(), now())
			})
		})}
	if launchers == nil {
		launchers = map[string]session.Launcher{}
	}
	if req.Simulated == nil { // a demonstration costs nothing
		launchers[clouds.ProviderAWS] = a.aws
	}
	a.documents = session.Documents{Open: controlStore(launchers, documents)}
	a.Keeper = &session.Keeper{
		Store: s.Sessions(), Launchers: launchers, Control: a.documents,
		UserLauncher: resourceActions{a}, NotifyOwner: a.warnOrphanOwner, NotifyLease: a.leaseNotifier(),
		Holds:        sessionHolds{a},
		Ledger:       sessionLedger{a},
		Installation: installation, Now: now, Timeouts: timings, Log: log, Specs: &spec.Cache{},
		Reachable: func(s *session.Session) bool {
			if s.UserLaunched {
				return true // by the credentials that Place names
			}
			if s.Provider == clouds.ProviderAWS {
				bounded, stop := context.WithTimeout(ctx, passTimeout)
				defer stop()
				return a.aws.isReachable(bounded, s, func(why string) {
					log.WarnContext(ctx, why)
				})
			}
			return s.Provider != clouds.ProviderLocal || s.Account == host || s.Account == ""
		}}
	a.Jobs = &job.Keeper{
		Placer: a.newPlacer(launchers),
		Store:  s.Jobs(), Sessions: a.Keeper, Holds: jobHolds{a}, Log: log,
		ControlPrefix: func(ctx context.Context, j *job.Job, sp *spec.Spec, id string) (string, error) {
			control, _, err := a.StoragePrefixes(ctx, sp, j.Provider, id, j.RunAs)
			return control, err
		},
	}
	a.Keeper.AccountAttempt, a.Keeper.KeepOutput = a.Jobs.Account, a.keepOutput
	return a, nil
}

// Store returns the database.
func (a *Sessions) Store() *store.Store { return a.store }

// Now returns the time by the clock of the database.
func (a *Sessions) Now() time.Time { return a.now() }

// openTimeout bounds opening the clients of a cloud.
const openTimeout = time.Minute

// controlStore returns a function that opens the documents of a session. Local documents are read
// as untrusted input.
func controlStore(launchers map[string]session.Launcher, open func(ctx context.Context, at string) (checkpoint.Backend,
	error)) func(context.Context, *session.Session) (session.ControlStore, error) {
	return func(ctx context.Context, s *session.Session) (session.ControlStore, error) {
		own, ok := launchers[s.Provider].(interface {
			Control(s *session.Session) (session.ControlStore, bool)
		})
		if ok {
			if store, ok := own.Control(s); ok {
				return store, nil
			}
		}
		return open(ctx, s.ControlPrefix)
	}
}

// openedOnce returns a function that opens something on first use. After an error, the next caller
// retries.
func openedOnce[T any](open func() (T, error)) func() (T, error) {
	var mu sync.Mutex
	var opened *T
	return func() (T, error) {
		mu.Lock()
		defer mu.Unlock()
		if opened != nil {
			return *opened, nil
		}
		v, err := open()
		if err == nil {
			opened = &v
		}
		return v, err
	}
}

// Stop ends a session for a policy, saving first.
func Stop(ctx context.Context, req *runtime.Request, cfg config.Config, s *store.Store, id, why string) error {
	all, err := OpenWithStore(ctx, req, cfg, view.Decider{}, s)
	if err != nil {
		return err
	}
	if _, err := all.Keeper.Stop(ctx, id, "policy", why, false); err != nil {
		return err
	}
	return all.EnsureKeeper(ctx)
}

// List returns the open sessions, and with all the newest session of every other name.
func (a *Sessions) List(ctx context.Context, all bool) (view.Runs, error) {
	doc := view.Runs{Schema: view.RunsSchema, Runs: []view.Run{}}
	list, err := a.store.Sessions().Sessions(ctx, session.Query{OpenOnly: !all})
	if err != nil {
		return doc, err
	}
	for _, s := range list {
		if s.Job != "" {
			continue // attempts are shown with their job
		}
		r := view.NewRun(s, a.now())
		if err := audit.AddRunProgress(ctx, a.store, a.Config.Tags, &r); err != nil {
			return doc, err
		}
		doc.Runs = append(doc.Runs, r)
	}
	return doc, nil
}

// Newest returns the open session of a name, else its newest, else the session with that id, else
// an error.
func (a *Sessions) Newest(ctx context.Context, name string) (session.Session, error) {
	list, err := a.store.Sessions().Sessions(ctx, session.Query{Name: name})
	if err != nil {
		return session.Session{}, err
	}
	if newest := newestSession(withoutAttempts(list)); newest != nil {
		return *newest, nil
	}
	s, err := a.store.Sessions().Session(ctx, name)
	if errors.Is(err, session.ErrNotFound) {
		err = NoSession(name)
	}
	return s, err
}

// withoutAttempts leaves out the sessions that carry out jobs.
func withoutAttempts(list []session.Session) []session.Session {
	return slices.DeleteFunc(slices.Clone(list), func(s session.Session) bool { return s.Job != "" })
}

// newestSession returns the open session of a list, else the first; nil if the list is empty.
func newestSession(list []session.Session) *session.Session {
	i := slices.IndexFunc(list, func(s session.Session) bool { return !s.State.IsFinal() })
	if len(list) == 0 {
		return nil
	}
	return &list[max(i, 0)]
}

// NoSession returns the error for an unknown name.
func NoSession(name string) error {
	return &runtime.Error{
		Code: "no_session", Err: fmt.Errorf("there is no session %q", name), Hint: "`curfew ls --all` lists them",
	}
}

// Status returns a session with the last statuses of its machines.
func (a *Sessions) Status(ctx context.Context, name string) (view.Runs, error) {
	doc := view.Runs{Schema: view.RunsSchema, Runs: []view.Run{}}
	s, err := a.Newest(ctx, name)
	if err != nil {
		return doc, err
	}
	if s.UserLaunched && !s.State.IsFinal() { // only the provider knows what became of the machine
		if _, err := a.Keeper.Keep(ctx, s.ID); err != nil {
			return doc, err
		}
		if s, err = a.store.Sessions().Session(ctx, s.ID); err != nil {
			return doc, err
		}
	}
	r := view.NewRun(s, a.now())
	r.Notes = a.Notes(s)
	if by := session.ReleaseBy(&s, a.Keeper.Timeouts[s.Provider]); !by.IsZero() && !s.State.IsFinal() {
		r.ReleaseBy = &by
	}
	if !s.State.IsFinal() && s.ControlPrefix != "" {
		hosts, _, err := a.Keeper.Hosts(ctx, &s, max(1, len(s.Machines)))
		if err != nil {
			r.Why = strings.TrimPrefix(r.Why+"; its hosts cannot be heard: "+err.Error(), "; ")
		}
		for node := range max(1, len(s.Machines)) {
			if h, ok := hosts[node]; ok {
				r.Hosts = append(r.Hosts, view.NewRunHost(h))
			}
		}
	}
	err = audit.AddRunProgress(ctx, a.store, a.Config.Tags, &r)
	doc.Runs = append(doc.Runs, r)
	return doc, err
}

// Log returns the events of a session.
func (a *Sessions) Log(ctx context.Context, name string) (view.SessionLog, error) {
	doc, _, err := a.Journal(ctx, name)
	return doc, err
}

// Journal returns the events of a session and a unique, stable key for each.
func (a *Sessions) Journal(ctx context.Context, name string) (doc view.SessionLog, keys []string, err error) {
	s, err := a.Newest(ctx, name)
	if err != nil {
		return doc, nil, err
	}
	events, err := a.store.Sessions().Events(ctx, s.ID)
	for i, e := range events {
		keys = append(keys, fmt.Sprintf("%d/%d/%d", e.Node, e.File, e.Line))
		NameOutput(s.ID, &events[i].Event)
	}
	return view.NewSessionLog(s, events), keys, err
}

// Run returns the document of a session.
func (a *Sessions) Run(ctx context.Context, id string) (view.Run, session.Session, error) {
	s, err := a.store.Sessions().Session(ctx, id)
	if err != nil {
		return view.Run{}, s, err
	}
	return view.NewRun(s, a.now()), s, nil
}

// Up records the requested session and asks the gate. An open session of the name is returned
// unchanged; an ended one is started again with the same specification unless the options differ.
func (a *Sessions) Up(ctx context.Context, o UpOptions) (session.Session, *gate.Decision, error) {
	who, err := identity.Asker(ctx, a.Request, a.Config, a.Decider)
	if err != nil {
		return session.Session{}, nil, err
	}
	list, err := a.store.Sessions().Sessions(ctx, session.Query{Name: o.Name})
	if err != nil {
		return session.Session{}, nil, err
	}
	if err := a.checkNameFree(ctx, o.Name); err != nil {
		return session.Session{}, nil, err
	}
	list = withoutAttempts(list)
	i := slices.IndexFunc(list, func(s session.Session) bool { return !s.State.IsFinal() })
	if err := authorizeCaller(a, o, list, nil); err != nil {
		return session.Session{}, nil, err
	}
	if o.OneShot && i >= 0 && list[i].State != session.Requested {
		return list[i], nil, &runtime.Error{
			Class: runtime.Usage, Code: "taken", Err: fmt.Errorf("session %s runs already", o.Name),
			Hint: "give each run another --name, or none",
		}
	}
	if i >= 0 && list[i].State != session.Requested {
		if err := checkLocalAllowed(a, list[i].Provider); err != nil {
			return list[i], nil, err
		}
		if list[i].State == session.Ending {
			return list[i], nil, &runtime.Error{
				Code: "ending", Err: fmt.Errorf("session %s is ending: %s", o.Name, list[i].Why),
				Hint: "give the command again once it has ended",
			}
		}
		if err := a.checkSameMachine(o, list[i], who); err != nil {
			return list[i], nil, err
		}
		if err := checkReachable(ctx, a, &list[i]); err != nil {
			return list[i], nil, err
		}
		return list[i], nil, nil
	}
	sp, cloud, err := a.requestedSpec(o, who, list)
	if err == nil {
		err = errors.Join(checkLocalAllowed(a, cloud), authorizeCaller(a, o, list, &sp.Owner))
	}
	if err != nil {
		return session.Session{}, nil, err
	}
	if o.OneShot {
		var asked *session.Session // earlier request that the gate has not allowed yet
		if i >= 0 {
			asked = &list[i]
		}
		if err := checkOneShot(ctx, a, cloud, asked); err != nil {
			return session.Session{}, nil, err
		}
	}
	var s session.Session
	recorded := false
	if i >= 0 && list[i].Hash == sp.Hash() && list[i].Provider == cloud {
		s = list[i] // its approval may have been given
	} else {
		if i >= 0 { // replaces a request that the gate has not allowed
			if _, err := a.Keeper.Stop(ctx, list[i].ID, who.Name, "replaced by another request", true); err != nil {
				return session.Session{}, nil, err
			}
			if _, err := a.Keeper.Keep(ctx, list[i].ID); err != nil {
				return session.Session{}, nil, err
			}
		}
		if s, err = a.record(ctx, o, sp, cloud, who, list); err != nil {
			return s, nil, err
		}
		recorded = true
	}
	d, err := a.admit(ctx, s, who)
	if err != nil {
		if recorded && ctx.Err() == nil {
			err = a.withdraw(ctx, s, who.Name, err)
		}
		return s, nil, err
	}
	s, err = a.store.Sessions().Session(ctx, s.ID)
	return s, d, err
}

// withdraw ends an undecided request, so that it does not start later unexpectedly. It returns the
// cause.
func (a *Sessions) withdraw(ctx context.Context, s session.Session, by string, why error) error {
	_, err := a.Keeper.Stop(ctx, s.ID, by, "it could not be started: "+plain.Line(why.Error()), true)
	if err == nil {
		_, err = a.Keeper.Keep(ctx, s.ID)
	}
	if err != nil {
		return fmt.Errorf("%w; session %s stays as it was asked for: %w", why, s.Name, err)
	}
	return why
}

// checkSameMachine returns an error if options request another machine than that of the running
// session.
func (a *Sessions) checkSameMachine(o UpOptions, s session.Session, who approval.Person) error {
	if !o.isSet() {
		return nil
	}
	sp, cloud, err := a.requestedSpec(o, who, []session.Session{s})
	if err != nil {
		return err
	}
	was, err := spec.Parse(s.Name, s.Spec)
	if err != nil {
		return err
	}
	if was.Owner.User == s.RequestedBy && sp.Owner == (inventory.Owner{User: who.Name}) {
		sp.Owner = was.Owner
	}
	if cloud != s.Provider || sp.Hash() != s.Hash {
		return &runtime.Error{
			Class: runtime.Usage, Code: "other_session",
			Err:  fmt.Errorf("session %s runs with another specification", s.Name),
			Hint: "`curfew up " + s.Name + "` without options attaches to it, `curfew down " + s.Name + "` ends it"}
	}
	return nil
}

// requestedSpec returns the requested specification and its provider.
func (a *Sessions) requestedSpec(o UpOptions, who approval.Person, before []session.Session) (*spec.Spec, string,
	error) {
	if err := CheckName(spec.Session, o.Name); err != nil {
		return nil, "", err
	}
	cloud := cmp.Or(o.Cloud, a.Config.Sessions.Cloud)
	sp := &spec.Spec{
		Kind: spec.Session, Purpose: inventory.Experimentation, Capacity: spec.OnDemand,
		Resources: spec.Resources{Nodes: 1}, Retries: spec.Retries{Interruptions: spec.DefaultInterruptions},
	}
	switch {
	case o.File != "":
		var err error
		if sp, err = o.Read(a.Request, spec.Session, "`curfew up` starts sessions"); err != nil {
			return nil, "", err
		}
	case !o.namesMachine() && len(before) > 0:
		var err error
		if sp, err = spec.Parse(before[0].Name, before[0].Spec); err != nil {
			return nil, "", err
		}
		cloud = cmp.Or(o.Cloud, before[0].Provider)
	case !o.namesMachine() && cloud == clouds.ProviderLocal:
		sp.Resources.CPUs = 1
	case !o.namesMachine():
		return nil, "", &runtime.Error{
			Class: runtime.Usage, Code: "usage",
			Err: fmt.Errorf(
				"there was no session %q, so say which machine: --gpu L4, --type g6.2xlarge, --cpus 2 or -f FILE",
				o.Name),
			Hint: "see curfew up --help",
		}
	}
	sp.Name = o.Name
	if err := o.Apply(sp); err != nil {
		return nil, "", err
	}
	sp.Lease, sp.Idle = cmp.Or(o.Lease, sp.Lease, a.Config.Sessions.Lease), cmp.Or(o.Idle, sp.Idle,
		a.Config.Sessions.Idle)
	if o.OneShot {
		makeOneShot(sp, o.Timeout)
	}
	sp.DiskGiB, sp.Image = cmp.Or(o.DiskGiB, sp.DiskGiB), cmp.Or(o.Image, sp.Image)
	if sp.Owner == (inventory.Owner{}) {
		sp.Owner.User = who.Name
	}
	if most := a.Config.Sessions.MaxLease; most > 0 && sp.Lease > most {
		return nil, "", &runtime.Error{
			Class: runtime.Denied, Code: "lease_policy",
			Err:  fmt.Errorf("a lease of %s is longer than sessions.max_lease, %s", sp.Lease, most),
			Hint: "ask for less, and extend it later",
		}
	}
	checked, err := spec.Parse(o.Name, sp.Canonical()) // flags are checked like files
	if err != nil {
		return nil, "", err
	}
	return checked, cloud, nil
}

// record writes the record of a new session.
func (a *Sessions) record(ctx context.Context, o UpOptions, sp *spec.Spec, cloud string, who approval.Person,
	before []session.Session) (session.Session, error) {
	if a.Keeper.Launchers[cloud] == nil {
		return session.Session{}, noLauncher(cloud)
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return session.Session{}, err
	}
	now := a.now()
	s := session.Session{
		ID: hex.EncodeToString(random), Name: sp.Name, RequestedBy: who.Name, Owner: sp.Owner, Spec: sp.Canonical(),
		Hash:     sp.Hash(),
		Provider: cloud, Epoch: 1, State: session.Requested,
		LeaseUntil: now.Add(sp.Lease), IdleTimeout: sp.Idle, RequestedAt: now}
	var err error
	if s.Account, s.AllowedUser, s.RunAs, err = a.identify(ctx, cloud, who); err != nil {
		return s, err
	}
	for _, b := range before {
		s.Epoch = max(s.Epoch, b.Epoch+b.Round()+1)
	}
	if s.ControlPrefix, s.WorkPrefix, err = a.StoragePrefixes(ctx, sp, cloud, s.ID, s.RunAs); err != nil {
		return s, err
	}
	switch again := !o.namesMachine() && len(before) > 0; {
	case o.OneShot:
		// The work folder of a one-shot run begins empty, so files of an earlier run with this name
		// are not mistaken for its output.
		s.WorkPrefix = joinPrefix(s.WorkPrefix, s.ID)
	case again && before[0].Snapshot.Manifest != "" && before[0].WorkPrefix == joinPrefix(s.WorkPrefix, before[0].ID):
		s.WorkPrefix = before[0].WorkPrefix // of a run whose work was saved
	}
	s.PreviousSnapshot = newestSnapshot(s.WorkPrefix, before)
	made, err := a.store.Sessions().Put(ctx, s, []session.Event{
		{
			At: now, Node: session.KeeperNode, Kind: "requested",
			Text: fmt.Sprintf("by %s, lease %s", who.Name, sp.Lease),
		},
	}, sessionEntry(a, s, who.Name, "asked for"))
	if errors.Is(err, session.ErrNameTaken) {
		err = &runtime.Error{
			Code: "taken", Err: fmt.Errorf("another process started session %s meanwhile", s.Name),
			Hint: "`curfew up " + s.Name + "` attaches to it",
		}
	}
	return made, err
}

// newestSnapshot returns the newest snapshot that single-node sessions, newest first, confirmed at
// a work prefix.
func newestSnapshot(work string, before []session.Session) session.Snapshot {
	for _, b := range before {
		if b.WorkPrefix != work || len(b.Machines) > 1 {
			continue
		}
		if b.Snapshot.Manifest != "" {
			return b.Snapshot
		}
		if b.PreviousSnapshot.Manifest != "" {
			return b.PreviousSnapshot
		}
	}
	return session.Snapshot{}
}

// StoragePrefixes returns the prefixes of the documents and snapshots of a session.
func (a *Sessions) StoragePrefixes(ctx context.Context, sp *spec.Spec, cloud, id, runAs string) (control, work string,
	err error) {
	control, work = a.Config.Sessions.Control, a.Config.Sessions.Work
	if own, ok := a.Keeper.Launchers[cloud].(clouds.OwnMachine); ok {
		// Documents of another Unix user stay in that user's folders.
		documents, snapshots, err := own.SessionFolders(id, runAs)
		if err != nil {
			return "", "", err
		}
		if documents != "" {
			work = fileURL(snapshots)
			if sp.Work != nil && sp.Work.To != "" {
				work = sp.Work.To
			}
			return fileURL(documents), joinPrefix(work, sp.Name), nil
		}
	}
	if sp.Work != nil && sp.Work.To != "" {
		work = sp.Work.To
	}
	if cloud == clouds.ProviderLocal && a.Config.DataDir != "" {
		dir, err := filepath.Abs(a.Request.Path(a.Config.DataDir))
		if err != nil {
			return "", "", err
		}
		control = cmp.Or(control, fileURL(filepath.Join(clouds.SessionsDir(dir), "control")))
		work = cmp.Or(work, fileURL(filepath.Join(clouds.SessionsDir(dir), "work")))
	}
	if cloud == clouds.ProviderAWS {
		return awsPrefixes(ctx, a, sp, id, control, work)
	}
	if cloud == clouds.ProviderSimulated {
		control, work = "sim://control", "sim://work"
	}
	if control == "" || work == "" {
		return "", "", &runtime.Error{
			Class: runtime.Usage, Code: "no_store",
			Err:  errors.New("it is not said where the work of sessions is saved and their documents are"),
			Hint: "set sessions.work and sessions.control in curfew.yaml to s3://bucket/prefix",
		}
	}
	return joinPrefix(control, id), joinPrefix(work, sp.Name), nil
}

// fileURL returns the file URL of a folder.
func fileURL(dir string) string { return (&url.URL{Scheme: "file", Path: dir}).String() }

// Down ends a session; ended ones are returned unchanged.
func (a *Sessions) Down(ctx context.Context, name string, discard bool) (session.Session, error) {
	who, err := a.Request.Person(a.Config)
	if err != nil {
		return session.Session{}, err
	}
	s, err := a.Newest(ctx, name)
	if err != nil || s.State.IsFinal() {
		return s, err
	}
	if s.UserLaunched {
		err = checkStop(ctx, a, &s, discard)
	} else {
		err = checkReachable(ctx, a, &s)
	}
	if err != nil {
		return s, err
	}
	return a.Keeper.Stop(ctx, s.ID, who, "asked for by "+who, discard)
}

// OpenNames returns the names of the open sessions.
func (a *Sessions) OpenNames(ctx context.Context) (names []string, err error) {
	list, err := a.store.Sessions().Sessions(ctx, session.Query{OpenOnly: true})
	for _, s := range withoutAttempts(list) {
		names = append(names, s.Name)
	}
	return names, err
}

// Extend extends a session by a duration, subject to the lease policy and the gate.
func (a *Sessions) Extend(ctx context.Context, name string, by time.Duration) (session.Session, *gate.Decision,
	error) {
	who, err := identity.Asker(ctx, a.Request, a.Config, a.Decider)
	if err != nil {
		return session.Session{}, nil, err
	}
	s, err := a.Newest(ctx, name)
	switch {
	case err != nil:
		return s, nil, err
	case s.State.IsFinal() || s.State == session.Ending:
		return s, nil, &runtime.Error{
			Code: "over", Err: fmt.Errorf("session %s is %s", s.Name, s.State),
			Hint: "`curfew up " + s.Name + "` starts it again",
		}
	}
	if err := checkLocalAllowed(a, s.Provider); err != nil {
		return s, nil, err
	}
	if err := checkReachable(ctx, a, &s); err != nil {
		return s, nil, err
	}
	until := s.LeaseUntil.Add(by)
	if most := a.Config.Sessions.MaxLease; most > 0 && until.Sub(s.RequestedAt) > most {
		return s, nil, &runtime.Error{
			Class: runtime.Denied, Code: "lease_policy",
			Err: fmt.Errorf("session %s would run for %s, longer than sessions.max_lease, %s", s.Name,
				until.Sub(s.RequestedAt).Round(time.Second), most),
			Hint: "end it and start it again, which keeps its work"}
	}
	if s.UserLaunched {
		return extendUserLaunched(ctx, a, s, until, who)
	}
	d, err := a.extendHold(ctx, s, until, who)
	if err != nil || d != nil && d.Decision != gate.Allow {
		return s, d, err
	}
	s, err = a.Keeper.Extend(ctx, s.ID, who.Name, until)
	return s, d, err
}
