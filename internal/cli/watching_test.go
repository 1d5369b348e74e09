package cli

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// TestDocumentsWatchingCost compares the table of docs/costs.md with the output of the command.
func TestDocumentsWatchingCost(t *testing.T) {
	doc, err := os.ReadFile("../../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, gpus := range []int{0, 1, 8} {
		w, err := priceWatching(100, gpus, 5*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if row := fmt.Sprintf("| %d | %s | %s a month | %s a month |", gpus, money.Thousands(int64(w.Metrics)),
			w.Enforce.Dollars(), w.Scan.Dollars()); !strings.Contains(string(doc), row) {
			t.Errorf("docs/costs.md lacks %s", row)
		}
	}
	d := newDesktop(t)
	if code, out, errs := d.run("price", "watching", "--machines", "100", "--gpus", "8", "--every",
		"5m"); code != ExitDone || !strings.Contains(out, "$386 a month by enforce") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	if code, _, errs := d.run("price", "watching", "--every", "soon"); code != ExitUsage ||
		!strings.Contains(errs, "--every") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// TestKeptBills checks that an account's answer is kept in its own file, and a name that is no
// account's
