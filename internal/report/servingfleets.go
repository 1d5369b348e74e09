package report

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// ServingFleets shows the serving fleets of policies with their newest decisions.
func ServingFleets(d view.ServingFleets) layout.Sheet {
	s := layout.Sheet{Verb: "fleets", Title: servingFleetsTitle(d)}
	if d.Reason != "" {
		s.Gaps = append(s.Gaps, layout.Gap{Name: "sizes and demand", Text: d.Reason})
	}
	if len(d.Fleets) == 0 {
		return s
	}
	g := layout.Grid{
		Title: "Fleets",
		Head: []string{
			"fleet", "runs", "wanted", "min", "max", "demand", "$/h", "next",
		},
		Right:    []bool{false, true, true, true, true, false, true, false},
		Priority: []int{9, 8, 8, 8, 8, 5, 7, 4}, Code: []bool{true},
	}
	for _, f := range d.Fleets {
		g.Rows = append(g.Rows, []string{
			f.ID, replicasText(f.Actual), replicasText(f.Wanted), strconv.Itoa(f.Min), strconv.Itoa(f.Max),
			DemandText(f.Demand), f.HourlyUSD.String(), f.Next,
		})
		g.Notes = append(g.Notes, FleetReason(f))
	}
	s.Tables = append(s.Tables, g)
	s.Next = []string{"curfew explain " + d.Fleets[0].ID}
	return s
}

func servingFleetsTitle(d view.ServingFleets) string {
	if len(d.Fleets) == 0 {
		return "No policy names a serving fleet: give one with do: scale and fleet"
	}
	changes, unknown, blocked := 0, 0, 0
	for _, f := range d.Fleets {
		switch {
		case f.Blocked != "":
			blocked++
		case !f.Demand.Known || f.Wanted == nil || f.Actual == nil:
			unknown++
		case *f.Wanted != *f.Actual:
			changes++
		}
	}
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+what)
		}
	}
	add(blocked, "held back")
	add(changes, "changing size")
	add(unknown, "of unknown demand or size")
	text := plain.Count(len(d.Fleets), "serving fleet")
	if len(parts) == 0 {
		return text + " at the wanted size"
	}
	return text + ": " + strings.Join(parts, ", ")
}

// replicasText shows a number of replicas.
func replicasText(n *int) string {
	if n == nil {
		return "unknown"
	}
	return strconv.Itoa(*n)
}

// DemandText shows the demand for a fleet in one line.
func DemandText(d view.FleetDemand) string {
	if !d.Known {
		return "unknown"
	}
	var parts []string
	if d.RequestsPerSecond != nil {
		parts = append(parts, plain.Number(*d.RequestsPerSecond, 2)+"/s")
	}
	if d.InFlight != nil {
		parts = append(parts, plain.Number(*d.InFlight, 1)+" in flight")
	}
	if d.CacheUse != nil {
		parts = append(parts, "KV cache "+plain.Share(*d.CacheUse, 0))
	}
	return strings.Join(parts, ", ")
}

// FleetReason explains the newest decision about a fleet, and what holds it back.
func FleetReason(f view.ServingFleet) string {
	why := cmp.Or(f.Why, f.Demand.Why)
	if f.Rule != "" {
		why = f.Rule + ": " + why
	}
	if f.Blocked != "" {
		why += "; not carried out: " + f.Blocked
	}
	return why
}

// FleetFacts returns the names and values of a fleet, for a list.
func FleetFacts(f view.ServingFleet) [][2]string {
	hourly := f.HourlyUSD.String() + " an hour"
	if !f.HourlyUSD.Known() {
		hourly = "unknown: " + cmp.Or(f.PriceReason, "its size is")
	}
	decided, add := "never", "not measured"
	if f.DecidedAt != nil {
		decided = plain.Time(*f.DecidedAt)
	}
	if f.AddSeconds != nil {
		add = plain.Duration(time.Duration(*f.AddSeconds*float64(time.Second))) + " (95th percentile)"
	}
	return [][2]string{
		{"Replicas", replicasText(f.Actual) + ", " + replicasText(f.Wanted) + " wanted"},
		{"Bounds", strconv.Itoa(f.Min) + " to " + strconv.Itoa(f.Max)},
		{"Demand", DemandText(f.Demand)},
		{"Next step", f.Next},
		{"Cost", hourly},
		{"Time to add a replica", add},
		{"Policy", f.Policy + ", mode " + f.Mode},
		{"Decided", decided},
	}
}
