package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/curfew-dev/curfew/internal/store"
)

// killedVariable makes the test binary make one decision and kill itself during it.
const killedVariable = "CURFEW_STORE_KILLED"

// doomed are the parameters of a process to kill.
type doomed struct {
	Options    store.Options
	Decision   string
	ID         string
	Boundaries int
}

// decideAndDie makes a decision and kills this process at a boundary.
func decideAndDie(text string) error {
	var d doomed
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	i := slices.IndexFunc(decisions, func(c decision) bool { return c.name == d.Decision })
	if i < 0 {
		return fmt.Errorf("there is no decision %q", d.Decision)
	}
	s, m, err := store.StartMortal(context.Background(), d.Options)
	if err != nil {
		return err
	}
	m.Kill = func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	m.Arm(d.Boundaries)
	if err := decisions[i].decide(context.Background(), s, d.ID); err != nil {
		return err
	}
	return s.Close()
}

// TestKilledProcess kills a real process with SIGKILL at each boundary of a fix, with the same
// result as in [TestKilledBetweenTwoStatements].
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	o := store.Options{Dir: t.TempDir(), Temporary: true}
	healthy, db := open(t, o), raw(t, o)
	for _, name := range []string{"a fix uses its approval up"} {
		c := decisions[slices.IndexFunc(decisions, func(c decision) bool { return c.name == name })]
		var whole map[string]int
		for n := 0; whole == nil; n++ {
			d := doomed{o, name, fmt.Sprintf("%s %02d", name[:5], n), n}
			if c.prepare != nil {
				if err := c.prepare(t.Context(), healthy, d.ID); err != nil {
					t.Fatal(err)
				}
			}
			before := keptBy(t, db, o)
			text, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
			cmd.Env = append(os.Environ(), killedVariable+"="+string(text))
			out, err := cmd.CombinedOutput()
			after := keptBy(t, db, o)
			changed, entries := after.changed(before), after.entries-before.entries
			all := c.entries[len(c.entries)-1]
			var exit *exec.ExitError
			switch {
			case err == nil: // it finished before the boundary
				if whole = changed; entries != all || n < 8 {
					t.Errorf("%s: undisturbed by %d boundaries it has %d entries", name, n, entries)
				}
			case !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL:
				t.Fatalf("%s: %v\n%s", name, err, out)
			case entries != 0 && entries != all || (len(changed) == 0) != (entries == 0):
				t.Errorf("%s: killed at boundary %d it leaves %d entries and changes %v", name, n, entries, changed)
			}
			if err := c.decide(t.Context(), healthy, d.ID); err != nil && !(entries == all && c.isAgain(err)) {
				t.Errorf("%s: killed at boundary %d it cannot be made again: %v", name, n, err)
			}
			if last := keptBy(t, db, o); last.entries-before.entries != all ||
				whole != nil && !maps.Equal(whole, last.changed(before)) {
				t.Errorf(
					"%s: killed at boundary %d and made again it has %d entries",
					name,
					n,
					last.entries-before.entries,
				)
			}
		}
	}
	if _, err := healthy.VerifyAudit(t.Context()); err != nil {
		t.Error(err)
	}
}
