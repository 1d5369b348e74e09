// Package jobs starts, shows and ends jobs for people. The keeper of sessions takes their steps.
package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/code"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
	"github.com/curfew-dev/curfew/internal/view"
)

// DefaultMaxRuntime ends a job that says nothing of its length.
const DefaultMaxRuntime = 24 * time.Hour

// RunOptions request a job: by a file, by a command with its machine, or as an earlier job was.
type RunOptions struct {
	// SpecOptions name a job file, and its machine, whose GPU may be "none".
	sessions.SpecOptions
	// Name overrides that of the file.
	Name string
	// Command is the command after "--".
	Command                           []string
	MaxRuntime, Deadline, KeepOnError time.Duration
	MaxCost                           money.Amount
	// Rerun names a job that is over and is run again: from its newest snapshot unless it succeeded.
	Rerun string
	// NoCode copies no code.
	NoCode bool
	// Authorize, if set, refuses what a service's caller may not do.
	Authorize func(before *view.Run, owner *inventory.Owner) error
}

// Jobs manages the jobs of a database for one process.
type Jobs struct {
	*sessions.Sessions
	store job.Store
}

// Open returns the jobs next to the sessions of a database.
func Open(all *sessions.Sessions) *Jobs { return &Jobs{all, all.Store().Jobs()} }

// NoJob returns the error for an unknown name.
func NoJob(name string) error {
	return &runtime.Error{
		Code: "no_job", Err: fmt.Errorf("there is no job %q", name), Hint: "`curfew ls --all` lists them",
	}
}

// Newest returns the open job of a name, else its newest, else the job with that id, else an error.
func (a *Jobs) Newest(ctx context.Context, name string) (job.Job, error) {
	list, err := a.store.Jobs(ctx, job.Query{Name: name})
	if err != nil {
		return job.Job{}, err
	}
	if i := slices.IndexFunc(list, func(j job.Job) bool { return !j.State.IsFinal() }); i >= 0 {
		return list[i], nil
	}
	if len(list) > 0 {
		return list[0], nil
	}
	j, err := a.store.Job(ctx, name)
	if errors.Is(err, job.ErrNotFound) {
		err = NoJob(name)
	}
	return j, err
}

// Run records the requested job and asks the gate.
func (a *Jobs) Run(ctx context.Context, o RunOptions) (job.Job, *gate.Decision, error) {
	who, err := identity.Asker(ctx, a.Request, a.Config, a.Decider)
	if err != nil {
		return job.Job{}, nil, err
	}
	j := job.Job{RequestedBy: who.Name, State: job.Waiting, RequestedAt: a.Now(), KeepOnFailure: o.KeepOnError}
	sp, dir, err := a.requestedSpec(ctx, o, who, &j)
	if err != nil {
		return job.Job{}, nil, err
	}
	before, err := a.store.Jobs(ctx, job.Query{Name: sp.Name})
	if err != nil {
		return job.Job{}, nil, err
	}
	if o.Authorize != nil {
		var run *view.Run
		if len(before) > 0 {
			r := view.NewJob(before[0], nil, a.Now())
			run = &r
		}
		if err := o.Authorize(run, &sp.Owner); err != nil {
			return job.Job{}, nil, err
		}
	}
	archive := []byte(nil)
	if dir != "" {
		if archive, sp.Code, err = govern.PackCode(ctx, dir, a.Request.Path(a.Config.DataDir)); err != nil {
			return job.Job{}, nil, err
		}
	}
	j.Work = expectedWork(before)
	j.Name, j.Owner, j.Spec, j.Hash = sp.Name, sp.Owner, sp.Canonical(), sp.Hash()
	if open := slices.IndexFunc(before, func(b job.Job) bool { return !b.State.IsFinal() }); open >= 0 {
		b := before[open]
		if b.Hash != j.Hash || !b.AdmittedAt.IsZero() {
			return b, nil, &runtime.Error{
				Class: runtime.Usage, Code: "taken", Err: fmt.Errorf("job %s is %s", b.Name, b.State),
				Hint: "`curfew status " + b.Name + "` shows it; `--name` gives this one another name"}
		}
		j = b // its approval may have been given
	} else if j, err = a.record(ctx, j, sp, who, archive); err != nil {
		return j, nil, err
	}
	return a.admit(ctx, j, who)
}

