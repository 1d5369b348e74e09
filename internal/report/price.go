package report

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/report/layout"
	"github.com/curfew-dev/curfew/internal/view"
)

// Machines shows machine types with their prices in a region.
func Machines(d view.Machines) layout.Sheet {
	g := layout.Grid{
		Head:  []string{"type", "accelerator", "vCPU", "memory", "on-demand/h", "spot/h", "as of"},
		Right: []bool{false, false, true, true, true, true, false},
	}
	for _, m := range d.Machines {
		device := ""
		if m.Accelerator != "" {
			device = m.Accelerators + " × " + m.Accelerator
		}
		g.Rows = append(g.Rows, []string{
			m.Type, device, strconv.Itoa(m.VCPUs), gib(m.MemoryMiB),
			rateText(m.OnDemand, "no price"), rateText(m.Spot, ""),
			m.PriceAsOf,
		})
	}
	return layout.Sheet{
		Verb: "price list", Title: plain.Count(len(d.Machines), "machine type") + " with prices in " + d.Region,
		Tables: []layout.Grid{g},
	}
}

// rateText formats a price, or a placeholder if there is none.
func rateText(usd, none string) string {
	if usd == "" {
		return none
	}
	if r, err := money.ParseRate(usd); err == nil {
		return r.Dollars()
	}
	return usd
}

// gib converts mebibytes to gibibytes as text.
func gib(mib int64) string { return plain.Number(float64(mib)/1024, 1) + " GiB" }

