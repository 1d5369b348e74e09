package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// doc is the document of the tests.
type doc struct {
	Schema string `json:"schema"`
	Items  []int  `json:"items"`
}

const schema = "curfew.test/v1"

// answering is a server that records calls and gives its answers in order; the last one repeats.
type answering struct {
	*httptest.Server
	mu      sync.Mutex
	calls   []*http.Request
	answers []http.HandlerFunc
}

func serve(t *testing.T, answers ...http.HandlerFunc) (*answering, *Client) {
	t.Helper()
	a := &answering{answers: answers}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		n := min(len(a.calls), len(a.answers)-1)
		a.calls = append(a.calls, r)
		a.mu.Unlock()
		a.answers[n](w, r)
	}))
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	u, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{URL: u, Token: "curfew_secret", Timeout: time.Minute, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return a, c
}

func document(items ...int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc{schema, items})
	}
}

func problem(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}
}

// lost closes the connection instead of answering.
func lost(w http.ResponseWriter, _ *http.Request) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

// TestPagesAreFollowed checks that Pages follows the cursors to the last page and repeats the
// query.
func TestPagesAreFollowed(t *testing.T) {
	a, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		next := map[string]string{"": "b", "b": "c"}[r.URL.Query().Get("cursor")]
		if next != "" {
			w.Header().Set("Next-Cursor", next)
		}
		w.Header().Set(ClockHeader, "2026-07-20T09:00:00.000000001Z")
		document(len(r.URL.Query().Get("cursor")))(w, r)
	})
	var got []int
	meta, err := Pages(t.Context(), c, schema, Path("keeps"), url.Values{"team": {"vision"}}, func(d doc) error {
		got = append(got, d.Items...)
		return nil
	})
	if err != nil || !slices.Equal(got, []int{0, 1, 1}) ||
		!meta.At.Equal(time.Date(2026, 7, 20, 9, 0, 0, 1, time.UTC)) {
		t.Errorf("got %v at %s, %v", got, meta.At, err)
	}
	for _, r := range a.calls {
		if r.URL.Query().Get("team") != "vision" || r.URL.Query().Get("limit") != "1000" ||
			r.Header.Get("Authorization") != "Bearer curfew_secret" {
			t.Errorf("asked %s with %v", r.URL, r.Header)
		}
	}
}

// TestAPageThatNeverEnds checks that a cursor that repeats is an error instead of an endless loop.
func TestAPageThatNeverEnds(t *testing.T) {
	_, c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Next-Cursor", "same")
		document(1)(w, r)
	})
	if _, err := Pages(t.Context(), c, schema, Path("keeps"), nil, func(doc) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "same page") {
		t.Errorf("got %v", err)
	}
}

// TestRepetitions checks which calls are retried, how often, and under which idempotency key.
func TestRepetitions(t *testing.T) {
	post := func(c *Client) error {
		_, err := Post[doc](context.Background(), c, schema, Path("freezes"), map[string]string{"reason": "x"})
		return err
	}
	once := func(c *Client) error {
		_, err := PostOnce[doc](context.Background(), c, schema, Path("tokens"), nil)
		return err
	}
	get := func(c *Client) error {
		_, _, err := Get[doc](context.Background(), c, schema, Path("keeps"), nil)
		return err
	}
	for name, tc := range map[string]struct {
		do      func(*Client) error
		answers []http.HandlerFunc
		calls   int
		refusal string
	}{
		"an answer":                   {post, []http.HandlerFunc{document(1)}, 1, ""},
		"a lost answer":               {post, []http.HandlerFunc{lost, lost, document(1)}, 3, ""},
		"one that never comes":        {post, []http.HandlerFunc{lost}, lostTries, "may have been carried out"},
		"a lost answer with a secret": {once, []http.HandlerFunc{lost, document(1)}, 1, "may have been carried out"},
		"a lost page":                 {get, []http.HandlerFunc{lost, document(1)}, 2, ""},
		"too many calls": {
			once, []http.HandlerFunc{problem(429, `{"code":"too_many"}`), document(1)}, 2, "",
		},
		"still carried out": {
			post,
			[]http.HandlerFunc{
				problem(409, `{"code":"in_progress"}`), problem(409, `{"code":"in_progress"}`), document(1),
			},
			3, "",
		},
		"a conflict": {
			post, []http.HandlerFunc{problem(409, `{"code":"needs_approval","detail":"it waits"}`)}, 1, "it waits",
		},
		"a proxy without a service": {post, []http.HandlerFunc{problem(502, `{}`), document(1)}, 2, ""},
		"a service without a state": {
			post, []http.HandlerFunc{problem(503, `{"code":"no_state","detail":"no database"}`)}, 1, "no database",
		},
		"an error of the service": {post, []http.HandlerFunc{problem(500, `{"detail":"it broke"}`)}, 1, "it broke"},
		"a redirect": {post, []http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}}, 1, "no curfew service"},
	} {
		t.Run(name, func(t *testing.T) {
			a, c := serve(t, tc.answers...)
			err := tc.do(c)
			if tc.refusal == "" && err != nil || tc.refusal != "" &&
				(err == nil || !strings.Contains(err.Error(), tc.refusal)) {
				t.Errorf("got %v, want %q", err, tc.refusal)
			}
			if len(a.calls) != tc.calls {
				t.Errorf("sent %d times, want %d", len(a.calls), tc.calls)
			}
			for _, r := range a.calls {
				if key := r.Header.Get("Idempotency-Key"); key != a.calls[0].Header.Get("Idempotency-Key") ||
					r.Method == http.MethodPost && r.URL.Path == Path("freezes") && len(key) != 32 {
					t.Errorf("sent under the key %q", key)
				}
			}
		})
	}
	a, c := serve(t, document(1))
	if err := errors.Join(post(c), post(c)); err != nil ||
		a.calls[0].Header.Get("Idempotency-Key") == a.calls[1].Header.Get("Idempotency-Key") {
		t.Errorf("two calls have one key, %v", err)
	}
}

