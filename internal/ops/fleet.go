package ops

import (
	"context"
	"errors"
	"strings"

	"github.com/curfew-dev/curfew/internal/accountplan"
	"github.com/curfew-dev/curfew/internal/app/act"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
)

// None is an empty input.
type None struct{}

// ByID is the path of one item.
type ByID struct {
	ID string `path:"id" minLength:"1" maxLength:"600" doc:"The id of the item, or what its operation takes for it."`
}

// ListInput is a page and the filters of resources and findings.
type ListInput struct {
	Paging
	Account string `query:"account" maxLength:"200" doc:"Only of this account, such as 123456789012."`
	Region  string `query:"region" maxLength:"100"`
	Kind    string `query:"kind" maxLength:"100" doc:"Only of this kind, such as instance."`
	Team    string `query:"team" maxLength:"200" doc:"Only of this owner."`
}

// listing returns the filters, the page and the caller's teams for the state.
func (in ListInput) listing(c *Call) (audit.Listing, error) {
	out := c.visible()
	out.Account, out.Region, out.Kind, out.Limit = in.Account, in.Region, inventory.Kind(in.Kind), in.Limit
	if sees := out.Takes; in.Team != "" {
		out.Teams, out.Takes = []string{in.Team}, func(team string) bool { return team == in.Team && sees(team) }
	}
	var err error
	out.After, err = in.after()
	return out, err
}

// visible returns the listing of the resources that the caller may see.
func (c *Call) visible() audit.Listing {
	out := audit.Listing{Takes: func(team string) bool { return c.Sees(approval.RoleViewer, team) }}
	if teams, all := c.Teams(approval.RoleViewer); !all {
		out.Teams = append([]string{}, teams...)
	}
	return out
}

// checkTeam refuses a resource of another team as if it did not exist.
func (c *Call) checkTeam(ctx context.Context, id, role string) error {
	if _, all := c.Teams(role); all {
		return nil
	}
	team, err := audit.TeamOf(ctx, c.Request, id)
	if err == nil && !c.Sees(role, team) {
		err = missing("resource", id)
	}
	return err
}

// listError explains a cursor that names no item of the list.
func listError(err error) error {
	if errors.Is(err, audit.ErrNotListed) {
		return cursorGone()
	}
	return err
}

// ListAccounts lists the observed accounts.
var ListAccounts = declare(Operation[Paging, view.Accounts]{
	Info: Info{ID: "list-accounts", Method: get, Path: "accounts", Role: approval.RoleViewer,
		Summary: "List the accounts that were observed", Schema: view.AccountsSchema},
	List: listOf(func(d *view.Accounts) *[]view.Account {
		return &d.Accounts
	}, func(a view.Account) string { return a.ID }),
	Do: func(ctx context.Context, c *Call, _ Paging) (Reply[view.Accounts], error) {
		return reply(audit.Accounts(ctx, c.Request))
	},
})

func resourceID(r view.Observed) string { return r.ID }

// ListResources lists the last observation of resources.
var ListResources = declare(Operation[ListInput, view.Fleet]{
	Info: Info{ID: "list-resources", Method: get, Path: "resources", Role: approval.RoleViewer, Scoped: true,
		Summary: "List the resources as they were seen last", Schema: view.ResourcesSchema},
	List: joined(func(d *view.Fleet) *[]view.Observed { return &d.Resources }),
	Do: func(ctx context.Context, c *Call, in ListInput) (Reply[view.Fleet], error) {
		l, err := in.listing(c)
		if err != nil {
			return Reply[view.Fleet]{}, err
		}
		doc, more, err := audit.ListResources(ctx, c.Request, l)
		return Reply[view.Fleet]{Doc: doc, Next: nextOf(doc.Resources, more, resourceID)}, listError(err)
	},
})

// GetResource shows one resource.
var GetResource = declare(Operation[ByID, view.Fleet]{
	Info: Info{ID: "get-resource", Method: get, Path: "resources/{id}", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show one resource, by its id or its whole identity", Schema: view.ResourcesSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.Fleet], error) {
		doc, err := audit.Resource(ctx, c.Request, in.ID, c.visible())
		if err == nil && len(doc.Resources) == 0 {
			err = missing("resource", in.ID)
		}
		return reply(doc, err)
	},
})

