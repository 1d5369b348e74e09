package layout

import (
	_ "embed" // style sheet
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

// styleElement returns the style of a standalone page.
func styleElement() string { return "<style>" + CSS() + "</style>" }

// CSS returns the style of all pages, including charts.
func CSS() string { return chart.CSS + pageStyle }

// hatchPattern is the stripe pattern for unmeasured parts.
const hatchPattern = `<defs><pattern id="stack-hatched" width="6" height="6" patternUnits="userSpaceOnUse" ` +
	`patternTransform="rotate(45)"><rect width="6" height="6" class="stripe-ground"/>` +
	`<rect width="2" height="6" class="stripe"/></pattern></defs>`

// fill returns the color of a part without a class.
func (p Part) fill() string {
	if p.Tone == ToneUnmeasured {
		return "url(#stack-hatched)"
	}
	return "currentColor"
}

// before returns the sum of the shares before a part.
func before(parts []Part, i int) float64 {
	sum := 0.0
	for _, p := range parts[:i] {
		sum += p.Share
	}
	return sum
}

// percent formats a relative length.
func percent(share float64) string {
	return strconv.FormatFloat(100*share, 'f', 3, 64) + "%"
}

var units = lazyregexp.New(`(\d) (%|[KMGTP]i?B|GPUs?|days?|hours?|h\b|m\b|s\b|ms\b|a month|an hour|a day)`)

// bound prepares text for a page: one line, with numbers and units kept together.
func bound(s string) string {
	return units.ReplaceAllStringFunc(
		plain.Line(s),
		func(m string) string { return strings.ReplaceAll(m, " ", "\u00a0") },
	)
}

// hyphened matches dates and names, which a browser would break at a hyphen.
var hyphened = lazyregexp.New(`[\w.]+(?:-[\w.]+)+`)

// unbroken returns the HTML of a headline that keeps names and dates together.
func unbroken(s string) string {
	return hyphened.ReplaceAllString(html.EscapeString(bound(s)), `<span class="unbroken">$0</span>`)
}

// heading formats text as a heading.
func heading(s string) string { return Capital(bound(s)) }

// commandLines joins commands with newlines.
func commandLines(list []string) string {
	var b strings.Builder
	for _, c := range list {
		b.WriteString(plain.Line(c) + "\n")
	}
	return b.String()
}

// beneath is the content under a table row.
type beneath struct {
	Why, Note, Command string
	Detail             *Detail
}

// below returns the content under a row on a page.
func (g *Grid) below(row int) beneath {
	b := beneath{Note: at(g.Notes, row), Command: at(g.Commands, row), Detail: at(g.Details, row)}
	if len(g.Fold) > 0 {
		b.Why = at(at(g.Rows, row), g.Fold[0])
	}
	return b
}

// any reports whether there is content.
func (b beneath) any() bool { return b != (beneath{}) }

// columns returns the number of columns on a page.
func (g *Grid) columns() int { return len(g.Head) - min(len(g.Fold), 1) }

// Capital capitalizes the first letter, except of statistics such as "p95".
func Capital(s string) string {
	if statistic.MatchString(s) {
		return s
	}
	first, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[n:]
}

var statistic = lazyregexp.New(`^p\d`)

// StateClass returns the CSS class of a decision or state, or "".
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
