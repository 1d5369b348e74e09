package policy

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestDisks reads every form of declaring disks.
func TestDisks(t *testing.T) {
	for _, tc := range []struct {
		step string
		want Do
		err  string
	}{
		{
			step: "do: stop, disks: {instance_store: scratch, root: snapshot}",
			want: Do{Verb: Stop, ScratchInstanceStore: true, SaveDisks: true},
		},
		{step: "do: terminate, disks: {root: scratch}", want: Do{Verb: Terminate, ScratchRoot: true}},
		{
			step: "do: terminate, scratch_disks: true, save_disks: true",
			want: Do{Verb: Terminate, ScratchDisks: true, SaveDisks: true},
		},
		{
			step: "do: stop, disks: {instance_store: scratch}, scratch_disks: true",
			err:  "scratch_disks and disks say the same thing",
		},
		{step: "do: stop, disks: {root: snapshot}, save_disks: false", err: "save_disks and disks say the same thing"},
		{step: "do: stop, disks: {instance_store: snapshot}", err: "no snapshot can save instance-store disks"},
		{step: "do: stop, disks: {instance_store: lost}", err: `instance_store "lost" does not exist; it is scratch`},
		{step: "do: stop, disks: {root: keep}", err: "root"},
		{step: "do: stop, disks: {}", err: "disks needs instance_store or root"},
		{step: "do: delete, disks: {root: snapshot}", err: "disks belongs to scale, stop, hibernate or terminate"},
	} {
		set, err := Parse("x.yaml",
			[]byte("apiVersion: curfew.policy/v1\npolicies:\n  - name: p\n    when: 'true'\n    then: [{warn: "+
				"{grace: 1m}}, {"+
				tc.step+"}]\n"))
		switch {
		case tc.err != "":
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q", tc.step, err, tc.err)
			}
		case err != nil:
			t.Errorf("%s: %v", tc.step, err)
		default:
			if diff := cmp.Diff(tc.want, set.Policies[0].Do); diff != "" {
				t.Errorf("%s differs (-want +got):\n%s", tc.step, diff)
			}
		}
	}
}

// TestScratchInstanceStoreOfGovernance checks that an entry applies only to matching machines.
func TestScratchInstanceStoreOfGovernance(t *testing.T) {
	var g Governance
	if err := yaml.Unmarshal(
		[]byte("- {kind: instance, team: vision, instance_store: scratch}\n- {kind: instance, team: speech}\n"),
		&g); err != nil {
		t.Fatal(err)
	}
	for team, want := range map[string]bool{"vision": true, "speech": false, "": false} {
		r := &inventory.Resource{Kind: inventory.KindInstance, Owner: inventory.Owner{Team: team}}
		if got := g.ScratchInstanceStore(r); got != want {
			t.Errorf("team %q: %t, want %t", team, got, want)
		}
	}
	for _, wrong := range []string{"snapshot", "keep"} {
		if yaml.Unmarshal([]byte("- {kind: instance, instance_store: "+wrong+"}\n"), new(Governance)) == nil {
			t.Errorf("instance_store: %s is accepted", wrong)
		}
	}
	if yaml.Unmarshal([]byte("- {instance_store: scratch}\n"), new(Governance)) == nil {
		t.Error("an entry that selects nothing is accepted")
	}
}
