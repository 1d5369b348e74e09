package usage

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
)

type benchRow struct {
	Resource string    `parquet:"resource,dict"`
	Time     time.Time `parquet:"time,timestamp(millisecond)"`
	GPU      string    `parquet:"gpu,dict"`
	GPUUtil  float64   `parquet:"gpu_util"`
	MemUsed  int64     `parquet:"mem_used_bytes"`
}

// benchRows is a day of eight GPUs on each of a few machines.
func benchRows(n int) []benchRow {
	rows := make([]benchRow, n)
	start := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	for i := range rows {
		machine := i * 4 / n
		rows[i] = benchRow{
			Resource: fmt.Sprintf("i-0123456789abcde%02d", machine),
			Time:     start.Add(time.Duration(i/8) * 15 * time.Second),
			GPU:      fmt.Sprint(i % 8), GPUUtil: float64(i%1001) / 10, MemUsed: int64(i%80) << 30,
		}
	}
	return rows
}

func benchCSV(n int) []byte {
	var b bytes.Buffer
	b.WriteString("resource,time,gpu,gpu_util,mem_used_bytes\n")
	for _, r := range benchRows(n) {
		fmt.Fprintf(&b, "%s,%s,%s,%g,%d\n", r.Resource, r.Time.Format(time.RFC3339), r.GPU, r.GPUUtil, r.MemUsed)
	}
	return b.Bytes()
}

func benchParquet(tb testing.TB, n int) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[benchRow](&b)
	if _, err := w.Write(benchRows(n)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// stream hides all methods of a reader but Read.
type stream struct{ r io.Reader }

func (s stream) Read(p []byte) (int, error) { return s.r.Read(p) }

func benchmarkRead(b *testing.B, open func() io.Reader, rows int) {
	b.ReportAllocs()
	for b.Loop() {
		got, err := Read(context.Background(), open(), Format{}, func(*Sample) error { return nil })
		if err != nil || got.Rows != rows {
			b.Fatalf("read %d rows, %v; want %d", got.Rows, err, rows)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkReadCSV(b *testing.B) {
	const rows = 1_000_000
	data := benchCSV(rows)
	b.SetBytes(int64(len(data)))
	benchmarkRead(b, func() io.Reader { return stream{bytes.NewReader(data)} }, rows)
}

func BenchmarkReadCSVGzip(b *testing.B) {
	const rows = 1_000_000
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(benchCSV(rows)); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	benchmarkRead(b, func() io.Reader { return stream{bytes.NewReader(packed.Bytes())} }, rows)
}

func BenchmarkReadParquet(b *testing.B) {
	const rows = 1_000_000
	data := benchParquet(b, rows)
	benchmarkRead(b, func() io.Reader { return bytes.NewReader(data) }, rows)
}

func BenchmarkCollect(b *testing.B) {
	const rows = 1_000_000
	data := benchCSV(rows)
	start := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	b.ReportAllocs()
	for b.Loop() {
		_, err := Collect(context.Background(), bytes.NewReader(data), Format{}, func(string) Sink {
			return NewWindow(start, start.AddDate(0, 1, 0), 15*time.Second, "recorded", nil)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// growingFile generates rows of a few machines as they are read, in time order, with ever new
// values.
type growingFile struct {
	rows, at int
	buffer   bytes.Buffer
}

func (e *growingFile) Read(p []byte) (int, error) {
	if e.at == 0 {
		e.buffer.WriteString("resource,time,gpu,gpu_util,mem_used_bytes,step,net_bytes\n")
	}
	for ; e.buffer.Len() < len(p) && e.at < e.rows; e.at++ {
		tick := e.at / 8
		fmt.Fprintf(&e.buffer, "i-%d,%d,%d,%g,%d,%d,%d\n", tick%4, 1782864000+tick*15, e.at%8,
			float64(e.at*7919%1001)/10,
			e.at*104729%(80<<30), tick/3, e.at*15485863%1e9)
	}
	return e.buffer.Read(p)
}

// heapAfter returns the live heap of windows over that many rows.
func heapAfter(tb testing.TB, rows int) uint64 {
	tb.Helper()
	start := time.Unix(1782864000, 0).UTC()
	var windows []*Window
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	sum, err := Collect(context.Background(), &growingFile{rows: rows}, Format{}, func(string) Sink {
		w := NewWindow(start, start.AddDate(1, 0, 0), time.Minute, "recorded", nil)
		windows = append(windows, w)
		return w
	})
	if err != nil || sum.Rows != rows {
		tb.Fatalf("read %d rows, %v; want %d", sum.Rows, err, rows)
	}
	after := heap()
	runtime.KeepAlive(windows)
	return after - min(before, after)
}

// BenchmarkCollectMemory shows that the memory of windows does not depend on the length of the
// file, except for new values in their digests.
func BenchmarkCollectMemory(b *testing.B) {
	for _, rows := range []int{100_000, 1_000_000, 4_000_000} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			var live uint64
			for b.Loop() {
				live = heapAfter(b, rows)
			}
			b.ReportMetric(float64(live)/1024, "live-KiB")
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	w := NewWindow(start, start.AddDate(1, 0, 0), 15*time.Second, "recorded", nil)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		v := float64(i*7919%1001) / 10
		w.Add("0", GPUUtil, Point{Time: start.Add(time.Duration(i%2_000_000) * 15 * time.Second), Mean: v, Max: v})
		i++
	}
}
