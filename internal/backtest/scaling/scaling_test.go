package scaling

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// TestFewerHoursOnRecordedArrivals compares settings of curfew with the defaults of the others on
// the same arrivals: fewer replica hours at no more late answers.
func TestFewerHoursOnRecordedArrivals(t *testing.T) {
	azure := func(name string) func(*testing.T) Params {
		return func(t *testing.T) Params {
			return tokenTrace(t, "azure-llm-2023/"+name, "t_s", "context_tokens", "generated_tokens", 1)
		}
	}
	for _, c := range []struct {
		name  string
		trace func(*testing.T) Params
		cold  time.Duration
		// beats are the autoscalers with more hours; ties are within 1.5%, with more late answers.
		beats, ties []string
	}{
		{"azure code", azure("code.csv.gz"), 3 * time.Minute, []string{"keda", "knative"}, nil},
		{"azure code, fast start", azure("code.csv.gz"), time.Minute, []string{"keda", "knative"}, nil},
		{"azure conversation", azure("conv.csv.gz"), 3 * time.Minute, []string{"keda", "knative"}, nil},
		{"azure conversation, fast start", azure("conv.csv.gz"), time.Minute, []string{"knative"}, []string{"keda"}},
		{"mooncake", func(t *testing.T) Params {
			return tokenTrace(t, "mooncake-2025/conversation.csv.gz", "t_ms", "input_tokens", "output_tokens", 0.001)
		}, 3 * time.Minute, []string{"keda", "knative", "target-tracking"}, nil},
		{"images", imageTrace, time.Minute, []string{"keda", "knative", "target-tracking"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := c.trace(t)
			if c.name == "images" { // two of thirteen days
				p.Arrivals, p.Work = p.Arrivals[:300], p.Work[:300]
			}
			p.ColdStart, p.Config.AddTime = c.cold, c.cold
			p.Start = StartFor(p)
			tried, err := Tune(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, peer := range Peers(p) {
				theirs, err := Run(p, peer)
				if err != nil {
					t.Fatal(err)
				}
				ours, found := Fewest(tried, theirs.Late)
				t.Logf("%s: %.2f h, %d late; curfew %.2f h, %d late (%s)", theirs.Name, theirs.ReplicaHours, theirs.Late,
					ours.Result.ReplicaHours, ours.Result.Late, ours.Result.Name)
				most := theirs.ReplicaHours
				switch {
				case slices.Contains(c.ties, theirs.Name):
					most *= 1.015
				case !slices.Contains(c.beats, theirs.Name):
					continue
				}
				if !found || ours.Result.ReplicaHours >= most {
					t.Errorf("%s has %.2f hours, curfew %.2f", theirs.Name, theirs.ReplicaHours,
						ours.Result.ReplicaHours)
				}
			}
		})
	}
}

// TestFittedSettingOnUnseenRequests fits a setting on the first half of recorded image requests, and
// compares it with the defaults of the others on the second half.
func TestFittedSettingOnUnseenRequests(t *testing.T) {
	p := imageTrace(t)
	p.Arrivals, p.Work = p.Arrivals[:2400], p.Work[:2400]
	p.ColdStart, p.Config.AddTime = 3*time.Minute, 3*time.Minute
	first, second, ok := Halves(p)
	if !ok {
		t.Fatal("no halves")
	}
	first.Start, second.Start = StartFor(first), StartFor(second)
	own, err := Run(first, New(first))
	if err != nil {
		t.Fatal(err)
	}
	tried, err := Tune(first)
	if err != nil {
		t.Fatal(err)
	}
	best, found := Fewest(tried, own.Late)
	if !found {
		t.Fatal("no setting has as few late answers as the default")
	}
	fitted := second
	fitted.Config.Target, fitted.Config.Stabilization = best.Target, best.Stabilization
	fitted.Config.Window = best.Window
	got, err := Run(fitted, New(fitted))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %.2f h, %d late", best.Setting(), got.ReplicaHours, got.Late)
	for _, peer := range Peers(second) {
		theirs, err := Run(second, peer)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.2f h, %d late", theirs.Name, theirs.ReplicaHours, theirs.Late)
		// Target tracking has a tenth more hours here, and answers a few more in time.
		late := theirs.Name != "target-tracking"
		if got.ReplicaHours >= theirs.ReplicaHours || late && got.Late > theirs.Late {
			t.Errorf("%s has %.2f hours and %d late answers, the fitted setting %.2f and %d", theirs.Name,
				theirs.ReplicaHours, theirs.Late, got.ReplicaHours, got.Late)
		}
	}
}

// TestDefaultsServeBurstsBetter holds the defaults on the burstiest of the traces.
func TestDefaultsServeBurstsBetter(t *testing.T) {
	p := tokenTrace(t, "azure-llm-2023/code.csv.gz", "t_s", "context_tokens", "generated_tokens", 1)
	p.ColdStart, p.Config.AddTime = 3*time.Minute, 3*time.Minute
	p.Start = StartFor(p)
	ours, err := Run(p, New(p))
	if err != nil {
		t.Fatal(err)
	}
	keda, err := Run(p, NewKeda(p))
	if err != nil {
		t.Fatal(err)
	}
	if ours.ReplicaHours >= keda.ReplicaHours || ours.Late > keda.Late {
		t.Errorf("curfew %.2f h and %d late, keda %.2f h and %d late", ours.ReplicaHours, ours.Late, keda.ReplicaHours,
			keda.Late)
	}
}

// steady are arrivals at equal distances.
func steady(n int, rate float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(i) / rate
	}
	return out
}

