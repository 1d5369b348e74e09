// Package data finds the recorded traces and bills that tests read. They are in
// shared/data next to the repository, as they are too large for it.
package data

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a file in shared/data; name has slashes. If the file is missing, the
// test fails if the environment sets CI, and is skipped otherwise.
func Path(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "shared", "data", filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("shared/data next to the repository has no %s", name)
	}
	t.Skipf("shared/data next to the repository has no %s", name)
	return ""
}
