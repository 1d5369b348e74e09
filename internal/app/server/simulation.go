package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/scheduler"
	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/wait"
)

// oneDay is how long policies act in `enforce --demo -o json`, and the length of the previous
// period that it is compared with.
const oneDay = 24 * time.Hour

// ServeDemoOptions configure how the simulated account is served.
type ServeDemoOptions struct {
	ServeOptions
	Seed uint64
	// Speed is the factor by which simulated time runs faster; 0 is as fast as rounds can be made.
	Speed float64
	// For is the simulated time until the service ends; 0 is no end.
	For time.Duration
	// History is the time before the start for which the state has costs and a bill; 0 is none.
	History time.Duration
	// Observe prevents policies from acting.
	Observe bool
	// Truth is a file to write the actual work of each machine to, or empty.
	Truth string
}

const (
	// DemoSpeed makes a simulated day last two minutes.
	DemoSpeed = 720
	// roundInterval is the simulated time between two rounds.
	roundInterval = 5 * time.Minute
	// minTruth is the minimum time in advance for which the truth is written.
	minTruth = 7 * oneDay
)

// Truth is the actual work of the machines of the simulated account.
type Truth struct {
	Seed     uint64         `json:"seed"`
	From     time.Time      `json:"from"`
	To       time.Time      `json:"to"`
	Machines []MachineTruth `json:"machines"`
}

// MachineTruth is one machine's work.
type MachineTruth struct {
	Resource string             `json:"resource"`
	Lifetime inventory.Lifetime `json:"lifetime"`
	Worked   []sim.Stretch      `json:"worked"`
}

