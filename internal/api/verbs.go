package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/daemon"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

const post = http.MethodPost

// Reasoned is the body of what needs a reason.
type Reasoned struct {
	Body struct {
		Reason string `json:"reason" minLength:"1" maxLength:"1000" example:"demo on Thursday" doc:"Why, for the audit log."`
	}
}

// work is the body of an estimate and of the gate.
type work struct {
	Body struct {
		Content string   `json:"content" minLength:"1" maxLength:"900000" example:"{apiVersion: curfew.job/v1, name: resnet50, purpose: training, owner: {team: vision, user: ana}, resources: {instance_type: g6.2xlarge}, regions: [us-east-1], run: python train.py, max_runtime: 2h}" doc:"The text of a job, a session, a Kubernetes manifest or a Terraform plan."`
		Regions []string `json:"regions,omitempty" maxItems:"50" example:"[\"us-east-1\"]" doc:"Regions to price where the text names none."`
		Name    string   `json:"name,omitempty" maxLength:"400" example:"job.yaml" doc:"What the text is called, for messages."`
		Nodes   string   `json:"nodes,omitempty" maxLength:"900000" doc:"The nodes of the cluster, for manifests that name no machine: the text of kubectl get nodes -o json."`
		History string   `json:"history,omitempty" maxLength:"900000" doc:"Past runs, to learn durations from: the text of a CSV file."`
		Key     string   `json:"key,omitempty" maxLength:"200" example:"run-7" doc:"The key of the run; only the gate takes it."`
		DryRun  bool     `json:"dry_run,omitempty" doc:"Decide, and reserve nothing; only the gate takes it."`
	}
}

func (w work) options() daemon.EstimateOptions {
	o := daemon.EstimateOptions{Regions: w.Body.Regions, In: strings.NewReader(w.Body.Content), Called: w.Body.Name, NodesText: w.Body.Nodes, HistoryText: w.Body.History}
	if o.NodesText != "" {
		o.Nodes = "nodes"
	}
	if o.HistoryText != "" {
		o.History = "history"
	}
	return o
}

// unestimated is why a text cannot be estimated: it is the caller's.
func unestimated(err error) error {
	var wired *daemon.Error
	var broken *document.Error
	var known *problem
	if errors.As(err, &wired) || errors.As(err, &broken) || errors.As(err, &known) {
		return err
	}
	return problemOf(http.StatusUnprocessableEntity, "not_estimated", plain.Line(action.Redact(err.Error())), "").exits(exits[daemon.Failed])
}

