package ops

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/view"
)

// PoliciesInput selects what policies are checked against.
type PoliciesInput struct {
	Against string `query:"against" enum:"last" doc:"Count what each policy selects and could act on in the last scan." flag:"against" help:"count what policies could act on in the <last> scan"`
	// Files are policy files of this machine; by default those of the configuration.
	Files []string
}

// CheckPolicies validates policies.
var CheckPolicies = declare(Operation[PoliciesInput, view.PolicyCheck]{
	Info: Info{ID: "list-policies", Method: get, Path: "policies", Role: approval.RoleViewer,
		Summary: "List the policies of the configuration, with warnings",
		Schema:  view.PolicyCheckSchema},
	Do: func(ctx context.Context, c *Call, in PoliciesInput) (Reply[view.PolicyCheck], error) {
		return reply(govern.PolicyCheck(ctx, c.Request, in.Files, in.Against))
	},
})

// ListActions lists actions, newest first.
var ListActions = declare(Operation[Paging, view.Actions]{
	Info: Info{ID: "list-actions", Method: get, Path: "actions", Role: approval.RoleViewer,
		Summary: "List actions, the newest first", Schema: view.ActionsSchema},
	List: joined(func(d *view.Actions) *[]view.Action { return &d.Actions }),
	Do: func(ctx context.Context, c *Call, in Paging) (r Reply[view.Actions], err error) {
		before, err := in.after()
		if err != nil {
			return r, err
		}
		limit := cmp.Or(in.Limit, math.MaxInt32-1)
		if r.Doc, err = audit.Actions(ctx, c.Request, before, limit+1); err == nil && len(r.Doc.Actions) > limit {
			r.Doc.Actions = r.Doc.Actions[:limit]
			r.Next = cursor(r.Doc.Actions[limit-1].ID)
		}
		return r, err
	},
})

// GetAction shows one action.
var GetAction = declare(Operation[ByID, view.OneAction]{
	Info: Info{ID: "get-action", Method: get, Path: "actions/{id}", Role: approval.RoleViewer,
		Summary: "Show one action", Schema: view.ActionSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.OneAction], error) {
		return reply(audit.Action(ctx, c.Request, in.ID))
	},
})

// ActionHistoryInput is a page of one action's audit entries.
type ActionHistoryInput struct {
	ByID
	Paging
}

// GetActionHistory shows the audit entries of one action.
var GetActionHistory = declare(Operation[ActionHistoryInput, view.Audit]{
	Info: Info{ID: "get-action-history", Method: get, Path: "actions/{id}/history", Role: approval.RoleViewer,
		Summary: "Show what the audit log says about one action", Schema: view.AuditSchema},
	List: joined(func(d *view.Audit) *[]view.AuditEntry { return &d.Entries }),
	Do: func(ctx context.Context, c *Call, in ActionHistoryInput) (Reply[view.Audit], error) {
		it, err := audit.Action(ctx, c.Request, in.ID)
		if err != nil {
			return Reply[view.Audit]{}, err
		}
		return c.entries(ctx, in.Paging, action.Query{Item: it.ID})
	},
})

// AuditInput selects audit entries.
type AuditInput struct {
	Paging
	Actor    string    `query:"actor" maxLength:"200" flag:"actor" help:"who did it"`
	What     string    `query:"what" maxLength:"40" doc:"What happened: warned, intent, outcome, keep." flag:"what" help:"what happened: warned, intent, outcome, refused, keep, freeze, …"`
	Resource string    `query:"resource" maxLength:"600" doc:"A part of the resource's identity." flag:"resource" help:"a part of the resource's identity"`
	Item     string    `query:"item" maxLength:"100" doc:"One way up the ladder, by its id." flag:"item" help:"one way up the ladder, by its id"`
	Newest   int       `query:"newest" minimum:"0" maximum:"1000000" doc:"Only the newest so many; 0 is all." flag:"limit" help:"the newest this many (default: all)"`
	Since    time.Time `query:"since" doc:"From then on."`
	Until    time.Time `query:"until" doc:"Before then."`
}

