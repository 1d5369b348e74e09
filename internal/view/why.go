package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// WhySchema names the shape of a [Why]. Fields are only added to it.
const WhySchema = "curfew.why/v1"

// Why explains one figure of the newest kept audit, of a budget, of a job or of a bill: its terms, their prices, and
// what is left out. An empty id lists the figures.
type Why struct {
	Schema string `json:"schema"`
	// Cloud is that of the audit; empty for budgets, jobs and bills.
	Cloud string `json:"cloud"`
	// At is the end of the audit, else the time of the answer.
	At time.Time `json:"at"`
	// Figure is the id of the figure; absent from the list of figures.
	Figure string `json:"figure,omitempty"`
	// Label is the figure in words.
	Label string `json:"label,omitempty"`
	// ValueUSD is the figure as the audit shows it; null where it is unknown.
	ValueUSD money.Dollars `json:"value_usd"`
	// Basis states whether the figure is a rate or a sum over time, and of which time.
	Basis string `json:"basis,omitempty"`
	// Rows add up to the value, the largest first; those of the list are figures.
	Rows []WhyRow `json:"rows"`
	// Prices are the sources and dates of the prices in Rows.
	Prices []PriceSource `json:"prices"`
	// Excluded names what is not in the figure.
	Excluded []string `json:"excluded"`
	// Command shows the rows in full.
	Command string `json:"command,omitempty"`
}

// WhyRow is one term of a figure.
type WhyRow struct {
	// Figure is the id under which the row itself is explained; empty where nothing divides it
	// further.
	Figure string `json:"figure,omitempty"`
	Label  string `json:"label"`
	// AmountUSD is null in the list of figures where a figure is unknown.
	AmountUSD money.Dollars `json:"amount_usd"`
	// Quantity, Unit, UnitPrice, Source and AsOf are those of a meter.
	Quantity  string `json:"quantity,omitempty"`
	Unit      string `json:"unit,omitempty"`
	UnitPrice string `json:"unit_price,omitempty"`
	Source    string `json:"source,omitempty"`
	AsOf      string `json:"as_of,omitempty"`
	// Note states an assumption behind the row.
	Note string `json:"note,omitempty"`
}

// figure is one explainable figure of an audit.
type figure struct {
	id, label string
	value     money.Dollars
	basis     string
	rows      func() []WhyRow
	command   string
	// unpriced lists charges without a price that the figure leaves out, within reports whether a
	// charge concerns the figure.
	within func(*ScanCharge) bool
	// excluded are other omissions.
	excluded []string
}

// ErrNoFigure is the error of [NewWhy] and [NewBudgetWhy] for the id of no figure.
type ErrNoFigure struct{ Figure, Meant string }

// Error implements error.
func (e *ErrNoFigure) Error() string {
	return fmt.Sprintf("there is no figure %q%s", e.Figure, e.Meant)
}

// NewWhy explains a figure of a kept audit by its id, or lists the figures if the id is empty. The id
// of a finding or of a resource alone, or the beginning of the former, is the saving of the finding
// and the cost of the resource.
func NewWhy(d *Scan, id string) (Why, error) {
	w := Why{
		Schema: WhySchema, Cloud: d.Cloud, At: d.FinishedAt, Rows: []WhyRow{}, Prices: []PriceSource{},
		Excluded: []string{},
	}
	all := d.figures()
	if id == "" {
		for _, f := range all {
			if !f.detail() {
				w.Rows = append(w.Rows, WhyRow{Figure: f.id, Label: f.label, AmountUSD: f.value})
			}
		}
		return w, nil
	}
	f, err := choose(all, id)
	if err != nil {
		return w, err
	}
	w.Figure, w.Label, w.ValueUSD, w.Basis, w.Command = f.id, f.label, f.value, f.basis, f.command
	w.Rows = append(w.Rows, f.rows()...)
	slices.SortStableFunc(w.Rows, func(x, y WhyRow) int {
		return cmp.Compare(max(y.AmountUSD.Or(0), -y.AmountUSD.Or(0)), max(x.AmountUSD.Or(0), -x.AmountUSD.Or(0)))
	})
	w.Excluded = append(w.Excluded, f.excluded...)
	w.Excluded = append(w.Excluded, d.unpricedWithin(f.within)...)
	w.Prices = d.pricesWithin(f.within)
	return w, nil
}

// detail reports whether the figure is of one finding or resource, of which there are many.
func (f *figure) detail() bool {
	return strings.HasPrefix(f.id, "finding.") || strings.HasPrefix(f.id, "resource.")
}

