package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"
)

func TestTransactRetries(t *testing.T) {
	busy, broken := errors.New("busy"), errors.New("broken")
	for _, tc := range []struct {
		name   string
		errs   []error // of each attempt
		tries  int
		want   error
		writes int // rows left behind
	}{
		{"at once", []error{nil}, 1, nil, 1},
		{"after others were in the way", []error{busy, busy, nil}, 3, nil, 1},
		{"not after another error", []error{busy, broken, nil}, 2, broken, 0},
	} {
		s, err := Open(t.Context(), Options{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		s.db.contended = func(err error) bool { return errors.Is(err, busy) }
		tries := 0
		err = s.db.transact(t.Context(), func(tx *tx) error {
			tries++
			if err := tx.exec(t.Context(),
				"INSERT INTO accounts (account, round, boot, uptime) VALUES ('aws/1', 0, '', 0)"); err != nil {
				return err
			}
			return tc.errs[tries-1]
		})
		var rows int
		no := s.db.get(t.Context(), &rows, "SELECT COUNT(*) FROM accounts")
		if !errors.Is(err, tc.want) || tries != tc.tries || rows != tc.writes || no != nil {
			t.Errorf("%s: %d tries, %d rows, error %v, %v; want %d, %d, %v", tc.name, tries, rows, err,
				no, tc.tries, tc.writes,
				tc.want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTransactWaitsForOthers lets another connection hold the write lock.
func TestTransactWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mine, err := Open(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer mine.Close()
		other, err := Open(t.Context(), Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		held, err := other.db.write.BeginTxx(t.Context(), other.db.begin)
		if err != nil {
			t.Fatal(err)
		}
		freeze := func(ctx context.Context) error {
			return mine.Actions().Unfreeze(ctx, "ana", "over", time.Unix(0, 1))
		}
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := freeze(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while it is held: got %v, want context.DeadlineExceeded", err)
		}
		done := make(chan error)
		go func() { done <- freeze(t.Context()) }()
		time.Sleep(time.Second)
		if err := held.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("when it is given back: %v", err)
		}
	})
}

func TestPostgresErrors(t *testing.T) {
	for _, tc := range []struct {
		code                 string
		contended, duplicate bool
	}{
		{serializationFailure, true, false},
		{deadlockDetected, true, false},
		{lockNotAvailable, true, false},
		{uniqueViolation, false, true},
		{"23502", false, false},
		{"57014", false, false},
	} {
		err := fmt.Errorf("save: %w", &pgconn.PgError{Code: tc.code})
		if c, d := postgresDialect.contended(err), postgresDialect.duplicate(err); c != tc.contended ||
			d != tc.duplicate {
			t.Errorf("%s: contended %t, duplicate %t; want %t, %t", tc.code, c, d, tc.contended, tc.duplicate)
		}
	}
	if other := errors.New("other"); postgresDialect.contended(other) || postgresDialect.duplicate(other) ||
		postgresDialect.duplicate(nil) {
		t.Error("an error that is not the server's counts as one")
	}
}

func TestInstantsKeepOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := func(name string) time.Time {
			return time.Unix(rapid.Int64Range(-1<<35, 1<<37).Draw(r, name),
				rapid.Int64Range(0, 999_999_999).Draw(r, name+" ns"))
		}
		a, b := draw("a"), draw("b")
		kept := func(t time.Time) (int64, time.Time) {
			v, err := at(t).Value()
			if err != nil {
				r.Fatal(err)
			}
			var back instant
			if err := back.Scan(v); err != nil {
				r.Fatal(err)
			}
			return v.(int64), back.Time
		}
		ka, ta := kept(a)
		kb, _ := kept(b)
		if a.Before(b) && ka > kb {
			r.Fatalf("%s is before %s and kept after it", a, b)
		}
		if lost := a.Sub(ta); lost < 0 || lost >= time.Microsecond || ta != at(a).Time {
			r.Fatalf("%s comes back as %s", a, ta)
		}
	})
}

// TestSilentDatabases checks that each statement and the end of a transaction has a deadline, and
// that the error names the operation.
func TestSilentDatabases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		ctx, end := context.WithCancel(t.Context())
		for want, err := range map[string]error{
			"SELECT at, who, reason …: the database has not answered within 30s": answered(t.Context(),
				"SELECT at, who, reason FROM freezes", hang),
			"commit: the database has not answered within 30s": timed(ctx, end, "commit", func() error {
				return hang(ctx)
			}),
		} {
			if err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
		given, up := context.WithCancel(t.Context())
		up()
		if err := answered(given, "SELECT 1", hang); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	})
}

// TestStatementsHaveDeadlines checks that all statements go through [answered] or [timed].
func TestStatementsHaveDeadlines(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	statement := regexp.MustCompile(
		`\.((Query|QueryRow|Queryx|Exec|NamedExec|Select|Get|Prepare|Ping)Context|BeginTxx|Conn|Commit|Rollback|GetVersions)\b|on\.Exec\(`)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(src), "\n")
		for i, line := range lines {
			if !statement.MatchString(line) || strings.Contains(line, "sql.Conn") ||
				strings.Contains(line, "pgx.Conn") &&
					!strings.Contains(line, "Exec") {
				continue
			}
			found++
			within := strings.Join(lines[max(0, i-2):i+1], "\n")
			// Canceling its context ends a transaction.
			if !strings.Contains(within, "answered(") && !strings.Contains(within, "timed(") &&
				!strings.Contains(within, "context.WithTimeout(") &&
				!strings.Contains(line, "held.Rollback") {
				t.Errorf("%s:%d waits without end: %s", name, i+1, strings.TrimSpace(line))
			}
		}
	}
	if found < 12 {
		t.Errorf("%d statements were found", found)
	}
}