func TestLoneRequestsTakeTheirLaw(t *testing.T) {
	p := Params{
		Config:   fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 4}, Server: mistral(4 * time.Second)},
		Arrivals: steady(20, 0.1), Start: 1,
	}
	r, err := Run(p, Fixed(1))
	if err != nil {
		t.Fatal(err)
	}
	if want := 1788 * time.Millisecond; r.P50 != want || r.P99 != want || r.Late != 0 || r.Requests != 20 {
		t.Errorf("got %+v, want latencies of %s", r, want)
	}
	if want := (190 + 1.788) / 3600; math.Abs(r.ReplicaHours-want) > 1e-6 {
		t.Errorf("got %v replica hours, want %v", r.ReplicaHours, want)
	}
}

// TestSharesAReplica: two requests at once take a + 2b each, by the law.
func TestSharesAReplica(t *testing.T) {
	p := Params{
		Config:   fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 4}, Server: mistral(4 * time.Second)},
		Arrivals: []float64{0, 0}, Start: 1,
	}
	r, err := Run(p, Fixed(1))
	if err != nil {
		t.Fatal(err)
	}
	if want := 1836 * time.Millisecond; r.P50 != want || r.P99 != want {
		t.Errorf("got %s and %s, want %s", r.P50, r.P99, want)
	}
}

// TestMatchesBatchReplay holds a fixed fleet with batches against the planner's own replay.
func TestMatchesBatchReplay(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	at, times := 0.0, []float64{}
	for range 5000 {
		at += random.ExpFloat64() / 300
		times = append(times, at)
	}
	profile := capacity.Profile{PerItem: time.Millisecond, Base: 10 * time.Millisecond}
	plan, err := capacity.Plan(capacity.Params{
		Arrivals: &capacity.Arrivals{Times: times}, Profile: profile, MaxBatch: 16, Replicas: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(Params{
		Config: fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 2}, Server: fleet.Server{
			Law: fleet.Batch, Limit: 16, Profile: profile, Objective: time.Second,
		}},
		Arrivals: times, Start: 2,
	}, Fixed(2))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.P99.Seconds() * 1000; math.Abs(got-*plan.P99LatencyMS) > 1.5 {
		t.Errorf("p99 %.1f ms, the planner's replay has %.1f ms", got, *plan.P99LatencyMS)
	}
}

// TestAnswersEachRequestOnce holds for every scaler and random arrivals, to zero and back.
func TestAnswersEachRequestOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Params{Config: fleet.Config{Bounds: fleet.Bounds{Max: 5, Zero: true}, Server: mistral(4 * time.Second)}}
		at := 0.0
		for range rapid.IntRange(2, 80).Draw(t, "requests") {
			at += rapid.Float64Range(0, 600).Draw(t, "gap") * float64(rapid.IntRange(0, 1).Draw(t, "pause"))
			p.Arrivals = append(p.Arrivals, at)
			p.Work = append(p.Work, rapid.Float64Range(0.1, 5).Draw(t, "work"))
		}
		p.ColdStart = time.Duration(rapid.IntRange(0, 300).Draw(t, "cold")) * time.Second
		p.Start = rapid.IntRange(0, 2).Draw(t, "start")
		if rapid.Bool().Draw(t, "batches") {
			p.Config.Server.Law = fleet.Batch
			p.Config.Server.Objective = 10 * time.Second
		}
		for _, s := range append(Peers(p), New(p)) {
			r, err := Run(p, s)
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests != len(p.Arrivals) {
				t.Fatalf("%s answered %d of %d requests", s.Name(), r.Requests, len(p.Arrivals))
			}
			if r.ReplicaHours < 0 || r.Late > r.Requests || s.Name() == "curfew" && r.MaxReplicas > 2*p.Config.Max {
				t.Fatalf("%s: %+v", s.Name(), r)
			}
		}
	})
}

