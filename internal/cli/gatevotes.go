package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/notify/github"
)

// leastID is how much of a request's id a vote has to give.
const leastID = 8

// voteFile is the decisions of approvers in a file whose writers are trusted: in CI that
// curfew cannot ask for reviews, a file of a protected branch.
type voteFile struct {
	Votes []struct {
		Request string `yaml:"request"`
		By      string `yaml:"by"`
		Allow   *bool  `yaml:"allow"`
		Reason  string `yaml:"reason"`
	} `yaml:"votes"`

	approvers map[string][]string
}

// readVotes reads a file of votes, strictly.
func (a *app) readVotes(name string, cfg config.Config) (*voteFile, error) {
	src, err := a.read(name)
	if err != nil {
		return nil, err
	}
	wrong := func(line, column int, message string) error {
		return &failure{exit: ExitUsage, code: "invalid_file", err: fmt.Errorf("%s:%d:%d: %s", name, line, column, message)}
	}
	f := voteFile{approvers: cfg.Approvers}
	if err := yaml.NewDecoder(bytes.NewReader(src), yaml.Strict()).Decode(&f); err != nil {
		var broken yaml.Error
		if errors.As(err, &broken) && broken.GetToken() != nil {
			at := broken.GetToken().Position
			return nil, wrong(at.Line, at.Column, broken.GetMessage())
		}
		return nil, wrong(1, 1, "a list of votes is expected: "+err.Error())
	}
	for i, v := range f.Votes {
		if len(v.Request) < leastID || v.By == "" || v.Allow == nil {
			return nil, wrong(1, 1, fmt.Sprintf("vote %d needs request (at least %d characters of its id), by and allow", i+1, leastID))
		}
	}
	return &f, nil
}

// ballot returns the vote on a request: the first that denies, else the first that allows.
func (f *voteFile) ballot(_ context.Context, request string) (vote, bool, error) {
	var out vote
	found := false
	for _, v := range f.Votes {
		if !strings.HasPrefix(request, v.Request) || (found && *v.Allow) {
			continue
		}
		out = vote{by: approval.Person{Name: v.By, Roles: rolesOf(f.approvers, v.By)}, allow: *v.Allow, reason: first(v.Reason, "a file of votes")}
		if found = true; !out.allow {
			break
		}
	}
	return out, found, nil
}

// pullRequest is the pull request that a run of a workflow is about.
type pullRequest struct {
	client *github.Client
	pull   github.Pull
	people github.People
}

// pullRequest reads what the workflow tells of itself (GITHUB_EVENT_PATH and so on).
func (a *app) pullRequest(cfg config.Config) (*pullRequest, error) {
	people := github.People{Identities: cfg.GitHub.Identities, Approvers: cfg.Approvers}
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
func (p *pullRequest) ballot(ctx context.Context, _ string) (vote, bool, error) {
	b, err := p.client.Votes(ctx, p.people)
	if err != nil {
		return vote{}, false, fmt.Errorf("read the reviews of %s: %w", p.pull, err)
	}
	v, ok := b.Deciding()
	return vote{by: v.By, allow: v.Allow, reason: "review " + v.URL}, ok, nil
}

// comment tells the pull request what was decided.
func (p *pullRequest) comment(ctx context.Context, key string, e *estimate.Estimate, d gate.Decision, r *approval.Request) error {
	say := github.Report{Key: key, Subject: e.Kind + " " + e.Name, Decision: string(d.Decision), Reasons: d.Reasons,
		P50: &e.P50, P95: &e.P95, Hourly: &e.Hourly, Unknown: e.Unknown, Assumptions: e.Assumptions, SpecHash: e.SpecHash}
	for _, l := range e.Lines {
		say.Lines = append(say.Lines, github.Line{What: l.What, Quantity: l.Quantity + " " + l.Unit, UnitPrice: "$" + l.UnitPrice.String(), P50: l.P50, P95: l.P95, Source: l.Source + " " + l.AsOf})
	}
	for _, l := range d.Budget {
		say.Budgets = append(say.Budgets, github.Budget{Name: l.Budget, Before: l.Amount - l.LeftBefore, After: l.Amount - l.LeftAfter, Amount: l.Amount})
	}
	if r != nil {
		say.Approval, say.Limit, say.Until = r.ID, r.Amount, r.ExpiresAt
	}
	_, err := p.client.Comment(ctx, say)
	return err
}
