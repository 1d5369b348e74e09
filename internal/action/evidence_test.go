package action_test

import (
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// meter simulates the agent of a machine with one GPU: its utilization minute by minute, up to a
// time.
type meter struct {
	busy  bool
	until time.Time // zero is to the end
	// gaps leaves every n-th sample out.
	gaps int
}

// verdict judges the samples of the last span.
func (m meter) verdict(now time.Time, span time.Duration) duty.Verdict {
	k := duty.NewTracker(duty.Thresholds{}, usage.Activity{}, span)
	sink := k.Open(usage.SourceInfo{Step: time.Minute, Source: "agent"})
	util, processes := 0.0, 0.0
	if m.busy {
		util, processes = 95, 1
	}
	i := 0
	for at := now.Add(-span); at.Before(now) && (m.until.IsZero() || at.Before(m.until)); at = at.Add(time.Minute) {
		if i++; m.gaps > 0 && i%m.gaps == 0 {
			continue
		}
		for s, v := range map[usage.Signal]float64{
			usage.GPUUtil: util, usage.Processes: processes, usage.CPUUtil: 1, usage.NetBytes: 0,
		} {
			sink.Add("0", s, usage.Point{Time: at, Mean: v, Max: v})
		}
	}
	return k.Explain(now, duty.Machine{GPUs: inventory.Known(1)})
}

// judge makes the world's policy a real one, over real samples: what the tracker and
// the policy's conditions say decides.
func (w *world) judge(t *testing.T, text string, span time.Duration, meters map[string]meter) {
	t.Helper()
	set, err := policy.Parse("test.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pol := set.Policies[0]
	w.wants.Source, w.wants.Do, w.wants.Mode, w.wants.Grace, w.wants.Class = pol.Name, pol.Do,
		pol.Mode, pol.Warn.Grace,
		pol.EvidenceClass()
	verdict := func(r actiontest.Resource, now time.Time) *duty.Verdict {
		var gang []duty.Verdict
		for _, other := range w.cloud.Resources() {
			if other.ID == r.ID ||
				(r.Tags[inventory.TagGang] != "" && other.Tags[inventory.TagGang] == r.Tags[inventory.TagGang]) {
				gang = append(gang, meters[other.ID].verdict(now, span))
			}
		}
		v := gang[0]
		if len(gang) > 1 {
			v = duty.Gang(gang)
		}
		return &v
	}
	w.when = func(r actiontest.Resource, now time.Time) usage.Tristate {
		f := &policy.Facts{Now: now, Resource: r.Inventory(), Duty: verdict(r, now), Hourly: inventory.Known(r.Hourly)}
		f.Resource.Size.GPUs = inventory.Known(1)
		return pol.Evaluate(f).Answer
	}
	w.judged = verdict
}

const idlePolicy = `
apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    where: resource.gpus > 0 && resource.environment != "production"
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: terminate
    mode: enforce
`

const deadMan = `
apiVersion: curfew.policy/v1
policies:
  - name: dead-mans-switch
    select: {kind: instance, lifetime: ephemeral}
    when: resource.age > duration("12h")
    then:
      - warn: {grace: 30m}
      - do: stop
    mode: enforce
`

// TestActsOnMeasuredEvidence: samples, duty, policy and ladder together. The first case acts,
// so that the others mean something.
func TestActsOnMeasuredEvidence(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name   string
		policy string
		span   time.Duration
		meters map[string]meter
		change func(w *world)
		acts   []string
	}{
		{
			name: "an idle machine", policy: idlePolicy, span: 3 * time.Hour, meters: map[string]meter{"i-1": {}},
			acts: []string{"i-1"},
		},
		{name: "a run that is idle as a whole", policy: idlePolicy, span: 3 * time.Hour, change: aGang,
			meters: map[string]meter{}, acts: []string{"i-0", "i-1", "i-2", "i-3", "i-4", "i-5", "i-6", "i-7"}},
		{name: "samples that end 33 h ago and cover 90%", policy: idlePolicy, span: 14 * day,
			meters: map[string]meter{"i-1": {until: start.Add(-33 * time.Hour)}}},
		{
			name: "samples with holes", policy: idlePolicy, span: 3 * time.Hour,
			meters: map[string]meter{"i-1": {gaps: 2}},
		},
		{
			name: "no environment, where it must not be production", policy: idlePolicy, span: 3 * time.Hour,
			meters: map[string]meter{"i-1": {}},
			change: func(w *world) {
				w.cloud.Change("i-1", func(r *actiontest.Resource) { delete(r.Tags, "environment") })
			}},
		{name: "hour 13 of a busy training without a checkpoint", policy: deadMan, span: 3 * time.Hour,
			meters: map[string]meter{"i-1": {busy: true}}},
		{name: "hour 13 of an unmeasured machine", policy: deadMan, span: 3 * time.Hour,
			meters: map[string]meter{"i-1": {until: start.Add(-day)}}},
		{name: "one idle node of a run of eight", policy: idlePolicy, span: 3 * time.Hour, change: aGang,
			meters: map[string]meter{
				"i-0": {busy: true}, "i-1": {busy: true}, "i-2": {busy: true}, "i-4": {busy: true},
				"i-5": {busy: true}, "i-6": {busy: true}, "i-7": {busy: true}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld()
			w.idle("i-1")
			w.judge(t, tc.policy, tc.span, tc.meters)
			if tc.change != nil {
				tc.change(w)
			}
			w.round(t)
			w.rounds(t, 40*time.Minute, 5*time.Minute)
			if got := sorted(w.cloud.Carried("")); !slices.Equal(got, tc.acts) {
				t.Errorf("acted on %v, want %v: %+v", got, tc.acts, w.round(t).Lines)
			}
		})
	}
	t.Run("the example acts", func(t *testing.T) {
		w := newWorld()
		w.idle("i-1")
		w.judge(t, deadMan, 3*time.Hour, map[string]meter{"i-1": {}})
		w.round(t)
		want(t, w.rounds(t, 30*time.Minute, 5*time.Minute), "i-1", action.ResultConfirmed)
	})
}

// aGang puts eight machines into one run.
func aGang(w *world) {
	w.others = 10
	for _, id := range []string{"i-0", "i-1", "i-2", "i-3", "i-4", "i-5", "i-6", "i-7"} {
		r := machine(id)
		r.Tags[inventory.TagGang] = "run-1"
		w.cloud.Put(r)
	}
}
