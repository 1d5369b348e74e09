package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/wait"
)

// host is one session on one machine. Only its main loop decides; slow work runs in goroutines that
// report to it.
type host struct {
	options   Options
	intervals Intervals
	folder    *stateFolder
	clock     *clock
	journal   *journal
	work      *saver
	bootstrap *bootstrap
	processID string // of this agent process

	mu    sync.Mutex
	state state
	peers []string

	// now is the time of the current decision, by the monotonic clock.
	now             time.Time
	tracker         *activityTracker
	lastMeasurement measurement
	// activity is the current activity, verdict the reason for it.
	verdict       duty.Verdict
	activity      string
	activitySince time.Time
	otherVerdicts []duty.Verdict // verdicts of the other nodes

	phase       session.Phase
	phaseReason string
	// idleNotBefore is the earliest start of idle time that counts: the session became ready then,
	// or activity was reported.
	idleNotBefore time.Time
	warning       *warning
	ending        *ending
	notice        *notice
	unsavedReason string

	// enteredAt is the time of the last command that a person began in the session.
	enteredAt time.Time
	// events reads what a training declares: declared counts its saves and declaredAt is the time of the
	// newest. step is its highest step, reported first at stepAt, and progressAt the time of any
	// progress.
	events                         *checkpoint.EventReader
	declared                       int
	step                           *int64
	declaredAt, stepAt, progressAt time.Time
	// savedDeclared is the start of the newest snapshot, saveTook its duration.
	savedDeclared time.Time
	saveTook      time.Duration
	// commandEnds and artifacts report the end of a job's command. stalled explains that it made no
	// progress; empty while it does.
	commandEnds chan commandEnd
	// commandWatched means that commandEnds will receive an end.
	commandWatched bool
	artifacts      chan session.Outcome
	stalled        string

	saving       bool
	saveResults  chan saveResult
	lastSave     time.Time
	nextSaveAt   time.Time
	saveAttempts int
	finalSave    *saveResult // result of the last save of the end
	saveGivenUp  bool

	outbox *statusOutbox
	// stopBootstrap cancels the setup and waits for it.
	stopBootstrap func()
}

// warning is a pending warning that the session ends.
type warning struct {
	since time.Time
	// accepted is when a terminal showed the warning or the store took it. The grace period begins
	// then.
	accepted     time.Time
	measurements int // since the warning was accepted
	serial       int64
	terminals    int
}

// notice is an announced spot interruption.
type notice struct {
	at time.Time
	// askedAt is the time of the request to save and stop.
	askedAt time.Time
	savedAt time.Time
}

// statusOutbox holds the status to be written.
type statusOutbox struct {
	mu           sync.Mutex
	status       session.Status
	dirty        bool
	wake         chan struct{}
	writtenPhase session.Phase // phase of the last written status
	writtenAt    time.Time     // time of the last write
	writeError   string
}

func (b *statusOutbox) set(s session.Status) {
	b.mu.Lock()
	before := b.status
	before.At, before.Events = s.At, s.Events
	if !reflect.DeepEqual(before, s) {
		b.dirty = true
	}
	b.status = s
	wake := b.dirty
	b.mu.Unlock()
	if wake {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
}

func (b *statusOutbox) lastWritten() (session.Phase, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.writtenPhase, b.writeError
}

// newHost opens the state of a session on this machine.
func newHost(o Options) (*host, error) {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	o.Control = timedStore{o.Control}
	h := &host{
		options: o, intervals: o.Intervals.withDefaults(time.Duration(o.Host.IdleTimeout)),
		saveResults: make(chan saveResult, 1), commandEnds: make(chan commandEnd, 1),
		artifacts: make(chan session.Outcome, 1),
		phase:     session.HostStarting, outbox: &statusOutbox{wake: make(chan struct{}, 1)},
		stopBootstrap: func() {},
	}
	var err error
	if h.folder, err = openStateFolder(o.State); err != nil {
		return nil, err
	}
	st, err := h.folder.load(&o.Host)
	if err != nil {
		h.folder.close()
		return nil, err
	}
	h.state = *st
	if h.journal, err = openJournal(h.folder.path("events"), o.Control, o.Host.Node, o.Now, o.Log, st.Events,
		st.Output); err != nil {
		h.folder.close()
		return nil, err
	}
	h.peers = st.Order.Peers
	h.clock = newClock(o.Now, o.Uptime, st.Anchor)
	h.now, _ = h.clock.read()
	boot, up := o.Uptime()
	h.processID = fmt.Sprintf("%.8s-%d", boot, up.Milliseconds())
	dir := expandHome(o.Host.WorkDir, o.Home)
	h.events = &checkpoint.EventReader{RunDir: h.folder.path("run")}
	h.work = &saver{
		options: &h.options, dir: dir, workDir: dir, runDir: h.events.RunDir, quietTime: h.intervals.FileQuiet,
	}
	if c := o.Host.Command; c != nil {
		h.work.dir = expandHome(c.CheckpointDir, o.Home)
	}
	h.bootstrap = &bootstrap{
		options: &h.options, stepTimeout: h.intervals.StepTimeout, commandInterval: h.intervals.Command,
		folder: h.folder, workDir: dir, saver: h.work,
		readState: h.readState, updateState: h.updateState, addEvent: h.journal.add,
		printLine: h.journal.addOutput, peers: h.peerList,
	}
	return h, h.updateState(func(s *state) { s.Anchor = h.clock.anchor })
}

func (h *host) readState() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.state
	s.Steps = append([]session.SetupStep(nil), h.state.Steps...)
	return s
}

