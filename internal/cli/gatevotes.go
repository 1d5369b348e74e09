package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

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
	wrong := func(n ast.Node, format string, args ...any) error {
		t := n.GetToken()
		return &yaml.SyntaxError{Message: fmt.Sprintf(format, args...), Token: &token.Token{Position: t.Position, Value: t.Value}}
	}
	var pairs []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		pairs = m.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{m}
	}
	texts := map[string]*string{"request": &v.request, "by": &v.by, "reason": &v.reason}
	decided := false
	for _, p := range pairs {
		key := p.Key.GetToken().Value
		if allow, isBool := p.Value.(*ast.BoolNode); key == "allow" && isBool {
			v.allow, decided = allow.Value, true
			continue
		}
		to, known := texts[key]
		_, isText := p.Value.(ast.ScalarNode)
		switch {
		case key == "allow":
			return wrong(p.Value, "allow is true or false")
		case !known:
			return wrong(p.Key, "unknown field %q: a vote has request, by, allow and reason", key)
		case !isText:
			return wrong(p.Key, "%s is a text", key)
		}
		*to = p.Value.GetToken().Value // an id of digits alone is no number
	}
	if len(v.request) < leastID || strings.TrimSpace(v.by) == "" || !decided {
		return wrong(n, "a vote needs request (at least %d characters of its id), by and allow", leastID)
	}
	return nil
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
	if err := yaml.NewDecoder(bytes.NewReader(src), yaml.Strict()).Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		var broken yaml.Error
		if errors.As(err, &broken) && broken.GetToken() != nil {
			at := broken.GetToken().Position
			return nil, wrong(at.Line, at.Column, strings.Join(strings.Fields(broken.GetMessage()), " "))
		}
		return nil, wrong(1, 1, "a list of votes is expected: "+err.Error())
	}
	return &f, nil
}

// ballot returns the votes on a request.
func (f *voteFile) ballot(_ context.Context, request string) (votes []vote, aside []string, err error) {
	for _, v := range f.Votes {
		if strings.HasPrefix(request, v.request) {
			votes = append(votes, vote{by: approval.Person{Name: v.by, Roles: rolesOf(f.approvers, v.by)}, allow: v.allow, reason: first(v.reason, "a file of votes")})
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
func (p *pullRequest) ballot(ctx context.Context, _ string) (votes []vote, aside []string, err error) {
	b, err := p.client.Votes(ctx, p.people)
	if err != nil {
		return nil, nil, fmt.Errorf("read the reviews of %s: %w", p.pull, err)
	}
	for _, v := range b.Votes {
		votes = append(votes, vote{by: v.By, allow: v.Allow, reason: "review " + v.URL, at: v.At, once: true})
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
