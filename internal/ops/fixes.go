package ops

import (
	"context"
	"fmt"

	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/view"
)

// FixOptions are for the command line only: the account of a finding, and the pull request whose
// reviews approve.
type FixOptions struct {
	Source clouds.Source
	GitHub bool
}

// source returns the account; by default that of the service's credentials.
func (o FixOptions) source() clouds.Source {
	if o.Source.Cloud == "" {
		o.Source.Cloud = "aws"
	}
	return o.Source
}

// PreviewFixInput selects a fix.
type PreviewFixInput struct {
	ByID
	Scratch bool `query:"scratch_disks" doc:"The disks that are lost hold nothing that matters."`
	Save    bool `query:"save_disks" doc:"Disks that are deleted with the machine are saved before."`
	FixOptions
}

// PreviewFix shows the fix of one finding.
var PreviewFix = declare(Operation[PreviewFixInput, view.Fixes]{
	Info: Info{ID: "preview-fix", Method: get, Path: "findings/{id}/fix", Role: approval.RoleViewer, Scoped: true,
		Summary: "Preview the fix of one finding", Schema: view.FixSchema},
	Do: func(ctx context.Context, c *Call, in PreviewFixInput) (Reply[view.Fixes], error) {
		o := act.FixOptions{Source: in.source(), Scratch: in.Scratch, Save: in.Save, GitHub: in.GitHub}
		fixes, err := act.FixPreviews(ctx, c.Request, []string{in.ID}, o)
		if err != nil {
			return Reply[view.Fixes]{}, err
		}
		if !c.Sees(approval.RoleViewer, fixes[0].Finding.Resource.Owner.Team) {
			return Reply[view.Fixes]{}, missing("finding", in.ID)
		}
		return reply(view.NewFixPreview(fixes), nil)
	},
})

// Fixing configures how fixes are carried out.
type Fixing struct {
	Grace   string `json:"grace" minLength:"1" maxLength:"20" example:"30m" doc:"How long nothing happens after the owner was warned: 30m."`
	Scratch bool   `json:"scratch_disks,omitempty" doc:"The disks that are lost hold nothing that matters."`
	Save    bool   `json:"save_disks,omitempty" doc:"Disks that are deleted with the machine are saved before."`
}

// FixFindingInput is the fix of one finding.
type FixFindingInput struct {
	ByID
	Body Fixing
}

// FixFinding advances the fix of one finding by a step of the safety ladder.
var FixFinding = declare(Operation[FixFindingInput, view.Fixes]{
	Info: Info{ID: "fix-finding", Method: post, Path: "findings/{id}/fix", Role: approval.RoleOperator, Scoped: true,
		Summary: "Take the fix of a finding one step up the safety ladder", Schema: view.FixSchema},
	Do: func(ctx context.Context, c *Call, in FixFindingInput) (Reply[view.Fixes], error) {
		return c.fix(ctx, []string{in.ID}, in.Body, FixOptions{})
	},
})

// FixFindingsInput are the fixes of several findings.
type FixFindingsInput struct {
	Body struct {
		IDs []string `json:"ids" minItems:"1" maxItems:"100" nullable:"false" example:"[\"9c6e1d2f\"]" doc:"The findings, by their ids or the beginnings of them."`
		Fixing
	}
	FixOptions
}

// FixFindings advances the fixes of several findings by a step of the safety ladder.
var FixFindings = declare(Operation[FixFindingsInput, view.Fixes]{
	Info: Info{ID: "fix-findings", Method: post, Path: "findings/fix", Role: approval.RoleOperator, Scoped: true,
		Summary: "Take the fixes of several findings one step up the safety ladder, in one pass",
		Schema:  view.FixSchema,
		Command: "fix", Why: "findings are kept in the state, and the ladder is",
		Flags: map[string]Location{
			"regions": ByState, "assume-role": ByState, "profile": ByState, "demo": ByState, "cloud": ByState,
			"github": ByState, "usage": ByState, "metrics-source": ByState, "map": ByState, "step": ByState,
			"resource": ByState, "tz": ByState,
		}},
	Do: func(ctx context.Context, c *Call, in FixFindingsInput) (Reply[view.Fixes], error) {
		return c.fix(ctx, in.Body.IDs, in.Body.Fixing, in.FixOptions)
	},
})

