package simulation

import (
	"context"
	_ "embed" // for the policies of the demonstration
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// MaxPasses bounds a demonstration.
const MaxPasses = 8

// maxGap is the pause between passes that a demonstration ignores, because its time jumps.
const maxGap = 100 * 24 * time.Hour

// ownPolicies are the default policies of `curfew enforce --demo`.
//
//go:embed demo.yaml
var ownPolicies []byte

// World is the simulated account in simulated time, with its own state that is removed with it.
type World struct {
	Cloud *sim.Cloud
	Clock *sim.Clock
	Store *store.Store
	Dir   string
}

// New creates the simulated account of a seed as it is at one time, with a clock that starts at
// another.
func New(ctx context.Context, seed uint64, tags inventory.TagMapping, laidOut, start time.Time) (*World, error) {
	dir, err := os.MkdirTemp("", "curfew-demo")
	if err != nil {
		return nil, fmt.Errorf("keep the demonstration's state: %w", err)
	}
	s, err := NewIn(ctx, store.Options{Dir: dir, Temporary: true}, seed, tags, laidOut, start)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.Dir = dir
	return s, nil
}

// NewIn creates a World whose state is stored at a given location.
func NewIn(ctx context.Context, at store.Options, seed uint64, tags inventory.TagMapping, laidOut, start time.Time) (
	*World, error) {
	s := &World{Cloud: sim.New(sim.Options{Seed: seed, Now: laidOut, Tags: tags}), Clock: sim.NewClock(start)}
	at.Host = store.Host{Now: s.Clock.Now, FileTime: func(string) (time.Time, error) { return s.Clock.Now(), nil }}
	var err error
	s.Store, err = store.Open(ctx, at)
	return s, err
}

// Close removes the World's own state.
func (s *World) Close() error {
	s.Store.Close()
	if s.Dir == "" {
		return nil
	}
	return os.RemoveAll(s.Dir)
}

// Ladder returns the ladder that acts on the simulated account and notifies simulated people.
func (s *World) Ladder(account string, people action.Notifier) *action.Ladder {
	return &action.Ladder{
		Store: s.Store.Actions(), Cloud: s.Cloud.Actions(s.Clock.Now), Notifier: people,
		Account: account, Actor: "demo",
		Enforce: true,
		Clock:   s.Clock.Read, MaxRoundGap: maxGap}
}

// Confirm confirms a fuse, as an approver of the simulated company does.
func (s *World) Confirm(ctx context.Context, f action.Fuse) error {
	l := action.Ladder{Store: s.Store.Actions(), Account: f.Account, Actor: "demo", Clock: s.Clock.Read}
	_, err := l.Confirm(ctx, f.Source, "the demonstration means it", time.Time{})
	return err
}

// Setting returns the setting of a round on the simulated account.
func Setting(req *runtime.Request, cfg config.Config, s *World) (round.Setting, error) {
	book, err := req.PriceBook(cfg)
	return round.Setting{
		Clock: s.Clock.Now, Lister: s.Cloud, Sources: []usage.Source{s.Cloud}, Prices: book, Duty: cfg.Duty,
		Source: "demo",
	}, err
}

// Demo lets policies act on the simulated account, pass by pass, in simulated time that jumps to
// the next due action, and returns the length of the audit log afterwards. The engine is that of
// real accounts; only the account, the people and the clock are simulated. Without policies it uses
// those of the demonstration.
func Demo(ctx context.Context, req *runtime.Request, set *policy.Set, seed uint64, show func(view.DemoPass) error) (
	entries int64, err error) {
	start := req.Now().UTC().Truncate(time.Minute)
	s, setting, people, err := begin(ctx, req, set, seed, start, start)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for range MaxPasses {
		people.Sent = 0
		pass, err := round.New(setting).Round(ctx)
		if err != nil {
			return 0, err // nothing of it was real
		}
		shown := view.DemoPass{At: s.Clock.Now(), Enforce: view.NewEnforce(pass, false), Sent: people.Sent}
		next := pass.NextAt()
		for _, rep := range pass.Reports {
			for _, f := range rep.Fuses { // the simulated company confirms every fuse
				if err := s.Confirm(ctx, f); err != nil {
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

// DemoDay lets policies act on the simulated account for a day, and compares it with the day
// before.
func DemoDay(ctx context.Context, req *runtime.Request, set *policy.Set, seed uint64) (doc *view.Demo, err error) {
	start := req.Now().UTC().Truncate(time.Hour).Add(-2 * oneDay) // costs are hourly and only exist for the past
	s, setting, _, err := begin(ctx, req, set, seed, start.Add(oneDay), start)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	bar := req.Progress("the simulated day")
	defer bar.Finish()
	return (&day{
		set: setting.Policies, seed: seed, cloud: s.Cloud, clock: s.Clock, setting: setting, store: s.Store, bar: bar,
	}).run(ctx)
}

func begin(ctx context.Context, req *runtime.Request, set *policy.Set, seed uint64, laidOut, start time.Time) (*World,
	round.Setting, *sim.People, error) {
	fail := func(err error) (*World, round.Setting, *sim.People, error) {
		return nil, round.Setting{}, nil, err
	}
	cfg, err := req.Config()
	if err != nil {
		return fail(err)
	}
	if set, err = Policies(set); err != nil {
		return fail(err)
	}
	s, err := New(ctx, seed, cfg.Tags, laidOut, start)
	if err != nil {
		return fail(err)
	}
	people := &sim.People{}
	setting, err := EnforceSetting(req, cfg, s, set, people)
	if err != nil {
		return fail(errors.Join(err, s.Close()))
	}
	return s, setting, people, nil
}

// Policies returns the given policies or those of the demonstration, all of them enforcing.
func Policies(set *policy.Set) (*policy.Set, error) {
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

// ownGovernance allows policies to act on everything that may end.
func ownGovernance() policy.Governance {
	return policy.Governance{{Select: policy.Select{Lifetime: []string{string(inventory.Ephemeral)}}}}
}

// EnforceSetting returns the setting of rounds in which policies act on the simulated account.
func EnforceSetting(req *runtime.Request, cfg config.Config, s *World, set *policy.Set, people action.Notifier) (
	round.Setting, error) {
	setting, err := Setting(req, cfg, s)
	setting.Query, setting.LookBack, setting.Policies = round.Query{Kinds: set.Kinds()}, govern.LookBack(cfg, set), set
	setting.Governance = ownGovernance()
	setting.Ladder = func(account string) *action.Ladder { return s.Ladder(account, people) }
	return setting, err
}