// updateState changes the state durably.
func (h *host) updateState(change func(*state)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.state)
	h.state.Events, h.state.Output = h.journal.counters()
	if err := h.folder.save(&h.state); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

func (h *host) peerList() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peers
}

// Bootstrap sets the machine up and returns; Run does the same first.
func Bootstrap(ctx context.Context, o Options) error {
	h, err := newHost(o)
	if err != nil {
		return err
	}
	defer h.folder.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Host.Nodes > 1 || o.Host.Command != nil && o.Host.Command.Held {
		orders := make(chan orderResult)
		go pollOrders(ctx, o.Control, &h.options.Host, h.intervals.Poll, orders)
		go func() {
			for {
				select {
				case got := <-orders:
					h.obeyOrder(got)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	err = h.bootstrap.run(ctx)
	return errors.Join(err, h.journal.flushAll(ctx))
}

// Run runs the session on this machine. It returns nil once the session has ended and the machine
// is released, or when the context ends, in which case a later process continues.
func Run(ctx context.Context, o Options) error {
	h, err := newHost(o)
	if err != nil {
		return err
	}
	defer h.folder.close()
	if h.readState().Steps != nil {
		h.journal.add("resumed", "the agent was started again: "+h.processID)
	}
	return h.run(ctx)
}

func (h *host) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	orders, looks, ready, notices, others := make(chan orderResult), make(chan measurement), make(chan error,
		1), make(chan time.Time), make(chan []duty.Verdict)
	beside.Go(func() { pollOrders(ctx, h.options.Control, &h.options.Host, h.intervals.Poll, orders) })
	sampler := &sampler{options: &h.options, step: h.intervals.Sample / 2}
	beside.Go(func() { sampler.run(ctx, looks) })
	beside.Go(func() { h.writeStatuses(ctx) })
	if h.options.Host.Nodes > 1 {
		beside.Go(func() { h.watchNodes(ctx, others) })
	}
	if h.options.Notices != nil {
		beside.Go(func() { watchNotices(ctx, h.options.Notices, h.intervals.Notice, notices) })
	}
	st := h.readState()
	switch {
	case st.Ending != nil:
		h.ending, ready = st.Ending, nil
		h.phase, h.phaseReason = session.HostSaving, st.Ending.Why
	case st.FailReason != "":
		h.phase, h.phaseReason, ready = session.HostFailed, st.FailReason, nil
	default:
		h.phase, h.phaseReason = h.normalPhase()
		booting, stop := context.WithCancel(ctx)
		over := make(chan struct{})
		h.stopBootstrap = func() { stop(); <-over }
		defer stop()
		beside.Go(func() {
			defer close(over)
			ready <- h.bootstrap.run(booting)
		})
	}
	if st.Ending != nil && st.Ready {
		h.startCommand(ctx) // an earlier process started it; how it ends is evidence
	}
	beside.Go(func() { h.bootstrap.refreshSecrets(ctx) })
	var gpus inventory.Fact[int]
	if !hasGPUs(&h.options) {
		gpus = inventory.Known(0)
	}
	h.tracker = newActivityTracker(h.intervals.Sample, time.Duration(h.options.Host.IdleTimeout), gpus)
	h.tracker.record = h.folder.appendSample
	h.enteredAt = modifiedAt(h.folder.path(EnteredFile))
	h.idleNotBefore, h.lastSave, h.activitySince = h.now, h.now, h.now
	if h.options.Host.Nodes > 1 {
		h.otherVerdicts = []duty.Verdict{{Why: "what the other nodes do is not known yet"}}
	}
	tick := time.NewTicker(h.intervals.Tick)
	defer tick.Stop()
	for {
		done, err := h.decide(ctx)
		if done || err != nil {
			if err == nil {
				cancel()
				beside.Wait()
				err = h.finish()
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case got := <-orders:
			h.obeyOrder(got)
		case m := <-looks:
			h.addMeasurement(&m)
		case err := <-ready:
			ready = nil
			if err := h.finishSetup(ctx, err); err != nil {
				return err
			}
		case at := <-notices:
			h.handleNotice(at)
		case end := <-h.commandEnds:
			if err := h.handleCommandEnd(ctx, end); err != nil {
				return err
			}
		case o := <-h.artifacts:
			if err := h.recordOutcome(o); err != nil {
				return err
			}
		case h.otherVerdicts = <-others:
		case s := <-h.saveResults:
			if err := h.handleSaveResult(&s); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
}

// finishSetup handles the end of the setup.
func (h *host) finishSetup(ctx context.Context, err error) error {
	if ctx.Err() != nil || h.ending != nil && (h.ending.Killed || !h.ending.AskedAt.IsZero()) {
		return nil //nolint:nilerr // ended, or a later process continues
	}
	if h.readState().Ready { // an earlier process completed the setup
		if err != nil {
			h.journal.add("step", "after a restart: "+err.Error())
		}
		h.startCommand(ctx)
		return nil
	}
	h.idleNotBefore = h.now
	if err != nil {
		h.phase, h.phaseReason = session.HostFailed, err.Error()
		h.journal.add("step", "the set-up failed: "+err.Error())
		return h.updateState(func(s *state) { s.FailReason = err.Error() })
	}
	if h.phase == session.HostStarting {
		h.phase, h.phaseReason = session.HostReady, ""
	}
	h.journal.add("ready", "the session is ready")
	if err := h.updateState(func(s *state) { s.Ready = true }); err != nil {
		return err
	}
	h.startCommand(ctx)
	return nil
}

// obeyOrder stores an order if it is newer than the known one.
func (h *host) obeyOrder(got orderResult) {
	if got.order == nil {
		if got.err != nil {
			h.journal.add("order", got.err.Error()+"; the last known lease stays in force")
		}
		return
	}
	old := h.readState().Order
	if got.order.Serial <= old.Serial {
		return
	}
	if err := h.updateState(func(s *state) { s.Order = *got.order }); err != nil {
		h.options.Log(err.Error())
		return // an order that is not durable is not obeyed
	}
	h.mu.Lock()
	h.peers = got.order.Peers
	h.mu.Unlock()
	before, _ := h.leaseAndIdle(old)
	if lease, _ := h.leaseAndIdle(*got.order); !lease.Equal(before) {
		h.journal.add("extended", "the lease is until "+plain.Time(lease)+" (before: "+plain.Time(before)+")")
	}
}

// leaseAndIdle returns the lease and idle time under an order.
func (h *host) leaseAndIdle(o session.Order) (time.Time, time.Duration) {
	lease, idle := h.options.Host.LeaseUntil, time.Duration(h.options.Host.IdleTimeout)
	if o.Serial > 0 {
		idle = time.Duration(o.IdleTimeout)
		if !o.LeaseUntil.IsZero() {
			lease = o.LeaseUntil
		}
	}
	return lease, idle
}

// addMeasurement handles a new measurement.
func (h *host) addMeasurement(m *measurement) {
	if m.err != nil {
		h.options.Log(m.err.Error())
		return
	}
	h.readClock()
	_, up := h.options.Uptime()
	if m.checkpoints {
		h.noteWork("it writes checkpoints")
	}
	h.tracker.add(h.now.Add(m.end-up), m.end-m.start, m, len(h.options.Host.GPUs))
	if h.warning != nil && !h.warning.accepted.IsZero() {
		h.warning.measurements++
	}
	for _, c := range m.connections {
		if !containsConnection(h.lastMeasurement.connections, c) {
			h.journal.add("connection", c.Kind+" from "+c.Source+" is open")
		}
	}
	for _, c := range h.lastMeasurement.connections {
		if !containsConnection(m.connections, c) {
			h.journal.add("connection", c.Kind+" from "+c.Source+" is closed")
		}
	}
	h.lastMeasurement = *m
}

func containsConnection(list []session.Connection, c session.Connection) bool {
	for _, k := range list {
		if k.Kind == c.Kind && k.Source == c.Source {
			return true
		}
	}
	return false
}

// readClock reads the clock. A jump cancels a pending warning, because the elapsed grace period is
// uncertain.
func (h *host) readClock() {
	away := h.clock.offset
	now, jumped := h.clock.read()
	h.now = now
	if away != 0 && h.clock.offset == 0 {
		if err := h.updateState(func(s *state) { s.Anchor = h.clock.anchor }); err != nil {
			h.options.Log(err.Error())
		}
	}
	if jumped == 0 {
		return
	}
	h.journal.add("clock", fmt.Sprintf("the clock of the machine was set by %s: the lease goes by the time since boot",
		signed(jumped)))
	h.tracker.reset()
	h.cancelWarning("the clock was set")
	h.idleNotBefore = h.now
}

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + plain.Duration(-d)
	}
	return "+" + plain.Duration(d)
}

// writeStatuses writes statuses and events until the context ends.
func (h *host) writeStatuses(ctx context.Context) {
	t := &statusWriter{store: h.options.Control, node: h.options.Host.Node}
	timer := time.NewTicker(min(h.intervals.Flush, h.intervals.Status))
	defer timer.Stop()
	for {
		h.flushOnce(ctx, t, false)
		select {
		case <-ctx.Done():
			return
		case <-h.outbox.wake:
		case <-timer.C:
		}
	}
}

// flushOnce sends events, and the status if it is due.
func (h *host) flushOnce(ctx context.Context, t *statusWriter, always bool) {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	b := h.outbox
	b.mu.Lock()
	s, dirty := b.status, b.dirty
	due := always || dirty || s.At.Sub(b.writtenAt) >= h.intervals.Status
	b.dirty = false
	b.mu.Unlock()
	flush := h.journal.flush
	if always {
		flush = h.journal.flushAll
	}
	err := flush(limited)
	if s.Schema != "" && due {
		s.Events, _ = h.journal.counters()
		err = errors.Join(err, t.write(limited, s))
	}
	if ctx.Err() != nil && !always {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.writeError == "" {
			h.options.Log("the control store does not answer: " + err.Error())
		}
		b.writeError, b.dirty = err.Error(), b.dirty || due
		return
	}
	b.writeError = ""
	if s.Schema != "" && due {
		b.writtenPhase, b.writtenAt = s.Phase, s.At
	}
}

// currentStatus returns the status of the session.
func (h *host) currentStatus() session.Status {
	st := h.readState()
	lease, _ := h.leaseAndIdle(st.Order)
	s := session.Status{
		Schema: session.StatusSchema, Session: h.options.Host.Session, Node: h.options.Host.Node,
		Epoch: h.options.Host.Epoch,
		At:    h.options.Now().UTC(), Boot: h.processID,
		OrderSerial: st.Order.Serial, AnsweredSave: st.AnsweredSave, Phase: h.phase,
		Why: h.phaseReason, Steps: st.Steps,
		LeaseUntil: lease.UTC(),
		Activity:   h.activity, ActivitySince: h.activitySince.UTC().Truncate(time.Second), EndsAt: h.endsAt(),
		Snapshot:      st.Snapshot,
		UnsavedReason: h.unsavedReason,
		Terminals:     len(h.lastMeasurement.terminals), Connections: h.lastMeasurement.connections,
		Address: h.options.Address, Command: h.commandStatus(&st),
	}
	if !s.EndsAt.IsZero() {
		s.EndsAt = s.EndsAt.UTC().Truncate(time.Second)
	}
	return s
}

// endsAt returns the end of the session by its idle rule or lease if nothing changes; zero while it
// works.
func (h *host) endsAt() time.Time {
	lease, idle := h.leaseAndIdle(h.readState().Order)
	grace := time.Duration(h.options.Host.Grace)
	var at time.Time
	switch {
	case h.ending != nil:
		return time.Time{}
	case h.notice != nil:
		at = h.notice.at
	case h.warning != nil:
		at = h.warning.since.Add(grace)
		if !h.warning.accepted.IsZero() {
			at = h.warning.accepted.Add(grace)
		}
	case idle > 0 && h.isResting():
		at = h.restingSince().Add(idle + grace)
	default:
		return time.Time{}
	}
	if at.After(lease) {
		return lease
	}
	return at
}

// finish writes the last status and releases the machine.
func (h *host) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	h.bootstrap.removeSecrets()
	t := &statusWriter{store: h.options.Control, node: h.options.Host.Node}
	h.outbox.set(h.currentStatus())
	h.flushOnce(ctx, t, true)
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := h.options.Cage.Kill(ctx)
	if h.options.Terminator != nil {
		err = errors.Join(err, h.options.Terminator.Terminate(ctx))
	}
	if err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	return nil
}

// watchNotices polls for spot notices.
func watchNotices(ctx context.Context, n Notices, every time.Duration, out chan<- time.Time) {
	for {
		if at, err := n.Notice(ctx); err == nil && !at.IsZero() {
			select {
			case out <- at:
			case <-ctx.Done():
			}
		}
		if wait.For(ctx, every) != nil {
			return
		}
	}
}

// watchNodes reads the statuses of the other nodes, because the nodes of a session are judged
// together.
func (h *host) watchNodes(ctx context.Context, out chan<- []duty.Verdict) {
	for {
		var list []duty.Verdict
		for node := range h.options.Host.Nodes {
			if node != h.options.Host.Node {
				list = append(list, h.nodeVerdict(ctx, node))
			}
		}
		select {
		case out <- list:
		case <-ctx.Done():
			return
		}
		if wait.For(ctx, h.intervals.Poll) != nil {
			return
		}
	}
}

// statusMaxAge is the age at which another node's status is stale.
const statusMaxAge = 90 * time.Second

func (h *host) nodeVerdict(ctx context.Context, node int) duty.Verdict {
	unknown := duty.Verdict{Why: fmt.Sprintf("node %d does not report its activity", node)}
	o, err := h.options.Control.Get(ctx, statusKey(node), maxOrder)
	if err != nil {
		return unknown
	}
	var s session.Status
	if err := json.NewDecoder(bytes.NewReader(o.Data)).Decode(&s); err != nil || s.Epoch != h.options.Host.Epoch ||
		s.Session != h.options.Host.Session {
		return unknown
	}
	v := duty.Verdict{
		State: duty.State(s.Activity), Since: s.ActivitySince, Why: fmt.Sprintf("node %d is %s", node, s.Activity),
	}
	if s.Activity == duty.Unknown.String() {
		v.State = duty.Unknown
	}
	// An ending node writes no more statuses.
	over := s.Phase == session.HostEnding || s.Phase == session.HostSaving
	if age := h.options.Now().Sub(s.At); !over && (age > statusMaxAge || age < -statusMaxAge) {
		return unknown
	}
	v.Until, v.Expires = h.options.Now().Add(statusMaxAge), h.options.Now().Add(statusMaxAge)
	v.Duration, v.Coverage = max(0, v.Until.Sub(v.Since)), 1
	return v
}

// keepFileTime returns the time of the file that postpones an end when touched.
func (h *host) keepFileTime() time.Time {
	return modifiedAt(filepath.Join(h.options.Home, ".curfew", "keep"))
}

// EnteredFile is the file in the state folder that is touched when a person begins a shell or a
// command in the session, which may be too short to be measured.
const EnteredFile = "entered"

// modifiedAt returns the modification time of a file; zero if there is none.
func modifiedAt(file string) time.Time {
	i, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return i.ModTime()
}
