package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// copyState puts a copy of a folder in the place of another one.
func (l *ladderTest) copyState(from, to string) {
	l.t.Helper()
	from, to = filepath.Join(l.dir, from), filepath.Join(l.dir, to)
	if err := os.RemoveAll(to); err != nil {
		l.t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		l.t.Fatal(err)
	}
	for _, name := range []string{"", "curfew.db", "curfew.db.lock"} {
		mode := os.FileMode(0o600)
		if name == "" {
			mode = 0o700
		}
		if err := os.Chmod(filepath.Join(to, name), mode); err != nil {
			l.t.Fatal(err)
		}
	}
}

func (l *ladderTest) standing(args ...string) (d view.State) {
	l.t.Helper()
	if err := json.Unmarshal([]byte(l.curfew(ExitDone, append(args, "-o", "json")...)), &d); err != nil {
		l.t.Fatal(err)
	}
	return d
}

// TestRestoredStateKeepsFreezeAndKeeps puts a copy of the state back that knows of no keep and no
// freeze: the machine is left alone, also after an operator has accepted the state.
func TestRestoredStateKeepsFreezeAndKeeps(t *testing.T) {
	l := newLadder(t)
	l.pass(40 * time.Minute)
	l.enforce(ExitDone)
	l.copyState("data", "backup")
	l.curfew(ExitDone, "keep", l.account.Ref(sandbox.Idle).String(), "--for", "24h", "--reason", "demo")
	l.curfew(ExitDone, "freeze", "--reason", "incident")
	l.copyState("backup", "data")
	l.pass(20 * time.Minute)

	if got := l.enforce(ExitDenied); got[sandbox.Idle] != "frozen" || got[sandbox.Turning] != "frozen" {
		t.Errorf("a pass of the restored state: %v", got)
	}
	d := l.standing("state")
	if d.Quarantine == nil || d.Lost == nil || d.Lost.Changes < 2 {
		t.Errorf("the state is %+v", d)
	}
	if text := l.curfew(ExitDone, "state"); !strings.Contains(text, "curfew state accept") ||
		!strings.Contains(text, "Lost: ") {
		t.Errorf("it shows:\n%s", text)
	}
	if text := l.curfew(ExitDone, "audit"); !strings.Contains(text, "quarantine") {
		t.Errorf("the audit log shows nothing of it:\n%s", text)
	}
	l.curfew(ExitDone, "unfreeze", "--reason", "over")
	l.pass(20 * time.Minute)
	if got := l.enforce(ExitDenied); got[sandbox.Idle] != "frozen" {
		t.Errorf("unfreezing ended the quarantine: %v", got)
	}
	// What needs no action goes on.
	l.curfew(ExitDone, "scan", "--quiet", "-o", "json")

	d = l.standing("state", "accept", "--reason", "the disk broke")
	if d.Quarantine != nil || d.Restored == nil || d.Restored.Freeze == nil || len(d.Restored.Keeps) != 1 {
		t.Errorf("the acceptance brought back %+v", d.Restored)
	}
	if got := l.enforce(ExitDenied); got[sandbox.Idle] != "refused" || got[sandbox.Turning] != "frozen" {
		t.Errorf("under the freeze that holds again: %v", got)
	}
	l.curfew(ExitDone, "unfreeze", "--reason", "over")
	if got := l.enforce(ExitDone); got[sandbox.Idle] != "refused" || got[sandbox.Turning] != "warned" {
		t.Errorf("after the freeze: %v; want the exempt machine refused, and the other at its first step", got)
	}
	l.pass(10 * time.Minute)
	l.enforceAny()
	l.pass(6 * time.Minute)
	l.enforceAny()
	l.pass(time.Minute)
	l.enforceAny()
	if l.state(sandbox.Idle) != "running" || l.state(sandbox.Turning) != "terminated" {
		t.Errorf("the exempt machine is %s, and the other one %s", l.state(sandbox.Idle), l.state(sandbox.Turning))
	}
	if code, _, errs := l.curfewAny("state", "accept", "--reason", "again"); code != ExitUsage ||
		!strings.Contains(errs, "nothing to accept") {
		t.Errorf("accepting a healthy state: exit %d, %s", code, errs)
	}
}

func TestWitnessIsOutsideDataDirectory(t *testing.T) {
	l := newLadder(t)
	text, err := os.ReadFile(filepath.Join(l.dir, "curfew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	l.write("curfew.yaml", string(text)+"state: {witness: data/witness}\n")
	if code, _, errs := l.curfewAny("freeze", "--reason", "test"); code != ExitUsage ||
		!strings.Contains(errs, "in the data directory") {
		t.Errorf("exit %d: %s", code, errs)
	}
	l.write("curfew.yaml", string(text)+"state: {witness: elsewhere}\n")
	l.enforceAny()
	if found, err := filepath.Glob(filepath.Join(l.dir, "elsewhere", "state-*.json")); err != nil || len(found) != 1 {
		t.Errorf("the witness has %v, %v", found, err)
	}
}
