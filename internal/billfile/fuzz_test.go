package billfile

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/billfile/billtest"
)

// readWhole checks the invariant of every file: it is read whole, its rows adding up to its totals,
// or refused with an error that names it.
func readWhole(t *testing.T, name string, text []byte) {
	r := &reading{export: &Export{Source: name}, all: bill.NewAggregate(bill.Options{Source: name, MaxRows: 10_000})}
	s := &sink{reading: r, ctx: context.Background(), into: r.all, part: part{name: name}}
	s.emit = s.add
	err := s.file(text)
	if err != nil {
		var place *Error
		if !errors.As(err, &place) || place.File != name {
			t.Fatalf("the error names no file: %v", err)
		}
		return
	}
	b, err := r.all.Settle()
	if err != nil {
		return // sums past the range of an amount
	}
	var lines int64
	for _, p := range b.Periods {
		var sum bill.Cost
		for r := range p.Rows() {
			sum.Billed += r.Cost.Billed
			lines += r.Lines
		}
		if sum.Billed != p.Total.Billed {
			t.Fatalf("the rows add up to %s, the period to %s", sum.Billed, p.Total.Billed)
		}
	}
	if lines != b.Lines {
		t.Fatalf("the rows are of %d lines, the bill has %d", lines, b.Lines)
	}
}

// file reads a file from memory.
func (s *sink) file(text []byte) error {
	if !bytes.HasPrefix(text, []byte("PAR1")) {
		return s.csv(bytes.NewReader(text), bytes.HasPrefix(text, []byte{0x1f, 0x8b}))
	}
	groups, err := openParquet(bytes.NewReader(text), int64(len(text)), s.part)
	for _, g := range groups {
		if err == nil {
			err = s.parquet(g)
		}
	}
	return err
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte(head + row() + row("BilledCost", "-2.5e-9", "Tags", `"{""team"":""x""}"`)))
	f.Add([]byte(curHead + "\n" + curRow("SavingsPlanRecurringFee", "ComputeSavingsPlans", "x",
		"10", "", "", "", "", "",
		"arn", "", "10", "7.5")))
	f.Add([]byte(gzipped(head + row())))
	f.Add([]byte("BilledCost,\"a\nb\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.HasPrefix(text, []byte("PAR1")) {
			t.Skip("Parquet has a target of its own")
		}
		readWhole(t, "b.csv", text)
	})
}

func FuzzParquet(f *testing.F) {
	path := filepath.Join(f.TempDir(), "b.parquet")
	if _, err := billtest.Write(path, 12); err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Fuzz(func(t *testing.T, text []byte) {
		readWhole(t, "b.parquet", append([]byte("PAR1"), bytes.TrimPrefix(text, []byte("PAR1"))...))
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"dataFiles":["s3://b/p/x/data/BILLING_PERIOD=2024-09/x-00001.csv.gz"]}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"dataFiles":[null,""]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		files := memory{
			"x/data/BILLING_PERIOD=2024-09/x-00001.csv.gz":      head + row(),
			"x/metadata/BILLING_PERIOD=2024-09/x-Manifest.json": string(text),
		}
		e, err := Open(context.Background(), "s3://b/x", Options{
			Bucket: func(context.Context, string) (Bucket, error) {
				return files, nil
			}})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("the error is of several lines: %v", err)
			}
			return
		}
		if len(e.Files) > 1 {
			t.Fatalf("a file is read twice: %v", e.Files)
		}
	})
}
