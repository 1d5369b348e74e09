// Package github serves the parts of GitHub's REST API that concern one pull request, so
// that tests can run the gate as a workflow does.
package github

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Pull is pull request 7 of the repository acme/train, which octoana opened from the
// branch resnet50.
type Pull struct {
	// URL is the address of the API.
	URL string

	mu       sync.Mutex
	head     string
	from     string
	reviews  []map[string]any
	comments []comment
}

type comment struct {
	body             string
	created, updated time.Time
}

// Token is the token that the API accepts.
const Token = "ghs_secret0123456789"

// The people of the pull request: its author, and the author of the comments.
const (
	Author = "octoana"
	Bot    = "curfew-bot"
)

const repository = "acme/train"

// New serves the pull request until the test ends.
func New(tb testing.TB) *Pull {
	p := &Pull{head: strings.Repeat("a", 40), from: repository}
	server := httptest.NewServer(http.HandlerFunc(p.serve))
	tb.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// Push makes a commit the head.
func (p *Pull) Push(head string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.head = head
}

// Fork makes the pull request one from another repository, whose workflows may only read
// (https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows#pull_request).
func (p *Pull) Fork(from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from = from
}

// Review adds a review of the head with the state APPROVED or CHANGES_REQUESTED.
func (p *Pull) Review(login, state, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := 80 + len(p.reviews)
	p.reviews = append(p.reviews, map[string]any{
		"id": id, "node_id": fmt.Sprint("PRR_", id), "user": user(login), "state": state,
		"commit_id": p.head, "body": text,
		"submitted_at": now().Add(time.Second).Format(time.RFC3339),
		"html_url":     fmt.Sprintf("https://github.com/%s/pull/7#pullrequestreview-%d", repository, id)})
}

// Comments returns the texts of the comments.
func (p *Pull) Comments() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, c := range p.comments {
		all = append(all, c.body)
	}
	return all
}

// Event returns GitHub's event of the pull request for a workflow.
func (p *Pull) Event(tb testing.TB, base string) string {
	tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	text, err := json.Marshal(map[string]any{
		"action": "synchronize", "number": 7, "repository": map[string]any{"full_name": repository},
		"pull_request": map[string]any{"number": 7, "state": "open", "user": user(Author),
			"head": map[string]any{"ref": "resnet50", "sha": p.head, "repo": map[string]any{"full_name": p.from}},
			"base": map[string]any{"ref": "main", "sha": base, "repo": map[string]any{"full_name": repository}}}})
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// Env returns the environment of a workflow, with the event in a file.
func (p *Pull) Env(event string) []string {
	return []string{
		"GITHUB_EVENT_NAME=pull_request", "GITHUB_EVENT_PATH=" + event, "GITHUB_REPOSITORY=" + repository,
		"GITHUB_API_URL=" + p.URL, "GITHUB_TOKEN=" + Token,
	}
}

func user(login string) map[string]any {
	return map[string]any{"login": login, "id": 1, "type": "User"}
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

func (p *Pull) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	say := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v) // the client is gone
	}
	if r.Header.Get("Authorization") != "Bearer "+Token {
		say(http.StatusUnauthorized, map[string]any{"message": "Bad credentials"})
		return
	}
	var in struct {
		Body      string
		Variables struct{ ID string }
	}
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			say(http.StatusBadRequest, map[string]any{"message": err.Error()})
			return
		}
	}
	if r.Method != http.MethodGet && r.URL.Path != "/graphql" && p.from != repository {
		say(http.StatusForbidden, map[string]any{"message": "Resource not accessible by integration"})
		return
	}
	const repo = "/repos/" + repository
	switch r.Method + " " + r.URL.Path {
	case "GET /user":
		say(200, user(Bot))
	case "GET " + repo + "/pulls/7":
		say(200, map[string]any{
			"number": 7, "state": "open", "user": user(Author), "commits": 1,
			"head": map[string]any{"ref": "resnet50", "sha": p.head},
		})
	case "GET " + repo + "/pulls/7/commits":
		say(200, []any{map[string]any{"sha": p.head, "author": user(Author), "committer": user(Author)}})
	case "GET /repos/" + p.from + "/activity":
		say(200, []any{
			map[string]any{
				"id": 1, "after": p.head, "ref": "refs/heads/resnet50", "activity_type": "push", "actor": user(Author),
			},
		})
	case "POST /graphql": // no review was edited
		say(200, map[string]any{
			"data": map[string]any{"node": map[string]any{"id": in.Variables.ID, "lastEditedAt": nil}},
		})
	case "GET " + repo + "/pulls/7/reviews":
		say(200, append([]map[string]any{}, p.reviews...))
	case "GET " + repo + "/issues/7/comments":
		all := []any{}
		for i := range p.comments {
			all = append(all, p.comment(i))
		}
		say(200, all)
	case "POST " + repo + "/issues/7/comments":
		p.comments = append(p.comments, comment{in.Body, now(), now()})
		say(201, p.comment(len(p.comments)-1))
	default:
		var i int
		if _, err := fmt.Sscanf(r.URL.Path, repo+"/issues/comments/%d", &i); err == nil &&
			r.Method == http.MethodPatch &&
			i >= 100 && i < 100+len(p.comments) {
			p.comments[i-100].body, p.comments[i-100].updated = in.Body, now()
			say(200, p.comment(i-100))
			return
		}
		say(404, map[string]any{"message": "Not Found " + r.URL.Path})
	}
}

func (p *Pull) comment(i int) map[string]any {
	return map[string]any{
		"id": 100 + i, "body": p.comments[i].body, "user": user(Bot),
		"html_url":   fmt.Sprintf("https://github.com/%s/pull/7#issuecomment-%d", repository, i),
		"created_at": p.comments[i].created, "updated_at": p.comments[i].updated}
}
