package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/notify/notifytest"
)

const (
	secret = "hmac-key-0123456789"
	bearer = "Bearer header-secret-987"
	path   = "/hooks/path-secret-555"
)

func lookup(name string) (string, bool) {
	v, ok := map[string]string{"SECRET": secret, "AUTH": bearer}[name]
	return v, ok
}

// post is one request as the receiver saw it.
type post struct {
	header http.Header
	body   []byte
	method string
	path   string
}

// receiver remembers what it was sent and answers by a handler.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	posts []post
}

func newReceiver(t testing.TB, answer http.HandlerFunc) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return
		}
		r.mu.Lock()
		r.posts = append(r.posts, post{req.Header.Clone(), body, req.Method, req.URL.Path})
		r.mu.Unlock()
		req.Body = io.NopCloser(bytes.NewReader(body))
		answer(rw, req)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) seen() []post {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]post(nil), r.posts...)
}

func status(code int, header ...string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			rw.Header().Set(header[i], header[i+1])
		}
		rw.WriteHeader(code)
	}
}

func config(base string) notify.Config {
	return notify.Config{
		Webhook: notify.Webhook{
			URL: base + path, SecretEnv: "SECRET", HeadersEnv: map[string]string{"Authorization": "AUTH"},
		},
		Names: map[string][]string{"bus": {"webhook"}},
	}
}

func channel(t testing.TB, c notify.Config) notify.Channel {
	t.Helper()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	name, ch, err := Open(c, lookup)
	if err != nil || name != "webhook" {
		t.Fatalf("Open = %q, %v", name, err)
	}
	return ch
}

// verify checks a signature as docs/notifications.md tells receivers to.
func verify(t *testing.T, p post, key string) bool {
	t.Helper()
	at, mac, found := strings.Cut(p.header.Get("Curfew-Signature"), ",")
	at, isTime := strings.CutPrefix(at, "t=")
	mac, isV1 := strings.CutPrefix(mac, "v1=")
	if !found || !isTime || !isV1 {
		t.Fatalf("signature %q", p.header.Get("Curfew-Signature"))
	}
	sent, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false
	}
	want := hmac.New(sha256.New, []byte(key))
	fmt.Fprintf(want, "%s.%s", at, p.body)
	return hmac.Equal([]byte(hex.EncodeToString(want.Sum(nil))), []byte(mac))
}

func TestDelivery(t *testing.T) {
	rc := newReceiver(t, status(204))
	r, err := notify.New(config(rc.URL), lookup, Open)
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Notify(t.Context(), "bus", notifytest.Warning())
	if err != nil || got != "webhook" {
		t.Fatalf("Notify = %q, %v", got, err)
	}
	posts := rc.seen()
	if len(posts) != 1 {
		t.Fatalf("%d posts, want one", len(posts))
	}
	p := posts[0]
	if p.method != "POST" || p.path != path || p.header.Get("Content-Type") != "application/json" ||
		p.header.Get("Authorization") != bearer {
		t.Errorf("%s %s with %v", p.method, p.path, p.header)
	}
	if !verify(t, p, secret) {
		t.Error("the signature does not hold")
	}
	if verify(t, p, "another key") {
		t.Error("the signature holds under another key")
	}
	forged := p
	forged.body = bytes.Replace(p.body, []byte("warning"), []byte("notice!"), 1)
	if verify(t, forged, secret) {
		t.Error("the signature holds for another body")
	}
	late := p
	late.header = http.Header{"Curfew-Signature": {strings.Replace(p.header.Get("Curfew-Signature"), "t=1", "t=2", 1)}}
	if verify(t, late, secret) {
		t.Error("the signature holds for another time")
	}
	var d Document
	dec := json.NewDecoder(bytes.NewReader(p.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Schema != "curfew.notification/v1" || d.To != "bus" || d.ID == "" || p.header.Get("Curfew-Delivery") != d.ID {
		t.Errorf("document %+v, delivery %q", d, p.header.Get("Curfew-Delivery"))
	}
}

// TestSignature compares the scheme with a value computed by hand: printf '1795273440.{}' | openssl
// dgst -sha256 -hmac key.
func TestSignature(t *testing.T) {
	const want = "t=1795273440,v1=f56b92732c449d96f5cb60a9a255972963850ed9702c13a4ce089d27915c79e6"
	if got := sign([]byte("key"), time.Unix(1795273440, 0), []byte("{}")); got != want {
		t.Errorf("sign = %q, want %q", got, want)
	}
}

func TestGoldenDocument(t *testing.T) {
	for _, c := range notifytest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			b, err := json.MarshalIndent(newDocument(c.Message), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			notifytest.Golden(t, c.Name+".json", string(b)+"\n")
		})
	}
}