func (s *server) registerVerbs() {
	add(s, operation{ID: "keep-resource", Method: post, Path: "/api/v1/resources/{id}/keep", Role: approval.RoleUser, Scoped: true, Summary: "Exempt a resource from every policy, at once", Schema: view.KeepSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				For    string `json:"for" minLength:"1" maxLength:"40" example:"24h" doc:"How long: 24h, 7d, or an RFC 3339 time."`
				Reason string `json:"reason" minLength:"1" maxLength:"1000" example:"demo on Thursday" doc:"Why, for those who look later."`
			}
		}) (answer, error) {
			if err := ofTeam(ctx, c, in.ID, approval.RoleUser); err != nil {
				return answer{}, err
			}
			doc, err := c.rt.Exempt(ctx, daemon.Source{}, in.ID, in.Body.For, in.Body.Reason)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "fix-finding", Method: post, Path: "/api/v1/findings/{id}/fix", Role: approval.RoleOperator, Scoped: true, Summary: "Take the fix of a finding one step up the safety ladder", Schema: view.FixSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				Grace string `json:"grace" minLength:"1" maxLength:"20" example:"30m" doc:"How long nothing happens after the owner was warned: 30m."`
				Disks
			}
		}) (answer, error) {
			return fixes(ctx, c, []string{in.ID}, in.Body.Grace, in.Body.Disks)
		})
	add(s, operation{ID: "fix-findings", Method: post, Path: "/api/v1/findings/fix", Role: approval.RoleOperator, Scoped: true, Summary: "Take the fixes of several findings one step up the safety ladder, in one pass", Schema: view.FixSchema},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				IDs   []string `json:"ids" minItems:"1" maxItems:"100" nullable:"false" example:"[\"9c6e1d2f\"]" doc:"The findings, by their ids or the beginnings of them."`
				Grace string   `json:"grace" minLength:"1" maxLength:"20" example:"30m" doc:"How long nothing happens after the owner was warned: 30m."`
				Disks
			}
		}) (answer, error) {
			return fixes(ctx, c, in.Body.IDs, in.Body.Grace, in.Body.Disks)
		})
	add(s, operation{ID: "undo-action", Method: post, Path: "/api/v1/actions/{id}/undo", Role: approval.RoleOperator, Summary: "Take back what an action did", Schema: view.UndoSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				Enforce bool `json:"enforce,omitempty" doc:"Carry it out; without it, it is only rehearsed."`
			}
		}) (answer, error) {
			return undo(ctx, c, []string{in.ID}, in.Body.Enforce)
		})
	add(s, operation{ID: "undo-actions", Method: post, Path: "/api/v1/actions/undo", Role: approval.RoleOperator, Summary: "Take back what several actions did", Schema: view.UndoSchema},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				IDs     []string `json:"ids" minItems:"1" maxItems:"100" nullable:"false" example:"[\"4f1c2a9b\"]" doc:"The actions, by their ids."`
				Enforce bool     `json:"enforce,omitempty" doc:"Carry it out; without it, it is only rehearsed."`
			}
		}) (answer, error) {
			return undo(ctx, c, in.Body.IDs, in.Body.Enforce)
		})
	add(s, operation{ID: "approve", Method: post, Path: "/api/v1/approvals/{id}/approve", Role: approval.RoleApprover, Scoped: true, Summary: "Approve a request of another person", Schema: view.DecisionSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				Reason string `json:"reason,omitempty" maxLength:"1000" example:"demo on Thursday" doc:"Why, for whoever asked."`
			}
		}) (answer, error) {
			return decide(ctx, c, in.ID, true, in.Body.Reason)
		})
	add(s, operation{ID: "deny", Method: post, Path: "/api/v1/approvals/{id}/deny", Role: approval.RoleApprover, Scoped: true, Summary: "Deny a request of another person", Schema: view.DecisionSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Reasoned
		}) (answer, error) {
			return decide(ctx, c, in.ID, false, in.Body.Reason)
		})
	add(s, operation{ID: "freeze", Method: post, Path: "/api/v1/freezes", Role: approval.RoleOperator, Summary: "Stop all actions at once", Schema: view.FreezeSchema},
		func(ctx context.Context, c *call, in *Reasoned) (answer, error) {
			doc, err := c.rt.Freeze(ctx, in.Body.Reason, true)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "unfreeze", Method: post, Path: "/api/v1/freezes/lift", Role: approval.RoleOperator, Summary: "Allow actions again", Schema: view.FreezeSchema},
		func(ctx context.Context, c *call, in *Reasoned) (answer, error) {
			doc, err := c.rt.Freeze(ctx, in.Body.Reason, false)
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "confirm-alert", Method: post, Path: "/api/v1/alerts/{id}/confirm", Role: approval.RoleOperator, Summary: "Say that what has blown the fuse of a policy is meant", Schema: view.FusesSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				Account string `json:"account,omitempty" maxLength:"200" example:"sim/000000000000" doc:"Only in this account, such as aws/123456789012."`
				For     string `json:"for,omitempty" maxLength:"40" example:"24h" doc:"How long it counts; without it, this once."`
				Reason  string `json:"reason" minLength:"1" maxLength:"1000" example:"demo on Thursday" doc:"Why so much is meant."`
			}
		}) (answer, error) {
			doc, err := c.rt.Confirm(ctx, in.ID, in.Body.Account, in.Body.For, in.Body.Reason)
			return answer{doc: doc}, err
		})
	s.registerHolds()
	add(s, operation{ID: "estimate", Method: post, Path: "/api/v1/estimates", Role: approval.RoleUser, Scoped: true, Summary: "Estimate what work will cost", Schema: view.EstimateSchema},
		func(ctx context.Context, c *call, in *work) (answer, error) {
			cfg, _, err := c.rt.PeopleInForce(ctx)
			if err != nil {
				return answer{}, err
			}
			e, err := c.rt.Estimate(ctx, cfg, "-", in.options())
			if err != nil {
				return answer{}, unestimated(err)
			}
			return answer{doc: view.NewEstimate(e)}, nil
		})
	add(s, operation{ID: "gate", Method: post, Path: "/api/v1/gate", Role: approval.RoleUser, Scoped: true, Summary: "Decide whether work may start: allow, ask or deny", Schema: view.GateSchema},
		func(ctx context.Context, c *call, in *work) (answer, error) {
			if _, all := c.teams(approval.RoleUser); !all {
				cfg, _, err := c.rt.PeopleInForce(ctx)
				if err != nil {
					return answer{}, err
				}
				e, err := c.rt.Estimate(ctx, cfg, "-", in.options())
				if err != nil {
					return answer{}, unestimated(err)
				}
				if !c.sees(approval.RoleUser, e.Owner.Team) {
					return answer{}, problemOf(http.StatusForbidden, "forbidden", "the work is of the team "+plain.Line(e.Owner.Team), "")
				}
			}
			doc, err := c.rt.Gate(ctx, "-", daemon.GateOptions{EstimateOptions: in.options(), Key: in.Body.Key, DryRun: in.Body.DryRun})
			if err != nil {
				err = unestimated(err)
			}
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "create-token", Method: post, Path: "/api/v1/tokens", Role: approval.RoleAdmin, Summary: "Create a token; its secret is shown once", Schema: view.NewTokenSchema},
		func(ctx context.Context, c *call, in *struct {
			Body struct {
				Name  string   `json:"name" minLength:"1" maxLength:"200" example:"dashboard" doc:"The person or program that it speaks for."`
				Roles []string `json:"roles" minItems:"1" maxItems:"50" nullable:"false" example:"[\"viewer\"]" doc:"The most that it may do: viewer, approver@vision."`
				For   string   `json:"for,omitempty" maxLength:"20" example:"30d" doc:"How long it counts, at most 366d; 90d without it."`
			}
		}) (answer, error) {
			doc, err := c.rt.CreateToken(ctx, daemon.TokenOptions{Name: in.Body.Name, Roles: in.Body.Roles, For: in.Body.For})
			return answer{doc: doc}, err
		})
	add(s, operation{ID: "revoke-token", Method: post, Path: "/api/v1/tokens/{id}/revoke", Role: approval.RoleAdmin, Summary: "End a token", Schema: view.TokenSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			doc, err := c.rt.RevokeToken(ctx, in.ID)
			return answer{doc: doc}, err
		})
}

