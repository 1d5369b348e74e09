package backtest

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/curfew-dev/curfew/internal/usage"
)

// series holds the samples of one GPU of a resource, or of the resource as a whole: rows in the
// order in which they became known, then of their times. Equal rows one step apart take a byte or
// two together, a row whose utilization alone changed two or three, any other row its differences.
// Every block can be read on its own.
//
// Times and spans are microseconds; values keep every bit.
type series struct {
	gpu    string
	blocks []block
	// slots are the signals in the order in which they came. Sets of them are bits.
	slots []usage.Signal
	// order are the slots in the order of their signals.
	order []uint8
	// counts are the slots that count: not the signals of the machine that another
	// GPU's rows carry. Of these, compute and hostWork mean work, counters are counters.
	counts, compute, hostWork, counters uint32
	// unsorted says that rows are not in order yet, or that there are two of one time.
	unsorted bool
	// late says that a row became known after one of a later time, lags that one became
	// known after its own time.
	late, lags bool
	// inTime holds the same rows by their times, each once, where they are late.
	inTime *series
	// ever are the slots that have a value, first is when the first of each became known,
	// began its time.
	ever         uint32
	first, began []int64

	last state
	// unsupported is how many rows tell that utilization cannot be measured, the first and the
	// last of them at from and to.
	unsupported int64
	from, to    int64
	// repeats is how many rows equal to the last one that was written follow it.
	repeats uint64
}

// block is a part of a series.
type block struct {
	known int64 // when its first row became known
	data  []byte
}

// Bounds of a block in bytes. In between it is a quarter of all before it.
const (
	minBlock = 96
	maxBlock = 4096
)

// state is a row as far as the next one is written as a difference from it.
type state struct {
	at, lag int64
	has     uint32 // slots
	desc    uint32
	values  []float64 // by slot
}

func (s *state) reset() {
	s.at, s.lag, s.has, s.desc = 0, 0, 0, 0
	clear(s.values)
}

// Kinds of tokens: the low bits of the first number.
const (
	plainToken  = 1 // a row one step later of which only the first slot differs
	repeatToken = 2 // so many rows equal to the last one, each a step later
	tokenBits   = 2 // of a repeat, and of a row of any other kind
)

// Bits of such a row, above its kind; the slots that differ follow them.
const (
	offsetFlag = 1 << iota // not one step later
	lagFlag
	slotsFlag // other slots than before
	descFlag
	flagBits = iota
)

// appendZigzag writes a signed number.
func appendZigzag(b []byte, v int64) []byte { return binary.AppendUvarint(b, uint64(v<<1^v>>63)) }

func zigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// scales are the fractions in which values are written, most values being round ones.
// The code for a value that is none of them is followed by its bits.
var scales = [...]float64{1, 1e3, 1e6}

const rawValue = uint64(len(scales))

// codeOf returns the difference of two values as a number, and whether there is one.
func codeOf(v, before float64) (code uint64, ok bool) {
	for i, scale := range scales {
		n := math.Round(v * scale)
		if n/scale != v || !(math.Abs(n) < 1<<52) || n == 0 && math.Signbit(v) {
			continue
		}
		d := int64(n) - base(before, scale)
		return uint64(d<<1^d>>63)<<2 | uint64(i), true
	}
	return rawValue, false
}

// base returns the value that a difference is relative to.
func base(before, scale float64) int64 {
	if n := math.Round(before * scale); math.Abs(n) < 1<<52 {
		return int64(n)
	}
	return 0
}

func valueOf(code uint64, before float64) float64 {
	scale := scales[code&3]
	return float64(zigzag(code>>2)+base(before, scale)) / scale
}

// slot returns the place of a signal, and makes one for a new signal.
func (s *series) slot(sig usage.Signal) int {
	i := slices.Index(s.slots, sig)
	if i < 0 {
		i = len(s.slots)
		s.slots = append(s.slots, sig)
		s.last.values, s.first, s.began = append(s.last.values, 0), append(s.first, 0), append(s.began, 0)
	}
	return i
}

