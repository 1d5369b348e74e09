package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// ConnectOptions say what is run on which machine of a session.
type ConnectOptions struct {
	Name string
	Node int
	// Command is what runs; empty is the person's shell.
	Command []string
	Environ []string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	// Drain is how long the output is still read of what the command left running; 0: until
	// that ends.
	Drain time.Duration
}

// enter begins in what the set-up left, in the work folder.
const enter = `. "$1" && shift && cd "$CURFEW_WORK" && exec "$@"`

// Connect runs a command, or a shell, on a machine of a session, and returns its exit code.
func (a *Sessions) Connect(ctx context.Context, o ConnectOptions) (int, error) {
	s, err := a.Newest(ctx, o.Name)
	if err != nil {
		return 0, err
	}
	own, isOwn := a.Keeper.Launchers[s.Provider].(ownMachine)
	switch {
	case s.State != session.Ready:
		hint := "`curfew status " + s.Name + " --watch` shows when it is ready"
		if s.State.Over() {
			hint = "`curfew up " + s.Name + "` starts it again"
		}
		return 0, &Error{Code: "not_ready", Err: fmt.Errorf("session %s is %s", s.Name, s.State), Hint: hint}
	case o.Node < 0 || o.Node >= len(s.Machines):
		return 0, invalid("--node %d: session %s has nodes 0 to %d", o.Node, s.Name, len(s.Machines)-1)
	case !isOwn || !a.Keeper.Mine(&s):
		return 0, &Error{Class: Usage, Code: "other_machine", Err: fmt.Errorf("session %s runs at %s %s, which this command does not reach", s.Name, s.Provider, s.Account), Hint: "give the command on that machine"}
	}
	id := s.Machines[o.Node].ID
	folder := own.Folder(id)
	argv := o.Command
	if len(argv) == 0 {
		shell := "/bin/sh"
		for _, v := range o.Environ {
			if name, ok := strings.CutPrefix(v, "SHELL="); ok {
				shell = cmp.Or(name, shell)
			}
		}
		argv = []string{shell}
	}
	c := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", enter, "sh", filepath.Join(folder, "agent", "environment")}, argv...)...) //nolint:gosec // what the person asks for
	c.WaitDelay = o.Drain
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.Stdin, c.Stdout, c.Stderr, c.Dir = o.In, o.Out, o.Err, "/"
	c.Env = append(slices.DeleteFunc(slices.Clone(o.Environ), func(v string) bool { return strings.HasPrefix(v, "HOME=") }), "HOME="+filepath.Join(folder, "home"))
	sp, err := spec.Parse(s.Name, s.Spec)
	if err != nil {
		return 0, err
	}
	for _, name := range slices.Sorted(maps.Keys(sp.Env)) {
		c.Env = append(c.Env, name+"="+sp.Env[name])
	}
	if err := own.Enter(ctx, id, c); err != nil {
		return 0, err
	}
	err = c.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	if errors.Is(err, exec.ErrWaitDelay) { // it ended well; what it left holds the output open
		return 0, nil
	}
	return 0, err
}