// choose finds a figure by its id.
func choose(all []figure, id string) (*figure, error) {
	var ids []string
	var begin []*figure
	for i := range all {
		f := &all[i]
		switch {
		case f.id == id, f.id == "resource."+id+".running":
			return f, nil
		case strings.HasPrefix(f.id, "finding.") && isBeginning(f.id, id):
			begin = append(begin, f)
		}
		ids = append(ids, f.id)
	}
	if len(begin) == 1 {
		return begin[0], nil
	}
	if len(begin) > 1 {
		return nil, &ErrNoFigure{id, fmt.Sprintf(": it is the beginning of %d", len(begin))}
	}
	return nil, &ErrNoFigure{id, document.DidYouMean(id, ids)}
}

// isBeginning reports whether a person means the figure of a finding: by the beginning of the
// finding's id for its saving, or by that and the name of another figure.
func isBeginning(figure, given string) bool {
	rest := strings.TrimPrefix(figure, "finding.")
	finding, name, _ := strings.Cut(rest, ".")
	given = strings.TrimPrefix(given, "finding.")
	begin, what, named := strings.Cut(given, ".")
	if !named {
		what = "saves"
	}
	return begin != "" && what == name && strings.HasPrefix(finding, strings.ToLower(begin))
}

// figures are all figures of the audit that can be explained.
func (d *Scan) figures() []figure {
	if d.Kept == nil {
		return nil
	}
	out := d.nowFigures()
	out = append(out, d.windowFigures()...)
	out = append(out, d.savingFigures()...)
	for _, o := range d.Owners {
		out = append(out, d.teamFigures(o)...)
	}
	for i := range d.Findings {
		out = append(out, d.findingFigures(&d.Findings[i])...)
	}
	out = append(out, d.planFigures()...)
	return append(out, d.resourceFigures()...)
}

// atRate is the basis of figures of what runs now.
func (d *Scan) atRate() string {
	return "the rate of " + plain.Time(d.FinishedAt) + ", times 730 hours, at list price"
}

func (d *Scan) nowFigures() []figure {
	if d.Now == nil {
		return nil
	}
	type part struct {
		id, label string
		value     money.Dollars
		of        func(*ScanCharge) money.Amount
	}
	parts := []part{
		{"now.used", "measured compute that is not wasted", d.Now.UsedUSD,
			func(c *ScanCharge) money.Amount { return c.UsedUSD }},
		{"now.wasted", "idle, held or stalled compute, and unused resources", d.Now.WastedUSD,
			func(c *ScanCharge) money.Amount { return c.WastedUSD }},
		{"now.unmeasured", "compute of which it is unknown whether it works", d.Now.UnmeasuredUSD,
			func(c *ScanCharge) money.Amount { return c.UnmeasuredUSD }},
		{"now.other", "storage, network and services that are not wasted", d.Now.OtherUSD,
			func(c *ScanCharge) money.Amount { return c.OtherUSD }},
	}
	out := []figure{{
		id: "now.running", label: "what runs now", value: d.Now.RunningUSD, basis: d.atRate(),
		rows: func() (rows []WhyRow) {
			for _, p := range parts {
				rows = append(rows, WhyRow{Figure: p.id, Label: p.label, AmountUSD: p.value})
			}
			return rows
		},
		within: func(*ScanCharge) bool { return true }, excluded: d.committed(),
	}}
	for _, p := range parts {
		out = append(out, figure{
			id: p.id, label: p.label, value: p.value, basis: d.atRate(),
			rows:   func() []WhyRow { return d.byResource(p.of) },
			within: func(c *ScanCharge) bool { return p.of(c) != 0 },
		})
	}
	return out
}

// committed names the cost of commitments, which is not part of what runs.
func (d *Scan) committed() []string {
	v, known := d.Totals.MonthlyCommittedUSD.Get()
	if !known || v == 0 {
		return nil
	}
	return []string{v.Dollars() + " a month for commitments, which is paid whatever runs"}
}

