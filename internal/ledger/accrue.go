package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Unused is the duty of paid capacity that is not in use: reserved capacity without a running
// machine, unattached volumes and addresses.
const Unused = "unused"

// monthSeconds is the length of the month that monthly rates refer to.
const monthSeconds = int64(money.Month / time.Second)

// endOfTime is after every hour of the ledger.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// derive appends the entries of a history with Hour in [from, to) to others.
func (a *accrual) derive(others []Entry, h *History, from, to time.Time) ([]Entry, error) {
	a.collect(h, from, to)
	return a.entries(others)
}

// collect collects the cells of a history with Hour in [from, to).
func (a *accrual) collect(h *History, from, to time.Time) {
	a.from, a.to, a.cells, a.at, a.runs = from, to, a.cells[:0], nil, a.runs[:0]
	a.walk.out = a.walk.out[:0]
	for _, s := range h.stretches(&a.walk) {
		if s.to.After(from) && s.from.Before(to) {
			s.unused = s.idleTime()
			a.stretch(s)
		}
	}
}

// accrual collects the seconds by hour, meter and rate. It is reusable for one history after
// another.
type accrual struct {
	walk     walk
	from, to time.Time // whole hours
	cells    []cell
	at       map[cellKey]int // nil while linear search is faster
	runs     []run
}

// run is a span of whole hours of one meter at one rate and duty, kept as one item instead of a
// cell per hour.
type run struct {
	cell
	hours int
}

// linearSearchMax is the number of cells up to which linear search beats a map.
const linearSearchMax = 16

type cellKey struct {
	hour time.Time
	line Line // without its duty
}

type cell struct {
	cellKey
	// most is the upper bound of the monthly rate of a gap; valid if bounded.
	most    money.Amount
	bounded bool
	parts   []part
}

// part is the seconds of a cell with one duty.
type part struct {
	duty    string
	seconds int64
}

// stretch adds the meters of a stretch.
func (a *accrual) stretch(s stretch) {
	if s.gap != "" {
		for _, m := range s.meters() {
			most, bounded := m.bound()
			a.add(s, s.from, s.to, m, s.gap, most, bounded)
		}
		return
	}
	for _, m := range s.current.Meters {
		changed := s.to
		later, ok := s.next.meter(m.Name)
		if ok && later.rate() != m.rate() && later.AsOf.After(m.AsOf) && later.AsOf.After(s.from) &&
			later.AsOf.Before(s.to) {
			changed = later.AsOf
		}
		if grew := s.from.Add(MaxGap); ok && changed.Equal(s.to) && grew.Before(s.to) && m.quantityGrew(&later) &&
			!s.current.Ref.Kind.Traits().SizeChanges {
			most := later
			if later.Monthly < m.Monthly {
				most = m
			}
			a.meter(s, s.from, grew, m, s.current.At)
			a.add(s, grew, s.to, most, PriceUnseen, most.Monthly, true)
			continue
		}
		a.meter(s, s.from, changed, m, s.current.At)
		if changed.Before(s.to) {
			a.meter(s, changed, s.to, later, s.next.At)
		}
		if hour := s.to.Add(-time.Second).Truncate(time.Hour); s.extra > 0 &&
			m.MinimumSeconds > 0 && m.Unpriced == "" &&
			!hour.Before(a.from) && hour.Before(a.to) {
			a.cell(s, hour, m, "").add(duty.Idle.String(), s.extra)
		}
	}
}

// meter adds one meter at one rate over [from, to). A rate that moves is valid only near the time
// at which it was observed.
func (a *accrual) meter(s stretch, from, to time.Time, m Meter, seen time.Time) {
	if m.Unpriced != "" {
		a.add(s, from, to, m, Unpriced, 0, false)
		return
	}
	if !m.Moves {
		a.add(s, from, to, m, "", 0, true)
		return
	}
	first, last := latest(from, seen.Add(-MaxGap)), earliest(to, seen.Add(MaxGap))
	if !first.Before(last) {
		first, last = to, to
	}
	most, bounded := m.bound()
	a.add(s, from, first, m, PriceUnseen, most, bounded)
	a.add(s, first, last, m, "", 0, true)
	a.add(s, last, to, m, PriceUnseen, most, bounded)
}

