package duty

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// delivery is one batch of samples: one sample, or several equal ones.
type delivery struct {
	meterKey
	o     usage.SourceInfo
	p     usage.Point
	count int
	run   bool // by AddRun
}

// samples returns the handing's samples.
func (h delivery) samples() []delivery {
	out := make([]delivery, h.count)
	for i := range out {
		out[i] = h
		out[i].count = 1
		out[i].p.Time = h.p.Time.Add(time.Duration(i) * h.o.Step)
	}
	return out
}

func (h delivery) end() time.Time { return h.p.Time.Add(time.Duration(h.count-1) * h.o.Step) }

// deliver hands samples over and fails where they are taken for late.
func deliver(t interface{ Fatalf(string, ...any) }, k *Tracker, h delivery) {
	ok := false
	if h.run {
		ok = k.AddRun(h.o, h.gpu, h.signal, h.p.Time, h.count, h.p.Max)
	} else {
		ok = k.Open(h.o).Add(h.gpu, h.signal, h.p)
	}
	if !ok {
		t.Fatalf("%+v is late", h)
	}
}

// reference judges a machine by all of its samples from a horizon to now, without any
// state: it makes a window of them. Of each meter only the samples since it was opened
// in another way count.
func reference(all []delivery, now time.Time, m Machine, t Thresholds, a usage.Activity,
	lookBack time.Duration) Verdict {
	block := (lookBack + 4*time.Minute - 1) / (4 * time.Minute) * time.Minute
	back := now.UnixNano() - int64(lookBack)
	horizon := time.Unix(0, back-((back%int64(block))+int64(block))%int64(block)).UTC()
	restarted := map[meterKey]int{} // where a meter started again
	opened := map[meterKey]usage.SourceInfo{}
	for i, s := range all {
		if s.p.Time.After(now) {
			continue
		}
		if o, ok := opened[s.meterKey]; !ok || o != s.o {
			restarted[s.meterKey] = i
		}
		opened[s.meterKey] = s.o
	}
	w := usage.NewWindow(horizon, now.Add(1000*time.Hour), time.Minute, "", a.Floors)
	w.Launched, w.GPUMemory, w.Aggregated = m.Launched, m.GPUMemory, true
	for i, s := range all {
		if i < restarted[s.meterKey] || s.p.Time.After(now) {
			continue
		}
		w.Step, w.Source = s.o.Step, s.o.Source
		if w.Add(s.gpu, s.signal, s.p) && s.gpu == "" && s.signal.PerGPU() && !s.o.Aggregated {
			w.Aggregated = false
		}
	}
	w.Source = ""
	for _, track := range append(slices.Clone(w.GPUs), &w.Machine) {
		for s := usage.GPUUtil; s < usage.Capacity && w.Source == ""; s++ {
			if st := track.Stats(s); st != nil && isTracked(s) {
				w.Source = w.SourceOf(st)
			}
		}
	}
	gpus := -1
	if n, ok := m.GPUs.Get(); ok {
		gpus = n
	}
	return naiveNow(w, gpus, now, t)
}

// fleet is one machine with arbitrary habits and arbitrary telemetry.
type fleet struct {
	lookBack   time.Duration
	machine    Machine
	t          Thresholds
	a          usage.Activity
	deliveries []delivery // in time order
}

// origin is where the samples of fleets begin.
var origin = now.Truncate(24 * time.Hour)

