package duty

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/usage"
)

// Now says what a machine does by the newest samples of a window, as [Tracker.Explain] does by its
// own. gpus is how many GPUs the machine has, negative where that is unknown. A nil window is an
// unmeasured machine.
func Now(w *usage.Window, gpus int, now time.Time, t Thresholds) Verdict {
	if w == nil {
		return Verdict{Why: "nothing was measured"}
	}
	q := restoreTracker(w, t).newEvaluation(nanos(now), windowMachine(w, gpus), true)
	v := newVerdictBuilder()
	q.evaluate(&v)
	return v.build()
}

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const gib = 1 << 30

// machine builds a window of regular points, apart from one another by its step
// unless stated.
type machine struct {
	w       *usage.Window
	points  int
	apart   time.Duration
	samples []delivery
}

// add records a point, in the window and as a sample.
func (m *machine) add(gpu string, s usage.Signal, p usage.Point) {
	m.w.Add(gpu, s, p)
	m.samples = append(m.samples, delivery{meterKey: meterKey{gpu, s}, p: p, count: 1})
}

// tracker hands the samples over in time order.
func (m *machine) tracker(t failer, th Thresholds) *Tracker {
	k := NewTracker(th, usage.Activity{}, 1000*time.Hour)
	slices.SortStableFunc(m.samples, func(a, b delivery) int { return a.p.Time.Compare(b.p.Time) })
	sink := k.Open(usage.SourceInfo{Step: m.w.Step, Source: m.w.Source, Aggregated: m.w.Aggregated})
	for _, s := range m.samples {
		if !sink.Add(s.gpu, s.signal, s.p) {
			t.Errorf("%v is late", s)
		}
	}
	return k
}

// build asks the tracker at a time, and holds a window's answer to the same. A nil
// machine is an unmeasured one.
func (m *machine) verdict(t failer, gpus int, at time.Time, th Thresholds) Verdict {
	t.Helper()
	var k *Tracker
	var w *usage.Window
	var about Machine
	if m != nil {
		k, w, about = m.tracker(t, th), m.w, windowMachine(m.w, gpus)
	}
	v, of := k.Explain(at, about), Now(w, gpus, at, th)
	if of.State != v.State || of.Duration != v.Duration || !of.Since.Equal(v.Since) || !of.Until.Equal(v.Until) ||
		!of.Expires.Equal(v.Expires) {
		t.Errorf("the tracker says %s (%s) from %s to %s, a window %s (%s) from %s to %s", v.State, v.Why, v.Since,
			v.Expires, of.State, of.Why, of.Since, of.Expires)
	}
	return v
}

func days(n int) *machine { return hours(24 * n) }

func hours(n int) *machine {
	from := now.Add(-time.Duration(n) * time.Hour)
	return &machine{w: usage.NewWindow(from, now, time.Hour, "cloudwatch", nil), points: n}
}

// series adds its points; where value is negative there is none.
func (m *machine) series(gpu string, s usage.Signal, value func(i int) float64) *machine {
	for i := range m.points {
		if v := value(i); v >= 0 {
			m.add(gpu, s, usage.Point{Time: m.w.From.Add(time.Duration(i) * max(m.apart, m.w.Step)), Mean: v, Max: v})
		}
	}
	return m
}

func (m *machine) flat(gpu string, s usage.Signal, v float64) *machine {
	return m.series(gpu, s, func(int) float64 { return v })
}

// gpuCount adds n GPUs with that utilization and GiB in use of 80.
func (m *machine) gpus(n int, util, used float64) *machine {
	for i := range n {
		m.gpu(fmt.Sprint(i), util, used)
	}
	return m
}

// tdp sets the TDP of the GPUs' model.
func (m *machine) tdp(watts float64) *machine { m.w.GPUPower = watts; return m }

func (m *machine) gpu(name string, util, used float64) *machine {
	return m.flat(name, usage.GPUUtil, util).flat(name, usage.MemUsed, used*gib).flat(name, usage.MemTotal, 80*gib)
}

func (m *machine) host(cpu, megabytesPerDay float64) *machine {
	return m.flat("", usage.CPUUtil, cpu).flat("", usage.NetBytes, megabytesPerDay*1e6/24)
}

