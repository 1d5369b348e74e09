package billfile

import (
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/curfew-dev/curfew/internal/document"
)

// csv reads a file of comma-separated values, one row at a time.
func (s *sink) csv(in io.Reader, gzipped bool) error {
	text, err := unpacked(in, gzipped)
	if err != nil {
		return &Error{File: s.part.name, Reason: "the file is not valid gzip", Err: err}
	}
	digest := sha256.New()
	bounded := document.NewRecords(io.TeeReader(text, digest))
	rows := csv.NewReader(bounded)
	rows.ReuseRecord = true
	head, err := rows.Read()
	if errors.Is(err, io.EOF) {
		if !s.part.start.IsZero() {
			return nil // a blanked chunk
		}
		return &Error{File: s.part.name, Reason: "it is empty; a header of FOCUS or CUR 2.0 columns is expected"}
	}
	if err != nil {
		return s.malformed(err)
	}
	head = slices.Clone(head)
	head[0] = strings.TrimPrefix(head[0], "\ufeff")
	l, column, err := newLayout(head)
	if err != nil {
		e := &Error{File: s.part.name, Line: 1, Reason: err.Error()}
		if column > 0 {
			_, e.Column = rows.FieldPos(column - 1)
		}
		return e
	}
	if err := s.reading.use(s.part, l); err != nil {
		return err
	}
	r := newRecord(l)
	defer s.reading.note(r)
	before := s.rows
	for {
		bounded.Next()
		fields, err := rows.Read()
		if errors.Is(err, io.EOF) {
			if s.rows == before {
				return nil
			}
			return s.reading.once(s.part.name, digest)
		}
		if err != nil {
			e := s.malformed(err)
			if e.Reason == "" {
				e.Row = s.rows - before + 1
			}
			return e
		}
		for i, f := range l.at {
			if f >= 0 {
				r.cells[f].setText(fields[i])
			}
		}
		if err := s.take(r); err != nil {
			e := &Error{File: s.part.name, Reason: err.Error()}
			e.Line, _ = rows.FieldPos(0)
			var value *valueError
			if errors.As(err, &value) {
				if c := l.column[value.field]; c >= 0 {
					e.Line, e.Column = rows.FieldPos(c)
				}
			} else {
				e.Reason, e.Err = "", err
			}
			return s.placed(e, err)
		}
	}
}

// placed returns an error with its place; that the reading was stopped has none.
func (s *sink) placed(e *Error, err error) error {
	if cause := context.Cause(s.ctx); cause != nil && errors.Is(err, cause) {
		return err
	}
	return e
}

// malformed gives a mistake of the CSV itself its place.
func (s *sink) malformed(err error) *Error {
	e := &Error{File: s.part.name, Reason: "the file cannot be read", Err: err}
	var p *csv.ParseError
	switch {
	case errors.As(err, new(*document.LongRecord)), errors.Is(err, errExpands):
		e.Reason = ""
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Reason = "the file is cut short"
	case errors.As(err, &p):
		e.Line, e.Column, e.Err = p.Line, p.Column, nil
		e.Reason = "it is not valid CSV: " + p.Err.Error()
		if errors.Is(p.Err, csv.ErrFieldCount) {
			e.Column, e.Reason = 0, "this row has another number of fields than the header"
		}
	}
	return e
}
