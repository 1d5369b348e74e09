package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// ruleTags is the rule about missing owner tags, and tagsMissing its evidence.
const ruleTags, tagsMissing = "tag-missing", "tags_missing"

// small reports whether a finding is below Options.Min a month: by its saving or waste or, if it
// has neither, as a warning, by the cost of its resource. A finding with unknown dollars is not
// small.
func (d *audit) small(f *view.Finding) bool {
	saved, known := f.MonthlySavingsUSD.Get()
	wasted, judged := f.MonthlyWasteUSD.Get()
	if !known || !judged {
		return false
	}
	amount := max(saved, wasted)
	if amount == 0 {
		cost, priced := f.MonthlyCostUSD.Get()
		if !priced || f.CostUnknown != "" {
			return false
		}
		amount = cost
	}
	return amount < d.o.Min
}

// isFolded reports whether a report only counts a finding: missing tags, and small findings. With
// Options.Min zero every finding is shown.
func (d *audit) isFolded(f *view.Finding) bool {
	return d.o.Min > 0 && (f.Rule == ruleTags || d.small(f))
}

// foldedLines returns a line for resources without tags and one for small findings, if there are
// any.
func (d *audit) foldedLines() []string {
	var lines []string
	keys, rules := map[string]int{}, map[string]int{}
	tagless, small, saves := 0, 0, money.Amount(0)
	for i := range d.Findings {
		switch f := &d.Findings[i]; {
		case !d.isFolded(f):
		case f.Rule == ruleTags:
			tagless++
			for _, e := range f.Evidence {
				if e.Signal == tagsMissing {
					for key := range strings.SplitSeq(e.Value, ", ") {
						keys[key]++
					}
				}
			}
		default:
			small++
			rules[f.Rule]++
			saves += f.MonthlySavingsUSD.Or(0) // each is under Options.Min
		}
	}
	if tagless > 0 {
		lines = append(lines, fmt.Sprintf("%s without a required tag: %s; `%s` lists them",
			plain.Count(tagless, "resource"), tally(keys), d.command("tag")))
	}
	if small > 0 {
		lines = append(lines, fmt.Sprintf("%s under %s a month, %s in all: %s; --min 0 shows them",
			plain.Count(small, "finding"), d.o.Min.Dollars(), saves.Dollars(), tally(rules)))
	}
	return lines
}

// tally lists names by frequency, the most frequent first.
func tally(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%d × %s", of[name], name)
	}
	return strings.Join(names, ", ")
}
