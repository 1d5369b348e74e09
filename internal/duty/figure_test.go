package duty

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// naiveFigure is a figure of one GPU, of a plain list of its samples: those in the window that
// ends with the newest one at now, of those from the horizon on.
func naiveFigure(all []delivery, now, horizon time.Time, f Figure, minCoverage float64) (float64, bool) {
	var in []delivery
	for _, s := range all {
		if !s.p.Time.After(now) {
			in = append(in, s)
		}
	}
	if len(in) == 0 {
		return 0, false
	}
	last := in[len(in)-1]
	step, newest := last.o.Step, last.p.Time
	opened := len(in) - 1
	for opened > 0 && in[opened-1].o == last.o {
		opened--
	}
	in = in[opened:]
	in = slices.DeleteFunc(in, func(s delivery) bool {
		return !s.p.Time.After(newest.Add(-f.Window)) || s.p.Time.Before(horizon)
	})
	if len(in) == 0 || now.After(newest.Add(3*step)) {
		return 0, false
	}
	covered := time.Duration(0)
	start := newest.Add(step - f.Window)
	sum, high, low, rise := 0.0, math.Inf(-1), math.Inf(1), 0.0
	for i, s := range in {
		end := s.p.Time.Add(step)
		if i+1 < len(in) && in[i+1].p.Time.Before(end) {
			end = in[i+1].p.Time
		}
		from := s.p.Time
		if from.Before(start) {
			from = start
		}
		covered += max(0, end.Sub(from))
		sum, high, low = sum+s.p.Mean, max(high, s.p.Max), min(low, s.p.Mean)
		if i > 0 {
			if d := s.p.Max - in[i-1].p.Max; d >= 0 {
				rise += d
			} else {
				rise += s.p.Max
			}
		}
	}
	if float64(covered)/float64(f.Window) < minCoverage {
		return 0, false
	}
	switch f.Statistic {
	case Max:
		return high, true
	case Min:
		return low, true
	case Rise:
		return rise, true
	}
	return sum / float64(len(in)), true
}

