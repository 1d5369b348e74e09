package aws

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Errors of connections.
var (
	// ErrStreamDead is returned if AWS shows a connection as ended while the plugin still waits.
	ErrStreamDead = errors.New("AWS shows the connection as ended, and the plugin did not notice")
	// ErrRefused is returned when the plugin could not connect.
	ErrRefused = errors.New("the Session Manager plugin could not connect")
)

// pluginRefused starts the plugin's output, with exit code 0, if it cannot connect.
const pluginRefused = "Cannot perform start session"

// Attachment configures a run of the plugin.
type Attachment struct {
	// In, Out and Err are passed to the plugin directly if they are files.
	In       io.Reader
	Out, Err io.Writer
	Environ  []string
	// Terminal is true if In is the person's terminal: the connection gets all input, including
	// Ctrl-C. Otherwise no terminal signal reaches the plugin.
	Terminal bool
	// Started is called once the plugin runs; it may be nil.
	Started func()
	// Watch is the interval at which AWS is asked whether the connection is still open; 0 means 30
	// s.
	Watch time.Duration
}

// pluginPatience bounds the time for a plugin to end when told to.
const pluginPatience = 5 * time.Second

// Attach runs the plugin over a connection until it ends or ctx does; then it returns ctx's error.
// The plugin's exit code is meaningless: its output and AWS's state decide.
func (c *Connector) Attach(ctx context.Context, p Plugin, o *Opened, a Attachment) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := p.command(running, o, a.Environ)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if a.Terminal {
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it passes on an interrupt
	}
	cmd.WaitDelay = pluginPatience
	said := &lastLines{to: a.Err}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.Out, said
	if !a.Terminal {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	if err := cmd.Start(); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return ErrNoPlugin
		}
		return fmt.Errorf("start %s: %w", p.Path, err)
	}
	if a.Started != nil {
		a.Started()
	}
	var watching sync.WaitGroup
	watching.Go(func() { c.watch(running, o, a.Watch, stop) })
	err := cmd.Wait()
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		err = ctx.Err()
	} else if e := (*exec.ExitError)(nil); errors.As(err, &e) {
		err = fmt.Errorf("%w: it ended with %s", ErrRefused, e.ProcessState)
	}
	cause := context.Cause(running)
	stop(nil)
	watching.Wait()
	switch line, refused := said.refusal(); {
	case ctx.Err() != nil:
		return ctx.Err()
	case cause != nil:
		return cause
	case refused:
		return fmt.Errorf("%w: %s", ErrRefused, oneLine(line))
	}
	return err
}

// watch polls AWS for the state of the connection, and stops the plugin when it was closed twice in
// a row. Failed polls are ignored.
func (c *Connector) watch(ctx context.Context, o *Opened, every time.Duration, stop context.CancelCauseFunc) {
	if every <= 0 {
		every = watchEvery
	}
	for gone := 0; gone < 2; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		limited, cancel := context.WithTimeout(ctx, max(every, 10*time.Second))
		open, err := c.open(limited, o)
		cancel()
		switch {
		case err != nil:
		case open:
			gone = 0
		default:
			gone++
		}
	}
	stop(ErrStreamDead)
}

// lastLines passes output through and keeps its last lines.
type lastLines struct {
	to io.Writer

	mu   sync.Mutex
	kept []byte
}

const keptOutput = 8 << 10

// Write implements io.Writer.
func (l *lastLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.kept = append(l.kept, b...)
	l.kept = l.kept[max(0, len(l.kept)-keptOutput):]
	l.mu.Unlock()
	if l.to == nil {
		return len(b), nil
	}
	return l.to.Write(b)
}

// refusal returns the plugin's reason if it could not connect.
func (l *lastLines) refusal() (why string, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, after, refused := bytes.Cut(l.kept, []byte(pluginRefused))
	why, _, _ = strings.Cut(string(after), "\n")
	return cmp.Or(strings.Trim(why, ": \r"), "it does not say why"), refused
}
