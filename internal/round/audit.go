package round

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// judgeFindings evaluates the rules over the window of the audit, and sums the findings.
func (e *Engine) judgeFindings(r *Result, now time.Time) error {
	r.JudgeWindows(e.Duty)
	account := &finding.Account{
		Now: now, Resources: r.Resources, Windows: r.Windows, Verdicts: r.Verdicts, Unmeasured: r.Unmeasured,
		Charges: r.Charges, Prices: e.Prices, Rules: e.Audit.Rules, Unread: r.Unread,
		CommitmentsKnown: r.CommitmentsKnown,
		Advice:           r.Advice,
		ReadData:         e.Audit.ReadData,
	}
	account.TagsFor = func(res *inventory.Resource) (map[string]string, []string) {
		add, left, _ := e.Audit.Owners.MissingTags(res, e.Audit.Required, e.Audit.Tags)
		return policy.TagValues(add), left
	}
	if e.Audit.Bill != nil {
		account.Bill = &e.Audit.Bill.Bill
	}
	var err error
	if r.Findings, err = finding.Evaluate(account, e.Audit.Thresholds, e.Audit.Required); err != nil {
		return fmt.Errorf("judge the findings: %w", err)
	}
	if r.Totals, err = Sum(r); err != nil {
		return fmt.Errorf("add up the audit: %w", err)
	}
	if e.Audit.Bill != nil {
		r.Billing, err = billing(e.Audit.Bill, r.Totals)
	}
	return err
}

// JudgeWindows sets the verdicts of the running resources over their windows, which the round needs
// Query.Window for.
func (r *Result) JudgeWindows(t duty.Thresholds) {
	r.Verdicts = map[inventory.Ref]duty.Verdict{}
	for _, res := range r.Resources {
		if !res.Kind.Traits().Measured || res.State != inventory.StateRunning {
			continue
		}
		w := r.Windows[res.Ref()]
		machine := duty.MachineOf(res)
		if w != nil && w.GPUMemory == 0 {
			w.GPUMemory = machine.GPUMemory
		}
		if w != nil {
			w.Launched, w.GPUPower = machine.Launched, machine.GPUPower
		}
		v := duty.Judge(w, machine.GPUs.Or(-1), r.StartedAt, t)
		explainUnread(&v, r.Unmeasured[res.Ref()])
		r.Verdicts[res.Ref()] = v
	}
}

// addRequests proposes the requested fixes of findings that still hold.
func (e *Engine) addRequests(r *Result, now time.Time) {
	found := map[string]*finding.Finding{}
	for i := range r.Findings {
		found[r.Findings[i].ID] = &r.Findings[i]
	}
	for _, q := range e.Requests {
		f := found[q.Finding]
		if f == nil {
			r.GoneRequests = append(r.GoneRequests, q)
			continue
		}
		if q.Change.Verb != "" && !q.Change.Equal(f.Fix.Change) {
			r.ChangedRequests = append(r.ChangedRequests, q)
			continue
		}
		do, ok := policy.FromChange(f.Fix.Change)
		if !ok {
			r.ManualRequests = append(r.ManualRequests, q)
			continue
		}
		do.ScratchDisks, do.SaveDisks = do.ScratchDisks || q.ScratchDisks, do.SaveDisks || q.SaveDisks
		p := action.Proposal{
			Source: FindingSource(f.ID), Resource: f.Resource, Do: do, Mode: policy.Enforce,
			Notify: q.Notify, Grace: q.Grace,
			Limits: policy.DefaultLimits(), Governed: true, ByPerson: true, Condition: usage.True, ReadAt: now,
			Class: "finding", Because: f.Rule + ": " + f.Because, Evidence: f.Evidence, Duty: e.findingVerdict(f, now),
			Hourly: e.subjects[f.Resource.Ref()].hourly,
		}
		r.Proposals = append(r.Proposals, p)
	}
}

// findingVerdict returns the current verdict on a finding's resource. A machine of a gang may be
// ended only if the whole gang rests. Endpoints and notebooks have no current verdict but that of
// the finding; weak evidence counts as unknown.
func (e *Engine) findingVerdict(f *finding.Finding, now time.Time) *duty.Verdict {
	switch f.Resource.Kind {
	case inventory.KindInstance, inventory.KindTrainingJob:
		return e.subjects[f.Resource.Ref()].groupVerdict
	case inventory.KindEndpoint, inventory.KindNotebook:
		if f.Confidence == finding.Low {
			return &duty.Verdict{Why: "the evidence is weak: " + f.Because}
		}
		return &duty.Verdict{
			State: duty.Idle, Why: f.Because, Coverage: 1, Evidence: f.Evidence, Until: now,
			Expires: now.Add(verdictValidity),
		}
	}
	return nil
}

// verdictValidity is how long a finding's verdict may be acted on, as long as facts read at act
// time.
const verdictValidity = 5 * time.Minute

// KindsToRead returns the kinds needed to evaluate the findings of requests by the general rules
// and those of a cloud.
func KindsToRead(requests []Request, rules []finding.Rule) map[inventory.Kind]bool {
	kinds := map[inventory.Kind]bool{}
	for _, q := range requests {
		kinds[q.Resource.Kind] = true
		if q.Resource.Kind == inventory.KindInstance { // its disks decide between a stop and an end
			kinds[inventory.KindVolume] = true
		}
		for _, k := range finding.Needs(q.Rule, rules) {
			kinds[k] = true
		}
	}
	return kinds
}
