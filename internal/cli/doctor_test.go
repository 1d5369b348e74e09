package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/view"
)

// TestDoctorReportsSparseSamples checks the doctor on an hour of minutely samples with holes: stale or sparse
// signals are listed with age and coverage, and the machine has no state.
func TestDoctorReportsSparseSamples(t *testing.T) {
	l := &ladderTest{t: t, dir: t.TempDir(), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	var csv, config strings.Builder
	csv.WriteString("resource,time,gpu,gpu_util,mem_used_bytes,mem_total_bytes,cpu_util,net_bytes\n")
	config.WriteString("machines:\n")
	cases := []struct {
		name     string
		missing  func(minute int) bool // of the last three hours
		state    string
		age      float64 // seconds
		coverage float64
		lacks    string // empty: nothing
	}{
		{"whole", func(int) bool { return false }, "idle", 60, 1, ""},
		{"late", func(i int) bool { return i >= 178 }, "idle", 180, 58. / 60, ""},
		{"old", func(i int) bool {
			return i >= 170
		}, "unknown", 660, 50. / 60,
			"fresh samples of gpu_util, mem_used_bytes, cpu_util, net_bytes: the newest is 11m old"},
		{"gone", func(i int) bool { return i >= 100 }, "unknown", -1, 0, "GPU utilization: its state is unknown"},
		{"hole", func(i int) bool {
			return i >= 140 && i < 160
		}, "idle", 60, 40. / 60,
			"samples of gpu_util, mem_used_bytes, cpu_util, net_bytes: they cover 67% of the window"},
		{"young", func(i int) bool {
			return i < 160
		}, "idle", 60, 20. / 60,
			"samples of gpu_util, mem_used_bytes, cpu_util, net_bytes: they cover 33% of the window"},
	}
	for _, tc := range cases {
		fmt.Fprintf(&config, "  - {name: %s, gpu: H100, gpus: 1, since: 2026-01-15}\n", tc.name)
		for i := range 180 {
			if at := l.now.Add(time.Duration(i-180) * time.Minute).Unix(); !tc.missing(i) {
				fmt.Fprintf(&csv, "%s,%d,0,0,1e6,8e10,,\n%s,%d,,,,,1,100\n", tc.name, at, tc.name, at)
			}
		}
	}
	l.write("curfew.yaml", config.String())
	l.write("usage.csv", csv.String())
	exit, text, errs := l.curfewAny("doctor", "metrics", "--cloud", "onprem", "--usage", "usage.csv", "--step", "60s",
		"-o", "json")
	var d view.Doctor
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(exit, errs, err)
	}
	found := map[string]view.DoctorMachine{}
	for _, m := range d.Machines {
		found[m.ID] = m
	}
	for _, tc := range cases {
		m := found[tc.name]
		age, coverage := -1.0, 0.0
		for i, s := range m.Signals {
			if i == 0 {
				age, coverage = s.AgeSeconds, s.Coverage
			}
			if s.AgeSeconds != age || s.Coverage != coverage {
				t.Errorf("%s: signals differ: %+v", tc.name, m.Signals)
			}
		}
		if m.Now.State != tc.state || age != tc.age || math.Abs(coverage-tc.coverage) > 0.001 {
			t.Errorf("%s is %s (%s), its newest sample is %v s old and covers %v; want %s, %v, %v",
				tc.name, m.Now.State, m.Now.Why,
				age, coverage, tc.state, tc.age, tc.coverage)
		}
		lacks := ""
		for _, x := range m.Missing {
			if !x.Optional {
				lacks += x.What + ": " + x.Effect + "; "
			}
		}
		if (tc.lacks == "") != (lacks == "") || !strings.Contains(lacks, tc.lacks) {
			t.Errorf("%s lacks %q, want %q", tc.name, lacks, tc.lacks)
		}
	}
}
