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
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/session"
)

// host is one session on one machine. Its loop is the only one that decides; everything that
// takes time runs next to it and tells it.
type host struct {
	o     Options
	paces Paces
	disk  *disk
	clock *clock
	j     *journal
	work  *saver
	boot  *bootstrap
	id    string // of this process

	mu    sync.Mutex
	st    state
	peers []string

	// now is the time of the present decision, by the clock that no one sets.
	now   time.Time
	watch *watch
	last  measured
	// activity is what the session does, and why, since when.
	verdict  duty.Verdict
	activity string
	since    time.Time
	others   []duty.Verdict // of the other nodes

	phase session.Phase
	why   string
	// rests is the time before which no rest counts: it was put back, or became ready then.
	rests   time.Time
	warning *warning
	end     *ending
	notice  *notice
	unsaved string

	saving   bool
	saves    chan saved
	lastSave time.Time
	nextTry  time.Time
	tries    int
	final    *saved // what the last save of the end gave
	gaveUp   bool

	told *board
	// stopBoot ends the set-up, and returns once it does nothing more.
	stopBoot func()
}

// warning is a warning that the session ends.
type warning struct {
	since time.Time
	// accepted is when it was told: to a terminal, or to the store that the keeper reads.
	// Before that no grace runs.
	accepted time.Time
	looks    int // measurements since then
	serial   int64
	told     int
}

// notice is the end that the provider announced.
type notice struct {
	at    time.Time
	saved time.Time
}

// board is the status that is to be told.
type board struct {
	mu     sync.Mutex
	status session.Status
	dirty  bool
	wake   chan struct{}
	phase  session.Phase // that the store has
	at     time.Time     // when it was told last
	err    string
}

func (b *board) put(s session.Status) {
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

func (b *board) toldPhase() (session.Phase, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.phase, b.err
}

// newHost opens the state of a session on this machine.
func newHost(o Options) (*host, error) {
	if o.Log == nil {
		o.Log = func(string) {}
	}
	o.Control = bounded{o.Control}
	h := &host{
		o: o, paces: o.Paces.withDefaults(time.Duration(o.Host.IdleTimeout)), saves: make(chan saved, 1),
		phase: session.HostStarting, told: &board{wake: make(chan struct{}, 1)}, stopBoot: func() {},
	}
	var err error
	if h.disk, err = openDisk(o.State); err != nil {
		return nil, err
	}
	st, err := h.disk.load(&o.Host)
	if err != nil {
		h.disk.close()
		return nil, err
	}
	h.st = *st
	if h.j, err = openJournal(h.disk.path("events"), o.Control, o.Host.Node, o.Now, o.Log, st.Events,
		st.Output); err != nil {
		h.disk.close()
		return nil, err
	}
	h.peers = st.Order.Peers
	h.clock = newClock(o.Now, o.Uptime, st.Anchor)
	h.now, _ = h.clock.read()
	boot, up := o.Uptime()
	h.id = fmt.Sprintf("%.8s-%d", boot, up.Milliseconds())
	dir := o.Host.WorkDir
	if rest, home := strings.CutPrefix(dir, "~"); home {
		dir = filepath.Join(o.Home, rest)
	}
	h.work = &saver{o: &h.o, dir: dir, quiet: h.paces.Quiet}
	h.boot = &bootstrap{
		o: &h.o, limit: h.paces.Step, disk: h.disk, dir: dir, work: h.work, view: h.view, update: h.update, say: h.j.add,
		print: h.j.print, peers: h.peerList,
	}
	return h, h.update(func(s *state) { s.Anchor = h.clock.anchor })
}

func (h *host) view() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.st
	s.Steps = append([]session.SetupStep(nil), h.st.Steps...)
	return s
}

