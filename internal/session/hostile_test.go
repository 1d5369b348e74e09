package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// hostileControl is a Control with hostile hosts. It counts reads of event files.
type hostileControl struct {
	fakeControl
	mutate func(out map[int]Status)
	reads  *int
	err    error // returned by Hosts, Order and WriteOrder
}

func (h hostileControl) Hosts(ctx context.Context, s *Session, n int) (map[int]Status, map[int]string, error) {
	if h.err != nil {
		return nil, nil, h.err
	}
	out, broken, err := h.fakeControl.Hosts(ctx, s, n)
	if err == nil && h.mutate != nil {
		h.mutate(out)
	}
	return out, broken, err
}

func (h hostileControl) Order(ctx context.Context, s *Session) (Order, string, error) {
	if h.err != nil {
		return Order{}, "", h.err
	}
	return h.fakeControl.Order(ctx, s)
}

func (h hostileControl) WriteOrder(ctx context.Context, s *Session, o Order, version string) error {
	if h.err != nil {
		return h.err
	}
	return h.fakeControl.WriteOrder(ctx, s, o, version)
}

func (h hostileControl) Events(ctx context.Context, s *Session, node int, file int64) ([]Event, error) {
	if h.reads != nil {
		*h.reads++
	}
	return h.fakeControl.Events(ctx, s, node, file)
}

// mutateEach returns a function that changes every status freshly at each read.
func mutateEach(w *world, change func(st *Status, reads int)) func(map[int]Status) {
	reads := 0
	return func(out map[int]Status) {
		reads++
		for node, st := range out {
			st.At = w.now
			change(&st, reads)
			out[node] = st
		}
	}
}

// TestEndTimesOut checks that a session is released at its limit whatever its hosts report, and
// that unsaved work is named in the record, the events and the audit log.
func TestEndTimesOut(t *testing.T) {
	silent := func(map[int]Status) {}
	failing := func(w *world) func(map[int]Status) {
		return mutateEach(w, func(st *Status, _ int) { st.Phase, st.UnsavedReason = HostSaving, "the store says no" })
	}
	flapping := func(w *world) func(map[int]Status) {
		return mutateEach(w, func(st *Status, look int) {
			st.Phase, st.UnsavedReason = HostReady, fmt.Sprint("for reason ", look)
			st.Snapshot = Snapshot{
				Manifest: fmt.Sprint("m", look),
				At:       w.now.Add(time.Duration(look) * time.Millisecond),
			}
			st.Connections = []Connection{{Kind: "shell", Source: fmt.Sprint(look)}}
		})
	}
	for _, c := range []struct {
		name string
		say  func(*world) func(map[int]Status)
		fail error
		stay bool // the provider keeps the files
		down bool // the owner ends the session, otherwise its lease does
		lost string
	}{
		{name: "silent hosts", say: func(*world) func(map[int]Status) {
			return silent
		}, lost: "did not confirm its last snapshot"},
		{name: "silent hosts, kept files", say: func(*world) func(map[int]Status) {
			return silent
		}, stay: true, down: true, lost: "did not confirm"},
		{name: "failing saves", say: failing, lost: "the store says no"},
		{name: "failing saves, stopped", say: failing, down: true, lost: "the store says no"},
		{name: "flapping hosts", say: flapping, lost: "for reason"},
		{
			name: "flapping hosts, stopped", say: flapping, stay: true, down: true,
			lost: "for reason",
		},
		{name: "unreachable control store", fail: errors.New("no route"), lost: "did not confirm"},
		{
			name: "unreachable control store, stopped", fail: errors.New("no route"), stay: true, down: true,
			lost: "did not confirm",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(21)
			id := w.addSession("demo", 1)
			w.settle(t, func() bool { return w.state(id) == Ready })
			k := w.newKeeper()
			k.Timeouts = map[string]Timeouts{"fake": {VisibilityDelay: time.Minute, KeepsFiles: c.stay}}
			h := hostileControl{fakeControl: fakeControl{w}, err: c.fail}
			if c.say != nil {
				h.mutate = c.say(w)
			}
			k.Control = h
			s := w.sessions[id]
			by := s.LeaseUntil.Add(k.timeouts(&s).Grace + k.timeouts(&s).End)
			if c.down {
				if _, err := k.Stop(t.Context(), id, "ana", "down", false); err != nil {
					t.Fatal(err)
				}
				s = w.sessions[id]
				by = ReleaseBy(&s, k.timeouts(&s))
			} else {
				w.now = s.LeaseUntil.Add(-time.Minute)
			}
			for i := 0; len(w.runningMachines()[id]) > 0 && w.now.Before(by.Add(time.Hour)); i++ {
				w.pass(t.Context(), k)
				w.now = w.now.Add(15 * time.Second)
			}
			s = w.sessions[id]
			if len(w.runningMachines()[id]) > 0 || w.now.Sub(by) > 2*time.Minute {
				t.Fatalf("at %s, %s after its limit, it is %s: %s", w.now, w.now.Sub(by), s.State, s.Why)
			}
			if early := by.Add(-3 * time.Minute); w.now.Before(early) {
				t.Errorf("it was released at %s, its limit is %s", w.now, by)
			}
			named := func(text string) bool { return strings.Contains(text, c.lost) }
			if !named(s.UnsavedWork) ||
				!slices.ContainsFunc(
					w.events[id],
					func(e LoggedEvent) bool { return e.Kind == "lost" && named(e.Text) },
				) ||
				!slices.ContainsFunc(w.audit, func(e action.Entry) bool { return named(e.Outcome) }) {
				t.Errorf("what was lost is not named: %q, %v", s.UnsavedWork, w.events[id])
			}
		})
	}
}