// fixes takes the fixes of findings one step up the ladder, where each is of a team for which
// the caller's role counts.
func fixes(ctx context.Context, c *call, ids []string, grace string, disks Disks) (answer, error) {
	o := daemon.FixOptions{Source: daemon.Source{Cloud: "aws"}, Scratch: disks.Scratch, Save: disks.Save}
	previews, err := c.rt.FixPreviews(ctx, ids, o)
	if err != nil {
		return answer{}, err
	}
	for _, f := range previews {
		if !c.sees(approval.RoleOperator, f.Finding.Resource.Owner.Team) {
			return answer{}, missing("finding", f.Finding.ID)
		}
	}
	if o.Grace, err = config.ParseDuration(grace); err != nil || o.Grace < 0 {
		return answer{}, problemOf(http.StatusBadRequest, "usage", "grace is a duration such as 30m", "")
	}
	var doc view.Fixes
	err = c.rt.CarryOut(ctx, ids, o, func(d view.Fixes) error { doc = d; return nil })
	return answer{doc: doc}, inPart(doc, doc.Schema != "", err)
}

// undo takes back what actions did.
func undo(ctx context.Context, c *call, ids []string, enforce bool) (answer, error) {
	var doc view.Undo
	err := c.rt.Undo(ctx, ids, daemon.Source{Cloud: "aws"}, enforce, func(d view.Undo) error { doc = d; return nil })
	return answer{doc: doc}, inPart(doc, doc.Schema != "", err)
}

