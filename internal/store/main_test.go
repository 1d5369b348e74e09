package store_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/store/storetest"
	"github.com/curfew-dev/curfew/test/postgres"
)

// childVariable makes the test binary run a job of the suite.
const childVariable = "CURFEW_STORE_CHILD"

// child are the parameters of a process of the tests.
type child struct {
	Options store.Options
	Job     storetest.Job
}

func TestMain(m *testing.M) {
	if text := os.Getenv(killedVariable); text != "" {
		if err := decideAndDie(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if text := os.Getenv(childVariable); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(postgres.Run(m))
}

func work(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	s, err := store.Open(context.Background(), c.Options)
	if err != nil {
		return err
	}
	defer s.Close()
	return storetest.Work(context.Background(), stores(s), c.Job, os.Stdin, os.Stdout)
}

// databases are the databases that tests run on, each initially empty. PostgreSQL's default
// isolation differs from the one that the caps rely on.
var databases = []struct {
	name string
	open func(t testing.TB) store.Options
}{
	{"SQLite", func(t testing.TB) store.Options { return store.Options{Dir: t.TempDir()} }},
	{"PostgreSQL", func(t testing.TB) store.Options {
		return store.Options{
			URL: postgres.Start(t) + "&options=-c%20default_transaction_isolation%3Drepeatable%5C%20read",
		}
	}},
}

// open opens a state and closes it when the test ends.
func open(tb testing.TB, o store.Options) *store.Store {
	tb.Helper()
	s, err := store.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// raw opens the database of a state.
func raw(tb testing.TB, o store.Options) *sql.DB {
	tb.Helper()
	driver, name := "pgx", o.URL
	if o.URL == "" {
		driver, name = "sqlite", "file:"+filepath.Join(o.Dir, store.FileName)+"?vfs=curfew"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	return db
}

func TestConformance(t *testing.T) {
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			at := d.open(t)
			storetest.Run(t, func(t *testing.T) *storetest.Backend { return backend(t, empty(t, at)) })
		})
	}
}

// states counts the created schemas; left holds, by database, those that a test has reset to the
// state after migration.
var (
	states atomic.Int64
	left   = map[string][]string{}
)

// empty returns an empty state next to another: a directory, or a schema of the same database,
// because creating a PostgreSQL database takes longer than most tests. Resetting a schema is faster
// than migrating one, so schemas are reused.
func empty(tb testing.TB, at store.Options) store.Options {
	tb.Helper()
	if at.URL == "" {
		return store.Options{Dir: tb.TempDir()}
	}
	db := raw(tb, at)
	name, fresh := "", false
	if n := len(left[at.URL]); n > 0 {
		name, left[at.URL] = left[at.URL][n-1], left[at.URL][:n-1]
	} else {
		name, fresh = fmt.Sprintf("state_%d", states.Add(1)), true
		if _, err := db.Exec("CREATE SCHEMA " + name); err != nil {
			tb.Fatal(err)
		}
	}
	o := store.Options{URL: at.URL + "%20-c%20search_path%3D" + name}
	if fresh {
		s, err := store.Open(tb.Context(), o)
		if err != nil {
			tb.Fatal(err)
		}
		if err := s.Close(); err != nil {
			tb.Fatal(err)
		}
		if _, err := db.Exec(strings.ReplaceAll(emptying, "STATE", name)); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(func() {
		again := raw(tb, at)
		if _, err := again.Exec("SELECT " + name + "_first.empty()"); err == nil { // otherwise create another one
			left[at.URL] = append(left[at.URL], name)
		}
	})
	return o
}

// emptying creates a function that resets a schema to the state after migration. Connections left
// by a test are terminated first.
const emptying = `CREATE SCHEMA STATE_first;
DO $$
DECLARE name TEXT;
BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'STATE' LOOP
    EXECUTE format('CREATE TABLE STATE_first.%I AS TABLE STATE.%I', name, name);
  END LOOP;
END $$;
CREATE FUNCTION STATE_first.empty() RETURNS void LANGUAGE plpgsql AS $$
DECLARE name TEXT;
BEGIN
  PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
  SET LOCAL session_replication_role = replica;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'STATE_first' LOOP
    EXECUTE format('DELETE FROM STATE.%I', name);
    EXECUTE format('INSERT INTO STATE.%I SELECT * FROM STATE_first.%I', name, name);
  END LOOP;
END $$`

func backend(tb testing.TB, o store.Options) *storetest.Backend {
	s := open(tb, o)
	b := stores(s)
	b.Reopen = func(tb testing.TB) *storetest.Backend { return backend(tb, o) }
	b.Child = func(tb testing.TB, job storetest.Job) *exec.Cmd {
		text, err := json.Marshal(child{o, job})
		if err != nil {
			tb.Fatal(err)
		}
		cmd := exec.CommandContext(tb.Context(), os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), childVariable+"="+string(text))
		return cmd
	}
	b.Check = func(tb testing.TB) {
		if _, err := s.VerifyAudit(tb.Context()); err != nil {
			tb.Error(err)
		}
		if o.URL == "" {
			var found string
			if err := raw(tb, o).QueryRow("PRAGMA integrity_check").Scan(&found); err != nil || found != "ok" {
				tb.Errorf("SQLite finds %q, %v", found, err)
			}
		}
	}
	return b
}

// stores returns the stores of a state.
func stores(s *store.Store) *storetest.Backend {
	return &storetest.Backend{
		Actions: s.Actions(), Approvals: s.Approvals(), Bills: s.Bills(), Ledger: s.Ledger(), Budgets: s.Budgets(),
		Gate: s.Gate(), Snapshots: s.Snapshots(), Sessions: s.Sessions(),
	}
}
