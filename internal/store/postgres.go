package store

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"
	"github.com/pressly/goose/v3"
)

const (
	// postgresConnections bounds the connections of one process, well below a server's default of
	// 100.
	postgresConnections = 16
	// connectTimeout bounds the time to connect to a server.
	connectTimeout = 10 * time.Second
	// sessionLimits bound the wait of a statement for a lock, after which it is retried, and the
	// time for which a stopped process keeps its locks.
	sessionLimits = "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '20s'"
	// migrationLock is the key of the advisory lock of migrations: "curfew" in ASCII.
	migrationLock = 0x637572666577
)

// Codes of the PostgreSQL manual, appendix A.
const (
	uniqueViolation      = "23505"
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	outOfRange           = "22003"
)

// Each statement sees the transactions committed before it began, so that after waiting for a lock
// it sees the writes of its holder; a server's default may differ.
var postgresDialect = dialect{
	begin:     &sql.TxOptions{Isolation: sql.LevelReadCommitted},
	forUpdate: " FOR UPDATE",
	contended: func(err error) bool {
		return slices.Contains([]string{serializationFailure, deadlockDetected, lockNotAvailable}, postgresCode(err))
	},
	duplicate: func(err error) bool { return postgresCode(err) == uniqueViolation },
	overflow:  func(err error) bool { return postgresCode(err) == outOfRange },
	// An empty list may be null.
	elements: "jsonb_array_elements_text(COALESCE(NULLIF(CAST(? AS JSONB), 'null'), '[]'))",
	clock:    "SELECT CAST(EXTRACT(EPOCH FROM CLOCK_TIMESTAMP()) * 1000000 AS BIGINT)",
}

func openPostgres(ctx context.Context, at string) (*database, error) {
	if !strings.HasPrefix(at, "postgres://") && !strings.HasPrefix(at, "postgresql://") {
		return nil, errors.New("open the state: the database's URL has to begin with postgres://")
	}
	c, err := pgx.ParseConfig(at)
	if err != nil {
		// The cause could contain the password.
		return nil, errors.New("open the state: the database's URL cannot be read; write " +
			"postgres://USER:PASSWORD@HOST:PORT/NAME, with special characters as %XX")
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "curfew"
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = connectTimeout
	}
	db := sqlx.NewDb(stdlib.OpenDB(*c, stdlib.OptionAfterConnect(func(ctx context.Context, on *pgx.Conn) error {
		return answered(ctx, "set the limits of a session", func(ctx context.Context) error {
			_, err := on.Exec(ctx, sessionLimits)
			return err
		})
	})), "pgx")
	db.SetMaxOpenConns(postgresConnections)
	db.SetMaxIdleConns(postgresConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	if err := migratePostgres(ctx, db.DB); err != nil {
		_ = db.Close()
		address := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
		return nil, fmt.Errorf("open the state in PostgreSQL at %s, database %q, as %q: %w",
			address, c.Database, c.User,
			explainPostgres(err))
	}
	return &database{dialect: postgresDialect, write: db, read: db, name: postgresName(c)}, nil
}

// postgresName identifies a database without user and password, which vary by process.
func postgresName(c *pgx.ConnConfig) string {
	u := url.URL{Scheme: "postgres", Host: net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))), Path: "/" + c.Database}
	query := url.Values{}
	for _, key := range []string{"search_path", "options"} {
		if v := c.RuntimeParams[key]; v != "" {
			query.Set(key, v)
		}
	}
	u.RawQuery = query.Encode()
	return u.String()
}

// migratePostgres migrates under the lock of migrations.
func migratePostgres(ctx context.Context, db *sql.DB) error {
	if current(ctx, goose.DialectPostgres, db) {
		return nil
	}
	var lock *sql.Conn
	err := answered(ctx, "connect", func(ctx context.Context) (err error) {
		lock, err = db.Conn(ctx)
		return err
	})
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // returns it to the pool
	waiting, stop := context.WithTimeout(ctx, retryTimeout)
	defer stop()
	for held := false; !held; {
		err := answered(ctx, "take the lock of migrations", func(ctx context.Context) error {
			return lock.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrationLock)).Scan(&held)
		})
		if err != nil {
			return err
		}
		if !held && pause(waiting) != nil {
			return cmp.Or(ctx.Err(), errMigrating)
		}
	}
	defer func() {
		// If this fails, the connection and thus the lock are gone.
		_ = answered(context.WithoutCancel(ctx), "give back the lock of migrations", func(ctx context.Context) error {
			_, err := lock.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", int64(migrationLock))
			return err
		})
	}()
	return migrate(ctx, goose.DialectPostgres, db)
}

// postgresCode returns the server's code of an error, "" for any other error.
func postgresCode(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

// explainPostgres adds the remedy to an error of opening.
func explainPostgres(err error) error {
	var server *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &server):
		switch server.Code {
		case "28P01", "28000":
			return &advice{"check the user and the password", server}
		case "3D000":
			return &advice{"make the database first", server}
		case "42501":
			return &advice{"the user has to own its schema", server}
		}
		return server
	case errors.As(err, &connect):
		return &advice{"check that the server runs and can be reached", connect.Unwrap()}
	}
	return err
}
