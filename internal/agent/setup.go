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
)

// setupScript runs the command of the user and writes down how it ended, so that an agent
// that was started since learns it.
const setupScript = `sh -c "$1"; code=$?; echo $code >"$2.new" && mv "$2.new" "$2"; exit $code`

// setupStep runs Host.Setup once in the work folder. It goes on while the agent is away: the
// next one waits for it and does not run it twice.
func (b *bootstrap) setupStep(ctx context.Context) (string, error) {
	if b.o.Host.Setup == "" {
		return "the session has none", nil
	}
	ended, log := b.disk.path("setup.exit"), b.disk.path("setup.log")
	s := b.view()
	if s.Setup.PID == 0 {
		if err := b.startSetup(ctx, ended, log); err != nil {
			return "", err
		}
		s = b.view()
	}
	for {
		running := alive(s.Setup.PID, s.Setup.Began)
		if err := b.ship(log, !running); err != nil {
			return "", err
		}
		code, err := os.ReadFile(ended)
		if err == nil {
			if err := b.ship(log, true); err != nil {
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
			if s.Setup.gone {
				// It ended without a word: it, or the machine, was killed. It is run again.
				if err := b.startSetup(ctx, ended, log); err != nil {
					return "", err
				}
				s = b.view()
				continue
			}
			s.Setup.gone = true // it may have written it since
			continue
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				_ = syscall.Kill(-s.Setup.PID, syscall.SIGKILL) // it may have ended
			}
			return "", err
		}
	}
}

func (b *bootstrap) startSetup(ctx context.Context, ended, log string) error {
	env, err := b.withSecrets(ctx)
	if err != nil {
		return err
	}
	// Where the process died before its number was known, the command may run already.
	if pids, err := b.o.Cage.Processes(); err == nil {
		for _, pid := range pids {
			line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			if args := bytes.Split(line, []byte{0}); err == nil && len(args) > 5 && string(args[2]) == setupScript &&
				string(args[5]) == ended {
				p, err := readProcess(pid)
				if err != nil {
					break
				}
				return b.update(func(s *state) { s.Setup = setup{PID: pid, Began: p.began, Read: s.Setup.Read} })
			}
		}
	}
	if code, err := os.ReadFile(ended); err == nil && len(code) > 0 {
		return nil // it ran to its end before its number was known
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	//nolint:noctx // the user's own command; it outlives the agent
	c := exec.Command("/bin/sh", "-c", setupScript, "setup", b.o.Host.Setup, ended)
	c.Env, c.Dir, c.Stdout, c.Stderr, c.SysProcAttr = env, b.dir, out, out, &syscall.SysProcAttr{Setsid: true}
	if err := b.o.Cage.Start(ctx, c); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	p, err := readProcess(c.Process.Pid)
	go func() { _ = c.Wait() }() // it is reaped; how it ended is in the file
	if err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	return b.update(func(s *state) { s.Setup = setup{PID: p.pid, Began: p.began, Read: s.Setup.Read} })
}

// ship records what the command printed since, line by line; all of it once it ended.
func (b *bootstrap) ship(log string, ended bool) error {
	read := b.view().Setup.Read
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(read, io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, outputBytes))
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(data, '\n') + 1
	if ended || len(data) == outputBytes {
		whole = len(data)
	}
	if whole == 0 {
		return nil
	}
	for line := range strings.Lines(string(data[:whole])) {
		b.print(strings.TrimRight(line, "\r\n"))
	}
	return b.update(func(s *state) { s.Setup.Read = read + int64(whole) })
}
