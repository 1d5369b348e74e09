package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
)

// migMaxRows bounds the lanes in the picture of a MIG plan.
const migMaxRows = 40

// MIGCounts shows the number of ways to divide a GPU.
func MIGCounts(m mig.Model, c mig.Counts) layout.Sheet {
	s := layout.Sheet{
		Verb: "plan mig", Title: fmt.Sprintf("%s can be divided in %s", m.Name, plain.Count(c.PlacementSets, "way")),
		Figures: []layout.Figure{
			{
				Label: "Placement sets", Value: plain.Number(float64(c.PlacementSets), 0),
				Note: "without overlap, the empty set included",
			},
			{Label: "Multisets of profiles", Value: plain.Number(float64(c.Multisets), 0)},
			{
				Label: "Maximal placement sets", Value: plain.Number(float64(c.MaximalSets), 0),
				Note: "no profile can be added",
			},
			{Label: "Maximal multisets", Value: plain.Number(float64(c.MaximalMultisets), 0)},
		},
		Assumptions: []string{"profiles and starts: " + m.Source}}
	if m.Inferred {
		s.Assumptions = append(s.Assumptions,
			"the geometry of this GPU is inferred from GPUs with the same profile ids and counts")
	}
	return s
}

// MIG shows the placement of each workload.
func MIG(r mig.Report) layout.Sheet {
	s := layout.Sheet{
		Verb: "plan mig", Picture: migPicture(r),
		Caption: "Each row is a GPU, or several GPUs with the same placements. " +
			"Each block is a MIG instance with its workload; outlines are free slices.",
		Commands: r.Commands, Assumptions: r.Notes}
	s.Title = fmt.Sprintf("Use %s for %s", plain.Count(r.GPUsUsed, "GPU"), plain.Count(r.Workloads, "workload"))
	proof := "the minimum"
	if r.Optimal {
		s.Title += ": no plan uses fewer"
	} else {
		proof = fmt.Sprintf("the minimum is between %d and %d", r.LowerBound, r.GPUsUsed)
		s.Title += fmt.Sprintf(": %d or more are needed", r.LowerBound)
	}
	s.Figures = []layout.Figure{
		{Label: "GPUs used", Value: strconv.Itoa(r.GPUsUsed), Note: proof},
		{Label: "Workloads", Value: plain.Number(float64(r.Workloads), 0)},
	}
	if r.MovesLowerBound != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "Moves", Value: strconv.Itoa(len(r.Moves)), Note: fmt.Sprintf("at least %d", *r.MovesLowerBound),
		})
		s.Title += ", " + plain.Count(len(r.Moves), "move")
	}
	migCost(&s, r)
	missing := 0
	g := layout.Grid{Title: "Not placed", Head: []string{"workload", "count"}, Right: []bool{false, true}}
	for _, u := range r.Unplaced {
		missing += u.Count
		g.Rows, g.Notes = append(g.Rows, []string{u.Workload, strconv.Itoa(u.Count)}), append(g.Notes, u.Why)
	}
	if missing > 0 {
		s.Title = fmt.Sprintf("No room for %d of %s: the others use %s", missing, plain.Count(r.Workloads, "workload"),
			plain.Count(r.GPUsUsed, "GPU"))
		s.Tables = append(s.Tables, g)
	}
	s.Tables = append(s.Tables, placements(r))
	if len(r.Moves) > 0 {
		g := layout.Grid{Title: "Moves, in order", Head: []string{"workload", "from", "to"}}
		for _, m := range r.Moves {
			g.Rows = append(g.Rows, []string{m.Workload, site(m.From), site(m.To)})
		}
		s.Tables = append(s.Tables, g)
	}
	for _, a := range r.Advice {
		line := a.Mode
		if a.GPUs != nil {
			line += " needs " + plain.Count(*a.GPUs, "GPU")
		}
		line += ": " + a.When
		if len(a.Lacks) > 0 {
			line += "; limits: " + strings.Join(a.Lacks, "; ")
		}
		s.Changes = append(s.Changes, line)
	}
	return s
}

// migCost adds the dollars of a plan.
func migCost(s *layout.Sheet, r mig.Report) {
	c := r.Cost
	if c == nil {
		return
	}
	for _, p := range c.Prices {
		switch {
		case p.Why != "":
			s.Coverage = append(s.Coverage, "cost unknown: "+p.Why)
		case p.Machine != "":
			s.Assumptions = append(s.Assumptions,
				fmt.Sprintf("a GPU of %s costs %s an hour: %s in %s, on demand (%s, %s)",
					p.Model, p.HourUSD, p.Machine, p.Region, p.Source, p.AsOf))
		default:
			s.Assumptions = append(s.Assumptions,
				fmt.Sprintf("a GPU of %s costs %s an hour, as given", p.Model, p.HourUSD))
		}
	}
	if !c.MonthUSD.Known() {
		return
	}
	note := "with a GPU for each workload " + c.ApartMonthUSD.String()
	if c.BeforeGPUs != nil {
		note = plain.Count(*c.BeforeGPUs, "GPU") + " in use today"
	}
	s.Figures = append(s.Figures, layout.Figure{Label: "Cost a month", Value: c.MonthUSD.String(), Note: note})
	if v, ok := c.SavingUSD.Get(); ok && v > 0 {
		s.Title += ", " + v.Dollars() + " a month less"
	} else if ok && v < 0 {
		s.Title += ", " + (-v).Dollars() + " a month more"
	}
}

