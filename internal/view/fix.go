package view

import (
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// FixSchema names the shape of a [Fixes].
const FixSchema = "curfew.fix/v1"

// Fixes are the fixes of findings: as a preview, or after a pass.
type Fixes struct {
	Schema string `json:"schema"`
	// DryRun reports whether nothing was changed.
	DryRun bool  `json:"dry_run"`
	Fixes  []Fix `json:"fixes"`
	// Passes are the passes of a demonstration, in simulated time.
	Passes []FixPass `json:"passes,omitempty"`
	// Lines are the decisions of the pass; none in a preview.
	Lines []Line `json:"lines"`
	// NextAt is when to run again.
	NextAt *time.Time `json:"next_at"`
	// ApprovalsAsked are the requests for approval that wait while grace periods run.
	ApprovalsAsked []string `json:"approvals_asked"`
	// BlindSpots are the sources that could not be read, each with its effect.
	BlindSpots []inventory.BlindSpot `json:"blind_spots"`
}

// FixPass is one pass of a demonstration.
type FixPass struct {
	At    time.Time `json:"at"`
	Lines []Line    `json:"lines"`
}

// Fix is one fix.
type Fix struct {
	Finding Finding `json:"finding"`
	// ScannedAt is when the finding was made.
	ScannedAt time.Time `json:"scanned_at"`
	Account   string    `json:"account"`
	Region    string    `json:"region"`
	Change    FixChange `json:"change"`
	// ByHand contains the commands of Change for older readers.
	ByHand []string `json:"by_hand"`
	// Loses names the data that is lost.
	Loses string `json:"loses"`
	// Undo is how far it can be undone: full, partial or none.
	Undo finding.Undo `json:"undo"`
	// NeedsApproval reports whether an approver has to decide.
	NeedsApproval bool      `json:"needs_approval"`
	Refusals      []Refusal `json:"refusals"`
	State         FixState  `json:"state"`
	// ApprovalID is the id of the request.
	ApprovalID string `json:"approval_id,omitempty"`
	// Item is the id of the action; fix --undo takes it.
	Item string `json:"item,omitempty"`
	// NextAt is when to run again.
	NextAt *time.Time `json:"next_at"`
}

// FixChange is one change as it was priced, is approved, is sent and is read back, with the
// commands that do it by hand; no commands if a person has to decide more than they can express.
type FixChange struct {
	change.Change
	Commands []string `json:"commands"`
}

// Refusal is a rule that forbids a fix.
type Refusal struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
	// Unblock is the option of `curfew fix` that lifts all refusals; absent if no option does.
	Unblock string `json:"unblock,omitempty"`
}

// The rules of fixes that only people carry out: that of documents, and that of clouds.
const (
	ByHandRule   = "by-hand"
	noSuchAction = "no-such-verb"
)

// ByPeople reports whether a cloud refused a line because only people carry it out.
func ByPeople(l action.Line) bool { return l.Rule == noSuchAction }

// FixState is the state of a fix.
type FixState string

// The states of fixes.
const (
	FixPreview   FixState = "preview"
	FixAsked     FixState = "asked" // for an approval
	FixWaiting   FixState = "waiting"
	FixConfirmed FixState = "confirmed"
	FixRefused   FixState = "refused"
	FixFailed    FixState = "failed"
	FixChanged   FixState = "changed" // since it was shown
	FixGone      FixState = "gone"
	FixUnread    FixState = "unread"
)

// NewFix makes the preview of the fix of a finding, with the commands that do it by hand.
func NewFix(f Finding, scanned time.Time, commands []string) Fix {
	commands = append([]string{}, commands...)
	return Fix{Finding: f, ScannedAt: scanned.UTC(), Account: f.Resource.Account, Region: f.Resource.Region,
		Change: FixChange{f.Fix.Change, commands}, ByHand: commands, Loses: f.Fix.Note,
		Undo: f.Fix.Undo, State: FixPreview,
		Refusals:      []Refusal{},
		NeedsApproval: NeedsApproval(f)}
}

// NeedsApproval reports whether the fix of a finding needs a second person.
func NeedsApproval(f Finding) bool {
	do, carried := policy.FromChange(f.Fix.Change)
	return carried && action.NeedsApproval(action.Proposal{Do: do, ByPerson: true,
		Resource: &inventory.Resource{
			Kind: inventory.Kind(f.Resource.Kind), Lifetime: inventory.Lifetime(f.Resource.Lifetime),
		}})
}

// ByHandWhy returns the reason why a person must carry out the fix of a finding.
func ByHandWhy(finding string) string {
	return "only a person carries this fix out; `curfew fix " + finding[:min(8, len(finding))] + "` shows the commands"
}

