package duty

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

var minutely = usage.SourceInfo{Step: time.Minute, Source: "agent"}

func oneGPU() Machine { return Machine{GPUs: inventory.Known(1)} }

// gpuAt is a point of a GPU's utilization some minutes after the origin.
func gpuAt(minute, util float64) usage.Point {
	return usage.Point{Time: origin.Add(time.Duration(minute * float64(time.Minute))), Mean: util, Max: util}
}

func TestRejectsLateSamples(t *testing.T) {
	k := NewTracker(Thresholds{}, usage.Activity{}, 0)
	s := k.Open(minutely)
	other := k.Open(usage.SourceInfo{Step: time.Minute, Source: "another"})
	for _, tc := range []struct {
		name string
		sink usage.Sink
		p    usage.Point
		want bool
	}{
		{"the first", s, gpuAt(10, 50), true},
		{"a later one", s, gpuAt(11, 50), true},
		{"the same again", s, gpuAt(11, 50), true},
		{"the same time with another value", s, gpuAt(11, 20), true},
		{"an older one", s, gpuAt(10.5, 50), false},
		{"an older one of another source", other, gpuAt(9, 50), false},
		{"no measurement", s, gpuAt(5, -1), true},
		{"a gap later", s, gpuAt(30, 0), true},
		{"within the gap", s, gpuAt(20, 0), false},
	} {
		if got := tc.sink.Add("0", usage.GPUUtil, tc.p); got != tc.want {
			t.Errorf("%s: Add is %v, want %v", tc.name, got, tc.want)
		}
	}
	if !s.Add("0", usage.MemUsed, gpuAt(1, 0)) || !s.Add("1", usage.GPUUtil, gpuAt(1, 0)) ||
		!s.Add("", usage.Requests, gpuAt(0, 0)) {
		t.Error("a sample of another meter is late")
	}
	if k.AddRun(minutely, "0", usage.GPUUtil, origin, 100, 0) ||
		!k.AddRun(minutely, "0", usage.GPUUtil, origin, 0, 0) {
		t.Error("a run that begins in the past is not late, or no run is")
	}
	if v := k.Explain(gpuAt(29, 0).Time, oneGPU()); v.State != Unknown || !v.Next.Equal(gpuAt(30, 0).Time) {
		t.Errorf("before its newest sample it is %s (%s), next at %s", v.State, v.Why, v.Next)
	}
}

// TestRunEqualsItsSamples checks that a run equals as many single samples, at every time within it.
func TestRunEqualsItsSamples(t *testing.T) {
	run, single := NewTracker(Thresholds{}, usage.Activity{}, time.Hour), NewTracker(Thresholds{}, usage.Activity{},
		time.Hour)
	for hour := range 6 {
		v := float64(60 * (hour % 2))
		run.AddRun(minutely, "0", usage.GPUUtil, gpuAt(float64(60*hour), 0).Time, 58, v)
		for i := range 58 {
			minute := float64(60*hour + i)
			single.AddRun(minutely, "0", usage.GPUUtil, gpuAt(minute, 0).Time, 1, v)
			at := gpuAt(minute, 0).Time.Add(time.Duration(hour) * time.Second)
			got, want := run.Explain(at, oneGPU()), single.Explain(at, oneGPU())
			want.Next = time.Time{} // the samples that follow are unknown yet
			if d := sameVerdict(got, want, true); d != "" {
				t.Fatalf("at minute %v (-samples +run):\n%s", minute, d)
			}
		}
	}
}

// TestLimitsLookBack: rest that is longer than the look-back began no later than it, and no
// earlier than a block before.
func TestLimitsLookBack(t *testing.T) {
	k := NewTracker(Thresholds{}, usage.Activity{}, 0)
	k.AddRun(minutely, "0", usage.GPUUtil, origin, 10*24*60, 0)
	for minute := 12 * 60; minute < 10*24*60; minute += 47 {
		v := k.Verdict(gpuAt(float64(minute), 0).Time, oneGPU())
		back := gpuAt(float64(minute), 0).Time.Sub(v.Since)
		if v.State != Held || back < 12*time.Hour || back >= 15*time.Hour {
			t.Fatalf("after %d minutes it is %s for %s", minute, v.State, back)
		}
	}
}

