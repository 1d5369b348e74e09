package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/session"
)

// sessions stores sessions and their events.
type sessions struct{ *database }

// Sessions returns the store of sessions.
func (s *Store) Sessions() session.Store { return sessions{s.db} }

// sessionRow is a session. Body is the complete session; the other columns are indexed.
type sessionRow struct {
	ID          string                    `db:"id"`
	Name        string                    `db:"name"`
	State       session.State             `db:"state"`
	Over        flag                      `db:"over"`
	RequestedAt instant                   `db:"requested_at"`
	Version     int64                     `db:"version"`
	Body        document[session.Session] `db:"body"`
}

var sessionTable = describe("sessions", sessionRow{})

func (r sessionRow) session() session.Session {
	s := r.Body.of
	s.Version = r.Version
	return s
}

// Scan accepts 0 or 1.
func (f *flag) Scan(from any) error {
	v, ok := from.(int64)
	if !ok {
		return fmt.Errorf("a flag is kept as %T", from)
	}
	*f = v != 0
	return nil
}

// Put implements session.Store.
func (d sessions) Put(ctx context.Context, s session.Session, events []session.Event, entries ...action.Entry) (
	session.Session, error) {
	row := sessionRow{
		ID: s.ID, Name: s.Name, State: s.State, Over: flag(s.State.IsFinal()), RequestedAt: at(s.RequestedAt),
		Version: s.Version + 1, Body: document[session.Session]{s},
	}
	err := exact(s.ID, s.Name)
	if s.ID == "" || s.Name == "" {
		err = errors.New("it needs an id and a name")
	}
	if err == nil {
		s.Why, s.EndReason, s.LaunchStep.Error, s.EndStep.Error = prose(s.Why), prose(s.EndReason), prose(
			s.LaunchStep.Error), prose(
			s.EndStep.Error)
		for i := range s.CapacityFailures {
			s.CapacityFailures[i].Why = prose(s.CapacityFailures[i].Why)
		}
		row.Body.of = s
		err = d.transact(ctx, func(t *tx) error {
			if err := t.put(ctx, sessionTable(), row, s.Version, session.ErrConflict); err != nil {
				return err
			}
			t.changed, t.later = true, true
			if err := t.addSessionEvents(ctx, s.ID, session.KeeperNode, row.Version, events); err != nil {
				return err
			}
			return t.record(entries...)
		})
	}
	if errors.Is(err, session.ErrConflict) && s.Version == 0 {
		var same sessionRow
		if again := d.get(ctx, &same, sessionTable().query+" WHERE id = ?", s.ID); errors.Is(again, sql.ErrNoRows) {
			err = session.ErrNameTaken
		}
	}
	if err != nil {
		return session.Session{}, fmt.Errorf("write session %s: %w", s.Name, err)
	}
	return row.session(), nil
}

// Session implements session.Store.
func (d sessions) Session(ctx context.Context, id string) (session.Session, error) {
	var row sessionRow
	err := d.get(ctx, &row, sessionTable().query+" WHERE id = ?", id)
	if errors.Is(err, sql.ErrNoRows) {
		err = session.ErrNotFound
	}
	if err != nil {
		return session.Session{}, fmt.Errorf("read session %q: %w", id, err)
	}
	return row.session(), nil
}

// Sessions implements session.Store.
func (d sessions) Sessions(ctx context.Context, q session.Query) ([]session.Session, error) {
	f := &filter{dialect: &d.dialect}
	if q.Name != "" {
		f.and("name = ?", q.Name)
	}
	if q.OpenOnly {
		f.and("over = 0")
	}
	if !q.Since.IsZero() {
		f.and("(over = 0 OR requested_at >= ?)", at(q.Since))
	}
	var rows []sessionRow
	if err := d.list(ctx, &rows, sessionTable().query+f.where()+" ORDER BY COALESCE(requested_at, 0) DESC, id",
		f.args...); err != nil {
		return nil, fmt.Errorf("read the sessions: %w", err)
	}
	return convert(rows, sessionRow.session), nil
}

// addSessionEvents adds the lines of a file, each once.
func (t *tx) addSessionEvents(ctx context.Context, id string, node int, file int64, events []session.Event) error {
	for line, e := range events {
		err := t.exec(ctx,
			"INSERT INTO session_events (session, node, file, line, at, kind, text) VALUES (?, ?, ?, ?, ?, "+
				"?, ?) ON CONFLICT DO NOTHING",
			id, node, file, line, at(e.At), prose(e.Kind), prose(e.Text))
		if err != nil {
			return err
		}
	}
	return nil
}

// AddEvents implements session.Store.
func (d sessions) AddEvents(ctx context.Context, id string, node int, file int64, events []session.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := d.transact(ctx, func(t *tx) error {
		return t.addSessionEvents(ctx, id, node, file, events)
	}); err != nil {
		return fmt.Errorf("keep the events of session %s: %w", id, err)
	}
	return nil
}

type sessionEventRow struct {
	Node int     `db:"node"`
	File int64   `db:"file"`
	Line int     `db:"line"`
	At   instant `db:"at"`
	Kind string  `db:"kind"`
	Text string  `db:"text"`
}

// Events implements session.Store.
func (d sessions) Events(ctx context.Context, id string) ([]session.LoggedEvent, error) {
	var rows []sessionEventRow
	err := d.list(ctx, &rows,
		"SELECT node, file, line, at, kind, text FROM session_events WHERE session = ? ORDER BY "+
			"COALESCE(at, 0), node, file, line", id)
	if err != nil {
		return nil, fmt.Errorf("read the events of session %s: %w", id, err)
	}
	return convert(rows, func(r sessionEventRow) session.LoggedEvent {
		return session.LoggedEvent{
			Event: session.Event{At: r.At.Time, Node: r.Node, Kind: r.Kind, Text: r.Text}, File: r.File, Line: r.Line,
		}
	}), nil
}

// NewestEventFile implements session.Store.
func (d sessions) NewestEventFile(ctx context.Context, id string, node int) (file int64, err error) {
	err = d.get(ctx, &file, "SELECT COALESCE(MAX(file), 0) FROM session_events WHERE session = ? AND node = ?", id,
		node)
	if err != nil {
		return 0, fmt.Errorf("read the events of session %s: %w", id, err)
	}
	return file, nil
}

// Installation implements session.Store.
func (d sessions) Installation(ctx context.Context) (name string, err error) {
	const query = "SELECT name FROM installation WHERE id = 1"
	err = d.get(ctx, &name, query)
	if !errors.Is(err, sql.ErrNoRows) {
		return name, err
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	err = d.transact(ctx, func(t *tx) error {
		if err := t.exec(ctx, "INSERT INTO installation (id, name) VALUES (1, ?) ON CONFLICT DO NOTHING",
			hex.EncodeToString(random)); err != nil {
			return err
		}
		return t.get(ctx, &name, query)
	})
	if err != nil {
		return "", fmt.Errorf("name the installation: %w", err)
	}
	return name, nil
}
