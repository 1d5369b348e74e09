package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// fixDemo carries fixes out on the simulated account, pass by pass, in simulated time that
// jumps to the next deadline. The ladder, the approval and the calls are those of real
// accounts; only the account, the people and the clock are simulated.
func (a *app) fixDemo(ctx context.Context, cfg config.Config, chosen []daemon.Kept, requests []round.Request, f fixFlags) (err error) {
	book, err := a.prices(cfg)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "curfew-demo")
	if err != nil {
		return fmt.Errorf("keep the demonstration's state: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	clock := sim.NewClock(a.Now().UTC().Truncate(time.Minute))
	s, err := store.Open(ctx, store.Options{Dir: dir, Host: store.Host{Now: clock.Now, FileTime: func(string) (time.Time, error) { return clock.Now(), nil }}})
	if err != nil {
		return err
	}
	defer s.Close()
	cloud := sim.New(sim.Options{Seed: daemon.SimSeed, Now: clock.Now(), Tags: cfg.Tags})
	cfg.Approvals.Accept = []string{string(approval.SelfDeclared)}
	held := &holding{app: a, now: clock.Now, cfg: cfg, desk: approval.Desk{Store: s.Approvals()}, store: s.Actions(), found: map[inventory.Ref]daemon.Kept{}, of: map[string]string{}}
	for _, k := range chosen {
		held.found[daemon.RefOf(k.Resource)] = k
	}
	setting := round.Setting{
		Clock: clock.Now, Lister: cloud, Sources: []usage.Source{cloud}, Prices: book, Duty: cfg.Duty, Source: "demo", Requests: requests,
		Query: round.Query{Window: cfg.Scan.Window, Kinds: round.KindsOf(requests, daemon.RulesOf(sim.CloudName))},
		Audit: &round.Audit{Thresholds: cfg.Thresholds, Rules: daemon.RulesOf(sim.CloudName), Required: cfg.RequiredTags, Owners: cfg.Owners, Tags: cfg.Tags},
		Ladder: func(account string) *action.Ladder {
			return &action.Ladder{Store: s.Actions(), Cloud: cloud.Actions(clock.Now), Notifier: &sim.People{}, Account: account, Actor: "demo", Enforce: true,
				Clock: clock.Read, MaxRoundGap: 100 * 24 * time.Hour, Approve: held.approve, Ask: held.early}
		},
	}
	var doc view.Fixes
	var passes []view.FixPass
	var last *round.Result
	for range demoPasses {
		held.asked, held.meanwhile = nil, nil
		out, err := round.New(setting).Round(ctx)
		if err != nil {
			return err // nothing of it was real
		}
		missed, err := missing(ctx, out, s.Actions())
		if err != nil {
			return err
		}
		last = out
		doc = view.NewFixes(fixesAfter(chosen, out, held, missed), out, missed, held.meanwhile)
		passes = append(passes, view.FixPass{At: clock.Now(), Lines: doc.Lines})
		next := out.NextAt()
		for _, id := range slices.Concat(held.asked, held.meanwhile) {
			r, err := s.Approvals().Request(ctx, id)
			if err != nil {
				return err
			}
			second := approval.Person{Name: "a simulated approver", Roles: r.Roles, Proof: approval.Proof{Kind: approval.SelfDeclared}}
			if _, err := held.desk.Decide(ctx, id, second, true, "demonstration", clock.Now()); err != nil {
				return err
			}
			if next.IsZero() {
				next = clock.Now()
			}
		}
		if next.IsZero() {
			break
		}
		clock.Forward(next)
	}
	held.asked = nil
	doc.Passes, doc.NextAt, doc.ApprovalsAsked = passes, nil, []string{}
	if err := a.show(doc, func() report.Sheet { return report.FixDemoSheet(doc) }); err != nil {
		return err
	}
	return fixExit(last, held, nil, len(requests))
}

// fixesAfter are the chosen fixes after a pass.
func fixesAfter(chosen []daemon.Kept, out *round.Result, held *holding, missed []view.Line) []view.Fix {
	docs := make([]view.Fix, 0, len(chosen))
	for _, s := range chosen {
		d := view.NewFix(s.Finding, s.Scanned, daemon.ByHand(s.Finding))
		d.After(out, held.of[s.ID], missed)
		docs = append(docs, d)
	}
	return docs
}
