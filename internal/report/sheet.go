package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

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
	// Next are the commands to go on with, which stand under the headline.
	Next []string
	// Picture is inline SVG made by a package of this program, never by a user's
	// file; Caption says what it shows. Pictures are more of them.
	Picture, Caption string
	Pictures         []Picture
	Tables           []Grid
	// Commands are for a shell, in order.
	Commands []string
	// Assumptions is what was assumed, Coverage what the data covers, Changes what
	// would change the answer.
	Assumptions, Coverage, Changes []string
	// Color is whether the text is colored.
	Color bool
}

// Picture is a chart with its heading and what it shows.
type Picture struct{ Title, SVG, Caption string }

// Figure is one number with what it is.
type Figure struct{ Label, Value, Note string }

//go:embed sheet.html.tmpl
var sheetTemplate string

var sheetPage = newPage("sheet", sheetTemplate, template.FuncMap{
	"frame": func(s Sheet) pageFrame {
		return pageFrame{Title: "curfew " + s.Verb + ": " + plain.Line(s.Title), Verb: s.Verb}
	},
	"pictures": func(s Sheet) []Picture {
		if s.Picture == "" {
			return s.Pictures
		}
		return append([]Picture{{SVG: s.Picture, Caption: s.Caption}}, s.Pictures...)
	},
})

// HTML writes one self-contained page.
func (s Sheet) HTML(w io.Writer) error {
	var b bytes.Buffer
	err := sheetPage.Execute(&b, s)
	if err != nil {
		return fmt.Errorf("render %s as HTML: %w", s.Verb, err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write %s as HTML: %w", s.Verb, err)
	}
	return nil
}

// unlimited is the width of tables where there is no terminal: a file or a pipe takes a
// row whole.
const unlimited = 1 << 20

// Text writes the sheet for a terminal of a width in columns; 0 is no terminal.
func (s Sheet) Text(w io.Writer, width int) error {
	tables := width
	if width <= 0 {
		width, tables = 100, unlimited
	}
	var b strings.Builder
	prose := func(indent, text string) {
		for i, line := range wordwrap(plain.Line(text), max(width-wide(indent), 20)) {
			if i > 0 {
				b.WriteString(strings.Repeat(" ", wide(indent)))
			} else {
				b.WriteString(indent)
			}
			b.WriteString(line + "\n")
		}
	}
	fmt.Fprintf(&b, "curfew %s\n\n", s.Verb)
	for i, line := range wordwrap(plain.Line(s.Title), max(width-indent, 20)) {
		if i == 0 {
			line = newPaint(s.Color).decided(line)
		}
		b.WriteString(strings.Repeat(" ", indent) + line + "\n")
	}
	commands(&b, "next", s.Next, width)
	if len(s.Figures) > 0 {
		b.WriteString("\n")
		label := 0
		for _, f := range s.Figures {
			label = max(label, wide(plain.Line(f.Label)))
		}
		for _, f := range s.Figures {
			prose("  "+pad(plain.Line(f.Label), label)+"   ", figureText(f))
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
		g.text(&b, tables, newPaint(s.Color))
	}
	commands(&b, "commands, in order", s.Commands, width)
	list("assumes", s.Assumptions)
	list("covers", s.Coverage)
	list("would change it", s.Changes)
	_, err := io.WriteString(w, b.String())
	return err
}

// commands writes commands a line each, whole; comments among them are broken at spaces.
func commands(b *strings.Builder, name string, list []string, width int) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n  " + name + "\n")
	for _, c := range list {
		c = plain.Line(c)
		if comment, ok := strings.CutPrefix(c, "# "); ok {
			c = "# " + strings.Join(wordwrap(comment, width-6), "\n    # ")
		}
		b.WriteString("    " + c + "\n")
	}
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-wide(s)))
}

// mdCommands writes commands as a block of code.
func mdCommands(b *strings.Builder, list []string) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n```sh\n")
	for _, c := range list {
		b.WriteString(strings.ReplaceAll(plain.Line(c), "```", "") + "\n")
	}
	b.WriteString("```\n")
}

// figureText is a figure with its note.
func figureText(f Figure) string {
	if f.Note == "" {
		return f.Value
	}
	return f.Value + " (" + f.Note + ")"
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
	mdCommands(&b, s.Next)
	list("Because", s.Because)
	for _, g := range s.Tables {
		b.WriteString("\n")
		if g.Title != "" {
			fmt.Fprintf(&b, "### %s\n\n", mdText(g.Title))
		}
		for i, row := range append([][]string{g.Head}, g.Rows...) {
			b.WriteString("|")
			for k, c := range row {
				if note := at(g.Notes, i-1); i > 0 && k == len(row)-1 && note != "" {
					c += " – " + note
				}
				b.WriteString(" " + mdText(c) + " |")
			}
			b.WriteString("\n")
			if i == 0 {
				for k := range g.Head {
					b.WriteString("|---")
					if at(g.Right, k) {
						b.WriteString(":")
					}
				}
				b.WriteString("|\n")
			}
		}
		mdCommands(&b, slices.DeleteFunc(slices.Clone(g.Commands), func(c string) bool { return c == "" }))
	}
	mdCommands(&b, s.Commands)
	list("Assumes", s.Assumptions)
	list("Covers", s.Coverage)
	list("Would change it", s.Changes)
	_, err := io.WriteString(w, b.String())
	return err
}