// TestFiguresMatchNaive draws machines of several GPUs with gaps, jitter, runs
// that are handed over ahead, samples that are corrected, and other steps, and asks for
// figures now and then.
func TestFiguresMatchNaive(t *testing.T) {
	known := 0
	rapid.Check(t, func(t *rapid.T) {
		quantity := rapid.SampledFrom([]Quantity{
			Util, SMActive, Occupancy, Temperature, ECCErrors,
		}).Draw(t, "quantity")
		var figures []Figure
		for range rapid.IntRange(1, 4).Draw(t, "figures") {
			f := Figure{
				Quantity: quantity, Statistic: rapid.SampledFrom(quantities[quantity].statistics).Draw(t, "statistic"),
				Window: time.Duration(rapid.SampledFrom([]int{1, 2, 5, 7, 30}).Draw(t, "window")) * time.Minute}
			f.Worst = quantities[quantity].worst != "" && rapid.Bool().Draw(t, "worst")
			figures = append(figures, f)
		}
		lookBack := rapid.SampledFrom([]time.Duration{8 * time.Minute, time.Hour}).Draw(t, "look back")
		k := NewTracker(Thresholds{}, usage.Activity{}, lookBack).Watch(NewWatch(figures))
		gpus := rapid.IntRange(1, 3).Draw(t, "GPUs")
		steps := []time.Duration{time.Minute, time.Minute, 20 * time.Second, 5 * time.Minute}
		signal := quantities[quantity].feeds[0].signal
		values := []float64{0, 0.25, 0.5, 1}
		if quantity == ECCErrors || quantity == Temperature {
			values = []float64{0, 1, 2, 7, 90}
		}
		lists := make([][]delivery, gpus)
		var all []delivery
		for g := range gpus {
			step, at := steps[rapid.IntRange(0, 3).Draw(t, "step")], origin.Add(
				time.Duration(rapid.IntRange(0, 50).Draw(t, "offset"))*time.Second)
			for range rapid.IntRange(0, 30).Draw(t, "runs") {
				if rapid.IntRange(0, 12).Draw(t, "other") == 0 {
					step = steps[rapid.IntRange(0, 3).Draw(t, "step")]
				}
				h := delivery{
					meterKey: meterKey{gpu: string(rune('0' + g)), signal: signal},
					o:        usage.SourceInfo{Step: step}, run: true,
				}
				v := rapid.SampledFrom(values).Draw(t, "value")
				h.p = usage.Point{Time: at, Mean: v, Max: v}
				h.count = rapid.IntRange(1, 9).Draw(t, "count")
				if h.count == 1 && rapid.Bool().Draw(t, "rolled up") {
					h.run, h.p.Mean = false, v/2
				}
				all = append(all, h)
				at = h.end().Add(step)
				switch rapid.IntRange(0, 5).Draw(t, "then") {
				case 0:
					at = at.Add(step * time.Duration(rapid.IntRange(1, 4).Draw(t, "gap")))
				case 1:
					at = at.Add(
						time.Duration(rapid.IntRange(-int(step/time.Second)/3,
							int(step/time.Second)/3).Draw(t, "jitter")) *
							time.Second)
				}
			}
		}
		slices.SortStableFunc(all, func(a, b delivery) int { return a.p.Time.Compare(b.p.Time) })
		m := Machine{GPUs: inventory.Known(gpus)}
		now := origin
		ask := func() {
			for _, f := range figures {
				got := Gauge{k, m}.Read(now, f, false)
				var s gpuFigures
				for g := range gpus {
					s.add(naiveFigure(lists[g], now, instant(k.horizon(nanos(now))), f, 0.9))
				}
				want := s.known == gpus
				if got.Known != want || want && math.Abs(got.Value-s.combine(f)) > 1e-9*max(1, s.combine(f)) {
					t.Fatalf("at %s %s over %s is %+v, want %v (%t)", now, f.Name(), f.Window, got, s.combine(f), want)
				}
				if want {
					known++
				}
				if got.Next.IsZero() {
					continue
				}
				// It is the same just before it is said to change, without further samples.
				if until := got.Next.Add(-1); until.After(now) && len(all) == 0 {
					if then := (Gauge{k, m}).Read(until, f, false); then.Known != got.Known ||
						then.Value != got.Value {
						t.Fatalf("%s is %+v at %s and %+v at %s", f.Name(), got, now, then, until)
					}
					now = until
				}
			}
		}
		for len(all) > 0 {
			h := all[0]
			all = all[1:]
			if h.p.Time.Before(now) {
				continue // it was handed over before it was measured
			}
			now = h.p.Time
			g := int(h.gpu[0] - '0')
			if n := len(lists[g]); n > 0 && !h.p.Time.After(lists[g][n-1].p.Time) {
				continue
			}
			deliver(t, k, h)
			lists[g] = append(lists[g], h.samples()...)
			if rapid.Bool().Draw(t, "ask") {
				now = now.Add(time.Duration(rapid.IntRange(0, 59).Draw(t, "later")) * time.Second)
				ask()
			}
		}
		for range 6 {
			ask()
			now = now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "later")) * time.Second)
		}
	})
	if known == 0 {
		t.Error("nothing was ever known")
	}
}

// gpuSeries is samples of a minute of one signal of one GPU, or of the machine.
type gpuSeries struct {
	gpu    string
	signal usage.Signal
	values []float64
}

