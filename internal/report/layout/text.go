package layout

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Fit truncates s to at most width columns, with "…" at the end.
func Fit(s string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(s, width, "…")
}

// Wrap wraps text at spaces into lines of at most width columns. A longer word has its own line:
// names, and commands in backticks, are never broken.
func Wrap(s string, width int) []string {
	var lines []string
	for _, word := range wholeWords(s) {
		if last := len(lines) - 1; last >= 0 && Width(lines[last])+1+Width(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// wholeWords splits a text into words; a command in backticks is one word.
func wholeWords(s string) []string {
	words := strings.Fields(s)
	odd := func(word string) bool { return strings.Count(word, "`")%2 == 1 }
	var out []string
	for i := 0; i < len(words); i++ {
		if !odd(words[i]) {
			out = append(out, words[i])
			continue
		}
		end := i + 1 + slices.IndexFunc(words[i+1:], odd) // i if it is unpaired
		out = append(out, strings.Join(words[i:end+1], " "))
		i = end
	}
	return out
}

// Width returns the terminal width of s in columns.
func Width(s string) int { return ansi.StringWidth(s) }

// Hanging makes a text one line and wraps it at the width of a terminal. The text starts at a
// column; following lines are indented.
func Hanging(s string, width, column, indent int) string {
	s = plain.Line(s)
	if width <= 0 {
		return s
	}
	lines := Wrap(s, max(width-column, 24))
	if len(lines) < 2 {
		return s
	}
	rest := Wrap(strings.TrimPrefix(s, lines[0]), max(width-indent, 24))
	return strings.Join(append(lines[:1], rest...), "\n"+strings.Repeat(" ", indent))
}

// Pad appends spaces up to a width in columns.
func Pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-Width(s)))
}

// Joined joins the non-empty parts.
func Joined(separator string, parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), separator)
}

// None is the placeholder for an empty value.
const None = "–"
