package report

import (
	_ "embed"
	"html/template"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
)

//go:embed frame.html.tmpl
var frameTemplate string

//go:embed page.css
var pageStyle string

// pageFrame is what the frame of a page shows: its title, the command it is of and what
// that looked at.
type pageFrame struct{ Title, Verb, Scope string }

// newPage parses a page that stands in the frame. Every page of this program is made by
// it, so that all have one style sheet and the same parts.
func newPage(name, text string, funcs template.FuncMap) *template.Template {
	return template.Must(template.Must(template.New(name).Funcs(template.FuncMap{
		"style":   func() template.CSS { return template.CSS(chart.CSS + pageStyle) },
		"plain":   bound,
		"heading": func(s string) string { return capital(bound(s)) },
		"title":   unbroken,
		"command": plain.Line,
		"svg":     func(s string) template.HTML { return template.HTML(s) }, //nolint:gosec // pictures are this program's own
		"right":   func(g Grid, column int) bool { return at(g.Right, column) },
		"state":   func(g Grid, column int) bool { return at(g.States, column) },
		"tone":    tone,
		"under": func(g Grid, row int) *beneath {
			b := beneath{at(g.Notes, row), at(g.Commands, row)}
			if b == (beneath{}) {
				return nil
			}
			return &b
		},
	}).Funcs(funcs).Parse(frameTemplate)).Parse(text))
}

// beneath is what stands under a row of a table.
type beneath struct{ Note, Command string }

var units = regexp.MustCompile(`(\d) (%|[KMGTP]i?B|GPUs?|days?|hours?|h\b|m\b|s\b|ms\b|a month|an hour|a day)`)

// bound makes text fit for a page: one line, in which a figure and its unit stay
// together.
func bound(s string) string {
	return units.ReplaceAllStringFunc(plain.Line(s), func(m string) string { return strings.ReplaceAll(m, " ", "\u00a0") })
}

// hyphened are dates and names, which a browser would break at a hyphen.
var hyphened = regexp.MustCompile(`[\w.]+(?:-[\w.]+)+`)

// unbroken is a headline in which names and dates stay whole.
func unbroken(s string) template.HTML {
	whole := hyphened.ReplaceAllString(template.HTMLEscapeString(bound(s)), `<span class="unbroken">$0</span>`)
	return template.HTML(whole) //nolint:gosec // the text is escaped
}

// capital begins with a capital letter, but for the names of statistics: "p95".
func capital(s string) string {
	if statistic.MatchString(s) {
		return s
	}
	first, n := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(first)) + s[n:]
}

var statistic = regexp.MustCompile(`^p\d`)

// tone is the class of a decision or a state on a page; "" where it has none.
func tone(text string) string {
	switch word := stateWord(text); {
	case good[word]:
		return "is-good"
	case open[word]:
		return "is-open"
	case bad[word]:
		return "is-bad"
	}
	return ""
}

// terms explains the two words that do not add up to one another.
const terms = "Waste is what idle, held, stalled or unused resources cost; savings is what all fixes together save, right-sizing and storage included."
