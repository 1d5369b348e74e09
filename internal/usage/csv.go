package usage

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// maxLine is the longest line that is read, in bytes.
const maxLine = 1 << 18

// lines reads CSV records: one line each, or several if a quoted field spans them.
type lines struct {
	r      *bufio.Reader
	format Format
	number int // of the last line read
	joined []byte
	// separator separates fields.
	separator byte
	// noNewline is set if the file ends in the last line read.
	noNewline bool
	// pushedBack are lines to read again after an unclosed quote in an earlier one; openQuotes
	// counts such quotes.
	pushedBack []byte
	openQuotes int
}

// maxOpenQuotes bounds unclosed quotes; each costs a search for its end.
const maxOpenQuotes = 10

// next returns the next record without its line end, the number of its first line, and whether it
// has quotes. The record is valid until the next call.
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
			return nil, line, false, l.reopen(line, "a quote is not closed")
		case err != nil:
			return nil, 0, false, err
		}
		l.joined = append(append(l.joined, '\n'), more...)
		if len(l.joined) > maxLine {
			return nil, line, false, l.reopen(line, "a quote is not closed within %d bytes", maxLine)
		}
		if bytes.Count(more, quote)%2 == 1 {
			return l.joined, line, true, nil
		}
	}
}

// openQuote is the error of a record with an unclosed quote; reading continues at the next line.
type openQuote struct{ *FileError }

// reopen goes back to the line after the one with the opening quote.
func (l *lines) reopen(line int, format string, args ...any) error {
	fail := l.format.fail(line, 0, format, args...)
	_, rest, more := bytes.Cut(l.joined, []byte{'\n'})
	if l.openQuotes++; l.openQuotes > maxOpenQuotes {
		return fail
	}
	if more {
		rest = bytes.Clone(rest)
		if len(l.pushedBack) > 0 {
			rest = append(append(rest, '\n'), l.pushedBack...)
		}
		l.pushedBack, l.noNewline = rest, false
	}
	l.number = line
	return openQuote{fail}
}

var quote = []byte{'"'}

func (l *lines) line() ([]byte, error) {
	if len(l.pushedBack) > 0 {
		l.number++
		b, rest, _ := bytes.Cut(l.pushedBack, []byte{'\n'})
		l.pushedBack = rest
		return bytes.TrimSuffix(b, []byte{'\r'}), nil
	}
	b, err := l.r.ReadSlice('\n')
	l.number++
	l.noNewline = false
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, l.format.fail(l.number, 0, "the line is over %d bytes long", maxLine)
	case errors.Is(err, io.EOF) && len(b) > 0:
		l.noNewline = true
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
	for n := len(b); n > 0 && b[n-1] == '\r'; n-- {
		b = b[:n-1]
	}
	return b, nil
}

