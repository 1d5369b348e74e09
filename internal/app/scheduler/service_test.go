package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/wait"
)

// table holds the leases of a state in memory. The tests of internal/store check the real ones in
// the same way.
type table struct {
	mu   sync.Mutex
	rows map[string]store.Lease
	down error
}

func newTable() *table { return &table{rows: map[string]store.Lease{}} }

func (t *table) Take(_ context.Context, name, holder string, length time.Duration) (store.Lease, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down != nil {
		return store.Lease{}, false, t.down
	}
	l := t.rows[name]
	if l.Until.After(time.Now()) && l.Holder != holder {
		return l, false, nil
	}
	l = store.Lease{Name: name, Holder: holder, Fence: l.Fence + 1, Until: time.Now().Add(length)}
	t.rows[name] = l
	return l, true, nil
}

func (t *table) Renew(_ context.Context, l store.Lease, length time.Duration) (store.Lease, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down != nil {
		return l, t.down
	}
	if t.rows[l.Name].Fence != l.Fence {
		return l, store.ErrLeaseLost
	}
	l.Until = time.Now().Add(length)
	t.rows[l.Name] = l
	return l, nil
}

func (t *table) RenewAll(ctx context.Context, leases []store.Lease, length time.Duration) (lost, left []store.Lease,
	err error) {
	for _, l := range leases {
		switch _, err := t.Renew(ctx, l, length); {
		case errors.Is(err, store.ErrLeaseLost):
			lost = append(lost, l)
		case err != nil:
			return nil, nil, err
		}
	}
	return lost, nil, nil
}

func (t *table) Release(_ context.Context, l store.Lease) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows[l.Name].Fence == l.Fence {
		l.Until = time.Unix(0, 0)
		t.rows[l.Name] = l
	}
	return t.down
}

func (t *table) All(context.Context) ([]store.Lease, time.Time, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := []store.Lease{}
	for _, l := range t.rows {
		out = append(out, l)
	}
	return out, time.Now(), t.down
}

func (t *table) Prune(context.Context, string, time.Time) error { return nil }

func (t *table) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.down = err
}

// desk makes and records the rounds of sources.
type desk struct {
	mu     sync.Mutex
	opened map[string]int
	rounds map[string][]time.Time
	next   time.Duration // what the outcome reports as due
	err    error
	takes  time.Duration
	deaf   bool // a round ignores the end of its context
	at     map[string]int
	worst  int // maximum number of concurrent rounds of one source
}

func newDesk() *desk {
	return &desk{opened: map[string]int{}, rounds: map[string][]time.Time{}, at: map[string]int{}}
}

func (d *desk) source(name string) Source {
	return Source{Name: name, Every: func() time.Duration { return time.Minute }, Deadline: 5 * time.Minute,
		Open: func(context.Context, store.Lease) (Rounds, error) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.opened[name]++
			return &deskRounds{d, name}, nil
		}}
}

func (d *desk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// made returns the times of the rounds of a source.
func (d *desk) made(name string) []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.rounds[name])
}

type deskRounds struct {
	d    *desk
	name string
}

