package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/money"
)

// PlanSchema is the schema name of a [Plan] in JSON.
const PlanSchema = "curfew.plan/v1"

// Plan is the complete plan shown to an approver, in the provider's terms. It is stored as the JSON
// of a [Request].
type Plan struct {
	Schema string `json:"schema"`
	// Because is the reason in one sentence.
	Because string   `json:"because,omitempty"`
	Changes []Change `json:"changes,omitempty"`
	// Costs are the costs that the plan adds or ends, with units.
	Costs []Cost `json:"costs,omitempty"`
	// Most is the requested amount; an approval may be for less.
	Most *money.Amount `json:"most_usd,omitempty"`
	// Loses names data that is lost permanently; Undo is full, partial or none.
	Loses string `json:"loses,omitempty"`
	Undo  string `json:"undo,omitempty"`
	// Notes are further remarks.
	Notes []string `json:"notes,omitempty"`
}

// Change is the change to one resource.
type Change struct {
	Resource string `json:"resource"`
	Verb     string `json:"verb"`
	// Calls are the calls in order.
	Calls []Call `json:"calls"`
	// Commands are equivalent manual commands.
	Commands []string `json:"commands,omitempty"`
}

// Call is one call to the provider. Document replaces Before; both are in the provider's format.
type Call struct {
	Name     string `json:"name"`
	Document string `json:"document,omitempty"`
	Before   string `json:"before,omitempty"`
}

// Cost is one amount with its unit.
type Cost struct {
	What   string        `json:"what"`
	Amount *money.Amount `json:"amount_usd"`
	// Unit is "an hour", "a month", "in all".
	Unit string `json:"unit"`
}

// AmountUnit is the unit of a request's amount.
func (r Request) AmountUnit() string {
	switch r.Kind {
	case "fix":
		return "an hour"
	case "terraform":
		return "a month"
	}
	return "in all"
}

// Shown returns the plan of a request; ok is false if no readable plan is stored.
func (r Request) Shown() (p Plan, ok bool) {
	err := json.Unmarshal([]byte(r.Plan), &p)
	return p, err == nil && p.Schema == PlanSchema
}

// Lines formats the plan for people: every resource with its calls, the diff of each document,
// commands, dollars, lost data and the degree of undo.
func (p Plan) Lines() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if p.Because != "" {
		add("because: %s", p.Because)
	}
	for _, c := range p.Changes {
		add("%s %s", c.Verb, c.Resource)
		for _, call := range c.Calls {
			add("  call: %s", call.Name)
			for _, line := range Diff(call.Before, call.Document) {
				add("    %s", line)
			}
		}
		for _, cmd := range c.Commands {
			add("  "+byHand+"%s", cmd)
		}
	}
	for _, c := range p.Costs {
		amount := "not known"
		if c.Amount != nil {
			amount = c.Amount.Exact()
		}
		add("%s: %s %s", c.What, amount, c.Unit)
	}
	if p.Loses != "" {
		add("loses: %s", p.Loses)
	}
	if p.Undo != "" {
		add("undo: %s", p.Undo)
	}
	for _, n := range p.Notes {
		add("note: %s", n)
	}
	return out
}

// maxDiff is the maximum length of documents to compare line by line.
const maxDiff = 2000

// Diff returns the line-by-line differences between two documents: " " for equal lines, "-" for
// removed and "+" for added ones. JSON is compared with one value per line. Documents that are too
// long are listed as completely removed and added.
func Diff(before, after string) []string {
	a, b := lines(before), lines(after)
	if len(a)*len(b) > maxDiff*maxDiff {
		return append(marked("- ", a), marked("+ ", b)...)
	}
	// common[i][j] is the length of the longest common part of a[i:] and b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}

func marked(mark string, text []string) (out []string) {
	for _, line := range text {
		out = append(out, mark+line)
	}
	return out
}

// lines splits a document; JSON is indented first, and an empty document has no lines.
func lines(document string) []string {
	document = strings.TrimSpace(document)
	if document == "" || document == "{}" || document == "null" {
		return nil
	}
	var pretty bytes.Buffer
	if json.Indent(&pretty, []byte(document), "", "  ") == nil {
		document = pretty.String()
	}
	return strings.Split(document, "\n")
}

// byHand is the prefix of a plan's line with a manual command.
const byHand = "by hand: "

// IsCommand reports whether a line of [Plan.Lines] is a manual command, to be copied as a whole.
func IsCommand(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " "), byHand) }
