package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/session"
)

const (
	// setupTime is the time from a launch until a host is ready, and closingTime that of its last save.
	setupTime   = 4 * time.Minute
	closingTime = time.Minute
	// stepTime is the length of one step of a command, which saves every saveSteps.
	stepTime  = 30 * time.Second
	saveSteps = 40
	// attendedTime is the working time of a person in a session.
	attendedTime = 9 * time.Hour
	// journalTime is the time that one file of events covers, and printSteps the steps between lines.
	journalTime = 10 * time.Minute
	printSteps  = 10
)

// Control returns the documents of a session of this account; false for other sessions.
func (l *Launcher) Control(s *session.Session) (session.ControlStore, bool) {
	return hostDocuments{l, s.ID}, s.Provider == CloudName
}

// hostDocuments are the documents between a keeper and simulated hosts. Those of hosts follow from the
// clock.
type hostDocuments struct {
	launcher *Launcher
	session  string
}

// machine returns the machine of the host with a number; nil before its launch. The caller holds the lock.
func (d hostDocuments) machine(number int) *launched {
	for _, m := range d.launcher.cloud.launched {
		if m.Session == d.session && m.host.HostNumber() == number {
			return m
		}
	}
	return nil
}

// Get implements session.ControlStore.
func (d hostDocuments) Get(ctx context.Context, key string, _ int64) (checkpoint.Object, error) {
	missing := fmt.Errorf("%s of session %s: %w", key, d.session, checkpoint.ErrNotFound)
	if err := ctx.Err(); err != nil {
		return checkpoint.Object{}, err
	}
	now := d.launcher.options.Clock().UTC()
	d.launcher.cloud.mu.Lock()
	defer d.launcher.cloud.mu.Unlock()
	if key == session.OrderFile {
		m := d.machine(0)
		if m == nil || m.version == 0 {
			return checkpoint.Object{}, missing
		}
		text, err := json.Marshal(m.order)
		return checkpoint.Object{Data: text, Version: strconv.Itoa(m.version)}, err
	}
	if name, ok := strings.CutPrefix(key, "status-"); ok {
		node, err := strconv.Atoi(strings.TrimSuffix(name, ".json"))
		m := d.machine(node)
		if err != nil || m == nil {
			return checkpoint.Object{}, missing
		}
		text, err := json.Marshal(m.status(now))
		return checkpoint.Object{Data: text, Version: now.Format(time.RFC3339Nano)}, err
	}
	var node int
	var file int64
	if _, err := fmt.Sscanf(key, "events-%d/%d.jsonl", &node, &file); err != nil {
		return checkpoint.Object{}, missing
	}
	m := d.machine(node)
	if m == nil || file < 1 || file > m.files(now) {
		return checkpoint.Object{}, missing
	}
	var text []byte
	for _, e := range m.events(file) {
		line, err := json.Marshal(e)
		if err != nil {
			return checkpoint.Object{}, err
		}
		text = append(append(text, line...), '\n')
	}
	return checkpoint.Object{Data: text, Version: "1"}, nil
}

// Replace implements session.ControlStore: keepers write the order alone.
func (d hostDocuments) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	if key != session.OrderFile {
		return "", fmt.Errorf("write %s of session %s: keepers write orders alone", key, d.session)
	}
	var o session.Order
	if err := json.Unmarshal(data, &o); err != nil {
		return "", fmt.Errorf("write the order of session %s: %w", d.session, err)
	}
	now := d.launcher.options.Clock().UTC()
	d.launcher.cloud.mu.Lock()
	defer d.launcher.cloud.mu.Unlock()
	first := d.machine(0)
	if first == nil {
		return "", fmt.Errorf("write the order of session %s: it has no machine: %w", d.session, checkpoint.ErrNotFound)
	}
	if was := strconv.Itoa(first.version); was != cmp.Or(version, "0") {
		return "", fmt.Errorf("write the order of session %s: %w", d.session, checkpoint.ErrConflict)
	}
	for _, m := range d.launcher.cloud.launched {
		if m.Session != d.session {
			continue
		}
		if o.End != nil && m.order.End == nil {
			m.orderedAt = now
		}
		if !o.Held && m.begunAt.IsZero() {
			m.begunAt = now
		}
		if o.Round > m.round {
			m.restart(o, now)
		}
		m.order = o
		m.version++
	}
	return strconv.Itoa(first.version), ctx.Err()
}

// restart begins the command of a later round from the snapshot that an order names.
func (m *launched) restart(o session.Order, now time.Time) {
	if m.start = m.snapshot(now); o.RestoreStep != nil {
		m.start = m.savedAt(*o.RestoreStep, now)
	}
	m.round, m.restartedAt = o.Round, now
}