func (r *deskRounds) Round(ctx context.Context) (Outcome, error) {
	r.d.mu.Lock()
	r.d.rounds[r.name] = append(r.d.rounds[r.name], time.Now())
	r.d.at[r.name]++
	r.d.worst = max(r.d.worst, r.d.at[r.name])
	takes, err, next, deaf := r.d.takes, r.d.err, r.d.next, r.d.deaf
	r.d.mu.Unlock()
	defer r.d.set(func() { r.d.at[r.name]-- })
	if deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if takes > 0 {
		if slept := wait.For(ctx, takes); slept != nil {
			return Outcome{}, slept
		}
	}
	if err != nil {
		return Outcome{}, err
	}
	o := Outcome{
		Resources: 3, Running: 2 * money.Amount(1e9), Verdicts: map[string]int{"idle": 1},
		Calls: []inventory.Calls{{API: "ec2:DescribeInstances", Count: 2}},
		Acts:  []Act{{Resource: "i-1", Verb: "stop", Result: "acted"}}}
	if next > 0 {
		o.Next = time.Now().Add(next)
	}
	return o, nil
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// begin runs a scheduler until the returned function is called.
func begin(t *testing.T, leases Leases, holder string, sources ...Source) (s *Scheduler, end func()) {
	t.Helper()
	s = New(Options{Leases: leases, Holder: holder, TTL: 8 * time.Second, Now: time.Now, Log: quiet()})
	s.Set(sources)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// first returns the first time, or zero.
func first(times []time.Time) time.Time {
	if len(times) == 0 {
		return time.Time{}
	}
	return times[0]
}

func gaps(times []time.Time) []time.Duration {
	var out []time.Duration
	for i := 1; i < len(times); i++ {
		out = append(out, times[i].Sub(times[i-1]))
	}
	return out
}

// TestSchedulesPassWhenDue checks that rounds run at the interval, earlier if the outcome says so
// but never before the minimum, and later after each failure, with newly opened Rounds.
func TestSchedulesPassWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		_, end := begin(t, newTable(), "a", d.source("aws"))
		expect := func(what string, lowest, highest time.Duration) {
			t.Helper()
			d.set(func() { d.rounds["aws"] = nil })
			time.Sleep(20 * time.Minute)
			got := gaps(d.made("aws"))
			if len(got) < 2 {
				t.Fatalf("%s: %d rounds", what, len(got))
			}
			for _, g := range got[1:] {
				if g < lowest || g > highest {
					t.Errorf("%s: a round after %s, want %s to %s", what, g, lowest, highest)
				}
			}
		}
		expect("the interval", 53*time.Second, 61*time.Second)
		d.set(func() { d.next = 30 * time.Second })
		expect("something is due", 30*time.Second, 30*time.Second)
		d.set(func() { d.next = time.Second })
		expect("something is due at once", least, least)
		d.set(func() { d.next, d.err, d.rounds["aws"] = 0, errors.New("throttled"), nil })
		var opened int
		d.set(func() { opened = d.opened["aws"] })
		time.Sleep(time.Minute)
		d.set(func() { d.rounds["aws"] = nil })
		time.Sleep(2 * time.Hour)
		got := gaps(d.made("aws"))
		for i := 1; i < len(got); i++ {
			if got[i] < got[i-1]*2/3 || got[i] > lastBackoff*11/10 {
				t.Errorf("failure %d is tried again after %s, the one before after %s", i, got[i], got[i-1])
			}
		}
		d.set(func() {
			if again := d.opened["aws"] - opened; again < len(got) {
				t.Errorf("%d rounds failed and %d were opened again", len(got), again)
			}
		})
		d.set(func() { d.err = nil })
		expect("after the failures", 53*time.Second, 61*time.Second)
		if opened != 1 {
			t.Errorf("what makes rounds was opened %d times without a failure", opened)
		}
		end()
	})
}

