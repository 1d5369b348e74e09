package round

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
)

// TestCounts: for each policy a round says why nothing happened.
func TestCounts(t *testing.T) {
	f := newFleet(9)
	for i, r := range f.machines {
		r.Tags = map[string]string{"team": "vision"}
		r.Owner.Environment = "dev"
		r.ScratchDisks = true
		switch i {
		case 0: // idle, in an unknown environment
			r.Owner.Environment = ""
		case 1, 2:
			f.busy[r.ID] = true
		case 3:
			f.cloud.Change(r.ID, func(r *actiontest.Resource) { r.Protected = true })
		case 4:
			r.KeepUntil = now.Add(days)
		case 5:
			r.Lifetime = inventory.Persistent
		}
	}
	set, err := policy.Parse("why.yaml", []byte(`apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance, lifetime: ephemeral}
    where: resource.environment == "dev"
    when: duty.state == "idle" && duty.lasting >= duration("30m")
    then: [{warn: {notify: [owner], grace: 15m}}, {do: terminate, disks: {instance_store: scratch}}]
    limits: {per_hour: 1, share: "100%", dollars_per_hour: 1000}
    mode: enforce
  - name: expensive
    select: {kind: instance, lifetime: ephemeral}
    when: duty.state == "idle"
    then: [{warn: {notify: [owner], grace: 15m}}, {do: stop, disks: {instance_store: scratch}}]
    limits: {per_hour: 9, share: "100%", dollars_per_hour: 0.01}
    mode: enforce
  - name: volumes
    select: {kind: volume}
    when: '!resource.attached'
    then: [{warn: {notify: [owner], grace: 15m}}, {do: delete}]
    mode: enforce
`))
	if err != nil {
		t.Fatal(err)
	}
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	var last *Result
	for range 2 {
		if last, err = New(f.setting(set, book)).Round(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.clock.Advance(15 * time.Minute)
	}
	want := []PolicyCount{
		{
			Policy: "idle", Selected: 7, True: 5, False: 2, Unknown: map[string]int{
				"where: resource.environment is unknown: no tag says it": 1,
			},
			Refused: map[string]int{"protected": 1, "kept": 1}, Deferred: 2},
		{Policy: "expensive", Selected: 8, True: 6, False: 2, Refused: map[string]int{"kept": 1}, OverCaps: 5},
		{Policy: "volumes"},
	}
	if diff := cmp.Diff(want, last.Counts, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s\n%+v", diff, last.Lines())
	}
}
