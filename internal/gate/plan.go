package gate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/approval"
)

// plan returns what an approver sees of an ask.
func (d *decision) plan(reasons []string) approval.Plan {
	unit := approval.Request{Kind: d.Kind}.AmountUnit()
	p := approval.Plan{
		Schema: approval.PlanSchema, Because: strings.Join(reasons, "; "), Loses: "spending until it is stopped",
		Undo: "partial", Most: &d.P95,
		Changes: []approval.Change{{Resource: d.String(), Verb: "run", Calls: []approval.Call{}}},
		Costs: []approval.Cost{
			{What: "p50", Amount: &d.P50, Unit: unit}, {What: "p95", Amount: &d.P95, Unit: unit},
			{What: "while it runs", Amount: &d.Hourly, Unit: "an hour"},
		}}
	p.Costs = append(p.Costs, d.Costs...)
	note := func(format string, args ...any) { p.Notes = append(p.Notes, fmt.Sprintf(format, args...)) }
	note("specification %s, for %s", d.SpecHash, describeSpender(d.Owner, d.Purpose))
	if d.MaxRuntime > 0 {
		note("runs for at most %s", short(d.MaxRuntime.Round(time.Minute)))
	}
	if d.Machines > 0 {
		note("machines: %d", d.Machines)
	}
	for _, gpu := range slices.Sorted(maps.Keys(d.GPUs)) {
		note("GPUs: %d %s", d.GPUs[gpu], gpu)
	}
	for _, l := range d.lines {
		note("budget %s until %s: %s of %s left before, %s after", l.Budget, l.Window.To.Format(time.DateOnly),
			l.LeftBefore.Exact(), l.Amount.Exact(), l.LeftAfter.Exact())
	}
	return p
}
