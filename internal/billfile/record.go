package billfile

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
)

// cell is one value of a row, as the file holds it.
type cell struct {
	form form
	// kept is true if the text may be kept, because the cell comes again: the parsed value may
	// replace it.
	kept bool
	// text is valid until the next row is read.
	text string
	num  bill.Decimal
	at   time.Time
}

type form int

const (
	isNull form = iota
	isText
	isNumber
	isTime
)

// record is a row by the fields of its schema. Texts that come again are kept once.
type record struct {
	layout *layout
	cells  []*cell
	memo   []memo
	line   bill.Line
	// err is the first value that could not be read.
	err *valueError
	// notes name the values that were passed over.
	notes map[string]bool
	tags  []byte // of columns that hold one tag each, as a JSON object
}

// memo remembers the texts and times of one field.
type memo struct {
	last  string
	texts map[string]string
	times map[string]time.Time
}

// remembered bounds a memo.
const remembered = 1 << 15

// valueError is a value that cannot be read.
type valueError struct {
	field  int
	reason string
}

func (e *valueError) Error() string { return e.reason }

func newRecord(l *layout) *record {
	r := &record{
		layout: l, cells: make([]*cell, len(l.column)), memo: make([]memo, len(l.column)), notes: map[string]bool{},
	}
	for i := range r.cells {
		r.cells[i] = &cell{}
	}
	return r
}

// name returns the file's name of a field.
func (r *record) name(field int) string {
	if c := r.layout.column[field]; c >= 0 {
		return strings.TrimSpace(r.layout.header[c])
	}
	return r.layout.schema.columns[field].names[0]
}

// fail keeps a mistake of a value, or names it where no amount depends on the value.
func (r *record) fail(field int, format string, args ...any) {
	if !r.layout.vital(field) {
		r.notes[r.name(field)+" has values that cannot be read, which are left out"] = true
		return
	}
	if r.err == nil {
		r.err = &valueError{field, r.name(field) + " " + fmt.Sprintf(format, args...)}
	}
}

// one returns a field's text as the value that it means among those of the specification,
// whose case exporters change. Another value stays as it is, and is named.
func (r *record) one(field int, values []string, others map[string]string) string {
	text := r.text(field)
	if text == "" {
		return ""
	}
	for _, v := range values {
		if strings.EqualFold(text, v) {
			return v
		}
	}
	if v := others[strings.ToLower(text)]; v != "" {
		return v
	}
	r.notes[fmt.Sprintf("%s %.60q is no value of %s", r.name(field), text, r.layout.version)] = true
	return text
}

// tagText returns the columns that hold one tag each as a JSON object, empty if none has a value.
func (r *record) tagText(field int) string {
	r.tags = append(r.tags[:0], '{')
	for i, key := range r.layout.tagKeys {
		c := r.cells[len(r.layout.schema.columns)+i]
		if c.form != isText {
			continue
		}
		if len(r.tags) > 1 {
			r.tags = append(r.tags, ',')
		}
		r.tags = append(appendJSON(r.tags, []byte(key)), ':')
		r.tags = appendJSON(r.tags, []byte(c.text))
	}
	if len(r.tags) == 1 {
		return ""
	}
	return r.keep(field, string(append(r.tags, '}')))
}

// setText sets a cell to a text; an empty one, and the word NULL, are no value.
func (c *cell) setText(s string) {
	s = strings.TrimSpace(s)
	if s == "" || (len(s) == 4 && strings.EqualFold(s, "null")) {
		c.form = isNull
		return
	}
	c.form, c.text = isText, s
}

// text returns a field's text, empty if there is none. It may be kept.
func (r *record) text(field int) string {
	c := r.cells[field]
	switch {
	case c.form != isText:
		return ""
	case c.kept:
		return c.text
	}
	return r.keep(field, c.text)
}

// keep returns a text of a field as one that may be kept, the same for equal texts while
// it is remembered.
func (r *record) keep(field int, text string) string {
	m := &r.memo[field]
	if m.last == text {
		return m.last
	}
	s, ok := m.texts[text]
	if !ok {
		if m.texts == nil || len(m.texts) >= remembered {
			m.texts = map[string]string{}
		}
		s = strings.Clone(text)
		m.texts[s] = s
	}
	m.last = s
	return s
}

// cost returns a field's number and whether there is one.
func (r *record) cost(field int) (bill.Decimal, bool) {
	c := r.cells[field]
	switch c.form {
	case isNumber:
		return c.num, true
	case isText:
		d, err := bill.ParseDecimal(c.text)
		if err != nil {
			r.fail(field, "%.60q %s", c.text, err)
			return bill.Decimal{}, false
		}
		if c.kept {
			c.form, c.num = isNumber, d
		}
		return d, true
	}
	return bill.Decimal{}, false
}

// layouts in which bills write times; without a zone they are UTC.
var layouts = []string{
	time.RFC3339, time.DateTime, time.DateOnly, "2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05",
	"2006-01-02T15:04Z07:00",
	"2006-01-02 15:04:05 MST"}

var errNotTime = errors.New("is not a time such as 2024-09-01T00:00:00Z")

// time returns a field's time in UTC, the zero time if there is none.
func (r *record) time(field int) time.Time {
	c := r.cells[field]
	switch c.form {
	case isTime:
		return c.at
	case isText:
		m := &r.memo[field]
		if t, ok := m.times[c.text]; ok {
			return c.time(t)
		}
		t, err := parseTime(c.text)
		if err != nil {
			r.fail(field, "%.60q %s", c.text, err)
			return time.Time{}
		}
		if m.times == nil || len(m.times) >= remembered {
			m.times = map[string]time.Time{}
		}
		m.times[strings.Clone(c.text)] = t
		return c.time(t)
	}
	return time.Time{}
}

// time keeps the parsed time of the cell, if the cell comes again.
func (c *cell) time(t time.Time) time.Time {
	if c.kept {
		c.form, c.at = isTime, t
	}
	return t
}

func parseTime(s string) (time.Time, error) {
	for _, l := range layouts {
		t, err := time.Parse(l, s)
		if err != nil {
			continue
		}
		if l == layouts[len(layouts)-1] && t.Location() != time.UTC {
			break // the names of zones are not unique
		}
		if t.Year() < 1970 || t.Year() > 9998 {
			break
		}
		return t.UTC(), nil
	}
	return time.Time{}, errNotTime
}
