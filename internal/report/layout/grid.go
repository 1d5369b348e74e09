package layout

import (
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Grid is a table. On a terminal it uses one line per row: cells that do not fit are truncated with
// "…", and only if the minimum widths do not fit either, each row becomes a block with one line per
// column.
type Grid struct {
	Title string
	Head  []string
	// Right marks numeric columns: aligned right and never truncated.
	Right []bool
	// States marks columns of decisions or states ("deny", "idle"): never truncated, and colored if
	// colors are on.
	States []bool
	// Least is the minimum width of a column; 0 means ten columns or its heading.
	Least []int
	// Priority ranks the columns: those with the lowest are truncated first. Without it the first
	// column is truncated last.
	Priority []int
	Rows     [][]string
	// Notes holds a line of text for each row, shown under it; "" for none.
	Notes []string
	// Commands holds a command for each row, shown under it on its own line and never truncated; ""
	// for none.
	Commands []string
	// Code marks columns of names, which Markdown and pages show in a code font.
	Code []bool
	// Fold lists columns, from the right, that move under their row on a terminal instead of being
	// truncated; a page shows the first of them there.
	Fold []int
	// Extra is the number of columns on the right that a terminal omits.
	Extra int
	// Most bounds the rows, named by Noun, on a terminal and in Markdown; 0 for all.
	Most int
	Noun string
	// Folded tables are collapsed on pages, PageOnly ones appear only there.
	Folded, PageOnly bool
	// Below holds lines under the table about omitted rows and counts.
	Below []string
	// Details are shown on a page when a reader opens a row; nil for none.
	Details []*Detail

	// Paint returns the color of a cell; nil for no color.
	Paint func(row, column int) func(string) string
}

// Detail is additional information about a row.
type Detail struct {
	Pictures []Picture
	Table    Grid
	Terms    []Term
}

// Term is one fact with its command.
type Term struct{ Name, Text, Command string }

// shown returns the rows for a terminal and Markdown, and the number of omitted ones.
func (g *Grid) shown() (rows [][]string, more string) {
	if g.Most <= 0 || len(g.Rows) <= g.Most {
		return g.Rows, ""
	}
	return g.Rows[:g.Most], "and " + plain.Count(len(g.Rows)-g.Most, "more "+g.Noun)
}

// under reports whether a page shows a column under its row.
func (g *Grid) under(column int) bool { return len(g.Fold) > 0 && g.Fold[0] == column }

// cut returns the table as shown on a terminal of a width.
func (g *Grid) cut(width int) Grid {
	out := *g
	for range g.Extra {
		out = out.Without(len(out.Head) - 1)
	}
	for _, column := range g.Fold {
		widths, _ := out.widths(width)
		if widths[column] == out.natural(column) {
			break
		}
		notes := make([]string, len(out.Rows))
		for i, row := range out.Rows {
			cell := at(row, column)
			if cell == None {
				cell = ""
			}
			notes[i] = Joined(": ", cell, at(out.Notes, i))
		}
		out = out.Without(column)
		out.Notes = notes
	}
	return out
}

// Without returns the table without a column.
func (g *Grid) Without(column int) Grid {
	out := *g
	out.Head = drop(g.Head, column)
	out.Right, out.States, out.Code = drop(g.Right, column), drop(g.States, column), drop(g.Code, column)
	out.Least, out.Priority = drop(g.Least, column), drop(g.Priority, column)
	out.Rows = make([][]string, len(g.Rows))
	for i, row := range g.Rows {
		out.Rows[i] = drop(row, column)
	}
	return out
}

// drop returns a list without an element.
func drop[T any](list []T, i int) []T {
	if i >= len(list) {
		return list
	}
	return slices.Delete(slices.Clone(list), i, i+1)
}

// indent is the space before a table and between its columns.
const indent = 2

// at returns the i-th element, or the zero value if it is out of range.
func at[T any](list []T, i int) T {
	var none T
	if i >= 0 && i < len(list) {
		return list[i]
	}
	return none
}

// fixed reports whether a column is never truncated.
func (g *Grid) fixed(column int) bool { return at(g.Right, column) || at(g.States, column) }

// widths returns the column widths on a terminal, or false if not even the minimum widths fit.
func (g *Grid) widths(width int) ([]int, bool) {
	natural, least, priority := make([]int, len(g.Head)), make([]int, len(g.Head)), make([]int, len(g.Head))
	total := 0
	for i, h := range g.Head {
		natural[i] = g.natural(i)
		least[i] = max(Width(plain.Line(h)), 10)
		if n := at(g.Least, i); n > 0 {
			least[i] = n
		}
		if least[i] = min(least[i], natural[i]); g.fixed(i) {
			least[i] = natural[i]
		}
		priority[i] = at(g.Priority, i)
		if g.Priority == nil && i == 0 {
			priority[i] = 1
		}
		total += indent + natural[i]
	}
	for _, p := range slices.Compact(slices.Sorted(slices.Values(priority))) {
		// The widest column of the rank shrinks by one at a time, so that columns of one rank end
		// equally wide.
		for total > width {
			widest := -1
			for i := range natural {
				if priority[i] == p && natural[i] > least[i] && (widest < 0 || natural[i] > natural[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			natural[widest]--
			total--
		}
	}
	return natural, total <= width
}

// natural returns the width of a column's heading and cells.
func (g *Grid) natural(column int) int {
	n := Width(plain.Line(g.Head[column]))
	for _, row := range g.Rows {
		n = max(n, Width(plain.Line(at(row, column))))
	}
	return n
}

// text writes the table for a terminal.
func (g *Grid) text(b *strings.Builder, width int, p Paint) {
	rows, more := g.shown()
	first := *g
	first.Rows = rows
	first = first.cut(width)
	first.rows(b, width, p)
	if more != "" {
		b.WriteString(strings.Repeat(" ", indent) + p.Dim(Fit(more, width-indent)) + "\n")
	}
	below := textSheet{width: width, paint: p}
	for _, line := range g.Below {
		below.prose(strings.Repeat(" ", indent), line, p.Dim)
	}
	b.WriteString(below.String())
}

// rows writes the title, the heading and the rows.
func (g *Grid) rows(b *strings.Builder, width int, p Paint) {
	if g.Title != "" {
		b.WriteString(strings.Repeat(" ", indent) + Fit(plain.Line(g.Title), width-indent) + "\n")
	}
	widths, fits := g.widths(width)
	if !fits {
		g.stacked(b, width, p)
		return
	}
	header := gridLine{width: width}
	for i, h := range g.Head {
		header.add(plain.Line(h), widths[i], at(g.Right, i), p.Dim)
	}
	header.end(b)
	under := indent
	if len(widths) > 0 && g.fixed(0) {
		under += widths[0] + indent
	} else {
		under += indent
	}
	for n, cells := range g.Rows {
		r := gridLine{width: width}
		for i := range g.Head {
			r.add(plain.Line(at(cells, i)), widths[i], at(g.Right, i), g.color(n, i, p))
		}
		r.end(b)
		g.notes(b, n, under, width, p)
	}
}

// notes writes the lines under a row.
func (g *Grid) notes(b *strings.Builder, n, indent, width int, p Paint) {
	space := strings.Repeat(" ", indent)
	if note := plain.Line(at(g.Notes, n)); note != "" {
		// A note is wrapped, not truncated; only a word wider than the terminal is.
		for _, line := range Wrap(note, max(width-indent, 20)) {
			b.WriteString(space + p.Dim(Fit(line, max(width-indent, 20))) + "\n")
		}
	}
	if command := plain.Line(at(g.Commands, n)); command != "" {
		b.WriteString(space + command + "\n")
	}
}

// stacked writes each row as a block: its first column, then a line for each other non-empty
// column.
func (g *Grid) stacked(b *strings.Builder, width int, p Paint) {
	label := 0
	for _, h := range g.Head {
		label = max(label, Width(plain.Line(h)))
	}
	label = min(label, width/3)
	for n, cells := range g.Rows {
		for i, h := range g.Head {
			value := plain.Line(at(cells, i))
			if value == "" {
				continue
			}
			r := gridLine{width: width}
			if i > 0 {
				r.add("", 0, false, nil)
			}
			r.add(plain.Line(h), label, false, p.Dim)
			r.add(value, max(1, width-r.used-indent), false, g.color(n, i, p))
			r.end(b)
		}
		g.notes(b, n, 2*indent, width, p)
	}
}

// color returns the color of a cell; nil for no color.
func (g *Grid) color(row, column int, p Paint) func(string) string {
	if g.Paint != nil {
		if c := g.Paint(row, column); c != nil {
			return c
		}
	}
	if at(g.States, column) {
		return p.State(at(at(g.Rows, row), column))
	}
	return nil
}

// gridLine is a table line under construction.
type gridLine struct {
	width, used int
	text        strings.Builder
}

// add writes a cell of a width.
func (r *gridLine) add(text string, width int, right bool, color func(string) string) {
	text = Fit(text, width)
	space := strings.Repeat(" ", max(0, width-Width(text)))
	if color != nil {
		text = color(text)
	}
	if right {
		text = space + text
	} else {
		text += space
	}
	r.text.WriteString(strings.Repeat(" ", indent) + text)
	r.used += indent + width
}

func (r *gridLine) end(b *strings.Builder) {
	b.WriteString(strings.TrimRight(r.text.String(), " ") + "\n")
}
