package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/notifytest"
)

const token = "xoxb-not-a-real-token-0123456789"

// workspace speaks chat.postMessage as Slack documents it: the token is judged
// first, then the channel, and refusals are answers of 200.
type workspace struct {
	*httptest.Server
	mu     sync.Mutex
	posts  []url.Values
	member map[string]bool // channels that the app is in
	// faults answer the next requests, one each.
	faults []http.HandlerFunc
}

func newWorkspace(t testing.TB) *workspace {
	w := &workspace{member: map[string]bool{"#vision": true, "U123": true}}
	w.Server = httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.Close)
	return w
}

func (w *workspace) serve(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := r.ParseForm(); err != nil {
		panic(err)
	}
	w.posts = append(w.posts, r.PostForm)
	if len(w.faults) > 0 {
		fault := w.faults[0]
		w.faults = w.faults[1:]
		fault(rw, r)
		return
	}
	given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if given == "" {
		given = r.PostForm.Get("token")
	}
	say := func(body string) {
		rw.Header().Set("Content-Type", "application/json; charset=utf-8")
		fmt.Fprint(rw, body)
	}
	channel := r.PostForm.Get("channel")
	switch {
	case r.Method != http.MethodPost || r.URL.Path != "/api/chat.postMessage":
		say(`{"ok":false,"error":"unknown_method"}`)
	case given != token:
		say(`{"ok":false,"error":"invalid_auth"}`)
	case r.PostForm.Get("text") == "" && r.PostForm.Get("blocks") == "":
		say(`{"ok":false,"error":"no_text"}`)
	case channel == "#gone":
		say(`{"ok":false,"error":"channel_not_found"}`)
	case !w.member[channel]:
		say(`{"ok":false,"error":"not_in_channel"}`)
	default:
		say(
			`{"ok":true,"channel":"C1H9RESGL","ts":"1503435956.000247","message":{"text":"Here's a message for you","username":"ecto1","bot_id":"B19LU7CSY","type":"message","subtype":"bot_message","ts":"1503435956.000247"}}`)
	}
}

func (w *workspace) sent() []url.Values {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.posts)
}

func answers(status int, body string, header ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			rw.Header().Set(header[i], header[i+1])
		}
		rw.WriteHeader(status)
		fmt.Fprint(rw, body)
	}
}

func lookup(name string) (string, bool) { return token, name == "TOKEN" }

func config(base string) notify.Config {
	return notify.Config{Slack: notify.Slack{TokenEnv: "TOKEN", BaseURL: base + "/api",
		Teams: map[string]string{"vision": "#vision"}, Users: map[string]string{"ana": "U123"}}}
}

func open(t testing.TB, c notify.Config) notify.Channel {
	t.Helper()
	name, ch, err := Open(c, lookup)
	if err != nil || name != "slack" {
		t.Fatalf("Open = %q, %v", name, err)
	}
	return ch
}