// add adds [from, to) hour by hour, divided by duty.
func (a *accrual) add(s stretch, from, to time.Time, m Meter, gap Gap, most money.Amount, bounded bool) {
	from, to = latest(from, a.from), earliest(to, a.to)
	for from.Before(to) {
		hour := from.Truncate(time.Hour)
		end := earliest(to, hour.Add(time.Hour))
		if from.Equal(hour) && s.extra == 0 {
			if state, until := s.state(m, gap, from, to); until.Sub(from) >= 2*time.Hour {
				hours := int(until.Sub(from) / time.Hour)
				c := cell{
					cellKey: cellKey{hour, s.line(m, gap)}, most: max(most, 0), bounded: bounded,
					parts: []part{{state, int64(time.Hour / time.Second)}},
				}
				a.runs = append(a.runs, run{c, hours})
				from = from.Add(time.Duration(hours) * time.Hour)
				continue
			}
		}
		c := a.cell(s, hour, m, gap)
		if most > c.most {
			c.most = most
		}
		c.bounded = c.bounded && bounded
		for from.Before(end) {
			state, until := s.state(m, gap, from, end)
			c.add(state, seconds(from, until))
			from = until
		}
	}
}

// state returns a meter's duty at a time, and until when it lasts at least, at most until a limit.
func (s *stretch) state(m Meter, gap Gap, at, limit time.Time) (string, time.Time) {
	spans, rest := s.duty, duty.Unknown.String()
	switch {
	case m.Category != Compute && gap != Unobserved && gap != Gone:
		spans, rest = s.unused, ""
	case m.Category != Compute:
		return "", limit
	case m.Name == unusedMeter:
		return Unused, limit
	case gap == Unobserved || gap == Gone:
		return rest, limit
	}
	i, _ := slices.BinarySearchFunc(spans, at, func(x Span, at time.Time) int {
		if !x.To.After(at) {
			return -1
		}
		return 1
	})
	switch {
	case i == len(spans):
		return rest, limit
	case at.Before(spans[i].From):
		return rest, earliest(limit, spans[i].From)
	}
	return spans[i].State.String(), earliest(limit, spans[i].To)
}

// line returns the line of a meter's entries in a stretch, without the duty.
func (s *stretch) line(m Meter, gap Gap) Line {
	of := s.attributesOf()
	l := Line{
		Ref: of.Ref, Attributes: of.Attributes,
		Meter: m.Name, Category: m.Category, ChargeCategory: Usage, Pricing: Standard,
		Monthly: m.Monthly, Source: m.Source, AsOf: m.AsOf, Gap: gap,
	}
	switch {
	case m.Category == Committed:
		l.ChargeCategory, l.Pricing = Purchase, Commitment
	case m.Moves:
		l.Pricing = Dynamic
	}
	if m.Unpriced != "" {
		l.Monthly, l.Why = 0, m.Unpriced
	}
	return l
}

// cell returns the cell of an hour, meter and rate.
func (a *accrual) cell(s stretch, hour time.Time, m Meter, gap Gap) *cell {
	key := cellKey{hour, s.line(m, gap)}
	if n := len(a.cells); n > 0 && a.cells[n-1].cellKey == key {
		return &a.cells[n-1]
	}
	i, ok := a.at[key]
	if a.at == nil {
		i = slices.IndexFunc(a.cells, func(c cell) bool { return c.hour == key.hour && c.line == key.line })
		ok = i >= 0
	}
	if ok {
		return &a.cells[i]
	}
	i = len(a.cells)
	if i < cap(a.cells) {
		a.cells = a.cells[:i+1]
	} else {
		a.cells = append(a.cells, cell{})
	}
	a.cells[i] = cell{cellKey: key, bounded: true, parts: a.cells[i].parts[:0]}
	if a.at == nil && i == linearSearchMax {
		a.at = make(map[cellKey]int, 2*linearSearchMax)
		for j := range i {
			a.at[a.cells[j].cellKey] = j
		}
	}
	if a.at != nil {
		a.at[key] = i
	}
	return &a.cells[i]
}

func (c *cell) add(state string, n int64) {
	for i := range c.parts {
		if c.parts[i].duty == state {
			c.parts[i].seconds += n
			return
		}
	}
	c.parts = append(c.parts, part{state, n})
}