func same(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

// TestFigures checks figures of machines at the last of ten minutes, and after it.
func TestFigures(t *testing.T) {
	eight := func(s usage.Signal, values ...float64) (out []gpuSeries) {
		for g := range 8 {
			out = append(out, gpuSeries{string(rune('0' + g)), s, values})
		}
		return out
	}
	busy := eight(usage.GPUUtil, same(50, 10)...)
	figure := func(q Quantity, s Statistic) Figure {
		return Figure{Quantity: q, Statistic: s, Window: 10 * time.Minute}
	}
	worst := func(q Quantity, s Statistic) Figure {
		f := figure(q, s)
		f.Worst = true
		return f
	}
	last, unknown := 9*time.Minute, math.NaN()
	for _, tc := range []struct {
		name    string
		samples []gpuSeries
		at      time.Duration
		f       Figure
		want    float64
		why     string
	}{
		{"nothing", nil, last, figure(Util, Mean), unknown, "gpu_util is not measured"},
		{"all GPUs", busy, last, figure(Util, Mean), 50, ""},
		{"an absent signal", busy, last, figure(Occupancy, Mean), unknown, "sm_occupancy is not measured"},
		{"one GPU of eight is not measured", busy[1:], last, figure(Util, Mean), unknown, "7 of 8 GPUs were measured"},
		{
			"one GPU of eight rests", append(slices.Clone(busy[1:]), gpuSeries{"0", usage.GPUUtil, same(0, 10)}), last,
			figure(Util, Mean), 43.75, "",
		},
		{
			"the worst of them", append(slices.Clone(busy[1:]), gpuSeries{"0", usage.GPUUtil, same(0, 10)}), last,
			worst(Util, Mean), 0, "",
		},
		{
			"any of them", append(slices.Clone(busy[1:]), gpuSeries{"0", usage.GPUUtil, same(0, 10)}),
			last, figure(Util, Max), 50,
			"",
		},
		{"three steps old", busy, last + 3*time.Minute, figure(Util, Mean), 50, ""},
		{"older", busy, last + 3*time.Minute + 1, figure(Util, Mean), unknown, "GPU 0: its newest sample is too old"},
		{
			"a minute is missing", eight(usage.GPUUtil, 50, 50, 50, -1, 50, 50, 50, 50, 50, 50),
			last, figure(Util, Mean), 50,
			"",
		},
		{
			"two minutes are missing", eight(usage.GPUUtil, 50, 50, 50, -1, 50, 50, 50, -1, 50, 50),
			last, figure(Util, Mean),
			unknown, "GPU 0: samples cover 80% of 10m",
		},
		{
			"unsupported, as DCGM has it", eight(usage.Temperature, same(9223372036854775794, 10)...), last,
			figure(Temperature, Max), unknown, "temperature_c is not measured",
		},
		{
			"unsupported for two minutes", eight(usage.Temperature, 60, 60, 2147483632, 60, 60, 60,
				60, 2147483632, 60, 60),
			last, figure(Temperature, Max), unknown, "GPU 0: samples cover 80% of 10m",
		},
		{
			"headroom",
			append(eight(usage.Temperature, 60, 61, 70, 60, 60, 60, 60, 60, 60, 60),
				eight(usage.SlowdownTemperature, 90)...),
			last, worst(Headroom, Min), 20, "",
		},
		{
			"headroom of a device that does not tell", eight(usage.Temperature, same(60, 10)...),
			last, figure(Headroom, Min),
			unknown, "the temperature at which it slows down is unknown",
		},
		{
			"memory", append(eight(usage.MemUsed, same(60e9, 10)...), eight(usage.MemTotal, same(80e9, 10)...)...),
			last,
			figure(MemoryShare, Mean), 0.75, "",
		},
		{
			"memory of unknown size", eight(usage.MemUsed, same(60e9, 10)...), last,
			figure(MemoryShare, Mean), unknown,
			"the size of its memory is unknown",
		},
		{"power", eight(usage.Power, same(300, 10)...), last, figure(PowerShare, Mean), 0.75, ""},
		{
			"half of the time too hot, and idle", eight(usage.Throttle, 0x20, 1, 0x20, 1, 0x20, 1,
				0x20, 1, 0x20, 1), last,
			figure(ThermalThrottle, Mean), 0.5, "",
		},
		{"a power limit is no heat", eight(usage.Throttle, same(4, 10)...), last, figure(ThermalThrottle, Max), 0, ""},
		{
			"an Xid",
			append(eight(usage.XID, same(0, 10)...)[1:], gpuSeries{
				"0", usage.XID, []float64{0, 0, 31, 31, 31, 31, 31, 31, 31, 31},
			}),
			last, figure(Xid, Max), 31, "",
		},
		{
			"memory errors, and a driver that was loaded again",
			eight(usage.ECCErrors, 3, 3, 4, 4, 4, 0, 0, 1, 1, 1), last,
			figure(ECCErrors, Rise), 16, "",
		},
		{"none is lost", busy, last, figure(LostGPUs, Count), 0, ""},
		{"one that was never seen", busy[1:], last, figure(LostGPUs, Count), 1, ""},
		{
			"one that went", append(slices.Clone(busy[1:]), gpuSeries{"0", usage.GPUUtil, same(50, 3)}), last,
			figure(LostGPUs, Count), 0, "",
		},
		{
			"one that went before the window",
			append(slices.Clone(busy[1:]), gpuSeries{"0", usage.GPUUtil, same(50, 3)}), last,
			Figure{Quantity: LostGPUs, Statistic: Count, Window: 5 * time.Minute}, 1, ""},
		{
			"one with Xid 79",
			append(slices.Clone(busy), gpuSeries{"3", usage.XID, []float64{0, 0, 0, 0, 0, 0, 79, 79, 79, 79}}),
			last, figure(LostGPUs, Count), 1, "",
		},
		{
			"one that the driver does not see",
			append(slices.Clone(busy), gpuSeries{"", usage.GPUCount, same(7, 10)}), last,
			figure(LostGPUs, Count), 1, "",
		},
		{
			"the driver alone tells", []gpuSeries{{"", usage.GPUCount, same(6, 10)}}, last, figure(LostGPUs, Count), 2,
			"",
		},
		{
			"an exporter that died has not lost all", busy, last + 4*time.Minute, figure(LostGPUs, Count), unknown,
			"its newest sample is too old",
		},
		{
			"a machine that was just started has not lost the others", busy[:1], last,
			Figure{Quantity: LostGPUs, Statistic: Count, Window: 12 * time.Minute}, unknown,
			"samples cover 83% of 12m",
		},
		{
			"a series without a name", []gpuSeries{{"", usage.GPUUtil, same(50, 10)}}, last,
			figure(Util, Mean), unknown,
			"one series of samples stands for several GPUs",
		},
		{
			"signals that contradict one another",
			append(slices.Clone(busy), gpuSeries{"2", usage.GREngine, same(0, 10)}), last,
			figure(Util, Mean), unknown,
			"GPU 2: utilization reads 50% while the graphics engine reads 0%: one of them is wrong"},
		{
			"an exporter that repeats itself",
			append(append(slices.Clone(busy), gpuSeries{"2", usage.Power, same(301.2, 10)}),
				gpuSeries{"2", usage.Temperature, same(50, 10)}), last, figure(Util, Mean), unknown,
			"GPU 2: power stands still at 301.2 W and temperature at 50 C for 10 samples: its exporter is frozen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			k := NewTracker(Thresholds{}, usage.Activity{}, time.Hour).Watch(NewWatch([]Figure{tc.f}))
			for minute := range 10 {
				for _, s := range tc.samples {
					if minute < len(s.values) && s.values[minute] >= 0 {
						k.Open(usage.SourceInfo{
							Step: time.Minute,
						}).Add(s.gpu, s.signal, usage.Point{
							Time: origin.Add(time.Duration(minute) * time.Minute),
							Mean: s.values[minute], Max: s.values[minute],
						})
					}
				}
			}
			got := Gauge{k, Machine{GPUs: inventory.Known(8), GPUPower: 400}}.Read(origin.Add(tc.at), tc.f, true)
			if got.Known == math.IsNaN(tc.want) || got.Known &&
				math.Abs(got.Value-tc.want) > 1e-9 || got.Why != tc.why {
				t.Errorf("%s is %+v, want %v %q", tc.f.Name(), got, tc.want, tc.why)
			}
		})
	}
}

