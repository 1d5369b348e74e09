package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// benchstat writes the runs in the format of Go benchmarks and prints their comparison.
func benchstat(ctx context.Context, dir string, results []result, out io.Writer) error {
	var files [2]string
	for side, name := range sides {
		var b strings.Builder
		for _, r := range results {
			for _, c := range r.costs[side] {
				fmt.Fprintf(&b, "Benchmark%s 1 %d ns/op %d cpu-ns/op\n", r.name,
					c.wall.Nanoseconds(), c.cpu.Nanoseconds())
			}
		}
		files[side] = filepath.Join(dir, name)
		if err := os.WriteFile(files[side], []byte(b.String()), 0o600); err != nil {
			return fmt.Errorf("write the runs: %w", err)
		}
	}
	text, err := output(ctx, "", "go", "tool", "-modfile=tools/go.mod", "benchstat",
		sides[before]+"="+files[before], sides[now]+"="+files[now])
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, text)
	return err
}

// ratio is the time of this tree divided by that of the revision, run by run.
type ratio struct{ median, lowest, highest float64 }

func ratioOf(r result, of func(cost) time.Duration) ratio {
	var all []float64
	for i, c := range r.costs[now] {
		all = append(all, float64(of(c))/float64(max(of(r.costs[before][i]), 1)))
	}
	slices.Sort(all)
	// For an even number, use the mean of the middle two.
	n := len(all)
	return ratio{(all[(n-1)/2] + all[n/2]) / 2, all[0], all[n-1]}
}

// printRatios prints each ratio with its spread, and returns an error if one is too high: the
// median of CPU times, or all wall-clock times, because a busy machine only slows some runs.
func printRatios(results []result, out io.Writer) error {
	var over []string
	fmt.Fprintln(out, "\nthis tree to the revision, runs in turns: median (lowest to highest)")
	for _, r := range results {
		line := fmt.Sprintf("%-8s", r.name)
		cpu := ratioOf(r, func(c cost) time.Duration { return c.cpu })
		clock := ratioOf(r, func(c cost) time.Duration { return c.wall })
		for _, m := range []struct {
			name   string
			x      ratio
			decide float64
		}{{"processors", cpu, cpu.median}, {"clock", clock, clock.lowest}} {
			line += fmt.Sprintf("  %s %.2f (%.2f to %.2f)", m.name, m.x.median, m.x.lowest, m.x.highest)
			if m.decide > most {
				over = append(over, fmt.Sprintf("%s by %s %.2f", r.name, m.name, m.x.median))
			}
		}
		fmt.Fprintln(out, line)
	}
	if len(over) > 0 {
		return fmt.Errorf("over %.1f: %s", most, strings.Join(over, ", "))
	}
	return nil
}
