package cli

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/view"
)

// randomFleet is a list of machines on premises with recorded usage.
type randomFleet struct {
	names []string
	// steady are the machines that do the same all along, by the category of their cost.
	steady map[string]string
	config strings.Builder
	usage  strings.Builder
}

// newRandomFleet returns machines that work, rest, hold memory, alternate, fall silent or were never
// measured, by chance.
func newRandomFleet(rng *rand.Rand, now time.Time, n int) *randomFleet {
	f := &randomFleet{steady: map[string]string{}}
	f.config.WriteString("required_tags: [team]\nscan: {window: 30h}\nrates:\n  gpu_hour: {H100-80GB: 2.10, L4-24GB: 0.5}\n  vcpu_hour: 0.01\n" +
		"  memory_gib_hour: 0.0025\n  source: finance\n  as_of: 2026-01-01\nmachines:\n")
	f.usage.WriteString("resource,time,gpu,gpu_util,mem_used_bytes,cpu_util,net_bytes\n")
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		f.names = append(f.names, name)
		gpus := rng.IntN(4)
		purpose := []string{"training", "inference", "evaluation", "experimentation"}[rng.IntN(4)]
		size := ""
		if gpus > 0 {
			size = fmt.Sprintf("gpu: %s, gpus: %d, ", []string{"H100-80GB", "L4-24GB"}[rng.IntN(2)], gpus)
		}
		fmt.Fprintf(&f.config, "  - {name: %s, %svcpus: 32, memory_gib: 256, site: fra-1, since: 2026-01-15, tags: "+
			"{team: vision, purpose: %s, lifetime: ephemeral}}\n", name, size, purpose)
		f.record(rng, name, gpus, now)
	}
	return f
}

// record writes two days of samples of a machine.
func (f *randomFleet) record(rng *rand.Rand, name string, gpus int, now time.Time) {
	if rng.IntN(8) == 0 {
		f.steady[name] = "unmeasured"
		return
	}
	kind, change := rng.IntN(7), time.Duration(rng.IntN(40))*time.Hour
	end := now
	if rng.IntN(6) == 0 {
		end = now.Add(-time.Duration(rng.IntN(20)) * time.Hour) // it fell silent
	} else if kind == 0 {
		f.steady[name] = "used"
	} else if kind == 1 || kind > 4 {
		f.steady[name] = "wasted"
	}
	for t := now.Add(-48 * time.Hour); t.Before(end); t = t.Add(5 * time.Minute) {
		busy, held := kind == 0, kind == 1
		switch kind {
		case 2: // it began or ceased to work
			busy = t.Before(now.Add(-change))
		case 3:
			busy = t.After(now.Add(-change))
		case 4: // bursts; machines of the other kinds rest
			busy = rng.IntN(6) == 0
		}
		util, memory, cpu := 0, "0", 1
		if busy {
			util, cpu = 50+rng.IntN(50), 20+rng.IntN(60)
		}
		if busy || held {
			memory = "20e9"
		}
		for g := range max(1, gpus) {
			if gpus == 0 {
				fmt.Fprintf(&f.usage, "%s,%d,,,,%d,0\n", name, t.Unix(), cpu)
				continue
			}
			fmt.Fprintf(&f.usage, "%s,%d,%d,%d,%s,%d,0\n", name, t.Unix(), g, util, memory, cpu)
		}
	}
}

// TestCommandsAgreeOnRandomFleets compares what scan, doctor metrics, policy explain, plan rightsize, plan
// capacity and costs say of each machine of random fleets.
func TestCommandsAgreeOnRandomFleets(t *testing.T) {
	seed := rand.Uint64()
	for i := range uint64(4) {
		t.Run(fmt.Sprintf("%d+%d", seed, i), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, i))
			d := newDesktop(t)
			d.now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
			f := newRandomFleet(rng, d.now.Add(time.Hour), 24)
			d.write("curfew.yaml", f.config.String())
			d.write("usage.csv", f.usage.String())
			from := []string{"--cloud", "onprem", "--usage", "usage.csv"}
			var before, scan view.Scan
			d.document(&before, append([]string{"scan"}, from...)...)
			d.now = d.now.Add(time.Hour)
			d.document(&scan, append([]string{"scan"}, from...)...)
			var doctor view.Doctor
			d.document(&doctor, append([]string{"doctor", "metrics"}, from...)...)
			machines := map[string]view.DoctorMachine{}
			for _, m := range doctor.Machines {
				machines[cmp.Or(m.Name, m.ID)] = m
			}
			states := map[string]int{}
			for _, name := range f.names {
				m, ok := machines[name]
				if !ok {
					t.Errorf("doctor does not know %s", name)
				}
				states[m.State]++
			}
			if len(states) < 3 {
				t.Errorf("the states are %v", states)
			}
			d.agreeWithFindings(scan, machines)
			d.agreeWithCapacity(from, machines)
			d.agreeWithExplain(from, f.names[:4], machines)
			d.agreeWithCosts(f, machines)
		})
	}
}

