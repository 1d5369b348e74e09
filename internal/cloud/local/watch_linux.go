package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// start starts what is missing of a machine that is written down: its cage, and the process
// that watches over it and starts its agent.
func (p *Provider) start(ctx context.Context, m *machine) (inventory.State, error) {
	s, err := m.look()
	if err != nil {
		return "", err
	}
	watched, err := m.settled(ctx, s.Watcher)
	if err != nil {
		return "", err
	}
	if s, err = m.look(); err != nil {
		return "", err
	}
	alone := s.State == inventory.StateRunning && !watched
	if s.State != inventory.StatePending && !alone || watched {
		return cmp.Or(s.State, inventory.StateDeleting), nil
	}
	c, err := OpenCage(m.dir)
	switch {
	case alone && err == nil:
	case alone:
		return "", err
	case err == nil: // a launch that died made it; nothing was started in it
		if err := errors.Join(c.Kill(ctx), c.Remove(ctx)); err != nil {
			return "", err
		}
		fallthrough
	case errors.Is(err, ErrNoCage):
		o := CageOptions{Name: m.ID, Kind: m.Kind, Visible: m.Visible, Deny: m.Deny, Helper: m.Helper}
		if c, err = NewCage(ctx, m.dir, o); err != nil {
			return "", err
		}
		p.o.Log.DebugContext(ctx, "its cage is made", slog.String("machine", m.ID), slog.String("kind", string(c.Kind())), slog.Any("limits", c.Limits()))
	default:
		return "", err
	}
	return s.State, p.watch(ctx, m, c)
}

