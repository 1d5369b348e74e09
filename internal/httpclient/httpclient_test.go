package httpclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder answers the first requests by handlers, later ones by the last of them, and keeps
// the bodies that it was sent.
type recorder struct {
	*httptest.Server
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
}

func serve(t *testing.T, handlers ...http.HandlerFunc) *recorder {
	t.Helper()
	r := &recorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		n := min(len(r.bodies), len(handlers)-1)
		r.bodies, r.headers = append(r.bodies, string(body)), append(r.headers, req.Header)
		r.mu.Unlock()
		handlers[n](w, req)
	}))
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	return r
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		fmt.Fprint(w, code)
	}
}

// reset closes the connection without an answer.
func reset(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// cut breaks off in the middle of an answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	_, _ = w.Write([]byte("half"))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// stall never answers.
func stall(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// recordWaits returns options whose waits are recorded and take no time.
func recordWaits(o Options) (Options, *[]time.Duration) {
	var waits []time.Duration
	o.Wait = func(ctx context.Context, d time.Duration) error {
		waits = append(waits, d)
		return ctx.Err()
	}
	return o, &waits
}

func request(t *testing.T, method, url, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRetries(t *testing.T) {
	ok := status(200)
	for _, tt := range []struct {
		name     string
		method   string
		key      string // "mark" marks without a key
		handlers []http.HandlerFunc
		sent     int
		status   int // 0: an error
	}{
		{"an answer", "GET", "", []http.HandlerFunc{ok}, 1, 200},
		{"503", "GET", "", []http.HandlerFunc{status(503), ok}, 2, 200},
		{"502 and 504", "GET", "", []http.HandlerFunc{status(502), status(504), ok}, 3, 200},
		{"429", "GET", "", []http.HandlerFunc{status(429), ok}, 2, 200},
		{"503 without end", "GET", "", []http.HandlerFunc{status(503)}, 4, 503},
		{"a reset connection", "GET", "", []http.HandlerFunc{reset, reset, ok}, 3, 200},
		{"resets without end", "GET", "", []http.HandlerFunc{reset}, 4, 0},
		{"an answer that breaks off", "GET", "", []http.HandlerFunc{cut, ok}, 2, 200},
		{"PUT", "PUT", "", []http.HandlerFunc{status(503), ok}, 2, 200},
		{"DELETE", "DELETE", "", []http.HandlerFunc{reset, ok}, 2, 200},
		{"POST with a key", "POST", "k", []http.HandlerFunc{reset, status(503), ok}, 3, 200},
		{"a query by POST", "POST", "mark", []http.HandlerFunc{status(503), ok}, 2, 200},
		{"POST, 503", "POST", "", []http.HandlerFunc{status(503), ok}, 1, 503},
		{"POST, 429", "POST", "", []http.HandlerFunc{status(429), ok}, 1, 429},
		{"POST, reset", "POST", "", []http.HandlerFunc{reset, ok}, 1, 0},
		{"POST, an answer that breaks off", "POST", "", []http.HandlerFunc{cut, ok}, 1, 0},
		{"PATCH", "PATCH", "", []http.HandlerFunc{status(503), ok}, 1, 503},
		{"500", "GET", "", []http.HandlerFunc{status(500), ok}, 1, 500},
		{"501", "GET", "", []http.HandlerFunc{status(501), ok}, 1, 501},
		{"404", "GET", "", []http.HandlerFunc{status(404), ok}, 1, 404},
		{"a redirect", "GET", "", []http.HandlerFunc{status(307, "Location", "/elsewhere"), ok}, 1, 307},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, tt.handlers...)
			o, waits := recordWaits(Options{WholeBody: true})
			c := New(o)
			defer c.Close()
			r := request(t, tt.method, s.URL, "the body")
			switch tt.key {
			case "mark":
				MarkIdempotent(r)
			case "":
			default:
				SetKey(r, tt.key)
			}
			resp, err := c.Do(r)
			got := 0
			if err == nil {
				got = resp.StatusCode
				_ = resp.Body.Close()
			}
			if got != tt.status || len(s.bodies) != tt.sent || len(*waits) != tt.sent-1 {
				t.Errorf("status %d, %v; sent %d times with waits %v; want %d after %d", got,
					err, len(s.bodies), *waits,
					tt.status, tt.sent)
			}
			for i, body := range s.bodies {
				if body != "the body" || s.headers[i].Get("User-Agent") != DefaultUserAgent || tt.key == "mark" &&
					s.headers[i]["Idempotency-Key"] != nil {
					t.Errorf("attempt %d sent %q with %v", i+1, body, s.headers[i])
				}
			}
		})
	}
}

func TestRepeatsUnsentPost(t *testing.T) {
	s := serve(t, status(200))
	s.Close()
	o, waits := recordWaits(Options{})
	if _, err := New(o).Do(request(t, "POST", s.URL, "x")); err == nil || !NotSent(err) || len(*waits) != 3 {
		t.Errorf("Do = %v after waits of %v, want three", err, *waits)
	}
}

