package billfile

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/curfew-dev/curfew/internal/bill"
)

// plainRow and indexedRow are the same columns, without and with dictionaries.
type plainRow struct {
	Billed   string    `parquet:"BilledCost"`
	List     *float64  `parquet:"ListCost,optional"`
	Start    time.Time `parquet:"BillingPeriodStart,timestamp(millisecond)"`
	Charge   string    `parquet:"ChargePeriodStart"`
	Resource string    `parquet:"ResourceId,optional"`
	Tags     string    `parquet:"Tags,optional"`
}

type indexedRow struct {
	Billed   string    `parquet:"BilledCost,dict"`
	List     *float64  `parquet:"ListCost,optional,dict"`
	Start    time.Time `parquet:"BillingPeriodStart,timestamp(millisecond),dict"`
	Charge   string    `parquet:"ChargePeriodStart,dict"`
	Resource string    `parquet:"ResourceId,optional,dict"`
	Tags     string    `parquet:"Tags,optional,dict"`
}

// manyRows are rows with and without values, more resources than a dictionary's
// meanings are kept for, and costs and times as texts.
func manyRows(resources int) []plainRow {
	rows := make([]plainRow, 2*resources)
	for i := range rows {
		at := time.Date(2024, 9, 1+i%28, i%24, 0, 0, 0, time.UTC)
		rows[i] = plainRow{
			Billed: fmt.Sprintf("%d.%03d", i%7, i%13), Start: september, Charge: at.Format(time.RFC3339),
		}
		if i%3 > 0 {
			list := float64(i%11) / 8
			rows[i].List = &list
		}
		if i%5 > 0 {
			rows[i].Resource = fmt.Sprintf("i-%d", i%resources)
		}
		if i%2 > 0 {
			rows[i].Tags = fmt.Sprintf(`{"team":"t%d"}`, i%17)
		}
	}
	return rows
}

var september = time.Date(2024, 9, 1, 0, 0, 0, 0, time.UTC)

func indexed(rows []plainRow) []indexedRow {
	out := make([]indexedRow, len(rows))
	for i, r := range rows {
		out[i] = indexedRow(r)
	}
	return out
}

// TestDictionariesSayTheSame compares rows read by the places of values in dictionaries with the
// same rows read value by value.
func TestDictionariesSayTheSame(t *testing.T) {
	for _, resources := range []int{40, maxEntries + 1} {
		rows := manyRows(resources)
		dir := t.TempDir()
		plain, dictionary := filepath.Join(dir, "plain.parquet"), filepath.Join(dir, "dictionary.parquet")
		if err := parquet.WriteFile(plain, rows, parquet.PageBufferSize(10_000)); err != nil {
			t.Fatal(err)
		}
		if err := parquet.WriteFile(dictionary, indexed(rows), parquet.PageBufferSize(10_000),
			parquet.MaxRowsPerRowGroup(int64(len(rows)*2/3))); err != nil {
			t.Fatal(err)
		}
		a, b := read(t, plain, Options{}), read(t, dictionary, Options{})
		var want bill.Decimal
		for _, r := range rows {
			d, err := bill.ParseDecimal(r.Billed)
			if err != nil {
				t.Fatal(err)
			}
			want = want.Add(d)
		}
		// Without a billing account the period is the source's, which is not in the digest.
		if p, q := a.Periods[0], b.Periods[0]; p.Digest != q.Digest || q.Exact.Billed != want.String() ||
			q.Lines != int64(len(rows)) {
			t.Errorf("%d resources: %+v read value by value, %+v by dictionaries, want %s", resources,
				p.Period, q.Period, want)
		}
	}
}

// TestBadEntryOfADictionary names the row that uses the entry; an entry that no row
// uses causes no error.
func TestBadEntryOfADictionary(t *testing.T) {
	rows := manyRows(10)
	rows[7].Billed = "1 dollar"
	path := filepath.Join(t.TempDir(), "b.parquet")
	if err := parquet.WriteFile(path, indexed(rows)); err != nil {
		t.Fatal(err)
	}
	if _, err := tryRead(path, Options{}); err == nil ||
		!strings.Contains(err.Error(), `b.parquet: row 8: BilledCost "1 dollar" is not a decimal number`) {
		t.Errorf("the error is %v", err)
	}
}
