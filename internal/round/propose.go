package round

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// evaluate evaluates every policy for the subjects.
func (e *Engine) evaluate(woken []*subject, now time.Time) {
	for _, s := range woken {
		e.gatherFacts(s, now)
		if s.answers == nil {
			s.answers = make([]answer, len(e.Policies.Policies))
		}
		for i, p := range e.Policies.Policies {
			out := p.Evaluate(&s.facts)
			s.answers[i].Tristate, s.answers[i].next = out.Answer, out.Next
			if !e.Uncapped {
				s.answers[i].selected = p.Selects(&s.facts)
			}
		}
	}
}

// gatherFacts collects a subject's facts from the observation, verdict and charges.
func (e *Engine) gatherFacts(s *subject, now time.Time) {
	s.facts.Now, s.facts.Resource = now, s.Resource
	s.facts.Duty, s.facts.Gang, s.facts.Stale = s.groupVerdict, nil, s.maybeIncomplete && s.groupVerdict != nil
	if s.groupVerdict != s.ownVerdict {
		for _, o := range e.gangs[gangOf(s.Resource)] {
			if o != s && o.ownVerdict != nil {
				s.facts.Gang = append(s.facts.Gang, o.ref)
			}
		}
	}
	if e.recheck != nil && s.groupVerdict != nil && now.Before(s.groupVerdict.Until) {
		// So that the answer includes when a longer duration of the state would matter.
		s.extendedVerdict = *s.groupVerdict
		s.extendedVerdict.Until = e.lastsUntil(s)
		s.facts.Duty = &s.extendedVerdict
	}
	s.facts.Progress = e.progress(s)
	if e.watch != nil {
		s.facts.GPUs = e.gauge(s)
	}
	s.facts.Hourly = s.hourly
	if e.AddFacts != nil {
		e.AddFacts(&s.facts)
	}
	if e.chargeFacts != nil {
		e.chargeFacts(&s.facts)
	}
}

// progress returns the progress of a machine's work, in view of the other machines of its run.
func (e *Engine) progress(s *subject) inventory.Fact[duty.Progress] {
	if s.ownVerdict == nil {
		return inventory.Fact[duty.Progress]{}
	}
	p := s.tracker.Progress()
	if s.groupVerdict != s.ownVerdict {
		for _, o := range e.gangs[gangOf(s.Resource)] {
			p = p.Or(o.tracker.Progress())
		}
	}
	return inventory.Known(p)
}

// gauge returns the GPU figures of a judged subject.
func (e *Engine) gauge(s *subject) duty.Gauge {
	if s.ownVerdict == nil {
		return duty.Gauge{}
	}
	return duty.Gauge{Tracker: s.tracker, Machine: duty.MachineOf(s.Resource)}
}

// lastsUntil returns the time until which a state may last, including samples that are known ahead.
func (e *Engine) lastsUntil(s *subject) time.Time {
	end := s.groupVerdict.Until
	for _, o := range s.gang {
		if t := o.tracker.CoveredUntil(); t.After(end) {
			end = t
		}
	}
	if t := s.tracker.CoveredUntil(); t.After(end) {
		end = t
	}
	return end
}

// propose appends the policies' proposals about the subjects. Unread kinds get none.
func (e *Engine) propose(out []action.Proposal, woken []*subject, unread map[string]bool) []action.Proposal {
	for _, s := range woken {
		if unread[s.Account+"/"+s.Region+"/"+string(s.Kind)] {
			continue
		}
		for i, p := range e.Policies.Policies {
			if s.answers[i].Tristate == usage.True {
				out = append(out, e.proposal(s, p))
			}
		}
	}
	slices.SortStableFunc(out, func(a, b action.Proposal) int {
		return cmp.Or(inventory.CompareRefs(a.Resource.Ref(), b.Resource.Ref()), cmp.Compare(a.Source, b.Source))
	})
	return out
}

// isUnknown reports whether the answer of a policy about a resource that is there is unknown.
func (e *Engine) isUnknown(source string, ref inventory.Ref) bool {
	s := e.subjects[ref]
	if s == nil || s.Resource == nil {
		return false
	}
	for i, p := range e.Policies.Policies {
		if p.Name == source {
			return i < len(s.answers) && s.answers[i].Tristate == usage.Unknown
		}
	}
	return false
}

// proposal returns a policy's proposal about a subject.
func (e *Engine) proposal(s *subject, p *policy.Policy) action.Proposal {
	f := &s.facts
	out := action.Proposal{
		Source: p.Name, Resource: s.Resource, Do: ResolveAction(p.Do, s.Resource, e.Governance),
		Mode: p.Mode, Limits: p.Limits,
		Governed: e.Governance.Governs(s.Resource), Gang: f.Gang, Checkpoint: f.Checkpoint,
		Hourly: f.Hourly, Condition: usage.True, ReadAt: f.Now, Class: p.EvidenceClass(), Because: p.When,
	}
	if e.Uncapped {
		out.Limits = policy.Limits{PerHour: math.MaxInt, Share: 1, DollarsPerHour: math.MaxInt64}
	}
	if p.Warn != nil {
		out.Notify, out.Grace = p.Warn.Notify, p.Warn.Grace
	}
	if p.AsksProgress() {
		if spent, known := f.SpentSinceProgress(); known {
			out.Spent = inventory.Known(spent)
		}
	}
	if f.Duty != nil {
		v := *f.Duty
		v.Until = s.groupVerdict.Until // samples known ahead are not observed yet
		out.Duty, out.Evidence = &v, v.Evidence
		switch {
		case !e.verdictOnly && p.UsesFigures():
			for _, part := range p.Explain(f).Parts {
				if part.Name == "where" || part.Name == "when" {
					out.Because = part.Why
				}
			}
		case p.AsksProgress():
			out.Because = f.DescribeProgress()
		case out.Class == policy.ClassDuty:
			out.Because = v.State.String() + ": " + v.Why
		}
	}
	return out
}

// ResolveAction returns a policy's action for one resource: a machine that cannot be stopped is
// terminated instead, and disks are scratch if governance or the machine's tag says so.
func ResolveAction(do policy.Do, r *inventory.Resource, g policy.Governance) policy.Do {
	in, ok := r.Detail.(*inventory.Instance)
	if !ok {
		return do
	}
	switch do.Verb {
	case policy.Stop:
		if in.SpotOnce.Or(false) {
			do.Verb = policy.Terminate
		}
	case policy.Hibernate, policy.Terminate:
	default:
		return do
	}
	do.ScratchInstanceStore = do.ScratchInstanceStore || g.ScratchInstanceStore(r)
	do.ScratchDisks = do.ScratchDisks || r.ScratchDisks
	return do
}

// FindingSource returns the source name of a person's proposals about a finding.
func FindingSource(id string) string { return "finding:" + id }
