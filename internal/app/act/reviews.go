package act

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/notify/github"
	"github.com/curfew-dev/curfew/internal/plain"
)

// fixPull returns the pull request whose reviews approve fixes. The API to read the reviews from is
// the configured one, because whoever runs this controls the environment.
func fixPull(req *runtime.Request, cfg config.Config) (*govern.PullRequest, error) {
	pinned := strings.TrimSuffix(cmp.Or(cfg.Approvals.GitHubAPI, github.DefaultURL), "/")
	if said := strings.TrimSuffix(cmp.Or(req.Env("GITHUB_API_URL"), github.DefaultURL), "/"); said != pinned {
		return nil, runtime.Invalid(
			"--github: GITHUB_API_URL is %s, and reviews that approve fixes come from %s; set approvals.github_api",
			said,
			pinned)
	}
	return govern.OpenPullRequest(req, cfg)
}

// commentOf returns the comment for an approval request.
func commentOf(r approval.Request) github.Request {
	return github.Request{
		ID: r.ID, Subject: r.Subject, PlanHash: r.PlanHash, AskedBy: r.AskedBy, Limit: r.Amount, Unit: r.AmountUnit(),
		Until: r.ExpiresAt, Plan: govern.PlanLines(r),
	}
}

// review lets reviews of the pull request decide the open request of a plan. A request is void if
// its comment differs from the posted one, or does not show what would be done now.
func (h *approvalRequests) review(ctx context.Context, it action.Item, p action.Proposal, hash string,
	amount money.Amount, now time.Time) error {
	if h.hub == nil {
		return nil
	}
	all, err := h.desk.Store.Requests(ctx, hash)
	if err != nil {
		return fmt.Errorf("look for requests: %w", err)
	}
	i := slices.IndexFunc(all, func(r approval.Request) bool {
		at := r.At(now)
		return r.Amount >= amount && approval.Same(r.AskedBy, h.who.Name) &&
			(at == approval.Pending || at == approval.Approved && r.Proof.Kind == approval.GitHubReview)
	})
	if i < 0 {
		return nil
	}
	r := all[i]
	posted, err := h.hub.Client.Ask(ctx, commentOf(r))
	if err != nil {
		return err
	}
	if posted.Changed == "" && !sameChanges(r, h.plan(it, p, amount)) {
		posted.Changed = "the plan of request " + r.ID + " shows something else than what would be done"
	}
	if posted.Changed != "" {
		plain.Fprintf(h.req.Log, "curfew: request %s is void: %s; it is asked again\n", r.ID, posted.Changed)
		return h.void(ctx, r, posted.Changed, now)
	}
	votes, aside, err := h.hub.Ballot(ctx, r.ID)
	if err != nil {
		return err
	}
	gate.DenialsFirst(votes)
	for _, v := range votes {
		why := h.aside(v, r, posted)
		if why == "" {
			why, err = h.cast(ctx, r, v, now)
		}
		switch {
		case err != nil:
			return err
		case why == "":
			return nil
		}
		aside = append(aside, fmt.Sprintf("the review by %s does not count: %s", v.By.Name, why))
	}
	for _, why := range aside {
		plain.Fprintf(h.req.Log, "curfew: request %s: %s\n", r.ID, why)
	}
	return nil
}

// sameChanges reports whether a request shows the changes that would be made now. The hash is not
// sufficient: whoever may write to the state could store another text for it.
func sameChanges(r approval.Request, now approval.Plan) bool {
	shown, ok := r.Shown()
	if !ok {
		return false
	}
	a, err := json.Marshal([]any{shown.Changes, shown.Loses, shown.Undo})
	b, also := json.Marshal([]any{now.Changes, now.Loses, now.Undo})
	return err == nil && also == nil && string(a) == string(b)
}

// aside returns the reason why a vote does not count for a request; empty if it does.
func (h *approvalRequests) aside(v gate.Vote, r approval.Request, posted github.Posted) string {
	switch {
	case v.At.Before(posted.At):
		return "it is older than the comment " + posted.URL
	case !v.Allow:
		return ""
	case !commentOf(r).Names(v.Text):
		return "its text does not have the line \"curfew approve " + r.ID + "\""
	case h.actor != nil:
		return approval.One(v.By, *h.actor)
	}
	return ""
}

// cast lets a vote decide a request. An approval that an earlier run counted is checked again,
// because the state is no proof of a review.
func (h *approvalRequests) cast(ctx context.Context, r approval.Request, v gate.Vote, now time.Time) (why string,
	err error) {
	if r.State == approval.Approved && v.Allow {
		switch {
		case v.By.Proof.Subject != r.Proof.Subject:
			return "request " + r.ID + " was approved by " + r.DecidedBy, nil
		case approval.One(v.By, r.Asker()) != "":
			return approval.One(v.By, r.Asker()), nil
		case !approval.May(v.By.Roles, r.Roles, r.Team):
			return "has none of the roles " + strings.Join(r.Roles, ", "), nil
		}
		h.req.SetReviewed(r.ID)
		return "", nil
	}
	if r.State == approval.Approved { // and retracted
		return "", h.desk.Void(ctx, r, approval.Event{At: now, By: v.By.Name, Why: v.Reason})
	}
	_, err = h.desk.Decide(ctx, r.ID, v.By, v.Allow, v.Reason, now)
	var refusal *approval.Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal.Why, nil
	case err != nil:
		return "", err
	}
	h.req.SetReviewed(r.ID)
	return "", nil
}
