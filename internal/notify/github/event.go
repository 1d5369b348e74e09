package github

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Workflow is the environment of a workflow run
// (https://docs.github.com/en/actions/reference/workflows-and-actions/variables).
type Workflow struct {
	// EventName is GITHUB_EVENT_NAME, Repository GITHUB_REPOSITORY, Ref GITHUB_REF.
	// Repository and Ref may be empty; where they are not, they have to agree with
	// the event.
	EventName, Repository, Ref string
	// Event is the content of the file GITHUB_EVENT_PATH.
	Event io.Reader
}

// Pull is the pull request that a run of a workflow is about, at one head commit.
type Pull struct {
	Repository string // owner/name, where it is to be merged
	Number     int
	// Head is the commit that is proposed, in hexadecimal. Not GITHUB_SHA, which is
	// its merge with the base.
	Head string
	// From is the repository that Head is in; empty if that is gone.
	From string
	// Branch is the branch of From that Head is the tip of.
	Branch string
	// Author opened the pull request.
	Author string
}

// String returns "owner/name#12".
func (p Pull) String() string { return p.Repository + "#" + strconv.Itoa(p.Number) }

// Fork reports whether the commits come from another repository, whose runs GitHub gives
// a token that may only read, and no secrets.
func (p Pull) Fork() bool { return !strings.EqualFold(p.From, p.Repository) }

// forked explains what that means.
func (p Pull) forked() string {
	from := "a fork that is gone"
	if p.From != "" {
		from = "the fork " + p.From
	}
	return "it comes from " + from +
		", whose runs get no secrets and may only read: let a person with write access push the branch to " +
		p.Repository
}

// maxEvent bounds the size of an event; GitHub's own bound is 25 MB
// (https://docs.github.com/en/webhooks/webhook-events-and-payloads#payload-cap).
const maxEvent = 25 << 20

// Forms of names. Nothing else is put into a URL or shown.
var (
	repository = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}/[A-Za-z0-9._-]{1,100}$`)
	commit     = lazyregexp.New(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	user       = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}(\[bot\])?$`)
)

// Pull returns the pull request that a run is about, or why it has none that the gate
// can speak to.
func (w Workflow) Pull() (Pull, error) {
	p, err := ParseEvent(w.EventName, w.Event)
	if err != nil {
		return Pull{}, err
	}
	if w.Repository != "" && !strings.EqualFold(w.Repository, p.Repository) {
		return Pull{}, fmt.Errorf("read GitHub's event: it is of %s, and the run is of %s (GITHUB_REPOSITORY)",
			p.Repository,
			quoted(w.Repository))
	}
	if want := "refs/pull/" + strconv.Itoa(p.Number) + "/"; w.Ref != "" && !strings.HasPrefix(w.Ref, want) {
		return Pull{}, fmt.Errorf("read GitHub's event: it is of pull request %d, and the run is of %s (GITHUB_REF)",
			p.Number, quoted(w.Ref))
	}
	return p, nil
}

// ParseEvent reads the event of a workflow by its name: pull_request and
// pull_request_review. Others are refused with the reason, pull_request_target among
// them: it hands secrets to a run for another author's commits, and judges the file of
// the base branch.
func ParseEvent(name string, r io.Reader) (Pull, error) {
	switch name {
	case "pull_request", "pull_request_review":
	case "":
		return Pull{}, errors.New(
			"read GitHub's event: its name is missing (GITHUB_EVENT_NAME); is this a run of a workflow?")
	case "pull_request_target":
		return Pull{}, errors.New("read GitHub's event: pull_request_target gives secrets to a run for commits that " +
			"anybody may propose; let the workflow run on pull_request")
	default:
		return Pull{}, fmt.Errorf(
			"read GitHub's event: a run on %s is about no pull request; let the workflow run on "+
				"pull_request and pull_request_review", quoted(name))
	}
	if r == nil {
		return Pull{}, errors.New("read GitHub's event: there is none (GITHUB_EVENT_PATH)")
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxEvent+1))
	if err != nil {
		return Pull{}, fmt.Errorf("read GitHub's event: %w", err)
	}
	if len(raw) > maxEvent {
		return Pull{}, fmt.Errorf("read GitHub's event: it is over %d MB", maxEvent>>20)
	}
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		return Pull{}, fmt.Errorf("read GitHub's event: it is not the JSON of %s: %s", name,
			plain.Cut(plain.Line(err.Error()), 200))
	}
	return e.pull()
}

// event has the fields needed of both events, which share the form
// (https://docs.github.com/en/webhooks/webhook-events-and-payloads#pull_request).
type event struct {
	PullRequest struct {
		Number int `json:"number"`
		User   struct {
			Login string `json:"login"`
		} `json:"user"`
		Head struct {
			SHA  string `json:"sha"`
			Ref  string `json:"ref"`
			Repo *struct {
				FullName string `json:"full_name"`
			} `json:"repo"`
		} `json:"head"`
	} `json:"pull_request"`
	Repository struct {
		FullName string `json:"full_name"`
	} `json:"repository"`
}

func (e event) pull() (Pull, error) {
	pr := e.PullRequest
	p := Pull{
		Repository: e.Repository.FullName, Number: pr.Number, Head: pr.Head.SHA, Branch: pr.Head.Ref,
		Author: pr.User.Login,
	}
	if pr.Head.Repo != nil {
		p.From = pr.Head.Repo.FullName
	}
	for _, f := range []struct {
		key, value string
		ok         bool
	}{
		{"repository.full_name", p.Repository, repository.MatchString(p.Repository)},
		{"pull_request.number", strconv.Itoa(p.Number), p.Number > 0},
		{"pull_request.head.sha", p.Head, commit.MatchString(p.Head)},
		{"pull_request.head.ref", p.Branch, p.Branch != "" && plain.Line(p.Branch) == p.Branch},
		{"pull_request.head.repo.full_name", p.From, p.From == "" || repository.MatchString(p.From)},
		{"pull_request.user.login", p.Author, user.MatchString(p.Author)},
	} {
		if !f.ok {
			return Pull{}, fmt.Errorf("read GitHub's event: %s is %s, which cannot be", f.key, quoted(f.value))
		}
	}
	return p, nil
}

// quoted makes a text from outside fit for an error.
func quoted(s string) string { return strconv.Quote(plain.Cut(plain.Line(s), 100)) }
