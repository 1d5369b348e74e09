package bill

import (
	"math/bits"
	"unsafe"
)

// table holds the sums of rows by their numbers, without pointers: there are millions.
type table struct {
	chunks []*[chunk]sums
	rows   int32
	// rests are the parts of a row's sums that do not fit them.
	rests map[int32]*[sumCount]Decimal
}

const chunk = 1 << 12

// sums are the sums of a row, in units of 10^-27 in 128 bits.
type sums struct {
	parts [sumCount]struct {
		hi int64
		lo uint64
	}
	lines int64
}

// The sums of a row.
const (
	billedSum = iota
	effectiveSum
	listSum
	contractedSum
	gigabyteSum
	sumCount
)

// add makes a row and returns its number.
func (t *table) add() int32 {
	if int(t.rows) == len(t.chunks)*chunk {
		t.chunks = append(t.chunks, new([chunk]sums))
	}
	t.rows++
	return t.rows - 1
}

func (t *table) row(row int32) *sums { return &t.chunks[row/chunk][row%chunk] }

// plus adds d to a sum of a row.
func (t *table) plus(row int32, which int, d Decimal) {
	p := &t.row(row).parts[which]
	if d.rest == nil {
		lo, carry := bits.Add64(p.lo, d.lo, 0)
		hi, _ := bits.Add64(uint64(p.hi), uint64(d.hi), carry)
		if sum := int64(hi); (p.hi < 0) != (d.hi < 0) || (sum < 0) == (p.hi < 0) {
			p.hi, p.lo = sum, lo
			return
		}
	}
	rests := t.rests[row]
	if rests == nil {
		if t.rests == nil {
			t.rests = map[int32]*[sumCount]Decimal{}
		}
		rests = new([sumCount]Decimal)
		t.rests[row] = rests
	}
	rests[which] = rests[which].Add(d)
}

// sum returns a sum of a row.
func (t *table) sum(row int32, which int) Decimal {
	p := t.row(row).parts[which]
	d := Decimal{hi: p.hi, lo: p.lo}
	if rests := t.rests[row]; rests != nil {
		d = d.Add(rests[which])
	}
	return d
}

// merge adds a row of another table to one of t.
func (t *table) merge(to int32, o *table, from int32) {
	for which := range sumCount {
		t.plus(to, which, o.sum(from, which))
	}
	t.row(to).lines += o.row(from).lines
}

// recall remembers a value for some of the texts that came last. It knows a text by
// its address in memory, because most texts of a bill come again as the very same.
type recall[V any] [1 << 10]remembered[V]

type remembered[V any] struct {
	text  string
	value V
}

// slot returns where a text would be remembered.
func (r *recall[V]) slot(s string) *remembered[V] {
	at := uint64(uintptr(unsafe.Pointer(unsafe.StringData(s))))
	return &r[at*0x9E3779B97F4A7C15>>(64-10)]
}

// is reports whether the slot holds the value of s. The text that it holds stays where it is for as
// long, so that another cannot be taken for it.
func (m *remembered[V]) is(s string) bool {
	return len(m.text) == len(s) && len(s) > 0 && unsafe.StringData(m.text) == unsafe.StringData(s)
}
