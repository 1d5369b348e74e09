package notify

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/alert"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Letter is a message in the words that every channel uses. All of its text is
// [Plain]; none of it is escaped for anything.
type Letter struct {
	// Subject is the message in one line.
	Subject string
	Rows    []Row
	// When is the earliest time at which something is done, in UTC; zero if nothing will be.
	When time.Time
	// Ask introduces Keep, the command that exempts the resource, and AskTag the provider's
	// own command that writes the tag which does; each pair may be empty.
	Ask, Keep       string
	AskTag, KeepTag string
}

// Row is one thing to know.
type Row struct {
	Name  string
	Lines []string
}

// Names of the rows that a layout may tell from the others: the reason with its
// evidence, and what the letter's When says.
const (
	RowWhy  = "Why"
	RowWhen = "When"
	RowPlan = "Plan" // its lines are indented
)

// Longest texts from outside, in characters.
const (
	maxID       = 60 // in subjects and errors
	maxOwner    = 40 // there, the team and the user each
	maxName     = 100
	maxSentence = 500
	maxEvidence = 8
	maxPlan     = 60
)

// done are the verbs in the past participle.
var done = map[policy.Verb]string{
	policy.Tag: "tagged", policy.Checkpoint: "checkpointed", policy.Suspend: "suspended", policy.Scale: "scaled",
	policy.Stop: "stopped", policy.Hibernate: "hibernated", policy.Terminate: "terminated", policy.Delete: "deleted",
	policy.Release: "released", policy.PutRetention: "given a retention",
	policy.PutLifecycle: "given a lifecycle rule",
}

// Compose puts a message into words.
func Compose(m action.Message) Letter {
	l := Letter{Subject: "curfew: " + subject(m), Keep: plain.Line(m.Keep), KeepTag: plain.Line(m.KeepTag)}
	if !m.ActsAt.IsZero() {
		l.When = m.ActsAt.UTC()
	}
	if verb := done[m.Verb]; m.Kind == "warning" && verb != "" {
		l.add("Do", map[bool]string{true: "it will be ", false: "it could be "}[!l.When.IsZero()]+verb)
	}
	l.add(RowWhy, append([]string{sentence(m.Because)}, evidence(m.Evidence)...)...)
	if !l.When.IsZero() {
		l.add(RowWhen, l.When.Format("Mon 2 Jan 2006, 15:04 MST")+", at the earliest")
	}
	l.add(RowPlan, plan(m.Plan)...)
	if r := m.Resource; r != nil && r.Cloud != alert.Cloud {
		l.add("Cost", cost(m.Hourly))
		l.add("What", what(r))
	}
	if m.Kind == "warning" {
		l.add("Lost", sentence(m.Lost))
	}
	if done[m.Verb] != "" {
		l.add("Undo", undo(m.Undo))
	}
	l.add("Note", sentence(m.Know))
	made := plain.Cut(plain.Line(m.Creator), maxName)
	if made != "" {
		made = "no owner tag; " + made + " made it, by the provider's log"
	}
	l.add("For", plain.Cut(plain.Line(m.To), maxName), made)
	switch {
	case m.Kind == "acted", m.Kind == "resolved":
		l.Keep, l.KeepTag = "", ""
	case m.Kind == "approval":
		l.Ask, l.Keep, l.KeepTag = "To approve it:", "curfew approve "+plain.Line(m.Item), ""
	case l.Keep != "" && m.Resource != nil && m.Resource.Cloud == alert.Cloud:
		l.Ask = "Known already? Then silence it for a day:"
	case l.Keep != "":
		l.Ask = "Still needed? Then keep it:"
	}
	if l.KeepTag != "" {
		l.AskTag = "Or write the tag " + inventory.TagKeepUntil + ", with the provider's own command:"
	}
	return l
}

// Text returns the letter as plain text, beginning with its subject.
func (l Letter) Text() string { return l.Subject + "\n\n" + l.Body() }

// Body returns the text below the subject.
func (l Letter) Body() string {
	var b strings.Builder
	for _, row := range l.Rows {
		name := row.Name
		for _, line := range row.Lines {
			fmt.Fprintf(&b, "%-6s%s\n", name, line)
			name = ""
		}
	}
	for _, way := range l.Ways() {
		fmt.Fprintf(&b, "\n%s\n    %s\n", way.Name, way.Lines[0])
	}
	return b.String()
}

// Ways are the commands that exempt the resource, each with what introduces it.
func (l Letter) Ways() []Row {
	var out []Row
	for _, way := range [...]Row{{l.Ask, []string{l.Keep}}, {l.AskTag, []string{l.KeepTag}}} {
		if way.Lines[0] != "" {
			out = append(out, way)
		}
	}
	return out
}

