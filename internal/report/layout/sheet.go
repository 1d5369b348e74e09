// Package layout writes reports for people: a sheet with a headline, amounts, pictures and tables,
// as text for a terminal, Markdown, or a standalone page. Every report of curfew is a sheet, so
// that appearance and escaping are uniform.
package layout

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Sheet is a report for people: a headline, next commands, amounts, pictures, tables and
// assumptions. Every command that shows a document fills one.
type Sheet struct {
	// Verb is the command: "plan mig". Title is the result in one sentence.
	Verb, Title string
	// Scope lists what was examined. It is shown next to the command.
	Scope   []string
	Figures []Figure
	// Remarks are sentences shown under the figures.
	Remarks []string
	// Because lists the reasons for the result.
	Because []string
	// Next are suggested commands, shown under the headline.
	Next []string
	// Picture is inline SVG made by this program, never from a user's file; Caption describes it.
	// Pictures are further ones.
	Picture, Caption string
	Pictures         []Picture
	Tables           []Grid
	// Gaps list what the figures omit.
	Gaps []Gap
	// Commands are shell commands in order.
	Commands []string
	// Assumptions are the assumptions of the figures, Coverage the extent of the data, and Changes
	// what would change the result.
	Assumptions, Coverage, Changes []string
	// Color enables colors.
	Color bool
}

// Picture is a chart with a heading and a caption.
type Picture struct{ Title, SVG, Caption string }

// Figure is one number with its name.
type Figure struct {
	Label, Value, Note string
	// Unit follows the value ("a month"), Rate is the same amount per hour ("$41/h").
	Unit, Rate string
	// Share is the figure's share of Whole ("the cost"), 0 to 1; 0 for none.
	Share float64
	Whole string
	Tone  Tone
	// Parts sum to the value. A terminal draws them as one bar; they replace Share.
	Parts []Part
}

// Part is one part of a figure.
type Part struct {
	Label, Value string
	// Share is the part of the figure, 0 to 1.
	Share float64
	// ShowShare appends the share to the value.
	ShowShare bool
	Tone      Tone
}

// Tone is the meaning of a figure, which determines its color.
type Tone string

// The tones of figures; their values are CSS classes.
const (
	ToneUsed       Tone = "is-used"
	ToneWaste      Tone = "is-waste"
	ToneSaving     Tone = "is-save"
	ToneUnmeasured Tone = "is-dark"
	ToneOther      Tone = "is-other"
)

// Gap is something that the figures omit.
type Gap struct {
	Name, Text string
	// Command shows or closes the gap; "" for none.
	Command string
	// Items are the individual cases. A terminal and Markdown show the first Shown of them, a page
	// all.
	Items []string
	Shown int
}

// HTML writes a self-contained page without references to other hosts and without scripts.
func (s Sheet) HTML(w io.Writer) error {
	var b bytes.Buffer
	if err := page(s).Render(context.Background(), &b); err != nil {
		return fmt.Errorf("render %s as HTML: %w", s.Verb, err)
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write %s as HTML: %w", s.Verb, err)
	}
	return nil
}

// pictures returns the pictures in page order.
func (s Sheet) pictures() []Picture {
	if s.Picture == "" {
		return s.Pictures
	}
	return append([]Picture{{SVG: s.Picture, Caption: s.Caption}}, s.Pictures...)
}

// unlimited is the table width without a terminal: files and pipes get whole rows.
const unlimited = 1 << 20

// textSheet is a text sheet under construction.
type textSheet struct {
	strings.Builder
	width int
	paint Paint
}

