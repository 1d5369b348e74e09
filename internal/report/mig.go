package report

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/mig"
)

// Measures of the picture, in pixels.
const (
	migLabel   = 150
	migSlice   = 84
	migRow     = 34
	migGap     = 8
	migLetter  = 7 // a character at 11 to 13 pixels, about
	migMaxRows = 64
)

// migPicture draws the GPUs of the plan, one row each, as many slices wide as the GPU has
// compute slices; GPUs with the same placements share a row. The memory slice beyond
// the last compute slice, which no instance has to itself, is not drawn. Colors
// go by the size of an instance; a style sheet that sets --mig-1, -2, -4 and -8
// overrides them. At most 64 rows are drawn; the last line then says how many are
// not.
func migPicture(r mig.Report) string {
	rows, ids := migRows(r)
	width := 0
	for _, g := range rows {
		width = max(width, columnsOf(g))
	}
	hidden := max(0, len(rows)-migMaxRows)
	rows = rows[:len(rows)-hidden]
	height := len(rows)*(migRow+migGap) + migGap
	if hidden > 0 || len(rows) == 0 {
		height += migRow
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="system-ui, sans-serif" font-size="13">`,
		migLabel+max(width, 4)*migSlice+migGap, height)
	fmt.Fprintf(&b, "\n<title>MIG instances on %s</title>\n", plain.Count(r.GPUsUsed, "GPU"))
	for i, g := range rows {
		y := migGap + i*(migRow+migGap)
		name := "GPU " + spans(ids[i])
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="currentColor"><title>%s, %s</title>%s</text>`+"\n", migGap, y+migRow/2+5,
			html.EscapeString(strings.Join(ids[i], ", ")), html.EscapeString(g.Model), html.EscapeString(shortText(name, migLabel-2*migGap)))
		for s := range columnsOf(g) {
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="currentColor" stroke-opacity="0.25"/>`+"\n",
				migLabel+s*migSlice, y, migSlice, migRow)
		}
		for _, p := range g.Placements {
			drawInstance(&b, g, p, y)
		}
	}
	switch {
	case hidden > 0:
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="currentColor">and %s more</text>`+"\n", migGap, height-migGap, plain.Count(hidden, "row"))
	case len(rows) == 0:
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="currentColor">no GPU is used</text>`+"\n", migGap, height-migGap)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// drawInstance writes one instance.
func drawInstance(b *strings.Builder, g mig.GPU, p mig.Placement, y int) {
	end := min(p.Start+p.Size, columnsOf(g))
	x, width := migLabel+p.Start*migSlice+2, (end-p.Start)*migSlice-4
	who := p.Workload
	if who == "" {
		who = "not known"
	}
	hue := 210 + 30*p.Size
	fmt.Fprintf(b, `<g><title>%s at %d: %s</title><rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="var(--mig-%d, hsl(%d 60%% 82%%))"/>`,
		html.EscapeString(p.Profile), p.Start, html.EscapeString(who), x, y+2, width, migRow-4, p.Size, hue)
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#111" font-size="11">%s</text><text x="%d" y="%d" fill="#111" font-size="10">%s</text></g>`+"\n",
		x+5, y+14, html.EscapeString(shortText(p.Profile, width)), x+5, y+27, html.EscapeString(shortText(who, width)))
}

