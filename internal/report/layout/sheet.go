// Package layout writes reports for people: a sheet of a headline, figures, pictures and
// tables, as text for a terminal, Markdown, or a page that stands alone. Every report of
// curfew is such a sheet, so that they all look and escape alike.
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

// Sheet is a report for people: a headline, the next commands, figures, pictures, tables,
// and what it all rests on. Every command that shows a document fills one.
type Sheet struct {
	// Verb is the command: "plan mig". Title is the answer in one sentence.
	Verb, Title string
	// Scope lists what was looked at. It stands next to the command.
	Scope   []string
	Figures []Figure
	// Remarks are sentences about the figures, which stand under them.
	Remarks []string
	// Because lists the reasons of the answer.
	Because []string
	// Next are the commands to go on with, which stand under the headline.
	Next []string
	// Picture is inline SVG made by a package of this program, never by a user's
	// file; Caption says what it shows. Pictures are more of them.
	Picture, Caption string
	Pictures         []Picture
	Tables           []Grid
	// Gaps list what the figures leave out.
	Gaps []Gap
	// Commands are for a shell, in order.
	Commands []string
	// Assumptions are the assumptions of the figures, Coverage the extent of the data, and Changes
	// would change the answer.
	Assumptions, Coverage, Changes []string
	// Color is whether the text is colored.
	Color bool
}

// Picture is a chart with its heading and what it shows.
type Picture struct{ Title, SVG, Caption string }

// Figure is one number with what it is.
type Figure struct {
	Label, Value, Note string
	// Unit follows the value ("a month"), Rate is the same amount an hour ("$41/h").
	Unit, Rate string
	// Share is the part of Whole ("the cost") that the figure is, 0 to 1; 0 is none.
	Share float64
	Whole string
	Tone  Tone
	// Parts add up to the value. A terminal draws them as one bar; they take the place of Share.
	Parts []Part
}

// Part is one part of a figure.
type Part struct {
	Label, Value string
	// Share is the part of the figure, 0 to 1.
	Share float64
	// ShowShare prints the share behind the value.
	ShowShare bool
	Tone      Tone
}

// Tone is the meaning of a figure to its reader. It decides its color.
type Tone string

// The tones of figures; their values are classes of the style sheet.
const (
	ToneUsed       Tone = "is-used"
	ToneWaste      Tone = "is-waste"
	ToneSaving     Tone = "is-save"
	ToneUnmeasured Tone = "is-dark"
	ToneOther      Tone = "is-other"
)

// Gap is one thing that the figures leave out.
type Gap struct {
	Name, Text string
	// Command shows or closes the gap; "" is none.
	Command string
	// Items are the single cases. A terminal and Markdown show the first Shown of them, a
	// page all.
	Items []string
	Shown int
}

// HTML writes one self-contained page: it refers to no other host and runs no script.
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

// pictures returns the pictures in the order in which a page shows them.
func (s Sheet) pictures() []Picture {
	if s.Picture == "" {
		return s.Pictures
	}
	return append([]Picture{{SVG: s.Picture, Caption: s.Caption}}, s.Pictures...)
}

// unlimited is the width of tables where there is no terminal: a file or a pipe takes a
// row whole.
const unlimited = 1 << 20

// textSheet is a sheet being written for a terminal.
type textSheet struct {
	strings.Builder
	width int
	paint Paint
}

// Text writes the sheet for a terminal of a width in columns; 0 is no terminal.
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

// head writes the command, and the scope next to it where it fits.
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

// prose writes a text after a lead, broken at its spaces. A word wider than the line is cut
// where the text has a color, and left whole without one: it may be part of a command.
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

// barWidth is the length of the bar that draws a share.
const barWidth = 20

// figures writes a line for each figure. Amounts with a rate are aligned in columns.
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

// glyphs draw the parts of a bar where there is no color, too.
var glyphs = map[Tone]string{ToneUsed: "█", ToneWaste: "▓", ToneUnmeasured: "░", ToneOther: "·"}

// parts draws the parts of a figure as one bar over their names and values.
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
		// Each part ends where the sum of the shares does, so that rounding never adds a column.
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

// text is the name of a part with its value.
func (p Part) text() string {
	text := plain.Line(p.Label) + " " + plain.Line(p.Value)
	if p.ShowShare && p.Share > 0 {
		text += " (" + plain.Share(p.Share, 0) + ")"
	}
	return text
}

// PartsText names the parts of a figure on a line: "used $3 + wasted $1 (25%)".
func (f Figure) PartsText() string {
	var names []string
	for _, p := range f.Parts {
		names = append(names, p.text())
	}
	return strings.Join(names, " + ")
}

// amount is the value with its unit.
func (f Figure) amount() string { return Joined(" ", plain.Line(f.Value), f.Unit) }

// remark is the share of the whole with the note; empty where there is neither.
func (f Figure) remark() string {
	if f.Share <= 0 {
		return f.Note
	}
	return Joined(" ", plain.Share(f.Share, 0), "of", f.Whole, f.Note)
}

// gaps writes what the figures leave out.
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

// shown returns the items that a terminal and Markdown show, and a line for those that
// they leave out.
func (g Gap) shown() []string {
	if g.Shown <= 0 || len(g.Items) <= g.Shown {
		return g.Items[:min(len(g.Items), max(g.Shown, 0))]
	}
	return append(g.Items[:g.Shown:g.Shown], "and "+plain.Count(len(g.Items)-g.Shown, "more", "more"))
}

// commands writes commands a line each, whole; comments among them are broken at spaces.
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

// figureText is a figure with its note.
func figureText(f Figure) string {
	if note := Joined(", ", f.Rate, f.remark(), f.PartsText()); note != "" {
		return f.amount() + " (" + note + ")"
	}
	return f.amount()
}