// leaseUntil returns the lease that a host applies.
func (m *launched) leaseUntil() time.Time {
	if m.order.LeaseUntil.IsZero() {
		return m.host.LeaseUntil
	}
	return m.order.LeaseUntil
}

// readyAt returns the end of the setup; false while something holds it.
func (m *launched) readyAt() (time.Time, bool) {
	begun := m.LaunchedAt
	if c := m.host.Command; c != nil && c.Held {
		if m.begunAt.IsZero() {
			return time.Time{}, false
		}
		begun = m.begunAt
	}
	if !m.restartedAt.IsZero() {
		begun = m.restartedAt
	}
	return begun.Add(setupTime), true
}

// restored returns the step that the work goes on from.
func (m *launched) restored() int64 {
	if m.start.Step == nil {
		return 0
	}
	return *m.start.Step
}

// total returns the steps of a command.
func (m *launched) total() int64 { return max(1, int64(cmp.Or(m.work, 8*time.Hour)/stepTime)) }

// closing is the end of the work of a host.
type closing struct {
	at    time.Time
	why   string
	class session.Class
	code  int
}

// end returns the first end of the work that is known; ok is false while there is none.
func (m *launched) end(now time.Time) (first closing, ok bool) {
	ready, begun := m.readyAt()
	consider := func(c closing) {
		if !c.at.After(now) && (!ok || c.at.Before(first.at)) {
			first, ok = c, true
		}
	}
	consider(closing{at: m.leaseUntil(), why: "its lease ended", class: session.Stopped})
	if m.order.End != nil {
		consider(closing{at: m.orderedAt, why: m.order.End.Reason(), class: session.Stopped})
	}
	if !begun {
		return first, ok
	}
	if m.host.Command == nil {
		if idle := time.Duration(m.host.IdleTimeout); idle > 0 {
			consider(closing{at: ready.Add(attendedTime + idle), why: "it was idle for " + idle.String()})
		}
		return first, ok
	}
	stepsTo := func(step int64) time.Time { return ready.Add(time.Duration(max(0, step-m.restored())) * stepTime) }
	consider(closing{at: stepsTo(m.total()), why: "its command succeeded", class: session.Succeeded})
	if m.memoryFault > 0 {
		consider(closing{at: stepsTo(m.memoryFault), why: "its command failed", class: session.GPUMemory, code: 1})
	}
	return first, ok
}

// step returns the newest step of a command at a time.
func (m *launched) step(at time.Time) int64 {
	ready, begun := m.readyAt()
	if !begun || at.Before(ready) {
		return m.restored()
	}
	if last, over := m.end(at); over {
		at = last.at
	}
	return min(m.total(), m.restored()+max(0, int64(at.Sub(ready)/stepTime)))
}

// snapshot returns the newest snapshot at a time.
func (m *launched) snapshot(at time.Time) session.Snapshot {
	ready, begun := m.readyAt()
	if !begun || at.Before(ready) {
		return session.Snapshot{}
	}
	last, over := m.end(at)
	if over {
		saves := last.class == session.Stopped || last.class == session.Succeeded || m.host.Command == nil
		saves = saves && (m.order.End == nil || !m.order.End.Discard)
		if saved := last.at.Add(closingTime); saves && !at.Before(saved) {
			return m.savedAt(m.step(at), saved)
		}
		at = last.at
	}
	if m.host.Command == nil {
		every := cmp.Or(time.Duration(m.host.SaveInterval), session.DefaultSaveInterval)
		if n := at.Sub(ready) / every; n > 0 {
			return m.savedAt(int64(n), ready.Add(n*every))
		}
		return session.Snapshot{}
	}
	step := m.step(at) / saveSteps * saveSteps
	if step <= m.restored() {
		return session.Snapshot{}
	}
	return m.savedAt(step, ready.Add(time.Duration(step-m.restored())*stepTime))
}

// savedAt returns the snapshot of a step.
func (m *launched) savedAt(step int64, at time.Time) session.Snapshot {
	s := session.Snapshot{
		Manifest: fmt.Sprintf("manifests/%08d-%08d-%s", step, m.host.Epoch, m.key.hex(16)), At: at, Until: at,
		Epoch: m.host.Epoch, Complete: true, Bytes: 1_840_000_000,
	}
	if m.host.Command != nil {
		s.Step = &step
	}
	return s
}