// TestCoverageOfSamplesCloserThanTheirStep checks that of samples that are closer together than
// their step, several may begin before the window, and what they cover there is not of it.
func TestCoverageOfSamplesCloserThanTheirStep(t *testing.T) {
	for _, tc := range []struct {
		name    string
		seconds []int // of the samples, each of a minute
		now     int
		known   bool
	}{
		// The window is 100 s to 400 s, of which 130 s to 160 s are not covered.
		{"two begin before the window, and a tenth is missing", []int{50, 70, 160, 220, 280, 340}, 340, true},
		{"two begin before the window, and more is missing", []int{50, 70, 165, 220, 280, 340}, 340, false},
		{"three do", []int{45, 55, 65, 220, 280, 340}, 340, false},
		{"one does", []int{65, 165, 220, 280, 340}, 340, false},
		{"one does that covers enough", []int{70, 160, 220, 280, 340}, 340, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := Figure{Quantity: Util, Statistic: Mean, Window: 5 * time.Minute}
			k := NewTracker(Thresholds{}, usage.Activity{}, time.Hour).Watch(NewWatch([]Figure{f}))
			o := k.Open(usage.SourceInfo{Step: time.Minute})
			var all []delivery
			for i, s := range tc.seconds {
				p := usage.Point{Time: origin.Add(time.Duration(s) * time.Second), Mean: float64(i), Max: float64(i)}
				o.Add("0", usage.GPUUtil, p)
				all = append(all, delivery{p: p, o: usage.SourceInfo{Step: time.Minute}})
			}
			now := origin.Add(time.Duration(tc.now) * time.Second)
			got := Gauge{k, Machine{GPUs: inventory.Known(1)}}.Read(now, f, true)
			if _, naive := naiveFigure(all, now, origin, f, 0.9); got.Known != tc.known || naive != tc.known {
				t.Errorf("%+v and %t of the plain list, want %t", got, naive, tc.known)
			}
		})
	}
}

