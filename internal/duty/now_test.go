package duty

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// minutes returns a window of points a minute apart, the newest of which ends now.
func minutes(n int) *machine {
	from := now.Add(-time.Duration(n) * time.Minute)
	return &machine{w: usage.NewWindow(from, now, time.Minute, "agent", nil), points: n}
}

// net adds traffic in bytes a second.
func (m *machine) net(rate func(minute int) float64) *machine {
	return m.series("", usage.NetBytes, func(i int) float64 { return 60 * rate(i) })
}

func (m *machine) quiet() *machine {
	return m.flat("", usage.CPUUtil, 1).net(steady(2e3)).flat("", usage.Sessions, 0)
}

func (m *machine) launched(ago time.Duration) *machine {
	m.w.Launched = now.Add(-ago)
	return m
}

func (m *machine) aggregated() *machine {
	m.w.Aggregated = true
	return m
}

func steady(v float64) func(int) float64 { return func(int) float64 { return v } }

// freshUntil returns a before minute n and b from then on; negative is missing.
func changeAt(n int, a, b float64) func(int) float64 {
	return func(i int) float64 {
		if i < n {
			return a
		}
		return b
	}
}

// exceptAt returns v, but not at minute n.
func exceptAt(n int, v, there float64) func(int) float64 {
	return func(i int) float64 {
		if i == n {
			return there
		}
		return v
	}
}

// rising returns a meter that rises by as much each minute.
func rising(from, by float64) func(int) float64 {
	return func(i int) float64 { return from + by*float64(i) }
}

// nowFixture is a machine and what it does now.
type nowFixture struct {
	name    string
	m       *machine
	gpus    int
	t       Thresholds
	want    State
	why     string
	lasting time.Duration
}

