package store_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/test/postgres"
)

var noon = time.Date(2026, 3, 14, 12, 0, 0, 0, time.UTC)

func TestOpenKeepsFilesForTheirOwner(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	s := open(t, store.Options{Dir: dir})
	if err := s.Actions().Record(t.Context(), action.Entry{At: noon}); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) < 4 {
		t.Fatalf("files %v, error %v; want the database, its -wal and -shm, and the lock", files, err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, error %v; want 0600", f.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has mode %v, error %v; want 0700", info.Mode(), err)
	}
}

func TestOpenTakesAnyDirectoryName(t *testing.T) {
	for _, name := range []string{"with space", "100%", "what?mode=memory", "a#b", "a&b=c", "ä+ö", "file:x"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := open(t, store.Options{Dir: dir}).Actions().Record(t.Context(), action.Entry{At: noon}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if info, err := os.Stat(filepath.Join(dir, store.FileName)); err != nil || info.Size() == 0 {
			t.Errorf("%s: the file is not in it: %v", name, err)
		}
	}
}

func TestOpenAtOnce(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					s, err := store.Open(t.Context(), at)
					if err != nil {
						t.Error(err)
						return
					}
					if err := errors.Join(s.Actions().Record(t.Context(), action.Entry{At: noon}),
						s.Close()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n, err := open(t, at).VerifyAudit(t.Context()); n.Entry != 6 || err != nil {
				t.Errorf("%d entries, error %v; want 6", n.Entry, err)
			}
		})
	}
}

// TestOpenRefuses checks that each error of opening is one line with its remedy.
func TestOpenRefuses(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent := free.Addr().String()
	free.Close()
	server := postgres.Start(t)
	const secret = "battery-staple"
	for _, tc := range []struct {
		name string
		at   func(t *testing.T) store.Options
		want string
	}{
		{"nothing", func(*testing.T) store.Options { return store.Options{} }, "neither a directory nor a database"},
		{"a file for a directory", func(t *testing.T) store.Options {
			return store.Options{Dir: write(t, t.TempDir(), "file", "")}
		}, "give a directory that can be written to"},
		{"a directory for a file", func(t *testing.T) store.Options {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, store.FileName), 0o700); err != nil {
				t.Fatal(err)
			}
			return store.Options{Dir: dir}
		}, "give a directory that can be written to"},
		{"a file that is no database", func(t *testing.T) store.Options {
			return store.Options{
				Dir: filepath.Dir(write(t, t.TempDir(), store.FileName, strings.Repeat("no database\n", 1000))),
			}
		}, "restore a copy and run `curfew state`"},
		{"a file that was cut off", func(t *testing.T) store.Options {
			dir := t.TempDir()
			fill(t, store.Options{Dir: dir})
			if err := os.Truncate(filepath.Join(dir, store.FileName), 4096+100); err != nil {
				t.Fatal(err)
			}
			return store.Options{Dir: dir}
		}, "restore a copy and run `curfew state`"},
		{"another kind of database", func(*testing.T) store.Options {
			return store.Options{URL: "mysql://ana:" + secret + "@db/curfew"}
		}, "has to begin with postgres://"},
		{"a URL that cannot be read", func(*testing.T) store.Options {
			return store.Options{URL: "postgres://ana:" + secret + "%@db:port/curfew"}
		}, "write postgres://USER:PASSWORD@HOST:PORT/NAME"},
		{"a wrong password", func(t *testing.T) store.Options {
			return store.Options{URL: postgres.As(t, server, url.UserPassword(postgres.GuardedUser, secret))}
		}, "check the user and the password"},
		{"a database that is not there", func(*testing.T) store.Options {
			return store.Options{URL: strings.Replace(server, "/test_", "/missing_", 1)}
		}, "make the database first"},
		{"a schema of another user", func(t *testing.T) store.Options {
			return store.Options{
				URL: postgres.As(t, server, url.UserPassword(postgres.GuardedUser, postgres.GuardedPassword)),
			}
		}, "the user has to own its schema"},
		{"no server", func(*testing.T) store.Options {
			return store.Options{URL: "postgres://ana:" + secret + "@" + silent + "/curfew"}
		}, "check that the server runs and can be reached"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := tc.at(t)
			s, err := store.Open(t.Context(), at)
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if text := err.Error(); !strings.HasPrefix(text, "open the state") || !strings.Contains(text, tc.want) ||
				strings.ContainsAny(text, "\n\t") {
				t.Errorf("got %q, want one line with %q", text, tc.want)
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

func TestOpenRefusesNewerDatabases(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			fill(t, at)
			if _, err := raw(t,
				at).Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)"); err !=
				nil {
				t.Fatal(err)
			}
			s, err := store.Open(t.Context(), at)
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), "a newer curfew wrote it (schema 9999") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q", err)
			}
		})
	}
}

func TestOpenStopsWaiting(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if s, err := store.Open(ctx, d.open(t)); !errors.Is(err, context.Canceled) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, %v; want context.Canceled in one line", s, err)
			}
		})
	}
}

// TestSyncsTransactions checks that SQLite syncs each transaction to disk.
func TestSyncsTransactions(t *testing.T) {
	at := store.Options{Dir: t.TempDir()}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		if got := store.Pragma(t, open(t, at), pragma); got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
}

// TestTemporaryStateDoesNotSync checks that a demonstration's state, which is discarded anyway, is
// not synced.
func TestTemporaryStateDoesNotSync(t *testing.T) {
	at := store.Options{Dir: t.TempDir(), Temporary: true}
	if got := store.Pragma(t, open(t, at), "synchronous"); got != "0" {
		t.Errorf("synchronous is %s, want 0", got)
	}
}

