package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/app/replay"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/view"
)

const patience = 2 * time.Minute

// works runs the backtests of a service until end is called.
func (s *service) works() (end func()) {
	ctx, cancel := context.WithCancel(s.tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		replay.RunBacktests(ctx, s.req.Fresh(), replay.BacktestRunner{
			Store: s.state, TTL: time.Second, Poll: 20 * time.Millisecond, Check: 20 * time.Millisecond,
			Log: slog.New(slog.NewTextHandler(s.log, nil)),
		})
	})
	var once sync.Once
	end = func() { once.Do(func() { cancel(); wg.Wait() }) }
	s.tb.Cleanup(end)
	return end
}

// job returns the only backtest of a response.
func job(t *testing.T, a answered) view.BacktestJob {
	t.Helper()
	var doc view.Backtests
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != 200 || len(doc.Backtests) != 1 {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return doc.Backtests[0]
}

// until waits for a state of a backtest.
func (s *service) until(t *testing.T, id string, states ...string) view.BacktestJob {
	t.Helper()
	var j view.BacktestJob
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		j = job(t, s.call("vi", "GET", "/api/v1/backtests/"+id, ""))
		for _, want := range states {
			if j.State == want {
				return j
			}
		}
	}
	t.Fatalf("backtest %s is %+v, want %v\n%s", id, j, states, s.log)
	return j
}

// traced returns a configuration with a folder of traces, and the folder.
func traced(t *testing.T) (yaml, dir string) {
	t.Helper()
	dir = t.TempDir()
	text, err := os.ReadFile("../../examples/data/gpus.csv.gz")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "gpus.csv.gz"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return settings + "serve: {trace_paths: ['" + dir + "'], bill_paths: ['" + dir + "']}\n", dir
}

const idlePolicy = `
apiVersion: curfew.policy/v1
policies:
  - name: idle-gpu-machines
    select: {kind: instance, lifetime: ephemeral}
    when: duty.state in ["idle", "held"] && duty.lasting >= duration("30m")
    then:
      - warn: {notify: [owner], grace: 15m}
      - do: stop
`