// TestStallOfOneGPUWhileAnotherRests checks that the progress counter is attributed to the
// computing GPU.
func TestStallOfOneGPUWhileAnotherRests(t *testing.T) {
	for _, computes := range []string{"0", "1"} {
		m := minutes(240).gpu(computes, 97, 60).gpu(map[string]string{"0": "1", "1": "0"}[computes], 0, 0).series("",
			usage.Step, countsUntil(1, 120))
		if v := Judge(m.w, 2, now, withWindow(Thresholds{})); v.State != Stalled || v.Duration != 2*time.Hour {
			t.Errorf("where GPU %s computes: %s for %s (%s)", computes, v.State, v.Duration, v.Why)
		}
	}
}

// TestEvidenceIsRounded to the digits that a reader compares.
func TestEvidenceIsRounded(t *testing.T) {
	m := days(14).gpus(1, 12.3456, 10).flat("0", usage.SMActive, 0.123456).flat("0", usage.DRAMActive, 0.654321)
	got := map[string]string{}
	for _, e := range Judge(m.w, 1, now, Thresholds{}).Evidence {
		got[e.Signal] = e.Value
	}
	unsized := days(14).flat("0", usage.GPUUtil, 0).flat("0", usage.MemUsed, 20.04*gib)
	for _, e := range Judge(unsized.w, 1, now, Thresholds{}).Evidence {
		if e.Signal == "gpu_mem_used_max_gib" {
			got[e.Signal] = e.Value
		}
	}
	for signal, want := range map[string]string{
		"gpu_util_max_pct": "12.3", "sm_active_max": "0.123", "dram_active_max": "0.654", "gpu_mem_used_max_gib": "20",
	} {
		if got[signal] != want {
			t.Errorf("%s is %q, want %q", signal, got[signal], want)
		}
	}
}