// TestProcessesDivideSources checks that each process has its share, that a source has one round at
// a time, that a new process takes its share and an ending one leaves it to the others, and that
// the sources of a killed one are taken within 15 s.
func TestProcessesDivideSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.takes = 2 * time.Second
		var sources []Source
		for i := range 6 {
			sources = append(sources, d.source(fmt.Sprintf("aws/%d", i)))
		}
		leases := newTable()
		holds := func() map[string]int {
			all, now, _ := leases.All(t.Context())
			out := map[string]int{}
			for _, l := range all {
				if strings.HasPrefix(l.Name, "aws/") && l.Until.After(now) {
					out[l.Holder]++
				}
			}
			return out
		}
		expect := func(what string, want map[string]int) {
			t.Helper()
			time.Sleep(90 * time.Second)
			if got := holds(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: they hold %v, want %v", what, got, want)
			}
		}
		_, endA := begin(t, leases, "a", sources...)
		expect("one process", map[string]int{"a": 6})
		_, endB := begin(t, leases, "b", sources...)
		expect("two", map[string]int{"a": 3, "b": 3})
		_, endC := begin(t, leases, "c", sources...)
		expect("three", map[string]int{"a": 2, "b": 2, "c": 2})
		endB()
		expect("one is gone", map[string]int{"a": 3, "c": 3})
		d.set(func() {
			if d.worst != 1 {
				t.Errorf("%d rounds of one source at once", d.worst)
			}
		})
		endA()
		endC()

		// A killed process releases nothing, so its leases remain.
		for range 20 {
			_, _, _ = leases.Take(t.Context(), "aws/0", "dead", DefaultTTL)
			_, _, _ = leases.Take(t.Context(), replicas+"dead", "dead", DefaultTTL)
			d.set(func() { d.rounds = map[string][]time.Time{} })
			died := time.Now()
			_, end := begin(t, leases, "heir", sources...)
			time.Sleep(20 * time.Second)
			made := d.made("aws/0")
			if len(made) == 0 || made[0].Sub(died) >= 15*time.Second {
				t.Errorf("the dead process's source: %d rounds, the first %s after it died",
					len(made), first(made).Sub(died))
			}
			end()
		}
	})
}

// TestLostLeaseEndsPass checks rounds whose source another process took, and whose lease the
// database has not renewed in time.
func TestLostLeaseEndsPass(t *testing.T) {
	for name, lose := range map[string]func(leases *table){
		"taken": func(leases *table) {
			leases.mu.Lock()
			defer leases.mu.Unlock()
			leases.rows["aws"] = store.Lease{
				Name: "aws", Holder: "other", Fence: leases.rows["aws"].Fence + 1, Until: time.Now().Add(time.Hour),
			}
		},
		"no answer": func(leases *table) { leases.fail(errors.New("connection refused")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, leases := newDesk(), newTable()
				d.takes = 4 * time.Minute
				s, end := begin(t, leases, "a", d.source("aws"))
				time.Sleep(10 * time.Second)
				if len(d.made("aws")) != 1 {
					t.Fatalf("%d rounds", len(d.made("aws")))
				}
				lose(leases)
				time.Sleep(25 * time.Second)
				d.set(func() {
					if d.at["aws"] != 0 {
						t.Error("the round goes on")
					}
				})
				r := s.Ready()
				if ready := name == "taken"; r.Ready != ready {
					t.Errorf("readiness %+v", r)
				}
				end()
			})
		})
	}
}

// TestDrain checks that a running round is completed, or cut off after the drain time, that nothing
// new begins, and that leases are released.
func TestDrain(t *testing.T) {
	for _, tc := range []struct{ takes, want time.Duration }{
		{20 * time.Second, 15 * time.Second}, {4 * time.Minute, DefaultDrain},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, leases := newDesk(), newTable()
			d.takes = tc.takes
			_, end := begin(t, leases, "a", d.source("aws"))
			time.Sleep(5 * time.Second)
			start := time.Now()
			end()
			if took := time.Since(start); took != tc.want {
				t.Errorf("a round of %s: ended after %s, want %s", tc.takes, took, tc.want)
			}
			if len(d.made("aws")) != 1 {
				t.Errorf("%d rounds", len(d.made("aws")))
			}
			all, now, _ := leases.All(t.Context())
			for _, l := range all {
				if l.Until.After(now) {
					t.Errorf("%s is still held", l.Name)
				}
			}
		})
	}
}

// TestDeadlineEndsPass checks that the cause is reported and the source is retried.
func TestDeadlineEndsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.takes = time.Hour
		s, end := begin(t, nil, "", d.source("aws"))
		time.Sleep(5*time.Minute + 20*time.Second)
		if r := s.Ready(); !r.Ready || len(r.Degraded) != 1 || !strings.Contains(r.Degraded[0], "longer than 5m") ||
			len(d.made("aws")) != 2 {
			t.Errorf("%+v after %d rounds", r, len(d.made("aws")))
		}
		end()
	})
}

