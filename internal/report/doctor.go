package report

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// DoctorState shows the problems of a state and its service.
func DoctorState(d view.DoctorState) layout.Sheet {
	s := layout.Sheet{Verb: "doctor state", Title: "nothing is wrong"}
	if n := len(d.Troubles); n > 0 {
		s.Title = plain.Count(n, "trouble")
	}
	held := fmt.Sprintf("%s of the audit log", plain.Count(d.AuditEntries, "entry", "entries"))
	if !d.OldestAt.IsZero() {
		held += ", from " + plain.Time(d.OldestAt) + " to " + plain.Time(d.NewestAt)
	}
	s.Figures = append(s.Figures, layout.Figure{
		Label: "state", Value: d.Database, Note: plain.Size(d.Bytes) + ", " + held,
	})
	growth := layout.Figure{Label: "growth", Value: "unknown", Note: "its size is known for less than a day here"}
	if g := d.GrowthPerDay; g != nil {
		growth.Value = plain.Size(max(*g, 0)) + " a day"
		growth.Note = "since " + plain.Time(d.GrowthSince)
	}
	s.Figures = append(s.Figures, growth)
	if !d.OldestChargeAt.IsZero() {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "oldest row", Value: plain.Time(d.OldestChargeAt), Note: "of the ledger",
		})
	}
	if n := d.OutputSessions; n == nil {
		s.Figures = append(s.Figures, layout.Figure{Label: "kept output", Value: "unknown", Note: "it cannot be read"})
	} else if *n > 0 && d.OutputBytes != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "kept output", Value: plain.Size(*d.OutputBytes),
			Note: "of " + plain.Count(*n, "session") + " on this machine, for 90 days after each end",
		})
	}
	backup := layout.Figure{Label: "backup", Value: "unknown", Note: "none was made from this machine. " + d.Restore}
	if b := d.Backup; b != nil {
		backup.Value = plain.Duration(d.At.Sub(b.At).Round(time.Minute)) + " ago"
		backup.Note = b.File + ", " + plain.Size(b.Bytes) + ". " + d.Restore
		if b.Missing {
			backup.Note = b.File + ", which is no longer there. " + d.Restore
		}
	}
	s.Figures = append(s.Figures, backup)
	for _, r := range d.Rounds {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "newest pass", Value: r.Account,
			Note: fmt.Sprintf("%d, %s ago", r.Round, plain.Duration(d.At.Sub(r.At).Round(time.Second))),
		})
	}
	if len(d.Troubles) == 0 {
		return s
	}
	wrong := layout.Grid{Title: "troubles", Head: []string{"what", "since", "next"}, Priority: []int{3, 2, 1}}
	for _, t := range d.Troubles {
		since := ""
		if !t.Since.IsZero() {
			since = plain.Time(t.Since)
		}
		wrong.Rows, wrong.Notes = append(wrong.Rows, []string{t.What, since, t.Next}), append(wrong.Notes, t.Why)
	}
	s.Tables = append(s.Tables, wrong)
	return s
}

// judgedTitle counts the machines with and without a verdict, and names those with a verdict that
// lack a signal.
func judgedTitle(d view.Doctor) string {
	partly := 0
	for _, m := range d.Machines {
		lacks := slices.ContainsFunc(m.Missing, func(x view.DoctorMissing) bool { return !x.Optional })
		if lacks && m.State != "unknown" {
			partly++
		}
	}
	title := fmt.Sprintf("%s: %d judged, ", plain.Count(len(d.Machines), "running machine"), d.Judged)
	if d.Found > 0 {
		title += fmt.Sprintf("%d found at rest by other evidence, ", d.Found)
	}
	title += fmt.Sprintf("%d not", d.Unmeasured)
	if partly > 0 {
		title += "; " + plain.Count(partly, "judged machine") + " without a signal"
	}
	return title
}

// Doctor shows the available and missing telemetry of each machine.
func Doctor(d view.Doctor) layout.Sheet {
	s := layout.Sheet{
		Verb: "doctor metrics", Title: judgedTitle(d), Figures: sourceFigures(d),
		Tables: []layout.Grid{measuredMachines(d)},
	}
	for _, g := range []layout.Grid{missingSignals(d), unmatchedNames(d)} {
		if len(g.Rows) > 0 {
			s.Tables = append(s.Tables, g)
		}
	}
	for _, b := range d.BlindSpots {
		s.Coverage = append(s.Coverage, "not visible: "+b.What+": "+b.Why+"; "+b.Effect)
	}
	return s
}

// sourceFigures lists the sources of metrics, and the windows of the two states.
func sourceFigures(d view.Doctor) []layout.Figure {
	var out []layout.Figure
	for _, x := range d.Sources {
		note := ""
		if x.Queries > 0 {
			note = plain.Count(x.Queries, "query", "queries") + ", " + plain.Size(x.Bytes)
		}
		if x.Impossible > 0 {
			note = strings.TrimPrefix(note+"; "+plain.Count(x.Impossible, "reading")+" that cannot be true left out",
				"; ")
		}
		out = append(out, layout.Figure{Label: "source", Value: x.Name, Note: note})
	}
	return append(out, layout.Figure{
		Label: "state", Value: "over " + string(d.AuditWindow), Note: "as scan judges; now is by the newest samples",
	})
}

