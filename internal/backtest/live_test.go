package backtest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// liveMachine is one machine of a trace.
type liveMachine struct {
	name, tags, typ, gpus string
	samples               []liveSample // in time order
}

type liveSample struct {
	at, received time.Time
	launched     string
	gpu          string
	values       map[usage.Signal]float64
}

// livePolicies are conditions of every kind.
const livePolicies = `apiVersion: curfew.policy/v1
policies:
  - name: five-minutes
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("5m")
    then: [{warn: {grace: 0s}}, {do: terminate}]
  - name: five-minutes-and-grace
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("5m")
    then: [{warn: {grace: 10m}}, {do: stop}]
  - name: between-samples
    select: {kind: instance, lifetime: ephemeral}
    where: resource.gpus > 0
    when: duty.lasting > duration("450s")
    then: [{warn: {grace: 200s}}, {do: stop}]
    limits: {per_hour: 1, share: "40%", dollars_per_hour: 7}
  - name: only-for-a-while
    when: duty.lasting >= duration("4m") && duty.lasting < duration("20m")
    then: [{warn: {grace: 9m}}, {do: stop}]
  - name: dead-mans-switch
    when: resource.age > duration("43m")
    then: [{warn: {grace: 10m}}, {do: stop, even_if_busy: true}]
  - name: age-at-rest
    when: resource.age >= duration("30m")
    then: [{warn: {grace: 0s}}, {do: stop}]
  - name: age-or-rest
    when: resource.age > duration("90m") || duty.lasting > duration("6m")
    then: [{warn: {grace: 1m}}, {do: stop, even_if_busy: true}]
  - name: at-night
    schedule: {timezone: UTC, off: ["Mon-Sun 00:31-01:47"]}
    when: duty.lasting >= duration("2m")
    then: [{warn: {grace: 4m}}, {do: stop}]
  - name: at-one
    schedule: {timezone: UTC, at: ["Mon-Sun 01:00"]}
    when: duty.state != "busy"
    then: [{warn: {grace: 0s}}, {do: stop}]
  - name: from-then-on
    when: now > timestamp("1970-01-01T01:03:20Z") && duty.lasting > duration("1m")
    then: [{warn: {grace: 0s}}, {do: stop}]
  - name: by-the-hour
    when: now.getMinutes() % 20 < 5 && duty.lasting >= duration("3m")
    then: [{warn: {grace: 2m}}, {do: stop}]
  - name: tells
    when: duty.state == "busy" && resource.age > duration("20m")
    then: [{do: notify}]
  - name: tags
    when: duty.state in ["idle", "held"] && duty.lasting > duration("10m")
    then: [{do: tag, tags: {idle: "yes"}}]
  - name: of-a-team
    where: resource.tags.team == "vision"
    when: duty.lasting >= duration("3m")
    then: [{warn: {grace: 3m}}, {do: stop}]
  - name: only-idle
    when: duty.state == "idle" && duty.lasting >= duration("3m")
    then: [{warn: {grace: 5m}}, {do: stop}]
  - name: well-covered
    when: duty.lasting >= duration("3m") && duty.coverage > 0.95
    then: [{warn: {grace: 3m}}, {do: stop}]
  - name: says-why
    when: duty.why.contains("held") && duty.lasting >= duration("3m")
    then: [{warn: {grace: 3m}}, {do: stop}]
  - name: stalled
    when: duty.state == "stalled" || duty.state == "starved"
    then: [{warn: {grace: 4m}}, {do: stop}]
  - name: only-held
    when: duty.state == "held" && duty.lasting >= duration("3m")
    then: [{warn: {grace: 5m}}, {do: stop}]
  - name: little-used
    when: gpu.util.mean("7m") < 15
    then: [{warn: {grace: 3m}}, {do: stop}]
  - name: not-used-at-all
    when: gpu.util.max("4m") < 1 && !(gpu.util.worst.mean("12m") > 20)
    then: [{warn: {grace: 2m}}, {do: stop}]
  - name: memory-given-back
    when: gpu.memory.share.worst.max("3m") < 0.1 || duty.lasting > duration("11m")
    then: [{warn: {grace: 2m}}, {do: stop}]
  - name: hot-or-lost
    when: gpu.temperature.max("5m") > 80 || gpu.lost.count("4m") > 0 || gpu.ecc.rise("6m") > 1
    then: [{do: notify}]
  - name: throttled
    when: gpu.throttle.thermal.mean("6m") >= 0.5 && gpu.temperature.headroom.worst.min("6m") < 12
    then: [{warn: {grace: 2m}}, {do: stop, even_if_busy: true}]
`

