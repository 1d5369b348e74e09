package round

import (
	"maps"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/price"
)

// Books is what a round tells the ledger: of each account it read, what was there, what
// its meters cost, and what was measured of the time before.
type Books struct {
	// Source is what ran the round: "scan", "enforce".
	Source string
	Prices *price.Book
	Duty   duty.Thresholds
}

// Seen returns what an observation made with a query comes to, one for each account. An
// account of which nothing could be listed is in none.
func (b Books) Seen(o *Observation, q Query) []ledger.Seen {
	charges := ledger.RunRates(o.Resources, b.Prices)
	verdicts := map[inventory.Ref]duty.Verdict{}
	for ref, p := range present(o, b.Duty, q.Now) {
		verdicts[ref] = *p.duty
	}
	accounts := map[string]bool{}
	for _, id := range o.Accounts {
		accounts[id] = true
	}
	out := make([]ledger.Seen, 0, len(accounts))
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		regions, differ := o.RegionsOf[id]
		if !differ {
			regions = o.Regions
		}
		out = append(out, ledger.Seen{
			Account: ledger.Account{Cloud: o.Cloud, ID: id}, At: q.Now.Truncate(time.Second), Source: b.Source,
			Regions: regions, Kinds: q.Kinds, Unread: o.Unread, Resources: slices.Concat(o.Resources, o.Ended),
			Rates: charges, Verdicts: verdicts, Windows: o.Windows,
		})
	}
	return out
}
