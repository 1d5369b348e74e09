package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// scriptWrapper runs a user's command and records its exit status for a restarted agent. On SIGTERM,
// which a shell handles once its child has ended, the rest of the command is left out: its children
// get the signal too, and may save before they end.
const scriptWrapper = `trap : TERM
(trap 'exit $?' TERM; eval "$1"); code=$?
echo $code >"$2.new" && mv "$2.new" "$2"; exit $code`

// script is a shell command of a user that outlives the agent.
type script struct {
	bootstrap *bootstrap
	// name names its files in the state folder, text is the command.
	name, text string
	// of returns its part of the state.
	of func(*state) *scriptState
	// env returns its environment.
	env func(ctx context.Context) ([]string, error)
}

func (s *script) exitFile() string { return s.bootstrap.folder.path(s.name + ".exit") }
func (s *script) logFile() string  { return s.bootstrap.folder.path(s.name + ".log") }

// read returns its part of the state.
func (s *script) read() scriptState {
	all := s.bootstrap.readState()
	return *s.of(&all)
}

// exitStatus returns the recorded exit status; false if there is none.
func (s *script) exitStatus() (code string, ended bool, err error) {
	text, err := os.ReadFile(s.exitFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return strings.TrimSpace(string(text)), err == nil, err
}

// alive reports whether its shell runs.
func (s *script) alive() bool {
	now := s.read()
	return now.PID != 0 && alive(now.PID, now.StartTicks)
}

// start starts the command, or finds one that a process before this one started.
func (s *script) start(ctx context.Context) error {
	env, err := s.env(ctx)
	if err != nil {
		return err
	}
	b := s.bootstrap
	record := func(p process) error {
		return b.updateState(func(st *state) {
			now := s.of(st)
			*now = scriptState{PID: p.pid, StartTicks: p.startTicks, OutputRead: now.OutputRead}
		})
	}
	// The previous process may have died after starting the command but before recording its PID.
	if pids, err := b.options.Cage.Processes(); err == nil {
		for _, pid := range pids {
			line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if args := bytes.Split(line, []byte{0}); err == nil && len(args) > 5 &&
				string(args[2]) == scriptWrapper && string(args[5]) == s.exitFile() {
				p, err := readProcess(pid)
				if err != nil {
					break
				}
				return record(p)
			}
		}
	}
	if code, err := os.ReadFile(s.exitFile()); err == nil && len(code) > 0 {
		return nil // it ended before its PID was recorded
	}
	out, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	//nolint:noctx // the user's own command; it outlives the agent
	c := exec.Command("/bin/sh", "-c", scriptWrapper, s.name, s.text, s.exitFile())
	c.Env, c.Dir, c.Stdout, c.Stderr, c.SysProcAttr = env, b.workDir, out, out, &syscall.SysProcAttr{Setsid: true}
	if err := b.options.Cage.Start(ctx, c); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	p, err := readProcess(c.Process.Pid)
	go func() { _ = c.Wait() }() // reap it; the exit status is in the file
	if err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	return record(p)
}

// sendOutput records all new output line by line, including an incomplete last line once the command
// ended.
func (s *script) sendOutput(ended bool) error {
	for {
		if more, err := s.sendChunk(ended); err != nil || !more {
			return err
		}
	}
}

// sendChunk records at most maxOutputBytes of new output. It returns whether more is left to read.
func (s *script) sendChunk(ended bool) (more bool, err error) {
	read := s.read().OutputRead
	f, err := os.Open(s.logFile())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	if _, err := f.Seek(read, io.SeekStart); err != nil {
		return false, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxOutputBytes))
	if err != nil {
		return false, err
	}
	full, whole := len(data) == maxOutputBytes, bytes.LastIndexByte(data, '\n')+1
	if ended && !full || full && whole == 0 {
		whole = len(data)
	}
	if whole == 0 {
		return false, nil
	}
	for line := range strings.Lines(string(data[:whole])) {
		s.bootstrap.printLine(strings.TrimRight(line, "\r\n"))
	}
	return full, s.bootstrap.updateState(func(st *state) {
		s.of(st).OutputRead = read + int64(whole)
	})
}
