package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// Lease gives one process the exclusive right to read and act on something, until a time of the
// state's clock.
type Lease struct {
	Name, Holder string
	// Fence increases with each acquisition, so that decisions under an earlier lease are
	// recognized.
	Fence int64
	Until time.Time
}

// ErrLeaseLost is returned if a lease has expired or another process holds it.
var ErrLeaseLost = errors.New("the lease is lost to another process, or was not renewed in time")

// Leases coordinates processes.
type Leases struct{ db *database }

// Leases returns the leases of a state.
func (s *Store) Leases() Leases { return Leases{s.db} }

type leaseRow struct {
	Name   string `db:"name"`
	Holder string `db:"holder"`
	Fence  int64  `db:"fence"`
	// Until is in microseconds since 1970; 0 after release.
	Until int64 `db:"until"`
}

const leaseQuery = "SELECT name, holder, fence, until FROM leases"

func (r leaseRow) lease() Lease {
	return Lease{r.Name, r.Holder, r.Fence, time.UnixMicro(r.Until).UTC()}
}

// Take acquires a free or expired lease, or renews the holder's own, for a time. It returns whether
// the holder has it; otherwise it returns the other holder's lease if that can be read.
func (l Leases) Take(ctx context.Context, name, holder string, length time.Duration) (lease Lease, held bool,
	err error) {
	ctx = inHurry(ctx)
	// A clock read too early only shortens a lease.
	now, err := l.db.now(ctx)
	if err != nil {
		return Lease{}, false, fmt.Errorf("take the lease of %s: %w", name, err)
	}
	err = l.db.transact(ctx, func(t *tx) error {
		held = false
		if err := t.exec(ctx,
			"INSERT INTO leases (name, holder, fence, until) VALUES (?, '', 0, 0) ON CONFLICT DO NOTHING",
			name); err != nil {
			return err
		}
		var row leaseRow
		lock := t.forUpdate
		if lock != "" {
			lock += " SKIP LOCKED" // its holder is writing, or stopped while writing
		}
		if err := t.get(ctx, &row, leaseQuery+" WHERE name = ?"+lock, name); errors.Is(err, sql.ErrNoRows) {
			lease = Lease{Name: name}
			return nil
		} else if err != nil {
			return err
		}
		if row.Until > now.UnixMicro() && row.Holder != holder {
			lease = row.lease()
			return nil
		}
		row.Holder, row.Fence, row.Until, held = holder, row.Fence+1, now.Add(length).UnixMicro(), true
		lease = row.lease()
		return t.exec(ctx, "UPDATE leases SET holder = ?, fence = ?, until = ? WHERE name = ?", row.Holder, row.Fence,
			row.Until, name)
	})
	if err != nil {
		return Lease{}, false, fmt.Errorf("take the lease of %s: %w", name, err)
	}
	return lease, held, nil
}

// Renew extends a lease, or restores an expired one that no one else took; ErrLeaseLost otherwise.
func (l Leases) Renew(ctx context.Context, lease Lease, length time.Duration) (Lease, error) {
	ctx = inHurry(ctx)
	now, err := l.db.now(ctx)
	if err == nil {
		lease.Until = now.Add(length)
		err = l.set(ctx, lease, lease.Until.UnixMicro())
	}
	if err != nil {
		return Lease{}, fmt.Errorf("renew the lease of %s: %w", lease.Name, err)
	}
	return lease, nil
}