// GetResourceHistory shows the intervals of a resource's state and verdict.
var GetResourceHistory = declare(Operation[ByID, view.History]{
	Info: Info{
		ID: "get-resource-history", Method: get, Path: "resources/{id}/history",
		Role: approval.RoleViewer, Scoped: true,
		Summary: "Show how the state and the verdict of one resource changed", Schema: view.HistorySchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.History], error) {
		if err := c.checkTeam(ctx, in.ID, approval.RoleViewer); err != nil {
			return Reply[view.History]{}, err
		}
		return reply(audit.History(ctx, c.Request, in.ID))
	},
})

// KeepInput is an exemption of a resource.
type KeepInput struct {
	ByID
	Body struct {
		For    string `json:"for" minLength:"1" maxLength:"40" example:"24h" doc:"How long: 24h, 7d, or an RFC 3339 time." flag:"for" help:"how long: <24h>, 7d, or an RFC 3339 time"`
		Reason string `json:"reason" minLength:"1" maxLength:"1000" example:"demo on Thursday" doc:"Why, for those who look later." flag:"reason" help:"why, for those who look later"`
	}
	// Source is where the command line looks up a resource that no scan has.
	Source clouds.Source
}

// KeepResource exempts a resource from every policy.
var KeepResource = declare(Operation[KeepInput, view.Keep]{
	Info: Info{ID: "keep-resource", Method: post, Path: "resources/{id}/keep", Role: approval.RoleUser, Scoped: true,
		Summary: "Exempt a resource from every policy, at once", Schema: view.KeepSchema,
		Command: "keep", Why: "exemptions are kept in the state",
		Flags: accountFlags},
	Send: func(_ context.Context, _ *Call, in *KeepInput) error {
		return act.CheckKeep(in.ID, in.Body.For, in.Body.Reason)
	},
	Do: func(ctx context.Context, c *Call, in KeepInput) (Reply[view.Keep], error) {
		if err := c.checkTeam(ctx, in.ID, approval.RoleUser); err != nil {
			return Reply[view.Keep]{}, err
		}
		return reply(act.Exempt(ctx, c.Request, in.Source, in.ID, in.Body.For, in.Body.Reason))
	},
})

// ListKeeps lists the exemptions in force.
var ListKeeps = declare(Operation[Paging, view.Keeps]{
	Info: Info{ID: "list-keeps", Method: get, Path: "keeps", Role: approval.RoleViewer,
		Summary: "List the exemptions that hold", Schema: view.KeepsSchema},
	List: listOf(func(d *view.Keeps) *[]view.Keep { return &d.Keeps }, func(k view.Keep) string { return k.Resource }),
	Do: func(ctx context.Context, c *Call, _ Paging) (Reply[view.Keeps], error) {
		return reply(act.Keeps(ctx, c.Request))
	},
})

// ListFindings lists the findings in force.
var ListFindings = declare(Operation[ListInput, view.Findings]{
	Info: Info{ID: "list-findings", Method: get, Path: "findings", Role: approval.RoleViewer, Scoped: true,
		Summary: "List the findings that hold", Schema: view.FindingsSchema},
	List: joined(func(d *view.Findings) *[]view.DatedFinding { return &d.Findings }),
	Do: func(ctx context.Context, c *Call, in ListInput) (Reply[view.Findings], error) {
		l, err := in.listing(c)
		if err != nil {
			return Reply[view.Findings]{}, err
		}
		doc, more, err := audit.ListFindings(ctx, c.Request, l)
		next := nextOf(doc.Findings, more, func(f view.DatedFinding) string { return f.ID })
		return Reply[view.Findings]{Doc: doc, Next: next}, listError(err)
	},
})

// GetFinding shows one finding.
var GetFinding = declare(Operation[ByID, view.Findings]{
	Info: Info{ID: "get-finding", Method: get, Path: "findings/{id}", Role: approval.RoleViewer, Scoped: true,
		Summary: "Show one finding", Schema: view.FindingsSchema},
	Do: func(ctx context.Context, c *Call, in ByID) (Reply[view.Findings], error) {
		doc, err := audit.Finding(ctx, c.Request, in.ID, c.visible())
		if err == nil && len(doc.Findings) == 0 {
			err = missing("finding", in.ID)
		}
		return reply(doc, err)
	},
})

