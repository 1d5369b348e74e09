package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/view"
)

// ByID is a path that names one item.
type ByID struct {
	ID string `path:"id" minLength:"1" maxLength:"600" doc:"The id of the item, or what its operation takes for it."`
}

// Listed are a page and the filters of resources and findings.
type Listed struct {
	Paging
	Account string `query:"account" maxLength:"200" doc:"Only of this account, such as 123456789012."`
	Region  string `query:"region" maxLength:"100"`
	Kind    string `query:"kind" maxLength:"100" doc:"Only of this kind, such as instance."`
	Team    string `query:"team" maxLength:"200" doc:"Only of this owner."`
}

// of is the listing that the filters, the page and the caller's roles come to.
func (l Listed) of(c *call) (daemon.Listing, error) {
	out := c.seen()
	out.Account, out.Region, out.Kind, out.Limit = l.Account, l.Region, inventory.Kind(l.Kind), l.Limit
	if sees := out.Takes; l.Team != "" {
		out.Teams, out.Takes = []string{l.Team}, func(team string) bool { return team == l.Team && sees(team) }
	}
	var err error
	out.After, err = l.after()
	return out, err
}

// seen are the resources, and what is about them, that the caller may see.
func (c *call) seen() daemon.Listing {
	out := daemon.Listing{Takes: func(team string) bool { return c.sees(approval.RoleViewer, team) }}
	if teams, all := c.teams(approval.RoleViewer); !all {
		out.Teams = append([]string{}, teams...)
	}
	return out
}

// nextOf is the cursor after a page, where more follows.
func nextOf[T any](items []T, more bool, key func(T) string) string {
	if !more || len(items) == 0 {
		return ""
	}
	return cursor(key(items[len(items)-1]))
}

// unlisted makes of a cursor that names nothing of the list the mistake that it is.
func unlisted(err error) error {
	if errors.Is(err, daemon.ErrNotListed) {
		return badCursor()
	}
	return err
}

// Spanned is a period of time, as the command line takes it.
type Spanned struct {
	Since string `query:"since" maxLength:"40" doc:"From then on: 7d, month, 2026-11-01."`
	Until string `query:"until" maxLength:"40" doc:"Before then."`
}

func (s Spanned) period(usual string) daemon.Period {
	if s.Since == "" {
		s.Since = usual
	}
	return daemon.Period{Since: s.Since, Until: s.Until}
}

const get = http.MethodGet

// register adds every operation.
func (s *server) register() {
	s.registerFleet()
	s.registerMoney()
	s.registerPeople()
	s.registerVerbs()
	s.registerEvents()
	s.registerJobs()
	s.registerBooks()
	s.registerSessions()
}

