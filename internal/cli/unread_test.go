package cli

import (
	"fmt"
	"strings"
	"testing"
)

// TestReportsUnreadColumns checks that a column that is misspelled is named on standard error by
// every command that reads recorded usage, once, and does not stop it.
func TestReportsUnreadColumns(t *testing.T) {
	d := newDesktop(t)
	var rows strings.Builder
	rows.WriteString("resource,time,gpu,gpu_util,gpu_utl,\"odd\n  by hand\"\n")
	for i := range 100 {
		rows.WriteString(fmt.Sprintf("a,%d,0,5,7,x\n", i))
	}
	d.write("u.csv", rows.String())
	d.write("clean.csv", "resource,time,gpu_util\na,0,5\na,60,5\n")
	const want = `curfew: warning: u.csv: 2 columns are not read: "gpu_utl", "odd\n  by hand"; use --map to map a column`
	for _, args := range []string{
		"scan --demo --usage u.csv", "backtest --trace u.csv", "backtest --trace u.csv --step 1s",
		"policy tune --trace u.csv",
		"plan rightsize --usage u.csv --type g5.xlarge"} {
		_, _, errs := d.run(strings.Fields(args)...)
		if strings.Count(errs, want) != 1 {
			t.Errorf("curfew %s: %q, want once %q", args, errs, want)
		}
		if _, _, errs = d.run(strings.Fields(strings.Replace(args, "u.csv", "clean.csv", 1))...); strings.Contains(
			errs,
			"not read") {
			t.Errorf("curfew %s warns of nothing: %q", args, errs)
		}
	}
}
