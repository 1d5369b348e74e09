package backtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// live is a daemon's loop, written apart from the replay: at every sample and at every
// time that is due it looks at every machine anew, through a window of the last hours.
// A machine of which more than utilisation is measured can change by time alone, such
// as to stalled; that is seen at its own samples and due times.
type live struct {
	policy   *policy.Policy
	machines []*liveMachine
	caps     bool
	price    money.Amount
	now      time.Time
	round    int64
	selected map[string]bool
	admitted []time.Time
	out      []Decision
}

// liveMachine is what the daemon knows of one machine.
type liveMachine struct {
	name        string
	description *usage.Description
	samples     []liveSample // in order of time
	arrived     int
	created     time.Time
	// ended says that it is away: until work comes back, or, unless whole, until its
	// rest is over.
	ended, whole bool
	item         action.Item
	proposal     *action.Proposal
	facts        policy.Facts
	// rich says that more than utilisation is measured, news that this moment brings
	// something: a sample, or one of the times that are due.
	rich, news bool
	due        []time.Time
}

type liveSample struct {
	at     time.Time
	gpu    string
	values map[usage.Signal]float64
}

// lastHours is how far back the daemon's windows reach.
const lastHours = 8 * time.Hour

// run returns what was decided.
func (l *live) run() []Decision {
	l.selected = map[string]bool{}
	due := map[time.Time]bool{}
	for _, m := range l.machines {
		for _, s := range m.samples {
			due[s.at] = true
		}
	}
	end := slices.MaxFunc(slices.Collect(maps.Keys(due)), time.Time.Compare).Add(time.Minute)
	for len(due) > 0 {
		l.now = slices.MinFunc(slices.Collect(maps.Keys(due)), time.Time.Compare)
		if delete(due, l.now); l.now.After(end) {
			break // age and schedules come due for ever
		}
		for _, m := range l.machines {
			arrived := m.arrived
			m.arrive(l.now)
			m.news = m.arrived > arrived || slices.ContainsFunc(m.due, l.now.Equal)
		}
		for again := true; again; {
			again = l.climb()
		}
		l.act()
		for _, m := range l.machines {
			if m.facts.Resource == nil || m.ended {
				continue
			}
			if l.looksAt(m) {
				m.due = nil
			}
			for _, at := range []time.Time{l.policy.Evaluate(&m.facts).Next, m.item.DueAt(), m.facts.Duty.Expires.Add(1), m.facts.Resource.KeepUntil} {
				if at.After(l.now) {
					due[at] = true
					m.due = append(m.due, at)
				}
			}
		}
		if len(l.admitted) > 0 {
			if at := l.admitted[0].Add(time.Hour); at.After(l.now) {
				due[at] = true
			}
		}
	}
	return l.out
}

// looksAt says whether this round looks at a machine: at one that is measured richly,
// or works together with others, only when there are news of it or of them.
func (l *live) looksAt(m *liveMachine) bool {
	if m.created.IsZero() || m.ended {
		return false
	}
	return m.news || !m.rich && m.gang() == "" ||
		m.gang() != "" && slices.ContainsFunc(l.machines, func(o *liveMachine) bool { return o.news && o.gang() == m.gang() })
}

func (m *liveMachine) gang() string {
	if m.description == nil {
		return ""
	}
	return m.description.Tags[inventory.TagGang]
}

// arrive takes the samples of now in, and sees a machine begin or come back.
func (m *liveMachine) arrive(now time.Time) {
	for ; m.arrived < len(m.samples) && m.samples[m.arrived].at.Equal(now); m.arrived++ {
		s := m.samples[m.arrived]
		util, measured := s.values[usage.GPUUtil]
		gap := false
		for i := m.arrived - 1; i >= 0 && measured; i-- {
			if _, ok := m.samples[i].values[usage.GPUUtil]; ok && m.samples[i].gpu == s.gpu {
				gap = s.at.Sub(m.samples[i].at) >= time.Minute*3/2
				break
			}
		}
		switch {
		case m.created.IsZero():
			m.created = now
		case m.ended && util > 0:
			m.ended, m.created = false, now
		case m.ended && gap && !m.whole:
			m.ended = false
		}
	}
}

