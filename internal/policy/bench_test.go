package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// machines returns a typical fleet: mostly busy machines, some idle, of other kinds or unmeasured.
func machines(now time.Time, n int) []*Facts {
	var out []*Facts
	for i := range n {
		r := &inventory.Resource{
			ID: fmt.Sprintf("i-%d", i), Kind: inventory.KindInstance, Cloud: "aws", Account: "123456789012",
			Region: "us-east-1",
			Type:   "g6.xlarge", State: inventory.StateRunning, CreatedAt: now.Add(-time.Duration(i) * time.Minute),
			StateSince: now.Add(-time.Duration(i) * time.Minute), Tags: map[string]string{
				"team": "vision", "Purpose": "training",
			},
			Owner: inventory.Owner{Team: "vision", User: "ana", Environment: "dev"}, Lifetime: inventory.Ephemeral,
			Purpose: inventory.Training, Detail: &inventory.Instance{Market: inventory.OnDemand},
		}
		r.Size.GPUs = inventory.Known(1)
		f := &Facts{Now: now, Resource: r, Hourly: inventory.Known(money.USD)}
		f.Duty = &duty.Verdict{
			State: duty.Busy, Until: now.Add(time.Minute), Expires: now.Add(2 * time.Minute), Coverage: 1,
			Why: "98% utilization",
		}
		switch i % 5 {
		case 0:
			f.Duty.State, f.Duty.Why = duty.Idle, "0% compute and nothing held"
			f.Duty.Duration, f.Duty.Since = time.Duration(i)*time.Second, now.Add(-time.Duration(i)*time.Second)
		case 1:
			r.Kind, r.Detail, f.Duty = inventory.KindVolume, &inventory.Volume{SizeGiB: 100}, nil
		case 2:
			f.Duty = &duty.Verdict{Why: "nothing was measured"}
		}
		out = append(out, f)
	}
	return out
}

const contractPolicies = `apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    where: resource.gpus > 0 && resource.environment != "production"
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: terminate            # (refused while its disks hold unsaved data) notify | checkpoint | stop | hibernate | terminate | suspend | scale
    limits: {per_hour: 10, share: "20%", dollars_per_hour: 200}
    mode: enforce                # observe (default) | warn | enforce
  - name: dead-mans-switch
    select: {kind: instance, tags: {Purpose: transient-ml-training}}
    when: resource.age > duration("12h")
    then: [{warn: {grace: 30m}}, {do: stop, even_if_busy: true}]
`

// BenchmarkEvaluate evaluates policies over a fleet; the target is 300,000 evaluations a second and
// core.
func BenchmarkEvaluate(b *testing.B) {
	now := time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)
	machines := machines(now, 1000)
	for _, tc := range []struct{ name, when string }{
		{"contract", ""},
		{"age", `resource.age > duration("12h")`},
		{"schedule", `schedule.off && duty.state != "busy" && duty.lasting >= duration("15m")`},
		{"tags", `has(resource.tags.team) && resource.tags.Purpose != "serving" && duty.lasting >= duration("2h")`},
		{"now", `now - resource.last_activity > duration("7d") || lease.expired || budget.state == "over"`},
	} {
		src := contractPolicies
		if tc.when != "" {
			src = "apiVersion: curfew.policy/v1\npolicies:\n  - name: x\n    select: {kind: instance}\n    schedule: " +
				"{timezone: Europe/Berlin, off: [\"Mon-Fri 20:00-07:00\", Sat-Sun], at: [\"Fri 18:00\"]}\n" +
				"    when: '" + tc.when + "'\n    then: [{do: notify}]\n"
		}
		set, err := Parse("bench.yaml", []byte(src))
		if err != nil {
			b.Fatal(err)
		}
		p := set.Policies[0]
		if tc.name != "schedule" {
			p.Schedule = nil
		}
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				p.Evaluate(machines[i%len(machines)])
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "answers/s")
		})
	}
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("bench.yaml", []byte(contractPolicies)); err != nil {
			b.Fatal(err)
		}
	}
}
