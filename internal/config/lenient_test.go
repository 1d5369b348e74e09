package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
)

// Valid parts of a file with mistakes are read, but the location of the state is never guessed.
func TestFilesWithMistakesAreReadLeniently(t *testing.T) {
	const good = "data_dir: /var/lib/curfew\ndatabase_url: postgres://db/curfew\nidentity: ana\n"
	for _, c := range []struct {
		name, src string
		ignored   []string
		refused   bool
	}{
		{"no mistake", good, nil, false},
		{"an unknown key", good + "bogus: 1\n", []string{"bogus"}, false},
		{"an unknown key before", "bogus: 1\n" + good, []string{"bogus"}, false},
		{
			"a value of another type", good + "aws: {requests_per_second: many}\nscan: {window: 2h}\n", []string{
				"aws",
			},
			false,
		},
		{"a list that does not end", good + "policies: [a, b\n", []string{"policies"}, false},
		{"a mistake in a block of lines", "enforce:\n  window: 2h\n  bogus: 1\n" + good, []string{"enforce"}, false},
		{"a tab", "scan:\n\twindow: 2h\n" + good, []string{"scan"}, false},
		{"carriage returns", strings.ReplaceAll(good+"bogus: 1\n", "\n", "\r\n"), []string{"bogus"}, false},
		{"no end of the last line", good + "bogus: 1", []string{"bogus"}, false},
		{"a place that is a list", "data_dir: [a]\ndatabase_url: postgres://db/curfew\nidentity: ana\n", nil, true},
		{"a place twice", good + "data_dir: /elsewhere\n", nil, true},
		{"a place on a line that cannot be read", "{data_dir: /elsewhere, bogus: 1}\n", nil, true},
		{"a place below another key", "bogus:\n  database_url: postgres://elsewhere/x\n", nil, true},
		{"a place in quotes", "\"data_dir\": [/elsewhere]\nbogus: 1\n", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "curfew.yaml")
			if err := os.WriteFile(path, []byte(c.src), 0o600); err != nil {
				t.Fatal(err)
			}
			got, ignored, err := config.LoadLenient(path, false, func(string) (string, bool) { return "", false })
			switch {
			case c.refused:
				if err == nil {
					t.Errorf("it is read as data_dir %q, database_url %q", got.DataDir, got.DatabaseURL)
				}
			case err != nil:
				t.Error(err)
			case got.DataDir != "/var/lib/curfew" || got.DatabaseURL != "postgres://db/curfew" ||
				got.Identity != "ana" ||
				!slices.Equal(ignored, c.ignored):
				t.Errorf("data_dir %q, database_url %q, identity %q, without %v; want it without %v",
					got.DataDir, got.DatabaseURL,
					got.Identity, ignored, c.ignored)
			}
		})
	}
}

// The environment overrides a lenient reading too; its invalid variables are left out, whether the
// file has mistakes, is valid, or does not exist.
func TestLenientReadingUsesEnvironment(t *testing.T) {
	env := map[string]string{"CURFEW_DATA_DIR": "/b", "CURFEW_SERVER_TIMEOUT": "never"}
	lookup := func(k string) (string, bool) { v, ok := env[k]; return v, ok }
	for _, c := range []struct {
		name, src string
		ignored   []string
	}{
		{"mistakes", "data_dir: /a\nbogus: 1\n", []string{"bogus", "CURFEW_SERVER_TIMEOUT"}},
		{"no mistake", "data_dir: /a\nserver_timeout: 7s\n", []string{"CURFEW_SERVER_TIMEOUT"}},
		{"no file", "", []string{"CURFEW_SERVER_TIMEOUT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path, timeout := "", config.Default().ServerTimeout
			if c.src != "" {
				path = filepath.Join(t.TempDir(), "curfew.yaml")
				if err := os.WriteFile(path, []byte(c.src), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.name == "no mistake" {
				timeout = 7 * time.Second
			}
			got, ignored, err := config.LoadLenient(path, false, lookup)
			if err != nil || got.DataDir != "/b" || got.ServerTimeout != timeout || !slices.Equal(ignored, c.ignored) {
				t.Errorf("data_dir %q, server_timeout %s without %v, %v", got.DataDir, got.ServerTimeout, ignored, err)
			}
		})
	}
}