// ServeDemo serves the simulated account at its own speed: with the same rounds, and people who
// answer warnings, in simulated time.
func ServeDemo(ctx context.Context, req *runtime.Request, o ServeDemoOptions) (err error) {
	log := req.Logger(o.JSON)
	cfg, err := req.Config()
	if err != nil {
		return err
	}
	var set *policy.Set
	if len(o.Policies) > 0 {
		if set, err = govern.ReadPolicies(req, o.Policies); err != nil {
			return err
		}
	}
	if set, err = simulation.Policies(set); err != nil {
		return err
	}
	start := req.Now().UTC().Truncate(time.Hour)
	s, dir, err := demoState(ctx, req, o.Seed, cfg.Tags, start, start.Add(-o.History))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if o.Truth != "" {
		if err := writeTruth(ctx, req, o, s, start); err != nil {
			return err
		}
	}
	people := &respondents{log: log, sim: s}
	setting, err := simulation.EnforceSetting(req, cfg, s, set, people)
	if err != nil {
		return err
	}
	setting.Source, setting.Query.Kinds, setting.Books = "serve", kindsOf(set), ledger.Journal{Store: s.Store.Ledger()}
	if o.Observe {
		ladders := setting.Ladder
		setting.Ladder = func(account string) *action.Ladder {
			l := ladders(account)
			l.Enforce = false
			return l
		}
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	simulated := *req.Process
	simulated.Storage, simulated.Now = runtime.LentStorage{State: s.Store}, s.Clock.Now
	simulated.Simulated = &runtime.SimulatedAccount{
		Actions:  s.Cloud.Actions(s.Clock.Now),
		Launcher: simulatedLauncher(s.Cloud, s.Clock.Now, setting.Prices),
		Setting: func(cfg config.Config) (round.Setting, error) {
			setting, err := simulation.Setting(req, cfg, s)
			setting.Ladder = func(account string) *action.Ladder { return s.Ladder(account, people) }
			return setting, err
		},
	}
	simulated.Uptime = func() (string, time.Duration) {
		c := s.Clock.Read()
		return c.Boot, c.Uptime
	}
	simulated.InUse = &atomic.Pointer[config.Config]{}
	inUse := cfg.Clone()
	user, err := req.Declared(cfg)
	if err == nil {
		err = simulation.Company(&inUse, dir, user.Name, start, o.History)
	}
	if err != nil {
		return err
	}
	simulatedSessions(&inUse)
	simulated.InUse.Store(&inUse)
	runs := &simulatedJobs{process: &simulated}
	defer func() { err = errors.Join(err, runs.close()) }()
	v := &server{req: simulated.Request(), o: o.ServeOptions, log: log}
	v.scheduler = scheduler.New(scheduler.Options{
		Now: s.Clock.Now, Log: log, Frozen: s.Store.Actions().Frozen, Done: v.done,
		Sleep: func(ctx context.Context, d time.Duration) error {
			if until := start.Add(o.For); o.For > 0 && !s.Clock.Now().Add(d).Before(until) {
				d = until.Sub(s.Clock.Now())
				defer end()
			}
			if o.Speed > 0 {
				if err := wait.For(ctx, time.Duration(float64(d)/o.Speed)); err != nil {
					return err
				}
			}
			s.Clock.Forward(s.Clock.Now().Add(d))
			return ctx.Err()
		}})
	v.scheduler.Set([]scheduler.Source{
		{Name: "sim", Every: func() time.Duration { return roundInterval }, Deadline: oneDay,
			Open: func(context.Context, store.Lease) (scheduler.Rounds, error) {
				return &demoRounds{
					accountRounds: accountRounds{
						engine: round.New(setting), store: s.Store, tags: cfg.Tags,
						carrier: &act.Carrier{Process: &simulated, Store: s.Store, Log: log},
					}, sim: s, req: req, process: &simulated, runs: runs,
					cfg: cfg, version: o.Version,
				}, nil
			}}})
	if cfg.DataDir == "" { // the owner token needs a folder
		cfg.DataDir = dir
	}
	var mounted Mounted
	if o.Mount != nil {
		if mounted, err = o.Mount(v.req, s.Store, cfg, log); err != nil {
			return err
		}
	}
	stop, err := listen(ctx, o.Listen, newCertificate(req, cfg), v.scheduler.Handler(mounted.Handlers, mounted.Known),
		mounted.Listening, log)
	if err != nil {
		return err
	}
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { // replays take real time, but leases use simulated time
		replay.RunBacktests(ctx, v.req.Fresh(), replay.BacktestRunner{Store: s.Store, Sources: func() []clouds.Source {
			if o.Seed != clouds.SimSeed { // only histories of the standard account are recorded
				return nil
			}
			return []clouds.Source{{Cloud: sim.CloudName}}
		}, TTL: 365 * oneDay, Check: time.Second, Log: log})
	})
	defer wg.Wait()
	if o.History > 0 {
		log.Info("keeping the books of the time before", "days", int(o.History/oneDay))
		if err := simulation.KeepBooks(ctx, req, cfg, s, dir, start, o.History); err != nil && ctx.Err() == nil {
			return err
		}
	}
	log.Info("serving the simulated account", "seed", o.Seed, "speed", o.Speed, "from", start, "observing", o.Observe,
		"state", dir)
	err = v.scheduler.Run(ctx)
	log.Info("ended", "simulated", s.Clock.Now().Sub(start), "told", people.warned, "kept", people.kept)
	return err
}

// demoState starts a simulation with a new state: in the folder demo of --data-dir, where it is
// kept, or else in a temporary one.
func demoState(ctx context.Context, req *runtime.Request, seed uint64, tags inventory.TagMapping, laidOut,
	start time.Time) (*simulation.World, string, error) {
	if req.DataFlag == "" {
		s, err := simulation.New(ctx, seed, tags, laidOut, start)
		if err != nil {
			return nil, "", err
		}
		return s, s.Dir, nil
	}
	dir := filepath.Join(req.Path(req.DataFlag), "demo")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("keep the demonstration's state: %w", err)
	}
	old, err := filepath.Glob(filepath.Join(dir, store.FileName+"*"))
	for _, name := range old {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return nil, "", fmt.Errorf("remove the state of an earlier demonstration: %w", err)
	}
	s, err := simulation.NewIn(ctx, store.Options{Dir: dir}, seed, tags, laidOut, start)
	return s, dir, err
}

// writeTruth writes the actual work of each machine from the beginning.
func writeTruth(ctx context.Context, req *runtime.Request, o ServeDemoOptions, s *simulation.World,
	start time.Time) error {
	doc := Truth{Seed: o.Seed, From: start, To: start.Add(max(o.For, minTruth)), Machines: []MachineTruth{}}
	seen, err := s.Cloud.List(ctx, round.Query{Now: start})
	if err != nil {
		return err
	}
	worked := s.Cloud.Worked(doc.From, doc.To)
	for _, r := range seen.Resources {
		if w, ok := worked[r.Ref()]; ok {
			doc.Machines = append(doc.Machines, MachineTruth{r.Ref().String(), r.Lifetime, w})
		}
	}
	path := req.Path(o.Truth)
	if err := durable.Replace(path, 0o600, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(doc)
	}); err != nil {
		return runtime.InvalidFile(fmt.Errorf("--demo-truth: %w", err))
	}
	return nil
}