// draw draws a machine. Smooth habits have few values, so that no peak is lost.
func drawFleet(t *rapid.T, smooth bool) fleet {
	f := fleet{
		lookBack: rapid.SampledFrom([]time.Duration{
			4 * time.Minute, 7 * time.Minute, 20 * time.Minute, time.Hour,
		}).Draw(t,
			"look back"),
	}
	gpus := rapid.SampledFrom([]int{-1, 0, 0, 1, 1, 1, 2, 3}).Draw(t, "gpus")
	if gpus >= 0 {
		f.machine.GPUs = inventory.Known(gpus)
	}
	f.machine.GPUMemory = rapid.SampledFrom([]float64{0, 80 * gib}).Draw(t, "catalog memory")
	if rapid.IntRange(0, 3).Draw(t, "launch") == 0 {
		f.machine.Launched = origin.Add(time.Duration(rapid.IntRange(-10, 40).Draw(t, "launched")) * time.Minute)
	}
	f.t = Thresholds{
		GPUs:         rapid.SampledFrom([]string{AllGPUs, AllGPUs, AnyGPU}).Draw(t, "rule"),
		MinCoverage:  rapid.SampledFrom([]float64{0, 0, 0.7, 0.99, 1}).Draw(t, "coverage"),
		StalledAfter: rapid.SampledFrom([]time.Duration{2 * time.Minute, 10 * time.Minute}).Draw(t, "patience"),
		WarmUp:       3 * time.Minute,
		BusyPower:    rapid.SampledFrom([]float64{0, 200}).Draw(t, "power"),
	}
	if rapid.Bool().Draw(t, "floors") {
		floors := usage.DefaultFloors()
		floors[usage.GPUUtil] = 0.2
		f.a = usage.Activity{Floors: floors}
	}
	training := rapid.IntRange(0, 3).Draw(t, "training") == 0 // computes, with or without progress
	util := []float64{0, 0, 0.4, 1, 50, 100}
	if training {
		util = []float64{90, 90, 90, 90, 1, 0.4}
	}
	names := []string{""}
	if gpus != 0 || rapid.IntRange(0, 4).Draw(t, "unexpected GPUs") == 0 {
		names = rapid.SampledFrom([][]string{
			{""}, {"0"}, {"0"}, {"0", "1"}, {"0", "1", "2"}, {"0", "0:1", "0:2"}, {"0:1", "1"}, {"", "0"},
		}).Draw(t, "names")
	}
	minutes := rapid.IntRange(2, 90).Draw(t, "minutes")
	step := rapid.SampledFrom([]time.Duration{20 * time.Second, time.Minute}).Draw(t, "step")
	habit := func(gpu string, s usage.Signal, often bool, values ...float64) {
		if rapid.IntRange(0, 9).Draw(t, "absent") < map[bool]int{true: 1, false: 5}[often] {
			return
		}
		f.deliveries = append(f.deliveries, drawMeter(t, meterKey{gpu, s}, step, minutes, smooth, values)...)
	}
	for _, gpu := range names {
		if gpu == "" && gpus == 0 && len(names) == 1 {
			continue
		}
		habit(gpu, usage.GPUUtil, true, util...)
		habit(gpu, usage.GREngine, false, 0, 0, 0.004, 0.5)
		habit(gpu, usage.SMActive, false, 0, 0, 0.004, 0.5)
		habit(gpu, usage.TensorActive, false, 0, 0, 0.5)
		habit(gpu, usage.DRAMActive, false, 0, 0.2)
		habit(gpu, usage.MemUsed, true, 0, 0, 3*gib, 60*gib)
		if smooth { // otherwise the memory limit would move with each sample
			habit(gpu, usage.MemTotal, false, 80*gib, 80*gib, 0)
			habit(gpu, usage.MemFree, false, 20*gib)
		}
		habit(gpu, usage.Power, false, 60, 61, 0, 299, 300)
		habit(gpu, usage.Temperature, false, 40, 41)
		habit(gpu, usage.Energy, false, 0, 7000, 7001)
		habit(gpu, usage.Processes, false, 0, 0, 1)
	}
	per := step.Seconds()
	habit("", usage.CPUUtil, true, 1, 1, 4, 8, 60)
	habit("", usage.NetBytes, true, 1e3*per, 1e3*per, 4e5*per, 40e6*per)
	habit("", usage.DiskBytes, false, 1e3*per, 1e3*per, 4e6*per, 40e6*per)
	habit("", usage.Sessions, false, 0, 0, 0, 1)
	habit("", usage.Kernels, false, 0, 0, 0, 1)
	habit("", usage.Step, training, 0, 1, 2, 5)
	habit("", usage.Checkpoints, training, 0, 1, 2, 5)
	habit("", usage.Requests, false, 0, 5)
	slices.SortStableFunc(f.deliveries, func(a, b delivery) int { return a.p.Time.Compare(b.p.Time) })
	return f
}