func TestWaits(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name       string
		retryAfter string
		o          Options
		want       []time.Duration // the shortest; each has up to a quarter more, a Retry-After none
	}{
		{"backoff", "", Options{}, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}},
		{
			"a bounded backoff", "", Options{MaxWait: time.Second},
			[]time.Duration{500 * time.Millisecond, time.Second, time.Second},
		},
		{"seconds", "7", Options{}, []time.Duration{7 * time.Second, 7 * time.Second, 7 * time.Second}},
		{
			"a date", at.Add(9 * time.Second).Format(http.TimeFormat), Options{},
			[]time.Duration{9 * time.Second, 9 * time.Second, 9 * time.Second},
		},
		{
			"a date that has passed", at.Add(-time.Hour).Format(http.TimeFormat), Options{},
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second},
		},
		{"nonsense", "soon", Options{}, []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}},
		{
			"a negative Retry-After", "-1", Options{},
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second},
		},
		{"longer than is waited for", "31", Options{}, nil},
		{"longer than the total time", "20", Options{TotalTimeout: 10 * time.Second}, nil},
		{"one attempt", "", Options{Attempts: 1}, nil},
		{
			"more attempts", "", Options{Attempts: 5},
			[]time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, status(503, "Retry-After", tt.retryAfter))
			o, waits := recordWaits(tt.o)
			if strings.HasSuffix(tt.retryAfter, "GMT") {
				o.Now = func() time.Time { return at }
				o.TotalTimeout = 100 * 365 * 24 * time.Hour
			}
			resp, err := New(o).Do(request(t, "GET", s.URL, ""))
			if err != nil || resp.StatusCode != 503 {
				t.Fatalf("Do = %v, %v", resp, err)
			}
			_ = resp.Body.Close()
			if len(*waits) != len(tt.want) {
				t.Fatalf("waits %v, want %v", *waits, tt.want)
			}
			for i, w := range *waits {
				least, most := tt.want[i], tt.want[i]
				if least < 7*time.Second { // a backoff
					most += least / 4
				}
				if w < least || w > most {
					t.Errorf("wait %d is %s, want %s to %s", i, w, least, most)
				}
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answered(code int, r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader(nil)),
	}
}

// TestTotalTimeout runs in simulated time: attempts and waits together keep to the bound.
func TestTotalTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		c := New(Options{
			Attempts: 1000, TotalTimeout: time.Minute,
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				time.Sleep(3 * time.Second)
				return answered(503, r), nil
			})})
		resp, err := c.Do(request(t, "GET", "http://example.com", ""))
		if took := time.Since(begun); err != nil || resp.StatusCode != 503 ||
			took > time.Minute || took < 20*time.Second {
			t.Errorf("Do = %v, %v after %s", resp, err, took)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		begun = time.Now()
		c = New(Options{TotalTimeout: time.Minute, Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		var timeout *TimeoutError
		_, err = c.Do(request(t, "GET", "http://example.com", ""))
		if took := time.Since(begun); !errors.As(err, &timeout) ||
			timeout.Within != time.Minute || took != time.Minute {
			t.Errorf("Do = %v after %s, want a timeout after a minute", err, took)
		}
	})
}

func TestAttemptTimeout(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"no headers": stall,
		"half of the answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("half"))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		},
	} {
		s := serve(t, handler, status(200))
		o, _ := recordWaits(Options{AttemptTimeout: 50 * time.Millisecond, WholeBody: true})
		resp, err := New(o).Do(request(t, "GET", s.URL, ""))
		if err != nil || resp.StatusCode != 200 || len(s.bodies) != 2 {
			t.Errorf("%s: Do = %v after %d attempts, want a second one", name, err, len(s.bodies))
		} else {
			_ = resp.Body.Close()
		}
		s = serve(t, handler)
		_, err = New(o).Do(request(t, "GET", s.URL, ""))
		var timeout *TimeoutError
		if !errors.As(err, &timeout) || !strings.Contains(err.Error(), "no answer within 50ms") || len(s.bodies) != 4 {
			t.Errorf("%s: Do = %v after %d attempts", name, err, len(s.bodies))
		}
		if _, err = New(o).Do(request(t, "POST", s.URL, "")); !errors.As(err, &timeout) || len(s.bodies) != 5 {
			t.Errorf("%s: a POST = %v after %d attempts, want one", name, err, len(s.bodies)-4)
		}
	}
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	resp, err := New(Options{AttemptTimeout: 50 * time.Millisecond}).Do(request(t, "GET", s.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var timeout *TimeoutError
	if _, err := io.ReadAll(resp.Body); !errors.As(err, &timeout) {
		t.Errorf("reading an answer that stops: %v", err)
	}
}

func TestContextEnds(t *testing.T) {
	stopped := errors.New("interrupted")
	for name, handler := range map[string]http.HandlerFunc{
		"an attempt": stall, "a wait": status(503, "Retry-After", "30"),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, handler)
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(stopped) })
			begun := time.Now()
			_, err := New(Options{}).Do(request(t, "GET", s.URL, "").WithContext(ctx))
			if !errors.Is(err, stopped) || time.Since(begun) > 10*time.Second || len(s.bodies) != 1 {
				t.Errorf("Do = %v after %s and %d attempts", err, time.Since(begun), len(s.bodies))
			}
		})
	}
}