func TestDelivery(t *testing.T) {
	w := newWorkspace(t)
	r, err := notify.New(config(w.URL), lookup, Open)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Notify(t.Context(), notify.Owner, notifytest.Warning())
	if err != nil || got != "slack:U123" {
		t.Fatalf("Notify = %q, %v", got, err)
	}
	posts := w.sent()
	if len(posts) != 1 {
		t.Fatalf("%d posts, want one", len(posts))
	}
	p := posts[0]
	if got := p.Get("channel"); got != "U123" {
		t.Errorf("channel %q", got)
	}
	if want := "curfew: i-0abc (vision/ana) will be terminated at 15:04 UTC unless you keep it"; !strings.HasPrefix(
		p.Get("text"), want+"\n") {
		t.Errorf("fallback %q, want it to begin with %q", p.Get("text"), want)
	}
	for _, key := range []string{"unfurl_links", "unfurl_media", "mrkdwn"} {
		if p.Get(key) != "false" {
			t.Errorf("%s = %q, want false", key, p.Get(key))
		}
	}
	said := p.Get("blocks")
	for _, want := range []string{
		"no GPU has worked", "gpu_util_max_pct 0.4", "$3.06 an hour", "\\u003c!date^1795273440^", "15:04 UTC",
		"curfew keep i-0abc", "cannot be undone",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("the blocks do not say %q:\n%s", want, said)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name      string
		to        string
		fault     http.HandlerFunc
		says      string
		temporary bool
		after     time.Duration
	}{
		{"not in the channel", "#other", nil, "not_in_channel (invite the app to the channel)", false, 0},
		{"no such channel", "#gone", nil, "channel_not_found", false, 0},
		{
			"a wrong token", "#vision", answers(200, `{"ok":false,"error":"invalid_auth"}`),
			"invalid_auth (the token is not valid)", false, 0,
		},
		{
			"a scope is missing", "#vision",
			answers(200, `{"ok":false,"error":"missing_scope","needed":"chat:write","provided":"users:read"}`),
			"missing_scope", false, 0,
		},
		{"not ok without a reason", "#vision", answers(200, `{"ok":false}`), "gives no reason", false, 0},
		{
			"not ok with a timestamp", "#vision",
			answers(200, `{"ok":false,"ts":"1.2","channel":"C1"}`), "gives no reason",
			false, 0,
		},
		{"an empty object", "#vision", answers(200, `{}`), "gives no reason", false, 0},
		{"an empty body", "#vision", answers(200, ``), "not Slack's", false, 0},
		{"a proxy's page", "#vision", answers(200, `<html>Sign in</html>`), "not Slack's", false, 0},
		{
			"ratelimited in the answer", "#vision", answers(200, `{"ok":false,"error":"ratelimited"}`), "ratelimited",
			true, 0,
		},
		{
			"an internal error", "#vision", answers(200, `{"ok":false,"error":"internal_error"}`), "internal_error",
			true, 0,
		},
		{
			"429", "#vision", answers(429, `{"ok":false,"error":"ratelimited"}`, "Retry-After", "30"),
			"answered 429 Too Many Requests", true, 30 * time.Second,
		},
		{"429 without Retry-After", "#vision", answers(429, ``), "answered 429", true, 0},
		{"503", "#vision", answers(503, `<html>`), "answered 503 Service Unavailable", true, 0},
		{"403", "#vision", answers(403, ``), "answered 403 Forbidden", false, 0},
		{
			"a redirect", "#vision", answers(302, ``, "Location", "http://127.0.0.1:1/"),
			"redirects are not followed", false,
			0,
		},
		{"204", "#vision", answers(204, ``), "not Slack's", false, 0},
		{"a broken connection", "#vision", func(rw http.ResponseWriter, _ *http.Request) {
			panic(http.ErrAbortHandler)
		}, "EOF", true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorkspace(t)
			if tt.fault != nil {
				w.faults = []http.HandlerFunc{tt.fault}
			}
			err := open(t, config(w.URL)).Send(t.Context(), tt.to, notifytest.Warning())
			var f *notify.Failure
			if !errors.As(err, &f) {
				t.Fatalf("Send = %v, want a Failure", err)
			}
			if !strings.Contains(f.Why, tt.says) || f.Temporary != tt.temporary || f.RetryAfter != tt.after {
				t.Errorf("Send = %+v, want %q, temporary %v, after %s", f, tt.says, tt.temporary, tt.after)
			}
			if n := len(w.sent()); n != 1 {
				t.Errorf("%d requests, want one", n)
			}
		})
	}
}

