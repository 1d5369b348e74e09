package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Lengths of the two lists of durations.
const (
	topPackages = 25
	topTests    = 50
)

// printTimes prints the slowest packages and tests of a recorded run by elapsed time. Go's cache
// repeats the durations of the cached run.
func printTimes(record string, out io.Writer) error {
	file, err := os.Open(record)
	if err != nil {
		return fmt.Errorf("read a recorded run: %w", err)
	}
	defer file.Close()
	var packages, tests []event
	total, cached := 0.0, map[string]bool{}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			switch {
			case e.Action == "output" && e.Test == "" && strings.HasSuffix(e.Output, "\t(cached)\n"):
				cached[e.Package] = true
			case e.Action != "pass" && e.Action != "fail":
			case e.Test == "":
				packages = append(packages, e)
				total += e.Elapsed
			default:
				tests = append(tests, e)
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read a recorded run: %w", err)
		}
	}
	fmt.Fprintf(out, "%8.1f s  %d packages together\n\n", total, len(packages))
	for _, list := range []struct {
		events []event
		most   int
	}{{packages, topPackages}, {tests, topTests}} {
		slices.SortStableFunc(list.events, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
		for _, e := range list.events[:min(list.most, len(list.events))] {
			note := ""
			if cached[e.Package] {
				note = " (cached)"
			}
			fmt.Fprintf(out, "%8.1f s  %s%s\n", e.Elapsed, e.id(), note)
		}
		fmt.Fprintln(out)
	}
	return nil
}