// look gathers the facts.
func (l *live) look(m *liveMachine) duty.Verdict {
	w := usage.NewWindow(l.now.Add(-lastHours), l.now.Add(time.Minute), time.Minute, source, floors(0))
	gpus := map[string]bool{}
	for _, s := range m.samples[:m.arrived] {
		if s.gpu != "" {
			gpus[s.gpu] = true
		}
		for sig, v := range s.values {
			w.Add(s.gpu, sig, usage.Point{Time: s.at, Mean: v, Max: v})
		}
	}
	m.facts = policy.Facts{Now: l.now, Resource: m.resource(), GPUs: inventory.Known(max(1, len(gpus))), Hourly: inventory.Known(l.price)}
	return duty.Now(w, max(1, len(gpus)), l.now, duty.Thresholds{})
}

func (m *liveMachine) resource() *inventory.Resource {
	r := &inventory.Resource{ID: m.name, Name: m.name, Kind: inventory.KindInstance, State: inventory.StateRunning, CreatedAt: m.created, StateSince: m.created}
	if m.description != nil {
		r.Tags = m.description.Tags
		r.Type = m.description.Type
		if err := inventory.DefaultTagMapping().Apply(r); err != nil {
			panic(err)
		}
	}
	r.Lifetime = cmp.Or(r.Lifetime, inventory.Ephemeral)
	r.Purpose = cmp.Or(r.Purpose, inventory.Experimentation)
	return r
}

// climb is one round without actions. It says whether somebody was warned, so that
// another round at the same time may find the grace over.
func (l *live) climb() (warned bool) {
	l.round++
	verdicts := map[*liveMachine]duty.Verdict{}
	var there []*liveMachine
	for _, m := range l.machines {
		if l.looksAt(m) {
			m.proposal = nil
			verdicts[m] = l.look(m)
			there = append(there, m)
		}
	}
	var proposed []inventory.Ref
	gangs := map[string][]*liveMachine{}
	for _, m := range there {
		if g := m.facts.Resource.Gang; g != "" {
			gangs[g] = append(gangs[g], m)
		}
	}
	for _, m := range there {
		v := verdicts[m]
		if gang := gangs[m.facts.Resource.Gang]; len(gang) > 1 {
			var all []duty.Verdict
			for _, o := range gang {
				all = append(all, verdicts[o])
			}
			v = duty.Gang(all)
		}
		m.facts.Duty = &v
		l.selected[m.name] = l.selected[m.name] || l.policy.Selects(&m.facts) == usage.True
		p := action.Proposal{Source: l.policy.Name, Resource: m.facts.Resource, Do: l.policy.Do, Mode: policy.Enforce, Limits: l.policy.Limits,
			Governed: true, Class: l.policy.Class(), Duty: &v, Hourly: m.facts.Hourly, Condition: l.policy.Evaluate(&m.facts).Answer, ReadAt: l.now}
		if l.policy.Warn != nil {
			p.Grace = l.policy.Warn.Grace
		}
		for _, o := range gangs[m.facts.Resource.Gang] {
			p.Gang = append(p.Gang, o.facts.Resource.Ref())
		}
		if p.Condition == usage.True {
			proposed = append(proposed, p.Resource.Ref())
		}
		m.proposal = &p
	}
	for _, m := range there {
		m.proposal.Together = proposed
		if m.item.Phase == action.Done {
			if m.proposal.Condition != usage.True {
				m.item = action.Item{}
			}
			m.proposal = nil
			continue
		}
		r := action.Round{Number: l.round, Now: l.now}
		var want action.Want
		m.item, want = action.Climb(m.item, m.proposal, r)
		switch {
		case want == action.Warn && !m.refused(l.now):
			m.item = m.item.Accepted([]string{"mail:ana"}, *m.proposal, r)
			l.decide(m, action.Warn)
			warned = true
		case want == action.Verify && !m.refused(l.now):
		case m.item.Phase == action.Withdrawn:
			m.item = action.Item{}
			l.decide(m, action.Nothing)
			m.proposal = nil
		default:
			m.proposal = nil
		}
	}
	return warned
}

