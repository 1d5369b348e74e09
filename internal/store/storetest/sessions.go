package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/session"
)

var sessions = []test{
	{"every field comes back", func(t *testing.T, b *Backend) {
		s := filled[session.Session]()
		s.Version = 0
		saved := must(b.Sessions.Put(t.Context(), s, nil))(t)
		s.Version = 1
		if diff := cmp.Diff(s, saved); diff != "" {
			t.Errorf("what Put returns (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(s, must(b.Reopen(t).Sessions.Session(t.Context(), s.ID))(t)); diff != "" {
			t.Errorf("what is kept (-want +got):\n%s", diff)
		}
	}},
	{"what cannot be kept is refused", func(t *testing.T, b *Backend) {
		for name, s := range map[string]session.Session{
			"no id": {Name: "a"}, "no name": {ID: "a"}, "no text": {ID: "a", Name: "\xff"},
		} {
			if _, err := b.Sessions.Put(t.Context(), s, nil); err == nil {
				t.Errorf("%s: it was written", name)
			}
		}
		if _, err := b.Sessions.Session(t.Context(), "a"); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("a session that is not there: %v", err)
		}
	}},
	{"a name is unique among those that are not over", func(t *testing.T, b *Backend) {
		first := must(b.Sessions.Put(t.Context(), asked("1", "demo"), nil))(t)
		if _, err := b.Sessions.Put(t.Context(), asked("2", "demo"), nil); !errors.Is(err, session.ErrNameTaken) {
			t.Errorf("a second one of the name: %v, want ErrTaken", err)
		}
		must(b.Sessions.Put(t.Context(), asked("3", "other"), nil))(t)
		for _, over := range []session.State{session.Ended, session.Failed} {
			first.State = over
			first = must(b.Sessions.Put(t.Context(), first, nil))(t)
			next := must(b.Sessions.Put(t.Context(), asked("4"+string(over), "demo"), nil))(t)
			first.State = session.Ending // the name belongs to another one now
			if _, err := b.Sessions.Put(t.Context(), first, nil); !errors.Is(err, session.ErrConflict) {
				t.Errorf("one that is not over any more, of a name that is taken: %v, want ErrConflict", err)
			}
			next.State = session.Ended
			must(b.Sessions.Put(t.Context(), next, nil))(t)
		}
		if got := len(must(b.Sessions.Sessions(t.Context(), session.Query{Name: "demo"}))(t)); got != 3 {
			t.Errorf("%d sessions of the name, want 3", got)
		}
		if open := must(b.Sessions.Sessions(t.Context(), session.Query{OpenOnly: true}))(t); len(open) != 1 ||
			open[0].ID != "3" {
			t.Errorf("open: %v, want the other alone", open)
		}
	}},
	{"the newest first", func(t *testing.T, b *Backend) {
		for i, id := range []string{"b", "c", "a"} {
			s := asked(id, "n"+id)
			s.RequestedAt = noon.Add(time.Duration(i) * time.Hour)
			must(b.Sessions.Put(t.Context(), s, nil))(t)
		}
		var got string
		for _, s := range must(b.Sessions.Sessions(t.Context(), session.Query{}))(t) {
			got += s.ID
		}
		if got != "acb" {
			t.Errorf("the sessions come as %s, want acb", got)
		}
		old := must(b.Sessions.Session(t.Context(), "b"))(t)
		old.State = session.Ended
		must(b.Sessions.Put(t.Context(), old, nil))(t)
		got = ""
		for _, s := range must(b.Sessions.Sessions(t.Context(), session.Query{Since: noon.Add(2 * time.Hour)}))(t) {
			got += s.ID
		}
		if got != "ac" { // c is open
			t.Errorf("the open ones and those since 14:00 are %s, want ac", got)
		}
	}},
	{"one of many writers goes on, with its events and its entry", sessionWriters},
	{"of many of one name one is made", func(t *testing.T, b *Backend) {
		var made atomic.Int64
		var all sync.WaitGroup
		for i := range 8 {
			conn := b.Reopen(t)
			all.Go(func() {
				_, err := conn.Sessions.Put(t.Context(), asked(fmt.Sprint("id", i), "demo"), nil)
				if err == nil {
					made.Add(1)
				} else if !errors.Is(err, session.ErrNameTaken) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if made.Load() != 1 {
			t.Errorf("%d sessions of one name were made", made.Load())
		}
	}},
	{"events", sessionEvents},
	{"an installation has one name for all", func(t *testing.T, b *Backend) {
		names := make([]string, 8)
		var all sync.WaitGroup
		for i := range names {
			conn := b.Reopen(t)
			all.Go(func() { names[i], _ = conn.Sessions.Installation(t.Context()) })
		}
		all.Wait()
		for _, n := range names {
			if n == "" || n != names[0] {
				t.Fatalf("the names are %q", names)
			}
		}
	}},
}

// asked returns a newly requested session.
func asked(id, name string) session.Session {
	return session.Session{ID: id, Name: name, State: session.Requested, RequestedAt: noon}
}

func sessionWriters(t *testing.T, b *Backend) {
	s := must(b.Sessions.Put(t.Context(), asked("1", "demo"), nil))(t)
	var made atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		conn := b.Reopen(t)
		all.Go(func() {
			next := s
			next.State, next.Why = session.Launching, fmt.Sprint("writer ", i)
			events := []session.Event{{At: noon, Node: session.KeeperNode, Kind: "launching", Text: next.Why}}
			_, err := conn.Sessions.Put(t.Context(), next, events, action.Entry{
				At: noon, What: action.EventSession, Item: "1", Because: next.Why,
			})
			if err == nil {
				made.Add(1)
			} else if !errors.Is(err, session.ErrConflict) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	kept := must(b.Sessions.Session(t.Context(), "1"))(t)
	events := must(b.Sessions.Events(t.Context(), "1"))(t)
	var entries []action.Entry
	no(t, b.Actions.Entries(t.Context(), action.Query{}, func(e action.Entry) error {
		entries = append(entries, e)
		return nil
	}))
	if made.Load() != 1 || kept.Version != 2 || len(events) != 1 || len(entries) != 1 || events[0].Text != kept.Why ||
		entries[0].Because != kept.Why {
		t.Errorf("%d wrote; kept version %d %q, events %v, entries %v", made.Load(), kept.Version,
			kept.Why, events, entries)
	}
}

func sessionEvents(t *testing.T, b *Backend) {
	s := must(b.Sessions.Put(t.Context(), asked("1", "demo"), []session.Event{
		{At: noon.Add(3 * time.Second), Kind: "gate", Text: "allow"},
	}))(t)
	file := func(n int, kinds ...string) (out []session.Event) {
		for _, k := range kinds {
			out = append(out, session.Event{
				At: noon.Add(time.Duration(n) * time.Second), Kind: k, Text: "text \x00\xff of " + k,
			})
		}
		return out
	}
	for range 2 { // a stored file changes nothing
		if err := b.Sessions.AddEvents(t.Context(), s.ID, 0, 2, file(2, "idle", "warned")); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.Sessions.AddEvents(t.Context(), s.ID, 0, 1, file(1, "ready")),
		b.Sessions.AddEvents(t.Context(), s.ID, 1, 1, file(2, "busy")),
		b.Sessions.AddEvents(t.Context(), "other", 0, 9,
			file(1, "x"))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range must(b.Reopen(t).Sessions.Events(t.Context(), s.ID))(t) {
		got = append(got, fmt.Sprintf("%v %d/%d/%d %s", e.At.Sub(noon).Seconds(), e.Node, e.File, e.Line, e.Kind))
	}
	want := []string{"1 0/1/0 ready", "2 0/2/0 idle", "2 0/2/1 warned", "2 1/1/0 busy", "3 -1/1/0 gate"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for node, want := range map[int]int64{0: 2, 1: 1, 2: 0} {
		if n := must(b.Sessions.NewestEventFile(t.Context(), s.ID, node))(t); n != want {
			t.Errorf("the newest file of node %d is %d, want %d", node, n, want)
		}
	}
}
