package local

import (
	"cmp"
	"context"
	"encoding/json"
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
		if err := errors.Join(c.KillAll(ctx), c.Remove(ctx)); err != nil {
			return "", err
		}
		fallthrough
	case errors.Is(err, ErrNoCage):
		o := CageOptions{
			Name: m.ID, Kind: m.Kind, Visible: m.Visible, Deny: m.Deny, Helper: m.Helper, User: m.User, Limits: m.Limits,
		}
		if c, err = NewCage(ctx, m.dir, o); err != nil {
			return "", err
		}
		if err := m.showCage(ctx, c); err != nil {
			return "", err
		}
		p.o.Log.DebugContext(ctx, "its cage is made", slog.String("machine", m.ID), slog.String("kind", string(c.Kind())),
			slog.Any("limits", c.Limits()))
	default:
		return "", err
	}
	return s.State, p.watch(ctx, m, c)
}

// showCage leaves a copy of what is kept of the cage with the session's own files, for its agent.
func (m *machine) showCage(ctx context.Context, c *Cage) error {
	if m.User == nil {
		return nil
	}
	shown := c.file
	shown.Helper = thisProgram // its user may not reach the program by its path
	b, err := json.MarshalIndent(shown, "", " ")
	if err != nil {
		return err
	}
	return m.own().write(ctx, cageFileName, b)
}

// watch starts the process that stays with a machine until it has ended, apart from this one.
func (p *Provider) watch(ctx context.Context, m *machine, c *Cage) error {
	log, err := os.OpenFile(m.path(logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.Helper[0], append(slices.Clone(m.Helper[1:]), "watch", m.dir)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", allowed(os.Environ(), environment, ofUser, ofStores), log, log
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
			if lock, busy, err = held(m.path(watcherLock)); lock != nil {
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

// agentPatience is how long an agent that was told to end may take: what it saves is saved before.
// After twice as long, who ends the machine does what its watcher has not done.
const agentPatience = 10 * time.Second

// end has a machine end: its watcher sees to it, or a new one where that has died. One that has not
// seen to it in time is ended with the machine: it may be stopped.
func (p *Provider) end(ctx context.Context, m *machine) error {
	s, err := m.look()
	if err != nil || s.State == "" {
		return err
	}
	var before ending
	if asked, err := readJSON(m.path(endingFile), &before); err == nil && asked &&
		p.o.Now().Sub(before.At).Abs() >= 2*agentPatience {
		p.o.Log.DebugContext(ctx, "it is ended by force", slog.String("machine", m.ID))
		return m.force(ctx, s)
	}
	noted := error(nil)
	if before.At.IsZero() {
		noted = writeJSON(m.path(endingFile), ending{p.o.Now().UTC()})
	}
	if noted != nil { // a full disk must not keep it alive
		p.o.Log.DebugContext(ctx, "that it ends is not written down", slog.String("machine", m.ID),
			slog.String("why", noted.Error()))
	}
	p.o.Log.DebugContext(ctx, "it is to end", slog.String("machine", m.ID))
	settling, cancel := context.WithTimeout(ctx, agentPatience)
	watched, err := m.settled(settling, s.Watcher)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) { // it neither begins nor ends
		return m.force(ctx, s)
	}
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

// force ends a machine without its watcher, which is killed, and without its agent's word.
func (m *machine) force(ctx context.Context, s stand) error {
	if err := s.Watcher.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errGone) {
		return err
	}
	if err := s.Agent.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errGone) {
		return err
	}
	return finish(ctx, m, "asked to end, and ended by force")
}

// finishTimeout bounds one try to end a machine.
const finishTimeout = 2 * time.Minute

// finish ends the agent, after its patience by force, then all of the cage, and writes down
// when that was. The cage is ended also where the agent does not go.
func finish(ctx context.Context, m *machine, why string) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	var agent Process
	if _, err := readJSON(m.path(agentFile), &agent); err != nil {
		return err
	}
	if err := agent.Signal(unix.SIGTERM); err == nil {
		patient, stop := context.WithTimeout(ctx, agentPatience)
		err = agent.wait(patient)
		stop()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := agent.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errGone) {
		return err
	}
	c, err := OpenCage(m.dir)
	if err == nil {
		err = c.KillAll(ctx)
	}
	if err != nil && !errors.Is(err, ErrNoCage) {
		return err
	}
	if err := agent.wait(ctx); err != nil {
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
	start := time.Now()
	m, err := openMachine(dir)
	if err != nil {
		return err
	}
	var lock *os.File
	busy := true
	for tries := 0; busy && tries < 100; tries++ { // who ends the machine looks at it for a moment
		if lock, busy, err = held(m.path(watcherLock)); busy {
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
	why := m.attend(told, start, stderr)
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
func (m *machine) attend(told <-chan os.Signal, start time.Time, stderr io.Writer) (why string) {
	deaths, pause := 0, firstPause
	due, stop := context.WithCancel(context.Background())
	defer stop()
	over := m.pastLease(due, start)
	for {
		var order ending
		if asked, _ := readJSON(m.path(endingFile), &order); asked {
			return "asked to end"
		}
		began := time.Now()
		gone, err := m.agent(due)
		if err == nil {
			select {
			case <-told:
				return "asked to end"
			case <-over:
				return pastLease
			case done := <-gone:
				if done && m.over(due) {
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
		case <-over:
			return pastLease
		case <-time.After(pause):
		}
		pause = min(2*pause, longestWait)
	}
}

// pastLease is why a machine ended whose agent did not end it.
const pastLease = "its lease and the time to end are over, and its agent did not end it"

// leaseInterval is how often a watcher looks whether the lease is over: it may be prolonged.
const leaseInterval = 5 * time.Second

// pastLease closes what it returns once the lease, and the time that its end may take, are over. It
// goes by the time since the watcher began, so that a clock that is set changes nothing.
func (m *machine) pastLease(ctx context.Context, start time.Time) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(leaseInterval)
		defer tick.Stop()
		for {
			until := m.leaseUntil()
			if now := start.Round(0).Add(time.Since(start)); !until.IsZero() && !now.Before(until.Add(time.Duration(m.Limit))) {
				close(over)
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return over
}

// agent starts the agent, or takes in the one that runs. What it returns says when that is
// gone, and whether it ended the machine: it does by exiting with 0.
func (m *machine) agent(ctx context.Context) (gone <-chan bool, err error) {
	over := make(chan bool, 1)
	var now Process
	if _, err := readJSON(m.path(agentFile), &now); err != nil {
		return nil, err
	}
	if now.Alive() {
		go func() {
			for now.wait(ctx) != nil && ctx.Err() == nil {
				time.Sleep(time.Second)
			}
			over <- false // how it ended is not known: one that has nothing left to do says so again
		}()
		return over, nil
	}
	c, err := OpenCage(m.dir)
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	program := slices.Clone(m.Agent)
	if m.User != nil { // who may not reach it by its path, and runs the watcher's program
		program[0] = thisProgram[0]
	}
	cmd := exec.Command(program[0], append(program[1:], m.own().path(hostFile))...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", agentEnviron(m.User, os.Environ()), os.Stdout, os.Stderr
	if m.User != nil {
		// What it writes is its user's, in bytes too.
		log, err := m.own().openRegular(logFile, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o600)
		if err == nil {
			defer log.Close()
			err = m.own().give(log)
		}
		cmd.Stdout, cmd.Stderr = nil, nil
		if err == nil {
			cmd.Stdout, cmd.Stderr = log, log
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.startAgent(cmd, func(pid int) error {
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
