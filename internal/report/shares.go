package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/chart"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Shares shows the cost of each workload on shared machines.
func Shares(d view.Shares) layout.Sheet {
	s := layout.Sheet{
		Verb: "costs shares", Title: plain.Count(len(d.Machines), "machine") + " divided among workloads",
		Coverage: append([]string{}, d.Notes...),
		Assumptions: []string{
			"each share holds for the whole period",
		}, Caption: "The cost of each workload, and the unallocated part."}
	if len(d.Machines) == 0 {
		s.Title, s.Caption = "No machine of the file has charges in this period", ""
		if d.By != "" {
			s.Title, s.Assumptions = "No machine with GPUs has charges in this period", nil
		}
		return s
	}
	for _, m := range d.Machines {
		if m.Note != "" {
			s.Coverage = append(s.Coverage, m.Resource+": "+m.Note)
		}
	}
	for _, b := range d.BlindSpots {
		s.Coverage = append(s.Coverage, "not visible: "+b.What+": "+b.Why+"; "+b.Effect)
	}
	rows := d.Totals
	if d.By == "" {
		s.Tables = []layout.Grid{allocatedMachines(d)}
		rows = nil
		for _, m := range d.Machines {
			rows = append(append(rows, m.Workloads...), view.WorkloadShare{
				WorkloadCost: costs.WorkloadCost{Workload: unallocated, Amount: m.Unallocated},
			})
		}
	} else {
		tenancy(&s, d)
		var free money.Amount
		for _, m := range d.Machines {
			free += m.Unallocated
		}
		rows = append(slices.Clone(rows), view.WorkloadShare{
			WorkloadCost: costs.WorkloadCost{Workload: unallocated, Amount: free},
		})
	}
	b := chart.Bars{Title: "Cost by workload", Axis: chart.Axis{Label: "dollars", Format: chart.USD}, Ordered: true}
	for _, w := range rows[:min(len(rows), maxRows)] {
		bar := chart.Bar{Label: called(w.Workload), Value: inDollars(w.Amount), Note: usd(w.Amount)}
		if w.Workload == unallocated {
			bar.Color = chart.Gray
		}
		b.Rows = append(b.Rows, bar)
	}
	s.Picture = b.SVG()
	return s
}

const unallocated = "unallocated"

// called formats the name of a group; workloads without a label have none.
func called(workload string) string {
	if workload == "" {
		return "unspecified"
	}
	return workload
}

// allocatedMachines lists the workloads of machines from a file.
func allocatedMachines(d view.Shares) layout.Grid {
	g := layout.Grid{
		Head:  []string{"machine", "workload", "cost", "used", "idle", "unmeasured"},
		Right: []bool{false, false, true, true, true, true},
	}
	for _, m := range d.Machines {
		for _, w := range m.Workloads {
			g.Rows = append(g.Rows, []string{
				m.Resource, w.Workload, usd(w.Amount), usd(w.Used), usd(w.Idle), usd(w.CannotJudge),
			})
		}
		g.Rows = append(g.Rows, []string{m.Resource, unallocated, usd(m.Unallocated), "", "", ""})
	}
	return g
}

// tenancy shows the workloads reported by a metrics server.
func tenancy(s *layout.Sheet, d view.Shares) {
	var total, free, unknown, idle, unmeasured money.Amount
	machines := layout.Grid{
		Title: "machines", Head: []string{
			"machine", "GPUs", "cost", "allocated", "unallocated", "unknown", "used", "idle by use",
		},
		Right: []bool{false, true, true, true, true, true, true, true}, Priority: []int{6, 3, 6, 5, 5, 4, 5, 4}}
	for _, m := range d.Machines {
		total, free, unknown, idle, unmeasured = total+m.Amount, free+m.Unallocated, unknown+m.Use.Unknown, idle+
			m.Use.IdleByUse, unmeasured+m.Use.UnmeasuredByUse
		machines.Rows = append(machines.Rows, []string{
			m.Resource, fmt.Sprint(m.Use.GPUs), usd(m.Amount), usd(m.Amount - m.Unallocated), usd(m.Unallocated),
			usd(m.Use.Unknown),
			usd(m.Amount - m.Use.IdleByUse - m.Use.UnmeasuredByUse), usd(m.Use.IdleByUse)})
	}
	byName := layout.Grid{
		Title: "by " + d.By, Head: []string{
			d.By, "cost", "used", "idle", "unmeasured", "GPU hours", "GPU hours used", "cost by use",
		},
		Right: []bool{false, true, true, true, true, true, true, true}, Priority: []int{6, 6, 5, 5, 4, 3, 3, 4}}
	divided := false
	for _, w := range d.Totals {
		used := "unknown"
		if w.Use.UsedGPUHours != nil {
			used = plain.Number(*w.Use.UsedGPUHours, 1)
		}
		divided = divided || w.Use.DividedUse
		byName.Rows = append(byName.Rows, []string{
			called(w.Workload), usd(w.Amount), usd(w.Used), usd(w.Idle), usd(w.CannotJudge),
			plain.Number(w.Use.RequestedGPUHours, 1), used, usd(w.Use.ByUse),
		})
	}
	byName.Rows = append(byName.Rows, []string{unallocated, usd(free), "", "", "", "", "", ""})
	s.Title = fmt.Sprintf("%s of %s of GPU machines is allocated to %s", usd(total-free), usd(total),
		plain.Count(len(d.Totals), d.By))
	s.Figures = []layout.Figure{
		{Label: "machines", Value: fmt.Sprint(len(d.Machines))},
		{Label: "used", Value: usd(total - idle - unmeasured), Note: "what GPUs computed"},
		{Label: "idle", Value: usd(idle), Note: "requested or not"},
		{Label: unallocated, Value: usd(free), Note: usd(unknown) + " of it: nothing says who held the GPU"},
	}
	s.Tables = []layout.Grid{byName, machines}
	s.Assumptions = []string{
		"a machine's cost is divided by its GPUs and the time that each was held; its CPUs, memory and disks go with them",
	}
	if divided {
		s.Assumptions = append(s.Assumptions,
			"utilization of a GPU that several shared is measured of the GPU, and divided among them by request")
	}
}

// SharesCSV writes a row per workload and machine.
func SharesCSV(w io.Writer, d view.Shares) error {
	return layout.WriteCSV(w, "shares", func(yield func([]string) bool) {
		if !yield([]string{
			"machine", "workload", "total_usd", "used_usd", "idle_usd", "unmeasured_usd",
			"by_use_usd", "requested_gpu_hours",
			"used_gpu_hours",
		}) {
			return
		}
		for _, m := range d.Machines {
			for _, x := range m.Workloads {
				row := []string{
					m.Resource, x.Workload, everyDigit(&x.Amount), everyDigit(&x.Used), everyDigit(&x.Idle),
					everyDigit(&x.CannotJudge), "", "", "",
				}
				if u := x.Use; u != nil {
					row[6], row[7] = everyDigit(&u.ByUse), strconv.FormatFloat(u.RequestedGPUHours, 'f', -1, 64)
					if u.UsedGPUHours != nil {
						row[8] = strconv.FormatFloat(*u.UsedGPUHours, 'f', -1, 64)
					}
				}
				if !yield(row) {
					return
				}
			}
			if !yield([]string{m.Resource, unallocated, everyDigit(&m.Unallocated), "", "", "", "", "", ""}) {
				return
			}
		}
	})
}
