package view

import (
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// EnforceSchema names the shape of an [Enforce].
const EnforceSchema = "curfew.enforce/v1"

// Enforce is one pass of the policies.
type Enforce struct {
	Schema string `json:"schema"`
	// DryRun reports whether nothing was changed.
	DryRun    bool     `json:"dry_run"`
	Accounts  []string `json:"accounts"`
	Resources int      `json:"resources"`
	// Frozen is the freeze; absent if there is none.
	Frozen   *action.Freeze `json:"frozen,omitempty"`
	Policies []PolicyCount  `json:"policies"`
	Lines    []Line         `json:"lines"`
	// NextAt is when to run again.
	NextAt *time.Time `json:"next_at"`
	// BlindSpots are the sources that could not be read, each with its effect.
	BlindSpots []inventory.BlindSpot `json:"blind_spots"`
}

// Line is the decision of a pass about one resource.
type Line struct {
	// Item is the id of the action; fix --undo takes it.
	Item     string `json:"item,omitempty"`
	Resource string `json:"resource"`
	// Name, Type and Owner are the resource's, where the pass read it.
	Name   string `json:"name,omitempty"`
	Type   string `json:"type,omitempty"`
	Owner  string `json:"owner,omitempty"` // "vision/ana"
	Policy string `json:"policy"`
	Verb   string `json:"verb"`
	Result string `json:"result"`
	Why    string `json:"why"`
	// Rule is the rule that refused, Cap the cap that was reached.
	Rule string `json:"rule,omitempty"`
	Cap  string `json:"cap,omitempty"`
	// DueAt is when it is due.
	DueAt *time.Time `json:"due_at"`
}

// PolicyCount counts the decisions of one policy.
type PolicyCount struct {
	round.PolicyCount
	// Fuse is the fuse that has blown.
	Fuse *Fuse `json:"fuse"`
}

// Fuse is a fuse that a pass found blown.
type Fuse struct {
	Account string    `json:"account"`
	At      time.Time `json:"at"`
	// Due is the number of due actions.
	Due int `json:"due"`
	// Selected is how many resources that the policy selects.
	Selected int    `json:"selected"`
	Why      string `json:"why"`
}

// NewEnforce makes the document of a pass.
func NewEnforce(p *round.Result, dryRun bool) Enforce {
	v := Enforce{Schema: EnforceSchema, DryRun: dryRun, Accounts: p.Accounts, Resources: len(p.Resources),
		Policies: []PolicyCount{}, Lines: []Line{}, NextAt: optionalTime(p.NextAt()),
		BlindSpots: append([]inventory.BlindSpot{}, p.BlindSpots...)}
	if z := p.Freeze(); z != nil {
		v.Frozen = &action.Freeze{By: z.By, Reason: z.Reason, At: z.At.UTC()}
	}
	for _, c := range p.Counts {
		f := c.Fuse
		c.Fuse = nil
		n := PolicyCount{PolicyCount: c}
		if f != nil {
			n.Fuse = &Fuse{f.Account, f.At.UTC(), f.Due, f.Selected, f.String()}
		}
		v.Policies = append(v.Policies, n)
	}
	byRef := map[inventory.Ref]*inventory.Resource{}
	for _, r := range p.Resources {
		byRef[r.Ref()] = r
	}
	for _, l := range p.Lines() {
		line := NewLine(l)
		if r := byRef[l.Resource]; r != nil {
			line.Name, line.Type, line.Owner = r.Name, r.Type, strings.Trim(r.Owner.Team+"/"+r.Owner.User, "/")
		}
		v.Lines = append(v.Lines, line)
	}
	return v
}

// NewLine makes the line of a decision of the ladder.
func NewLine(l action.Line) Line {
	return Line{Item: l.Item, Resource: l.Resource.String(), Policy: l.Source, Verb: string(l.Verb),
		Result: string(l.Result), Why: l.Why, Rule: l.Rule, Cap: l.Cap, DueAt: optionalTime(l.DueAt)}
}
