package billfile

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unsafe"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/usage"
)

// borrowed returns bytes as a text that is valid as long as they do not change: cells are read
// before the next row is, and kept parts are copied.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// valueReader returns the reader of values of a type for a kind of column; nil if there is none.
func valueReader(t parquet.Type, k kind, known *floats) func(*cell, parquet.Value) error {
	logical := usage.LogicalValue(t.LogicalType())
	if t.Kind() == parquet.ByteArray {
		if d, ok := logical.(*format.DecimalType); ok {
			return decimalReader(k, int(d.Scale))
		}
		return func(c *cell, v parquet.Value) error {
			c.setText(borrowed(v.ByteArray()))
			return nil
		}
	}
	switch k {
	case instant:
		return timeReader(t)
	case number:
		if d, ok := logical.(*format.DecimalType); ok {
			return decimalReader(k, int(d.Scale))
		}
		switch t.Kind() {
		case parquet.Int32, parquet.Int64:
			return decimalReader(k, 0)
		case parquet.Double:
			return floatReader(64, known)
		case parquet.Float:
			return floatReader(32, known)
		}
	case text:
		if _, ok := logical.(*format.DecimalType); !ok && (t.Kind() == parquet.Int32 || t.Kind() == parquet.Int64) {
			return func(c *cell, v parquet.Value) error {
				c.setText(strconv.FormatInt(whole(v), 10))
				return nil
			}
		}
	}
	return nil
}

// whole returns the value of an integer column.
func whole(v parquet.Value) int64 {
	if v.Kind() == parquet.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

func decimalReader(k kind, scale int) func(*cell, parquet.Value) error {
	if k != number {
		return nil
	}
	return func(c *cell, v parquet.Value) (err error) {
		c.form = isNumber
		if v.Kind() != parquet.ByteArray && v.Kind() != parquet.FixedLenByteArray {
			c.num, err = bill.NewDecimal64(whole(v), scale)
			return err
		}
		b := v.ByteArray()
		if n, ok := short(b); ok {
			c.num, err = bill.NewDecimal64(n, scale)
			return err
		}
		n := new(big.Int).SetBytes(b)
		if b[0]&0x80 != 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		c.num, err = bill.NewDecimal(n, scale)
		return err
	}
}

// short reads a big-endian two's complement number that fits 64 bits.
func short(b []byte) (int64, bool) {
	if len(b) == 0 {
		return 0, true
	}
	sign := byte(int8(b[0]) >> 7)
	for len(b) > 8 {
		if b[0] != sign || (b[1]^sign)&0x80 != 0 {
			return 0, false
		}
		b = b[1:]
	}
	n := int64(int8(sign))
	for _, x := range b {
		n = n<<8 | int64(x)
	}
	return n, true
}

var errNotFinite = errors.New("it is not a finite number")

// floats caches the decimals of binary numbers: the costs of a row are often the same number, and
// many rows cost the same.
type floats struct {
	of [1 << 11]struct {
		bits   uint64
		known  bool
		number bill.Decimal
	}
}

// decimal returns the shortest decimal that stands for a number of 32 or 64 bits: the decimal that
// was written, if one was stored so.
func (k *floats) decimal(f float64, size int) (bill.Decimal, error) {
	bits := math.Float64bits(f) ^ uint64(size)
	slot := &k.of[bits*0x9E3779B97F4A7C15>>(64-11)]
	if slot.known && slot.bits == bits {
		return slot.number, nil
	}
	var buffer [32]byte
	n, err := bill.ParseDecimal(strconv.AppendFloat(buffer[:0], f, 'e', -1, size))
	if err != nil {
		return n, fmt.Errorf("%v %w", f, err)
	}
	slot.bits, slot.known, slot.number = bits, true, n
	return n, nil
}

// floatReader reads binary numbers of 32 or 64 bits.
func floatReader(size int, known *floats) func(*cell, parquet.Value) error {
	return func(c *cell, v parquet.Value) (err error) {
		f := float64(0)
		if size == 64 {
			f = v.Double()
		} else {
			f = float64(v.Float())
		}
		switch {
		case math.IsNaN(f):
			c.form = isNull // how data frames write "none"
			return nil
		case math.IsInf(f, 0):
			return errNotFinite
		}
		c.form = isNumber
		c.num, err = known.decimal(f, size)
		return err
	}
}

// timeReader returns how times of a type are read; nil if it is none.
func timeReader(t parquet.Type) func(*cell, parquet.Value) error {
	at := func(seconds, nanos int64) (time.Time, error) {
		if seconds < 0 || seconds > 253_000_000_000 {
			return time.Time{}, errNotTime
		}
		return time.Unix(seconds, nanos).UTC(), nil
	}
	var read func(parquet.Value) (time.Time, error)
	switch l := usage.LogicalValue(t.LogicalType()).(type) {
	case *format.TimestampType:
		if l.Unit.Value == nil {
			return nil
		}
		perSecond := int64(time.Second / l.Unit.Value.Duration())
		read = func(v parquet.Value) (time.Time, error) {
			n := v.Int64()
			return at(n/perSecond, n%perSecond*(int64(time.Second)/perSecond))
		}
	case *format.DateType:
		read = func(v parquet.Value) (time.Time, error) { return at(int64(v.Int32())*86400, 0) }
	default:
		if t.Kind() != parquet.Int96 {
			return nil
		}
		read = func(v parquet.Value) (time.Time, error) { return julian(v.Int96(), at) }
	}
	return func(c *cell, v parquet.Value) (err error) {
		c.form = isTime
		c.at, err = read(v)
		return err
	}
}

// julian reads the old 96-bit timestamps: nanoseconds of a day and the day's Julian
// number.
func julian(v deprecated.Int96, at func(seconds, nanos int64) (time.Time, error)) (time.Time, error) {
	const epoch = 2_440_588 // 1970-01-01
	day, nanos := int64(v[2])-epoch, int64(v[1])<<32|int64(v[0])
	if nanos < 0 || nanos >= int64(24*time.Hour) {
		return time.Time{}, errNotTime
	}
	return at(day*86400+nanos/int64(time.Second), nanos%int64(time.Second))
}
