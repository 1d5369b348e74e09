package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/store"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestAuditEvidenceMatchesScanNames checks that the evidence of an entry has the names and forms
// that it has in audits, as a document and a line at a time, and the log stays verifiable.
func TestAuditEvidenceMatchesScanNames(t *testing.T) {
	d := newDesktop(t)
	s, err := store.Open(t.Context(), store.Options{Dir: filepath.Join(d.dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	seen := []usage.Evidence{
		{Signal: "gpu_util_max_pct", Value: "0.4", Window: 14 * 24 * time.Hour, Coverage: 0.99, Source: "cloudwatch"},
		usage.Fact("state", "running", "ec2"),
	}
	if err := s.Actions().Record(t.Context(), action.Entry{
		At: d.clock(), Actor: "policy idle", What: "warned", Evidence: seen,
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := []map[string]any{
		{"signal": "gpu_util_max_pct", "value": "0.4", "window": "14d", "coverage": "0.99", "source": "cloudwatch"},
		{"signal": "state", "value": "running", "source": "ec2"},
	}
	type entry struct{ Evidence []map[string]any }
	var doc struct{ Entries []entry }
	code, out, errs := d.run("audit", "-o", "json")
	if err := json.Unmarshal([]byte(out), &doc); code != ExitDone || err != nil || len(doc.Entries) != 1 {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	var line entry
	_, out, _ = d.run("audit", "-o", "jsonl")
	if err := json.Unmarshal([]byte(out), &line); err != nil {
		t.Fatal(err)
	}
	for _, got := range []entry{doc.Entries[0], line} {
		if diff := cmp.Diff(want, got.Evidence); diff != "" {
			t.Error(diff)
		}
	}
	if code, out, errs := d.run("audit", "--verify"); code != ExitDone ||
		!strings.Contains(out, "1 entry, unchanged") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
