package connect

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
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/app/host"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Options say what is done on which machine of a session.
type Options struct {
	Name string
	Node int
	// Command is what runs; empty is the person's shell.
	Command []string
	// Port is a port of the machine to forward, and Local the port here; 0: the same.
	Port, Local int
	// Copy copies instead, Editor, one of [Editors], is opened instead, and Use is given the
	// machine for as long as it takes.
	Copy   *CopyPaths
	Editor string
	Use    func(context.Context, *Machine) error
	// Patience is how long a machine is waited for that has just started and that its provider
	// does not reach yet; 0: not at all.
	Patience time.Duration
	// Stdio makes In and Out the stream of an SSH connection: what an entry of ~/.ssh/config
	// runs.
	Stdio bool
	// Yield gives what is typed at the terminal, Ctrl-C too, to the shell that has just started;
	// nil: nothing has to be done.
	Yield func()
	// Consent is asked before a line is added to a file of the person; an error: no.
	Consent func(line, file string) error
	Environ []string
	// In, Out and Err are those of the process: a command's output may be anything.
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Connect runs a command, or a shell, on a machine of a session, and returns its exit code; or
// does what else the options ask for.
func Connect(ctx context.Context, a *sessions.Sessions, o Options) (int, error) {
	s, err := a.Newest(ctx, o.Name)
	if err != nil {
		return 0, err
	}
	if err := Disconnect(ctx, a); err != nil {
		plain.Fprintf(o.Err, "curfew: %v\n", err)
	}
	if o.Copy != nil {
		if _, _, _, err := o.Copy.split(); err != nil {
			return 0, err
		}
		o.Use = func(ctx context.Context, m *Machine) error { return m.copied(ctx, *o.Copy) }
	}
	own, isOwn := a.Keeper.Launchers[s.Provider].(clouds.OwnMachine)
	switch {
	case s.State != session.Ready:
		hint := "`curfew status " + s.Name + " --watch` shows when it is ready"
		if s.State.IsFinal() {
			hint = "`curfew up " + s.Name + "` starts it again"
		}
		return 0, &runtime.Error{Code: "not_ready", Err: fmt.Errorf("session %s is %s", s.Name, s.State), Hint: hint}
	case o.Node < 0 || o.Node >= len(s.Machines):
		return 0, runtime.Invalid("--node %d: session %s has nodes 0 to %d", o.Node, s.Name, len(s.Machines)-1)
	case s.Provider == clouds.ProviderAWS:
		return connectAWS(ctx, a, &s, o)
	case !isOwn || !a.Keeper.Reachable(&s):
		return 0, &runtime.Error{
			Class: runtime.Usage, Code: "other_machine",
			Err:  fmt.Errorf("session %s runs at %s %s, which this command does not reach", s.Name, s.Provider, s.Account),
			Hint: "give the command on that machine",
		}
	}
	return connectOwn(ctx, a, own, &s, o)
}

// connectOwn connects to a session of this machine.
func connectOwn(ctx context.Context, a *sessions.Sessions, own clouds.OwnMachine, s *session.Session, o Options) (int,
	error) {
	here := func(what, hint string) error {
		return &runtime.Error{
			Class: runtime.Usage, Code: "this_machine", Err: fmt.Errorf("session %s runs on this machine: %s", s.Name, what),
			Hint: hint,
		}
	}
	switch {
	case o.Port > 0:
		return 0, here(fmt.Sprintf("its port %d is a port of this machine", o.Port),
			fmt.Sprintf("open http://localhost:%d", o.Port))
	case o.Editor != "" || o.Stdio:
		var folder strings.Builder
		o.Command, o.In, o.Out = []string{"pwd"}, nil, &folder
		if _, err := enterOwn(ctx, own, s, o); err != nil {
			return 0, err
		}
		return 0, here("its files are files of this machine", "open the folder "+strings.TrimSpace(folder.String()))
	case o.Use != nil:
		return 0, o.Use(ctx, &Machine{
			a, s.Name, func(ctx context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error) {
				one := o
				one.Command, one.In, one.Out, one.Err = argv, in, out, errs
				return enterOwn(ctx, own, s, one)
			}, o.Err})
	}
	return enterOwn(ctx, own, s, o)
}

// outputTimeout is how long the output of a command is waited for once the command has ended, for
// what it left running may hold it.
const outputTimeout = time.Second

// interruptedFor is how long a command may go on that is interrupted because its time is over.
const interruptedFor = 5 * time.Second

// enterOwn runs a command, or a shell, in a session of this machine.
func enterOwn(ctx context.Context, own clouds.OwnMachine, s *session.Session, o Options) (int, error) {
	id := s.Machines[o.Node].ID
	in, err := own.Inside(id)
	if err != nil {
		return 0, err
	}
	environ := in.Environ(o.Environ)
	argv := o.Command
	shell := len(argv) == 0
	if shell {
		argv = []string{"/bin/sh"}
		for _, v := range environ {
			if name, ok := strings.CutPrefix(v, "SHELL="); ok {
				argv[0] = cmp.Or(name, argv[0])
			}
		}
	}
	// Not bound to ctx: it is told that it is interrupted, and takes the time that it needs.
	//nolint:noctx // what the person asks for
	c := exec.Command("/bin/sh",
		append([]string{"-c", host.EnterScript, "sh", filepath.Join(in.Folder, "agent", "environment")}, argv...)...)
	c.WaitDelay = outputTimeout
	c.Stdin, c.Stdout, c.Stderr, c.Dir = o.In, o.Out, o.Err, "/"
	c.Env = environ
	if in.User != nil {
		// The terminal stays with who gave the command: another user's process could write into it,
		// and read what is typed there later.
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if o.In != nil {
			c.Stdin = struct{ io.Reader }{o.In}
		}
		if o.Out != nil {
			c.Stdout = struct{ io.Writer }{o.Out}
		}
		if o.Err != nil {
			c.Stderr = struct{ io.Writer }{o.Err}
		}
	}
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
	if shell && o.Yield != nil {
		o.Yield()
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		// A time-out holds for a command as well that does not listen.
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			time.AfterFunc(interruptedFor, func() { _ = c.Process.Kill() })
		}
	})
	err = c.Wait()
	stop()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return killedBy(status.Signal()), nil
		}
		return max(exit.ExitCode(), 1), nil
	case errors.Is(err, exec.ErrWaitDelay):
		return 0, nil // it has ended; what it left running still writes
	}
	return 0, err
}
