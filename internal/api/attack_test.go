package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/api"
)

const freeze = `{"reason":"x"}`

// TestRefusesCrossOriginRequests checks that requests by pages of other origins, or under a name
// that someone else resolves to the server, are refused for every caller.
func TestRefusesCrossOriginRequests(t *testing.T) {
	s := start(t, settings, true, func(o *api.Options) { o.PublicURL = "https://curfew.example.com:8443" })
	host := strings.TrimPrefix(s.URL, "http://")
	port := host[strings.LastIndex(host, ":"):]
	for name, tc := range map[string]struct {
		method  string
		options []option
		status  int
		code    string
	}{
		"no origin":    {"POST", nil, 200, ""},
		"its own page": {"POST", []option{with("Origin", "http://"+host)}, 200, ""},
		"its own page in public": {
			"POST",
			[]option{
				with("Host", "curfew.example.com:8443"), with("Origin", "https://curfew.example.com:8443"),
				with("Sec-Fetch-Site", "same-origin"),
			},
			200, "",
		},
		"localhost":          {"POST", []option{with("Host", "localhost"+port)}, 200, ""},
		"IPv6":               {"POST", []option{with("Host", "[::1]"+port)}, 200, ""},
		"another page":       {"POST", []option{with("Origin", "https://evil.example")}, 403, "foreign_origin"},
		"another page reads": {"GET", []option{with("Origin", "https://evil.example")}, 403, "foreign_origin"},
		"the same host without TLS": {
			"POST", []option{with("Origin", "http://curfew.example.com:8443")}, 403, "foreign_origin",
		},
		"another port":           {"POST", []option{with("Origin", "http://127.0.0.1:1")}, 403, "foreign_origin"},
		"an opaque origin":       {"POST", []option{with("Origin", "null")}, 403, "foreign_origin"},
		"a form of another site": {"POST", []option{with("Sec-Fetch-Site", "cross-site")}, 403, "foreign_origin"},
		"a form that navigates": {
			"POST", []option{
				with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "navigate"),
			}, 403, "foreign_origin",
		},
		"a page of the same site": {"POST", []option{with("Sec-Fetch-Site", "same-site")}, 403, "foreign_origin"},
		"an image of another site": {
			"GET", []option{
				with("Sec-Fetch-Site", "cross-site"), with("Sec-Fetch-Mode", "no-cors"),
			}, 403, "foreign_origin",
		},
		"a rebound name":               {"POST", []option{with("Host", "evil.example"+port)}, 421, "foreign_host"},
		"a rebound name that reads":    {"GET", []option{with("Host", "evil.example"+port)}, 421, "foreign_host"},
		"a name that begins like ours": {"GET", []option{with("Host", "localhost.evil.example")}, 421, "foreign_host"},
		"an address of the network":    {"GET", []option{with("Host", "192.0.2.7"+port)}, 421, "foreign_host"},
		"the public name elsewhere":    {"GET", []option{with("Host", "curfew.example.com")}, 421, "foreign_host"},
		"text as a form sends it":      {"POST", []option{with("Content-Type", "text/plain")}, 415, "invalid"},
		"a form": {
			"POST", []option{with("Content-Type", "application/x-www-form-urlencoded")}, 415, "invalid",
		},
	} {
		body := freeze
		if tc.method == "GET" {
			body = ""
		}
		if got := s.call("olga", tc.method, "/api/v1/freezes", body, tc.options...); got.status != tc.status ||
			got.code() != tc.code {
			t.Errorf("%s: %d %s, want %d %s", name, got.status, got.body, tc.status, tc.code)
		}
	}
}

