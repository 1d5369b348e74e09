package prom

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/usage"
)

// TestQueriedMetricsMapToSignals checks that every queried metric maps to a signal and every signal has a
// metric.
func TestQueriedMetricsMapToSignals(t *testing.T) {
	d, err := newDictionary(nil)
	if err != nil {
		t.Fatal(err)
	}
	read := map[usage.Signal]bool{}
	for name := range d {
		s, _, ok := usage.SignalOf(name)
		if !ok {
			t.Errorf("%s stands for no signal", name)
		}
		read[s] = true
	}
	for s := range usage.Signal(usage.SignalCount) {
		if s.PerGPU() && s != usage.Processes && !read[s] {
			t.Errorf("no metric stands for %s", s)
		}
	}
	for _, tc := range []struct {
		name string
		v    float64
		want usage.Signal
		ok   bool
	}{
		{"DCGM_FI_PROF_SM_OCCUPANCY", 0.4, usage.SMOccupancy, true},
		{"DCGM_FI_PROF_SM_OCCUPANCY_RATIO", 0.4, usage.SMOccupancy, true},
		{"DCGM_FI_DEV_SLOWDOWN_TEMP", 90, usage.SlowdownTemperature, true},
		{"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0x60, usage.Throttle, true},
		{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 0x60, usage.Throttle, true},
		{"DCGM_FI_DEV_XID_ERRORS", 79, usage.XID, true},
		{"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 3, usage.ECCErrors, true},
		{"DCGM_FI_DEV_COUNT", 8, usage.GPUCount, true},
		{"DCGM_FI_DEV_XID_ERRORS", 9223372036854775794, usage.XID, false},
		{"DCGM_FI_DEV_SLOWDOWN_TEMP", 2147483632, usage.SlowdownTemperature, false},
	} {
		m := d[tc.name]
		if v, reading := m.Read(tc.v, usage.Device{}); (reading == usage.Valid) != tc.ok || tc.ok &&
			(m.Signal != tc.want || v != tc.v) {
			t.Errorf("%s %v is read as %s %v, %v", tc.name, tc.v, m.Signal, v, reading)
		}
	}
}
