package gate

import (
	"fmt"
	"strings"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/estimate"
)

// NewAsk returns the gate's input for a person's estimate. The key identifies the run and may be
// empty.
func NewAsk(e *estimate.Estimate, who approval.Person, key string) Ask {
	ask := Ask{
		Kind: e.Kind, Name: e.Name, SpecHash: e.SpecHash, Owner: e.Owner, Purpose: e.Purpose, P50: e.P50, P95: e.P95,
		Hourly: e.Hourly,
		GPUs:   e.GPUs, Machines: e.Machines, AskedBy: who.Name, AskedProof: who.Proof, Unknown: e.Open, Key: key}
	unit := approval.Request{Kind: e.Kind}.AmountUnit()
	for _, l := range e.Lines {
		ask.Costs = append(ask.Costs, approval.Cost{
			What: strings.TrimPrefix(l.Resource+": "+l.What, ": ") + " (" + l.QuantityP95 + " " + l.Unit + " at $" +
				l.UnitPrice.String() + ")",
			Amount: &l.P95, Unit: unit + " at p95",
		})
	}
	for _, alt := range e.Alternatives {
		other := Alternative{
			What: fmt.Sprintf("%d × %s %s in %s", alt.Count, alt.Type, alt.Capacity, alt.Region),
			P50:  alt.P50, P95: alt.P95,
			Hourly: alt.Hourly, Machines: alt.Count,
		}
		if alt.GPU != "" {
			other.GPUs = map[string]int{alt.GPU: alt.GPUs * alt.Count}
		}
		if alt.Unknown == 0 {
			ask.Alternatives = append(ask.Alternatives, other)
		}
	}
	// The hold must not expire before the last job is done.
	ask.MaxRuntime = min(e.Longest(), budget.MaxRun)
	return ask
}