func (d *Scan) windowFigures() []figure {
	w := d.Window
	if w == nil {
		return nil
	}
	basis := "charged from " + plain.Time(w.From) + " until " + plain.Time(w.To)
	costs := ""
	if d.Cloud != "sim" { // what the simulated account costs is in no ledger
		costs = fmt.Sprintf("curfew costs --by resource --since %s --until %s", w.From.Format(time.RFC3339),
			w.To.Format(time.RFC3339))
	}
	var gap []string
	if g := w.Gap(); g != "" {
		gap = []string{g}
	}
	type part struct {
		id, label string
		value     money.Dollars
		of        func(*ScanWindowTeam) money.Amount
	}
	parts := []part{
		{"window.used", "used in the window", w.UsedUSD, func(t *ScanWindowTeam) money.Amount { return t.UsedUSD }},
		{"window.wasted", "wasted in the window", w.WastedUSD,
			func(t *ScanWindowTeam) money.Amount { return t.WastedUSD }},
		{"window.unmeasured", "unmeasured in the window", w.UnmeasuredUSD,
			func(t *ScanWindowTeam) money.Amount { return t.UnmeasuredUSD }},
		{"window.other", "other in the window", w.OtherUSD,
			func(t *ScanWindowTeam) money.Amount { return t.OtherUSD }},
	}
	out := []figure{{
		id: "window.total", label: "the cost of the last " + w.Span(), value: w.TotalUSD, basis: basis,
		rows: func() (rows []WhyRow) {
			for _, p := range parts {
				rows = append(rows, WhyRow{Figure: p.id, Label: p.label, AmountUSD: p.value})
			}
			return rows
		},
		excluded: gap, command: costs,
	}}
	for _, p := range parts {
		out = append(out, figure{
			id: p.id, label: p.label, value: p.value, basis: basis, excluded: gap, command: costs,
			rows: func() (rows []WhyRow) {
				for i := range d.Kept.WindowTeams {
					t := &d.Kept.WindowTeams[i]
					if v := p.of(t); v != 0 {
						rows = append(rows, WhyRow{Label: team(t.Team), AmountUSD: money.Known(v)})
					}
				}
				return rows
			},
		})
	}
	return out
}

// team names a team for people.
func team(name string) string { return cmp.Or(name, "(no team)") }

func (d *Scan) savingFigures() []figure {
	const basis = "a month of all fixes together, each counted on what the ones before left"
	show := "curfew scan --last --all"
	unknown := func(n int) []string {
		if n == 0 {
			return nil
		}
		return []string{plain.Count(n, "finding") + " with a saving that is only bounded or not known"}
	}
	out := []figure{{
		id: "saves", label: "what the fixes save a month", value: d.Totals.MonthlySavingsUSD, basis: basis,
		rows: func() (rows []WhyRow) {
			for _, s := range d.Steps {
				if s.MonthlySavingsUSD.Or(0) != 0 {
					rows = append(rows, WhyRow{
						Figure: "step." + strconv.Itoa(s.Step) + ".saves", Label: s.Name,
						AmountUSD: s.MonthlySavingsUSD,
					})
				}
			}
			return rows
		},
		excluded: unknown(d.Totals.SavingsUnknown), command: show,
	}}
	for _, s := range d.Steps {
		of := func(name string, value func(*Finding) money.Dollars) func() []WhyRow {
			return func() (rows []WhyRow) {
				for i := range d.Findings {
					f := &d.Findings[i]
					if v := value(f); f.Step == s.Step && v.Or(0) != 0 {
						rows = append(rows, WhyRow{
							Figure: "finding." + f.ID + "." + name, Label: f.Rule + " " + f.Resource.label(),
							AmountUSD: v,
						})
					}
				}
				return rows
			}
		}
		id := "step." + strconv.Itoa(s.Step)
		out = append(out, figure{
			id: id + ".wasted", label: "wasted now, step " + s.Name, value: s.MonthlyWasteUSD, basis: d.atRate(),
			rows: of("wasted", func(f *Finding) money.Dollars { return f.MonthlyWasteUSD }), command: show,
		}, figure{
			id: id + ".saves", label: "saved a month by step " + s.Name, value: s.MonthlySavingsUSD, basis: basis,
			rows:     of("saves", func(f *Finding) money.Dollars { return f.MonthlySavingsUSD }),
			excluded: unknown(s.SavingsUnknown), command: show,
		})
	}
	return out
}

// label names a resource for people.
func (r *Resource) label() string { return labelOf(r.Type, r.Name, r.ID) }

func labelOf(typ, name, id string) string { return strings.TrimSpace(typ + " " + cmp.Or(name, id)) }

func (d *Scan) teamFigures(o OwnerCost) []figure {
	mine := func(c *ScanCharge) bool { return c.Team == o.Team }
	of := func(value func(*ScanCharge) money.Amount) func() []WhyRow {
		return func() []WhyRow {
			return d.byResource(func(c *ScanCharge) money.Amount {
				if !mine(c) {
					return 0
				}
				return value(c)
			})
		}
	}
	id := "team." + o.Team
	return []figure{
		{
			id: id + ".running", label: "what runs now of " + team(o.Team), value: o.MonthlyCostUSD,
			basis: d.atRate(), rows: of(func(c *ScanCharge) money.Amount { return c.RunningUSD }), within: mine,
		},
		{
			id: id + ".wasted", label: "wasted now by " + team(o.Team), value: o.WastedNowUSD, basis: d.atRate(),
			rows:   of(func(c *ScanCharge) money.Amount { return c.WastedUSD }),
			within: func(c *ScanCharge) bool { return mine(c) && c.WastedUSD != 0 },
		},
	}
}

