package web

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// findingsDoc is the content of the page Findings.
type findingsDoc struct {
	scan *view.Scan
	// step, team and text are the filters; step -1 is every step.
	step       int
	team, text string
	rows       []*view.Finding
	all        int
	keeps      map[string]view.Keep
	fixes      map[string]view.Action
	teams      []string
	more       int
}

// findingsPage lists the findings of the newest audit, the most worthwhile first.
func findingsPage(v *visit) (templ.Component, error) {
	scan, err := v.scan()
	if err != nil {
		return nil, err
	}
	q := v.r.URL.Query()
	d := findingsDoc{
		scan: scan, step: -1, team: q.Get("team"), text: q.Get("q"), keeps: v.aboutMachines().keeps,
		fixes: v.fixes(),
	}
	if n, err := strconv.Atoi(q.Get("step")); err == nil {
		d.step = n
	}
	for _, f := range report.Ranked(*scan) {
		d.all++
		d.teams = append(d.teams, teamParameter(f.Resource.Owner.Team))
		if d.takes(f) {
			d.rows = append(d.rows, f)
		}
	}
	d.teams = distinct(d.teams)
	most := rowsShown
	if q.Get("all") != "" {
		most = maxRows
	}
	if len(d.rows) > most {
		d.more, d.rows = len(d.rows)-most, d.rows[:most]
	}
	return findingsContent(v, &d), nil
}

// maxRows bounds the rows of a page that shows all of a list.
const maxRows = 2000

func (d *findingsDoc) takes(f *view.Finding) bool {
	if d.step >= 0 && f.Step != d.step || d.team != "" && teamParameter(f.Resource.Owner.Team) != d.team {
		return false
	}
	text := strings.ToLower(strings.TrimSpace(d.text))
	return text == "" || slices.ContainsFunc([]string{
		f.ID, f.Rule, f.Because, f.Resource.ID, f.Resource.Name, f.Resource.Type,
	}, func(s string) bool { return strings.Contains(strings.ToLower(s), text) })
}

// findingDoc is the content of the page of one finding.
type findingDoc struct {
	view.DatedFinding
	fix    *view.Fix
	fixErr error
	keep   *view.Keep
	// act is the newest action of the fix; nil before it was asked for.
	act *view.Action
}

// fixes returns the newest action of each finding whose fix was asked for, by its id.
func (v *visit) fixes() map[string]view.Action {
	out := map[string]view.Action{}
	if !v.may(ops.ListActions.Info) {
		return out
	}
	acts, err := read(v, ops.ListActions, ops.Paging{Limit: 200})
	if err != nil {
		return out // the pages show the findings all the same
	}
	for _, a := range slices.Backward(acts.Actions) {
		if id, ok := strings.CutPrefix(a.Source, round.FindingSource("")); ok {
			out[id] = a
		}
	}
	return out
}

// phases are the phases of actions as people read them.
var phases = map[string]string{string(action.Confirming): "acted", string(action.Done): "confirmed"}

func phaseText(a view.Action) string { return cmp.Or(phases[a.Phase], a.Phase) }

// isOpen reports whether the ladder may still act.
func isOpen(a *view.Action) bool { return a != nil && action.Phase(a.Phase).IsOpen() }

// findingPage shows one finding: the evidence, the exact change, what blocks it, its risk and undo.
func findingPage(v *visit) (templ.Component, error) {
	id := v.r.PathValue("id")
	doc, err := read(v, ops.GetFinding, ops.ByID{ID: id})
	if err != nil {
		if a, ok := v.fixes()[id]; ok && a.Phase == string(action.Done) {
			return fixedContent(a), nil
		}
		return nil, err
	}
	d := findingDoc{DatedFinding: doc.Findings[0]}
	if a, ok := v.fixes()[d.ID]; ok {
		d.act = &a
	}
	if v.may(ops.GetLastScan.Info) {
		if scan, err := v.scan(); err == nil {
			for i := range scan.Findings {
				if scan.Findings[i].ID == d.ID {
					d.Samples = scan.Findings[i].Samples
				}
			}
		}
	}
	q := v.r.URL.Query()
	fixes, err := read(v, ops.PreviewFix, ops.PreviewFixInput{
		ByID: ops.ByID{ID: d.ID}, Scratch: q.Get("scratch_disks") != "", Save: q.Get("save_disks") != "",
	})
	if d.fixErr = err; err == nil && len(fixes.Fixes) > 0 {
		d.fix = &fixes.Fixes[0]
	}
	if k, ok := v.aboutMachines().keeps[fullID(&d.Resource)]; ok && k.Until.After(v.now) {
		d.keep = &k
	}
	return findingContent(v, &d), nil
}

// carried reports whether curfew carries the fix out, by the preview of it.
func (d *findingDoc) carried() bool {
	return d.fix != nil && !slices.ContainsFunc(d.fix.Refusals, func(r view.Refusal) bool {
		return r.Rule == view.ByHandRule
	})
}

// changeText is a change as it would be sent.
func changeText(c change.Change) string {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return ""
	}
	return string(text)
}

// outcome describes the result of a pass for a fix, without actions of policies that it carried on.
func outcome(doc []byte) string {
	var d view.Fixes
	if json.Unmarshal(doc, &d) != nil {
		return "Done."
	}
	var said []string
	for _, l := range d.Lines {
		if !strings.HasPrefix(l.Policy, round.FindingSource("")) {
			continue
		}
		said = append(said, layout.Joined(": ", l.Result, l.Why))
	}
	if len(d.ApprovalsAsked) > 0 {
		said = append(said, "an approval is asked for")
	}
	for _, f := range d.Fixes {
		for _, r := range f.Refusals {
			said = append(said, r.Rule+": "+r.Why)
		}
	}
	return capital(plain.Line(cmp.Or(strings.Join(distinct(said), "; "), "nothing changed"))) + "."
}

// planPage shows the plan of the account by the newest audit.
func planPage(v *visit) (templ.Component, error) {
	doc, err := read(v, ops.GetAccountPlan, ops.AccountPlanInput{})
	if err != nil {
		return nil, err
	}
	return planContent(doc, report.Account(doc)), nil
}

// planFigures are the figures of a plan that are explained, besides those of its steps.
func planFigures(d accountplan.Account) []string {
	out := []string{"before", "saves", "after"}
	if d.PerhapsUSD > 0 {
		out = append(out, "perhaps")
	}
	for _, r := range d.Risks {
		out = append(out, "risk."+r.Risk)
	}
	for _, t := range d.Teams {
		if t.Team != "" {
			out = append(out, "team."+t.Team)
		}
	}
	return out
}

// riskClass is the color of a risk.
func riskClass(level string) string { return layout.StateClass(level) }

func stepParameter(step int) string {
	if step < 0 {
		return ""
	}
	return strconv.Itoa(step)
}

func needed(yes bool) string {
	if yes {
		return "a second person has to approve it"
	}
	return "none needed"
}

// patternOf is an expression that only one text fulfills.
func patternOf(text string) string { return regexp.QuoteMeta(text) }
