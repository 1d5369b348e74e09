package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRestoresIntoMountPoint checks that entries are moved into a mount point and its old content
// is removed.
func TestRestoresIntoMountPoint(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{
		"old/a", "same", "lost+found/x", stagingPrefix + "1/new/b", stagingPrefix + "1/same",
	} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	in, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	root, err := in.OpenRoot(stagingPrefix + "1")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := (restoreTarget{parent: in}).moveIntoPlace(root, stagingPrefix+"1"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"new/b": stagingPrefix + "1/new/b", "same": stagingPrefix + "1/same", "lost+found/x": "lost+found/x",
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "old")); !os.IsNotExist(err) {
		t.Errorf("what was there: %v", err)
	}
	// A save leaves out what a restore that was killed left.
	if err := os.MkdirAll(filepath.Join(dir, stagingPrefix+"7", "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	all, err := scan(dir)
	if err != nil || len(all) != 5 {
		t.Errorf("%d names are saved, %v", len(all), err)
	}
}
