package layout

import (
	_ "embed" // the style sheet
	"html"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
)

//go:embed page.css
var pageStyle string

// styleElement is the style of a page that stands alone.
func styleElement() string { return "<style>" + CSS() + "</style>" }

// CSS is the style of every page, charts included.
func CSS() string { return chart.CSS + pageStyle }

// hatchPattern is the stripes of what is not measured.
const hatchPattern = `<defs><pattern id="stack-hatched" width="6" height="6" patternUnits="userSpaceOnUse" ` +
	`patternTransform="rotate(45)"><rect width="6" height="6" class="stripe-ground"/>` +
	`<rect width="2" height="6" class="stripe"/></pattern></defs>`

// fill is the color of a part where no class gives one.
func (p Part) fill() string {
	if p.Tone == ToneUnmeasured {
		return "url(#stack-hatched)"
	}
	return "currentColor"
}

// before is the share of the parts in front of one.
func before(parts []Part, i int) float64 {
	sum := 0.0
	for _, p := range parts[:i] {
		sum += p.Share
	}
	return sum
}

// percent is a length of a drawing that is as wide as there is room.
func percent(share float64) string {
	return strconv.FormatFloat(100*share, 'f', 3, 64) + "%"
}

var units = lazyregexp.New(`(\d) (%|[KMGTP]i?B|GPUs?|days?|hours?|h\b|m\b|s\b|ms\b|a month|an hour|a day)`)

// bound makes text fit for a page: one line, in which a figure and its unit stay
// together.
func bound(s string) string {
	return units.ReplaceAllStringFunc(
		plain.Line(s),
		func(m string) string { return strings.ReplaceAll(m, " ", "\u00a0") },
	)
}

// hyphened are dates and names, which a browser would break at a hyphen.
var hyphened = lazyregexp.New(`[\w.]+(?:-[\w.]+)+`)

// unbroken is the HTML of a headline in which names and dates stay whole.
func unbroken(s string) string {
	return hyphened.ReplaceAllString(html.EscapeString(bound(s)), `<span class="unbroken">$0</span>`)
}

// heading is text for a heading of a page.
func heading(s string) string { return Capital(bound(s)) }

// commandLines are commands, a line each.
func commandLines(list []string) string {
	var b strings.Builder
	for _, c := range list {
		b.WriteString(plain.Line(c) + "\n")
	}
	return b.String()
}

// beneath is the content under a row of a table.
type beneath struct {
	Why, Note, Command string
	Detail             *Detail
}

// below returns what a page shows under a row.
func (g *Grid) below(row int) beneath {
	b := beneath{Note: at(g.Notes, row), Command: at(g.Commands, row), Detail: at(g.Details, row)}
	if len(g.Fold) > 0 {
		b.Why = at(at(g.Rows, row), g.Fold[0])
	}
	return b
}

// any reports whether anything is under the row.
func (b beneath) any() bool { return b != (beneath{}) }

// columns counts the columns that a page shows.
func (g *Grid) columns() int { return len(g.Head) - min(len(g.Fold), 1) }

// Capital begins s with a capital letter, but for the names of statistics: "p95".
func Capital(s string) string {
	if statistic.MatchString(s) {
		return s
	}
	first, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[n:]
}

var statistic = lazyregexp.New(`^p\d`)

// StateClass is the class of a decision or a state on a page; "" where it has none.
func StateClass(text string) string {
	switch word := stateWord(text); {
	case worked[word]:
		return "is-worked"
	case idle[word]:
		return "is-idle"
	case good[word]:
		return "is-good"
	case open[word]:
		return "is-open"
	case bad[word]:
		return "is-bad"
	}
	return ""
}