// add takes a row of a file. Rows may come in any order until [series.finish].
func (s *series) add(at, lag, step int64, desc uint32, row *usage.Sample) {
	if row.Unsupported(usage.GPUUtil) {
		if s.unsupported++; s.unsupported == 1 || at < s.from {
			s.from = at
		}
		s.to = max(s.to, at)
	}
	var has uint32
	var values [32]float64
	for left := row.Signals(); left != 0; left &= left - 1 {
		sig := usage.Signal(bits.TrailingZeros32(left))
		i := s.slot(sig)
		has |= 1 << i
		values[i], _ = row.Get(sig)
	}
	s.put(at, lag, step, has, desc, values[:len(s.slots)])
}

// put takes a row by its slots.
func (s *series) put(at, lag, step int64, has, desc uint32, values []float64) {
	if len(s.blocks) > 0 && has == s.last.has && at == s.last.at+step && lag == s.last.lag && desc == s.last.desc {
		same := true
		for left := has; left != 0 && same; left &= left - 1 {
			i := bits.TrailingZeros32(left)
			same = math.Float64bits(values[i]) == math.Float64bits(s.last.values[i])
		}
		if same {
			s.again(at)
			return
		}
	}
	s.write(at, lag, step, has, desc, values)
}

// again counts a row that is equal to the last one and one step later.
func (s *series) again(at int64) {
	s.repeats++
	s.last.at = at
}

func (s *series) write(at, lag, step int64, has, desc uint32, values []float64) {
	s.seal()
	l := &s.last
	n := len(s.blocks) - 1
	if n >= 0 && !before(l.at+l.lag, l.at, at+lag, at) {
		s.unsorted = true
	}
	s.lags = s.lags || lag != 0
	for left := has &^ s.ever; left != 0; left &= left - 1 {
		i := bits.TrailingZeros32(left)
		s.first[i], s.began[i] = at+lag, at
	}
	s.ever |= has
	var scratch [16 * 32]byte
	var token []byte
	if n >= 0 {
		token = s.token(scratch[:0], at, lag, step, has, desc, values, false)
	}
	if n < 0 || len(s.blocks[n].data)+len(token)+binary.MaxVarintLen64 > cap(s.blocks[n].data) {
		// A block tells the newest value of every slot.
		var all [32]float64
		copy(all[:], l.values)
		for left := has; left != 0; left &= left - 1 {
			i := bits.TrailingZeros32(left)
			all[i] = values[i]
		}
		values = all[:len(l.values)]
		l.reset()
		token = s.token(scratch[:0], at, lag, step, has, desc, values, true)
		size := 0
		for _, b := range s.blocks {
			size += len(b.data)
		}
		size = max(min(size/4, maxBlock), minBlock, len(token)+binary.MaxVarintLen64)
		s.blocks = append(s.blocks, block{at + lag, slices.Grow([]byte(nil), size)})
		n++
		copy(l.values, values)
	}
	for left := has; left != 0; left &= left - 1 {
		i := bits.TrailingZeros32(left)
		l.values[i] = values[i]
	}
	s.blocks[n].data = append(s.blocks[n].data, token...)
	l.at, l.lag, l.has, l.desc = at, lag, has, desc
}

// before reports whether a row known at a, of time ta, precedes one known at b, of time tb.
func before(a, ta, b, tb int64) bool { return a < b || a == b && ta < tb }

