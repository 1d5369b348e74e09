// Package market ranks machines by the work that a dollar buys, across generations,
// clouds and purchase options. It is a pure function of the price book: what has no
// price there is listed as such and never ranked.
package market

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/price"
)

// Schema names the shape of a [Report] in JSON.
const Schema = "curfew.plan.market/v1"

// For is the work that counts.
type For string

// The kinds of work.
const (
	// Compute is dense tensor throughput at 16 bits, in TFLOP/s.
	Compute For = "bf16-tflops"
	// Memory is device memory in GiB.
	Memory For = "memory-gib"
	// Bandwidth is that of device memory in GB/s.
	Bandwidth For = "memory-bandwidth"
	// Tokens is the tokens a second of a language model, prompts and answers together,
	// as [Model] estimates them.
	Tokens For = "tokens"
)

// works are the kinds in the order in which they are named.
var works = []For{Compute, Memory, Bandwidth, Tokens}

// ParseFor reads the name of a kind of work.
func ParseFor(text string) (For, error) {
	f := For(strings.TrimSpace(text))
	if slices.Contains(works, f) {
		return f, nil
	}
	names := make([]string, len(works))
	for i, w := range works {
		names[i] = string(w)
	}
	return "", fmt.Errorf("%q: expected one of %s%s", text, strings.Join(names, ", "),
		document.DidYouMean(text, names))
}

// unit returns the unit bought per dollar and hour.
func (f For) unit() string {
	return map[For]string{
		Compute: "TFLOP/s", Memory: "GiB", Bandwidth: "GB/s", Tokens: "tokens/s",
	}[f] + " per dollar an hour"
}

// Params are the choices of a ranking; the zero value is the usual one.
type Params struct {
	// Cloud, Region, Accelerator and its Vendor restrict the ranking where they are set.
	// Without a region each machine stands at its lowest price of any, for each option.
	Cloud, Region, Accelerator, Vendor string
	// Options are the purchase options to rank; empty is all.
	Options []price.Term
	// Model is the model that serves the tokens.
	Model Model
	// Block is how long a capacity block is, paid for whole; 0 is a day, AWS's shortest.
	Block time.Duration
	// Used is the share of a block in which it works, over 0 to 1; 0 is 1.
	Used float64
}

