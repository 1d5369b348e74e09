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

// world is a provider, hosts, a store, budgets and a gate in memory, with real state and a
// clock that the test turns. Whatever it does it may do and lose the answer of, or not do,
// and its process may die before or after it.
type world struct {
	mu  sync.Mutex
	now time.Time
	rng *rand.Rand

	sessions map[string]Session
	events   map[string][]Logged
	audit    []action.Entry

	machines map[string]*fakeMachine
	tokens   map[string][]string  // by token and pool: the machines that it launched
	launches map[string]int       // launches that made machines, by token
	late     time.Duration        // how late the provider shows things
	noMore   map[string]bool      // pools without machines
	leftover map[string]bool      // sessions whose folder is there
	roles    map[string]time.Time // when the role of a session was made
	stuck    map[string]bool      // sessions whose role the provider does not delete

	orders map[string]Order
	given  map[string]int
	status map[string]map[int]Status
	broken map[int]string // by node: why its status is none
	saved  map[string]int // by session and node: what the host saved of its work
	work   map[string]int // what there is

	holds   map[string]string // by session: its state
	charged map[string]time.Time

	verdict gate.Verdict
	// fault is how likely a call fails, and die that the process dies at it.
	fault, die float64
}

type fakeMachine struct {
	Found
	installation string
	shown        time.Time // from when the provider shows it
	ending       time.Time // zero: it is not
	left         time.Time // from when it is not shown any more
}

// errKilled is the death of a process.
var errKilled = errors.New("killed")

func newWorld(seed uint64) *world {
	return &world{
		now: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), rng: rand.New(rand.NewPCG(seed, 17)),
		sessions: map[string]Session{}, events: map[string][]Logged{},
		machines: map[string]*fakeMachine{}, tokens: map[string][]string{}, launches: map[string]int{},
		noMore: map[string]bool{}, leftover: map[string]bool{}, roles: map[string]time.Time{}, stuck: map[string]bool{},
		orders: map[string]Order{}, given: map[string]int{}, status: map[string]map[int]Status{}, saved: map[string]int{},
		work: map[string]int{}, holds: map[string]string{}, charged: map[string]time.Time{}, verdict: gate.Allow}
}

// at is where a process may die, and a call fail: before it has an effect, or after it.
func (w *world) at(do func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, after := w.rng.Float64(), w.rng.Float64()
	switch {
	case before < w.die:
		panic(errKilled)
	case before < w.die+w.fault:
		return errors.New("throttled")
	}
	err := do()
	switch {
	case after < w.die:
		panic(errKilled)
	case err == nil && after < w.die+w.fault:
		return errors.New("the answer was lost")
	}
	return err
}

// memory is the world's Store.
type memory struct{ *world }

func (m memory) Put(_ context.Context, s Session, events []Event, entries ...action.Entry) (Session, error) {
	err := m.at(func() error {
		old, there := m.sessions[s.ID]
		if !there && s.Version != 0 || there && old.Version != s.Version {
			return ErrConflict
		}
		for _, o := range m.sessions {
			if o.Name == s.Name && o.ID != s.ID && !o.State.Over() && !s.State.Over() {
				if s.Version == 0 {
					return ErrTaken
				}
				return ErrConflict
			}
		}
		s.Version++
		s.Machines, s.Tries = slices.Clone(s.Machines), slices.Clone(s.Tries)
		m.sessions[s.ID] = s
		for i, e := range events {
			m.events[s.ID] = append(m.events[s.ID], Logged{e, s.Version, i})
		}
		m.audit = append(m.audit, entries...)
		return nil
	})
	return s, err
}

func (m memory) Session(_ context.Context, id string) (s Session, err error) {
	err = m.at(func() error {
		var ok bool
		if s, ok = m.sessions[id]; !ok {
			return ErrNotFound
		}
		s.Machines, s.Tries = slices.Clone(s.Machines), slices.Clone(s.Tries)
		return nil
	})
	return s, err
}

func (m memory) Sessions(_ context.Context, q Query) (out []Session, err error) {
	err = m.at(func() error {
		for _, s := range m.sessions {
			if (q.Name == "" || s.Name == q.Name) && (!q.Open || !s.State.Over()) {
				out = append(out, s)
			}
		}
		slices.SortFunc(out, func(a, b Session) int { return strings.Compare(a.ID, b.ID) })
		return nil
	})
	return out, err
}

