package view

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// BillFigure begins the ids of the figures of imported bills, such as
// bill.123456789012/2026-10-01.billed/service/AmazonEC2/resource/i-1.
const BillFigure = "bill."

// The parts of the id of a figure of a bill after its cost; unnamed stands for an empty name.
const (
	ofService  = "/service/"
	ofResource = "/resource/"
	unnamed    = "-"
)

// named returns the name that a part of an id stands for.
func named(part string) *string {
	if part == unnamed {
		part = ""
	}
	return &part
}

// BillPeriodID is the id of a billing period: its account and its beginning.
func BillPeriodID(k bill.PeriodKey) string {
	return k.Account + "/" + k.Start.UTC().Format(time.DateOnly)
}

// billCosts are the costs of a bill that are explained.
var billCosts = []struct {
	name    string
	of      func(*bill.Cost) money.Amount
	missing func(*bill.Period) int64
}{
	{"billed", func(c *bill.Cost) money.Amount { return c.Billed }, func(*bill.Period) int64 { return 0 }},
	{
		"effective", func(c *bill.Cost) money.Amount { return c.Effective },
		func(p *bill.Period) int64 { return p.NoEffective },
	},
}

// BillFigures lists the figures of imported bills that can be explained, the newest period first.
func BillFigures(periods []bill.Period) (out []WhyRow) {
	for _, p := range slices.Backward(periods) {
		for _, c := range billCosts {
			if c.missing(&p) == 0 {
				out = append(out, WhyRow{
					Figure:    BillFigure + BillPeriodID(p.PeriodKey) + "." + c.name,
					Label:     c.name + " cost of " + p.Account + " in " + plain.Month(p.Start),
					AmountUSD: money.Known(c.of(&p.Total)),
				})
			}
		}
	}
	return out
}

// BilledFigure is a figure of a bill: a cost of a period, of a service in it, or of a resource of the service.
type BilledFigure struct {
	Period bill.Period
	// id is its own, whole that of the cost of the period.
	id, whole, cost   string
	of                func(*bill.Cost) money.Amount
	service, resource *string
	missing           int64
}

// FindBilledFigure finds the period and the part that an id names; [ErrNoFigure] if there is none.
func FindBilledFigure(periods []bill.Period, id string) (BilledFigure, error) {
	var ids []string
	for i := range periods {
		for _, c := range billCosts {
			known := BillFigure + BillPeriodID(periods[i].PeriodKey) + "." + c.name
			ids = append(ids, known)
			rest, ok := strings.CutPrefix(id, known)
			if !ok || rest != "" && !strings.HasPrefix(rest, ofService) {
				continue
			}
			f := BilledFigure{
				Period: periods[i], id: id, whole: known, cost: c.name, of: c.of, missing: c.missing(&periods[i]),
			}
			if rest != "" {
				service, resource, divided := strings.Cut(strings.TrimPrefix(rest, ofService), ofResource)
				if f.service = named(service); divided {
					f.resource = named(resource)
				}
			}
			return f, nil
		}
	}
	return BilledFigure{}, &ErrNoFigure{id, document.DidYouMean(id, ids)}
}

// Why explains the figure by the rows of its period, at a time: the cost of the period by service, that of a
// service by resource, and that of a resource by day.
func (f *BilledFigure) Why(rows iter.Seq[bill.Row], at time.Time) (w Why, err error) {
	p := &f.Period
	w = Why{
		Schema: WhySchema, At: at.UTC(), Figure: f.id, Label: f.label(), Rows: []WhyRow{}, Prices: []PriceSource{},
		Excluded: []string{}, Basis: f.basis(),
		Command: "curfew bill show --since " + plain.Date(p.Start) + " --until " + plain.Date(p.Until()),
	}
	if f.missing > 0 {
		w.Excluded = append(w.Excluded, plain.Count(f.missing, "line")+" for which the bill has no "+f.cost+" cost")
	}
	sum, known := money.Amount(0), false
	index := map[string]int{} // of the terms in w.Rows
	for r := range rows {
		if f.service != nil && r.Service != *f.service || f.resource != nil && r.Resource != *f.resource {
			continue
		}
		known = true
		v := f.of(&r.Cost)
		if sum, err = sum.Add(v); err != nil {
			return w, fmt.Errorf("add up %s: %w", f.id, err)
		}
		key, row := f.row(&r)
		k, seen := index[key]
		if !seen {
			k = len(w.Rows)
			index[key] = k
			row.AmountUSD = money.Known(0)
			w.Rows = append(w.Rows, row)
		}
		w.Rows[k].AmountUSD = w.Rows[k].AmountUSD.Plus(v)
	}
	if !known && f.service != nil {
		return w, &ErrNoFigure{f.id, ": the bill has no such service or resource"}
	}
	w.Rows = slices.DeleteFunc(w.Rows, func(r WhyRow) bool { return r.AmountUSD.Or(0) == 0 })
	if f.resource == nil {
		slices.SortStableFunc(w.Rows, func(x, y WhyRow) int {
			return cmp.Compare(magnitude(y.AmountUSD.Or(0)), magnitude(x.AmountUSD.Or(0)))
		})
	}
	w.ValueUSD = money.Known(sum)
	if f.service == nil {
		w.ValueUSD = money.Known(f.of(&p.Total))
	}
	return w, nil
}

func magnitude(v money.Amount) money.Amount { return max(v, -v) }

func (f *BilledFigure) label() string {
	what := f.Period.Account
	switch {
	case f.resource != nil:
		what = cmp.Or(*f.resource, "what names no resource") + " of " + cmp.Or(*f.service, "no service")
	case f.service != nil:
		what = cmp.Or(*f.service, "what names no service")
	}
	return f.cost + " cost of " + what + " in " + plain.Month(f.Period.Start)
}

func (f *BilledFigure) basis() string {
	p := &f.Period
	return fmt.Sprintf("the bill of %s from %s until %s, %s imported %s from %s", p.Account, plain.Date(p.Start),
		plain.Date(p.Until()), plain.Count(p.Lines, "line"), plain.Time(p.ImportedAt), p.Source)
}

// row returns the term that a row of the bill is part of, and its key.
func (f *BilledFigure) row(r *bill.Row) (string, WhyRow) {
	switch {
	case f.service == nil:
		return r.Service, WhyRow{
			Figure: f.whole + ofService + cmp.Or(r.Service, unnamed), Label: cmp.Or(r.Service, "(no service)"),
		}
	case f.resource == nil:
		return r.Resource, WhyRow{
			Figure: f.whole + ofService + cmp.Or(r.Service, unnamed) + ofResource + cmp.Or(r.Resource, unnamed),
			Label:  cmp.Or(r.Resource, "(no resource)"),
		}
	}
	label := plain.Date(r.Day)
	for _, part := range []string{
		r.ChargeCategory, r.PricingCategory, string(r.Category), r.Type, r.Region, r.ToRegion,
	} {
		if part != "" {
			label += " · " + part
		}
	}
	return label, WhyRow{Label: label, Note: r.Commitment}
}