func TestUnknownIsNull(t *testing.T) {
	m := notifytest.Warning()
	m.Hourly, m.ActsAt, m.Resource, m.Evidence = action.Message{}.Hourly, time.Time{}, nil, nil
	b, err := json.Marshal(newDocument(m))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"hourly_usd", "acts_at", "resource"} {
		if v, there := got[key]; !there || v != nil {
			t.Errorf("%s = %v, want null", key, v)
		}
	}
	if diff := cmp.Diff([]any{}, got["evidence"]); diff != "" {
		t.Errorf("evidence (-want +got):\n%s", diff)
	}
}

// TestIDsTellMessagesApart checks that each message has its own id, which does not change.
func TestIDsTellMessagesApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) action.Message {
			m := notifytest.Warning()
			m.Because = rapid.SampledFrom([]string{"a", "b"}).Draw(t, name+" because")
			m.Item = rapid.SampledFrom([]string{"1", "2"}).Draw(t, name+" item")
			m.ActsAt = notifytest.ActsAt.Add(time.Duration(rapid.IntRange(0, 1).Draw(t, name+" at")) * time.Hour)
			return m
		}
		a, b := draw("a"), draw("b")
		same := a.Because == b.Because && a.Item == b.Item && a.ActsAt.Equal(b.ActsAt)
		if x, y := newDocument(a).ID, newDocument(b).ID; (x == y) != same {
			t.Fatalf("ids %s and %s of messages that are the same: %v", x, y, same)
		}
	})
}

func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		code      int
		header    []string
		accepted  bool
		says      string
		temporary bool
		after     time.Duration
	}{
		{200, nil, true, "", false, 0},
		{201, nil, true, "", false, 0},
		{202, nil, true, "", false, 0},
		{204, nil, true, "", false, 0},
		{301, []string{"Location", "/elsewhere"}, false, "redirects are not followed", false, 0},
		{307, []string{"Location", "/elsewhere"}, false, "redirects are not followed", false, 0},
		{304, nil, false, "answered 304", false, 0},
		{400, nil, false, "answered 400 Bad Request", false, 0},
		{401, nil, false, "answered 401 Unauthorized", false, 0},
		{404, nil, false, "answered 404 Not Found", false, 0},
		{408, nil, false, "answered 408", true, 0},
		{410, nil, false, "answered 410 Gone", false, 0},
		{429, []string{"Retry-After", "7"}, false, "answered 429", true, 7 * time.Second},
		{500, nil, false, "answered 500", true, 0},
		{501, nil, false, "answered 501", false, 0},
		{503, []string{"Retry-After", "3"}, false, "answered 503", true, 3 * time.Second},
	} {
		t.Run(strconv.Itoa(tt.code), func(t *testing.T) {
			rc := newReceiver(t, status(tt.code, tt.header...))
			err := channel(t, config(rc.URL)).Send(t.Context(), "", notifytest.Warning())
			if n := len(rc.seen()); n != 1 {
				t.Errorf("%d requests, want one", n)
			}
			if tt.accepted {
				if err != nil {
					t.Errorf("Send: %v", err)
				}
				return
			}
			var f *notify.Failure
			if !errors.As(err, &f) || !strings.Contains(f.Why, tt.says) || f.Temporary != tt.temporary ||
				f.RetryAfter != tt.after {
				t.Errorf("Send = %#v, want %q, temporary %v, after %s", err, tt.says, tt.temporary, tt.after)
			}
		})
	}
}

func TestRetriesOverTheWire(t *testing.T) {
	failing := true
	rc := newReceiver(t, nil)
	rc.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		rc.mu.Lock()
		defer rc.mu.Unlock()
		rc.posts = append(rc.posts, post{header: req.Header.Clone(), body: body})
		if failing {
			failing = false
			rw.WriteHeader(503)
		}
	})
	r, err := notify.New(config(rc.URL), lookup, Open)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Notify(t.Context(), "bus", notifytest.Warning()); err != nil {
		t.Fatal(err)
	}
	posts := rc.seen()
	if len(posts) != 2 {
		t.Fatalf("%d requests, want two", len(posts))
	}
	if a, b := posts[0].header.Get("Curfew-Delivery"), posts[1].header.Get("Curfew-Delivery"); a != b || a == "" {
		t.Errorf("deliveries %q and %q, want one", a, b)
	}
	if !bytes.Equal(posts[0].body, posts[1].body) || !verify(t, posts[1], secret) {
		t.Error("the second attempt is another message, or its signature does not hold")
	}
}

