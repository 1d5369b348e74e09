package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/httpclient"
)

const one = `{"status":"success","warnings":["PromQL info: hint","half is missing"],` +
	`"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"2"]}]}}`

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// ask queries a server that responds with each handler in turn, the last one repeatedly, and
// returns the requests it received.
func ask(t *testing.T, a Access, handlers ...http.HandlerFunc) (Result, []*http.Request, error) {
	t.Helper()
	var got []*http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		got = append(got, r)
		handlers[min(len(got), len(handlers))-1](w, r)
	}))
	defer s.Close()
	a.URL, a.Timeout = s.URL+"/", time.Minute
	a.Wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	c, err := New(a, Limits{Bytes: 1 << 20, Series: 10})
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.Instant(t.Context(), Query{Expression: "up", At: noon}, func(Series) error { return nil })
	if requests, _ := c.Asked(); requests != int64(len(got)) {
		t.Errorf("%d requests are counted, and %d were sent", requests, len(got))
	}
	return result, got, err
}

func write(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	}
}

func TestInstant(t *testing.T) {
	result, got, err := ask(t, Access{}, write(200, one))
	if err != nil || result.Type != "vector" || len(result.Warnings) != 1 || result.Warnings[0] != "half is missing" {
		t.Fatalf("Instant = %+v, %v", result, err)
	}
	r := got[0]
	if len(got) != 1 || r.Method != http.MethodPost || r.URL.Path != "/api/v1/query" || r.URL.RawQuery != "" ||
		r.Form.Get("query") != "up" || r.Form.Get("time") != "1793534400.000" || r.Form.Get("timeout") != "60s" {
		t.Errorf("asked %s %s with %v", r.Method, r.URL, r.Form)
	}
}

// TestFallsBackToGET covers servers that accept queries only by GET.
func TestFallsBackToGET(t *testing.T) {
	var sums []string
	sign := func(_ context.Context, _ *http.Request, sum string) error { sums = append(sums, sum[:8]); return nil }
	for _, status := range []int{http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		sums = nil
		_, got, err := ask(t, Access{Sign: sign}, write(status, ""), write(200, one))
		if err != nil || len(got) != 2 || got[1].Method != http.MethodGet || got[1].Form.Get("query") != "up" {
			t.Errorf("status %d: %v after %d requests", status, err, len(got))
		}
		// e3b0c442 begins the SHA-256 of an empty body.
		if len(sums) != 2 || sums[0] == "e3b0c442" || sums[1] != "e3b0c442" {
			t.Errorf("status %d: signed %v", status, sums)
		}
	}
}

func TestAsksBusyServerAgain(t *testing.T) {
	timeout := `{"status":"error","errorType":"timeout","error":"query timed out"}`
	for _, tt := range []struct {
		name     string
		handlers []http.HandlerFunc
		sent     int
		busy, ok bool
	}{
		{
			"for a while", []http.HandlerFunc{
				write(503, "busy"), write(429, ""), write(502, "<html>"), write(200, one),
			}, 4,
			false, true,
		},
		{"without end", []http.HandlerFunc{write(503, "busy")}, Attempts, true, false},
		{"a query that takes too long", []http.HandlerFunc{write(503, timeout)}, 1, false, false},
		{"a server that fails", []http.HandlerFunc{write(500, "")}, 1, false, false},
		{"a gateway that waited", []http.HandlerFunc{write(504, "")}, 1, false, false},
	} {
		_, got, err := ask(t, Access{}, tt.handlers...)
		var refused *Error
		if len(got) != tt.sent || tt.ok != (err == nil) || !tt.ok &&
			(!errors.As(err, &refused) || refused.Busy() != tt.busy) {
			t.Errorf("%s: %v after %d requests, want %d", tt.name, err, len(got), tt.sent)
		}
	}
}

func TestErrorsAreTyped(t *testing.T) {
	large := `{"status":"success","data":{"resultType":"vector","result":[` + strings.Repeat(" ", 2<<20)
	_, _, err := ask(t, Access{}, write(200, large))
	if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "over 1 MiB") {
		t.Errorf("a large answer: %v", err)
	}
	_, _, err = ask(t, Access{
		Token: "s3cret",
	}, write(422, `{"status":"error","errorType":"execution","error":"no s3cret"}`))
	var refused *Error
	if !errors.As(err, &refused) || refused.Kind != "execution" || refused.Message != "no [hidden]" ||
		refused.Status != 422 {
		t.Errorf("a refusal: %#v", err)
	}
	_, _, err = ask(t, Access{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<html>")
	})
	var format *FormatError
	if !errors.As(err, &format) || !format.HTML {
		t.Errorf("a page: %v", err)
	}
	_, _, err = ask(t, Access{Now: func() time.Time { return noon }}, write(200, one))
	var clock *ClockError
	if !errors.As(err, &clock) {
		t.Errorf("another clock: %v", err)
	}
	c, err := New(Access{URL: "http://127.0.0.1:1", Timeout: time.Millisecond, Transport: silent{}}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Instant(t.Context(), Query{Expression: "up", At: noon}, nil)
	var timeout *httpclient.TimeoutError
	if !errors.As(err, &timeout) {
		t.Errorf("a silent server: %v", err)
	}
}

// silent never responds.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}
