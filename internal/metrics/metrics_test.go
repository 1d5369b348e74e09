package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const token = "not-a-real-token-0123456789"

var (
	from = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	to   = from.Add(24 * time.Hour)
)

// vector returns a response as documented at
// https://prometheus.io/docs/prometheus/latest/querying/api/.
func vector(values ...string) string {
	series := make([]string, len(values))
	for i, v := range values {
		series[i] = fmt.Sprintf(`{"metric":{"job":"embed","instance":"host-%d:9090"},"value":[1435781451.781,%q]}`, i,
			v)
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(series, ",") + `]}}`
}

func refusal(kind, message string) string {
	return fmt.Sprintf(`{"status":"error","errorType":%q,"error":%q}`, kind, message)
}

// server gives the same response to every query and records the queries.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []url.Values
	header http.Header
}

func serve(t testing.TB, status int, body string, header ...string) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		s.mu.Lock()
		s.asked, s.header = append(s.asked, r.Form), r.Header
		s.mu.Unlock()
		if !strings.HasSuffix(r.URL.Path, "/api/v1/query") {
			w.WriteHeader(404)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}

// noWait skips the waits between attempts.
func noWait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func client(t testing.TB, address string) *Client {
	t.Helper()
	c, err := New(Options{URL: address, Token: token, Wait: noWait})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCount(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   float64
		says   string // the expected part of the error; empty if none is expected
	}{
		{"one series", 200, vector("1234.5"), 1234.5, ""},
		{"zero is a count", 200, vector("0"), 0, ""},
		{"large", 200, vector("1.2e+12"), 1.2e12, ""},
		{
			"a scalar", 200, `{"status":"success","data":{"resultType":"scalar","result":[1435781451.781,"42"]}}`, 42,
			"",
		},
		{
			"a hint of version 2", 200,
			strings.Replace(vector("7"), `{"status"`,
				`{"warnings":["PromQL info: metric might not be a counter"],"status"`, 1),
			7, "",
		},
		{
			"a hint of version 3", 200,
			strings.Replace(vector("7"), `{"status"`,
				`{"infos":["PromQL info: metric might not be a counter"],"status"`, 1),
			7, "",
		},
		{
			"a partial answer", 200,
			strings.Replace(vector("7"), `{"status"`,
				`{"warnings":["receive series from store: no such host"],"status"`, 1),
			0, "may be partial: receive series from store",
		},
		{"no series", 200, vector(), 0, "not known: there is no such series"},
		{"NaN", 200, vector("NaN"), 0, "not known: the answer is NaN"},
		{"infinite", 200, vector("+Inf"), 0, "not known: the answer is +Inf"},
		{"negative", 200, vector("-3"), 0, "is it a counter?"},
		{"several series", 200, vector("1", "2"), 0, "the answer is 2 series, not one number; put sum(…) around"},
		{
			"a range of values", 200,
			`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1435781430.781,"1"]]}]}}`, 0,
			"is there a range too many?",
		},
		{
			"a text", 200, `{"status":"success","data":{"resultType":"string","result":[1435781451.781,"foo"]}}`, 0,
			"not that of Prometheus's API: unexpected value type",
		},
		{
			"a histogram", 200,
			`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1435781451.781,{"count":"60","sum":"33.3","buckets":[]}]}]}}`,
			0, "histogram_count",
		},
		{
			"a wrong query", 400,
			refusal("bad_data", `invalid parameter "query": 1:5: parse error: unexpected identifier "foo"`), 0,
			"does not understand the query: invalid parameter",
		},
		{
			"too long for the server", 503, refusal("timeout", "query timed out in expression evaluation"), 0,
			"gave the query up: query timed out in expression evaluation",
		},
		{
			"given up", 422, refusal("execution", "query processing would load too many samples into memory"), 0,
			"gave the query up: query processing would load too many samples",
		},
		{
			"not signed in", 401, "Unauthorized", 0,
			"the server answered with a client error: 401; is its address right, and is a token needed?",
		},
		{"not there", 404, "404 page not found", 0, "client error: 404"},
		{"a gateway's page", 502, "<html>", 0, "server error: 502"},
		{"a page", 200, "<html>Sign in</html>", 0, "not that of Prometheus's API"},
		{"an error with 200", 200, refusal("internal", "oops"), 0, "not that of Prometheus's API: oops"},
		{"empty", 200, "", 0, "not that of Prometheus's API"},
		{"cut off", 200, vector("1234")[:60], 0, "not that of Prometheus's API"},
		{"endless", 200, strings.Repeat(" ", maxAnswer) + vector("1"), 0, "not that of Prometheus's API"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, tt.status, tt.body)
			got, err := client(t, s.URL).Count(t.Context(), "requests_total", from, to)
			if tt.says == "" {
				if err != nil || got != tt.want {
					t.Errorf("Count = %v, %v; want %v", got, err, tt.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) ||
				!strings.HasPrefix(err.Error(), `count "requests_total" at 127.0.0.1:`) ||
				strings.Contains(err.Error(), "\n") ||
				got != 0 {
				t.Errorf("Count = %v, %v; want one line with %q", got, err, tt.says)
			}
			if unknown := strings.HasPrefix(tt.says, "not known"); errors.Is(err, ErrUnknown) != unknown {
				t.Errorf("Count = %v, ErrUnknown %v", err, !unknown)
			}
		})
	}
}

