package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var seed = flag.Int("seed", 1, "what the state and the calls of schemathesis are drawn from")

func TestMain(m *testing.M) {
	serveChild()
	os.Exit(m.Run())
}

// version is the schemathesis version that the tests install.
const version = "4.32.5"

// tally counts the responses of each operation.
type tally struct {
	mu sync.Mutex
	// statuses counts the status codes of each operation.
	statuses map[string]map[int]int
	paths    map[string]bool
}

type watched struct {
	http.ResponseWriter
	status int
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// watch counts the responses of a handler by operation, matching request paths to those of the
// document.
func (t *tally) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := &watched{w, http.StatusOK}
		next.ServeHTTP(one, r)
		parts := strings.Split(r.URL.EscapedPath(), "/")
		t.mu.Lock()
		defer t.mu.Unlock()
		best, name := -1, ""
		for op := range t.paths {
			method, path, _ := strings.Cut(op, " ")
			want := strings.Split(path, "/")
			if method != r.Method || len(want) != len(parts) {
				continue
			}
			exact := 0
			for i := range want {
				switch {
				case want[i] == parts[i]:
					exact++
				case strings.HasPrefix(want[i], "{"):
				default:
					exact = -1 << 10
				}
			}
			if exact > best {
				best, name = exact, op
			}
		}
		if best >= 0 {
			if t.statuses[name] == nil {
				t.statuses[name] = map[int]int{}
			}
			t.statuses[name][one.status]++
		}
	})
}

// TestSchemathesis lets schemathesis call every operation with generated requests: as an admin
// nothing ends in 5xx and at least 95% of the operations succeed once; as a viewer every mutation
// is refused.
func TestSchemathesis(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("it takes minutes; make test-slow runs it")
	}
	st := installed(t)
	s, err := build(t.Context(), t.TempDir(), "../..", *seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(); s.state.Close() })
	for _, as := range []struct{ name, token, mode string }{
		{"viewer", s.viewer, "positive"}, {"admin", s.admin, "all"},
	} {
		t.Run(as.name, func(t *testing.T) {
			counts := &tally{statuses: map[string]map[int]int{}, paths: map[string]bool{}}
			server := httptest.NewServer(counts.watch(s.exampled(t)))
			defer server.Close()
			counts.paths = operations(t, server.URL)
			out := fuzz(t, st, server.URL, as.token, as.mode, s)
			var missed []string
			done := 0
			for op := range counts.paths {
				succeeded := false
				for status, n := range counts.statuses[op] {
					succeeded = succeeded || status < 300
					if status >= 500 {
						t.Errorf("%s: %d answers %d", op, n, status)
					}
					if as.name == "viewer" && strings.HasPrefix(op, "POST") && status < 400 {
						t.Errorf("%s: a viewer got %d", op, status)
					}
				}
				if succeeded {
					done++
				} else {
					missed = append(missed, fmt.Sprintf("%s %v", op, counts.statuses[op]))
				}
				if as.name == "viewer" && strings.HasPrefix(op, "POST") &&
					counts.statuses[op][http.StatusForbidden] == 0 {
					t.Errorf("%s: no call of a viewer was forbidden: %v", op, counts.statuses[op])
				}
			}
			t.Logf("%d of %d operations were answered 2xx; not: %s", done, len(counts.paths),
				strings.Join(missed, "; "))
			if as.name == "admin" && done*100 < 95*len(counts.paths) {
				t.Errorf("%d of %d operations were answered 2xx", done, len(counts.paths))
			}
			if t.Failed() || strings.Contains(out, " FAILURES ") {
				t.Errorf("schemathesis:\n%s\nthe log:\n%s", out, s.log)
			}
		})
	}
}

// exampled serves the API with a document whose examples contain existing names.
func (s *service) exampled(t *testing.T) http.Handler {
	bodies := map[string]map[string]any{
		"/api/v1/findings/fix": {"ids": s.fixable[1:3], "grace": "30m"},
		"/api/v1/actions/undo": {"ids": s.stopped[1:]},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/openapi.json" {
			s.handler.ServeHTTP(w, r)
			return
		}
		served := httptest.NewRecorder()
		s.handler.ServeHTTP(served, r)
		var doc map[string]any
		if err := json.Unmarshal(served.Body.Bytes(), &doc); err != nil {
			t.Error(err)
			return
		}
		for path, body := range bodies {
			at := doc
			for _, key := range []string{"paths", path, "post", "requestBody", "content", "application/json"} {
				next, ok := at[key].(map[string]any)
				if !ok {
					t.Errorf("the document has no %s of %s", key, path)
					return
				}
				at = next
			}
			at["example"] = body
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(doc)
	})
}