// TestRefusesAmbiguousPaths checks that ambiguous paths are refused before any lookup.
func TestRefusesAmbiguousPaths(t *testing.T) {
	s := start(t, settings, true, nil)
	address := strings.TrimPrefix(s.URL, "http://")
	for path, want := range map[string]int{
		"/api/v1/../v1/keeps": 400, "/api/v1/%2e%2e/keeps": 400, "/api/v1/resources/..%2f..%2fkeeps": 400,
		"/api//v1/keeps": 400, "//api/v1/keeps": 400, "/api/v1/keeps/": 400,
		"/api/v1/resources/%2e%2e": 400, "/api/v1/resources/a%00b": 400, "/api/v1/resources/a%5c..%5cb": 400,
		"/api/v1/resources/%ff": 400, "/api/v1/resources/" + strings.Repeat("a", 4000): 414,
		"/api/v1/nothing": 404, "/api/v2/keeps": 404, "/API/v1/keeps": 404, "/etc/passwd": 404, "/api/v1/keeps": 200,
		"/api/v1/keeps?cursor=..%2f..": 400, "/api/v1/keeps?limit=0": 422,
		"/api/v1/keeps?unknown=1": 422,
	} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", path,
			address, s.tokens["ada"])
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if res.StatusCode != want {
			body, _ := io.ReadAll(res.Body)
			t.Errorf("%s: %d %s, want %d", path, res.StatusCode, body, want)
		}
		res.Body.Close()
		conn.Close()
	}
}

// TestLargeAndSlowBodies checks that a body over 1 MiB, or one that does not arrive, ends the call
// without effect.
func TestLargeAndSlowBodies(t *testing.T) {
	s := start(t, settings, true, func(o *api.Options) { o.BodyTime = time.Minute })
	hurried := start(t, settings, true, func(o *api.Options) { o.BodyTime = 100 * time.Millisecond })
	large := `{"reason":"` + strings.Repeat("x", 1<<20) + `"}`
	if got := s.call("olga", "POST", "/api/v1/freezes", large); got.status != 413 {
		t.Errorf("large: %d", got.status)
	}
	address := func(s *service) string { return strings.TrimPrefix(s.URL, "http://") }
	head := func(s *service) string {
		return "POST /api/v1/freezes HTTP/1.1\r\nHost: " + address(s) +
			"\r\nAuthorization: Bearer " + s.tokens["olga"] +
			"\r\nContent-Type: application/json\r\n"
	}
	for name, rest := range map[string]string{
		"slow":             "Content-Length: 14\r\n\r\n{\"rea",
		"without a length": "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"rea\r\n",
	} {
		conn, err := net.Dial("tcp", address(hurried))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, head(hurried)+rest)
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 408 {
			t.Errorf("%s: %v, %v", name, res, err)
		} else {
			res.Body.Close()
		}
		conn.Close()
	}
	conn, err := net.Dial("tcp", address(s))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		fmt.Fprint(conn, head(s)+"Transfer-Encoding: chunked\r\n\r\n")
		for range 40 { // 2.5 MiB, without a length
			if _, err := fmt.Fprintf(conn, "10000\r\n%s\r\n", strings.Repeat("x", 1<<16)); err != nil {
				return
			}
		}
	}()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || res.StatusCode != 413 {
		t.Errorf("large without a length: %v, %v", res, err)
	} else {
		res.Body.Close()
	}
	if got := s.call("vi", "GET", "/api/v1/freezes", ""); !strings.Contains(got.body, `"frozen": false`) {
		t.Error(got.body)
	}
}