// TestLimitsWritesForFlappingHosts checks that hosts that report something new at every poll
// neither delay the end of the lease nor flood the database.
func TestLimitsWritesForFlappingHosts(t *testing.T) {
	w := newWorld(22)
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k := w.newKeeper()
	k.Control = hostileControl{fakeControl: fakeControl{w}, mutate: mutateEach(w, func(st *Status, look int) {
		st.Phase = []Phase{HostReady, HostWarned}[look%2]
		st.Connections = []Connection{{Kind: "shell", Source: fmt.Sprint(look)}}
		st.Snapshot = Snapshot{
			Manifest: fmt.Sprint("m", look),
			At:       w.now.Add(time.Duration(look%1000) * time.Millisecond),
		}
		st.Terminals = -look
	})}
	before, audited := w.sessions[id].Version, len(w.audit)
	for range 60 {
		w.pass(t.Context(), k)
		w.now = w.now.Add(time.Second)
	}
	if v := w.sessions[id].Version - before; v > 2*maxNotes+5 || len(w.audit)-audited > 2*maxNotes+5 {
		t.Errorf(
			"within a minute the record changed %d times, with %d entries of the audit log",
			v,
			len(w.audit)-audited,
		)
	}
	w.now = w.sessions[id].LeaseUntil.Add(time.Hour)
	w.pass(t.Context(), k)
	if s := w.sessions[id]; s.State != Ending {
		t.Errorf("an hour after its lease it is %s", s.State)
	}
}

