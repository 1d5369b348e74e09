package cli

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
)

// countView is what one policy came to, in a document.
type countView struct {
	Name     string         `json:"name"`
	Selected int            `json:"selected"`
	True     int            `json:"true"`
	False    int            `json:"false"`
	Unknown  map[string]int `json:"unknown"`
	Refused  map[string]int `json:"refused"`
	Deferred int            `json:"deferred"`
	OverCaps int            `json:"over_caps"`
	Fuse     *fuseView      `json:"fuse"`
}

type fuseView struct {
	Account  string    `json:"account"`
	At       time.Time `json:"at"`
	Due      int       `json:"due"`
	Selected int       `json:"selected"`
	Why      string    `json:"why"`
}

func countsOf(counts []round.Count) []countView {
	out := []countView{}
	for _, c := range counts {
		v := countView{c.Policy, c.Selected, c.True, c.False, c.Unknown, c.Refused, c.Deferred, c.OverCaps, nil}
		if f := c.Fuse; f != nil {
			v.Fuse = &fuseView{f.Account, f.At.UTC(), f.Due, f.Selected, f.String()}
		}
		out = append(out, v)
	}
	return out
}

// printCounts says for each policy of how many resources it spoke, and why nothing
// happened to them.
func (a *app) printCounts(counts []round.Count) error {
	if len(counts) == 0 {
		return nil
	}
	plain.Fprintln(a.Stdout)
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	plain.Fprintf(w, "  %-24s\tselected\ttrue\tfalse\tunknown\trefused\tdeferred\tover caps\t\n", "policy")
	for _, c := range counts {
		plain.Fprintf(w, "  %-24s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", c.Policy, c.Selected, c.True, c.False, sumOf(c.Unknown), sumOf(c.Refused), c.Deferred, c.OverCaps)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, c := range counts {
		reasons := append(reasonsOf("unknown", c.Unknown), reasonsOf("refused", c.Refused)...)
		if c.Fuse != nil {
			reasons = append(reasons, c.Fuse.String())
		}
		for _, why := range reasons {
			plain.Fprintf(a.Stdout, "  %s: %s\n", c.Policy, a.wrapped(why, 4))
		}
	}
	return nil
}

func sumOf(counts map[string]int) int {
	n := 0
	for _, k := range counts {
		n += k
	}
	return n
}

// reasonsOf lists reasons with their counts, the most frequent first.
func reasonsOf(what string, counts map[string]int) []string {
	keys := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), strings.Compare(x, y))
	})
	var out []string
	for _, k := range keys {
		out = append(out, money.Thousands(int64(counts[k]))+" "+what+" ("+k+")")
	}
	return out
}