// Text writes the sheet for a terminal of a width in columns; 0 for no terminal.
func (s Sheet) Text(w io.Writer, width int) error {
	tables := width
	if width <= 0 {
		width, tables = 100, unlimited
	}
	b := &textSheet{width: width, paint: NewPaint(s.Color)}
	b.head(s.Verb, s.Scope)
	for i, line := range Wrap(plain.Line(s.Title), max(width-indent, 20)) {
		if i == 0 {
			line = b.paint.decided(line)
		}
		b.WriteString(strings.Repeat(" ", indent) + line + "\n")
	}
	b.commands("next", s.Next)
	if len(s.Figures) > 0 {
		b.WriteString("\n")
		b.figures(s.Figures)
	}
	for _, r := range s.Remarks {
		b.prose("  ", r, b.paint.Dim)
	}
	b.list("because", s.Because)
	for i := range s.Tables {
		if g := &s.Tables[i]; !g.PageOnly {
			b.WriteString("\n")
			g.text(&b.Builder, tables, b.paint)
		}
	}
	b.gaps(s.Gaps)
	b.commands("commands, in order", s.Commands)
	b.list("assumes", s.Assumptions)
	b.list("covers", s.Coverage)
	b.list("would change it", s.Changes)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write %s as text: %w", s.Verb, err)
	}
	return nil
}

// head writes the command, with the scope next to it if it fits.
func (b *textSheet) head(verb string, scope []string) {
	b.WriteString("curfew " + verb)
	if text := plain.Line(strings.Join(scope, ", ")); text != "" {
		if lead := 7 + Width(verb) + 3; lead+Width(text) <= b.width {
			b.WriteString("   " + b.paint.Dim(text))
		} else {
			b.WriteString("\n")
			b.prose("  ", text, b.paint.Dim)
			b.WriteString("\n")
			return
		}
	}
	b.WriteString("\n\n")
}

// prose writes a text after a lead, wrapped at spaces. A word wider than the line is truncated if
// the text is colored, and otherwise left whole, because it may be part of a command.
func (b *textSheet) prose(lead, text string, color func(string) string) {
	for i, line := range Wrap(plain.Line(text), max(b.width-Width(lead), 20)) {
		if i > 0 {
			lead = strings.Repeat(" ", Width(lead))
		}
		if color != nil {
			line = color(Fit(line, max(b.width-Width(lead), 20)))
		}
		b.WriteString(lead + line + "\n")
	}
}

// list writes sentences under a heading.
func (b *textSheet) list(name string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n  %s\n", name)
	for _, line := range lines {
		b.prose("    - ", line, nil)
	}
}

// barWidth is the length of the bar of a share.
const barWidth = 20

// figures writes a line for each figure, with amounts that have a rate aligned.
func (b *textSheet) figures(list []Figure) {
	label, rate, value := 0, 0, 0
	for _, f := range list {
		label = max(label, Width(plain.Line(f.Label)))
		rate, value = max(rate, Width(f.Rate)), max(value, Width(f.amount()))
	}
	for _, f := range list {
		name := Pad(plain.Line(f.Label), label)
		if rate == 0 {
			b.prose("  "+name+"   ", figureText(f), nil)
			continue
		}
		tone := b.paint.tone(f.Tone)
		lead := gridLine{width: b.width}
		lead.add(name, label, false, tone)
		lead.add(f.Rate, rate, true, tone)
		lead.add(f.amount(), value, true, tone)
		if f.Share > 0 {
			bar := max(1, min(barWidth, b.width-lead.used-12))
			full := min(max(int(f.Share*float64(bar)+0.5), 1), bar)
			lead.add(plain.Share(f.Share, 0), 4, true, tone)
			lead.add(strings.Repeat("█", full), full, false, tone)
			lead.text.WriteString(b.paint.Dim(strings.Repeat("░", bar-full)))
			lead.used += bar - full
		}
		note := plain.Line(f.Note)
		if under := lead.used+2+Width(note) > b.width; note != "" && !under {
			lead.add(note, Width(note), false, b.paint.Dim)
			note = ""
		}
		lead.end(&b.Builder)
		b.prose(strings.Repeat(" ", label+4), note, b.paint.Dim)
		b.parts(strings.Repeat(" ", label+4), f.Parts)
	}
}

