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

// start creates what is missing of a recorded machine: its cage and its watcher, which starts the
// agent.
func (p *Provider) start(ctx context.Context, m *machine) (inventory.State, error) {
	s, err := m.readState()
	if err != nil {
		return "", err
	}
	watched, err := m.watcherReady(ctx, s.Watcher)
	if err != nil {
		return "", err
	}
	if s, err = m.readState(); err != nil {
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
	case err == nil: // a crashed launch created it and started nothing in it
		if err := errors.Join(c.KillAll(ctx), c.Remove(ctx)); err != nil {
			return "", err
		}
		fallthrough
	case errors.Is(err, ErrNoCage):
		o := CageOptions{
			Name: m.ID, Kind: m.Kind, VisibleGPUs: m.VisibleGPUs, DeniedDevices: m.Deny,
			Helper: m.Helper, User: m.User,
			Limits: m.Limits,
		}
		if c, err = NewCage(ctx, m.dir, o); err != nil {
			return "", err
		}
		if err := m.shareCage(ctx, c); err != nil {
			return "", err
		}
		p.options.Log.DebugContext(ctx, "its cage is made", slog.String("machine", m.ID),
			slog.String("kind", string(c.Kind())),
			slog.Any("limits", c.Limits()))
	default:
		return "", err
	}
	return s.State, p.startWatcher(ctx, m, c)
}

// shareCage copies the cage's file to the session's files for its agent.
func (m *machine) shareCage(ctx context.Context, c *Cage) error {
	if m.User == nil {
		return nil
	}
	shown := c.file
	shown.Helper = selfCommand // the user may not reach the program by its path
	b, err := json.MarshalIndent(shown, "", " ")
	if err != nil {
		return err
	}
	return m.userTree().write(ctx, cageFileName, b)
}

