package github

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const token = "ghs_notARealToken0123456789"

// hub speaks the parts of the REST API that the client uses, with the payloads of
// https://docs.github.com/en/rest. Lists have pages of two.
type hub struct {
	*httptest.Server
	mu       sync.Mutex
	head     string
	commits  []person // of the pull request's commits; their number is the list's
	total    int      // their number by the pull request; 0 is the list's
	activity []push
	reviews  []review
	comments []comment
	members  map[string]string // "org/team/login" to state
	login    string            // whose the token is; "" is an app without a user
	writes   string            // whom comments are by; empty is login
	calls    []string
	timeout  time.Duration // of one try; 0 is the default
	// edited are the reviews whose text was changed, by their number.
	edited map[int]bool
	// faults answer the next requests of a method and a part of the path, once each.
	faults []fault
	nextID int64
}

type person struct{ author, committer string }

type push struct{ after, actor string }

type review struct {
	login, state, commit string
	kind                 string // of the user; empty is User
	at                   time.Duration
	text                 string
}

type comment struct {
	id    int64
	login string
	body  string
}

type fault struct {
	method, path string
	answer       http.HandlerFunc
	// done makes the request take effect all the same.
	done bool
}

func newHub(t testing.TB) *hub {
	h := &hub{head: head, login: "curfew-bot", nextID: 100, members: map[string]string{},
		commits: []person{{"ana", "ana"}, {"ana", "web-flow"}}, activity: []push{{head, "ana"}}}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

// client returns a client whose waits take no time and are recorded.
func (h *hub) client(t testing.TB) (*Client, *[]time.Duration) {
	t.Helper()
	return h.clientOf(t, Pull{
		Repository: "acme/train", Number: 7, Head: head, From: "acme/train", Branch: "resnet50", Author: "ana",
	})
}

func (h *hub) clientOf(t testing.TB, p Pull) (*Client, *[]time.Duration) {
	t.Helper()
	c, err := New(Options{URL: h.URL, Token: token, Timeout: h.timeout}, p)
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	c.wait = func(ctx context.Context, d time.Duration) error {
		waits = append(waits, d)
		return ctx.Err()
	}
	return c, &waits
}

func (h *hub) made(prefix string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, c := range h.calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

// refuse responds with an error in the documented form.
func refuse(status int, message string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		say(w, status, map[string]string{
			"message": message, "documentation_url": "https://docs.github.com/rest", "status": strconv.Itoa(status),
		})
	}
}

func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, r.Method+" "+r.URL.Path)
	for i, f := range h.faults {
		if (f.method == "" || f.method == r.Method) && strings.Contains(r.URL.Path, f.path) {
			h.faults = slices.Delete(h.faults, i, i+1)
			if f.done {
				h.serve(httptest.NewRecorder(), r)
			}
			f.answer(w, r)
			return
		}
	}
	if r.Header.Get("Authorization") != "Bearer "+token {
		refuse(401, "Bad credentials")(w, r)
		return
	}
	h.serve(w, r)
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	const pull = "/repos/acme/train/pulls/7"
	const comments = "/repos/acme/train/issues/7/comments"
	path := r.URL.Path
	switch {
	case r.Method == "GET" && path == "/user" && h.login == "":
		refuse(403, "Resource not accessible by integration")(w, r)
	case r.Method == "GET" && path == "/user":
		say(w, 200, account(h.login, ""))
	case r.Method == "GET" && path == pull:
		say(w, 200, map[string]any{"id": 1, "number": 7, "state": "open", "user": account("ana", ""),
			"commits": cmp.Or(h.total, len(h.commits)), "head": map[string]any{"ref": "resnet50", "sha": h.head}})
	case r.Method == "GET" && path == pull+"/commits":
		page(w, r, h.commits, func(i int, c person) any {
			sha := fmt.Sprintf("%040x", i)
			if i == len(h.commits)-1 {
				sha = head
			}
			return map[string]any{
				"sha": sha, "commit": map[string]any{"message": "Fix all the bugs"}, "author": named(c.author),
				"committer": named(c.committer),
			}
		})
	case r.Method == "GET" && path == pull+"/reviews":
		page(w, r, h.reviews, func(i int, v review) any {
			return map[string]any{
				"id": 80 + i, "node_id": fmt.Sprint("PRR_", i), "user": account(v.login, v.kind),
				"body": cmp.Or(v.text, "Here is the body for the review."), "state": v.state,
				"html_url": fmt.Sprintf("https://github.com/acme/train/pull/7#pullrequestreview-%d",
					80+i), "commit_id": v.commit,
				"submitted_at":       time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC).Add(v.at).Format(time.RFC3339),
				"author_association": "MEMBER"}
		})
	case r.Method == "GET" && path == "/repos/acme/train/activity" &&
		r.URL.Query().Get("ref") == "refs/heads/resnet50":
		h.pushes(w, r)
	case r.Method == "POST" && path == "/graphql":
		h.graphql(w, r)
	case r.Method == "GET" && path == comments:
		page(w, r, h.comments, func(_ int, c comment) any { return c.json() })
	case r.Method == "POST" && path == comments:
		h.nextID++
		c := comment{h.nextID, cmp.Or(h.writes, h.login, "github-actions[bot]"), body(r)}
		h.comments = append(h.comments, c)
		say(w, 201, c.json())
	case strings.HasPrefix(path, "/repos/acme/train/issues/comments/"):
		h.comment(w, r)
	case r.Method == "GET" && strings.HasPrefix(path, "/orgs/"):
		part := strings.Split(path, "/")
		state, ok := h.members[part[2]+"/"+part[4]+"/"+part[6]]
		if !ok {
			refuse(404, "Not Found")(w, r)
			return
		}
		say(w, 200, map[string]any{"url": h.URL + path, "role": "member", "state": state})
	default:
		refuse(404, "Not Found")(w, r)
	}
}

