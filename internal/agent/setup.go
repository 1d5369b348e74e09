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
	"time"

	"github.com/curfew-dev/curfew/internal/wait"
)

// setupScript runs the user's command and records its exit status for a restarted agent.
const setupScript = `sh -c "$1"; code=$?; echo $code >"$2.new" && mv "$2.new" "$2"; exit $code`

// setupStep runs HostConfig.Setup once in the work folder. The command survives the agent; a
// restarted agent waits for it instead of running it twice.
func (b *bootstrap) setupStep(ctx context.Context) (string, error) {
	if b.options.Host.Setup == "" {
		return "the session has none", nil
	}
	exitFile, log := b.folder.path("setup.exit"), b.folder.path("setup.log")
	s := b.readState()
	if s.Setup.PID == 0 {
		if err := b.startSetup(ctx, exitFile, log); err != nil {
			return "", err
		}
		s = b.readState()
	}
	for {
		running := alive(s.Setup.PID, s.Setup.StartTicks)
		if err := b.sendOutput(log, !running); err != nil {
			return "", err
		}
		code, err := os.ReadFile(exitFile)
		if err == nil {
			if err := b.sendOutput(log, true); err != nil {
				return "", err
			}
			if n := strings.TrimSpace(string(code)); n != "0" {
				return "", fmt.Errorf("the command ended with exit code %s", n)
			}
			return "", nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if !running {
			if s.Setup.exitedSilently {
				// The command or the machine was killed: run it again.
				if err := b.startSetup(ctx, exitFile, log); err != nil {
					return "", err
				}
				s = b.readState()
				continue
			}
			s.Setup.exitedSilently = true // it may have written the exit status since
			continue
		}
		if err := wait.For(ctx, 100*time.Millisecond); err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				_ = syscall.Kill(-s.Setup.PID, syscall.SIGKILL) // it may have ended
			}
			return "", err
		}
	}
}

func (b *bootstrap) startSetup(ctx context.Context, exitFile, log string) error {
	env, err := b.withSecrets(ctx)
	if err != nil {
		return err
	}
	// The previous process may have died after starting the command but before recording its PID.
	if pids, err := b.options.Cage.Processes(); err == nil {
		for _, pid := range pids {
			line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if args := bytes.Split(line, []byte{0}); err == nil && len(args) > 5 && string(args[2]) == setupScript &&
				string(args[5]) == exitFile {
				p, err := readProcess(pid)
				if err != nil {
					break
				}
				return b.updateState(func(s *state) {
					s.Setup = setupCommand{PID: pid, StartTicks: p.startTicks, OutputRead: s.Setup.OutputRead}
				})
			}
		}
	}
	if code, err := os.ReadFile(exitFile); err == nil && len(code) > 0 {
		return nil // it ended before its PID was recorded
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	//nolint:noctx // the user's own command; it outlives the agent
	c := exec.Command("/bin/sh", "-c", setupScript, "setup", b.options.Host.Setup, exitFile)
	c.Env, c.Dir, c.Stdout, c.Stderr, c.SysProcAttr = env, b.workDir, out, out, &syscall.SysProcAttr{Setsid: true}
	if err := b.options.Cage.Start(ctx, c); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	p, err := readProcess(c.Process.Pid)
	go func() { _ = c.Wait() }() // reap it; the exit status is in the file
	if err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	return b.updateState(func(s *state) {
		s.Setup = setupCommand{PID: p.pid, StartTicks: p.startTicks, OutputRead: s.Setup.OutputRead}
	})
}

// sendOutput records new output of the command line by line, including an incomplete last line once
// the command ended.
func (b *bootstrap) sendOutput(log string, ended bool) error {
	read := b.readState().Setup.OutputRead
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(read, io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxOutputBytes))
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if ended || len(data) == maxOutputBytes {
		whole = len(data)
	}
	if whole == 0 {
		return nil
	}
	for line := range strings.Lines(string(data[:whole])) {
		b.printLine(strings.TrimRight(line, "\r\n"))
	}
	return b.updateState(func(s *state) { s.Setup.OutputRead = read + int64(whole) })
}
