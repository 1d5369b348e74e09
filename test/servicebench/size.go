package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // drivers to measure the size
	_ "modernc.org/sqlite"
)

// sizes are the sizes of a state on disk, in bytes.
type sizes struct {
	total int64
	// wal is the size of PostgreSQL's write-ahead log, which is only kept until the next checkpoint
	// and for replication and point-in-time recovery.
	wal    int64
	tables map[string]tableSize
}

// tableSize is the size of one table, with the writes of its rows.
type tableSize struct {
	rows, indexes int64 // bytes; rows includes what is stored out of line
	// inserted, updated and deleted count rows since the creation of the database. hot counts
	// updates that stayed on their page and touched no index. dead rows wait for a vacuum.
	inserted, updated, hot, deleted, dead int64
}

// sizeOf measures the state in a folder by its pages, because the file itself is only written when
// its write-ahead log is full, and that log does not shrink.
func sizeOf(ctx context.Context, dir string) (s sizes, err error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "curfew.db")+"?mode=ro&_pragma=busy_timeout(10000)")
	if err != nil {
		return s, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()").Scan(
		&s.total)
	return s, err
}

// sizeOfDatabase measures a database of PostgreSQL.
func sizeOfDatabase(ctx context.Context, at string) (s sizes, err error) {
	db, err := sql.Open("pgx", at)
	if err != nil {
		return s, err
	}
	defer db.Close()
	if err := db.QueryRowContext(ctx, "SELECT pg_database_size(current_database()), "+
		"CAST(pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') AS BIGINT)").Scan(&s.total, &s.wal); err != nil {
		return s, err
	}
	rows, err := db.QueryContext(ctx, "SELECT relname, pg_table_size(relid), pg_indexes_size(relid), n_tup_ins, "+
		"n_tup_upd, n_tup_hot_upd, n_tup_del, n_dead_tup FROM pg_stat_user_tables")
	if err != nil {
		return s, err
	}
	defer rows.Close()
	s.tables = map[string]tableSize{}
	for rows.Next() {
		var name string
		var t tableSize
		if err := rows.Scan(&name, &t.rows, &t.indexes, &t.inserted, &t.updated, &t.hot,
			&t.deleted, &t.dead); err != nil {
			return s, err
		}
		s.tables[name] = t
	}
	return s, rows.Err()
}

// grown prints the growth of a state during the measurement, in total and by table.
func grown(out io.Writer, before, after sizes, took time.Duration, machines int) {
	perDay := func(n int64) int64 { return int64(float64(n) / took.Hours() * 24) }
	all := after.total - before.total
	fmt.Fprintf(out,
		"database                     %s, %s more in %s, which is %s a day and %.1f KiB a machine and day\n",
		mib(after.total), mib(all), took.Round(time.Second), mib(perDay(all)),
		float64(perDay(all))/1024/float64(machines))
	if after.tables == nil {
		return
	}
	fmt.Fprintf(out, "write-ahead log              %s, which is %.1f KiB a machine and day\n",
		mib(after.wal-before.wal),
		float64(perDay(after.wal-before.wal))/1024/float64(machines))
	type change struct {
		name        string
		was, is     tableSize
		rows, index int64
	}
	var changes []change
	for name, is := range after.tables {
		was := before.tables[name]
		c := change{name, was, is, is.rows - was.rows, is.indexes - was.indexes}
		if c.rows != 0 || c.index != 0 || is.updated != was.updated || is.inserted != was.inserted {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(b.rows+b.index, a.rows+a.index), cmp.Compare(a.name, b.name))
	})
	for _, c := range changes {
		fmt.Fprintf(out,
			"table %-22s rows %+.1f KiB, indexes %+.1f KiB a machine and day; %d inserted, %d updated (%d in "+
				"place), %d deleted, %d dead\n", c.name, float64(perDay(c.rows))/1024/float64(machines),
			float64(perDay(c.index))/1024/float64(machines), c.is.inserted-c.was.inserted, c.is.updated-c.was.updated,
			c.is.hot-c.was.hot, c.is.deleted-c.was.deleted, c.is.dead)
	}
}