// TestMIGFigures checks that a GPU that is divided is measured by its instances where it is not
// itself.
func TestMIGFigures(t *testing.T) {
	f := Figure{Quantity: SMActive, Statistic: Mean, Window: time.Minute}
	k := NewTracker(Thresholds{}, usage.Activity{}, time.Hour).Watch(
		NewWatch([]Figure{f, {Quantity: SMActive, Statistic: Mean, Worst: true, Window: time.Minute}}))
	for gpu, v := range map[string]float64{"0:1": 0.2, "0:2": 0.4, "1": 0.9} {
		k.AddRun(usage.SourceInfo{Step: time.Minute}, gpu, usage.SMActive, origin, 3, v)
	}
	g := Gauge{k, Machine{GPUs: inventory.Known(2)}}
	if got := g.Read(origin, f, true); !got.Known || math.Abs(got.Value-0.6) > 1e-9 {
		t.Errorf("the mean over the GPUs is %+v, want 0.6", got)
	}
	f.Worst = true
	if got := g.Read(origin, f, true); !got.Known || got.Value != 0.2 {
		t.Errorf("the worst is %+v, want 0.2", got)
	}
}

// TestWatchedTrackerMemoryIsBounded: what is kept of a figure does not grow with time.
func TestWatchedTrackerMemoryIsBounded(t *testing.T) {
	f := Figure{Quantity: Util, Statistic: Max, Window: 30 * time.Minute}
	k := NewTracker(Thresholds{}, usage.Activity{}, time.Hour).Watch(NewWatch([]Figure{f}))
	for minute := range 20_000 {
		k.AddRun(usage.SourceInfo{Step: time.Minute}, "0", usage.GPUUtil,
			origin.Add(time.Duration(minute)*time.Minute), 1,
			float64(minute*7%100))
	}
	h := k.rolling.gpus[0].histories[0]
	if n := len(h.runs) + len(h.windows[0].highs) + len(h.windows[0].lows); n > 4*30 {
		t.Errorf("%d entries are kept for a window of 30 samples", n)
	}
}

// BenchmarkWatched adds a sample of each of 8 GPUs and asks for three figures.
func BenchmarkWatched(b *testing.B) {
	figures := []Figure{
		{
			Quantity: Util, Statistic: Mean, Window: 30 * time.Minute,
		}, {Quantity: Util, Statistic: Max, Worst: true, Window: time.Hour},
		{Quantity: Temperature, Statistic: Max, Window: 10 * time.Minute}}
	k := NewTracker(Thresholds{}, usage.Activity{}, 2*time.Hour).Watch(NewWatch(figures))
	o, g := usage.SourceInfo{Step: time.Minute}, Gauge{k, Machine{GPUs: inventory.Known(8)}}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		at := origin.Add(time.Duration(n) * time.Minute)
		for gpu := range 8 {
			name := "01234567"[gpu : gpu+1]
			k.AddRun(o, name, usage.GPUUtil, at, 1, float64((n*7+gpu)%100))
			k.AddRun(o, name, usage.Temperature, at, 1, float64((n*3+gpu)%100))
		}
		for _, f := range figures {
			g.Read(at, f, false)
		}
	}
}