// TestDiscardNeedsNoHost checks that discarded sessions end at once even if their hosts are
// unreachable.
func TestDiscardNeedsNoHost(t *testing.T) {
	w := newWorld(23)
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k := w.newKeeper()
	k.Control = hostileControl{fakeControl: fakeControl{w}, err: errors.New("no route")}
	if _, err := k.Stop(t.Context(), id, "ana", "down", true); err != nil {
		t.Fatal(err)
	}
	w.pass(t.Context(), k)
	if s := w.sessions[id]; len(w.runningMachines()[id]) > 0 || s.UnsavedWork != "" {
		t.Errorf("it is %s (%s), lost %q", s.State, s.Why, s.UnsavedWork)
	}
	// The same holds if only the order cannot be written.
	id = w.addSession("other", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k = w.newKeeper()
	k.Control = readOnlyControl{fakeControl{w}}
	if _, err := k.Stop(t.Context(), id, "ana", "down", true); err != nil {
		t.Fatal(err)
	}
	w.pass(t.Context(), k)
	if s := w.sessions[id]; len(w.runningMachines()[id]) > 0 {
		t.Errorf("it is %s (%s)", s.State, s.Why)
	}
}

type readOnlyControl struct{ fakeControl }

func (readOnlyControl) WriteOrder(context.Context, *Session, Order, string) error {
	return errors.New("read-only file system")
}

// TestRejectsImpossibleEventCount checks that an impossible count of event files is reported and
// ignored.
func TestRejectsImpossibleEventCount(t *testing.T) {
	for _, events := range []int64{math.MaxInt64, -1, firstEventFiles + 1_000_000} {
		w := newWorld(24)
		id := w.addSession("demo", 1)
		w.settle(t, func() bool { return w.state(id) == Ready })
		k := w.newKeeper()
		var log bytes.Buffer
		k.Log = slog.New(slog.NewTextHandler(&log, nil))
		reads := 0
		k.Control = hostileControl{
			fakeControl: fakeControl{w},
			reads:       &reads,
			mutate:      mutateEach(w, func(st *Status, _ int) { st.Events = events }),
		}
		for range 5 {
			w.pass(t.Context(), k)
			w.now = w.now.Add(10 * time.Second)
		}
		s := w.sessions[id]
		if reads > 5*eventFilesPerPass || !strings.Contains(s.RejectedFields, "node 0: events") ||
			!slices.ContainsFunc(w.events[id], func(e LoggedEvent) bool { return e.Kind == "wrong" }) {
			t.Errorf("%d: %d files were read; wrong %q", events, reads, s.RejectedFields)
		}
	}
	// A plausible count is read in parts, each file once.
	w := newWorld(25)
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k := w.newKeeper()
	reads := 0
	k.Control = hostileControl{
		fakeControl: fakeControl{w},
		reads:       &reads,
		mutate:      mutateEach(w, func(st *Status, _ int) { st.Events = 150 }),
	}
	s := w.sessions[id]
	for part := range 3 { // each pass reads one part
		if _, err := k.observe(t.Context(), &s); err != nil || reads > (part+1)*eventFilesPerPass {
			t.Errorf("%d files are read by %d looks: %v", reads, part+1, err)
		}
	}
	if newest, _ := k.Store.NewestEventFile(t.Context(), id, 0); newest != 150 || reads > 150 {
		t.Errorf("%d files are kept after %d reads, want 150", newest, reads)
	}
}

func TestSanitizesStatus(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	s := &Session{
		RequestedAt: now.Add(-time.Hour), LaunchedAt: now.Add(-time.Hour), OrderSerial: 7, SaveRequest: 2, Epoch: 3,
	}
	plain := Status{
		Phase:         HostReady,
		At:            now,
		Boot:          "b",
		OrderSerial:   7,
		AnsweredSave:  2,
		Activity:      "busy",
		ActivitySince: now.Add(-time.Minute),
		EndsAt:        now.Add(time.Hour),
		LeaseUntil:    now.Add(time.Hour),
		Address:       "10.0.0.7",
		Events:        9,
		Terminals:     2,
		Steps:         []SetupStep{{Name: "work", State: "done", StartedAt: now, FinishedAt: now}},
		Connections: []Connection{
			{Kind: "ssh", Source: "ana", Since: now.AddDate(0, -1, 0)},
		},
		Snapshot: Snapshot{Manifest: "manifests/3-1.json", At: now, Epoch: 3, Bytes: 5},
	}
	far := time.Date(
		9999,
		12,
		31,
		23,
		59,
		59,
		0,
		time.FixedZone("", -23*3600),
	) // the year 10000 in UTC, which JSON refuses
	for _, c := range []struct {
		want   string
		change func(*Status)
	}{
		{"", func(*Status) {}},
		{"", func(st *Status) { st.Why = strings.Repeat("é", 1<<20) }},
		{"address", func(st *Status) { st.Address = "10.0.0.7\nevil slots=99" }},
		{"at", func(st *Status) { st.At = now.Add(time.Hour) }},
		{"at", func(st *Status) { st.At = far }},
		{"since", func(st *Status) { st.ActivitySince = far }},
		{"ends_at", func(st *Status) { st.EndsAt = far }},
		{"lease_until", func(st *Status) { st.LeaseUntil = far }},
		{"lease_until", func(st *Status) { st.LeaseUntil = time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"serial", func(st *Status) { st.OrderSerial = math.MaxInt64 }},
		{"saved", func(st *Status) { st.AnsweredSave = 3 }},
		{"events", func(st *Status) { st.Events = math.MaxInt64 }},
		{"events", func(st *Status) { st.Events = math.MinInt64 }},
		{"activity", func(st *Status) { st.Activity = "asleep" }},
		{"phase", func(st *Status) { st.Phase = "immortal" }},
		{"terminals", func(st *Status) { st.Terminals = math.MaxInt }},
		{"boot", func(st *Status) { st.Boot = strings.Repeat("x", 1<<20) }},
		{"steps", func(st *Status) { st.Steps = make([]SetupStep, 100_000) }},
		{"steps", func(st *Status) { st.Steps[0].State = "?" }},
		{"steps", func(st *Status) { st.Steps[0].FinishedAt = far }},
		{"connections", func(st *Status) { st.Connections = make([]Connection, 100_000) }},
		{"connections", func(st *Status) { st.Connections[0].Since = far }},
		{"connections", func(st *Status) { st.Connections[0].Source = strings.Repeat("x", 1000) }},
		{"snapshot", func(st *Status) { st.Snapshot.At = now.AddDate(1, 0, 0) }},
		{"snapshot", func(st *Status) { st.Snapshot.Bytes = -1 }},
		{"snapshot", func(st *Status) { st.Snapshot.Epoch = 4 }},
		{"snapshot", func(st *Status) { st.Snapshot.Manifest = "../../etc/passwd\n" }},
	} {
		st := plain
		st.Steps, st.Connections = slices.Clone(plain.Steps), slices.Clone(plain.Connections)
		c.change(&st)
		wrong, ok := st.sanitize(s, now)
		if got := strings.Join(wrong, ","); got != c.want || ok != (c.want != "phase") {
			t.Errorf("%q, want %q", got, c.want)
		}
		if len(st.Why) > 2*maxStatusText || len(st.Steps) > maxSetupSteps || len(st.Connections) > maxConnections ||
			st.At.After(now.Add(clockLeeway)) ||
			st.Snapshot.At.After(now.Add(clockLeeway)) {
			t.Errorf("%s: what was found wrong is kept: %.200v", c.want, st)
		}
		if again, _ := st.sanitize(s, now); len(again) > 0 && c.want != "phase" {
			t.Errorf("%s: checked again it is wrong in %v", c.want, again)
		}
	}
}

// memoryDocuments is a ControlStore in memory.
type memoryDocuments map[string]string

func (f memoryDocuments) Get(_ context.Context, key string, limit int64) (checkpoint.Object, error) {
	text, ok := f[key]
	switch {
	case !ok:
		return checkpoint.Object{}, checkpoint.ErrNotFound
	case int64(len(text)) > limit:
		return checkpoint.Object{}, checkpoint.ErrTooLarge
	}
	return checkpoint.Object{Data: []byte(text), Version: "1"}, nil
}

func (f memoryDocuments) Replace(_ context.Context, key string, data []byte, _ string) (string, error) {
	f[key] = string(data)
	return "2", nil
}

// TestUnreadableHostDocuments checks that an unreadable document of one node does not hide the
// others, and that an order that no keeper wrote is replaced.
func TestUnreadableHostDocuments(t *testing.T) {
	s := &Session{ID: "s", Name: "demo", Epoch: 1, OrderSerial: 3, ControlPrefix: "x"}
	good := `{"session":"s","node":1,"epoch":1,"phase":"ready"}`
	for _, bad := range []string{
		"", "{", strings.Repeat("[", 200), strings.Repeat(" ", maxStatus+1),
		`{"steps":[` + strings.Repeat("{},", 20_000) + `{}]}`, `{"events":1e400}`, `{"at":"soon"}`,
	} {
		f := memoryDocuments{
			"status-0.json":    bad,
			"status-1.json":    good,
			OrderFile:          bad,
			"events-0/1.jsonl": bad + "\n{\"kind\":\"ready\"}\n",
		}
		d := Documents{Open: func(context.Context, *Session) (ControlStore, error) { return f, nil }}
		hosts, broken, err := d.Hosts(t.Context(), s, 2)
		if err != nil || len(hosts) != 1 || hosts[1].Phase != HostReady || broken[0] == "" {
			t.Errorf("%.20q: %v, %v, %v", bad, hosts, broken, err)
		}
		if o, version, err := d.Order(t.Context(), s); len(bad) <= maxOrder &&
			(err != nil || o.Session != "" || version != "1") {
			t.Errorf("%.20q as the order: %v %q %v", bad, o, version, err)
		}
		events, err := d.Events(t.Context(), s, 0, 1)
		if err != nil || len(events) == 0 || len(bad) < 1000 && events[len(events)-1].Kind != "ready" {
			t.Errorf("%.20q as events: %v %v", bad, events, err)
		}
	}
	d := Documents{Open: func(context.Context, *Session) (ControlStore, error) {
		return memoryDocuments{
			OrderFile: `{"session":"s","epoch":1,"serial":9223372036854775807,"lease_until":"2999-01-01T00:00:00Z"}`,
		}, nil
	}}
	if o, version, err := d.Order(t.Context(), s); err != nil || o.Serial != 0 || version != "1" {
		t.Errorf("an order with a serial that no keeper gave: %v %q %v", o, version, err)
	}
}

// conflictingStore is a Store in which every write conflicts.
type conflictingStore struct{ memoryStore }

func (conflictingStore) Put(context.Context, Session, []Event, ...action.Entry) (Session, error) {
	return Session{}, ErrConflict
}

// TestRetriesAreBounded checks that every loop of the keeper ends: at once when its context is
// canceled, and after a bounded number of write conflicts.
func TestRetriesAreBounded(t *testing.T) {
	calls := map[string]func(ctx context.Context, k *Keeper, id string) error{
		"Keep":      func(ctx context.Context, k *Keeper, id string) error { _, err := k.Keep(ctx, id); return err },
		"Reconcile": func(ctx context.Context, k *Keeper, _ string) error { return k.Reconcile(ctx, "fake") },
		"Stop": func(ctx context.Context, k *Keeper, id string) error {
			_, err := k.Stop(ctx, id, "ana", "down", false)
			return err
		},
		"Prolong": func(ctx context.Context, k *Keeper, id string) error {
			_, err := k.Extend(ctx, id, "ana", k.Now().AddDate(1, 0, 0))
			return err
		},
		"collect": func(ctx context.Context, k *Keeper, id string) error {
			s, _ := k.Store.Session(context.Background(), id)
			return k.collectEvents(ctx, &s, map[int]Status{0: {Events: math.MaxInt64}})
		},
	}
	for name, call := range calls {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(26)
			id := w.addSession("demo", 1)
			w.settle(t, func() bool { return w.state(id) == Ready })
			k := w.newKeeper()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := call(ended, k, id); !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a context that is over: %v", name, err)
			}
			k.Store = conflictingStore{memoryStore{w}}
			_ = call(t.Context(), k, id) // the error itself does not matter
		})
	}
}
