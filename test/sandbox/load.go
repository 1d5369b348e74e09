package sandbox

import (
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/test/wire"
)

// load is the activity of a machine in an hour.
type load struct {
	// cpu and cpuMax are the mean and the peak in percent; bytes is the traffic in both directions.
	cpu, cpuMax, bytes float64
	gpus               []gpuLoad
}

// gpuLoad is the activity of one GPU in an hour: mean and peak in percent, memory in MiB.
type gpuLoad struct{ util, max, memory float64 }

// behavior returns the activity of a machine in the hour at t, which is its n-th measured hour;
// false is a gap in the measurements.
type behavior func(t time.Time, n int) (load, bool)

// jitter varies a value by up to a tenth, deterministically.
func jitter(v float64, n int) float64 { return v * (0.95 + float64(n*7919%100)/1000) }

// idle does nothing; its GPUs use almost no memory.
func idle(gpus int) behavior { return held(gpus, 3) }

// held computes nothing while its GPUs hold memory.
func held(gpus int, memory float64) behavior {
	return func(_ time.Time, n int) (load, bool) {
		l := load{cpu: jitter(0.8, n), cpuMax: 2, bytes: jitter(40_000, n)}
		for range gpus {
			l.gpus = append(l.gpus, gpuLoad{memory: memory})
		}
		return l, true
	}
}

// busy works steadily: CPU and GPUs in percent, memory in MiB.
func busy(cpu float64, gpus int, util, memory float64) behavior {
	return func(_ time.Time, n int) (load, bool) {
		l := load{cpu: jitter(cpu, n), cpuMax: min(100, cpu*1.3), bytes: jitter(2e9, n)}
		for range gpus {
			l.gpus = append(l.gpus, gpuLoad{util: jitter(util, n), max: min(100, util*1.2), memory: jitter(memory, n)})
		}
		return l, true
	}
}

// firstOf only lets the first GPUs work.
func firstOf(work behavior, working int) behavior {
	return func(t time.Time, n int) (load, bool) {
		l, ok := work(t, n)
		for i := working; i < len(l.gpus); i++ {
			l.gpus[i] = gpuLoad{memory: 3}
		}
		return l, ok
	}
}

// daily works between two hours of the day (UTC) and does nothing otherwise.
func daily(from, to int, work, rest behavior) behavior {
	return func(t time.Time, n int) (load, bool) {
		if h := t.Hour(); h >= from && h < to {
			return work(t, n)
		}
		return rest(t, n)
	}
}

// gaps removes measurements: of every 10 hours, kept remain.
func gaps(kept int, b behavior) behavior {
	return func(t time.Time, n int) (load, bool) {
		if n%10 >= kept {
			return load{}, false
		}
		return b(t, n)
	}
}

// once is measured in one hour only, n hours ago.
func once(now time.Time, ago int, b behavior) behavior {
	only := now.Truncate(time.Hour).Add(-time.Duration(ago) * time.Hour)
	return func(t time.Time, n int) (load, bool) {
		if !t.Equal(only) {
			return load{}, false
		}
		return b(t, n)
	}
}

// hours calls each for every hour since from, including the current one.
func (b *seeder) hours(from time.Time, each func(t time.Time, n int)) {
	start := from.Truncate(time.Hour)
	if start.Before(from) {
		start = start.Add(time.Hour)
	}
	for n := 0; !start.After(b.now); n, start = n+1, start.Add(time.Hour) {
		each(start, n)
	}
}

// put adds hourly values to a metric of the seeded account.
func (b *seeder) put(region, namespace, name string, dims []wire.Dimension, data []wire.Datum) {
	if len(data) > 0 {
		b.Wire.Metrics.Put(wire.DefaultAccount, region, namespace, name, dims, data...)
	}
}

// gauge returns an hour of a sampled value: sixty samples with a mean and a peak.
func gauge(t time.Time, mean, peak float64) wire.Datum {
	peak = max(peak, mean)
	return wire.Datum{Time: t, Sum: mean * 60, Min: min(mean, max(0, 2*mean-peak)), Max: peak, Count: 60}
}

// counter returns an hour of a counted value: twelve reports with a total.
func counter(t time.Time, total float64) wire.Datum {
	return wire.Datum{Time: t, Sum: total, Min: total / 12, Max: total / 12, Count: 12}
}

// steady adds the same hourly value since from.
func (b *seeder) steady(region, namespace, name string, dims []wire.Dimension, from time.Time,
	value func(t time.Time) wire.Datum) {
	var data []wire.Datum
	b.hours(from, func(t time.Time, _ int) { data = append(data, value(t)) })
	b.put(region, namespace, name, dims, data)
}

func dims(pairs ...string) []wire.Dimension {
	var out []wire.Dimension
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, wire.Dimension{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// agent is how the CloudWatch agent on a machine reports its GPUs.
type agent int

const (
	noAgent agent = iota
	// perGPU reports each GPU with its index.
	perGPU
	// byInstance reports with the machine's identifier alone.
	byInstance
)

// measure writes the measurements of a machine since its launch, at most 15 days back.
func (b *seeder) measure(id, region, gpuName string, launched time.Time, memoryTotal float64, a agent, what behavior) {
	from := launched
	if oldest := b.ago(days(15)); from.Before(oldest) {
		from = oldest
	}
	host := dims("InstanceId", id)
	series := map[string][]wire.Datum{}
	gpus := map[int]map[string][]wire.Datum{}
	b.hours(from, func(t time.Time, n int) {
		l, ok := what(t, n)
		if !ok {
			return
		}
		series["CPUUtilization"] = append(series["CPUUtilization"], gauge(t, l.cpu, l.cpuMax))
		series["NetworkIn"] = append(series["NetworkIn"], counter(t, l.bytes/2))
		series["NetworkOut"] = append(series["NetworkOut"], counter(t, l.bytes/2))
		for i, g := range l.gpus {
			if gpus[i] == nil {
				gpus[i] = map[string][]wire.Datum{}
			}
			gpus[i]["nvidia_smi_utilization_gpu"] = append(gpus[i]["nvidia_smi_utilization_gpu"],
				gauge(t, g.util, g.max))
			gpus[i]["nvidia_smi_memory_used"] = append(gpus[i]["nvidia_smi_memory_used"], gauge(t, g.memory, g.memory))
			gpus[i]["nvidia_smi_memory_total"] = append(gpus[i]["nvidia_smi_memory_total"],
				gauge(t, memoryTotal, memoryTotal))
			gpus[i]["nvidia_smi_power_draw"] = append(gpus[i]["nvidia_smi_power_draw"],
				gauge(t, 20+g.util*2, 20+g.max*2))
		}
	})
	for name, data := range series {
		b.put(region, "AWS/EC2", name, host, data)
	}
	if a == noAgent {
		return
	}
	for i, metrics := range gpus {
		for name, data := range metrics {
			d := host
			if a == perGPU {
				d = dims("InstanceId", id, "index", strconv.Itoa(i), "name", gpuName)
			}
			b.put(region, "CWAgent", name, d, data)
		}
	}
}
