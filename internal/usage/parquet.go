package usage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"
)

// readParquet reads recorded usage from Parquet, one row group at a time, and only the known
// columns.
func readParquet(d *decoder, r io.ReaderAt, size int64) (err error) {
	row := 0
	// The library reports some malformed pages by panicking.
	defer func() {
		if p := recover(); p != nil {
			if cause, ok := p.(userPanic); ok {
				panic(cause.value)
			}
			err = d.format.fail(row, 0, "the file is not valid Parquet: %v", p)
		}
	}()
	if err := CheckFooter(r, size); err != nil {
		return &FileError{File: d.format.Name, Reason: "the file is not valid Parquet", Err: err}
	}
	file, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		e := d.format.fail(0, 0, "the file is not valid Parquet")
		e.Err = err
		return e
	}
	for _, group := range file.Metadata().RowGroups {
		for _, chunk := range group.Columns {
			// The library's LZ4 decoder doubles its buffer without end on a damaged page.
			if c := chunk.MetaData.Codec; c == format.Lz4Raw {
				return d.format.fail(0, 0,
					"the file is compressed with %s, which is not read: write it with snappy or zstd", c)
			}
		}
	}
	columns, err := parquetColumns(d, file.Schema())
	if err != nil {
		return err
	}
	if file.NumRows() == 0 {
		return nil
	}
	each := d.emit
	d.emit = func(s *Sample) error {
		defer func() {
			if p := recover(); p != nil {
				panic(userPanic{p})
			}
		}()
		return each(s)
	}
	for i, group := range file.RowGroups() {
		var together int64
		for _, c := range columns {
			chunk := &file.Metadata().RowGroups[i].Columns[c.index].MetaData
			memory, err := checkPages(r, size, chunk)
			if err != nil {
				e := d.format.fail(row+1, c.column+1, "%s is not valid Parquet", d.layout.columns[c.column].name)
				e.Err = err
				return e
			}
			if together += memory; together > maxPageMemory || together < 0 {
				return d.format.fail(row+1, c.column+1,
					"%s has pages that, with those of the columns before, unpack to over %d MiB at once: write "+
						"smaller pages",
					d.layout.columns[c.column].name, maxPageMemory>>20)
			}
		}
		if err := readRowGroup(d, group, columns, &row); err != nil {
			return err
		}
	}
	if err := d.checkBadRows(); err != nil {
		return err
	}
	return d.flush()
}

// userPanic carries a panic of the caller's function past the recovery above.
type userPanic struct{ value any }

// parquetColumn reads one column of a row group.
type parquetColumn struct {
	index  int // in the file
	column int // in the layout
	time   func(parquet.Value) (time.Time, error)

	pages  parquet.Pages
	page   parquet.Page
	reader parquet.ValueReader
	buffer []parquet.Value
	values []parquet.Value // the unread rest of buffer
	number [40]byte        // buffer for the text of a number
}

