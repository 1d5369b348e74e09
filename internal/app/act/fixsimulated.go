package act

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/simulation"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// fixSimulated carries out fixes on the simulated account, pass by pass, in simulated time that
// jumps to the next deadline. The ladder, the approval and the calls are those of real accounts;
// only the account, the people and the clock are simulated.
func fixSimulated(ctx context.Context, req *runtime.Request, cfg config.Config, chosen []audit.Kept,
	requests []round.Request, show func(view.Fixes) error) (err error) {
	now := req.Now().UTC().Truncate(time.Minute)
	s, err := simulation.New(ctx, clouds.SimSeed, cfg.Tags, now, now)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	setting, err := simulation.Setting(req, cfg, s)
	if err != nil {
		return err
	}
	bar := req.Progress("the simulated account")
	defer bar.Finish()
	cfg.Approvals.Accept = []string{string(approval.SelfDeclared)}
	held := newApprovalRequests(req, cfg, s.Store, s.Clock.Now, chosen)
	setting.Requests = requests
	setting.Query = round.Query{
		Window: cfg.Scan.Window, Kinds: round.KindsToRead(requests, clouds.RulesOf(sim.CloudName)),
	}
	setting.Audit = &round.Audit{
		Thresholds: cfg.Thresholds, Rules: clouds.RulesOf(sim.CloudName),
		Required: cfg.RequiredTags, Owners: cfg.Owners,
		Tags: cfg.Tags,
	}
	setting.Ladder = func(account string) *action.Ladder {
		l := s.Ladder(account, &sim.People{})
		l.Approve, l.Ask = held.approve, held.early
		return l
	}
	var doc view.Fixes
	var passes []view.FixPass
	var last *round.Result
	for i := range simulation.MaxPasses {
		bar.Report(round.Progress{
			What: "pass at " + s.Clock.Now().Format("15:04"), Done: i, Total: simulation.MaxPasses,
		})
		held.asked, held.meanwhile = nil, nil
		out, err := round.New(setting).Round(ctx)
		if err != nil {
			return err // nothing of it was real
		}
		missed, err := missing(ctx, out, s.Store.Actions())
		if err != nil {
			return err
		}
		last = out
		doc = view.NewFixes(fixesAfter(chosen, out, held, missed), out, missed, held.meanwhile)
		passes = append(passes, view.FixPass{At: s.Clock.Now(), Lines: doc.Lines})
		next := out.NextAt()
		for _, id := range slices.Concat(held.asked, held.meanwhile) {
			r, err := s.Store.Approvals().Request(ctx, id)
			if err != nil {
				return err
			}
			second := approval.Person{
				Name: "a simulated approver", Roles: r.Roles, Proof: approval.Proof{Kind: approval.SelfDeclared},
			}
			if _, err := held.desk.Decide(ctx, id, second, true, "demonstration", s.Clock.Now()); err != nil {
				return err
			}
			if next.IsZero() {
				next = s.Clock.Now()
			}
		}
		if next.IsZero() {
			break
		}
		s.Clock.Forward(next)
	}
	held.asked = nil
	doc.Passes, doc.NextAt, doc.ApprovalsAsked = passes, nil, []string{}
	if err := show(doc); err != nil {
		return err
	}
	return fixExit(last, held, nil, len(requests))
}

// fixesAfter returns the chosen fixes as they are after a pass.
func fixesAfter(chosen []audit.Kept, out *round.Result, held *approvalRequests, missed []view.Line) []view.Fix {
	docs := make([]view.Fix, 0, len(chosen))
	for _, s := range chosen {
		d := view.NewFix(s.Finding, s.Scanned, clouds.ByHand(s.Finding))
		d.After(out, held.byFinding[s.ID], missed)
		docs = append(docs, d)
	}
	return docs
}
