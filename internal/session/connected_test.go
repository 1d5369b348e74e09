package session

import (
	"slices"
	"testing"
	"time"
)

// TestConnectionsAreRecorded holds that a record has the connections that its hosts say, is
// written when they change and not otherwise, and forgets those of a host that fell silent.
func TestConnectionsAreRecorded(t *testing.T) {
	w := newWorld(7)
	id := w.ask("demo", 2)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k := w.keep()
	now := func(node int, at time.Time, c ...Connection) {
		t.Helper()
		st := w.status[id][node]
		st.At, st.Connections = at, c
		w.status[id][node] = st
		w.pass(t.Context(), k)
	}
	since := w.now.Add(-time.Hour)
	shell, port := Connection{
		Kind: "shell", From: "ana-0f3a", Since: since,
	}, Connection{Kind: "port", From: "bo-77", Since: since}
	want := func(what string, want ...Connected) {
		t.Helper()
		if got := w.sessions[id].Connections; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("at first")
	now(1, w.now, shell)
	now(0, w.now, shell, port)
	all := []Connected{{0, shell}, {0, port}, {1, shell}}
	want("three", all...)
	version := w.sessions[id].Version
	for range 3 {
		w.now = w.now.Add(10 * time.Second)
		now(0, w.now, shell, port)
		now(1, w.now, shell)
	}
	if v := w.sessions[id].Version; v != version {
		t.Errorf("nothing changed, and version %d became %d", version, v)
	}
	now(0, w.now, port)
	want("one fewer", Connected{0, port}, Connected{1, shell})
	now(0, w.now, shell)
	want("another one in its place", Connected{0, shell}, Connected{1, shell})
	w.now = w.now.Add(silent + time.Second)
	now(0, w.now, port)
	want("node 1 is silent", Connected{0, port})
	now(0, w.now)
	want("none")
}
