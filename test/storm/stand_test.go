package storm

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the tests' own look

	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/test/faultproxy"
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
	os.Exit(postgres.Run(m))
}

// stand is what all worlds share: moto, in which each has an account of its own, and a
// PostgreSQL server, in which each has a database of its own.
type stand struct {
	dir, motoURL string
	began        time.Time
	worlds       atomic.Int64
	ended, holds atomic.Int64 // what was done in all worlds

	template string // the URL of a database with the schema
	admin    *sql.DB

	mu       sync.Mutex
	profiles map[string]string
	closers  map[*world][]func()
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{dir: t.TempDir(), began: time.Now().UTC().Truncate(time.Hour), profiles: map[string]string{}, closers: map[*world][]func(){}}
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
	for _, e := range account.Env() {
		name, value, _ := strings.Cut(e, "=")
		if name != "AWS_DISABLE_REQUEST_COMPRESSION" && name != "AWS_EC2_METADATA_DISABLED" && name != "AWS_SHARED_CREDENTIALS_FILE" {
			value = ""
		}
		t.Setenv(name, value)
		if value == "" {
			os.Unsetenv(name) // Setenv puts it back
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(s.dir, "aws"))

	s.template = postgres.Start(t)
	migrated, err := store.Open(t.Context(), store.Options{URL: s.template})
	if err != nil {
		t.Fatal(err)
	}
	migrated.Close()
	for _, statement := range []string{
		// The server's own clock is the worlds': a function that comes before the one of
		// the server.
		"CREATE TABLE world_clock (at TIMESTAMPTZ NOT NULL)",
		"INSERT INTO world_clock VALUES (pg_catalog.CLOCK_TIMESTAMP())",
		"CREATE FUNCTION public.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE AS 'SELECT at FROM public.world_clock'",
		"ALTER ROLE curfew SET search_path = public, pg_catalog",
	} {
		if err := execute(t.Context(), s.template, statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	if s.admin, err = sql.Open("pgx", withDatabase(s.template, "postgres")); err != nil {
		t.Fatal(err)
	}
	s.admin.SetMaxOpenConns(1) // two copies of one template disturb one another
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

// profile puts a profile into the file that the SDK reads.
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

// onClose remembers what ends with a world.
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

// database is the one of a world.
type database struct {
	url, name string
	own       *sql.DB
}

// share gives a world a database behind a proxy.
func (s *stand) share(ctx context.Context, w *world) error {
	d := &database{name: "w" + w.account}
	d.url = withDatabase(s.template, d.name)
	if _, err := s.admin.ExecContext(ctx, "CREATE DATABASE "+d.name+" TEMPLATE "+databaseName(s.template)); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	s.onClose(w, func() {
		_, _ = s.admin.Exec("DROP DATABASE " + d.name + " WITH (FORCE)") // it goes with the server
	})
	var err error
	if d.own, err = sql.Open("pgx", d.url); err != nil {
		return err
	}
	s.onClose(w, func() { d.own.Close() })
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

func (d *database) set(ctx context.Context, now time.Time) error {
	_, err := d.own.ExecContext(ctx, "UPDATE world_clock SET at = $1", now)
	return err
}

func (d *database) open() (*sql.DB, error) { return sql.Open("pgx", d.url) }
