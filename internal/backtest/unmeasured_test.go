package backtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/policy"
)

// TestUtilizationThatCannotBeMeasured checks that a GPU whose utilization means nothing makes its
// machine unknown, unless another one works; it never makes it idle.
func TestUtilizationThatCannotBeMeasured(t *testing.T) {
	set, err := policy.Parse("p.yaml", []byte(`apiVersion: curfew.policy/v1
policies:
  - name: idle
    select: {kind: instance}
    when: duty.state == "idle" && duty.lasting >= duration("5m")
    then: [{warn: {notify: [owner], grace: 0s}}, {do: stop}]
`))
	if err != nil {
		t.Fatal(err)
	}
	const minutes = 90
	trace := func(rows ...string) string {
		out := "timestamp,Hostname,gpu,GPU_I_ID,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_FB_USED,DCGM_FI_DEV_FB_FREE\n"
		for i := range minutes {
			for _, row := range rows {
				out += fmt.Sprintf("2026-05-04T%02d:%02d:00Z,%s\n", i/60, i%60, row)
			}
		}
		return out
	}
	for _, tc := range []struct {
		name, in            string
		measured, idle, off float64
		unknown             float64
	}{
		{"instances of one GPU", trace("n,0,1,0,10,9000", "n,0,2,0,10,9000"), 0, 0, 0, 1.5},
		{"and a whole GPU at rest", trace("n,0,1,0,10,9000", "n,1,,0,10,9000"), 0, 0, 0, 1.5},
		{"and a whole GPU that works", trace("n,0,1,0,10,9000", "n,1,,80,10,9000"), 1.5, 0, 0, 0},
		{"whole GPUs at rest", trace("n,0,,0,10,9000", "n,1,,0,10,9000"), 1.5, 1.5, 1.4, 0},
	} {
		p := params(0)
		p.Policies = set
		r, err := Run(context.Background(), strings.NewReader(tc.in), p)
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		for _, got := range r.Results {
			if got.ResourceHours != tc.measured || got.IdleHours != tc.idle || got.UnknownHours < tc.unknown-0.02 ||
				tc.off == 0 && got.ReleasedHours > 0 || got.NetSavedShare != got.NetSavedShare {
				t.Errorf("%s: %s: %v measured, %v idle, %v unknown, %v released", tc.name, got.Name, got.ResourceHours,
					got.IdleHours, got.UnknownHours, got.ReleasedHours)
			}
		}
		if r.Results[0].ReleasedHours < tc.off {
			t.Errorf("%s: the policy released %v hours", tc.name, r.Results[0].ReleasedHours)
		}
	}
}