func TestRetriesOverTheWire(t *testing.T) {
	w := newWorkspace(t)
	w.faults = []http.HandlerFunc{answers(429, ``, "Retry-After", "2")}
	r, err := notify.New(config(w.URL), lookup, Open)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got, err := r.Notify(t.Context(), notify.Team, notifytest.Warning())
	if took := time.Since(began); err != nil || got != "slack:#vision" || took < 2*time.Second || len(w.sent()) != 2 {
		t.Errorf("Notify = %q, %v after %s and %d requests; want a second one after 2 s", got,
			err, took, len(w.sent()))
	}

	w.faults = []http.HandlerFunc{answers(200, `{"ok":false,"error":"is_archived"}`)}
	if _, err := r.Notify(t.Context(), notify.Team, notifytest.Warning()); err == nil || len(w.sent()) != 3 {
		t.Errorf("Notify: %v after %d requests; want a refusal that is not tried again", err, len(w.sent())-2)
	}
}

func TestNoListener(t *testing.T) {
	w := newWorkspace(t)
	w.Close()
	err := open(t, config(w.URL)).Send(t.Context(), "#vision", notifytest.Warning())
	var f *notify.Failure
	if !errors.As(err, &f) || !f.Temporary || !strings.Contains(f.Why, "connection refused") {
		t.Errorf("Send = %v, want a temporary failure", err)
	}
}

func TestUntrustedCertificateIsFinal(t *testing.T) {
	s := httptest.NewTLSServer(answers(200, `{"ok":true,"ts":"1"}`))
	s.Config.ErrorLog = nil
	defer s.Close()
	err := open(t, config(s.URL)).Send(t.Context(), "#vision", notifytest.Warning())
	var f *notify.Failure
	if !errors.As(err, &f) || f.Temporary || !strings.Contains(f.Why, "certificate") {
		t.Errorf("Send = %v, want a final refusal", err)
	}
}

func TestContext(t *testing.T) {
	w := newWorkspace(t)
	release := make(chan struct{})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	hang := func(http.ResponseWriter, *http.Request) {
		cancel()
		<-release
	}
	w.faults = []http.HandlerFunc{hang, hang}
	ch := open(t, config(w.URL))

	if err := ch.Send(ctx, "#vision", notifytest.Warning()); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want the cancellation", err)
	}
	late, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var f *notify.Failure
	if err := ch.Send(late, "#vision", notifytest.Warning()); !errors.As(err, &f) || !f.Temporary {
		t.Errorf("Send = %v, want a temporary failure", err)
	}
}

// TestTokenNeverShows lets the server repeat the token wherever it can.
func TestTokenNeverShows(t *testing.T) {
	echo := func(status int) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Location", "/"+token)
			rw.Header().Set("Retry-After", token)
			rw.WriteHeader(status)
			_ = json.NewEncoder(rw).Encode(map[string]any{
				"ok": false, "error": token, "needed": token, "provided": r.PostForm.Encode(),
			})
		}
	}
	for _, status := range []int{200, 302, 400, 401, 429, 500} {
		w := newWorkspace(t)
		w.faults = []http.HandlerFunc{echo(status)}
		err := open(t, config(w.URL)).Send(t.Context(), "#vision", notifytest.Warning())
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), "not-a-real-token") {
			t.Errorf("status %d: Send = %v", status, err)
		}
	}
	// The error of a broken connection has its own text.
	w := newWorkspace(t)
	hijack := func(rw http.ResponseWriter, _ *http.Request) {
		conn, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 "+token+"\r\n\r\n")
		conn.Close()
	}
	w.faults = []http.HandlerFunc{hijack}
	if err := open(t, config(w.URL)).Send(t.Context(), "#vision", notifytest.Warning()); err == nil ||
		strings.Contains(err.Error(), token) {
		t.Errorf("Send = %v", err)
	}
}

func TestGoldenBlocks(t *testing.T) {
	for _, c := range notifytest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			if err := e.Encode(blocks(notify.Compose(c.Message))); err != nil {
				t.Fatal(err)
			}
			notifytest.Golden(t, c.Name+".json", b.String())
		})
	}
}

// dates are the only markup that curfew writes with angle brackets.
var dates = regexp.MustCompile(`<!date\^-?\d+\^\{date_long_pretty\} \{time\}\|[A-Za-z0-9: ]+>`)

// object is any object of a block that holds text.
type object struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Verbatim bool   `json:"verbatim"`
}