// ListAudit reads the audit log, oldest entry first.
var ListAudit = declare(Operation[AuditInput, view.Audit]{
	Info: Info{ID: "list-audit", Method: get, Path: "audit", Role: approval.RoleViewer,
		Summary: "Read the audit log, oldest first", Schema: view.AuditSchema,
		Command: "audit", Why: "the audit log is in the state",
		Flags: map[string]Location{"anchor": ByState, "profile": ByState}},
	List: joined(func(d *view.Audit) *[]view.AuditEntry { return &d.Entries }),
	Do: func(ctx context.Context, c *Call, in AuditInput) (Reply[view.Audit], error) {
		q := action.Query{
			Actor: in.Actor, What: in.What, Resource: in.Resource, Item: in.Item, Since: in.Since, Until: in.Until,
		}
		if in.Cursor == "" { // a later page begins among them
			q.Limit = in.Newest
		}
		return c.entries(ctx, in.Paging, q)
	},
})

// errFullPage ends reading at the end of a page.
var errFullPage = errors.New("the page is full")

// entries reads a page of the audit log.
func (c *Call) entries(ctx context.Context, p Paging, q action.Query) (r Reply[view.Audit], err error) {
	after, err := p.after()
	if err == nil && after != "" {
		if q.After, err = strconv.ParseInt(after, 10, 64); err != nil || q.After < 0 {
			err = invalidCursor()
		}
	}
	if err != nil {
		return r, err
	}
	r.Doc = view.Audit{Schema: view.AuditSchema, Entries: []view.AuditEntry{}}
	err = govern.Entries(ctx, c.Request, q, func(e view.AuditEntry) error {
		if p.Limit > 0 && len(r.Doc.Entries) == p.Limit {
			r.Next = cursor(strconv.FormatInt(r.Doc.Entries[p.Limit-1].ID, 10))
			return errFullPage
		}
		r.Doc.Entries = append(r.Doc.Entries, e)
		return nil
	})
	if errors.Is(err, errFullPage) {
		err = nil
	}
	return r, err
}

// VerifyInput names an anchor that the audit log must contain.
type VerifyInput struct {
	// Anchor is a file or object of the command line, read with the credentials of Profile.
	Anchor, Profile string
}

// VerifyAudit checks the hash chain of the audit log.
var VerifyAudit = declare(Operation[VerifyInput, view.Verified]{
	Info: Info{ID: "verify-audit", Method: get, Path: "audit/verification", Role: approval.RoleViewer,
		Summary: "Check that no entry of the audit log was changed or taken out", Schema: view.VerifiedSchema},
	Do: func(ctx context.Context, c *Call, in VerifyInput) (Reply[view.Verified], error) {
		return reply(govern.VerifyAudit(ctx, c.Request, in.Anchor, in.Profile))
	},
})

// ListFuses lists the blown fuses.
var ListFuses = declare(Operation[None, view.Fuses]{
	Info: Info{ID: "list-alerts", Method: get, Path: "alerts", Role: approval.RoleViewer,
		Summary: "List the fuses that have blown and wait for a person", Schema: view.FusesSchema},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.Fuses], error) {
		return reply(act.Fuses(ctx, c.Request))
	},
})

// ConfirmInput confirms the fuse of a policy.
type ConfirmInput struct {
	ByID
	Body struct {
		Account string `json:"account,omitempty" maxLength:"200" example:"sim/000000000000" doc:"Only in this account, such as aws/123456789012." flag:"account" help:"only in this <account>, such as aws/123456789012 (default: all where it has blown)"`
		For     string `json:"for,omitempty" maxLength:"40" example:"24h" doc:"How long it counts; without it, this once." flag:"for" help:"how long the fuse is not to blow again: <30d>, or an RFC 3339 time"`
		Reason  string `json:"reason" minLength:"1" maxLength:"1000" example:"demo on Thursday" doc:"Why so much is meant." flag:"reason" help:"why so much is meant, for those who look later"`
	}
}

// ConfirmFuse confirms that the actions due under a policy are intended.
var ConfirmFuse = declare(Operation[ConfirmInput, view.Fuses]{
	Info: Info{ID: "confirm-alert", Method: post, Path: "alerts/{id}/confirm", Role: approval.RoleOperator,
		Summary: "Confirm the actions that a blown fuse of a policy holds back", Schema: view.FusesSchema,
		Command: "confirm", Why: "fuses are in the state"},
	Send: func(_ context.Context, _ *Call, in *ConfirmInput) error {
		return act.CheckConfirm(in.ID, in.Body.Reason)
	},
	Do: func(ctx context.Context, c *Call, in ConfirmInput) (Reply[view.Fuses], error) {
		return reply(act.Confirm(ctx, c.Request, in.ID, in.Body.Account, in.Body.For, in.Body.Reason))
	},
})

