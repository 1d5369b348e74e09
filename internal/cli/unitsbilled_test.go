package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// focusMonth is a bill of one charge of a month for a team.
func focusMonth(month, next, cost, team string) string {
	return "BilledCost,EffectiveCost,ListCost,BillingAccountId,SubAccountId,BillingCurrency,BillingPeriodStart," +
		"BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ServiceCategory,ServiceName,ProviderName," +
		"ResourceId,RegionId,Tags\n" + fmt.Sprintf(
		"%s,%s,%s,1,1,USD,%[4]sT00:00:00Z,%[5]sT00:00:00Z,%[4]sT00:00:00Z,%[5]sT00:00:00Z,Usage,Compute,EC2,AWS,i-%[6]s,"+
			"us-east-1,\"{\"\"team\"\":\"\"%[6]s\"\"}\"\n", cost, cost, cost, month, next, team)
}

// TestUnitCostsFromImportedBills checks that a bill and a file of counts are enough for dollars a
// prediction by month, with the change, where no round filled the ledger.
func TestUnitCostsFromImportedBills(t *testing.T) {
	d := newDesktop(t)
	for i, month := range []string{"2026-05-01", "2026-06-01", "2026-07-01"} {
		name := fmt.Sprintf("bill-%d.csv", i)
		next := []string{"2026-06-01", "2026-07-01", "2026-08-01"}[i]
		d.write(name, focusMonth(month, next, []string{"10000", "16000", "6000"}[i], "search")+
			strings.SplitAfter(focusMonth(month, next, "777", "vision"), "\n")[1])
		if code, _, errs := d.run("bill", "import", name); code != ExitDone {
			t.Fatalf("import: exit %d: %s", code, errs)
		}
	}
	d.write("counts.csv", "time,count\n2026-05-20,50000000\n2026-06-01,20000000\n2026-06-30,20000000\n")
	code, out, errs := d.run("costs", "units", "--unit", "prediction", "--counts", "counts.csv",
		"--where", "team=search",
		"--since", "2026-05-01", "--until", "2026-08-01", "-o", "json")
	if code != ExitDone {
		t.Fatalf("exit %d: %s", code, errs)
	}
	var doc struct {
		Units []struct {
			Rows []struct {
				Period, Basis, Reason string
				Cost                  *string  `json:"unit_cost_usd"`
				Change                *float64 `json:"change"`
			}
			Assumptions []string `json:"assumptions"`
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range doc.Units[0].Rows {
		if r.Basis != "allocated" {
			continue
		}
		line := r.Period[:7]
		if r.Cost != nil {
			line += " " + *r.Cost
		} else {
			line += " " + r.Reason
		}
		if r.Change != nil {
			line += fmt.Sprintf(" %+.2f", *r.Change)
		}
		got = append(got, line)
	}
	want := "2026-05 0.0002|2026-06 0.0004 +1.00|2026-07 nothing was counted"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
	if notes := strings.Join(doc.Units[0].Assumptions, " "); !strings.Contains(notes, "imported bills") ||
		!strings.Contains(notes, "2026-05, 2026-06, 2026-07") {
		t.Errorf("assumptions %q do not name the bills", notes)
	}
}

// TestUnitCostsOfSimulatedBooks checks that the simulated books have units of their own.
func TestUnitCostsOfSimulatedBooks(t *testing.T) {
	code, out, errs := newDesktop(t).run("costs", "units", "--demo")
	if code != ExitDone || !strings.Contains(out, "per prediction") || !strings.Contains(out, "per GPU-hour") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
