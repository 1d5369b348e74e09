package billfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// group is one row group of a Parquet file.
type group struct {
	file  *parquet.File
	in    io.ReaderAt
	size  int64
	at    int // among the row groups
	first int // rows of the file before it
}

// openParquet reads a file's footer and returns its row groups; a file without rows has
// one that is empty, so that its columns are looked at.
func openParquet(in io.ReaderAt, size int64, p part) (groups []group, err error) {
	defer recovered(&err, p)
	if err := checkFooter(in, size); err != nil {
		return nil, &Error{File: p.name, Reason: err.Error()}
	}
	file, err := parquet.OpenFile(in, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, &Error{File: p.name, Reason: "the file is not valid Parquet", Err: err}
	}
	rows := 0
	for i, g := range file.RowGroups() {
		groups = append(groups, group{file, in, size, i, rows})
		rows += int(g.NumRows())
	}
	if len(groups) == 0 {
		groups = []group{{file: file, at: -1}}
	}
	return groups, nil
}

// recovered makes an error of a panic: the library reports some malformed pages so.
func recovered(err *error, p part) {
	if v := recover(); v != nil {
		*err = &Error{File: p.name, Reason: fmt.Sprintf("the file is not valid Parquet: %v", v)}
	}
}

// parquet reads one row group.
func (s *sink) parquet(g group) (err error) {
	defer recovered(&err, s.part)
	r, columns, err := s.columns(g.file)
	if err != nil || g.at < 0 {
		return err
	}
	chunks, meta := g.file.RowGroups()[g.at], &g.file.Metadata().RowGroups[g.at]
	for _, c := range columns {
		for _, leaf := range c.leaves {
			if leaf.index >= len(meta.Columns) {
				return &Error{File: s.part.name, Reason: "the file is not valid Parquet: a row group lacks a column"}
			}
			chunk := &meta.Columns[leaf.index].MetaData
			if chunk.Codec == format.Lz4Raw {
				return &Error{File: s.part.name, Reason: "the file is compressed with LZ4, which is not read: write it with snappy, gzip or zstd"}
			}
			if err := usage.CheckPages(g.in, g.size, chunk); err != nil {
				return &Error{File: s.part.name, Row: g.first + 1, Reason: r.name(c.field) + " is not valid Parquet", Err: err}
			}
			leaf.pages = chunks.ColumnChunks()[leaf.index].Pages()
			defer leaf.close()
		}
	}
	for i := range int(chunks.NumRows()) {
		for _, c := range columns {
			if err := c.read(&r.cells[c.field]); err != nil {
				return &Error{File: s.part.name, Row: g.first + i + 1, Reason: r.name(c.field) + " cannot be read", Err: err}
			}
		}
		if err := s.take(r); err != nil {
			e := &Error{File: s.part.name, Row: g.first + i + 1, Reason: err.Error()}
			if value := (*valueError)(nil); !errors.As(err, &value) {
				e.Reason, e.Err = "", err
			}
			return s.placed(e, err)
		}
	}
	return nil
}

// parquetColumn reads the values of one field.
type parquetColumn struct {
	field  int
	leaves []*leaf // one; the keys and the values of a map
	value  func(c *cell, v parquet.Value) error
	object []byte
}