func (s *server) registerFleet() {
	add(s, operation{ID: "list-accounts", Method: get, Path: "/api/v1/accounts", Role: approval.RoleViewer, Summary: "List the accounts that were observed", Schema: view.AccountsSchema},
		func(ctx context.Context, c *call, in *Paging) (answer, error) {
			doc, err := c.rt.Accounts(ctx)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.Accounts, next, err = page(*in, doc.Accounts, func(a view.Account) string { return a.ID })
			return answer{doc: doc, next: next}, err
		})
	add(s, operation{ID: "list-resources", Method: get, Path: "/api/v1/resources", Role: approval.RoleViewer, Scoped: true, Summary: "List the resources as they were seen last", Schema: view.ResourcesSchema},
		func(ctx context.Context, c *call, in *Listed) (answer, error) {
			l, err := in.of(c)
			if err != nil {
				return answer{}, err
			}
			doc, more, err := c.rt.ListResources(ctx, l)
			return answer{doc: doc, next: nextOf(doc.Resources, more, func(r view.Observed) string { return r.ID })}, unlisted(err)
		})
	add(s, operation{ID: "get-resource", Method: get, Path: "/api/v1/resources/{id}", Role: approval.RoleViewer, Scoped: true, Summary: "Show one resource, by its id or its whole identity", Schema: view.ResourcesSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			doc, err := c.rt.Resource(ctx, in.ID, c.seen())
			if err == nil && len(doc.Resources) == 0 {
				err = missing("resource", in.ID)
			}
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-resource-history", Method: get, Path: "/api/v1/resources/{id}/history", Role: approval.RoleViewer, Scoped: true, Summary: "Show how the state and the verdict of one resource changed", Schema: view.HistorySchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			if err := ofTeam(ctx, c, in.ID, approval.RoleViewer); err != nil {
				return answer{}, err
			}
			doc, err := c.rt.History(ctx, in.ID)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "list-findings", Method: get, Path: "/api/v1/findings", Role: approval.RoleViewer, Scoped: true, Summary: "List the findings that hold", Schema: view.FindingsSchema},
		func(ctx context.Context, c *call, in *Listed) (answer, error) {
			l, err := in.of(c)
			if err != nil {
				return answer{}, err
			}
			doc, more, err := c.rt.ListFindings(ctx, l)
			return answer{doc: doc, next: nextOf(doc.Findings, more, func(f view.DatedFinding) string { return f.ID })}, unlisted(err)
		})
	add(s, operation{ID: "get-finding", Method: get, Path: "/api/v1/findings/{id}", Role: approval.RoleViewer, Scoped: true, Summary: "Show one finding", Schema: view.FindingsSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			doc, err := c.rt.Finding(ctx, in.ID, c.seen())
			if err == nil && len(doc.Findings) == 0 {
				err = missing("finding", in.ID)
			}
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "preview-fix", Method: get, Path: "/api/v1/findings/{id}/fix", Role: approval.RoleViewer, Scoped: true, Summary: "Preview the fix of one finding", Schema: view.FixSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Scratch bool `query:"scratch_disks" doc:"The disks that are lost hold nothing that matters."`
			Save    bool `query:"save_disks" doc:"Disks that are deleted with the machine are saved before."`
		}) (answer, error) {
			fixes, err := c.rt.FixPreviews(ctx, []string{in.ID}, daemon.FixOptions{Scratch: in.Scratch, Save: in.Save})
			if err != nil {
				return answer{}, err
			}
			if !c.sees(approval.RoleViewer, fixes[0].Finding.Resource.Owner.Team) {
				return answer{}, missing("finding", in.ID)
			}
			return answer{doc: view.NewFixPreview(fixes)}, nil
		})
	add(s, operation{ID: "list-policies", Method: get, Path: "/api/v1/policies", Role: approval.RoleViewer, Summary: "List the policies of the configuration, with what is doubtful about them", Schema: view.PolicyCheckSchema},
		func(ctx context.Context, c *call, in *struct {
			Against string `query:"against" enum:"last" doc:"Count what each policy selects and could act on in the last scan."`
		}) (answer, error) {
			doc, err := c.rt.PolicyCheck(ctx, nil, in.Against)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "list-actions", Method: get, Path: "/api/v1/actions", Role: approval.RoleViewer, Summary: "List actions, the newest first", Schema: view.ActionsSchema},
		func(ctx context.Context, c *call, in *Paging) (answer, error) {
			before, err := in.after()
			if err != nil {
				return answer{}, err
			}
			doc, err := c.rt.Actions(ctx, before, in.Limit+1)
			var next string
			if err == nil && len(doc.Actions) > in.Limit {
				doc.Actions = doc.Actions[:in.Limit]
				next = cursor(doc.Actions[in.Limit-1].ID)
			}
			return answer{doc: doc, next: next}, err
		})
	add(s, operation{ID: "get-action", Method: get, Path: "/api/v1/actions/{id}", Role: approval.RoleViewer, Summary: "Show one action", Schema: view.ActionSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			doc, err := c.rt.Action(ctx, in.ID)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-action-history", Method: get, Path: "/api/v1/actions/{id}/history", Role: approval.RoleViewer, Summary: "Show what the audit log says about one action", Schema: view.AuditSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Paging
		}) (answer, error) {
			it, err := c.rt.Action(ctx, in.ID)
			if err != nil {
				return answer{}, err
			}
			return entries(ctx, c, in.Paging, action.Query{Item: it.ID})
		})
	add(s, operation{ID: "list-alerts", Method: get, Path: "/api/v1/alerts", Role: approval.RoleViewer, Summary: "List the fuses that have blown and wait for a person", Schema: view.FusesSchema},
		func(ctx context.Context, c *call, _ *struct{}) (answer, error) {
			doc, err := c.rt.Fuses(ctx)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "list-keeps", Method: get, Path: "/api/v1/keeps", Role: approval.RoleViewer, Summary: "List the exemptions that hold", Schema: view.KeepsSchema},
		func(ctx context.Context, c *call, in *Paging) (answer, error) {
			doc, err := c.rt.Keeps(ctx)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.Keeps, next, err = page(*in, doc.Keeps, func(k view.Keep) string { return k.Resource })
			return answer{doc: doc, next: next}, err
		})
	add(s, operation{ID: "get-freeze", Method: get, Path: "/api/v1/freezes", Role: approval.RoleViewer, Summary: "Show whether all actions are frozen", Schema: view.FreezeSchema},
		func(ctx context.Context, c *call, _ *struct{}) (answer, error) {
			doc, err := c.rt.Frozen(ctx)
			return answer{doc: doc}, err
		})
}