// budgetPolicies are conditions on charges.
const budgetPolicies = `  - name: within-budget
    when: budget.used_share < 0.4 && duty.lasting >= duration("3m")
    then: [{warn: {grace: 2m}}, {do: stop}]
  - name: over-budget
    when: budget.state == "over" || budget.used_share > 0.2 && duty.state == "idle"
    then: [{warn: {grace: 3m}}, {do: stop, even_if_busy: true}]
`

func parsed(t testingTB, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("policies.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// liveMachines draws machines with gaps, jitter, late samples, several GPUs, launches in
// the middle, types of the price book and, some of them, more than utilization.
func liveMachines() *rapid.Generator[[]*liveMachine] {
	return rapid.Custom(func(t *rapid.T) []*liveMachine {
		var out []*liveMachine
		for i := range rapid.IntRange(1, 3).Draw(t, "machines") {
			m := &liveMachine{name: fmt.Sprintf("m%d", i)}
			m.tags = rapid.SampledFrom([]string{
				"", "", "", "team=vision", "curfew:gang=run", "curfew:gang=run", "curfew:lifetime=persistent",
				"curfew:keep-until=1970-01-01T01:10:00Z"}).Draw(t, "tags")
			m.typ = rapid.SampledFrom([]string{
				"", "", "", "", "g5.xlarge", "p3.8xlarge", "m5.large", "no-such-type",
			}).Draw(t,
				"type")
			m.gpus = rapid.SampledFrom([]string{"", "", "", "1", "2", "0"}).Draw(t, "stated GPUs")
			m.draw(t)
			out = append(out, m)
		}
		return out
	})
}

func (m *liveMachine) draw(t *rapid.T) {
	gpus := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "GPUs")
	jitter := rapid.SampledFrom([]int{0, 0, 3, 14}).Draw(t, "jitter")
	lags := rapid.SampledFrom([][]int{{0}, {0}, {0, 0, 45}, {30, 30, 400, 0}}).Draw(t, "lags")
	rich := rapid.IntRange(0, 2).Draw(t, "rich") // nothing, memory of unknown size, all
	hot := rapid.SampledFrom([]float64{0, 1, 9}).Draw(t, "hot")
	named := gpus > 1 || rapid.Bool().Draw(t, "named")
	launched := rapid.SampledFrom([]string{"", "", "1969-12-31T23:00:00Z", "60"}).Draw(t, "launched")
	again := rapid.IntRange(0, 4000).Draw(t, "launched again")
	begin := rapid.IntRange(0, 400).Draw(t, "begin")
	for g := range gpus {
		at := begin
		offset := rapid.IntRange(0, 20).Draw(t, "offset")
		name := ""
		if named {
			name = fmt.Sprint(g)
		}
		last := math.Inf(-1)
		for range rapid.IntRange(1, 8).Draw(t, "runs") {
			kind := rapid.SampledFrom([]string{
				"idle", "idle", "idle", "noise", "busy", "busy", "missing",
			}).Draw(t, "kind")
			held := rapid.Bool().Draw(t, "held")
			cpu := rapid.SampledFrom([]float64{0, 0, 60}).Draw(t, "CPU")
			step := rapid.SampledFrom([]int{60, 100_000}).Draw(t, "step")
			n := rapid.IntRange(1, 20).Draw(t, "length")
			if kind == "missing" {
				n = rapid.IntRange(1, 6).Draw(t, "missing")
			}
			for range n {
				at += 60
				if kind == "missing" {
					continue
				}
				off := offset
				if jitter > 0 {
					off += rapid.IntRange(-jitter, jitter).Draw(t, "late")
				}
				when := float64(at + off)
				if when <= last {
					continue
				}
				last = when
				s := liveSample{at: time.Unix(int64(when), 0).UTC(), gpu: name, launched: launched,
					values: map[usage.Signal]float64{
						usage.GPUUtil: map[string]float64{"busy": 50, "noise": 0.4}[kind],
					}}
				if launched != "" && at > again {
					s.launched = fmt.Sprint(again)
				}
				s.received = s.at
				if len(lags) > 1 {
					s.received = s.at.Add(time.Duration(rapid.SampledFrom(lags).Draw(t, "lag")) * time.Second)
				}
				if rich > 0 {
					s.values[usage.MemUsed] = 1e9
					if held || kind == "busy" {
						s.values[usage.MemUsed] = 20e9
					}
					if rich > 1 {
						s.values[usage.MemTotal], s.values[usage.Processes] = 80e9, 0
						if held || kind == "busy" {
							s.values[usage.Processes] = 1
						}
					}
					if rich > 1 && hot != 0 {
						s.values[usage.Temperature] = 60 + hot*float64(at/60%4)
						s.values[usage.SlowdownTemperature], s.values[usage.Throttle] = 90, float64(at/120%2*0x20)
						s.values[usage.ECCErrors] = float64(at / 600)
					}
					if g == 0 { // signals of the machine stand in the rows of one GPU
						s.values[usage.CPUUtil], s.values[usage.Step] = cpu, float64(at/step)
						s.values[usage.NetBytes] = 1000
					}
				}
				m.samples = append(m.samples, s)
			}
		}
	}
	if len(m.samples) == 0 {
		at := time.Unix(int64(begin), 0).UTC()
		m.samples = []liveSample{{at: at, received: at, values: map[usage.Signal]float64{usage.GPUUtil: 0}}}
	}
	slices.SortStableFunc(m.samples, func(a, b liveSample) int { return a.at.Compare(b.at) })
}

// liveSignals are the columns of a trace.
var liveSignals = []usage.Signal{
	usage.GPUUtil, usage.MemUsed, usage.MemTotal, usage.Processes, usage.CPUUtil, usage.NetBytes, usage.Step,
	usage.Temperature, usage.SlowdownTemperature, usage.Throttle, usage.ECCErrors}

const liveHeader = "resource,tags,type,gpus,launched,time,received,gpu,gpu_util,mem_used_bytes,mem_total_bytes,processes,cpu_util,net_bytes,step," +
	"temperature_c,slowdown_temperature_c,throttle_reasons,ecc_errors"

// liveRows are the rows of recorded usage, machine by machine.
func liveRows(machines []*liveMachine) []string {
	var out []string
	for _, m := range machines {
		for _, s := range m.samples {
			var b strings.Builder
			fmt.Fprintf(&b, "%s,%s,%s,%s,%s,%d,%d,%s", m.name, m.tags, m.typ, m.gpus, s.launched, s.at.Unix(),
				s.received.Unix(), s.gpu)
			for _, sig := range liveSignals {
				b.WriteByte(',')
				if v, ok := s.values[sig]; ok {
					fmt.Fprint(&b, strconv.FormatFloat(v, 'f', -1, 64))
				}
			}
			out = append(out, b.String())
		}
	}
	return out
}

// liveTrace writes machines as recorded usage.
func liveTrace(machines []*liveMachine) string { return traceOf(liveRows(machines)) }

func traceOf(rows []string) string {
	return liveHeader + "\n" + strings.Join(rows, "\n") + "\n"
}

// liveParams draws how a fleet is replayed.
func liveParams(t *rapid.T, pol *policy.Policy) Params {
	p := params(time.Minute)
	p.Baselines, p.Policies = false, &policy.Set{Policies: []*policy.Policy{pol}}
	p.Thresholds.StalledAfter = rapid.SampledFrom([]time.Duration{0, 5 * time.Minute}).Draw(t, "stalled after")
	p.Thresholds.WarmUp = rapid.SampledFrom([]time.Duration{0, 3 * time.Minute}).Draw(t, "warm-up")
	p.Setting.LookBack = rapid.SampledFrom([]time.Duration{0, 20 * time.Minute, time.Hour}).Draw(t, "look-back")
	return p
}

// processes makes a round at every multiple of a cadence, each by a process of its own that knows
// only the store, earlier releases and the times of rounds, and returns their decisions.
func processes(t testingTB, trace string, pol *policy.Policy, p Params, assume action.Assumptions) []Decision {
	t.Helper()
	account, err := Read(context.Background(), strings.NewReader(trace), p)
	if err != nil {
		t.Fatal(err)
	}
	store := action.NewMemory()
	var operations []Operation
	var rounds []time.Time
	var out []Decision
	first, _ := account.Feed(nil).NextTime()
	end := account.Summary().Last.Add(p.Format.Step)
	every := int64(p.Every)
	for now := time.Unix(0, (first.UnixNano()+every-1)/every*every).UTC(); !now.After(end); now = now.Add(p.Every) {
		look := lookAt(t, account, pol, now, operations, p)
		look.save = func(all []Operation) error { operations = all; return nil }
		look.Ladder = func(name string) *action.Ladder {
			return &action.Ladder{
				Store: store, Cloud: look.Cloud(), Notifier: Everybody{}, Account: name, Actor: "test", Enforce: true,
				Clock: func() action.Clock { return ClockAt(now) }, MaxRoundGap: p.MaxRoundGap, Assume: assume}
		}
		setting, err := look.Charged(context.Background(), look.Setting, p.Budgets, rounds)
		if err != nil {
			t.Fatal(err)
		}
		if all := look.Rounds(p.Every); !slices.Equal(all, rounds) {
			t.Fatal(fmt.Sprintf("before %s rounds were made at %s, and %s are charged", now, rounds, all))
		}
		rounds = append(rounds, now)
		r, err := round.New(setting).Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Decisions(now, r.Lines())...)
	}
	slices.SortStableFunc(out, CompareDecisions)
	return out
}