// expectedWork returns how long the newest job of a name that succeeded worked; 0 if there is none.
func expectedWork(newestFirst []job.Job) time.Duration {
	for _, j := range newestFirst {
		if j.State == job.Succeeded && j.RerunOf == "" {
			return j.Worked()
		}
	}
	return 0
}

// admit asks the gate about a job. A job that could not be asked about is withdrawn.
func (a *Jobs) admit(ctx context.Context, j job.Job, who approval.Person) (job.Job, *gate.Decision, error) {
	g := &jobGate{jobs: a, person: who}
	k := *a.Sessions.Jobs
	k.Gate = g
	if _, err := k.Keep(ctx, j.ID); err != nil && g.decision == nil {
		if ctx.Err() == nil {
			_, stopped := a.Sessions.Jobs.Cancel(ctx, j.ID, who.Name, true)
			if stopped == nil {
				_, stopped = a.Sessions.Jobs.Keep(ctx, j.ID)
			}
			err = errors.Join(err, stopped)
		}
		return j, nil, runtime.StateError(err)
	}
	now, err := a.store.Job(ctx, j.ID)
	return now, g.decision, err
}

// requestedSpec returns the requested specification, and the folder of its code, empty for none.
func (a *Jobs) requestedSpec(ctx context.Context, o RunOptions, who approval.Person, j *job.Job) (sp *spec.Spec,
	dir string, err error) {
	j.Provider = cmp.Or(o.Cloud, a.Config.Sessions.Cloud)
	switch {
	case o.Rerun != "":
		old, err := a.Newest(ctx, o.Rerun)
		if err != nil {
			return nil, "", err
		}
		if !old.State.IsFinal() {
			return nil, "", runtime.Invalid("run %s again: it is %s", old.Name, old.State)
		}
		if sp, err = spec.Parse(old.Name, old.Spec); err != nil {
			return nil, "", err
		}
		j.RerunOf, j.Code, j.Provider = old.ID, old.Code, cmp.Or(o.Cloud, old.Provider)
		if old.State != job.Succeeded && j.Provider == old.Provider {
			j.WorkPrefix, j.Snapshot, j.Step = old.WorkPrefix, old.Snapshot, old.Step
		}
		if o.KeepOnError == 0 {
			j.KeepOnFailure = old.KeepOnFailure
		}
	case len(o.Command) > 0:
		sp = &spec.Spec{
			Kind: spec.Job, Name: nameOf(o.Command), Purpose: inventory.Training, Capacity: spec.OnDemand,
			Resources: spec.Resources{Nodes: 1, CPUs: 1}, Run: shellLine(o.Command),
			Retries: spec.Retries{Interruptions: spec.DefaultInterruptions}, Workdir: ".",
		}
		dir = a.Request.Dir
	default:
		if sp, err = o.Read(a.Request, spec.Job, "`curfew up -f` starts it"); err != nil {
			return nil, "", err
		}
		base := a.Request.Dir
		if o.File != "-" {
			base = filepath.Dir(a.Request.Path(o.File))
		}
		sp.Workdir = cmp.Or(sp.Workdir, ".")
		dir = filepath.Join(base, filepath.FromSlash(sp.Workdir))
	}
	if o.NoCode || a.Request.Storage.Serves() {
		dir, sp.Workdir = "", ""
	}
	if err := applyFlags(sp, o, who); err != nil {
		return nil, "", err
	}
	checked, err := spec.Parse(sp.Name, sp.Canonical()) // flags are checked like files
	if err != nil {
		return nil, "", err
	}
	return checked, dir, nil
}

// applyFlags lets flags override a specification.
func applyFlags(sp *spec.Spec, o RunOptions, who approval.Person) error {
	sp.Name = cmp.Or(o.Name, sp.Name)
	if err := sessions.CheckName(spec.Job, sp.Name); err != nil {
		return err
	}
	machine := o.SpecOptions
	if machine.GPU == "none" {
		machine.GPU = ""
		if machine.Type == "" {
			machine.CPUs = max(1, machine.CPUs)
		}
	}
	if err := machine.Apply(sp); err != nil {
		return err
	}
	sp.MaxRuntime, sp.Deadline = cmp.Or(o.MaxRuntime, sp.MaxRuntime), cmp.Or(o.Deadline, sp.Deadline)
	if sp.MaxRuntime == 0 && sp.Deadline == 0 {
		sp.MaxRuntime = DefaultMaxRuntime
	}
	sp.MaxCost = cmp.Or(o.MaxCost, sp.MaxCost)
	if sp.Owner == (inventory.Owner{}) {
		sp.Owner.User = who.Name
	}
	return nil
}

