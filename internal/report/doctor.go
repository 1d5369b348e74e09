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

// DoctorState shows what is wrong with a state and its service.
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

// judgedTitle divides the machines into those that are judged and those that are not, and names the
// judged ones that lack a signal all the same.
func judgedTitle(d view.Doctor) string {
	partly := 0
	for _, m := range d.Machines {
		lacks := slices.ContainsFunc(m.Missing, func(x view.DoctorMissing) bool { return !x.Optional })
		if lacks && m.State != "unknown" {
			partly++
		}
	}
	title := fmt.Sprintf("%s: %d judged, %d not", plain.Count(len(d.Machines), "running machine"), d.Judged,
		len(d.Machines)-d.Judged)
	if partly > 0 {
		title += "; " + plain.Count(partly, "judged machine") + " without a signal"
	}
	return title
}

// Doctor shows what telemetry there is for each machine, and what is missing.
func Doctor(d view.Doctor) layout.Sheet {
	s := layout.Sheet{
		Verb: "doctor metrics", Title: judgedTitle(d),
	}
	for _, x := range d.Sources {
		note := ""
		if x.Queries > 0 {
			note = plain.Count(x.Queries, "query", "queries") + ", " + plain.Size(x.Bytes)
		}
		if x.Impossible > 0 {
			note = strings.TrimPrefix(note+"; "+plain.Count(x.Impossible, "reading")+" that cannot be true left out",
				"; ")
		}
		s.Figures = append(s.Figures, layout.Figure{Label: "source", Value: x.Name, Note: note})
	}
	s.Figures = append(s.Figures, layout.Figure{
		Label: "state", Value: "over " + string(d.AuditWindow), Note: "as scan judges; now is by the newest samples",
	})
	found := layout.Grid{
		Title: "found in " + string(d.Window), Head: []string{
			"machine", "type", "GPUs", "state", "now", "signals", "newest", "coverage",
		},
		Right:    []bool{false, false, true, false, false, false, true, true},
		States:   []bool{false, false, false, true, true, false, false, false},
		Priority: []int{5, 2, 6, 6, 6, 1, 6, 6}}
	missing := layout.Grid{
		Title: "missing", Head: []string{"what", "machines", "effect", "which"}, Right: []bool{false, true},
		Priority: []int{3, 4, 2, 1},
	}
	lacking := map[view.DoctorMissing][]string{} // in the order of the first machine
	var order []view.DoctorMissing
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
		found.Rows = append(found.Rows, row)
		why := ""
		if m.State == "unknown" {
			why = m.Why
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
		found.Notes = append(found.Notes, why)
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
		missing.Rows = append(missing.Rows, []string{x.What, fmt.Sprint(len(lacking[x])), x.Effect, which})
		missing.Notes = append(missing.Notes, x.Fix)
	}
	s.Tables = []layout.Grid{found}
	if len(missing.Rows) > 0 {
		s.Tables = append(s.Tables, missing)
	}
	unmatched := layout.Grid{
		Title: "not matched", Head: []string{"source", "names in labels", "because"}, Priority: []int{2, 3, 1},
	}
	for _, x := range d.Sources {
		for _, name := range x.Unmatched {
			unmatched.Rows = append(unmatched.Rows, []string{
				x.Name, name, "no running machine has one of these names",
			})
		}
		for _, name := range x.Ambiguous {
			unmatched.Rows = append(unmatched.Rows, []string{x.Name, name, "two machines fit"})
		}
	}
	if len(unmatched.Rows) > 0 {
		unmatched.Commands = make([]string, len(unmatched.Rows))
		unmatched.Commands[len(unmatched.Rows)-
			1] = "metrics.sources in curfew.yaml: machines: [{label: node, pattern: '(.*)', name: '$1'}]"
		s.Tables = append(s.Tables, unmatched)
	}
	for _, b := range d.BlindSpots {
		s.Coverage = append(s.Coverage, "not visible: "+b.What+": "+b.Why+"; "+b.Effect)
	}
	return s
}

// heldBy lists whom GPUs are lent to, each once.
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
