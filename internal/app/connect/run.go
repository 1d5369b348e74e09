package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// errCut is a connection that ended before the exit code of a command came. What the command did,
// or still does, is not known.
var errCut = errors.New("the connection to the machine ended before the command told its exit code")

// sshEnter runs commands in the session of the machine, over an SSH connection. The exit code is
// the one that the machine's server sends when the command ends: a session of package ssh waits
// for the output to end as well, which what the command left running may hold.
func sshEnter(client *ssh.Client) entered {
	return func(_ context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error) {
		cut := func(err error) (int, error) { return 0, fmt.Errorf("%w (%w)", errCut, err) }
		stream, requests, err := client.OpenChannel("session", nil)
		if err != nil {
			return cut(err)
		}
		defer stream.Close() //nolint:errcheck // it may be closed
		ended := make(chan int, 1)
		go exitCode(requests, ended)
		started, err := stream.SendRequest("exec", true,
			ssh.Marshal(struct{ Command string }{agentCommand("enter", append([]string{"--"}, argv...)...)}))
		if err == nil && !started {
			err = errors.New("the machine starts no command")
		}
		if err != nil {
			return cut(err)
		}
		go func() {
			if in != nil {
				_, _ = io.Copy(stream, in) // who writes it knows its end, and the command what it missed
			}
			_ = stream.CloseWrite() // the stream may be closed
		}()
		var shown sync.WaitGroup
		show := &showing{}
		defer show.stop() //nolint:errcheck // after the end it says nothing new
		for _, o := range []struct {
			from io.Reader
			to   io.Writer
		}{{stream, out}, {stream.Stderr(), errs}} {
			shown.Go(func() {
				if _, err := io.Copy(show.to(o.to), o.from); err != nil {
					_ = stream.Close() // no one takes its output: it is to end
				}
			})
		}
		code, known := <-ended
		over := make(chan struct{})
		go func() { shown.Wait(); close(over) }()
		show.rest(over)
		switch err := show.stop(); {
		case err != nil:
			return 0, err
		case !known:
			return cut(io.EOF)
		}
		return code, nil
	}
}

// exitCode reads the exit code of a command from what the server of a machine says. Where it
// does not come, the channel is closed.
func exitCode(requests <-chan *ssh.Request, ended chan<- int) {
	defer close(ended)
	told := false
	for r := range requests {
		code := -1
		switch r.Type {
		case "exit-status":
			var m struct{ Status uint32 }
			if ssh.Unmarshal(r.Payload, &m) == nil {
				code = int(m.Status)
			}
		case "exit-signal":
			var m struct {
				Signal     ssh.Signal
				CoreDumped bool
				Error      string
				Lang       string
			}
			if ssh.Unmarshal(r.Payload, &m) == nil {
				code = killedBy(sshSignals[m.Signal])
			}
		}
		if code >= 0 && !told {
			told = true
			ended <- code
		}
		if r.WantReply {
			_ = r.Reply(false, nil) // the connection may have ended
		}
	}
}

// killedBy is the exit code of a command that a signal ended, as shells give it.
func killedBy(s syscall.Signal) int { return 128 + int(s) }

// sshSignals are the signals that SSH names (RFC 4254, 6.10).
var sshSignals = map[ssh.Signal]syscall.Signal{
	ssh.SIGABRT: syscall.SIGABRT, ssh.SIGALRM: syscall.SIGALRM, ssh.SIGFPE: syscall.SIGFPE, ssh.SIGHUP: syscall.SIGHUP,
	ssh.SIGILL: syscall.SIGILL,
	ssh.SIGINT: syscall.SIGINT, ssh.SIGKILL: syscall.SIGKILL, ssh.SIGPIPE: syscall.SIGPIPE, ssh.SIGQUIT: syscall.SIGQUIT,
	ssh.SIGSEGV: syscall.SIGSEGV,
	ssh.SIGTERM: syscall.SIGTERM, ssh.SIGUSR1: syscall.SIGUSR1, ssh.SIGUSR2: syscall.SIGUSR2,
}

// showing passes output on until it is stopped, so that nothing is written to who has gone on.
type showing struct {
	mu    sync.Mutex
	over  bool
	shown int64 // bytes
	err   error
}

// Bounds of the output of a command that has ended: what is on its way may be as much as SSH
// sends ahead.
const (
	restQuiet = 5 * time.Second
	restLasts = time.Minute
)

// to is a writer that is shown until then.
func (s *showing) to(w io.Writer) io.Writer { return &shownTo{s, w} }

// rest waits for the output of a command that has ended: until it is over, or nothing of it came
// for a while. What the command left running may go on with it.
func (s *showing) rest(over <-chan struct{}) {
	limit := time.After(restLasts)
	for before := int64(-1); ; {
		s.mu.Lock()
		n := s.shown
		s.mu.Unlock()
		if n == before {
			return
		}
		before = n
		select {
		case <-over:
			return
		case <-limit:
			return
		case <-time.After(restQuiet):
		}
	}
}

// stop ends it, and says what could not be written before.
func (s *showing) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.err
}

// shownTo is one of the outputs.
type shownTo struct {
	*showing
	w io.Writer
}

// Write implements io.Writer.
func (s *shownTo) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, io.ErrClosedPipe
	}
	n, err := s.w.Write(b)
	s.shown += int64(n)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}
