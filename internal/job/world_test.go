package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// world is a provider with machines that really take time, an object store that only the newest
// epoch may write, and a database, under a virtual clock. Keepers may be killed at any call.
type world struct {
	mu       sync.Mutex
	t        testing.TB
	rng      *rand.Rand
	now      time.Time
	jobs     map[string]Job
	sessions map[string]session.Session
	events   map[string][]session.LoggedEvent
	machines map[string]*machine
	orders   map[string]session.Order
	// tokens maps launch tokens to machines.
	tokens map[string][]string
	// store is the work: the newest saved step, by whom, and every accepted write.
	store     savedWork
	crashRate float64
	// Before or after the change killAt its process is killed; changes counts them.
	killAt, changes int
	killAfter       bool
	// up reports whether a pool has capacity; nil is always.
	up func(p session.Pool, at time.Time) bool
	// setup is the time until the command runs, stepTime that of a step, saveEvery the steps between
	// snapshots, steps the whole work, saveTime the time of a last snapshot.
	setup, stepTime, saveTime time.Duration
	saveEvery, steps          int64
	pools                     []session.Pool
	// fail is the outcome with which the command ends at a step; nil succeeds at the last one.
	fail func(attempt int, step int64) *session.Outcome
	runs int
	// exact counts a step a second, exactly, and lets the end of a machine take no time.
	exact bool
	// placer chooses places; nil leaves that to the launch.
	placer *Placer
	specs  *spec.Cache
	// starts are the starts of commands. With peerErrors a command fails soon after a node of its group is gone.
	starts     []start
	peerErrors bool
}

// start is the start of a command on one node from a step, when another step was the newest saved one.
type start struct {
	session     string
	round       int64
	node        int
	from, saved int64
}

// savedWork is the content of the object store.
type savedWork struct {
	epoch int64
	step  int64
	// writers counts the machines that wrote under each epoch.
	writers map[int64]map[string]bool
	refused int
}

// machine is a machine with an agent that needs no keeper.
type machine struct {
	session.FoundMachine
	host        session.HostConfig
	from        int64 // the step restored
	step, saved int64
	savedAt     time.Time
	begunAt     time.Time
	commandAt   time.Time
	endingAt    time.Time
	why         string
	outcome     *session.Outcome
	goneAt      time.Time // zero while it runs
	hidden      bool      // the provider does not list it, and it runs
	done        bool      // its host has ended
	round       int64     // of its command
	aloneAt     time.Time // since when a node of its group is gone
}

// epoch returns the number that fences the writes of a machine.
func (m *machine) epoch() int64 { return m.host.Epoch + m.round }

func newWorld(t testing.TB, seed uint64) *world {
	rate := 2 * money.USDPerUnit
	return &world{
		t: t, specs: &spec.Cache{}, rng: rand.New(rand.NewPCG(seed, 7)),
		now:  time.Date(2026, 11, 1, 9, 0, 0, 0, time.UTC),
		jobs: map[string]Job{}, sessions: map[string]session.Session{}, events: map[string][]session.LoggedEvent{},
		machines: map[string]*machine{}, orders: map[string]session.Order{}, tokens: map[string][]string{},
		store: savedWork{writers: map[int64]map[string]bool{}},
		setup: 2 * time.Minute, stepTime: time.Minute, saveTime: time.Minute, saveEvery: 10, steps: 60,
		pools: []session.Pool{{Type: "g6.xlarge", Region: "us-east-1", Zone: "a", Rate: &rate}},
	}
}

var errKilled = errors.New("killed")

// call makes a call that may kill its process, before or after the effect.
func (w *world) call(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rng.Float64() < w.crashRate {
		panic(errKilled)
	}
	err := do()
	if w.rng.Float64() < w.crashRate {
		panic(errKilled)
	}
	return err
}

