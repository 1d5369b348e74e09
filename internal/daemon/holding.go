package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/mail"
	"github.com/curfew-dev/curfew/internal/notify/slack"
	"github.com/curfew-dev/curfew/internal/notify/webhook"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/store"
)

// holding asks for approvals and uses them up.
type holding struct {
	rt *Runtime
	// now is the time of the state.
	now  func() time.Time
	cfg  config.Config
	desk approval.Desk
	// who asks, by the proof that fixes need; nil until it is known.
	who *approval.Person
	// hub is the pull request whose reviews approve; nil is none. actor is who runs this,
	// where that is proven.
	hub   *pullRequest
	actor *approval.Person
	// found are the findings that are fixed.
	found map[inventory.Ref]Kept
	// asked are requests without which nothing goes on; meanwhile are those that wait while
	// the grace period runs.
	asked, meanwhile []string
	// of are all those requests by their findings.
	of map[string]string
}

// holding asks for the approvals that the chosen findings need.
func (rt *Runtime) holding(cfg config.Config, s *store.Store, now func() time.Time, chosen []Kept) *holding {
	h := &holding{rt: rt, now: now, cfg: cfg, desk: approval.Desk{Store: s.Approvals(), Known: cfg.Known}, found: map[inventory.Ref]Kept{}, of: map[string]string{}}
	for _, k := range chosen {
		h.found[RefOf(k.Resource)] = k
	}
	return h
}

// identified is who asks: by a verified identity, unless self-declared names open
// fixes here.
func (h *holding) identified(ctx context.Context) (approval.Person, error) {
	if h.who != nil {
		return *h.who, nil
	}
	declared := h.cfg.Approvals.Accepts(approval.SelfDeclared)
	who, err := h.rt.Declared(h.cfg)
	if !declared {
		if who, err = h.rt.SignedIn(ctx, h.cfg, "curfew fix"); err != nil {
			return who, fmt.Errorf("it needs an approval, and who asks is not verified: %w; or set approvals.accept: [self-declared]", err)
		}
		who.Proof.Signed = ""
	}
	if err != nil {
		return who, err
	}
	h.actor = &who
	if h.hub != nil { // who opened the pull request asks; who runs this carries it out
		if declared {
			h.actor = nil
		}
		who = h.hub.author()
	}
	h.who, h.desk.Check = &who, h.rt.Checked(h.cfg, declared, h.actor)
	return who, nil
}

// hashed is the hash and the amount of what an item is about to do. The amount and the
// expiry are the request's own.
func hashed(it action.Item, p action.Proposal) (hash string, amount money.Amount, err error) {
	amount, priced := p.Hourly.Get()
	if !priced {
		return "", 0, errors.New("its cost is unknown, so no amount can be approved")
	}
	p.Hourly = inventory.Fact[money.Amount]{}
	return action.PlanHash(p, it.Steps, time.Time{}), amount, nil
}

// approve returns the approval of exactly what an item is about to do, or asks for one.
func (h *holding) approve(ctx context.Context, it action.Item, p action.Proposal) (action.Approval, error) {
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

// void ends a request for whoever asks.
func (h *holding) void(ctx context.Context, r approval.Request, why string, now time.Time) error {
	return h.desk.Void(ctx, r, approval.Event{At: now, By: h.who.Name, Why: why})
}

// early asks for the approval that an item will need while its grace runs, and looks at
// the proof of one that was given while it is fresh.
func (h *holding) early(ctx context.Context, it action.Item, p action.Proposal) error {
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
			return nil // it is said where it is due
		case state == approval.Approved && r.Amount >= amount:
			err := h.desk.Proven(ctx, r)
			var refusal *approval.Refusal
			if !errors.As(err, &refusal) {
				return err
			}
			if err := h.void(ctx, r, refusal.Why, now); err != nil {
				return err
			}
			plain.Fprintf(h.rt.Log, "curfew: %s\n", refusal.Why)
		}
	}
	r, err := h.ask(ctx, it, p, hash, amount, who, now)
	if err == nil {
		h.meanwhile = append(h.meanwhile, r.ID)
	}
	return err
}

