package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// fixDoc is a fix in curfew.fix/v1.
type fixDoc struct {
	Finding   view.Finding `json:"finding"`
	ScannedAt time.Time    `json:"scanned_at"`
	Account   string       `json:"account"`
	Region    string       `json:"region"`
	Change    changeDoc    `json:"change"`
	// ByHand are the commands of Change; older readers look for them here.
	ByHand        []string     `json:"by_hand"`
	Loses         string       `json:"loses"`
	Undo          finding.Undo `json:"undo"`
	NeedsApproval bool         `json:"needs_approval"`
	Refusals      []refusalDoc `json:"refusals"`
	State         fixState     `json:"state"`
	ApprovalID    string       `json:"approval_id,omitempty"`
	Item          string       `json:"item,omitempty"`
	NextAt        *time.Time   `json:"next_at"`
}

// changeDoc is what was priced, is approved, is sent, and is read back, with the commands
// that do it by hand; none where a person has to decide more than a command can say.
type changeDoc struct {
	change.Change
	Commands []string `json:"commands"`
}

// refusalDoc is a rule that forbids a fix.
type refusalDoc struct {
	Rule string `json:"rule"`
	Why  string `json:"why"`
}

// byHandRule says that only people carry a fix out.
const byHandRule = "by-hand"

// fixState is where a fix stands.
type fixState string

const (
	fixPreview   fixState = "preview"
	fixAsked     fixState = "asked" // for an approval
	fixWaiting   fixState = "waiting"
	fixConfirmed fixState = "confirmed"
	fixRefused   fixState = "refused"
	fixFailed    fixState = "failed"
	fixChanged   fixState = "changed" // since it was shown
	fixGone      fixState = "gone"
	fixUnread    fixState = "unread"
)

// fixDocs are chosen fixes after a pass; without one they are a preview.
func fixDocs(chosen []daemon.Kept, out *round.Result, held *holding, missed []lineView) []fixDoc {
	docs := []fixDoc{}
	for _, s := range chosen {
		commands := append([]string{}, daemon.ByHand(s.Finding)...)
		d := fixDoc{Finding: s.Finding, ScannedAt: s.Scanned.UTC(), Account: s.Resource.Account, Region: s.Resource.Region,
			Change: changeDoc{s.Fix.Change, commands}, ByHand: commands, Loses: s.Fix.Note, Undo: s.Fix.Undo, State: fixPreview, Refusals: []refusalDoc{},
			NeedsApproval: needsApproval(s.Finding)}
		if out != nil {
			d.after(out, held, missed)
		}
		docs = append(docs, d)
	}
	return docs
}

// foreseen are the refusals of a fix that the last scan already shows. What a machine does,
// who keeps it, and what its provider answers is asked when the fix is carried out.
func foreseen(f view.Finding, kept []view.Inventory, cfg config.Config, flags fixFlags, now time.Time) []refusalDoc {
	do, carried := policy.Of(f.Fix.Change)
	if !carried || f.Resource.Cloud != "aws" {
		return []refusalDoc{{byHandRule, "only a person carries this fix out"}}
	}
	do.ScratchDisks, do.SaveDisks = do.ScratchDisks || flags.scratch, do.SaveDisks || flags.save
	does := duty.Verdict{State: duty.Idle, Until: now, Expires: now.Add(time.Hour)}
	if kind := inventory.Kind(f.Resource.Kind); f.Confidence == finding.Low && (kind == inventory.KindEndpoint || kind == inventory.KindNotebook) {
		does = duty.Verdict{Why: "the evidence is weak: " + f.Because}
	}
	for i := range kept {
		at := slices.IndexFunc(kept[i].Resources, func(k view.KeptResource) bool { return k.Ref == daemon.RefOf(f.Resource) })
		if at < 0 {
			continue
		}
		listed := kept[i].Resources[at].Priced(cfg.Tags)
		if refusal := action.Refuse(action.Proposal{Source: round.FindingSource(f.ID), Resource: listed.Resource, Do: do, Mode: policy.Enforce, Governed: true, ByPerson: true,
			Condition: usage.True, ReadAt: now, Class: "finding", Grace: time.Minute, Duty: &does, Hourly: listed.Hourly}, action.Item{}, now, nil); refusal != nil {
			return []refusalDoc{{refusal.Rule, refusal.Why}}
		}
	}
	return []refusalDoc{}
}

// needsApproval says whether a finding's fix needs a second person.
func needsApproval(f view.Finding) bool {
	do, carried := policy.Of(f.Fix.Change)
	return carried && action.NeedsApproval(action.Proposal{Do: do, ByPerson: true,
		Resource: &inventory.Resource{Kind: inventory.Kind(f.Resource.Kind), Lifetime: inventory.Lifetime(f.Resource.Lifetime)}})
}

// after says what became of a fix in a pass; missed are those whose findings do not hold.
func (d *fixDoc) after(out *round.Result, held *holding, missed []lineView) {
	asks := func(q round.Request) bool { return q.Finding == d.Finding.ID }
	for _, l := range missed {
		if l.Policy == round.FindingSource(d.Finding.ID) {
			d.State, d.Item = fixConfirmed, l.Item // before
			switch round.Missing(l.Result) {
			case round.Gone:
				d.State = fixGone
			case round.Changed:
				d.State = fixChanged
			case round.Unread:
				d.State = fixUnread
			}
		}
	}
	d.ApprovalID = held.of[d.Finding.ID]
	switch {
	case slices.ContainsFunc(out.Changed, asks):
		d.State = fixChanged
	case slices.ContainsFunc(out.Manual, asks):
		d.refuse(byHandRule, byHandWhy(d.Finding.ID))
	}
	for _, l := range out.Lines() {
		if l.Source != round.FindingSource(d.Finding.ID) || d.State == fixChanged && l.Result == action.ResultWithdrawn {
			continue
		}
		d.Item, d.NextAt = l.Item, optionalTime(l.NextAt)
		switch l.Result {
		case action.ResultConfirmed:
			d.State = fixConfirmed
		case action.ResultFailed:
			d.State = fixFailed
		case action.ResultWithdrawn:
			d.State = fixChanged
		case action.ResultRefused:
			id := held.of[d.Finding.ID]
			switch {
			case l.Rule == "unapproved" && id != "":
				d.State = fixAsked
			case l.Rule == "changed":
				d.State = fixChanged
				fallthrough
			default:
				d.refuse(l.Rule, strings.TrimPrefix(l.Why, l.Rule+": "))
			}
		default:
			d.State = fixWaiting
		}
	}
}

func (d *fixDoc) refuse(rule, why string) {
	d.Refusals = append(d.Refusals, refusalDoc{rule, why})
	if d.State != fixChanged {
		d.State = fixRefused
	}
}