// watch starts the process that stays with a machine until it has ended, apart from this one.
func (p *Provider) watch(ctx context.Context, m *machine, c *Cage) error {
	log, err := os.OpenFile(m.path(logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.Helper[0], append(slices.Clone(m.Helper[1:]), "watch", m.dir)...) //nolint:gosec // this program
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", without(os.Environ(), Variable), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c != nil && c.file.Outside != "" {
		dir, err := os.Open(c.file.Outside)
		if err != nil {
			return err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := gated(cmd, m.Helper, func(pid int) error {
		p.o.Log.DebugContext(ctx, "its watcher waits", slog.String("machine", m.ID))
		w, err := processOf(pid)
		if err == nil {
			err = writeJSON(m.path(watcherFile), w)
		}
		p.o.Log.DebugContext(ctx, "its watcher is written down", slog.String("machine", m.ID))
		return err
	}); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // where this process outlives it
	p.o.Log.DebugContext(ctx, "its watcher begins", slog.String("machine", m.ID))
	return nil
}

// settled says whether a watcher is at work, which holds its lock and listens to signals. One
// that was just started gets there, or ends because whoever started it has died.
func (m *machine) settled(ctx context.Context, watcher Process) (bool, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		alive := watcher.Alive()
		busy, err := false, error(nil)
		if _, missing := os.Stat(m.path(watcherLock)); missing == nil { // else no watcher came so far
			var lock *os.File
			if lock, busy, err = held(m.path(watcherLock), false); lock != nil {
				err = lock.Close()
			}
		}
		switch {
		case busy:
			return true, nil
		case err != nil || !alive:
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// end has a machine end: its watcher sees to it, or a new one where that has died.
func (p *Provider) end(ctx context.Context, m *machine) error {
	s, err := m.look()
	if err != nil || s.State == "" {
		return err
	}
	noted := writeJSON(m.path(endingFile), ending{p.o.Now().UTC()})
	if noted != nil { // a full disk must not keep it alive
		p.o.Log.DebugContext(ctx, "that it ends is not written down", slog.String("machine", m.ID), slog.String("why", noted.Error()))
	}
	p.o.Log.DebugContext(ctx, "it is to end", slog.String("machine", m.ID))
	watched, err := m.settled(ctx, s.Watcher)
	if err != nil {
		return err
	}
	if watched {
		if err := s.Watcher.Signal(unix.SIGTERM); !errors.Is(err, errGone) {
			return err
		}
	}
	if s.Agent.Alive() || s.Strays {
		c, err := OpenCage(m.dir)
		if err == nil && noted == nil {
			if err = p.watch(ctx, m, c); err == nil {
				return nil
			}
		}
		p.o.Log.DebugContext(ctx, "it ends without a watcher", slog.String("machine", m.ID))
		return finish(ctx, m, "asked to end")
	}
	if noted != nil {
		return p.clear(ctx, m)
	}
	return finish(ctx, m, "asked to end")
}

// finish ends the agent, after its grace by force, then all of the cage, and writes down
// when that was.
func finish(ctx context.Context, m *machine, why string) error {
	var agent Process
	if _, err := readJSON(m.path(agentFile), &agent); err != nil {
		return err
	}
	if err := agent.Signal(unix.SIGTERM); err == nil {
		patient, cancel := context.WithTimeout(ctx, time.Duration(m.Grace))
		err = agent.wait(patient)
		cancel()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := agent.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errGone) {
		return err
	}
	if err := agent.wait(ctx); err != nil {
		return err
	}
	c, err := OpenCage(m.dir)
	if err == nil {
		err = c.Kill(ctx)
	}
	if err != nil && !errors.Is(err, ErrNoCage) {
		return err
	}
	return writeJSON(m.path(endedFile), ended{At: time.Now().UTC(), Why: why})
}

// stay is what the process runs that watches over a machine: it starts the agent, again
// where that dies, and ends the machine when it is told to, or when the agent has ended by
// itself.
func stay(dir string, stderr io.Writer) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGTERM, unix.SIGINT)
	signal.Ignore(unix.SIGHUP)
	m, err := openMachine(dir)
	if err != nil {
		return err
	}
	var lock *os.File
	busy := true
	for tries := 0; busy && tries < 100; tries++ { // who ends the machine looks at it for a moment
		if lock, busy, err = held(m.path(watcherLock), false); busy {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if busy {
		return nil // another one watches
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	why := m.attend(told, stderr)
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		if err = finish(context.Background(), m, why); err == nil {
			return nil
		}
		fmt.Fprintln(stderr, "curfew cage: end the machine:", err)
		if full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, os.ErrNotExist); full {
			return err // nothing runs any more, it only cannot be written down
		}
		time.Sleep(pause)
	}
}

// byAgent is why a machine ended whose agent had nothing more to do.
const byAgent = "its agent ended it"

// Agents that die soon after their start, so many times in a row, are given up.
const (
	soon        = time.Minute
	mostDeaths  = 8
	firstPause  = time.Second
	longestWait = time.Minute
)

// attend keeps the agent running until the machine is to end, and returns why that is.
func (m *machine) attend(told <-chan os.Signal, stderr io.Writer) (why string) {
	deaths, pause := 0, firstPause
	for {
		var order ending
		if asked, _ := readJSON(m.path(endingFile), &order); asked {
			return "asked to end"
		}
		began := time.Now()
		gone, err := m.agent()
		if err == nil {
			select {
			case <-told:
				return "asked to end"
			case over := <-gone:
				if over && m.over() {
					return byAgent
				}
				err = errors.New("the agent has gone and its session goes on")
			}
		}
		fmt.Fprintln(stderr, "curfew cage:", err)
		if time.Since(began) >= soon {
			deaths, pause = 0, firstPause
		}
		if deaths++; deaths >= mostDeaths {
			return fmt.Sprintf("its agent died %d times in a row", deaths)
		}
		select {
		case <-told:
			return "asked to end"
		case <-time.After(pause):
		}
		pause = min(2*pause, longestWait)
	}
}

// agent starts the agent, or takes in the one that runs. What it returns says when that is
// gone, and whether it ended the machine: it does by exiting with 0.
func (m *machine) agent() (gone <-chan bool, err error) {
	over := make(chan bool, 1)
	var now Process
	if _, err := readJSON(m.path(agentFile), &now); err != nil {
		return nil, err
	}
	if now.Alive() {
		go func() {
			for now.wait(context.Background()) != nil {
				time.Sleep(time.Second)
			}
			over <- false // how it ended is not known: one that has nothing left to do says so again
		}()
		return over, nil
	}
	cmd := exec.Command(m.Agent[0], append(slices.Clone(m.Agent[1:]), m.path(hostFile))...) //nolint:gosec // the configured agent
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", without(os.Environ(), Variable), os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := gated(cmd, m.Helper, func(pid int) error {
		p, err := processOf(pid)
		if err == nil {
			err = writeJSON(m.path(agentFile), p)
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	go func() {
		_ = cmd.Wait() // its state says how it ended
		over <- cmd.ProcessState.Success()
	}()
	return over, nil
}