// TestRecentWorkIsBusy checks that a single hour of work counts while less than the threshold lies
// between it and the newest sample.
func TestRecentWorkIsBusy(t *testing.T) {
	recent := int(DefaultThresholds().Recent / time.Hour)
	for ago, want := range map[int]State{recent - 1: Busy, recent: Idle, recent + 1: Idle} {
		m := days(14).flat("0", usage.MemUsed, 0).flat("0", usage.MemTotal, 80*gib).host(1, 1).
			series("0", usage.GPUUtil, func(h int) float64 { return during(h == 335-ago, 60) })
		if v := Judge(m.w, 1, now, DefaultThresholds()); v.State != want {
			t.Errorf("work %d hours ago is %s (%s), want %s", ago, v.State, v.Why, want)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name    string
		m       *machine
		gpus    int
		want    State
		why     string
		lasting time.Duration
	}{
		{name: "nothing measured", m: nil, gpus: 8, want: Unknown, why: "nothing was measured"},
		{
			name: "GPU machine without GPU telemetry", m: days(14).host(1, 1), gpus: 8, want: Unknown,
			why: "not measured",
		},
		{
			name: "idle in every respect", m: days(14).gpus(8, 0, 0.5).host(2, 1), gpus: 8, want: Idle,
			why: "nothing held for 14d", lasting: 14 * 24 * time.Hour,
		},
		{name: "idle without host telemetry", m: days(14).gpus(8, 0, 0.5), gpus: 8, want: Idle},
		{name: "5% CPU with 95% GPU", m: days(14).gpus(1, 95, 60).host(5, 1), gpus: 1, want: Busy, why: "95%"},
		{
			name: "0% GPU with 92% memory", m: days(14).gpus(1, 0, 73.6).host(1, 1), gpus: 1, want: Held,
			why: "92% of memory held, 0% compute for 14d", lasting: 14 * 24 * time.Hour,
		},
		{name: "held memory with busy CPUs", m: days(14).gpus(1, 0, 70).host(90, 1), gpus: 1, want: Held},
		{
			name: "held by a process alone", m: days(14).gpus(1, 0, 0.4).flat("0", usage.Processes,
				1), gpus: 1, want: Held,
			why: "held by 1 process",
		},
		{
			name: "memory was held and is free now", m: days(14).flat("0", usage.GPUUtil, 0).flat("0",
				usage.MemTotal, 80*gib).
				series("0", usage.MemUsed, func(h int) float64 {
					return float64(60-60*min(1, h/300)) * gib
				}), gpus: 1, want: Held,
			why: "up to 75% of memory was held"},
		{
			name: "unmeasured memory", m: days(14).flat("0", usage.GPUUtil, 0), gpus: 1, want: Held,
			why: "its memory is not measured",
		},
		{
			name: "unmeasured memory, busy CPUs", m: days(14).flat("0", usage.GPUUtil, 0).host(60,
				1), gpus: 1, want: Busy,
			why: "CPUs reach 60%",
		},
		{
			name: "memory in bytes of unknown size",
			m:    days(14).flat("0", usage.GPUUtil, 0).flat("0", usage.MemUsed, 0),
			gpus: 1, want: Held, why: "its memory is not measured",
		},
		{
			name: "no process and no word of memory",
			m:    days(14).flat("0", usage.GPUUtil, 0).flat("0", usage.Processes, 0),
			gpus: 1, want: Idle, why: "nothing held",
		},
		{
			name: "one idle GPU of eight", m: days(14).gpus(7, 90, 60).gpu("7", 0, 0), gpus: 8, want: Busy,
			why: "7 of 8 GPUs compute",
		},
		{
			name: "one busy GPU of eight", m: days(14).gpus(7, 0, 0).gpu("7", 90, 60), gpus: 8, want: Busy,
			why: "1 of 8 GPUs compute",
		},
		{
			name: "one held GPU of eight", m: days(14).gpus(7, 0, 0).gpu("7", 0, 60), gpus: 8, want: Held,
			why: "1 of 8 GPUs held: 75% of memory",
		},
		{
			name: "seven of eight measured, all idle", m: days(14).gpus(7, 0, 0).host(1, 1), gpus: 8, want: Unknown,
			why: "7 of 8 GPUs were measured",
		},
		{name: "one of eight measured, and busy", m: days(14).gpus(1, 50, 10), gpus: 8, want: Busy},
		{
			name: "unnamed series of eight GPUs", m: days(14).gpu("", 0, 0).host(1, 1), gpus: 8, want: Unknown,
			why: "unknown GPU of several",
		},
		{name: "unnamed series of eight GPUs, busy", m: days(14).gpu("", 50, 10).host(1, 1), gpus: 8, want: Busy},
		{name: "unnamed series of one GPU", m: days(14).gpu("", 0, 0).host(1, 1), gpus: 1, want: Idle},
		{name: "maximum over eight GPUs", m: aggregated(days(14).gpu("", 0, 0).host(1, 1)), gpus: 8, want: Idle},
		{name: "unknown number of GPUs", m: days(14).gpus(2, 0, 0), gpus: -1, want: Unknown, why: "number of GPUs"},
		{name: "unexpected GPUs", m: days(14).gpus(2, 0, 0).host(1, 1), gpus: 0, want: Idle},
		{
			name: "coverage of 89% on one GPU", m: days(14).gpus(7, 0, 0).flat("7", usage.MemUsed,
				0).flat("7", usage.MemTotal,
				80*gib).
				series("7", usage.GPUUtil, func(h int) float64 {
					return missing(h%9 == 0, 0)
				}), gpus: 8, want: Unknown,
			why: "GPU 7: samples cover 89%"},
		{
			name: "at work days ago, half covered", m: days(14).flat("0", usage.MemUsed, 0).flat("0",
				usage.MemTotal, 80*gib).
				series("0", usage.GPUUtil, func(h int) float64 {
					return missing(h%2 == 0, during(h > 100 && h < 120, 60))
				}),
			gpus: 1, want: Unknown, why: "samples cover 50%"},
		{
			name: "at work lately, half covered", m: days(14).flat("0", usage.MemUsed, 0).flat("0",
				usage.MemTotal, 80*gib).
				series("0", usage.GPUUtil, func(h int) float64 {
					return missing(h%2 == 0, during(h > 315, 60))
				}), gpus: 1,
			want: Busy},
		{name: "memory half covered", m: days(14).flat("0", usage.GPUUtil, 0).flat("0", usage.MemTotal, 80*gib).
			series("0", usage.MemUsed, func(h int) float64 { return missing(h%2 == 0, 0) }), gpus: 1, want: Unknown,
			why: "memory cover 50%"},
		{
			name: "newest sample four steps old", m: days(14).series("0", usage.GPUUtil, func(h int) float64 {
				return missing(h >= 14*24-3, 0)
			}).flat("0", usage.MemUsed, 0).
				flat("0", usage.MemTotal, 80*gib), gpus: 1, want: Unknown, why: "too old"},
		{
			name: "busy until telemetry ended",
			m:    days(14).series("0", usage.GPUUtil, func(h int) float64 { return missing(h >= 300, 90) }), gpus: 1,
			want: Unknown, why: "too old",
		},
		{
			name: "agent installed yesterday, busy since",
			m: days(14).series("0", usage.GPUUtil, func(h int) float64 {
				return missing(h < 312, 90)
			}), gpus: 1, want: Busy,
		},
		{
			name: "agent installed yesterday, idle since",
			m: days(14).series("0", usage.GPUUtil, func(h int) float64 { return missing(h < 312, 0) }).
				series("0", usage.MemUsed, func(h int) float64 { return missing(h < 312, 0) }).
				series("0", usage.MemTotal, func(h int) float64 { return missing(h < 312, 80*gib) }),
			gpus: 1, want: Idle, why: "0% compute and nothing held for 1d",
		},
		{
			name: "agent installed five hours ago, idle since",
			m:    days(14).series("0", usage.GPUUtil, func(h int) float64 { return missing(h < 331, 0) }), gpus: 1,
			want: Unknown, why: "it could be measured for 5h, which is shorter than 1d",
		},
		{
			name: "agent installed yesterday, with gaps since",
			m:    days(14).series("0", usage.GPUUtil, func(h int) float64 { return missing(h < 300 || h%3 == 1, 0) }),
			gpus: 1, want: Unknown, why: "samples cover 67% of the window",
		},
		{
			name: "metrics of one of two GPUs begin later",
			m: days(14).gpu("0", 0, 0).flat("1", usage.MemUsed, 0).
				series("1", usage.GPUUtil, func(h int) float64 { return missing(h < 312, 0) }),
			gpus: 2, want: Unknown, why: "samples cover 7% of the window",
		},
		{
			name: "young machine without GPUs, idle since",
			m: days(14).series("", usage.CPUUtil, func(h int) float64 { return missing(h < 300, 1) }).
				series("", usage.NetBytes, func(h int) float64 { return missing(h < 300, 0) }),
			gpus: 0, want: Idle, why: "for 1d 12h",
		},
		{
			name: "window under a day", m: hours(23).gpus(1, 0, 0).host(1, 1), gpus: 1, want: Unknown,
			why: "shorter than 1d",
		},
		{name: "window under a day, busy", m: hours(2).gpus(1, 80, 10), gpus: 1, want: Busy},
		{name: "noise below the floor", m: days(14).gpus(1, 0.9, 0).host(1, 1), gpus: 1, want: Idle},
		{
			name: "three active hours of 336, days ago",
			m: days(14).gpu("0", 0, 0).flat("1", usage.MemUsed, 0).flat("1",
				usage.MemTotal, 80*gib).host(1, 1).
				series("1", usage.GPUUtil, func(h int) float64 {
					return during(h >= 100 && h < 103, 60)
				}), gpus: 2, want: Idle,
			lasting: (336 - 103) * time.Hour},
		{
			name: "four active hours of 336", m: days(14).flat("0", usage.MemUsed, 0).flat("0",
				usage.MemTotal, 80*gib).host(1,
				1).
				series("0", usage.GPUUtil, func(h int) float64 {
					return during(h >= 100 && h < 104, 60)
				}), gpus: 1, want: Busy},
		{
			name: "active in the newest hour only", m: days(14).flat("0", usage.MemUsed, 0).flat("0", usage.MemTotal,
				80*gib).host(1, 1).
				series("0", usage.GPUUtil, func(h int) float64 { return during(h == 335, 60) }), gpus: 1, want: Busy},
		{
			name: "held for the time since work ended",
			m: days(14).flat("0", usage.MemUsed, 60*gib).flat("0", usage.MemTotal,
				80*gib).
				series("0", usage.GPUUtil, func(h int) float64 {
					return during(h < 3, 60)
				}), gpus: 1, want: Held, lasting: 333 * time.Hour},
		{
			name: "a missing hour ends the time it lasts", m: days(14).flat("0", usage.MemUsed, 60*gib).flat("0",
				usage.MemTotal, 80*gib).
				series("0", usage.GPUUtil, func(h int) float64 { return missing(h == 235, 0) }), gpus: 1, want: Held,
			lasting: 100 * time.Hour},
		{
			name: "latched at 100%, nothing held", m: days(14).gpus(1, 100, 0).host(1, 1), gpus: 1, want: Unknown,
			why: "latched",
		},
		{name: "100% by a process", m: days(14).gpus(1, 100, 1).flat("0", usage.Processes, 1), gpus: 1, want: Busy},
		{name: "100% with memory in use", m: days(14).gpus(1, 100, 40), gpus: 1, want: Busy},
		{
			name: "100% and multiprocessors at rest",
			m:    days(14).gpus(1, 100, 40).flat("0", usage.SMActive, 0), gpus: 1,
			want: Unknown, why: "latched",
		},
		{
			name: "100% and multiprocessors at work",
			m:    days(14).gpus(1, 100, 0).flat("0", usage.SMActive, 0.6), gpus: 1,
			want: Busy,
		},
		{
			name: "MIG: multiprocessors instead of utilization",
			m: days(14).flat("0", usage.SMActive, 0).flat("0", usage.MemUsed, 0).flat("0",
				usage.MemTotal, 80*gib), gpus: 1,
			want: Idle,
		},
		{
			name: "tensor pipes work where utilization reads 0",
			m:    days(14).gpus(1, 0, 0).flat("0", usage.TensorActive, 0.2),
			gpus: 1, want: Busy, why: "its tensor pipes read 20%",
		},
		{
			name: "a meter of whole watts has no finer digits to move",
			m: days(14).gpus(1, 0, 0).flat("0", usage.Power, 137).flat("0", usage.Temperature,
				43).host(1, 1), gpus: 1,
			want: Idle,
		},
		{
			name: "but: one of finer digits that stand still",
			m: days(14).gpus(1, 0, 0).flat("0", usage.Power, 137.25).flat("0", usage.Temperature,
				43).host(1, 1), gpus: 1,
			want: Unknown, why: "its exporter was frozen",
		},
		{
			name: "partitions of a GPU, one of eight measured",
			m:    days(14).flat("77:0/8", usage.GPUUtil, 0).flat("77:0/8", usage.Processes, 0), gpus: 1, want: Unknown,
			why: "1 of the 8 partitions of its GPU are measured",
		},
		{
			name: "but: they hardly do", m: days(14).gpus(1, 0, 0).flat("0", usage.TensorActive, 0.05), gpus: 1,
			want: Busy,
		},
		{
			name: "utilization of 99% with the graphics engine at rest",
			m: days(14).gpus(1, 99, 60).flat("0", usage.GREngine, 0).flat("0", usage.Power,
				690), gpus: 1, want: Unknown,
			why: "utilization reads 99% while the graphics engine reads 0%",
		},
		{
			name: "power contradicts rest", m: days(14).gpus(1, 0, 0).series("0", usage.Power,
				exceptAt(100, 60, 400)).host(1, 1),
			gpus: 1, want: Unknown, why: "drew up to 400 W",
		},
		{
			name: "but: it drew that while it worked",
			m: days(14).series("0", usage.GPUUtil, exceptAt(100, 0, 90)).flat("0", usage.Processes,
				0).series("0", usage.Power,
				exceptAt(100, 60, 400)).host(1, 1),
			gpus: 1, want: Idle,
		},
		{
			name: "half of the TDP of a small model contradicts rest",
			m: days(14).tdp(70).gpus(1, 0, 0).series("0", usage.Power, exceptAt(100, 11, 52)).host(1,
				1), gpus: 1, want: Unknown,
			why: "drew up to 52 W",
		},
		{
			name: "but: it keeps its clocks up",
			m:    days(14).tdp(70).gpus(1, 0, 0).flat("0", usage.Power, 28).host(1, 1),
			gpus: 1, want: Idle,
		},
		{name: "but: it works too", m: days(14).gpus(1, 90, 60).flat("0", usage.Power, 400), gpus: 1, want: Busy},
		{
			name: "a frozen exporter",
			m:    days(14).gpus(1, 0, 0).flat("0", usage.Power, 60).flat("0", usage.Energy, 5e6).host(1, 1), gpus: 1,
			want: Unknown, why: "its energy meter stood still up to",
		},
		{
			name: "power and temperature that stood still",
			m: days(14).gpus(1, 0, 0).series("0", usage.Power, changeAt(100, 60, 61.5)).flat("0",
				usage.Temperature, 30).host(1,
				1),
			gpus: 1, want: Unknown, why: "its power and temperature stood still",
		},
		{
			name: "but: temperature alone",
			m: days(14).gpus(1, 0, 0).series("0", usage.Power, rising(60, 0.01)).flat("0",
				usage.Temperature, 30).host(1, 1),
			gpus: 1, want: Idle,
		},
		{
			name: "an energy meter that started again",
			m: days(14).gpus(1, 0, 0).series("0", usage.Energy, func(h int) float64 {
				return 1e5 * float64(1+h%235)
			}).host(1, 1),
			gpus: 1, want: Idle, lasting: 101 * time.Hour,
		},
		{
			name: "GPUs rest, CPUs prepare data", m: days(14).gpus(2, 0, 0).host(85, 1), gpus: 2, want: Busy,
			why: "CPUs reach 85%",
		},
		{
			name: "GPUs rest, CPUs in between", m: days(14).gpus(2, 0, 0).host(12, 1), gpus: 2, want: Unknown,
			why: "neither rest nor work",
		},
		{
			name: "GPUs rest, a data set comes in", m: days(14).gpus(2, 0, 0).host(1, 9000), gpus: 2, want: Busy,
			why: "9,000 MB a day",
		},
		{
			name: "GPUs rest, an open session",
			m:    days(14).gpus(2, 0, 0).host(1, 1).flat("", usage.Sessions, 1), gpus: 2,
			want: Held, why: "session",
		},
		{
			name: "GPUs rest, CPU half covered",
			m: days(14).gpus(2, 0, 0).series("", usage.CPUUtil, func(h int) float64 {
				return missing(h%2 == 0, 1)
			}),
			gpus: 2,
			want: Unknown, why: "its CPUs are old or cover 50%",
		},
		{
			name: "GPUs rest, network covered in part",
			m: days(14).gpus(2, 0, 0).flat("", usage.CPUUtil, 1).series("", usage.NetBytes, func(h int) float64 {
				return missing(h%4 == 0, 1)
			}),
			gpus: 2, want: Unknown, why: "its network are old or cover 75%",
		},
		{
			name: "idle CPU machine", m: days(14).host(2, 1), want: Idle, why: "CPU peak 2%",
			lasting: 14 * 24 * time.Hour,
		},
		{name: "CPU machine at work", m: days(14).host(40, 1), want: Busy},
		{name: "CPU machine whose peak is the bound", m: days(14).host(5, 1), want: Busy, why: "CPU reaches 5%"},
		{name: "CPU machine whose traffic is the bound", m: days(14).flat("", usage.CPUUtil, 2).
			series("", usage.NetBytes, func(h int) float64 {
				return during(h%24 == 0, 5e6)
			}), want: Busy, why: "5 MB a day"},
		{name: "CPU machine at work lately, half covered", m: days(14).flat("", usage.NetBytes, 10).
			series("", usage.CPUUtil, func(h int) float64 {
				return missing(h%2 == 0, during(h == 335, 40))
			}), want: Busy,
			why: "CPU reaches 40%"},
		{name: "CPU machine at work days ago, half covered", m: days(14).flat("", usage.NetBytes, 10).
			series("", usage.CPUUtil, func(h int) float64 {
				return missing(h%2 == 0, during(h == 101, 40))
			}), want: Unknown,
			why: "its CPU are old or cover 50%"},
		{name: "CPU machine that serves, its network half covered", m: days(14).flat("", usage.CPUUtil, 2).
			series("", usage.NetBytes, func(h int) float64 {
				return missing(h%2 == 0, 1e9)
			}), want: Unknown, why: "its network are old or cover 50%"},
		{name: "CPU machine that serves", m: days(14).host(2, 900), want: Busy, why: "900 MB a day"},
		{
			name: "CPU machine, only CPU measured", m: days(14).flat("", usage.CPUUtil, 1), want: Unknown,
			why: "network",
		},
		{
			name: "CPU machine, only the first datapoint is idle",
			m: days(14).flat("", usage.NetBytes, 10).series("", usage.CPUUtil, func(h int) float64 {
				return during(h > 0, 80)
			}),
			want: Busy,
		},
		{
			name: "CPU machine, only one datapoint at all",
			m: days(14).flat("", usage.NetBytes, 10).series("", usage.CPUUtil, func(h int) float64 {
				return missing(h != 335, 1)
			}),
			want: Unknown,
		},
		{
			name: "CPU machine with a session", m: days(14).host(2, 1).flat("", usage.Sessions, 1), want: Held,
			why: "session",
		},
		{name: "CPU machine, nothing measured", m: days(14), want: Unknown, why: "neither CPU nor network"},
		{name: "CPU machine, an hour old", m: hours(1).host(1, 1), want: Unknown, why: "shorter"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var w *usage.Window
			if tc.m != nil {
				w = tc.m.w
			}
			got := Judge(w, tc.gpus, now, Thresholds{})
			if got.State != tc.want || !strings.Contains(got.Why, tc.why) {
				t.Errorf("got %s because %q, want %s because %q", got.State, got.Why, tc.want, tc.why)
			}
			if tc.lasting != 0 && got.Duration != tc.lasting {
				t.Errorf("it lasts %s, want %s", got.Duration, tc.lasting)
			}
			if (got.State == Unknown || got.State == Busy) && got.Duration != 0 {
				t.Errorf("%s lasts %s, want 0", got.State, got.Duration)
			}
			if got.Coverage < 0 || got.Coverage > 1 {
				t.Errorf("coverage is %v", got.Coverage)
			}
		})
	}
}