// drawMeter draws the samples of one meter: habits that change now and then, with
// jitter and gaps, in runs or one by one, of one source or of several.
func drawMeter(t *rapid.T, key meterKey, step time.Duration, minutes int, smooth bool, values []float64) []delivery {
	o := usage.SourceInfo{Step: step, Source: "agent", Aggregated: rapid.IntRange(0, 2).Draw(t, "aggregated") > 0}
	if rapid.IntRange(0, 3).Draw(t, "own step") == 0 {
		o.Step = rapid.SampledFrom([]time.Duration{
			10 * time.Second, 90 * time.Second, 5 * time.Minute,
		}).Draw(t, "step")
	}
	at := origin.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 7, 61, 600, 2400}).Draw(t, "phase")) * time.Second)
	end := origin.Add(time.Duration(minutes) * time.Minute)
	jitter := rapid.SampledFrom([]int{0, 0, 0, 10, 60}).Draw(t, "jitter percent")
	gaps := rapid.SampledFrom([]int{0, 0, 1, 10, 50}).Draw(t, "gaps percent")
	shape := rapid.SampledFrom([]string{"constant", "runs", "runs", "noise", "falls", "steps"}).Draw(t, "shape")
	chance := func(percent int) bool { return percent > 0 && rapid.IntRange(0, 99).Draw(t, "chance") < percent }
	v, level := rapid.SampledFrom(values).Draw(t, "value"), 1.0
	var out []delivery
	for at.Before(end) {
		h := delivery{meterKey: key, o: o, count: 1}
		switch shape {
		case "runs":
			h.run, h.count = true, rapid.IntRange(1, 40).Draw(t, "count")
			v = rapid.SampledFrom(values).Draw(t, "value")
		case "noise":
			v = rapid.SampledFrom(values).Draw(t, "value")
			if !smooth {
				v *= rapid.Float64Range(0, 1).Draw(t, "share")
			}
		case "falls":
			if !smooth {
				level *= 0.97
				v = level * values[len(values)-1]
			}
		case "steps":
			if chance(15) {
				v++
			} else if chance(2) {
				v = 0
			}
			if key.signal != usage.Step && key.signal != usage.Checkpoints {
				v = rapid.SampledFrom(values).Draw(t, "value")
			}
		}
		h.p = usage.Point{Time: at, Mean: v, Max: v}
		if !h.run && chance(5) {
			h.p.Mean /= 2
		}
		out = append(out, h)
		at = h.end().Add(o.Step)
		if chance(jitter) {
			at = at.Add(time.Duration(rapid.IntRange(-99, 120).Draw(t, "jitter")) * o.Step / 200)
		}
		if chance(gaps) {
			at = at.Add(time.Duration(rapid.IntRange(1, 8).Draw(t, "lost")) * o.Step / 2)
		}
		if chance(1) {
			o.Step, o.Source = rapid.SampledFrom([]time.Duration{o.Step, 30 * time.Second}).Draw(
				t, "new step"), "another"
		}
	}
	return out
}

// sameVerdict compares what decides, and with words what people read as well.
func sameVerdict(got, want Verdict, words bool) string {
	got.Next = time.Time{}
	if !words {
		want.Why, want.Evidence, want.GPUs = "", nil, nil
	}
	return cmp.Diff(want, got)
}

// TestTrackerMatchesNaive compares the tracker with the verdict over all samples so far, at random
// times between one handing and the next; what was handed over ahead is unknown to it. Until the
// next moment at which it changes by itself neither state nor beginning do, and cutting off the
// future changes nothing.
func TestTrackerMatchesNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkTrackerMatchesNaive(t, true) })
}

// TestTrackerMatchesNaiveOnNoise: values that never repeat change no verdict; only what they
// were in evidence may be higher than it was.
func TestTrackerMatchesNaiveOnNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkTrackerMatchesNaive(t, false) })
}

func checkTrackerMatchesNaive(t *rapid.T, smooth bool) {
	f := drawFleet(t, smooth)
	k := NewTracker(f.t, f.a, f.lookBack)
	k.SetMachine(f.machine)
	var all []delivery
	every := rapid.IntRange(1, 1+len(f.deliveries)/8).Draw(t, "ask every")
	for i, h := range f.deliveries {
		deliver(t, k, h)
		all = append(all, h.samples()...)
		after := h.p.Time.Add(20 * time.Minute)
		if i+1 < len(f.deliveries) {
			after = f.deliveries[i+1].p.Time
		}
		if !after.After(h.p.Time) || (i+1 < len(f.deliveries) && i%every > 0) {
			continue
		}
		slices.SortStableFunc(all, func(a, b delivery) int { return a.p.Time.Compare(b.p.Time) })
		from := h.p.Time
		for range rapid.IntRange(1, 3).Draw(t, "questions") {
			at := from.Add(time.Duration(rapid.Int64Range(0, int64(after.Sub(from))-1).Draw(t, "later")))
			f.compare(t, k, all, at, after, smooth)
		}
	}
	if f.deliveries == nil {
		f.compare(t, k, nil, origin, origin.Add(time.Hour), smooth)
	}
}

// allowHigherMaxima lets a maximum in evidence be higher than it was: a tracker keeps how high values
// were by blocks of time, and a block may begin before what is looked at.
func allowHigherMaxima(got, want []usage.Evidence) {
	for i := range min(len(got), len(want)) {
		g, err := strconv.ParseFloat(got[i].Value, 64)
		w, err2 := strconv.ParseFloat(want[i].Value, 64)
		if err == nil && err2 == nil && g > w && strings.Contains(want[i].Signal, "_max") {
			got[i].Value = want[i].Value
		}
	}
}

