package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
)

// fixFlags are the flags of fix.
type fixFlags struct {
	sourceFlags
	enforce, scratch, save, github bool
	grace, output                  string
	undo                           []string
}

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
		if s.Resource.Cloud != "aws" {
			return usageError("curfew fix %s --enforce: it is of the %s account, on which nothing is carried out", s.ID[:8], s.Resource.Cloud)
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
	if err := a.printOutcome(out, missed, held.beside, f.output, fixDocs(chosen, out, held, missed)); err != nil {
		return err
	}
	if broken != nil {
		return daemon.StateError(daemon.CloudError(&cutOff{broken, out.Lines()}))
	}
	return fixExit(out, held, missed, len(requests))
}

// fixExit is the exit code of a fix: what could not be done before what waits.
func fixExit(out *round.Result, held *holding, missed []lineView, requested int) error {
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
				continue // it waits for somebody
			}
			if l.Rule == byPeople {
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

// byPeople is the rule by which a cloud refuses what only people carry out.
const byPeople = "no-such-verb"

func byHandWhy(finding string) string {
	return "only a person carries this fix out; `curfew fix " + finding[:8] + "` shows the commands"
}

func (a *app) printOutcome(out *round.Result, missed []lineView, beside []string, output string, fixes []fixDoc) error {
	lines := []lineView{}
	var next time.Time
	for _, r := range out.Reports {
		for _, l := range r.Lines {
			v := lineOf(l)
			if l.Rule == byPeople {
				v.Result, v.Why = "by-hand", byHandWhy(strings.TrimPrefix(l.Source, round.FindingSource("")))
			}
			lines = append(lines, v)
		}
		if next.IsZero() || (!r.NextAt.IsZero() && r.NextAt.Before(next)) {
			next = r.NextAt
		}
	}
	told := func(w round.Request) bool {
		return slices.ContainsFunc(lines, func(l lineView) bool {
			return l.Policy == round.FindingSource(w.Finding) && l.Result != string(action.ResultWithdrawn)
		})
	}
	for _, w := range out.Changed {
		if !told(w) {
			lines = append(lines, lineView{Resource: w.Resource.String(), Policy: round.FindingSource(w.Finding), Result: "changed",
				Why: "its fix is another one than the last scan showed; run `curfew scan`, then `curfew fix " + w.Finding[:8] + "` again"})
		}
	}
	lines = append(lines, missed...)
	for _, w := range out.Manual {
		lines = append(lines, lineView{Resource: w.Resource.String(), Policy: round.FindingSource(w.Finding), Result: "by-hand",
			Why: byHandWhy(w.Finding)})
	}
	if output == "json" {
		return a.printJSON(map[string]any{"schema": "curfew.fix/v1", "dry_run": false, "fixes": fixes, "lines": lines, "next_at": optionalTime(next), "approvals_asked": append([]string{}, beside...),
			"blind_spots": append([]inventory.BlindSpot{}, out.BlindSpots...)})
	}
	for _, l := range lines {
		due := ""
		if l.DueAt != nil {
			due = "   not before " + plain.When(*l.DueAt, a.Now())
		}
		plain.Fprintf(a.Stdout, "%s   %s %s%s\n    %s\n", l.Result, l.Verb, l.Resource, due, oneLine(l.Why))
		if l.Item != "" {
			plain.Fprintf(a.Stdout, "    curfew audit --item %s\n", l.Item)
		}
	}
	for _, id := range beside {
		plain.Fprintf(a.Stdout, "needs approval: request %s; another person runs `curfew approve %s` while the grace period runs\n", id, id)
	}
	for _, b := range out.BlindSpots {
		plain.Fprintf(a.Stdout, "not seen: %s (%s): %s\n", b.What, b.Why, b.Effect)
	}
	if !next.IsZero() {
		plain.Fprintf(a.Stdout, "next: run the same command again at %s\n", plain.When(next, a.Now()))
	}
	return nil
}