// Report is the ranking, in the shape of its JSON.
type Report struct {
	Schema string `json:"schema"`
	// For is the objective of the ranking.
	For  For    `json:"for"`
	Unit string `json:"unit"`
	// Offers are machines that are paid by the hour, most work for a dollar first.
	Offers []Offer `json:"offers"`
	// Blocks are capacity blocks: paid up front for a window, used or not.
	Blocks []Block `json:"capacity_blocks"`
	// Accelerators holds the best offer of each accelerator and option, in order of
	// release.
	Accelerators []Offer `json:"accelerators"`
	// Unranked are machines that have no price, or of which a figure is unknown.
	Unranked []Unranked `json:"unranked"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
	// CoverageNotes are the gaps of the data.
	CoverageNotes []string `json:"coverage_notes"`
	// Changes would change the answer.
	Changes []string `json:"changes"`
}

// Offer is a machine at a price.
type Offer struct {
	// Rank counts from 1; machines that give the same for a dollar share it.
	Rank    int    `json:"rank"`
	Machine string `json:"machine"`
	Cloud   string `json:"cloud"`
	Region  string `json:"region"`
	// Option is how it is bought: on-demand, spot or committed.
	Option      price.Term `json:"option"`
	Accelerator string     `json:"accelerator"`
	// Generation is the generation of the accelerator.
	Generation string `json:"generation"`
	// Released is the year of the accelerator.
	Released int `json:"release_year"`
	// Devices is how many it has; some machines have a fraction of one.
	Devices float64 `json:"devices"`
	// Precision is at what its throughput is stated: fp16 or fp32 before bf16.
	Precision string `json:"precision"`
	// Work is the output of the whole machine, in the unit's numerator; PerDollar is the output per
	// dollar and hour.
	Work      float64 `json:"work"`
	PerDollar float64 `json:"work_per_dollar"`
	// HourlyUSD is the price of an hour in dollars.
	HourlyUSD money.Amount `json:"usd_per_hour"`
	// MillionUSD is the price of a million tokens; absent for other work.
	MillionUSD money.Dollars `json:"usd_per_million_tokens,omitzero"`
	// Discount is off the on-demand price of the same place; null if that is unknown, and for on
	// demand.
	Discount *float64 `json:"discount"`
	// Source and AsOf are the price's; SpecSource is the accelerator's.
	Source     string `json:"source"`
	AsOf       string `json:"as_of"`
	SpecSource string `json:"spec_source"`
	Note       string `json:"note,omitempty"`
}

// Block is a capacity block.
type Block struct {
	Offer
	// Hours is its length, UpfrontUSD what it costs whole.
	Hours      float64      `json:"hours"`
	UpfrontUSD money.Amount `json:"upfront_usd"`
	// BreakEvenUse is the share of the block that must be used for it to cost no more than on
	// demand; over 1 it never does; null if on demand has no price.
	BreakEvenUse *float64 `json:"break_even_use"`
}

// Unranked is a machine that is not in the ranking.
type Unranked struct {
	Machine     string `json:"machine"`
	Cloud       string `json:"cloud"`
	Accelerator string `json:"accelerator"`
	Why         string `json:"why"`
}

// Rank ranks the machines with accelerators that the book knows by the work that a dollar buys. A
// machine without a price in the scope, or of which the figure that counts is unknown, is listed as
// unranked. It returns an error for a scope or a choice that makes no sense.
func Rank(book *price.Book, f For, p Params) (Report, error) {
	if _, err := ParseFor(string(f)); err != nil {
		return Report{}, fmt.Errorf("rank machines: %w", err)
	}
	m := market{
		book: book, work: f, p: p, onDemand: map[place]money.Rate{}, best: map[place]price.Entry{},
		refused: map[[2]string]Unranked{},
	}
	if err := m.settle(); err != nil {
		return Report{}, fmt.Errorf("rank machines: %w", err)
	}
	m.read()
	r := Report{
		Schema: Schema, For: f, Unit: f.unit(), Offers: []Offer{}, Blocks: []Block{}, Accelerators: []Offer{},
		Unranked: []Unranked{},
	}
	for _, e := range m.best {
		if err := m.rank(&r, e); err != nil {
			return Report{}, fmt.Errorf("rank %s: %w", e, err)
		}
	}
	order(r.Offers, func(o *Offer) *Offer { return o })
	order(r.Blocks, func(b *Block) *Offer { return &b.Offer })
	m.unranked(&r)
	r.Accelerators = bestOf(r.Offers)
	m.notes(&r)
	return r, nil
}

// place is a candidate: a machine, its region, and the purchase option.
type place struct {
	cloud, machine, region string
	term                   price.Term
}

type market struct {
	book *price.Book
	work For
	p    Params
	// every is true if no option was asked for.
	every bool
	// onDemand holds every on-demand rate, best the lowest price of each machine and
	// option, or with a region the one there.
	onDemand map[place]money.Rate
	best     map[place]price.Entry
	refused  map[[2]string]Unranked
}

// settle checks the choices and fills in their defaults.
func (m *market) settle() error {
	p := &m.p
	if p.Accelerator != "" {
		a, ok := m.book.Accelerator(p.Accelerator)
		if !ok {
			return fmt.Errorf("accelerator %q is not in the price book%s", p.Accelerator,
				m.book.DidYouMean(p.Accelerator))
		}
		p.Accelerator = a.Name
	}
	if p.Vendor != "" && !slices.ContainsFunc(m.book.Accelerators(), func(a price.Accelerator) bool {
		return strings.EqualFold(a.Vendor, p.Vendor)
	}) {
		return fmt.Errorf("the price book has no accelerator of vendor %q", p.Vendor)
	}
	all := []price.Term{price.OnDemand, price.Spot, price.Reserved, price.CapacityBlock}
	for _, o := range p.Options {
		if !slices.Contains(all, o) {
			return fmt.Errorf("purchase option %q: expected on-demand, spot, reserved or capacity-block%s", o,
				document.DidYouMean(string(o), []string{
					string(price.OnDemand), string(price.Spot), string(price.Reserved), string(price.CapacityBlock),
				}))
		}
	}
	if m.every = len(p.Options) == 0; m.every {
		p.Options = all
	}
	p.Block, p.Used = cmp.Or(p.Block, 24*time.Hour), cmp.Or(p.Used, 1)
	switch {
	case p.Block < time.Hour || p.Block > 366*24*time.Hour || p.Block%time.Hour != 0:
		return fmt.Errorf("capacity block of %s: expected whole hours, up to a year", p.Block)
	case !(p.Used > 0 && p.Used <= 1):
		return fmt.Errorf("capacity block utilization %v: expected over 0 and at most 1", p.Used)
	}
	if m.work != Tokens {
		return nil
	}
	var err error
	p.Model, err = p.Model.settled()
	return err
}

// read finds the prices in the scope.
func (m *market) read() {
	for _, e := range m.book.Entries() {
		if e.Service != price.Compute {
			continue
		}
		at := place{e.Cloud, e.Type, e.Region, e.Term}
		if e.Term == price.OnDemand {
			m.onDemand[at] = e.Price.Rate
		}
		if !slices.Contains(m.p.Options, e.Term) || m.p.Cloud != "" && e.Cloud != m.p.Cloud || m.p.Region != "" &&
			e.Region != m.p.Region {
			continue
		}
		at.region = ""
		if held, ok := m.best[at]; !ok || e.Price.Rate < held.Price.Rate {
			m.best[at] = e
		}
	}
}

// machine returns what is known of the machine that an entry prices, and whether it
// has accelerators.
func (m *market) machine(e price.Entry) (price.Machine, bool) {
	if known, ok := m.book.Machine(e.Type); ok && known.Cloud == e.Cloud {
		return known, known.AcceleratorMilli > 0
	}
	return price.Machine{
			Type: e.Type, Cloud: e.Cloud, Accelerator: e.Accelerator, AcceleratorMilli: e.AcceleratorMilli,
		},
		e.Accelerator != "" && e.AcceleratorMilli > 0
}

// rank adds an entry to the report, or to what is refused.
func (m *market) rank(r *Report, e price.Entry) error {
	it, ok := m.machine(e)
	if !ok {
		return nil
	}
	acc, known := m.book.Accelerator(it.Accelerator)
	if !m.wanted(acc) {
		return nil
	}
	refuse := func(why string) {
		m.refused[[2]string{it.Cloud, it.Type}] = Unranked{it.Type, it.Cloud, it.Accelerator, why}
	}
	if !known {
		refuse("the price book has no data for its accelerator")
		return nil
	}
	work, why := m.doing(it, acc)
	if why != "" {
		refuse(why)
		return nil
	}
	hourly, err := e.Price.Hourly()
	if err != nil {
		return err
	}
	if hourly <= 0 {
		refuse("its price is below $0.000000001 an hour")
		return nil
	}
	o := Offer{
		Machine: it.Type, Cloud: it.Cloud, Region: e.Region, Option: e.Term, Accelerator: acc.Name,
		Generation: acc.Generation, Released: acc.ReleaseYear,
		Devices: float64(it.AcceleratorMilli) / 1000, Precision: acc.Precision, Work: work, HourlyUSD: hourly,
		Source: e.Price.Source, AsOf: e.Price.AsOf.Format(time.DateOnly), SpecSource: acc.Source,
		Note: note(e.Term, m.work, acc)}
	paid := work
	if e.Term == price.CapacityBlock {
		paid *= m.p.Used
	}
	o.PerDollar = paid / (float64(hourly) / float64(money.USD))
	if m.work == Tokens {
		perHour := int64(paid * 3600)
		if perHour < 1 {
			refuse("it serves less than one token an hour")
			return nil
		}
		million, err := hourly.Mul(1_000_000, perHour)
		if err != nil {
			return err
		}
		o.MillionUSD = money.Known(million)
	}
	own, priced := m.onDemand[place{e.Cloud, e.Type, e.Region, price.OnDemand}]
	if priced && e.Term != price.OnDemand {
		d := 1 - float64(e.Price.Rate)/float64(own)
		o.Discount = &d
	}
	if e.Term != price.CapacityBlock {
		r.Offers = append(r.Offers, o)
		return nil
	}
	b := Block{Offer: o, Hours: m.p.Block.Hours()}
	upfront, err := hourly.Mul(int64(m.p.Block/time.Hour), 1)
	if err != nil {
		return err
	}
	b.UpfrontUSD = upfront
	if priced {
		share := float64(e.Price.Rate) / float64(own)
		b.BreakEvenUse = &share
	}
	r.Blocks = append(r.Blocks, b)
	return nil
}

// wanted reports whether an accelerator is in the scope.
func (m *market) wanted(a price.Accelerator) bool {
	return (m.p.Accelerator == "" || a.Name == m.p.Accelerator) &&
		(m.p.Vendor == "" || strings.EqualFold(a.Vendor, m.p.Vendor))
}

// doing returns the work of a machine, or why it is unknown.
func (m *market) doing(it price.Machine, acc price.Accelerator) (work float64, why string) {
	devices := float64(it.AcceleratorMilli) / 1000
	switch m.work {
	case Memory:
		// The machine's own figure is of a fraction where it has one.
		if it.AcceleratorMemoryMiB > 0 {
			return float64(it.AcceleratorMemoryMiB) / 1024 * float64(it.GPUs()), ""
		}
		work = float64(acc.MemoryMiB) / 1024 * devices
	case Bandwidth:
		work = acc.MemoryBandwidthGBps * devices
	case Compute:
		work = acc.BF16TFLOPS * devices
	case Tokens:
		return m.p.Model.rate(acc, devices)
	}
	if work <= 0 {
		return 0, "no published figure for its " + acc.Name
	}
	return work, ""
}

// NoCUDA is the note of an offer whose accelerator is not from NVIDIA.
const NoCUDA = "does not run CUDA programs"

// note qualifies an offer's figure.
func note(t price.Term, f For, acc price.Accelerator) string {
	var out []string
	switch t {
	case price.Spot:
		out = append(out, "can be interrupted at any time")
	case price.Reserved:
		out = append(out, "binds for a term; the price excludes upfront payments")
	}
	if (f == Compute || f == Tokens) && acc.Precision != "bf16" {
		out = append(out, "throughput at "+acc.Precision)
	}
	if acc.Vendor != "NVIDIA" {
		out = append(out, NoCUDA)
	}
	return strings.Join(out, "; ")
}

// order sorts offers and numbers them.
func order[T any](all []T, offer func(*T) *Offer) {
	slices.SortFunc(all, func(a, b T) int {
		x, y := offer(&a), offer(&b)
		return cmp.Or(cmp.Compare(y.PerDollar, x.PerDollar), cmp.Compare(x.Devices, y.Devices),
			cmp.Compare(x.Cloud, y.Cloud),
			cmp.Compare(x.Machine, y.Machine), cmp.Compare(x.Option, y.Option))
	})
	for i := range all {
		o := offer(&all[i])
		o.Rank = i + 1
		if i > 0 {
			if before := offer(&all[i-1]); before.PerDollar == o.PerDollar {
				o.Rank = before.Rank
			}
		}
	}
}

// bestOf returns the first offer of each accelerator and option.
func bestOf(offers []Offer) []Offer {
	out := []Offer{}
	for _, o := range offers {
		if !slices.ContainsFunc(out, func(x Offer) bool {
			return x.Accelerator == o.Accelerator && x.Option == o.Option
		}) {
			out = append(out, o)
		}
	}
	slices.SortStableFunc(out, func(x, y Offer) int {
		return cmp.Or(cmp.Compare(x.Released, y.Released), cmp.Compare(x.Accelerator, y.Accelerator),
			cmp.Compare(x.Option, y.Option))
	})
	return out
}

// unranked lists what was refused and the book's machines without a price in scope.
func (m *market) unranked(r *Report) {
	priced := map[[2]string]bool{}
	for at := range m.best {
		priced[[2]string{at.cloud, at.machine}] = true
	}
	for _, it := range m.book.Machines() {
		k := [2]string{it.Cloud, it.Type}
		acc, _ := m.book.Accelerator(it.Accelerator)
		if it.AcceleratorMilli <= 0 || priced[k] || m.p.Cloud != "" && it.Cloud != m.p.Cloud || !m.wanted(acc) {
			continue
		}
		m.refused[k] = Unranked{it.Type, it.Cloud, it.Accelerator, "no price in the price book" + m.scope()}
	}
	for _, u := range m.refused {
		r.Unranked = append(r.Unranked, u)
	}
	slices.SortFunc(r.Unranked, func(x, y Unranked) int {
		return cmp.Or(cmp.Compare(x.Cloud, y.Cloud), cmp.Compare(x.Machine, y.Machine))
	})
}

// scope describes the searched prices: " in us-east-1, spot".
func (m *market) scope() string {
	s := " in " + cmp.Or(m.p.Region, "any region")
	if !m.every {
		for _, o := range m.p.Options {
			s += ", " + string(o)
		}
	}
	return s
}

// notes list the assumptions of the ranking.
func (m *market) notes(r *Report) {
	r.Assumptions = []string{
		"accelerator figures are from vendor data sheets: dense throughput, without sparsity; real programs reach less",
		"prices are hourly list prices, without interrupted work, storage, transfer and taxes",
	}
	if m.p.Region == "" {
		r.Assumptions = append(r.Assumptions,
			"each machine has its lowest price of any region, for each purchase option")
	}
	if m.work == Tokens {
		r.Assumptions = append(r.Assumptions, m.p.Model.assumptions()...)
	}
	if len(r.Blocks) > 0 {
		r.Assumptions = append(r.Assumptions,
			fmt.Sprintf("a capacity block of %s is paid in full and used for %s of its time",
				plain.Duration(m.p.Block),
				plain.Share(m.p.Used, 0)))
	}
	r.CoverageNotes = m.coverage(r)
	r.Changes = changes(r)
}

// coverage describes the extent and age of the prices.
func (m *market) coverage(r *Report) []string {
	var dates []string
	clouds, machines, have := map[string]bool{}, map[[2]string]bool{}, map[price.Term]int{}
	note := func(o Offer) {
		dates = append(dates, o.AsOf)
		clouds[o.Cloud], machines[[2]string{o.Cloud, o.Machine}] = true, true
		have[o.Option]++
	}
	for _, o := range r.Offers {
		note(o)
	}
	for _, b := range r.Blocks {
		note(b.Offer)
	}
	if len(dates) == 0 {
		return []string{"no machine to rank has a price in the price book" + m.scope()}
	}
	out := []string{fmt.Sprintf("%d prices of %d machines in %d cloud(s), dated %s to %s; %d machines not ranked",
		len(dates), len(machines), len(clouds), slices.Min(dates), slices.Max(dates), len(r.Unranked))}
	for _, t := range m.p.Options {
		if missing := len(machines) - have[t]; missing > 0 {
			out = append(out, fmt.Sprintf("%d of the ranked machines have no %s price", missing, t))
		}
	}
	return out
}

// changes list the facts that would change the answer.
func changes(r *Report) []string {
	out := []string{}
	if len(r.Offers) == 0 {
		return append(out, "run curfew price update to get prices")
	}
	first := r.Offers[0]
	if first.Option == price.Spot {
		i := slices.IndexFunc(r.Offers, func(o Offer) bool { return o.Option != price.Spot })
		if i >= 0 {
			next := r.Offers[i]
			out = append(out, fmt.Sprintf("if interruptions lose more than %s of the work, choose %s, %s",
				plain.Share(1-next.PerDollar/first.PerDollar, 0), next.Machine, next.Option))
		}
	}
	i := slices.IndexFunc(r.Offers, func(o Offer) bool { return o.Accelerator != first.Accelerator })
	if i >= 0 {
		next := r.Offers[i]
		out = append(out, fmt.Sprintf("%s becomes the best choice if its price drops by %s",
			next.Machine+", "+string(next.Option)+",", plain.Share(1-next.PerDollar/first.PerDollar, 1)))
	}
	for _, b := range r.Blocks {
		if b.BreakEvenUse != nil {
			out = append(out,
				fmt.Sprintf("a capacity block of %s is cheaper than on demand above %s utilization", b.Machine,
					plain.Share(*b.BreakEvenUse, 0)))
			break
		}
	}
	return out
}
