package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"
)

// migrations are numbered, forward only, and paired: one file of the same name for each database.
//
//go:embed migrations
var migrations embed.FS

// migrator returns a migrator for a database. The caller must hold the lock of migrations.
func migrator(name goose.Dialect, db *sql.DB) (*goose.Provider, error) {
	dir := "migrations/sqlite"
	if name == goose.DialectPostgres {
		dir = "migrations/postgres"
	}
	files, err := fs.Sub(migrations, dir)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(name, db, files, goose.WithLogger(goose.NopLogger()),
		goose.WithDisableGlobalRegistry(true))
}

// current reports whether a database has this version's schema, without waiting for a migration in
// progress. An error means that it must be migrated.
func current(ctx context.Context, name goose.Dialect, db *sql.DB) bool {
	p, err := migrator(name, db)
	if err != nil {
		return false
	}
	var has int64
	err = answered(ctx, "read the schema's version", func(ctx context.Context) error {
		return db.QueryRowContext(ctx, "SELECT MAX(version_id) FROM goose_db_version").Scan(&has)
	})
	known := p.ListSources()
	return err == nil && len(known) > 0 && has == known[len(known)-1].Version
}

// errMigrating is returned when another process holds the lock of migrations.
var errMigrating = fmt.Errorf("another process has been bringing it to another schema for over %s; try again",
	retryTimeout)

// migrationTimeout bounds the time to migrate a database; a large one takes longer than any other
// statement.
const migrationTimeout = 10 * time.Minute

// migrate migrates a database to the newest schema. It refuses a newer one.
func migrate(ctx context.Context, name goose.Dialect, db *sql.DB) error {
	p, err := migrator(name, db)
	if err != nil {
		return err
	}
	var has, knows int64
	err = answered(ctx, "read the schema's version", func(ctx context.Context) (err error) {
		has, knows, err = p.GetVersions(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if has > knows {
		return fmt.Errorf("a newer curfew wrote it (schema %d, this one knows %d): use that version, or a newer one",
			has,
			knows)
	}
	bounded, end := context.WithTimeout(ctx, migrationTimeout)
	defer end()
	if _, err = p.Up(bounded); err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("bring the database to schema %d: it was not done within %s: %w", knows, migrationTimeout, err)
	}
	if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
		return fmt.Errorf("migrate to schema %d: %w", partial.Failed.Source.Version, partial.Err)
	}
	return err
}