func TestQueries(t *testing.T) {
	for _, tt := range []struct {
		name, query string
		over        time.Duration
		want        string
	}{
		{"a counter", "requests_total", 24 * time.Hour, "sum(increase(requests_total[86400s]))"},
		{"a selector", `requests_total{job="embed"}`, time.Hour, `sum(increase(requests_total{job="embed"}[3600s]))`},
		{
			"an expression", "sum(increase(tokens_total[$range])) / 1e6", 90 * time.Minute,
			"sum(increase(tokens_total[5400s])) / 1e6",
		},
		{
			"two ranges", "sum(increase(a[$range])) + sum(increase(b[$range]))", time.Minute,
			"sum(increase(a[60s])) + sum(increase(b[60s]))",
		},
		{"a part of a second", "requests_total", 1500 * time.Millisecond, "sum(increase(requests_total[1500ms]))"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, 200, vector("1"))
			if _, err := client(t, s.URL+"/prometheus/").Count(t.Context(), tt.query, from,
				from.Add(tt.over)); err != nil {
				t.Fatal(err)
			}
			if got := s.asked[0].Get("query"); got != tt.want {
				t.Errorf("asked %q, want %q", got, tt.want)
			}
			if got, want := s.asked[0].Get("time"), fmt.Sprint(
				from.Add(tt.over).Unix()); !strings.HasPrefix(got, want) {
				t.Errorf("asked at %s, want %s", got, want)
			}
			if got := s.header.Get("Authorization"); got != "Bearer "+token {
				t.Errorf("asked with %q", got)
			}
		})
	}
	s := serve(t, 200, vector("1"))
	c := client(t, s.URL)
	if _, err := c.Count(t.Context(), " ", from, to); err == nil ||
		!strings.Contains(err.Error(), "the query is empty") {
		t.Errorf("an empty query: %v", err)
	}
	if _, err := c.Count(t.Context(), "requests_total", to, from); err == nil ||
		!strings.Contains(err.Error(), "is none") {
		t.Errorf("no time: %v", err)
	}
	if len(s.asked) > 0 {
		t.Errorf("asked %v", s.asked)
	}
}

// days returns a client of a server whose response depends on the end of the queried range.
func days(t testing.TB, answer func(end time.Time) string) *Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		var seconds float64
		_, _ = fmt.Sscan(r.Form.Get("time"), &seconds)
		_, _ = io.WriteString(w, answer(time.UnixMilli(int64(math.Round(seconds*1000))).UTC()))
	}))
	t.Cleanup(s.Close)
	return client(t, s.URL)
}

func TestCountByDay(t *testing.T) {
	c := days(t, func(end time.Time) string {
		switch end.Day() {
		case 3:
			return vector() // the second of November
		case 4:
			return vector("NaN")
		}
		return vector(fmt.Sprint(end.Day() * 10))
	})
	got, err := c.CountByDay(t.Context(), "requests_total", from.Add(6*time.Hour).In(time.FixedZone("", 3600)),
		from.Add(4*24*time.Hour+time.Hour))
	want := []Day{
		{from.Add(6 * time.Hour), from.Add(24 * time.Hour), 20, true},
		{from.Add(24 * time.Hour), from.Add(48 * time.Hour), 0, false},
		{from.Add(48 * time.Hour), from.Add(72 * time.Hour), 0, false},
		{from.Add(72 * time.Hour), from.Add(96 * time.Hour), 50, true},
		{from.Add(96 * time.Hour), from.Add(97 * time.Hour), 50, true},
	}
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("CountByDay = %v, %v; want %v", got, err, want)
	}

	broken := days(t, func(end time.Time) string {
		if end.Day() == 3 {
			return refusal("internal", "oops")
		}
		return vector("1")
	})
	if got, err := broken.CountByDay(t.Context(), "requests_total", from, to.Add(48*time.Hour)); err == nil ||
		got != nil {
		t.Errorf("a day that cannot be asked for: %v, %v", got, err)
	}
	if _, err := c.CountByDay(t.Context(), "requests_total", to, to); err == nil {
		t.Error("no days are counted")
	}
	if _, err := c.CountByDay(t.Context(), "requests_total", from, from.AddDate(20, 0, 0)); err == nil ||
		!strings.Contains(err.Error(), "over 3660 days") {
		t.Errorf("twenty years: %v", err)
	}
}

