package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/notify/github"
)

// readVotes reads a file of votes; secrets in its reasons are redacted.
func (a *app) readVotes(name string) (*gate.VoteFile, error) {
	src, err := a.read(namedFile{name, a.path(name)}, document.MaxBytes)
	if err != nil {
		return nil, err
	}
	votes, err := gate.ReadVotes(name, src)
	if err != nil {
		return nil, err
	}
	for i := range votes.Votes {
		votes.Votes[i].Reason = action.Redact(votes.Votes[i].Reason)
	}
	return votes, nil
}

// pullRequest is the pull request that a run of a workflow is about.
type pullRequest struct {
	client *github.Client
	pull   github.Pull
	people github.People
}

// pullRequest reads what the workflow tells of itself (GITHUB_EVENT_PATH and so on).
func (a *app) pullRequest(cfg config.Config) (*pullRequest, error) {
	people := github.People{Identities: cfg.Logins(), Approvers: cfg.Approvers}
	if err := people.Validate(); err != nil {
		return nil, usageError("approvers and github.identities: %w", err)
	}
	if a.env("GITHUB_EVENT_PATH") == "" {
		return nil, &failure{exit: ExitUsage, code: "no_workflow", err: errors.New("--github: GITHUB_EVENT_PATH is not set"), hint: "it is for runs of a GitHub workflow; examples/ci has one"}
	}
	event, err := a.openFile("the workflow's event", a.env("GITHUB_EVENT_PATH"))
	if err != nil {
		return nil, err
	}
	defer event.Close()
	pull, err := github.Workflow{EventName: a.env("GITHUB_EVENT_NAME"), Repository: a.env("GITHUB_REPOSITORY"), Ref: a.env("GITHUB_REF"), Event: event}.Pull()
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "no_pull_request", err: err}
	}
	client, err := github.New(github.Options{URL: a.env("GITHUB_API_URL"), Token: a.env("GITHUB_TOKEN")}, pull)
	if err != nil {
		return nil, &failure{exit: ExitUsage, code: "no_github", err: err, hint: "pass the workflow's token: env: {GITHUB_TOKEN: ${{ github.token }}}"}
	}
	return &pullRequest{client: client, pull: pull, people: people}, nil
}

// ballot returns what the reviews of the pull request say.
func (p *pullRequest) ballot(ctx context.Context, _ string) (votes []gate.Vote, aside []string, err error) {
	b, err := p.client.Votes(ctx, p.people)
	if err != nil {
		return nil, nil, fmt.Errorf("read the reviews of %s: %w", p.pull, err)
	}
	for _, v := range b.Votes {
		_, named := p.people.Identities[v.Login]
		v.By.Proof = approval.Proof{Kind: approval.GitHubReview, Subject: v.Login, Detail: v.URL, Mapped: named}
		votes = append(votes, gate.Vote{By: v.By, Allow: v.Allow, Reason: "review " + v.URL, At: v.At, Once: true, Text: v.Text})
	}
	for _, o := range b.Aside {
		aside = append(aside, fmt.Sprintf("the review by %s does not count: %s", o.Login, o.Why))
	}
	return votes, aside, nil
}

// comment tells the pull request what was decided.
func (p *pullRequest) comment(ctx context.Context, key string, e *estimate.Estimate, d gate.Decision, r *approval.Request) error {
	say := github.Report{Key: key, Subject: e.Kind + " " + e.Name, Decision: string(d.Decision), Reasons: d.Reasons,
		P50: &e.P50, P95: &e.P95, Hourly: &e.Hourly, Unknown: e.Unknown, Assumptions: e.Assumptions, SpecHash: e.SpecHash}
	for _, l := range e.Lines {
		say.Lines = append(say.Lines, github.Line{What: l.What, Quantity: l.Quantity + " " + l.Unit, UnitPrice: l.UnitPrice.Dollars(), P50: l.P50, P95: l.P95, Source: l.Source + " " + l.AsOf})
	}
	for _, l := range d.Budget {
		say.Budgets = append(say.Budgets, github.Budget{Name: l.Budget, Before: l.Amount - l.LeftBefore, After: l.Amount - l.LeftAfter, Amount: l.Amount})
	}
	for _, w := range d.WouldPass {
		say.WouldPass = append(say.WouldPass, w.Kind+": "+w.What+", at most "+w.P95.Exact())
	}
	if r != nil {
		say.Plan = planLines(*r)
		say.Approval, say.Limit, say.Until = r.ID, r.Amount, r.ExpiresAt
	}
	_, err := p.client.Comment(ctx, say)
	return err
}