// parquetColumns lays out the columns of a schema and chooses how to read each.
func parquetColumns(d *decoder, schema *parquet.Schema) ([]*parquetColumn, error) {
	type leaf struct {
		index int
		node  parquet.Node
	}
	var names, unread []string
	var leaves []leaf
	for _, path := range schema.Columns() {
		column, ok := schema.Lookup(path...)
		if len(path) != 1 || !ok || column.Node.Repeated() {
			unread = append(unread, strings.Join(path, ".")) // nested columns have no meaning here
			continue
		}
		names = append(names, path[0])
		leaves = append(leaves, leaf{column.ColumnIndex, column.Node})
	}
	if n := len(names) + len(unread); n > maxColumns {
		return nil, d.format.fail(0, 0, "it has %d columns: at most %d are read", n, maxColumns)
	}
	l, fail := newLayout(names, d.format)
	if fail != nil {
		fail.Line = 0
		return nil, fail
	}
	if l.nvidiaSMI {
		return nil, d.format.fail(0, 0, "the output of nvidia-smi is read only as CSV")
	}
	l.unknown = append(l.unknown, unread...)
	d.layout = l
	var columns []*parquetColumn
	for i, c := range l.columns {
		if c.role == ignored {
			continue
		}
		p := &parquetColumn{index: leaves[i].index, column: i, buffer: make([]parquet.Value, 1024)}
		kind, logical := leaves[i].node.Type().Kind(), leaves[i].node.Type().LogicalType()
		var unfit bool
		switch {
		case c.role == timeColumn || c.role == receivedColumn || c.role == launchedColumn:
			p.time = d.parquetTime(leaves[i].node.Type())
			unfit = p.time == nil && kind != parquet.ByteArray
		case c.role == signalColumn || c.role == gpusColumn && kind != parquet.ByteArray:
			_, decimal := LogicalValue(logical).(*format.DecimalType)
			unfit = decimal || kind == parquet.Boolean || kind == parquet.Int96 || kind == parquet.FixedLenByteArray
		case c.role == resourceColumn || c.role == gpuColumn || c.role == partColumn:
			unfit = kind != parquet.ByteArray && kind != parquet.Int32 && kind != parquet.Int64
		default:
			unfit = kind != parquet.ByteArray
		}
		if unfit {
			return nil, d.format.fail(0, i+1, "%s is stored as %s, which cannot be read as one",
				c.name, leaves[i].node.Type())
		}
		columns = append(columns, p)
	}
	return columns, nil
}

// LogicalValue returns the value of a logical type; nil without one.
func LogicalValue(t *format.LogicalType) format.LogicalTypeValue {
	if t == nil {
		return nil
	}
	return t.Value
}

// parquetTime returns a function that reads a time stored as that type; nil if the type is not a
// time.
func (d *decoder) parquetTime(t parquet.Type) func(parquet.Value) (time.Time, error) {
	if stamp, ok := LogicalValue(t.LogicalType()).(*format.TimestampType); ok && stamp.Unit.Value != nil {
		unit := stamp.Unit.Value.Duration()
		perSecond := int64(time.Second / unit)
		return func(v parquet.Value) (time.Time, error) {
			n := v.Int64()
			whole, part := n/perSecond, n%perSecond
			if n < 0 {
				return time.Time{}, errNegative
			}
			if whole >= maxSeconds {
				return time.Time{}, errNotTime
			}
			return time.Unix(whole, part*int64(unit)).UTC(), nil
		}
	}
	if LogicalValue(t.LogicalType()) != nil {
		if _, ok := LogicalValue(t.LogicalType()).(*format.IntType); !ok {
			return nil
		}
	}
	switch t.Kind() {
	case parquet.Int32:
		return func(v parquet.Value) (time.Time, error) { return secondsSince(float64(v.Int32()), d.format.Epoch) }
	case parquet.Int64:
		return func(v parquet.Value) (time.Time, error) { return secondsSince(float64(v.Int64()), d.format.Epoch) }
	case parquet.Float:
		return func(v parquet.Value) (time.Time, error) { return secondsSince(float64(v.Float()), d.format.Epoch) }
	case parquet.Double:
		return func(v parquet.Value) (time.Time, error) { return secondsSince(v.Double(), d.format.Epoch) }
	case parquet.Int96:
		return func(v parquet.Value) (time.Time, error) { return julian(v.Int96()) }
	}
	return nil
}

// julian converts the old 96-bit timestamps: nanoseconds of a day and the day's Julian number.
func julian(v deprecated.Int96) (time.Time, error) {
	const epoch = 2_440_588 // 1970-01-01
	day, nanos := int64(v[2])-epoch, int64(v[1])<<32|int64(v[0])
	if day < 0 || nanos < 0 || nanos >= int64(24*time.Hour) {
		return time.Time{}, errNotTime
	}
	return time.Unix(day*24*60*60, nanos).UTC(), nil
}