// ask files the request, or finds the open one, and tells approvers of a new one.
func (h *holding) ask(ctx context.Context, it action.Item, p action.Proposal, hash string, amount money.Amount, who approval.Person, now time.Time) (approval.Request, error) {
	plan, err := json.Marshal(h.plan(it, p, amount))
	if err != nil {
		return approval.Request{}, fmt.Errorf("write the plan: %w", err)
	}
	r, err := h.desk.Ask(ctx, approval.Request{Kind: FixKind, Subject: string(it.Do.Verb) + " " + it.Ref.String(), PlanHash: hash,
		Plan: string(plan), Amount: amount, Team: teamOf(p), AskedBy: who.Name, AskedProof: who.Proof}, now)
	if err == nil {
		h.of[strings.TrimPrefix(it.Source, round.FindingSource(""))] = r.ID
	}
	if err == nil && h.hub != nil {
		_, err = h.hub.client.Ask(ctx, commentOf(r))
	}
	if err != nil || !r.AskedAt.Equal(now) {
		return r, err
	}
	h.rt.tellApprovers(ctx, h.cfg, r)
	return r, nil
}

// teamOf is the team of the resource of a proposal.
func teamOf(p action.Proposal) string {
	if p.Resource == nil {
		return ""
	}
	return p.Resource.Owner.Team
}

// plan is what an approver sees of an item.
func (h *holding) plan(it action.Item, p action.Proposal, hourly money.Amount) approval.Plan {
	c := approval.Change{Resource: it.Ref.String(), Verb: string(it.Do.Verb)}
	for _, s := range it.Steps {
		c.Calls = append(c.Calls, approval.Call{Name: s.Name, Document: action.Redact(s.Params), Before: action.Redact(s.Undo)})
	}
	plan := approval.Plan{Schema: approval.PlanSchema, Because: action.Redact(p.Because), Costs: []approval.Cost{{What: "costs now", Amount: &hourly, Unit: "an hour"}}}
	plan.Undo, plan.Loses = Know(p.Resource, it.Do)
	if f, ok := h.found[it.Ref]; ok {
		c.Commands = ByHand(f.Finding)
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

// tellApprovers sends a request with its plan to those of approvals.notify, else to
// approvers whom notify.names knows. A message that reaches no approver stops nothing: the request
// stands in `curfew approvals`.
func (rt *Runtime) tellApprovers(ctx context.Context, cfg config.Config, r approval.Request) {
	router, err := notify.New(cfg.Reached(), rt.Lookup, slack.Open, mail.Open, webhook.Open)
	if err != nil {
		plain.Fprintf(rt.Log, "curfew: no approver was told of request %s: %v\n", r.ID, err)
		return
	}
	recipients := cfg.Approvals.Notify
	if len(recipients) == 0 {
		for _, name := range approval.Approvers(cfg.Holders(), r.Roles, r.Team, r.AskedBy) {
			if router.Check(name) == nil && name != notify.Owner && name != notify.Team {
				recipients = append(recipients, name)
			}
		}
	}
	for _, to := range recipients {
		if _, err := router.Notify(ctx, to, approvalMessage(r)); err != nil {
			plain.Fprintf(rt.Log, "curfew: %s was not told of request %s: %v\n", to, r.ID, err)
		}
	}
}

// approvalMessage asks an approver for a decision.
func approvalMessage(r approval.Request) action.Message {
	m := action.Message{Kind: "approval", Item: r.ID, Because: fmt.Sprintf("%s asks to %s, at most %s %s", r.AskedBy, r.Subject, r.Amount.Exact(), r.AmountUnit())}
	if r.Kind != FixKind {
		m.Because = fmt.Sprintf("%s asks to run %s, at most %s %s", r.AskedBy, r.Subject, r.Amount.Exact(), r.AmountUnit())
	}
	m.Plan = append(planLines(r), "expires "+r.ExpiresAt.UTC().Format(time.RFC3339), "asked by "+r.AskedBy+" ("+r.AskedProof.String()+")")
	return m
}

// planLines is the plan of a request for people. What older versions kept is shown as it is.
func planLines(r approval.Request) []string {
	if plan, ok := r.Shown(); ok {
		return plan.Lines()
	}
	if r.Plan == "" {
		return nil
	}
	return strings.Split(r.Plan, "\n")
}