// change makes a call that changes something.
func (w *world) change(do func() error) error {
	return w.call(func() error {
		w.changes++
		killed := w.changes == w.killAt
		if killed && !w.killAfter {
			panic(errKilled)
		}
		err := do()
		if killed {
			panic(errKilled)
		}
		return err
	})
}

// jobStore implements Store.
type jobStore struct{ *world }

func (m jobStore) Put(_ context.Context, j Job, events []session.Event, _ ...action.Entry) (Job, error) {
	err := m.change(func() error {
		old, there := m.jobs[j.ID]
		if !there && j.Version != 0 || there && old.Version != j.Version {
			return ErrConflict
		}
		j.Version++
		j.Attempts = slices.Clone(j.Attempts)
		m.jobs[j.ID] = j
		for i, e := range events {
			m.events[j.ID] = append(m.events[j.ID], session.LoggedEvent{Event: e, File: j.Version, Line: i})
		}
		return nil
	})
	return j, err
}

func (m jobStore) Job(_ context.Context, id string) (j Job, err error) {
	err = m.call(func() error {
		var ok bool
		if j, ok = m.jobs[id]; !ok {
			return ErrNotFound
		}
		j.Attempts = slices.Clone(j.Attempts)
		return nil
	})
	return j, err
}

func (m jobStore) Jobs(context.Context, Query) (out []Job, err error) {
	for _, j := range m.jobs {
		out = append(out, j)
	}
	return out, nil
}

// sessionStore implements session.Store.
type sessionStore struct{ *world }

func (m sessionStore) Put(_ context.Context, s session.Session, events []session.Event, _ ...action.Entry) (
	session.Session, error) {
	err := m.change(func() error {
		old, there := m.sessions[s.ID]
		if !there && s.Version != 0 || there && old.Version != s.Version {
			return session.ErrConflict
		}
		for _, o := range m.sessions {
			if o.Name == s.Name && o.ID != s.ID && !o.State.IsFinal() && !s.State.IsFinal() {
				if s.Version == 0 {
					return session.ErrNameTaken
				}
				return session.ErrConflict
			}
		}
		s.Version++
		s.Machines, s.CapacityFailures = slices.Clone(s.Machines), slices.Clone(s.CapacityFailures)
		m.sessions[s.ID] = s
		for i, e := range events {
			m.events[s.ID] = append(m.events[s.ID], session.LoggedEvent{Event: e, File: s.Version, Line: i})
		}
		return nil
	})
	return s, err
}

func (m sessionStore) Session(_ context.Context, id string) (s session.Session, err error) {
	err = m.call(func() error {
		var ok bool
		if s, ok = m.sessions[id]; !ok {
			return session.ErrNotFound
		}
		s.Machines, s.CapacityFailures = slices.Clone(s.Machines), slices.Clone(s.CapacityFailures)
		return nil
	})
	return s, err
}

func (m sessionStore) Sessions(_ context.Context, q session.Query) (out []session.Session, err error) {
	err = m.call(func() error {
		for _, s := range m.sessions {
			if (q.Name == "" || s.Name == q.Name) && (!q.OpenOnly || !s.State.IsFinal()) &&
				(!s.State.IsFinal() || !s.RequestedAt.Before(q.Since)) {
				out = append(out, s)
			}
		}
		return nil
	})
	return out, err
}

func (m sessionStore) AddEvents(context.Context, string, int, int64, []session.Event) error {
	return nil
}
func (m sessionStore) Events(context.Context, string) ([]session.LoggedEvent, error) { return nil, nil }
func (m sessionStore) NewestEventFile(context.Context, string, int) (int64, error)   { return 0, nil }
func (m sessionStore) Installation(context.Context) (string, error)                  { return "us", nil }

// launcher implements session.Launcher.
type launcher struct{ *world }

func (p launcher) Pools(_ context.Context, sp *spec.Spec) (out []session.Pool, err error) {
	for _, pool := range p.pools {
		if pool.Spot == (sp.Capacity == spec.Spot) || sp.Capacity == spec.Auto {
			out = append(out, pool)
		}
	}
	return out, nil
}

