// Package postgres starts a real PostgreSQL server for tests: a shared one of the test run if there
// is one, otherwise one for each test process, in a temporary directory, on a Unix socket, that
// ends with its starter.
package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the tests' own connection

	"github.com/curfew-dev/curfew/test/shared"
)

// Kind is the name of the server among the shared servers of a test run.
const Kind = "postgres"

// GuardedUser is a role that requires [GuardedPassword]; all others need none.
const (
	GuardedUser     = "guarded"
	GuardedPassword = "correct-horse"
)

// server is a running server.
type server struct {
	dir  string
	cmd  *exec.Cmd
	log  bytes.Buffer // output of the server; read after its end
	done chan error
	db   *sql.DB
}

var (
	running atomic.Bool // Run is active
	start   sync.Once
	// databases creates and drops the databases of this process.
	databases interface {
		Answer(ctx context.Context, request string) (string, error)
	}
	failure error

	launching sync.Mutex
	one       *server // of this process
	names     atomic.Int64
)

// Run runs the tests of a package and stops the server that they started. TestMain exits with the
// result.
func Run(m *testing.M) int {
	running.Store(true)
	code := m.Run()
	if err := Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Stop stops the server of this process, if there is one.
func Stop() error {
	launching.Lock()
	defer launching.Unlock()
	if one == nil {
		return nil
	}
	s := one
	one = nil
	return s.stop()
}

// Start returns the URL of a new database, which is dropped when the test ends. The first call
// starts the server. If PostgreSQL is missing, the test fails with installation advice.
func Start(tb testing.TB) string {
	tb.Helper()
	if !running.Load() {
		tb.Fatal("postgres.Start needs postgres.Run in TestMain, which stops the server")
	}
	start.Do(func() {
		run, err := shared.Dial(context.Background(), Kind)
		databases, failure = run, err
		if run == nil {
			databases = Share()
		}
	})
	if failure != nil {
		tb.Fatal(failure)
	}
	at, err := databases.Answer(tb.Context(), "create")
	if err != nil {
		tb.Fatalf("make a database: %v", err)
	}
	tb.Cleanup(func() {
		if _, err := databases.Answer(context.Background(), "drop "+at); err != nil {
			tb.Errorf("drop the database: %v", err)
		}
	})
	return at
}

// Server is a test's own server, which can be stopped and restarted with its data.
type Server struct {
	s    *server
	args []string
}

// Own starts a server for one test, which ends with the test, and returns the URL of a database.
func Own(tb testing.TB) (*Server, string) {
	tb.Helper()
	o, at, err := Launch(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := o.Remove(); err != nil {
			tb.Error(err)
		}
	})
	return o, at
}

// Launch starts a server and returns the URL of a database, until Remove. Settings such as
// "autovacuum=on" override those for tests.
func Launch(ctx context.Context, settings ...string) (*Server, string, error) {
	s, err := launch(settings...)
	if err != nil {
		return nil, "", err
	}
	if _, err := s.db.ExecContext(ctx, "CREATE DATABASE own"); err != nil {
		return nil, "", errors.Join(fmt.Errorf("make a database: %w", err), s.stop())
	}
	return &Server{s, s.cmd.Args}, s.url("own"), nil
}

// Remove ends the server and removes its files.
func (o *Server) Remove() error { return o.s.stop() }

// Stop ends the server immediately, like a crash.
func (o *Server) Stop() error {
	err := errors.Join(o.s.db.Close(), end(o.s.cmd))
	<-o.s.done
	o.s.cmd, o.s.db = nil, nil
	return err
}

// Start restarts the server with its data.
func (o *Server) Start() error {
	owner, err := account()
	if err != nil {
		return err
	}
	o.s.cmd = exec.Command(o.args[0], o.args[1:]...)
	o.s.cmd.Dir, o.s.cmd.Stderr = o.s.dir, &o.s.log
	owner.run(o.s.cmd)
	return o.s.begin()
}

