package round

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// FindingSource is the source of proposals that a person makes about a finding.
func FindingSource(id string) string { return "finding:" + id }

// Wish is what a person wants done about one finding.
type Wish struct {
	// Finding is the id in full, Rule its rule, Resource what it is about.
	Finding, Rule string
	Resource      inventory.Ref
	Notify        []string
	Grace         time.Duration
	// ScratchDisks and SaveDisks are as in policy.Do.
	ScratchDisks, SaveDisks bool
}

// Remedy is one step up the ladder for fixes that a person asks for.
type Remedy struct {
	// Params say how the account is audited again: the findings have to hold now.
	Params
	Wishes []Wish
	Ladder func(account string) *action.Ladder
	// Now is read again for the verification at act time.
	Now func() time.Time
}

// Outcome is what became of the wishes.
type Outcome struct {
	Reports []action.Report
	// Gone are findings that do not hold any more; Manual are those whose fix nobody
	// carries out but a person.
	Gone, Manual []Wish
	BlindSpots   []inventory.BlindSpot
}

// Apply audits the account again, as far as the findings need it, and hands the
// ladders what still holds. An outcome beside an error holds what was done before it.
func Apply(ctx context.Context, r Remedy) (*Outcome, error) {
	audit, err := r.audit(ctx)
	if err != nil {
		return nil, err
	}
	out := &Outcome{BlindSpots: audit.BlindSpots}
	proposals, manual := r.proposals(audit)
	looks := map[string]*action.Look{}
	var accounts []string
	for _, w := range r.Wishes {
		p, ok := proposals[FindingSource(w.Finding)]
		switch {
		case manual[w.Finding]:
			out.Manual = append(out.Manual, w)
		case !ok:
			out.Gone = append(out.Gone, w)
		}
		account := w.Resource.Cloud + "/" + w.Resource.Account
		look := looks[account]
		if look == nil {
			look = &action.Look{}
			looks[account], accounts = look, append(accounts, account)
		}
		// A warning that was given for what does not hold any more is void.
		look.Sources = append(look.Sources, FindingSource(w.Finding))
		if ok {
			look.Proposals = append(look.Proposals, p)
		}
	}
	for _, account := range accounts {
		ladder := r.Ladder(account)
		ladder.Verify = r.verify
		report, err := ladder.Round(ctx, *looks[account])
		out.Reports = append(out.Reports, report)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// audit reads what the wishes' rules need.
func (r Remedy) audit(ctx context.Context) (*Audit, error) {
	p := r.Params
	p.Query.Now = r.Now().UTC()
	p.Query.Kinds = map[inventory.Kind]bool{}
	for _, w := range r.Wishes {
		p.Query.Kinds[w.Resource.Kind] = true
		for _, k := range finding.Needs(w.Rule) {
			p.Query.Kinds[k] = true
		}
	}
	return Run(ctx, p)
}

// verify audits again and returns what still holds of items.
func (r Remedy) verify(ctx context.Context, items []action.Item) (map[string]action.Proposal, error) {
	audit, err := r.audit(ctx)
	if err != nil {
		return nil, err
	}
	proposals, _ := r.proposals(audit)
	out := map[string]action.Proposal{}
	for _, it := range items {
		if p, ok := proposals[it.Source]; ok {
			out[it.ID] = p
		}
	}
	return out, nil
}

// proposals are the wishes whose findings hold in an audit, by source; manual are
// the findings whose fix no call carries out.
func (r Remedy) proposals(a *Audit) (proposals map[string]action.Proposal, manual map[string]bool) {
	proposals, manual = map[string]action.Proposal{}, map[string]bool{}
	found := map[string]*finding.Finding{}
	for i := range a.Findings {
		found[a.Findings[i].ID] = &a.Findings[i]
	}
	does := present(&a.Observation, r.Prices, nil, r.Duty, a.StartedAt)
	for _, w := range r.Wishes {
		f := found[w.Finding]
		if f == nil {
			continue
		}
		do, ok := r.remedy(f)
		if !ok {
			manual[w.Finding] = true
			continue
		}
		do.ScratchDisks, do.SaveDisks = do.ScratchDisks || w.ScratchDisks, do.SaveDisks || w.SaveDisks
		p := action.Proposal{
			Source: FindingSource(f.ID), Resource: f.Resource, Do: do, Mode: policy.Enforce, Notify: w.Notify, Grace: w.Grace,
			Limits: policy.DefaultLimits(), Governed: true, ByPerson: true, Condition: usage.True, ReadAt: a.StartedAt,
			Class: "finding", Because: f.Rule + ": " + f.Because, Evidence: f.Evidence,
		}
		p.Duty = doing(a, f, does)
		if h, err := hourly(a.Charges[f.Resource.Ref()]); err == nil {
			p.Hourly = h
		}
		if f.Savings.Known {
			p.Saving = inventory.Known(f.Savings.Amount)
		}
		proposals[p.Source] = p
	}
	return proposals, manual
}

// doing is what a finding's resource does at the moment of an audit, by what everything
// does then. One machine of a gang may be ended when the whole gang rests. An endpoint or
// a notebook is judged by its finding, which was judged at that moment by what people
// asked of it; weak evidence is none.
func doing(a *Audit, f *finding.Finding, does map[inventory.Ref]presence) *duty.Verdict {
	switch f.Resource.Kind {
	case inventory.KindInstance, inventory.KindTrainingJob:
		return does[f.Resource.Ref()].duty
	case inventory.KindEndpoint, inventory.KindNotebook:
		if f.Confidence == finding.Low {
			return &duty.Verdict{Why: "the evidence is weak: " + f.Because}
		}
		return &duty.Verdict{State: duty.Idle, Why: f.Because, Coverage: 1, Evidence: f.Evidence, Until: a.StartedAt, Expires: a.StartedAt.Add(verdictFresh)}
	}
	return nil
}

// verdictFresh is how long a finding's verdict may be acted on: as long as facts
// read at act time.
const verdictFresh = 5 * time.Minute

// remedy is the call that a finding's fix stands for; false where only a person can
// carry it out.
func (r Remedy) remedy(f *finding.Finding) (policy.Do, bool) {
	switch kind := f.Resource.Kind; f.Fix.Action {
	case "stop":
		return policy.Do{Verb: policy.Stop}, kind == inventory.KindInstance || kind == inventory.KindNotebook || kind == inventory.KindTrainingJob
	case "terminate":
		return policy.Do{Verb: policy.Terminate}, kind == inventory.KindInstance
	case "snapshot-then-terminate":
		return policy.Do{Verb: policy.Terminate, SaveDisks: true}, kind == inventory.KindInstance
	case "snapshot-then-delete":
		return policy.Do{Verb: policy.Delete}, kind == inventory.KindVolume
	case "delete":
		return policy.Do{Verb: policy.Delete}, kind == inventory.KindNotebook || kind == inventory.KindEndpoint
	case "release":
		return policy.Do{Verb: policy.Release}, kind == inventory.KindAddress
	case "put-retention":
		return policy.Do{Verb: policy.PutRetention, RetentionDays: r.Thresholds.LogRetentionDays}, kind == inventory.KindLogGroup
	case "put-lifecycle", "put-lifecycle-policy":
		return policy.Do{Verb: policy.PutLifecycle}, kind == inventory.KindBucket || kind == inventory.KindRepository
	}
	return policy.Do{}, false
}
