package billfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
)

// leaf reads one column of a row group, value by value.
type leaf struct {
	index, depth int
	last         string

	pages  parquet.Pages
	page   parquet.Page
	reader parquet.ValueReader
	buffer []parquet.Value
	values []parquet.Value // the rest of buffer

	// Of a page that is read by the places of its values in a dictionary:
	left    int     // rows
	indexes []int32 // of the values that are there
	levels  []byte  // 0 for a row without a value; nil: all have one
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

// more reports whether the next value belongs to the same row as the last.
func (l *leaf) more() (bool, error) {
	if err := l.fill(); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	return l.values[0].RepetitionLevel() > 0, nil
}

// load makes the next rows ready: the values of a page whose values are not indexed, or
// the places of those of one that is. It returns nil also after the last page; then
// nothing is ready.
func (l *leaf) load(indexed func(parquet.Page) bool) error {
	for l.reader == nil {
		err := l.turn()
		if errors.Is(err, io.EOF) {
			return nil // next says so
		}
		if err != nil {
			return err
		}
		if !indexed(l.page) {
			l.reader = l.page.Values()
			return nil
		}
		data := l.page.Data()
		l.indexes, l.levels = data.Int32(), l.page.DefinitionLevels()
		if l.left = len(l.levels); l.left == 0 {
			l.left = len(l.indexes)
		}
		if l.left > 0 {
			return nil
		}
	}
	return nil
}

// index32 returns the place of the next row's value in the dictionary, and whether the
// row has one.
func (l *leaf) index32() (int32, bool) {
	l.left--
	if len(l.levels) > 0 {
		level := l.levels[0]
		l.levels = l.levels[1:]
		if level == 0 {
			return 0, false
		}
	}
	if len(l.indexes) == 0 {
		return -1, true // a page that claims more values than it has
	}
	i := l.indexes[0]
	l.indexes = l.indexes[1:]
	return i, true
}

// turn goes on to the next page, or returns io.EOF after the last.
func (l *leaf) turn() error {
	if l.page != nil {
		parquet.Release(l.page)
		l.page = nil
	}
	page, err := l.pages.ReadPage()
	l.page = page
	return err
}

// fill reads values if none are left, and returns io.EOF after the last.
func (l *leaf) fill() error {
	for len(l.values) == 0 {
		if l.reader == nil {
			if err := l.turn(); err != nil {
				return err
			}
			l.reader = l.page.Values()
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
