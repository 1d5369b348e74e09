package session

import (
	"slices"
	"testing"
	"time"
)

// TestRecordsLiveConnections checks that connections are written only when they change, and that
// those of a stale status are dropped.
func TestRecordsLiveConnections(t *testing.T) {
	w := newWorld(7)
	id := w.addSession("demo", 2)
	w.settle(t, func() bool { return w.state(id) == Ready })
	k := w.newKeeper()
	now := func(node int, at time.Time, c ...Connection) {
		t.Helper()
		st := w.status[id][node]
		st.At, st.Connections = at, c
		w.status[id][node] = st
		w.pass(t.Context(), k)
	}
	since := w.now.Add(-time.Hour)
	shell, port := Connection{
		Kind: "shell", Source: "ana-0f3a", Since: since,
	}, Connection{Kind: "port", Source: "bo-77", Since: since}
	want := func(what string, want ...NodeConnection) {
		t.Helper()
		if got := w.sessions[id].Connections; !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	want("at first")
	now(1, w.now, shell)
	now(0, w.now, shell, port)
	all := []NodeConnection{{0, shell}, {0, port}, {1, shell}}
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
	want("one fewer", NodeConnection{0, port}, NodeConnection{1, shell})
	now(0, w.now, shell)
	want("another one in its place", NodeConnection{0, shell}, NodeConnection{1, shell})
	w.now = w.now.Add(statusMaxAge + time.Second)
	now(0, w.now, port)
	want("node 1 is silent", NodeConnection{0, port})
	now(0, w.now)
	want("none")
}