// operations returns the operations of the document.
func operations(t *testing.T, url string) map[string]bool {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/openapi.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var doc struct{ Paths map[string]map[string]any }
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for path, methods := range doc.Paths {
		for method := range methods {
			out[strings.ToUpper(method)+" "+path] = true
		}
	}
	return out
}

// arguments returns an existing id for an operation about one thing, and the required query.
func (s *service) arguments(path string) (id string, query map[string]any) {
	ids := map[string]string{
		"/resources/{id}": s.resource, "/findings/{id}": s.finding, "/findings/{id}/fix": s.fixable[0],
		"/actions/{id}": s.item, "/actions/{id}/undo": s.stopped[0],
		"/sessions/{id}": started[0], "/sessions/{id}/down": started[1],
		"/budgets/{id}": "vision", "/alerts/{id}": "idle-gpu-machines", "/tokens/{id}": s.tokens[0],
		"/approvals/{id}": s.requests[0], "/approvals/{id}/approve": s.requests[0],
		"/approvals/{id}/deny": s.requests[20],
		"/holds/{id}/settle":   s.holds[0], "/holds/{id}/release": s.holds[10], "/holds/{id}/extend": s.holds[20],
		"/backtests/{id}": s.done, "/backtests/{id}/cancel": s.waiting,
	}
	longest := ""
	for prefix := range ids {
		if strings.HasPrefix(strings.TrimPrefix(path, "/api/v1"), prefix) && len(prefix) > len(longest) {
			longest = prefix
		}
	}
	query = map[string]any{}
	if strings.Contains(path, "/bills") {
		query["since"], query["until"] = "2026-10-01", "2026-11-01"
	}
	if strings.HasSuffix(path, "/costs/units") || strings.HasSuffix(path, "/costs/shares") {
		query["since"], query["until"] = "7d", time.Now().AddDate(0, 0, 1).Format(time.DateOnly)
	}
	if strings.HasSuffix(path, "/costs/units") {
		query["counts"], query["by"], query["where"] = "gpu-hours", "team", []string{"team=vision"}
		query["unit"], query["target"] = []string{"hour"}, "2.50"
	}
	if strings.HasSuffix(path, "/events") {
		query["limit"], query["after"] = 1, 0
	}
	return ids[longest], query
}

// fuzz runs schemathesis as one caller. Operations about one thing get existing ids.
func fuzz(t *testing.T, program, url, token, mode string, s *service) string {
	t.Helper()
	dir := t.TempDir()
	var file strings.Builder
	for op := range operations(t, url) {
		_, path, _ := strings.Cut(op, " ")
		id, query := s.arguments(path)
		var parameters []string
		if id != "" {
			parameters = append(parameters, fmt.Sprintf("\"path.id\" = %q", id))
		}
		for _, name := range slices.Sorted(maps.Keys(query)) {
			value, err := json.Marshal(query[name]) // TOML has the same syntax
			if err != nil {
				t.Fatal(err)
			}
			parameters = append(parameters, fmt.Sprintf("\"query.%s\" = %s", name, value))
		}
		if len(parameters) > 0 {
			fmt.Fprintf(&file, "[[operations]]\ninclude-name = %q\n[operations.parameters]\n%s\n\n", op,
				strings.Join(parameters, "\n"))
		}
	}
	config := filepath.Join(dir, "schemathesis.toml")
	if err := os.WriteFile(config, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--config-file", config, "run",
		url+"/openapi.json", "-H", "Authorization: Bearer "+token, "--seed", fmt.Sprint(*seed),
		"--checks",
		"not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance",
		"--phases", "examples,fuzzing", "--max-examples", "8", "--mode", mode, "--no-shrink", "--max-time", "150",
		"--continue-on-failure", "--no-color", "--workers", "2", "--request-timeout", "60")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("schemathesis: %v", err)
	}
	return string(out)
}

// installed returns the program of schemathesis in a virtual environment of the tests.
func installed(t *testing.T) string {
	t.Helper()
	return filepath.Join(pythonWith(t, "schemathesis-"+version, "schemathesis=="+version), "schemathesis")
}

// pythonWith returns the bin folder of a virtual environment with some packages, which is created
// once.
func pythonWith(t *testing.T, name string, packages ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "curfew-test", name)
	bin, whole := filepath.Join(dir, "bin"), filepath.Join(dir, "whole")
	if _, err := os.Stat(whole); err == nil {
		return bin
	}
	pip := []string{filepath.Join(bin, "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}
	for _, args := range [][]string{{"python3", "-m", "venv", dir}, append(pip, packages...)} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	if err := os.WriteFile(whole, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return bin
}