func (p launcher) Launch(_ context.Context, l session.Launch) (out []session.Machine, err error) {
	err = p.change(func() error {
		if ids, ok := p.tokens[l.Token]; ok {
			for _, id := range ids {
				out = append(out, p.machines[id].Machine)
			}
			return nil
		}
		if p.up != nil && !p.up(l.Pool, p.now) {
			return fmt.Errorf("%s: %w", l.Pool, session.ErrCapacity)
		}
		for node := l.FirstNode; node < l.FirstNode+max(1, l.Nodes); node++ {
			id := fmt.Sprintf("i-%d", len(p.machines))
			m := &machine{host: l.Host, round: l.Host.Round}
			m.host.Node = node
			m.FoundMachine = session.FoundMachine{
				Machine: session.Machine{ID: id, Node: node, Pool: l.Pool, LaunchedAt: p.now}, Session: l.Session.ID,
				Token: l.Token, LeaseUntil: l.Host.LeaseUntil,
			}
			p.machines[id], p.tokens[l.Token] = m, append(p.tokens[l.Token], id)
			out = append(out, m.Machine)
		}
		p.runs++
		return nil
	})
	if err != nil {
		out = nil
	}
	return out, err
}

func (p launcher) Find(_ context.Context, _, id string) (out []session.FoundMachine, err error) {
	err = p.call(func() error {
		for _, m := range p.machines {
			if m.goneAt.IsZero() && !m.hidden && (id == "" || m.Session == id) {
				f := m.FoundMachine
				f.State = inventory.StateRunning
				out = append(out, f)
			}
		}
		return nil
	})
	return out, err
}

func (p launcher) End(_ context.Context, _ string, ids []string) error {
	return p.change(func() error {
		for _, id := range ids {
			if m := p.machines[id]; m != nil && m.goneAt.IsZero() && !m.hidden {
				m.goneAt = p.now
			}
		}
		return nil
	})
}

func (p launcher) Leftovers(context.Context, string, string) ([]string, error) { return nil, nil }

// control implements session.Control.
type control struct{ *world }

func (c control) Hosts(_ context.Context, s *session.Session, _ int) (map[int]session.Status, map[int]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hosts := map[int]session.Status{}
	for _, m := range c.machines {
		if m.Session == s.ID && !m.hidden && m.host.HostNumber() == s.HostNumber(m.Node) {
			if st, ok := c.status(m, s); ok {
				st.Node = m.Node
				hosts[m.Node] = st
			}
		}
	}
	return hosts, nil, nil
}

func (c control) Order(_ context.Context, s *session.Session) (session.Order, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.orders[s.ID], "", nil
}

func (c control) WriteOrder(_ context.Context, s *session.Session, o session.Order, _ string) error {
	return c.change(func() error { c.orders[s.ID] = o; return nil })
}

func (c control) Events(context.Context, *session.Session, int, int64) ([]session.Event, error) {
	return nil, nil
}

func manifest(epoch, seq int64) string {
	return fmt.Sprintf("manifests/%08d-%08d-%d-0123456789abcdef", seq, epoch, epoch)
}

// status returns the last report of a machine's host.
func (w *world) status(m *machine, s *session.Session) (session.Status, bool) {
	if !w.exact && w.now.Before(m.LaunchedAt.Add(w.setup/2)) {
		return session.Status{}, false
	}
	st := session.Status{
		Schema: session.StatusSchema, Session: m.Session, Epoch: m.host.Epoch, At: w.now, Phase: session.HostStarting,
		OrderSerial: s.OrderSerial, Activity: "busy", Round: m.round,
	}
	if m.saved > 0 {
		step := m.saved
		st.Snapshot = session.Snapshot{
			Manifest: manifest(m.epoch(), m.saved), At: m.savedAt, Until: m.savedAt, Epoch: m.epoch(),
			Complete: true, Step: &step,
		}
		st.SavedSteps = []int64{step}
	}
	switch {
	case m.commandAt.IsZero() && m.done:
		st.Phase = session.HostEnding
		return st, true
	case m.commandAt.IsZero():
		return st, true
	}
	st.Phase = session.HostReady
	step := m.step
	st.Command = &session.CommandStatus{StartedAt: m.commandAt, Step: &step, Outcome: m.outcome}
	if !m.endingAt.IsZero() {
		st.Phase, st.Why = session.HostSaving, m.why
	}
	if m.done {
		st.Phase = session.HostEnding
	}
	return st, true
}

