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

// Options select a machine and what to do on it.
type Options struct {
	Name string
	Node int
	// Command is the command to run; empty opens a shell. A single word that only a shell
	// understands is run by one.
	Command []string
	// Port is a machine's port to forward, Local the local port; 0 uses the same number.
	Port, Local int
	// Copy copies paths, Editor opens one of [Editors], and UseMachine gets the machine for the
	// duration of the call.
	Copy       *CopyPaths
	Editor     string
	UseMachine func(context.Context, *Machine) error
	// JoinTimeout is how long to wait for a starting machine that its provider does not reach yet;
	// 0 does not wait.
	JoinTimeout time.Duration
	// Stdio connects In and Out to an SSH stream, as the ProxyCommand of an SSH entry does.
	Stdio bool
	// YieldTerminal hands the terminal, including Ctrl-C, to the started shell; nil does nothing.
	YieldTerminal func()
	// Confirm asks before a line is added to a file of the person; an error means no.
	Confirm func(line, file string) error
	Environ []string
	// In, Out and Err are the streams of the process; output may be binary.
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// Connect runs a command or shell on a session's machine and returns its exit code, or does what
// else the options select.
func Connect(ctx context.Context, a *sessions.Sessions, o Options) (int, error) {
	s, err := a.Newest(ctx, o.Name)
	if err != nil {
		return 0, err
	}
	if err := Disconnect(ctx, a); err != nil {
		plain.Fprintf(o.Err, "curfew: %v\n", err)
	}
	if o.Copy != nil {
		if _, _, _, err := o.Copy.direction(); err != nil {
			return 0, err
		}
		o.UseMachine = func(ctx context.Context, m *Machine) error { return m.copyAndReport(ctx, *o.Copy) }
	}
	o.Command = shellCommand(o.Command)
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
			Err: fmt.Errorf("session %s runs at %s %s, which this command does not reach",
				s.Name, s.Provider, s.Account),
			Hint: "give the command on that machine",
		}
	}
	return connectLocal(ctx, a, own, &s, o)
}

// shellCommand returns argv, or the call of a shell where argv is one word with spaces or
// characters that a shell interprets: 'cd data; ls' is a line for a shell, as with ssh.
func shellCommand(argv []string) []string {
	if len(argv) != 1 || !strings.ContainsAny(argv[0], " \t\n|&;<>()$`\\\"'*?[#~=%{}!") {
		return argv
	}
	return []string{"/bin/sh", "-c", argv[0]}
}

// connectLocal connects to a local session.
func connectLocal(ctx context.Context, a *sessions.Sessions, own clouds.OwnMachine, s *session.Session,
	o Options) (int,
	error) {
	here := func(what, hint string) error {
		return &runtime.Error{
			Class: runtime.Usage, Code: "this_machine",
			Err:  fmt.Errorf("session %s runs on this machine: %s", s.Name, what),
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
		if _, err := enterLocal(ctx, own, s, o); err != nil {
			return 0, err
		}
		return 0, here("its files are files of this machine", "open the folder "+strings.TrimSpace(folder.String()))
	case o.UseMachine != nil:
		return 0, o.UseMachine(ctx, &Machine{
			a, s.Name, func(ctx context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error) {
				one := o
				one.Command, one.In, one.Out, one.Err = argv, in, out, errs
				return enterLocal(ctx, own, s, one)
			}, o.Err})
	}
	return enterLocal(ctx, own, s, o)
}

// outputTimeout bounds the wait for output after a command has ended, because its background
// processes may hold the pipe.
const outputTimeout = time.Second

// interruptGrace is the time between the interrupt of a command and its end.
const interruptGrace = 5 * time.Second

// enterLocal runs a command or shell in a local session.
func enterLocal(ctx context.Context, own clouds.OwnMachine, s *session.Session, o Options) (int, error) {
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
	// The command is not bound to ctx: it gets an interrupt and time to end.
	//nolint:noctx // the person ends it
	c := exec.Command("/bin/sh",
		append([]string{"-c", host.EnterScript, "sh", filepath.Join(in.Folder, "agent", "environment")}, argv...)...)
	c.WaitDelay = outputTimeout
	c.Stdin, c.Stdout, c.Stderr, c.Dir = o.In, o.Out, o.Err, "/"
	c.Env = environ
	if in.User != nil {
		// Another user's process must not get the terminal: it could write to it and read later
		// input.
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
	if shell && o.YieldTerminal != nil {
		o.YieldTerminal()
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		// The timeout also ends commands that ignore the interrupt.
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			time.AfterFunc(interruptGrace, func() { _ = c.Process.Kill() })
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
		return 0, nil // it ended; its background processes still write
	}
	return 0, err
}
