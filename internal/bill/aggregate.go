package bill

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// DefaultMaxRows is the number of rows an aggregate holds unless told otherwise, about 200 bytes
// each without their texts: 30,000 resources over a month at two meters each.
const DefaultMaxRows = 2_000_000

// ErrTooManyRows says that a bill has more distinct rows than were allowed for.
var ErrTooManyRows = errors.New("the bill has more resources and days than fit")

// Options say how lines become rows.
type Options struct {
	// Source is where the bill is from; it stands for the billing account where the bill
	// names none.
	Source string
	// Mapping says which tags name the owner.
	Mapping inventory.TagMapping
	// MaxRows bounds the rows of each fork and of what they are merged to, so that it does
	// not depend on how many forks there are; 0 is [DefaultMaxRows].
	MaxRows int
	// ZeroPurchases sets the effective cost of purchases of commitments to 0, as FOCUS defines
	// it, where an export has another.
	ZeroPurchases bool
}

// Aggregate adds lines up to rows. It is not safe for concurrent use; [Aggregate.Fork]
// makes others for that, which are merged in the end. In which order lines, and forks,
// come makes no difference to the result.
type Aggregate struct {
	options Options

	symbols map[string]symbol
	recent  recall[symbol] // of symbols
	texts   []string
	periods map[PeriodKey]*period
	byID    []*period
	owners  map[string]owned // by the text of the tags
	tagged  recall[owned]    // of owners
	words   map[string]symbol
	spoken  recall[symbol]       // of words
	classes map[classKey]classed // of lines seen before, by words
	rows    map[rowKey]int32
	table   table
	lines   int64

	noCurrency int64
	badTags    int64
	late       int64 // lines of usage that a later period bills
	early      int64 // lines of usage that an earlier period bills
	purchases  purchases
}

// purchases are lines that buy commitments with an effective cost. FOCUS ("Effective Cost"):
// it "MUST be 0 in the event that the charge is a purchase intended to cover future eligible
// charges", because the use of the commitment has it. Exports of Azure break that.
type purchases struct {
	lines     int64
	effective Decimal
}

func (p *purchases) add(o purchases) {
	p.lines += o.lines
	p.effective = p.effective.Add(o.effective)
}

// takesEffectTwice reports whether a line buys a commitment and has an effective cost.
func takesEffectTwice(l *Line) bool {
	return l.ChargeCategory == Purchase && (l.CommitmentID != "" || l.PricingCategory == Committed) &&
		!l.Unknown.Has(EffectiveCost) && l.EffectiveCost.Sign() != 0
}

// cached bounds the cache of texts that are in no row, so that memory stays with the rows.
const cached = 1 << 16

// symbol stands for a text; 0 is the empty one.
type symbol uint32

// period is a billing period without its rows.
type period struct {
	id       uint32
	key      PeriodKey
	end      time.Time
	uneven   bool // lines give several ends
	lines    int64
	lacking  [3]int64 // lines without effective, list and contracted cost
	withheld Decimal
}

type owned struct {
	owner   symbol // the owner as a whole
	purpose symbol
}

type classKey struct {
	chargeCategory, serviceCategory, service, description, usageType, from, to, capacity, machine symbol
}

type classed struct {
	category, transfer, to, capacity, machine symbol
}

type rowKey struct {
	period                                         uint32
	day                                            int32 // since 1970
	provider, subAccount, resource, service        symbol
	region, category, transfer, to, chargeCategory symbol
	pricing, commitment, status, owner, purpose    symbol
	capacity, machine                              symbol
	unknown                                        Costs
}

// NewAggregate returns an empty aggregate.
func NewAggregate(o Options) *Aggregate {
	if o.MaxRows <= 0 {
		o.MaxRows = DefaultMaxRows
	}
	return &Aggregate{
		options: o, symbols: map[string]symbol{"": 0}, texts: []string{""}, periods: map[PeriodKey]*period{},
		owners: map[string]owned{}, words: map[string]symbol{}, classes: map[classKey]classed{},
		rows: map[rowKey]int32{}}
}

// Fork returns an empty aggregate with the options of a.
func (a *Aggregate) Fork() *Aggregate { return NewAggregate(a.options) }