func aggregated(m *machine) *machine {
	m.w.Aggregated = true
	return m
}

// explainUnknown returns v, or no point when absent.
func missing(absent bool, v float64) float64 {
	if absent {
		return -1
	}
	return v
}

// during returns v while active, else 0.
func during(active bool, v float64) float64 {
	if active {
		return v
	}
	return 0
}

func TestUsesCatalogMemorySize(t *testing.T) {
	m := days(14).flat("0", usage.GPUUtil, 0).flat("0", usage.MemUsed, 22*gib)
	m.w.GPUMemory = 24 * gib
	if got := Judge(m.w, 1, now, DefaultThresholds()); got.State != Held ||
		!strings.Contains(got.Why, "92% of memory held") {
		t.Errorf("22 of 24 GiB: got %s because %q, want held", got.State, got.Why)
	}
}

func TestEvidenceOfVerdict(t *testing.T) {
	m := days(14).gpus(8, 0.4, 0.8).host(2, 1.5)
	v := Judge(m.w, 8, now, DefaultThresholds())
	want := map[string]string{
		"gpus_measured": "8 of 8", "gpu_util_max_pct": "0.4", "gpu_active_share_pct": "0", "gpu_mem_used_max_pct": "1",
		"gpu_mem_used_newest_pct": "1", "cpu_util_max_pct": "2", "net_mb_per_day": "1.5",
	}
	for _, e := range v.Evidence {
		if want[e.Signal] != e.Value {
			t.Errorf("evidence %s is %q, want %q", e.Signal, e.Value, want[e.Signal])
		}
		delete(want, e.Signal)
		if e.Source != "cloudwatch" ||
			(e.Coverage != usage.NoCoverage && (e.Coverage != 1 || e.Window != 14*24*time.Hour)) {
			t.Errorf("evidence %+v lacks its source, window or coverage", e)
		}
	}
	if len(want) > 0 {
		t.Errorf("no evidence of %v", want)
	}
	if len(v.GPUs) != 8 || v.GPUs[3].State != Idle || v.GPUs[3].Name != "3" {
		t.Errorf("got verdicts %+v of GPUs, want 8 idle ones", v.GPUs)
	}
}