// migRows merges GPUs that have the same placements.
func migRows(r mig.Report) (rows []mig.GPU, ids [][]string) {
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
func columnsOf(g mig.GPU) int {
	if m, err := mig.ModelNamed(g.Model); err == nil {
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

// shortText cuts a text to about a width in pixels.
func shortText(text string, width int) string {
	most := max(2, width/migLetter)
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}

// MIGCounts shows in how many ways a GPU can be divided.
func MIGCounts(m mig.Model, c mig.Counts) Sheet {
	s := Sheet{Verb: "plan mig",
		Figures: []Figure{
			{Label: "placement sets", Value: strconv.Itoa(c.PlacementSets), Note: "sets of placements that do not overlap, the empty one among them"},
			{Label: "multisets", Value: strconv.Itoa(c.Multisets), Note: "distinct by profiles"},
			{Label: "maximal sets", Value: strconv.Itoa(c.MaximalSets), Note: "to which nothing can be added"},
			{Label: "maximal multisets", Value: strconv.Itoa(c.MaximalMultisets), Note: "distinct by profiles"},
		},
		Assumptions: []string{"profiles and starts: " + m.Source}}
	s.Title = fmt.Sprintf("%s can be divided in %s", m.Name, plain.Count(c.PlacementSets, "way"))
	if m.Inferred {
		s.Assumptions = append(s.Assumptions, "the geometry was not seen on this GPU: it follows from identical profile ids and counts")
	}
	return s
}

// MIG shows where each workload goes.
func MIG(r mig.Report) Sheet {
	s := Sheet{Verb: "plan mig", Picture: migPicture(r), Caption: "Each row is a GPU, or several with the same placements; each block an instance with its workload.",
		Assumptions: r.Notes}
	s.Title = fmt.Sprintf("%s on %s", plain.Count(r.Workloads, "workload fits", "workloads fit"), plain.Count(r.GPUsUsed, "GPU"))
	proof := "no plan uses fewer"
	if !r.Optimal {
		proof = fmt.Sprintf("not proven to be the fewest; at least %d are needed", r.LowerBound)
	}
	s.Figures = []Figure{{Label: "GPUs used", Value: strconv.Itoa(r.GPUsUsed), Note: proof},
		{Label: "lower bound", Value: strconv.Itoa(r.LowerBound), Note: "gap " + strconv.Itoa(r.GPUsUsed-r.LowerBound)}}
	if r.MovesLowerBound != nil {
		s.Figures = append(s.Figures, Figure{Label: "moves", Value: strconv.Itoa(len(r.Moves)), Note: fmt.Sprintf("at least %d", *r.MovesLowerBound)})
	}
	missing := 0
	for _, u := range r.Unplaced {
		missing += u.Count
	}
	if missing > 0 {
		s.Title = fmt.Sprintf("%s of %d do not fit; the rest takes %s", plain.Count(missing, "workload"), r.Workloads, plain.Count(r.GPUsUsed, "GPU"))
		g := Grid{Title: "does not fit", Head: []string{"workload", "count", "why"}, Right: []bool{false, true, false}}
		for _, u := range r.Unplaced {
			g.Rows = append(g.Rows, []string{u.Workload, strconv.Itoa(u.Count), u.Why})
		}
		s.Tables = append(s.Tables, g)
	}
	g := Grid{Title: "placements", Head: []string{"GPU", "model", "instances", "room for"}}
	for _, gpu := range r.GPUs {
		var held []string
		for _, p := range gpu.Placements {
			held = append(held, fmt.Sprintf("%s@%d %s", p.Profile, p.Start, p.Workload))
		}
		g.Rows = append(g.Rows, []string{gpu.GPU, gpu.Model, strings.Join(held, ", "), strings.Join(gpu.Room, ", ")})
	}
	s.Tables = append(s.Tables, g)
	if len(r.Moves) > 0 {
		g := Grid{Title: "moves, in order", Head: []string{"workload", "from", "to"}}
		for _, m := range r.Moves {
			g.Rows = append(g.Rows, []string{m.Workload, site(m.From), site(m.To)})
		}
		s.Tables = append(s.Tables, g)
	}
	s.Commands = r.Commands
	for _, ad := range r.Advice {
		line := ad.Mode
		if ad.GPUs != nil {
			line += " would take " + plain.Count(*ad.GPUs, "GPU")
		}
		line += ": " + ad.When
		if len(ad.Lacks) > 0 {
			line += "; but " + strings.Join(ad.Lacks, "; ")
		}
		s.Changes = append(s.Changes, line)
	}
	return s
}

func site(s mig.Site) string { return fmt.Sprintf("GPU %s %s@%d", s.GPU, s.Profile, s.Start) }
