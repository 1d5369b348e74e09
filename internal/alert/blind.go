package alert

import (
	"fmt"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Reach is the newest time at which an account was read.
type Reach struct {
	// Account is "aws/123456789012".
	Account string
	Last    time.Time
}

// An account that is audited once a day is read in time. One that was given up is blind for two weeks
// and then forgotten.
const (
	blindAfter  = 36 * time.Hour
	forgetAfter = 14 * day
)

// blind proposes to notify of accounts that are no longer read: their meters run unseen.
func (f Facts) blind() (out []action.Proposal) {
	for _, r := range f.Reach {
		ago := f.Now.Sub(r.Last)
		if ago <= blindAfter || ago > forgetAfter {
			continue
		}
		about := subject{kind: KindAccount, id: r.Account, notify: "owner"}
		out = append(out, f.propose(BlindAccount, about, inventory.Fact[money.Amount]{}, fmt.Sprintf(
			"%s was last read at %s: what runs there since is not seen", r.Account, plain.Time(r.Last))))
	}
	return out
}
