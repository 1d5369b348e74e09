package billfile

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/parquet-go/parquet-go"
)

// parquetColumn reads the values of one field.
type parquetColumn struct {
	field  int
	leaves []*leaf // one; the keys and the values of a map
	value  func(c *cell, v parquet.Value) error
	record *record
	own    cell   // the value of the row, where it is in no dictionary
	object []byte // a map as a text

	// What the dictionary of the row group means, as far as it was asked for.
	dictionary parquet.Dictionary
	entries    []cell
	read       []bool
}

// maxEntries bounds the dictionaries whose meanings are kept. Values of larger ones,
// which come again less often, are read one by one.
const maxEntries = 1 << 16

// null is the cell of a row without a value.
var null cell

// next returns the column's value in the next row. It is valid until the row after it
// is asked for.
func (p *parquetColumn) next() (*cell, error) {
	if p.value == nil {
		return &p.own, p.readMap(&p.own)
	}
	l := p.leaves[0]
	if len(l.values) == 0 && l.left == 0 {
		if err := l.load(p.indexed); err != nil {
			return nil, err
		}
	}
	if l.left > 0 {
		i, there := l.index32()
		if !there {
			return &null, nil
		}
		return p.entry(i)
	}
	v, err := l.next()
	if err != nil {
		return nil, err
	}
	if v.IsNull() {
		return &null, nil
	}
	return &p.own, p.value(&p.own, v)
}

// indexed reports whether a page's values are kept by their place in its dictionary.
func (p *parquetColumn) indexed(page parquet.Page) bool {
	d := page.Dictionary()
	if d == nil || d.Len() > maxEntries {
		return false
	}
	if d != p.dictionary {
		p.dictionary, p.entries, p.read = d, make([]cell, d.Len()), make([]bool, d.Len())
	}
	return true
}

// entry returns the cell of an entry of the dictionary.
func (p *parquetColumn) entry(i int32) (*cell, error) {
	if i < 0 || int(i) >= len(p.entries) {
		return nil, fmt.Errorf("entry %d of a dictionary of %d is asked for", i, len(p.entries))
	}
	c := &p.entries[i]
	if p.read[i] {
		return c, nil
	}
	if err := p.value(c, p.dictionary.Index(i)); err != nil {
		return nil, err
	}
	if c.form == isText {
		c.text, c.kept = p.record.keep(p.field, c.text), true
	}
	p.read[i] = true
	return c, nil
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
