package finding

import (
	"errors"
	"slices"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/inventory"
)

// Rule is one rule for one kind of resource. A rule for several kinds is listed once for each.
type Rule struct {
	ID string
	// About describes the rule for people; if a rule is listed for several kinds, only the first
	// entry has it.
	About About
	Step  Step
	Kind  inventory.Kind
	// Needs are the kinds that must have been listed.
	Needs []inventory.Kind
	// Judge returns a draft, or nil if there is no finding or too little is known.
	Judge func(x *Index, s *Subject) *Draft
}

// About describes a rule for people.
type About struct {
	// Finds names the resources; When is the condition and its threshold with the source.
	Finds, When string
	// Saves is the formula of the savings, Confidence the range of confidence, and Fix the fix and
	// its undo.
	Saves, Confidence, Fix string
}

// All returns the general rules and more, in the order of listings.
func All(more []Rule) []Rule { return slices.Concat([]Rule{tagRule}, rules, more, billRules) }

// rules are the rules for any cloud, in the order of the seven steps.
var rules = []Rule{
	{ID: "telemetry-missing", About: About{
		Finds:      "a running machine with GPUs that nothing measures",
		When:       "no GPU signal, or under 90% of the window covered on any GPU (thresholds.coverage_share)",
		Saves:      "none: its cost is unmeasured, outside of waste",
		Confidence: "high",
		Fix:        "measure: the command that measures it; undo full",
	}, Step: StepMeasure, Kind: inventory.KindInstance, Judge: telemetryMissing},

	{ID: "gpu-instance-idle", About: About{
		Finds: "a running machine whose GPUs are all idle",
		When: "every GPU inactive in over 99% of samples of the window (14 days, or its age from " +
			"thresholds.min_age), under 5% of GPU memory used, CPU peak under 5%, network under 5 MB a day (AWS Compute " +
			"Optimizer; duty.inactive_share, duty.held_memory_pct, duty.idle_cpu_pct)",
		Saves:      "its compute, less commitments that cover it; its disks go on costing",
		Confidence: "high; medium without recorded samples",
		Fix: "stop, terminate or scale its group; undo full, partial with instance-store disks or groups, none " +
			"after terminate",
	}, Step: StepIdle, Kind: inventory.KindInstance, Judge: gpuInstanceIdle},
	{ID: "gpu-held", About: About{
		Finds:      "a running machine whose GPUs compute nothing while memory, a process or a session is held",
		When:       "no GPU active, and GPU memory from 5% on, a process or a session (duty.held_memory_pct)",
		Saves:      "its compute, less commitments that cover it",
		Confidence: "high; medium without recorded samples",
		Fix:        "stop, terminate or scale its group after its owner was asked; undo full, partial or none",
	}, Step: StepIdle, Kind: inventory.KindInstance, Judge: gpuHeld},
	{ID: "instance-idle", About: About{
		Finds: "a running machine without GPUs that does nothing, held by a session or not",
		When: "CPU peak under 5% and network under 5 MB a day in the window (AWS Compute Optimizer; " +
			"duty.idle_cpu_pct, duty.idle_net_mb_per_day)",
		Saves:      "its compute, less commitments that cover it",
		Confidence: "high; medium without recorded samples",
		Fix: "stop, terminate or scale its group, where it is held after its owner was asked; undo full, partial " +
			"or none",
	}, Step: StepIdle, Kind: inventory.KindInstance, Judge: instanceIdle},
	{ID: "endpoint-idle", About: About{
		Finds: "a self-hosted model server that serves nothing",
		When: "a counter of vLLM, SGLang, TGI, llama.cpp, Triton or KServe that covers 14 days without a request, and " +
			"no GPU that computed (thresholds.endpoint_idle); without GPUs only with purpose inference",
		Saves:      "its compute, less commitments that cover it",
		Confidence: "high; medium where its duty is not idle or held",
		Fix:        "stop, terminate or scale its group after its owner was asked; undo full, partial or none",
	}, Step: StepIdle, Kind: inventory.KindInstance, Judge: serverIdle},
	{ID: "training-stalled", About: About{
		Finds: "a stalled training run",
		When: "every GPU at 0% for thresholds.training_stalled after it computed; or no step or checkpoint for " +
			"duty.stalled_after",
		Saves:      "its compute from now on",
		Confidence: "medium by GPU activity; high by its counter of steps",
		Fix:        "stop; undo full, partial with instance-store disks, none for a managed job",
	}, Step: StepIdle, Kind: inventory.KindInstance, Judge: instanceStalled},
	{ID: "training-stalled", Step: StepIdle, Kind: inventory.KindTrainingJob, Judge: jobStalled},
	{ID: "instance-overdue", About: About{
		Finds:      "a transient training machine that runs too long",
		When:       "lifetime ephemeral, purpose training, running for thresholds.overdue_age",
		Saves:      "none: it may be at work",
		Confidence: "high",
		Fix:        "notify while it is at work or unknown, else stop or terminate; undo full, partial or none",
	}, Step: StepIdle, Kind: inventory.KindInstance, Judge: instanceOverdue},
	{ID: "instance-stopped", About: About{
		Finds:      "a stopped machine whose disks go on costing",
		When:       "stopped for thresholds.stopped_age",
		Saves:      "its disks, less the snapshots that remain",
		Confidence: "high",
		Fix:        "snapshot, then terminate; undo partial",
	}, Step: StepIdle, Kind: inventory.KindInstance, Needs: []inventory.Kind{inventory.KindVolume},
		Judge: instanceStopped},
	{ID: "always-on", About: About{
		Finds: "a machine that runs day and night and works by day",
		When: "hours of the week in which it worked in any week of the window, under half of 168 " +
			"(thresholds.always_on_share)",
		Saves:      "its compute in the hours that the schedule stops it",
		Confidence: "medium",
		Fix:        "schedule: stop and start by the week; undo full, partial with instance-store disks",
	}, Step: StepIdle, Kind: inventory.KindInstance, Judge: alwaysOn},
	{ID: "load-balancer-idle", About: About{
		Finds: "a load balancer that serves nothing",
		When: "no target, no healthy target, or under 100 requests a day for 7 days (Trusted Advisor; " +
			"thresholds.load_balancer_requests, thresholds.load_balancer_window)",
		Saves:      "its hourly price and capacity units",
		Confidence: "high; medium with targets or requests",
		Fix:        "delete; undo none",
	}, Step: StepIdle, Kind: inventory.KindLoadBalancer, Judge: loadBalancerIdle},
	{ID: "address-unused", About: About{
		Finds:      "a public address that nothing uses",
		When:       "not associated, or with a stopped machine",
		Saves:      "its hourly price",
		Confidence: "high; medium with a stopped machine",
		Fix:        "release; undo none",
	}, Step: StepIdle, Kind: inventory.KindAddress, Judge: addressUnused},

	{ID: "volume-unattached", About: About{
		Finds:      "an unattached volume",
		When:       "unattached without I/O for 7 days (Trusted Advisor; thresholds.volume_unattached)",
		Saves:      "its storage, less the snapshot; at most its storage where a claim of Kubernetes or a service holds it",
		Confidence: "high",
		Fix:        "snapshot, then delete; undo partial; advise where something manages it",
	}, Step: StepStorage, Kind: inventory.KindVolume, Judge: volumeUnattached},
	{ID: "snapshot-old", About: About{
		Finds: "an old snapshot that no image needs",
		When: "older than thresholds.snapshot_age, no image, launch template or fleet needs it, and neither a lock " +
			"nor AWS Backup holds it",
		Saves:      "its own blocks; an upper bound where later snapshots share them",
		Confidence: "high",
		Fix:        "delete; undo none",
	}, Step: StepStorage, Kind: inventory.KindSnapshot, Needs: []inventory.Kind{
		inventory.KindImage,
	}, Judge: snapshotOld},
	{ID: "image-unused", About: About{
		Finds: "a machine image that nothing uses",
		When: "not launched for thresholds.image_unused, no machine runs from it, and no launch template, " +
			"configuration or fleet names it",
		Saves:      "its snapshots; an upper bound where others share blocks",
		Confidence: "high; medium where the last launch is unknown",
		Fix:        "deregister, and delete its snapshots; undo none",
	}, Step: StepStorage, Kind: inventory.KindImage,
		Needs: []inventory.Kind{inventory.KindInstance, inventory.KindSnapshot}, Judge: imageUnused},

	{ID: "compute-away-from-data", About: About{
		Finds:      "a machine or job whose data is in another region",
		When:       "the tag curfew:data or an input names a bucket of another region",
		Saves:      "unknown: how much it reads is not measured",
		Confidence: "high",
		Fix:        "move; undo full",
	}, Step: StepEgress, Kind: inventory.KindInstance, Judge: instanceAwayFromData},
	{ID: "compute-away-from-data", Step: StepEgress, Kind: inventory.KindTrainingJob, Judge: jobAwayFromData},

	{ID: "training-on-demand", About: About{
		Finds:      "a training machine at the on-demand price",
		When:       "busy, purpose training, not persistent, not on spot",
		Saves:      "on-demand price − spot price × (1 + time lost to restarts), by spot.interruptions_per_hour",
		Confidence: "medium; low where the lifetime is unknown",
		Fix:        "use spot with checkpoints; undo full",
	}, Step: StepSpot, Kind: inventory.KindInstance, Judge: trainingOnDemand},

	{ID: "gpu-count-over", About: About{
		Finds:      "a machine with GPUs that never computed",
		When:       "some GPUs never active in the window while others were",
		Saves:      "price − price of the smallest type that fits; from 10% (thresholds.rightsize_saving_share)",
		Confidence: "high; medium where a signal was not measured",
		Fix:        "change type; undo full, partial with instance-store disks",
	}, Step: StepRightsize, Kind: inventory.KindInstance, Judge: gpuCountOver},
	{ID: "gpu-memory-over", About: About{
		Finds:      "a machine with far more GPU memory than it uses",
		When:       "peak memory + headroom fits a GPU of a smaller size",
		Saves:      "price − price of the cheapest type that fits (thresholds.rightsize_saving_share)",
		Confidence: "high; medium where a signal was not measured",
		Fix:        "change type; undo full, partial with instance-store disks",
	}, Step: StepRightsize, Kind: inventory.KindInstance, Judge: gpuMemoryOver},
	{ID: "gpu-underutilized", About: About{
		Finds:      "a machine that a cheaper type can replace",
		When:       "p95 compute (SM activity, else utilization) and peak memory + headroom fit a cheaper type",
		Saves:      "price − price of the cheapest type that fits (thresholds.rightsize_saving_share)",
		Confidence: "high; medium where a signal was not measured",
		Fix:        "change type; undo full, partial with instance-store disks",
	}, Step: StepRightsize, Kind: inventory.KindInstance, Judge: gpuUnderutilized},
	{ID: "cpu-underutilized", About: About{
		Finds: "a busy machine without GPUs that a cheaper type can replace",
		When: "p95 CPU under 60% over 7 days; p95 CPU (the peak where p95 is under 5%) and peak memory + 20% fit a " +
			"cheaper type that is not older; a burstable type only if its credits last for the peaks (AWS EC2 User " +
			"Guide, baselines)",
		Saves:      "price − price of the cheapest type that fits (thresholds.rightsize_saving_share)",
		Confidence: "high; medium where the type is burstable or a signal was not measured; low on Graviton alone",
		Fix:        "change type, with Graviton as an option; undo full, partial with instance-store disks",
	}, Step: StepRightsize, Kind: inventory.KindInstance, Judge: cpuUnderutilized},
	{ID: "inference-overprovisioned", About: About{
		Finds: "a serving fleet or endpoint that is larger than its load",
		When: "⌈sum of p95 utilization / target⌉ machines are fewer than run; target 70% " +
			"(thresholds.inference_target_pct); 7 days measured",
		Saves:      "price of the machines that are not needed",
		Confidence: "medium; low without 7 days of every member",
		Fix:        "scale to the named count, or a smaller type; undo full, partial with instance-store disks",
	}, Step: StepRightsize, Kind: inventory.KindInstance, Judge: inferenceInstance},
	{ID: "inference-overprovisioned", Step: StepRightsize, Kind: inventory.KindEndpoint, Judge: inferenceEndpoint},
	{ID: "inference-saturated", About: About{
		Finds:      "a serving fleet or endpoint that is too small",
		When:       "p95 utilization over 85%",
		Saves:      "none: more machines cost more",
		Confidence: "high; medium for an endpoint",
		Fix:        "advise: add machines; undo full",
	}, Step: StepRightsize, Kind: inventory.KindInstance, Judge: inferenceSaturated},
	{ID: "inference-saturated", Step: StepRightsize, Kind: inventory.KindEndpoint, Judge: saturatedEndpoint},
	{ID: "autoscaling-sticky", About: About{
		Finds:      "a group that keeps idle machines",
		When:       "idle members while the group wants more than its minimum",
		Saves:      "compute of the idle members, where no earlier finding counts it",
		Confidence: "high; medium where members are unmeasured",
		Fix:        "scale: end the idle members by name; undo partial",
	}, Step: StepRightsize, Kind: inventory.KindAutoScalingGroup,
		Needs: []inventory.Kind{inventory.KindInstance}, Judge: autoscalingSticky},

	{ID: "model-optimize", About: About{
		Finds:      "expensive inference on well used GPUs",
		When:       "mean utilization from 60%, cost from $1,000 a month (thresholds.model_cost_usd)",
		Saves:      "unknown: depends on the model",
		Confidence: "medium",
		Fix:        "advise: batching, 8-bit weights, distillation; undo full",
	}, Step: StepModel, Kind: inventory.KindInstance, Judge: modelOptimize},
	{ID: "model-optimize", Step: StepModel, Kind: inventory.KindEndpoint, Judge: modelOptimize},

	{ID: "generation-old", About: About{
		Finds:      "a machine whose successor does the same work for less",
		When:       "price ÷ dense BF16 TFLOP/s of the successor is lower, its memory fits, same region",
		Saves:      "price − price of the successor, for the same work",
		Confidence: "medium; low where utilization is unmeasured",
		Fix:        "change type; undo full, partial with instance-store disks",
	}, Step: StepCommit, Kind: inventory.KindInstance, Judge: generationOld},
	{ID: "commitment-unused", About: About{
		Finds: "a commitment that covers nothing",
		When: "committed − what running machines of every account can use; with a bill also what the bill " +
			"shows unused",
		Saves:      "none before it ends; unused dollars are waste",
		Confidence: "medium; high by the bill",
		Fix:        "use it: move work under it; undo full",
	}, Step: StepCommit, Kind: inventory.KindCommitment, Needs: []inventory.Kind{inventory.KindInstance},
		Judge: commitmentUnused},
	{ID: "reservation-unused", About: About{
		Finds: "a capacity reservation that is not used",
		When: "unused share over 10% in 7 days (AWS; thresholds.reservation_unused_share, " +
			"thresholds.reservation_window)",
		Saves:      "unused capacity at its price",
		Confidence: "high; medium where use was not measured",
		Fix:        "modify or cancel the reservation; undo none",
	}, Step: StepCommit, Kind: inventory.KindCapacityReservation, Judge: reservationUnused},
}