// status returns the last report of a host at a time.
func (m *launched) status(now time.Time) session.Status {
	if !m.takenAt.IsZero() && now.After(m.takenAt) {
		now = m.takenAt.Add(-time.Second)
	}
	st := session.Status{
		Schema: session.StatusSchema, Session: m.Session, Node: m.Node, Epoch: m.host.Epoch, At: now,
		OrderSerial: m.order.Serial, AnsweredSave: m.order.SaveRequest, Phase: session.HostStarting,
		LeaseUntil: m.leaseUntil(), Activity: "busy", ActivitySince: m.LaunchedAt, Snapshot: m.snapshot(now),
		Round: m.round, Events: m.files(now), Address: m.key.hex(8) + ".internal.example", EndsAt: m.leaseUntil(),
	}
	ready, begun := m.readyAt()
	if begun && !now.Before(ready) {
		st.Phase, st.ActivitySince = session.HostReady, ready
		if attended := ready.Add(attendedTime); m.host.Command == nil && !now.Before(attended) {
			st.Activity, st.ActivitySince = "idle", attended
		}
		st.Command = m.command(now, ready)
		if st.Snapshot.Step != nil {
			st.SavedSteps = []int64{*st.Snapshot.Step}
		}
	}
	if last, over := m.end(now); over {
		if st.Phase, st.Why = session.HostSaving, last.why; !now.Before(last.at.Add(closingTime)) {
			st.Phase = session.HostEnding
		}
	}
	return st
}

// command returns the state of a job's command.
func (m *launched) command(now, ready time.Time) *session.CommandStatus {
	if m.host.Command == nil {
		return nil
	}
	step := m.step(now)
	c := &session.CommandStatus{StartedAt: ready, Step: &step, StepAt: now}
	if m.start.Manifest != "" {
		start := m.start
		c.Restored = &start
	}
	if last, over := m.end(now); over {
		code := last.code
		c.Outcome = &session.Outcome{Class: last.class, At: last.at, Evidence: last.why, Node: m.Node}
		switch last.class {
		case session.Succeeded:
			c.Outcome.Evidence, c.Outcome.ExitCode = "exit code 0", &code
		case session.GPUMemory:
			c.Outcome.Evidence = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB"
			c.Outcome.ExitCode = &code
		}
	}
	return c
}

// files returns the number of files of events at a time: those whose time is over, and the rest once
// the work has ended.
func (m *launched) files(now time.Time) int64 {
	if !m.takenAt.IsZero() && now.After(m.takenAt) {
		now = m.takenAt.Add(-time.Second)
	}
	if last, over := m.end(now); over {
		return int64(last.at.Sub(m.LaunchedAt)/journalTime) + 1
	}
	return int64(max(0, now.Sub(m.LaunchedAt)) / journalTime)
}

// events returns the events of a file.
func (m *launched) events(file int64) (out []session.Event) {
	from := m.LaunchedAt.Add(time.Duration(file-1) * journalTime)
	to := from.Add(journalTime)
	add := func(at time.Time, kind, format string, a ...any) {
		if !at.Before(from) && at.Before(to) {
			out = append(out, session.Event{At: at, Node: m.Node, Kind: kind, Text: fmt.Sprintf(format, a...)})
		}
	}
	add(m.LaunchedAt, "step", "%s", session.StepRunning("setup"))
	ready, begun := m.readyAt()
	if !begun || !ready.Before(to) {
		return m.orQuiet(out, from)
	}
	if m.start.Manifest != "" {
		add(ready, "step", "restored %s", m.start.Manifest)
	}
	add(ready, "ready", "after %s", setupTime)
	last, over := m.end(to)
	if m.host.Command == nil {
		add(ready.Add(attendedTime), "idle", "no terminal, and the GPU rests")
		if over {
			add(last.at, "ended", "%s", last.why)
		}
		return m.orQuiet(out, from)
	}
	first := m.restored()
	for step := first + max(0, int64(from.Sub(ready)/stepTime)); step <= m.total(); step++ {
		at := ready.Add(time.Duration(step-first) * stepTime)
		if !at.Before(to) || over && at.After(last.at) {
			break
		}
		if step%printSteps == 0 && step > first {
			loss := 0.9 + 3*float64(m.total())/float64(m.total()+6*step) + m.key.between(streamLoad, step, -0.05, 0.05)
			add(at, "output", "step %d/%d  loss %.3f", step, m.total(), loss)
		}
		if step%saveSteps == 0 && step > first {
			add(at, "snapshot", "step %d is saved", step)
		}
	}
	if over {
		if last.class == session.GPUMemory {
			add(last.at, "output", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB")
		}
		add(last.at, "ended", "%s", last.why)
	}
	return m.orQuiet(out, from)
}

// orQuiet returns the events of a file; a file without any is read as damaged, so that it gets one.
func (m *launched) orQuiet(events []session.Event, from time.Time) []session.Event {
	if len(events) > 0 {
		return events
	}
	return []session.Event{{At: from, Node: m.Node, Kind: "busy", Text: "it goes on"}}
}
