package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/curfew-dev/curfew/internal/durable"
)

// FileName is the name of the database in the data directory. SQLite keeps its -wal and -shm files
// next to it, and curfew an empty file that is locked while opening the database.
const FileName = "curfew.db"

// sqliteReaders bounds the number of concurrent readers.
const sqliteReaders = 8

// A writing transaction takes SQLite's single write lock when it begins.
var sqliteDialect = dialect{
	begin:     &sql.TxOptions{},
	contended: func(err error) bool { return sqliteCode(err) == sqlite3.SQLITE_BUSY },
	duplicate: func(err error) bool {
		var e *sqlite.Error
		return errors.As(err, &e) && (e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE ||
			e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
	},
	overflow: func(err error) bool {
		return err != nil && (strings.Contains(err.Error(), "integer overflow") ||
			strings.Contains(err.Error(), "in_range"))
	},
	elements: "json_each(?)",
}

func openSQLite(ctx context.Context, o Options) (*database, error) {
	path, err := filepath.Abs(filepath.Join(o.Dir, FileName))
	if err != nil {
		return nil, fmt.Errorf("open the state in %s: %w", o.Dir, err)
	}
	for _, file := range []string{path, path + ".lock"} {
		if err := touch(file); err != nil {
			return nil, fmt.Errorf("open the state: %w; give a directory that can be written to", err)
		}
	}
	sqlx.BindDriver("sqlite", sqlx.QUESTION)
	db, err := connectSQLite(ctx, path, o.Temporary)
	if err != nil {
		return nil, fmt.Errorf("open the state in %s: %w", path, explainSQLite(err))
	}
	db.host, db.dir = o.Host, filepath.Dir(path)
	// Symbolic links are other names of the same state.
	if db.name, err = filepath.EvalSymlinks(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open the state in %s: %w", path, err), db.close())
	}
	return db, nil
}

// touch creates a file and its directory with access for the owner only, if missing.
func touch(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func connectSQLite(ctx context.Context, path string, temporary bool) (*database, error) {
	if err := migrateSQLite(ctx, path); err != nil {
		return nil, err
	}
	// Writers of this process wait in the pool; those of other processes in transact, because
	// SQLite's own waits back off.
	synchronous := "synchronous(full)"
	if temporary {
		synchronous = "synchronous(off)"
	}
	write, err := sqlx.Open("sqlite", sqliteDSN(path, "immediate", 0, synchronous, "foreign_keys(on)"))
	if err != nil {
		return nil, err
	}
	write.SetMaxOpenConns(1)
	read, err := sqlx.Open("sqlite", sqliteDSN(path, "deferred", retryTimeout, "query_only(on)"))
	if err != nil {
		return nil, errors.Join(err, write.Close())
	}
	read.SetMaxOpenConns(sqliteReaders)
	read.SetMaxIdleConns(sqliteReaders)
	return &database{dialect: sqliteDialect, write: write, read: read, turns: &turns{}}, nil
}

// migrateSQLite migrates under a lock. SQLite holds the lock on a file next to the database and
// releases it when a process ends.
func migrateSQLite(ctx context.Context, path string) (err error) {
	if err := registerPages(); err != nil {
		return err
	}
	look, err := sql.Open("sqlite", sqliteDSN(path, "deferred", retryTimeout, "query_only(on)"))
	if err != nil {
		return err
	}
	isCurrent := current(ctx, goose.DialectSQLite3, look)
	if err := look.Close(); isCurrent || err != nil {
		return err
	}
	lock, err := sql.Open("sqlite", sqliteDSN(path+".lock", "exclusive", 0))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	waiting, stop := context.WithTimeout(ctx, retryTimeout)
	defer stop()
	held, err := lock.BeginTx(ctx, nil)
	for err != nil {
		if !sqliteDialect.contended(err) {
			return err
		}
		if pause(waiting) != nil {
			return cmp.Or(ctx.Err(), errMigrating)
		}
		held, err = lock.BeginTx(ctx, nil)
	}
	defer func() { _ = held.Rollback() }() // a canceled transaction has ended
	switch sealed, empty, err := isSealed(path); {
	case err != nil:
		return err
	case empty:
		return makeSQLite(ctx, path)
	case !sealed:
		if err := sealSQLite(path); err != nil {
			return err
		}
	}
	db, err := sql.Open("sqlite", sqliteDSN(path, "immediate", retryTimeout, "journal_mode(wal)", "synchronous(full)"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	// The migrator would try to create a table that it cannot read.
	var version sql.NullInt64
	err = answered(ctx, "read the schema's version", func(ctx context.Context) error {
		return db.QueryRowContext(ctx, "SELECT MAX(version_id) FROM goose_db_version").Scan(&version)
	})
	if isDamaged(err) {
		return err
	}
	return migrate(ctx, goose.DialectSQLite3, db)
}

// makeSQLite replaces an empty file by a database. It is migrated under another name and synced
// once at the end, because each migration would wait for the disk; a process that dies meanwhile
// leaves the file empty.
func makeSQLite(ctx context.Context, path string) (err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	fresh := path + ".new"
	remove := func() error {
		var errs error
		for _, end := range []string{"", "-wal", "-shm"} {
			errs = errors.Join(errs, os.RemoveAll(fresh+end))
		}
		return errs
	}
	if err := errors.Join(remove(), touch(fresh)); err != nil { // a crashed process may have left one
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	raw, err := openRaw(fresh, true)
	if err != nil {
		return err
	}
	if err := errors.Join(raw.exec("PRAGMA user_version = 1"), raw.close()); err != nil {
		return err
	}
	db, err := sql.Open(
		"sqlite", sqliteDSN(fresh, "immediate", retryTimeout, "journal_mode(memory)", "synchronous(off)"),
	)
	if err != nil {
		return err
	}
	err = migrate(ctx, goose.DialectSQLite3, db)
	if err == nil {
		err = answered(ctx, "set the journal's mode", func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, "PRAGMA journal_mode = wal")
			return err
		})
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := durable.Sync(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(path))
}

// sealedFrom is the first schema with page checksums.
const sealedFrom = 30

// sealSQLite replaces a database of an earlier version by a copy with page checksums. It must be
// the only process with the file open: others would keep using the old file.
func sealSQLite(path string) (err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	old, err := openRaw(path, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, old.close()) }()
	// If every page has a checksum but the header was changed, this fails with an overflow.
	if old.exec(
		fmt.Sprintf("SELECT CASE WHEN MAX(version_id) >= %d THEN ABS(-9223372036854775808) END FROM goose_db_version",
			sealedFrom)) != nil {
		return &rawError{sqlite3.SQLITE_CORRUPT, "its header is not that of a database of curfew"}
	}
	fresh := path + ".new"
	remove := func() error {
		var errs error
		for _, end := range []string{"", "-wal", "-shm", "-journal"} {
			errs = errors.Join(errs, os.RemoveAll(fresh+end))
		}
		return errs
	}
	if err := errors.Join(remove(), touch(fresh)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	target := (&url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(fresh)}).EscapedPath(), RawQuery: "vfs=" + pagesVFS,
	}).String()
	for _, statement := range []string{
		"PRAGMA busy_timeout = " + strconv.FormatInt(retryTimeout.Milliseconds(), 10),
		// Both fail while another process has it open, and hold until it is closed.
		"PRAGMA locking_mode = exclusive",
		"PRAGMA journal_mode = delete",
		"BEGIN EXCLUSIVE; COMMIT",
		"VACUUM INTO '" + strings.ReplaceAll(target, "'", "''") + "'",
	} {
		if err := old.exec(statement); err != nil {
			return fmt.Errorf("write it with checksums: %w", err)
		}
	}
	raw, err := openRaw(fresh, true)
	if err != nil {
		return err
	}
	if err := errors.Join(raw.exec("PRAGMA journal_mode = wal"), raw.close()); err != nil {
		return err
	}
	if err := durable.Sync(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	return durable.Sync(filepath.Dir(path))
}

// sqliteDSN names a database file, the mode of its transactions, and the time they wait for others.
func sqliteDSN(path, begin string, wait time.Duration, pragmas ...string) string {
	pragmas = append(pragmas, fmt.Sprintf("busy_timeout(%d)", wait.Milliseconds()))
	file := url.URL{
		Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(),
		RawQuery: url.Values{"_txlock": {begin}, "_pragma": pragmas, "vfs": {pagesVFS}}.Encode(),
	}
	return file.String()
}

// sqliteCode returns SQLite's primary result code, 0 for other errors.
func sqliteCode(err error) int {
	return sqliteResult(err) & 0xff
}

// sqliteResult returns SQLite's extended result code.
func sqliteResult(err error) int {
	var e interface{ Code() int }
	if !errors.As(err, &e) {
		return sqlite3.SQLITE_OK
	}
	return e.Code()
}

// ErrDamaged is returned if a page of the file has a wrong checksum.
var ErrDamaged = errors.New("the state is damaged: restore a copy of it and run `curfew state`")

// isDamaged reports whether SQLite found the file damaged.
func isDamaged(err error) bool {
	code := sqliteResult(err)
	return code == sqlite3.SQLITE_IOERR_DATA || code&0xff == sqlite3.SQLITE_CORRUPT ||
		code&0xff == sqlite3.SQLITE_NOTADB
}

// explainSQLite adds the remedy to an error of opening.
func explainSQLite(err error) error {
	if isDamaged(err) {
		var cause interface {
			error
			Code() int
		}
		errors.As(err, &cause)
		return &advice{
			"it is damaged, or no database of curfew: restore a copy and run `curfew state`, or move it away to " +
				"start with " +
				"an empty one",
			cause,
		}
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return &advice{"it cannot be written to: check the permissions of the file and of its directory", err}
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR:
		return &advice{"the disk does not take it: check its space and health", err}
	}
	return err
}
