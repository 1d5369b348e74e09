package witness_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/witness"
	"github.com/curfew-dev/curfew/test/otheruser"
)

func TestOtherUserWritesNoWitness(t *testing.T) {
	other := otheruser.One(t)
	shared := otheruser.Shared(t)
	for name, plant := range map[string]func(dir string) error{
		"a folder of another user": func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Chown(dir, other.UID, other.GID)
		},
		"a file of another user": func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			file := filepath.Join(dir, "state.json")
			if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
				return err
			}
			return os.Chown(file, other.UID, other.GID)
		},
		"a link": func(dir string) error {
			if err := os.Mkdir(dir, 0o700); err != nil {
				return err
			}
			return os.Symlink("/etc/hostname", filepath.Join(dir, "state.json"))
		},
	} {
		dir := filepath.Join(shared, strings.ReplaceAll(name, " ", "-"))
		if err := plant(dir); err != nil {
			t.Fatal(err)
		}
		if text, err := (witness.Dir{Path: dir}).Read(t.Context(), "state.json"); err == nil {
			t.Errorf("%s is read: %q", name, text)
		}
	}
}

func TestDirIsForItsOwnerAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "curfew", "witness")
	d := witness.Dir{Path: dir}
	if text, err := d.Read(t.Context(), "a.json"); text != nil || err != nil {
		t.Fatalf("a folder that is not there holds %q, %v", text, err)
	}
	unlock := d.Lock(t.Context())
	if err := d.Write(t.Context(), "a.json", []byte("text")); err != nil {
		t.Fatal(err)
	}
	unlock()
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "a.json"): 0o600} {
		st, err := os.Stat(path)
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, %v; want %v", path, st.Mode().Perm(), err, want)
		}
	}
	if text, err := d.Read(t.Context(), "a.json"); string(text) != "text" || err != nil {
		t.Errorf("it holds %q, %v", text, err)
	}
}

// A process that was stopped while it wrote must not hold up the others.
func TestLockIsWaitedForOnlyForAMoment(t *testing.T) {
	d := witness.Dir{Path: t.TempDir()}
	unlock := d.Lock(t.Context())
	defer unlock()
	second := d.Lock(t.Context())
	second()
}

func TestWithin(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "data"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[string]bool{
		"data": true, "data/w": true, "data/a/b": true, "link/w": true, "data2": false,
		"other/data": false, ".": false,
	} {
		if got := witness.Within(filepath.Join(dir, at), filepath.Join(dir, "data")); got != want {
			t.Errorf("%s is in the data directory: %t", at, got)
		}
	}
}
