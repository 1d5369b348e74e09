package backtest

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/policy"
)

// benchTrace is days of machines with bursts of work, row by row as traces come:
// machine by machine, or minute by minute.
func benchTrace(byTime bool) (trace []byte, rows int) {
	const machines, minutes = 700, 1440
	ps := day(machines, minutes, 1)
	var b bytes.Buffer
	b.WriteString("resource,time,gpu_util\n")
	write := func(machine, at int) {
		if c := ps[machine][at]; c != ' ' {
			fmt.Fprintf(&b, "machine-%04d,%d,%d\n", machine, at*60, map[byte]int{'.': 0, '#': 50}[c])
			rows++
		}
	}
	for i := range machines * minutes {
		if byTime {
			write(i%machines, i/machines)
		} else {
			write(i/minutes, i%minutes)
		}
	}
	return b.Bytes(), rows
}

// BenchmarkReplay reads a trace and replays every baseline. A hundred million
// samples take a hundred times as long.
func BenchmarkReplay(b *testing.B) {
	for name, byTime := range map[string]bool{"by machine": false, "by time": true} {
		b.Run(name, func(b *testing.B) {
			data, rows := benchTrace(byTime)
			p := params(5 * time.Minute)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Run(context.Background(), bytes.NewReader(data), p); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

// BenchmarkPolicy reads a trace and replays one policy of the usual kind.
func BenchmarkPolicy(b *testing.B) {
	data, rows := benchTrace(false)
	p := params(5 * time.Minute)
	p.Baselines, p.Policies = false, usual(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(context.Background(), bytes.NewReader(data), p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkObey is the replay of one policy alone.
func BenchmarkObey(b *testing.B) {
	data, rows := benchTrace(false)
	p := params(5 * time.Minute)
	p.Policies = usual(b)
	tr, err := load(context.Background(), bytes.NewReader(data), p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tr.obey(context.Background(), p.Policies.Policies[0], p, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

// BenchmarkFigures is the replay of one policy that asks for a figure, which every sample
// changes.
func BenchmarkFigures(b *testing.B) {
	data, rows := benchTrace(false)
	p := params(5 * time.Minute)
	p.Policies = policies(b, `  - name: little-used
    select: {kind: instance}
    when: gpu.util.mean("30m") < 40
    then: [{do: notify}]
`)
	tr, err := load(context.Background(), bytes.NewReader(data), p)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tr.obey(context.Background(), p.Policies.Policies[0], p, false); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
}

// usual is a policy as the documentation shows it.
func usual(t testingTB) *policy.Set {
	return policies(t, `  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    where: resource.gpus > 0 && resource.purpose != "inference"
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then: [{warn: {notify: [owner], grace: 15m}}, {do: terminate}]
    limits: {per_hour: 10, share: "20%", dollars_per_hour: 200}
`)
}

// BenchmarkDecide is the learner alone: evaluations a second on one core.
func BenchmarkDecide(b *testing.B) {
	tr := loaded(b, rowsOf(day(200, 1440, 1)...), 5*time.Minute)
	fleet := learn.Fleet{Step: time.Minute, RestartCost: 5 * time.Minute, Resources: tr.resources}
	samples := tr.totals().samples
	for b.Loop() {
		if _, err := tr.follow(context.Background(), learn.NewLearned(fleet), false, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(samples)*float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// BenchmarkTrack measures the memory of a sample once it is read.
func BenchmarkTrack(b *testing.B) {
	data, rows := benchTrace(false)
	var before, after runtime.MemStats
	for b.Loop() {
		runtime.GC()
		runtime.ReadMemStats(&before)
		tr, err := load(context.Background(), bytes.NewReader(data), params(0))
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(tr)
	}
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(rows), "B/sample")
}
