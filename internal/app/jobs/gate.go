package jobs

import (
	"context"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/job"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/spec"
)

// jobGate implements job.Gate for one person.
type jobGate struct {
	jobs   *Jobs
	person approval.Person
	// decision is the last decision.
	decision *gate.Decision
}

// Admit implements job.Gate.
func (g *jobGate) Admit(ctx context.Context, j *job.Job) (job.Admission, error) {
	a := g.jobs
	sp, err := spec.Parse(j.Name, j.Spec)
	if err != nil {
		return job.Admission{}, err
	}
	e, err := a.EstimateSession(ctx, sp, j.Provider)
	if err != nil {
		return job.Admission{}, err
	}
	e.SpecHash = j.Hash
	if sp.MaxCost > 0 {
		e.P50, e.P95 = min(e.P50, sp.MaxCost), min(e.P95, sp.MaxCost)
	}
	decided, d, err := a.Decide(ctx, e, g.person, j.ID)
	if err != nil {
		return job.Admission{}, err
	}
	g.decision = &d
	admission := job.Admission{Admission: decided}
	if !e.Unpriced() {
		admission.Reserved = e.P95
		if d.Reserved > 0 { // an approver may have allowed less
			admission.Reserved = min(e.P95, d.Reserved)
		}
	}
	if sp.Capacity == spec.Spot || sp.Capacity == spec.Auto {
		onDemand := sp.Clone()
		onDemand.Capacity = spec.OnDemand
		// The price is for comparison alone.
		if pools, err := a.Keeper.Launchers[j.Provider].Pools(ctx, onDemand); err == nil && len(pools) > 0 &&
			pools[0].Rate != nil {
			all := *pools[0].Rate * money.Rate(max(1, sp.Resources.Nodes))
			admission.OnDemandRate = &all
		}
	}
	return admission, nil
}