// look is a process that looks at a trace at one time.
type look struct {
	*Present
	round.Setting
}

// lookAt prepares a round that knows earlier releases, and enforces a policy.
func lookAt(t testingTB, account *Account, pol *policy.Policy, now time.Time, operations []Operation, p Params) *look {
	t.Helper()
	p, err := p.complete()
	if err != nil {
		t.Fatal(err)
	}
	enforced := *pol
	enforced.Mode = policy.Enforce
	at := func() time.Time { return now }
	l := &look{account.Present(at, slices.Clone(operations), func([]Operation) error { return nil }), p.Setting}
	l.Clock, l.Lister, l.Sources, l.Uncapped = at, l.Present, []usage.Source{l.Present}, !p.Caps
	l.Policies = &policy.Set{Policies: []*policy.Policy{&enforced}}
	l.Duty, l.Activity = p.Thresholds, p.Account.Activity
	l.AddFacts = func(f *policy.Facts) {
		if p.Price != nil {
			f.Hourly = inventory.Known(*p.Price)
		}
		l.Know(f)
	}
	return l
}

// TestAReplayDecidesAsProcessesDo replays random fleets at a cadence, and runs a process
// at each of its multiples; every decision has to be the same, those on budgets as well.
func TestAReplayDecidesAsProcessesDo(t *testing.T) {
	set := parsed(t, livePolicies+budgetPolicies)
	onBudgets := 0
	rare := []string{"warn", "stop", "withdraw", "refuse", "defer"}
	steps := map[string]int{}
	missing := func(step string) bool { return steps[step] == 0 }
	for range 20 { // until each was decided at least once
		rapid.Check(t, func(t *rapid.T) {
			pol := set.Policies[rapid.IntRange(0, len(set.Policies)-1).Draw(t, "policy")]
			p := liveParams(t, pol)
			p.Every = time.Duration(rapid.IntRange(1, 40).Draw(t, "cadence")) * 30 * time.Second
			p.MaxRoundGap = time.Duration(rapid.IntRange(5, 600).Draw(t, "gap")) * time.Minute
			p.Caps = rapid.Bool().Draw(t, "caps")
			if pol.UsesCharges() {
				p = priced(p, 60*money.USD)
				p.Every += 2 * time.Minute // every process charges for all rounds before it
				p.Budgets = budgets(t, budget.Budget{
					ID: "all", Shared: true,
					Amount: money.Amount(rapid.IntRange(20, 400).Draw(t, "amount")) * money.USD,
				})
			}
			for _, d := range sameAsProcesses(t, liveTrace(liveMachines().Draw(t, "machines")), p) {
				steps[d.Step]++
				if pol.UsesCharges() {
					onBudgets++
				}
			}
		})
		if onBudgets > 0 && !slices.ContainsFunc(rare, missing) {
			return
		}
	}
	t.Errorf("too few decisions to tell: %v, and %d on budgets", steps, onBudgets)
}