func (l *Letter) add(name string, lines ...string) {
	row := Row{Name: name}
	for _, line := range lines {
		if line != "" {
			row.Lines = append(row.Lines, line)
		}
	}
	if len(row.Lines) > 0 {
		l.Rows = append(l.Rows, row)
	}
}

func subject(m action.Message) string {
	because := cmp.Or(plain.Cut(plain.Line(m.Because), maxName), "see below")
	if m.Kind == "approval" {
		return "approval needed: " + because
	}
	if m.Resource == nil {
		return because
	}
	who, verb := Named(m.Resource), done[m.Verb]
	switch {
	case m.Kind == "alarm" && verb != "":
		return who + " needs a look: it is not confirmed that it was " + verb
	case m.Kind == "alarm":
		return who + " needs a look: " + because
	case m.Kind == "resolved":
		return who + " is resolved: " + because
	case m.Kind == "acted" && verb != "":
		return who + " was " + verb
	case m.Kind == "warning" && verb != "" && m.ActsAt.IsZero():
		return who + " could be " + verb
	case m.Kind == "warning" && verb != "":
		s := who + " will be " + verb + " at " + m.ActsAt.UTC().Format("15:04 MST")
		if m.Keep != "" {
			s += " unless you keep it"
		}
		return s
	}
	return who + ": " + because
}

// Named returns a resource with its owner, as subjects and errors name it:
// "i-0abc (vision/ana)".
func Named(r *inventory.Resource) string {
	var owner []string
	for _, s := range []string{r.Owner.Team, r.Owner.User} {
		if s = plain.Cut(plain.Line(s), maxOwner); s != "" {
			owner = append(owner, s)
		}
	}
	id := cmp.Or(plain.Cut(plain.Line(r.ID), maxID), "a resource without a name")
	if len(owner) == 0 {
		return id
	}
	return id + " (" + strings.Join(owner, "/") + ")"
}

func what(r *inventory.Resource) string {
	s := plain.Line(string(r.Kind) + " " + plain.Cut(r.ID, maxName))
	if name := plain.Cut(plain.Line(r.Name), maxName); name != "" && name != r.ID {
		s += " " + strconv.Quote(name)
	}
	if r.Type != "" {
		s += ", " + plain.Cut(plain.Line(r.Type), maxName)
	}
	if place := cmp.Or(r.Zone, r.Region); place != "" {
		s += " in " + plain.Cut(plain.Line(place), maxName)
	}
	return s + ", " + plain.Cut(plain.Line(r.Cloud+" account "+r.Account), maxName)
}

func cost(hourly inventory.Fact[money.Amount]) string {
	a, known := hourly.Get()
	if !known {
		return "not known"
	}
	return a.Dollars() + " an hour"
}

func undo(u string) string {
	switch u {
	case "full":
		return "can be undone in full"
	case "partial":
		return "can be undone in part"
	case "none":
		return "cannot be undone"
	}
	return "not known whether it can be undone"
}

func evidence(list []usage.Evidence) []string {
	var out []string
	for i, e := range list {
		if i == maxEvidence {
			return append(out, fmt.Sprintf("and %d more", len(list)-i))
		}
		line := plain.Cut(plain.Line(e.Signal), maxName) + " " + plain.Cut(plain.Line(e.Value), maxName)
		if e.Window > 0 {
			line += " over " + plain.Duration(e.Window)
		}
		var notes []string
		if e.Coverage >= 0 && e.Window > 0 {
			notes = append(notes, strconv.Itoa(int(math.Floor(min(e.Coverage, 1)*100)))+"% covered")
		}
		if source := plain.Cut(plain.Line(e.Source), maxName); source != "" {
			notes = append(notes, source)
		}
		if len(notes) > 0 {
			line += " (" + strings.Join(notes, ", ") + ")"
		}
		out = append(out, line)
	}
	return out
}

// plan returns the plan to approve, each line in full width and without characters that a terminal
// or a channel interprets.
func plan(lines []string) []string {
	var out []string
	for i, line := range lines {
		if i == maxPlan {
			return append(out, fmt.Sprintf("and %d more lines: `curfew approvals` shows all", len(lines)-i))
		}
		text := strings.TrimLeft(line, " ")
		out = append(out, line[:len(line)-len(text)]+plain.Cut(plain.Line(text), maxSentence))
	}
	return out
}

func sentence(s string) string { return plain.Cut(plain.Line(s), maxSentence) }
