package alert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Refused is a machine that a policy would end, and that the ladder protects because it is at work.
type Refused struct {
	Resource *inventory.Resource
	// Policies are the names of the policies, Verb what the first of them does.
	Policies []string
	Verb     policy.Verb
	// Why is the evidence for its work.
	Why    string
	Hourly inventory.Fact[money.Amount]
	// Since is the time at which people were notified first; zero before.
	Since time.Time
}

// refusedAsBusy proposes to notify of machines that only their work keeps from being ended. Their owner
// knows whether the work is worth it.
func (f Facts) refusedAsBusy() (out []action.Proposal) {
	for _, r := range f.Refused {
		about := subject{
			kind: KindMachine, id: r.Resource.Ref().String(), machine: r.Resource, owner: r.Resource.Owner,
			notify: "owner", hourly: r.Hourly,
		}
		why := fmt.Sprintf("%s would %s %s, which is at work", strings.Join(r.Policies, " and "), r.Verb,
			cmp.Or(r.Resource.Name, r.Resource.ID))
		if hourly, known := r.Hourly.Get(); known {
			why += " for " + hourly.Dollars() + " an hour"
		}
		if spent, known := r.spent(f.Now).Get(); known {
			why += " and cost " + spent.Dollars() + " since " + plain.Time(r.Since)
		}
		out = append(out, f.propose(RefusedAsBusy, about, r.spent(f.Now), why+": "+r.Why))
	}
	return out
}

// spent returns the dollars since people were first notified, at the price of an hour of now.
func (r *Refused) spent(now time.Time) inventory.Fact[money.Amount] {
	hourly, known := r.Hourly.Get()
	if !known || r.Since.IsZero() {
		return inventory.Fact[money.Amount]{}
	}
	spent, err := hourly.Mul(int64(now.Sub(r.Since)/time.Second), int64(time.Hour/time.Second))
	if err != nil {
		return inventory.Fact[money.Amount]{}
	}
	return inventory.Known(spent)
}

// unjudged reports whether a machine belongs to an account of which no recent round knows all.
func (f Facts) unjudged(machine inventory.Ref) bool {
	return !slices.ContainsFunc(f.Judged, func(account string) bool {
		return strings.HasPrefix(machine.ID, account+"/")
	})
}

// explain is the command that shows what each policy answers about a machine, given as
// cloud/account/region/kind/id.
func explain(machine string) string {
	parts := strings.SplitN(machine, "/", 5)
	return "curfew policy explain " + plain.Shell(parts[len(parts)-1]) + " --cloud " + plain.Shell(parts[0])
}
