package postgres_test

import (
	"bufio"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/test/postgres"
	"github.com/curfew-dev/curfew/test/shared"
)

// childVariable makes the test binary start a server and print its address.
const childVariable = "CURFEW_POSTGRES_CHILD"

func TestMain(m *testing.M) { os.Exit(postgres.Run(m)) }

func TestDatabasesAreFresh(t *testing.T) {
	for range 2 {
		db := open(t, postgres.Start(t))
		if _, err := db.Exec("CREATE TABLE only_once (id INT)"); err != nil {
			t.Error(err)
		}
	}
}

func TestGuardedUserNeedsItsPassword(t *testing.T) {
	at := postgres.Start(t)
	for _, tc := range []struct {
		password string
		opens    bool
	}{{postgres.GuardedPassword, true}, {"battery-staple", false}} {
		db := open(t, postgres.As(t, at, url.UserPassword(postgres.GuardedUser, tc.password)))
		if err := db.Ping(); (err == nil) != tc.opens {
			t.Errorf("password %s: got %v, want it to open: %t", tc.password, err, tc.opens)
		}
	}
}

func TestServerDiesWithTheTest(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		fmt.Println("server at " + postgres.Start(t))
		time.Sleep(time.Minute) // it is killed long before
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithTheTest$")
	cmd.Env = append(os.Environ(), childVariable+"=1", shared.Variable+"=") // without shared servers
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	at := strings.TrimSpace(strings.TrimPrefix(line, "server at "))
	if err != nil {
		t.Fatalf("the child said %q: %v", line, err)
	}
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(u.Query().Get("host")) })
	db := open(t, at)
	if err := db.Ping(); err != nil {
		t.Errorf("the child's server does not answer: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()     // it was killed
	for range 12_000 { // a minute
		if db.Ping() != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the server outlives the process that started it")
}

func open(t *testing.T, at string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
