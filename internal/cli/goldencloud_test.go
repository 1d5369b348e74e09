package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/curfew-dev/curfew/test/sandbox"
	"github.com/curfew-dev/curfew/test/wire"
)

// goldenAccount is an AWS account whose clock a golden script sets, and whose ids are
// the same each time.
type goldenAccount struct {
	*sandbox.Sandbox
	mu  sync.Mutex
	now time.Time
}

func (g *goldenAccount) clock() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now
}

func (g *goldenAccount) jump(to time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now = to
}

func newGoldenAccount(t *testing.T) *goldenAccount {
	t.Helper()
	now, err := time.Parse(time.RFC3339, goldenNow)
	if err != nil {
		t.Fatal(err)
	}
	g := &goldenAccount{now: now}
	if g.Sandbox, err = sandbox.Start(t.Context(), sandbox.Options{Now: g.clock}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.MotoURL()+"/moto-api/seed?a=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the ids of the account cannot be settled: %s", res.Status)
	}
	for _, e := range g.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	return g
}

// TestGoldenSandbox pins the audit of a seeded AWS account, and a dry pass of the
// policies of examples over it.
func TestGoldenSandbox(t *testing.T) {
	g := newGoldenAccount(t)
	truth, err := g.Seed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/golden/cloud/account.txtar", func(e *testscript.Env) error {
		e.Setenv("REGIONS", strings.Join(truth.Regions, ","))
		return nil
	}, nil)
}

// TestGoldenLadder pins the lines that passes of acting policies print for each machine of an AWS
// account.
func TestGoldenLadder(t *testing.T) {
	g := newGoldenAccount(t)
	account, err := g.SeedLadder(t.Context(), "us-east-1")
	if err != nil {
		t.Fatal(err)
	}
	var messages atomic.Int32
	slack := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		messages.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"ok":true,"channel":"U0ANA","ts":"1.1"}`)
	}))
	t.Cleanup(slack.Close)
	golden(t, "testdata/golden/cloud/ladder.txtar", func(e *testscript.Env) error {
		e.Setenv("SLACK_TOKEN", "xoxb-secret-token")
		return os.WriteFile(filepath.Join(e.WorkDir, "curfew.yaml"), fmt.Appendf(nil, ladderConfig, slack.URL), 0o600)
	}, map[string]func(*testscript.TestScript, bool, []string){
		// pass DURATION lets time go by, in which the machines report.
		"pass": func(ts *testscript.TestScript, neg bool, args []string) {
			at(ts, neg, []string{"+" + args[0]})
			now, err := time.Parse(time.RFC3339, ts.Getenv("NOW"))
			ts.Check(err)
			g.jump(now)
			ts.Check(account.Advance(t.Context(), now))
		},
		// told says how many messages were sent since the last time.
		"told": func(ts *testscript.TestScript, _ bool, _ []string) { fmt.Fprintln(ts.Stdout(), messages.Swap(0)) },
		// turn NAME DOES makes a machine work or rest.
		"turn": func(ts *testscript.TestScript, _ bool, args []string) {
			account.Turn(args[0], map[string]sandbox.Activity{"work": sandbox.AtWork, "rest": sandbox.AtRest}[args[1]])
		},
		// launched NAME launches a machine now.
		"launched": func(_ *testscript.TestScript, _ bool, args []string) {
			g.Wire.Patch(wire.Patch{
				Service: "ec2", Operation: "DescribeInstances", Beside: "launchTime", IDField: "instanceId",
				ID:  account.IDs[args[0]],
				Set: map[string]any{"launchTime": g.clock()}})
		},
	})
}
