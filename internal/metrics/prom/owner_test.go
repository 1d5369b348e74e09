package prom

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// TestClaims checks that labels of nodes, running pods and jobs name the owner of a machine, and
// labels of exporters do not.
func TestClaims(t *testing.T) {
	c := newCluster()
	c.add("kube_node_labels",
		`node="ip-10-0-0-1.ec2.internal",label_squad="platform",label_kubernetes_io_arch="amd64"`+
			ksm, 0, 60, 1)
	c.add("gpu_gfx_activity",
		`gpu_id="0",hostname="ip-10-0-0-5.ec2.internal",job_id="8",job_user="ana",app="device-metrics-exporter",team="sre"`,
		50, 60, 7)
	want := map[string]inventory.Claims{
		"i-0": {Tenants: []inventory.Owner{{Team: "vision", Project: "ranking"}}}, // train-0 has completed
		"i-1": {
			Machine: inventory.Owner{Team: "platform"},
			Tenants: []inventory.Owner{{Team: "vision", Project: "ranking"}, {Team: "vision", Project: "ranking"}},
		},
		"i-2": {Tenants: []inventory.Owner{{}, {}}},
		"i-5": {Tenants: []inventory.Owner{{User: "ana"}}},
	}
	for name, start := range servers {
		t.Run(name, func(t *testing.T) {
			s, err := New(Options{Access: Access{URL: start(t, c.series)}})
			if err != nil {
				t.Fatal(err)
			}
			claims, err := s.Claims(t.Context(), fleetOf(6), at.Add(-30*time.Second), inventory.DefaultTagMapping())
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]inventory.Claims{}
			for ref, c := range claims {
				got[ref.ID] = c
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("claims differ (-want +got):\n%s", diff)
			}
		})
	}
}
