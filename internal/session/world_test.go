package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/spec"
)

// world is a provider, hosts, a store, budgets and a gate in memory with a manual clock. Any call
// may fail before or after its effect, and its process may crash at either point.
type world struct {
	mu  sync.Mutex
	now time.Time
	rng *rand.Rand

	sessions map[string]Session
	events   map[string][]LoggedEvent
	audit    []action.Entry

	machines        map[string]*fakeMachine
	tokens          map[string][]string  // launched machines by token and pool
	launches        map[string]int       // number of launches by token
	visibilityDelay time.Duration        // longest delay of the listing
	emptyPools      map[string]bool      // zones without capacity
	folders         map[string]bool      // sessions with a control folder
	roles           map[string]time.Time // creation time by session
	stuckRoles      map[string]bool      // sessions whose role cannot be deleted

	orders        map[string]Order
	orderVersions map[string]int
	status        map[string]map[int]Status
	unreadable    map[int]string // reason by node
	saved         map[string]int // saved work by session and node
	work          map[string]int // finished work by session and node

	holds   map[string]string // state by session
	charged map[string]time.Time

	verdict gate.Verdict
	// failureRate is the probability that a call fails, crashRate that the process crashes at it.
	failureRate, crashRate float64
}

type fakeMachine struct {
	FoundMachine
	installation string
	visibleAt    time.Time // hidden from listings before
	terminatedAt time.Time // zero: running
	goneAt       time.Time // hidden from listings after
}

// errKilled simulates a crash of the process.
var errKilled = errors.New("killed")

func newWorld(seed uint64) *world {
	return &world{
		now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), rng: rand.New(rand.NewPCG(seed, 17)),
		sessions: map[string]Session{}, events: map[string][]LoggedEvent{},
		machines: map[string]*fakeMachine{}, tokens: map[string][]string{}, launches: map[string]int{},
		emptyPools: map[string]bool{}, folders: map[string]bool{}, roles: map[string]time.Time{},
		stuckRoles: map[string]bool{},
		orders:     map[string]Order{}, orderVersions: map[string]int{}, status: map[string]map[int]Status{},
		saved: map[string]int{},
		work:  map[string]int{}, holds: map[string]string{}, charged: map[string]time.Time{}, verdict: gate.Allow}
}

// withFaults runs a call that may fail or crash before or after its effect.
func (w *world) withFaults(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, after := w.rng.Float64(), w.rng.Float64()
	switch {
	case before < w.crashRate:
		panic(errKilled)
	case before < w.crashRate+w.failureRate:
		return errors.New("throttled")
	}
	err := do()
	switch {
	case after < w.crashRate:
		panic(errKilled)
	case err == nil && after < w.crashRate+w.failureRate:
		return errors.New("the answer was lost")
	}
	return err
}

// memoryStore implements Store.
type memoryStore struct{ *world }

func (m memoryStore) Put(_ context.Context, s Session, events []Event, entries ...action.Entry) (Session, error) {
	err := m.withFaults(func() error {
		old, there := m.sessions[s.ID]
		if !there && s.Version != 0 || there && old.Version != s.Version {
			return ErrConflict
		}
		for _, o := range m.sessions {
			if o.Name == s.Name && o.ID != s.ID && !o.State.IsFinal() && !s.State.IsFinal() {
				if s.Version == 0 {
					return ErrNameTaken
				}
				return ErrConflict
			}
		}
		s.Version++
		s.Machines, s.CapacityFailures = slices.Clone(s.Machines), slices.Clone(s.CapacityFailures)
		m.sessions[s.ID] = s
		for i, e := range events {
			m.events[s.ID] = append(m.events[s.ID], LoggedEvent{e, s.Version, i})
		}
		m.audit = append(m.audit, entries...)
		return nil
	})
	return s, err
}

