package finding

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// host gives a machine without GPUs a window of CPU and memory utilization in percent.
func (f *fixture) host(r *inventory.Resource, cpu, memory float64) *inventory.Resource {
	w := f.window(r, 14*day)
	series(w, "", usage.CPUUtil, always(cpu))
	series(w, "", usage.NetBytes, always(1e9))
	series(w, "", usage.HostMemUsed, always(memory))
	return f.is(r, duty.Busy)
}

// TestCPUMachinesAreRightsized checks that an idle machine yields one finding without a size, and a
// busy oversized one a size, with Graviton as an option and its work.
func TestCPUMachinesAreRightsized(t *testing.T) {
	for name, tc := range map[string]struct {
		build func(f *fixture)
		rules string
		check func(f Finding) bool
	}{
		"busy and too large": {
			func(f *fixture) { f.host(f.running("i-1", "m6i.4xlarge"), 20, 20) }, "cpu-underutilized",
			func(f Finding) bool {
				return f.Fix.Change.Verb == change.ChangeType && f.Fix.Change.Arguments.Type == "m6a.xlarge" &&
					f.Savings.Known && f.Savings.Amount > 0 && strings.Contains(f.Fix.Note, "(Graviton) costs") &&
					strings.Contains(f.Fix.Note, gravitonWork)
			},
		},
		"well used":   {func(f *fixture) { f.host(f.running("i-1", "m6i.4xlarge"), 80, 20) }, "", nil},
		"right sized": {func(f *fixture) { f.host(f.running("i-1", "t4g.nano"), 4, 20) }, "", nil},
		"at rest": {
			func(f *fixture) { f.is(f.host(f.running("i-1", "m6i.4xlarge"), 0.5, 20), duty.Idle) }, "instance-idle",
			nil,
		},
		"unknown": {
			func(f *fixture) { f.is(f.host(f.running("i-1", "m6i.4xlarge"), 20, 20), duty.Unknown) }, "", nil,
		},
		"three days measured": {
			func(f *fixture) {
				r := f.host(f.running("i-1", "m6i.4xlarge"), 20, 20)
				series(f.window(r, 3*day), "", usage.CPUUtil, always(20))
			}, "", nil,
		},
		"only Graviton is cheaper": {
			func(f *fixture) { f.host(f.running("i-1", "i4i.large"), 30, 25) }, "cpu-underutilized",
			func(f Finding) bool {
				return f.Fix.Change.Verb == change.Advise && !f.Savings.Known && f.Savings.UpperBound > 0 &&
					strings.Contains(f.Fix.Note, gravitonWork)
			},
		},
		"moves to spot first": {
			func(f *fixture) {
				f.host(f.running("i-1", "m6i.4xlarge", func(r *inventory.Resource, _ *inventory.Instance) {
					r.Purpose, r.Lifetime = inventory.Training, inventory.Ephemeral
				}), 20, 20)
			}, "cpu-underutilized", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			tc.build(f)
			var rules []string
			for _, found := range f.evaluate() {
				if found.Rule != "cpu-underutilized" && found.Rule != "instance-idle" {
					continue
				}
				rules = append(rules, found.Rule)
				if tc.check != nil && !tc.check(found) {
					t.Errorf("%+v", found)
				}
			}
			if got := strings.Join(rules, " "); got != tc.rules {
				t.Errorf("found %q, want %q", got, tc.rules)
			}
		})
	}
}
