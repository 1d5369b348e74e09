package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/notify/github"
)

// leastID is how much of a request's id a vote has to give.
const leastID = 8

// voteFile is the decisions of approvers in a file whose writers are trusted: in CI that
// curfew cannot ask for reviews, a file of a protected branch.
type voteFile struct {
	Votes []voteLine `yaml:"votes"`

	approvers map[string][]string
}

// voteLine is one decision in a file.
type voteLine struct {
	request, by, reason string
	allow               bool
}

// UnmarshalYAML reads a vote strictly; mistakes have their place.
func (v *voteLine) UnmarshalYAML(n ast.Node) error {
	f := &document.File{}
	text := func(name string, to *string) func(ast.Node) error {
		return func(n ast.Node) (err error) {
			if *to = document.Scalar(n); *to == "" { // an id of digits alone is no number
				*to, err = f.Text(n, name)
			}
			return err
		}
	}
	_, err := f.Mapping(n, "a vote", document.Required("request", text("request", &v.request)), document.Required("by", text("by", &v.by)),
		document.Required("allow", func(n ast.Node) (err error) { v.allow, err = f.Flag(n, "allow"); return err }),
		document.Optional("reason", text("reason", &v.reason)))
	if err == nil && (len(v.request) < leastID || strings.TrimSpace(v.by) == "") {
		err = f.At(n, "a vote needs request (at least %d characters of its id), by and allow", leastID)
	}
	return err
}

// readVotes reads a file of votes, strictly.
func (a *app) readVotes(name string, cfg config.Config) (*voteFile, error) {
	src, err := a.read(namedFile{name, a.path(name)}, document.MaxBytes)
	if err != nil {
		return nil, err
	}
	f, err := document.Parse(name, src)
	if err != nil {
		return nil, err
	}
	votes := voteFile{approvers: cfg.Approvers}
	if len(f.Bodies) == 0 {
		return &votes, nil
	}
	root, err := f.Body()
	if err != nil {
		return nil, err
	}
	return &votes, f.Decode(root, &votes)
}

// ballot returns the votes on a request.
func (f *voteFile) ballot(_ context.Context, request string) (votes []vote, aside []string, err error) {
	for _, v := range f.Votes {
		if strings.HasPrefix(request, v.request) {
			votes = append(votes, vote{by: approval.Person{Name: v.by, Roles: approval.Roles(f.approvers, v.by), Proof: approval.Proof{Kind: approval.SelfDeclared, Subject: v.by, Detail: "a file of votes"}}, allow: v.allow, reason: first(action.Redact(v.reason), "a file of votes")})
		}
	}
	return votes, nil, nil
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
func (p *pullRequest) ballot(ctx context.Context, _ string) (votes []vote, aside []string, err error) {
	b, err := p.client.Votes(ctx, p.people)
	if err != nil {
		return nil, nil, fmt.Errorf("read the reviews of %s: %w", p.pull, err)
	}
	for _, v := range b.Votes {
		_, named := p.people.Identities[v.Login]
		v.By.Proof = approval.Proof{Kind: approval.GitHubReview, Subject: v.Login, Detail: v.URL, Mapped: named}
		votes = append(votes, vote{by: v.By, allow: v.Allow, reason: "review " + v.URL, at: v.At, once: true, text: v.Text})
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
