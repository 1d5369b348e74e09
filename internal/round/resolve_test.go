package round

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// TestResolveAction: what a policy's action means for one machine.
func TestResolveAction(t *testing.T) {
	scratch := policy.Governance{{Select: policy.Select{Kind: []string{"instance"}}, ScratchInstanceStore: true}}
	once := &inventory.Instance{Market: inventory.Spot, SpotOnce: inventory.Known(true)}
	stop := policy.Do{Verb: policy.Stop, SaveDisks: true}
	for _, tc := range []struct {
		name string
		r    inventory.Resource
		do   policy.Do
		g    policy.Governance
		want policy.Do
	}{
		{"a machine on demand is stopped", inventory.Resource{Detail: &inventory.Instance{}}, stop, nil, stop},
		{
			"one of a one-time spot request is terminated", inventory.Resource{Detail: once}, stop, nil,
			policy.Do{Verb: policy.Terminate, SaveDisks: true},
		},
		{
			"one of a persistent spot request is stopped",
			inventory.Resource{
				Detail: &inventory.Instance{Market: inventory.Spot, SpotOnce: inventory.Known(false)},
			}, stop,
			nil, stop,
		},
		{
			"one of an unknown spot request stays with its verb",
			inventory.Resource{Detail: &inventory.Instance{Market: inventory.Spot}}, stop, nil, stop,
		},
		{
			"governance", inventory.Resource{Detail: &inventory.Instance{}}, stop, scratch,
			policy.Do{Verb: policy.Stop, SaveDisks: true, ScratchInstanceStore: true},
		},
		{
			"the machine's own tag", inventory.Resource{Detail: &inventory.Instance{}, ScratchDisks: true}, stop, nil,
			policy.Do{Verb: policy.Stop, SaveDisks: true, ScratchDisks: true},
		},
		{
			"a notice is a notice", inventory.Resource{Detail: once, ScratchDisks: true},
			policy.Do{Verb: policy.Notify},
			scratch, policy.Do{Verb: policy.Notify},
		},
		{
			"a volume has no disks",
			inventory.Resource{Kind: inventory.KindVolume, Detail: &inventory.Volume{}, ScratchDisks: true},
			policy.Do{Verb: policy.Delete}, scratch, policy.Do{Verb: policy.Delete},
		},
	} {
		if tc.r.Kind == "" {
			tc.r.Kind = inventory.KindInstance
		}
		if diff := cmp.Diff(tc.want, ResolveAction(tc.do, &tc.r, tc.g)); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", tc.name, diff)
		}
	}
}