func (a *Aggregate) symbol(s string) symbol {
	if s == "" {
		return 0
	}
	slot := a.recent.slot(s)
	if slot.is(s) {
		return slot.value
	}
	id, ok := a.symbols[s]
	if !ok {
		if c := clean(s); c != s {
			id = a.symbol(c)
		} else {
			id = symbol(len(a.texts))
			a.texts = append(a.texts, s)
		}
		a.symbols[s] = id
	}
	slot.text, slot.value = s, id
	return id
}

// word returns a number for a text that is in no row. Such texts can be as many as
// lines, and are forgotten now and then with all that is known by their numbers.
func (a *Aggregate) word(s string) symbol {
	slot := a.spoken.slot(s)
	if slot.is(s) {
		return slot.value
	}
	id, ok := a.words[s]
	if !ok {
		id = symbol(len(a.words))
		a.words[s] = id
	}
	slot.text, slot.value = s, id
	return id
}

// clean returns a text as every database keeps it: valid UTF-8 without a NUL.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Add adds a line. It refuses, and then adds nothing of it: another currency than
// dollars, a line without the start of its billing period or charge period, a cost that no
// amount of money can hold, and more rows than there is room for. Usage outside its billing
// period stays in the period that bills it, on its own day: providers bill usage late that
// they learned of late. l is not kept.
func (a *Aggregate) Add(l *Line) error {
	if l.BillingCurrency != "" && !strings.EqualFold(l.BillingCurrency, "USD") {
		return fmt.Errorf(
			"BillingCurrency is %.20q: costs are kept in US dollars; export the bill in USD, one currency at a time",
			l.BillingCurrency)
	}
	if l.BillingPeriodStart.IsZero() {
		return errors.New("BillingPeriodStart is empty: a bill is imported by billing periods")
	}
	if l.ChargePeriodStart.IsZero() {
		return errors.New("ChargePeriodStart is empty: charges are kept by day")
	}
	for i, d := range [...]Decimal{l.BilledCost, l.EffectiveCost, l.ListCost, l.ContractedCost} {
		if d.beyond() {
			return fmt.Errorf("%s is %s, which is more than a bill can come to: is it the cost?",
				[...]string{"BilledCost", "EffectiveCost", "ListCost", "ContractedCost"}[i], d)
		}
	}
	p := a.period(l)
	effective := l.EffectiveCost
	if takesEffectTwice(l) {
		a.purchases.add(purchases{1, effective})
		if a.options.ZeroPurchases {
			effective = Decimal{}
		}
	}
	c := a.class(l)
	tags := a.tags(l.Tags)
	key := rowKey{period: p.id, day: int32(floorDay(l.ChargePeriodStart.Unix())),
		provider: a.symbol(l.ServiceProviderName), subAccount: a.symbol(l.SubAccountID),
		resource: a.symbol(l.ResourceID),
		service:  a.symbol(l.ServiceName),
		region:   a.symbol(l.RegionID), category: c.category, transfer: c.transfer, to: c.to,
		chargeCategory: a.symbol(l.ChargeCategory),
		pricing:        a.symbol(l.PricingCategory), commitment: a.symbol(l.CommitmentID),
		status: a.symbol(l.CommitmentStatus),
		owner:  tags.owner, purpose: tags.purpose, capacity: c.capacity, machine: c.machine, unknown: l.Unknown}
	row, ok := a.rows[key]
	if !ok {
		var err error
		if row, err = a.newRow(key); err != nil {
			return err
		}
	}
	a.table.plus(row, billedSum, l.BilledCost)
	a.table.plus(row, effectiveSum, effective)
	a.table.plus(row, listSum, l.ListCost)
	a.table.plus(row, contractedSum, l.ContractedCost)
	if c.transfer != 0 {
		a.table.plus(row, gigabyteSum, gigabytes(l.ConsumedQuantity, l.ConsumedUnit))
	}
	p.withheld = p.withheld.Add(l.Withheld)
	if l.Derived {
		return nil
	}
	a.table.row(row).lines++
	p.lines++
	a.lines++
	if l.BillingCurrency == "" {
		a.noCurrency++
	}
	for i, c := range [...]Costs{EffectiveCost, ListCost, ContractedCost} {
		if l.Unknown.Has(c) {
			p.lacking[i]++
		}
	}
	if l.ChargeCategory == Usage && l.ChargeClass != Correction {
		switch {
		case l.ChargePeriodStart.Before(l.BillingPeriodStart):
			a.late++
		case !l.BillingPeriodEnd.IsZero() && !l.ChargePeriodStart.Before(l.BillingPeriodEnd):
			a.early++
		}
	}
	return nil
}