// entries prices the cells and appends them to others, by hour and line.
func (a *accrual) entries(others []Entry) ([]Entry, error) {
	out := slices.Grow(others, len(a.cells))
	err := a.priced(func(e Entry, hours int) error {
		for range hours {
			out = append(out, e)
			e.Hour = e.Hour.Add(time.Hour)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sortEntries(out[len(others):])
	return out, nil
}

// priced yields the entry of each cell with the number of consecutive hours for which it is equal.
func (a *accrual) priced(yield func(e Entry, hours int) error) error {
	for i := range a.cells {
		if err := a.cells[i].priced(1, yield); err != nil {
			return err
		}
	}
	for i := range a.runs {
		if err := a.runs[i].priced(a.runs[i].hours, yield); err != nil {
			return err
		}
	}
	return nil
}

func (c *cell) priced(hours int, yield func(e Entry, hours int) error) error {
	slices.SortFunc(c.parts, func(x, y part) int { return cmp.Compare(x.duty, y.duty) })
	amounts, err := c.amounts()
	if err != nil {
		return fmt.Errorf("charge %s of %s: %w", c.line.Meter, c.line.Ref, err)
	}
	for i, p := range c.parts {
		e := Entry{Kind: Accrual, Hour: c.hour, Line: c.line, Sums: Sums{Seconds: p.seconds, Amount: amounts[i]}}
		e.Duty = p.duty
		if c.line.Gap != "" {
			e.Amount, e.AtMost = 0, amounts[i]
			if !c.bounded {
				e.AtMost, e.Unbounded = 0, p.seconds
			}
		}
		if err := yield(e, hours); err != nil {
			return err
		}
	}
	return nil
}

// amounts returns the cost of each part of a cell. Only the total is rounded.
func (c *cell) amounts() ([]money.Amount, error) {
	var whole int64
	weights := make([]int64, len(c.parts))
	for i, p := range c.parts {
		whole += p.seconds
		weights[i] = p.seconds
	}
	rate := c.line.Monthly
	if c.line.Gap != "" {
		rate = c.most
	}
	total, err := rate.Mul(whole, monthSeconds)
	if err != nil || len(weights) == 1 {
		return []money.Amount{total}, err
	}
	return money.Split(total, weights)
}

// sortEntries sorts the entries of one resource by hour and line.
func sortEntries(e []Entry) {
	slices.SortFunc(e, func(x, y Entry) int {
		if before := x.Hour.Compare(y.Hour); before != 0 {
			return before
		}
		return compareLines(&x.Line, &y.Line)
	})
}

// compareLines compares lines of one resource, starting with the fields that usually differ.
func compareLines(x, y *Line) int {
	if different := cmp.Or(cmp.Compare(x.Meter, y.Meter), cmp.Compare(x.Gap, y.Gap),
		cmp.Compare(x.Duty, y.Duty)); different != 0 || *x == *y {
		return different
	}
	return cmp.Or(inventory.CompareRefs(x.Ref, y.Ref), cmp.Compare(x.Monthly, y.Monthly), x.AsOf.Compare(y.AsOf),
		cmp.Compare(x.Source, y.Source), cmp.Compare(x.Hold, y.Hold),
		cmp.Compare(x.Name, y.Name), cmp.Compare(x.Type, y.Type), cmp.Compare(x.Owner.Team, y.Owner.Team),
		cmp.Compare(x.Owner.Project, y.Owner.Project),
		cmp.Compare(x.Owner.User, y.Owner.User), cmp.Compare(x.Owner.Environment, y.Owner.Environment),
		cmp.Compare(x.Owner.CostCenter, y.Owner.CostCenter),
		cmp.Compare(x.Purpose, y.Purpose), cmp.Compare(x.Lifetime, y.Lifetime), cmp.Compare(x.Market, y.Market),
		cmp.Compare(x.Pricing, y.Pricing), cmp.Compare(x.Why, y.Why),
		cmp.Compare(x.Category, y.Category), cmp.Compare(x.ChargeCategory, y.ChargeCategory),
		cmp.Compare(x.Service, y.Service))
}

// unusedMeter is the meter of a reservation's free capacity.
const unusedMeter = "unused"

// rate identifies the price of a meter.
type rate struct {
	monthly  money.Amount
	unpriced string
}

func (m *Meter) rate() rate {
	if m.Unpriced != "" {
		return rate{unpriced: m.Unpriced}
	}
	return rate{monthly: m.Monthly}
}

// quantityGrew reports whether a meter's rate changed because its quantity grew, at an unknown time,
// rather than because prices changed.
func (m *Meter) quantityGrew(later *Meter) bool {
	return m.Unpriced == "" && later.Unpriced == "" && !m.Moves && m.Monthly != later.Monthly &&
		m.AsOf.Equal(later.AsOf)
}

// bound returns the maximum monthly cost of the meter, and whether it is known.
func (m *Meter) bound() (money.Amount, bool) {
	switch {
	case m.Unpriced != "":
		return 0, false
	case m.Moves:
		return m.AtMost, m.AtMost > 0
	}
	return m.Monthly, true
}

// meter returns the meter with a name; a nil observation has none.
func (o *Observation) meter(name string) (Meter, bool) {
	if o != nil {
		for _, m := range o.Meters {
			if m.Name == name {
				return m, true
			}
		}
	}
	return Meter{}, false
}

func seconds(from, to time.Time) int64 { return int64(to.Sub(from) / time.Second) }

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
