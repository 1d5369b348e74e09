package session

import (
	"strings"
	"testing"
	"time"
)

// TestRemovesOrphanRole checks that a role without a session is recorded and deleted after the
// grace period of orphans. A new role may belong to a launch that another database records.
func TestRemovesOrphanRole(t *testing.T) {
	w := newWorld(8)
	w.roles["unknown-1"] = w.now
	k := w.newKeeper()
	w.pass(t.Context(), k)
	if len(w.sessions) != 0 {
		t.Fatalf("records of a role that was just made: %+v", w.sessions)
	}
	w.now = w.now.Add(31 * time.Minute)
	w.pass(t.Context(), k)
	if s := w.sessions["unknown-1"]; !s.Orphan || s.State.IsFinal() ||
		!strings.Contains(s.Why, "its role was found without a record") {
		t.Fatalf("records: %+v", w.sessions)
	}
	w.settle(t, func() bool { return w.state("unknown-1").IsFinal() })
	if len(w.roles) != 0 {
		t.Errorf("roles %v", w.roles)
	}
}

// TestReportsUndeletedRole checks that a session stays open while its role is not deleted, and that
// a role that reappears afterwards is deleted or reported.
func TestReportsUndeletedRole(t *testing.T) {
	w := newWorld(9)
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	w.stuckRoles[id] = true
	if _, err := w.newKeeper().Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return strings.Contains(w.sessions[id].Why, "not removed yet: role of "+id) })
	if w.state(id) != Ending {
		t.Errorf("it is %s", w.state(id))
	}
	w.stuckRoles[id] = false
	w.settle(t, func() bool { return w.state(id).IsFinal() })
	ended := w.sessions[id].EndedAt

	w.now = w.now.Add(time.Minute)
	w.roles[id], w.stuckRoles[id] = w.now, true
	w.settle(t, func() bool { return strings.Contains(w.sessions[id].Why, "not removed yet: role of "+id) })
	w.stuckRoles[id] = false
	w.settle(t, func() bool { return len(w.roles) == 0 && !strings.Contains(w.sessions[id].Why, "not removed yet") })
	if s := w.sessions[id]; !s.State.IsFinal() || !s.EndedAt.Equal(ended) {
		t.Errorf("it is %s since %s, and ended at %s", s.State, s.EndedAt, ended)
	}
}

func TestKeepsRoleOfRunningSession(t *testing.T) {
	w := newWorld(10)
	id := w.addSession("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	w.now = w.now.Add(2 * time.Hour)
	w.pass(t.Context(), w.newKeeper())
	if _, there := w.roles[id]; !there || w.state(id) != Ready {
		t.Errorf("roles %v, %s", w.roles, w.state(id))
	}
}
