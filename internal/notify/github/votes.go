package github

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	api "github.com/google/go-github/v74/github"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// People maps the logins of GitHub to curfew's names, and says who may approve.
type People struct {
	// Identities are curfew's names of GitHub logins. Whoever has none is
	// "github:LOGIN".
	Identities map[string]string
	// Approvers are the roles of people, by curfew's name, by "github:LOGIN", or by
	// "github-team:ORGANIZATION/TEAM" for the members of a team.
	Approvers map[string][]string
}

// Name returns curfew's name of a login.
func (p People) Name(login string) string {
	for l, name := range p.Identities {
		if strings.EqualFold(l, login) && name != "" {
			return name
		}
	}
	return "github:" + strings.ToLower(login)
}

// teamPrefix begins the approvers that are teams.
const teamPrefix = "github-team:"

// team is the form of an approver that is a team; its name is the one of its address.
var team = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,99}/[A-Za-z0-9._-]{1,100}$`)

// Validate returns the first mistake in one line.
func (p People) Validate() error {
	for name := range p.Approvers {
		if t, ok := strings.CutPrefix(name, teamPrefix); ok && !team.MatchString(t) {
			return fmt.Errorf("approver %s: a team is written %sORGANIZATION/TEAM", quoted(name), teamPrefix)
		}
	}
	seen := map[string]string{}
	for login := range p.Identities {
		folded := strings.ToLower(login)
		if other, twice := seen[folded]; twice || !user.MatchString(login) {
			return fmt.Errorf("GitHub login %s: is no login, or is %s in other letters", quoted(login), quoted(other))
		}
		seen[folded] = login
	}
	return nil
}

// Vote is an approver's review of the head commit.
type Vote struct {
	By    approval.Person
	Login string
	// Allow is true of an approval, false of a request for changes.
	Allow bool
	At    time.Time
	// URL is where the review can be read.
	URL string
	// Text is the text of the review; empty if it names a request and was edited since it was sent,
	// perhaps by another person.
	Text string
}

// Aside is a reviewer whose review is no vote, and why.
type Aside struct {
	Login, Why string
}

// Ballot is the result of the reviews.
type Ballot struct {
	// Votes are one an approver, oldest first.
	Votes []Vote
	// Aside are the other reviewers that approved or asked for changes.
	Aside []Aside
}

// Votes reads the reviews. A review is a vote when it is the reviewer's latest that approves, asks
// for changes or was dismissed; was not dismissed; is of the head commit; and is by an approver who
// neither opened the pull request nor wrote, committed or pushed any of it, under whichever login.
// It is an error, and no vote counts, where GitHub does not name the reviewer. ErrMoved if there is
// a newer head.
func (c *Client) Votes(ctx context.Context, people People) (Ballot, error) {
	const what = "read the reviews of"
	if err := people.Validate(); err != nil {
		return Ballot{}, err
	}
	authors, err := c.authors(ctx)
	if err != nil {
		return Ballot{}, err
	}
	reviews, err := pages(func(o api.ListOptions) ([]*api.PullRequestReview, *api.Response, error) {
		return c.api.PullRequests.ListReviews(ctx, c.owner, c.repo, c.pull.Number, &o)
	})
	if err != nil {
		return Ballot{}, c.failure(ctx, what, err)
	}
	var b Ballot
	for _, r := range latest(reviews) {
		login := r.GetUser().GetLogin()
		person := approval.Person{Name: people.Name(login)}
		why := c.aside(r, person.Name, people, authors)
		if why == "" {
			if person.Roles, err = c.roles(ctx, people, login); err != nil {
				return Ballot{}, err
			}
			if len(person.Roles) == 0 {
				why = "is no approver"
			}
		}
		if why != "" {
			b.Aside = append(b.Aside, Aside{Login: login, Why: why})
			continue
		}
		v := Vote{
			By: person, Login: login, Allow: r.GetState() == approved,
			At: r.GetSubmittedAt().UTC(), URL: r.GetHTMLURL(),
			Text: r.GetBody(),
		}
		if v.Allow && approves.MatchString(v.Text) {
			changed, err := c.edited(ctx, r)
			if err != nil {
				return Ballot{}, err
			}
			if changed {
				v.Text = ""
				b.Aside = append(b.Aside, Aside{
					Login: login,
					Why:   "its text was edited after it was sent, so it names no request; send a new review",
				})
			}
		}
		b.Votes = append(b.Votes, v)
	}
	return b, nil
}

// States of reviews that decide
// (https://docs.github.com/en/rest/pulls/reviews#list-reviews-for-a-pull-request).
const (
	approved  = "APPROVED"
	changes   = "CHANGES_REQUESTED"
	dismissed = "DISMISSED"
)

// latest returns each reviewer's latest decisive review, oldest first. A comment takes
// nothing back; a reviewer that GitHub does not name has said nothing.
func latest(all []*api.PullRequestReview) []*api.PullRequestReview {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *api.PullRequestReview) int {
		return a.GetSubmittedAt().Compare(b.GetSubmittedAt().Time)
	})
	seen := map[string]bool{}
	var out []*api.PullRequestReview
	for _, r := range slices.Backward(all) {
		login := strings.ToLower(r.GetUser().GetLogin())
		switch r.GetState() {
		case approved, changes, dismissed:
			if user.MatchString(login) && !seen[login] {
				seen[login] = true
				out = append(out, r)
			}
		}
	}
	slices.Reverse(out)
	return out
}

// aside returns the reason why a review is no vote, regardless of the approvers; empty if it is
// one.
func (c *Client) aside(r *api.PullRequestReview, name string, people People, authors []string) string {
	part := slices.ContainsFunc(authors, func(a string) bool {
		return strings.EqualFold(a, r.GetUser().GetLogin()) || approval.MaybeSame(people.Name(a), name)
	})
	switch {
	case part:
		return "opened the pull request, or wrote, committed or pushed some of it"
	case r.GetUser().GetType() != "User":
		return "is not a person"
	case r.GetState() == dismissed:
		return "the review was dismissed"
	case !strings.EqualFold(r.GetCommitID(), c.pull.Head):
		return "the review is of another commit than " + short(c.pull.Head)
	}
	return ""
}

// authors returns the logins of all who had a part in the pull request: who opened it,
// wrote and committed its commits, and pushed them.
func (c *Client) authors(ctx context.Context) ([]string, error) {
	const what = "find out who wrote"
	p, err := c.current(ctx, what)
	if err != nil {
		return nil, err
	}
	commits, err := pages(func(o api.ListOptions) ([]*api.RepositoryCommit, *api.Response, error) {
		return c.api.PullRequests.ListCommits(ctx, c.owner, c.repo, c.pull.Number, &o)
	})
	if err != nil {
		return nil, c.failure(ctx, what, err)
	}
	// The list ends at 250 commits (https://docs.github.com/en/rest/pulls/pulls#list-commits-on-a-pull-request).
	if len(commits) == 0 || len(commits) < p.GetCommits() {
		return nil, fmt.Errorf(
			"%s %s: GitHub lists %d of its %d commits; make it smaller, or approve with `curfew approve`",
			what, c.pull, len(commits), p.GetCommits())
	}
	authors := []string{c.pull.Author, p.GetUser().GetLogin()}
	part := map[string]bool{}
	for _, commit := range commits {
		part[commit.GetSHA()] = true
		authors = append(authors, commit.GetAuthor().GetLogin(), commit.GetCommitter().GetLogin())
	}
	pushers, err := c.pushers(ctx, part)
	if err != nil {
		return nil, c.failure(ctx, what, err)
	}
	if len(pushers) == 0 {
		return nil, fmt.Errorf("%s %s: GitHub does not say who pushed %s; approve with `curfew approve`", what, c.pull,
			short(c.pull.Head))
	}
	authors = append(authors, pushers...)
	// GitHub may not know a commit's address; it still knows who pushed the commit.
	return slices.DeleteFunc(authors, func(login string) bool { return login == "" }), nil
}

// activity is a change of a branch
// (https://docs.github.com/en/rest/repos/repos#list-repository-activities).
type activity struct {
	After string    `json:"after"`
	Actor *api.User `json:"actor"`
}

// pushers returns who moved the branch to a commit of the pull request; none where it is unknown of
// the head.
func (c *Client) pushers(ctx context.Context, part map[string]bool) ([]string, error) {
	if c.pull.From == "" {
		return nil, nil
	}
	var out []string
	head := false
	for cursor, page := "", 0; page < maxPages; page++ {
		q := url.Values{"ref": {"refs/heads/" + c.pull.Branch}, "per_page": {fmt.Sprint(perPage)}}
		if cursor != "" {
			q.Set("after", cursor)
		}
		req, err := c.api.NewRequest("GET", "repos/"+c.pull.From+"/activity?"+q.Encode(), nil)
		if err != nil {
			return nil, err
		}
		var some []activity
		resp, err := c.api.Do(ctx, req, &some)
		if err != nil {
			return nil, err
		}
		for _, a := range some {
			if !part[a.After] {
				continue
			}
			if a.Actor.GetLogin() == "" {
				return nil, nil
			}
			out = append(out, a.Actor.GetLogin())
			head = head || strings.EqualFold(a.After, c.pull.Head)
		}
		if cursor = resp.After; cursor == "" {
			if !head {
				return nil, nil
			}
			return out, nil
		}
	}
	return nil, errors.New("the history of its branch is too long")
}

// roles returns the roles of a login: its own, and those of the teams that it is an
// active member of.
func (c *Client) roles(ctx context.Context, people People, login string) ([]string, error) {
	var roles []string
	for name, has := range people.Approvers {
		member := approval.Same(name, people.Name(login)) || strings.EqualFold(name, "github:"+login)
		if t, ok := strings.CutPrefix(name, teamPrefix); ok {
			org, slug, _ := strings.Cut(t, "/")
			m, _, err := c.api.Teams.GetTeamMembershipBySlug(ctx, org, slug, login)
			if err != nil && !absent(err) {
				return nil, c.failure(ctx, "look up whether "+login+" is in "+t+" for", err)
			}
			member = err == nil && m.GetState() == "active"
		}
		if member {
			roles = append(roles, has...)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles), nil
}