// Needs returns the other kinds that must have been listed for a rule, general or one of more.
func Needs(id string, more []Rule) []inventory.Kind {
	var out []inventory.Kind
	for _, r := range slices.Concat(rules, more) {
		if r.ID == id {
			out = append(out, r.Needs...)
		}
	}
	return out
}

// tagRule applies to every kind and is run separately.
var tagRule = Rule{ID: "tag-missing", About: About{
	Finds:      "a resource that costs something and lacks owner tags",
	When:       "a tag of required_tags is missing or empty; tags that could not be read are not missing",
	Saves:      "none",
	Confidence: "high",
	Fix:        "write the tags that owners gives; undo full",
}, Step: StepMeasure, Judge: tagMissing}

// billRules apply to a bill instead of resources.
var billRules = []Rule{
	{ID: "egress-cross-region", About: About{
		Finds:      "data sent to other regions",
		When:       "transfer on the bill from $10 a month (thresholds.transfer_usd)",
		Saves:      "unknown; at most its cost",
		Confidence: "medium",
		Fix:        "advise: run it where its data is, or copy the data once; undo full",
	}, Step: StepEgress},
	{ID: "egress-cross-zone", About: About{
		Finds:      "data sent between zones",
		When:       "transfer on the bill from $10 a month (thresholds.transfer_usd)",
		Saves:      "unknown; at most its cost",
		Confidence: "medium",
		Fix:        "advise: keep a run in one zone; undo full",
	}, Step: StepEgress},
	{ID: "egress-internet", About: About{
		Finds:      "data sent to the Internet",
		When:       "transfer on the bill from $10 a month (thresholds.transfer_usd)",
		Saves:      "unknown; at most its cost",
		Confidence: "medium",
		Fix:        "advise: cache, compress; undo full",
	}, Step: StepEgress},
	{ID: "nat-data", About: About{
		Finds:      "data through a NAT gateway",
		When:       "data processing on the bill from $10 a month (thresholds.transfer_usd)",
		Saves:      "unknown; at most its cost",
		Confidence: "medium",
		Fix:        "advise: gateway endpoints for S3 and DynamoDB; undo full",
	}, Step: StepEgress},
	{ID: "download-repeated", About: About{
		Finds:      "a bucket whose content is downloaded again and again",
		When:       "bytes sent ÷ size of the bucket, from 3 a month (thresholds.downloads)",
		Saves:      "unknown; at most its cost",
		Confidence: "medium",
		Fix:        "advise: cache near the readers; undo full",
	}, Step: StepEgress},
	{ID: "commitment-gap", About: About{
		Finds:      "on-demand compute that a commitment could cover",
		When:       "on-demand compute of a region on the bill, from $1,000 a month (thresholds.commitment_gap_usd)",
		Saves:      "unknown: curfew plan commit finds the level",
		Confidence: "low",
		Fix:        "plan: curfew plan commit; undo none",
	}, Step: StepCommit},
	{ID: "commitment-unused", Step: StepCommit},
}

// byKind returns the rules of each kind: the general ones, then more.
func byKind(more []Rule) map[inventory.Kind][]*Rule {
	m := map[inventory.Kind][]*Rule{}
	for _, some := range [][]Rule{rules, more} {
		for i := range some {
			m[some[i].Kind] = append(m[some[i].Kind], &some[i])
		}
	}
	return m
}

// Evaluate runs all rules over an account, counts each dollar once over all findings, and returns
// the findings ranked by dollars. Zero thresholds take their defaults; required are the tags
// required for attribution. The order of resources does not matter. An error means that amounts
// overflowed or an argument is invalid; unknown facts are never an error.
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

// advise replaces a fix by advice for people.
func (d *Draft) advise(a *Advice) {
	note := a.End
	switch d.Fix.Change.Verb {
	case change.Advise, change.Measure:
		d.Fix.Change.Arguments = change.Arguments{} // the arguments are provider-specific
		return
	case change.Tag:
		note = a.Tag
	}
	d.Fix = Fix{
		Change: change.Change{Verb: change.Advise}, Command: d.Fix.Command, Risk: d.Fix.Risk,
		Undo: UndoFull, Note: note,
	}
}

// add adds a draft as a rule's finding about a subject.
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