// TestOfMachinesDueAlikeAReplayStopsTheOneThatProcessesStop checks that a replay makes fewer rounds
// on the ladder than processes do, so that its items have other ids.
func TestOfMachinesDueAlikeAReplayStopsTheOneThatProcessesStop(t *testing.T) {
	set := parsed(t, livePolicies)
	p := params(time.Minute)
	p.Baselines, p.Caps, p.Every = false, true, 30*time.Second
	p.Policies = &policy.Set{
		Policies: []*policy.Policy{
			set.Policies[slices.IndexFunc(set.Policies, func(p *policy.Policy) bool {
				return p.Name == "between-samples"
			})],
		},
	}
	var machines []*liveMachine
	for i, begin := range []int64{62, 68, 64} {
		m := &liveMachine{name: fmt.Sprintf("m%d", i)}
		for n := range int64(14) {
			at := time.Unix(begin+60*n, 0).UTC()
			m.samples = append(m.samples, liveSample{
				at: at, received: at, values: map[usage.Signal]float64{usage.GPUUtil: 0},
			})
		}
		machines = append(machines, m)
	}
	var got []string
	for _, d := range sameAsProcesses(t, liveTrace(machines), p) {
		if d.Step == "stop" {
			got = append(got, d.Resource)
		}
	}
	if !slices.Equal(got, []string{"m0"}) {
		t.Errorf("stopped %v, want the first only", got)
	}
}

// sameAsProcesses replays a trace at a cadence, runs a process at each of its multiples, and
// returns the decisions of both.
func sameAsProcesses(t testingTB, trace string, p Params) []Decision {
	t.Helper()
	var got []Decision
	p.Decided = func(d Decision) { got = append(got, d) }
	if _, err := Run(context.Background(), strings.NewReader(trace), p); err != nil {
		t.Fatal(err)
	}
	var want []Decision
	for _, pol := range p.Policies.Policies {
		want = append(want, processes(t, trace, pol, p, Allowed)...)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatal(fmt.Sprintf("decision %d at %s differs:\nprocesses %v\nreplay    %v\n%s", i, p.Every, at(want, i),
				at(got, i), trace))
		}
	}
	return got
}

// at returns the decisions around one.
func at(ds []Decision, i int) []Decision { return ds[min(max(0, i-2), len(ds)):min(len(ds), i+2)] }