// MachinesCSV writes machine types with their prices in a region, with all digits.
func MachinesCSV(w io.Writer, d view.Machines) error {
	rows := [][]string{
		{
			"type", "accelerator", "accelerators", "vcpus", "memory_gib", "region", "on_demand_usd_per_hour",
			"spot_usd_per_hour", "source", "as_of",
		},
	}
	for _, m := range d.Machines {
		rows = append(rows, []string{
			m.Type, m.Accelerator, cmp.Or(m.Accelerators, "0"), strconv.Itoa(m.VCPUs),
			plain.Decimal(float64(m.MemoryMiB)/1024, 1), d.Region, m.OnDemand, m.Spot, m.PriceSource,
			cmp.Or(m.PriceAsOf, "-"),
		})
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// PriceShow shows a machine type, an accelerator or prices of the book.
func PriceShow(d view.PriceShow, name string) layout.Sheet {
	s := layout.Sheet{Verb: "price show", Title: name + ": " + plain.Count(len(d.Prices), "price")}
	prices := d.Prices
	switch m, g := d.Machine, d.Accelerator; {
	case m != nil:
		s.Title = fmt.Sprintf("%s: %d vCPU, %s, %s", m.Type, m.VCPUs, gib(m.MemoryMiB), m.Arch)
		if m.Accelerator != "" {
			s.Title += fmt.Sprintf(", %s × %s with %s each", m.Accelerators, m.Accelerator,
				gib(m.AcceleratorMemoryMiB))
		}
		s.Coverage = []string{"sizes from " + m.Source + ", " + m.AsOf}
		prices = m.Prices
	case g != nil:
		s.Title = fmt.Sprintf("%s: %s %s, %d", g.Name, g.Vendor, g.Generation, g.ReleaseYear)
		s.Figures = []layout.Figure{
			{Label: "memory", Value: gib(g.MemoryMiB), Note: "at " + figure(g.MemoryBandwidthGBps, "GB/s")},
			{Label: "dense " + cmp.Or(g.Precision, "bf16"), Value: figure(g.BF16TFLOPS, "TFLOP/s")},
			{Label: "dense fp8", Value: figure(g.FP8TFLOPS, "TFLOP/s")},
			{Label: "power", Value: strconv.Itoa(g.TDPWatts) + " W"},
			{Label: "MIG", Value: map[bool]string{true: "yes", false: "no"}[g.MIG]},
		}
		s.Coverage = []string{"from " + g.Source + ", " + g.AsOf}
		return s
	}
	t := layout.Grid{
		Head:  []string{"region", "term", "service", "price", "per", "source", "as of"},
		Right: []bool{false, false, false, true, false, false, false},
	}
	for _, p := range prices {
		usd := "$" + p.USD.String()
		for _, tier := range p.Tiers {
			usd += fmt.Sprintf(", $%s above %s", tier.USD, money.Thousands(tier.Above))
		}
		source := p.Source
		if p.Own {
			source += " (your update)"
		}
		t.Rows = append(t.Rows, []string{cmp.Or(p.Region, "all"), p.Term, p.Service, usd, p.Unit, source, p.AsOf})
	}
	if s.Tables = []layout.Grid{t}; len(t.Rows) == 0 {
		s.Tables, s.Coverage = nil, append(s.Coverage,
			"the book has no price of it here; `curfew price update --from aws` fetches newer prices")
	}
	return s
}

// figure formats a hardware specification with its unit; "unknown" if not published.
func figure(v float64, unit string) string {
	if v == 0 {
		return "unknown"
	}
	return plain.Number(v, 3) + " " + unit
}

// shownPrices bounds the changes and refusals listed without --all.
const shownPrices = 10

// PriceUpdate shows the changes and refusals of an update; all lists every one.
func PriceUpdate(d view.PriceUpdate, dryRun, all bool) layout.Sheet {
	var changed []view.PriceChange
	for _, c := range d.Accepted {
		if !c.Same {
			changed = append(changed, c)
		}
	}
	kept := "kept in the data directory"
	if dryRun {
		kept = "not kept (dry run)"
	}
	s := layout.Sheet{
		Verb: "price update",
		Title: fmt.Sprintf("%s new or changed, %d confirmed, %d refused; %s", plain.Count(len(changed), "price"),
			len(d.Accepted)-len(changed), len(d.Refused), kept),
	}
	shown := func(n int) int {
		if all {
			return n
		}
		return min(n, shownPrices)
	}
	if n := len(changed); n > 0 {
		g := layout.Grid{
			Title: "new or changed" + listed(shown(n), n), Head: []string{"price", "old", "new", "note"},
			Right: []bool{false, true, true, false},
		}
		for _, c := range changed[:shown(n)] {
			old := "new"
			if c.Old != nil {
				old = "$" + c.Old.String()
			}
			g.Rows = append(g.Rows, []string{c.What, old, "$" + c.New.USD.String(), c.Note})
		}
		s.Tables = append(s.Tables, g)
	}
	if n := len(d.Refused); n > 0 {
		g := layout.Grid{
			Title: "refused" + listed(shown(n), n), Head: []string{"price", "value", "reason"},
			Right: []bool{false, true, false},
		}
		for _, r := range d.Refused[:shown(n)] {
			g.Rows = append(g.Rows, []string{r.What, "$" + r.USD.String(), r.Reason})
		}
		s.Tables = append(s.Tables, g)
	}
	return s
}

// listed formats the number of rows in a table.
func listed(shown, n int) string {
	if shown == n {
		return ""
	}
	return fmt.Sprintf(" (%d of %s; --all lists all)", shown, money.Thousands(int64(n)))
}

// Watching shows the cost of curfew's own calls; every is the time between passes.
func Watching(w view.Watching, every string) layout.Sheet {
	return layout.Sheet{
		Verb: "price watching", Title: fmt.Sprintf("%s a month by enforce, %s by scan: %s with %s each, every %s",
			w.Enforce.Dollars(), w.Scan.Dollars(), plain.Count(w.Machines, "machine"),
			plain.Count(w.GPUs, "GPU"), every),
		Figures: []layout.Figure{
			{
				Label: "cost a pass", Value: "$" + w.PerPass.String(),
				Note: fmt.Sprintf("%d metrics, %d list requests", w.Metrics, w.Lists),
			},
			{Label: "passes a day", Value: w.PassesADay}},
		Assumptions: w.Assumptions}
}