// columns recognises the columns of a file and says how each is read.
func (s *sink) columns(file *parquet.File) (*record, []*parquetColumn, error) {
	type found struct{ leaves []*leaf }
	var names []string
	at := map[string]*found{}
	nodes := map[string]parquet.Node{}
	var twice string
	for i, path := range file.Schema().Columns() {
		name := path[0]
		f := at[name]
		if f == nil {
			f = &found{}
			at[name] = f
			names = append(names, name)
		} else if len(path) == 1 {
			twice = name
		}
		column, ok := file.Schema().Lookup(path...)
		if !ok {
			continue
		}
		f.leaves = append(f.leaves, &leaf{index: i, last: path[len(path)-1], depth: len(path)})
		nodes[name] = column.Node
	}
	if twice != "" {
		return nil, nil, &Error{File: s.part.name, Reason: fmt.Sprintf("column %q is there twice", twice)}
	}
	l, _, err := newLayout(names)
	if err != nil {
		return nil, nil, &Error{File: s.part.name, Reason: err.Error()}
	}
	if err := s.reading.use(s.part, l); err != nil {
		return nil, nil, err
	}
	var columns []*parquetColumn
	for f, c := range l.column {
		if c < 0 {
			continue
		}
		name := names[c]
		p := &parquetColumn{field: f, leaves: at[name].leaves}
		kind := l.schema.columns[f].kind
		if isMap(p.leaves) && kind == tags {
			columns = append(columns, p)
			continue
		}
		if len(p.leaves) == 1 && p.leaves[0].depth == 1 && !nodes[name].Repeated() {
			p.value = valueReader(nodes[name].Type(), kind)
		}
		if p.value == nil {
			return nil, nil, &Error{File: s.part.name, Reason: fmt.Sprintf("%s is stored as %s, which cannot be read as %s", name, nodes[name].Type(), kindNames[kind])}
		}
		columns = append(columns, p)
	}
	return newRecord(l), columns, nil
}

var kindNames = map[kind]string{text: "a text", number: "a number", instant: "a time", tags: "a map or a JSON object"}

// isMap says whether leaves are the keys and values of a map.
func isMap(leaves []*leaf) bool {
	return len(leaves) == 2 && leaves[0].depth == 3 && leaves[1].depth == 3 && leaves[0].last == "key" && leaves[1].last == "value"
}

// read sets a cell to the column's value in the next row.
func (p *parquetColumn) read(c *cell) error {
	if p.value != nil {
		v, err := p.leaves[0].next()
		if err != nil {
			return err
		}
		if v.IsNull() {
			c.form = isNull
			return nil
		}
		return p.value(c, v)
	}
	return p.readMap(c)
}

