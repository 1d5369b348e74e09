// Package github tells a pull request what the gate decided, in one comment that is
// kept up to date, and reads its reviews as votes on what the gate asks.
package github

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	api "github.com/google/go-github/v74/github"

	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/wait"
)

// DefaultURL is the REST API of github.com.
const DefaultURL = "https://api.github.com"

// actionsLogin is the author of comments by the default token of a workflow.
const actionsLogin = "github-actions[bot]"

// perPage is the longest page that the API gives
// (https://docs.github.com/en/rest/using-the-rest-api/using-pagination-in-the-rest-api).
const perPage = 100

// maxPages bounds how much is read of one list.
const maxPages = 50

// ErrMoved is returned when the pull request has another head commit than the one the gate
// looked at: neither a comment nor a vote would be about the same thing.
var ErrMoved = errors.New("the pull request has moved on")

// Options configure a client in addition to the pull request.
type Options struct {
	// URL is where the REST API is (GITHUB_API_URL): https, or http on this machine.
	// Empty means DefaultURL; GitHub Enterprise Server has it at https://HOST/api/v3.
	URL string
	// Token may write to pull requests and read contents. It is never repeated.
	Token string
	// Login is the author of the token's comments. If it is empty, the API is asked; it does not
	// name a workflow's own token, which is then taken for github-actions[bot].
	Login string
	// Timeout bounds one try of a request with its whole answer; 0 means DefaultTimeout.
	Timeout time.Duration
}

// Client speaks about one pull request.
type Client struct {
	pull        Pull
	owner, repo string
	api         *api.Client
	secrets     notify.Secrets
	login       string
	wait        func(context.Context, time.Duration) error
}

// New returns a client for a pull request. It makes no request.
func New(o Options, p Pull) (*Client, error) {
	owner, repo, ok := strings.Cut(p.Repository, "/")
	if !ok || p.Number <= 0 || p.Head == "" {
		return nil, errors.New("connect to GitHub: it takes a pull request; read one from a workflow's event")
	}
	if o.Token == "" || strings.ContainsFunc(o.Token, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}) {
		why := "the token is missing or is not of one word: give the step GITHUB_TOKEN: ${{ github.token }} in its env"
		if p.Fork() {
			why = p.forked()
		}
		return nil, fmt.Errorf("connect to GitHub about %s: %s", p, why)
	}
	base, err := notify.ParseURL(cmp.Or(o.URL, DefaultURL))
	if err != nil {
		return nil, fmt.Errorf("connect to GitHub: the address of its API %w", err)
	}
	base.Path = strings.TrimSuffix(base.Path, "/") + "/"
	c := &Client{pull: p, owner: owner, repo: repo, login: o.Login, secrets: notify.Secrets{o.Token}, wait: wait.For}
	send := transport(o.Token, cmp.Or(o.Timeout, DefaultTimeout), func(ctx context.Context, d time.Duration) error {
		return c.wait(ctx, d)
	})
	c.api = api.NewClient(send.Standard())
	c.api.BaseURL, c.api.UserAgent, c.api.DisableRateLimitCheck = base, httpclient.DefaultUserAgent, true
	return c, nil
}

// failure makes one line of what went wrong, without the token: a *notify.Failure, or
// the error of a canceled context, wrapped.
func (c *Client) failure(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	what += " " + c.pull.String()
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	if status, message, ok := refusal(err); ok {
		f := &notify.Failure{Why: fmt.Sprintf("GitHub answered %d %s", status, http.StatusText(status)),
			Temporary: status == http.StatusTooManyRequests || status >= 500}
		if message = c.secrets.Clean(message); message != "" {
			f.Why += ": " + message
		}
		if remedy := c.remedy(status); remedy != "" {
			f.Why += " (" + remedy + ")"
		}
		return fmt.Errorf("%s: %w", what, f)
	}
	var (
		syntax   *json.SyntaxError
		kind     *json.UnmarshalTypeError
		accepted *api.AcceptedError
		withURL  *url.Error
	)
	switch {
	case errors.As(err, &syntax), errors.As(err, &kind), errors.As(err, &accepted):
		return fmt.Errorf("%s: %w", what, &notify.Failure{
			Why: "the answer is not that of GitHub's API; is its address right?",
		})
	case errors.As(err, &withURL):
		err = withURL.Err
	}
	return fmt.Errorf("%s: %w", what, c.secrets.Unreachable(ctx, err))
}

// refusal returns the status and the words of an answer that is an error.
func refusal(err error) (status int, message string, ok bool) {
	var (
		plain     *api.ErrorResponse
		primary   *api.RateLimitError
		secondary *api.AbuseRateLimitError
		moved     *api.RedirectionError
	)
	switch {
	case errors.As(err, &plain):
		return plain.Response.StatusCode, plain.Message, true
	case errors.As(err, &primary):
		return http.StatusTooManyRequests, primary.Message, true
	case errors.As(err, &secondary):
		return http.StatusTooManyRequests, secondary.Message, true
	case errors.As(err, &moved):
		return moved.StatusCode, "", true
	}
	return 0, "", false
}

// remedy returns the next step after a status.
func (c *Client) remedy(status int) string {
	switch {
	case status >= 300 && status < 400:
		return "redirects are not followed: give the repository's present name and the API's final address"
	case status == http.StatusUnauthorized:
		return "the token is not valid"
	case (status == http.StatusForbidden || status == http.StatusNotFound) && c.pull.Fork():
		return c.pull.forked()
	case status == http.StatusForbidden:
		return "give the job the permissions pull-requests: write and contents: read"
	case status == http.StatusNotFound:
		return "there is no such thing, or the token may not see it"
	}
	return ""
}

// absent reports whether an error is that what was asked for is not there.
func absent(err error) bool {
	status, _, ok := refusal(err)
	return ok && status == http.StatusNotFound
}

// pages reads a list to its end.
func pages[T any](list func(api.ListOptions) ([]T, *api.Response, error)) ([]T, error) {
	var all []T
	for page := 1; page <= maxPages; page++ {
		some, resp, err := list(api.ListOptions{Page: page, PerPage: perPage})
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if resp.NextPage == 0 {
			return all, nil
		}
	}
	return nil, fmt.Errorf("the list is longer than %d entries", maxPages*perPage)
}

// current reads the pull request; ErrMoved if its head is another one by now.
func (c *Client) current(ctx context.Context, what string) (*api.PullRequest, error) {
	p, _, err := c.api.PullRequests.Get(ctx, c.owner, c.repo, c.pull.Number)
	if err != nil {
		return nil, c.failure(ctx, what, err)
	}
	if head := p.GetHead().GetSHA(); !strings.EqualFold(head, c.pull.Head) {
		return nil, fmt.Errorf(
			"%s %s: %w: its head is %s, and this run checked %s; the run for the new head decides",
			what, c.pull, ErrMoved, c.secrets.Clean(short(head)), short(c.pull.Head))
	}
	return p, nil
}

// short is a commit as people write it.
func short(sha string) string { return sha[:min(len(sha), 12)] }