// token writes a row as it differs from the last one. All says to write every value.
func (s *series) token(b []byte, at, lag, step int64, has, desc uint32, values []float64, all bool) []byte {
	l := &s.last
	var differ uint32
	for i, v := range values {
		if (all || has&(1<<i) != 0) && math.Float64bits(v) != math.Float64bits(l.values[i]) {
			differ |= 1 << i
		}
	}
	var flags uint64
	offset := at - l.at - step
	if offset != 0 || all {
		flags |= offsetFlag
	}
	if lag != l.lag {
		flags |= lagFlag
	}
	if has != l.has {
		flags |= slotsFlag
	}
	if desc != l.desc {
		flags |= descFlag
	}
	if flags == 0 && differ == 1 {
		code, ok := codeOf(values[0], l.values[0])
		b = binary.AppendUvarint(b, code<<1|plainToken)
		if !ok {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(values[0]))
		}
		return b
	}
	b = binary.AppendUvarint(b, (uint64(differ)<<flagBits|flags)<<tokenBits)
	if flags&offsetFlag != 0 {
		b = appendOffset(b, offset)
	}
	if flags&lagFlag != 0 {
		b = appendZigzag(b, lag-l.lag)
	}
	if flags&slotsFlag != 0 {
		b = binary.AppendUvarint(b, uint64(has))
	}
	if flags&descFlag != 0 {
		b = binary.AppendUvarint(b, uint64(desc))
	}
	for left := differ; left != 0; left &= left - 1 {
		i := bits.TrailingZeros32(left)
		code, ok := codeOf(values[i], l.values[i])
		b = binary.AppendUvarint(b, code)
		if !ok {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(values[i]))
		}
	}
	return b
}

// seal writes how often the last row repeats, for which room was left.
func (s *series) seal() {
	if s.repeats == 0 {
		return
	}
	b := &s.blocks[len(s.blocks)-1]
	b.data = binary.AppendUvarint(b.data, s.repeats<<tokenBits|repeatToken)
	s.repeats = 0
}

// player reads a series in order, as runs of equal rows one step apart. Its state is
// that of the run's first row.
type player struct {
	state
	count int64
	// known are the slots that had a value so far.
	seen  uint32
	s     *series
	block int // the next one
	rest  []byte
	step  int64
}

func (s *series) player(step int64) player {
	return player{s: s, step: step, state: state{values: make([]float64, len(s.slots))}}
}

// clone returns a player that goes on by itself.
func (p *player) clone() player {
	c := *p
	c.values = slices.Clone(p.values)
	return c
}

// seek moves to before the last block that may hold the first row known at a time or
// later.
func (p *player) seek(known int64) {
	i, _ := slices.BinarySearchFunc(p.s.blocks, known, func(b block, t int64) int { return cmp.Compare(b.known, t) })
	p.block, p.rest, p.count, p.seen = max(i-1, 0), nil, 0, 0
}

// advance moves to the next run and says whether there is one.
func (p *player) advance() bool {
	p.at += p.count * p.step
	if len(p.rest) == 0 {
		if p.block == len(p.s.blocks) {
			p.at -= p.count * p.step
			return false
		}
		p.rest = p.s.blocks[p.block].data
		p.block++
		p.reset()
		p.at = p.step
	}
	u := p.number()
	p.count = 1
	if u&plainToken != 0 {
		p.value(0, u>>1)
	} else {
		flags := u >> tokenBits
		if flags&offsetFlag != 0 {
			offset, n := readOffset(p.rest)
			p.rest = p.rest[n:]
			p.at += offset
		}
		if flags&lagFlag != 0 {
			p.lag += zigzag(p.number())
		}
		if flags&slotsFlag != 0 {
			p.has = uint32(p.number())
		}
		if flags&descFlag != 0 {
			p.desc = uint32(p.number())
		}
		for differ := flags >> flagBits; differ != 0; differ &= differ - 1 {
			p.value(bits.TrailingZeros64(differ), p.number())
		}
	}
	if len(p.rest) > 0 && p.rest[0]&(1<<tokenBits-1) == repeatToken {
		p.count += int64(p.number() >> tokenBits)
	}
	p.seen |= p.has
	return true
}

func (p *player) number() uint64 {
	if b := p.rest[0]; b < 1<<7 {
		p.rest = p.rest[1:]
		return uint64(b)
	}
	u, n := binary.Uvarint(p.rest)
	p.rest = p.rest[n:]
	return u
}