// measuredMachines lists each machine with its states and available signals.
func measuredMachines(d view.Doctor) layout.Grid {
	g := layout.Grid{
		Title: "found in " + string(d.Window), Head: []string{
			"machine", "type", "GPUs", "state", "now", "signals", "newest", "coverage",
		},
		Right:    []bool{false, false, true, false, false, false, true, true},
		States:   []bool{false, false, false, true, true, false, false, false},
		Priority: []int{5, 2, 6, 6, 6, 1, 6, 6}}
	for _, m := range d.Machines {
		names, age, coverage := []string{}, 0.0, 1.0
		for _, x := range m.Signals {
			names, age, coverage = append(names, x.Signal), max(age, x.AgeSeconds), min(coverage, x.Coverage)
		}
		row := []string{title(m), m.Type, "?", m.State, m.Now.State, strings.Join(names, ", "), "none", ""}
		if m.GPUs != nil {
			row[2] = fmt.Sprint(*m.GPUs)
		}
		if len(names) > 0 {
			row[6], row[7] = plain.Duration(time.Duration(age)*time.Second), plain.Share(coverage, 0)
		}
		g.Rows, g.Notes = append(g.Rows, row), append(g.Notes, doubts(m))
	}
	return g
}

// doubts returns the reasons for unknown states of a machine, the holders of its GPUs, and the
// fields in which its tags and labels differ.
func doubts(m view.DoctorMachine) string {
	why := ""
	if m.State == "unknown" {
		why = m.Why
		if m.Found != "" {
			why += "; " + m.Found
		}
	} else if m.Now.State == "unknown" {
		why = "now: " + m.Now.Why
	}
	if held := heldBy(m.HeldBy); held != "" {
		why = strings.TrimPrefix(why+"; lent to "+held, "; ")
	}
	for _, x := range m.Disputes {
		tag := "tags do not say its " + x.Field
		if x.Tag != "" {
			tag = "its tags say " + x.Field + " " + x.Tag
		}
		why = strings.TrimPrefix(why+"; "+tag+", labels say "+strings.Join(x.Claims, " and "), "; ")
	}
	return why
}

// missingSignals lists each missing signal once, with its machines, in the order of the first one.
func missingSignals(d view.Doctor) layout.Grid {
	g := layout.Grid{
		Title: "missing", Head: []string{"what", "machines", "effect", "which"}, Right: []bool{false, true},
		Priority: []int{3, 4, 2, 1},
	}
	lacking := map[view.DoctorMissing][]string{}
	var order []view.DoctorMissing
	for _, m := range d.Machines {
		for _, x := range m.Missing {
			if len(lacking[x]) == 0 {
				order = append(order, x)
			}
			lacking[x] = append(lacking[x], title(m))
		}
	}
	for _, x := range order {
		const most = 4
		which := strings.Join(lacking[x][:min(most, len(lacking[x]))], ", ")
		if more := len(lacking[x]) - most; more > 0 {
			which += " and " + plain.Count(more, "other")
		}
		g.Rows = append(g.Rows, []string{x.What, fmt.Sprint(len(lacking[x])), x.Effect, which})
		g.Notes = append(g.Notes, x.Fix)
	}
	return g
}

// unmatchedNames lists the names in labels that belong to no machine, or to several.
func unmatchedNames(d view.Doctor) layout.Grid {
	g := layout.Grid{
		Title: "not matched", Head: []string{"source", "names in labels", "because"}, Priority: []int{2, 3, 1},
	}
	for _, x := range d.Sources {
		for _, name := range x.Unmatched {
			g.Rows = append(g.Rows, []string{x.Name, name, "no running machine has one of these names"})
		}
		for _, name := range x.Ambiguous {
			g.Rows = append(g.Rows, []string{x.Name, name, "two machines fit"})
		}
	}
	if n := len(g.Rows); n > 0 {
		g.Commands = make([]string, n)
		g.Commands[n-1] = "metrics.sources in curfew.yaml: machines: [{label: node, pattern: '(.*)', name: '$1'}]"
	}
	return g
}

// heldBy lists the distinct holders of GPUs.
func heldBy(holders []view.DoctorHolder) string {
	const most = 4
	var names []string
	for _, h := range holders {
		name := h.Pod
		if h.Namespace != "" {
			name = h.Namespace + "/" + h.Pod
		}
		if h.Job != "" {
			name = strings.TrimSpace(name + " job " + h.Job)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + plain.Count(more, "other")
	}
	return strings.Join(names, ", ")
}

// title returns the usual name of a machine.
func title(m view.DoctorMachine) string {
	if m.Name != "" && m.Name != m.ID {
		return m.Name + " " + m.ID
	}
	return m.ID
}
