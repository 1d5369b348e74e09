package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/ssmplugin"
	"github.com/curfew-dev/curfew/test/wire"
)

// withPostgres stops the server that tests started.
type withPostgres struct{ *testing.M }

func (m withPostgres) Run() int { return postgres.Run(m.M) }

func TestMain(m *testing.M) {
	// Sessions on this machine start this program.
	if len(os.Args) > 1 && filepath.Base(os.Args[0]) != "curfew" &&
		slices.Contains([]string{"agent", "cage", "session"}, os.Args[1]) {
		os.Exit(Run(context.Background(), System("test")))
	}
	syscall.Umask(0o022)                           // files that a group can write are refused
	os.Setenv("AWS_EC2_METADATA_DISABLED", "true") // no test asks another machine
	testscript.Main(withPostgres{m}, map[string]func(){
		"curfew":                 func() { os.Exit(runTested()) },
		"session-manager-plugin": ssmplugin.Main,
	})
}

// TestScripts runs the command lines of testdata/script, each in a directory of
// its own with no credentials and no home.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			server, err := standIn(e, wire.Fault{
				Region: "eu-west-1", Service: "ec2", Operation: "DescribeVolumes", Kind: wire.AccessDenied,
			})
			if err != nil {
				return err
			}
			expired, err := standIn(e, wire.Fault{Kind: wire.ExpiredToken})
			if err != nil {
				return err
			}
			e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, ".data"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, ".config"))
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, ".state"))
			e.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			e.Setenv("AWS_CONFIG_FILE", filepath.Join(e.WorkDir, ".aws", "config"))
			e.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(e.WorkDir, ".aws", "credentials"))
			e.Setenv("STAND_IN", server)
			e.Setenv("STAND_IN_EXPIRED", expired)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"run":           runHere,
			"exits":         runExits,
			"status":        status,
			"samples":       samples,
			"first-finding": firstFinding,
			"request":       request,
			"hold":          hold,
			"votes":         votes,
			"damage":        damage,
		},
	})
}

// TestSlowScripts runs the command lines of testdata/slow, which wait for slow operations.
func TestSlowScripts(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("it waits until a session is idle; make test-slow runs it")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/slow", RequireExplicitExec: true, Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, ".data"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, ".config"))
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, ".state"))
			return nil
		}})
}

// TestSessionsOnPostgres runs sessions on a state that several machines share.
func TestSessionsOnPostgres(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("the script runs on SQLite every day; make test-slow runs it on PostgreSQL")
	}
	testscript.Run(t, testscript.Params{
		Files: []string{"testdata/script/session.txtar"}, RequireExplicitExec: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_DATA_HOME", filepath.Join(e.WorkDir, ".data"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, ".config"))
			e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, ".state"))
			e.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			e.Setenv("CURFEW_DATABASE_URL", postgres.Start(t))
			return nil
		}})
}

// standIn serves an empty AWS account with faults.
func standIn(e *testscript.Env, faults ...wire.Fault) (string, error) {
	s := wire.New(wire.Options{})
	if err := s.Listen(0); err != nil {
		return "", err
	}
	for _, f := range faults {
		s.Inject(f)
	}
	e.Defer(func() {
		if err := s.Close(); err != nil {
			e.T().Log(err)
		}
	})
	return s.URL(), nil
}

// inProcess runs a command line of curfew in this process, with the environment of the script, and
// returns its exit code. It saves the start of a process; scripts that signal, pipe to or detach a
// command start it with exec.
func inProcess(ts *testscript.TestScript, args []string) int {
	lookup := func(name string) (string, bool) { v := ts.Getenv(name); return v, v != "" }
	return Run(context.Background(), Process{
		Args: args, Stdin: strings.NewReader(""), Stdout: ts.Stdout(), Stderr: ts.Stderr(), Version: "test",
		Dir: ts.MkAbs("."), ConfigDir: ts.Getenv("XDG_CONFIG_HOME"), DataDir: userDataDir(lookup),
		WitnessDir: witnessDir(lookup, 0),
		Lookup:     lookup, Now: time.Now, Uptime: runtime.Uptime, FileTime: store.FileTime,
	})
}

// runHere runs curfew, which has to succeed: run ARG…
func runHere(ts *testscript.TestScript, neg bool, args []string) {
	if code := inProcess(ts, args); (code != ExitDone) != neg {
		ts.Fatalf("curfew %s: exit status %d", strings.Join(args, " "), code)
	}
}

// runExits runs curfew and checks its exit code: exits 5 scan.
func runExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: exits CODE ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if code := inProcess(ts, args[1:]); code != want {
		ts.Fatalf("curfew %s: exit status %d, want %d", strings.Join(args[1:], " "), code, want)
	}
}

// status runs a command and checks its exit code: status 5 curfew scan.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		if _, err := fmt.Sscanf(err.Error(), "exit status %d", &got); err != nil {
			ts.Fatalf("%v", err)
		}
	}
	if got != want {
		ts.Fatalf("%s: exit status %d, want %d\n%s", strings.Join(args[1:], " "), got, want, ts.ReadFile("stderr"))
	}
}

// firstFinding sets $FINDING to the first finding's id: first-finding SCAN.
func firstFinding(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: first-finding SCAN")
	}
	doc, err := view.LoadScan(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	if len(doc.Findings) == 0 {
		ts.Fatalf("%s has no finding", args[0])
	}
	ts.Setenv("FINDING", doc.Findings[0].ID[:8])
}

// request sets $REQUEST to the request about a name that waits: request NAME.
func request(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: request NAME")
	}
	ts.Check(ts.Exec("curfew", "approvals", "-o", "json"))
	var doc struct {
		Requests []struct{ ID, Subject, State string }
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc))
	for _, r := range doc.Requests {
		if strings.HasSuffix(r.Subject, " "+args[0]) && r.State == "pending" {
			ts.Setenv("REQUEST", r.ID)
			return
		}
	}
	ts.Fatalf("nothing about %s waits: %+v", args[0], doc.Requests)
}

// hold sets $HOLD to the hold of the gate's last decision: hold NAME, after gate -o json.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold NAME")
	}
	var doc struct {
		HoldID string `json:"hold_id"`
	}
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &doc))
	if doc.HoldID == "" {
		ts.Fatalf("nothing is held for %s", args[0])
	}
	ts.Setenv("HOLD", doc.HoldID)
}

// votes writes a vote: votes FILE REQUEST BY ALLOW.
func votes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: votes FILE REQUEST BY ALLOW")
	}
	text := fmt.Sprintf("votes:\n  - {request: %s, by: %s, allow: %s, reason: demo}\n", args[1], args[2], args[3])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// samples writes recorded usage: samples FILE ROWS [BAD-ROW].
func samples(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: samples FILE ROWS [BAD-ROW]")
	}
	rows, err := strconv.Atoi(args[1])
	ts.Check(err)
	bad := -1
	if len(args) > 2 {
		bad, err = strconv.Atoi(args[2])
		ts.Check(err)
	}
	var b strings.Builder
	b.WriteString("resource,time,gpu,gpu_util,mem_used_bytes\n")
	start := time.Now().Add(-time.Duration(rows) * time.Second).Unix()
	for i := range rows {
		util := strconv.Itoa(i % 101)
		if i == bad {
			util = "1O"
		}
		fmt.Fprintf(&b, "i-1,%d,0,%s,1000\n", start+int64(i), util)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(b.String()), 0o600))
}
