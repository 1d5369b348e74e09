package session

import (
	"strings"
	"testing"
	"time"
)

// TestRoleWithoutARecordIsRemoved: a role that no record knows gets one, which people see, and is
// removed after the time that machines have. One that was just made may be that of a launch whose
// record is in another state.
func TestRoleWithoutARecordIsRemoved(t *testing.T) {
	w := newWorld(8)
	w.roles["unknown-1"] = w.now
	k := w.keep()
	w.pass(t.Context(), k)
	if len(w.sessions) != 0 {
		t.Fatalf("records of a role that was just made: %+v", w.sessions)
	}
	w.now = w.now.Add(31 * time.Minute)
	w.pass(t.Context(), k)
	if s := w.sessions["unknown-1"]; !s.Adopted || s.State.Over() ||
		!strings.Contains(s.Why, "its role was found without a record") {
		t.Fatalf("records: %+v", w.sessions)
	}
	w.settle(t, func() bool { return w.state("unknown-1").Over() })
	if len(w.roles) != 0 {
		t.Errorf("roles %v", w.roles)
	}
}

// TestRoleThatStaysIsNamed: a session whose role is not deleted does not end, and says so. One that
// is seen after the end of its session is removed, or said in the record.
func TestRoleThatStaysIsNamed(t *testing.T) {
	w := newWorld(9)
	id := w.ask("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	w.stuck[id] = true
	if _, err := w.keep().Stop(t.Context(), id, "ana", "down", false); err != nil {
		t.Fatal(err)
	}
	w.settle(t, func() bool { return strings.Contains(w.sessions[id].Why, "not removed yet: role of "+id) })
	if w.state(id) != Ending {
		t.Errorf("it is %s", w.state(id))
	}
	w.stuck[id] = false
	w.settle(t, func() bool { return w.state(id).Over() })
	ended := w.sessions[id].EndedAt

	w.now = w.now.Add(time.Minute)
	w.roles[id], w.stuck[id] = w.now, true
	w.settle(t, func() bool { return strings.Contains(w.sessions[id].Why, "not removed yet: role of "+id) })
	w.stuck[id] = false
	w.settle(t, func() bool { return len(w.roles) == 0 && !strings.Contains(w.sessions[id].Why, "not removed yet") })
	if s := w.sessions[id]; !s.State.Over() || !s.EndedAt.Equal(ended) {
		t.Errorf("it is %s since %s, and ended at %s", s.State, s.EndedAt, ended)
	}
}

// TestRoleOfRunningSessionStays: roles of sessions with machines, and of those that are not over,
// are left alone.
func TestRoleOfRunningSessionStays(t *testing.T) {
	w := newWorld(10)
	id := w.ask("demo", 1)
	w.settle(t, func() bool { return w.state(id) == Ready })
	w.now = w.now.Add(2 * time.Hour)
	w.pass(t.Context(), w.keep())
	if _, there := w.roles[id]; !there || w.state(id) != Ready {
		t.Errorf("roles %v, %s", w.roles, w.state(id))
	}
}