// TestNothingIsParsed checks that for any names, Slack finds none of their mentions, links or
// markup, and no text exceeds its limit.
func TestNothingIsParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(),
			rapid.SampledFrom([]string{
				"<!channel>", "<@U123>", "```", "&lt;", "https://evil.example", strings.Repeat("<&>", 2000),
			}))
		m := notifytest.Warning()
		r := *m.Resource
		r.ID, r.Name, r.Owner.Team = s.Draw(t, "id"), s.Draw(t, "name"), s.Draw(t, "team")
		m.Resource, m.Because, m.Keep, m.Know, m.To = &r, s.Draw(t, "because"), s.Draw(t, "keep"), s.Draw(t,
			"know"), s.Draw(t, "to")
		m.Evidence[0].Value = s.Draw(t, "evidence")
		raw, err := json.Marshal(blocks(notify.Compose(m)))
		if err != nil {
			t.Fatal(err)
		}
		var got []struct {
			Type   string   `json:"type"`
			Text   *object  `json:"text"`
			Fields []object `json:"fields"`
		}
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if len(got) > 50 {
			t.Fatalf("%d blocks", len(got))
		}
		for _, b := range got {
			switch {
			case b.Type == "header":
				check(t, *b.Text, maxHeader)
			case b.Text != nil:
				check(t, *b.Text, maxSection)
			case len(b.Fields) == 0 || len(b.Fields) > 10:
				t.Fatalf("a section of %d fields", len(b.Fields))
			}
			for _, f := range b.Fields {
				check(t, f, maxField)
			}
		}
	})
}

// check checks one text against its limit and for markup that Slack would parse.
func check(t *rapid.T, o object, limit int) {
	if n := utf8.RuneCountInString(o.Text); n == 0 || n > limit {
		t.Fatalf("a text of %d characters, of at most %d", n, limit)
	}
	switch o.Type {
	case "plain_text":
	case "mrkdwn":
		rest := dates.ReplaceAllString(o.Text, "")
		code, isCode := strings.CutPrefix(rest, "```")
		code = strings.TrimSuffix(code, "```")
		if strings.ContainsAny(rest, "<>") || !o.Verbatim || isCode && strings.Contains(code, "`") {
			t.Fatalf("markup %q, verbatim %v", o.Text, o.Verbatim)
		}
	default:
		t.Fatalf("text of type %q", o.Type)
	}
}

// TestFallbackIsEscaped checks the fallback text, which Slack parses as well.
func TestFallbackIsEscaped(t *testing.T) {
	w := newWorkspace(t)
	if err := open(t, config(w.URL)).Send(t.Context(), "#vision", notifytest.Hostile()); err != nil {
		t.Fatal(err)
	}
	if text := w.sent()[0].Get("text"); strings.ContainsAny(text, "<>") ||
		!strings.Contains(text, "&lt;!channel&gt;") {
		t.Errorf("fallback %q", text)
	}
}

func TestOpen(t *testing.T) {
	if _, ch, err := Open(notify.Config{}, lookup); ch != nil || err != nil {
		t.Errorf("Open of no section = %v, %v; want no channel", ch, err)
	}
	c := config("https://slack.example.com")
	c.Slack.TokenEnv = "GONE"
	var fe *notify.FieldError
	if _, ch, err := Open(c, lookup); ch != nil || !errors.As(err, &fe) || fe.Path != "slack.token_env" {
		t.Errorf("Open without the token = %v, %v", ch, err)
	}
}

func BenchmarkSend(b *testing.B) {
	s := httptest.NewServer(answers(200, `{"ok":true,"channel":"C1","ts":"1503435956.000247"}`))
	defer s.Close()
	ch, m := open(b, config(s.URL)), notifytest.Warning()
	b.ReportAllocs()
	for b.Loop() {
		if err := ch.Send(context.Background(), "#vision", m); err != nil {
			b.Fatal(err)
		}
	}
}
