package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func nothing(string) (string, bool) { return "", false }

// file writes a file that its owner alone can write.
func file(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFoundFilesOfOthersAreRefused: a configuration that others could have written is
// refused where it is found and read where the user names it.
func TestFoundFilesOfOthersAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, says string
		spoil      func(t *testing.T, path string)
	}{
		{"written by the group", "can be written by others (mode 0620)", func(t *testing.T, path string) { change(t, os.Chmod(path, 0o620)) }},
		{"written by all", "can be written by others (mode 0602)", func(t *testing.T, path string) { change(t, os.Chmod(path, 0o602)) }},
		{"of another user", "belongs to user 4242", func(t *testing.T, path string) { chown(t, path) }},
		{"a link of another user", "belongs to user 4242", func(t *testing.T, path string) {
			own := path + ".own"
			change(t, os.Rename(path, own))
			change(t, os.Symlink(own, path))
			chown(t, path)
		}},
		{"read by all", "", func(t *testing.T, path string) { change(t, os.Chmod(path, 0o644)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := file(t, filepath.Join(t.TempDir(), FileName), "identity: ana\n")
			tc.spoil(t, path)
			_, err := (*Cache)(nil).LoadFound(path, nothing)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("LoadFound: %v, want %q", err, tc.says)
			}
			if c, err := Load(path, nothing); err != nil || c.Identity != "ana" {
				t.Errorf("Load of what the user named: %+v, %v", c.Identity, err)
			}
			if err := (Config{found: true}).TrustPolicy(path); (err == nil) != (tc.says == "") {
				t.Errorf("TrustPolicy: %v, want %q", err, tc.says)
			}
			if err := (Config{}).TrustPolicy(path); err != nil {
				t.Errorf("TrustPolicy of what the user named: %v", err)
			}
		})
	}
}

// TestStateOfOthersIsRefused: whoever writes the state decides what is approved.
func TestStateOfOthersIsRefused(t *testing.T) {
	for _, name := range []string{".", "curfew.db", "curfew.db-wal", "curfew.db.lock", "prices.csv", "traces", "traces/x.json"} {
		dir := filepath.Join(t.TempDir(), "a[b]*")
		for _, f := range []string{"curfew.db", "curfew.db-wal", "curfew.db.lock", "prices.csv", "traces/x.json"} {
			file(t, filepath.Join(dir, f), "")
		}
		if err := TrustState(dir); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		change(t, os.Chmod(path, 0o770))
		if err := TrustState(dir); err == nil || !strings.HasPrefix(err.Error(), path+" can be written by others") {
			t.Errorf("%s: TrustState = %v", name, err)
		}
	}
	if err := TrustState(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}

func change(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func chown(t *testing.T, path string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	change(t, os.Lchown(path, 4242, 4242))
}

// TestPathsAreOfTheirFile: a path in a file is relative to that file, one of the
// environment to the working directory.
func TestPathsAreOfTheirFile(t *testing.T) {
	dir := t.TempDir()
	path := file(t, filepath.Join(dir, FileName), `data_dir: state
policies: [policies, /etc/curfew/idle.yaml]
notify: {slack: {token_file: secrets/slack}}
units:
  - {name: token, counts: {file: tokens.csv}}
  - {name: hour, counts: {file: gpu-hours}}
`)
	c, err := Load(path, nothing)
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		c.DataDir: "state", c.Policies[0]: "policies", c.Notify.Slack.TokenFile: "secrets/slack", c.Units[0].Counts.File: "tokens.csv",
	} {
		if got != filepath.Join(dir, want) {
			t.Errorf("%s is read as %s", want, got)
		}
	}
	if c.Policies[1] != "/etc/curfew/idle.yaml" || c.Units[1].Counts.File != GPUHours {
		t.Errorf("read as %q and %q", c.Policies[1], c.Units[1].Counts.File)
	}
	c, err = Load(path, func(k string) (string, bool) { return "here.yaml", k == "CURFEW_POLICIES" })
	if err != nil || c.Policies[0] != "here.yaml" {
		t.Errorf("from the environment: %v, %v", c.Policies, err)
	}
}
