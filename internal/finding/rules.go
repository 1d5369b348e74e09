package finding

import (
	"errors"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// rule is one rule: what it is called, which resources it looks at, and what it
// says of one of them.
type rule struct {
	id   string
	step Step
	kind inventory.Kind
	// needs are kinds that must have been listed for an answer.
	needs []inventory.Kind
	// judge returns a draft, or nil where there is nothing to find or not enough is
	// known to find it.
	judge func(x *index, s *subject) *draft
}

// rules are all rules, in the seven steps. A rule that looks at several kinds is
// listed once for each.
var rules = []rule{
	{id: "telemetry-missing", step: StepMeasure, kind: inventory.KindInstance, judge: telemetryMissing},

	{id: "gpu-instance-idle", step: StepIdle, kind: inventory.KindInstance, judge: gpuInstanceIdle},
	{id: "gpu-held", step: StepIdle, kind: inventory.KindInstance, judge: gpuHeld},
	{id: "instance-idle", step: StepIdle, kind: inventory.KindInstance, judge: instanceIdle},
	{id: "training-stalled", step: StepIdle, kind: inventory.KindInstance, judge: instanceStalled},
	{id: "training-stalled", step: StepIdle, kind: inventory.KindTrainingJob, judge: jobStalled},
	{id: "instance-overdue", step: StepIdle, kind: inventory.KindInstance, judge: instanceOverdue},
	{id: "instance-stopped", step: StepIdle, kind: inventory.KindInstance, needs: []inventory.Kind{inventory.KindVolume}, judge: instanceStopped},
	{id: "training-overrun", step: StepIdle, kind: inventory.KindTrainingJob, judge: trainingOverrun},
	{id: "always-on", step: StepIdle, kind: inventory.KindInstance, judge: alwaysOn},
	{id: "endpoint-idle", step: StepIdle, kind: inventory.KindEndpoint, judge: endpointIdle},
	{id: "notebook-idle", step: StepIdle, kind: inventory.KindNotebook, judge: notebookIdle},
	{id: "load-balancer-idle", step: StepIdle, kind: inventory.KindLoadBalancer, judge: loadBalancerIdle},
	{id: "nat-gateway-idle", step: StepIdle, kind: inventory.KindNATGateway, judge: natGatewayIdle},
	{id: "address-unused", step: StepIdle, kind: inventory.KindAddress, judge: addressUnused},

	{id: "volume-unattached", step: StepStorage, kind: inventory.KindVolume, judge: volumeUnattached},
	{id: "volume-gp2", step: StepStorage, kind: inventory.KindVolume, judge: volumeGP2},
	{id: "snapshot-old", step: StepStorage, kind: inventory.KindSnapshot, needs: []inventory.Kind{inventory.KindImage}, judge: snapshotOld},
	{id: "image-unused", step: StepStorage, kind: inventory.KindImage,
		needs: []inventory.Kind{inventory.KindInstance, inventory.KindSnapshot}, judge: imageUnused},
	{id: "bucket-no-lifecycle", step: StepStorage, kind: inventory.KindBucket, judge: bucketNoLifecycle},
	{id: "bucket-multipart", step: StepStorage, kind: inventory.KindBucket, judge: bucketMultipart},
	{id: "bucket-noncurrent", step: StepStorage, kind: inventory.KindBucket, judge: bucketNoncurrent},
	{id: "checkpoint-stale", step: StepStorage, kind: inventory.KindBucket, judge: checkpointStale},
	{id: "log-group-no-retention", step: StepStorage, kind: inventory.KindLogGroup, judge: logGroupNoRetention},
	{id: "repository-no-lifecycle", step: StepStorage, kind: inventory.KindRepository, judge: repositoryNoLifecycle},
	{id: "repository-untagged", step: StepStorage, kind: inventory.KindRepository, judge: repositoryUntagged},

	{id: "compute-away-from-data", step: StepEgress, kind: inventory.KindInstance, judge: instanceAwayFromData},
	{id: "compute-away-from-data", step: StepEgress, kind: inventory.KindTrainingJob, judge: jobAwayFromData},

	{id: "training-on-demand", step: StepSpot, kind: inventory.KindInstance, judge: trainingOnDemand},

	{id: "gpu-count-over", step: StepRightsize, kind: inventory.KindInstance, judge: gpuCountOver},
	{id: "gpu-memory-over", step: StepRightsize, kind: inventory.KindInstance, judge: gpuMemoryOver},
	{id: "gpu-underutilized", step: StepRightsize, kind: inventory.KindInstance, judge: gpuUnderutilized},
	{id: "inference-overprovisioned", step: StepRightsize, kind: inventory.KindInstance, judge: inferenceInstance},
	{id: "inference-overprovisioned", step: StepRightsize, kind: inventory.KindEndpoint, judge: inferenceEndpoint},
	{id: "autoscaling-sticky", step: StepRightsize, kind: inventory.KindAutoScalingGroup,
		needs: []inventory.Kind{inventory.KindInstance}, judge: autoscalingSticky},

	{id: "model-optimize", step: StepModel, kind: inventory.KindInstance, judge: modelOptimize},
	{id: "model-optimize", step: StepModel, kind: inventory.KindEndpoint, judge: modelOptimize},

	{id: "generation-old", step: StepCommit, kind: inventory.KindInstance, judge: generationOld},
	{id: "commitment-unused", step: StepCommit, kind: inventory.KindCommitment, needs: []inventory.Kind{inventory.KindInstance}, judge: commitmentUnused},
	{id: "reservation-unused", step: StepCommit, kind: inventory.KindCapacityReservation, judge: reservationUnused},
}

// Needs returns the kinds beside a resource's own that must have been listed for a
// rule to answer.
func Needs(id string) []inventory.Kind {
	var out []inventory.Kind
	for _, r := range rules {
		if r.id == id {
			out = append(out, r.needs...)
		}
	}
	return out
}

// tagRule looks at every kind and is run apart.
var tagRule = rule{id: "tag-missing", step: StepMeasure, judge: tagMissing}

// billRules look at a bill and not at resources.
var billRules = []rule{
	{id: "egress-cross-region", step: StepEgress},
	{id: "egress-cross-zone", step: StepEgress},
	{id: "egress-internet", step: StepEgress},
	{id: "nat-data", step: StepEgress},
	{id: "download-repeated", step: StepEgress},
	{id: "commitment-gap", step: StepCommit},
	{id: "commitment-unused", step: StepCommit},
}

// byKind holds the rules of each kind, in their order.
var byKind = func() map[inventory.Kind][]*rule {
	m := map[inventory.Kind][]*rule{}
	for i := range rules {
		m[rules[i].kind] = append(m[rules[i].kind], &rules[i])
	}
	return m
}()

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
func (x *index) run(s *subject) {
	if s.State == inventory.StateDeleting {
		return
	}
	x.apply(&tagRule, s)
	kept := s.KeepUntil.After(x.now)
	for _, r := range byKind[s.Kind] {
		if kept && (r.step == StepIdle || r.step == StepStorage) {
			continue
		}
		x.apply(r, s)
	}
}

func (x *index) apply(r *rule, s *subject) {
	for _, k := range r.needs {
		if !x.read(s.Resource, k) {
			return
		}
	}
	d := r.judge(x, s)
	if d == nil || (d.wastes() && s.KeepUntil.After(x.now)) {
		return
	}
	x.add(r.id, r.step, s, d)
}

// advise makes of a fix what people can do.
func (d *draft) advise(a *Advice) {
	note := a.End
	switch d.Fix.Action {
	case "advise", "measure":
		return
	case "tag":
		note = a.Tag
	}
	d.Fix = Fix{Action: "advise", Command: d.Fix.Command, Risk: d.Fix.Risk, Undo: UndoFull, Note: note}
}

// add enters a draft as a rule's finding about a subject.
func (x *index) add(rule string, step Step, s *subject, d *draft) {
	d.Rule, d.Step, d.Resource, d.ID = rule, step, s.Resource, ID(rule, s.ref)
	if a := x.account.Advice; a != nil {
		d.advise(a)
	}
	d.Fix.Note = sentence(d.first, d.Fix.Note)
	if d.Fix.Command == "" {
		d.Fix.Command = "curfew fix " + d.ID[:8]
	}
	x.drafts = append(x.drafts, d)
}