// fix executes fixes, provided that the caller has the role for the team of each finding.
func (c *Call) fix(ctx context.Context, ids []string, f Fixing, o FixOptions) (r Reply[view.Fixes], err error) {
	fix := act.FixOptions{Source: o.source(), Scratch: f.Scratch, Save: f.Save, GitHub: o.GitHub}
	if _, all := c.Teams(approval.RoleOperator); !all {
		previews, err := act.FixPreviews(ctx, c.Request, ids, fix)
		if err != nil {
			return r, err
		}
		for _, p := range previews {
			if !c.Sees(approval.RoleOperator, p.Finding.Resource.Owner.Team) {
				return r, missing("finding", p.Finding.ID)
			}
		}
	}
	if fix.Grace, err = config.ParseDuration(f.Grace); err != nil || fix.Grace < 0 {
		return r, usage(fmt.Errorf("grace %q is a duration such as 30m", f.Grace))
	}
	err = act.Fix(ctx, c.Request, ids, fix, func(doc view.Fixes) error { r.Doc = doc; return nil })
	r.Partial = r.Doc.Schema != ""
	return r, err
}

// UndoActionInput is the undo of one action.
type UndoActionInput struct {
	ByID
	Body struct {
		Enforce bool   `json:"enforce,omitempty" doc:"Carry it out; without it, it is only rehearsed."`
		Keep    string `json:"keep,omitempty" example:"24h" doc:"How long policies leave the resource alone; 24h without it, 0 is not at all."`
	}
}

// UndoAction reverts one action.
var UndoAction = declare(Operation[UndoActionInput, view.Undo]{
	Info: Info{ID: "undo-action", Method: post, Path: "actions/{id}/undo", Role: approval.RoleOperator,
		Summary: "Take back what an action did", Schema: view.UndoSchema},
	Do: func(ctx context.Context, c *Call, in UndoActionInput) (Reply[view.Undo], error) {
		return c.undo(ctx, []string{in.ID}, FixOptions{}, in.Body.Keep, in.Body.Enforce)
	},
})

// UndoActionsInput is the undo of several actions.
type UndoActionsInput struct {
	Body struct {
		IDs     []string `json:"ids" minItems:"1" maxItems:"100" nullable:"false" example:"[\"4f1c2a9b\"]" doc:"The actions, by their ids."`
		Enforce bool     `json:"enforce,omitempty" doc:"Carry it out; without it, it is only rehearsed."`
		Keep    string   `json:"keep,omitempty" example:"24h" doc:"How long policies leave the resources alone; 24h without it, 0 is not at all."`
	}
	FixOptions
}

// UndoActions reverts several actions.
var UndoActions = declare(Operation[UndoActionsInput, view.Undo]{
	Info: Info{ID: "undo-actions", Method: post, Path: "actions/undo", Role: approval.RoleOperator,
		Summary: "Take back what several actions did", Schema: view.UndoSchema},
	Do: func(ctx context.Context, c *Call, in UndoActionsInput) (Reply[view.Undo], error) {
		return c.undo(ctx, in.Body.IDs, in.FixOptions, in.Body.Keep, in.Body.Enforce)
	},
})

func (c *Call) undo(ctx context.Context, ids []string, o FixOptions, keep string, enforce bool) (r Reply[view.Undo],
	err error) {
	length := act.DefaultUndoKeep
	if keep != "" {
		if length, err = config.ParseDuration(keep); err != nil || length < 0 {
			return r, usage(fmt.Errorf("keep %q is a duration such as 24h, or 0", keep))
		}
	}
	err = act.Undo(ctx, c.Request, ids, o.source(), length, enforce, func(doc view.Undo) error {
		r.Doc = doc
		return nil
	})
	r.Partial = r.Doc.Schema != ""
	return r, err
}