// fields splits a record at its separators and trims spaces. A quoted field may hold separators
// and, doubled, quotes; it is unquoted in place.
func fields(record []byte, separator byte, quoted bool, out [][]byte) ([][]byte, error) {
	for {
		if quoted {
			if trimmed := trimTo(record, separator); len(trimmed) > 0 && trimmed[0] == '"' {
				field, rest, err := unquote(trimmed, separator)
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
		i := bytes.IndexByte(record, separator)
		if i < 0 {
			return append(out, trim(record)), nil
		}
		out = append(out, trim(record[:i]))
		record = record[i+1:]
	}
}

var (
	errQuote          = errors.New("a quote is not closed")
	errTextAfterQuote = errors.New("there is text after a closing quote: a comma is expected")
)

// unquote reads the quoted field at the start of b. rest is the text after its separator, nil after
// the last field.
func unquote(b []byte, separator byte) (field, rest []byte, err error) {
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
		switch after := trimTo(b[i+1:], separator); {
		case len(after) == 0:
			return b[:n], nil, nil
		case after[0] != separator:
			return nil, nil, errTextAfterQuote
		default:
			return b[:n], after[1:], nil
		}
	}
	return nil, nil, errQuote
}

// trimTo trims the text before a separator and keeps the separator.
func trimTo(b []byte, separator byte) []byte {
	if separator == '\t' {
		return bytes.Trim(b, " ")
	}
	return trim(b)
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

// byteOrderMark starts UTF-8 text of some programs.
var byteOrderMark = []byte("\xef\xbb\xbf")

// readCSV reads recorded usage as CSV.
func readCSV(d *decoder, r *bufio.Reader) error {
	in := &lines{r: decoded(r), format: d.format, separator: ','}
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
	l.decimalComma = in.separator == ';'
	if d.layout = l; l.nvidiaSMI && d.local.location == nil {
		d.local.location = time.UTC
	}
	row := make([][]byte, 0, len(names))
	for {
		record, line, quoted, err := in.next()
		var open openQuote
		switch {
		case errors.Is(err, io.EOF):
			if err := d.checkBadRows(); err != nil {
				return err
			}
			return d.flush()
		case errors.As(err, &open):
			d.beginRow()
			if d.reject(true, line, 0, "%s", open.Reason); in.noNewline {
				d.noteTruncation()
				continue
			}
			if err := d.endRow(line); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		if len(record) > 0 && record[0] == byteOrderMark[0] { // several files were concatenated
			record = bytes.TrimPrefix(record, byteOrderMark)
		}
		if len(trim(record)) == 0 || bytes.Equal(record, header.record) {
			continue // concatenated files repeat the header
		}
		d.beginRow()
		if row, err = fields(record, in.separator, quoted, row[:0]); err != nil {
			d.reject(true, line, 0, "%s", err)
		} else if len(row) != len(names) {
			d.reject(true, line, 0, "the row has %d fields, %d are expected", len(row), len(names))
		}
		for i := 0; i < len(row) && !d.skipped; i++ {
			if err := d.decodeField(line, i, row[i]); err != nil {
				return err
			}
		}
		if in.noNewline && !d.skipped && l.nvidiaSMI && !d.hasUnit(row) {
			d.reject(true, line, len(row), "%.60q %s", row[len(row)-1], errCut)
		}
		if in.noNewline && d.skipped && d.rows > 0 {
			d.noteTruncation()
			continue
		}
		if err := d.endRow(line); err != nil {
			return err
		}
	}
}

// noteTruncation records that the file ends in the middle of a row, as when its writer is killed.
func (d *decoder) noteTruncation() { d.summary.TruncatedLine = d.rowError }

// hasUnit reports whether the last field of a row of nvidia-smi has a unit if earlier rows have
// one.
func (d *decoder) hasUnit(row [][]byte) bool {
	last := len(row) - 1
	return !d.layout.hasUnits || d.layout.columns[last].role != signalColumn || bytes.IndexByte(row[last], ' ') > 0 ||
		isUnmeasured(row[last])
}

type headerLine struct {
	record []byte
	fields [][]byte
	line   int
}

// header reads the column names from the first line that is not empty.
func (l *lines) header() (*headerLine, error) {
	for {
		record, line, quoted, err := l.next()
		var open openQuote
		switch {
		case errors.As(err, &open):
			return nil, open.FileError
		case errors.Is(err, io.EOF):
			return nil, l.format.fail(0, 0, "the file is empty: a header and samples are expected")
		case err != nil:
			return nil, err
		}
		if line == 1 {
			record = bytes.TrimPrefix(record, byteOrderMark)
		}
		if len(trim(record)) == 0 {
			continue
		}
		if bytes.IndexByte(record, 0) >= 0 {
			return nil, l.format.fail(line, 0, "this is no text: CSV, CSV.gz or Parquet is expected")
		}
		record = bytes.Clone(record)
		l.separator = separatorOf(record)
		split, err := fields(bytes.Clone(record), l.separator, quoted, nil)
		if err != nil {
			return nil, l.format.fail(line, 0, "%s", err)
		}
		if len(split) > maxColumns {
			return nil, l.format.fail(line, 0, "it has %d columns: at most %d are read", len(split), maxColumns)
		}
		return &headerLine{record: record, fields: split, line: line}, nil
	}
}

// separatorOf returns the separator of a header: a comma, or without one the semicolon or tab of
// spreadsheets.
func separatorOf(header []byte) byte {
	for _, c := range []byte(",;\t") {
		if bytes.IndexByte(header, c) >= 0 {
			return c
		}
	}
	return ','
}

// decoded converts UTF-16, as Windows writes it, to UTF-8. UTF-16 without a byte order mark is
// recognized by the zeros of its first letters.
func decoded(r *bufio.Reader) *bufio.Reader {
	first, _ := r.Peek(4)
	order, mark := unicode.LittleEndian, unicode.UseBOM
	switch {
	case bytes.HasPrefix(first, []byte{0xff, 0xfe}), bytes.HasPrefix(first, []byte{0xfe, 0xff}):
	case len(first) == 4 && first[0] != 0 && first[1] == 0 && first[2] != 0 && first[3] == 0:
		mark = unicode.IgnoreBOM
	case len(first) == 4 && first[0] == 0 && first[1] != 0 && first[2] == 0 && first[3] != 0:
		order, mark = unicode.BigEndian, unicode.IgnoreBOM
	default:
		return r
	}
	return bufio.NewReaderSize(transform.NewReader(r, unicode.UTF16(order, mark).NewDecoder()), maxLine)
}
