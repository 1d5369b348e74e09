package layout

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Markdown writes the sheet without pictures, for tickets and pull requests. External names are
// escaped or in code spans, so that they are only text.
func (s Sheet) Markdown(w io.Writer) error {
	var b Markdown
	fmt.Fprintf(&b, "## curfew %s\n\n%s\n", s.Verb, MarkdownText(s.Title))
	if len(s.Scope) > 0 {
		fmt.Fprintf(&b, "\n%s\n", MarkdownText(strings.Join(s.Scope, ", ")))
	}
	if len(s.Figures) > 0 {
		b.WriteString("\n")
		for _, f := range s.Figures {
			note := Joined(", ", f.Rate, f.remark(), f.PartsText())
			fmt.Fprintf(&b, "- %s: **%s** %s\n", MarkdownText(f.Label), MarkdownText(f.amount()), MarkdownText(note))
		}
	}
	for _, r := range s.Remarks {
		fmt.Fprintf(&b, "\n%s\n", MarkdownText(r))
	}
	b.commands(s.Next)
	b.list("Because", s.Because)
	for i := range s.Tables {
		if g := &s.Tables[i]; !g.PageOnly {
			b.WriteString("\n")
			b.grid(g)
		}
	}
	b.Gaps("Does not cover:", s.Gaps)
	b.commands(s.Commands)
	b.list("Assumes", s.Assumptions)
	b.list("Covers", s.Coverage)
	b.list("Would change it", s.Changes)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write %s as Markdown: %w", s.Verb, err)
	}
	return nil
}

// Markdown is a Markdown document under construction.
type Markdown struct{ strings.Builder }

func (b *Markdown) list(name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", name)
	for _, line := range lines {
		fmt.Fprintf(b, "- %s\n", MarkdownText(line))
	}
}

// commands writes commands as a code block.
func (b *Markdown) commands(list []string) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n```sh\n")
	for _, c := range list {
		b.WriteString(strings.ReplaceAll(plain.Line(c), "```", "") + "\n")
	}
	b.WriteString("```\n")
}

// Gaps writes the gaps under a line of text.
func (b *Markdown) Gaps(head string, list []Gap) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n" + head + "\n")
	for _, g := range list {
		fmt.Fprintf(b, "- %s\n", Joined(" ", MarkdownText(Joined(": ", g.Name, g.Text)), MarkdownCode(g.Command)))
		for _, item := range g.shown() {
			fmt.Fprintf(b, "  - %s\n", MarkdownText(item))
		}
	}
}

// grid writes a table with its title. The note of a row follows its last cell.
func (b *Markdown) grid(g *Grid) {
	rows, more := g.shown()
	if g.Title != "" {
		fmt.Fprintf(b, "### %s\n\n", MarkdownText(g.Title))
	}
	b.WriteString("|")
	for _, h := range g.Head {
		b.WriteString(" " + MarkdownText(h) + " |")
	}
	b.WriteString("\n")
	for k := range g.Head {
		b.WriteString("|---")
		if at(g.Right, k) {
			b.WriteString(":")
		}
	}
	b.WriteString("|\n")
	for i, row := range rows {
		b.WriteString("|")
		for k, c := range row {
			if note := at(g.Notes, i); k == len(row)-1 && note != "" {
				c += " – " + note
			}
			if at(g.Code, k) {
				c = MarkdownCode(c)
			} else {
				c = MarkdownText(c)
			}
			b.WriteString(" " + c + " |")
		}
		b.WriteString("\n")
	}
	if more != "" {
		b.WriteString("\n" + MarkdownText(more) + "\n")
	}
	for _, line := range g.Below {
		b.WriteString("\n" + MarkdownText(line) + "\n")
	}
	b.commands(slices.DeleteFunc(slices.Clone(g.Commands), func(c string) bool { return c == "" }))
}

var mdSpecial = strings.NewReplacer(
	"&", "&amp;", "<", "&lt;", ">", "&gt;", `\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`,
	"{", `\{`, "}", `\}`, "[", `\[`, "]", `\]`,
	"://", `:\//`, "www.", `www\.`, "#", `\#`, "+", `\+`, "!", `\!`, "|", `\|`, "~", `\~`, "@", `\@`,
)

// MarkdownText escapes text for Markdown.
func MarkdownText(s string) string { return mdSpecial.Replace(plain.Line(s)) }

// MarkdownCode puts external text into a code span, in which no name is a link, a mention or
// markup. Bars are escaped because tables are parsed before spans.
func MarkdownCode(s string) string {
	s = strings.NewReplacer("`", "'", "|", `\|`).Replace(plain.Line(s))
	if s == "" || s == None {
		return s
	}
	return "`" + s + "`"
}
