package fleets

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/apptest"
	"github.com/curfew-dev/curfew/internal/backtest/scaling"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/serving"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

var start = time.Unix(0, 0).UTC()

// stub is a source of demand that says what a test sets.
type stub struct {
	reading serving.Reading
	// then is called after each reading.
	then func()
}

func (s *stub) Read(context.Context, time.Time) serving.Reading {
	out := s.reading
	if s.then != nil {
		s.then()
	}
	return out
}

// says sets requests in flight, their rate and the replicas, as of a time.
func (s *stub) says(at time.Time, inFlight, rate float64, ready, starting int) {
	s.reading = serving.Reading{
		Sample: fleet.Sample{
			Source: "vllm", At: at, Step: 15 * time.Second,
			InFlight: inventory.Known(inFlight), Rate: inventory.Known(rate),
		},
		Ready: ready, Starting: starting, Replicas: true,
	}
}

func fleetConfig() fleet.Config {
	return fleet.Config{
		Bounds: fleet.Bounds{Min: 1, Max: 9}, AddTime: time.Minute,
		Server: fleet.Server{
			Law: fleet.Concurrency, Limit: 48, Objective: 4 * time.Second,
			Profile: capacity.Profile{PerItem: 48 * time.Millisecond, Base: 1740 * time.Millisecond},
		},
	}
}

// watching returns a watcher of one fleet with a source.
func watching(c fleet.Config, s *stub) *Watcher {
	w := NewWatcher(slog.New(slog.DiscardHandler))
	w.Set(Configured{"asg/embed": {
		config: c, readers: []reader{s}, status: Status{ID: "asg/embed", Policy: "embed-fleet", Bounds: c.Bounds},
	}})
	return w
}

// TestDecidesAsAReplay feeds a live watcher on a stepped clock with what a replay of arrivals saw.
func TestDecidesAsAReplay(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	at, arrivals := 0.0, []float64{}
	for i := range 30_000 {
		at += random.ExpFloat64() / (3 + 20*float64(i/5000%2))
		arrivals = append(arrivals, at)
	}
	type step struct {
		reading  fleet.Reading
		decision fleet.Decision
	}
	var replayed []step
	p := scaling.Params{
		Config: fleetConfig(), Arrivals: arrivals, Start: 2, ColdStart: time.Minute,
		Decided: func(r fleet.Reading, d fleet.Decision) { replayed = append(replayed, step{r, d}) },
	}
	if _, err := scaling.Run(p, scaling.New(p)); err != nil {
		t.Fatal(err)
	}
	source := &stub{}
	w := watching(p.Config, source)
	var live []fleet.Decision
	w.Decided = func(_ string, _ fleet.Config, _ fleet.Reading, d fleet.Decision) { live = append(live, d) }
	for _, s := range replayed {
		source.says(s.reading.At, s.reading.Demand.InFlight.Or(-1), s.reading.Demand.Rate.Or(-1), s.reading.Ready,
			s.reading.Actual-s.reading.Ready)
		w.Look(t.Context(), s.reading.At)
	}
	differences, changes := 0, 0
	for i := range live {
		if live[i] != replayed[i].decision {
			differences++
		}
		if live[i].Wanted != live[i].Actual {
			changes++
		}
	}
	if len(live) != len(replayed) || differences != 0 || changes < 4 {
		t.Errorf("%d decisions live and %d replayed, %d differ; %d changes", len(live), len(replayed), differences, changes)
	}
}

func TestSilenceKeepsWhatWasTold(t *testing.T) {
	source := &stub{}
	w := watching(fleetConfig(), source)
	source.says(start, 150, 30, 2, 0)
	w.Look(t.Context(), start)
	told := w.All()[0].Target
	if told <= 2 {
		t.Fatalf("does not grow: %+v", w.All()[0])
	}
	for i := 1; i < 100; i++ { // 25 minutes; replicas still start, and metrics are gone
		source.reading = serving.Reading{Sample: fleet.Sample{Source: "vllm", Problem: "connection refused"}}
		w.Look(t.Context(), start.Add(time.Duration(i)*15*time.Second))
		if s := w.All()[0]; s.Target != told || s.Decision.Known || s.Decision.Rule != "unknown" || s.ReplicasKnown {
			t.Fatalf("after %d looks: %+v", i, s)
		}
	}
	for _, size := range w.Sizes() {
		if size.Kind == "actual" {
			t.Errorf("an actual size of %d that was not seen", size.Replicas)
		}
	}
}