func (h *hub) comment(w http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(h.comments, func(c comment) bool {
		return strings.HasSuffix(r.URL.Path, fmt.Sprintf("/%d", c.id))
	})
	switch {
	case i < 0:
		refuse(404, "Not Found")(w, r)
	case r.Method == "PATCH":
		h.comments[i].body = body(r)
		say(w, 200, h.comments[i].json())
	case r.Method == "DELETE":
		h.comments = slices.Delete(h.comments, i, i+1)
		w.WriteHeader(204)
	}
}

// graphql answers whether a review was edited
// (https://docs.github.com/en/graphql/guides/forming-calls-with-graphql).
func (h *hub) graphql(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Query     string            `json:"query"`
		Variables map[string]string `json:"variables"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || !strings.Contains(in.Query, "lastEditedAt") {
		refuse(400, "Problems parsing JSON")(w, r)
		return
	}
	number, err := strconv.Atoi(strings.TrimPrefix(in.Variables["id"], "PRR_"))
	if err != nil || number >= len(h.reviews) {
		say(w, 200, map[string]any{
			"data":   map[string]any{"node": nil},
			"errors": []any{map[string]any{"type": "NOT_FOUND", "message": "Could not resolve to a node"}},
		})
		return
	}
	var at any
	if h.edited[number] {
		at = "2026-11-20T13:00:00Z"
	}
	say(w, 200, map[string]any{
		"data": map[string]any{"node": map[string]any{"id": in.Variables["id"], "lastEditedAt": at}},
	})
}

// pushes returns the activity of a repository in pages with cursors.
func (h *hub) pushes(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("after"))
	out := []any{}
	for i, p := range h.activity[from:min(from+2, len(h.activity))] {
		out = append(out, map[string]any{
			"id": 1296269 + i, "node_id": "MDEwOlJlcG9zaXRvcnkxMjk2MjY5",
			"before": "6dcb09b5b57875f334f61aebed695e2e4193db5e",
			"after":  p.after, "ref": "refs/heads/resnet50", "timestamp": "2026-11-20T11:00:00Z",
			"activity_type": "push",
			"actor":         named(p.actor)})
	}
	if from+2 < len(h.activity) {
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?ref=x&after=%d>; rel="next"`, h.URL, r.URL.Path, from+2))
	}
	say(w, 200, out)
}

func page[T any](w http.ResponseWriter, r *http.Request, all []T, show func(int, T) any) {
	n, _ := strconv.Atoi(cmp.Or(r.URL.Query().Get("page"), "1"))
	out := []any{}
	for i := 2 * (n - 1); i < min(2*n, len(all)); i++ {
		out = append(out, show(i, all[i]))
	}
	if 2*n < len(all) {
		w.Header().Set("Link",
			fmt.Sprintf(`<http://%s%s?page=%d>; rel="next", <http://%s%s?page=%d>; rel="last"`, r.Host,
				r.URL.Path, n+1, r.Host, r.URL.Path, (len(all)+1)/2))
	}
	say(w, 200, out)
}

func account(login, kind string) any {
	return map[string]any{
		"login": login, "id": 1, "node_id": "MDQ6VXNlcjE=", "type": cmp.Or(kind, "User"), "site_admin": false,
	}
}

// named returns an account, or null if GitHub does not know it.
func named(login string) any {
	if login == "" {
		return nil
	}
	return account(login, "")
}

func (c comment) json() any {
	return map[string]any{
		"id": c.id, "node_id": "MDEyOklzc3VlQ29tbWVudDE=",
		"html_url": fmt.Sprintf("https://github.com/acme/train/pull/7#issuecomment-%d", c.id),
		"body":     c.body, "user": account(c.login, ""), "created_at": "2026-11-20T11:00:00Z",
		"author_association": "COLLABORATOR"}
}

func body(r *http.Request) string {
	var in struct {
		Body string `json:"body"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		panic(err)
	}
	return in.Body
}