// TestIdempotency checks that a repeated call gets the same response and is not executed again, and
// that keys are per caller and call.
func TestIdempotency(t *testing.T) {
	s := start(t, settings, true, nil)
	path := "/api/v1/resources/sim%2F1%2Fus-east-1%2Finstance%2Fi-1/keep"
	body := `{"for":"24h","reason":"demo"}`
	first := s.call("ned", "POST", path, body, with("Idempotency-Key", "k1"))
	again := s.call("ned", "POST", path, body, with("Idempotency-Key", "k1"))
	if first.status != 200 || again.status != 200 || again.body != first.body ||
		again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d %s\nagain %d %s", first.status, first.body, again.status, again.body)
	}
	if got := s.call("ned", "POST", path, `{"for":"48h","reason":"demo"}`,
		with("Idempotency-Key", "k1")); got.status !=
		422 || got.code() != "key_reused" {
		t.Errorf("another body: %d %s", got.status, got.body)
	}
	if got := s.call("bo", "POST", path, body, with("Idempotency-Key", "k1")); got.status != 200 ||
		got.body == first.body {
		t.Errorf("the key of another caller: %d %s", got.status, got.body)
	}
	bad := s.call("ned", "POST", path, `{"for":"soon","reason":"demo"}`, with("Idempotency-Key", "k2"))
	repeat := s.call("ned", "POST", path, `{"for":"soon","reason":"demo"}`, with("Idempotency-Key", "k2"))
	if bad.status != 400 || repeat.status != 400 || repeat.body != bad.body ||
		repeat.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("a refusal: %d, then %d %s", bad.status, repeat.status, repeat.body)
	}
	if got := s.call("ada", "POST", "/api/v1/tokens", `{"name":"ci","roles":["viewer"]}`,
		with("Idempotency-Key", "k")); got.status != 400 {
		t.Errorf("a secret would be kept: %d %s", got.status, got.body)
	}
	if n := strings.Count(s.call("vi", "GET", "/api/v1/audit?what=keep", "").body, `"what": "keep"`); n != 2 {
		t.Errorf("%d keeps were made, want 2", n)
	}
}