func (m memory) AddEvents(_ context.Context, id string, node int, file int64, events []Event) error {
	return m.at(func() error {
		for _, e := range m.events[id] {
			if e.Node == node && e.File == file {
				return nil
			}
		}
		for i, e := range events {
			m.events[id] = append(m.events[id], Logged{e, file, i})
		}
		return nil
	})
}

func (m memory) Events(_ context.Context, id string) ([]Logged, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.events[id]), nil
}

func (m memory) Newest(_ context.Context, id string, node int) (file int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.events[id] {
		if e.Node == node {
			file = max(file, e.File)
		}
	}
	return file, nil
}

func (m memory) Installation(context.Context) (string, error) { return "us", nil }

// provider is the world's Launcher.
type provider struct{ *world }

var pools = []Pool{
	{Type: "g6.xlarge", Region: "us-east-1", Zone: "a", Rate: rated(800)},
	{Type: "g6.xlarge", Region: "us-east-1", Zone: "b", Rate: rated(900)},
}

func rated(milliUSD int64) *money.Rate {
	r := money.Rate(milliUSD) * money.USDPerUnit / 1000
	return &r
}

func (p provider) Pools(context.Context, *spec.Spec) (out []Pool, err error) {
	err = p.at(func() error { out = slices.Clone(pools); return nil })
	return out, err
}