func (m memoryStore) Session(_ context.Context, id string) (s Session, err error) {
	err = m.withFaults(func() error {
		var ok bool
		if s, ok = m.sessions[id]; !ok {
			return ErrNotFound
		}
		s.Machines, s.CapacityFailures = slices.Clone(s.Machines), slices.Clone(s.CapacityFailures)
		return nil
	})
	return s, err
}

func (m memoryStore) Sessions(_ context.Context, q Query) (out []Session, err error) {
	err = m.withFaults(func() error {
		for _, s := range m.sessions {
			if (q.Name == "" || s.Name == q.Name) && (!q.OpenOnly || !s.State.IsFinal()) {
				out = append(out, s)
			}
		}
		slices.SortFunc(out, func(a, b Session) int { return strings.Compare(a.ID, b.ID) })
		return nil
	})
	return out, err
}

func (m memoryStore) AddEvents(_ context.Context, id string, node int, file int64, events []Event) error {
	return m.withFaults(func() error {
		for _, e := range m.events[id] {
			if e.Node == node && e.File == file {
				return nil
			}
		}
		for i, e := range events {
			m.events[id] = append(m.events[id], LoggedEvent{e, file, i})
		}
		return nil
	})
}

func (m memoryStore) Events(_ context.Context, id string) ([]LoggedEvent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events[id]), nil
}

func (m memoryStore) NewestEventFile(_ context.Context, id string, node int) (file int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events[id] {
		if e.Node == node {
			file = max(file, e.File)
		}
	}
	return file, nil
}

func (m memoryStore) Installation(context.Context) (string, error) { return "us", nil }

// fakeLauncher implements Launcher.
type fakeLauncher struct{ *world }

var testPools = []Pool{
	{Type: "g6.xlarge", Region: "us-east-1", Zone: "a", Rate: pricePtr(800)},
	{Type: "g6.xlarge", Region: "us-east-1", Zone: "b", Rate: pricePtr(900)},
}

func pricePtr(milliUSD int64) *money.Rate {
	r := money.Rate(milliUSD) * money.USDPerUnit / 1000
	return &r
}

func (p fakeLauncher) Pools(context.Context, *spec.Spec) (out []Pool, err error) {
	err = p.withFaults(func() error { out = slices.Clone(testPools); return nil })
	return out, err
}