// After adds the outcome of a fix in a pass. missed holds the lines of findings that no longer
// hold; request is the id of the requested approval, if any.
func (d *Fix) After(out *round.Result, request string, missed []Line) {
	source := round.FindingSource(d.Finding.ID)
	asks := func(q round.Request) bool { return q.Finding == d.Finding.ID }
	for _, l := range missed {
		if l.Policy == source {
			d.State, d.Item = FixConfirmed, l.Item // before
			switch round.MissingReason(l.Result) {
			case round.Gone:
				d.State = FixGone
			case round.Changed:
				d.State = FixChanged
			case round.Unread:
				d.State = FixUnread
			}
		}
	}
	d.ApprovalID = request
	switch {
	case slices.ContainsFunc(out.ChangedRequests, asks):
		d.State = FixChanged
	case slices.ContainsFunc(out.ManualRequests, asks):
		d.refuse(ByHandRule, ByHandWhy(d.Finding.ID))
	}
	for _, l := range out.Lines() {
		if l.Source != source || d.State == FixChanged && l.Result == action.ResultWithdrawn {
			continue
		}
		d.Item, d.NextAt = l.Item, optionalTime(l.NextAt)
		switch l.Result {
		case action.ResultConfirmed:
			d.State = FixConfirmed
		case action.ResultFailed:
			d.State = FixFailed
		case action.ResultWithdrawn:
			d.State = FixChanged
		case action.ResultRefused:
			switch {
			case l.Rule == action.RuleUnapproved && request != "":
				d.State = FixAsked
			case l.Rule == "changed":
				d.State = FixChanged
				fallthrough
			default:
				d.refuse(l.Rule, strings.TrimPrefix(l.Why, l.Rule+": "))
			}
		default:
			d.State = FixWaiting
		}
	}
}

func (d *Fix) refuse(rule, why string) {
	d.Refusals = append(d.Refusals, Refusal{Rule: rule, Why: why})
	if d.State != FixChanged {
		d.State = FixRefused
	}
}

// NewFixPreview makes the document of a dry run.
func NewFixPreview(fixes []Fix) Fixes {
	return Fixes{
		Schema: FixSchema, DryRun: true, Fixes: fixes, Lines: []Line{}, ApprovalsAsked: []string{},
		BlindSpots: []inventory.BlindSpot{},
	}
}

// NewFixes makes the document of a pass that carries fixes out. Missed are the lines of
// findings that no longer hold, asked the requests that wait while grace periods run.
func NewFixes(fixes []Fix, out *round.Result, missed []Line, asked []string) Fixes {
	d := Fixes{
		Schema: FixSchema, Fixes: fixes, Lines: []Line{}, ApprovalsAsked: append([]string{}, asked...),
		BlindSpots: append([]inventory.BlindSpot{}, out.BlindSpots...),
	}
	var next time.Time
	for _, r := range out.Reports {
		for _, l := range r.Lines {
			v := NewLine(l)
			if ByPeople(l) {
				v.Result, v.Why = ByHandRule, ByHandWhy(strings.TrimPrefix(l.Source, round.FindingSource("")))
			}
			d.Lines = append(d.Lines, v)
		}
		if next.IsZero() || (!r.NextAt.IsZero() && r.NextAt.Before(next)) {
			next = r.NextAt
		}
	}
	d.NextAt = optionalTime(next)
	reported := func(w round.Request) bool {
		return slices.ContainsFunc(d.Lines, func(l Line) bool {
			return l.Policy == round.FindingSource(w.Finding) && l.Result != string(action.ResultWithdrawn)
		})
	}
	for _, w := range out.ChangedRequests {
		if !reported(w) {
			d.Lines = append(d.Lines, Line{
				Resource: w.Resource.String(), Policy: round.FindingSource(w.Finding), Result: string(FixChanged),
				Why: "its fix differs from the one of the last scan; run `curfew scan`, then `curfew fix " +
					w.Finding[:min(8, len(w.Finding))] + "` again"})
		}
	}
	d.Lines = append(d.Lines, missed...)
	for _, w := range out.ManualRequests {
		d.Lines = append(d.Lines, Line{
			Resource: w.Resource.String(), Policy: round.FindingSource(w.Finding), Result: ByHandRule,
			Why: ByHandWhy(w.Finding),
		})
	}
	return d
}

// UndoSchema names the shape of an [Undo].
const UndoSchema = "curfew.undo/v1"

// Undo is a change that was or would be reverted. The first of the lines is also in the document
// itself, for older readers.
type Undo struct {
	Schema string `json:"schema"`
	// DryRun reports whether nothing was changed.
	DryRun bool `json:"dry_run"`
	UndoLine
	Lines []UndoLine `json:"lines"`
}

// UndoLine is one action that was or would be reverted.
type UndoLine struct {
	Line
	// Steps are the calls that were made, newest first, which is the order of the undo.
	Steps []UndoStep `json:"steps"`
	// KeptUntil is the end of the exemption from policies after the undo, as by a keep.
	KeptUntil *time.Time `json:"kept_until,omitempty"`
}

// UndoStep is a call with the state before it, as the provider returned it.
type UndoStep struct {
	Name string `json:"name"`
	// Params are the arguments of the undo.
	Params string `json:"params,omitempty"`
	// Before is the earlier value.
	Before string `json:"before,omitempty"`
}

// NewUndoLine makes the line of an item.
func NewUndoLine(l action.Line, it action.Item) UndoLine {
	u := UndoLine{Line: NewLine(l), Steps: []UndoStep{}}
	if !l.KeptUntil.IsZero() {
		until := l.KeptUntil.UTC()
		u.KeptUntil = &until
	}
	for _, st := range slices.Backward(it.Steps) {
		if !st.ConfirmedAt.IsZero() {
			u.Steps = append(u.Steps, UndoStep{Name: st.Name, Params: st.Params, Before: st.Undo})
		}
	}
	return u
}

// NewUndo makes the document of at least one line.
func NewUndo(lines []UndoLine, dryRun bool) Undo { return Undo{UndoSchema, dryRun, lines[0], lines} }