// agreeWithFindings compares the findings and the sums of an audit with the states of machines.
func (d *desktop) agreeWithFindings(scan view.Scan, machines map[string]view.DoctorMachine) {
	d.t.Helper()
	found, unjudged := map[string]string{}, map[string]bool{}
	rules := map[string]string{
		"gpu-instance-idle": "idle", "gpu-held": "held", "instance-idle": "idle", "gpu-stalled": "stalled",
	}
	for _, x := range scan.Findings {
		if state := rules[x.Rule]; state != "" {
			found[x.Resource.Name] = state
		}
	}
	for _, u := range scan.CannotJudge {
		unjudged[u.Resource.Name] = true
	}
	for name, m := range machines {
		if m.State == "idle" && found[name] == "" || m.State == "held" && found[name] == "" {
			d.t.Errorf("%s: doctor says %s (%s), scan finds nothing", name, m.State, m.Why)
		}
		if state := found[name]; state != "" && state != m.State {
			d.t.Errorf("%s: scan finds it %s, doctor says %s (%s)", name, state, m.State, m.Why)
		}
		if (m.State == "unknown") != unjudged[name] {
			d.t.Errorf("%s: doctor says %s (%s), for scan it is unmeasured: %v", name, m.State, m.Why, unjudged[name])
		}
	}
}

// agreeWithCapacity compares the machines of serving fleets with the states of the machines: one with an
// unmeasured machine has no plan, and those at rest are not counted.
func (d *desktop) agreeWithCapacity(from []string, machines map[string]view.DoctorMachine) {
	d.t.Helper()
	var doc struct {
		Fleets []struct {
			Type     string `json:"type"`
			Machines int    `json:"machines"`
		} `json:"fleets"`
	}
	d.document(&doc, append([]string{"plan", "capacity", "--from", "scan"}, from...)...)
	want, unmeasured := map[string]int{}, map[string]bool{}
	for name, m := range machines {
		switch {
		case !d.serves(name):
		case m.State == "unknown":
			unmeasured[m.Type] = true
		case m.State != "idle" && m.State != "held":
			want[m.Type]++
		}
	}
	for _, f := range doc.Fleets {
		if unmeasured[f.Type] || f.Machines != want[f.Type] {
			d.t.Errorf("plan capacity counts %d machines of %s, doctor %d at work, one unmeasured: %v", f.Machines, f.Type,
				want[f.Type], unmeasured[f.Type])
		}
	}
}

// serves reports whether a machine of the configuration serves.
func (d *desktop) serves(name string) bool {
	text, err := os.ReadFile(filepath.Join(d.dir, "curfew.yaml"))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "{name: "+name+",") {
			return strings.Contains(line, "purpose: inference")
		}
	}
	return false
}

// agreeWithExplain compares the audit's verdict of policy explain with the states of machines.
func (d *desktop) agreeWithExplain(from, names []string, machines map[string]view.DoctorMachine) {
	d.t.Helper()
	policies, err := filepath.Abs(shipped)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range names {
		var doc view.PolicyExplain
		d.document(&doc, append([]string{"policy", "explain", name, "--policy", policies}, from...)...)
		m := machines[name]
		if doc.Audit == nil || doc.Audit.State != m.State || doc.Audit.Why != m.Why ||
			doc.Audit.LastingSeconds != m.LastingSeconds {
			d.t.Errorf("%s: policy explain says %+v, doctor %s (%s)", name, doc.Audit, m.State, m.Why)
		}
	}
}

// agreeWithCosts compares how the ledger divided the last hour of machines that do the same all along.
func (d *desktop) agreeWithCosts(f *randomFleet, machines map[string]view.DoctorMachine) {
	d.t.Helper()
	var doc view.Costs
	d.document(&doc, "costs", "--by", "resource", "--since", "2h")
	compared := 0
	for _, r := range doc.Rows {
		parts := strings.Split(r.Key[0], "/")
		name := parts[len(parts)-1]
		m, want := machines[name], f.steady[name]
		if r.Amount == 0 || want == "" {
			continue
		}
		category := map[string]string{
			"busy": "used", "idle": "wasted", "held": "wasted", "unknown": "unmeasured",
		}[m.State]
		amount := map[string]money.Amount{"used": r.Used, "wasted": r.Wasted, "unmeasured": r.CannotJudge}[category]
		if compared++; category != want || amount != r.Amount {
			d.t.Errorf("%s is %s (%s), and costs divide its %s into %s used, %s wasted, %s unmeasured", name, m.State, m.Why,
				r.Amount, r.Used, r.Wasted, r.CannotJudge)
		}
	}
	if compared == 0 {
		d.t.Errorf("the costs of %d machines were compared", compared)
	}
}
