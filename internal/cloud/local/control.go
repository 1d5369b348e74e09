package local

import (
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/curfew-dev/curfew/internal/session"
)

// controlDir is the folder of the documents between the keeper and the agent; "" where they
// are in an object store.
func (m *machine) controlDir() string {
	u, err := url.Parse(m.Control)
	if err != nil || u.Scheme != "file" || u.Host != "" {
		return ""
	}
	return filepath.FromSlash(u.Path)
}

// said is what its agent said last; false where that is not known here.
func (m *machine) said() (session.Status, bool) {
	dir := m.controlDir()
	if dir == "" {
		return session.Status{}, false
	}
	var s session.Status
	there, err := readJSON(filepath.Join(dir, "status-"+strconv.Itoa(m.Node)+".json"), &s)
	return s, err == nil && there && s.Session == m.Session && s.Node == m.Node
}

// over says whether its agent has nothing more to do: the work is saved, or given up. An
// agent that is told to go ends as well, and its session goes on.
func (m *machine) over() bool {
	s, known := m.said()
	return !known || s.Phase == session.HostEnding
}

// lease is until when it may run: the keeper's newest order, else what it was launched with.
func (m *machine) lease() (until string) {
	at := m.LeaseUntil
	if dir := m.controlDir(); dir != "" {
		var o session.Order
		if there, err := readJSON(filepath.Join(dir, "order.json"), &o); err == nil && there && o.Session == m.Session && !o.Lease.IsZero() {
			at = o.Lease
		}
	}
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(timeForm)
}
