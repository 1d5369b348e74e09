package github

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	api "github.com/google/go-github/v74/github"

	"github.com/curfew-dev/curfew/internal/notify"
)

// Comment writes a report as one comment on the pull request, over the one that the same key has
// there already, and returns its address. Comments of others are left alone, whatever they hold. Of
// several runs at once one comment is left in the end. ErrMoved if the pull request has a newer
// head, whose run speaks instead.
func (c *Client) Comment(ctx context.Context, r Report) (string, error) {
	const what = "comment on"
	if _, err := c.current(ctx, what); err != nil {
		return "", err
	}
	if err := c.whoAmI(ctx); err != nil {
		return "", c.failure(ctx, what, err)
	}
	body := r.markdown(c.pull.Head)
	var made *api.IssueComment
	var last error
	for try := range maxTries {
		own, err := c.own(ctx, r.marker())
		if err != nil {
			return "", c.failure(ctx, what, err)
		}
		// A list may lag behind what was written a moment ago.
		if made != nil && !slices.ContainsFunc(own, func(o *api.IssueComment) bool {
			return o.GetID() == made.GetID()
		}) {
			own = append(own, made)
		}
		if len(own) == 0 {
			if made, _, err = c.api.Issues.CreateComment(ctx, c.owner, c.repo, c.pull.Number,
				&api.IssueComment{Body: &body}); err == nil {
				c.login = cmp.Or(made.GetUser().GetLogin(), c.login)
				continue
			}
			// A server that failed may have written it all the same: look again. A limit
			// that is still there after the transport's waits is not to be pressed.
			made, last = nil, c.failure(ctx, what, err)
			var f *notify.Failure
			if status, _, refused := refusal(err); refused && status < 500 || !errors.As(last, &f) || !f.Temporary {
				return "", last
			}
			if err := c.wait(ctx, firstPause<<try); err != nil {
				return "", c.failure(ctx, what, err)
			}
			continue
		}
		address, err := c.settle(ctx, own, body)
		if !absent(err) {
			return address, c.failure(ctx, what, err)
		}
		made, last = nil, c.failure(ctx, what, err)
	}
	return "", last
}

// settle leaves the oldest of curfew's comments, with that body.
func (c *Client) settle(ctx context.Context, own []*api.IssueComment, body string) (string, error) {
	slices.SortFunc(own, func(a, b *api.IssueComment) int { return cmp.Compare(a.GetID(), b.GetID()) })
	kept := own[0]
	if kept.GetBody() != body {
		edited, _, err := c.api.Issues.EditComment(ctx, c.owner, c.repo, kept.GetID(), &api.IssueComment{Body: &body})
		if err != nil {
			return "", err
		}
		kept = edited
	}
	for _, surplus := range own[1:] {
		if _, err := c.api.Issues.DeleteComment(ctx, c.owner, c.repo, surplus.GetID()); err != nil && !absent(err) {
			return "", err
		}
	}
	return kept.GetHTMLURL(), nil
}

// own returns the client's comments that begin with a marker.
func (c *Client) own(ctx context.Context, marker string) ([]*api.IssueComment, error) {
	all, err := pages(func(o api.ListOptions) ([]*api.IssueComment, *api.Response, error) {
		return c.api.Issues.ListComments(ctx, c.owner, c.repo, c.pull.Number,
			&api.IssueListCommentsOptions{ListOptions: o})
	})
	return slices.DeleteFunc(all, func(i *api.IssueComment) bool {
		first, _, _ := strings.Cut(i.GetBody(), "\n")
		return strings.TrimSpace(first) != marker || !strings.EqualFold(i.GetUser().GetLogin(), c.login)
	}), err
}

// whoAmI finds out whose comments are one's own. An app's token, and so a workflow's,
// has no user to ask for; if it is not the workflow's, the first comment tells.
func (c *Client) whoAmI(ctx context.Context) error {
	if c.login != "" {
		return nil
	}
	me, _, err := c.api.Users.Get(ctx, "")
	if status, _, refused := refusal(err); refused && status == http.StatusForbidden {
		c.login = actionsLogin
		return nil
	}
	c.login = me.GetLogin()
	return err
}
