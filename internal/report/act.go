package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Results is the order of the lines of a pass: first those that need attention.
var Results = []action.Result{
	action.ResultFailed, action.ResultRefused, action.ResultFuse, action.ResultOverCap, action.ResultDeferred,
	action.ResultFrozen,
	action.ResultActed, action.ResultConfirmed, action.ResultWouldAct, action.ResultWarned, action.ResultWouldWarn,
	action.ResultWaiting, action.ResultObserved, action.ResultWithdrawn}

// EnforceSheet draws a pass of the policies. binding names who is bound by freezes and caps, now is
// the reader's time, again the command for the next pass.
func EnforceSheet(d view.Enforce, binding string, now time.Time, again string) layout.Sheet {
	s := layout.Sheet{Verb: "enforce", Title: passTitle(d)}
	s.Figures = append(s.Figures, layout.Figure{
		Label: "read", Value: plain.Count(d.Resources, "resource"),
		Note: "in " + cmp.Or(strings.Join(d.Accounts, ", "), "no account"),
	})
	if !d.DryRun {
		s.Figures = append(s.Figures, layout.Figure{Label: "state", Value: binding})
	}
	if z := d.Frozen; z != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "frozen", Value: "by " + z.By + " since " + plain.When(z.At, now), Note: z.Reason,
		})
	}
	lines := slices.Clone(d.Lines)
	slices.SortStableFunc(lines, func(x, y view.Line) int {
		return cmp.Compare(slices.Index(Results, action.Result(x.Result)),
			slices.Index(Results, action.Result(y.Result)))
	})
	if len(lines) > 0 {
		s.Tables = append(s.Tables, linesGrid(lines, now))
	}
	if len(d.Policies) > 0 {
		g := layout.Grid{
			Head:  []string{"policy", "selected", "true", "false", "unknown", "refused", "deferred", "over caps"},
			Right: []bool{false, true, true, true, true, true, true, true}}
		for _, c := range d.Policies {
			row := []string{c.Policy}
			for _, n := range []int{
				c.Selected, c.True, c.False, sum(c.Unknown), sum(c.Refused), c.Deferred, c.OverCaps,
			} {
				row = append(row, fmt.Sprint(n))
			}
			g.Rows = append(g.Rows, row)
			for _, why := range append(reasons("unknown", c.Unknown), reasons("refused", c.Refused)...) {
				s.Because = append(s.Because, c.Policy+": "+why)
			}
			if c.Fuse != nil {
				s.Because = append(s.Because, c.Policy+": "+c.Fuse.Why)
			}
		}
		s.Tables = append(s.Tables, g)
	}
	s.Coverage = unseen(d.BlindSpots)
	if d.NextAt != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "next", Value: "run it again at " + plain.When(*d.NextAt, now),
		})
		s.Next = append(s.Next, again)
	}
	return s
}

// passTitle summarizes a pass in one sentence; if nothing happened it says why.
func passTitle(d view.Enforce) string {
	counts := map[action.Result]int{}
	for _, l := range d.Lines {
		counts[action.Result(l.Result)]++
	}
	var parts []string
	for _, r := range Results {
		if n := counts[r]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, r))
		}
	}
	what := strings.Join(parts, ", ")
	if what == "" {
		selected, no, unknown := 0, 0, 0
		for _, c := range d.Policies {
			selected, no, unknown = selected+c.Selected, no+c.False, unknown+sum(c.Unknown)
		}
		switch {
		case selected == 0:
			what = fmt.Sprintf("nothing to do: no policy selects any of %s", plain.Count(d.Resources, "resource"))
		default:
			what = fmt.Sprintf("nothing to do: of %d selected, conditions are false for %d and unknown for %d",
				selected, no,
				unknown)
		}
	}
	if d.DryRun {
		return "Dry run, nothing is sent and nothing changes: " + what
	}
	return "Enforced: " + what
}