// TestReadiness checks that problems are reported, except those of sources that another process
// holds.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, leases := newDesk(), newTable()
		s, end := begin(t, leases, "a", d.source("mine"))
		h := s.Handler(map[string]http.Handler{
			"/api/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusTeapot)
			}),
		},
			func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer good" })
		by := func(credential, path string) (int, string) {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Header.Set("Authorization", credential)
			h.ServeHTTP(w, r)
			return w.Code, w.Body.String()
		}
		get := func(path string) (int, string) { return by("Bearer good", path) }
		early := New(Options{Now: time.Now, Log: quiet()})
		early.Set([]Source{d.source("mine")})
		if r := early.Ready(); r.Ready {
			t.Errorf("before the first round: %+v", r)
		}
		time.Sleep(time.Second)
		if code, body := get("/readyz"); code != http.StatusOK {
			t.Errorf("after it: %d %s", code, body)
		}
		if code, _ := get("/healthz"); code != http.StatusOK {
			t.Errorf("healthz: %d", code)
		}
		if code, _ := get("/api/v1"); code != http.StatusTeapot {
			t.Errorf("what is mounted: %d", code)
		}
		s.Reloaded(errors.New("curfew.yaml:3:1: unknown field"))
		if code, body := get("/readyz"); code != http.StatusOK || !strings.Contains(body, "unknown field") {
			t.Errorf("a wrong configuration: %d %s", code, body)
		}
		headed := httptest.NewRecorder()
		if h.ServeHTTP(headed, httptest.NewRequest(http.MethodGet, "/api/v1", nil)); headed.Header().Get(
			ConfigurationHeader) == "" {
			t.Errorf("an answer under a wrong configuration has headers %v", headed.Header())
		}
		if _, body := get("/metrics"); !strings.Contains(body, "curfew_config_valid 0") ||
			!strings.Contains(body, `curfew_actions_total{result="acted",source="mine",verb="stop"} 1`) {
			t.Errorf("metrics:\n%s", body)
		}
		s.Reloaded(nil)
		if _, body := get("/metrics"); !strings.Contains(body, "curfew_frozen 0") {
			t.Errorf("metrics:\n%s", body)
		}
		s.froze(&action.Freeze{By: "ana", At: time.Now(), Reason: "an incident"})
		if code, body := get("/readyz"); code != http.StatusOK || !strings.Contains(body, `"frozen": true`) ||
			!strings.Contains(body, "an incident") {
			t.Errorf("frozen: %d %s", code, body)
		}
		if _, body := by("", "/readyz"); !strings.Contains(body, `"frozen": true`) ||
			strings.Contains(body, "an incident") {
			t.Errorf("frozen, to a caller without a credential: %s", body)
		}
		if _, body := get("/metrics"); !strings.Contains(body, "curfew_frozen 1") {
			t.Errorf("metrics:\n%s", body)
		}
		s.froze(nil)
		d.set(func() { d.err = errors.New("AccessDenied") })
		time.Sleep(10 * time.Minute)
		var r Readiness
		code, body := get("/readyz")
		if err := json.Unmarshal([]byte(body), &r); err != nil || code != http.StatusOK || !r.Sources[0].Late ||
			r.Sources[0].Problem != "AccessDenied" ||
			len(r.Degraded) != 1 || r.Degraded[0] != "mine: AccessDenied" || r.Configuration != "" {
			t.Errorf("a source that fails: %d %s", code, body)
		}
		s.Reloaded(errors.New("curfew.yaml:3:1: unknown field"))
		for _, credential := range []string{"", "Bearer bad"} {
			code, body := by(credential, "/readyz")
			if err := json.Unmarshal([]byte(body), &r); err != nil || code != http.StatusOK || !r.Sources[0].Late ||
				len(r.Degraded) != 1 || r.Sources[0].Source != "mine" || r.Configuration == "" ||
				strings.Contains(body, "AccessDenied") || strings.Contains(body, "unknown field") {
				t.Errorf("to a caller with %q: %d %s", credential, code, body)
			}
		}
		s.Reloaded(nil)
		d.set(func() { d.err = nil })
		_, _, _ = leases.Take(t.Context(), "theirs", "b", 24*time.Hour)
		s.Set([]Source{d.source("mine"), d.source("theirs")})
		time.Sleep(10 * time.Minute)
		if code, body := get("/readyz"); code != http.StatusOK || !strings.Contains(body, `"holder": "b"`) {
			t.Errorf("one that another process holds: %d %s", code, body)
		}
		leases.fail(errors.New("connection refused"))
		time.Sleep(3 * time.Second)
		if code, body := get("/readyz"); code != http.StatusServiceUnavailable ||
			!strings.Contains(body, "connection refused") {
			t.Errorf("without a database: %d %s", code, body)
		}
		if code, body := by("", "/readyz"); code != http.StatusServiceUnavailable ||
			strings.Contains(body, "connection refused") || strings.Contains(body, `"ok"`) {
			t.Errorf("without a database, to a caller without a credential: %d %s", code, body)
		}
		leases.fail(nil)
		time.Sleep(2 * time.Minute)
		if code, body := get("/readyz"); code != http.StatusOK {
			t.Errorf("the database is back: %d %s", code, body)
		}
		end()
	})
}

