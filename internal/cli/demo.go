package cli

import (
	"context"
	_ "embed" // for the policies of the demonstration
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Bounds of the demonstration.
const (
	demoPasses = 8
	demoShown  = 6 // lines of one result
)

// ownPolicies are those of `curfew enforce --demo` where none are given.
//
//go:embed demo.yaml
var ownPolicies []byte

// demo lets the policies act on the simulated account, pass by pass, under a clock that
// jumps to when there is something to do. It is the engine that acts on real accounts;
// only the account, the people and the clock are made up.
func (a *app) demo(ctx context.Context, f enforceFlags) (err error) {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	set, err := a.demoPolicies(f.policies)
	if err != nil {
		return err
	}
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "curfew-demo")
	if err != nil {
		return fmt.Errorf("keep the demonstration's state: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	start := a.Now().UTC().Truncate(time.Minute)
	laidOut := start
	if a.format == "json" {
		start = start.Truncate(time.Hour).Add(-2 * oneDay) // costs are by the hour, and of the past
		laidOut = start.Add(oneDay)
	}
	clock := sim.NewClock(start)
	s, err := store.Open(ctx, store.Options{Dir: dir, Host: store.Host{Now: clock.Now, FileTime: func(string) (time.Time, error) { return clock.Now(), nil }}})
	if err != nil {
		return err
	}
	defer s.Close()
	cloud := sim.New(sim.Options{Seed: f.seed, Now: laidOut, Tags: cfg.Tags})
	people := &sim.People{}
	setting := round.Setting{
		Clock: clock.Now, Lister: cloud, Sources: []usage.Source{cloud}, Prices: book, Duty: cfg.Duty, Source: "demo",
		Query: round.Query{Kinds: set.Kinds()}, LookBack: lookBack(cfg, set), Policies: set,
		Governance: policy.Governance{{Select: policy.Select{Lifetime: []string{string(inventory.Ephemeral)}}}},
		Ladder: func(account string) *action.Ladder {
			return &action.Ladder{Store: s.Actions(), Cloud: cloud.Actions(clock.Now), Notifier: people, Account: account, Actor: "demo", Enforce: true,
				Clock: clock.Read, MaxRoundGap: 100 * 24 * time.Hour}
		},
	}
	if a.format == "json" {
		day := demoDay{set: set, seed: f.seed, cloud: cloud, clock: clock, setting: setting, store: s}
		doc, err := day.run(ctx)
		if err != nil {
			return err
		}
		return a.printJSON(doc)
	}
	plain.Fprintf(a.Stdout, "curfew enforce   the simulated account, %s, in simulated time\n", plain.Count(len(set.Policies), "policy"))
	seen := map[string]bool{}
	for range demoPasses {
		people.Sent = 0
		pass, err := round.New(setting).Round(ctx)
		if err != nil {
			return err // nothing of it was real
		}
		a.printDemo(pass, clock.Now(), people.Sent, seen)
		next := pass.NextAt()
		for _, rep := range pass.Reports {
			for _, f := range rep.Fuses { // the simulated company confirms every fuse
				l := action.Ladder{Store: s.Actions(), Account: f.Account, Actor: "demo", Clock: clock.Read}
				if _, err := l.Confirm(ctx, f.Source, "the demonstration means it", time.Time{}); err != nil {
					return err
				}
				plain.Fprintf(a.Stdout, "    %s\n    confirmed by demo\n", a.wrapped(f.String(), 4))
				next = clock.Now()
			}
		}
		if next.IsZero() {
			break
		}
		clock.Forward(next)
	}
	var entries int64
	if err := s.Actions().Entries(ctx, action.Query{}, func(action.Entry) error { entries++; return nil }); err != nil {
		return err
	}
	_, err = plain.Fprintf(a.Stdout, "\n  audit log: %s; all of this was simulated\n", plain.Count(entries, "entry"))
	return err
}

// demoPolicies are those given, which then enforce, or the demonstration's own.
func (a *app) demoPolicies(names []string) (*policy.Set, error) {
	if len(names) == 0 {
		return policy.Parse("demo.yaml", ownPolicies)
	}
	set, err := a.readPolicies(names)
	if err != nil {
		return nil, err
	}
	for _, p := range set.Policies {
		p.Mode = policy.Enforce
	}
	return set, nil
}

// printDemo shows a pass: how many results there are, and those that are new.
func (a *app) printDemo(p *round.Result, now time.Time, told int, seen map[string]bool) {
	byRef := map[inventory.Ref]*inventory.Resource{}
	for _, r := range p.Resources {
		byRef[r.Ref()] = r
	}
	fresh := map[action.Result][]action.Line{}
	counts := map[action.Result]int{}
	for _, l := range p.Lines() {
		counts[l.Result]++
		if key := l.Resource.String() + l.Source + string(l.Result); !seen[key] {
			seen[key] = true
			fresh[l.Result] = append(fresh[l.Result], l)
		}
	}
	var sum []string
	for _, r := range report.Results {
		if n := counts[r]; n > 0 {
			sum = append(sum, fmt.Sprintf("%d %s", n, r))
		}
	}
	plain.Fprintf(a.Stdout, "\n  %s   %s; %s\n", now.Format("Mon 15:04"), first(strings.Join(sum, ", "), "nothing to do"), plain.Count(told, "message was sent", "messages were sent"))
	for _, r := range report.Results {
		lines := fresh[r]
		for i, l := range lines {
			if i == demoShown {
				plain.Fprintf(a.Stdout, "    %-10s and %d more\n", r, len(lines)-i)
				break
			}
			name := l.Resource.ID
			if res := byRef[l.Resource]; res != nil {
				name = strings.TrimSpace(res.Type + " " + first(res.Name, res.ID))
			}
			if a.Width > 0 && a.Width < 100 {
				plain.Fprintf(a.Stdout, "    %-10s %-7s %s\n      %s\n", l.Result, l.Verb, ansi.Truncate(name, a.Width-24, "…"), a.wrapped(l.Why, 6))
				continue
			}
			plain.Fprintf(a.Stdout, "    %-10s %-7s %-32s %s\n", l.Result, l.Verb, ansi.Truncate(name, 32, "…"), a.wrapped(l.Why, 55))
		}
	}
}