func (p *player) value(slot int, code uint64) {
	if code == rawValue {
		p.values[slot] = math.Float64frombits(binary.LittleEndian.Uint64(p.rest))
		p.rest = p.rest[8:]
		return
	}
	p.values[slot] = valueOf(code, p.values[slot])
}

// loose is a row out of its series.
type loose struct {
	at, lag   int64
	has, desc uint32
	values    []float64
}

// loosen returns all rows.
func (s *series) loosen(step int64) []loose {
	var out []loose
	var arena []float64
	for p := s.player(step); p.advance(); {
		if len(arena) < len(p.values) {
			arena = make([]float64, 512*max(len(p.values), 1))
		}
		values := arena[:len(p.values):len(p.values)]
		arena = arena[len(p.values):]
		copy(values, p.values)
		for i := range p.count {
			out = append(out, loose{p.at + i*step, p.lag, p.has, p.desc, values})
		}
	}
	return out
}

// finish puts the rows in order after the last one was added. Of rows known at one
// time and of one time the larger values count; join makes one of two descriptions.
func (s *series) finish(step int64, join func(a, b uint32) uint32) {
	s.seal()
	if s.unsorted {
		s.arrange(step, join, s.loosen(step))
	}
	s.last = state{}
	if last := len(s.blocks) - 1; last >= 0 { // the newest has room for more
		s.blocks[last].data = slices.Clone(s.blocks[last].data)
		s.blocks = slices.Clone(s.blocks)
	}
	if !s.lags {
		return
	}
	newest := int64(math.MinInt64)
	for p := s.player(step); p.advance(); {
		s.late = s.late || p.at <= newest
		newest = max(newest, p.at+(p.count-1)*step)
	}
	if s.late {
		rows := s.loosen(step)
		for i := range rows {
			rows[i].lag = 0
		}
		c := *s
		c.arrange(step, join, rows)
		s.inTime = &c
	}
}

// byTime returns the series in the order of its times.
func (s *series) byTime() *series {
	if s.inTime != nil {
		return s.inTime
	}
	return s
}

// empty returns a series with the same slots and no rows.
func (s *series) empty() *series {
	n := len(s.slots)
	return &series{
		gpu: s.gpu, slots: s.slots, last: state{values: make([]float64, n)}, first: make([]int64, n),
		began: make([]int64, n),
	}
}

// arrange writes the rows again, in the order in which they became known and then of
// their times. Rows alike in both become one.
func (s *series) arrange(step int64, join func(a, b uint32) uint32, rows []loose) {
	slices.SortStableFunc(rows, func(a, b loose) int {
		return cmp.Or(cmp.Compare(a.at+a.lag, b.at+b.lag), cmp.Compare(a.at, b.at))
	})
	*s = *s.empty()
	for len(rows) > 0 {
		row := rows[0]
		for rows = rows[1:]; len(rows) > 0 && rows[0].at == row.at && rows[0].lag == row.lag; rows = rows[1:] {
			row = row.with(rows[0], join)
		}
		s.put(row.at, row.lag, step, row.has, row.desc, row.values)
	}
	s.seal()
	s.last = state{}
}

// with merges a row with another one of the same time.
func (r loose) with(o loose, join func(a, b uint32) uint32) loose {
	r.values = slices.Clone(r.values)
	for left := o.has; left != 0; left &= left - 1 {
		i := bits.TrailingZeros32(left)
		if r.has&(1<<i) == 0 || o.values[i] > r.values[i] {
			r.values[i] = o.values[i]
		}
	}
	r.has |= o.has
	r.desc = join(r.desc, o.desc)
	return r
}

// signals are all that a row can hold.
var signals = func() (all []usage.Signal) {
	for s := usage.Signal(0); ; s++ {
		if named, ok := usage.SignalNamed(s.String()); !ok || named != s {
			return all
		}
		all = append(all, s)
	}
}()
