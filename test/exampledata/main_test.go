package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestExamplesAreGenerated checks that the files in the documents equal the output of the
// generator.
func TestExamplesAreGenerated(t *testing.T) {
	dir := t.TempDir()
	if err := write(dir); err != nil {
		t.Fatal(err)
	}
	committed := filepath.Join("..", "..", "examples", "data")
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(committed, f.Name())); err != nil || !bytes.Equal(got, want) {
			t.Errorf("examples/data/%s is not what `go run ./test/exampledata` writes (%v)", f.Name(), err)
		}
	}
}