func readRowGroup(d *decoder, group parquet.RowGroup, columns []*parquetColumn, row *int) (err error) {
	chunks := group.ColumnChunks()
	defer func() {
		for _, c := range columns {
			c.close()
		}
	}()
	for _, c := range columns {
		if c.index >= len(chunks) {
			return d.format.fail(*row, 0, "the file is not valid Parquet: a row group has no column %d", c.index)
		}
		c.pages, c.values, c.reader = chunks[c.index].Pages(), nil, nil
	}
	for range group.NumRows() {
		*row++
		d.beginRow()
		for _, c := range columns {
			v, err := c.next()
			if err != nil {
				e := d.format.fail(*row, c.column+1, "%s cannot be read", d.layout.columns[c.column].name)
				e.Err = err
				return e
			}
			if err := c.apply(d, *row, v); err != nil {
				return err
			}
		}
		if err := d.endRow(*row); err != nil {
			return err
		}
	}
	return nil
}

// next returns the column's value in the next row.
func (c *parquetColumn) next() (parquet.Value, error) {
	for len(c.values) == 0 {
		if c.reader == nil {
			page, err := c.pages.ReadPage()
			if errors.Is(err, io.EOF) {
				return parquet.Value{}, fmt.Errorf("the column ends early: %w", io.ErrUnexpectedEOF)
			}
			if err != nil {
				return parquet.Value{}, err
			}
			c.page, c.reader = page, page.Values()
		}
		n, err := c.reader.ReadValues(c.buffer)
		if err != nil && !errors.Is(err, io.EOF) {
			return parquet.Value{}, err
		}
		if n == 0 {
			parquet.Release(c.page)
			c.page, c.reader = nil, nil
		}
		c.values = c.buffer[:n]
	}
	v := c.values[0]
	c.values = c.values[1:]
	return v, nil
}

func (c *parquetColumn) close() {
	if c.page != nil {
		parquet.Release(c.page)
	}
	if c.pages != nil {
		// Closing only frees buffers.
		_ = c.pages.Close()
	}
	c.pages, c.page, c.reader, c.values = nil, nil, nil, nil
}

// isNaN reports whether a value is NaN, as data frames write missing values.
func isNaN(v parquet.Value) bool {
	return v.Kind() == parquet.Double && math.IsNaN(v.Double()) || v.Kind() == parquet.Float &&
		math.IsNaN(float64(v.Float()))
}

// apply decodes the value of one row.
func (c *parquetColumn) apply(d *decoder, row int, v parquet.Value) error {
	column := &d.layout.columns[c.column]
	if v.IsNull() {
		return d.decodeField(row, c.column, nil)
	}
	if v.Kind() == parquet.ByteArray {
		return d.decodeField(row, c.column, trim(v.ByteArray()))
	}
	if c.time != nil {
		t, err := c.time(v)
		switch {
		case column.role != timeColumn && isNaN(v):
			return d.decodeField(row, c.column, nil)
		case err != nil:
			d.reject(true, row, c.column+1, "%s %.60q %s", column.name, v.String(), err)
		case column.role == timeColumn:
			d.sample.Time = t
		case column.role == receivedColumn:
			d.sample.Received = t
		default:
			return d.decodeField(row, c.column, t.AppendFormat(c.number[:0], time.RFC3339Nano))
		}
		return nil
	}
	if column.role != signalColumn && column.role != gpusColumn {
		n := int64(v.Int32())
		if v.Kind() == parquet.Int64 {
			n = v.Int64()
		}
		return d.decodeField(row, c.column, strconv.AppendInt(c.number[:0], n, 10))
	}
	var n float64
	switch v.Kind() {
	case parquet.Int32:
		n = float64(v.Int32())
	case parquet.Int64:
		n = float64(v.Int64())
	case parquet.Float:
		n = float64(v.Float())
	case parquet.Double:
		n = v.Double()
	}
	switch {
	case isNaN(v):
		return d.decodeField(row, c.column, nil)
	case column.role == gpusColumn:
		return d.decodeField(row, c.column, strconv.AppendFloat(c.number[:0], n, 'g', -1, 64))
	}
	if err := d.recordValue(column, n); err != nil {
		d.reject(false, row, c.column+1, "%s %s %s", column.name, v, err)
	}
	return nil
}