// monitoring is the folder of examples for Prometheus and Grafana.
const monitoring = "../../../examples/monitoring"

// TestMonitoring checks that Prometheus accepts the alert rules, and that rules and dashboard only
// use metrics and labels that the service has.
func TestMonitoring(t *testing.T) {
	var known map[string]bool
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		s, end := begin(t, newTable(), "a", d.source("aws"))
		time.Sleep(time.Second)
		s.Reloaded(nil)
		s.Metrics.failed("database")
		s.learned(Facts{TokenExpires: time.Now()})
		s.Certificate = func() (time.Time, bool) { return time.Now(), true }
		families, err := s.Metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		known = map[string]bool{}
		for _, f := range families {
			known[f.GetName()] = true
			if f.GetHelp() == "" {
				t.Errorf("%s has no help", f.GetName())
			}
		}
		end()
	})
	name := regexp.MustCompile(`\bcurfew_[a-z_]+`)
	rules := filepath.Join(monitoring, "curfew.rules.yml")
	used := map[string]bool{}
	for _, file := range []string{rules, filepath.Join(monitoring, "grafana.json")} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllString(string(text), -1) {
			m = strings.TrimSuffix(m, "_bucket")
			used[m] = true
			if !known[m] {
				t.Errorf("%s asks for %s, which the service has not", file, m)
			}
		}
	}
	for m := range known {
		if strings.HasPrefix(m, "curfew_") && !used[m] && m != "curfew_resources" {
			t.Errorf("neither the rules nor the dashboard ask for %s", m)
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(filepath.Join(monitoring, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || len(dashboard.Panels) == 0 {
		t.Fatalf("the dashboard: %d panels, %v", len(dashboard.Panels), err)
	}
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("promtool is not installed")
	}
	tests := filepath.Join(monitoring, "curfew.rules.test.yml")
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", tests}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	alerts := func(file, pattern string) []string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return out
	}
	// Each alert fires in its test, and is silent before and after.
	have := alerts(rules, `- alert: (\w+)`)
	for what, pattern := range map[string]string{
		"fires":  `alertname: (\w+)\n +exp_alerts:\n +- exp_labels`,
		"silent": `alertname: (\w+)\n +exp_alerts: \[\]`,
	} {
		if tested := slices.Compact(alerts(tests, pattern)); !slices.Equal(tested, have) {
			t.Errorf("the tests have %s %q, and there are the alerts %q", what, tested, have)
		}
	}
	// The expressions of the dashboard are checked as rules, which Prometheus parses.
	var all strings.Builder
	all.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			expr, err := json.Marshal(target.Expr)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&all, "      - {record: \"panel_%d_%d\", expr: %s}\n", p.ID, i, expr)
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(all.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), tool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
