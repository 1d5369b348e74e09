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

// errDisconnected means that the connection ended before the exit code arrived, so the command's
// outcome is unknown.
var errDisconnected = errors.New("the connection to the machine ended before the command returned its exit code")

// sshEnter returns a runner over an SSH connection. It uses the exit code that the server sends
// when the command ends: package ssh's Session also waits for the output, which background
// processes may hold open.
func sshEnter(client *ssh.Client) commandRunner {
	return func(_ context.Context, argv []string, in io.Reader, out, errs io.Writer) (int, error) {
		cut := func(err error) (int, error) { return 0, fmt.Errorf("%w (%w)", errDisconnected, err) }
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
				_, _ = io.Copy(stream, in) // the writer sees the end, and the command what it missed
			}
			_ = stream.CloseWrite() // the stream may be closed
		}()
		var shown sync.WaitGroup
		show := &outputGate{}
		defer show.close() //nolint:errcheck // nothing new after the end
		for _, o := range []struct {
			from io.Reader
			to   io.Writer
		}{{stream, out}, {stream.Stderr(), errs}} {
			shown.Go(func() {
				if _, err := io.Copy(show.writer(o.to), o.from); err != nil {
					_ = stream.Close() // the output's reader is gone: end the command
				}
			})
		}
		code, known := <-ended
		over := make(chan struct{})
		go func() { shown.Wait(); close(over) }()
		show.drain(over)
		switch err := show.close(); {
		case err != nil:
			return 0, err
		case !known:
			return cut(io.EOF)
		}
		return code, nil
	}
}

// exitCode reads a command's exit code from the server's requests. If none arrives, it closes the
// channel.
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

// killedBy returns the exit code of a command killed by a signal, as in shells.
func killedBy(s syscall.Signal) int { return 128 + int(s) }

// sshSignals are the signals named by SSH (RFC 4254, 6.10).
var sshSignals = map[ssh.Signal]syscall.Signal{
	ssh.SIGABRT: syscall.SIGABRT, ssh.SIGALRM: syscall.SIGALRM, ssh.SIGFPE: syscall.SIGFPE, ssh.SIGHUP: syscall.SIGHUP,
	ssh.SIGILL: syscall.SIGILL,
	ssh.SIGINT: syscall.SIGINT, ssh.SIGKILL: syscall.SIGKILL, ssh.SIGPIPE: syscall.SIGPIPE,
	ssh.SIGQUIT: syscall.SIGQUIT,
	ssh.SIGSEGV: syscall.SIGSEGV,
	ssh.SIGTERM: syscall.SIGTERM, ssh.SIGUSR1: syscall.SIGUSR1, ssh.SIGUSR2: syscall.SIGUSR2,
}

// outputGate passes output on until it is closed, so that nothing is written after the caller has
// continued.
type outputGate struct {
	mu      sync.Mutex
	closed  bool
	written int64 // bytes
	err     error
}

// Limits of the output after a command has ended: SSH may have that much in flight.
const (
	restQuiet = 5 * time.Second
	restLasts = time.Minute
)

// writer returns a writer that passes output on while the gate is open.
func (s *outputGate) writer(w io.Writer) io.Writer { return &gatedWriter{s, w} }

// drain waits for the output of an ended command until it is complete or pauses. Background
// processes may continue to write.
func (s *outputGate) drain(over <-chan struct{}) {
	limit := time.After(restLasts)
	for before := int64(-1); ; {
		s.mu.Lock()
		n := s.written
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

// close closes the gate and returns the first write error.
func (s *outputGate) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.err
}

// gatedWriter is one output of the gate.
type gatedWriter struct {
	*outputGate
	w io.Writer
}

// Write implements io.Writer.
func (s *gatedWriter) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := s.w.Write(b)
	s.written += int64(n)
	if err != nil && s.err == nil {
		s.err = err
	}
	return n, err
}