// TestConcurrentCalls checks that parallel calls with one key create one keep, and that parallel
// calls of many callers are all answered.
func TestConcurrentCalls(t *testing.T) {
	s := start(t, settings, true, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				got := s.call("ned", "POST", "/api/v1/resources/sim%2F1%2Fus-east-1%2Finstance%2Fi-1/keep",
					`{"for":"24h","reason":"demo"}`, with("Idempotency-Key", "one"))
				if got.status != 200 && got.code() != "in_progress" {
					t.Errorf("%d %s", got.status, got.body)
				}
			}
		})
		wg.Go(func() {
			path := fmt.Sprintf("/api/v1/resources/sim%%2F1%%2Fus-east-1%%2Finstance%%2Fi-2%d/keep", i)
			for range 3 {
				if got := s.call("olga", "POST", path, `{"for":"24h","reason":"demo"}`); got.status != 200 {
					t.Errorf("%d %s", got.status, got.body)
				}
				for _, read := range []string{"/keeps", "/audit", "/approvals", "/budgets", "/people/me", "/tokens"} {
					if got := s.call("ada", "GET", "/api/v1"+read, ""); got.status != 200 {
						t.Errorf("%s: %d %s", read, got.status, got.body)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := strings.Count(s.call("vi", "GET", "/api/v1/audit?what=keep&resource=i-1&limit=1000", "").body,
		`"what": "keep"`); n != 1 {
		t.Errorf("%d keeps by one key", n)
	}
	if end, err := s.state.VerifyAudit(t.Context()); err != nil || end.Entry == 0 {
		t.Errorf("%+v, %v", end, err)
	}
}

// TestPages checks that pages of any size add up to the whole list, and that an entity tag shows
// whether it changed.
func TestPages(t *testing.T) {
	s := start(t, settings, true, nil)
	for i := range 7 {
		s.ask("root", "vision", i)
	}
	for _, path := range []string{"/audit", "/approvals", "/people", "/tokens", "/keeps", "/actions"} {
		list := func(body string) (out []string) {
			var doc map[string]json.RawMessage
			if err := json.Unmarshal([]byte(body), &doc); err != nil {
				t.Fatal(err)
			}
			for _, v := range doc {
				var items []json.RawMessage
				if json.Unmarshal(v, &items) == nil {
					for _, item := range items {
						out = append(out, string(item))
					}
				}
			}
			return out
		}
		whole := s.call("ada", "GET", "/api/v1"+path+"?limit=1000", "")
		for _, limit := range []int{1, 2, 3, 50} {
			var got []string
			next := fmt.Sprintf("/api/v1%s?limit=%d", path, limit)
			for next != "" {
				page := s.call("ada", "GET", next, "")
				if page.status != 200 || len(list(page.body)) > limit {
					t.Fatalf("%s: %d %s", next, page.status, page.body)
				}
				got = append(got, list(page.body)...)
				link, _, _ := strings.Cut(strings.TrimPrefix(page.header.Get("Link"), "<"), ">")
				if (link != "") != (page.header.Get("Next-Cursor") != "") {
					t.Errorf("%s: the headers differ", next)
				}
				next = link
			}
			if strings.Join(got, "\n") != strings.Join(list(whole.body), "\n") {
				t.Errorf("%s by %d: %d items, want %d", path, limit, len(got), len(list(whole.body)))
			}
		}
	}
	first := s.call("vi", "GET", "/api/v1/keeps", "")
	tag := first.header.Get("ETag")
	if same := s.call("vi", "GET", "/api/v1/keeps", "", with("If-None-Match", `"x", W/`+tag)); tag == "" ||
		same.status != 304 || same.body != "" {
		t.Errorf("unchanged: %d %q", same.status, same.body)
	}
	s.call("ned", "POST", "/api/v1/resources/sim%2F1%2Fus-east-1%2Finstance%2Fi-1/keep",
		`{"for":"24h","reason":"demo"}`)
	if changed := s.call("vi", "GET", "/api/v1/keeps", "", with("If-None-Match", tag)); changed.status != 200 ||
		changed.header.Get("ETag") == tag {
		t.Errorf("changed: %d", changed.status)
	}
}

// TestRates checks that a caller over the limit is told when to retry, without delaying others.
func TestRates(t *testing.T) {
	s := start(t, settings, true, func(o *api.Options) { o.Rate, o.Burst = 0.1, 5 })
	for range 5 {
		if got := s.call("vi", "GET", "/api/v1/keeps", ""); got.status != 200 {
			t.Fatal(got.status)
		}
	}
	if got := s.call("vi", "GET", "/api/v1/keeps", ""); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("%d, Retry-After %q", got.status, got.header.Get("Retry-After"))
	}
	if got := s.call("ned", "GET", "/api/v1/keeps", ""); got.status != 200 {
		t.Errorf("another caller: %d", got.status)
	}
	for range 5 {
		s.call("", "GET", "/api/v1/keeps", "", with("Authorization", "Bearer curfew_guess"))
	}
	if got := s.call("", "GET", "/api/v1/keeps", "", with("Authorization", "Bearer curfew_guess")); got.status != 429 {
		t.Errorf("guesses of tokens: %d", got.status)
	}
}

// TestFreezeHasNoLimit checks that a freeze is accepted after too many other calls of the caller,
// and during a flood of guesses from the same address.
func TestFreezeHasNoLimit(t *testing.T) {
	s := start(t, settings, true, func(o *api.Options) { o.Rate, o.Burst = 0.01, 3 })
	for range 5 {
		s.call("olga", "GET", "/api/v1/keeps", "")
		s.call("", "GET", "/api/v1/keeps", "", with("Authorization", "Bearer curfew_guess"))
	}
	if got := s.call("olga", "GET", "/api/v1/keeps", ""); got.status != 429 {
		t.Fatalf("another call: %d", got.status)
	}
	for range 10 {
		if got := s.call("olga", "POST", "/api/v1/freezes", `{"reason": "an incident"}`); got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	// A new token has to be looked up.
	late := s.token("olga", "operator")
	if got := s.call("", "POST", "/api/v1/freezes", `{"reason": "an incident"}`,
		with("Authorization", "Bearer "+late)); got.status != 200 {
		t.Errorf("with a new token: %d %s", got.status, got.body)
	}
	if got := s.call("vi", "POST", "/api/v1/freezes", `{"reason": "mine"}`); got.status != 403 {
		t.Errorf("a viewer: %d", got.status)
	}
}

// TestFailedCallsAreLogged checks that a failure is logged with operation, caller, request and
// cause, and that the response names the request.
func TestFailedCallsAreLogged(t *testing.T) {
	s := start(t, settings, true, nil)
	if err := s.state.Close(); err != nil {
		t.Fatal(err)
	}
	got := s.call(owner, "POST", "/api/v1/freezes", `{"reason": "an incident"}`, with("Request-Id", "r-17"))
	if got.status != 503 || !strings.Contains(got.body, "to freeze by hand, end every `curfew serve`") ||
		got.header.Get("Request-Id") != "r-17" {
		t.Errorf("%d %s, request %q", got.status, got.body, got.header.Get("Request-Id"))
	}
	// The idempotency key is looked up before the call is made.
	keyed := s.call(owner, "POST", "/api/v1/freezes", `{"reason": "an incident"}`, with("Idempotency-Key", "k-17"))
	if keyed.status < 500 || !strings.Contains(keyed.body, "to freeze by hand, end every `curfew serve`") {
		t.Errorf("%d %s", keyed.status, keyed.body)
	}
	for _, part := range []string{
		"a call failed", `operation="POST /api/v1/freezes"`, "request=r-17", "caller=root", "closed",
	} {
		if said := s.log.String(); !strings.Contains(said, part) {
			t.Errorf("the log does not say %q: %s", part, said)
		}
	}
}

// TestEvents checks that a stream starts at the requested place, resumes after the last received
// event, sends each entry once, and that clients are bounded.
func TestEvents(t *testing.T) {
	done := make(chan struct{})
	s := start(t, settings, true, func(o *api.Options) {
		o.Done, o.Heartbeat, o.Streams = done, 20*time.Millisecond, 3
	})
	for i := range 5 {
		if err := s.state.Actions().Record(t.Context(), entryOf(i)); err != nil {
			t.Fatal(err)
		}
	}
	ids := func(body string) string {
		var out []string
		for line := range strings.SplitSeq(body, "\n") {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				out = append(out, id)
			}
		}
		return strings.Join(out, " ")
	}
	if got := s.call("vi", "GET", "/api/v1/events?after=0&limit=3", ""); ids(got.body) != "1 2 3" ||
		got.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("from the beginning: %s", got.body)
	}
	if got := s.call("vi", "GET", "/api/v1/events?limit=2", "", with("Last-Event-ID", "3")); ids(got.body) != "4 5" {
		t.Errorf("after 3: %s", got.body)
	}
	if got := s.call("vi", "GET", "/api/v1/events", "", with("Last-Event-ID", "x")); got.status != 400 {
		t.Errorf("no number: %d", got.status)
	}
	var open []*http.Response
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/api/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.tokens["vi"])
		res, err := http.DefaultClient.Do(r)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		t.Cleanup(func() { res.Body.Close() })
		open = append(open, res) //nolint:bodyclose // it is closed at the end of the test
	}
	if got := s.call("ned", "GET", "/api/v1/events", ""); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("a stream too many: %d", got.status)
	}
	before := s.call("ada", "GET", "/api/v1/audit?limit=1000", "").body
	if err := s.state.Actions().Record(t.Context(), entryOf(77)); err != nil {
		t.Fatal(err)
	}
	for _, res := range open {
		in := bufio.NewScanner(res.Body)
		for in.Scan() && !strings.HasPrefix(in.Text(), "data: ") {
		}
		if !strings.Contains(in.Text(), "reason 77") {
			t.Errorf("the new entry: %q; before it:\n%s", in.Text(), before)
		}
		for in.Scan() && in.Text() != ": still here" {
		}
		if in.Text() != ": still here" {
			t.Error("no heartbeat")
		}
	}
	close(done)
	for _, res := range open {
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Errorf("the stream of a service that drains: %v", err)
		}
	}
}