// TestSecretsNeverShow checks a receiver that repeats the request wherever it can, or does not
// exist.
func TestSecretsNeverShow(t *testing.T) {
	check := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: accepted", name)
			return
		}
		for _, s := range []string{secret, bearer, "header-secret-987", "path-secret-555"} {
			if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), s) {
				t.Errorf("%s: the error shows %q: %v", name, s, err)
			}
		}
	}
	echo := func(code int) http.HandlerFunc {
		return func(rw http.ResponseWriter, req *http.Request) {
			all := req.URL.Path + " " + req.Header.Get("Authorization") + " " + secret
			rw.Header().Set("Location", "http://127.0.0.1:1/"+path+"?"+secret)
			rw.Header().Set("Retry-After", all)
			rw.WriteHeader(code)
			fmt.Fprint(rw, all)
		}
	}
	for _, code := range []int{302, 400, 401, 429, 500} {
		rc := newReceiver(t, echo(code))
		check(strconv.Itoa(code), channel(t, config(rc.URL)).Send(t.Context(), "", notifytest.Warning()))
	}
	for name, words := range map[string]string{
		"a malformed status":   "HTTP/1.1 " + bearer + "\r\n\r\n",
		"a malformed header":   "HTTP/1.1 200 OK\r\n" + path + "\r\n\r\n",
		"a malformed location": "HTTP/1.1 302 Found\r\nLocation: http://%zz" + secret + path + "\r\n\r\n",
	} {
		rc := newReceiver(t, func(rw http.ResponseWriter, _ *http.Request) {
			conn, _, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(conn, words)
			conn.Close()
		})
		check(name, channel(t, config(rc.URL)).Send(t.Context(), "", notifytest.Warning()))
	}
	rc := newReceiver(t, status(200))
	rc.Close()
	check("no listener", channel(t, config(rc.URL)).Send(t.Context(), "", notifytest.Warning()))
}

func TestContext(t *testing.T) {
	release := make(chan struct{})
	rc := newReceiver(t, func(http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if err := channel(t, config(rc.URL)).Send(ctx, "", notifytest.Warning()); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want the cancellation", err)
	}
}

func TestOpen(t *testing.T) {
	if _, ch, err := Open(notify.Config{}, lookup); ch != nil || err != nil {
		t.Errorf("Open of no section = %v, %v; want no channel", ch, err)
	}
	env := func(vars map[string]string) notify.Lookup {
		return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
	}
	for _, tt := range []struct {
		name string
		w    notify.Webhook
		vars map[string]string
		path string // of the mistake; "" is none
	}{
		{
			"the URL from the environment", notify.Webhook{URLEnv: "URL", SecretEnv: "S"},
			map[string]string{"URL": "https://h.example.com/t0ken", "S": "k"}, "",
		},
		{
			"the URL is not there", notify.Webhook{URLEnv: "URL", SecretEnv: "S"}, map[string]string{"S": "k"},
			"webhook.url_env",
		},
		{
			"the URL from the environment is in the clear", notify.Webhook{URLEnv: "URL", SecretEnv: "S"},
			map[string]string{"URL": "http://h.example.com/t0ken", "S": "k"}, "webhook.url",
		},
		{"no secret", notify.Webhook{URL: "https://h.example.com/", SecretEnv: "S"}, nil, "webhook.secret_env"},
		{
			"no header's value",
			notify.Webhook{URL: "https://h.example.com/", SecretEnv: "S", HeadersEnv: map[string]string{"A": "GONE"}},
			map[string]string{"S": "k"}, "webhook.headers_env",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, ch, err := Open(notify.Config{Webhook: tt.w}, env(tt.vars))
			if tt.path == "" {
				if err != nil || ch == nil {
					t.Fatalf("Open = %v, %v", ch, err)
				}
				return
			}
			var fe *notify.FieldError
			if ch != nil || !errors.As(err, &fe) || fe.Path != tt.path || strings.Contains(err.Error(), "t0ken") {
				t.Errorf("Open = %v, %v; want a mistake in %s", ch, err, tt.path)
			}
		})
	}
}

func BenchmarkSend(b *testing.B) {
	s := httptest.NewServer(status(204))
	defer s.Close()
	ch, m := channel(b, config(s.URL)), notifytest.Warning()
	b.ReportAllocs()
	for b.Loop() {
		if err := ch.Send(context.Background(), "", m); err != nil {
			b.Fatal(err)
		}
	}
}
