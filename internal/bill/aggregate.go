package bill

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// DefaultMaxRows is how many rows an aggregate holds unless told otherwise, about 400
// bytes each: 30,000 resources over a month at two meters each.
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
	// MaxRows bounds the rows of all forks together; 0 is [DefaultMaxRows].
	MaxRows int
}

// Aggregate adds lines up to rows. It is not safe for concurrent use; [Aggregate.Fork]
// makes others for that, which are merged in the end. In which order lines, and forks,
// come makes no difference to the result.
type Aggregate struct {
	options Options
	room    *atomic.Int64 // rows that may still be made, over all forks

	symbols map[string]symbol
	texts   []string
	periods map[PeriodKey]*period
	byID    []*period
	owners  map[string]owned     // by the text of the tags
	classes map[classKey]classed // of lines seen before
	rows    map[rowKey]*sums
	arena   []sums
	lines   int64

	noCurrency int64
	badTags    int64
}

// cached bounds what is remembered of texts seen before, so that memory stays with the
// rows.
const cached = 1 << 16

// symbol stands for a text; 0 is the empty one.
type symbol uint32

// period is what is known of a billing period beside its rows.
type period struct {
	id       uint32
	key      PeriodKey
	end      time.Time
	lines    int64
	lacking  [3]int64 // lines without effective, list and contracted cost
	withheld Decimal
}

type owned struct {
	owner   symbol // the owner as a whole
	purpose symbol
}

type classKey struct {
	chargeCategory, serviceCategory, service, description, usageType, from, to symbol
}

type classed struct {
	category, transfer, to symbol
}

type rowKey struct {
	period                                         uint32
	day                                            int32 // since 1970
	provider, subAccount, resource, service        symbol
	region, category, transfer, to, chargeCategory symbol
	pricing, commitment, status, owner, purpose    symbol
	unknown                                        Costs
}

type sums struct {
	billed, effective, list, contracted, gigabytes Decimal
	lines                                          int64
}

// NewAggregate returns an empty aggregate.
func NewAggregate(o Options) *Aggregate {
	if o.MaxRows <= 0 {
		o.MaxRows = DefaultMaxRows
	}
	room := new(atomic.Int64)
	room.Store(int64(o.MaxRows))
	return newAggregate(o, room)
}

func newAggregate(o Options, room *atomic.Int64) *Aggregate {
	a := &Aggregate{options: o, room: room, symbols: map[string]symbol{}, periods: map[PeriodKey]*period{}, owners: map[string]owned{},
		classes: map[classKey]classed{}, rows: map[rowKey]*sums{}}
	a.symbol("")
	return a
}

// Fork returns an empty aggregate that shares the bound on rows with a.
func (a *Aggregate) Fork() *Aggregate { return newAggregate(a.options, a.room) }

func (a *Aggregate) symbol(s string) symbol {
	if id, ok := a.symbols[s]; ok {
		return id
	}
	if c := clean(s); c != s {
		id := a.symbol(c)
		a.symbols[s] = id
		return id
	}
	id := symbol(len(a.texts))
	a.symbols[s] = id
	a.texts = append(a.texts, s)
	return id
}

// clean returns a text as every database keeps it: valid UTF-8 without a NUL.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Add adds a line. It refuses, and then adds nothing of it: another currency than
// dollars, a line without the start of its billing period or charge period, usage that
// is no correction and begins outside the billing period, and more rows than there is
// room for. l is not kept.
func (a *Aggregate) Add(l *Line) error {
	if l.BillingCurrency != "" && l.BillingCurrency != "USD" {
		return fmt.Errorf("BillingCurrency is %.20q: costs are kept in US dollars; export the bill in USD, one currency at a time", l.BillingCurrency)
	}
	if l.BillingPeriodStart.IsZero() {
		return errors.New("BillingPeriodStart is empty: a bill is imported by billing periods")
	}
	if l.ChargePeriodStart.IsZero() {
		return errors.New("ChargePeriodStart is empty: charges are kept by day")
	}
	if l.ChargeCategory == Usage && l.ChargeClass != Correction && outside(l) {
		return fmt.Errorf("usage of %s lies outside its billing period, which starts on %s and ends on %s", l.ChargePeriodStart.Format(time.DateTime),
			l.BillingPeriodStart.Format(time.DateOnly), l.BillingPeriodEnd.Format(time.DateOnly))
	}
	p, err := a.period(l)
	if err != nil {
		return err
	}
	c := a.class(l)
	tags := a.tags(l.Tags)
	key := rowKey{period: p.id, day: int32(floorDay(l.ChargePeriodStart.Unix())),
		provider: a.symbol(l.ServiceProviderName), subAccount: a.symbol(l.SubAccountID), resource: a.symbol(l.ResourceID), service: a.symbol(l.ServiceName),
		region: a.symbol(l.RegionID), category: c.category, transfer: c.transfer, to: c.to, chargeCategory: a.symbol(l.ChargeCategory),
		pricing: a.symbol(l.PricingCategory), commitment: a.symbol(l.CommitmentID), status: a.symbol(l.CommitmentStatus),
		owner: tags.owner, purpose: tags.purpose, unknown: l.Unknown}
	s, ok := a.rows[key]
	if !ok {
		if s, err = a.newSums(); err != nil {
			return err
		}
		a.rows[key] = s
	}
	s.billed = s.billed.Add(l.BilledCost)
	s.effective = s.effective.Add(l.EffectiveCost)
	s.list = s.list.Add(l.ListCost)
	s.contracted = s.contracted.Add(l.ContractedCost)
	if c.transfer != 0 && isGigabyte(l.ConsumedUnit) {
		s.gigabytes = s.gigabytes.Add(l.ConsumedQuantity)
	}
	p.withheld = p.withheld.Add(l.Withheld)
	if l.Derived {
		return nil
	}
	s.lines++
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
	return nil
}