func nowFixtures() []nowFixture {
	const h = time.Hour
	anyGPU := Thresholds{GPUs: AnyGPU}
	return []nowFixture{
		{name: "nothing measured", m: nil, gpus: 1, want: Unknown, why: "nothing was measured"},
		{name: "no point in the window", m: minutes(60), gpus: 1, want: Unknown, why: "not measured"},

		{
			name: "an open editor without input", m: minutes(120).gpu("0", 0, 0.4).quiet(), gpus: 1, want: Idle,
			why: "nothing held", lasting: 2 * h,
		},
		{
			name: "but: a person types in it",
			m: minutes(120).gpu("0", 0, 0.4).flat("", usage.CPUUtil, 1).flat("", usage.Sessions,
				1), gpus: 1, want: Held,
			why: "1 of its sessions at work", lasting: 2 * h,
		},
		{
			name: "but: a person typed until an hour ago",
			m:    minutes(120).gpu("0", 0, 0.4).series("", usage.Sessions, changeAt(60, 1, 0)),
			gpus: 1, want: Idle, lasting: h,
		},
		{
			name: "but: whether anybody types is not known any more",
			m:    minutes(120).gpu("0", 0, 0.4).series("", usage.Sessions, changeAt(60, 0, -1)), gpus: 1,
			want: Unknown,
			why:  "sessions is too old",
		},

		{
			name: "a notebook kernel that holds 70 GB",
			m:    minutes(120).gpu("0", 0, 70).flat("0", usage.Processes, 1).quiet(),
			gpus: 1, want: Held, why: "88% of memory held by 1 process, 0% compute for 2h", lasting: 2 * h,
		},
		{
			name: "but: it computes", m: minutes(120).gpu("0", 40, 70).flat("0", usage.Processes, 1).quiet(), gpus: 1,
			want: Busy, why: "40% utilization",
		},
		{
			name: "but: it gave the memory back half an hour ago",
			m: minutes(120).flat("0", usage.GPUUtil, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.MemUsed,
				changeAt(90, 70*gib, 0)).quiet(),
			gpus: 1, want: Idle, lasting: 30 * time.Minute,
		},
		{
			name: "but: the last process ended half an hour ago",
			m:    minutes(120).gpu("0", 0, 0).series("0", usage.Processes, changeAt(90, 1, 0)), gpus: 1, want: Idle,
			lasting: 30 * time.Minute,
		},

		{
			name: "while True with a notebook's memory", m: minutes(120).gpu("0", 0, 20).flat("", usage.CPUUtil, 100),
			gpus: 1, want: Held, why: "25% of memory held", lasting: 2 * h,
		},
		{
			name: "while True in a notebook cell",
			m: minutes(120).gpu("0", 0, 0).flat("", usage.CPUUtil, 100).flat("", usage.Kernels,
				1), gpus: 1, want: Held,
			why: "1 of its notebook kernels at work", lasting: 2 * h,
		},
		{
			name: "but: while True with nothing held",
			m:    minutes(120).gpu("0", 0, 0).flat("", usage.CPUUtil, 100), gpus: 1,
			want: Unknown, why: "CPUs reach 100% and nothing is held",
		},
		{
			name: "but: it ended an hour ago",
			m: minutes(120).gpu("0", 0, 0).series("", usage.CPUUtil, changeAt(60, 100, 1)).series("", usage.Kernels,
				changeAt(50, 1, 0)),
			gpus: 1, want: Idle, lasting: h,
		},

		{
			name: "detached training without a session", m: minutes(120).gpu("0", 90, 60).quiet(), gpus: 1, want: Busy,
			why: "90% utilization",
		},
		{
			name: "but: it ended and no session is open either",
			m: minutes(120).series("0", usage.GPUUtil, changeAt(100, 90, 0)).flat("0", usage.MemUsed, 0).flat("0",
				usage.MemTotal, 80*gib).quiet(),
			gpus: 1, want: Idle, lasting: 20 * time.Minute,
		},

		{
			name: "a data set comes in before anything holds the GPU",
			m:    minutes(120).gpu("0", 0, 0).net(steady(40e6)),
			gpus: 1, want: Busy, why: "40 MB/s cross its network",
		},
		{
			name: "a data set comes in while a process holds the GPU",
			m:    minutes(120).gpu("0", 0, 0).flat("0", usage.Processes, 1).net(steady(40e6)), gpus: 1, want: Starved,
			why: "40 MB/s", lasting: 2 * h,
		},
		{
			name: "a data set is read from disk", m: minutes(120).gpu("0", 0, 30).flat("", usage.DiskBytes, 60*200e6),
			gpus: 1, want: Starved, why: "200 MB/s cross its disks", lasting: 2 * h,
		},
		{
			name: "but: it came in until half an hour ago, nothing held",
			m:    minutes(120).gpu("0", 0, 0).net(changeAt(90, 40e6, 1e3)), gpus: 1, want: Idle,
			lasting: 30 * time.Minute,
		},
		{
			name: "but: it came in until half an hour ago, a process holds",
			m:    minutes(120).gpu("0", 0, 30).net(changeAt(90, 40e6, 1e3)), gpus: 1, want: Held,
			lasting: 30 * time.Minute,
		},
		{
			name: "but: a trickle that is neither, nothing held",
			m:    minutes(120).gpu("0", 0, 0).net(steady(4e5)), gpus: 1,
			want: Unknown, why: "0.4 MB/s cross its network, which is neither rest nor work",
		},
		{
			name: "but: a trickle, memory held", m: minutes(120).gpu("0", 0, 30).net(steady(4e5)), gpus: 1, want: Held,
			lasting: 2 * h,
		},
		{
			name: "but: whether data comes in is not known any more",
			m:    minutes(120).gpu("0", 0, 30).net(changeAt(100, 1e3, -1)), gpus: 1, want: Unknown,
			why: "network is too old",
		},
		{
			name: "configured lines", m: minutes(120).gpu("0", 0, 0).net(steady(4e5)), gpus: 1,
			t: Thresholds{IdleNetRate: 5e5}, want: Idle, lasting: 2 * h,
		},

		{
			name: "a notebook that was never opened",
			m:    minutes(16).gpu("0", 0, 0).quiet().flat("", usage.Kernels, 0).launched(16 * time.Minute), gpus: 1,
			want:    Idle,
			lasting: 16 * time.Minute,
		},
		{
			name: "but: it was launched just now",
			m:    minutes(10).gpu("0", 0, 0).quiet().launched(10 * time.Minute), gpus: 1,
			want: Warming, why: "launched 10m ago",
		},
		{name: "but: just now, and no telemetry yet", m: minutes(3).launched(3 * time.Minute), gpus: 1, want: Warming},
		{
			name: "but: just now, and it loads a data set",
			m:    minutes(3).gpu("0", 0, 30).net(steady(40e6)).launched(3 * time.Minute), gpus: 1, want: Warming,
		},
		{
			name: "but: just now, and it computes", m: minutes(3).gpu("0", 50, 30).launched(3 * time.Minute), gpus: 1,
			want: Busy,
		},
		{
			name: "launched in the future is not known", m: minutes(3).gpu("0", 0, 0).launched(-time.Minute), gpus: 1,
			want: Idle, lasting: 3 * time.Minute,
		},
		{
			name: "a configured warm-up", m: minutes(3).gpu("0", 0, 0).launched(3 * time.Minute), gpus: 1,
			t: Thresholds{WarmUp: time.Minute}, want: Idle, lasting: 3 * time.Minute,
		},

		{name: "latched at 100%, no memory", m: minutes(60).gpu("0", 100, 0), gpus: 1, want: Unknown, why: "latched"},
		{
			name: "latched at 100%, no process",
			m:    minutes(60).flat("0", usage.GPUUtil, 100).flat("0", usage.Processes, 0),
			gpus: 1, want: Unknown, why: "latched",
		},
		{
			name: "latched at 100%, multiprocessors at rest",
			m:    minutes(60).gpu("0", 100, 60).flat("0", usage.SMActive, 0),
			gpus: 1, want: Unknown, why: "latched",
		},
		{
			name: "but: 100% by a process", m: minutes(60).gpu("0", 100, 0).flat("0", usage.Processes, 1), gpus: 1,
			want: Busy,
		},
		{name: "but: 100% with memory", m: minutes(60).gpu("0", 100, 60), gpus: 1, want: Busy, why: "100%"},
		{
			name: "but: 100% and multiprocessors at work",
			m:    minutes(60).gpu("0", 100, 0).flat("0", usage.SMActive, 0.4),
			gpus: 1, want: Busy,
		},
		{name: "but: 90% is no latch", m: minutes(60).gpu("0", 90, 0), gpus: 1, want: Busy},

		{name: "noise of 0.5%", m: minutes(120).gpu("0", 0.5, 0), gpus: 1, want: Idle, lasting: 2 * h},
		{name: "but: 1% is work", m: minutes(120).gpu("0", 1, 0), gpus: 1, want: Busy},
		{
			name: "a scrape gap 20 minutes ago",
			m: minutes(120).flat("0", usage.MemUsed, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.GPUUtil,
				exceptAt(100, 0, -1)),
			gpus: 1, want: Idle, lasting: 19 * time.Minute,
		},
		{
			name: "but: a minute of work instead of the gap",
			m: minutes(120).flat("0", usage.MemUsed, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.GPUUtil,
				exceptAt(100, 0, 50)),
			gpus: 1, want: Idle, lasting: 19 * time.Minute,
		},
		{
			name: "but: the newest samples are missing",
			m: minutes(120).flat("0", usage.MemUsed, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.GPUUtil,
				changeAt(116, 0, -1)),
			gpus: 1, want: Unknown, why: "newest sample is too old",
		},
		{
			name: "but: three steps old is not too old",
			m: minutes(120).flat("0", usage.MemUsed, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.GPUUtil,
				changeAt(118, 0, -1)),
			gpus: 1, want: Idle, lasting: 118 * time.Minute,
		},
		{
			name: "but: the samples of its memory are old",
			m: minutes(120).flat("0", usage.GPUUtil, 0).flat("0", usage.MemTotal, 80*gib).series("0", usage.MemUsed,
				changeAt(100, 0, -1)),
			gpus: 1, want: Unknown, why: "memory, processes or power is too old",
		},

		{
			name: "one idle GPU of eight", m: minutes(60).gpus(7, 90, 60).gpu("7", 0, 0), gpus: 8, want: Busy,
			why: "7 of 8 GPUs compute",
		},
		{
			name: "one idle GPU of eight is enough", m: minutes(60).gpus(7, 90, 60).gpu("7", 0, 0), gpus: 8, t: anyGPU,
			want: Idle, why: "1 of 8 GPUs rest: GPU 7: nothing held, 0% compute for 1h", lasting: h,
		},
		{
			name: "one held GPU of eight is enough",
			m:    minutes(60).gpus(7, 90, 60).gpu("7", 0, 60), gpus: 8, t: anyGPU,
			want: Held, lasting: h,
		},
		{
			name: "one idle GPU is enough, and the longest counts",
			m: minutes(60).gpu("0", 90, 60).gpu("1", 0, 60).series("2",
				usage.GPUUtil, changeAt(30, 50, 0)).flat("2", usage.Processes, 0).
				flat("3", usage.GPUUtil, 0).flat("3", usage.Processes, 0), gpus: 8, t: anyGPU,
			want: Idle, why: "GPU 3",
			lasting: h},
		{
			name: "one is enough, all rest, and data comes in",
			m:    minutes(60).gpus(8, 0, 0).net(steady(40e6)), gpus: 8,
			t: anyGPU, want: Busy,
		},
		{
			name: "one low GPU of eight", m: minutes(60).gpus(7, 90, 60).gpu("7", 3, 60), gpus: 8, want: Busy,
			why: "8 of 8 GPUs compute",
		},
		{
			name: "one low GPU of eight, and one is enough", m: minutes(60).gpus(7, 90, 60).gpu("7", 3, 60), gpus: 8,
			t: anyGPU, want: Busy,
		},
		{
			name: "one busy GPU of eight", m: minutes(60).gpus(7, 0, 0).gpu("7", 90, 60), gpus: 8, want: Busy,
			why: "1 of 8 GPUs compute",
		},
		{
			name: "one GPU of eight rests for less",
			m: minutes(60).gpus(7, 0, 0).series("7", usage.GPUUtil, changeAt(50, 90, 0)).flat("7",
				usage.Processes, 0), gpus: 8,
			want: Idle, lasting: 10 * time.Minute,
		},
		{
			name: "seven of eight measured, all idle", m: minutes(60).gpus(7, 0, 0), gpus: 8, want: Unknown,
			why: "7 of 8 GPUs were measured",
		},
		{
			name: "one of eight without a fresh sample",
			m: minutes(60).gpus(7, 0, 0).series("7", usage.GPUUtil, changeAt(50, 0, -1)).flat("7",
				usage.Processes, 0), gpus: 8,
			want: Unknown, why: "GPU 7: its newest sample is too old",
		},
		{
			name: "an unknown number of GPUs", m: minutes(60).gpus(2, 0, 0), gpus: -1, want: Unknown,
			why: "number of GPUs",
		},
		{
			name: "one series of eight GPUs, at rest", m: minutes(60).gpu("", 0, 0), gpus: 8, want: Unknown,
			why: "unknown GPU of several",
		},
		{name: "one series of eight GPUs, at work", m: minutes(60).gpu("", 50, 0), gpus: 8, want: Busy},
		{
			name: "the maximum of eight GPUs", m: minutes(60).gpu("", 0, 0).aggregated(), gpus: 8, want: Idle,
			lasting: h,
		},

		{
			name: "two MIG instances are not two GPUs",
			m: minutes(60).flat("0:1", usage.SMActive, 0).flat("0:1", usage.Processes, 0).flat("0:2", usage.SMActive,
				0).flat("0:2", usage.Processes, 0),
			gpus: 2, want: Unknown, why: "1 of 2 GPUs",
		},
		{
			name: "a divided GPU, every part at rest",
			m: minutes(60).flat("0", usage.Power, 60).flat("0:1", usage.SMActive,
				0).flat("0:1", usage.Processes, 0),
			gpus: 1,
			want: Idle, lasting: h,
		},
		{
			name: "but: one part works",
			m: minutes(60).flat("0", usage.Power, 60).flat("0:1", usage.SMActive, 0).flat("0:1", usage.Processes,
				0).flat("0:2", usage.SMActive, 0.3),
			gpus: 1, want: Busy,
		},

		{
			name: "unmeasured memory", m: minutes(60).flat("0", usage.GPUUtil, 0), gpus: 1, want: Held,
			why: "its memory is not measured, 0% compute for 1h", lasting: h,
		},
		{
			name: "memory of unknown size in use, no process",
			m: minutes(60).flat("0", usage.GPUUtil, 0).flat("0", usage.MemUsed,
				60*gib).flat("0", usage.Processes, 0),
			gpus: 1, want: Held, why: "60 GiB of a memory of unknown size held", lasting: h,
		},
		{
			name: "but: none of it in use",
			m: minutes(60).flat("0", usage.GPUUtil, 0).flat("0", usage.MemUsed, 0).flat("0",
				usage.Processes, 0), gpus: 1,
			want: Idle, lasting: h,
		},
		{
			name: "memory by what is free",
			m: minutes(60).flat("0", usage.GPUUtil, 0).flat("0", usage.MemUsed,
				60*gib).flat("0", usage.MemFree, 20*gib),
			gpus: 1, want: Held, why: "75%", lasting: h,
		},
		{
			name: "tensor pipes work where utilization reads 0",
			m:    minutes(60).gpu("0", 0, 0).flat("0", usage.TensorActive, 0.2), gpus: 1, want: Busy,
			why: "its tensor pipes read 20%",
		},
		{
			name: "but: they hardly do", m: minutes(60).gpu("0", 0, 0).flat("0", usage.TensorActive, 0.05), gpus: 1,
			want: Busy,
		},
		{
			name: "tensor pipes worked until lately",
			m:    minutes(60).gpu("0", 0, 0).series("0", usage.TensorActive, changeAt(50, 0.2, 0)), gpus: 1,
			want:    Idle,
			lasting: 10 * time.Minute,
		},
		{
			name: "only tensor pipes, at rest",
			m:    minutes(60).flat("0", usage.TensorActive, 0), gpus: 1, want: Unknown,
			why: "its GPU utilization is not measured",
		},
		{
			name: "power contradicts utilization", m: minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 400), gpus: 1,
			want: Unknown, why: "utilization reads 0% while it draws 400 W",
		},
		{
			name: "but: it may draw that at rest", m: minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 400), gpus: 1,
			t: Thresholds{BusyPower: 500}, want: Idle, lasting: h,
		},
		{
			name: "utilization of 99% at 690 W with the graphics engine at rest",
			m:    minutes(180).gpu("0", 99, 60).flat("0", usage.Power, 690).flat("0", usage.GREngine, 0), gpus: 1,
			want: Unknown,
			why:  "utilization reads 99% while the graphics engine reads 0%",
		},
		{
			name: "but: the engine works",
			m:    minutes(180).gpu("0", 99, 60).flat("0", usage.Power, 690).flat("0", usage.GREngine, 0.97), gpus: 1,
			want: Busy,
		},
		{
			name: "but: the engine says nothing any more",
			m:    minutes(180).gpu("0", 99, 60).series("0", usage.GREngine, changeAt(170, 0, -1)), gpus: 1, want: Busy,
		},
		{
			name: "multiprocessors work where utilization reads 0",
			m:    minutes(60).gpu("0", 0, 60).flat("0", usage.SMActive, 0.4), gpus: 1, want: Busy,
			why: "its multiprocessors read 40%",
		},
		{
			name: "the engine works where utilization reads 0",
			m:    minutes(60).gpu("0", 0, 60).flat("0", usage.GREngine, 0.4),
			gpus: 1, want: Busy, why: "the graphics engine reads 40%",
		},
		{
			name: "copies keep memory busy without a kernel",
			m:    minutes(60).gpu("0", 0, 60).flat("0", usage.DRAMActive, 0.4),
			gpus: 1, want: Busy,
		},
		{
			name: "signals that contradicted each other until half an hour ago",
			m: minutes(60).series("0", usage.GPUUtil, changeAt(30, 99, 0)).flat("0", usage.GREngine, 0).flat("0",
				usage.Processes, 0),
			gpus: 1, want: Idle, lasting: 30 * time.Minute,
		},
		{
			name: "latched at 100%, the engine at rest", m: minutes(60).gpu("0", 100, 0).flat("0", usage.GREngine, 0),
			gpus: 1, want: Unknown, why: "the graphics engine reads 0%",
		},

		{
			name: "a frozen exporter: energy stands still under power",
			m: minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 61.2).flat("0", usage.Energy,
				5e6), gpus: 1, want: Unknown,
			why: "its energy meter stands still at 5,000,000 J while it draws 61.2 W",
		},
		{
			name: "but: energy rises",
			m: minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 61.2).series("0", usage.Energy,
				rising(5e6, 3600)), gpus: 1,
			want: Idle, lasting: h,
		},
		{
			name: "but: four scrapes of one reading",
			m: minutes(60).gpu("0", 0, 0).series("0", usage.Energy, func(i int) float64 {
				return 5e6 + 3600*float64(i/4)
			}),
			gpus: 1, want: Idle, lasting: h,
		},
		{
			name: "but: energy stood still until half an hour ago",
			m: minutes(60).gpu("0", 0, 0).series("0", usage.Energy, func(i int) float64 {
				return 5e6 + 3600*float64(max(0, i-29))
			}),
			gpus: 1, want: Idle, lasting: 30 * time.Minute,
		},
		{
			name: "but: a meter that reads 0 is none",
			m: minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 61.2).flat("0", usage.Energy,
				0), gpus: 1, want: Idle,
			lasting: h,
		},
		{
			name: "a frozen exporter while it seems to work",
			m:    minutes(60).gpu("0", 90, 60).flat("0", usage.Energy, 5e6),
			gpus: 1, want: Unknown, why: "exporter is frozen",
		},
		{
			name: "a frozen exporter: power and temperature stand still",
			m:    minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 61.234).flat("0", usage.Temperature, 34), gpus: 1,
			want: Unknown, why: "power stands still at 61.234 W and temperature at 34 C for 10 samples",
		},
		{
			name: "but: a meter of whole watts has no finer digits to move",
			m: minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 137).flat("0", usage.Temperature,
				43), gpus: 1, want: Idle,
			lasting: h,
		},
		{
			name: "partitions of a GPU, one of four measured",
			m:    minutes(60).gpu("77:0/4", 0, 0), gpus: 1, want: Unknown,
			why: "1 of the 4 partitions of its GPU are measured",
		},
		{name: "but: that one works", m: minutes(60).gpu("77:0/4", 20, 0), gpus: 1, want: Busy},
		{
			name: "but: both of two are measured", m: minutes(60).gpu("77:0/2", 0, 0).gpu("77:1/2", 0, 0), gpus: 1,
			want: Idle, lasting: h,
		},
		{
			name: "two GPUs in partitions, one of them in part",
			m:    minutes(60).gpu("77:0/2", 0, 0).gpu("77:1/2", 0, 0).gpu("78:0/2", 0, 0), gpus: 2, want: Unknown,
			why: "1 of the 2 partitions",
		},
		{
			name: "MIG instances by UUIDs of their own do not make GPUs",
			m: minutes(60).flat("MIG-aa", usage.SMActive, 0).flat("MIG-aa", usage.Processes, 0).flat("MIG-bb",
				usage.SMActive, 0).flat("MIG-bb", usage.Processes, 0),
			gpus: 2, want: Unknown, why: "1 of 2 GPUs were measured",
		},
		{
			name: "but: for nine samples only",
			m: minutes(60).gpu("0", 0, 0).series("0", usage.Power, func(i int) float64 {
				return 61.234 - float64(max(0, 51-i))/1000
			}).flat("0", usage.Temperature, 34),
			gpus: 1, want: Idle, lasting: h,
		},
		{
			name: "but: temperature alone",
			m: minutes(60).gpu("0", 0, 0).series("0", usage.Power, rising(61, 0.001)).flat(
				"0", usage.Temperature, 34),
			gpus: 1, want: Idle, lasting: h,
		},
		{
			name: "but: power alone",
			m: minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 61).series("0",
				usage.Temperature, func(i int) float64 {
					return 34 + float64(i/5%2)
				}),
			gpus: 1, want: Idle, lasting: h,
		},
		{
			name: "but: temperature is not measured",
			m:    minutes(60).gpu("0", 0, 0).flat("0", usage.Power, 61), gpus: 1,
			want: Idle, lasting: h,
		},
		{
			name: "but: they moved again half an hour ago",
			m: minutes(60).gpu("0", 0, 0).series("0", usage.Power, func(i int) float64 {
				return 61.2 + float64(max(0, i-29))/1000
			}).series("0", usage.Temperature, changeAt(30, 34, 35)),
			gpus: 1, want: Idle, lasting: 30 * time.Minute,
		},
		{
			name: "a frozen exporter of a divided GPU",
			m: minutes(60).flat("0", usage.Energy, 5e6).flat("0:1", usage.SMActive,
				0).flat("0:1", usage.Processes, 0),
			gpus: 1, want: Unknown, why: "GPU 0:1: its energy meter stands still",
		},

		{
			name: "an energy meter that starts again",
			m: minutes(60).gpu("0", 0, 0).series("0", usage.Energy, func(i int) float64 {
				return 5e6 + 3600*float64(i) - 5.2e6*float64(i/59)
			}),
			gpus: 1, want: Unknown, why: "its energy meter fell from 5,208,800 J to 12,400 J",
		},
		{
			name: "but: half an hour ago",
			m: minutes(60).gpu("0", 0, 0).series("0", usage.Energy, func(i int) float64 {
				return 5e6 + 3600*float64(i) - 5e6*float64(i/30)
			}),
			gpus: 1, want: Idle, lasting: 30 * time.Minute,
		},
		{
			name: "but: it draws little since half an hour",
			m:    minutes(60).gpu("0", 0, 0).series("0", usage.Power, changeAt(30, 400, 60)), gpus: 1,
			t: Thresholds{BusyPower: 200}, want: Idle, lasting: 30 * time.Minute,
		},
		{
			name: "samples with holes",
			m: sparse(14*time.Second, 10*time.Second).flat("0", usage.GPUUtil, 0).flat("0",
				usage.Processes, 0), gpus: 1,
			want: Unknown, why: "cover 72%",
		},
		{
			name: "but: jitter",
			m: sparse(10200*time.Millisecond, 10*time.Second).flat("0", usage.GPUUtil,
				0).flat("0", usage.Processes, 0),
			gpus: 1, want: Idle,
		},
		{
			name: "a network with holes",
			m: sparse(10*time.Second, 10*time.Second).flat("0", usage.GPUUtil, 0).flat("0", usage.Processes,
				0).holes(usage.NetBytes, 14*time.Second),
			gpus: 1, want: Unknown, why: "cover 72%",
		},
		{name: "a single sample", m: minutes(1).gpu("0", 0, 0), gpus: 1, want: Idle, lasting: time.Minute},

		{
			name: "a CPU machine at rest", m: minutes(60).quiet(), want: Idle,
			why:     "nothing held, CPU under 5% for 1h",
			lasting: h,
		},
		{
			name: "a CPU machine at work", m: minutes(60).flat("", usage.CPUUtil, 40), want: Busy,
			why: "CPU reaches 40%",
		},
		{
			name: "a CPU machine that worked until lately",
			m:    minutes(60).net(steady(1e3)).series("", usage.CPUUtil, changeAt(50, 40, 1)), want: Idle,
			lasting: 10 * time.Minute,
		},
		{
			name: "a CPU machine that serves", m: minutes(60).flat("", usage.CPUUtil, 1).net(steady(40e6)), want: Busy,
			why: "40 MB/s",
		},
		{
			name: "a CPU machine with a session",
			m: minutes(60).flat("", usage.CPUUtil, 1).net(steady(1e3)).flat("", usage.Sessions,
				2), want: Held, lasting: h,
		},
		{
			name: "a CPU machine with unmeasured network", m: minutes(60).flat("", usage.CPUUtil, 1), want: Unknown,
			why: "its network is not measured",
		},
		{name: "a CPU machine with unmeasured CPU", m: minutes(60).net(steady(1e3)), want: Unknown},
		{
			name: "a CPU machine whose kernel works and whose CPU is not known any more",
			m: minutes(60).series("", usage.CPUUtil, changeAt(50, 1, -1)).net(
				steady(1e3)).flat("", usage.Kernels, 1),
			want: Unknown, why: "too old",
		},
		{name: "a CPU machine that was just launched", m: minutes(5).quiet().launched(5 * time.Minute), want: Warming},
		{
			name: "a CPU machine that was just launched and works",
			m:    minutes(5).flat("", usage.CPUUtil, 40).launched(5 * time.Minute), want: Busy,
		},
	}
}

func TestNow(t *testing.T) {
	for _, tc := range nowFixtures() {
		t.Run(tc.name, func(t *testing.T) {
			var w *usage.Window
			if tc.m != nil {
				w = tc.m.w
			}
			got := tc.m.verdict(t, tc.gpus, now, tc.t)
			if got.State != tc.want || !strings.Contains(got.Why, tc.why) {
				t.Errorf("got %s because %q, want %s because %q", got.State, got.Why, tc.want, tc.why)
			}
			if tc.lasting != 0 && got.Duration != tc.lasting {
				t.Errorf("it lasts %s, want %s", got.Duration, tc.lasting)
			}
			consistent(t, got, w)
		})
	}
}