// tick lets machines work for a time: set up, restore, compute, save, and end by their lease or order.
func (w *world) tick(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
	for _, m := range w.machines {
		if !m.goneAt.IsZero() || m.done {
			continue
		}
		if w.exact {
			w.workExactly(m)
		} else {
			w.work(m)
		}
	}
}

// workExactly lets a machine work a step a second from the end of its setup.
func (w *world) workExactly(m *machine) {
	order := w.orders[m.Session]
	if m.begunAt.IsZero() {
		if c := m.host.Command; c.Held && (order.Serial == 0 || order.Held) {
			return
		}
		if m.begunAt = m.LaunchedAt; m.host.Command.Held {
			m.begunAt = w.now
		}
		m.begunAt = m.begunAt.Round(time.Second)
	}
	if at := m.begunAt.Add(w.setup); m.commandAt.IsZero() && !w.now.Before(at) {
		m.commandAt = at
		w.claim(m)
		m.from, m.step = w.store.step, w.store.step
	}
	if !m.commandAt.IsZero() && m.outcome == nil {
		m.step = min(m.from+int64(w.now.Sub(m.commandAt).Round(time.Second)/time.Second), w.steps)
		w.save(m)
		if m.step == w.steps {
			zero, at := 0, m.commandAt.Add(time.Duration(w.steps-m.from)*time.Second)
			m.outcome = &session.Outcome{Class: session.Succeeded, ExitCode: &zero, Evidence: "exit code 0", At: at}
			m.endingAt, m.why = at, "its command ended"
		}
	}
	if order.End != nil && order.Epoch == m.host.Epoch && m.outcome == nil {
		m.outcome = &session.Outcome{Class: session.Stopped, Evidence: "it was asked to stop", At: w.now}
		m.endingAt, m.why = w.now, order.End.Why
	}
	m.done = m.outcome != nil
}