// TestLogsOmitSecrets checks that no log, problem or audit entry contains a token.
func TestLogsOmitSecrets(t *testing.T) {
	s := start(t, settings, true, nil)
	secret := s.tokens["ada"]
	for _, c := range [][3]string{
		{
			"POST", "/api/v1/freezes", `{"reason":"` + secret + `"}`,
		}, {"POST", "/api/v1/resources/" + secret + "/keep", `{"for":"1h","reason":"x"}`},
		{"POST", "/api/v1/freezes", `{"reason":["` + secret + `"]}`}, {"GET", "/api/v1/keeps?cursor=" + secret, ""},
		{
			"GET", "/api/v1/keeps?limit=" + secret, "",
		}, {"POST", "/api/v1/estimates", `{"content":"name: ` + secret + `"}`}} {
		if got := s.call("ada", c[0], c[1], c[2]); got.status >= 500 || got.status >= 400 &&
			strings.Contains(got.body, secret) {
			t.Errorf("%s %s: %d %s", c[0], c[1], got.status, got.body)
		}
	}
	audit := s.call("vi", "GET", "/api/v1/audit?limit=1000", "").body
	if strings.Contains(audit, secret) || strings.Contains(s.log.String(), secret) {
		t.Errorf("the token is in the audit log:\n%s\nor in the log:\n%s", audit, s.log)
	}
	if r, err := s.state.Callers().Tokens(t.Context()); err != nil || strings.Contains(fmt.Sprint(r), secret) {
		t.Errorf("%v", err)
	}
}

