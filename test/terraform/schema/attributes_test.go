package main

import (
	"slices"
	"testing"
)

// TestPaths checks the attributes of a resource with every kind of argument.
func TestPaths(t *testing.T) {
	_, r, err := read("testdata/package/lib/sample")
	if err != nil {
		t.Fatal(err)
	}
	got := paths(r.Block)
	slices.Sort(got)
	if want := []string{
		"arn", "disk.size", "id", "ingress.ports", "name", "names", "rule.id", "tags", "timeouts.create", "zones",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
