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

// findings judges the account over the window of the audit, and adds it up.
func (e *Engine) findings(r *Result, now time.Time) error {
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
		v := duty.Judge(w, machine.GPUs.Or(-1), now, e.Duty)
		explainUnread(&v, r.Unmeasured[res.Ref()])
		r.Verdicts[res.Ref()] = v
	}
	account := &finding.Account{
		Now: now, Resources: r.Resources, Windows: r.Windows, Verdicts: r.Verdicts, Unmeasured: r.Unmeasured,
		Charges: r.Charges, Prices: e.Prices, Rules: e.Audit.Rules, Unread: r.Unread,
		CommitmentsKnown: r.CommitmentsKnown,
		Advice:           r.Advice,
	}
	account.TagsFor = func(res *inventory.Resource) (map[string]string, []string) {
		add, left, _ := e.Audit.Owners.Missing(res, e.Audit.Required, e.Audit.Tags)
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

// requests adds what people want done about findings that hold.
func (e *Engine) requests(r *Result, now time.Time) {
	found := map[string]*finding.Finding{}
	for i := range r.Findings {
		found[r.Findings[i].ID] = &r.Findings[i]
	}
	for _, q := range e.Requests {
		f := found[q.Finding]
		if f == nil {
			r.Gone = append(r.Gone, q)
			continue
		}
		if q.Change.Verb != "" && !q.Change.Equal(f.Fix.Change) {
			r.Changed = append(r.Changed, q)
			continue
		}
		do, ok := policy.Of(f.Fix.Change)
		if !ok {
			r.Manual = append(r.Manual, q)
			continue
		}
		do.ScratchDisks, do.SaveDisks = do.ScratchDisks || q.ScratchDisks, do.SaveDisks || q.SaveDisks
		p := action.Proposal{
			Source: FindingSource(f.ID), Resource: f.Resource, Do: do, Mode: policy.Enforce,
			Notify: q.Notify, Grace: q.Grace,
			Limits: policy.DefaultLimits(), Governed: true, ByPerson: true, Condition: usage.True, ReadAt: now,
			Class: "finding", Because: f.Rule + ": " + f.Because, Evidence: f.Evidence, Duty: e.doing(f, now),
			Hourly: e.subjects[f.Resource.Ref()].hourly,
		}
		r.Proposals = append(r.Proposals, p)
	}
}

// doing is what a finding's resource does at the moment of an audit, by what everything
// does then. One machine of a gang may be ended when the whole gang rests. An endpoint or
// a notebook is judged by its finding, which was judged at that moment by what people
// asked of it; weak evidence is none.
func (e *Engine) doing(f *finding.Finding, now time.Time) *duty.Verdict {
	switch f.Resource.Kind {
	case inventory.KindInstance, inventory.KindTrainingJob:
		return e.subjects[f.Resource.Ref()].does
	case inventory.KindEndpoint, inventory.KindNotebook:
		if f.Confidence == finding.Low {
			return &duty.Verdict{Why: "the evidence is weak: " + f.Because}
		}
		return &duty.Verdict{
			State: duty.Idle, Why: f.Because, Coverage: 1, Evidence: f.Evidence, Until: now,
			Expires: now.Add(verdictFresh),
		}
	}
	return nil
}

// verdictFresh is how long a finding's verdict may be acted on: as long as facts read at
// act time.
const verdictFresh = 5 * time.Minute

// KindsOf returns the kinds that have to be read to judge the findings of requests by the
// general rules and those of a cloud.
func KindsOf(requests []Request, rules []finding.Rule) map[inventory.Kind]bool {
	kinds := map[inventory.Kind]bool{}
	for _, q := range requests {
		kinds[q.Resource.Kind] = true
		for _, k := range finding.Needs(q.Rule, rules) {
			kinds[k] = true
		}
	}
	return kinds
}