// TestDaysCoverRange checks that the days cover the range without gaps or overlaps.
func TestDaysCoverRange(t *testing.T) {
	c := days(t, func(time.Time) string { return vector("1") })
	rapid.Check(t, func(t *rapid.T) {
		begin := from.Add(time.Duration(rapid.Int64Range(0, int64(72*time.Hour)).Draw(t, "begin"))).Truncate(
			time.Second)
		end := begin.Add(time.Duration(rapid.Int64Range(int64(time.Second), int64(100*time.Hour)).Draw(t, "length"))).
			Truncate(time.Second)
		got, err := c.CountByDay(context.Background(), "requests_total", begin, end)
		if err != nil {
			t.Fatal(err)
		}
		at := begin
		for _, d := range got {
			if !d.From.Equal(at) || !d.To.After(d.From) || d.To.Sub(d.From) > 24*time.Hour ||
				d.From.Day() != d.To.Add(-1).Day() || !d.Known {
				t.Fatalf("%v after %v", d, at)
			}
			at = d.To
		}
		if !at.Equal(end) {
			t.Fatalf("ends at %s, want %s", at, end)
		}
	})
}

func TestNew(t *testing.T) {
	for _, tt := range []struct {
		name, url, token string
		ok               bool
	}{
		{"in a cluster", "http://prometheus.monitoring:9090", "", true},
		{"below a path", "https://example.com/prometheus/", token, true},
		{"on this machine", "http://127.0.0.1:9090", token, true},
		{"the token in the clear", "http://prometheus.monitoring:9090", token, false},
		{"a password in the URL", "https://u:s3cret@example.com", "", false},
		{"a query", "https://example.com?tenant=s3cret", "", false},
		{"no scheme", "prometheus:9090", "", false},
		{"another scheme", "file:///etc/passwd", "", false},
		{"a token of two words", "https://example.com", "a s3cret", false},
		{"empty", "", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(Options{URL: tt.url, Token: tt.token})
			if (err == nil) != tt.ok || err != nil && (strings.Contains(err.Error(), "s3cret") ||
				strings.Contains(err.Error(), token)) {
				t.Errorf("New = %v", err)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	s := serve(t, 200, vector("1"))
	address := s.URL
	s.Close()
	if _, err := client(t, address).Count(t.Context(), "requests_total", from, to); err == nil ||
		!strings.Contains(err.Error(), "the server is not reached: dial tcp") ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("no server listens: %v", err)
	}

	tls := httptest.NewTLSServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer tls.Close()
	if _, err := client(t, tls.URL).Count(t.Context(), "requests_total", from, to); err == nil ||
		!strings.Contains(err.Error(), "certificate is not trusted") {
		t.Errorf("an untrusted certificate: %v", err)
	}

	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	c, err := New(Options{URL: slow.URL, Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Count(t.Context(), "requests_total", from, to); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("a slow server: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Count(ctx, "requests_total", from, to); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// TestTokenIsNotLeaked checks that errors do not contain the token and redirects do not forward it.
func TestTokenIsNotLeaked(t *testing.T) {
	for _, status := range []int{200, 301, 307, 400, 401, 422, 500} {
		s := serve(t, status, refusal("bad_data", "no "+token), "Location", "http://127.0.0.1:1/"+token)
		_, err := client(t, s.URL).Count(t.Context(), "requests_total", from, to)
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), token) || len(s.asked) != 1 {
			t.Errorf("status %d: %v after %d requests", status, err, len(s.asked))
		}
	}
}

// FuzzAnswer checks that every response yields a number of at least zero or a one-line error.
func FuzzAnswer(f *testing.F) {
	f.Add(200, vector("1"))
	f.Add(200, vector("NaN"))
	f.Add(400, refusal("bad_data", "no"))
	f.Add(200, `{"status":"success","data":{"resultType":"scalar","result":[1,"-0"]}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 || status >= 300 && status < 400 {
			status = 200
		}
		c, err := New(Options{
			URL: "http://127.0.0.1:1", Timeout: time.Minute, Wait: noWait,
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: status, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(body)),
				}, nil
			})})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Count(t.Context(), "requests_total", from, to)
		if err != nil && (got != 0 || strings.ContainsAny(err.Error(), "\n\r")) || err == nil &&
			!(got >= 0 && got <= math.MaxFloat64) {
			t.Fatalf("Count = %v, %q", got, err)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func BenchmarkCountByDay(b *testing.B) {
	c := days(b, func(time.Time) string { return vector("1") })
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.CountByDay(context.Background(), "requests_total", from, from.AddDate(0, 1, 0)); err != nil {
			b.Fatal(err)
		}
	}
}