// linesGrid returns the decisions of a pass, a row for each resource with its reason under it.
func linesGrid(lines []view.Line, now time.Time) layout.Grid {
	g := layout.Grid{
		Head: []string{"result", "action", "resource", "owner", "policy", "not before"}, States: []bool{true},
		Priority: []int{9, 5, 4, 1, 2, 8},
	}
	dropOwner := !slices.ContainsFunc(lines, func(l view.Line) bool { return l.Owner != "" })
	for _, l := range lines {
		name := l.Resource
		if ref := strings.Split(l.Resource, "/"); len(ref) == 5 {
			name = ref[4]
		}
		if l.Type != "" || l.Name != "" {
			name = strings.TrimSpace(l.Type + " " + cmp.Or(l.Name, name))
		}
		due := ""
		if l.DueAt != nil {
			due = plain.When(*l.DueAt, now)
		}
		g.Rows = append(g.Rows, []string{l.Result, l.Verb, name, l.Owner, l.Policy, due})
		g.Notes = append(g.Notes, l.Why)
	}
	if dropOwner {
		g = g.Without(3)
	}
	if !slices.ContainsFunc(lines, func(l view.Line) bool { return l.DueAt != nil }) {
		g = g.Without(len(g.Head) - 1)
	}
	return g
}

// reasons lists counts by reason, the most frequent first.
func reasons(what string, counts map[string]int) []string {
	keys := slices.SortedFunc(maps.Keys(counts), func(x, y string) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), strings.Compare(x, y))
	})
	var out []string
	for _, k := range keys {
		out = append(out, fmt.Sprintf("%d %s (%s)", counts[k], what, k))
	}
	return out
}

func sum(counts map[string]int) int {
	n := 0
	for _, k := range counts {
		n += k
	}
	return n
}

// unseen lists the sources that could not be read.
func unseen(spots []inventory.BlindSpot) []string {
	var out []string
	for _, b := range spots {
		out = append(out, "not visible: "+b.What+" ("+b.Why+"): "+b.Effect)
	}
	return out
}

// FixSheet draws the preview of a fix. Enforce are the flags that carry it out, and globals those of
// every command.
func FixSheet(f view.Fix, now time.Time, enforce, globals string) layout.Sheet {
	r, id := f.Finding.Resource, f.Finding.ID[:min(8, len(f.Finding.ID))]
	s := layout.Sheet{
		Verb: "fix " + id,
		Title: "Dry run, nothing is changed: " + f.Finding.Fix.Action + " " + cmp.Or(r.Name,
			r.ID) + fixSaves(f.Finding),
	}
	row := func(label string, values ...string) {
		for i, v := range values {
			if i > 0 {
				label = ""
			}
			if v != "" {
				s.Figures = append(s.Figures, layout.Figure{Label: label, Value: v})
			}
		}
	}
	name := r.ID
	if r.Name != "" && r.Name != r.ID {
		name = r.Name + " (" + r.ID + ")"
	}
	if x := firstRefusal(f); x != nil {
		row("refused", x.Why)
	}
	row("finding", fmt.Sprintf("%s, step %d, confidence %s, scanned %s ago", f.Finding.Rule, f.Finding.Step,
		f.Finding.Confidence, plain.Duration(now.Sub(f.ScannedAt).Round(time.Second))))
	row("resource", layout.Joined(" ", r.Kind, r.Type, name, "account "+r.Account, r.Region))
	row("owner", cmp.Or(strings.Trim(r.Owner.Team+"/"+r.Owner.User, "/"), "unallocated"))
	row("because", f.Finding.Because)
	row("would do", f.Finding.Fix.Action+"   risk "+string(f.Finding.Fix.Risk)+", undo "+string(f.Finding.Fix.Undo))
	row("adds", f.Change.AddedRules()...)
	row("ends", f.Change.Arguments.Members...)
	var tags []string
	for _, k := range slices.Sorted(maps.Keys(f.Change.Arguments.Tags)) {
		tags = append(tags, k+"="+f.Change.Arguments.Tags[k])
	}
	row("writes", tags...)
	row("know", f.Loses)
	if p := f.Finding.Fix.Policy; p != nil {
		row("policy", p.Policy, PolicySaving(p))
	}
	if r.Lifetime != string(inventory.Ephemeral) {
		row("lifetime", r.Lifetime+": it is treated as persistent, so no policy may act on it")
	}
	if f.NeedsApproval {
		row("approval",
			"needed: a second person approves exactly this plan; --enforce asks at once, and the grace period "+
				"runs meanwhile")
	}
	if slices.ContainsFunc(f.Change.Commands, func(c string) bool { return !plain.Safe(c) }) {
		row("by hand", "no command is shown: the resource's id or type holds control characters")
	} else {
		s.Commands = f.Change.Commands
	}
	switch refusal := firstRefusal(f); {
	case slices.ContainsFunc(f.Refusals, func(x view.Refusal) bool { return x.Rule == view.ByHandRule }):
	case refusal == nil:
		s.Next = []string{"curfew fix " + id + " " + enforce + globals}
	default:
		s.Title = "Refused, " + refusal.Rule + ": " + f.Finding.Fix.Action + " " + cmp.Or(r.Name, r.ID) +
			fixSaves(f.Finding)
		if refusal.Unblock != "" {
			s.Next = []string{"curfew fix " + id + " " + refusal.Unblock + globals}
		}
	}
	return s
}

