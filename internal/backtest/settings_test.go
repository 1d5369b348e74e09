package backtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// minutely writes a trace with a row a minute for each of some resources; the header lacks
// the resource and the time.
func minutely(header string, minutes int, resources []string, row func(resource string, minute int) string) string {
	var b strings.Builder
	b.WriteString("resource,time," + header + "\n")
	for _, r := range resources {
		for m := range minutes {
			fmt.Fprintf(&b, "%s,%d,%s\n", r, m*60, row(r, m))
		}
	}
	return b.String()
}

// each is the same row every minute.
func each(row string) func(string, int) string { return func(string, int) string { return row } }

// waits is a policy that ends resources which have been in a state for a time.
func waits(state string, lasting, grace time.Duration) string {
	return fmt.Sprintf(`  - name: p
    when: duty.state == %q && duty.lasting >= duration("%s")
    then: [{warn: {grace: %s}}, {do: stop}]
`, state, lasting, grace)
}

// steps writes decisions as "m0 warn 5m".
func steps(ds []Decision) []string {
	out := []string{}
	for _, d := range ds {
		text := fmt.Sprintf("%s %s %s", d.Resource, d.Step, d.Time.Sub(time.Unix(0, 0)))
		if d.Refusal != "" {
			text += " " + d.Refusal
		}
		out = append(out, text)
	}
	return out
}