// shellLine returns the shell command of an argument list.
func shellLine(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = plain.Shell(w)
	}
	return strings.Join(words, " ")
}

// nameOf names a job by its script, else by its program: "train" for "python train.py".
func nameOf(argv []string) string {
	name := argv[0]
	for _, w := range argv[1:] {
		if strings.HasSuffix(w, ".py") || strings.HasSuffix(w, ".sh") {
			name = w
			break
		}
	}
	name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, name)
	return cmp.Or(strings.Trim(name, "-_"), "job")
}

// record writes the record of a new job, after its code.
func (a *Jobs) record(ctx context.Context, j job.Job, sp *spec.Spec, who approval.Person, archive []byte) (job.Job,
	error) {
	if err := a.Identify(ctx, &j, who); err != nil {
		return j, err
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return j, err
	}
	j.ID = hex.EncodeToString(random)
	_, work, err := a.StoragePrefixes(ctx, sp, j.Provider, j.ID, j.RunAs)
	if err != nil {
		return j, err
	}
	base := strings.TrimSuffix(work, "/"+sp.Name)
	if j.WorkPrefix == "" {
		j.WorkPrefix = base + "/jobs/" + sp.Name + "/" + j.ID
		if sp.Checkpoint != nil {
			j.WorkPrefix = strings.TrimSuffix(sp.Checkpoint.To, "/") + "/" + sp.Name + "/" + j.ID
		}
	}
	if sp.Code != "" && archive != nil {
		store, err := objectstore.Open(ctx, base+"/code", objectstore.Options{Profile: a.Config.AWS.Profile})
		if err != nil {
			return j, err
		}
		j.Code = base + "/code/" + sp.Code + code.Suffix
		err = store.Create(ctx, sp.Code+code.Suffix, archive)
		if err != nil && !errors.Is(err, checkpoint.ErrExists) { // the same content was stored before
			return j, fmt.Errorf("store the code of job %s: %w", j.Name, err)
		}
	}
	if j.FirstEpoch, err = a.nextEpoch(ctx, j.Name); err != nil {
		return j, err
	}
	if sp.ReplaceOne {
		j.EpochSpan = job.RoundSpan
	}
	made, err := a.store.Put(ctx, j, []session.Event{{
		At: j.RequestedAt, Node: session.KeeperNode, Kind: "requested", Text: "by " + who.Name,
	}}, action.Entry{
		At: j.RequestedAt, Account: j.Provider + "/" + j.Account, Actor: who.Name, What: action.EventSession,
		Resource: "job/" + j.Name, Item: j.ID, Verb: string(j.State), Outcome: "asked for",
	})
	if errors.Is(err, job.ErrNameTaken) {
		err = &runtime.Error{
			Code: "taken", Err: fmt.Errorf("another process started job %s meanwhile", j.Name),
			Hint: "`curfew status " + j.Name + "` shows it",
		}
	}
	return made, err
}

// nextEpoch returns an epoch above those of all sessions and attempts of a name, which fences their
// snapshots.
func (a *Jobs) nextEpoch(ctx context.Context, name string) (int64, error) {
	epoch := int64(1)
	list, err := a.Store().Sessions().Sessions(ctx, session.Query{Name: name})
	if err != nil {
		return 0, err
	}
	for _, s := range list {
		if s.Job == "" && !s.State.IsFinal() {
			return 0, &runtime.Error{
				Class: runtime.Usage, Code: "taken", Err: fmt.Errorf("%s is a session, and it is %s", name, s.State),
				Hint: "`--name` gives the job another name",
			}
		}
		epoch = max(epoch, s.Epoch+s.Round()+1)
	}
	jobs, err := a.store.Jobs(ctx, job.Query{Name: name})
	for _, j := range jobs {
		epoch = max(epoch, j.NextEpoch()) // attempts that began next to another have other names
	}
	return epoch, err
}

