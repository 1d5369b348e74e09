package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/curfew-dev/curfew/internal/durable"
)

// ErrNoFile is returned if the state is in PostgreSQL, which has its own backup tools.
var ErrNoFile = errors.New("the state is in PostgreSQL, not in a file")

// backupTimeout bounds the time to write a backup, which reads and writes the whole state.
const backupTimeout = 6 * time.Hour

// Backup writes a consistent copy of the state to a new file, while other processes keep writing.
// Every page is read and thus checked. It returns the size of the file. An existing file is never
// replaced (fs.ErrExist), and an interrupted backup leaves no file of that name.
func (s *Store) Backup(ctx context.Context, path string) (int64, error) {
	if s.db.turns == nil {
		return 0, ErrNoFile
	}
	n, err := s.db.backup(ctx, path)
	if err != nil {
		err = explainSQLite(err)
	}
	return n, attempted(err, "write the backup %s", path)
}

func (db *database) backup(ctx context.Context, path string) (n int64, err error) {
	if _, err := os.Lstat(path); err == nil {
		return 0, fs.ErrExist
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), durable.Unfinished)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fresh := filepath.Join(dir, FileName)
	if err := touch(fresh); err != nil {
		return 0, err
	}
	from, err := sql.Open("sqlite", sqliteDSN(db.name, "deferred", retryTimeout))
	if err != nil {
		return 0, err
	}
	// It reads in one transaction, which blocks no writer, and writes through the same VFS.
	bounded, end := context.WithTimeout(ctx, backupTimeout)
	defer end()
	_, err = from.ExecContext(bounded, "VACUUM INTO ?", fresh)
	if err = errors.Join(err, from.Close()); err != nil {
		return 0, err
	}
	raw, err := openRaw(fresh, true)
	if err != nil {
		return 0, err
	}
	// Exclusive, because some file systems for backups lack the shared memory of the log.
	if err := errors.Join(raw.exec("PRAGMA locking_mode = exclusive; PRAGMA journal_mode = wal"),
		raw.close()); err != nil {
		return 0, err
	}
	st, err := os.Stat(fresh)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(durable.Sync(fresh), os.Link(fresh, path)); err != nil {
		return 0, err
	}
	return st.Size(), durable.Sync(filepath.Dir(path))
}