// LastScanInput selects a stored audit.
type LastScanInput struct {
	Cloud   string `query:"cloud" maxLength:"20" doc:"Only of this cloud: aws, sim, onprem."`
	Samples bool   `query:"samples" doc:"With the samples that pictures are drawn of."`
}

// GetLastScan shows the newest stored audit.
var GetLastScan = declare(Operation[LastScanInput, view.Scan]{
	Info: Info{ID: "get-last-scan", Method: get, Path: "scans/last", Role: approval.RoleViewer,
		Summary: "Show the newest audit that was kept", Schema: view.ScanSchema},
	Do: func(ctx context.Context, c *Call, in LastScanInput) (Reply[view.Scan], error) {
		cfg, err := c.Request.Config()
		if err != nil {
			return Reply[view.Scan]{}, err
		}
		return reply(audit.LastScan(ctx, c.Request, cfg, in.Cloud))
	},
	Public: func(in LastScanInput, doc view.Scan) view.Scan {
		if doc.Profile = ""; !in.Samples {
			doc = doc.Public()
		}
		return doc
	},
})

// AccountPlanInput selects the newest audit.
type AccountPlanInput struct {
	Cloud string `query:"cloud" maxLength:"20" doc:"Of the audit of this cloud: aws, sim, onprem."`
}

// GetAccountPlan shows the plan of the account from the newest stored audit.
var GetAccountPlan = declare(Operation[AccountPlanInput, accountplan.Account]{
	Info: Info{ID: "get-account-plan", Method: get, Path: "plans/account", Role: approval.RoleViewer,
		Summary: "Show the plan of the account by the newest kept audit: all changes in order, and the bill after each",
		Schema:  accountplan.AccountSchema},
	Do: func(ctx context.Context, c *Call, in AccountPlanInput) (Reply[accountplan.Account], error) {
		cfg, err := c.Request.Config()
		if err != nil {
			return Reply[accountplan.Account]{}, err
		}
		scan, err := audit.LastScan(ctx, c.Request, cfg, in.Cloud)
		if err != nil {
			return Reply[accountplan.Account]{}, err
		}
		return reply(audit.KeptPlan(scan))
	},
})

// WhyInput names a figure of the newest stored audit.
type WhyInput struct {
	Figure string `query:"figure" maxLength:"2000" doc:"The id of the figure, or a finding or resource; empty lists the figures."`
	Cloud  string `query:"cloud" maxLength:"20" doc:"Of the audit of this cloud: aws, sim, onprem."`
}

// GetWhy explains a figure of the newest kept audit and its plan, of a budget, of a job or of a bill.
var GetWhy = declare(Operation[WhyInput, view.Why]{
	Info: Info{ID: "get-why", Method: get, Path: "why", Role: approval.RoleViewer,
		Summary: "Explain a figure of the newest audit, its plan, a budget, a job or a bill: its terms, prices and omissions",
		Schema:  view.WhySchema,
		Command: "why", Why: "it reads the newest kept audit"},
	Do: func(ctx context.Context, c *Call, in WhyInput) (Reply[view.Why], error) {
		cfg, err := c.Request.Config()
		if err != nil {
			return Reply[view.Why]{}, err
		}
		if name, figure, ok := view.CutJobFigure(in.Figure); ok {
			_, _, r, err := c.job(ctx, name)
			if err != nil {
				return Reply[view.Why]{}, err
			}
			doc, err := view.NewJobWhy(r, figure, c.Request.Now())
			return reply(doc, inputError("not_found", err))
		}
		if strings.HasPrefix(in.Figure, view.BudgetFigure) {
			return reply(spend.WhyBudget(ctx, c.Request, in.Figure))
		}
		if strings.HasPrefix(in.Figure, view.BillFigure) {
			return reply(spend.WhyBill(ctx, c.Request, in.Figure))
		}
		doc, err := audit.Why(ctx, c.Request, cfg, in.Cloud, in.Figure)
		if err != nil || in.Figure != "" {
			return reply(doc, err)
		}
		figures, err := spend.Figures(ctx, c.Request)
		doc.Rows = append(doc.Rows, figures...)
		return reply(doc, err)
	},
})