// Cancel ends a job; one that is over is returned unchanged.
func (a *Jobs) Cancel(ctx context.Context, id string, discard bool) (job.Job, error) {
	who, err := a.Request.Person(a.Config)
	if err != nil {
		return job.Job{}, err
	}
	if _, err := a.Sessions.Jobs.Cancel(ctx, id, who, discard); err != nil {
		return job.Job{}, err
	}
	if _, err := a.Sessions.Jobs.Keep(ctx, id); err != nil {
		return job.Job{}, err
	}
	return a.store.Job(ctx, id)
}

// List returns the open jobs, and with all the newest job of every other name.
func (a *Jobs) List(ctx context.Context, all bool) (view.Runs, error) {
	doc := view.Runs{Schema: view.RunsSchema, Runs: []view.Run{}}
	list, err := a.store.Jobs(ctx, job.Query{OpenOnly: !all})
	if err != nil {
		return doc, err
	}
	for _, j := range list {
		r, err := a.describe(ctx, j)
		if err != nil {
			return doc, err
		}
		doc.Runs = append(doc.Runs, r)
	}
	return doc, nil
}

// describe returns the document of a job.
func (a *Jobs) describe(ctx context.Context, j job.Job) (view.Run, error) {
	var current *session.Session
	if at := j.Current(); at != nil {
		s, err := a.Store().Sessions().Session(ctx, at.Session)
		if err == nil {
			current = &s
		} else if !errors.Is(err, session.ErrNotFound) {
			return view.Run{}, err
		}
	}
	r := view.NewJob(j, current, a.Now())
	return r, audit.AddRunProgress(ctx, a.Store(), a.Sessions.Config.Tags, &r)
}

// Describe returns the document of a requested job with the gate's decision, nil if there was none.
// The error explains why the job does not start.
func (a *Jobs) Describe(ctx context.Context, j job.Job, d *gate.Decision) (view.Run, error) {
	r, err := a.describe(ctx, j)
	if err != nil || d == nil {
		return r, err
	}
	r.Gate = &view.RunGate{Decision: string(d.Decision), Reasons: append([]string{}, d.Reasons...)}
	return r, sessions.Undecided("job "+j.Name, d)
}

// Journal returns the events of a job and of its attempts in the order of time, and a unique, stable
// key for each.
func (a *Jobs) Journal(ctx context.Context, j job.Job) (doc view.SessionLog, keys []string, err error) {
	type line struct {
		event session.LoggedEvent
		key   string
	}
	var lines []line
	nodes := 1
	if sp, err := spec.Parse(j.Name, j.Spec); err == nil {
		nodes = max(1, sp.Resources.Nodes)
	}
	for _, id := range append([]string{j.ID}, sessionsOf(j)...) {
		events, err := a.Store().Sessions().Events(ctx, id)
		if err != nil {
			return doc, nil, err
		}
		for _, e := range events {
			sessions.NameOutput(id, &e.Event)
			key := fmt.Sprintf("%s/%d/%d/%d", id, e.Node, e.File, e.Line)
			if e.Node >= nodes { // a machine that replaced a lost one
				e.Node %= nodes
			}
			lines = append(lines, line{e, key})
		}
	}
	slices.SortStableFunc(lines, func(x, y line) int { return x.event.At.Compare(y.event.At) })
	events := make([]session.LoggedEvent, len(lines))
	for i, l := range lines {
		events[i] = l.event
		keys = append(keys, l.key)
	}
	return view.NewSessionLog(session.Session{ID: j.ID, Name: j.Name}, events), keys, nil
}

// Output returns a part of the output of a job, by its name in the journal, as one event.
func (a *Jobs) Output(ctx context.Context, j job.Job, name string) (view.SessionLog, error) {
	return a.Sessions.Output(ctx, sessionsOf(j), name)
}

// sessionsOf returns the ids of the sessions of a job's attempts.
func sessionsOf(j job.Job) (ids []string) {
	for _, at := range j.Attempts {
		ids = append(ids, at.Session)
	}
	return ids
}
