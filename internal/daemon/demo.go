package daemon

import (
	"context"
	_ "embed" // for the policies of the demonstration
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// demoPasses bounds a demonstration.
const demoPasses = 8

// demoGap is the pause between passes that a demonstration takes for none: its time jumps.
const demoGap = 100 * 24 * time.Hour

// ownPolicies are those of `curfew enforce --demo` where none are given.
//
//go:embed demo.yaml
var ownPolicies []byte

// Simulation is the simulated account in simulated time, with a state of its own that ends
// with it.
type Simulation struct {
	Cloud *sim.Cloud
	Clock *sim.Clock
	Store *store.Store
	dir   string
}

// NewSimulation lays the simulated account of a seed out as it is at one time, and begins
// at another.
func NewSimulation(ctx context.Context, seed uint64, tags inventory.TagMapping, laidOut, start time.Time) (*Simulation, error) {
	dir, err := os.MkdirTemp("", "curfew-demo")
	if err != nil {
		return nil, fmt.Errorf("keep the demonstration's state: %w", err)
	}
	s, err := simulationIn(ctx, store.Options{Dir: dir, Temporary: true}, seed, tags, laidOut, start)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.dir = dir
	return s, nil
}

// simulationIn keeps the state of a simulation where at says.
func simulationIn(ctx context.Context, at store.Options, seed uint64, tags inventory.TagMapping, laidOut, start time.Time) (*Simulation, error) {
	s := &Simulation{Cloud: sim.New(sim.Options{Seed: seed, Now: laidOut, Tags: tags}), Clock: sim.NewClock(start)}
	at.Host = store.Host{Now: s.Clock.Now, FileTime: func(string) (time.Time, error) { return s.Clock.Now(), nil }}
	var err error
	s.Store, err = store.Open(ctx, at)
	return s, err
}

// Close removes a state of its own.
func (s *Simulation) Close() error {
	s.Store.Close()
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// ladder is the ladder that acts on the simulated account and tells simulated people.
func (s *Simulation) ladder(account string, people action.Notifier) *action.Ladder {
	return &action.Ladder{Store: s.Store.Actions(), Cloud: s.Cloud.Actions(s.Clock.Now), Notifier: people, Account: account, Actor: "demo", Enforce: true,
		Clock: s.Clock.Read, MaxRoundGap: demoGap}
}

// confirm confirms a fuse, as an approver of the simulated company does.
func (s *Simulation) confirm(ctx context.Context, f action.Fuse) error {
	l := action.Ladder{Store: s.Store.Actions(), Account: f.Account, Actor: "demo", Clock: s.Clock.Read}
	_, err := l.Confirm(ctx, f.Source, "the demonstration means it", time.Time{})
	return err
}

// setting is what a round on the simulated account reads and judges by.
func (rt *Runtime) simSetting(cfg config.Config, s *Simulation) (round.Setting, error) {
	book, err := rt.PriceBook(cfg)
	return round.Setting{Clock: s.Clock.Now, Lister: s.Cloud, Sources: []usage.Source{s.Cloud}, Prices: book, Duty: cfg.Duty, Source: "demo"}, err
}

// Demo lets policies act on the simulated account, pass by pass, in simulated time that jumps
// to when there is something to do, and returns how many entries the audit log has then.
// It is the engine that acts on real accounts; only the account, the people and the clock
// are made up. No policies are those of the demonstration.
func (rt *Runtime) Demo(ctx context.Context, set *policy.Set, seed uint64, show func(view.DemoPass) error) (entries int64, err error) {
	start := rt.Now().UTC().Truncate(time.Minute)
	s, setting, people, err := rt.demo(ctx, set, seed, start, start)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for range demoPasses {
		people.Sent = 0
		pass, err := round.New(setting).Round(ctx)
		if err != nil {
			return 0, err // nothing of it was real
		}
		shown := view.DemoPass{At: s.Clock.Now(), Enforce: view.NewEnforce(pass, false), Sent: people.Sent}
		next := pass.NextAt()
		for _, rep := range pass.Reports {
			for _, f := range rep.Fuses { // the simulated company confirms every fuse
				if err := s.confirm(ctx, f); err != nil {
					return 0, err
				}
				shown.Fuses, next = append(shown.Fuses, f.String()), s.Clock.Now()
			}
		}
		if err := show(shown); err != nil {
			return 0, err
		}
		if next.IsZero() {
			break
		}
		s.Clock.Forward(next)
	}
	err = s.Store.Actions().Entries(ctx, action.Query{}, func(action.Entry) error { entries++; return nil })
	return entries, err
}

// DemoDay lets policies act on the simulated account for a day, and compares it with the
// day before.
func (rt *Runtime) DemoDay(ctx context.Context, set *policy.Set, seed uint64) (doc *view.Demo, err error) {
	start := rt.Now().UTC().Truncate(time.Hour).Add(-2 * oneDay) // costs are by the hour, and of the past
	s, setting, _, err := rt.demo(ctx, set, seed, start.Add(oneDay), start)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	bar := rt.Progress("the simulated day")
	defer bar.Finish()
	return (&demoDay{set: setting.Policies, seed: seed, cloud: s.Cloud, clock: s.Clock, setting: setting, store: s.Store, bar: bar}).run(ctx)
}

func (rt *Runtime) demo(ctx context.Context, set *policy.Set, seed uint64, laidOut, start time.Time) (*Simulation, round.Setting, *sim.People, error) {
	fail := func(err error) (*Simulation, round.Setting, *sim.People, error) {
		return nil, round.Setting{}, nil, err
	}
	cfg, err := rt.Config()
	if err != nil {
		return fail(err)
	}
	if set, err = demoPolicies(set); err != nil {
		return fail(err)
	}
	s, err := NewSimulation(ctx, seed, cfg.Tags, laidOut, start)
	if err != nil {
		return fail(err)
	}
	people := &sim.People{}
	setting, err := rt.simEnforcing(cfg, s, set, people)
	if err != nil {
		return fail(errors.Join(err, s.Close()))
	}
	return s, setting, people, nil
}

// demoPolicies are the policies of a demonstration, which all act: those that are given, or
// its own.
func demoPolicies(set *policy.Set) (*policy.Set, error) {
	if set == nil {
		var err error
		if set, err = policy.Parse("demo.yaml", ownPolicies); err != nil {
			return nil, err
		}
	}
	for _, p := range set.Policies {
		p.Mode = policy.Enforce
	}
	return set, nil
}

// simEnforcing wires rounds in which policies act on the simulated account.
func (rt *Runtime) simEnforcing(cfg config.Config, s *Simulation, set *policy.Set, people action.Notifier) (round.Setting, error) {
	setting, err := rt.simSetting(cfg, s)
	setting.Query, setting.LookBack, setting.Policies = round.Query{Kinds: set.Kinds()}, LookBack(cfg, set), set
	setting.Governance = policy.Governance{{Select: policy.Select{Lifetime: []string{string(inventory.Ephemeral)}}}}
	setting.Ladder = func(account string) *action.Ladder { return s.ladder(account, people) }
	return setting, err
}