// GetFreeze shows whether actions are frozen.
var GetFreeze = declare(Operation[None, view.Freeze]{
	Info: Info{ID: "get-freeze", Method: get, Path: "freezes", Role: approval.RoleViewer,
		Summary: "Show whether all actions are frozen", Schema: view.FreezeSchema},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.Freeze], error) {
		return reply(audit.Frozen(ctx, c.Request))
	},
})

// ReasonInput is the input of operations that need a reason.
type ReasonInput struct {
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1000" example:"demo on Thursday" doc:"Why, for the audit log." flag:"reason" help:"why, for the audit log"`
	}
}

func checkReason(_ context.Context, _ *Call, in *ReasonInput) error {
	return act.CheckReason(in.Body.Reason)
}

// Freeze stops all actions.
var Freeze = declare(Operation[ReasonInput, view.Freeze]{
	Info: Info{ID: "freeze", Method: post, Path: "freezes", Role: approval.RoleOperator,
		Summary: "Stop all actions at once", Schema: view.FreezeSchema,
		Command: "freeze", Why: "the freeze is in the state"},
	Send: checkReason,
	Do: func(ctx context.Context, c *Call, in ReasonInput) (Reply[view.Freeze], error) {
		return reply(act.Freeze(ctx, c.Request, in.Body.Reason, true))
	},
})

// Unfreeze allows actions again.
var Unfreeze = declare(Operation[ReasonInput, view.Freeze]{
	Info: Info{ID: "unfreeze", Method: post, Path: "freezes/lift", Role: approval.RoleOperator,
		Summary: "Allow actions again", Schema: view.FreezeSchema,
		Command: "unfreeze", Why: "the freeze is in the state"},
	Send: checkReason,
	Do: func(ctx context.Context, c *Call, in ReasonInput) (Reply[view.Freeze], error) {
		return reply(act.Freeze(ctx, c.Request, in.Body.Reason, false))
	},
})

// GetState shows the state and its witness.
var GetState = declare(Operation[None, view.State]{
	Info: Info{ID: "get-state", Method: get, Path: "state", Role: approval.RoleViewer,
		Summary: "Show how far the state is, and what its witness knows", Schema: view.StateSchema,
		Command: "state", Why: "it is about the state"},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.State], error) {
		return reply(act.State(ctx, c.Request))
	},
})

// GetDoctorState lists problems of the state and the service.
var GetDoctorState = declare(Operation[None, view.DoctorState]{
	Info: Info{ID: "get-doctor-state", Method: get, Path: "doctor/state", Role: approval.RoleViewer,
		Summary: "List problems of the state and the service, with the next steps", Schema: view.DoctorStateSchema,
		Command: "doctor state", Why: "it is about the state"},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.DoctorState], error) {
		return reply(act.DoctorState(ctx, c.Request))
	},
})

// ListAlerts lists alerts that are still active.
var ListAlerts = declare(Operation[None, view.Alerts]{
	Info: Info{ID: "list-open-alerts", Method: get, Path: "alerts/open", Role: approval.RoleViewer,
		Summary: "List what people were notified of and goes on", Schema: view.AlertsSchema,
		Command: "alerts", Why: "they are in the state"},
	Do: func(ctx context.Context, c *Call, _ None) (Reply[view.Alerts], error) {
		return reply(act.Alerts(ctx, c.Request))
	},
})

// AcceptState lets an older state act again.
var AcceptState = declare(Operation[ReasonInput, view.State]{
	Info: Info{ID: "accept-state", Method: post, Path: "state/accept", Role: approval.RoleOperator,
		Summary: "Let a state act that is older than its witness", Schema: view.StateSchema,
		Command: "state accept", Why: "it is about the state"},
	Send: checkReason,
	Do: func(ctx context.Context, c *Call, in ReasonInput) (Reply[view.State], error) {
		return reply(act.AcceptState(ctx, c.Request, in.Body.Reason))
	},
})
