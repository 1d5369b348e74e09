package bill

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Bill is a bill that was read whole: its periods with their rows.
type Bill struct {
	// Source is where it is from.
	Source string
	// Periods are ordered by start and account.
	Periods []*Settled
	// Starts are the periods of which the bill says that it holds all there is: those of
	// Periods, and those of which an export has a manifest and no lines.
	Starts []time.Time
	// Lines of the bill.
	Lines int64
	// Schema is the schema of the file: "FOCUS 1.0", "CUR 2.0".
	Schema string
	// Missing columns, by their FOCUS names.
	Missing []string
	// Notes name skipped and assumed parts, a sentence each.
	Notes []string
}

// Settled is a period with its rows, rounded so that they add up to its total.
type Settled struct {
	Period
	// Sums are the four costs exactly, the same as Exact.
	Sums  Sums
	texts []string
	rows  []settledRow
}

// Sums is four costs, exactly.
type Sums struct {
	Billed, Effective, List, Contracted Decimal
}

// Add returns s + o.
func (s Sums) Add(o Sums) Sums {
	return Sums{
		s.Billed.Add(o.Billed), s.Effective.Add(o.Effective), s.List.Add(o.List), s.Contracted.Add(o.Contracted),
	}
}

type settledRow struct {
	key          rowKey
	cost         Cost
	bytes, lines int64
}

// Settle ends the aggregate: sums become rows and nano-dollars. A period's total is its
// exact sum rounded half to even, and its rows are within a nano-dollar of their exact
// costs and add up to that total (largest remainder). Starts may name periods that hold
// nothing. Periods that overlap are a *CountedTwice. a is of no use afterwards.
func (a *Aggregate) Settle(starts ...time.Time) (*Bill, error) {
	b := &Bill{Source: a.options.Source, Lines: a.lines, Starts: slices.Clone(starts)}
	rank := a.rank()
	byPeriod := make([][]rowKey, len(a.byID))
	for k := range a.rows {
		byPeriod[k.period] = append(byPeriod[k.period], k)
	}
	for id, p := range a.byID {
		keys := byPeriod[id]
		byPeriod[id] = nil
		slices.SortFunc(keys, func(x, y rowKey) int { return compareKeys(&x, &y, rank) })
		s, err := a.settle(p, keys)
		if err != nil {
			return nil, fmt.Errorf("add up the billing period of %s: %w", p.key.Start.Format(time.DateOnly), err)
		}
		b.Periods = append(b.Periods, s)
		b.Starts = append(b.Starts, p.key.Start)
	}
	slices.SortFunc(b.Periods, func(x, y *Settled) int {
		return cmp.Or(x.Start.Compare(y.Start), cmp.Compare(x.Account, y.Account))
	})
	if err := overlap(b.Periods); err != nil {
		return nil, err
	}
	slices.SortFunc(b.Starts, time.Time.Compare)
	b.Starts = slices.CompactFunc(b.Starts, time.Time.Equal)
	b.Notes = a.notes(b)
	*a = Aggregate{}
	return b, nil
}

// rank returns the place of every symbol in the order of texts.
func (a *Aggregate) rank() []int32 {
	order := make([]symbol, len(a.texts))
	for i := range order {
		order[i] = symbol(i)
	}
	slices.SortFunc(order, func(x, y symbol) int { return strings.Compare(a.texts[x], a.texts[y]) })
	rank := make([]int32, len(order))
	for i, s := range order {
		rank[s] = int32(i)
	}
	return rank
}

func compareKeys(x, y *rowKey, rank []int32) int {
	if x.day != y.day {
		return cmp.Compare(x.day, y.day)
	}
	xs, ys := x.symbols(), y.symbols()
	for i := range xs {
		if *xs[i] != *ys[i] {
			return cmp.Compare(rank[*xs[i]], rank[*ys[i]])
		}
	}
	return cmp.Compare(x.unknown, y.unknown)
}

