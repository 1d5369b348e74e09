package custom

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// script writes a command that keeps its size in a file, and logs what it is asked to set.
func script(t *testing.T) (command []string, log func() string, set func(answer string)) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "scale")
	text := `#!/bin/sh
cd "` + dir + `"
if [ "$1" = size ]; then cat size; exit; fi
shift; echo "$*" >> log
[ -f broken ] && { echo "no quota left" >&2; exit 3; }
echo "{\"replicas\": $1}" > size
`
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	set = func(answer string) {
		if err := os.WriteFile(filepath.Join(dir, "size"), []byte(answer), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(`{"replicas": 2}`)
	return []string{path}, func() string {
		b, _ := os.ReadFile(filepath.Join(dir, "log"))
		return string(b)
	}, set
}

// webhook is a server that does the same.
func webhook(t *testing.T) (url string, log func() string, set func(answer string)) {
	t.Helper()
	answer, asked := `{"replicas": 2}`, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPut {
			var c change
			b, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(b, &c)
			asked += strings.TrimSpace(fmt.Sprint(c.Size, " ", strings.Join(c.End, " "))) + "\n"
			answer = fmt.Sprintf(`{"replicas": %d}`, c.Size)
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string { return asked }, func(a string) { answer = a }
}

// fleets returns the same fleet behind a command and behind a webhook.
func fleets(t *testing.T, visit func(t *testing.T, f *Fleet, log func() string, set func(string))) {
	t.Helper()
	t.Run("command", func(t *testing.T) {
		command, log, set := script(t)
		visit(t, New(Options{Name: "embed", Command: command}), log, set)
	})
	t.Run("webhook", func(t *testing.T) {
		url, log, set := webhook(t)
		visit(t, New(Options{Name: "embed", URL: url, Key: "secret", Client: client{}}), log, set)
	})
}

func do(to int, members ...string) policy.Do {
	return policy.Do{Verb: policy.Scale, Fleet: "custom/embed", Min: 0, Max: 9, Zero: true, To: to, Members: members}
}

// act plans and makes a change, and returns why it is refused.
func act(t *testing.T, f *Fleet, d policy.Do) (task action.Task, refused string) {
	t.Helper()
	at, err := f.Fleet(t.Context(), f.Ref())
	if err != nil {
		t.Fatal(err)
	}
	steps, err := f.Plan(t.Context(), at.Resource, d)
	if refusal := (*action.Refusal)(nil); errors.As(err, &refusal) {
		return task, refusal.Rule
	}
	if err != nil {
		t.Fatal(err)
	}
	task = action.Task{Ref: f.Ref(), Do: d, Step: steps[0]}
	if _, err := f.Do(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	return task, ""
}

func TestSetsTheSize(t *testing.T) {
	fleets(t, func(t *testing.T, f *Fleet, log func() string, set func(string)) {
		task, refused := act(t, f, do(3))
		if progress, _, err := f.Look(t.Context(), task); refused != "" || err != nil || progress != action.Complete {
			t.Errorf("grown: %q %v %v", refused, progress, err)
		}
		if _, err := f.Do(t.Context(), task); err != nil { // a repeated call does nothing
			t.Error(err)
		}
		set(`{"replicas": 3, "servers": [{"id": "a", "hosts": ["10.0.0.1"], "serving": true}, {"id": "b"}, {"id": "c"}]}`)
		at, err := f.Fleet(t.Context(), f.Ref())
		if err != nil || at.Desired != 3 || len(at.Replicas) != 3 || !at.Replicas[0].Serving ||
			at.Replicas[0].Hosts[0] != "10.0.0.1" || at.Resource.Kind != inventory.KindEndpoint {
			t.Errorf("%+v %v", at, err)
		}
		if _, refused := act(t, f, do(2)); refused != "not-drained" {
			t.Errorf("a replica that is not named ends: %q", refused)
		}
		if _, refused := act(t, f, do(2, "a")); refused != "" {
			t.Error(refused)
		}
		if got := log(); got != "3\n2 a\n" {
			t.Errorf("it was asked for %q", got)
		}
		set(`{"replicas": 2, "other_writer": "hpa embed"}`)
		if _, refused := act(t, f, do(3)); refused != "other-writer" {
			t.Errorf("next to another writer: %q", refused)
		}
	})
}

func TestLeavesSizesThatChanged(t *testing.T) {
	fleets(t, func(t *testing.T, f *Fleet, log func() string, set func(string)) {
		at, err := f.Fleet(t.Context(), f.Ref())
		if err != nil {
			t.Fatal(err)
		}
		steps, err := f.Plan(t.Context(), at.Resource, do(3))
		if err != nil {
			t.Fatal(err)
		}
		set(`{"replicas": 7}`)
		var refusal *action.Refusal
		_, err = f.Do(t.Context(), action.Task{Ref: f.Ref(), Do: do(3), Step: steps[0]})
		if !errors.As(err, &refusal) || refusal.Rule != "changed" || log() != "" {
			t.Errorf("%v, asked for %q", err, log())
		}
	})
}

func TestRejectsAnswers(t *testing.T) {
	fleets(t, func(t *testing.T, f *Fleet, _ func() string, set func(string)) {
		for _, answer := range []string{
			"", "two", "{}", `{"replicas": -1}`, `{"replicas": 1000000}`, `{"replicas": 2, "size": 3}`,
			`{"replicas": 2} 3`,
			`{"replicas": 1, "servers": [{"hosts": ["a"]}]}`, `{"replicas": 1, "servers": [{"id": "--force"}]}`,
			`{"replicas": 2, "servers": [{"id": "a"}, {"id": "a"}]}`, `{"replicas": 2.5}`,
			`{"replicas": 2, "servers": "` + strings.Repeat("x", maxAnswer) + `"}`,
		} {
			set(answer)
			if got, err := f.Fleet(t.Context(), f.Ref()); err == nil {
				t.Errorf("%.60q is taken as %+v", answer, got)
			}
		}
	})
}

func TestTellsWhyACommandFailed(t *testing.T) {
	command, _, _ := script(t)
	if err := os.WriteFile(filepath.Join(filepath.Dir(command[0]), "broken"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := New(Options{Name: "embed", Command: command})
	at, err := f.Fleet(t.Context(), f.Ref())
	if err != nil {
		t.Fatal(err)
	}
	steps, err := f.Plan(t.Context(), at.Resource, do(3))
	if err != nil {
		t.Fatal(err)
	}
	task := action.Task{Ref: f.Ref(), Do: do(3), Step: steps[0]}
	if _, err := f.Do(t.Context(), task); err == nil || !strings.Contains(err.Error(), "to 3") ||
		!strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
	if progress, _, err := f.Look(t.Context(), task); progress != action.NotDone || err != nil {
		t.Errorf("looked up: %v %v", progress, err)
	}
	missing := New(Options{Name: "embed", Command: []string{"/nonexistent/scale"}})
	_, err = missing.Fleet(t.Context(), missing.Ref())
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}

// client makes calls as they are.
type client struct{}

func (client) Do(req *http.Request) (*http.Response, error) {
	return (&http.Transport{}).RoundTrip(req)
}
