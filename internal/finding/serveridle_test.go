package finding

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestServersWithoutRequests judges machines with a model server by its counter of requests: only one that
// covers the window and never rose finds anything.
func TestServersWithoutRequests(t *testing.T) {
	once := func(at time.Time) float64 {
		if at.Equal(ago(6 * day)) {
			return 1
		}
		return 0
	}
	for _, tc := range []struct {
		name string
		// requests counts them; nil is a machine without such a metric.
		requests func(time.Time) float64
		util     float64
		age      time.Duration
		machine  string
		purpose  inventory.Purpose
		want     string
	}{
		{"never asked, with its model in memory", always(0), 0, 60 * day, "g5.xlarge", "", "endpoint-idle i-1"},
		{"asked once", once, 0, 60 * day, "g5.xlarge", "", "gpu-held i-1"},
		{"no counter", nil, 0, 60 * day, "g5.xlarge", "", "gpu-held i-1"},
		{"a counter that was silent for three days", func(at time.Time) float64 {
			if at.After(ago(6*day)) && at.Before(ago(3*day)) {
				return -1
			}
			return 0
		}, 0, 60 * day, "g5.xlarge", "", "gpu-held i-1"},
		{"a counter that ended yesterday", func(at time.Time) float64 {
			if at.After(ago(day)) {
				return -1
			}
			return 0
		}, 0, 60 * day, "g5.xlarge", "", "gpu-held i-1"},
		{"a GPU that computes", always(0), 40, 60 * day, "g5.xlarge", "", ""},
		{"launched last week", always(0), 0, 7 * day, "g5.xlarge", "", "gpu-held i-1"},
		{"without GPUs, of unknown purpose", always(0), 0, 60 * day, "m5.large", "", ""},
		{"without GPUs, for inference", always(0), 0, 60 * day, "m5.large", inventory.Inference, "endpoint-idle i-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFixture(t)
			f.judge = true
			r := f.running("i-1", tc.machine, func(r *inventory.Resource, _ *inventory.Instance) {
				r.CreatedAt, r.Purpose = ago(tc.age), tc.purpose
			})
			w := f.window(r, 14*day)
			if tc.machine != "m5.large" {
				series(w, "0", usage.GPUUtil, always(tc.util))
				series(w, "0", usage.MemUsed, always(20<<30))
				series(w, "0", usage.MemTotal, always(24<<30))
			}
			series(w, "", usage.CPUUtil, always(30))
			series(w, "", usage.NetBytes, always(1e6))
			if tc.requests != nil {
				series(w, "", usage.Requests, tc.requests)
			}
			got := ""
			for _, d := range f.evaluate() {
				if d.Step == StepIdle && d.Savings.Amount > 0 {
					got += d.Rule + " " + d.Resource.ID
				}
				if d.Rule == "endpoint-idle" && d.Evidence[0].Signal != "requests" {
					t.Errorf("evidence %+v", d.Evidence)
				}
			}
			if got != tc.want {
				t.Errorf("finds %q, want %q", got, tc.want)
			}
		})
	}
}