// TestUnknownWithoutSamples: without a tracker, or without samples, nothing is known.
func TestUnknownWithoutSamples(t *testing.T) {
	var none *Tracker
	if v := none.Explain(now, oneGPU()); v.State != Unknown || v.Why != "nothing was measured" {
		t.Errorf("it is %s: %s", v.State, v.Why)
	}
	k := NewTracker(Thresholds{}, usage.Activity{}, 0)
	if v := k.Explain(now, oneGPU()); v.State != Unknown || !v.Next.IsZero() {
		t.Errorf("it is %s, next at %s", v.State, v.Next)
	}
	launched := Machine{GPUs: inventory.Known(1), Launched: now}
	if v := k.Explain(now, launched); v.State != Warming || !v.Next.Equal(now.Add(15*time.Minute+1)) {
		t.Errorf("just launched it is %s, next at %s", v.State, v.Next)
	}
	k.Open(usage.SourceInfo{Source: "broken"}).Add("0", usage.GPUUtil, usage.Point{Time: now, Mean: 0})
	if v := k.Explain(now, oneGPU()); v.State != Unknown {
		t.Errorf("samples that stand for no time make it %s (%s)", v.State, v.Why)
	}
}

// TestNext names the moments at which a verdict changes by itself.
func TestNext(t *testing.T) {
	at := func(m float64) time.Time { return gpuAt(m, 0).Time }
	for _, tc := range []struct {
		name     string
		feed     func(k *Tracker)
		now      float64
		launched time.Time
		want     time.Time
		then     State
	}{
		{"a sample expires", func(k *Tracker) {
			k.AddRun(minutely, "0", usage.GPUUtil, at(0), 10, 0)
		}, 9.5, time.Time{}, at(12).Add(1), Unknown},
		{"the last sample of a run expires", func(k *Tracker) {
			k.AddRun(minutely, "0", usage.GPUUtil, at(0), 100, 50)
		}, 9.5, time.Time{}, at(102).Add(1), Unknown},
		{"it has warmed up", func(k *Tracker) {
			k.AddRun(minutely, "0", usage.GPUUtil, at(0), 100, 0)
		}, 5, at(0), at(15).Add(1), Held},
		{"patience ends", func(k *Tracker) {
			k.AddRun(minutely, "0", usage.GPUUtil, at(0), 100, 90)
			k.AddRun(minutely, "", usage.Step, at(0), 100, 7)
		}, 10, time.Time{}, at(30), Stalled},
		{"enough is covered", func(k *Tracker) {
			k.AddRun(minutely, "0", usage.GPUUtil, at(0), 1, 0)
			k.AddRun(minutely, "0", usage.GPUUtil, at(1.45), 20, 0)
		}, 1.5, time.Time{}, at(4.45), Held},
	} {
		k := NewTracker(Thresholds{}, usage.Activity{}, 1000*time.Hour)
		tc.feed(k)
		m := oneGPU()
		m.Launched = tc.launched
		v := k.Verdict(at(tc.now), m)
		for range 5 { // it may look more often than needed
			if !v.Next.Before(tc.want) {
				break
			}
			before := v
			if v = k.Verdict(v.Next, m); v.State != before.State {
				t.Errorf("%s: it is %s at %s already", tc.name, v.State, before.Next)
			}
		}
		if then := k.Verdict(tc.want, m); !v.Next.Equal(tc.want) || v.State == tc.then || then.State != tc.then {
			t.Errorf("%s: %s until %s, then %s; want until %s, then %s", tc.name, v.State, v.Next,
				then.State, tc.want, tc.then)
		}
	}
}