func (a *Aggregate) settle(p *period, keys []rowKey) (*Settled, error) {
	s := &Settled{texts: a.texts, rows: make([]settledRow, len(keys))}
	s.PeriodKey, s.End, s.Source = p.key, p.end, a.options.Source
	s.Lines, s.Period.Rows = p.lines, int64(len(keys))
	s.NoEffective, s.NoList, s.NoContracted = p.lacking[0], p.lacking[1], p.lacking[2]
	numbers := make([]int32, len(keys)) // of the keys' rows
	digest := sha256.New()
	var line bytes.Buffer
	for i, k := range keys {
		row := a.rows[k]
		numbers[i] = row
		bytes, err := a.table.sum(row, gigabyteSum).times(gigabyte)
		if err != nil {
			return nil, fmt.Errorf("bytes of %s: %w", a.texts[k.resource], err)
		}
		s.rows[i] = settledRow{key: k, lines: a.table.row(row).lines, bytes: bytes}
		line.Reset()
		own := k.symbols()
		for _, f := range own[:len(own)-2] {
			writeText(&line, a.texts[*f])
		}
		if k.capacity != 0 || k.machine != 0 { // else the digest is that of earlier versions
			line.WriteByte(0xff) // no text of a cost is so long
			writeText(&line, a.texts[k.capacity])
			writeText(&line, a.texts[k.machine])
		}
		for which := billedSum; which <= contractedSum; which++ {
			writeText(&line, a.table.sum(row, which).String())
		}
		fmt.Fprintf(&line, "%d %d %d %d\n", k.day, k.unknown, s.rows[i].lines, bytes)
		digest.Write(line.Bytes())
	}
	parts := make([]Decimal, len(keys))
	for _, c := range [...]struct {
		which int
		to    func(*Cost) *money.Amount
		none  Costs
		exact *Decimal
		text  *string
	}{
		{billedSum, func(c *Cost) *money.Amount { return &c.Billed }, 0, &s.Sums.Billed, &s.Exact.Billed},
		{effectiveSum, func(c *Cost) *money.Amount {
			return &c.Effective
		}, EffectiveCost, &s.Sums.Effective, &s.Exact.Effective},
		{listSum, func(c *Cost) *money.Amount { return &c.List }, ListCost, &s.Sums.List, &s.Exact.List},
		{contractedSum, func(c *Cost) *money.Amount {
			return &c.Contracted
		}, ContractedCost, &s.Sums.Contracted, &s.Exact.Contracted},
	} {
		for i, k := range keys {
			parts[i] = Decimal{}
			if c.none == 0 || !k.unknown.Has(c.none) {
				parts[i] = a.table.sum(numbers[i], c.which)
			}
			*c.exact = c.exact.Add(parts[i])
		}
		amounts, total, err := round(parts)
		if err != nil {
			return nil, err
		}
		for i, amount := range amounts {
			*c.to(&s.rows[i].cost) = amount
		}
		*c.to(&s.Total) = total
		*c.text = c.exact.String()
	}
	fmt.Fprintf(digest, "%s %s %d %d\n", s.Start.UTC().Format(time.RFC3339), s.End.UTC().Format(time.RFC3339), s.Lines,
		len(keys))
	s.Digest = hex.EncodeToString(digest.Sum(nil))
	return s, nil
}

// writeText writes a text so that no two lists of texts are written alike.
func writeText(b *bytes.Buffer, s string) {
	b.Write(binary.AppendUvarint(b.AvailableBuffer(), uint64(len(s))))
	b.WriteString(s)
}

var gigabyte = big.NewInt(1_000_000_000)

// times returns d × n rounded half to even to a whole number.
func (d Decimal) times(n *big.Int) (int64, error) {
	if d.Sign() == 0 {
		return 0, nil
	}
	v := new(big.Int).Mul(d.big(), n)
	q, r := new(big.Int).DivMod(v, bigPower[maxScale], new(big.Int))
	if c := r.Lsh(r, 1).Cmp(bigPower[maxScale]); c > 0 || (c == 0 && q.Bit(0) == 1) {
		q.Add(q, big.NewInt(1))
	}
	if !q.IsInt64() {
		return 0, money.ErrOverflow
	}
	return q.Int64(), nil
}

