package github

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/wait"
)

func newServer(t testing.TB, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestTriesAgain(t *testing.T) {
	reset := func(after time.Duration) string { return fmt.Sprint(time.Now().Add(after).Unix()) }
	broken := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	for _, tt := range []struct {
		name   string
		method string // GET reads the comments, PATCH edits one, POST writes one
		answer http.HandlerFunc
		times  int
		tries  int
		waits  []time.Duration // at least
		ok     bool
	}{
		{"502, and then not", "GET", refuse(502, "Server Error"), 1, 2, []time.Duration{time.Second}, true},
		{
			"502 three times", "GET", refuse(502, "Server Error"), 3, 4,
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, true,
		},
		{
			"503 without end", "GET", refuse(503, "Service Unavailable"), 9, 4,
			[]time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, false,
		},
		{
			"503 with a wish", "GET", refuse(503, "Service Unavailable", "Retry-After", "30"), 1, 2,
			[]time.Duration{30 * time.Second}, true,
		},
		{"an edit", "PATCH", refuse(500, "Server Error"), 1, 2, []time.Duration{time.Second}, true},
		{"a broken connection", "PATCH", broken, 1, 2, []time.Duration{time.Second}, true},
		{"501", "GET", refuse(501, "Not Implemented"), 1, 1, nil, false},
		{
			"a secondary limit with a wish", "POST",
			refuse(403, "You have exceeded a secondary rate limit", "Retry-After", "7"), 1, 2,
			[]time.Duration{7 * time.Second}, true,
		},
		{
			"a secondary limit without one", "POST",
			refuse(403, "You have exceeded a secondary rate limit. Please wait a few minutes"), 1, 2,
			[]time.Duration{time.Minute}, true,
		},
		{"429", "POST", refuse(429, "Too Many Requests"), 1, 2, []time.Duration{time.Minute}, true},
		{
			"the primary limit, soon over", "GET",
			refuse(403, "API rate limit exceeded", "X-RateLimit-Remaining", "0",
				"X-RateLimit-Reset", reset(20*time.Second)),
			1, 2, []time.Duration{19 * time.Second}, true,
		},
		{
			"the primary limit for an hour", "GET",
			refuse(403, "API rate limit exceeded", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset",
				reset(time.Hour)), 1, 1,
			nil, false,
		},
		{"a wish for an hour", "GET", refuse(429, "Too Many Requests", "Retry-After", "3600"), 1, 1, nil, false},
		{"a refusal", "GET", refuse(403, "Resource not accessible by integration"), 1, 1, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHub(t)
			part := "/comments"
			if tt.method == "PATCH" {
				h.comments = []comment{{5, "curfew-bot", report().marker() + "\nold"}}
			}
			for range tt.times {
				h.faults = append(h.faults, fault{tt.method, part, tt.answer, false})
			}
			c, waits := h.client(t)
			c.login = "curfew-bot"
			_, err := c.Comment(t.Context(), report())
			n := h.made(tt.method + " /repos/acme/train/issues")
			if tt.method == "GET" && tt.ok {
				n-- // written comments are read again
			}
			if (err == nil) != tt.ok || n != tt.tries || len(*waits) != len(tt.waits) {
				t.Fatalf("Comment = %v after %d tries and waits of %v; want %d and %v", err, n,
					*waits, tt.tries, tt.waits)
			}
			for i, w := range tt.waits {
				if got := (*waits)[i]; got < w || got > w+5*time.Second {
					t.Errorf("wait %d is %s, want %s", i, got, w)
				}
			}
			if tt.ok && (len(h.comments) != 1 || h.comments[0].body != said) {
				t.Errorf("comments %v", h.comments)
			}
		})
	}
}

func TestContext(t *testing.T) {
	h := newHub(t)
	h.faults = []fault{{"GET", "", refuse(502, "Server Error"), false}}
	c, _ := h.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	c.wait = func(ctx context.Context, d time.Duration) error { cancel(); return wait.For(ctx, d) }
	if _, err := c.Comment(ctx, report()); !errors.Is(err, context.Canceled) {
		t.Errorf("Comment = %v, want the cancellation", err)
	}
	if err := wait.For(t.Context(), time.Millisecond); err != nil {
		t.Errorf("wait = %v", err)
	}
}

func TestNoListener(t *testing.T) {
	h := newHub(t)
	h.Close()
	c, waits := h.client(t)
	_, err := c.Comment(t.Context(), report())
	var f *notify.Failure
	if !errors.As(err, &f) || !f.Temporary || !strings.Contains(err.Error(), "comment on acme/train#7: ") ||
		!strings.Contains(err.Error(), "connection refused") || len(*waits) != 3 {
		t.Errorf("Comment = %v after %v", err, *waits)
	}
}