// TestNextBeforeRestBegins: after a point that stands for longer than the samples reach, rest
// starts again with each sample until it has begun.
func TestNextBeforeRestBegins(t *testing.T) {
	k := NewTracker(Thresholds{}, usage.Activity{}, 0)
	k.AddRun(minutely, "0", usage.GPUUtil, gpuAt(0, 0).Time, 100, 0)
	tensor := usage.SourceInfo{Step: 5 * time.Minute, Source: "agent"}
	k.AddRun(tensor, "0", usage.TensorActive, gpuAt(10, 0).Time, 1, 0.5)
	k.AddRun(tensor, "0", usage.TensorActive, gpuAt(10.2, 0).Time, 1, 0)
	at := gpuAt(10.5, 0).Time
	for minute := 11.0; minute < 15; minute++ {
		v := k.Verdict(at, oneGPU())
		if since := gpuAt(minute, 0).Time; v.State != Held || !v.Since.Equal(since) || !v.Next.Equal(since) {
			t.Fatalf("at %s it is %s since %s, next at %s; want since %s", at, v.State, v.Since, v.Next, since)
		}
		at = v.Next
	}
}

// TestHeldMemoryCrossing: however often memory falls, the line is where it was crossed.
func TestHeldMemoryCrossing(t *testing.T) {
	for name, m := range map[string]Machine{
		"measured": oneGPU(), "from a catalog": {GPUs: inventory.Known(1), GPUMemory: 80 * gib},
	} {
		k := NewTracker(Thresholds{}, usage.Activity{}, 0)
		k.SetMachine(m)
		s := k.Open(minutely)
		for i := range 600 {
			p := gpuAt(float64(i), 0)
			s.Add("0", usage.GPUUtil, p)
			if m.GPUMemory == 0 {
				s.Add("0", usage.MemTotal, usage.Point{Time: p.Time, Mean: 80 * gib, Max: 80 * gib})
			}
			held := (12 - float64(i)/50) * gib
			s.Add("0", usage.MemUsed, usage.Point{Time: p.Time, Mean: held, Max: held})
		}
		// 5% of 80 GiB are held for the last time in minute 400.
		if v := k.Verdict(gpuAt(599, 0).Time, m); v.State != Idle || !v.Since.Equal(gpuAt(401, 0).Time) {
			t.Errorf("%s: %s since %s, want idle since minute 401", name, v.State, v.Since)
		}
	}
}

// TestForgetsGPUs: names that change, as those of MIG instances do, leave nothing behind.
func TestForgetsGPUs(t *testing.T) {
	k := NewTracker(Thresholds{}, usage.Activity{}, time.Hour)
	for i := range 500 {
		k.AddRun(minutely, fmt.Sprint("GPU-", i), usage.GPUUtil, gpuAt(float64(30*i), 0).Time, 30, 0)
	}
	if len(k.gpus) > 5 {
		t.Errorf("%d GPUs are remembered", len(k.gpus))
	}
}

// eightGPUs is a machine with every signal of its host and six of each GPU, whose values
// never repeat: the most that a tracker of it has to keep.
func eightGPUs(minutes int) *Tracker {
	random := rand.New(rand.NewPCG(1, 2))
	k := NewTracker(Thresholds{}, usage.Activity{}, 0)
	s := k.Open(minutely)
	for i := range minutes {
		for gpu := range 8 {
			for _, sig := range []usage.Signal{
				usage.GPUUtil, usage.SMActive, usage.MemUsed, usage.MemTotal, usage.Power, usage.Processes,
			} {
				s.Add(fmt.Sprint(gpu), sig, gpuAt(float64(i), random.Float64()*float64(minutes-i)/float64(minutes)))
			}
		}
		for _, sig := range []usage.Signal{
			usage.CPUUtil, usage.NetBytes, usage.DiskBytes, usage.Sessions, usage.Kernels,
			usage.Step, usage.Checkpoints,
		} {
			s.Add("", sig, gpuAt(float64(i), random.Float64()*10))
		}
	}
	return k
}

