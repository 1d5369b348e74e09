package prom

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/metrics/httpapi"
	"github.com/curfew-dev/curfew/internal/usage"
)

// answer returns one series with a sample a minute for an hour, in the format of the API.
func answer(value func(i int) string, from time.Time) string {
	var b strings.Builder
	b.WriteString(
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"DCGM_FI_DEV_GPU_UTIL","UUID":"GPU-1","gpu":"0","instance":"10.0.0.0:9400"},"values":[`)
	for i := range 60 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `[%d,%q]`, from.Add(time.Duration(i)*time.Minute).Unix(), value(i))
	}
	b.WriteString(`]}]}}`)
	return b.String()
}

const nothing = `{"status":"success","data":{"resultType":"matrix","result":[]}}`

// TestBadServers checks that the reader terminates and explains the problem whatever a server
// returns, and that missing data stays unknown.
func TestBadServers(t *testing.T) {
	from := at.Add(-time.Hour)
	good := answer(func(i int) string { return fmt.Sprint(i) }, from)
	gpu := func(r *http.Request) bool { // queries for the samples themselves
		q := r.FormValue("query")
		return strings.HasPrefix(q, `{__name__=~`)
	}
	for _, tc := range []struct {
		name   string
		serve  func(w http.ResponseWriter, r *http.Request, asked int)
		points int
		says   string
		waits  time.Duration // the maximum wait between two attempts
	}{
		{name: "as it should be", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			reply(w, r, gpu, good)
		}, points: 60},
		{name: "NaN, infinities and stale markers", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			reply(w, r, gpu, answer(func(i int) string { return []string{"1", "NaN", "+Inf"}[i%3] }, from))
		}, points: 20},
		{
			name: "what stands for unsupported, and negative values",
			serve: func(w http.ResponseWriter, r *http.Request,
				_ int) {
				reply(w, r, gpu, answer(func(i int) string {
					return []string{"1", "9223372036854775794", "-1"}[i%3]
				}, from))
			}, points: 20},
		{name: "the same series twice", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			reply(w, r, gpu,
				strings.Replace(good, `"result":[`,
					`"result":[`+good[strings.Index(good, `{"metric"`):strings.LastIndex(good, "]")]+",", 1))
		}, points: 60},
		{name: "samples of all times in any order", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			reply(w, r, gpu, strings.Replace(good, `"values":[`, `"values":[[1,"7"],[4102444800,"7"],[2,"7"],`, 1))
		}, points: 0}, // samples that go back in time or are in the future are dropped
		{name: "busy for a while", serve: func(w http.ResponseWriter, r *http.Request, asked int) {
			if asked <= 3 {
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			reply(w, r, gpu, good)
		}, points: 60, waits: 7 * time.Second},
		{name: "busy without end, for an hour at a time", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Retry-After", "3000")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, says: "it is busy: 503 Service Unavailable, 4 times", waits: httpapi.LongestWait},
		{name: "a limit on samples", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			var length int
			if _, err := fmt.Sscanf(r.FormValue("query")[strings.LastIndex(r.FormValue("query"), "["):], "[%ds",
				&length); err == nil && length > 1000 && gpu(r) {
				w.WriteHeader(http.StatusUnprocessableEntity)
				fmt.Fprint(w,
					`{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}`)
				return
			}
			reply(w, r, gpu, good)
		}, points: 60},
		{name: "a limit that nothing meets", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status":"error","errorType":"execution","error":"too many samples"}`)
		}, says: "too many samples"},
		{name: "a wrong query", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w,
				`{"status":"error","errorType":"bad_data","error":"parse error: unknown function \"last_over_time\""}`)
		}, says: "it refuses the query: parse error"},
		{name: "an error under 200", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			fmt.Fprint(w, `{"status":"error","errorType":"internal","error":"disk is gone"}`)
		}, says: "disk is gone"},
		{name: "HTML instead of JSON", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprint(w, "<html><title>Sign in</title></html>")
		}, says: "it answers with HTML"},
		{name: "HTML that calls itself JSON", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, "<html></html>")
		}, says: "the answer is not that of Prometheus's API"},
		{name: "a redirect to a sign-in", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, "/login", http.StatusFound)
		}, says: "302 Found"},
		{name: "a wrong address", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			http.NotFound(w, r)
		}, says: "it knows no such path"},
		{name: "no permission", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.WriteHeader(http.StatusForbidden)
		}, says: "it refuses to answer"},
		{name: "an answer that is cut", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			fmt.Fprint(w, good[:len(good)/2])
		}, says: "unexpected EOF"},
		{name: "JSON of something else", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			fmt.Fprint(w, `{"took":3,"hits":[]}`)
		}, says: "the answer is not that of Prometheus's API"},
		{name: "samples that are none", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			fmt.Fprint(w, `{"status":"success","data":{"result":[{"metric":{},"values":[["now","much"]]}]}}`)
		}, says: "a sample is not of the form"},
		{name: "an answer that never ends", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			fmt.Fprint(w, `{"status":"success","data":{"result":[`)
			for r.Context().Err() == nil {
				if _, err := fmt.Fprint(w, `{"metric":{"a":"b"},"values":[[1,"1"]]},`); err != nil {
					return
				}
				w.(http.Flusher).Flush()
				time.Sleep(time.Millisecond)
			}
		}, says: "no whole answer within"},
		{name: "an answer that never begins", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			<-r.Context().Done()
		}, says: "no whole answer within"},
		{name: "a partial answer", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			reply(w, r, gpu,
				strings.Replace(good, `"data":`,
					`"warnings":["PromQL info: a hint","store 10.0.0.9:10901 is not reached"],"data":`, 1))
		}, points: 60, says: "it warns that its answer may be partial: store 10.0.0.9:10901 is not reached"},
		{name: "a hint", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			reply(w, r, gpu,
				strings.Replace(good, `"data":`,
					`"warnings":["PromQL info: metric might not be a counter"],"data":`, 1))
		}, points: 60},
		{name: "a clock an hour ahead", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			w.Header().Set("Date", at.Add(time.Hour).Format(http.TimeFormat))
			reply(w, r, gpu, good)
		}, says: "its clock is 1h ahead of this machine's"},
		{name: "an exporter whose clock is an hour ahead", serve: func(w http.ResponseWriter, r *http.Request, _ int) {
			if strings.HasPrefix(r.FormValue("query"), "last_over_time") {
				fmt.Fprint(w, answer(func(int) string { return "1" }, at.Add(10*time.Minute)))
				return
			}
			reply(w, r, gpu, good)
		}, says: "stamped with a time that is still to come"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/api/v1/query" && r.URL.Path != "/login" || r.Method != http.MethodPost {
					t.Errorf("%s %s is asked for", r.Method, r.URL.Path)
				}
				if r.URL.Path == "/login" {
					t.Error("the redirect is followed")
				}
				_ = r.ParseForm() // reading the body also detects a client that disconnects
				asked++
				w.Header().Set("Date", at.Format(http.TimeFormat))
				tc.serve(w, r, asked)
			}))
			defer server.Close()
			now := func() time.Time { return at }
			var longest time.Duration
			wait := func(_ context.Context, d time.Duration) error { longest = max(longest, d); return nil }
			s, err := New(Options{
				Access: Access{URL: server.URL, Timeout: 300 * time.Millisecond, Now: now, Wait: wait},
			})
			if err != nil {
				t.Fatal(err)
			}
			got, blind := measure(t, s, fleetOf(1), usage.Interval{From: from, To: at, Step: time.Minute})
			said := ""
			for _, b := range blind {
				said += b.Why + "; "
			}
			if len(got) != tc.points || !strings.Contains(said, tc.says) || (tc.says == "") != (said == "") {
				t.Errorf("%d points of %d, and it says %q, want %q", len(got), tc.points, said, tc.says)
			}
			if tc.waits > 0 && longest != tc.waits {
				t.Errorf("the longest wait is %s, want %s", longest, tc.waits)
			}
		})
	}
}