// secretPath says whether the answer of a call to a path holds a secret.
func secretPath(path string) bool { return path == "/api/v1/tokens" }

// ofTeam refuses a resource of another team as one that is not there.
func ofTeam(ctx context.Context, c *call, id, role string) error {
	if _, all := c.teams(role); all {
		return nil
	}
	team, err := c.rt.TeamOf(ctx, id)
	if err == nil && !c.sees(role, team) {
		err = missing("resource", id)
	}
	return err
}

// decide approves or denies a request. Who may is asked again by the desk, with the roles
// that the request names.
func decide(ctx context.Context, c *call, id string, allow bool, reason string) (answer, error) {
	if _, err := request(ctx, c, id, approval.RoleApprover); err != nil {
		return answer{}, err
	}
	doc, err := c.rt.Decide(ctx, id, allow, reason, "auto")
	return answer{doc: doc}, err
}

func (s *server) registerHolds() {
	act := func(ctx context.Context, c *call, verb, id string, do daemon.HoldAction) (answer, error) {
		if _, all := c.teams(approval.RoleUser); !all {
			mine, _, err := holds(ctx, c, daemon.Period{Since: "366d"}, approval.RoleUser)
			if err != nil {
				return answer{}, err
			}
			if len(only(mine.Holds, func(h view.Hold) bool { return strings.HasPrefix(h.ID, id) })) != 1 {
				return answer{}, missing("hold", id)
			}
		}
		doc, err := c.rt.Hold(ctx, verb, id, do)
		return answer{doc: doc}, err
	}
	add(s, operation{ID: "settle-hold", Method: post, Path: "/api/v1/holds/{id}/settle", Role: approval.RoleUser, Scoped: true, Summary: "End a reservation by what was spent", Schema: view.HoldSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				ActualUSD string `json:"actual_usd,omitempty" pattern:"^[0-9]{1,9}(\\.[0-9]{1,9})?$" example:"12.50" doc:"What was spent; without it what the ledger charged."`
			}
		}) (answer, error) {
			var actual *money.Amount
			if in.Body.ActualUSD != "" {
				v, err := money.ParseAmount(in.Body.ActualUSD)
				if err != nil {
					return answer{}, problemOf(http.StatusBadRequest, "usage", "actual_usd: "+err.Error(), "")
				}
				actual = &v
			}
			return act(ctx, c, "settle", in.ID, daemon.Settle(actual))
		})
	add(s, operation{ID: "release-hold", Method: post, Path: "/api/v1/holds/{id}/release", Role: approval.RoleUser, Scoped: true, Summary: "Free the reservation of work that did not start", Schema: view.HoldSchema},
		func(ctx context.Context, c *call, in *ByID) (answer, error) {
			return act(ctx, c, "release", in.ID, daemon.Release)
		})
	add(s, operation{ID: "extend-hold", Method: post, Path: "/api/v1/holds/{id}/extend", Role: approval.RoleUser, Scoped: true, Summary: "Ask whether a live run may cost more or run longer", Schema: view.HoldSchema},
		func(ctx context.Context, c *call, in *struct {
			ByID
			Body struct {
				AmountUSD string `json:"amount_usd" pattern:"^[0-9]{1,9}(\\.[0-9]{1,9})?$" example:"25" doc:"What it may cost in all."`
				For       string `json:"for" minLength:"1" maxLength:"20" example:"24h" doc:"How long it may run in all: 24h."`
			}
		}) (answer, error) {
			amount, err := money.ParseAmount(in.Body.AmountUSD)
			length, bad := config.ParseDuration(in.Body.For)
			if err != nil || bad != nil || length <= 0 {
				return answer{}, problemOf(http.StatusBadRequest, "usage", "amount_usd is an amount of dollars, and for a duration such as 24h", "")
			}
			return act(ctx, c, "extend", in.ID, daemon.Extend(amount, length))
		})
}