func TestEvidenceListsUnmeasuredSignals(t *testing.T) {
	v := Judge(days(14).flat("0", usage.GPUUtil, 0).w, 1, now, DefaultThresholds())
	missing := 0
	for _, e := range v.Evidence {
		if e.Value == notMeasured && e.Coverage == 0 {
			missing++
		}
	}
	if missing != 3 { // memory, CPU, network
		t.Errorf("%d signals are named as not measured, want 3: %+v", missing, v.Evidence)
	}
}

// drawnMachine is a machine with arbitrary habits, as points that can be left out.
type drawnMachine struct {
	gpus   int
	points []drawnPoint
}

type drawnPoint struct {
	gpu    string
	signal usage.Signal
	hour   int
	value  float64
}

func drawMachine(t *rapid.T) drawnMachine {
	d := drawnMachine{gpus: rapid.IntRange(0, 3).Draw(t, "gpus")}
	habit := func(gpu string, s usage.Signal, values ...float64) {
		label := gpu + s.String()
		rest := rapid.SampledFrom(values).Draw(t, label+" at rest")
		work := rapid.SampledFrom(values).Draw(t, label+" at work")
		// Work fills more than a tenth of the window or none of it: a shorter stretch
		// can hide in what coverage allows to be missing.
		from := rapid.IntRange(0, 150).Draw(t, label+" from")
		length := rapid.SampledFrom([]int{0, 36, 60, 120}).Draw(t, label+" for")
		for h := range 336 {
			v := rest
			if h >= from && h < from+length {
				v = work
			}
			d.points = append(d.points, drawnPoint{gpu, s, h, v})
		}
	}
	for i := range d.gpus {
		name := fmt.Sprint(i)
		habit(name, usage.GPUUtil, 0, 0.4, 50, 100)
		habit(name, usage.MemUsed, 0, 2*gib, 60*gib)
		habit(name, usage.MemTotal, 80*gib)
	}
	habit("", usage.CPUUtil, 1, 8, 60)
	habit("", usage.NetBytes, 100, 5e6)
	return d
}