// newRow makes a row, while there are fewer than the bound.
func (a *Aggregate) newRow(k rowKey) (int32, error) {
	if len(a.rows) >= a.options.MaxRows {
		return 0, fmt.Errorf("%w: the bound is %d; import fewer periods at a time", ErrTooManyRows, a.options.MaxRows)
	}
	row := a.table.add()
	a.rows[k] = row
	return row, nil
}

// period returns the period of a line. Where lines give it several ends, it has the latest.
func (a *Aggregate) period(l *Line) *period {
	k := PeriodKey{Account: l.BillingAccountID, Start: l.BillingPeriodStart.UTC()}
	if k.Account == "" {
		k.Account = a.options.Source
	}
	p := a.periods[k]
	if p == nil {
		k.Account = clean(k.Account)
		p = a.periods[k]
	}
	if p == nil {
		p = a.newPeriod(k)
	}
	p.reach(l.BillingPeriodEnd)
	return p
}

// reach notes an end of the period that a line, or another part of the bill, gives.
func (p *period) reach(end time.Time) {
	if end.IsZero() {
		return
	}
	p.uneven = p.uneven || !p.end.IsZero() && !p.end.Equal(end)
	if end.After(p.end) {
		p.end = end
	}
}

func (a *Aggregate) newPeriod(k PeriodKey) *period {
	p := &period{id: uint32(len(a.byID)), key: k}
	a.periods[k] = p
	a.byID = append(a.byID, p)
	return p
}

func (a *Aggregate) class(l *Line) classed {
	if len(a.classes) >= cached || len(a.words) >= cached {
		clear(a.classes)
		clear(a.words)
		a.spoken = recall[symbol]{}
	}
	k := classKey{
		a.word(l.ChargeCategory), a.word(l.ServiceCategory), a.word(l.ServiceName), a.word(l.ChargeDescription),
		a.word(l.UsageType),
		a.word(l.FromRegion), a.word(l.ToRegion), a.word(l.CapacityStatus), a.word(l.MachineType)}
	c, ok := a.classes[k]
	if !ok {
		found := classify(l)
		c = classed{
			a.symbol(string(found.category)), a.symbol(string(found.transfer)), a.symbol(found.to),
			a.symbol(found.capacity),
			a.symbol(found.machine),
		}
		a.classes[k] = c
	}
	return c
}

// floorDay returns the day of a Unix time, counted from 1970, also before it.
func floorDay(seconds int64) int64 {
	day := seconds / 86400
	if seconds%86400 < 0 {
		day--
	}
	return day
}

// Merge adds o to a. o must not be used afterwards.
func (a *Aggregate) Merge(o *Aggregate) error {
	if len(a.byID) == 0 {
		*a, *o = *o, *a // nothing to add to: the rows need no second place
		return nil
	}
	ours := make([]symbol, len(o.texts))
	for i, t := range o.texts {
		ours[i] = a.symbol(t)
	}
	ids := make([]uint32, len(o.byID))
	for i, p := range o.byID {
		q := a.periods[p.key]
		if q == nil {
			q = a.newPeriod(p.key)
		}
		q.reach(p.end)
		q.uneven = q.uneven || p.uneven
		q.lines += p.lines
		q.withheld = q.withheld.Add(p.withheld)
		for j := range q.lacking {
			q.lacking[j] += p.lacking[j]
		}
		ids[i] = q.id
	}
	for k, from := range o.rows {
		k.period = ids[k.period]
		for _, f := range k.symbols() {
			*f = ours[*f]
		}
		to, ok := a.rows[k]
		if !ok {
			var err error
			if to, err = a.newRow(k); err != nil {
				return err
			}
		}
		a.table.merge(to, &o.table, from)
	}
	a.lines += o.lines
	a.noCurrency += o.noCurrency
	a.badTags += o.badTags
	a.late += o.late
	a.early += o.early
	a.purchases.add(o.purchases)
	*o = Aggregate{}
	return nil
}

// symbols returns the fields of a key that are texts, in the order in which rows are
// sorted after day and resource.
func (k *rowKey) symbols() [16]*symbol {
	return [16]*symbol{
		&k.resource, &k.provider, &k.subAccount, &k.service, &k.region, &k.category, &k.transfer,
		&k.to, &k.chargeCategory,
		&k.pricing,
		&k.commitment, &k.status, &k.owner, &k.purpose, &k.capacity, &k.machine}
}
