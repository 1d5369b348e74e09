package cli

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestScanLastShowsStoredScan checks that every format of the kept audit is the one that the scan
// printed, in all that does not say its age, and no account is read for it.
func TestScanLastShowsStoredScan(t *testing.T) {
	d := newDesktop(t)
	d.now = time.Date(2026, 7, 20, 9, 0, 0, 0, time.UTC)
	for _, format := range scanOutputs {
		t.Run(format, func(t *testing.T) {
			code, first, errs := d.run("scan", "--demo", "-o", format, "--all")
			if code != ExitPartial && code != ExitDone {
				t.Fatalf("exit %d: %s", code, errs)
			}
			was := d.now
			d.now = d.now.Add(3 * time.Hour)
			again, second, errs := d.run("scan", "--last", "-o", format, "--all")
			d.now = was
			if again != code {
				t.Fatalf("exit %d, then %d: %s", code, again, errs)
			}
			if !strings.Contains(second+errs, "3h") {
				t.Errorf("the age is not said:\n%s\n%.300s", errs, second)
			}
			second = strings.NewReplacer(", as read 3h ago", "", " · as read 3h ago", "").Replace(second)
			if first != second {
				t.Errorf("the kept audit differs:\n%s", firstDifference(first, second))
			}
		})
	}
	if code, _, errs := d.run("scan", "--last", "--fail-on", "1"); code != ExitHeld && code != ExitPartial {
		t.Errorf("--fail-on: exit %d, %s", code, errs)
	}
	if code, _, errs := d.run("scan", "--last", "--regions", "us-east-1"); code != ExitUsage ||
		!strings.Contains(errs, "--regions") {
		t.Errorf("--regions: exit %d, %s", code, errs)
	}
	if code, _, errs := d.run("scan", "--last", "--cloud", "aws"); code != ExitError ||
		!strings.Contains(errs, "no kept scan of aws") {
		t.Errorf("another cloud: exit %d, %s", code, errs)
	}
}

// TestRefusesDamagedFinding checks that a finding that cannot be acted on safely is an error.
func TestRefusesDamagedFinding(t *testing.T) {
	d := newDesktop(t)
	if code, _, errs := d.run("scan", "--demo"); code != ExitPartial && code != ExitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, body := range []string{`{"id":"12"`, `{"id":"12"}`} {
		alterState(t, filepath.Join(d.dir, "data"),
			"UPDATE snapshot_findings SET body = ? WHERE id = (SELECT MAX(id) FROM snapshot_findings)", body)
		if code, _, errs := d.run("fix", "12"); code != ExitUsage ||
			!strings.Contains(errs, "run `curfew scan` again") {
			t.Errorf("%s: exit %d, %s", body, code, errs)
		}
	}
}

func firstDifference(x, y string) string {
	a, b := strings.Split(x, "\n"), strings.Split(y, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return a[i] + "\n" + b[i]
		}
	}
	return "one is longer"
}