// compare asks both at a time, before anything else is handed over.
func (f fleet) compare(t *rapid.T, k *Tracker, all []delivery, at, after time.Time, smooth bool) {
	lean, got := k.Verdict(at, f.machine), k.Explain(at, f.machine)
	want := reference(all, at, f.machine, f.t, f.a, f.lookBack)
	if !smooth {
		want.Evidence, got.Evidence = nil, nil
	}
	allowHigherMaxima(got.Evidence, want.Evidence)
	if d := sameVerdict(got, want, true); d != "" {
		t.Fatalf("at %s (-naive +tracker):\n%s", at, d)
	}
	if d := sameVerdict(lean, want, false); d != "" {
		t.Fatalf("lean at %s (-naive +tracker):\n%s", at, d)
	}
	next := lean.Next
	if !next.Equal(got.Next) || (!next.IsZero() && !next.After(at)) {
		t.Fatalf("at %s the next change is at %s, explained %s", at, next, got.Next)
	}
	if next.IsZero() || next.After(after) {
		next = after
	}
	if left := int64(next.Sub(at)) - 1; left > 0 {
		then := at.Add(
			time.Duration(rapid.SampledFrom([]int64{left, left, rapid.Int64Range(0, left).Draw(t, "then")}).Draw(
				t, "when")))
		again := reference(all, then, f.machine, f.t, f.a, f.lookBack)
		if again.State != want.State || !again.Since.Equal(want.Since) {
			t.Fatalf("at %s it is %s (%s) since %s, at %s %s (%s) since %s, and the next change was to be at %s",
				at, want.State, want.Why, want.Since, then, again.State, again.Why, again.Since, lean.Next)
		}
	}
}

// TestHorizon compares the beginning of what is looked back to with its definition.
func TestHorizon(t *testing.T) {
	for _, tc := range []struct {
		lookBack  time.Duration
		now, want string
	}{
		{12 * time.Hour, "2026-11-21T12:00:00Z", "2026-11-21T00:00:00Z"},
		{12 * time.Hour, "2026-11-21T14:59:59Z", "2026-11-21T00:00:00Z"},
		{12 * time.Hour, "2026-11-21T15:00:00Z", "2026-11-21T03:00:00Z"},
		{0, "2026-11-21T12:00:00Z", "2026-11-21T00:00:00Z"},
		{time.Minute, "2026-11-21T12:00:59Z", "2026-11-21T11:59:00Z"},
		{9 * time.Minute, "2026-11-21T12:10:00Z", "2026-11-21T12:00:00Z"},
		{time.Hour, "1969-12-31T23:59:00Z", "1969-12-31T22:45:00Z"},
	} {
		now, _ := time.Parse(time.RFC3339, tc.now)
		if got := Horizon(now, tc.lookBack).Format(time.RFC3339); got != tc.want {
			t.Errorf("%s before %s: got %s, want %s", tc.lookBack, tc.now, got, tc.want)
		}
	}
}

// TestCorrectsNewestPoint hands samples over that were first read before they were
// whole: the verdict is that of the whole ones alone.
func TestCorrectsNewestPoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := drawFleet(t, rapid.Bool().Draw(t, "smooth"))
		early, whole := NewTracker(f.t, f.a, f.lookBack), NewTracker(f.t, f.a, f.lookBack)
		var all []delivery
		for _, h := range f.deliveries {
			all = append(all, h.samples()...)
		}
		slices.SortStableFunc(all, func(a, b delivery) int { return a.p.Time.Compare(b.p.Time) })
		for i, h := range all {
			h.run = false
			if rapid.IntRange(0, 2).Draw(t, "early") == 0 {
				part := h
				part.p.Mean *= rapid.SampledFrom([]float64{0, 0.5}).Draw(t, "part")
				part.p.Max = part.p.Mean
				deliver(t, early, part)
			}
			deliver(t, early, h)
			deliver(t, whole, h)
			if i+1 < len(all) && !all[i+1].p.Time.After(h.p.Time) {
				continue
			}
			at := h.p.Time.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "later")) * time.Second)
			if diff := cmp.Diff(whole.Verdict(at, f.machine), early.Verdict(at, f.machine)); diff != "" {
				t.Fatalf("at %s (-whole +corrected):\n%s", at, diff)
			}
		}
	})
}