// TestNoAnswerInTime checks that a server that never responds, or stops in the middle of a
// response, is given up, retried and named.
func TestNoAnswerInTime(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"never": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"half of it": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("[{"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		h := newHub(t)
		for range maxTries {
			h.faults = append(h.faults, fault{"GET", "/comments", answer, false})
		}
		h.timeout = 50 * time.Millisecond
		c, waits := h.client(t)
		_, err := c.Comment(t.Context(), report())
		var f *notify.Failure
		if !errors.As(err, &f) || !f.Temporary || !strings.Contains(err.Error(), "no answer within 50ms") ||
			len(*waits) != maxTries-1 {
			t.Errorf("%s: Comment = %v after %v", name, err, *waits)
		}
	}
}

// TestTokenNeverShows lets the server repeat the token wherever it can.
func TestTokenNeverShows(t *testing.T) {
	for _, status := range []int{200, 202, 301, 400, 401, 403, 404, 422, 429, 500} {
		h := newHub(t)
		echo := refuse(status, "no "+token, "Location", "/"+token, "Retry-After", token, "X-RateLimit-Reset", token)
		for range maxTries {
			h.faults = append(h.faults, fault{"GET", "", echo, false})
		}
		c, _ := h.client(t)
		_, err := c.Comment(t.Context(), report())
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "notARealToken") {
			t.Errorf("status %d: Comment = %v", status, err)
		}
	}
	h := newHub(t)
	h.faults = []fault{{"GET", "", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 "+token+"\r\n\r\n")
		conn.Close()
	}, false}}
	h.faults = append(h.faults, h.faults[0], h.faults[0], h.faults[0])
	c, _ := h.client(t)
	if _, err := c.Comment(t.Context(), report()); err == nil || strings.Contains(err.Error(), "notARealToken") {
		t.Errorf("Comment = %v", err)
	}
}

// TestTokenIsNotLeaked checks that a redirect takes the token nowhere.
func TestTokenIsNotLeaked(t *testing.T) {
	asked := make(chan string, 10)
	away := newServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Authorization")
	}))
	h := newHub(t)
	h.faults = []fault{{"GET", "", refuse(307, "Temporary Redirect", "Location", away+"/x"), false}}
	c, _ := h.client(t)
	if _, err := c.Comment(t.Context(), report()); err == nil || len(asked) > 0 {
		t.Errorf("Comment = %v, and %d requests went away", err, len(asked))
	}
}

// TestNothingIsMarkup checks that any text of a report is in code, that no table gains a cell, and
// that GitHub accepts the comment.
func TestNothingIsMarkup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{
				"@acme/all", "`", "``` x", "a|b\\|c", "<!-- -->", "</details>", "#1", "\n\n# x",
				"[a](https://evil.example)",
				strings.Repeat("`|", 5000), strings.Repeat("é", 70000)}))
		texts := rapid.SliceOfN(text, 0, 60)
		r := Report{
			Key: text.Draw(t, "key"), Subject: text.Draw(t, "subject"),
			Decision: rapid.SampledFrom([]string{"allow", "ask", "deny", "<b>"}).Draw(t, "decision"),
			Reasons:  texts.Draw(t, "reasons"), Unknown: texts.Draw(t, "unknown"),
			Assumptions: texts.Draw(t, "assumptions"),
			Approval:    text.Draw(t, "approval")}
		for _, s := range texts.Draw(t, "lines") {
			r.Lines = append(r.Lines, Line{What: s, Quantity: s, UnitPrice: s, Source: s})
			r.Budgets = append(r.Budgets, Budget{Name: s})
		}
		got := r.markdown(head)
		if n := len([]rune(got)); n > 65536 {
			t.Fatalf("%d characters", n)
		}
		first, rest, _ := strings.Cut(got, "\n")
		if first != r.marker() {
			t.Fatalf("begins with %q", first)
		}
		cells := 0
		for _, line := range strings.Split(rest, "\n") {
			parts := strings.Split(line, "`")
			if len(parts)%2 == 0 {
				t.Fatalf("code does not end: %q", line)
			}
			outside := ""
			for i := 0; i < len(parts); i += 2 {
				outside += parts[i]
			}
			if strings.ContainsAny(outside, "@#[\\") && !strings.HasPrefix(line, "**curfew: ") ||
				strings.Contains(outside, "<!--") {
				t.Fatalf("markup in %q", line)
			}
			switch {
			case strings.HasPrefix(line, "| ---"):
				cells = strings.Count(line, "|")
			case strings.HasPrefix(line, "| ") && cells > 0 && strings.Count(line, "|") != cells:
				t.Fatalf("%q has not %d cells", line, cells-1)
			case line == "":
				cells = 0
			}
		}
	})
}
