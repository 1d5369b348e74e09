package backtest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
)

// recordedRows is a million rows of machines: their utilization alone, at rest two
// thirds of the time or never at rest, or eight signals of eight GPUs each.
func recordedRows(kind string) []byte {
	const machines, minutes = 700, 1440
	rng := rand.New(rand.NewPCG(1, 2))
	b := []byte(
		"resource,time,gpu,gpu_util,sm_active,dram_active,mem_used_bytes,mem_total_bytes,power_w,cpu_util,net_bytes\n")
	gpus := 1
	if kind == "eight signals" {
		gpus = 8
	}
	for i := range machines * minutes / gpus {
		machine, minute := i/(minutes/gpus), i%(minutes/gpus)
		for gpu := range gpus {
			whole := func(n int64) { b = strconv.AppendInt(append(b, ','), rng.Int64N(n), 10) }
			decimal := func(n float64, digits int) {
				b = strconv.AppendFloat(append(b, ','), rng.Float64()*n, 'f', digits, 64)
			}
			b = strconv.AppendInt(append(b, 'm'), int64(machine), 10)
			b = strconv.AppendInt(append(b, ','), int64(minute)*60, 10)
			b = strconv.AppendInt(append(b, ','), int64(gpu), 10)
			switch {
			case kind == "eight signals":
				whole(101)
				decimal(1, 3)
				decimal(1, 3)
				whole(80 << 30)
				b = append(b, ",85899345920"...)
				decimal(400, 2)
				decimal(100, 1)
				whole(1e9)
			case kind == "mostly at rest" && (minute/60+machine)%3 > 0:
				b = append(b, ",0,,,,,,,"...)
			default:
				decimal(100, 3)
				b = append(b, ",,,,,,,"...)
			}
			b = append(b, '\n')
		}
	}
	return b
}

// BenchmarkAccount reads a trace as an account, feeds all of it, group by group, and reports the
// memory of a row.
func BenchmarkAccount(b *testing.B) {
	for _, kind := range []string{"mostly at rest", "never at rest", "eight signals"} {
		b.Run(kind, func(b *testing.B) {
			data := recordedRows(kind)
			var before, after runtime.MemStats
			rows, values := 0, 0
			for b.Loop() {
				runtime.GC()
				runtime.ReadMemStats(&before)
				a, err := ReadAccount(context.Background(), bytes.NewReader(data), accountParams())
				if err != nil {
					b.Fatal(err)
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				rows = a.Summary().Rows
				for _, group := range a.Groups() {
					f := a.Feed(group)
					for next, ok := f.NextTime(); ok; next, ok = f.NextTime() {
						f.Advance(next, func(h Heard) { values += h.Count })
					}
				}
			}
			b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(rows), "B/row")
			b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(values)/float64(b.N)/float64(rows), "values/row")
		})
	}
}
