package round

import (
	"slices"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// completeGroupProposals fills the duty and the savings of proposals to shrink groups. The duty is
// that of the machines that may end, and the savings at most the cost of the most expensive ones.
// If the group chooses the machines, any of them may end.
func (e *Engine) completeGroupProposals(proposals []action.Proposal) {
	for i := range proposals {
		p := &proposals[i]
		g, ok := p.Resource.Detail.(*inventory.AutoScalingGroup)
		if !ok || p.Do.Verb != policy.Scale {
			continue
		}
		ids, ends := p.Do.Members, len(p.Do.Members)
		if ends == 0 {
			ids, ends = g.Instances, int(max(0, g.Desired-int64(p.Do.To)))
		}
		var verdicts []duty.Verdict
		var costs []money.Amount
		for _, id := range ids {
			s := e.subjects[memberOf(p.Resource.Ref(), id)]
			if s == nil || s.groupVerdict == nil {
				verdicts = append(verdicts, duty.Verdict{Why: "the duty of its machine " + id + " is unknown"})
				continue
			}
			verdicts = append(verdicts, *s.groupVerdict)
			if hour, known := s.hourly.Get(); known {
				costs = append(costs, hour)
			}
		}
		if len(verdicts) > 0 {
			whole := duty.Gang(verdicts)
			p.Duty = &whole
		}
		p.Hourly = inventory.Fact[money.Amount]{}
		if len(costs) == len(ids) {
			p.Hourly = highestSum(costs, ends)
		}
	}
}

// highestSum returns the sum of the n highest amounts; unknown on overflow.
func highestSum(costs []money.Amount, n int) inventory.Fact[money.Amount] {
	slices.Sort(costs)
	var sum money.Amount
	for _, c := range costs[max(0, len(costs)-n):] {
		var err error
		if sum, err = sum.Add(c); err != nil {
			return inventory.Fact[money.Amount]{}
		}
	}
	return inventory.Known(sum)
}

// memberOf returns the reference of a machine in a group.
func memberOf(group inventory.Ref, id string) inventory.Ref {
	group.Kind, group.ID = inventory.KindInstance, id
	return group
}

// membersOf returns the machines of a group that an item shrinks; nil for other items.
func (e *Engine) membersOf(it action.Item) []inventory.Ref {
	s := e.subjects[it.Ref]
	if s == nil || it.Do.Verb != policy.Scale {
		return nil
	}
	g, ok := s.Detail.(*inventory.AutoScalingGroup)
	if !ok {
		return nil
	}
	var refs []inventory.Ref
	for _, id := range g.Instances {
		refs = append(refs, memberOf(it.Ref, id))
	}
	return refs
}
