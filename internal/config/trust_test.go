package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/test/otheruser"
)

func nothing(string) (string, bool) { return "", false }

// file writes a file that only its owner can write.
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

// TestFoundFilesOfOthersAreRefused checks that a configuration that others could have written is
// refused if it was found, and read if the user names it.
func TestFoundFilesOfOthersAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name, says string
		spoil      func(t *testing.T, path string)
	}{
		{"written by the group", "can be written by others (mode 0620)", func(t *testing.T, path string) {
			change(t, os.Chmod(path, 0o620))
		}},
		{"written by all", "can be written by others (mode 0602)", func(t *testing.T, path string) {
			change(t, os.Chmod(path, 0o602))
		}},
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

// TestStateOfOthersIsRefused checks the folder of the state, because whoever writes the state
// decides what is approved.
func TestStateOfOthersIsRefused(t *testing.T) {
	for _, name := range []string{
		".", "curfew.db", "curfew.db-wal", "curfew.db.lock", "prices.csv", "traces", "traces/x.json",
	} {
		dir := filepath.Join(t.TempDir(), "a[b]*")
		for _, f := range []string{"curfew.db", "curfew.db-wal", "curfew.db.lock", "prices.csv", "traces/x.json"} {
			file(t, filepath.Join(dir, f), "")
		}
		if err := TrustState(dir, ""); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		change(t, os.Chmod(path, 0o770))
		if err := TrustState(dir, ""); err == nil ||
			!strings.HasPrefix(err.Error(), path+" can be written by others") {
			t.Errorf("%s: TrustState = %v", name, err)
		}
	}
	if err := TrustState(filepath.Join(t.TempDir(), "none"), ""); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// TestStateInFolderOfOtherUserIsRefused checks parent folders, because whoever can rename a
// directory decides what is in it.
func TestStateInFolderOfOtherUserIsRefused(t *testing.T) {
	u := otheruser.One(t)
	open := otheruser.Shared(t)
	change(t, os.Chmod(open, 0o777))
	sticky := otheruser.Shared(t)
	change(t, os.Chmod(sticky, 0o777|os.ModeSticky))
	for name, tc := range map[string]struct{ dir, refused, says string }{
		"below a folder of theirs":    {u.Home + "/state", u.Home, "belongs to user"},
		"below one that all write":    {open + "/state", open, "can be written by others (mode 0777)"},
		"through a link of theirs":    {sticky + "/link/state", sticky + "/link", "belongs to user"},
		"to one that is not there":    {open + "/none/state/", open, "can be written by others"},
		"in a sticky folder, so mine": {sticky + "/state", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			own := filepath.Join(otheruser.Shared(t), "own")
			file(t, own+"/state/curfew.db", "")
			if name == "through a link of theirs" {
				if out, code := u.Sh(t, "ln -s "+own+" "+sticky+"/link"); code != 0 {
					t.Fatal(out)
				}
			} else if name != "to one that is not there" {
				file(t, tc.dir+"/curfew.db", "")
			}
			err := TrustState(tc.dir, "")
			if (err == nil) != (tc.refused == "") || err != nil &&
				!strings.HasPrefix(err.Error(), tc.refused+" "+tc.says) {
				t.Errorf("TrustState = %v, want %s %s", err, tc.refused, tc.says)
			}
			found := file(t, filepath.Join(filepath.Dir(tc.dir), FileName), "identity: ana\n")
			if _, err := (*Cache)(nil).LoadFound(found, nothing); (err == nil) != (tc.refused == "") {
				t.Errorf("a configuration there: %v", err)
			}
		})
	}
	if err := TrustState(open+"/state", open); err != nil {
		t.Errorf("a volume: %v", err)
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

// TestPathsAreRelativeToFile checks that a path in a file is relative to that file, and one in the
// environment to the working directory.
func TestPathsAreRelativeToFile(t *testing.T) {
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
		c.DataDir: "state", c.Policies[0]: "policies", c.Notify.Slack.TokenFile: "secrets/slack",
		c.Units[0].Counts.File: "tokens.csv",
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