// TestBacktests checks that the service replays like the command line.
func TestBacktests(t *testing.T) {
	yaml, dir := traced(t)
	s := start(t, yaml, true, nil)
	s.works()
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(idlePolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	body, _ := json.Marshal(map[string]any{
		"trace": "gpus.csv.gz", "policies": idlePolicy, "price": "3.06", "every": "5m",
	})
	created := job(t, s.call("ned", "POST", "/api/v1/backtests", string(body), with("Idempotency-Key", "k1")))
	if created.CreatedBy != "ned" || created.Of.RestartCost != "5m" || !created.Of.Baselines {
		t.Errorf("created: %+v", created)
	}
	if again := job(t, s.call("ned", "POST", "/api/v1/backtests", string(body),
		with("Idempotency-Key", "k1"))); again.ID != created.ID {
		t.Errorf("the same key made %s and %s", created.ID, again.ID)
	}
	done := s.until(t, created.ID, "done", "failed")
	if done.State != "done" || done.ProgressPercent != 100 || done.EndedAt == nil || done.Attempts != 1 {
		t.Fatalf("%+v", done)
	}
	result := s.call("vi", "GET", "/api/v1/backtests/"+created.ID+"/result", "")
	want := s.curfew("backtest", "--trace", filepath.Join(dir, "gpus.csv.gz"), "--policy", policy, "--price", "3.06",
		"--every", "5m", "-o", "json")
	if diff := cmp.Diff(want, result.body); result.status != 200 || diff != "" {
		t.Errorf("%d, the command line -, the service +\n%s", result.status, diff)
	}
	var list view.Backtests
	if err := json.Unmarshal([]byte(s.call("vi", "GET", "/api/v1/backtests", "").body), &list); err != nil ||
		len(list.Backtests) != 1 {
		t.Errorf("the list: %+v, %v", list, err)
	}
	if audit := s.call("vi", "GET", "/api/v1/audit?what=backtest", "").body; !strings.Contains(audit, `"asked for"`) ||
		!strings.Contains(audit, `"done"`) {
		t.Errorf("the audit log: %s", audit)
	}
	outside := filepath.Join(t.TempDir(), "secret.csv")
	if err := os.WriteFile(outside, []byte("a,b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link.csv")); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int{
		`{"trace":"` + outside + `"}`: 403, `{"trace":"../` + filepath.Base(dir) + `x"}`: 403,
		`{"trace":"link.csv"}`:    403,
		`{"trace":"/etc/passwd"}`: 403, `{"trace":"none.csv"}`: 400,
		`{}`: 400, `{"trace":"gpus.csv.gz","from":"prometheus"}`: 400, `{"from":"elsewhere"}`: 422,
		`{"trace":"gpus.csv.gz","step":"x"}`: 400, `{"trace":"gpus.csv.gz","every":"x"}`: 400,
		`{"trace":"gpus.csv.gz","policies":"x"}`: 400, `{"trace":"gpus.csv.gz","baselines":false}`: 400,
		`{"from":"prometheus","since":"90d"}`: 400, `{"trace":"gpus.csv.gz","price":"-1"}`: 400,
	} {
		if got := s.call("ned", "POST", "/api/v1/backtests", body); got.status != want {
			t.Errorf("%s: %d %s, want %d", body, got.status, got.body, want)
		}
	}
	// A backtest that fails states the cause and has no result.
	if err := os.WriteFile(filepath.Join(dir, "empty.csv"), []byte("resource,time,gpu_util\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	broken := job(t, s.call("ned", "POST", "/api/v1/backtests", `{"trace":"empty.csv","step":"60s"}`))
	if failed := s.until(t, broken.ID, "done", "failed"); failed.State != "failed" || failed.Note == "" {
		t.Errorf("%+v", failed)
	}
	if got := s.call("vi", "GET", "/api/v1/backtests/"+broken.ID+"/result", ""); got.status != 404 {
		t.Errorf("its result: %d %s", got.status, got.body)
	}
	if got := s.call("vi", "GET", "/api/v1/backtests/none", ""); got.status != 404 {
		t.Errorf("an unknown one: %d", got.status)
	}
}

// slow writes a trace that takes a while to replay.
func slow(t *testing.T, dir string) string {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	fmt.Fprintln(z, "resource,time,gpu_util")
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	for i := range 300_000 {
		fmt.Fprintf(z, "gpu-%d,%s,%d\n", i%50,
			at.Add(time.Duration(i/50)*time.Minute).Format(time.RFC3339), i*7919%3*50)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "slow.csv.gz"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return "slow.csv.gz"
}

// TestBacktestsAreCanceled checks cancellation by the requester or an operator, while waiting or
// running.
func TestBacktestsAreCanceled(t *testing.T) {
	yaml, dir := traced(t)
	s := start(t, yaml, true, nil)
	body := `{"trace":"` + slow(t, dir) + `","every":"1m"}`
	waits, runs := job(t, s.call("ned", "POST", "/api/v1/backtests", body)), job(t,
		s.call("ada", "POST", "/api/v1/backtests", body))
	if got := s.call("ned", "POST", "/api/v1/backtests/"+runs.ID+"/cancel", ""); got.status != 403 {
		t.Errorf("ned cancels what ada asked for: %d", got.status)
	}
	if got := job(t, s.call("ned", "POST", "/api/v1/backtests/"+waits.ID+"/cancel", "")); got.State != "canceled" ||
		got.Note != "canceled by ned" {
		t.Errorf("%+v", got)
	}
	end := s.works()
	s.until(t, runs.ID, "running", "done")
	got := s.call("olga", "POST", "/api/v1/backtests/"+runs.ID+"/cancel", "")
	if got.status != 200 && got.status != 409 { // it may have finished by then
		t.Errorf("%d %s", got.status, got.body)
	}
	was := job(t, s.call("vi", "GET", "/api/v1/backtests/"+runs.ID, ""))
	if (was.State == "canceled") != (got.status == 200) {
		t.Errorf("%d, and it is %+v", got.status, was)
	}
	if again := s.call("ned", "POST", "/api/v1/backtests/"+waits.ID+"/cancel", ""); again.status != 409 {
		t.Errorf("canceled twice: %d", again.status)
	}
	// The service continues with the next one.
	next := job(t, s.call("ned", "POST", "/api/v1/backtests", `{"trace":"gpus.csv.gz"}`))
	s.until(t, next.ID, "done")
	end()
	for id, state := range map[string]string{waits.ID: "canceled", runs.ID: was.State} {
		if j := job(t, s.call("vi", "GET", "/api/v1/backtests/"+id, "")); j.State != state {
			t.Errorf("%s is %s afterwards, want %s", id, j.State, state)
		}
	}
}

// TestBacktestsSurviveRestart checks that a backtest running when the service ended is restarted
// with a note, whether or not the service could release it; one that kills every process is given
// up.
func TestBacktestsSurviveRestart(t *testing.T) {
	yaml, _ := traced(t)
	s := start(t, yaml, true, nil)
	ctx, jobs := t.Context(), s.state.Backtests()
	// The leftovers of a killed process: a running backtest and an expiring lease.
	die := func(id string, times int) {
		t.Helper()
		for n := range times {
			lease, held, err := s.state.Leases().Take(ctx, "backtest/"+id, fmt.Sprint("dead", n), time.Millisecond)
			for !held && err == nil {
				lease, held, err = s.state.Leases().Take(ctx, "backtest/"+id, fmt.Sprint("dead", n), time.Millisecond)
			}
			if err == nil {
				err = jobs.Begin(ctx, id, lease, time.Now(), "")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	create := func() string {
		return job(t, s.call("ned", "POST", "/api/v1/backtests", `{"trace":"gpus.csv.gz"}`)).ID
	}
	once, deadly, told := create(), create(), create()
	die(once, 1)
	die(deadly, 3)
	lease, _, err := s.state.Leases().Take(ctx, "backtest/"+told, "told", time.Millisecond)
	if err == nil {
		err = jobs.Begin(ctx, told, lease, time.Now(), "")
	}
	if err == nil {
		err = jobs.Yield(ctx, told, lease, "the service ended while it ran this; it is run again")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.works()
	if j := s.until(t, once, "done", "failed"); j.State != "done" || j.Attempts != 2 ||
		!strings.Contains(j.Note, "run again") {
		t.Errorf("after one death: %+v", j)
	}
	if j := s.until(t, deadly, "done", "failed"); j.State != "failed" ||
		!strings.Contains(j.Note, "3 processes ended") {
		t.Errorf("after three deaths: %+v", j)
	}
	if j := s.until(t, told, "done", "failed"); j.State != "done" || j.Attempts != 1 {
		t.Errorf("after it was given back: %+v", j)
	}
	if open, err := jobs.Open(ctx); err != nil || len(open) != 0 {
		t.Errorf("open: %+v, %v", open, err)
	}
}

// TestBills checks that the API and the command line return the same bill, and that only permitted
// files are read.
func TestBills(t *testing.T) {
	yaml, dir := traced(t)
	s := start(t, yaml, true, nil)
	text, err := os.ReadFile("../../examples/data/focus-2026-10.csv")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "focus.csv"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(outside, text, 0o600); err != nil {
		t.Fatal(err)
	}
	content := func(name, text string, dry bool) string {
		raw, _ := json.Marshal(map[string]any{"content": text, "name": name, "dry_run": dry})
		return string(raw)
	}
	for body, want := range map[string]int{
		`{"path":"` + outside + `"}`: 403, `{"path":"s3://foreign/bill"}`: 403,
		`{"path":"` + dir + `/../` + filepath.Base(filepath.Dir(outside)) + `/other.csv"}`: 403,
		`{}`: 400, `{"path":"focus.csv","content":"x","name":"y"}`: 400, content("../x", string(text), false): 400,
		content("x.csv", "no bill", false): 400, `{"path":"none.csv"}`: 400,
	} {
		if got := s.call("ada", "POST", "/api/v1/bills", body); got.status != want {
			t.Errorf("%.80s: %d %s, want %d", body, got.status, got.body, want)
		}
	}
	if got := s.call("ada", "POST", "/api/v1/bills",
		content("x.csv", strings.Repeat("x", 1<<20), false)); got.status !=
		413 {
		t.Errorf("an upload over the bound: %d", got.status)
	}
	total := func(body string) string {
		var doc struct {
			Schema, Source string
			Billed         string `json:"billed_cost_usd"`
		}
		if err := json.Unmarshal([]byte(body), &doc); err != nil || doc.Schema != view.BillSchema || doc.Billed == "" {
			t.Fatalf("%s: %v", body, err)
		}
		return doc.Billed
	}
	periods := func() []view.BillPeriod {
		var doc view.BillPeriods
		if got := s.call("vi", "GET", "/api/v1/bills/periods", ""); json.Unmarshal([]byte(got.body), &doc) != nil ||
			got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return doc.Periods
	}
	dry := s.call("ada", "POST", "/api/v1/bills", content("focus.csv", string(text), true))
	if n := len(periods()); n != 0 {
		t.Errorf("a dry run kept %d periods", n)
	}
	sent := s.call("ada", "POST", "/api/v1/bills", content("focus.csv", string(text), false),
		with("Idempotency-Key", "b1"))
	if total(sent.body) != total(dry.body) {
		t.Errorf("sent: %s, dry: %s", sent.body, dry.body)
	}
	if again := s.call("ada", "POST", "/api/v1/bills", content("focus.csv", string(text), false),
		with("Idempotency-Key", "b1")); again.header.Get("Idempotency-Replayed") != "true" || again.body != sent.body {
		t.Errorf("again: %d %s", again.status, again.body)
	}
	first := periods()
	if len(first) == 0 || first[0].Source != "upload/focus.csv" || first[0].ImportedAt.IsZero() {
		t.Fatalf("%+v", first)
	}
	if named := s.call("ada", "POST", "/api/v1/bills",
		content("focus.csv", string(text), false)); named.status != 200 ||
		len(periods()) != len(first) {
		t.Errorf("the same name again: %d %s", named.status, named.body)
	}
	shown := s.call("vi", "GET", "/api/v1/bills?since=2026-10-01&until=2026-11-01", "")
	// The command line imports the same bill into another state.
	var out, failed bytes.Buffer
	if exit := cli.Run(t.Context(), cli.Process{
		Args: []string{
			"bill", "import", filepath.Join(dir, "focus.csv"), "-o", "json", "--data-dir",
			filepath.Join(t.TempDir(), "state"),
		}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &failed,
		Now: time.Now, Dir: dir, Lookup: func(string) (string, bool) { return "", false }}); exit != cli.ExitDone {
		t.Fatalf("exit %d: %s", exit, failed.String())
	}
	if want := total(out.String()); total(sent.body) != want || shown.status != 200 {
		t.Errorf("the API imported %s, the command line %s; shown %d", total(sent.body), want, shown.status)
	}
	if got := s.call("ada", "POST", "/api/v1/bills/reconciliation",
		`{"since":"2026-10-01","until":"2026-11-01"}`); got.status != 200 ||
		!strings.Contains(got.body, view.ReconciliationSchema) {
		t.Errorf("reconcile: %d %s", got.status, got.body)
	}
	if audit := s.call("vi", "GET", "/api/v1/audit?what=bill", "").body; !strings.Contains(
		audit, "upload/focus.csv") ||
		!strings.Contains(audit, `"actor": "ada"`) {
		t.Errorf("the audit log: %s", audit)
	}
	if strings.Contains(s.log.String(), "level=ERROR") {
		t.Errorf("the log: %s", s.log)
	}
}

// TestSettings checks that versions are consecutive, that a stale version and one that would lock
// everybody out are refused, and that the newest applies at once.
func TestSettings(t *testing.T) {
	s := start(t, settings, true, nil)
	set := func(who, text string, last int) answered {
		raw, _ := json.Marshal(map[string]any{"settings": text, "last": last, "reason": "a test"})
		return s.call(who, "POST", "/api/v1/settings", string(raw))
	}
	shared := strings.ReplaceAll(settings, "identity: root\n", "")
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"no admin": {"approvers: {bo: [approver]}", 400}, "no settings": {"x: 1", 400},
		"broken": {"approvers: [", 400},
	} {
		if got := set("ada", c.text, 0); got.status != c.want {
			t.Errorf("%s: %d %s, want %d", name, got.status, got.body, c.want)
		}
	}
	var doc view.Settings
	read := func() view.Settings {
		t.Helper()
		doc = view.Settings{}
		if got := s.call("ada", "GET", "/api/v1/settings", ""); json.Unmarshal([]byte(got.body), &doc) != nil ||
			got.status != 200 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		return doc
	}
	if d := read(); !d.Advisory || len(d.Versions) != 0 || d.Body != nil {
		t.Errorf("from the start: %+v", d)
	}
	if got := set("ada", shared, 0); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := set("ada", shared, 0); got.status != 409 || got.code() != "changed" {
		t.Errorf("over a version that was not read: %d %s", got.status, got.body)
	}
	if got := set("ada", shared+"quotas: []\n", 1); got.status != 200 {
		t.Errorf("the next version: %d %s", got.status, got.body)
	}
	if d := read(); d.Advisory || len(d.Versions) != 2 || d.Versions[0].Version != 2 || d.Versions[0].Who != "ada" ||
		d.Body == nil || *d.Body != shared+"quotas: []\n" {
		t.Errorf("%+v", d)
	}
	for _, who := range []string{"vi", "ned", "bo", "olga", "vera"} {
		if got := s.call(who, "GET", "/api/v1/settings", ""); got.status != 403 {
			t.Errorf("%s reads the settings: %d", who, got.status)
		}
	}
	if audit := s.call("vi", "GET", "/api/v1/audit?what=settings", "").body; strings.Count(audit,
		`"actor": "ada"`) != 2 {
		t.Errorf("the audit log: %s", audit)
	}
	// One of several concurrent versions is set.
	var mu sync.Mutex
	statuses := map[int]int{}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			got := set("ada", shared, 2)
			mu.Lock()
			defer mu.Unlock()
			statuses[got.status]++
		})
	}
	wg.Wait()
	if statuses[200] != 1 || statuses[409] != 5 {
		t.Errorf("at once: %v", statuses)
	}
	if all, err := s.state.Settings().Versions(t.Context(), runtime.SettingsKind); err != nil || len(all) != 3 {
		t.Errorf("%d versions, %v", len(all), err)
	}
	// A version without ada's role applies at once.
	if got := set("ada", strings.ReplaceAll(shared, "ada: {roles: [admin, approver]}",
		"ada: {roles: [viewer]}\n  root: {roles: [admin]}"), 3); got.status != 200 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if got := set("ada", shared, 4); got.status != 403 {
		t.Errorf("ada, who is no admin any more: %d %s", got.status, got.body)
	}
}
