package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/report"
)

// migFlags are the flags of plan mig.
type migFlags struct {
	gpu, workloads, current, output string
	enumerate, double, keep         bool
}

func (a *app) newPlanMIG() *cobra.Command {
	var f migFlags
	c := &cobra.Command{
		Use:   "mig",
		Short: "Pack workloads into MIG instances on the fewest GPUs",
		Long: `Packs workloads (name,memory_gib,compute_slices,count) into MIG instances on the fewest
GPUs, with a proof or the gap to a proven bound, and prints the commands in an order in
which no two instances ever overlap. --current starts from today's placements and moves
as few workloads as it can. --enumerate counts in how many ways a GPU can be divided.`,
		Example: `  curfew plan mig --gpu A100-80GB --workloads w.csv
  curfew plan mig --gpu A100-80GB:4,A30 --workloads w.csv --current today.csv -o html > mig.html
  curfew plan mig --gpu H100-80GB --enumerate`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := oneOf("output", f.output, planOutputs...); err != nil {
				return err
			}
			return a.planMIG(c.Context(), f)
		},
	}
	fl := c.Flags()
	fl.StringVar(&f.gpu, "gpu", "", "GPUs with optional counts: `A100-80GB:4,A30`")
	fl.StringVar(&f.workloads, "workloads", "", "workloads as CSV `file`: name,memory_gib,compute_slices,count")
	fl.StringVar(&f.current, "current", "", "today's placements: CSV, what nvidia-smi mig -lgi prints, or an earlier plan's JSON `file`")
	fl.BoolVar(&f.enumerate, "enumerate", false, "count the divisions of one GPU")
	fl.BoolVar(&f.double, "double-memory", false, "use profiles with double memory as well")
	fl.BoolVar(&f.keep, "keep-gpus", false, "keep today's GPUs in use: nothing moves just to empty one")
	fl.StringVarP(&f.output, "output", "o", "table", "table, json, html or md")
	return c
}

func (a *app) planMIG(ctx context.Context, f migFlags) error {
	if f.gpu == "" {
		return usageError("curfew plan mig: give --gpu, such as A100-80GB")
	}
	if f.enumerate {
		model, err := mig.ModelNamed(f.gpu)
		if err != nil {
			return usageError("--gpu %s: %w", f.gpu, err)
		}
		counts, err := mig.Enumerate(model, f.double)
		if err != nil {
			return planFailure(err)
		}
		return a.show(f.output, counts, func() report.Sheet { return countsSheet(model, counts) })
	}
	fleet, err := mig.ParseFleet(f.gpu)
	if err != nil {
		return usageError("--gpu %s: %w", f.gpu, err)
	}
	if f.workloads == "" {
		return usageError("curfew plan mig: give --workloads FILE, or --enumerate")
	}
	in, err := a.input(f.workloads)
	if err != nil {
		return err
	}
	workloads, err := mig.ReadWorkloads(f.workloads, in)
	if err := errors.Join(err, in.Close()); err != nil {
		return planFailure(err)
	}
	o := mig.Options{DoubleMemory: f.double, KeepGPUs: f.keep}
	var r mig.Report
	if f.current == "" {
		r, err = mig.Pack(ctx, fleet, workloads, o)
	} else {
		var today []mig.Placed
		if in, err = a.input(f.current); err != nil {
			return err
		}
		today, err = mig.ReadPlacements(f.current, in, fleet)
		if err := errors.Join(err, in.Close()); err != nil {
			return planFailure(err)
		}
		r, err = mig.Rearrange(ctx, fleet, today, workloads, o)
	}
	if err != nil {
		return planFailure(err)
	}
	return a.show(f.output, r, func() report.Sheet { return migSheet(r) })
}

func countsSheet(m mig.Model, c mig.Counts) report.Sheet {
	s := report.Sheet{Verb: "plan mig",
		Figures: []report.Figure{
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

func migSheet(r mig.Report) report.Sheet {
	s := report.Sheet{Verb: "plan mig", Picture: r.SVG(), Caption: "Each row is a GPU, or several with the same placements; each block an instance with its workload.",
		Assumptions: r.Notes}
	s.Title = fmt.Sprintf("%s on %s", plain.Count(r.Workloads, "workload fits", "workloads fit"), plain.Count(r.GPUsUsed, "GPU"))
	proof := "no plan uses fewer"
	if !r.Optimal {
		proof = fmt.Sprintf("not proven to be the fewest; at least %d are needed", r.LowerBound)
	}
	s.Figures = []report.Figure{{Label: "GPUs used", Value: strconv.Itoa(r.GPUsUsed), Note: proof},
		{Label: "lower bound", Value: strconv.Itoa(r.LowerBound), Note: "gap " + strconv.Itoa(r.GPUsUsed-r.LowerBound)}}
	if r.MovesLowerBound != nil {
		s.Figures = append(s.Figures, report.Figure{Label: "moves", Value: strconv.Itoa(len(r.Moves)), Note: fmt.Sprintf("at least %d", *r.MovesLowerBound)})
	}
	missing := 0
	for _, u := range r.Unplaced {
		missing += u.Count
	}
	if missing > 0 {
		s.Title = fmt.Sprintf("%s of %d do not fit; the rest takes %s", plain.Count(missing, "workload"), r.Workloads, plain.Count(r.GPUsUsed, "GPU"))
		g := report.Grid{Title: "does not fit", Head: []string{"workload", "count", "why"}, Right: []bool{false, true, false}}
		for _, u := range r.Unplaced {
			g.Rows = append(g.Rows, []string{u.Workload, strconv.Itoa(u.Count), u.Why})
		}
		s.Tables = append(s.Tables, g)
	}
	g := report.Grid{Title: "placements", Head: []string{"GPU", "model", "instances", "room for"}}
	for _, gpu := range r.GPUs {
		var held []string
		for _, p := range gpu.Placements {
			held = append(held, fmt.Sprintf("%s@%d %s", p.Profile, p.Start, p.Workload))
		}
		g.Rows = append(g.Rows, []string{gpu.GPU, gpu.Model, strings.Join(held, ", "), strings.Join(gpu.Room, ", ")})
	}
	s.Tables = append(s.Tables, g)
	if len(r.Moves) > 0 {
		g := report.Grid{Title: "moves, in order", Head: []string{"workload", "from", "to"}}
		for _, m := range r.Moves {
			g.Rows = append(g.Rows, []string{m.Workload, site(m.From), site(m.To)})
		}
		s.Tables = append(s.Tables, g)
	}
	s.Commands = r.Commands
	for _, ad := range r.Advice {
		line := ad.Mode
		if ad.GPUs != nil {
			line += " would take " + plain.Count(int64(*ad.GPUs), "GPU")
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
