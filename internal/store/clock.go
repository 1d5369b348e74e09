package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// clockSlack is the tolerated difference between a host's clock and its uptime: clocks are slewed,
// and the readings are not simultaneous.
const clockSlack = time.Minute

// Now returns the state's time, which never goes back. PostgreSQL's clock is the same for every
// host. A file uses the clock of its file system, which is the server's if several hosts share it.
// Within one boot of a host the time follows the uptime, so that setting a clock does not affect
// it, and it is never before a time that any host has read.
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
	var now time.Time
	// Readers need the time too and must not wait for all writers.
	err := d.transact(inHurry(ctx), func(t *tx) (err error) {
		now, err = d.nowWithin(ctx, t)
		return err
	})
	return now, err
}

// nowWithin is now within another transaction.
func (d *database) nowWithin(ctx context.Context, t *tx) (time.Time, error) {
	if d.clock != "" {
		var micros int64
		err := t.get(ctx, &micros, d.clock)
		return time.UnixMicro(micros).UTC(), err
	}
	// Read within the transaction: a process that waited would otherwise seem to be behind.
	next, err := d.reading()
	if err != nil {
		return time.Time{}, err
	}
	now := next.Wall.Time
	var last clockRow
	switch err := t.get(ctx, &last, "SELECT wall, boot, uptime FROM clocks WHERE id = 1"); {
	case errors.Is(err, sql.ErrNoRows):
		return now, t.putClock(ctx, next)
	case err != nil:
		return now, err
	}
	due, known := last.Wall.Time, last.Boot != "" && last.Boot == next.Boot
	if known {
		due = due.Add(next.Uptime - last.Uptime)
	}
	if off := now.Sub(due); off < 0 && (!known || off < -clockSlack) || known && off > clockSlack {
		return due, nil
	}
	return now, t.putClock(ctx, next)
}

// reading reads the clocks of the host, with the file system's as the wall clock.
func (d *database) reading() (clockRow, error) {
	r := clockRow{Wall: at(d.host.Now())}
	if d.host.FileTime != nil {
		now, err := d.host.FileTime(d.dir)
		if err != nil {
			return r, fmt.Errorf("read the clock of the file system: %w", err)
		}
		r.Wall = at(now)
	}
	if d.host.Uptime != nil {
		r.Boot, r.Uptime = d.host.Uptime()
	}
	return r, nil
}

func (t *tx) putClock(ctx context.Context, r clockRow) error {
	return t.exec(ctx, "INSERT INTO clocks (id, wall, boot, uptime) VALUES (1, ?, ?, ?)"+
		" ON CONFLICT (id) DO UPDATE SET wall = excluded.wall, boot = excluded.boot, uptime = excluded.uptime", r.Wall,
		r.Boot, r.Uptime)
}

// ErrOwnClock is returned because the time of a database server cannot be set here.
var ErrOwnClock = errors.New("the database has a clock of its own: set that of its server")

// SetClock sets the state's time to that of this host, and records it. It repairs a file whose time
// was moved by a wrong clock; a database returns [ErrOwnClock].
func (s *Store) SetClock(ctx context.Context, e action.Entry) error {
	if s.db.clock != "" {
		return ErrOwnClock
	}
	next, err := s.db.reading()
	if err == nil {
		err = s.db.transact(ctx, func(t *tx) error {
			if err := t.putClock(ctx, next); err != nil {
				return err
			}
			return t.record(e)
		})
	}
	return attempted(err, "set the time of the state")
}

// FileTime returns the clock of a directory's file system by writing a file: on a network file
// system the server's, else the machine's.
func FileTime(dir string) (time.Time, error) {
	f, err := os.CreateTemp(dir, ".clock-")
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write([]byte{0})
	// A server sets the time only when the file is closed.
	if err := errors.Join(err, f.Close()); errors.Is(err, syscall.ENOSPC) {
		return time.Time{}, fmt.Errorf("the disk is full: %w", err)
	} else if err != nil {
		return time.Time{}, err
	}
	info, err := os.Stat(f.Name())
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}
