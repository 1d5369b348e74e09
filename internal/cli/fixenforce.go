package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// fixFlags are the flags of fix.
type fixFlags struct {
	sourceFlags
	enforce, scratch, save, github bool
	grace                          string
	undo                           []string
}

// repeated are the flags of a fix, to follow a suggested command.
func (f fixFlags) repeated() string {
	out := reaching(f.sourceFlags)
	for flag, on := range map[string]bool{" --github": f.github, " --save-disks": f.save, " --scratch-disks": f.scratch} {
		if on {
			out += flag
		}
	}
	if f.grace != defaultGrace {
		out += " --grace " + plain.Shell(f.grace)
	}
	return out
}

// defaultGrace is how long an owner has after a warning.
const defaultGrace = "15m"

// carryOut takes findings one step up the ladder.
func (a *app) carryOut(ctx context.Context, ids []string, f fixFlags) error {
	grace, err := config.ParseDuration(f.grace)
	if err != nil || grace <= 0 {
		return usageError("--grace %q: it is a duration such as 15m; nothing is done without one", f.grace)
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	chosen, err := daemon.Choose(cfg.DataDir, ids)
	if err != nil {
		return err
	}
	var requests []round.Request
	for _, s := range chosen {
		switch {
		case f.cloud == sim.CloudName && s.Resource.Cloud != sim.CloudName:
			return usageError("curfew fix %s --enforce --demo: it is a finding of %s, and --demo acts on the simulated account", s.ID[:8], s.Resource.Cloud)
		case f.cloud != sim.CloudName && s.Resource.Cloud == sim.CloudName:
			return usageError("curfew fix %s --enforce: it is a finding of the simulated account; add --demo", s.ID[:8])
		case s.Resource.Cloud != "aws" && s.Resource.Cloud != sim.CloudName:
			return usageError("curfew fix %s --enforce: curfew acts on no %s machine", s.ID[:8], s.Resource.Cloud)
		}
		requests = append(requests, round.Request{Finding: s.ID, Rule: s.Rule, Resource: daemon.RefOf(s.Resource), Notify: []string{"owner"}, Grace: grace,
			Change: s.Fix.Change, ScratchDisks: f.scratch, SaveDisks: f.save})
		// All of the scan's regions are read again: a gang may span several.
		for _, region := range append(slices.Clone(s.Regions), s.Resource.Region) {
			if region != "" && !slices.Contains(f.regions, region) {
				f.regions = append(f.regions, region)
			}
		}
	}
	if f.cloud == sim.CloudName {
		return a.fixDemo(ctx, cfg, chosen, requests, f)
	}
	if err := a.reach(cfg, &f.sourceFlags, chosen); err != nil {
		return err
	}
	s, err := a.open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	if cfg, _, err = a.governed(ctx, cfg, s); err != nil {
		return err
	}
	now, err := a.rt.StateClock(ctx, s)
	if err != nil {
		return err
	}
	setting, err := a.setting(ctx, cfg, f.sourceFlags)
	if err != nil {
		return err
	}
	cloud, ok := setting.Lister.(*daemon.AWS)
	if !ok {
		return usageError("--cloud %s: fixes are carried out on real accounts", f.cloud)
	}
	ladders, err := a.rt.Ladders(cfg, s, cloud.Actions(), true)
	if err != nil {
		return err
	}
	held := &holding{app: a, now: now, cfg: cfg, desk: approval.Desk{Store: s.Approvals()}, store: s.Actions(), found: map[inventory.Ref]daemon.Kept{}, of: map[string]string{}}
	for _, s := range chosen {
		held.found[daemon.RefOf(s.Resource)] = s
	}
	if f.github {
		if held.hub, err = a.fixPull(cfg); err != nil {
			return err
		}
	}
	bar := a.newProgress(f.cloud)
	setting.Query = round.Query{Window: cfg.Scan.Window, Progress: bar.report, Kinds: round.KindsOf(requests, daemon.RulesOf(f.cloud))}
	if cfg.Thresholds.Interruptions, err = a.interruptions(cfg); err != nil {
		return err
	}
	setting.Audit = &round.Audit{Thresholds: cfg.Thresholds, Rules: daemon.RulesOf(f.cloud), Required: cfg.RequiredTags, Owners: cfg.Owners, Tags: cfg.Tags}
	setting.Requests = requests
	setting.Ladder = func(account string) *action.Ladder {
		l := ladders(account)
		l.Approve, l.Ask = held.approve, held.early
		return l
	}
	out, err := round.New(setting).Round(ctx)
	bar.finish()
	if out == nil {
		return daemon.StateError(daemon.CloudError(err))
	}
	broken := err // what was done before it is shown all the same
	missed, err := missing(ctx, out, s.Actions())
	if err != nil {
		return err
	}
	doc := view.NewFixes(fixesAfter(chosen, out, held, missed), out, missed, held.meanwhile)
	if err := a.show(doc, func() report.Sheet {
		return report.FixesSheet(doc, a.Now(), "curfew fix "+strings.Join(ids, " ")+" --enforce"+f.repeated()+a.globals(), a.globals())
	}); err != nil {
		return err
	}
	if broken != nil {
		return daemon.StateError(daemon.CloudError(&cutOff{broken, out.Lines()}))
	}
	return fixExit(out, held, missed, len(requests))
}

// fixExit is the exit code of a fix: what could not be done before what waits.
func fixExit(out *round.Result, held *holding, missed []view.Line, requested int) error {
	partial, refused, unread := len(out.Manual)+len(out.Changed) > 0, "", 0
	for _, l := range missed {
		partial = partial || l.Result == string(round.Unread) || l.Result == string(round.Changed)
		if l.Result == string(round.Unread) {
			unread++
		}
	}
	for _, r := range out.Reports {
		partial = partial || r.Partial
		for _, l := range r.Lines {
			if len(held.asked) > 0 && strings.HasPrefix(l.Why, "unapproved: ") {
				continue // it waits for an approver
			}
			if view.ByPeople(l) {
				partial = true // a person carries it out
				continue
			}
			if l.Result == action.ResultRefused || l.Result == action.ResultOverCap || l.Result == action.ResultFuse || l.Result == action.ResultFrozen {
				refused = cmp.Or(refused, l.Resource.ID+": "+l.Why)
			}
		}
	}
	switch {
	case unread > 0 && unread == requested:
		return &failure{exit: ExitError, code: "unread", err: fmt.Errorf("nothing was fixed: %s", missed[0].Why),
			hint: "give the --assume-role, --profile and --regions of the scan, or scan again"}
	case refused != "":
		return &failure{exit: ExitDenied, code: "refused", err: fmt.Errorf("refused: %s", refused), hint: "docs/safety.md explains every rule"}
	case partial || len(out.BlindSpots) > 0:
		return &failure{exit: ExitPartial}
	case len(held.asked) > 0:
		return &failure{exit: ExitHeld, code: "needs_approval", err: fmt.Errorf("it needs the approval of a second person: %s", strings.Join(held.asked, ", ")),
			hint: "another person runs `curfew approve " + held.asked[0] + "`, then this command goes on"}
	}
	return nil
}