// TestADeadline checks that a call without a response times out and that a canceled one ends.
func TestADeadline(t *testing.T) {
	release := make(chan struct{})
	_, c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	c.o.Timeout = 50 * time.Millisecond
	_, _, err := Get[doc](t.Context(), c, schema, Path("keeps"), nil)
	var silent *Unreached
	if !errors.As(err, &silent) || !strings.Contains(err.Error(), "did not answer within 50ms") || silent.Sent {
		t.Errorf("got %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := Get[doc](ctx, c, schema, Path("keeps"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v", err)
	}
}

// TestProblems checks the errors made of problem documents, including incomplete ones.
func TestProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		text   string
		want   Error
	}{
		"with an exit code": {
			424, `{"code":"x","detail":"partly","hint":"h","exit":5}`, Error{
				Exit: 5, Code: "x", Detail: "partly", Hint: "h",
			},
		},
		"without": {403, `{"code":"forbidden","detail":"no"}`, Error{Exit: 4, Code: "forbidden", Detail: "no"}},
		"not signed in": {
			401, `{"code":"unauthenticated","detail":"no"}`, Error{Exit: 4, Code: "unauthenticated", Detail: "no"},
		},
		"an odd exit code": {400, `{"detail":"no","exit":77}`, Error{Exit: 2, Detail: "no"}},
		"not there": {
			404, `{"code":"not_found","detail":"no"}`, Error{Exit: 1, Code: "not_found", Detail: "no"},
		},
		"with the places": {
			422, `{"detail":"validation failed","errors":[{"message":"too long","location":"body.for"}]}`,
			Error{Exit: 2, Detail: "validation failed: too long (body.for)"},
		},
		"that says nothing": {500, `{}`, Error{Exit: 1}},
		"that has the token": {
			400, `{"detail":"what is curfew_secret?"}`, Error{Exit: 2, Detail: "what is [redacted]?"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, c := serve(t, problem(tc.status, tc.text))
			_, _, err := Get[doc](t.Context(), c, schema, Path("keeps"), nil)
			var got *Error
			if !errors.As(err, &got) || got.Exit != tc.want.Exit || got.Code != tc.want.Code ||
				got.Hint != tc.want.Hint ||
				tc.want.Detail != "" && got.Detail != tc.want.Detail || got.Detail == "" {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// TestAnotherSchema checks that a document of another schema version is refused.
func TestAnotherSchema(t *testing.T) {
	_, c := serve(t, document(1))
	if _, _, err := Get[doc](t.Context(), c, "curfew.test/v2", Path("keeps"), nil); err == nil ||
		!strings.Contains(err.Error(), "use the version of the service") {
		t.Errorf("got %v", err)
	}
}

// TestPathsAreEscaped checks that an identity with slashes stays one path segment.
func TestPathsAreEscaped(t *testing.T) {
	a, c := serve(t, document(1))
	if _, err := Post[doc](t.Context(), c, schema, Path("resources", "aws/1/us-east-1/instance/i-0f3a?x=1#y", "keep"),
		nil); err != nil {
		t.Fatal(err)
	}
	if got := a.calls[0].URL.EscapedPath(); got !=
		"/api/v1/resources/aws%2F1%2Fus-east-1%2Finstance%2Fi-0f3a%3Fx=1%23y/keep" || a.calls[0].URL.RawQuery != "" {
		t.Errorf("got %s?%s", got, a.calls[0].URL.RawQuery)
	}
}

// TestLogins checks that each service has its own file, readable by the user only.
func TestLogins(t *testing.T) {
	l := Logins{Dir: filepath.Join(t.TempDir(), "servers")}
	servers := []string{
		"https://a.example.com", "http://a.example.com", "https://a.example.com:8443", "https://a.example.com_8443",
		"https://[::1]:1", "https://b.example.com",
	}
	for _, s := range servers {
		if _, err := l.Load(s); !errors.Is(err, ErrNoLogin) {
			t.Errorf("%s: %v", s, err)
		}
		if err := l.Save(Login{Server: s, Token: "token of " + s}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		if got, err := l.Load(s); err != nil || got.Token != "token of "+s {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	files, err := os.ReadDir(l.Dir)
	if err != nil || len(files) != len(servers) {
		t.Errorf("%d files, %v, want %d", len(files), err, len(servers))
	}
	for _, f := range files {
		if st, err := f.Info(); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), st.Mode(), err)
		}
	}
	if err := os.WriteFile(l.file(servers[0]), []byte(`{"server":"https://evil.example.com","token":"x"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Load(servers[0]); err == nil || errors.Is(err, ErrNoLogin) {
		t.Errorf("the token of another server: %v", err)
	}
	if err := errors.Join(l.Remove(servers[1]), l.Remove(servers[1])); err != nil {
		t.Error(err)
	}
	if _, err := l.Load(servers[1]); !errors.Is(err, ErrNoLogin) {
		t.Errorf("forgotten: %v", err)
	}
}