// readMap sets a cell to a map written as a JSON object.
func (p *parquetColumn) readMap(c *cell) error {
	p.object = append(p.object[:0], '{')
	for first := true; ; first = false {
		key, err := p.leaves[0].next()
		if err != nil {
			return err
		}
		// What is read of a page may be gone once the next one is read.
		if !key.IsNull() {
			if len(p.object) > 1 {
				p.object = append(p.object, ',')
			}
			p.object = append(appendJSON(p.object, key.ByteArray()), ':')
		}
		value, err := p.leaves[1].next()
		if err != nil {
			return err
		}
		if first && key.RepetitionLevel() != 0 {
			return errors.New("a row begins in the middle of a map")
		}
		if !key.IsNull() {
			if value.IsNull() {
				p.object = append(p.object, "null"...)
			} else {
				p.object = appendJSON(p.object, value.ByteArray())
			}
		}
		more, err := p.leaves[0].more()
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	p.object = append(p.object, '}')
	if len(p.object) == 2 {
		c.form = isNull
		return nil
	}
	c.form, c.text = isText, borrowed(p.object)
	return nil
}

// appendJSON appends a text as JSON writes it.
func appendJSON(to, s []byte) []byte {
	for _, b := range s {
		if b < ' ' || b == '"' || b == '\\' || b > '~' {
			quoted, _ := json.Marshal(string(s)) // a string always encodes
			return append(to, quoted...)
		}
	}
	to = append(to, '"')
	to = append(to, s...)
	return append(to, '"')
}

// borrowed returns bytes as a text that is valid as long as they do not change: cells
// are read before the next row is, and what is kept of them is copied.
func borrowed(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// valueReader returns how values of a type are read as what a column needs; nil where
// they cannot be.
func valueReader(t parquet.Type, k kind) func(*cell, parquet.Value) error {
	logical := logicalValue(t.LogicalType())
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
			return floatReader(64)
		case parquet.Float:
			return floatReader(32)
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

func logicalValue(t *format.LogicalType) format.LogicalTypeValue {
	if t == nil {
		return nil
	}
	return t.Value
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

// floatReader takes a binary number as the shortest decimal that stands for it, which is
// what was written where a decimal was stored so.
func floatReader(bits int) func(*cell, parquet.Value) error {
	var buffer [32]byte
	last, known := uint64(0), false
	var number bill.Decimal
	return func(c *cell, v parquet.Value) error {
		f := float64(0)
		if bits == 64 {
			f = v.Double()
		} else {
			f = float64(v.Float())
		}
		switch b := math.Float64bits(f); {
		case math.IsNaN(f):
			c.form = isNull // how data frames write "none"
			return nil
		case math.IsInf(f, 0):
			return errNotFinite
		case !known || b != last:
			n, err := bill.ParseDecimal(strconv.AppendFloat(buffer[:0], f, 'e', -1, bits))
			if err != nil {
				return fmt.Errorf("%v %w", f, err)
			}
			last, known, number = b, true, n
		}
		c.form, c.num = isNumber, number
		return nil
	}
}

// timeReader returns how times of a type are read; nil where it is none.
func timeReader(t parquet.Type) func(*cell, parquet.Value) error {
	at := func(seconds, nanos int64) (time.Time, error) {
		if seconds < 0 || seconds > 253_000_000_000 {
			return time.Time{}, errNotTime
		}
		return time.Unix(seconds, nanos).UTC(), nil
	}
	var read func(parquet.Value) (time.Time, error)
	switch l := logicalValue(t.LogicalType()).(type) {
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

// leaf reads one column of a row group, value by value.
type leaf struct {
	index, depth int
	last         string

	pages  parquet.Pages
	page   parquet.Page
	reader parquet.ValueReader
	buffer []parquet.Value
	values []parquet.Value // what is left of buffer
}

// batch is how many values are read at a time.
const batch = 1024

// next returns the next value.
func (l *leaf) next() (parquet.Value, error) {
	if err := l.fill(); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("the column ends early: %w", io.ErrUnexpectedEOF)
		}
		return parquet.Value{}, err
	}
	v := l.values[0]
	l.values = l.values[1:]
	return v, nil
}

// more says whether the next value belongs to the same row as the last.
func (l *leaf) more() (bool, error) {
	if err := l.fill(); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	return l.values[0].RepetitionLevel() > 0, nil
}

// fill reads values if none are left, and returns io.EOF after the last.
func (l *leaf) fill() error {
	for len(l.values) == 0 {
		if l.reader == nil {
			page, err := l.pages.ReadPage()
			if err != nil {
				return err
			}
			l.page, l.reader = page, page.Values()
		}
		if l.buffer == nil {
			l.buffer = make([]parquet.Value, batch)
		}
		n, err := l.reader.ReadValues(l.buffer)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			parquet.Release(l.page)
			l.page, l.reader = nil, nil
		}
		l.values = l.buffer[:n]
	}
	return nil
}

func (l *leaf) close() {
	if l.page != nil {
		parquet.Release(l.page)
	}
	if l.pages != nil {
		_ = l.pages.Close() // it only frees buffers
	}
	l.pages, l.page, l.reader, l.values = nil, nil, nil, nil
}

// checkFooter refuses a file whose footer does not fit into it, before anything
// allocates what the footer claims.
func checkFooter(r io.ReaderAt, size int64) error {
	const least = 12 // magic, length of the footer, magic
	var tail [8]byte
	if size >= least {
		if _, err := r.ReadAt(tail[:], size-int64(len(tail))); err != nil {
			return fmt.Errorf("the end of the file cannot be read: %w", err)
		}
	}
	switch length := int64(binary.LittleEndian.Uint32(tail[:4])); {
	case size < least || string(tail[4:]) != "PAR1":
		return errors.New("the file is not valid Parquet: it does not end as it must, and may be cut short")
	case length > size-least:
		return fmt.Errorf("the file is not valid Parquet: its footer of %d bytes is larger than the file", length)
	}
	return nil
}