// TestOpenCompletesPartialState checks that a state left incomplete by a crashed process is
// completed.
func TestOpenCompletesPartialState(t *testing.T) {
	whole := store.Options{Dir: t.TempDir()}
	fill(t, whole)
	half, err := os.ReadFile(filepath.Join(whole.Dir, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	at := store.Options{Dir: t.TempDir()}
	write(t, at.Dir, store.FileName, "")
	for _, end := range []string{"", "-wal", "-shm"} {
		write(t, at.Dir, store.FileName+".new"+end, string(half[:len(half)/2]))
	}
	target := filepath.Join(t.TempDir(), "elsewhere")
	write(t, filepath.Dir(target), "elsewhere", "")
	linked := store.Options{Dir: t.TempDir()}
	if err := os.Symlink(target, filepath.Join(linked.Dir, store.FileName)); err != nil {
		t.Fatal(err)
	}
	for _, at := range []store.Options{at, linked} {
		fill(t, at)
		if n, err := open(t, at).VerifyAudit(t.Context()); n.Entry != 100 || err != nil {
			t.Errorf("%d entries, error %v; want 100", n.Entry, err)
		}
		if left, err := filepath.Glob(filepath.Join(at.Dir, "*.new*")); len(left) > 0 || err != nil {
			t.Errorf("%v is left, error %v", left, err)
		}
	}
	if info, err := os.Stat(target); err != nil || info.Size() == 0 {
		t.Errorf("the file that the state is linked to is empty: %v", err)
	}
}

// fill makes a state with some entries.
func fill(t *testing.T, at store.Options) {
	t.Helper()
	s, err := store.Open(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Actions().Record(t.Context(), hundredEntries()...)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

// hundredEntries returns a hundred entries.
func hundredEntries() []action.Entry {
	all := make([]action.Entry, 100)
	for i := range all {
		all[i] = action.Entry{At: noon, What: "warned", Because: strings.Repeat("idle ", 20)}
	}
	return all
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNow checks the state's time, which only machines of one server share.
func TestNow(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			before := time.Now().Truncate(time.Microsecond)
			now, common, err := open(t, at).Actions().Now(t.Context())
			switch after := time.Now(); {
			case err != nil:
				t.Fatal(err)
			case common != (at.URL != "") || now.Before(before) || now.After(after):
				t.Errorf("it is %s, in common %t, between %s and %s", now, common, before, after)
			}
		})
	}
}

// TestOpenDoesNotWaitForMigrations checks that a process that needs no migration, such as a freeze,
// does not wait for the lock of migrations.
func TestOpenDoesNotWaitForMigrations(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			fill(t, at)
			lockOfMigrations(t, at)
			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			s, err := store.Open(ctx, at)
			if err != nil {
				t.Fatal(err)
			}
			err = s.Actions().Freeze(ctx, action.Freeze{At: noon, By: "ana", Reason: "an incident"})
			if err := errors.Join(err, s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// lockOfMigrations holds the lock until the end of the test.
func lockOfMigrations(t *testing.T, at store.Options) {
	t.Helper()
	if at.URL != "" {
		c, err := raw(t, at).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", int64(0x637572666577)); err != nil {
			t.Fatal(err)
		}
		return
	}
	db, err := sql.Open("sqlite", filepath.Join(at.Dir, store.FileName+".lock")+"?_txlock=exclusive")
	if err != nil {
		t.Fatal(err)
	}
	held, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = held.Rollback(), db.Close() })
}

// TestSilentServerTimesOut checks that a server that accepts but never responds is given up within
// seconds.
func TestSilentServerTimesOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			if _, err := l.Accept(); err != nil { // kept open without a response
				return
			}
		}
	}()
	before := time.Now()
	_, err = store.Open(t.Context(), store.Options{
		URL: "postgres://ana@" + l.Addr().String() + "/curfew?sslmode=disable&connect_timeout=1",
	})
	if waited := time.Since(before); err == nil || waited > time.Minute ||
		!strings.Contains(err.Error(), "check that the server runs") {
		t.Errorf("after %s: %v", waited, err)
	}
}

// TestHeldLockTimesOut checks that waiting for another process's lock is bounded.
func TestHeldLockTimesOut(t *testing.T) {
	at := databases[1].open(t)
	s := open(t, at)
	held, err := raw(t, at).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback()
	if _, err := held.Exec("SELECT * FROM freezes FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	l := action.Ladder{Store: s.Actions(), Actor: "ana", Clock: func() action.Clock {
		return action.Clock{Wall: noon}
	}}
	before := time.Now()
	if err := l.Freeze(ctx, "an incident"); err == nil || !strings.Contains(err.Error(), action.FreezeByHand) ||
		time.Since(before) > time.Minute {
		t.Errorf("after %s: %v", time.Since(before), err)
	}
}

// TestOpenRefusesNewerSchema refuses a schema that is one step newer.
func TestOpenRefusesNewerSchema(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			fill(t, at)
			if _, err := raw(t,
				at).Exec("INSERT INTO goose_db_version (version_id, is_applied) SELECT MAX(version_id) + 1, " +
				"TRUE FROM goose_db_version"); err != nil {
				t.Fatal(err)
			}
			if s, err := store.Open(t.Context(), at); err == nil ||
				!strings.Contains(err.Error(), "a newer curfew wrote it") {
				t.Errorf("opened %v: %v", s, err)
			}
		})
	}
}