func (w *world) work(m *machine) {
	if o := w.orders[m.Session]; !m.hidden && o.End == nil && m.endingAt.IsZero() {
		if len(o.MachineRounds) > m.Node && o.MachineRounds[m.Node] > m.host.Round {
			m.done = true // another machine took its place
			return
		}
		if o.Round > m.round {
			m.round, m.commandAt, m.outcome, m.aloneAt, m.step = o.Round, time.Time{}, nil, time.Time{}, 0
			m.host.RestoreStep = o.RestoreStep
		}
	}
	if m.commandAt.IsZero() {
		o := w.orders[m.Session]
		if o.End != nil && o.Epoch == m.host.Epoch || !w.now.Before(w.leaseOf(m)) {
			m.done = true // nothing was set up
			return
		}
		isUp := func(o *machine) bool { return !w.now.Before(o.LaunchedAt.Add(w.setup)) }
		if m.round > 0 && !w.isComplete(m, isUp) {
			return // the addresses of all nodes are not known
		}
		if w.now.Before(m.LaunchedAt.Add(w.setup)) || m.host.Command.Held && (o.Serial == 0 || o.Held) {
			return
		}
		m.commandAt = w.now
		w.claim(m)
		m.from = w.store.step
		if s := m.host.RestoreStep; s != nil {
			m.from = *s
		}
		w.starts = append(w.starts, start{m.Session, m.round, m.Node, m.from, w.store.step})
		m.step = m.from
	}
	order := w.orders[m.Session]
	// A hidden machine is cut off from the keeper, and still reaches the object store.
	ordered := order.End != nil && order.Epoch == m.host.Epoch && !m.hidden
	if m.endingAt.IsZero() && (ordered || !w.now.Before(w.leaseOf(m)) || w.ends(m)) {
		m.endingAt = w.now
		switch {
		case m.outcome != nil:
			m.why = "its command ended"
		case ordered:
			m.why = order.End.Why
		default:
			m.why = "its lease ended"
		}
		if m.outcome == nil {
			m.outcome = &session.Outcome{Class: session.Stopped, Evidence: "it was asked to stop", At: w.now}
		}
	}
	if !m.endingAt.IsZero() {
		if !w.now.Before(m.endingAt.Add(w.saveTime)) {
			if c := m.outcome.Class; (c == session.Stopped || c == session.Succeeded) && m.Node == 0 {
				w.save(m) // others leave the declared checkpoints as they are
			}
			m.done = true
		}
		return
	}
	if !w.isComplete(m, func(o *machine) bool { return !o.commandAt.IsZero() }) {
		if m.aloneAt.IsZero() {
			m.aloneAt = w.now
		}
		if one := 1; w.peerErrors && m.outcome == nil && w.now.Sub(m.aloneAt) >= 20*time.Second {
			m.outcome = &session.Outcome{
				Class: session.OwnError, ExitCode: &one, Evidence: "connection closed by peer", At: w.now,
				Node: m.Node,
			}
		}
		return // the collective operations of its group wait
	}
	m.aloneAt = time.Time{}
	if m.outcome != nil {
		return
	}
	for step := m.from + int64(w.now.Sub(m.commandAt)/w.stepTime); m.step < step && m.outcome == nil; {
		m.step++
		if m.step%w.saveEvery == 0 && m.Node == 0 { // one snapshot of all ranks
			w.save(m)
		}
		if w.fail != nil {
			m.outcome = w.fail(m.host.Command.Attempt, m.step)
		}
		if m.outcome == nil && m.step >= w.steps {
			zero := 0
			m.outcome = &session.Outcome{Class: session.Succeeded, ExitCode: &zero, Evidence: "exit code 0", At: w.now}
		}
	}
}

// ends reports whether the command of a machine ended, and is not kept because of its group.
func (w *world) ends(m *machine) bool {
	o := m.outcome
	return o != nil && (!o.Class.FollowsFromLoss() || m.host.Nodes < 2 ||
		!w.now.Before(o.At.Add(time.Duration(m.host.Command.PeerWait))))
}

// isComplete reports whether each node of the group of a machine has one that runs in its round.
func (w *world) isComplete(m *machine, is func(*machine) bool) bool {
	nodes := map[int]bool{}
	for _, o := range w.machines {
		if o.Session == m.Session && o.goneAt.IsZero() && o.round == m.round && !o.hidden && is(o) {
			nodes[o.Node] = true
		}
	}
	return len(nodes) >= m.host.Nodes || m.hidden
}

// leaseOf returns the end of the lease that a machine knows of.
func (w *world) leaseOf(m *machine) time.Time {
	if o := w.orders[m.Session]; o.Serial > 0 && !m.hidden {
		return o.LeaseUntil
	}
	return m.host.LeaseUntil
}

// claim makes a machine the only writer, unless a later one is.
func (w *world) claim(m *machine) { w.store.epoch = max(w.store.epoch, m.epoch()) }

// save writes the work of a machine. A machine of an earlier epoch is refused.
func (w *world) save(m *machine) {
	if m.epoch() < w.store.epoch {
		w.store.refused++
		return
	}
	if w.store.writers[m.epoch()] == nil {
		w.store.writers[m.epoch()] = map[string]bool{}
	}
	w.store.writers[m.epoch()][m.ID] = true
	w.store.step, m.saved, m.savedAt = m.step, m.step, w.now
}

