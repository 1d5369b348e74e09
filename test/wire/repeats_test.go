package wire

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestRepeatsAreAskedOnce checks that moto computes a response once until a call may have changed
// something: a successful, failed or running one, or one that bypassed the server.
func TestRepeatsAreAskedOnce(t *testing.T) {
	asked := 0
	during := func() {}
	moto := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		during()
		if r.Header.Get("X-Amz-Target") == "AmazonSSM.DeleteParameter" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprintf(w, `{"asked": %d}`, asked)
	}))
	t.Cleanup(moto.Close)
	s := New(Options{Upstream: moto.URL})
	if err := s.Listen(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	number := 0
	call := func(key, operation, body string) string {
		t.Helper()
		number++
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL(), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Amz-Target", "AmazonSSM."+operation)
		r.Header.Set("Content-Type", "application/x-amz-json-1.1")
		r.Header.Set("Amz-Sdk-Invocation-Id", fmt.Sprint(number))
		r.Header.Set("Authorization",
			fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/20260101/us-east-1/ssm/aws4_request, SignedHeaders=host, "+
				"Signature=%d",
				key, number))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		out, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	var end func()
	for i, step := range []struct {
		key, operation, body string
		do, during           func()
		want                 int
	}{
		{"a", "GetParameter", `{"Name": "x"}`, nil, nil, 1},
		{"a", "GetParameter", `{"Name": "x"}`, nil, nil, 1},
		{"a", "GetParameter", `{"Name": "y"}`, nil, nil, 2},
		{"b", "GetParameter", `{"Name": "x"}`, nil, nil, 3},
		{"a", "GetParameter", `{"Name": "x"}`, nil, nil, 1},
		{"a", "PutParameter", `{"Name": "x"}`, nil, nil, 4},
		{"a", "PutParameter", `{"Name": "x"}`, nil, nil, 5},
		{"a", "GetParameter", `{"Name": "x"}`, nil, nil, 6},
		{"a", "DeleteParameter", `{"Name": "x"}`, nil, nil, 7},
		{"a", "GetParameter", `{"Name": "x"}`, nil, nil, 8},
		// A response computed during a change may show either state.
		{"a", "GetParameter", `{"Name": "z"}`, nil, func() { s.repeats.changing()() }, 9},
		{"a", "GetParameter", `{"Name": "z"}`, nil, nil, 10},
		{"a", "GetParameter", `{"Name": "z"}`, nil, nil, 10},
		{"a", "GetParameter", `{"Name": "u"}`, func() { end = s.repeats.changing() }, nil, 11},
		{"a", "GetParameter", `{"Name": "u"}`, nil, nil, 12},
		{"a", "GetParameter", `{"Name": "u"}`, func() { end() }, nil, 13},
		{"a", "GetParameter", `{"Name": "u"}`, nil, nil, 13},
		{"a", "GetParameter", `{"Name": "u"}`, s.Bypassed, nil, 14},
		{"a", "GetParameter", `{"Name": "u"}`, nil, nil, 15},
	} {
		if step.do != nil {
			step.do()
		}
		if during = step.during; during == nil {
			during = func() {}
		}
		if got, want := call(step.key, step.operation, step.body), fmt.Sprintf(`{"asked": %d}`,
			step.want); got != want {
			t.Errorf("call %d, %s: %s, want %s", i+1, step.operation, got, want)
		}
	}
}