// firstRefusal returns the rule that refuses a fix; nil if nothing does, or if a person carries it out.
func firstRefusal(f view.Fix) *view.Refusal {
	for i := range f.Refusals {
		if f.Refusals[i].Rule != view.ByHandRule {
			return &f.Refusals[i]
		}
	}
	return nil
}

// fixSaves returns the monthly savings of a fix, to follow its name.
func fixSaves(f view.Finding) string {
	switch {
	case f.MonthlySavingsUSD.Known():
		return ", saves " + f.MonthlySavingsUSD.String() + " a month"
	case f.SavingsUpperBoundUSD.Known():
		return ", saves at most " + f.SavingsUpperBoundUSD.String() + " a month: " + f.SavingsUnknown
	}
	return "; its saving is unknown: " + f.SavingsUnknown
}

// FixesSheet draws a pass that carries out fixes. again is the command for the next pass.
func FixesSheet(d view.Fixes, now time.Time, again, globals string) layout.Sheet {
	states := map[view.FixState]int{}
	var order []string
	for _, f := range d.Fixes {
		states[f.State]++
	}
	for _, k := range slices.Sorted(maps.Keys(states)) {
		order = append(order, fmt.Sprintf("%d %s", states[k], k))
	}
	s := layout.Sheet{Verb: "fix", Title: "Fixes: " + strings.Join(order, ", ")}
	if len(d.Lines) > 0 {
		g := linesGrid(d.Lines, now)
		for _, l := range d.Lines {
			command := ""
			if l.Item != "" {
				command = "curfew audit --item " + l.Item + globals
			}
			g.Commands = append(g.Commands, command)
		}
		s.Tables = append(s.Tables, g)
	}
	for _, id := range d.ApprovalsAsked {
		s.Because = append(s.Because,
			"request "+id+" needs the approval of another person while the grace period runs")
		s.Next = append(s.Next, "curfew approve "+id+globals)
	}
	s.Coverage = unseen(d.BlindSpots)
	if d.NextAt != nil {
		s.Figures = append(s.Figures, layout.Figure{
			Label: "next", Value: "run it again at " + plain.When(*d.NextAt, now),
		})
		s.Next = append(s.Next, again)
	}
	return s
}

// FixDemoSheet draws fixes that were carried out on the simulated account.
func FixDemoSheet(d view.Fixes) layout.Sheet {
	s := FixesSheet(view.Fixes{Fixes: d.Fixes}, time.Time{}, "", "")
	s.Title += ", on the simulated account in simulated time; nothing of this is real"
	g := layout.Grid{
		Head: []string{"at", "result", "action", "resource"}, States: []bool{false, true}, Priority: []int{9, 9, 5, 1},
	}
	for _, p := range d.Passes {
		for _, l := range p.Lines {
			g.Rows = append(g.Rows, []string{plain.Time(p.At), l.Result, l.Verb, l.Resource})
			g.Notes = append(g.Notes, l.Why)
		}
	}
	s.Tables = append(s.Tables, g)
	return s
}

// UndoSheet draws reversals, done or planned.
func UndoSheet(d view.Undo, next string) layout.Sheet {
	s := layout.Sheet{Verb: "fix --undo", Title: plain.Count(len(d.Lines), "action") + " taken back"}
	if d.DryRun {
		s.Title = "Dry run, nothing is changed: " + plain.Count(len(d.Lines), "action") + " to take back"
	}
	g := layout.Grid{Head: []string{"result", "action", "resource"}, States: []bool{true}}
	for _, l := range d.Lines {
		g.Rows = append(g.Rows, []string{l.Result, l.Verb, l.Resource})
		why := l.Why
		if l.KeptUntil != nil {
			why = strings.TrimPrefix(why+"; policies leave it alone until "+plain.Time(*l.KeptUntil), "; ")
		}
		g.Notes = append(g.Notes, why)
		for _, st := range l.Steps {
			if st.Before != "" {
				s.Because = append(s.Because, "before "+st.Name+": "+st.Before)
			}
		}
		if d.DryRun && l.Result == string(action.ResultWouldUndo) {
			s.Next = []string{next}
		}
	}
	s.Tables = append(s.Tables, g)
	return s
}

