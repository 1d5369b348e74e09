package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// clockSlack is by how much a host's clock may be ahead of what its uptime says before
// the store takes it for wrong: clocks are slewed, and readings are not taken at once.
const clockSlack = time.Minute

// Now returns the time of the state. PostgreSQL has a clock of its own, which is the same
// for every host. SQLite has only the host's: its time goes on as the uptime does, so
// that a wall clock which is set ahead while the host runs does not take it along. A wall
// clock that is behind, and another boot, begin anew.
func (c charges) Now(ctx context.Context) (time.Time, error) {
	now, err := c.now(ctx)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the time of the state: %w", c.explain(err))
	}
	return now, nil
}

func (d *database) now(ctx context.Context) (time.Time, error) {
	if d.clock != "" {
		var micros int64
		err := d.get(ctx, &micros, d.clock)
		return time.UnixMicro(micros).UTC(), err
	}
	next := clockRow{Wall: at(d.host.Now())}
	if d.host.Uptime != nil {
		next.Boot, next.Uptime = d.host.Uptime()
	}
	now := next.Wall.Time
	err := d.transact(ctx, func(t *tx) error {
		var last clockRow
		switch err := t.get(ctx, &last, "SELECT wall, boot, uptime FROM clocks WHERE id = 1"); {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case last.Boot != "" && last.Boot == next.Boot:
			due := last.Wall.Add(next.Uptime - last.Uptime)
			if next.Wall.After(due.Add(clockSlack)) {
				now = due
				return nil
			}
		}
		return t.exec(ctx, "INSERT INTO clocks (id, wall, boot, uptime) VALUES (1, ?, ?, ?)"+
			" ON CONFLICT (id) DO UPDATE SET wall = excluded.wall, boot = excluded.boot, uptime = excluded.uptime", next.Wall, next.Boot, next.Uptime)
	})
	return now, err
}
