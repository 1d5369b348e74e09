// Command duckdb reads one bill twice, with curfew's reader and with DuckDB, and holds
// the one against the other: what they say each resource cost on each day, how long
// they take and how much memory. It is a module of its own, because DuckDB needs cgo.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/curfew-dev/curfew/internal/billfile/billtest"
)

func main() {
	rows := flag.Int("rows", 1_000_000, "how many rows of FOCUS to make")
	file := flag.String("file", "", "read this Parquet `file` of FOCUS instead of making one")
	threads := flag.Int("threads", runtime.NumCPU(), "how many threads each may use")
	reader := flag.String("reader", "",
		"read with this one alone and print what it says as JSON (the program calls itself so)")
	flag.Parse()
	var err error
	if *reader != "" { // checked first, so that a child does not start children
		err = child(context.Background(), os.Stdout, *reader, *file, *threads)
	} else {
		err = compare(context.Background(), os.Stdout, *file, *rows, *threads)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "duckdb:", err)
		os.Exit(1)
	}
}

// readers are the readers by name, in running order. DuckDB runs twice: with exact decimals, as
// curfew returns them, and with binary numbers, as stored in the file, which is the least work
// possible.
var readers = []struct {
	name string
	read func(ctx context.Context, file string, threads int) (Sums, error)
}{
	{"curfew", readCurfew},
	{"duckdb", readDuckDB},
	{"duckdb-binary", readDuckDBBinary},
}

// Run is one reader's result.
type Run struct {
	Sums    Sums
	Seconds float64
	// PeakBytes is the peak memory of the process according to the operating system.
	PeakBytes int64
}

// child runs a reader and prints its result.
func child(ctx context.Context, out io.Writer, reader, file string, threads int) error {
	for _, r := range readers {
		if r.name != reader {
			continue
		}
		runtime.GOMAXPROCS(threads)
		began := time.Now()
		sums, err := r.read(ctx, file, threads)
		if err != nil {
			return fmt.Errorf("%s: %w", reader, err)
		}
		return json.NewEncoder(out).Encode(Run{Sums: sums, Seconds: time.Since(began).Seconds()})
	}
	return fmt.Errorf("there is no reader %q", reader)
}

// alone runs a reader in a separate process, to measure its memory.
func alone(ctx context.Context, reader, file string, threads int) (Run, error) {
	self, err := os.Executable()
	if err != nil {
		return Run{}, err
	}
	var out bytes.Buffer
	c := exec.CommandContext(ctx, self, "-reader", reader, "-file", file, "-threads", fmt.Sprint(threads))
	c.Stdout, c.Stderr = &out, os.Stderr
	if err := c.Run(); err != nil {
		return Run{}, fmt.Errorf("run %s: %w", reader, err)
	}
	var r Run
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		return Run{}, fmt.Errorf("read what %s says: %w", reader, err)
	}
	if usage, ok := c.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.PeakBytes = usage.Maxrss
		if runtime.GOOS != "darwin" { // which counts bytes, and others KiB
			r.PeakBytes *= 1024
		}
	}
	return r, nil
}

// compare prints the readers side by side. It is an error if they disagree.
func compare(ctx context.Context, out io.Writer, file string, rows, threads int) (err error) {
	if file == "" {
		dir, err := os.MkdirTemp("", "bill")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		file = filepath.Join(dir, "bill.parquet")
		if _, err := billtest.Write(file, rows); err != nil {
			return err
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	var runs []Run
	for _, r := range readers {
		run, err := alone(ctx, r.name, file, threads)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	exact := runs[0].Sums
	fmt.Fprintf(out, "%d rows, %d MB of Parquet, %d threads, billed %s, %d sums by day, resource and service\n\n",
		exact.Lines, info.Size()>>20, threads, exact.Total.Billed, len(exact.Groups))
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tseconds\trows a second\tpeak MiB\tagainst curfew\t")
	for i, run := range runs {
		fmt.Fprintf(w, "%s\t%.2f\t%.0f\t%d\t%.2f\t\n", readers[i].name, run.Seconds,
			float64(run.Sums.Lines)/run.Seconds,
			run.PeakBytes>>20, run.Seconds/runs[0].Seconds)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := errors.Join(exact.Agrees(runs[1].Sums), exact.Near(runs[2].Sums)); err != nil {
		return fmt.Errorf("curfew and DuckDB disagree: %w", err)
	}
	fmt.Fprintln(out, "\nthe sums of curfew and of DuckDB's decimals are equal to the last digit")
	return nil
}