// entries is a page of the audit log, oldest first.
func entries(ctx context.Context, c *call, p Paging, q action.Query) (answer, error) {
	after, err := p.after()
	if err == nil && after != "" {
		if q.After, err = strconv.ParseInt(after, 10, 64); err != nil || q.After < 0 {
			err = badCursor()
		}
	}
	if err != nil {
		return answer{}, err
	}
	doc := view.Audit{Schema: view.AuditSchema, Entries: []view.AuditEntry{}}
	next := ""
	err = c.rt.Entries(ctx, q, func(e view.AuditEntry) error {
		if len(doc.Entries) == p.Limit {
			next = cursor(strconv.FormatInt(doc.Entries[p.Limit-1].ID, 10))
			return errEnough
		}
		doc.Entries = append(doc.Entries, e)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return answer{doc: doc, next: next}, err
}

// errEnough ends the reading of a log.
var errEnough = errors.New("enough was read")

func (s *server) registerMoney() {
	add(s, operation{ID: "list-budgets", Method: get, Path: "/api/v1/budgets", Role: approval.RoleViewer, Scoped: true, Summary: "Show where the budgets stand", Schema: view.BudgetSchema},
		func(ctx context.Context, c *call, _ *struct{}) (answer, error) {
			doc, err := budgets(ctx, c)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-budget", Method: get, Path: "/api/v1/budgets/{id}", Role: approval.RoleViewer, Scoped: true, Summary: "Show where one budget stands", Schema: view.BudgetSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			doc, err := budgets(ctx, c)
			if err != nil {
				return answer{}, err
			}
			if doc.Budgets = only(doc.Budgets, func(b view.Budget) bool { return b.ID == in.ID }); len(doc.Budgets) == 0 {
				return answer{}, missing("budget", in.ID)
			}
			return answer{doc: doc}, nil
		})
	add(s, operation{ID: "list-holds", Method: get, Path: "/api/v1/holds", Role: approval.RoleViewer, Scoped: true, Summary: "List the budget reservations of a period", Schema: view.HoldsSchema},
		func(ctx context.Context, c *call, in *struct {
			Spanned
			Paging
		}) (answer, error) {
			doc, now, err := holds(ctx, c, in.period("month"), approval.RoleViewer)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.Holds, next, err = page(in.Paging, doc.Holds, func(h view.Hold) string { return h.ID })
			return answer{doc: doc, next: next, headers: clock(now)}, err
		})
	add(s, operation{ID: "get-costs", Method: get, Path: "/api/v1/costs", Role: approval.RoleViewer, Scoped: true, Summary: "Show what the ledger charged, by dimensions", Schema: view.CostsSchema},
		func(ctx context.Context, c *call, in *CostsIn) (answer, error) {
			q, err := in.query(c)
			if err != nil {
				return answer{}, err
			}
			doc, err := c.rt.Costs(ctx, q)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-unit-costs", Method: get, Path: "/api/v1/costs/units", Role: approval.RoleViewer, Summary: "Show unit costs", Schema: view.UnitsSchema},
		func(ctx context.Context, c *call, in *struct {
			CostsIn
			Counts string   `query:"counts" enum:"gpu-hours" doc:"gpu-hours for the used GPU hours of the ledger; without it the units of the configuration."`
			Units  []string `query:"unit,explode" maxItems:"20" doc:"Only these units of the configuration; with counts, what the unit is called."`
			Per    int64    `query:"per" minimum:"1" maximum:"1000000000000" default:"1" doc:"With counts, how many a unit cost is for."`
			Target string   `query:"target" maxLength:"40" doc:"With counts, the most that one should cost, in dollars."`
		}) (answer, error) {
			q, err := in.query(c)
			if err != nil {
				return answer{}, err
			}
			u := daemon.UnitsQuery{CostsQuery: q, Counts: in.Counts, Per: in.Per, Target: in.Target}
			if in.Counts != "" && len(in.Units) > 0 {
				u.Name, in.Units = in.Units[0], in.Units[1:]
			}
			doc, err := c.rt.Units(ctx, u, in.Units)
			if err != nil && in.Counts != "" {
				err = uncounted(err)
			}
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-bills", Method: get, Path: "/api/v1/bills", Role: approval.RoleViewer, Summary: "Show the imported bills of a period", Schema: view.BillShowSchema},
		func(ctx context.Context, c *call, in *struct {
			Spanned
			By    string `query:"by" enum:"team,project,user,environment,cost_center,purpose,sub_account" default:"team"`
			Basis string `query:"basis" enum:"billed,effective" default:"billed"`
		}) (answer, error) {
			doc, err := c.rt.BillShow(ctx, in.period("month"), bill.Dimension(in.By), bill.Basis(in.Basis))
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-reconciliation", Method: get, Path: "/api/v1/bills/reconciliation", Role: approval.RoleViewer, Summary: "Compare billed and accrued costs of a period", Schema: view.ReconciliationSchema},
		func(ctx context.Context, c *call, in *struct {
			Spanned
			Basis string `query:"basis" enum:"billed,effective" default:"billed"`
		}) (answer, error) {
			doc, err := c.rt.Reconcile(ctx, in.period("month"), bill.Basis(in.Basis), false)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "get-gate", Method: get, Path: "/api/v1/gate", Role: approval.RoleViewer, Summary: "Show how many runs needed approval in a period, and how long they waited", Schema: view.GateReportSchema},
		func(ctx context.Context, c *call, in *Spanned) (answer, error) {
			doc, err := c.rt.GateReport(ctx, in.period("30d"))
			return answer{doc: doc}, err
		})
}

// CostsIn is what costs are asked for.
type CostsIn struct {
	Spanned
	By          string   `query:"by" maxLength:"200" doc:"Dimensions, separated by commas."`
	Granularity string   `query:"granularity" enum:"hour,day,month,total" default:"total"`
	Where       []string `query:"where,explode" maxItems:"20" doc:"DIMENSION=VALUE, such as team=vision."`
}

// query are the costs of what the caller may see: of the one team of a role that is limited
// to teams, others are left out.
func (in CostsIn) query(c *call) (daemon.CostsQuery, error) {
	q := daemon.CostsQuery{Period: in.period("month"), By: in.By, Granularity: in.Granularity, Where: in.Where}
	if teams, all := c.teams(approval.RoleViewer); !all {
		for _, t := range teams {
			if strings.ContainsAny(t, ",=") {
				return q, problemOf(http.StatusForbidden, "forbidden", "the team "+t+" cannot be told from others", "")
			}
		}
		q.Where = append(q.Where, "team="+strings.Join(teams, ","))
	}
	return q, nil
}

// budgets are those that the caller may see.
func budgets(ctx context.Context, c *call) (view.Budgets, error) {
	doc, err := c.rt.Budgets(ctx)
	var none *daemon.Error
	if errors.As(err, &none) && none.Code == "no_budgets" {
		return view.NewBudgets(nil, c.rt.Now()), nil
	}
	if _, all := c.teams(approval.RoleViewer); err != nil || all {
		return doc, err
	}
	doc.Budgets = only(doc.Budgets, func(b view.Budget) bool { return c.sees(approval.RoleViewer, b.Match.Team) })
	doc.CoverageNotes, doc.Changes = []string{}, []string{} // they name other budgets
	return doc, nil
}

// holds are the reservations for which the caller's role counts.
func holds(ctx context.Context, c *call, p daemon.Period, role string) (view.Holds, time.Time, error) {
	doc, now, err := c.rt.Holds(ctx, p)
	if err != nil {
		return doc, now, err
	}
	doc.Holds = only(doc.Holds, func(h view.Hold) bool { return c.sees(role, h.Owner.Team) })
	return doc, now, nil
}

func (s *server) registerPeople() {
	add(s, operation{ID: "list-approvals", Method: get, Path: "/api/v1/approvals", Role: approval.RoleViewer, Scoped: true, Summary: "List the requests for approval, with their plans", Schema: view.ApprovalsSchema},
		func(ctx context.Context, c *call, in *struct {
			Paging
			All bool   `query:"all" doc:"Those decided, used and expired as well."`
			ID  string `query:"id" maxLength:"100" doc:"The beginning of the id of a request."`
		}) (answer, error) {
			doc, now, err := c.rt.Approvals(ctx, in.ID, in.All)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.Requests, next, err = page(in.Paging, only(doc.Requests, func(r view.Request) bool { return c.sees(approval.RoleViewer, r.Team) }),
				func(r view.Request) string { return r.ID })
			return answer{doc: doc, next: next, headers: clock(now)}, err
		})
	add(s, operation{ID: "get-approval", Method: get, Path: "/api/v1/approvals/{id}", Role: approval.RoleViewer, Scoped: true, Summary: "Show one request for approval", Schema: view.DecisionSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			r, err := request(ctx, c, in.ID, approval.RoleViewer)
			return answer{doc: view.Decision{Schema: view.DecisionSchema, Request: r}}, err
		})
	add(s, operation{ID: "list-people", Method: get, Path: "/api/v1/people", Role: approval.RoleViewer, Summary: "List the people of the configuration", Schema: view.PeopleSchema},
		func(ctx context.Context, c *call, in *Paging) (answer, error) {
			doc, err := c.rt.Directory(ctx)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.People, next, err = page(*in, doc.People, func(p view.Person) string { return p.Name })
			return answer{doc: doc, next: next}, err
		})
	add(s, operation{ID: "whoami", Method: get, Path: "/api/v1/people/me", Role: approval.RoleViewer, Scoped: true, Summary: "Show who you are, and how that is proven", Schema: view.WhoamiSchema},
		func(ctx context.Context, c *call, _ *struct{}) (answer, error) {
			doc, err := c.rt.Whoami(ctx)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "list-tokens", Method: get, Path: "/api/v1/tokens", Role: approval.RoleAdmin, Summary: "List the tokens, without their secrets", Schema: view.TokensSchema},
		func(ctx context.Context, c *call, in *Paging) (answer, error) {
			doc, err := c.rt.Tokens(ctx)
			if err != nil {
				return answer{}, err
			}
			var next string
			doc.Tokens, next, err = page(*in, doc.Tokens, func(t view.Token) string { return t.ID })
			return answer{doc: doc, next: next}, err
		})
	add(s, operation{ID: "list-audit", Method: get, Path: "/api/v1/audit", Role: approval.RoleViewer, Summary: "Read the audit log, oldest first", Schema: view.AuditSchema},
		func(ctx context.Context, c *call, in *struct {
			Paging
			Actor    string    `query:"actor" maxLength:"200"`
			What     string    `query:"what" maxLength:"40" doc:"What happened: warned, intent, outcome, keep."`
			Resource string    `query:"resource" maxLength:"600" doc:"A part of the resource's identity."`
			Item     string    `query:"item" maxLength:"100" doc:"One way up the ladder, by its id."`
			Newest   int       `query:"newest" minimum:"0" maximum:"1000000" doc:"Only the newest so many; 0 is all."`
			Since    time.Time `query:"since" doc:"From then on."`
			Until    time.Time `query:"until" doc:"Before then."`
		}) (answer, error) {
			q := action.Query{Actor: in.Actor, What: in.What, Resource: in.Resource, Item: in.Item, Since: in.Since, Until: in.Until}
			if in.Cursor == "" { // a further page begins among them
				q.Limit = in.Newest
			}
			return entries(ctx, c, in.Paging, q)
		})
	add(s, operation{ID: "verify-audit", Method: get, Path: "/api/v1/audit/verification", Role: approval.RoleViewer, Summary: "Check that no entry of the audit log was changed or taken out", Schema: view.VerifiedSchema},
		func(ctx context.Context, c *call, _ *struct{}) (answer, error) {
			doc, err := c.rt.VerifyAudit(ctx, "", "")
			return answer{doc: doc}, err
		})
}

// request is the request of an id for which the caller's role counts.
func request(ctx context.Context, c *call, id, role string) (view.Request, error) {
	doc, _, err := c.rt.Approvals(ctx, id, true)
	if err != nil {
		return view.Request{}, err
	}
	found := only(doc.Requests, func(r view.Request) bool { return c.sees(role, r.Team) })
	if len(found) != 1 {
		return view.Request{}, problemOf(http.StatusNotFound, "not_found", fmt.Sprintf("there is no request whose id begins with %q", id), "`curfew approvals` lists them")
	}
	return found[0], nil
}
