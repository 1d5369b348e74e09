package storm

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver for reading the state directly

	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/test/faultproxy"
	"github.com/curfew-dev/curfew/test/otheruser"
	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// childVariable holds the order of a process that may be killed.
const childVariable = "CURFEW_STORM_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		var o order
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(o.run(context.Background(), os.Stdout, os.Stderr))
	}
	debug.SetGCPercent(400) // many short commands leave much garbage, and there is memory
	os.Exit(postgres.Run(m))
}

// stand is shared by all worlds: moto, in which each has a separate account, and a PostgreSQL
// server, in which each has a separate database.
type stand struct {
	dir, motoURL string
	began        time.Time
	worlds       atomic.Int64
	// Totals of all worlds.
	ended, fixes, holds, approvals, restored, stalled, meddled atomic.Int64
	everywhere                                                 sync.Map // see memory
	// user is another user of the machine, who runs program; only set as root.
	user    otheruser.User
	program string

	template string      // URL of a database with the schema
	left     []*database // empty databases of worlds that ended
	admin    *sql.DB

	mu       sync.Mutex
	profiles map[string]string
	closers  map[*world][]func()
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{
		dir: t.TempDir(), began: time.Now().UTC().Truncate(time.Hour), profiles: map[string]string{},
		closers: map[*world][]func(){},
	}
	account, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := account.Close(); err != nil {
			t.Error(err)
		}
	})
	s.motoURL = account.MotoURL()
	if os.Geteuid() == 0 {
		s.user, s.program = otheruser.One(t), otheruser.Program(t, os.Args[0])
	}
	for _, e := range account.Env() {
		name, value, _ := strings.Cut(e, "=")
		if name != "AWS_DISABLE_REQUEST_COMPRESSION" && name != "AWS_EC2_METADATA_DISABLED" &&
			name != "AWS_SHARED_CREDENTIALS_FILE" {
			value = ""
		}
		t.Setenv(name, value)
		if value == "" {
			os.Unsetenv(name) // Setenv restores it
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(s.dir, "aws"))

	// The server's clock is replaced by that of the worlds: a function that takes precedence over
	// the server's, only for connections to these databases.
	s.template = postgres.Start(t) + "&options=-c%20search_path%3Dpublic,pg_catalog"
	migrated, err := store.Open(t.Context(), store.Options{URL: s.template})
	if err != nil {
		t.Fatal(err)
	}
	migrated.Close()
	for _, statement := range []string{
		"CREATE TABLE world_clock (at TIMESTAMPTZ NOT NULL)",
		"INSERT INTO world_clock VALUES (pg_catalog.CLOCK_TIMESTAMP())",
		"CREATE FUNCTION public.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE AS 'SELECT at FROM " +
			"public.world_clock'",
		emptying,
	} {
		if err := execute(t.Context(), s.template, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if s.admin, err = sql.Open("pgx", withDatabase(s.template, "postgres")); err != nil {
		t.Fatal(err)
	}
	s.admin.SetMaxOpenConns(1) // concurrent copies of one template conflict
	t.Cleanup(func() { s.admin.Close() })
	return s
}

func execute(ctx context.Context, at, statement string) error {
	db, err := sql.Open("pgx", at)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

func withDatabase(at, name string) string {
	u, err := url.Parse(at)
	if err != nil {
		panic(err) // postgres.Start made it
	}
	u.Path = "/" + name
	return u.String()
}

func databaseName(at string) string {
	u, err := url.Parse(at)
	if err != nil {
		panic(err) // postgres.Start made it
	}
	return strings.TrimPrefix(u.Path, "/")
}

// profile adds a profile to the file that the SDK reads.
func (s *stand) profile(name, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.profiles[name] = text
	s.write()
}

func (s *stand) write() {
	var b strings.Builder
	for name, text := range s.profiles {
		fmt.Fprintf(&b, "[profile %s]\n%s\n", name, text)
	}
	file := filepath.Join(s.dir, "aws")
	if err := os.WriteFile(file+".new", []byte(b.String()), 0o600); err != nil {
		panic(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		panic(err)
	}
}

// onClose registers what ends with a world.
func (s *stand) onClose(w *world, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closers[w] = append(s.closers[w], do)
}

// close ends a world.
func (s *stand) close(w *world) {
	s.mu.Lock()
	all := s.closers[w]
	delete(s.closers, w)
	for _, h := range w.hosts {
		delete(s.profiles, w.profile(h))
	}
	s.write()
	s.mu.Unlock()
	for i := len(all) - 1; i >= 0; i-- {
		all[i]()
	}
	os.RemoveAll(w.dir)
}

// emptying creates a function that resets a database to its state after the migrations, at a tenth
// of the cost of a new one. It first ends connections that the next world must not meet.
const emptying = `CREATE SCHEMA first;
DO $$
DECLARE name TEXT;
BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
    EXECUTE format('CREATE TABLE first.%I AS TABLE public.%I', name, name);
  END LOOP;
END $$;
CREATE FUNCTION public.empty() RETURNS void LANGUAGE plpgsql AS $$
DECLARE name TEXT;
BEGIN
  PERFORM pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
  SET LOCAL session_replication_role = replica;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'first' LOOP
    EXECUTE format('DELETE FROM public.%I', name);
    EXECUTE format('INSERT INTO public.%I SELECT * FROM first.%I', name, name);
  END LOOP;
END $$`

// database is the database of a world.
type database struct {
	url, name string
	own       *sql.DB
	worlds    int
}

// worldsOfOne is the number of worlds that use one database, because deleted rows stay in its
// files.
const worldsOfOne = 40

// share gives a world a database behind a proxy.
func (s *stand) share(ctx context.Context, w *world) error {
	d, err := s.database(ctx, "w"+w.account)
	if err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	s.onClose(w, func() { s.leave(d) })
	u, err := url.Parse(s.template)
	if err != nil {
		return err
	}
	if w.tcp, err = faultproxy.NewTCP("unix", filepath.Join(u.Query().Get("host"), ".s.PGSQL.5432")); err != nil {
		return err
	}
	s.onClose(w, w.tcp.Close)
	w.database = d
	return d.set(ctx, w.clock())
}

// database returns an empty one, of an earlier world or with this name.
func (s *stand) database(ctx context.Context, name string) (*database, error) {
	s.mu.Lock()
	if n := len(s.left); n > 0 {
		defer s.mu.Unlock()
		d := s.left[n-1]
		s.left = s.left[:n-1]
		return d, nil
	}
	s.mu.Unlock()
	d := &database{name: name, url: withDatabase(s.template, name)}
	if _, err := s.admin.ExecContext(ctx,
		"CREATE DATABASE "+d.name+" TEMPLATE "+databaseName(s.template)); err != nil {
		return nil, err
	}
	var err error
	d.own, err = sql.Open("pgx", d.url)
	if err == nil {
		d.own.SetMaxOpenConns(1) // it ends all others
	}
	return d, err
}

// leave empties a database for another world, or drops it.
func (s *stand) leave(d *database) {
	if d.worlds++; d.worlds < worldsOfOne {
		if _, err := d.own.Exec("SELECT public.empty()"); err == nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.left = append(s.left, d)
			return
		}
	}
	d.own.Close()
	_, _ = s.admin.Exec("DROP DATABASE " + d.name + " WITH (FORCE)") // it is removed with the server
}

func (d *database) set(ctx context.Context, now time.Time) error {
	_, err := d.own.ExecContext(ctx, "UPDATE world_clock SET at = $1", now)
	return err
}

func (d *database) open() (*sql.DB, error) { return sql.Open("pgx", d.url) }
