package view

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// PriceSchema names the documents of the price book, WatchingSchema that of [Watching].
const (
	PriceSchema    = "curfew.price/v1"
	WatchingSchema = "curfew.watching/v1"
)

// Price is a price of the book.
type Price struct {
	Service string `json:"service"`
	Name    string `json:"name"`
	Region  string `json:"region,omitempty"`
	// Term is the purchase term.
	Term string `json:"term"`
	Unit string `json:"unit"`
	// USD is dollars a unit with every digit.
	USD money.Rate `json:"usd"`
	// Tiers are the tiers of the price.
	Tiers  []PriceTier `json:"tiers,omitempty"`
	Source string      `json:"source"`
	// AsOf is the date from which the price holds.
	AsOf string `json:"as_of"`
	// Own is true for a price of the user's own updates.
	Own bool `json:"own,omitempty"`
}

// PriceTier is the price above a quantity.
type PriceTier struct {
	// Above is the quantity from which it holds.
	Above int64      `json:"above"`
	USD   money.Rate `json:"usd"`
}

// NewPrice makes the document of an entry of the book.
func NewPrice(e price.Entry, own bool) Price {
	d := Price{
		Service: e.Service, Name: cmp.Or(e.Type, string(e.Item)), Region: e.Region,
		Term: string(e.Term), Unit: e.Price.Unit,
		USD: e.Price.Rate, Source: e.Price.Source, AsOf: e.Price.AsOf.Format(time.DateOnly), Own: own}
	for _, t := range e.Price.Tiers {
		d.Tiers = append(d.Tiers, PriceTier{Above: t.Above, USD: t.Rate})
	}
	return d
}

// Machine is a machine type with its prices.
type Machine struct {
	price.Machine
	// Accelerators is the number of accelerators it has.
	Accelerators string `json:"accelerators,omitempty"`
	// AsOf is the date from which the data holds.
	AsOf   string  `json:"as_of"`
	Prices []Price `json:"prices"`
	// OnDemand and Spot are dollars an hour in the region that was asked for, empty if the book has
	// no price; PriceSource and PriceAsOf are where they are from.
	OnDemand    string `json:"-"`
	Spot        string `json:"-"`
	PriceSource string `json:"-"`
	PriceAsOf   string `json:"-"`
}

// newMachine makes the document of a machine type with its prices in a region; an empty
// region is all of them. Entries hold those of the machine.
func newMachine(book *price.Book, entries []price.Entry, m price.Machine, region string) Machine {
	d := Machine{Machine: m, AsOf: m.AsOf.Format(time.DateOnly), Prices: []Price{}}
	if m.AcceleratorMilli > 0 {
		d.Accelerators = strconv.FormatFloat(float64(m.AcceleratorMilli)/1000, 'f', -1, 64)
	}
	for _, e := range entries {
		if e.Type == m.Type && (region == "" || e.Region == region) {
			d.Prices = append(d.Prices, NewPrice(e, book.Own(e)))
		}
	}
	var from price.Price
	if p, err := book.OnDemand(m.Type, region); err == nil {
		d.OnDemand, from = p.Rate.String(), p
	}
	if p, err := book.Spot(m.Type, region); err == nil {
		d.Spot = p.Rate.String()
		if d.OnDemand == "" {
			from = p
		}
	}
	if !from.AsOf.IsZero() {
		d.PriceSource, d.PriceAsOf = from.Source, from.AsOf.Format(time.DateOnly)
	}
	return d
}

// Machines is the output of `price list`.
type Machines struct {
	Schema   string    `json:"schema"`
	Region   string    `json:"region"`
	Machines []Machine `json:"machines"`
}

// NewMachines makes the document of machine types.
func NewMachines(book *price.Book, all []price.Machine, region string) Machines {
	byType := map[string][]price.Entry{}
	for _, e := range book.Entries() {
		byType[e.Type] = append(byType[e.Type], e)
	}
	d := Machines{PriceSchema, region, make([]Machine, 0, len(all))}
	for _, m := range all {
		d.Machines = append(d.Machines, newMachine(book, byType[m.Type], m, region))
	}
	return d
}

