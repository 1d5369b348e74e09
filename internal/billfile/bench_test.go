package billfile

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/billfile/billtest"
)

// BenchmarkParquet reads rows of FOCUS from Parquet: a million, or as many as
// BILL_ROWS says.
func BenchmarkParquet(b *testing.B) {
	rows := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("BILL_ROWS")); err == nil {
		rows = n
	}
	path := filepath.Join(b.TempDir(), "bill.parquet")
	want, err := billtest.Write(path, rows)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		got := read(b, path, Options{})
		if d := bill.Summarize(got, nil); d.BilledCost != want.String() || d.Rows != int64(rows) {
			b.Fatalf("%d rows, billed %s; want %d and %s", d.Rows, d.BilledCost, rows, want)
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
