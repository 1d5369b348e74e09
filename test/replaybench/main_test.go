package main

import (
	"strings"
	"testing"
)

// TestRunNeedsABinary checks that nothing is written without one.
func TestRunNeedsABinary(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), nil, &out); err == nil || out.Len() > 0 {
		t.Errorf("%v, and %q", err, &out)
	}
}
