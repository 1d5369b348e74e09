package trust_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/trust"
	"github.com/curfew-dev/curfew/test/otheruser"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// dir makes directories that their owner alone can write.
func dir(t *testing.T, names ...string) string {
	t.Helper()
	path := filepath.Join(names...)
	must(t, os.MkdirAll(path, 0o700))
	return path
}

// refused checks that an error names a path and a reason.
func refused(t *testing.T, err error, path, why string) {
	t.Helper()
	var e *trust.Error
	if !errors.As(err, &e) || e.Path != path || !strings.Contains(e.Why, why) {
		t.Errorf("%v, want %s %s", err, path, why)
	}
}

func TestPathChecksDirectoriesAbove(t *testing.T) {
	for _, tc := range []struct {
		name, why string
		mode      fs.FileMode
	}{
		{"own", "", 0o755},
		{"group", "can be written by others (mode 0775)", 0o775},
		{"all", "can be written by others (mode 0777)", 0o777},
		{"sticky", "", 0o777 | fs.ModeSticky},
	} {
		t.Run(tc.name, func(t *testing.T) {
			above := dir(t, t.TempDir(), "above")
			path := dir(t, above, "x", "state")
			must(t, os.Chmod(above, tc.mode))
			err := trust.Path(path)
			none := trust.Path(filepath.Join(path, "none", "file"))
			if tc.why == "" {
				if err != nil || none != nil {
					t.Errorf("refused: %v, %v", err, none)
				}
				return
			}
			refused(t, err, above, tc.why)
			refused(t, none, above, tc.why)
			if err := trust.Path(path, above); err != nil {
				t.Errorf("a volume: %v", err)
			}
			if tc.mode&fs.ModeSticky == 0 {
				refused(t, trust.Path(above, above), above, tc.why)
			}
		})
	}
}

func TestPathFollowsLinks(t *testing.T) {
	base := dir(t, t.TempDir(), "base")
	open := dir(t, base, "open")
	state := dir(t, open, "state")
	must(t, os.Chmod(open, 0o777))
	for name, target := range map[string]string{
		"absolute": state, "relative": "open/state", "up": "../base/open/state",
	} {
		link := filepath.Join(base, name)
		must(t, os.Symlink(target, link))
		refused(t, trust.Path(link), open, "can be written")
		refused(t, trust.Path(filepath.Join(link, "curfew.db")), open, "can be written")
	}
	must(t, os.Symlink("loop", filepath.Join(base, "loop")))
	if err := trust.Path(filepath.Join(base, "loop")); err == nil || !strings.Contains(err.Error(), "40 links") {
		t.Errorf("a loop: %v", err)
	}
}

// The other user owns a directory above, or planted a link.
func TestPathsOfOtherUserAreRefused(t *testing.T) {
	u := otheruser.One(t)
	state := dir(t, u.Home, "state")
	refused(t, trust.Path(state), u.Home, "belongs to user")
	shared := otheruser.Shared(t)
	must(t, os.Chmod(shared, 0o777|fs.ModeSticky))
	own := dir(t, shared, "own")
	if _, code := u.Sh(t, "ln -s "+own+" "+shared+"/link"); code != 0 {
		t.Fatal("the other user cannot make a link")
	}
	if err := trust.Path(own); err != nil {
		t.Errorf("a directory of ours in a sticky one: %v", err)
	}
	refused(t, trust.Path(filepath.Join(shared, "link", "x")), filepath.Join(shared, "link"), "belongs to user")
}

// A directory of another user is entered, no link of theirs is followed.
func TestParentFollowsNoLinkOfOtherUser(t *testing.T) {
	u := otheruser.One(t)
	secret := dir(t, t.TempDir(), "secret")
	if _, code := u.Sh(t, "mkdir d; ln -s "+secret+" d/link"); code != 0 {
		t.Fatal("the other user cannot make a link")
	}
	d := filepath.Join(u.Home, "d")
	root, name, err := trust.Parent(filepath.Join(d, "new", "x"), 0o755)
	must(t, err)
	defer root.Close()
	if name != "x" || root.Name() == "" {
		t.Errorf("opened %q in %s", name, root.Name())
	}
	must(t, root.WriteFile("x", []byte("x"), 0o600))
	if _, err := os.Stat(filepath.Join(d, "new", "x")); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"link", "link/x", "link/x/y"} {
		if root, _, err := trust.Parent(filepath.Join(d, path), 0o755); err == nil {
			t.Errorf("%s leads to %s", path, root.Name())
		} else {
			refused(t, err, filepath.Join(d, "link"), "is a link that another user may have made")
		}
	}
}

func TestParentFollowsOwnLinks(t *testing.T) {
	base := t.TempDir()
	to := dir(t, base, "to")
	must(t, os.Symlink("to", filepath.Join(base, "link")))
	for path, want := range map[string]string{"link": "to", "link/x": "x", "a/b/c": "c"} {
		root, name, err := trust.Parent(filepath.Join(base, path), 0o755)
		must(t, err)
		if name != want {
			t.Errorf("%s is %s in %s", path, name, root.Name())
		}
		must(t, root.Close())
	}
	if _, err := os.Stat(filepath.Join(base, "a", "b")); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(to); len(entries) > 0 {
		t.Errorf("made %v", entries)
	}
}

func TestOpenDir(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "a", "b")
	if _, err := trust.OpenDir(path, 0, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("opened nothing: %v", err)
	}
	var synced []string
	root, err := trust.OpenDir(path, 0o700, func(dir string) error { synced = append(synced, dir); return nil })
	must(t, err)
	must(t, root.Close())
	st, err := os.Stat(path)
	must(t, err)
	if st.Mode().Perm() != 0o700 || len(synced) != 2 {
		t.Errorf("made with mode %v, synced %v", st.Mode(), synced)
	}
	must(t, os.Chmod(base, 0o777))
	_, err = trust.OpenDir(path, 0o700, nil)
	refused(t, err, base, "can be written")
}