// TestProcessesAndReplaysAgree names the cases in which a replay and a process that
// enforces once differed while they were loops of their own. Each is replayed at a cadence
// of a minute and by a process a minute, and at every sample against looks.
func TestProcessesAndReplaysAgree(t *testing.T) {
	m0 := []string{"m0"}
	training := func(rises func(m int) bool) func(string, int) string {
		step := make([]int, 1441)
		for m := 1; m < len(step); m++ {
			if step[m] = step[m-1]; rises(m) {
				step[m]++
			}
		}
		return func(_ string, m int) string { return fmt.Sprintf("100,70e9,80e9,1,%d", step[m]) }
	}
	const trainingHeader = "gpu_util,mem_used_bytes,mem_total_bytes,processes,step"
	stalled := waits("stalled", 30*time.Minute, 10*time.Minute)
	unpriced := func(*Params) {}
	for _, test := range []struct {
		name, policy, trace string
		set                 func(*Params)
		want                []string
		released            float64 // minutes, by waking at every sample
	}{
		{
			"launch time unknown: nothing is warm-up", waits("held", 5*time.Minute, 5*time.Minute),
			minutely("gpu_util", 30, m0, each("0")), unpriced,
			[]string{"m0 warn 5m0s", "m0 stop 10m0s"}, 20},
		{
			"launch time known: it warms up first", waits("held", 5*time.Minute, 5*time.Minute),
			minutely("gpu_util,launched", 30, m0, each("0,0")), unpriced,
			[]string{"m0 warn 16m0s", "m0 stop 21m0s"}, 10},
		{
			"one of eight GPUs in the trace", rested("p", 5*time.Minute, 0),
			minutely("type,gpu,gpu_util", 30, m0, each("p4d.24xlarge,0,0")), unpriced, nil, 0,
		},
		{
			"one of eight GPUs, but it is stated that it has one", rested("p", 5*time.Minute, 0),
			minutely("type,gpus,gpu,gpu_util", 30, m0, each("p4d.24xlarge,1,0,0")), unpriced,
			[]string{"m0 warn 5m0s", "m0 terminate 6m0s"}, 25},
		{
			"a type that the book does not know", rested("p", 5*time.Minute, 0),
			minutely("type,gpu,gpu_util", 30, m0, each("no-such-type,0,0")), unpriced, nil, 0,
		},
		{
			"a GPU at 0.4%", rested("p", 5*time.Minute, 0), minutely("gpu_util", 30, m0, each("0.4")), unpriced,
			[]string{"m0 warn 5m0s", "m0 terminate 6m0s"}, 25,
		},
		{
			"the size of its memory known by its type", waits("idle", 20*time.Minute, 5*time.Minute),
			minutely("type,gpu_util,mem_used_bytes", 40, m0, each("g5.xlarge,0,1e8")), unpriced,
			[]string{"m0 warn 20m0s", "m0 stop 25m0s"}, 15},
		{
			"the size of its memory unknown", waits("idle", 20*time.Minute, 5*time.Minute),
			minutely("gpu_util,mem_used_bytes", 40, m0, each("0,1e8")), unpriced, nil, 0,
		},
		{
			"a training that stalls at 100%", stalled, minutely(trainingHeader, 840, m0, training(func(m int) bool {
				return m <= 30
			})), unpriced,
			[]string{"m0 warn 1h0m0s", "m0 stop 1h10m0s"}, 840 - 70},
		{
			"a training that stalls, goes on for a while and stalls again", stalled,
			minutely(trainingHeader, 840, m0, training(func(m int) bool {
				return m <= 30 || m > 300 && m <= 330
			})), unpriced,
			[]string{"m0 warn 1h0m0s", "m0 stop 1h10m0s", "m0 warn 6h0m0s", "m0 stop 6h10m0s"}, 301 - 70 + 840 - 370},
		{
			"thresholds of its own", waits("idle", 20*time.Minute, 5*time.Minute),
			minutely("gpu_util,mem_used_bytes,mem_total_bytes", 40, m0, each("0,10e9,80e9")),
			func(p *Params) {
				p.Thresholds = duty.Thresholds{HeldMemory: 50}
			}, []string{"m0 warn 20m0s", "m0 stop 25m0s"}, 15},
		{
			"default thresholds", waits("idle", 20*time.Minute, 5*time.Minute),
			minutely("gpu_util,mem_used_bytes,mem_total_bytes", 40, m0, each("0,10e9,80e9")), unpriced, nil, 0,
		},
		{
			"tags mapped", strings.Replace(rested("p", 5*time.Minute, 0), "    when",
				"    where: resource.team == \"vision\"\n    when", 1),
			minutely("gpu_util,tags", 20, []string{"m0", "m1"}, func(r string, _ int) string {
				return "0,kostenstelle=" + map[string]string{"m0": "vision", "m1": "audio"}[r]
			}),
			func(p *Params) {
				p.Account.Tags = inventory.DefaultTagMapping()
				p.Account.Tags.Team = []string{"kostenstelle"}
			}, []string{"m0 warn 5m0s", "m0 terminate 6m0s"}, 15},
		{"governance", rested("p", 5*time.Minute, 0),
			minutely("gpu_util,team", 20, []string{"m0", "m1"}, func(r string, _ int) string {
				return "0," + map[string]string{"m0": "vision", "m1": "audio"}[r]
			}),
			func(p *Params) {
				p.Setting.Governance = policy.Governance{
					{Select: policy.Select{Team: []string{"vision"}}, Reason: "they asked for it"},
				}
			}, []string{"m0 warn 5m0s", "m1 refuse 5m0s ungoverned", "m0 terminate 6m0s"}, 15},
		{
			"look-back of twelve hours", waits("stalled", time.Hour, 0),
			minutely("gpu_util,checkpoints", 1440, m0, func(_ string, m int) string {
				return fmt.Sprintf("90,%d", min(m, 720)/120)
			}), unpriced,
			[]string{"m0 warn 17h24m0s", "m0 stop 17h25m0s"}, 1440 - 1044},
		{
			"look-back of three hours", waits("stalled", time.Hour, 0),
			minutely("gpu_util,checkpoints", 1440, m0, func(_ string, m int) string {
				return fmt.Sprintf("90,%d", min(m, 720)/120)
			}),
			func(p *Params) { p.Setting.LookBack = 3 * time.Hour }, nil, 0},
		{
			"neither grace nor price", waits("held", 5*time.Minute, 0),
			minutely("gpu_util", 30, m0, each("0")), unpriced,
			[]string{"m0 warn 5m0s", "m0 stop 6m0s"}, 25,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := params(0)
			p.Baselines, p.Policies = false, policies(t, test.policy)
			test.set(&p)
			everyAnswer(t, test.trace, p)
			if got := replayed(t, test.trace, p).Results[0].figures(); got.released != test.released {
				t.Errorf("released %v min, want %v", got.released, test.released)
			}
			p.Every = time.Minute
			// they repeat
			got := slices.DeleteFunc(sameAsProcesses(t, test.trace, p), func(d Decision) bool {
				return d.Step == "refuse" && d.Time.Unix() != 300
			})
			if diff := cmp.Diff(append([]string{}, test.want...), steps(got)); diff != "" {
				t.Errorf("decisions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAssumptionsAreOfReplaysAlone checks that a live account refuses actions that a recorded one
// is assumed to allow.
func TestAssumptionsAreOfReplaysAlone(t *testing.T) {
	trace := minutely("gpu_util", 30, []string{"m0"}, each("0"))
	price := 2 * money.USD
	for _, test := range []struct {
		grace   time.Duration
		price   *money.Amount
		refusal string
	}{{0, &price, "no-grace"}, {time.Minute, nil, "unpriced"}, {time.Minute, &price, ""}} {
		p := params(0)
		p.Baselines, p.Policies, p.Price, p.Every = false, policies(t,
			waits("held", 5*time.Minute, test.grace)), test.price, time.Minute
		live := processes(t, trace, p.Policies.Policies[0], p, action.Assumptions{})
		if got := live[0].Refusal; got != test.refusal {
			t.Errorf("with a grace of %s, priced %v, the refusal is %q, want %q", test.grace, test.price != nil, got,
				test.refusal)
		}
		res := replayed(t, trace, p).Results[0]
		if res.ReleasedHours == 0 || (res.SavedUSD.Known()) != (test.price != nil) {
			t.Errorf("the replay releases %v h and saves %v", res.ReleasedHours, res.SavedUSD)
		}
	}
}
