package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestCommittedRolesArePrintedOnes(t *testing.T) {
	files, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what curfew prints: run `go run ./test/deploy`", name)
		}
	}
}