// entryOf returns an audit entry with a number.
func entryOf(n int) action.Entry {
	return action.Entry{At: time.Now(), Actor: "root", What: action.EventKeep, Because: fmt.Sprint("reason ", n)}
}

// TestCallersCannotChooseHosts checks that no text sent by a caller becomes the address of a
// request by the service.
func TestCallersCannotChooseHosts(t *testing.T) {
	var asked sync.Map
	canary := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path, true)
	}))
	defer canary.Close()
	s := start(t, settings, true, nil)
	spec := s.call("", "GET", "/openapi.json", "").body
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			Parameters  []struct{ Name, In string }
			RequestBody struct {
				Content map[string]struct{ Schema json.RawMessage }
			} `json:"requestBody"`
		}
		Components struct {
			Schemas map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(spec), &doc); err != nil {
		t.Fatal(err)
	}
	// fields returns the names of text fields in a body.
	fields := func(schema json.RawMessage) (out []string) {
		if schema == nil {
			return nil
		}
		var s struct {
			Ref        string `json:"$ref"`
			Properties map[string]struct{ Type any }
		}
		if err := json.Unmarshal(schema, &s); err != nil {
			t.Fatal(err)
		}
		if s.Ref != "" {
			if err := json.Unmarshal(doc.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")],
				&s); err != nil {
				t.Fatal(err)
			}
		}
		for name, p := range s.Properties {
			if p.Type == "string" {
				out = append(out, name)
			}
		}
		return out
	}
	tried := 0
	for _, c := range calls(t, []byte(spec)) {
		if c.id == "stream-events" {
			continue // it has no text
		}
		for path, methods := range doc.Paths {
			op, ok := methods[strings.ToLower(c.method)]
			if !ok || op.OperationID != c.id {
				continue
			}
			for _, p := range op.Parameters {
				if p.In == "query" {
					tried++
					s.call(owner, c.method,
						c.path+"?"+p.Name+"="+url.QueryEscape(canary.URL+"/"+c.id+"/"+p.Name), c.body)
				}
			}
			if strings.Contains(path, "{id}") {
				tried++
				s.call(owner, c.method,
					strings.Replace(path, "{id}", url.PathEscape(canary.URL+"/"+c.id+"/id"), 1), c.body)
			}
			for _, field := range fields(op.RequestBody.Content["application/json"].Schema) {
				body := map[string]any{}
				if err := json.Unmarshal([]byte(c.body), &body); err != nil {
					t.Fatal(err)
				}
				for _, form := range []string{"%s", "url: %s\n", "s3://%s"} {
					tried++
					body[field] = fmt.Sprintf(form, canary.URL+"/"+c.id+"/"+field)
					text, err := json.Marshal(body)
					if err != nil {
						t.Fatal(err)
					}
					if got := s.call(owner, c.method, c.path, string(text)); got.status >= 500 {
						t.Errorf("%s with %s: %d %s", c.id, field, got.status, got.body)
					}
				}
			}
		}
	}
	asked.Range(func(path, _ any) bool {
		t.Errorf("the service asked the address of a caller: %s", path)
		return true
	})
	if tried < 100 {
		t.Errorf("only %d texts were tried", tried)
	}
}
