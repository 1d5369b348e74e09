// Command vocabulary prints a random draw of the names, comments and sentences of this module,
// for a person who reads them cold and counts those that need a second look: 200 exported
// identifiers with their comments, 200 comments and 100 sentences that users read. The same seed
// draws the same from the same tree.
//
//	go run ./test/vocabulary -seed N
//
// With -check it lists the worst patterns instead, and exits with 1 where a package has more of
// one than baseline.txt allows. With -lower it lowers baseline.txt to the present counts.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
)

const (
	drawnIdentifiers = 200
	drawnComments    = 200
	drawnSentences   = 100

	baselineFile = "test/vocabulary/baseline.txt"
)

func main() {
	seed := flag.Uint64("seed", 1, "draws the sample")
	check := flag.Bool("check", false, "list the worst patterns; exit with 1 where there are more than the baseline has")
	lower := flag.Bool("lower", false, "lower the baseline to the present counts")
	flag.Parse()
	if err := run(os.Stdout, *seed, *check, *lower); err != nil {
		fmt.Fprintln(os.Stderr, "vocabulary:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, seed uint64, check, lower bool) error {
	t, err := readTree(".")
	if err != nil {
		return err
	}
	if !check && !lower {
		draw(w, t, seed)
		return nil
	}
	text, err := os.ReadFile(baselineFile)
	if err != nil {
		return fmt.Errorf("read the baseline: %w", err)
	}
	base, err := parseBaseline(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", baselineFile, err)
	}
	if lower {
		text := formatBaseline(lowered(base, count(t.findings)))
		if err := os.WriteFile(baselineFile, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write the baseline: %w", err)
		}
		return nil
	}
	over := exceeding(base, t.findings)
	for _, line := range over {
		fmt.Fprintln(w, line)
	}
	if len(over) > 0 {
		return fmt.Errorf("more than %s allows: rewrite the new ones", baselineFile)
	}
	return nil
}

// draw prints the sample of one seed.
func draw(w io.Writer, t tree, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	section := func(title string, all []entry, n int) {
		sample := pick(rnd, all, n)
		fmt.Fprintf(w, "%s: %d of %d\n", title, len(sample), len(all))
		for i, e := range sample {
			fmt.Fprintf(w, "\n%d. %s:%d", i+1, e.file, e.line)
			if e.name != "" {
				fmt.Fprintf(w, " %s", e.name)
			}
			fmt.Fprintf(w, "\n   %s\n", cmp.Or(strings.ReplaceAll(e.text, "\n", "\n   "), "(no comment)"))
		}
		fmt.Fprintln(w)
	}
	section("exported identifiers", t.identifiers, drawnIdentifiers)
	section("comments", t.comments, drawnComments)
	section("sentences", t.sentences, drawnSentences)
}

// pick returns up to n different entries, ordered by their place in the tree.
func pick(rnd *rand.Rand, all []entry, n int) []entry {
	order := rnd.Perm(len(all))
	order = order[:min(n, len(order))]
	slices.Sort(order)
	sample := make([]entry, len(order))
	for i, at := range order {
		sample[i] = all[at]
	}
	return sample
}
