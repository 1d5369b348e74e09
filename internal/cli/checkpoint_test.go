package cli

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"
)

// damage flips a bit of the file in a directory that comes last by name: damage DIR.
func damage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: damage DIR")
	}
	files, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*"))
	ts.Check(err)
	last := slices.Max(files)
	data, err := os.ReadFile(last)
	ts.Check(err)
	data[len(data)/2] ^= 1
	ts.Check(os.WriteFile(last, data, 0o600))
}