func outside(l *Line) bool {
	return l.ChargePeriodStart.Before(l.BillingPeriodStart) || (!l.BillingPeriodEnd.IsZero() && !l.ChargePeriodStart.Before(l.BillingPeriodEnd))
}

func (a *Aggregate) newSums() (*sums, error) {
	if a.room.Add(-1) < 0 {
		return nil, fmt.Errorf("%w: the bound is %d; import fewer periods at a time", ErrTooManyRows, a.options.MaxRows)
	}
	if len(a.arena) == 0 {
		a.arena = make([]sums, 1024)
	}
	s := &a.arena[0]
	a.arena = a.arena[1:]
	return s, nil
}

func (a *Aggregate) period(l *Line) (*period, error) {
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
	if p.end.IsZero() {
		p.end = l.BillingPeriodEnd
	}
	if !l.BillingPeriodEnd.IsZero() && !p.end.Equal(l.BillingPeriodEnd) {
		return nil, fmt.Errorf("the billing period of %s ends on %s here and on %s in other rows", k.Start.Format(time.DateOnly),
			l.BillingPeriodEnd.Format(time.DateOnly), p.end.Format(time.DateOnly))
	}
	return p, nil
}

func (a *Aggregate) newPeriod(k PeriodKey) *period {
	p := &period{id: uint32(len(a.byID)), key: k}
	a.periods[k] = p
	a.byID = append(a.byID, p)
	return p
}

func (a *Aggregate) class(l *Line) classed {
	k := classKey{a.symbol(l.ChargeCategory), a.symbol(l.ServiceCategory), a.symbol(l.ServiceName), a.symbol(l.ChargeDescription), a.symbol(l.UsageType),
		a.symbol(l.FromRegion), a.symbol(l.ToRegion)}
	c, ok := a.classes[k]
	if !ok {
		if len(a.classes) >= cached {
			clear(a.classes)
		}
		found := classify(l)
		c = classed{a.symbol(string(found.category)), a.symbol(string(found.transfer)), a.symbol(found.to)}
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

// isGigabyte says whether a unit of consumption is an amount of data in gigabytes.
func isGigabyte(unit string) bool {
	switch unit {
	case "GB", "Gigabytes", "gigabytes", "GigaBytes", "Gigabyte":
		return true
	}
	return false
}

// Merge adds what o holds to a. o is of no use afterwards.
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
			q.end = p.end
		}
		if !q.end.Equal(p.end) && !q.end.IsZero() && !p.end.IsZero() {
			return fmt.Errorf("the billing period of %s ends on %s in some rows and on %s in others", p.key.Start.Format(time.DateOnly),
				q.end.Format(time.DateOnly), p.end.Format(time.DateOnly))
		}
		if q.end.IsZero() {
			q.end = p.end
		}
		q.lines += p.lines
		q.withheld = q.withheld.Add(p.withheld)
		for j := range q.lacking {
			q.lacking[j] += p.lacking[j]
		}
		ids[i] = q.id
	}
	for k, s := range o.rows {
		k.period = ids[k.period]
		for _, f := range k.symbols() {
			*f = ours[*f]
		}
		t := a.rows[k]
		if t == nil {
			a.rows[k] = s
			continue
		}
		t.add(s)
		a.room.Add(1)
	}
	a.lines += o.lines
	a.noCurrency += o.noCurrency
	a.badTags += o.badTags
	o.rows, o.symbols, o.classes, o.owners = nil, nil, nil, nil
	return nil
}

func (s *sums) add(o *sums) {
	s.billed = s.billed.Add(o.billed)
	s.effective = s.effective.Add(o.effective)
	s.list = s.list.Add(o.list)
	s.contracted = s.contracted.Add(o.contracted)
	s.gigabytes = s.gigabytes.Add(o.gigabytes)
	s.lines += o.lines
}

// symbols returns the fields of a key that are texts, in the order in which rows are
// sorted after day and resource.
func (k *rowKey) symbols() [14]*symbol {
	return [14]*symbol{&k.resource, &k.provider, &k.subAccount, &k.service, &k.region, &k.category, &k.transfer, &k.to, &k.chargeCategory, &k.pricing,
		&k.commitment, &k.status, &k.owner, &k.purpose}
}