// As returns a database's URL for another user.
func As(tb testing.TB, database string, user *url.Userinfo) string {
	tb.Helper()
	u, err := url.Parse(database)
	if err != nil {
		tb.Fatal(err)
	}
	u.User = user
	return u.String()
}

func (s *server) url(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User("curfew"), Path: "/" + database,
		RawQuery: url.Values{"host": {s.dir}}.Encode(),
	}
	return u.String()
}

// binary returns the path of one of the server's programs: on the PATH, or the newest in Debian's
// directories.
func binary(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf(
			"find PostgreSQL's %s: it is neither on the PATH nor below /usr/lib/postgresql; on Debian: "+
				"apt-get install postgresql", name)
	}
	return slices.MaxFunc(found, func(a, b string) int { return release(a) - release(b) }), nil
}

// release returns the major release in Debian's path of a binary.
func release(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // 0 if it is not a number
	return n
}

// settings trade durability in a crash of the whole machine for speed; a crash of the server or its
// clients loses nothing.
var settings = []string{
	"fsync=off", "full_page_writes=off", "listen_addresses=", "max_connections=400",
	"shared_buffers=64MB", "max_wal_size=256MB", "autovacuum=off", "log_min_messages=fatal",
}

// access is pg_hba.conf.
const access = "local all " + GuardedUser + " scram-sha-256\nlocal all all trust\n"

// launch creates a cluster and starts its server.
func launch(more ...string) (_ *server, err error) {
	initdb, err := binary("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := binary("postgres")
	if err != nil {
		return nil, err
	}
	// The path of a socket is limited to about 100 bytes.
	s := &server{done: make(chan error, 1)}
	if s.dir, err = os.MkdirTemp("/tmp", "curfew-pg-"); err != nil {
		return nil, fmt.Errorf("make a place for PostgreSQL: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	owner, err := account()
	if err != nil {
		return nil, err
	}
	if err := owner.own(s.dir); err != nil {
		return nil, fmt.Errorf("make a place for PostgreSQL: %w", err)
	}
	data := filepath.Join(s.dir, "data")
	cluster := exec.Command(initdb, "--pgdata", data, "--username=curfew", "--auth=trust", "--no-sync",
		"--no-instructions",
		"--locale=C", "--encoding=UTF8", "--wal-segsize=1")
	cluster.Dir = s.dir
	owner.run(cluster)
	if out, err := cluster.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a PostgreSQL cluster: %w: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(access), 0o600); err != nil {
		return nil, fmt.Errorf("make a PostgreSQL cluster: %w", err)
	}
	args := []string{"-D", data, "-k", s.dir}
	for _, setting := range slices.Concat(settings, more) {
		args = append(args, "-c", setting)
	}
	s.cmd = exec.Command(postgres, args...)
	s.cmd.Dir, s.cmd.Stderr = s.dir, &s.log
	owner.run(s.cmd)
	if err := s.begin(); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

// begin starts the server and waits until it responds.
func (s *server) begin() error {
	started := make(chan error, 1)
	go func() {
		// The kernel ends the child with the thread that started it, so keep that thread until the
		// child has ended by itself.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.done <- s.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		s.cmd = nil
		return err
	}
	var err error
	if s.db, err = sql.Open("pgx", s.url("postgres")); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for {
		_, err = s.db.ExecContext(ctx, "CREATE ROLE "+GuardedUser+" LOGIN PASSWORD '"+GuardedPassword+"'")
		var exists *pgconn.PgError
		if err == nil || errors.As(err, &exists) && exists.Code == "42710" { // it exists since the first start
			return nil
		}
		select {
		case ended := <-s.done:
			s.done <- ended
			return fmt.Errorf("it ended at once: %w: %s", errors.Join(ended, err), s.log.String())
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the server and removes its files.
func (s *server) stop() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	if s.cmd != nil {
		err = errors.Join(err, end(s.cmd))
		<-s.done
	}
	if err = errors.Join(err, os.RemoveAll(s.dir)); err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return nil
}
