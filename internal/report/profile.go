package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Profile shows the usage of a command, and the smallest machine that fits.
func Profile(p view.Profile) layout.Sheet {
	s := layout.Sheet{Verb: "profile", Title: "No machine is named: " + strings.Join(p.Notes, "; ")}
	what := "process " + strconv.Itoa(p.PID)
	if len(p.Command) > 0 {
		what = plain.Line(strings.Join(p.Command, " "))
	}
	if len(p.Fits) > 0 {
		s.Title = fmt.Sprintf("%s fits: %s an hour in %s", p.Fits[0].Type, p.Fits[0].HourlyUSD, p.Region)
		s.Because = append(s.Because, p.Notes...)
	}
	ran := plain.Duration(time.Duration(p.Seconds * float64(time.Second)).Round(100 * time.Millisecond))
	s.Figures = []layout.Figure{
		{Label: "measured", Value: what, Note: fmt.Sprintf("%s, %s", ran, plain.Count(p.Samples, "sample"))},
	}
	g := layout.Grid{
		Head: []string{"used", "p50", "p95", "peak", "of"}, Right: []bool{false, true, true, true, true},
	}
	row := func(name string, r *view.ProfileRange, unit, of string) {
		if r == nil {
			g.Rows = append(g.Rows, []string{name, "unmeasured", "", "", of})
			return
		}
		n := func(v float64) string { return plain.Number(v, 2) + unit }
		g.Rows = append(g.Rows, []string{name, n(r.P50), n(r.P95), n(r.Peak), of})
	}
	memory := "unknown"
	if p.MachineMemoryGiB != nil {
		memory = plain.Number(*p.MachineMemoryGiB, 1) + " GiB"
	}
	row("CPUs", p.CPUs, "", strconv.Itoa(p.MachineCPUs))
	row("memory", p.MemoryGiB, " GiB", memory)
	for _, gpu := range p.GPUs {
		row("GPU "+gpu.GPU, gpu.Util, "%", "100%")
		row("GPU "+gpu.GPU+" memory", gpu.MemoryGiB, " GiB", "")
		row("GPU "+gpu.GPU+" power", gpu.PowerW, " W", "")
	}
	s.Tables = append(s.Tables, g)
	if p.GPUsUnknown != "" {
		s.Coverage = append(s.Coverage, "GPUs: "+p.GPUsUnknown)
	}
	if w := p.Waits; w != nil {
		for _, c := range w.Causes {
			s.Because = append(s.Because, fmt.Sprintf("the GPUs wait in %s of the samples, in %s of these because %s",
				plain.Share(w.Share, 0), plain.Share(c.Share, 0), c.Why))
		}
	}
	if r := p.Rightsize; r != nil {
		s.Because = append(s.Because, verdictName(r.Verdict)+": "+r.Why)
		for _, m := range r.Resources {
			for _, reason := range m.Reasons {
				if reason.Answer != "false" {
					why := fmt.Sprintf("the GPU waits, %s (%s): %s", reason.Name, reason.Answer, reason.Why)
					s.Because = append(s.Because, why)
				}
			}
		}
	}
	if len(p.Fits) > 0 {
		fits := layout.Grid{
			Title: "Machines that fit, cheapest first",
			Head:  []string{"type", "CPUs", "memory", "GPUs", "price", "as of"},
			Right: []bool{false, true, true, true, true, false},
		}
		for _, f := range p.Fits {
			fits.Rows = append(fits.Rows, []string{
				f.Type, strconv.Itoa(f.VCPUs), plain.Number(f.MemoryGiB, 1) + " GiB", strconv.Itoa(f.GPUs),
				perHour(f.HourlyUSD.Or(0)), plain.Date(f.AsOf),
			})
		}
		s.Tables = append(s.Tables, fits)
	}
	s.Assumptions = []string{"a machine fits with 20% above the CPUs of the 95th percentile and above the peak of memory"}
	return s
}
