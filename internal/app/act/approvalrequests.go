package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// approvalRequests asks for approvals and uses them up.
type approvalRequests struct {
	req *runtime.Request
	// now is the clock of the state.
	now  func() time.Time
	cfg  config.Config
	desk approval.Desk
	// who is the requester, with the proof that fixes need; nil until identified.
	who *approval.Person
	// hub is the pull request whose reviews approve, or nil. actor is the verified identity of
	// whoever runs this, or nil.
	hub   *govern.PullRequest
	actor *approval.Person
	// found holds the findings to fix.
	found map[inventory.Ref]audit.Kept
	// asked lists requests that block the work; meanwhile lists those that can wait while the grace
	// period runs.
	asked, meanwhile []string
	// byFinding maps findings to all those requests.
	byFinding map[string]string
}

// newApprovalRequests asks for the approvals that the chosen findings need.
func newApprovalRequests(req *runtime.Request, cfg config.Config, s *store.Store, now func() time.Time,
	chosen []audit.Kept) *approvalRequests {
	h := &approvalRequests{
		req: req, now: now, cfg: cfg, desk: approval.Desk{Store: s.Approvals(), Known: cfg.Known},
		found: map[inventory.Ref]audit.Kept{}, byFinding: map[string]string{},
	}
	for _, k := range chosen {
		h.found[audit.RefOf(k.Resource)] = k
	}
	return h
}

// identified returns the requester: by a verified identity, unless self-declared names open fixes
// here.
func (h *approvalRequests) identified(ctx context.Context) (approval.Person, error) {
	if h.who != nil {
		return *h.who, nil
	}
	declared := h.cfg.Approvals.Accepts(approval.SelfDeclared)
	who, err := h.req.Declared(h.cfg)
	if !declared {
		if who, err = identity.SignedIn(ctx, h.req, h.cfg, "curfew fix"); err != nil {
			return who, fmt.Errorf(
				"it needs an approval, and who asks is not verified: %w; or set approvals.accept: [self-declared]",
				err)
		}
		who.Proof.Signed = ""
	}
	if err != nil {
		return who, err
	}
	h.actor = &who
	if h.hub != nil { // the author of the pull request asks; whoever runs this carries it out
		if declared {
			h.actor = nil
		}
		who = h.hub.Author()
	}
	h.who, h.desk.Check = &who, identity.CheckProof(h.req, h.cfg, declared, h.actor)
	return who, nil
}

// hashed returns the hash and the amount of what an item is about to do. Amount and expiry of the
// request itself are not hashed.
func hashed(it action.Item, p action.Proposal) (hash string, amount money.Amount, err error) {
	amount, priced := p.Hourly.Get()
	if !priced {
		return "", 0, errors.New("its cost is unknown, so no amount can be approved")
	}
	p.Hourly = inventory.Fact[money.Amount]{}
	return action.PlanHash(p, it.Steps, time.Time{}), amount, nil
}

// approve returns the approval of exactly what an item is about to do, or requests one.
func (h *approvalRequests) approve(ctx context.Context, it action.Item, p action.Proposal) (action.Approval, error) {
	var none action.Approval
	hash, amount, err := hashed(it, p)
	if err != nil {
		return none, err
	}
	who, err := h.identified(ctx)
	if err != nil {
		return none, err
	}
	now := h.now()
	if err := h.review(ctx, it, p, hash, amount, now); err != nil {
		return none, err
	}
	r, err := h.desk.Approved(ctx, hash, amount, now)
	if err == nil {
		return action.Approval{Request: r.Use(now), Event: approval.Event{At: now, By: who.Name}}, nil
	}
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Rule == approval.RuleProof:
		if voided := h.void(ctx, r, refusal.Why, now); voided != nil {
			return none, voided
		}
	case errors.As(err, &refusal) && refusal.Rule == approval.RuleDenied:
		return none, err
	}
	r, askErr := h.ask(ctx, it, p, hash, amount, who, now)
	if askErr != nil {
		return none, askErr
	}
	h.asked = append(h.asked, r.ID)
	return none, err
}