func (p fakeLauncher) Launch(_ context.Context, l Launch) (out []Machine, err error) {
	err = p.withFaults(func() error { // the role needs a call of its own
		if _, made := p.roles[l.Session.ID]; !made {
			p.roles[l.Session.ID] = p.now
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = p.withFaults(func() error {
		key := l.Token + " " + l.Pool.Zone
		if ids, ok := p.tokens[key]; ok {
			for _, id := range ids {
				out = append(out, p.machines[id].Machine)
			}
			return nil
		}
		if p.emptyPools[l.Pool.Zone] {
			return fmt.Errorf("%s: %w", l.Pool, ErrCapacity)
		}
		p.launches[l.Token]++
		p.folders[l.Session.ID] = true
		for node := range l.Nodes {
			id := fmt.Sprintf("i-%d", len(p.machines))
			m := &fakeMachine{
				installation: l.Tags[inventory.TagInstallation],
				visibleAt:    p.now.Add(time.Duration(p.rng.Int64N(int64(p.visibilityDelay) + 1))),
			}
			m.FoundMachine = FoundMachine{
				Machine: Machine{ID: id, Node: node, Pool: l.Pool, LaunchedAt: p.now},
				Session: l.Tags[inventory.TagSession],
				Token:   l.Token, LeaseUntil: l.Host.LeaseUntil,
			}
			p.machines[id] = m
			p.tokens[key] = append(p.tokens[key], id)
			out = append(out, m.Machine)
		}
		return nil
	})
	if err != nil {
		out = nil
	}
	return out, err
}

func (p fakeLauncher) Find(_ context.Context, installation, session string) (out []FoundMachine, err error) {
	err = p.withFaults(func() error {
		for _, m := range p.machines {
			if m.installation == installation && (session == "" || m.Session == session) &&
				!p.now.Before(m.visibleAt) &&
				(m.terminatedAt.IsZero() || p.now.Before(m.goneAt)) {
				out = append(out, m.FoundMachine)
			}
		}
		slices.SortFunc(out, func(a, b FoundMachine) int { return strings.Compare(a.ID, b.ID) })
		return nil
	})
	return out, err
}

func (p fakeLauncher) End(_ context.Context, _ string, ids []string) error {
	return p.withFaults(func() error {
		for _, id := range ids {
			if m := p.machines[id]; m != nil && m.terminatedAt.IsZero() {
				m.terminatedAt = p.now
				m.goneAt = p.now.Add(time.Duration(p.rng.Int64N(int64(p.visibilityDelay) + 1)))
			}
		}
		return nil
	})
}

func (p fakeLauncher) Leftovers(_ context.Context, _, session string) (left []string, err error) {
	err = p.withFaults(func() error {
		for _, m := range p.machines {
			if m.Session == session && (m.terminatedAt.IsZero() || p.now.Before(m.goneAt)) {
				left = append(left, "machine "+m.ID)
			}
		}
		if len(left) > 0 {
			return nil
		}
		delete(p.folders, session)
		if p.stuckRoles[session] {
			left = append(left, "role of "+session)
			return nil
		}
		delete(p.roles, session)
		return nil
	})
	return left, err
}

// Roles implements RoleLister.
func (p fakeLauncher) Roles(_ context.Context, installation string) (out []Role, err error) {
	err = p.withFaults(func() error {
		for id, made := range p.roles {
			if installation == "us" {
				out = append(out, Role{Session: id, Name: "role of " + id, CreatedAt: made})
			}
		}
		return nil
	})
	return out, err
}

// fakeControl implements Control.
type fakeControl struct{ *world }

func (c fakeControl) Hosts(_ context.Context, s *Session, _ int) (out map[int]Status, broken map[int]string,
	err error) {
	err = c.withFaults(func() error {
		out = map[int]Status{}
		for node, st := range c.status[s.ID] {
			out[node] = st
		}
		return nil
	})
	return out, c.unreadable, err
}

func (c fakeControl) Order(_ context.Context, s *Session) (o Order, version string, err error) {
	err = c.withFaults(func() error {
		o = c.orders[s.ID]
		if n := c.orderVersions[s.ID]; n > 0 {
			version = fmt.Sprint(n)
		}
		return nil
	})
	return o, version, err
}

func (c fakeControl) WriteOrder(_ context.Context, s *Session, o Order, version string) error {
	return c.withFaults(func() error {
		if n := c.orderVersions[s.ID]; n > 0 && version != fmt.Sprint(n) || n == 0 && version != "" {
			return ErrConflict
		}
		c.orders[s.ID] = o
		c.orderVersions[s.ID]++
		return nil
	})
}

func (c fakeControl) Events(_ context.Context, s *Session, node int, file int64) ([]Event, error) {
	return []Event{{At: c.now, Node: node, Kind: "ready", Text: fmt.Sprint(file)}}, nil
}

// runHosts advances all hosts by one step: they become ready, work, save and obey orders.
func (w *world) runHosts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if !m.terminatedAt.IsZero() {
			continue
		}
		id := m.Session
		if w.status[id] == nil {
			w.status[id] = map[int]Status{}
		}
		key := fmt.Sprint(id, "/", m.Node)
		st, o := w.status[id][m.Node], w.orders[id]
		st.Session, st.Node, st.Epoch, st.At, st.Events = id, m.Node, w.sessions[id].Epoch, w.now, 1
		if o.Serial > st.OrderSerial {
			st.OrderSerial = o.Serial
		}
		switch {
		case st.Phase == "":
			st.Phase = HostStarting
		case o.End != nil && st.Phase != HostEnding:
			if st.Phase == HostSaving || o.End.Discard {
				if !o.End.Discard {
					w.saved[key] = w.work[key]
					st.Snapshot = Snapshot{Manifest: fmt.Sprint("m", w.work[key]), At: w.now, Complete: true}
				}
				st.Phase, st.Why = HostEnding, o.End.Why
			} else {
				st.Phase = HostSaving
			}
		case st.Phase == HostStarting:
			st.Phase = HostReady
		case st.Phase == HostReady:
			w.work[key]++
		}
		w.status[id][m.Node] = st
	}
}

// fakeGate implements Gate, Holds and Ledger.
type fakeGate struct{ *world }

func (d fakeGate) Admit(_ context.Context, s *Session) (a Admission, err error) {
	err = d.withFaults(func() error {
		a = Admission{Verdict: d.verdict, Reasons: []string{"because"}}
		switch d.verdict {
		case gate.Allow:
			a.HoldID = "hold-" + s.ID
			if d.holds[s.ID] == "" {
				d.holds[s.ID] = "live"
			}
		case gate.Held:
			a.ApprovalID = "ask-" + s.ID
		}
		return nil
	})
	return a, err
}

func (d fakeGate) Close(_ context.Context, s *Session, _ money.Amount, ran bool) error {
	return d.withFaults(func() error {
		if d.holds[s.ID] == "live" {
			d.holds[s.ID] = map[bool]string{true: "settled", false: "released"}[ran]
		}
		return nil
	})
}

func (d fakeGate) Charge(_ context.Context, s *Session, at time.Time, _ bool) error {
	return d.withFaults(func() error { d.charged[s.ID] = at; return nil })
}

// newKeeper returns a keeper of the world.
func (w *world) newKeeper() *Keeper {
	return &Keeper{
		Store: memoryStore{w}, Launchers: map[string]Launcher{"fake": fakeLauncher{w}}, Control: fakeControl{w},
		Gate:  fakeGate{w},
		Holds: fakeGate{w}, Ledger: fakeGate{w}, Installation: "us",
		Now: func() time.Time {
			return w.now
		}, Timeouts: map[string]Timeouts{"fake": {VisibilityDelay: time.Minute}},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// addSession records a requested session.
func (w *world) addSession(name string, nodes int) string {
	sp, err := spec.Parse("s",
		[]byte(fmt.Sprintf(
			"apiVersion: curfew.session/v1\nname: %s\nresources: {instance_type: g6.xlarge, nodes: %d}\nlease: 4h\n",
			name,
			nodes)))
	if err != nil {
		panic(err)
	}
	id := fmt.Sprintf("s%d-%s", len(w.sessions), name)
	w.sessions[id] = Session{
		ID: id, Name: name, RequestedBy: "ana", Spec: sp.Canonical(), Hash: sp.Hash(), Provider: "fake", Account: "1",
		Epoch: 1,
		State: Requested, ControlPrefix: "x", WorkPrefix: "y",
		RequestedAt: w.now, LeaseUntil: w.now.Add(4 * time.Hour), IdleTimeout: time.Hour, Version: 1}
	return id
}

// pass runs one pass of a keeper over everything. It returns true if the process crashed.
func (w *world) pass(ctx context.Context, k *Keeper) (died bool) {
	defer func() {
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.Is(err, errKilled) {
				panic(r)
			}
			died = true
		}
	}()
	for _, id := range w.ids() {
		_, _ = k.Keep(ctx, id) // the next pass retries after an error
	}
	for provider := range k.Launchers {
		_ = k.Reconcile(ctx, provider)
	}
	return false
}

func (w *world) ids() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// runningMachines returns the machines of this installation that are not terminating, by session.
func (w *world) runningMachines() map[string][]string {
	out := map[string][]string{}
	for id, m := range w.machines {
		if m.installation == "us" && m.terminatedAt.IsZero() {
			out[m.Session] = append(out[m.Session], id)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}