// reply responds to queries for samples with them, and to all others with an empty result.
func reply(w http.ResponseWriter, r *http.Request, gpu func(*http.Request) bool, with string) {
	w.Header().Set("Content-Type", "application/json")
	if !gpu(r) {
		with = nothing
	}
	fmt.Fprint(w, with)
}

// TestReadStopsOnCanceledContext checks that canceling the context ends a read at once.
func TestReadStopsOnCanceledContext(t *testing.T) {
	begun := make(chan struct{}, 8)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	s, err := New(Options{Access: Access{URL: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	stopped := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-begun; cancel(stopped) }()
	_, err = s.Measure(ctx, fleetOf(1), usage.Interval{From: at.Add(-time.Hour), To: at}, nil)
	if !errors.Is(err, stopped) {
		t.Errorf("Measure returns %v", err)
	}
}

// TestAccess checks how a reader authenticates, and which addresses are refused before a request is
// sent.
func TestAccess(t *testing.T) {
	var seen *http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Clone(context.Background())
		fmt.Fprint(w, nothing)
	}))
	defer server.Close()
	sign := func(_ context.Context, r *http.Request, sum string) error {
		r.Header.Set("Authorization", "signed "+sum[:8])
		return nil
	}
	for _, tc := range []struct {
		name     string
		a        Access
		refused  string
		header   string
		contains string
	}{
		{"nothing", Access{URL: server.URL}, "", "User-Agent", "curfew"},
		{"a token", Access{URL: server.URL, Token: "t0"}, "", "Authorization", "Bearer t0"},
		{"a password", Access{URL: server.URL, User: "ana", Password: "p"}, "", "Authorization", "Basic YW5hOnA="},
		{
			"a tenant", Access{
				URL: server.URL + "/", Headers: map[string]string{"X-Scope-OrgID": "ml"},
			}, "", "X-Scope-OrgID",
			"ml",
		},
		{"a signature of the body", Access{URL: server.URL, Sign: sign}, "", "Authorization", "signed "},
		{"no address", Access{URL: "prometheus"}, "is no URL", "", ""},
		{"a password in the address", Access{URL: "https://a:b@p"}, "may hold no user", "", ""},
		{"a token in the clear", Access{URL: "http://p", Token: "t"}, "in the clear", "", ""},
		{"a signature in the clear", Access{URL: "http://p", Sign: sign}, "in the clear", "", ""},
		{"a token of two words", Access{URL: "https://p", Token: "a b"}, "one word", "", ""},
		{"a token and a password", Access{URL: "https://p", Token: "a", User: "b"}, "exclude one another", "", ""},
	} {
		s, err := New(Options{Access: tc.a})
		if tc.refused != "" {
			if err == nil || !strings.Contains(err.Error(), tc.refused) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.refused)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		_, blind := measure(t, s, fleetOf(1), usage.Interval{From: at.Add(-time.Hour), To: at})
		if got := seen.Header.Get(tc.header); !strings.HasPrefix(got, tc.contains) || len(blind) > 0 {
			t.Errorf("%s: %s is %q, want %q; %v", tc.name, tc.header, got, tc.contains, blind)
		}
	}
}

// TestErrorsOmitSecrets checks that secrets in a server's response do not appear in errors.
func TestErrorsOmitSecrets(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"status":"error","errorType":"x","error":"no such user: %s"}`,
			strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	defer server.Close()
	s, err := New(Options{Access: Access{URL: server.URL, Token: "s3cret"}})
	if err != nil {
		t.Fatal(err)
	}
	_, blind := measure(t, s, fleetOf(1), usage.Interval{From: at.Add(-time.Hour), To: at})
	if len(blind) != 1 || strings.Contains(blind[0].Why, "s3cret") || !strings.Contains(blind[0].Why, "[hidden]") {
		t.Errorf("blind spots are %+v", blind)
	}
}
