package usage

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the longest line that is read, in bytes.
const maxLine = 1 << 18

// lines reads records of CSV, each a line unless quotes span several.
type lines struct {
	r      *bufio.Reader
	format Format
	number int // of the last line read
	joined []byte
}

// next returns the next record without its line end, the number of its first line,
// and whether there are quotes in it. The record is valid until the next call.
func (l *lines) next() (record []byte, line int, quoted bool, err error) {
	record, err = l.line()
	if err != nil {
		return nil, 0, false, err
	}
	line = l.number
	if bytes.IndexByte(record, '"') < 0 {
		return record, line, false, nil
	}
	if bytes.Count(record, quote)%2 == 0 {
		return record, line, true, nil
	}
	l.joined = append(l.joined[:0], record...)
	for {
		more, err := l.line()
		switch {
		case errors.Is(err, io.EOF):
			return nil, 0, false, l.format.fail(line, 0, "a quote is not closed")
		case err != nil:
			return nil, 0, false, err
		}
		l.joined = append(append(l.joined, '\n'), more...)
		if len(l.joined) > maxLine {
			return nil, 0, false, l.format.fail(line, 0, "a quote is not closed within %d bytes", maxLine)
		}
		if bytes.Count(more, quote)%2 == 1 {
			return l.joined, line, true, nil
		}
	}
}

var quote = []byte{'"'}

func (l *lines) line() ([]byte, error) {
	b, err := l.r.ReadSlice('\n')
	l.number++
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, l.format.fail(l.number, 0, "the line is over %d bytes long", maxLine)
	case errors.Is(err, io.EOF) && len(b) > 0:
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case err != nil:
		var bound *FileError
		if errors.As(err, &bound) {
			bound.Line = l.number
			return nil, bound
		}
		e := l.format.fail(l.number, 0, "the file cannot be read on")
		e.Err = err
		return nil, e
	}
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b, nil
}

// fields splits a record at its commas. Spaces around a field are left out. A
// quoted field may hold commas and, doubled, quotes; its text is unquoted in
// place.
func fields(record []byte, quoted bool, out [][]byte) ([][]byte, error) {
	for {
		if quoted {
			if trimmed := trim(record); len(trimmed) > 0 && trimmed[0] == '"' {
				field, rest, err := unquote(trimmed)
				if err != nil {
					return nil, err
				}
				out = append(out, field)
				if rest == nil {
					return out, nil
				}
				record = rest
				continue
			}
		}
		i := bytes.IndexByte(record, ',')
		if i < 0 {
			return append(out, trim(record)), nil
		}
		out = append(out, trim(record[:i]))
		record = record[i+1:]
	}
}

var (
	errQuote  = errors.New("a quote is not closed")
	errQuoted = errors.New("there is text after a closing quote: a comma is expected")
)

// unquote reads the quoted field that b begins with. rest is what follows the
// comma after it, nil when it is the last field.
func unquote(b []byte) (field, rest []byte, err error) {
	n := 0
	for i := 1; i < len(b); i++ {
		if b[i] != '"' {
			b[n] = b[i]
			n++
			continue
		}
		if i+1 < len(b) && b[i+1] == '"' {
			b[n] = '"'
			n++
			i++
			continue
		}
		switch after := trim(b[i+1:]); {
		case len(after) == 0:
			return b[:n], nil, nil
		case after[0] != ',':
			return nil, nil, errQuoted
		default:
			return b[:n], after[1:], nil
		}
	}
	return nil, nil, errQuote
}

// trim cuts spaces and tabs from both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for n := len(b); n > 0 && (b[n-1] == ' ' || b[n-1] == '\t'); n-- {
		b = b[:n-1]
	}
	return b
}

// readCSV reads recorded usage as text.
func readCSV(d *decoder, r *bufio.Reader) error {
	in := &lines{r: r, format: d.format}
	header, err := in.header()
	if err != nil {
		return err
	}
	names := make([]string, len(header.fields))
	for i, f := range header.fields {
		names[i] = string(f)
	}
	l, fail := newLayout(names, d.format)
	if fail != nil {
		fail.Line = header.line
		return fail
	}
	d.layout = l
	row := make([][]byte, 0, len(names))
	for {
		record, line, quoted, err := in.next()
		if errors.Is(err, io.EOF) {
			return d.flush()
		}
		if err != nil {
			return err
		}
		if len(trim(record)) == 0 || bytes.Equal(record, header.record) {
			continue // files that were appended to one another repeat their header
		}
		if row, err = fields(record, quoted, row[:0]); err != nil {
			return d.format.fail(line, 0, "%s", err)
		}
		if len(row) != len(names) {
			return d.format.fail(line, 0, "the row has %d fields, %d are expected", len(row), len(names))
		}
		d.begin()
		for i, field := range row {
			if err := d.text(line, i, field); err != nil {
				return err
			}
		}
		if err := d.end(line); err != nil {
			return err
		}
	}
}

type headerLine struct {
	record []byte
	fields [][]byte
	line   int
}

// header reads the names of the columns from the first line that is not empty.
func (l *lines) header() (*headerLine, error) {
	for {
		record, line, quoted, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, l.format.fail(0, 0, "the file is empty: a header and samples are expected")
		case err != nil:
			return nil, err
		}
		if line == 1 {
			record = bytes.TrimPrefix(record, []byte("\xef\xbb\xbf"))
		}
		if len(trim(record)) == 0 {
			continue
		}
		if bytes.IndexByte(record, 0) >= 0 {
			return nil, l.format.fail(line, 0, "this is no text: CSV, CSV.gz or Parquet is expected")
		}
		record = bytes.Clone(record)
		split, err := fields(bytes.Clone(record), quoted, nil)
		if err != nil {
			return nil, l.format.fail(line, 0, "%s", err)
		}
		if len(split) > maxColumns {
			return nil, l.format.fail(line, 0, "it has %d columns: at most %d are read", len(split), maxColumns)
		}
		return &headerLine{record: record, fields: split, line: line}, nil
	}
}
