package github

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/google/go-github/v74/github"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Request is a request for an approval, for a comment that shows all of it.
type Request struct {
	// ID names the request; a review approves it by that name.
	ID string
	// Subject names the requested work; PlanHash is the hash of exactly that work.
	Subject, PlanHash string
	AskedBy           string
	// Limit is the most that is approved, in Unit.
	Limit money.Amount
	Unit  string
	Until time.Time
	// Plan is the whole plan, line by line.
	Plan []string
}

// Posted is the comment of a request.
type Posted struct {
	URL string
	// At is when the comment was written.
	At time.Time
	// Changed is the difference of the comment from the posted one; empty if there is none.
	Changed string
}

// maxBody is how many characters GitHub takes in a comment.
const maxBody = 65_536

// Ask posts a request as a separate comment, once, and reports whether the comment is unchanged. It
// never edits one, because a reviewer approves the text that they saw. It is an error if a comment
// cannot hold the whole plan. ErrMoved if the pull request has a newer head.
func (c *Client) Ask(ctx context.Context, r Request) (Posted, error) {
	const what = "ask for an approval on"
	body := r.markdown()
	if len(body) > maxBody {
		return Posted{}, fmt.Errorf(
			"%s %s: the plan of request %s is too long for a comment; approve it with `curfew approve %s`", what,
			c.pull, r.ID,
			r.ID)
	}
	if _, err := c.current(ctx, what); err != nil {
		return Posted{}, err
	}
	if err := c.whoAmI(ctx); err != nil {
		return Posted{}, c.failure(ctx, what, err)
	}
	own, err := c.own(ctx, r.marker())
	if err != nil {
		return Posted{}, c.failure(ctx, what, err)
	}
	if len(own) == 0 {
		made, _, err := c.api.Issues.CreateComment(ctx, c.owner, c.repo, c.pull.Number, &api.IssueComment{Body: &body})
		if err != nil {
			return Posted{}, c.failure(ctx, what, err)
		}
		own = append(own, made)
	}
	// Two concurrent runs may post the same text twice.
	first := slices.MinFunc(own, func(a, b *api.IssueComment) int {
		return a.GetCreatedAt().Compare(b.GetCreatedAt().Time)
	})
	p := Posted{URL: first.GetHTMLURL(), At: first.GetCreatedAt().UTC()}
	for _, o := range own {
		switch {
		case normal(o.GetBody()) != normal(body):
			p.Changed = "the comment " + o.GetHTMLURL() + " does not show the plan of request " + r.ID
		case o.GetCreatedAt().IsZero() || !o.GetUpdatedAt().IsZero() && !o.GetUpdatedAt().Equal(o.GetCreatedAt()):
			p.Changed = "the comment " + o.GetHTMLURL() + " was edited after it was posted"
		}
	}
	return p, nil
}

// normal returns a text without the parts that GitHub may change.
func normal(body string) string {
	return strings.TrimSpace(strings.ReplaceAll(body, "\r\n", "\n"))
}

// marker returns the first line of the comment, which is invisible to readers.
func (r Request) marker() string { return "<!-- curfew-request " + r.ID + " -->" }

// Names reports whether the text of a review approves the request: it contains the line "curfew
// approve ID".
func (r Request) Names(review string) bool {
	return slices.ContainsFunc(approves.FindAllStringSubmatch(review, -1), func(m []string) bool {
		return m[1] == r.ID
	})
}

// approves matches the line of a review that approves a request.
var approves = lazyregexp.New("(?m)^[ \t]*`?curfew approve ([0-9a-f]+)`?[ \t\r]*$")

// markdown formats the request. No line of the plan is truncated, and none is markup.
func (r Request) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n### curfew: approval needed for %s\n\n", r.marker(), code(r.Subject, maxText))
	fmt.Fprintf(&b, "%s asks for this plan, at most **%s** %s, until %s.\n\n",
		code(r.AskedBy, maxCell), r.Limit.Exact(),
		r.Unit, r.Until.UTC().Format("Mon 2 Jan 2006, 15:04 MST"))
	fence := "```"
	for _, line := range r.Plan {
		for strings.Contains(line, fence) {
			fence += "`"
		}
	}
	b.WriteString(fence + "text\n")
	for _, line := range r.Plan {
		b.WriteString(plain.Name(line) + "\n")
	}
	b.WriteString(
		fence + "\n\nTo approve exactly this plan, once, approve the pull request with a review whose text has this " +
			"line:\n\n")
	fmt.Fprintf(&b, "```\ncurfew approve %s\n```\n\n", r.ID)
	fmt.Fprintf(&b, "The reviewer must be an approver who neither asked nor wrote any of this pull request. If this "+
		"comment is edited, the review does not count. A review that requests changes denies the plan.\n\n<sub>plan "+
		"%s</sub>\n", cell(r.PlanHash))
	return b.String()
}