// update changes the state, durably.
func (h *host) update(change func(*state)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(&h.st)
	h.st.Events, h.st.Output = h.j.numbers()
	if err := h.disk.save(&h.st); err != nil {
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

func (h *host) peerList() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peers
}

// Bootstrap sets the machine up and returns: what Run does first.
func Bootstrap(ctx context.Context, o Options) error {
	h, err := newHost(o)
	if err != nil {
		return err
	}
	defer h.disk.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Host.Nodes > 1 {
		orders := make(chan ordered)
		go poll(ctx, o.Control, &h.o.Host, h.paces.Poll, orders)
		go func() {
			for {
				select {
				case got := <-orders:
					h.take(got)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	err = h.boot.run(ctx)
	return errors.Join(err, h.j.flush(ctx))
}

// Run is the life of a session on this machine: it returns nil once the session has ended and
// the machine is given back, or when the context ends, from where another process goes on.
func Run(ctx context.Context, o Options) error {
	h, err := newHost(o)
	if err != nil {
		return err
	}
	defer h.disk.close()
	if h.view().Steps != nil {
		h.j.add("resumed", "the agent was started again: "+h.id)
	}
	return h.run(ctx)
}

func (h *host) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	orders, looks, ready, notices, others := make(chan ordered), make(chan measured), make(chan error,
		1), make(chan time.Time), make(chan []duty.Verdict)
	beside.Go(func() { poll(ctx, h.o.Control, &h.o.Host, h.paces.Poll, orders) })
	sampler := &sampler{o: &h.o, step: h.paces.Sample / 2}
	beside.Go(func() { sampler.run(ctx, looks) })
	beside.Go(func() { h.tell(ctx) })
	if h.o.Host.Nodes > 1 {
		beside.Go(func() { h.watchNodes(ctx, others) })
	}
	if h.o.Notices != nil {
		beside.Go(func() { watchNotices(ctx, h.o.Notices, h.paces.Notice, notices) })
	}
	st := h.view()
	switch {
	case st.Ending != nil:
		h.end, ready = st.Ending, nil
		h.phase, h.why = session.HostSaving, st.Ending.Why
	case st.Failed != "":
		h.phase, h.why, ready = session.HostFailed, st.Failed, nil
	default:
		h.phase, h.why = h.standing()
		booting, stop := context.WithCancel(ctx)
		over := make(chan struct{})
		h.stopBoot = func() { stop(); <-over }
		defer stop()
		beside.Go(func() {
			defer close(over)
			ready <- h.boot.run(booting)
		})
	}
	beside.Go(func() { h.boot.keepFresh(ctx) })
	var gpus inventory.Fact[int]
	if !hasGPUs(&h.o) {
		gpus = inventory.Known(0)
	}
	h.watch = newWatch(h.paces.Sample, time.Duration(h.o.Host.IdleTimeout), gpus)
	h.watch.record = h.disk.sampled
	h.rests, h.lastSave, h.since = h.now, h.now, h.now
	if h.o.Host.Nodes > 1 {
		h.others = []duty.Verdict{{Why: "what the other nodes do is not known yet"}}
	}
	tick := time.NewTicker(h.paces.Tick)
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
			h.take(got)
		case m := <-looks:
			h.look(&m)
		case err := <-ready:
			ready = nil
			if err := h.isReady(ctx, err); err != nil {
				return err
			}
		case at := <-notices:
			h.announced(at)
		case h.others = <-others:
		case s := <-h.saves:
			if err := h.saveDone(&s); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
}

// isReady takes the end of the set-up.
func (h *host) isReady(ctx context.Context, err error) error {
	if ctx.Err() != nil || h.end != nil && h.end.Killed {
		return nil //nolint:nilerr // it was ended, or another process goes on
	}
	if h.view().Ready { // another process had set it up
		if err != nil {
			h.j.add("step", "after a restart: "+err.Error())
		}
		return nil
	}
	h.rests = h.now
	if err != nil {
		h.phase, h.why = session.HostFailed, err.Error()
		h.j.add("step", "the set-up failed: "+err.Error())
		return h.update(func(s *state) { s.Failed = err.Error() })
	}
	if h.phase == session.HostStarting {
		h.phase, h.why = session.HostReady, ""
	}
	h.j.add("ready", "the session is ready")
	return h.update(func(s *state) { s.Ready = true })
}

// take obeys an order that is newer than the one before.
func (h *host) take(got ordered) {
	if got.order == nil {
		if got.err != nil {
			h.j.add("order", got.err.Error()+"; the lease that is known stands")
		}
		return
	}
	old := h.view().Order
	if got.order.Serial <= old.Serial {
		return
	}
	if err := h.update(func(s *state) { s.Order = *got.order }); err != nil {
		h.o.Log(err.Error())
		return // what is not durable is not obeyed yet
	}
	h.mu.Lock()
	h.peers = got.order.Peers
	h.mu.Unlock()
	before, _ := h.bounds(old)
	if lease, _ := h.bounds(*got.order); !lease.Equal(before) {
		h.j.add("extended", "the lease is until "+plain.Time(lease)+" (before: "+plain.Time(before)+")")
	}
}

// bounds returns the lease and the idle time that an order leaves.
func (h *host) bounds(o session.Order) (time.Time, time.Duration) {
	lease, idle := h.o.Host.LeaseUntil, time.Duration(h.o.Host.IdleTimeout)
	if o.Serial > 0 {
		idle = time.Duration(o.IdleTimeout)
		if !o.LeaseUntil.IsZero() {
			lease = o.LeaseUntil
		}
	}
	return lease, idle
}

// look takes what was measured.
func (h *host) look(m *measured) {
	if m.err != nil {
		h.o.Log(m.err.Error())
		return
	}
	h.read()
	_, up := h.o.Uptime()
	h.watch.add(h.now.Add(m.to-up), m.to-m.from, m, len(h.o.Host.GPUs))
	if h.warning != nil && !h.warning.accepted.IsZero() {
		h.warning.looks++
	}
	for _, c := range m.connected {
		if !hasConnection(h.last.connected, c) {
			h.j.add("connection", c.Kind+" from "+c.Source+" is open")
		}
	}
	for _, c := range h.last.connected {
		if !hasConnection(m.connected, c) {
			h.j.add("connection", c.Kind+" from "+c.Source+" is closed")
		}
	}
	h.last = *m
}

func hasConnection(list []session.Connection, c session.Connection) bool {
	for _, k := range list {
		if k.Kind == c.Kind && k.Source == c.Source {
			return true
		}
	}
	return false
}

// read reads the clock. One that was set puts a warning back: no one knows how long a grace
// lasted by it.
func (h *host) read() {
	away := h.clock.away
	now, jumped := h.clock.read()
	h.now = now
	if away != 0 && h.clock.away == 0 {
		if err := h.update(func(s *state) { s.Anchor = h.clock.anchor }); err != nil {
			h.o.Log(err.Error())
		}
	}
	if jumped == 0 {
		return
	}
	h.j.add("clock", fmt.Sprintf("the clock of the machine was set by %s: the lease goes by the time since boot",
		signed(jumped)))
	h.watch.reset()
	h.putBack("the clock was set")
	h.rests = h.now
}

func signed(d time.Duration) string {
	if d < 0 {
		return "-" + plain.Duration(-d)
	}
	return "+" + plain.Duration(d)
}

// tell writes statuses and events until the context ends.
func (h *host) tell(ctx context.Context) {
	t := &teller{store: h.o.Control, node: h.o.Host.Node}
	timer := time.NewTicker(min(h.paces.Flush, h.paces.Status))
	defer timer.Stop()
	for {
		h.tellOnce(ctx, t, false)
		select {
		case <-ctx.Done():
			return
		case <-h.told.wake:
		case <-timer.C:
		}
	}
}

// tellOnce sends events, and the status where it is due.
func (h *host) tellOnce(ctx context.Context, t *teller, always bool) {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	b := h.told
	b.mu.Lock()
	s, dirty := b.status, b.dirty
	due := always || dirty || s.At.Sub(b.at) >= h.paces.Status
	b.dirty = false
	b.mu.Unlock()
	err := h.j.flush(limited)
	if s.Schema != "" && due {
		s.Events, _ = h.j.numbers()
		err = errors.Join(err, t.tell(limited, s))
	}
	if ctx.Err() != nil && !always {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.err == "" {
			h.o.Log("the control store does not answer: " + err.Error())
		}
		b.err, b.dirty = err.Error(), b.dirty || due
		return
	}
	b.err = ""
	if s.Schema != "" && due {
		b.phase, b.at = s.Phase, s.At
	}
}

// status is what the session says of itself.
func (h *host) status() session.Status {
	st := h.view()
	lease, _ := h.bounds(st.Order)
	s := session.Status{
		Schema: session.StatusSchema, Session: h.o.Host.Session, Node: h.o.Host.Node, Epoch: h.o.Host.Epoch,
		At: h.o.Now().UTC(), Boot: h.id,
		OrderSerial: st.Order.Serial, AnsweredSave: st.Saved, Phase: h.phase, Why: h.why, Steps: st.Steps, LeaseUntil: lease.UTC(),
		Activity: h.activity, ActivitySince: h.since.UTC().Truncate(time.Second), EndsAt: h.endsAt(), Snapshot: st.Snapshot,
		UnsavedReason: h.unsaved,
		Terminals:     len(h.last.terminals), Connections: h.last.connected, Address: h.o.Address,
	}
	if !s.EndsAt.IsZero() {
		s.EndsAt = s.EndsAt.UTC().Truncate(time.Second)
	}
	return s
}

// endsAt is when the session ends by its idle rule or its lease if nothing changes; zero
// while it works.
func (h *host) endsAt() time.Time {
	lease, idle := h.bounds(h.view().Order)
	grace := time.Duration(h.o.Host.Grace)
	var at time.Time
	switch {
	case h.end != nil:
		return time.Time{}
	case h.notice != nil:
		at = h.notice.at
	case h.warning != nil:
		at = h.warning.since.Add(grace)
		if !h.warning.accepted.IsZero() {
			at = h.warning.accepted.Add(grace)
		}
	case idle > 0 && h.atRest():
		at = h.restSince().Add(idle + grace)
	default:
		return time.Time{}
	}
	if at.After(lease) {
		return lease
	}
	return at
}

// finish says the last word and gives the machine back.
func (h *host) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	h.boot.forget()
	t := &teller{store: h.o.Control, node: h.o.Host.Node}
	h.told.put(h.status())
	h.tellOnce(ctx, t, true)
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := h.o.Cage.Kill(ctx)
	if h.o.Ender != nil {
		err = errors.Join(err, h.o.Ender.End(ctx))
	}
	if err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	return nil
}

// watchNotices looks for the provider's notice until there is one.
func watchNotices(ctx context.Context, n Notices, every time.Duration, out chan<- time.Time) {
	for {
		if at, err := n.Notice(ctx); err == nil && !at.IsZero() {
			select {
			case out <- at:
			case <-ctx.Done():
			}
		}
		if pause(ctx, every) != nil {
			return
		}
	}
}

// watchNodes reads what the other nodes do: a machine of several is judged by all of them.
func (h *host) watchNodes(ctx context.Context, out chan<- []duty.Verdict) {
	for {
		var list []duty.Verdict
		for node := range h.o.Host.Nodes {
			if node != h.o.Host.Node {
				list = append(list, h.otherNode(ctx, node))
			}
		}
		select {
		case out <- list:
		case <-ctx.Done():
			return
		}
		if pause(ctx, h.paces.Poll) != nil {
			return
		}
	}
}

// staleStatus is how old the status of another node may be.
const staleStatus = 90 * time.Second

func (h *host) otherNode(ctx context.Context, node int) duty.Verdict {
	unknown := duty.Verdict{Why: fmt.Sprintf("node %d does not say what it does", node)}
	o, err := h.o.Control.Get(ctx, statusKey(node), maxOrder)
	if err != nil {
		return unknown
	}
	var s session.Status
	if err := json.NewDecoder(bytes.NewReader(o.Data)).Decode(&s); err != nil || s.Epoch != h.o.Host.Epoch ||
		s.Session != h.o.Host.Session {
		return unknown
	}
	v := duty.Verdict{State: duty.State(s.Activity), Since: s.ActivitySince, Why: fmt.Sprintf("node %d is %s", node, s.Activity)}
	if s.Activity == duty.Unknown.String() {
		v.State = duty.Unknown
	}
	// One that ends says no more.
	over := s.Phase == session.HostEnding || s.Phase == session.HostSaving
	if age := h.o.Now().Sub(s.At); !over && (age > staleStatus || age < -staleStatus) {
		return unknown
	}
	v.Until, v.Expires = h.o.Now().Add(staleStatus), h.o.Now().Add(staleStatus)
	v.Lasting, v.Coverage = max(0, v.Until.Sub(v.Since)), 1
	return v
}

// keepFile is the file whose touch puts an end off.
func (h *host) keepFile() time.Time {
	i, err := os.Stat(filepath.Join(h.o.Home, ".curfew", "keep"))
	if err != nil {
		return time.Time{}
	}
	return i.ModTime()
}