// interrupt takes a machine away.
func (w *world) interrupt() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if m.goneAt.IsZero() && !m.hidden {
			m.goneAt = w.now
			return true
		}
	}
	return false
}

// running returns the machines that cost money.
func (w *world) running() (n int) {
	for _, m := range w.machines {
		if m.goneAt.IsZero() {
			n++
		}
	}
	return n
}

// allow is a gate that allows everything up to some dollars.
type allow struct{ reserved money.Amount }

func (g allow) Admit(context.Context, *Job) (Admission, error) {
	return Admission{Admission: session.Admission{Verdict: gate.Allow, HoldID: "h"}, Reserved: g.reserved}, nil
}

// timeouts are those of the tests: short ones, as a virtual hour costs the same as a second.
var timeouts = session.Timeouts{VisibilityDelay: 10 * time.Second, Grace: time.Minute, Save: 5 * time.Minute}

func (w *world) keeper() *Keeper {
	clock := func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return w.now }
	log := slog.New(slog.DiscardHandler)
	k := &Keeper{
		Placer: w.placer, Store: jobStore{w}, Log: log, Gate: allow{100 * money.USD}, Sessions: &session.Keeper{
			Store: sessionStore{w}, Launchers: map[string]session.Launcher{"sim": launcher{w}}, Control: control{w},
			Installation: "us", Now: clock, Timeouts: map[string]session.Timeouts{"sim": timeouts}, Log: log,
			Specs: w.specs,
		},
		ControlPrefix: func(_ context.Context, _ *Job, _ *spec.Spec, id string) (string, error) {
			return "sim://control/" + id, nil
		},
	}
	k.Sessions.AccountAttempt = k.Account
	return k
}

// submit records a job.
func (w *world) submit(text string) string {
	w.t.Helper()
	sp, err := spec.Parse("job.yaml", []byte("apiVersion: curfew.job/v1\nname: j\nrun: train\n"+text))
	if err != nil {
		w.t.Fatal(err)
	}
	span := int64(0)
	if sp.ReplaceOne {
		span = RoundSpan
	}
	w.jobs["j1"] = Job{
		ID: "j1", Name: "j", RequestedBy: "ana", Spec: sp.Canonical(), Hash: sp.Hash(), Provider: "sim",
		State: Waiting, FirstEpoch: 1, EpochSpan: span, WorkPrefix: "sim://work", RequestedAt: w.now, Version: 1,
	}
	return "j1"
}

// pass makes one pass of a keeper over a job and the sessions; it may be killed in it.
func (w *world) pass(k *Keeper, id string) {
	w.t.Helper()
	w.recover(func() error {
		ctx := context.Background()
		if _, err := k.Keep(ctx, id); err != nil {
			return err
		}
		for _, s := range w.sessions {
			if s.State.IsFinal() {
				continue
			}
			if _, err := k.Sessions.Keep(ctx, s.ID); err != nil && !errors.Is(err, session.ErrCapacity) {
				return err
			}
		}
		return nil
	})
}

// recover does something as a process that may be killed.
func (w *world) recover(do func() error) {
	w.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			if r != errKilled { //nolint:errorlint // it is the value itself
				panic(r)
			}
			w.mu.TryLock() // the killed process may have held it
			w.mu.Unlock()
		}
	}()
	if err := do(); err != nil {
		w.t.Fatal(err)
	}
}

// run keeps a job until it is over and nothing runs.
func (w *world) run(id string, keepers int, each func()) Job {
	w.t.Helper()
	for range 20_000 {
		for range keepers {
			w.pass(w.keeper(), id)
		}
		if w.jobs[id].State.IsFinal() && w.running() == 0 {
			return w.jobs[id]
		}
		if each != nil {
			each()
		}
		w.tick(10 * time.Second)
	}
	w.t.Fatalf("the job is %s (%s) after %s", w.jobs[id].State, w.jobs[id].Why, w.now.Sub(w.jobs[id].RequestedAt))
	return Job{}
}
