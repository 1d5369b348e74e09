package local

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/session"
)

// maxStatus bounds a status, in bytes.
const maxStatus = 256 << 10

// said is what its agent said last; false where that is not known here.
func (m *machine) said(ctx context.Context) (session.Status, bool) {
	dir, ok := folderOf(m.Control)
	if !ok {
		return session.Status{}, false
	}
	at := tree{base: dir}
	if m.User != nil {
		at = tree{base: m.Own, rel: filepath.Join(m.Session, controlName)}
	}
	var s session.Status
	there, err := at.readJSON(ctx, "status-"+strconv.Itoa(m.Node)+".json", maxStatus, &s)
	return s, err == nil && there && s.Session == m.Session && s.Node == m.Node
}

// over says whether its agent has nothing more to do: the work is saved, or given up. An
// agent that is told to go ends as well, and its session goes on.
func (m *machine) over(ctx context.Context) bool {
	s, known := m.said(ctx)
	return !known || s.Phase == session.HostEnding
}

// lease is until when it may run: the keeper's newest order, else what it was launched with.
func (m *machine) lease() (until string) {
	at := m.leaseUntil()
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(timeForm)
}

// leaseUntil is that as a time; zero where it is not known.
func (m *machine) leaseUntil() time.Time {
	if o, ok := m.ordered(); ok && !o.LeaseUntil.IsZero() {
		return o.LeaseUntil
	}
	return m.LeaseUntil
}