// RenewAll renews many leases in one transaction without waiting for locks: leases locked by
// another transaction are neither renewed nor reported as lost.
func (l Leases) RenewAll(ctx context.Context, leases []Lease, length time.Duration) (lost, left []Lease, err error) {
	ctx = inHurry(ctx)
	names := make([]string, len(leases))
	for i, x := range leases {
		names[i] = x.Name
	}
	lock := l.db.forUpdate
	if lock != "" {
		lock += " SKIP LOCKED"
	}
	err = l.db.transact(ctx, func(t *tx) error {
		lost, left = nil, nil
		now, err := l.db.nowWithin(ctx, t)
		if err != nil {
			return err
		}
		among := " WHERE name IN (SELECT value FROM " + t.elements + ")"
		var found []leaseRow
		if err := t.list(ctx, &found, leaseQuery+among+" ORDER BY name"+lock, document[[]string]{names}); err != nil {
			return err
		}
		fences := make(map[string]int64, len(found))
		for _, row := range found {
			fences[row.Name] = row.Fence
		}
		held := []string{}
		for _, x := range leases {
			switch fence, seen := fences[x.Name]; {
			case !seen && t.forUpdate != "":
				left = append(left, x)
			case fence != x.Fence:
				lost = append(lost, x)
			default:
				held = append(held, x.Name)
			}
		}
		return t.exec(ctx, "UPDATE leases SET until = ?"+among, now.Add(length).UnixMicro(), document[[]string]{held})
	})
	if err != nil {
		return nil, nil, fmt.Errorf("renew %d leases: %w", len(leases), err)
	}
	return lost, left, nil
}

// Release releases a lease, unless another process has it.
func (l Leases) Release(ctx context.Context, lease Lease) error {
	if err := l.set(inHurry(ctx), lease, 0); err != nil && !errors.Is(err, ErrLeaseLost) {
		return fmt.Errorf("give back the lease of %s: %w", lease.Name, err)
	}
	return nil
}

func (l Leases) set(ctx context.Context, lease Lease, until int64) error {
	return l.db.transact(ctx, func(t *tx) error {
		changed, err := t.run(ctx, "UPDATE leases SET until = ? WHERE name = ? AND fence = ?", until, lease.Name,
			lease.Fence)
		if err == nil && changed != 1 {
			err = ErrLeaseLost
		}
		return err
	})
}

// All returns every lease ever taken, in order, and the state's time.
func (l Leases) All(ctx context.Context) ([]Lease, time.Time, error) {
	ctx = inHurry(ctx)
	now, err := l.db.now(ctx)
	var rows []leaseRow
	if err == nil {
		err = l.db.list(ctx, &rows, leaseQuery+" ORDER BY name")
	}
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("read the leases: %w", err)
	}
	return convert(rows, leaseRow.lease), now, nil
}

// Prune deletes leases with a name prefix that expired before a time.
func (l Leases) Prune(ctx context.Context, prefix string, before time.Time) error {
	err := l.db.transact(ctx, func(t *tx) error {
		return t.exec(ctx, "DELETE FROM leases WHERE name >= ? AND name < ? AND until < ?",
			prefix, prefix+"\U0010FFFF",
			before.UnixMicro())
	})
	return attempted(err, "forget old leases")
}

// Holds reports whether a lease is current and not expired; ErrLeaseLost otherwise.
func (l Leases) Holds(ctx context.Context, lease Lease) error {
	ctx = inHurry(ctx)
	now, err := l.db.now(ctx)
	var row leaseRow
	if err == nil {
		err = l.db.get(ctx, &row, leaseQuery+" WHERE name = ?", lease.Name)
	}
	if errors.Is(err, sql.ErrNoRows) || err == nil && (row.Fence != lease.Fence || row.Until <= now.UnixMicro()) {
		err = ErrLeaseLost
	}
	return attempted(err, "look at the lease of %s", lease.Name)
}

// Under returns the [action.Store] of a process that acts under a lease: every write that begins a
// round, moves an item or admits a call fails with ErrLeaseLost once another process has the lease.
func (s *Store) Under(lease Lease) action.Store { return actions{s.db, &lease} }

// guard refuses a transaction if another process has taken the lease. It locks the lease until the
// end of the transaction, so that it cannot be taken meanwhile.
func (a actions) guard(ctx context.Context, t *tx) error {
	if a.lease == nil {
		return nil
	}
	var fence int64
	err := t.get(ctx, &fence, "SELECT fence FROM leases WHERE name = ?"+t.forUpdate, a.lease.Name)
	if errors.Is(err, sql.ErrNoRows) || err == nil && fence != a.lease.Fence {
		return ErrLeaseLost
	}
	return err
}