// PriceShow is the output of `price show`: a machine type, an accelerator, or prices.
type PriceShow struct {
	Schema      string       `json:"schema"`
	Machine     *Machine     `json:"machine,omitempty"`
	Accelerator *Accelerator `json:"accelerator,omitempty"`
	Prices      []Price      `json:"prices,omitempty"`
}

// Accelerator is an accelerator of the book.
type Accelerator struct {
	price.Accelerator
	// AsOf is the date from which the data holds.
	AsOf string `json:"as_of"`
}

// NewPriceShow makes the document of a name of the book: a machine type, an accelerator or a rate,
// in one region or in all. It returns false if the book has none of that name.
func NewPriceShow(book *price.Book, name, region string) (PriceShow, bool) {
	d := PriceShow{Schema: PriceSchema}
	if m, ok := book.Machine(strings.TrimPrefix(name, "ml.")); ok {
		machine := newMachine(book, book.Entries(), m, region)
		d.Machine = &machine
		return d, true
	}
	if g, ok := book.Accelerator(name); ok {
		d.Accelerator = &Accelerator{g, g.AsOf.Format(time.DateOnly)}
		return d, true
	}
	for _, e := range book.Entries() {
		if (string(e.Item) == name || e.Type == name) && (region == "" || e.Region == region || e.Region == "") {
			d.Prices = append(d.Prices, NewPrice(e, book.Own(e)))
		}
	}
	return d, len(d.Prices) > 0
}

// PriceUpdate is the output of `price update`.
type PriceUpdate struct {
	Schema string `json:"schema"`
	// Kept reports whether the prices were kept.
	Kept     bool          `json:"kept"`
	Accepted []PriceChange `json:"accepted"`
	// Refused are the refused prices, each with the reason.
	Refused []PriceRefusal `json:"refused"`
}

// PriceChange is a price that was accepted.
type PriceChange struct {
	What string `json:"what"`
	// Old is the price before; null if there was none.
	Old  *money.Rate `json:"old_usd"`
	New  Price       `json:"new"`
	Note string      `json:"note,omitempty"`
	// Same is true if the book held it already.
	Same bool `json:"-"`
}

// PriceRefusal is a price that was refused.
type PriceRefusal struct {
	What   string     `json:"what"`
	USD    money.Rate `json:"usd"`
	Line   int        `json:"line,omitempty"`
	Reason string     `json:"reason"`
}

// NewPriceUpdate makes the document of an update; keep is false for a dry run.
func NewPriceUpdate(accepted []price.Change, refused []price.Refusal, keep bool) PriceUpdate {
	d := PriceUpdate{PriceSchema, keep && len(accepted) > 0, []PriceChange{}, []PriceRefusal{}}
	for _, c := range accepted {
		change := PriceChange{What: c.New.String(), New: NewPrice(c.New, true), Note: c.Note, Same: c.Same()}
		if c.Old.Cloud != "" {
			change.Old = &c.Old.Price.Rate
		}
		d.Accepted = append(d.Accepted, change)
	}
	for _, r := range refused {
		d.Refused = append(d.Refused, PriceRefusal{
			What: r.Entry.String(), USD: r.Entry.Price.Rate, Line: r.Entry.Line, Reason: strings.TrimSpace(r.Reason),
		})
	}
	return d
}

// Watching is the output of `price watching`: the cost of curfew's own calls.
type Watching struct {
	Schema   string `json:"schema"`
	Machines int    `json:"machines"`
	// GPUs is the number of GPUs each machine has.
	GPUs int `json:"gpus_per_machine"`
	// Every is how often a pass is made.
	Every string `json:"every"`
	// Metrics and Lists count the requests to CloudWatch in one pass.
	Metrics int `json:"metrics_per_pass"`
	Lists   int `json:"list_requests_per_pass"`
	// PerPass is the cost of one pass in dollars.
	PerPass money.Amount `json:"usd_per_pass"`
	// PassesADay is how many passes are made in a day.
	PassesADay string `json:"passes_per_day"`
	// Monthly dollars of passes of enforce, and of scan, which asks Cost Explorer once a day.
	Enforce money.Amount `json:"enforce_monthly_usd"`
	// Scan is the cost of the scans of a month in dollars.
	Scan money.Amount `json:"scan_monthly_usd"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
}