// TestTrackerMemoryLimit checks that a machine with 8 GPUs, 6 signals each and those of the host
// takes at most 16 KiB, for any duration.
func TestTrackerMemoryLimit(t *testing.T) {
	for _, minutes := range []int{100, 3000} {
		const machines = 20
		keep := make([]*Tracker, machines)
		heap := func() uint64 {
			runtime.GC()
			runtime.GC()
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			return s.HeapAlloc
		}
		before := heap()
		for i := range keep {
			keep[i] = eightGPUs(minutes)
		}
		each := (heap() - before) / machines
		runtime.KeepAlive(keep)
		const most = 16<<10 + 128 // eight GPUs, and the record of progress
		if t.Logf("%d bytes after %d minutes", each, minutes); each > most {
			t.Errorf("a tracker takes %d bytes after %d minutes, at most %d", each, minutes, most)
		}
	}
}

// TestVerdictDoesNotAllocate in any state.
func TestVerdictDoesNotAllocate(t *testing.T) {
	k, at := eightGPUs(500), gpuAt(499.5, 0).Time
	for _, m := range []Machine{
		{GPUs: inventory.Known(8)}, {}, {GPUs: inventory.Known(8), Launched: at}, {GPUs: inventory.Known(9)},
	} {
		if n := testing.AllocsPerRun(100, func() { k.Verdict(at, m) }); n > 0 {
			t.Errorf("%s takes %v allocations", k.Verdict(at, m).State, n)
		}
	}
	for i, tc := range nowFixtures() {
		if tc.m == nil {
			continue
		}
		k := tc.m.tracker(t, tc.t)
		if n := testing.AllocsPerRun(10, func() { k.Verdict(now, windowMachine(tc.m.w, tc.gpus)) }); n > 0 {
			t.Errorf("fixture %d, %s: %v allocations", i, tc.name, n)
		}
	}
}

func BenchmarkVerdict(b *testing.B) {
	for _, n := range []int{1, 8} {
		m := minutes(720).gpus(n, 0, 0.5)
		for i := range n {
			m.flat(fmt.Sprint(i), usage.SMActive, 0)
		}
		k, about := m.quiet().tracker(b, Thresholds{}), Machine{GPUs: inventory.Known(n)}
		b.Run(fmt.Sprintf("gpus=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if v := k.Verdict(now, about); v.State != Idle {
					b.Fatal(v.State)
				}
			}
		})
	}
	m := minutes(720).flat("0", usage.GPUUtil, 0)
	k := m.tracker(b, Thresholds{})
	b.Run("utilization of one GPU", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if v := k.Verdict(now, oneGPU()); v.State != Held {
				b.Fatal(v.State)
			}
		}
	})
}

func BenchmarkExplain(b *testing.B) {
	k := minutes(720).gpus(8, 0, 0.5).quiet().tracker(b, Thresholds{})
	b.ReportAllocs()
	for b.Loop() {
		if v := k.Explain(now, Machine{GPUs: inventory.Known(8)}); v.State != Idle {
			b.Fatal(v.State)
		}
	}
}

// BenchmarkAdd adds samples of eight GPUs, whose values change each time or never.
func BenchmarkAdd(b *testing.B) {
	for name, change := range map[string]float64{"constant": 0, "changing": 1} {
		b.Run(name, func(b *testing.B) {
			k := NewTracker(Thresholds{}, usage.Activity{}, 0)
			s := k.Open(minutely)
			names := []string{"0", "1", "2", "3", "4", "5", "6", "7"}
			b.ReportAllocs()
			p := gpuAt(0, 0)
			for i := 0; b.Loop(); i++ {
				if i%8 == 0 {
					p.Time = p.Time.Add(time.Minute)
				}
				p.Max = change * float64(i*7919%101)
				p.Mean = p.Max
				s.Add(names[i%8], usage.GPUUtil, p)
			}
		})
	}
}