// placements returns a table with a row per instance; GPUs with equal placements share rows.
func placements(r mig.Report) layout.Grid {
	g := layout.Grid{
		Title: "Placements", Head: []string{"GPU", "model", "instance", "slice", "workload"},
		Right: []bool{false, false, false, true, false}, Priority: []int{1, 0, 2, 2, 2},
	}
	rows, ids := migRows(r)
	for i, gpu := range rows {
		name := gpuNames(ids[i])
		for _, p := range gpu.Placements {
			g.Rows = append(g.Rows, []string{name, gpu.Model, p.Profile, strconv.Itoa(p.Start), workloadName(p)})
		}
		if len(gpu.Room) > 0 {
			g.Rows = append(g.Rows, []string{name, gpu.Model, strings.Join(gpu.Room, ", "), "", "(free)"})
		}
	}
	return g
}

func workloadName(p mig.Placement) string {
	if p.Workload == "" {
		return "unknown"
	}
	return p.Workload
}

func site(s mig.Site) string { return fmt.Sprintf("GPU %s %s@%d", s.GPU, s.Profile, s.Start) }

// migPicture draws the GPUs of the plan by memory slice. GPUs with equal placements share a row. A
// memory slice beyond the last compute slice is never drawn as free, because no instance can use it
// alone.
func migPicture(r mig.Report) string {
	c := chart.Lanes{
		Title: "MIG instances on " + plain.Count(r.GPUsUsed, "GPU"), Axis: chart.Axis{
			Label: "memory slice", Ticks: []float64{0, 1, 2, 3, 4, 5, 6, 7, 8},
		},
		Kinds: []chart.Kind{{Name: "instance with a workload", Color: chart.Blue}}}
	rows, ids := migRows(r)
	for i, g := range rows[:min(len(rows), migMaxRows)] {
		lane := chart.Lane{Label: "GPU " + gpuNames(ids[i])}
		free := 0
		for _, p := range g.Placements {
			lane.Blocks = freeSlices(lane.Blocks, free, p.Start)
			b := chart.Block{
				From: float64(p.Start), To: float64(p.Start + p.Size), Label: workloadName(p), Color: chart.Blue,
			}
			if p.Size > 1 {
				b.Label = p.Profile + " " + b.Label
			}
			if p.Workload == "" {
				b.Color = chart.Gray
			}
			lane.Blocks, free = append(lane.Blocks, b), p.Start+p.Size
		}
		lane.Blocks = freeSlices(lane.Blocks, free, slicesOf(g))
		c.Rows = append(c.Rows, lane)
	}
	if slices.ContainsFunc(rows, func(g mig.GPU) bool {
		return slices.ContainsFunc(g.Placements, func(p mig.Placement) bool { return p.Workload == "" })
	}) {
		c.Kinds = append(c.Kinds, chart.Kind{Name: "instance with an unknown workload", Color: chart.Gray})
	}
	if hidden := len(rows) - len(c.Rows); hidden > 0 {
		c.Rows = append(c.Rows, chart.Lane{Label: fmt.Sprintf("and %s", plain.Count(hidden, "more row"))})
	}
	return c.SVG()
}

// freeSlices adds an outline for each free slice.
func freeSlices(blocks []chart.Block, from, to int) []chart.Block {
	for s := from; s < to; s++ {
		blocks = append(blocks, chart.Block{From: float64(s), To: float64(s + 1), Label: "free", Empty: true})
	}
	return blocks
}

// migRows merges GPUs with equal placements.
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

// slicesOf returns the number of slices of a GPU that instances can use.
func slicesOf(g mig.GPU) int {
	if m, err := mig.ModelNamed(g.Model); err == nil {
		return m.ComputeSlices
	}
	end := 1
	for _, p := range g.Placements {
		end = max(end, p.Start+p.Size)
	}
	return end
}

// gpuNames abbreviates a list of GPUs.
func gpuNames(ids []string) string {
	if len(ids) > 3 {
		return fmt.Sprintf("%s and %d more", ids[0], len(ids)-1)
	}
	return strings.Join(ids, ", ")
}