func (d *Scan) findingFigures(f *Finding) []figure {
	claims := func(value func(*ScanClaim) money.Amount) func() []WhyRow {
		return func() (rows []WhyRow) {
			for i := range d.Kept.Claims {
				c := &d.Kept.Claims[i]
				if v := value(c); c.Finding == f.ID && v != 0 {
					rows = append(rows, WhyRow{
						Figure: "resource." + c.Resource + ".running",
						Label:  strings.TrimSpace(c.Meter + " of " + c.Resource), AmountUSD: money.Known(v),
					})
				}
			}
			return rows
		}
	}
	id, show := "finding."+f.ID, "curfew fix "+f.ID[:min(8, len(f.ID))]
	name := f.Rule + " " + f.Resource.label()
	var unknown []string
	if f.SavingsUnknown != "" {
		unknown = []string{f.SavingsUnknown}
	}
	within := func(c *ScanCharge) bool { return c.Resource == f.Resource.ID }
	return []figure{
		{
			id: id + ".saves", label: "saved a month by " + name, value: f.MonthlySavingsUSD,
			basis: "a month of its fix, on what the findings before it left", excluded: unknown, command: show,
			rows: claims(func(c *ScanClaim) money.Amount { return c.SavesUSD }), within: within,
		},
		{
			id: id + ".wasted", label: "wasted now: " + name, value: f.MonthlyWasteUSD, basis: d.atRate(),
			command: show, rows: claims(func(c *ScanClaim) money.Amount { return c.WasteUSD }), within: within,
		},
	}
}

func (d *Scan) resourceFigures() []figure {
	var out []figure
	at := map[string]int{}
	sums := map[string]money.Dollars{}
	for i := range d.Kept.Charges {
		c := &d.Kept.Charges[i]
		if c.Unpriced == "" {
			sums[c.Resource] = sum(sums[c.Resource].Or(0), c.RunningUSD)
		}
		if _, seen := at[c.Resource]; seen {
			continue
		}
		at[c.Resource] = len(out)
		out = append(out, figure{
			id: "resource." + c.Resource + ".running", label: labelOf(c.Type, c.Name, c.Resource), basis: d.atRate(),
			rows:   func() []WhyRow { return d.metersOf(c.Resource) },
			within: func(other *ScanCharge) bool { return other.Resource == c.Resource },
		})
	}
	for id, i := range at {
		out[i].value = sums[id]
	}
	return out
}

// byResource adds up a part of charges by resource.
func (d *Scan) byResource(of func(*ScanCharge) money.Amount) []WhyRow {
	var rows []WhyRow
	at := map[string]int{}
	for i := range d.Kept.Charges {
		c := &d.Kept.Charges[i]
		v := of(c)
		if v == 0 {
			continue
		}
		k, seen := at[c.Resource]
		if !seen {
			k = len(rows)
			at[c.Resource] = k
			rows = append(rows, WhyRow{
				Figure: "resource." + c.Resource + ".running", Label: labelOf(c.Type, c.Name, c.Resource),
				AmountUSD: money.Known(0),
			})
		}
		rows[k].AmountUSD = rows[k].AmountUSD.Plus(v)
	}
	return rows
}

// metersOf lists the priced meters of a resource.
func (d *Scan) metersOf(resource string) (rows []WhyRow) {
	for i := range d.Kept.Charges {
		c := &d.Kept.Charges[i]
		if c.Resource != resource || c.Unpriced != "" {
			continue
		}
		rows = append(rows, WhyRow{
			Label: c.Meter, AmountUSD: money.Known(c.RunningUSD), Quantity: c.Quantity, Unit: c.Unit,
			UnitPrice: c.UnitPrice, Source: c.Source, AsOf: c.AsOf, Note: c.Estimate,
		})
	}
	return rows
}

// unpricedWithin names the charges of a figure that have no price.
func (d *Scan) unpricedWithin(within func(*ScanCharge) bool) []string {
	if within == nil {
		return nil
	}
	type key struct{ kind, why string }
	counts := map[key]int{}
	var order []key
	for i := range d.Kept.Charges {
		c := &d.Kept.Charges[i]
		k := key{c.Kind, c.Unpriced}
		if c.Unpriced == "" || !within(c) {
			continue
		}
		if counts[k] == 0 {
			order = append(order, k)
		}
		counts[k]++
	}
	var out []string
	for _, k := range order {
		out = append(out, fmt.Sprintf("%s without a price (%s)", plain.Count(counts[k], k.kind+" meter"), k.why))
	}
	return out
}

// pricesWithin lists the sources of the prices of a figure.
func (d *Scan) pricesWithin(within func(*ScanCharge) bool) []PriceSource {
	m := &meters{sources: map[string]*PriceSource{}}
	for i := range d.Kept.Charges {
		if c := &d.Kept.Charges[i]; within != nil && c.Unpriced == "" && within(c) {
			m.source(c.Source, c.AsOf)
		}
	}
	return m.priceList()
}