func TestBodyLimit(t *testing.T) {
	write := func(n int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, n)) }
	}
	for _, whole := range []bool{false, true} {
		for n, ok := range map[int]bool{0: true, 99: true, 100: true, 101: false, 1 << 20: false} {
			s := serve(t, write(n))
			resp, err := New(Options{MaxBody: 100, WholeBody: whole}).Do(request(t, "GET", s.URL, ""))
			var got []byte
			if err == nil {
				got, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			var large *TooLargeError
			if ok != (err == nil) || ok && len(got) != n || !ok && !errors.As(err, &large) || len(s.bodies) != 1 {
				t.Errorf("whole %v, %d bytes: read %d, %v after %d attempts", whole, n, len(got), err, len(s.bodies))
			}
		}
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewTLSServer(status(200))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer s.Close()
	o, waits := recordWaits(Options{})
	if _, err := New(o).Do(request(t, "GET", s.URL, "")); err == nil || !Final(err) || len(*waits) > 0 {
		t.Errorf("an untrusted certificate: %v after waits %v", err, *waits)
	}
	o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	o.TLS.RootCAs.AddCert(s.Certificate())
	resp, err := New(o).Do(request(t, "GET", s.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()

	mutual := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, len(r.TLS.PeerCertificates))
	}))
	mutual.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	mutual.Config.ErrorLog = log.New(io.Discard, "", 0)
	mutual.StartTLS()
	defer mutual.Close()
	o.TLS = &tls.Config{RootCAs: x509.NewCertPool(), Certificates: mutual.TLS.Certificates}
	o.TLS.RootCAs.AddCert(mutual.Certificate())
	resp, err = New(o).Do(request(t, "GET", mutual.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "1" {
		t.Errorf("the server saw %s certificates of the client, %v", got, err)
	}
}

func TestPrepareRunsBeforeEachAttempt(t *testing.T) {
	s := serve(t, status(503), status(200))
	o, _ := recordWaits(Options{})
	n := 0
	o.Prepare = func(r *http.Request) error { n++; r.Header.Set("Signed", fmt.Sprint(n)); return nil }
	resp, err := New(o).Do(request(t, "GET", s.URL, ""))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if s.headers[0].Get("Signed") != "1" || s.headers[1].Get("Signed") != "2" {
		t.Errorf("sent with %v", s.headers)
	}
	refused := errors.New("no credentials")
	o.Prepare = func(*http.Request) error { return refused }
	if _, err := New(o).Do(request(t, "GET", s.URL, "")); !errors.Is(err, refused) || len(s.bodies) != 2 {
		t.Errorf("Do = %v after %d attempts", err, len(s.bodies))
	}
}

func TestRetryOverridesTheDecision(t *testing.T) {
	s := serve(t, status(418), status(200))
	o, waits := recordWaits(Options{WholeBody: true})
	o.Retry = func(a Attempt, d Decision) Decision {
		if a.Response.StatusCode == 418 && string(a.Peek(10)) == "418" && a.Number == 1 {
			return Decision{Again: true, Wait: time.Second}
		}
		return d
	}
	resp, err := New(o).Do(request(t, "POST", s.URL, ""))
	if err != nil || resp.StatusCode != 200 || len(*waits) != 1 || (*waits)[0] != time.Second {
		t.Fatalf("Do = %v, %v after %v", resp, err, *waits)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || string(got) != "200" {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestStandardClient(t *testing.T) {
	moved := status(307, "Location", "/elsewhere")
	s := serve(t, status(503), moved, status(200))
	o, _ := recordWaits(Options{})
	resp, err := New(o).Standard().Do(request(t, "GET", s.URL, ""))
	if err != nil || resp.StatusCode != 307 {
		t.Fatalf("a redirect is followed: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	s.Close()
	_, err = New(o).Standard().Do(request(t, "GET", s.URL, ""))
	if err == nil || strings.Count(err.Error(), s.URL) != 1 {
		t.Errorf("the error names the URL more than once: %v", err)
	}
}

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{
		"1", "0", "-1", " 30 ", "18446744073709551615", "Sat, 21 Nov 2026 15:04:05 GMT", "soon",
	} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 21, 15, 4, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d, _ := RetryAfter(http.Header{"Retry-After": {s}}, now); d < 0 || d > 24*time.Hour {
			t.Fatalf("Retry-After %q is %s", s, d)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 21, 15, 4, 0, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"":                              0,
		"7":                             7 * time.Second,
		"99999999999":                   24 * time.Hour,
		"Sat, 21 Nov 2026 15:04:05 GMT": 5 * time.Second,
		"Sat, 21 Nov 2026 15:03:05 GMT": 0,
		"soon":                          0,
	} {
		if got, _ := RetryAfter(http.Header{"Retry-After": {s}}, now); got != want {
			t.Errorf("Retry-After %q = %s, want %s", s, got, want)
		}
	}
}
