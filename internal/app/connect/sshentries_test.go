package connect

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/app/sessions"
	"github.com/curfew-dev/curfew/internal/session"
)

// TestAnEntryFindsItsState holds that the command of an SSH entry, given in any folder, finds the
// state of the session, and that no entry is written where it would not. No entry, and no message,
// has the URL of a database.
func TestAnEntryFindsItsState(t *testing.T) {
	const url, other = "postgres://curfew:secret@db/curfew", "postgres://curfew:hidden@db/other"
	for _, c := range []struct {
		name      string
		env, yaml string
		flag      string
		refused   bool
		state     string // the database that the entry's command uses
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
		e, err := sessions.SSHEntryOf(a, "demo", 0)
		if err != nil {
			t.Fatal(err)
		}
		err = writeEntry(a, e, &session.Session{ID: "s1", Name: "demo"}, "ubuntu", Options{Consent: func(string, string) error { return nil }})
		entry, _ := os.ReadFile(e.File(".conf"))
		if c.refused {
			said := (*runtime.Error)(nil)
			if !errors.As(err, &said) || said.Class != runtime.Usage || !strings.Contains(said.Hint, "CURFEW_DATABASE_URL") || strings.Contains(err.Error()+said.Hint, "secret") || len(entry) > 0 {
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
		// The command of the entry, in another folder.
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