func (d drawnMachine) judge(keep func(drawnPoint) bool) Verdict {
	w := hours(336).w
	for _, p := range d.points {
		if keep(p) {
			w.Add(p.gpu, p.signal, usage.Point{
				Time: w.From.Add(time.Duration(p.hour) * time.Hour), Mean: p.value, Max: p.value,
			})
		}
	}
	return Judge(w, d.gpus, now, DefaultThresholds())
}

func all(drawnPoint) bool { return true }

// TestMissingSamplesNeverMakeIdle checks that whatever is lost of the telemetry, a machine that was
// not idle before is not idle after. Losing all of a host signal is left out: CPU and network that
// are not measured do not count against idle GPUs.
func TestMissingSamplesNeverMakeIdle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawMachine(t)
		before := d.judge(all)
		seed := rapid.Uint64().Draw(t, "seed")
		share := rapid.SampledFrom([]float64{0.01, 0.05, 0.11, 0.5, 1}).Draw(t, "lost share")
		how := rapid.SampledFrom([]string{
			"at random", "the high ones", "a stretch", "the end", "a GPU",
		}).Draw(t, "how")
		random := rand.New(rand.NewPCG(seed, 1))
		start := random.IntN(336)
		kept := map[usage.Signal]int{}
		after := d.judge(func(p drawnPoint) bool {
			lost := false
			switch how {
			case "at random":
				lost = random.Float64() < share
			case "the high ones":
				lost = p.value >= 1 && random.Float64() < share
			case "a stretch":
				lost = p.hour >= start && float64(p.hour-start) < share*336
			case "the end":
				lost = float64(336-p.hour) <= share*336
			case "a GPU":
				lost = p.gpu == "0"
			}
			if p.gpu == "" && !lost {
				kept[p.signal]++
			}
			return !lost
		})
		if kept[usage.CPUUtil] == 0 || kept[usage.NetBytes] == 0 {
			return // a host signal is gone altogether
		}
		if before.State != Idle && after.State == Idle {
			t.Fatalf("%s (%s) became idle (%s) by losing %v of the samples, %s", before.State,
				before.Why, after.Why, share,
				how)
		}
	})
}

