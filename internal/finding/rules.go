package finding

import (
	"errors"
	"slices"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// Rule is one rule: what it is called, which resources it looks at, and what it
// says of one of them. A rule that looks at several kinds is listed once for each.
type Rule struct {
	ID   string
	Step Step
	Kind inventory.Kind
	// Needs are kinds that must have been listed for an answer.
	Needs []inventory.Kind
	// Judge returns a draft, or nil where there is nothing to find or not enough is
	// known to find it.
	Judge func(x *Index, s *Subject) *Draft
}

// rules are those that hold in any cloud, in the seven steps.
var rules = []Rule{
	{ID: "telemetry-missing", Step: StepMeasure, Kind: inventory.KindInstance, Judge: telemetryMissing},

	{ID: "gpu-instance-idle", Step: StepIdle, Kind: inventory.KindInstance, Judge: gpuInstanceIdle},
	{ID: "gpu-held", Step: StepIdle, Kind: inventory.KindInstance, Judge: gpuHeld},
	{ID: "instance-idle", Step: StepIdle, Kind: inventory.KindInstance, Judge: instanceIdle},
	{ID: "training-stalled", Step: StepIdle, Kind: inventory.KindInstance, Judge: instanceStalled},
	{ID: "training-stalled", Step: StepIdle, Kind: inventory.KindTrainingJob, Judge: jobStalled},
	{ID: "instance-overdue", Step: StepIdle, Kind: inventory.KindInstance, Judge: instanceOverdue},
	{ID: "instance-stopped", Step: StepIdle, Kind: inventory.KindInstance, Needs: []inventory.Kind{inventory.KindVolume}, Judge: instanceStopped},
	{ID: "always-on", Step: StepIdle, Kind: inventory.KindInstance, Judge: alwaysOn},
	{ID: "load-balancer-idle", Step: StepIdle, Kind: inventory.KindLoadBalancer, Judge: loadBalancerIdle},
	{ID: "address-unused", Step: StepIdle, Kind: inventory.KindAddress, Judge: addressUnused},

	{ID: "volume-unattached", Step: StepStorage, Kind: inventory.KindVolume, Judge: volumeUnattached},
	{ID: "snapshot-old", Step: StepStorage, Kind: inventory.KindSnapshot, Needs: []inventory.Kind{inventory.KindImage}, Judge: snapshotOld},
	{ID: "image-unused", Step: StepStorage, Kind: inventory.KindImage,
		Needs: []inventory.Kind{inventory.KindInstance, inventory.KindSnapshot}, Judge: imageUnused},

	{ID: "compute-away-from-data", Step: StepEgress, Kind: inventory.KindInstance, Judge: instanceAwayFromData},
	{ID: "compute-away-from-data", Step: StepEgress, Kind: inventory.KindTrainingJob, Judge: jobAwayFromData},

	{ID: "training-on-demand", Step: StepSpot, Kind: inventory.KindInstance, Judge: trainingOnDemand},

	{ID: "gpu-count-over", Step: StepRightsize, Kind: inventory.KindInstance, Judge: gpuCountOver},
	{ID: "gpu-memory-over", Step: StepRightsize, Kind: inventory.KindInstance, Judge: gpuMemoryOver},
	{ID: "gpu-underutilized", Step: StepRightsize, Kind: inventory.KindInstance, Judge: gpuUnderutilized},
	{ID: "inference-overprovisioned", Step: StepRightsize, Kind: inventory.KindInstance, Judge: inferenceInstance},
	{ID: "inference-overprovisioned", Step: StepRightsize, Kind: inventory.KindEndpoint, Judge: inferenceEndpoint},
	{ID: "inference-saturated", Step: StepRightsize, Kind: inventory.KindInstance, Judge: inferenceSaturated},
	{ID: "inference-saturated", Step: StepRightsize, Kind: inventory.KindEndpoint, Judge: saturatedEndpoint},
	{ID: "autoscaling-sticky", Step: StepRightsize, Kind: inventory.KindAutoScalingGroup,
		Needs: []inventory.Kind{inventory.KindInstance}, Judge: autoscalingSticky},

	{ID: "model-optimize", Step: StepModel, Kind: inventory.KindInstance, Judge: modelOptimize},
	{ID: "model-optimize", Step: StepModel, Kind: inventory.KindEndpoint, Judge: modelOptimize},

	{ID: "generation-old", Step: StepCommit, Kind: inventory.KindInstance, Judge: generationOld},
	{ID: "commitment-unused", Step: StepCommit, Kind: inventory.KindCommitment, Needs: []inventory.Kind{inventory.KindInstance}, Judge: commitmentUnused},
	{ID: "reservation-unused", Step: StepCommit, Kind: inventory.KindCapacityReservation, Judge: reservationUnused},
}

// Needs returns the kinds other than a resource's own that must have been listed for a
// rule to answer, be it a general one or one of more.
func Needs(id string, more []Rule) []inventory.Kind {
	var out []inventory.Kind
	for _, r := range slices.Concat(rules, more) {
		if r.ID == id {
			out = append(out, r.Needs...)
		}
	}
	return out
}

// tagRule looks at every kind and is run apart.
var tagRule = Rule{ID: "tag-missing", Step: StepMeasure, Judge: tagMissing}

// billRules look at a bill and not at resources.
var billRules = []Rule{
	{ID: "egress-cross-region", Step: StepEgress},
	{ID: "egress-cross-zone", Step: StepEgress},
	{ID: "egress-internet", Step: StepEgress},
	{ID: "nat-data", Step: StepEgress},
	{ID: "download-repeated", Step: StepEgress},
	{ID: "commitment-gap", Step: StepCommit},
	{ID: "commitment-unused", Step: StepCommit},
}

// byKind are the rules of each kind: the general ones, then more.
func byKind(more []Rule) map[inventory.Kind][]*Rule {
	m := map[inventory.Kind][]*Rule{}
	for _, some := range [][]Rule{rules, more} {
		for i := range some {
			m[some[i].Kind] = append(m[some[i].Kind], &some[i])
		}
	}
	return m
}

// Evaluate runs all rules over an account, counts each dollar once over all
// findings, and returns the findings ranked by dollars. Thresholds that are zero
// take their defaults; required are the tags without which spend cannot be
// attributed. The order of the account's resources has no influence. An error
// means that amounts overflowed or that an argument is unusable; what is not known
// is never an error.
func Evaluate(a *Account, t Thresholds, required []string) ([]Finding, error) {
	if a == nil || a.Now.IsZero() {
		return nil, errors.New("judge an account: it has no time to judge at")
	}
	t, err := t.withDefaults()
	if err != nil {
		return nil, err
	}
	x := newIndex(a, t, required)
	for i := range x.subjects {
		x.run(&x.subjects[i])
	}
	if a.Bill != nil {
		x.billed(a.Bill)
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := x.settle(); err != nil {
		return nil, err
	}
	return rank(x.drafts), nil
}

// run runs the rules of a resource's kind over it.
func (x *Index) run(s *Subject) {
	if s.State == inventory.StateDeleting {
		return
	}
	x.apply(&tagRule, s)
	kept := s.KeepUntil.After(x.Now)
	for _, r := range x.byKind[s.Kind] {
		if kept && (r.Step == StepIdle || r.Step == StepStorage) {
			continue
		}
		x.apply(r, s)
	}
}

func (x *Index) apply(r *Rule, s *Subject) {
	for _, k := range r.Needs {
		if !x.read(s.Resource, k) {
			return
		}
	}
	d := r.Judge(x, s)
	if d == nil || (d.wastes() && s.KeepUntil.After(x.Now)) {
		return
	}
	x.add(r.ID, r.Step, s, d)
}

// advise makes of a fix what people can do.
func (d *Draft) advise(a *Advice) {
	note := a.End
	switch d.Fix.Change.Verb {
	case change.Advise, change.Measure:
		d.Fix.Change.Arguments = change.Arguments{} // they are a provider's
		return
	case change.Tag:
		note = a.Tag
	}
	d.Fix = Fix{Change: change.Change{Verb: change.Advise}, Command: d.Fix.Command, Risk: d.Fix.Risk, Undo: UndoFull, Note: note}
}

// add enters a draft as a rule's finding about a subject.
func (x *Index) add(rule string, step Step, s *Subject, d *Draft) {
	d.Rule, d.Step, d.Resource, d.ID = rule, step, s.Resource, ID(rule, s.ref)
	if a := x.account.Advice; a != nil {
		d.advise(a)
	}
	d.Fix.Note = Sentence(d.first, d.Fix.Note)
	if d.Fix.Command == "" {
		d.Fix.Command = "curfew fix " + d.ID[:8]
	}
	x.drafts = append(x.drafts, d)
}