// round returns the parts in nano-dollars and their exact sum rounded half to even,
// which they add up to: each part rounded down, and what is left over given, a
// nano-dollar each, to the largest remainders. Ties go to the earlier part.
func round(parts []Decimal) ([]money.Amount, money.Amount, error) {
	amounts := make([]money.Amount, len(parts))
	remainders := make([]Decimal, len(parts))
	var order []int
	var exact Decimal
	var floors money.Amount
	for i, d := range parts {
		var err error
		if amounts[i], remainders[i], err = d.floor(); err != nil {
			return nil, 0, err
		}
		if remainders[i].Sign() > 0 {
			order = append(order, i)
		}
		if floors, err = floors.Add(amounts[i]); err != nil {
			return nil, 0, err
		}
		exact = exact.Add(d)
	}
	total, err := exact.Amount()
	if err != nil {
		return nil, 0, err
	}
	slices.SortFunc(order, func(x, y int) int { return cmp.Or(remainders[y].Cmp(remainders[x]), cmp.Compare(x, y)) })
	for _, i := range order[:total-floors] {
		amounts[i]++
	}
	return amounts, total, nil
}

// Rows yields the period's rows by day, resource and their other keys.
func (s *Settled) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for i := range s.rows {
			if !yield(s.row(&s.rows[i])) {
				return
			}
		}
	}
}

func (s *Settled) row(r *settledRow) Row {
	k := &r.key
	return Row{
		Account: s.Account, Start: s.Start, Day: time.Unix(int64(k.day)*86400, 0).UTC(), Provider: s.texts[k.provider],
		SubAccount: s.texts[k.subAccount], Resource: s.texts[k.resource], Service: s.texts[k.service],
		Region:   s.texts[k.region],
		Category: Category(s.texts[k.category]), Transfer: Transfer(s.texts[k.transfer]), ToRegion: s.texts[k.to],
		ChargeCategory: s.texts[k.chargeCategory], PricingCategory: s.texts[k.pricing],
		Commitment:     s.texts[k.commitment],
		Status:         s.texts[k.status],
		CapacityStatus: s.texts[k.capacity], Type: s.texts[k.machine],
		Owner: splitOwner(s.texts[k.owner]), Purpose: inventory.Purpose(s.texts[k.purpose]), Unknown: k.unknown,
		Cost: r.cost, Bytes: r.bytes, Lines: r.lines}
}

// notes returns the remarks of the aggregation.
func (a *Aggregate) notes(b *Bill) []string {
	var notes []string
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if a.noCurrency > 0 {
		note("%s without BillingCurrency: their costs are taken to be US dollars", plain.Count(a.noCurrency, "row"))
	}
	if a.badTags > 0 {
		note("%s with Tags that are no JSON object: no owner is read from them", plain.Count(a.badTags, "row"))
	}
	if a.late > 0 {
		note(
			"%s of usage from before the billing period that bills them: they count in that period, on the days of their "+
				"usage", plain.Count(a.late, "row"))
	}
	if a.early > 0 {
		note(
			"%s of usage from after the billing period that bills them: they count in that period, on the days of their "+
				"usage", plain.Count(a.early, "row"))
	}
	if p := a.purchases; p.lines > 0 && a.options.ZeroPurchases {
		note("the effective cost of purchases of commitments in %s, %s USD, was set to 0, as FOCUS defines it",
			plain.Count(p.lines, "row"), p.effective)
	} else if p.lines > 0 {
		note(
			"purchases of commitments have an effective cost in %s, %s USD, which FOCUS defines as 0: it counts twice "+
				"with that of their use; "+
				"`bill import --zero-purchases` corrects it", plain.Count(p.lines, "row"), p.effective)
	}
	var lacking [3]int64
	for _, p := range b.Periods {
		for i, n := range [...]int64{p.NoEffective, p.NoList, p.NoContracted} {
			lacking[i] += n
		}
	}
	for i, name := range [...]string{"EffectiveCost", "ListCost", "ContractedCost"} {
		if lacking[i] > 0 {
			note("%s is empty in %s, which are in no total of it", name, plain.Count(lacking[i], "row"))
		}
	}
	for _, p := range a.byID {
		if p.uneven {
			note("the billing period of %s has several ends: it is taken to end with the latest, %s",
				p.key.Start.Format(time.DateOnly), p.end.Format(time.DateOnly))
		}
		if p.withheld.Sign() != 0 {
			note(
				"usage under savings plans and its negation differ by %s USD in the period of %s, which is in no total",
				p.withheld, p.key.Start.Format(time.DateOnly))
		}
	}
	slices.Sort(notes)
	return notes
}

// Rows yields the rows of all periods.
func (b *Bill) Rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for _, p := range b.Periods {
			for r := range p.Rows() {
				if !yield(r) {
					return
				}
			}
		}
	}
}