func (m *liveMachine) refused(now time.Time) bool {
	p, r := *m.proposal, *m.proposal.Resource
	if r.Tags == nil {
		r.Tags = map[string]string{}
	}
	r.Detail = &inventory.Instance{}
	p.Resource, p.Grace = &r, max(1, p.Grace)
	return action.Refuse(p, m.item, now, nil) != nil
}

func (l *live) decide(m *liveMachine, want action.Want) {
	l.out = append(l.out, Decision{Time: l.now, Resource: m.name, Policy: l.policy.Name, Want: want})
}

// act carries out what the last round verified, if the caps allow all of it.
func (l *live) act() {
	var batch []*liveMachine
	for _, m := range l.machines {
		if m.proposal != nil {
			batch = append(batch, m)
		}
	}
	l.admitted = slices.DeleteFunc(l.admitted, func(at time.Time) bool { return l.now.Sub(at) >= time.Hour })
	selected := 0
	for _, yes := range l.selected {
		if yes {
			selected++
		}
	}
	b := action.Batch{Source: l.policy.Name, Now: l.now, Limits: l.policy.Limits, Selected: selected}
	for range batch {
		b.Admissions = append(b.Admissions, action.Admission{Hourly: l.price})
	}
	if l.caps && b.Over(len(l.admitted), l.price*money.Amount(len(l.admitted))) != nil {
		return
	}
	for _, m := range batch {
		m.proposal = nil
		l.decide(m, action.Verify)
		l.admitted = append(l.admitted, l.now)
		if v := l.policy.Do.Verb; v == policy.Tag || v == policy.Checkpoint {
			m.item.Phase = action.Done
			continue
		}
		busy := m.facts
		busy.Duty = &duty.Verdict{State: duty.Busy, Coverage: 1}
		m.ended, m.whole, m.item = true, l.policy.Evaluate(&busy).Answer == usage.True, action.Item{}
	}
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
	m.rich = rich
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
	b.WriteString("resource,tags,time,gpu,gpu_util,mem_used_bytes,mem_total_bytes,processes,cpu_util,step\n")
	for _, m := range machines {
		tags := ""
		if m.description != nil {
			for k, v := range m.description.Tags {
				tags = k + "=" + v
			}
		}
		for _, s := range m.samples {
			fmt.Fprintf(&b, "%s,%s,%d,%s", m.name, tags, s.at.Unix(), s.gpu)
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

// byResource puts decisions in an order that replay and daemon share.
func byResource(ds []Decision) []Decision {
	slices.SortStableFunc(ds, func(a, b Decision) int { return cmp.Or(cmp.Compare(a.Resource, b.Resource), a.Time.Compare(b.Time)) })
	return ds
}

// TestReplayDecidesAsLive feeds a daemon's loop and the replay the same samples under
// the same clock, and compares what they decide, one by one.
func TestReplayDecidesAsLive(t *testing.T) {
	set := parsed(t, livePolicies)
	kinds := map[action.Want]int{}
	rapid.Check(t, func(t *rapid.T) {
		p := set.Policies[rapid.IntRange(0, len(set.Policies)-1).Draw(t, "policy")]
		machines := liveMachines().Draw(t, "machines")
		caps := rapid.Bool().Draw(t, "caps")
		price := 3 * money.USD
		trace := liveTrace(machines)

		var got []Decision
		params := params(time.Minute)
		params.Baselines, params.Policies, params.Price, params.Caps = false, &policy.Set{Policies: []*policy.Policy{p}}, &price, caps
		params.Decided = func(d Decision) { got = append(got, d) }
		if _, err := Run(context.Background(), strings.NewReader(trace), params); err != nil {
			t.Fatal(err)
		}
		l := live{policy: p, machines: machines, caps: caps, price: price}
		want := byResource(l.run())
		got = byResource(got)
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Fatalf("decision %d of %s differs:\nlive   %v\nreplay %v\n%s", i, p.Name, at(want, i), at(got, i), trace)
			}
			kinds[got[i].Want]++
		}
	})
	if kinds[action.Warn] < 20 || kinds[action.Verify] < 20 || kinds[action.Nothing] < 5 {
		t.Errorf("too few decisions to tell: %v", kinds)
	}
}

// at returns the decisions around one.
func at(ds []Decision, i int) []Decision { return ds[min(max(0, i-2), len(ds)):min(len(ds), i+2)] }
