package local

import (
	"cmp"
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// maxStatus bounds a status in bytes.
const maxStatus = 256 << 10

// lastStatus returns the last status of the agent; false if it is unknown here.
func (m *machine) lastStatus(ctx context.Context) (session.Status, bool) {
	dir, ok := fileURLPath(m.Control)
	if !ok {
		return session.Status{}, false
	}
	at := tree{base: dir}
	if m.User != nil {
		at = tree{base: m.UserDir, rel: filepath.Join(m.Session, controlName)}
	}
	var s session.Status
	there, err := at.readJSON(ctx, "status-"+strconv.Itoa(cmp.Or(m.HostNumber, m.Node))+".json", maxStatus, &s)
	return s, err == nil && there && s.Session == m.Session && s.Node == m.Node
}

// agentDone reports whether the agent has nothing left to do: the work is saved or discarded. An
// agent that was only told to go ends too, while its session continues.
func (m *machine) agentDone(ctx context.Context) bool {
	s, known := m.lastStatus(ctx)
	return !known || s.Phase == session.HostEnding
}

// lease returns the current lease: that of the newest order, else of the launch.
func (m *machine) lease() (until string) {
	at := m.leaseUntil()
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(timeForm)
}

// leaseUntil returns the lease as a time; zero if unknown.
func (m *machine) leaseUntil() time.Time {
	if o, ok := m.lastOrder(); ok && !o.LeaseUntil.IsZero() {
		return o.LeaseUntil
	}
	return m.LeaseUntil
}