func TestUnseenFleetTellsNothing(t *testing.T) {
	source := &stub{reading: serving.Reading{Sample: fleet.Sample{Source: "vllm", Problem: "connection refused"}}}
	w := watching(fleetConfig(), source)
	w.Look(t.Context(), start)
	if s := w.All()[0]; s.Known {
		t.Errorf("got %+v", s)
	}
	for _, size := range w.Sizes() {
		if size.Kind != "min" && size.Kind != "max" {
			t.Errorf("got %+v", size)
		}
	}
}

// TestOneSilentSourceOfTwo makes the demand of both unknown.
func TestOneSilentSourceOfTwo(t *testing.T) {
	first, second := &stub{}, &stub{}
	first.says(start, 1, 1, 3, 0)
	second.reading.Sample = fleet.Sample{Source: "tgi", Problem: "throttled"}
	w := watching(fleetConfig(), first)
	w.fleets["asg/embed"].readers = []reader{first, second}
	w.Look(t.Context(), start)
	if s := w.All()[0]; s.Known {
		t.Errorf("got %+v", s)
	}
}

func TestChangedBoundsKeepTheMemory(t *testing.T) {
	source := &stub{}
	c := fleetConfig()
	w := watching(c, source)
	for i := range 25 {
		at := start.Add(time.Duration(i) * 15 * time.Second)
		source.says(at, 300, 60, 9, 0)
		w.Look(t.Context(), at)
	}
	c.Max = 4
	w.Set(Configured{"asg/embed": {
		config: c, readers: []reader{source}, status: Status{ID: "asg/embed", Policy: "embed-fleet", Bounds: c.Bounds},
	}})
	var sizes []int
	for i := 25; i < 28; i++ {
		at := start.Add(time.Duration(i) * 15 * time.Second)
		source.says(at, 300, 60, 9, 0)
		w.Look(t.Context(), at)
		sizes = append(sizes, w.All()[0].Target)
	}
	if sizes[0] != 9 || sizes[1] != 4 || sizes[2] != 4 {
		t.Errorf("sizes %v, want 9 and then, confirmed, 4", sizes)
	}
}

func TestConfiguresFleets(t *testing.T) {
	cfg := config.Default()
	err := config.Decode("curfew.yaml", []byte(`fleets:
  - id: asg/embed
    profile: a=48ms,b=1.74s
    max_running: 48
    late_after: 4s
    demand: [{url: "http://127.0.0.1:9090", server: vllm, select: 'job="embed"'}]
`), &cfg)
	if err != nil {
		t.Fatal(err)
	}
	parse := func(text string) *policy.Set {
		set, err := policy.Parse("p.yaml", []byte("apiVersion: curfew.policy/v1\npolicies:\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	req := apptest.Request(t, "")
	one := "  - {name: a, then: [{do: scale, fleet: asg/embed, max: 3, zero: true}]}\n"
	got, err := Configure(req, cfg, parse(one))
	if err != nil || len(got) != 1 || got["asg/embed"].config.Min != 1 || got["asg/embed"].status.Bounds.Min != 0 {
		t.Errorf("zero needs a source that sees callers: %+v, %v", got["asg/embed"], err)
	}
	_, err = Configure(req, cfg, parse(one+"  - {name: b, then: [{do: scale, fleet: asg/embed, min: 1, max: 3}]}\n"))
	if err == nil || !strings.Contains(err.Error(), "a and b both scale") {
		t.Errorf("two policies: %v", err)
	}
	got, err = Configure(req, cfg, parse("  - {name: c, then: [{do: scale, fleet: asg/other, min: 1, max: 3}]}\n"))
	if err != nil || len(got["asg/other"].readers) != 0 {
		t.Errorf("a fleet without demand: %+v, %v", got, err)
	}
}
