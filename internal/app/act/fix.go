package act

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/cloud/sim"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// FixOptions configure how fixes are carried out.
type FixOptions struct {
	clouds.Source
	// Scratch declares that the machine's disks hold nothing that matters, Save saves them first,
	// and GitHub counts the reviews of the workflow's pull request.
	Scratch, Save, GitHub bool
	// Grace is the time between the warning of the owner and the first action.
	Grace time.Duration
}

// FixPreviews returns the fixes of findings, selected by prefixes of their ids, with the refusals
// that are already known.
func FixPreviews(ctx context.Context, req *runtime.Request, ids []string, o FixOptions) ([]view.Fix, error) {
	cfg, err := req.Config()
	if err != nil {
		return nil, err
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	chosen, err := audit.Choose(ctx, cfg, s, ids)
	if err != nil {
		return nil, err
	}
	kept, err := audit.Inventories(ctx, s)
	if err != nil {
		return nil, err
	}
	k := known{cfg: cfg, inventories: kept, now: req.Now().UTC()}
	if k.keeps, err = s.Actions().Keeps(ctx, k.now); err != nil {
		return nil, err
	}
	if k.frozen, err = s.Actions().Frozen(ctx); err != nil {
		return nil, err
	}
	docs := make([]view.Fix, 0, len(chosen))
	for _, c := range chosen {
		d := view.NewFix(c.Finding, c.Scanned, clouds.ByHand(c.Finding))
		d.Refusals = k.refusals(c.Finding, o)
		docs = append(docs, d)
	}
	return docs, nil
}

// Fix takes findings, selected by prefixes of their ids, one step up the ladder. show receives what
// was done, even if the pass ended early.
func Fix(ctx context.Context, req *runtime.Request, ids []string, f FixOptions, show func(view.Fixes) error) error {
	cfg, err := req.Config()
	if err != nil {
		return err
	}
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	chosen, err := audit.Choose(ctx, cfg, s, ids)
	if err != nil {
		return err
	}
	if req.Simulated != nil {
		f.Cloud = sim.CloudName
	}
	var requests []round.Request
	simulated := clouds.Of(f.Cloud).Simulated
	for _, s := range chosen {
		switch cloud := clouds.Of(s.Resource.Cloud); {
		case simulated && !cloud.Simulated:
			return runtime.Invalid(
				"curfew fix %s --enforce --demo: it is a finding of %s, and --demo acts on the simulated account",
				s.ID[:8],
				s.Resource.Cloud)
		case !simulated && cloud.Simulated:
			return runtime.Invalid("curfew fix %s --enforce: it is a finding of the simulated account; add --demo",
				s.ID[:8])
		case !cloud.Fixable:
			return runtime.Invalid("curfew fix %s --enforce: curfew acts on no %s machine", s.ID[:8], s.Resource.Cloud)
		}
		requests = append(requests, round.Request{
			Finding: s.ID, Rule: s.Rule, Resource: audit.RefOf(s.Resource), Notify: []string{"owner"}, Grace: f.Grace,
			Change: s.Fix.Change, ScratchDisks: f.Scratch, SaveDisks: f.Save})
		// All of the scan's regions are read again: a gang may span several.
		for _, region := range append(slices.Clone(s.Regions), s.Resource.Region) {
			if region != "" && !slices.Contains(f.Regions, region) {
				f.Regions = append(f.Regions, region)
			}
		}
	}
	if simulated && req.Simulated == nil {
		return fixSimulated(ctx, req, cfg, chosen, requests, show)
	}
	now, setting, err := fixSetting(ctx, req, &cfg, s, f, chosen)
	if err != nil {
		return err
	}
	held := newApprovalRequests(req, cfg, s, now, chosen)
	if f.GitHub {
		if held.hub, err = fixPull(req, cfg); err != nil {
			return err
		}
	}
	bar := req.Progress(f.Cloud)
	setting.Query = round.Query{
		Window: cfg.Scan.Window, Progress: bar.Report, Kinds: round.KindsToRead(requests, clouds.RulesOf(f.Cloud)),
	}
	if cfg.Thresholds.Interruptions, err = req.Interruptions(cfg); err != nil {
		return err
	}
	if cfg.Thresholds.Advisor, err = req.Advisor(cfg.Spot.Advisor); err != nil {
		return err
	}
	setting.Audit = &round.Audit{
		Thresholds: cfg.Thresholds, Rules: clouds.RulesOf(f.Cloud), Required: cfg.RequiredTags, Owners: cfg.Owners,
		ReadData: cfg.ReadData,
		Tags:     cfg.Tags,
	}
	setting.Requests = requests
	ladders := setting.Ladder
	setting.Ladder = func(account string) *action.Ladder {
		l := ladders(account)
		l.Approve, l.Ask = held.approve, held.early
		return l
	}
	out, err := round.New(setting).Round(ctx)
	bar.Finish()
	if out == nil {
		return runtime.StateError(clouds.CloudError(err))
	}
	broken := err // what was done before the error is still shown
	missed, err := missing(ctx, out, s.Actions())
	if err != nil {
		return err
	}
	doc := view.NewFixes(fixesAfter(chosen, out, held, missed), out, missed, held.meanwhile)
	if err := show(doc); err != nil {
		return err
	}
	if broken != nil {
		return runtime.StateError(clouds.CloudError(runtime.CutShort(broken, out.Lines())))
	}
	return fixExit(out, held, missed, len(requests))
}

// fixSetting returns the clock and the setting of a pass that carries out fixes, with the ladder of
// its account. It adds the rules that govern the account to the configuration.
func fixSetting(ctx context.Context, req *runtime.Request, cfg *config.Config, s *store.Store, f FixOptions,
	chosen []audit.Kept) (now func() time.Time, setting round.Setting, err error) {
	if req.Simulated != nil {
		setting, err = req.Simulated.Setting(*cfg)
		if err != nil {
			return nil, setting, err
		}
		who, err := req.Person(*cfg)
		ladders := setting.Ladder
		setting.Ladder = func(account string) *action.Ladder {
			l := ladders(account)
			l.Actor = who
			return l
		}
		return req.Now, setting, err
	}
	refs := make([]inventory.Ref, 0, len(chosen))
	for _, c := range chosen {
		refs = append(refs, audit.RefOf(c.Resource))
	}
	if err := audit.RestoreAccess(ctx, *cfg, s, &f.Source, refs); err != nil {
		return nil, setting, err
	}
	if *cfg, _, err = req.Governed(ctx, *cfg, s); err != nil {
		return nil, setting, err
	}
	if now, err = req.StateClock(ctx, s); err != nil {
		return nil, setting, err
	}
	if setting, err = clouds.Setting(ctx, req, *cfg, f.Source); err != nil {
		return nil, setting, err
	}
	cloud, ok := setting.Lister.(*clouds.AWS)
	if !ok {
		return nil, setting, runtime.Invalid("--cloud %s: fixes are carried out on real accounts", f.Cloud)
	}
	setting.Ladder, err = clouds.Ladders(req, *cfg, s, sessions.AWSActions(req, *cfg, s, cloud), true)
	return now, setting, err
}

// fixExit returns the exit code of a fix. Failures take precedence over waiting.
func fixExit(out *round.Result, held *approvalRequests, missed []view.Line, requested int) error {
	partial, refused, unread := len(out.ManualRequests)+len(out.ChangedRequests) > 0, "", 0
	for _, l := range missed {
		partial = partial || l.Result == string(round.Unread) || l.Result == string(round.Changed)
		if l.Result == string(round.Unread) {
			unread++
		}
	}
	for _, r := range out.Reports {
		partial = partial || r.Partial
		for _, l := range r.Lines {
			if len(held.asked) > 0 && l.Rule == action.RuleUnapproved {
				continue // it waits for an approver
			}
			if view.ByPeople(l) {
				partial = true // a person carries it out
				continue
			}
			if l.Result == action.ResultRefused || l.Result == action.ResultOverCap || l.Result == action.ResultFuse ||
				l.Result == action.ResultFrozen {
				refused = cmp.Or(refused, l.Resource.ID+": "+l.Why)
			}
		}
	}
	switch {
	case unread > 0 && unread == requested:
		return &runtime.Error{Code: "unread", Err: fmt.Errorf("nothing was fixed: %s", missed[0].Why),
			Hint: "give the --assume-role, --profile and --regions of the scan, or scan again"}
	case refused != "":
		return &runtime.Error{
			Class: runtime.Denied, Code: "refused", Err: fmt.Errorf("refused: %s", refused),
			Hint: "docs/safety.md explains every rule",
		}
	case partial || len(out.BlindSpots) > 0:
		return &runtime.Error{Class: runtime.Partial}
	case len(held.asked) > 0:
		return &runtime.Error{
			Class: runtime.Held, Code: "needs_approval",
			Err: fmt.Errorf("it needs the approval of a second person: %s",
				strings.Join(held.asked, ", ")),
			Hint: "another person runs `curfew approve " + held.asked[0] + "`, then this command goes on"}
	}
	return nil
}

// known is the part of the state that can refuse a fix in a preview. What a machine does and what
// its provider answers is only checked when the fix is carried out.
type known struct {
	cfg         config.Config
	inventories []view.Inventory
	keeps       []action.Keep
	frozen      *action.Freeze
	now         time.Time
}

// refusals returns the refusals of a fix that are known in advance, with the option that lifts all
// of them; saving disks is preferred over losing them.
func (k *known) refusals(f view.Finding, o FixOptions) []view.Refusal {
	if k.frozen != nil && !clouds.Of(f.Resource.Cloud).Simulated {
		return []view.Refusal{{
			Rule: "frozen", Why: "all actions are frozen by " + k.frozen.By + ": " + k.frozen.Reason +
				"; `curfew unfreeze` allows them",
		}}
	}
	out := k.foreseen(f, o)
	if len(out) == 0 || out[0].Rule == view.ByHandRule {
		return out
	}
	for _, option := range []struct {
		flag string
		FixOptions
	}{{"--save-disks", FixOptions{Save: true}}, {"--scratch-disks", FixOptions{Scratch: true}}} {
		if len(k.foreseen(f, option.FixOptions)) == 0 {
			out[0].Unblock = option.flag
			break
		}
	}
	return out
}

// foreseen returns the refusal of a fix by the rules of the ladder.
func (k *known) foreseen(f view.Finding, o FixOptions) []view.Refusal {
	do, carried := policy.FromChange(f.Fix.Change)
	if !carried || !clouds.Of(f.Resource.Cloud).Fixable {
		return []view.Refusal{{Rule: view.ByHandRule, Why: "only a person carries this fix out"}}
	}
	do.ScratchDisks, do.SaveDisks = do.ScratchDisks || o.Scratch, do.SaveDisks || o.Save
	does := duty.Verdict{State: duty.Idle, Until: k.now, Expires: k.now.Add(time.Hour)}
	if kind := inventory.Kind(f.Resource.Kind); f.Confidence == finding.Low &&
		(kind == inventory.KindEndpoint || kind == inventory.KindNotebook) {
		does = duty.Verdict{Why: "the evidence is weak: " + f.Because}
	}
	for i := range k.inventories {
		all := k.inventories[i].Resources
		at := slices.IndexFunc(all, func(r view.KeptResource) bool { return r.Ref == audit.RefOf(f.Resource) })
		if at < 0 {
			continue
		}
		listed := all[at].Priced(k.cfg.Tags)
		if refusal := action.Refuse(action.Proposal{
			Source: round.FindingSource(f.ID), Resource: listed.Resource, Do: do, Mode: policy.Enforce, Governed: true,
			ByPerson:  true,
			Condition: usage.True, ReadAt: k.now, Class: "finding", Grace: time.Minute,
			Duty: &does, Hourly: listed.Hourly},
			action.Item{}, k.now, k.keeps); refusal != nil {
			return []view.Refusal{{Rule: refusal.Rule, Why: refusal.Why}}
		}
	}
	return []view.Refusal{}
}