// demoRounds makes the rounds of the simulated account, whose company confirms every fuse.
type demoRounds struct {
	accountRounds
	sim     *simulation.World
	req     *runtime.Request
	cfg     config.Config
	version string
	// process is the process of the service.
	process *runtime.Process
	runs    *simulatedJobs
	// audited is the time of the last audit. Time does not pass during an audit.
	audited time.Time
	// requests is the time of the last requests to start work.
	requests time.Time
}

// Round implements scheduler.Rounds.
func (d *demoRounds) Round(ctx context.Context) (scheduler.Outcome, error) {
	out, err := d.accountRounds.Round(ctx)
	if err != nil {
		return out, err
	}
	fuses, err := d.sim.Store.Actions().Fuses(ctx)
	for _, f := range fuses {
		if f.IsBlown() {
			err = errors.Join(err, d.sim.Confirm(ctx, f))
		}
	}
	if err != nil {
		return out, err
	}
	if err := simulation.ApproveFixes(ctx, d.sim); err != nil {
		return out, err
	}
	if now := d.sim.Clock.Now(); now.Sub(d.requests) >= oneDay {
		d.requests = now
		if err := errors.Join(simulation.AskToStart(ctx, d.process), d.runs.start(ctx)); err != nil {
			return out, err
		}
	}
	if err := d.runs.keep(ctx); err != nil {
		return out, err
	}
	return out, d.audit(ctx)
}

// audit audits the simulated account as often as a service audits others, and after fixes.
func (d *demoRounds) audit(ctx context.Context) error {
	if d.cfg.Serve.SkipAudits {
		return nil
	}
	if d.sim.Clock.Now().Sub(d.audited) < d.cfg.Serve.AuditInterval {
		if fixed, err := fixedSince(ctx, d.sim.Store, "", d.audited); err != nil || !fixed {
			return err
		}
	}
	d.audited = d.sim.Clock.Now()
	setting, err := simulation.Setting(d.req, d.cfg, d.sim)
	if err != nil {
		return err
	}
	if err := audit.SetAudit(d.req, d.cfg, &setting, sim.CloudName, nil); err != nil {
		return err
	}
	_, _, err = auditOnce(ctx, d.store, setting, view.ScanOptions{Version: d.version}, d.cfg.Tags, auditPrefix+"sim")
	return err
}

// respondents are the people of the simulated company. They keep a machine if they are warned while
// it works or if they need it soon, and otherwise ignore the warning.
type respondents struct {
	sim.People
	log          *slog.Logger
	sim          *simulation.World
	warned, kept int
}

const (
	// An owner who needs the machine within warnedNeed of its end keeps it for keptFor.
	warnedNeed = time.Hour
	keepLength = 2 * time.Hour
)

// Notify implements action.Notifier.
func (a *respondents) Notify(ctx context.Context, recipient string, m action.Message) (string, error) {
	accepted, err := a.People.Notify(ctx, recipient, m)
	if err != nil {
		return accepted, err
	}
	a.warned++
	if m.Kind != "warning" || m.Resource == nil || !m.Resource.Kind.Traits().Compute {
		return accepted, nil
	}
	now := a.sim.Clock.Now()
	for at := now; !at.After(m.ActsAt.Add(warnedNeed)); at = at.Add(5 * time.Minute) {
		state, runs := a.sim.Cloud.At(m.Resource.Ref(), at)
		if !runs || !state.Works {
			continue
		}
		a.kept++
		k := action.Keep{
			Ref: m.Resource.Ref(), Until: now.Add(keepLength), Reason: "the next run begins at " + plain.Time(at),
			By: m.Resource.Owner.User, At: now,
		}
		if k.By == "" {
			k.By = accepted
		}
		return accepted, a.sim.Store.Actions().PutKeep(ctx, k)
	}
	return accepted, nil
}