func (p provider) Launch(_ context.Context, l Launch) (out []Machine, err error) {
	err = p.at(func() error { // its role is made by a call of its own
		if _, made := p.roles[l.Session.ID]; !made {
			p.roles[l.Session.ID] = p.now
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = p.at(func() error {
		key := l.Token + " " + l.Pool.Zone
		if ids, ok := p.tokens[key]; ok {
			for _, id := range ids {
				out = append(out, p.machines[id].Machine)
			}
			return nil
		}
		if p.noMore[l.Pool.Zone] {
			return fmt.Errorf("%s: %w", l.Pool, ErrCapacity)
		}
		p.launches[l.Token]++
		p.leftover[l.Session.ID] = true
		for node := range l.Nodes {
			id := fmt.Sprintf("i-%d", len(p.machines))
			m := &fakeMachine{
				installation: l.Tags[inventory.TagInstallation],
				shown:        p.now.Add(time.Duration(p.rng.Int64N(int64(p.late) + 1))),
			}
			m.Found = Found{
				Machine: Machine{ID: id, Node: node, Pool: l.Pool, LaunchedAt: p.now}, Session: l.Tags[inventory.TagSession],
				Token: l.Token, LeaseUntil: l.Host.Lease,
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

func (p provider) Find(_ context.Context, installation, session string) (out []Found, err error) {
	err = p.at(func() error {
		for _, m := range p.machines {
			if m.installation == installation && (session == "" || m.Session == session) && !p.now.Before(m.shown) &&
				(m.ending.IsZero() || p.now.Before(m.left)) {
				out = append(out, m.Found)
			}
		}
		slices.SortFunc(out, func(a, b Found) int { return strings.Compare(a.ID, b.ID) })
		return nil
	})
	return out, err
}

func (p provider) End(_ context.Context, _ string, ids []string) error {
	return p.at(func() error {
		for _, id := range ids {
			if m := p.machines[id]; m != nil && m.ending.IsZero() {
				m.ending = p.now
				m.left = p.now.Add(time.Duration(p.rng.Int64N(int64(p.late) + 1)))
			}
		}
		return nil
	})
}

func (p provider) Leftovers(_ context.Context, _, session string) (left []string, err error) {
	err = p.at(func() error {
		for _, m := range p.machines {
			if m.Session == session && (m.ending.IsZero() || p.now.Before(m.left)) {
				left = append(left, "machine "+m.ID)
			}
		}
		if len(left) > 0 {
			return nil
		}
		delete(p.leftover, session)
		if p.stuck[session] {
			left = append(left, "role of "+session)
			return nil
		}
		delete(p.roles, session)
		return nil
	})
	return left, err
}

// Roles implements RoleLister.
func (p provider) Roles(_ context.Context, installation string) (out []Role, err error) {
	err = p.at(func() error {
		for id, made := range p.roles {
			if installation == "us" {
				out = append(out, Role{Session: id, Name: "role of " + id, CreatedAt: made})
			}
		}
		return nil
	})
	return out, err
}

// control is the world's Control.
type control struct{ *world }

func (c control) Hosts(_ context.Context, s *Session, _ int) (out map[int]Status, broken map[int]string, err error) {
	err = c.at(func() error {
		out = map[int]Status{}
		for node, st := range c.status[s.ID] {
			out[node] = st
		}
		return nil
	})
	return out, c.broken, err
}

func (c control) Order(_ context.Context, s *Session) (o Order, version string, err error) {
	err = c.at(func() error {
		o = c.orders[s.ID]
		if n := c.given[s.ID]; n > 0 {
			version = fmt.Sprint(n)
		}
		return nil
	})
	return o, version, err
}

func (c control) Give(_ context.Context, s *Session, o Order, version string) error {
	return c.at(func() error {
		if n := c.given[s.ID]; n > 0 && version != fmt.Sprint(n) || n == 0 && version != "" {
			return ErrConflict
		}
		c.orders[s.ID] = o
		c.given[s.ID]++
		return nil
	})
}

func (c control) Events(_ context.Context, s *Session, node int, file int64) ([]Event, error) {
	return []Event{{At: c.now, Node: node, Kind: "ready", Text: fmt.Sprint(file)}}, nil
}

// host lets the hosts of all machines live for a moment: they become ready, work, save, and
// obey their orders.
func (w *world) host() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if !m.ending.IsZero() {
			continue
		}
		id := m.Session
		if w.status[id] == nil {
			w.status[id] = map[int]Status{}
		}
		key := fmt.Sprint(id, "/", m.Node)
		st, o := w.status[id][m.Node], w.orders[id]
		st.Session, st.Node, st.Epoch, st.At, st.Events = id, m.Node, w.sessions[id].Epoch, w.now, 1
		if o.Serial > st.Serial {
			st.Serial = o.Serial
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

// desk is the world's Gate, Holds and Books.
type desk struct{ *world }

func (d desk) Admit(_ context.Context, s *Session) (a Admission, err error) {
	err = d.at(func() error {
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

func (d desk) Close(_ context.Context, s *Session, _ money.Amount, ran bool) error {
	return d.at(func() error {
		if d.holds[s.ID] == "live" {
			d.holds[s.ID] = map[bool]string{true: "settled", false: "released"}[ran]
		}
		return nil
	})
}

func (d desk) Charge(_ context.Context, s *Session, at time.Time, _ bool) error {
	return d.at(func() error { d.charged[s.ID] = at; return nil })
}

// keep returns a controller of the world.
func (w *world) keep() *Keeper {
	return &Keeper{
		Store: memory{w}, Launchers: map[string]Launcher{"fake": provider{w}}, Control: control{w}, Gate: desk{w},
		Holds: desk{w}, Books: desk{w}, Installation: "us",
		Now: func() time.Time {
			return w.now
		}, Timing: map[string]Timing{"fake": {Shown: time.Minute}}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// ask records a session.
func (w *world) ask(name string, nodes int) string {
	sp, err := spec.Parse("s",
		[]byte(fmt.Sprintf(
			"apiVersion: curfew.session/v1\nname: %s\nresources: {instance_type: g6.xlarge, nodes: %d}\nlease: 4h\n", name,
			nodes)))
	if err != nil {
		panic(err)
	}
	id := fmt.Sprintf("s%d-%s", len(w.sessions), name)
	w.sessions[id] = Session{
		ID: id, Name: name, By: "ana", Spec: sp.Canonical(), Hash: sp.Hash(), Provider: "fake", Account: "1", Epoch: 1,
		State: Requested, Control: "x", Work: "y",
		RequestedAt: w.now, LeaseUntil: w.now.Add(4 * time.Hour), Idle: time.Hour, Version: 1}
	return id
}

// pass lets one controller do a pass over everything; it says whether it died.
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
		_, _ = k.Keep(ctx, id) // an error is tried again by the next pass
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

// alive are the machines of this installation that are not on their way out, by session.
func (w *world) alive() map[string][]string {
	out := map[string][]string{}
	for id, m := range w.machines {
		if m.installation == "us" && m.ending.IsZero() {
			out[m.Session] = append(out[m.Session], id)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}
