package round

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/action/actiontest"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/price"
)

const groupPolicies = `apiVersion: curfew.policy/v1
policies:
  - name: small-at-night
    select: {kind: autoscaling-group, lifetime: ephemeral}
    when: resource.age > duration("1h")
    then:
      - warn: {notify: [owner], grace: 15m}
      - {do: scale, to: 1, scratch_disks: true}
    limits: {per_hour: 100, share: "100%", dollars_per_hour: 1000}
    mode: enforce
`

// TestGroupProposalsUseMemberVerdicts checks that a group of which any machine may end is as busy
// as the busiest of them, and costs as much as the most expensive that may end.
func TestGroupProposalsUseMemberVerdicts(t *testing.T) {
	set, err := policy.Parse("groups.yaml", []byte(groupPolicies))
	if err != nil {
		t.Fatal(err)
	}
	if kinds := set.Kinds(); !kinds[inventory.KindInstance] {
		t.Errorf("the machines of groups are not read: %v", kinds)
	}
	book, err := price.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		busy   string
		lacks  bool // one machine is not seen
		result action.Result
		why    string
	}{
		{"all rest", "", false, action.ResultWarned, ""},
		{"one works", "i-2", false, action.ResultRefused, "busy"},
		{"one is not known", "", true, action.ResultRefused, "i-9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFleet(3)
			f.busy[tc.busy] = true
			g := &inventory.Resource{
				ID: "workers", Kind: inventory.KindAutoScalingGroup, Cloud: "aws", Account: "1",
				Region: f.machines[0].Region,
				State:  inventory.StateAvailable, CreatedAt: now.Add(-90 * 24 * time.Hour),
				Tags:     map[string]string{"owner": "ana"},
				Lifetime: inventory.Ephemeral, Managed: true, Owner: inventory.Owner{User: "ana"},
				Detail: &inventory.AutoScalingGroup{
					Min: 1, Max: 3, Desired: 3, Instances: []string{"i-1", "i-2", "i-3"},
				}}
			if tc.lacks {
				g.Detail.(*inventory.AutoScalingGroup).Instances = []string{"i-1", "i-2", "i-9"}
			}
			f.cloud.Put(actiontest.Resource{ID: g.ID, Kind: g.Kind, Group: "workers", CreatedAt: g.CreatedAt})
			machine := *f.machines[0]
			f.machines = append(f.machines, g)
			out, err := New(f.setting(set, book)).Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			line := out.Reports[0].Lines[0]
			if line.Resource != g.Ref() || line.Result != tc.result || !strings.Contains(line.Why, tc.why) {
				t.Fatalf("got %+v, want %s", line, tc.result)
			}
			if tc.result != action.ResultWarned {
				return
			}
			// Two of three machines end.
			hour, err := book.OnDemand(machine.Type, machine.Region)
			if err != nil {
				t.Fatal(err)
			}
			want, err := hour.Rate.Times(2)
			if err != nil {
				t.Fatal(err)
			}
			if got, known := out.Proposals[0].Hourly.Get(); !known || got.Cents() != want.Cents() {
				t.Errorf("it costs %s an hour, known: %v; want %s", got, known, want)
			}
			// What is verified sees the machines as well.
			f.clock.Advance(20 * time.Minute)
			if out, err = New(f.setting(set, book)).Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := f.cloud.Carried("scale"); len(got) != 1 {
				t.Errorf("carried out %v: %+v", got, out.Reports)
			}
		})
	}
}