// void invalidates a request on behalf of the requester.
func (h *approvalRequests) void(ctx context.Context, r approval.Request, why string, now time.Time) error {
	return h.desk.Void(ctx, r, approval.Event{At: now, By: h.who.Name, Why: why})
}

// early requests the approval that an item will need while its grace period still runs, and
// verifies the proof of a given one while it is fresh.
func (h *approvalRequests) early(ctx context.Context, it action.Item, p action.Proposal) error {
	hash, amount, err := hashed(it, p)
	if err != nil {
		return nil //nolint:nilerr // it is said where it is due
	}
	who, err := h.identified(ctx)
	if err != nil {
		return err
	}
	now := h.now()
	if err := h.review(ctx, it, p, hash, amount, now); err != nil {
		return err
	}
	all, err := h.desk.Store.Requests(ctx, hash)
	if err != nil {
		return err
	}
	for _, r := range all {
		switch state := r.At(now); {
		case state == approval.Denied:
			return nil // reported when the approval is due
		case state == approval.Approved && r.Amount >= amount:
			err := h.desk.Proven(ctx, r)
			var refusal *approval.Refusal
			if !errors.As(err, &refusal) {
				return err
			}
			if err := h.void(ctx, r, refusal.Why, now); err != nil {
				return err
			}
			plain.Fprintf(h.req.Log, "curfew: %s\n", refusal.Why)
		}
	}
	r, err := h.ask(ctx, it, p, hash, amount, who, now)
	if err == nil {
		h.meanwhile = append(h.meanwhile, r.ID)
	}
	return err
}

// ask files the request, or finds the open one, and tells approvers of a new one.
func (h *approvalRequests) ask(ctx context.Context, it action.Item, p action.Proposal, hash string,
	amount money.Amount, who approval.Person, now time.Time) (approval.Request, error) {
	plan, err := json.Marshal(h.plan(it, p, amount))
	if err != nil {
		return approval.Request{}, fmt.Errorf("write the plan: %w", err)
	}
	r, err := h.desk.Ask(ctx, approval.Request{
		Kind: identity.FixKind, Subject: fixSubject(it), PlanHash: hash,
		Plan: string(plan), Amount: amount, Team: govern.TeamOf(p), AskedBy: who.Name, AskedProof: who.Proof}, now)
	if err == nil {
		h.byFinding[strings.TrimPrefix(it.Source, round.FindingSource(""))] = r.ID
	}
	if err == nil && h.hub != nil {
		_, err = h.hub.Client.Ask(ctx, commentOf(r))
	}
	if err != nil || !r.AskedAt.Equal(now) {
		return r, err
	}
	govern.TellApprovers(ctx, h.req, h.cfg, r)
	return r, nil
}

// plan returns the plan of an item that approvers see.
func (h *approvalRequests) plan(it action.Item, p action.Proposal, hourly money.Amount) approval.Plan {
	c := approval.Change{Resource: it.Ref.String(), Verb: string(it.Do.Verb)}
	for _, s := range it.Steps {
		c.Calls = append(c.Calls, approval.Call{
			Name: s.Name, Document: action.Redact(s.Params), Before: action.Redact(s.Undo),
		})
	}
	plan := approval.Plan{
		Schema: approval.PlanSchema, Because: action.Redact(p.Because),
		Costs: []approval.Cost{{What: "costs now", Amount: &hourly, Unit: "an hour"}},
	}
	plan.Undo, plan.Loses = clouds.Know(p.Resource, it.Do)
	if f, ok := h.found[it.Ref]; ok {
		c.Commands = clouds.ByHand(f.Finding)
		saves := approval.Cost{What: "saves", Unit: "a month"}
		if v, known := f.MonthlySavingsUSD.Get(); known {
			saves.Amount = &v
		} else if v, known := f.SavingsUpperBoundUSD.Get(); known {
			saves = approval.Cost{What: "saves at most", Amount: &v, Unit: "a month"}
		}
		plan.Costs = append(plan.Costs, saves)
		if note := f.Fix.Note; note != "" && note != plan.Loses {
			plan.Notes = append(plan.Notes, note)
		}
	}
	for _, ref := range it.Gang {
		plan.Notes = append(plan.Notes, "of the same job group: "+ref.String())
	}
	plan.Changes = []approval.Change{c}
	return plan
}
