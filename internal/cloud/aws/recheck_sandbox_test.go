package aws_test

import (
	"errors"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/cloud/cloudtest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// TestRecheckOfLadder reads machines again before acting on them.
func TestRecheckOfLadder(t *testing.T) {
	const region = "eu-central-1"
	ladder, err := scratch.SeedLadder(t.Context(), region)
	if err != nil {
		t.Fatal(err)
	}
	environOf(t, scratch)
	c, err := aws.New(t.Context(), aws.Options{Regions: []string{region}, RequestsPerSecond: 10_000, Size: size})
	if err != nil {
		t.Fatal(err)
	}
	read := func(now time.Time, names ...string) *round.Observation {
		t.Helper()
		var refs []inventory.Ref
		for _, n := range names {
			refs = append(refs, ladder.Ref(n))
		}
		scratch.Wire.Recorder.Reset()
		o, err := cloudtest.Recheck(t.Context(), c, refs, round.Query{Now: now, Window: 3 * time.Hour})
		if err != nil || len(o.Resources) != len(names) || len(o.BlindSpots) > 0 {
			t.Fatalf("read %v again: %+v, %v", names, o, err)
		}
		return o
	}
	// CloudWatch lags by a minute or two.
	now := ladder.Now.Add(time.Minute)
	all := []string{
		sandbox.Idle, sandbox.Turning, sandbox.Persistent, sandbox.Protected, sandbox.Exempt, sandbox.Unmeasured,
		sandbox.Stale, sandbox.Grouped, sandbox.Unsaved, sandbox.Busy, sandbox.GangIdle,
	}
	o := read(now, all...)
	if n := scratch.Wire.Recorder.Count("ec2:DescribeInstances"); n != 2 {
		t.Errorf("%d calls to list the machines, want two: the machines and those with the same host name", n)
	}
	if n := scratch.Wire.Recorder.Count("cloudwatch:GetMetricData"); n != 1 {
		t.Errorf("%d calls to measure them, want one", n)
	}
	for _, name := range all {
		w := o.Windows[ladder.Ref(name)]
		if w == nil || !w.To.Equal(now) || w.Step != time.Minute {
			t.Fatalf("%s: the window is %+v, want one up to now by the minute", name, w)
		}
		cpu := w.Machine.Stats(usage.CPUUtil)
		if w.StepOf(cpu) != 5*time.Minute || w.Coverage(cpu) < 0.9 || !w.Fresh(cpu, now) {
			t.Errorf("%s: CPUs are reported by %s, cover %.2f, fresh: %v; want them by 5m, known", name, w.StepOf(cpu),
				w.Coverage(cpu), w.Fresh(cpu, now))
		}
		if name == sandbox.Unmeasured {
			if len(w.GPUs) != 0 {
				t.Errorf("%s: its GPU was measured", name)
			}
			continue
		}
		gpu := w.GPUs[0].Stats(usage.GPUUtil)
		if w.StepOf(gpu) != time.Minute || w.Fresh(gpu, now) == (name == sandbox.Stale) {
			t.Errorf("%s: GPUs are reported by %s, fresh: %v", name, w.StepOf(gpu), w.Fresh(gpu, now))
		}
		if known := w.Coverage(gpu) >= 0.9; known == (name == sandbox.Stale) {
			t.Errorf("%s: samples cover %.2f", name, w.Coverage(gpu))
		}
		if idle := gpu.Max == 0; idle == (name == sandbox.Busy) {
			t.Errorf("%s: its GPU is idle: %v", name, idle)
		}
	}
	for _, r := range o.Resources {
		protected, known := r.Detail.(*inventory.Instance).TerminationProtected.Get()
		if !known || protected != (r.Ref() == ladder.Ref(sandbox.Protected)) {
			t.Errorf("%s is protected: %v, known: %v", r.Name, protected, known)
		}
	}

	// Time passes, and one machine becomes busy in the last minute.
	if err := ladder.Advance(t.Context(), now.Add(9*time.Minute)); err != nil {
		t.Fatal(err)
	}
	ladder.Turn(sandbox.Turning, sandbox.AtWork)
	if err := ladder.Advance(t.Context(), now.Add(10*time.Minute)); err != nil {
		t.Fatal(err)
	}
	o = read(now.Add(10*time.Minute), sandbox.Idle, sandbox.Turning)
	for name, want := range map[string]float64{sandbox.Idle: 0, sandbox.Turning: sandbox.AtWork.GPU} {
		w := o.Windows[ladder.Ref(name)]
		if got, err := w.GPUs[0].Stats(usage.GPUUtil).Newest(); err != nil || got != want {
			t.Errorf("%s: its GPU's newest sample is %v, %v; want %v", name, got, err, want)
		}
	}
	t.Run("what can be done to them", func(t *testing.T) { ladderPlans(t, c, ladder) })
}

// ladderPlans plans to end each machine of a ladder, with only the provider's checks.
func ladderPlans(t *testing.T, c *aws.Cloud, ladder *sandbox.Ladder) {
	a := c.Actions()
	for _, tc := range []struct{ name, stop, terminate string }{
		{
			sandbox.Idle, "", "",
		}, {sandbox.Protected, "", "protected"}, {sandbox.Grouped, "group-member", "group-member"},
		{sandbox.Unsaved, "", "unsaved-disk"},
	} {
		o, err := cloudtest.Recheck(t.Context(), c, []inventory.Ref{ladder.Ref(tc.name)},
			round.Query{Now: ladder.Now, Window: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for verb, rule := range map[policy.Verb]string{policy.Stop: tc.stop, policy.Terminate: tc.terminate} {
			_, err := a.Plan(t.Context(), o.Resources[0], policy.Do{Verb: verb})
			var refused *action.Refusal
			if rule == "" && err != nil || rule != "" && (!errors.As(err, &refused) || refused.Rule != rule) {
				t.Errorf("%s %s: %v, want a refusal by %q", verb, tc.name, err, rule)
			}
		}
	}
}