// TagSheet draws missing tags of resources. reaching are the flags that select their account; next
// is the command that writes the tags, empty if nothing can be written.
func TagSheet(d view.Tags, binding, reaching, next string) layout.Sheet {
	resources, tags, without := 0, 0, 0
	g := layout.Grid{
		Head:   []string{"", "resource", "tag", "value", "by", "state"},
		States: []bool{true, false, false, false, false, true}, Priority: []int{9, 2, 4, 3, 1, 8},
	}
	add := func(v view.Tagged, cells []string, command string) {
		name := v.Resource
		if ref := strings.Split(v.Resource, "/"); len(ref) == 5 {
			name = ref[4]
		}
		if v.Name != "" && v.Name != name {
			name = v.Name + " (" + name + ")"
		}
		g.Rows = append(g.Rows, append([]string{cells[0], name}, append(cells[1:], v.State)...))
		g.Notes, g.Commands = append(g.Notes, v.Why), append(g.Commands, command)
	}
	for _, v := range d.Resources {
		undo := ""
		if v.Item != "" {
			undo = "curfew fix --undo " + v.Item + reaching
		}
		for i, t := range v.Add {
			sign := "+"
			if t.Before != nil {
				sign = "~" // the tag exists without a value
			}
			command := ""
			if i == len(v.Add)-1 && len(v.Left) == 0 {
				command = undo
			}
			add(v, []string{sign, t.Key, t.Value, t.From}, command)
		}
		for i, k := range v.Left {
			command := ""
			if i == len(v.Left)-1 {
				command = undo
			}
			add(v, []string{"?", k, "", "no rule"}, command)
		}
		if len(v.Add) > 0 {
			resources, tags = resources+1, tags+len(v.Add)
		}
		if len(v.Left) > 0 {
			without++
		}
	}
	what := plain.Count(tags, "tag") + " on " + plain.Count(resources, "resource")
	if tags == 0 {
		what = fmt.Sprintf("no tag to write on %s", plain.Count(d.Read, "resource"))
	}
	if without > 0 {
		what += "; " + plain.Count(without, "resource") + " without a rule for a required tag"
	}
	s := layout.Sheet{Verb: "tag", Title: "Dry run, nothing is changed: " + what, Coverage: unseen(d.BlindSpots)}
	s.Figures = []layout.Figure{
		{
			Label: "read", Value: plain.Count(d.Read, "resource"),
			Note: "in " + cmp.Or(strings.Join(d.Accounts, ", "), "no account"),
		},
	}
	if !d.DryRun {
		s.Title = "Written: " + what
		s.Figures = append(s.Figures, layout.Figure{Label: "state", Value: binding})
	}
	if len(g.Rows) > 0 {
		s.Tables = append(s.Tables, g)
	}
	if d.DryRun && tags > 0 && next != "" {
		s.Next = []string{next}
	}
	return s
}

// KeepsSheet draws the exemptions in force.
func KeepsSheet(d view.Keeps) layout.Sheet {
	s := layout.Sheet{Verb: "keep", Title: plain.Count(len(d.Keeps), "exemption") + " in force"}
	if len(d.Keeps) == 0 {
		s.Title = "No exemption is in force in this state; tags curfew:keep-until count as well, and `curfew scan` shows " +
			"them"
		return s
	}
	g := layout.Grid{Head: []string{"until", "resource", "by"}, Priority: []int{9, 5, 1}}
	for _, k := range d.Keeps {
		g.Rows = append(g.Rows, []string{plain.Time(k.Until), k.Resource, k.By})
		g.Notes = append(g.Notes, k.Reason)
	}
	s.Tables = append(s.Tables, g)
	return s
}

