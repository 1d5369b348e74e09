package mig

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
)

// Measures of the picture, in pixels.
const (
	svgLabel   = 150
	svgSlice   = 84
	svgRow     = 34
	svgGap     = 8
	svgLetter  = 7 // a character at 11 to 13 pixels, about
	svgMaxRows = 64
)

// SVG draws the GPUs of the plan, one row each, as many slices wide as the GPU has
// compute slices; GPUs with the same placements share a row. The memory slice beyond
// the last compute slice, which no instance has to itself, is not drawn. Colors
// go by the size of an instance; a style sheet that sets --mig-1, -2, -4 and -8
// overrides them. At most 64 rows are drawn; the last line then says how many are
// not.
func (r Report) SVG() string {
	rows, ids := r.rows()
	width := 0
	for _, g := range rows {
		width = max(width, columnsOf(g))
	}
	hidden := max(0, len(rows)-svgMaxRows)
	rows = rows[:len(rows)-hidden]
	height := len(rows)*(svgRow+svgGap) + svgGap
	if hidden > 0 || len(rows) == 0 {
		height += svgRow
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" font-size="13">`,
		svgLabel+max(width, 4)*svgSlice+svgGap, height)
	fmt.Fprintf(&b, "\n<title>MIG instances on %s</title>\n", plain.Count(r.GPUsUsed, "GPU"))
	for i, g := range rows {
		y := svgGap + i*(svgRow+svgGap)
		name := "GPU " + spans(ids[i])
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="currentColor"><title>%s, %s</title>%s</text>`+"\n", svgGap, y+svgRow/2+5,
			html.EscapeString(strings.Join(ids[i], ", ")), html.EscapeString(g.Model), html.EscapeString(short(name, svgLabel-2*svgGap)))
		for s := range columnsOf(g) {
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="currentColor" stroke-opacity="0.25"/>`+"\n",
				svgLabel+s*svgSlice, y, svgSlice, svgRow)
		}
		for _, p := range g.Placements {
			g.draw(&b, p, y)
		}
	}
	switch {
	case hidden > 0:
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="currentColor">and %s more</text>`+"\n", svgGap, height-svgGap, plain.Count(hidden, "row"))
	case len(rows) == 0:
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="currentColor">no GPU is used</text>`+"\n", svgGap, height-svgGap)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw writes one instance.
func (g GPU) draw(b *strings.Builder, p Placement, y int) {
	end := min(p.Start+p.Size, columnsOf(g))
	x, width := svgLabel+p.Start*svgSlice+2, (end-p.Start)*svgSlice-4
	who := p.Workload
	if who == "" {
		who = "not known"
	}
	hue := 210 + 30*p.Size
	fmt.Fprintf(b, `<g><title>%s at %d: %s</title><rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="var(--mig-%d, hsl(%d 60%% 82%%))"/>`,
		html.EscapeString(p.Profile), p.Start, html.EscapeString(who), x, y+2, width, svgRow-4, p.Size, hue)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#111" font-size="11">%s</text><text x="%d" y="%d" fill="#111" font-size="10">%s</text></g>`+"\n",
		x+5, y+14, html.EscapeString(short(p.Profile, width)), x+5, y+27, html.EscapeString(short(who, width)))
}

// rows merges GPUs that have the same placements.
func (r Report) rows() (rows []GPU, ids [][]string) {
	at := map[string]int{}
	for _, g := range r.GPUs {
		same := slices.Clone(g.Placements)
		for i := range same {
			same[i].Instance = ""
		}
		key := fmt.Sprintf("%#v %#v", g.Model, same)
		i, ok := at[key]
		if !ok {
			i = len(rows)
			at[key] = i
			rows, ids = append(rows, g), append(ids, nil)
		}
		ids[i] = append(ids[i], g.GPU)
	}
	return rows, ids
}

// columnsOf is how many slices of a GPU are drawn.
func columnsOf(g GPU) int {
	if m, err := ModelNamed(g.Model); err == nil {
		return m.ComputeSlices
	}
	end := 1
	for _, p := range g.Placements {
		end = max(end, p.Start+p.Size)
	}
	return end
}

// spans names a list of GPUs in short.
func spans(ids []string) string {
	if len(ids) > 3 {
		return fmt.Sprintf("%s and %d more", ids[0], len(ids)-1)
	}
	return strings.Join(ids, ", ")
}

// short cuts a text to about a width in pixels.
func short(text string, width int) string {
	most := max(2, width/svgLetter)
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}
