package govern

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/app/identity"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/spend"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/notify/github"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/view"
)

// GateOptions are the inputs of a gate decision in addition to the file.
type GateOptions struct {
	EstimateOptions
	// Key names the run; Votes is a file of decisions.
	Key, Votes string
	// GitHub counts the reviews of the workflow's pull request; DryRun writes nothing.
	GitHub, DryRun bool
}

// Gate decides whether the work of a file may start.
func Gate(ctx context.Context, req *runtime.Request, name string, f GateOptions) (view.Gate, error) {
	fail := func(err error) (view.Gate, error) { return view.Gate{}, err }
	cfg, by, s, err := req.InForce(ctx)
	if err != nil {
		return fail(err)
	}
	defer s.Close()
	var hub *PullRequest
	var who approval.Person
	if f.GitHub {
		if hub, err = OpenPullRequest(req, cfg); err != nil {
			return fail(err)
		}
		who = hub.Author()
	} else if who, err = identity.Asker(ctx, req, cfg, by); err != nil {
		return fail(err)
	}
	f.Code = true // an approval only covers this code
	e, err := Estimate(ctx, req, cfg, name, f.EstimateOptions)
	if err != nil {
		return fail(err)
	}
	params, err := spend.GateParams(ctx, req, cfg, by, s)
	if err != nil {
		return fail(err)
	}
	if hub != nil && f.Key == "" { // all checks of a pull request concern one run
		f.Key = hub.pull.String() + " " + filepath.ToSlash(name)
	}
	params.DryRun = f.DryRun
	c := &gate.Counter{
		Ask: gate.NewAsk(e, who, f.Key), Params: params, Decided: func(v gate.Vote, r approval.Request) {
			if v.By.Proof.Kind == approval.GitHubReview {
				req.SetReviewed(r.ID)
			}
		}}
	if hub != nil && !f.DryRun {
		c.Ballots = append(c.Ballots, hub.Ballot)
	}
	if f.Votes != "" && !f.DryRun {
		list, err := readVotes(req, f.Votes)
		if err != nil {
			return fail(err)
		}
		c.Ballots = append(c.Ballots, list.Ballot(cfg.Holders()))
	}
	d, err := c.Decide(ctx)
	if err != nil {
		return fail(runtime.StateError(err))
	}
	if !f.DryRun {
		if r, err := c.Waiting(ctx, d); err == nil && r != nil && r.AskedAt.Equal(params.Now) {
			TellApprovers(ctx, req, cfg, *r)
		}
	}
	if hub != nil && !f.DryRun {
		r, err := c.Waiting(ctx, d)
		if err == nil {
			err = hub.comment(ctx, filepath.ToSlash(name), e, d, r)
		}
		if err != nil {
			plain.Fprintf(req.Log, "curfew: the pull request was not updated: %v\n", err)
		}
	}
	approvers := []string{}
	if d.Decision == gate.Held || len(d.WouldPass) > 0 {
		approvers = append(approvers, approval.Approvers(cfg.Holders(), params.Roles, e.Owner.Team, who.Name)...)
	}
	return view.NewGate(e, d, approvers, by, f.DryRun), nil
}