// FusesSheet draws the fuses that have blown.
func FusesSheet(d view.Fuses, now time.Time, globals string) layout.Sheet {
	s := layout.Sheet{
		Verb: "confirm",
		Title: plain.Count(len(d.Fuses), "fuse") +
			" blown: nothing of these policies is carried out until a person confirms",
	}
	if len(d.Fuses) == 0 {
		s.Title = "Nothing waits for confirmation"
		return s
	}
	g := layout.Grid{
		Head:  []string{"policy", "account", "since", "due", "selected"},
		Right: []bool{false, false, false, true, true},
	}
	for _, f := range d.Fuses {
		g.Rows = append(g.Rows, []string{
			f.Policy, f.Account, plain.When(f.At, now), fmt.Sprint(f.Due), fmt.Sprint(f.Selected),
		})
		g.Commands = append(g.Commands, "curfew confirm "+plain.Shell(f.Policy)+" --reason TEXT"+globals)
	}
	s.Tables = append(s.Tables, g)
	return s
}

// AuditLine writes an audit entry on one complete line, for files and pipes.
func AuditLine(w io.Writer, e view.AuditEntry) error {
	words := []string{e.At.UTC().Format("2006-01-02 15:04:05"), e.What}
	for _, text := range []struct{ before, text, after string }{
		{"", e.Verb, ""}, {"", e.Resource, ""}, {"by ", e.Actor, ""}, {"item ", e.Item, ""}, {"-> ", e.Outcome, ""},
		{"(", e.Because, ")"},
	} {
		if text.text != "" || text.before == "by " {
			words = append(words, text.before+text.text+text.after)
		}
	}
	_, err := plain.Fprintln(w, strings.Join(words, "  "))
	return err
}

// AuditSheet draws entries of the audit log, oldest first.
func AuditSheet(entries []view.AuditEntry) layout.Sheet {
	s := layout.Sheet{Verb: "audit", Title: plain.Count(len(entries), "entry") + " of the audit log"}
	if len(entries) == 0 {
		s.Title = "No entry of the audit log matches"
		return s
	}
	g := layout.Grid{
		Head: []string{"time", "event", "action", "resource", "by", "item"}, States: []bool{1: true},
		Priority: []int{9, 8, 7, 3, 1, 6},
	}
	for _, e := range entries {
		g.Rows = append(g.Rows, []string{plain.Time(e.At), e.What, e.Verb, e.Resource, e.Actor, e.Item})
		g.Notes = append(g.Notes, layout.Joined("; ", e.Outcome, e.Because))
	}
	s.Tables = append(s.Tables, g)
	return s
}

// SettingsSheet draws the versions of the shared settings.
func SettingsSheet(d view.Settings) layout.Sheet {
	s := layout.Sheet{
		Verb: "settings",
		Title: "No shared settings: budgets, thresholds, approvers and prices come from each local configuration and are " +
			"advisory",
	}
	if d.Advisory {
		return s
	}
	s.Title = "Shared settings decide for everyone who uses this state; a local configuration may only be stricter"
	g := layout.Grid{
		Head: []string{"kind", "version", "set at", "hash", "by"}, Right: []bool{false, true},
		Priority: []int{5, 9, 8, 1, 2},
	}
	for _, v := range d.Versions {
		g.Rows = append(g.Rows, []string{v.Kind, fmt.Sprint(v.Version), v.At, v.Hash, v.Who})
		g.Notes = append(g.Notes, v.Reason)
	}
	s.Tables = append(s.Tables, g)
	return s
}

// WhoamiSheet draws an identity, its proof, and its approval rights.
func WhoamiSheet(d view.Whoami) layout.Sheet {
	s := layout.Sheet{Verb: "whoami", Title: d.Name + ", " + d.ProofText()}
	row := func(label, text string) { s.Figures = append(s.Figures, layout.Figure{Label: label, Value: text}) }
	if d.UnverifiedBecause != nil {
		row("AWS", *d.UnverifiedBecause)
	} else if d.Declared != d.Name {
		row("declared", d.Declared+" (self-declared, not verified)")
	}
	roles := strings.Join(d.Roles, ", ")
	row("roles", cmp.Or(roles, "none: the approvers section of "+d.From()+" does not name you"))
	if roles != "" && !d.Settings.Advisory {
		row("by", d.From())
	}
	switch {
	case d.OpensFixes && roles != "":
		row("approves", "gate requests and fixes of other people")
	case roles != "":
		row("approves", "gate requests of other people; fixes need AWS credentials")
	}
	return s
}