// startWatcher starts the detached process that supervises a machine until its end.
func (p *Provider) startWatcher(ctx context.Context, m *machine, c *Cage) error {
	log, err := os.OpenFile(m.path(logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.Helper[0], append(slices.Clone(m.Helper[1:]), "watch", m.dir)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", filterEnviron(os.Environ(), sessionVariables, userVariables,
		storeVariables), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if c != nil && c.file.AgentGroup != "" {
		dir, err := os.Open(c.file.AgentGroup)
		if err != nil {
			return err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	if err := startGated(cmd, m.Helper, func(pid int) error {
		p.options.Log.DebugContext(ctx, "its watcher waits", slog.String("machine", m.ID))
		w, err := processOf(pid)
		if err == nil {
			err = writeJSON(m.path(watcherFile), w)
		}
		p.options.Log.DebugContext(ctx, "its watcher is written down", slog.String("machine", m.ID))
		return err
	}); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // reap it if this process outlives it
	p.options.Log.DebugContext(ctx, "its watcher begins", slog.String("machine", m.ID))
	return nil
}

// watcherReady reports whether a watcher holds its lock and handles signals. A new watcher gets
// there or ends because its starter crashed.
func (m *machine) watcherReady(ctx context.Context, watcher Process) (bool, error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		alive := watcher.Alive()
		busy, err := false, error(nil)
		if _, missing := os.Stat(m.path(watcherLock)); missing == nil { // otherwise no watcher has started yet
			var lock *os.File
			if lock, busy, err = lockedFile(m.path(watcherLock)); lock != nil {
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

// agentEndTimeout is the time for an agent to end, with its work saved before. After twice that
// time, the caller ends the machine in place of its watcher.
const agentEndTimeout = 10 * time.Second

// end ends a machine through its watcher, or through a new one if that died. A watcher that takes
// too long, perhaps because it is stopped, is ended with the machine.
func (p *Provider) end(ctx context.Context, m *machine) error {
	s, err := m.readState()
	if err != nil || s.State == "" {
		return err
	}
	var before ending
	if asked, err := readJSON(m.path(endingFile), &before); err == nil && asked &&
		p.options.Now().Sub(before.At).Abs() >= 2*agentEndTimeout {
		p.options.Log.DebugContext(ctx, "it is ended by force", slog.String("machine", m.ID))
		return m.forceEnd(ctx, s)
	}
	noted := error(nil)
	if before.At.IsZero() {
		noted = writeJSON(m.path(endingFile), ending{p.options.Now().UTC()})
	}
	if noted != nil { // a full disk must not keep it alive
		p.options.Log.DebugContext(ctx, "that it ends is not written down", slog.String("machine", m.ID),
			slog.String("why", noted.Error()))
	}
	p.options.Log.DebugContext(ctx, "it is to end", slog.String("machine", m.ID))
	settling, cancel := context.WithTimeout(ctx, agentEndTimeout)
	watched, err := m.watcherReady(settling, s.Watcher)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, context.DeadlineExceeded) { // it neither starts nor ends
		return m.forceEnd(ctx, s)
	}
	if err != nil {
		return err
	}
	if watched {
		if err := s.Watcher.Signal(unix.SIGTERM); !errors.Is(err, errProcessEnded) {
			return err
		}
	}
	if s.Agent.Alive() || s.HasOrphans {
		c, err := OpenCage(m.dir)
		if err == nil && noted == nil {
			if err = p.startWatcher(ctx, m, c); err == nil {
				return nil
			}
		}
		p.options.Log.DebugContext(ctx, "it ends without a watcher", slog.String("machine", m.ID))
		return finish(ctx, m, "asked to end")
	}
	if noted != nil {
		return p.clearMachine(ctx, m)
	}
	return finish(ctx, m, "asked to end")
}

// forceEnd kills the watcher and the machine without asking the agent.
func (m *machine) forceEnd(ctx context.Context, s machineState) error {
	if err := s.Watcher.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errProcessEnded) {
		return err
	}
	if err := s.Agent.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errProcessEnded) {
		return err
	}
	return finish(ctx, m, "asked to end, and ended by force")
}

// finishTimeout bounds one attempt to end a machine.
const finishTimeout = 2 * time.Minute

// finish ends the agent, by force after its timeout, then the whole cage, and records the time. The
// cage ends even if the agent does not.
func finish(ctx context.Context, m *machine, why string) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	var agent Process
	if _, err := readJSON(m.path(agentFile), &agent); err != nil {
		return err
	}
	if err := agent.Signal(unix.SIGTERM); err == nil {
		patient, stop := context.WithTimeout(ctx, agentEndTimeout)
		err = agent.wait(patient)
		stop()
		if err != nil && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := agent.Signal(unix.SIGKILL); err != nil && !errors.Is(err, errProcessEnded) {
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

// runWatcher is the process that supervises a machine: it starts the agent, restarts it after a
// crash, and ends the machine when told or when the agent has ended by itself.
func runWatcher(dir string, stderr io.Writer) error {
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
	for tries := 0; busy && tries < 100; tries++ { // a process that ends the machine may hold the lock briefly
		if lock, busy, err = lockedFile(m.path(watcherLock)); busy {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if busy {
		return nil // another process watches
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	why := m.superviseAgent(told, start, stderr)
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		if err = finish(context.Background(), m, why); err == nil {
			return nil
		}
		fmt.Fprintln(stderr, "curfew cage: end the machine:", err)
		if full := errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, os.ErrNotExist); full {
			return err // nothing runs any more, but that cannot be recorded
		}
		time.Sleep(pause)
	}
}

// agentEndReason is the reason of an end by the agent.
const agentEndReason = "its agent ended it"

// An agent that crashes soon after its start this many times in a row is given up.
const (
	soon        = time.Minute
	mostDeaths  = 8
	firstPause  = time.Second
	longestWait = time.Minute
)

// superviseAgent keeps the agent running until the machine is to end, and returns the reason.
func (m *machine) superviseAgent(told <-chan os.Signal, start time.Time, stderr io.Writer) (why string) {
	deaths, pause := 0, firstPause
	due, stop := context.WithCancel(context.Background())
	defer stop()
	over := m.leaseEnded(due, start)
	for {
		var order ending
		if asked, _ := readJSON(m.path(endingFile), &order); asked {
			return "asked to end"
		}
		began := time.Now()
		gone, err := m.startOrAdoptAgent(due)
		if err == nil {
			select {
			case <-told:
				return "asked to end"
			case <-over:
				return leaseEndReason
			case done := <-gone:
				if done && m.agentDone(due) {
					return agentEndReason
				}
				err = errors.New("the agent has exited and its session continues")
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
			return leaseEndReason
		case <-time.After(pause):
		}
		pause = min(2*pause, longestWait)
	}
}

// leaseEndReason is the reason of an end by lease without the agent.
const leaseEndReason = "its lease and the time to end are over, and its agent did not end it"

// leaseInterval is the time between checks of the lease, which may be extended.
const leaseInterval = 5 * time.Second

// leaseEnded returns a channel that closes once the lease and the time for the end are over. It
// uses the time since the watcher began, so that clock changes have no effect.
func (m *machine) leaseEnded(ctx context.Context, start time.Time) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(leaseInterval)
		defer tick.Stop()
		for {
			until := m.leaseUntil()
			if now := start.Round(0).Add(time.Since(start)); !until.IsZero() &&
				!now.Before(until.Add(time.Duration(m.EndTimeout))) {
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

// startOrAdoptAgent starts the agent or adopts a running one. The channel reports its end, and
// whether it ended the machine by exiting with 0.
func (m *machine) startOrAdoptAgent(ctx context.Context) (gone <-chan bool, err error) {
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
			over <- false // its exit status is unknown; an agent without work repeats its exit
		}()
		return over, nil
	}
	c, err := OpenCage(m.dir)
	if err != nil {
		return nil, fmt.Errorf("start the agent: %w", err)
	}
	program := slices.Clone(m.Agent)
	if m.User != nil { // the user may not reach the program by its path, so the watcher's program is used
		program[0] = selfCommand[0]
	}
	cmd := exec.Command(program[0], append(program[1:], m.userTree().path(hostFile))...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", agentEnviron(m.User, os.Environ()), os.Stdout, os.Stderr
	if m.User != nil {
		// Its files belong to its user, also for quotas.
		log, err := m.userTree().openRegular(logFile, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, 0o600)
		if err == nil {
			defer log.Close()
			err = m.userTree().chown(log)
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
		_ = cmd.Wait() // the exit status is in its state
		over <- cmd.ProcessState.Success()
	}()
	return over, nil
}
