// Package plan holds what the planners share: files that are read strictly, with the
// place of every mistake. The planners themselves are the packages under it.
package plan

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
)

// FileError is a file that cannot be read as what a planner needs.
type FileError struct {
	File string
	// Line counts from 1; 0 is the file as a whole. Column counts bytes of the line
	// from 1; 0 is the whole line.
	Line, Column int
	// Reason names the value found and the one expected.
	Reason string
	// Err is the cause, where there is one.
	Err error
}

// Error returns "w.csv:3:9: memory_gib "ten" is not a number".
func (e *FileError) Error() string {
	at := e.File
	if e.Line > 0 {
		at += ":" + strconv.Itoa(e.Line)
		if e.Column > 0 {
			at += ":" + strconv.Itoa(e.Column)
		}
	}
	if e.Err != nil {
		return at + ": " + e.Reason + ": " + e.Err.Error()
	}
	return at + ": " + e.Reason
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Column is a column of a file, and what it holds, for people.
type Column struct{ Name, Doc string }

// Layout is the set of columns of a file.
type Layout struct {
	// Required must all be there, Optional may be. Any other column is an error,
	// unless Others says that they are passed over.
	Required, Optional []Column
	Others             bool
	// Map names the file's column for a column of ours: {"zone": "trace"}.
	Map map[string]string
}

// ReadCSV reads rows one by one. Mistakes, and errors of each that are not a
// *FileError yet, are a *FileError with the line. A file without a header is an
// error, one without rows is not.
func ReadCSV(name string, r io.Reader, l Layout, each func(Row) error) error {
	bounded := document.NewRecords(r)
	in := csv.NewReader(bounded)
	in.ReuseRecord, in.TrimLeadingSpace, in.FieldsPerRecord = true, true, 0
	head, err := in.Read()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return &FileError{
				File: name, Reason: "empty file: expected a header with " + strings.Join(Names(l.Required), ","),
			}
		}
		return malformed(name, err)
	}
	head = slices.Clone(head)
	head[0] = strings.TrimPrefix(head[0], "\ufeff")
	at, err := l.columns(name, in, head)
	if err != nil {
		return err
	}
	for {
		bounded.Next()
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return malformed(name, err)
		}
		row := Row{file: name, fields: fields, at: at, in: in}
		if err := each(row); err != nil {
			var file *FileError
			if errors.As(err, &file) {
				return err
			}
			line, _ := in.FieldPos(0)
			return &FileError{File: name, Line: line, Reason: err.Error()}
		}
	}
}

// Names are the names of columns.
func Names(columns []Column) []string {
	out := make([]string, 0, len(columns))
	for _, c := range columns {
		out = append(out, c.Name)
	}
	return out
}

// columns finds where each column of ours is.
func (l Layout) columns(name string, in *csv.Reader, head []string) (map[string]int, error) {
	at := map[string]int{}
	ours := map[string]string{}
	all := Names(slices.Concat(l.Required, l.Optional))
	for _, c := range all {
		theirs := c
		if m, ok := l.Map[c]; ok {
			theirs = m
		}
		ours[theirs] = c
	}
	for _, c := range slices.Sorted(maps.Keys(l.Map)) {
		if !slices.Contains(all, c) {
			return nil, &FileError{
				File: name, Reason: fmt.Sprintf("no column %q to map; the columns are %s", c, strings.Join(all, ", ")),
			}
		}
	}
	for i, h := range head {
		_, column := in.FieldPos(i)
		c, known := ours[strings.TrimSpace(h)]
		switch {
		case !known && l.Others:
			continue
		case !known:
			return nil, &FileError{
				File: name, Line: 1, Column: column,
				Reason: fmt.Sprintf("unknown column %q; expected %s%s", h, strings.Join(all, ", "),
					document.DidYouMean(strings.TrimSpace(h), all)),
			}
		}
		if _, twice := at[c]; twice {
			return nil, &FileError{
				File: name, Line: 1, Column: column, Reason: fmt.Sprintf("column %q appears twice", h),
			}
		}
		at[c] = i
	}
	for _, c := range Names(l.Required) {
		if _, ok := at[c]; !ok {
			return nil, &FileError{File: name, Line: 1, Reason: fmt.Sprintf("column %q is missing", c)}
		}
	}
	return at, nil
}

// malformed gives a mistake of the CSV itself its place.
func malformed(name string, err error) error {
	var p *csv.ParseError
	if errors.As(err, &p) {
		return &FileError{File: name, Line: p.Line, Column: p.Column, Reason: p.Err.Error()}
	}
	return &FileError{File: name, Reason: "the file cannot be read", Err: err}
}

// Row is one line of a file. It is valid only until the next one is read.
type Row struct {
	file   string
	fields []string
	at     map[string]int
	in     *csv.Reader
}

// Text returns a field without the space around it; empty if there is none.
func (r Row) Text(column string) string {
	if i, ok := r.at[column]; ok {
		return strings.TrimSpace(r.fields[i])
	}
	return ""
}

// Line is where the row is, from 1.
func (r Row) Line() int {
	line, _ := r.in.FieldPos(0)
	return line
}

// Error returns an error about a field.
func (r Row) Error(column, format string, a ...any) error {
	e := &FileError{File: r.file, Line: r.Line(), Reason: fmt.Sprintf(format, a...)}
	if i, ok := r.at[column]; ok {
		e.Line, e.Column = r.in.FieldPos(i)
	}
	return e
}

// Name returns a field that must not be empty.
func (r Row) Name(column string) (string, error) {
	s := r.Text(column)
	if s == "" {
		return "", r.Error(column, "%s is empty", column)
	}
	return s, nil
}

// Float returns a number from lowest to highest.
func (r Row) Float(column string, lowest, highest float64) (float64, error) {
	v, err := strconv.ParseFloat(r.Text(column), 64)
	if err != nil || math.IsNaN(v) {
		return 0, r.Error(column, "%s %q is not a number", column, r.Text(column))
	}
	if v < lowest || v > highest {
		return 0, r.Error(column, "%s is %s: expected %v to %v", column, r.Text(column), lowest, highest)
	}
	return v, nil
}

// Int returns a whole number from lowest to highest.
func (r Row) Int(column string, lowest, highest int64) (int64, error) {
	v, err := strconv.ParseInt(r.Text(column), 10, 64)
	if err != nil {
		return 0, r.Error(column, "%s %q is not a whole number", column, r.Text(column))
	}
	if v < lowest || v > highest {
		return 0, r.Error(column, "%s is %d: expected %d to %d", column, v, lowest, highest)
	}
	return v, nil
}

// Amount returns dollars that are not negative, exact to the nano-dollar.
func (r Row) Amount(column string) (money.Amount, error) {
	v, err := money.ParseAmount(strings.TrimPrefix(r.Text(column), "$"))
	if err != nil {
		return 0, r.Error(column, "%s %q is not an amount of dollars", column, r.Text(column))
	}
	if v < 0 {
		return 0, r.Error(column, "%s is negative", column)
	}
	return v, nil
}