// glyphs draw the parts of a bar, also without color.
var glyphs = map[Tone]string{ToneUsed: "█", ToneWaste: "▓", ToneUnmeasured: "░", ToneOther: "·"}

// parts draws the parts of a figure as one bar above their names and values.
func (b *textSheet) parts(lead string, list []Part) {
	if len(list) == 0 {
		return
	}
	bar := min(2*barWidth, b.width-Width(lead))
	drawn, shared := 0, 0.0
	b.WriteString(lead)
	var names []string
	for _, p := range list {
		shared += p.Share
		// Parts end at the rounded cumulative share, so that rounding never adds a column.
		n := min(int(shared*float64(bar)+0.5), bar) - drawn
		glyph, tone := cmp.Or(glyphs[p.Tone], "█"), b.paint.tone(p.Tone)
		if tone == nil {
			tone = same
		}
		if n > 0 {
			b.WriteString(tone(strings.Repeat(glyph, n)))
			drawn += n
		}
		names = append(names, tone(glyph)+" "+p.text())
	}
	b.WriteString("\n")
	line := lead
	for i, name := range names {
		if i > 0 {
			name = "+ " + name
			if Width(line)+1+Width(name) > b.width {
				b.WriteString(line + "\n")
				line = lead
			} else {
				line += " "
			}
		}
		line += name
	}
	b.WriteString(line + "\n")
}

// text formats a part's name with its value.
func (p Part) text() string {
	text := plain.Line(p.Label) + " " + plain.Line(p.Value)
	if p.ShowShare && p.Share > 0 {
		text += " (" + plain.Share(p.Share, 0) + ")"
	}
	return text
}

// PartsText lists the parts of a figure: "used $3 + wasted $1 (25%)".
func (f Figure) PartsText() string {
	var names []string
	for _, p := range f.Parts {
		names = append(names, p.text())
	}
	return strings.Join(names, " + ")
}

// amount formats the value with its unit.
func (f Figure) amount() string { return Joined(" ", plain.Line(f.Value), f.Unit) }

// remark formats the share with the note; empty without both.
func (f Figure) remark() string {
	if f.Share <= 0 {
		return f.Note
	}
	return Joined(" ", plain.Share(f.Share, 0), "of", f.Whole, f.Note)
}

// gaps writes the gaps.
func (b *textSheet) gaps(list []Gap) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n  does not cover\n")
	for _, g := range list {
		var text textSheet
		text.width = b.width
		text.prose("    - ", g.Name+": "+g.Text, same)
		b.WriteString(strings.Replace(text.String(), g.Name, b.paint.Attention(g.Name), 1))
		if g.Command != "" {
			b.WriteString("      " + plain.Line(g.Command) + "\n")
		}
		for _, item := range g.shown() {
			b.prose("      - ", item, same)
		}
	}
}

// shown returns the items for a terminal and Markdown, with a line about the omitted ones.
func (g Gap) shown() []string {
	if g.Shown <= 0 || len(g.Items) <= g.Shown {
		return g.Items[:min(len(g.Items), max(g.Shown, 0))]
	}
	return append(g.Items[:g.Shown:g.Shown], "and "+plain.Count(len(g.Items)-g.Shown, "more", "more"))
}

// commands writes one command per line, unbroken; comments among them are wrapped.
func (b *textSheet) commands(name string, list []string) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\n  " + name + "\n")
	for _, c := range list {
		c = plain.Line(c)
		if comment, ok := strings.CutPrefix(c, "# "); ok {
			c = "# " + strings.Join(Wrap(comment, b.width-6), "\n    # ")
		}
		b.WriteString("    " + c + "\n")
	}
}

// figureText formats a figure with its note.
func figureText(f Figure) string {
	if note := Joined(", ", f.Rate, f.remark(), f.PartsText()); note != "" {
		return f.amount() + " (" + note + ")"
	}
	return f.amount()
}
