package backtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// TestDollarsByType checks that the cost and savings of a fleet of several types are the sums of
// its machines, each at its own price; one machine without a price makes dollars unknown.
func TestDollarsByType(t *testing.T) {
	prices := map[string]money.Amount{"big": 60 * money.USD, "small": 6 * money.USD}
	at := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	rows := func(machines ...string) string {
		var b strings.Builder
		b.WriteString("time,resource,type,team,gpu_util\n")
		for i, typ := range machines {
			for m := range 600 {
				if typ != "" {
					fmt.Fprintf(&b, "%s,m%d,%s,t%d,%d\n",
						at.Add(time.Duration(m)*time.Minute).Format(time.RFC3339), i, typ, i%2,
						80*(m/(30*(i+1))%2))
				}
			}
		}
		return b.String()
	}
	run := func(trace string, price *money.Amount) Report {
		p := params(3 * time.Minute)
		p.Price, p.Policies = price, policies(t, waits("idle", 5*time.Minute, 0))
		p.Account.Meters = func(r *inventory.Resource) []inventory.Meter {
			hour, ok := prices[r.Type]
			rate, err := hour.Rate()
			if !ok || err != nil {
				return nil
			}
			return []inventory.Meter{
				{
					Name: "compute", Category: inventory.CategoryCompute, Unit: "hour",
					Quantity: money.HoursPerMonth, Per: 1,
					Price: &inventory.Price{Rate: rate, Source: "test"}}}
		}
		return replayed(t, trace, p)
	}
	machines := []string{"big", "small", "small"}
	fleet := run(rows(machines...), nil)
	saved := map[string]money.Amount{}
	for i, typ := range machines {
		one := make([]string, i+1)
		one[i] = typ
		price := prices[typ]
		for _, r := range run(rows(one...), &price).Results {
			saved[r.Name] += known(t, r.SavedUSD)
		}
	}
	owned := map[string]money.Amount{}
	for _, o := range fleet.ByOwner {
		owned[o.Rule] += known(t, o.SavedUSD)
	}
	var compared int
	for _, r := range fleet.Results {
		if got := known(t, r.CostUSD); got != 10*(prices["big"]+2*prices["small"]) {
			t.Errorf("%s costs %s", r.Name, got)
		}
		if sum, ok := owned[r.Name]; ok && sum != known(t, r.SavedUSD) {
			t.Errorf("%s saves %s, and its owners %s", r.Name, r.SavedUSD, sum)
		}
		if slices.Contains([]string{"best-fixed", "learned"}, r.Name) {
			continue // they look at the fleet as a whole
		}
		if compared++; saved[r.Name] != known(t, r.SavedUSD) {
			t.Errorf("%s saves %s, its machines one by one %s", r.Name, r.SavedUSD, saved[r.Name])
		}
	}
	if compared < 7 || saved["oracle"] <= 0 || len(owned) == 0 {
		t.Errorf("%d rules were compared, the oracle saves %s, %d rules have owners", compared,
			saved["oracle"], len(owned))
	}
	delete(prices, "small")
	for _, r := range run(rows(machines...), nil).Results {
		if r.CostUSD.Known() || r.SavedUSD.Known() {
			t.Errorf("%s costs %s without a price of two machines", r.Name, r.CostUSD)
		}
	}
}

// sameDollars compares dollars whole.
var sameDollars = cmp.Comparer(func(a, b money.Dollars) bool { return a == b })

func known(t testingTB, usd money.Dollars) money.Amount {
	t.Helper()
	v, ok := usd.Get()
	if !ok {
		t.Fatal("no dollars")
	}
	return v
}
