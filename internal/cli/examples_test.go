package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEstimatesExampleJobs checks that the examples of the documentation can be estimated, and pass
// the gate of their own configuration.
func TestEstimatesExampleJobs(t *testing.T) {
	files, err := filepath.Glob("../../examples/jobs/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	d := newDesktop(t)
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		d.write(filepath.Base(f), string(src))
	}
	for _, f := range files {
		name := filepath.Base(f)
		if name == "curfew.yaml" {
			continue
		}
		if code, out, errs := d.run("estimate", name); code != ExitDone || !strings.Contains(out, "(p95)") {
			t.Errorf("estimate %s: exit %d\n%s%s", name, code, out, errs)
		}
		if got := d.gate(ExitDone, name); got.HoldID == "" {
			t.Errorf("gate %s: %+v", name, got)
		}
	}
	if code, out, errs := d.run("budget"); code != ExitDone || !strings.Contains(out, "vision/training") {
		t.Errorf("budget: exit %d\n%s%s", code, out, errs)
	}
}
