package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Sheet is a small report for people: one sentence, a few figures, a picture, tables,
// and what it all rests on. Planners and the ledger show themselves this way.
type Sheet struct {
	// Verb is the command: "plan mig". Title is the answer in one sentence.
	Verb, Title string
	Figures     []Figure
	// Because is why the answer is what it is.
	Because []string
	// Picture is inline SVG made by a package of this program, never by a user's
	// file; Caption says what it shows.
	Picture, Caption string
	Tables           []Grid
	// Commands are for a shell, in order.
	Commands []string
	// Next are commands that a reader may give now.
	Next []string
	// Assumptions is what was assumed, Coverage what the data covers, Changes what
	// would change the answer.
	Assumptions, Coverage, Changes []string
	// Color is whether the text is colored.
	Color bool
}

// Figure is one number with what it is.
type Figure struct{ Label, Value, Note string }

//go:embed sheet.html.tmpl
var sheetTemplate string

//go:embed sheet.css
var sheetStyle string

var sheetPage = template.Must(template.New("sheet").Funcs(template.FuncMap{
	"right": func(g Grid, i int) bool { return i < len(g.Right) && g.Right[i] },
	"plain": plain.Line,
}).Parse(sheetTemplate))

// HTML writes one self-contained page.
func (s Sheet) HTML(w io.Writer) error {
	var b bytes.Buffer
	err := sheetPage.Execute(&b, struct {
		Sheet
		Style template.CSS
		SVG   template.HTML
	}{s, template.CSS(sheetStyle), template.HTML(s.Picture)}) //nolint:gosec // both are this program's own
	if err != nil {
		return fmt.Errorf("render %s as HTML: %w", s.Verb, err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write %s as HTML: %w", s.Verb, err)
	}
	return nil
}

// Text writes the sheet for a terminal of a width in columns; 0 is no terminal.
func (s Sheet) Text(w io.Writer, width int) error {
	if width <= 0 {
		width = 100
	}
	var b strings.Builder
	prose := func(indent, text string) {
		for i, line := range strings.Split(ansi.Wordwrap(plain.Line(text), max(width-1-ansi.StringWidth(indent), 20), ""), "\n") {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", len(indent)))
			} else {
				b.WriteString(indent)
			}
			b.WriteString(line + "\n")
		}
	}
	fmt.Fprintf(&b, "curfew %s\n\n", s.Verb)
	prose("  ", s.Title)
	if len(s.Figures) > 0 {
		b.WriteString("\n")
		label := 0
		for _, f := range s.Figures {
			label = max(label, wide(plain.Line(f.Label)))
		}
		for _, f := range s.Figures {
			prose("  "+pad(plain.Line(f.Label), label)+"   ", strings.TrimRight(f.Value+"   "+f.Note, " "))
		}
	}
	list := func(name string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n  %s\n", name)
		for _, line := range lines {
			prose("    - ", line)
		}
	}
	list("because", s.Because)
	for _, g := range s.Tables {
		b.WriteString("\n")
		g.text(&b, width, newPaint(s.Color))
	}
	if len(s.Commands) > 0 {
		b.WriteString("\n  commands, in order\n")
		for _, c := range s.Commands {
			b.WriteString("    " + plain.Line(c) + "\n")
		}
	}
	if len(s.Next) > 0 {
		b.WriteString("\n  next\n")
		for _, c := range s.Next {
			b.WriteString("    " + plain.Line(c) + "\n")
		}
	}
	list("assumes", s.Assumptions)
	list("covers", s.Coverage)
	list("would change it", s.Changes)
	_, err := io.WriteString(w, b.String())
	return err
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-wide(s)))
}

// Markdown writes the sheet without its picture, for tickets and pull requests.
func (s Sheet) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## curfew %s\n\n%s\n", s.Verb, mdText(s.Title))
	if len(s.Figures) > 0 {
		b.WriteString("\n")
		for _, f := range s.Figures {
			fmt.Fprintf(&b, "- %s: **%s** %s\n", mdText(f.Label), mdText(f.Value), mdText(f.Note))
		}
	}
	list := func(name string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n%s:\n", name)
		for _, line := range lines {
			fmt.Fprintf(&b, "- %s\n", mdText(line))
		}
	}
	list("Because", s.Because)
	for _, g := range s.Tables {
		b.WriteString("\n")
		if g.Title != "" {
			fmt.Fprintf(&b, "### %s\n\n", mdText(g.Title))
		}
		for i, row := range append([][]string{g.Head}, g.Rows...) {
			b.WriteString("|")
			for _, c := range row {
				b.WriteString(" " + mdText(c) + " |")
			}
			b.WriteString("\n")
			if i == 0 {
				b.WriteString(strings.Repeat("|---", len(g.Head)) + "|\n")
			}
		}
	}
	if all := slices.Concat(s.Commands, s.Next); len(all) > 0 {
		b.WriteString("\n```sh\n")
		for _, c := range all {
			b.WriteString(strings.ReplaceAll(plain.Line(c), "```", "") + "\n")
		}
		b.WriteString("```\n")
	}
	list("Assumes", s.Assumptions)
	list("Covers", s.Coverage)
	list("Would change it", s.Changes)
	_, err := io.WriteString(w, b.String())
	return err
}
