package report

import (
	"strings"
	"testing"

	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/internal/view/viewtest"
)

const notRead = "curfew does not read it"

func billedOf(b round.Billed) *view.ScanBilled {
	a := viewtest.NothingFound()
	a.Billed = &b
	return view.NewScan(a, view.ScanOptions{}).Billed
}

// TestNamesUncoveredServices checks that billed services that are not covered
// are summed and named, the largest first.
func TestNamesUncoveredServices(t *testing.T) {
	b := billedOf(round.Billed{Total: viewtest.USD("150"), ByService: []round.ServiceCost{
		{Service: "Amazon Kinesis", Cost: viewtest.USD("12"), NotCovered: notRead},
		{Service: "Amazon Elastic Compute Cloud - Compute", Cost: viewtest.USD("100")},
		{Service: "Amazon MSK", Cost: viewtest.USD("35"), NotCovered: notRead},
		{Service: "AWS Glue", NotCovered: notRead},
		{Service: "Tax", Cost: viewtest.USD("3"), NotCovered: notRead}}})
	if b.NotCoveredUSD.Cents() != "50.00" {
		t.Errorf("%s is not covered, want 50.00", b.NotCoveredUSD)
	}
	want := "$50.00 was billed for services that are not covered: Amazon MSK $35.00 (curfew does not read it), Amazon " +
		"Kinesis $12.00 (curfew does not read it), 1 other service"
	if got := notCovered(b, 2); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := notCovered(billedOf(round.Billed{
		Total: viewtest.USD("1"), ByService: []round.ServiceCost{{Service: "EC2 - Other", Cost: viewtest.USD("1")}},
	}), 2); got != "" {
		t.Errorf("everything is covered, and it says %q", got)
	}
}

// TestUncoveredServicesAreNextToTotals checks that they are stated next to the totals that omit
// them, before the next steps.
func TestUncoveredServicesAreNextToTotals(t *testing.T) {
	a := viewtest.Realistic()
	a.Billed.ByService = append(a.Billed.ByService, round.ServiceCost{
		Service: "Amazon MSK", Cost: viewtest.USD("35"), NotCovered: notRead,
	})
	want := "$35.00 was billed for services that are not covered: Amazon MSK $35.00 (curfew does not read it)"
	for name, x := range map[string]struct {
		render render
		before string
	}{"table": {Table, "\n  step "}, "html": {HTML, "What to do, in this order"}} {
		got := text(t, x.render, a, Options{Width: 140})
		at, steps := strings.Index(got, want), strings.Index(got, x.before)
		if at < 0 || steps < 0 || at > steps {
			t.Errorf("%s: %q at %d, %q at %d", name, want, at, x.before, steps)
		}
	}
	if got := text(t, HTML, a, Options{}); !strings.Contains(got,
		"Amazon MSK (not covered: curfew does not read it)") ||
		strings.Contains(text(t, HTML, viewtest.Realistic(), Options{}), "ot covered") {
		t.Error("the page's bill does not say which services are not covered")
	}
}