// readVotes reads a file of votes and redacts secrets in their reasons.
func readVotes(req *runtime.Request, name string) (*gate.VoteFile, error) {
	src, err := req.Read(name, nil, document.MaxBytes)
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

// PullRequest is the pull request of a workflow run.
type PullRequest struct {
	Client *github.Client
	pull   github.Pull
	people github.People
}

// OpenPullRequest reads the environment of a workflow run (GITHUB_EVENT_PATH and so on).
func OpenPullRequest(req *runtime.Request, cfg config.Config) (*PullRequest, error) {
	people := github.People{Identities: cfg.Logins(), Approvers: cfg.Holders()}
	if err := people.Validate(); err != nil {
		return nil, runtime.Invalid("approvers and github.identities: %w", err)
	}
	if req.Env("GITHUB_EVENT_PATH") == "" {
		return nil, &runtime.Error{
			Class: runtime.Usage, Code: "no_workflow", Err: errors.New("--github: GITHUB_EVENT_PATH is not set"),
			Hint: "it is for runs of a GitHub workflow; examples/ci has one",
		}
	}
	event, err := req.OpenFile("the workflow's event", req.Env("GITHUB_EVENT_PATH"))
	if err != nil {
		return nil, err
	}
	defer event.Close()
	pull, err := github.Workflow{
		EventName: req.Env("GITHUB_EVENT_NAME"), Repository: req.Env("GITHUB_REPOSITORY"), Ref: req.Env("GITHUB_REF"),
		Event: event,
	}.Pull()
	if err != nil {
		return nil, &runtime.Error{Class: runtime.Usage, Code: "no_pull_request", Err: err}
	}
	client, err := github.New(github.Options{URL: req.Env("GITHUB_API_URL"), Token: req.Env("GITHUB_TOKEN")}, pull)
	if err != nil {
		return nil, &runtime.Error{
			Class: runtime.Usage, Code: "no_github", Err: err,
			Hint: "pass the workflow's token: env: {GITHUB_TOKEN: ${{ github.token }}}",
		}
	}
	return &PullRequest{Client: client, pull: pull, people: people}, nil
}

// Ballot returns the result of the reviews of the pull request.
func (p *PullRequest) Ballot(ctx context.Context, _ string) (votes []gate.Vote, aside []string, err error) {
	b, err := p.Client.Votes(ctx, p.people)
	if err != nil {
		return nil, nil, fmt.Errorf("read the reviews of %s: %w", p.pull, err)
	}
	for _, v := range b.Votes {
		named := false
		for login := range p.people.Identities { // GitHub logins are case-insensitive
			named = named || strings.EqualFold(login, v.Login)
		}
		v.By.Proof = approval.Proof{Kind: approval.GitHubReview, Subject: v.Login, Detail: v.URL, Mapped: named}
		votes = append(votes, gate.Vote{
			By: v.By, Allow: v.Allow, Reason: "review " + v.URL, At: v.At, Once: true, Text: v.Text,
		})
	}
	for _, o := range b.Aside {
		aside = append(aside, fmt.Sprintf("the review by %s does not count: %s", o.Login, o.Why))
	}
	return votes, aside, nil
}

// comment posts the decision to the pull request.
func (p *PullRequest) comment(ctx context.Context, key string, e *estimate.Estimate, d gate.Decision,
	r *approval.Request) error {
	say := github.Report{Key: key, Subject: e.Kind + " " + e.Name, Decision: string(d.Decision), Reasons: d.Reasons,
		P50: &e.P50, P95: &e.P95, Hourly: &e.Hourly, Unknown: e.Unknown,
		Assumptions: e.Assumptions}
	for _, l := range e.Lines {
		say.Lines = append(say.Lines, github.Line{
			What: l.What, Quantity: l.Quantity + " " + l.Unit,
			UnitPrice: l.UnitPrice.Dollars(), P50: l.P50, P95: l.P95,
			Source: l.Source + " " + l.AsOf,
		})
	}
	for _, l := range d.Budget {
		say.Budgets = append(say.Budgets, github.Budget{
			Name: l.Budget, Before: l.Amount - l.LeftBefore, After: l.Amount - l.LeftAfter, Amount: l.Amount,
		})
	}
	for _, w := range d.WouldPass {
		say.WouldPass = append(say.WouldPass, w.Kind+": "+w.What+", at most "+w.P95.Exact())
	}
	if r != nil {
		say.Plan = PlanLines(*r)
		say.Approval, say.Limit, say.Until = r.ID, r.Amount, r.ExpiresAt
	}
	_, err := p.Client.Comment(ctx, say)
	return err
}

// GateReport returns how many runs needed approval in a period, and how long they waited.
func GateReport(ctx context.Context, req *runtime.Request, period runtime.Period) (view.GateReport, error) {
	var none view.GateReport
	_, s, err := req.State(ctx)
	if err != nil {
		return none, err
	}
	defer s.Close()
	now, err := req.StateTime(ctx, s)
	if err != nil {
		return none, err
	}
	since, until, err := period.Bounds(now)
	if err != nil {
		return none, err
	}
	records, err := s.Gate().Decisions(ctx, since, until)
	if err != nil {
		return none, fmt.Errorf("read what was decided: %w", err)
	}
	requests, err := s.Approvals().Requests(ctx, "")
	if err != nil {
		return none, fmt.Errorf("list the requests: %w", err)
	}
	return view.NewGateReport(gate.NewReport(records, requests, since, until, now)), nil
}

// Author returns the author of the pull request, who is the requester.
func (p *PullRequest) Author() approval.Person {
	_, named := p.people.Identities[p.pull.Author]
	return approval.Person{
		Name: p.people.Name(p.pull.Author),
		Proof: approval.Proof{
			Kind: approval.GitHubReview, Subject: p.pull.Author, Detail: "author of " + p.pull.String(), Mapped: named,
		},
	}
}
