package usage

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
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

// stream hides everything of a reader but Read.
type stream struct{ r io.Reader }

func (s stream) Read(p []byte) (int, error) { return s.r.Read(p) }

func benchmarkRead(b *testing.B, open func() io.Reader, rows int) {
	b.ReportAllocs()
	for b.Loop() {
		got, err := Survey(context.Background(), open(), Format{})
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
		_, err := Collect(context.Background(), bytes.NewReader(data), Format{}, func(string) *Window {
			return NewWindow(start, start.AddDate(0, 1, 0), 15*time.Second, "recorded", nil)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
