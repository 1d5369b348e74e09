package backtest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// liveMachine is what a trace says of one machine.
type liveMachine struct {
	name        string
	description *usage.Description
	samples     []liveSample // in order of time
}

type liveSample struct {
	at, received time.Time
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
  - name: stalled
    when: duty.state == "stalled" || duty.state == "starved"
    then: [{warn: {grace: 4m}}, {do: stop}]
  - name: only-held
    when: duty.state == "held" && duty.lasting >= duration("3m")
    then: [{warn: {grace: 5m}}, {do: stop}]
`

func parsed(t testingTB, text string) *policy.Set {
	t.Helper()
	set, err := policy.Parse("policies.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// liveMachines draws machines with gaps, jitter, several GPUs and, some of them, more
// than utilisation.
func liveMachines() *rapid.Generator[[]*liveMachine] {
	return rapid.Custom(func(t *rapid.T) []*liveMachine {
		var out []*liveMachine
		for i := range rapid.IntRange(1, 3).Draw(t, "machines") {
			m := &liveMachine{name: fmt.Sprintf("m%d", i)}
			if tags := rapid.SampledFrom([]string{"", "", "team=vision", "curfew:gang=run", "curfew:gang=run", "curfew:lifetime=persistent",
				"curfew:keep-until=1970-01-01T01:10:00Z"}).Draw(t, "tags"); tags != "" {
				k, v, _ := strings.Cut(tags, "=")
				m.description = &usage.Description{Tags: map[string]string{k: v}}
			}
			m.draw(t)
			out = append(out, m)
		}
		return out
	})
}

func (m *liveMachine) draw(t *rapid.T) {
	gpus := rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "GPUs")
	jitter := rapid.SampledFrom([]int{0, 0, 3, 14}).Draw(t, "jitter")
	rich := rapid.Bool().Draw(t, "rich")
	named := gpus > 1 || rapid.Bool().Draw(t, "named")
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
			kind := rapid.SampledFrom([]string{"idle", "idle", "busy", "missing"}).Draw(t, "kind")
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
				s := liveSample{at: time.Unix(int64(when), 0).UTC(), gpu: name, values: map[usage.Signal]float64{usage.GPUUtil: 0}}
				if kind == "busy" {
					s.values[usage.GPUUtil] = 50
				}
				if rich {
					s.values[usage.MemTotal], s.values[usage.MemUsed], s.values[usage.Processes] = 80e9, 1e9, 0
					if held || kind == "busy" {
						s.values[usage.MemUsed], s.values[usage.Processes] = 70e9, 1
					}
					if g == 0 { // signals of the machine stand in the rows of one GPU
						s.values[usage.CPUUtil], s.values[usage.Step] = cpu, float64(at/step)
					}
				}
				m.samples = append(m.samples, s)
			}
		}
	}
	if len(m.samples) == 0 {
		m.samples = []liveSample{{at: time.Unix(int64(begin), 0).UTC(), values: map[usage.Signal]float64{usage.GPUUtil: 0}}}
	}
	slices.SortStableFunc(m.samples, func(a, b liveSample) int { return a.at.Compare(b.at) })
}

// liveTrace writes what the daemon was fed as recorded usage.
func liveTrace(machines []*liveMachine) string {
	var b strings.Builder
	b.WriteString("resource,tags,time,received,gpu,gpu_util,mem_used_bytes,mem_total_bytes,processes,cpu_util,step\n")
	for _, m := range machines {
		tags := ""
		if m.description != nil {
			for k, v := range m.description.Tags {
				tags = k + "=" + v
			}
		}
		for _, s := range m.samples {
			received := s.received
			if received.IsZero() {
				received = s.at
			}
			fmt.Fprintf(&b, "%s,%s,%d,%d,%s", m.name, tags, s.at.Unix(), received.Unix(), s.gpu)
			for _, sig := range []usage.Signal{usage.GPUUtil, usage.MemUsed, usage.MemTotal, usage.Processes, usage.CPUUtil, usage.Step} {
				b.WriteByte(',')
				if v, ok := s.values[sig]; ok {
					fmt.Fprint(&b, int64(v))
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// processes makes a round at every multiple of a cadence, each by a process of its own
// that knows nothing but the store and what was released before, and returns what they
// decided.
func processes(t testingTB, trace string, set *policy.Set, p Params) []Decision {
	t.Helper()
	p, err := p.complete()
	if err != nil {
		t.Fatal(err)
	}
	account, err := ReadAccount(context.Background(), strings.NewReader(trace), p.Account)
	if err != nil {
		t.Fatal(err)
	}
	enforced := &policy.Set{}
	for _, pol := range set.Policies {
		own := *pol
		own.Mode = policy.Enforce
		enforced.Policies = append(enforced.Policies, &own)
	}
	store := action.NewMemory()
	var deeds []Deed
	var out []Decision
	first, _ := account.Feed(nil).Next()
	end := account.Summary().Last.Add(p.Format.Step)
	for now := time.Unix(0, first.UnixNano()/int64(p.Every)*int64(p.Every)).UTC(); !now.After(end); now = now.Add(p.Every) {
		if now.Before(first) {
			continue
		}
		at := func() time.Time { return now }
		present := account.Present(at, slices.Clone(deeds), func(all []Deed) error { deeds = all; return nil })
		s := p.Setting
		s.Clock, s.Lister, s.Sources, s.Policies, s.Uncapped, s.Facts = at, present, []usage.Source{present}, enforced, !p.Caps, present.Know
		s.Duty, s.Activity = p.Thresholds, p.Account.Activity
		s.Ladder = func(name string) *action.Ladder {
			return &action.Ladder{Store: store, Cloud: present.Cloud(), Notifier: Everybody{}, Account: name, Actor: "test", Enforce: true,
				Clock: func() action.Clock { return ClockAt(now) }, MaxRoundGap: p.MaxRoundGap, Assume: Allowed}
		}
		r, err := round.New(s).Round(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, Decisions(now, r.Lines())...)
	}
	slices.SortStableFunc(out, CompareDecisions)
	return out
}

// TestAReplayDecidesAsProcessesDo replays random fleets at a cadence, and runs a process
// at each of its multiples; every decision has to be the same.
func TestAReplayDecidesAsProcessesDo(t *testing.T) {
	set := parsed(t, livePolicies)
	steps := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		pol := set.Policies[rapid.IntRange(0, len(set.Policies)-1).Draw(t, "policy")]
		one := &policy.Set{Policies: []*policy.Policy{pol}}
		machines := liveMachines().Draw(t, "machines")
		trace := liveTrace(machines)
		p := params(time.Minute)
		p.Every = time.Duration(rapid.IntRange(1, 40).Draw(t, "cadence")) * 30 * time.Second
		p.MaxRoundGap = time.Duration(rapid.IntRange(5, 600).Draw(t, "gap")) * time.Minute
		p.Caps = rapid.Bool().Draw(t, "caps")
		p.Baselines, p.Policies = false, one
		var got []Decision
		p.Decided = func(d Decision) { got = append(got, d) }
		if _, err := Run(context.Background(), strings.NewReader(trace), p); err != nil {
			t.Fatal(err)
		}
		want := processes(t, trace, one, p)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("decision %d of %s at %s differs:\nprocesses %v\nreplay    %v\n%s", i, pol.Name, p.Every, at(want, i), at(got, i), trace)
			}
			steps[got[i].Step]++
		}
	})
	if steps["warn"] < 20 || steps["stop"] < 5 || steps["withdraw"] < 5 || steps["refuse"] < 20 {
		t.Errorf("too few decisions to tell: %v", steps)
	}
}

// at returns the decisions around one.
func at(ds []Decision, i int) []Decision { return ds[min(max(0, i-2), len(ds)):min(len(ds), i+2)] }

var _ = cmp.Compare[int]
var _ = math.Inf