// TestActivityNeverMakesIdle: more computation, memory, CPU or traffic never turns
// another state into idle.
func TestActivityNeverMakesIdle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawMachine(t)
		before := d.judge(all)
		i := rapid.IntRange(0, len(d.points)-1).Draw(t, "point")
		d.points[i].value *= 1 + 4*rapid.Float64Range(0, 1).Draw(t, "more")
		if after := d.judge(all); before.State != Idle && after.State == Idle && d.points[i].signal != usage.MemTotal {
			t.Fatalf("%s (%s) became idle (%s) by more %s", before.State, before.Why, after.Why, d.points[i].signal)
		}
	})
}

func TestThresholds(t *testing.T) {
	if (Thresholds{}).orDefault() != DefaultThresholds() {
		t.Error("the zero Thresholds are not the defaults")
	}
	for _, tc := range []struct {
		name string
		t    Thresholds
		err  string
	}{
		{name: "defaults", t: DefaultThresholds()},
		{name: "zero"},
		{name: "coverage in percent", t: Thresholds{MinCoverage: 90}, err: "min_coverage"},
		{name: "negative window", t: Thresholds{MinWindow: -time.Hour}, err: "min_window"},
		{name: "busy below idle", t: Thresholds{IdleCPU: 30}, err: "busy_cpu_pct"},
		{
			name: "busy network below idle", t: Thresholds{BusyNetRate: 1e4},
			err: "busy_net_bytes_per_second is 10000, below idle_net_bytes_per_second, 100000",
		},
		{name: "busy disks below idle", t: Thresholds{IdleDiskRate: 1e8}, err: "busy_disk_bytes_per_second"},
		{name: "negative rate", t: Thresholds{IdleNetRate: -1}, err: "idle_net_bytes_per_second"},
		{name: "negative power", t: Thresholds{BusyPower: -1}, err: "busy_power_w"},
		{name: "negative warm-up", t: Thresholds{WarmUp: -1}, err: "warm_up"},
		{name: "negative patience", t: Thresholds{StalledAfter: -1}, err: "stalled_after"},
		{name: "any GPU", t: Thresholds{GPUs: AnyGPU}},
		{name: "some GPUs", t: Thresholds{GPUs: "some"}, err: `gpus is "some": all or any is expected`},
	} {
		err := tc.t.Validate()
		if (err == nil) != (tc.err == "") || (err != nil && !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, err, tc.err)
		}
	}
}