// TestDecidesFromThePastOnly cuts the arrivals: the decisions before the cut stay.
func TestDecidesFromThePastOnly(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	at, times := 0.0, []float64{}
	for range 4000 {
		at += random.ExpFloat64() / 5
		times = append(times, at)
	}
	decided := func(times []float64) (out []fleet.Decision) {
		p := Params{
			Config:   fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 9}, Server: mistral(4 * time.Second)},
			Arrivals: times, Start: 1, ColdStart: time.Minute,
			Decided: func(_ fleet.Reading, d fleet.Decision) { out = append(out, d) },
		}
		if _, err := Run(p, New(p)); err != nil {
			t.Fatal(err)
		}
		return out
	}
	whole := decided(times)
	for _, cut := range []int{500, 1500, 3000} {
		part := decided(times[:cut])
		before := epoch.Add(time.Duration(times[cut-1] * float64(time.Second)))
		for i, d := range part {
			if d.At.After(before) {
				break
			}
			if d != whole[i] {
				t.Fatalf("cut at %d: decision %d is %+v, was %+v", cut, i, d, whole[i])
			}
		}
	}
}

// TestStoredStateDecidesTheSame takes each decision from a state that was written and read back, as
// a live fleet does between two processes.
func TestStoredStateDecidesTheSame(t *testing.T) {
	p := Params{
		Config:   fleet.Config{Bounds: fleet.Bounds{Max: 9, Zero: true}, Server: mistral(4 * time.Second)},
		Arrivals: steady(3000, 8), Start: 1, ColdStart: time.Minute,
	}
	var stored []byte
	differences := 0
	p.Decided = func(r fleet.Reading, want fleet.Decision) {
		var s fleet.State
		if stored != nil {
			if err := json.Unmarshal(stored, &s); err != nil {
				t.Fatal(err)
			}
		}
		s, got := fleet.Decide(p.Config, s, r)
		if got != want {
			differences++
		}
		var err error
		if stored, err = json.Marshal(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Run(p, New(p)); err != nil {
		t.Fatal(err)
	}
	if differences != 0 {
		t.Errorf("%d decisions differ", differences)
	}
}

func TestKedaHoldsForItsStabilization(t *testing.T) {
	p := Params{Config: fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 9}, Server: mistral(4 * time.Second)}}
	k := NewKeda(p)
	at := epoch
	size := k.Size(Observation{At: at, InFlightNow: 150, Ready: 1, Actual: 1})
	if size != 5 { // ceil(150 / 32.9)
		t.Fatalf("size %d, want 5", size)
	}
	for i := 1; i <= 21; i++ {
		later := at.Add(time.Duration(i) * 15 * time.Second)
		size = k.Size(Observation{At: later, InFlightNow: 1, Ready: size, Actual: size})
		if want := map[bool]int{true: 5, false: 1}[i <= 20]; size != want {
			t.Fatalf("after %d × 15s: size %d, want %d", i, size, want)
		}
	}
}

func TestTargetTrackingNeedsThreeMinutes(t *testing.T) {
	p := Params{Config: fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 9}, Server: mistral(4 * time.Second)}}
	s := NewTargetTracking(p)
	for i, want := range []int{1, 1, 3} {
		at := epoch.Add(time.Duration(i+1) * time.Minute)
		if got := s.Size(Observation{At: at, InFlight: 80, Ready: 1, Actual: 1}); got != want {
			t.Errorf("minute %d: size %d, want %d", i+1, got, want)
		}
	}
}

func TestKnativePanics(t *testing.T) {
	p := Params{Config: fleet.Config{Bounds: fleet.Bounds{Min: 1, Max: 9}, Server: mistral(4 * time.Second)}}
	k := NewKnative(p)
	var size int
	for i := range 30 {
		size = k.Size(Observation{At: epoch.Add(time.Duration(i) * 2 * time.Second), InFlight: 1, Ready: 1, Actual: 1})
	}
	if size != 1 {
		t.Fatalf("size %d, want 1", size)
	}
	for i := range 3 {
		at := epoch.Add(time.Duration(30+i) * 2 * time.Second)
		size = k.Size(Observation{At: at, InFlight: 200, Ready: 1, Actual: 1})
	}
	if size < 4 {
		t.Errorf("a burst: size %d, want the panic to see it", size)
	}
}
