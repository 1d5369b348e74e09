package connect

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/session"
)

// TestEntryCommandFindsDatabase checks that an entry's command finds the session's database from
// any folder, that no entry is written where it would not, and that neither entries nor messages
// contain a database URL.
func TestEntryCommandFindsDatabase(t *testing.T) {
	const url, other = "postgres://curfew:secret@db/curfew", "postgres://curfew:hidden@db/other"
	for _, c := range []struct {
		name      string
		env, yaml string
		flag      string
		refused   bool
		state     string // database used by the entry's command
	}{
		{name: "a file in the data directory"},
		{name: "the environment names it", env: url, state: url},
		{name: "the configuration names it", yaml: url, state: url},
		{name: "the environment counts more", env: url, yaml: other, state: url},
		{name: "a flag names it", flag: url, refused: true},
		{name: "a flag names another one", flag: url, env: other, refused: true},
		{name: "a flag names the same", flag: url, yaml: url, state: url},
	} {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		lookup := func(name string) (string, bool) {
			switch name {
			case "HOME":
				return dir, true
			case "CURFEW_DATABASE_URL":
				return c.env, c.env != ""
			}
			return "", false
		}
		file := filepath.Join(dir, "curfew.yaml")
		text := "identity: ana\n"
		if c.yaml != "" {
			text += "database_url: " + c.yaml + "\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		req := runtime.NewProcess(runtime.Host{Now: time.Now, Lookup: lookup, Dir: dir, Log: io.Discard}).Request()
		req.ConfigFlag, req.DataFlag, req.DatabaseFlag = file, filepath.Join(dir, "state"), c.flag
		cfg, err := req.Config()
		if err != nil {
			t.Fatal(err)
		}
		a := &sessions.Sessions{Request: req, Config: cfg}
		e, err := sessions.NewSSHEntry(a, "demo", 0)
		if err != nil {
			t.Fatal(err)
		}
		err = writeEntry(a, e, &session.Session{ID: "s1", Name: "demo"}, "ubuntu",
			Options{Confirm: func(string, string) error { return nil }})
		entry, _ := os.ReadFile(e.File(".conf"))
		if c.refused {
			said := (*runtime.Error)(nil)
			if !errors.As(err, &said) || said.Class != runtime.Usage ||
				!strings.Contains(said.Hint, "CURFEW_DATABASE_URL") ||
				strings.Contains(err.Error()+said.Hint, "secret") || len(entry) > 0 {
				t.Errorf("%s: %v, and the entry is\n%s", c.name, err, entry)
			}
			if _, err := os.Stat(filepath.Join(dir, ".ssh", "config")); err == nil {
				t.Errorf("%s: ~/.ssh/config was written", c.name)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if strings.Contains(string(entry), "postgres:") {
			t.Errorf("%s: the entry has the URL:\n%s", c.name, entry)
		}
		// Run the entry's command in another folder.
		_, proxy, _ := strings.Cut(string(entry), "ProxyCommand ")
		words := strings.Fields(proxy)
		there := runtime.NewProcess(runtime.Host{Now: time.Now, Lookup: lookup, Dir: t.TempDir(), Log: io.Discard})
		for i, w := range words {
			switch w {
			case "--data-dir":
				there.DataFlag = words[i+1]
			case "--config":
				there.ConfigFlag = words[i+1]
			}
		}
		got, err := there.Config()
		if err != nil || got.DatabaseURL != c.state || got.DataDir != cfg.DataDir {
			t.Errorf("%s: its command uses %q in %s, %v", c.name, got.DatabaseURL, got.DataDir, err)
		}
	}
}

// TestRefusesHostileEntryValues checks that no value from a machine or name adds a line to SSH's
// configuration, and that keys are not written to folders of other users.
func TestRefusesHostileEntryValues(t *testing.T) {
	home := t.TempDir()
	req := runtime.NewProcess(runtime.Host{
		Now: time.Now, Dir: home, Log: io.Discard,
		Lookup: func(name string) (string, bool) { return home, name == "HOME" },
	}).Request()
	a := &sessions.Sessions{Request: req}
	for _, name := range []string{
		"", "*", "demo *", "demo\nHost *", "a/../b", "-x", "!demo", "demo?", strings.Repeat("x", 101),
	} {
		if e, err := sessions.NewSSHEntry(a, name, 0); err == nil {
			t.Errorf("%q is the host %q", name, e.Alias)
		}
	}
	e, err := sessions.NewSSHEntry(a, "demo", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		head, user string
		proxy      []string
		ok         bool
	}{
		{"# head", "ec2-user", []string{"curfew", "connect", "demo"}, true},
		{"# head", "ubuntu\n  ProxyCommand evil", nil, false},
		{"# head", "ubuntu ProxyCommand evil", nil, false},
		{"# head", "-oProxyCommand=evil", nil, false},
		{"# head", `u"`, nil, false},
		{"# head", "%h", nil, false},
		{"# head", "", nil, false},
		{"# head\nHost *", "ubuntu", nil, false},
		{"# head", "ubuntu", []string{"curfew", "--data-dir", "/a\nHost *"}, false},
		{"# head", "ubuntu", []string{"curfew", "--data-dir", "/a b%h'c"}, true},
	} {
		text, err := e.Text(c.head, c.user, c.proxy)
		if (err == nil) != c.ok || strings.Count(text, "\nHost ") > 1 || strings.Count(text, "ProxyCommand") > 1 {
			t.Errorf("%q, %q, %q: %v\n%s", c.head, c.user, c.proxy, err, text)
		}
	}
	// A folder of another user.
	for _, dir := range []string{filepath.Join(home, ".ssh"), e.Dir} {
		if err := e.CreateDir(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o770); err != nil {
			t.Fatal(err)
		}
		if err := e.CreateDir(); err == nil {
			t.Errorf("%s is writable for its group", dir)
		}
		if _, err := e.Lock(t.Context()); err == nil {
			t.Errorf("a key is offered in %s", dir)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.CreateDir(); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(e.Dir); err != nil || i.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(e.Dir, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if err := e.CreateDir(); err == nil {
			t.Error("it is another user's")
		}
	}
}

// TestPinsHostKey checks that only the host key supplied by the machine is accepted.
func TestPinsHostKey(t *testing.T) {
	key := func() ssh.Signer {
		_, s, _, err := keyPair()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	handed, other := key(), key()
	for name, c := range map[string]struct {
		server ssh.Signer
		ok     bool
	}{"the same": {handed, true}, "another": {other, false}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		config := &ssh.ServerConfig{NoClientAuth: true}
		config.AddHostKey(c.server)
		go func() {
			server, err := l.Accept()
			if err != nil {
				return
			}
			conn, _, requests, err := ssh.NewServerConn(server, config)
			if err == nil {
				go ssh.DiscardRequests(requests)
				_ = conn.Wait()
			}
			_ = server.Close()
		}()
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		door := &sshEndpoint{user: "u", hostKey: handed.PublicKey()}
		conn, channels, requests, err := ssh.NewClientConn(client, "machine", door.config(key()))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			_ = ssh.NewClient(conn, channels, requests).Close()
		}
		_ = errors.Join(client.Close(), l.Close()) // they may be closed
	}
}
