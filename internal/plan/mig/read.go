package mig

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	files "github.com/curfew-dev/curfew/internal/plan"
	planfile "github.com/curfew-dev/curfew/internal/plan"
)

// FileError is a file that cannot be read as workloads or placements.
type FileError = planfile.FileError

// maxFile bounds what is read, in bytes.
const maxFile = 16 << 20

// file is what was read, for errors.
type file struct {
	name string
	data []byte
}

func readFile(name string, r io.Reader) (file, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	f := file{name: name, data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))}
	switch {
	case err != nil:
		return f, &FileError{File: name, Reason: "the file cannot be read", Err: err}
	case len(data) > maxFile:
		return f, f.fail(0, 0, "the file is over %d MiB", maxFile>>20)
	case len(bytes.TrimSpace(f.data)) == 0:
		return f, f.fail(0, 0, "the file is empty")
	}
	return f, nil
}

func (f file) fail(line, column int, format string, args ...any) *FileError {
	return &FileError{File: f.name, Line: line, Column: column, Reason: fmt.Sprintf(format, args...)}
}

// table reads CSV with named columns.
type table struct {
	file
	r   *csv.Reader
	at  map[string]int
	row []string
}

// table reads the header.
func (f file) table(l files.Layout) (*table, error) {
	needed, optional := files.Names(l.Required), files.Names(l.Optional)
	t := &table{file: f, r: csv.NewReader(bytes.NewReader(f.data)), at: map[string]int{}}
	if err := t.next(); err != nil {
		return nil, err
	}
	for i, name := range t.row {
		line, column := t.r.FieldPos(i)
		name = strings.TrimSpace(name)
		_, twice := t.at[name]
		switch {
		case twice:
			return nil, t.fail(line, column, "column %.60q appears twice", name)
		case !slices.Contains(needed, name) && !slices.Contains(optional, name):
			return nil, t.fail(line, column, "unknown column %.60q; the columns are %s", name, strings.Join(append(slices.Clone(needed), optional...), ","))
		}
		t.at[name] = i
	}
	for _, name := range needed {
		if _, ok := t.at[name]; !ok {
			line, _ := t.r.FieldPos(0)
			return nil, t.fail(line, 0, "column %s is missing; the columns are %s", name, strings.Join(needed, ","))
		}
	}
	return t, nil
}

// next reads a row; io.EOF ends the table.
func (t *table) next() error {
	row, err := t.r.Read()
	var pe *csv.ParseError
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		line, _ := t.r.FieldPos(0)
		return t.fail(line, 0, "the row has %d fields: expected %d", len(row), t.r.FieldsPerRecord)
	case errors.As(err, &pe):
		return t.fail(pe.Line, pe.Column, "%s", pe.Err)
	}
	t.row = row
	return err
}

// text returns a field without the spaces around it; empty where the column is not.
func (t *table) text(column string) string {
	i, ok := t.at[column]
	if !ok {
		return ""
	}
	return strings.TrimSpace(t.row[i])
}

// wrong returns an error at a field.
func (t *table) wrong(column, format string, args ...any) error {
	line, at := t.r.FieldPos(t.at[column])
	return t.fail(line, at, "%s "+format, append([]any{column}, args...)...)
}

// whole reads a whole number between two bounds.
func (t *table) whole(column string, least, most int) (int, error) {
	n, err := strconv.Atoi(t.text(column))
	if err != nil || n < least || n > most {
		return 0, t.wrong(column, "%.40q is not a whole number from %d to %d", t.text(column), least, most)
	}
	return n, nil
}

// WorkloadsFile is a file of workloads for slices of GPUs.
var WorkloadsFile = files.Layout{
	Required: []files.Column{
		{Name: "name", Doc: "name of the workload"},
		{Name: "memory_gib", Doc: "GPU memory that one instance needs, in GiB"},
		{Name: "compute_slices", Doc: "compute slices that it needs, at least 1"},
		{Name: "count", Doc: "number of instances"},
	},
}

// ReadWorkloads reads CSV with the columns name, memory_gib, compute_slices and
// count, in any order and no others. A name that is there twice, memory that is not
// over 0 and slices under 1 are errors. Errors are a *FileError with the place; the
// name is the file's, for them.
func ReadWorkloads(name string, r io.Reader) ([]Workload, error) {
	f, err := readFile(name, r)
	if err != nil {
		return nil, err
	}
	t, err := f.table(WorkloadsFile)
	if err != nil {
		return nil, err
	}
	var out []Workload
	lines := map[string]int{}
	total := 0
	for {
		if err := t.next(); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, err
		}
		w, err := t.workload()
		if err != nil {
			return nil, err
		}
		if first := lines[w.Name]; first > 0 {
			return nil, t.wrong("name", "%.60q appears twice, first in line %d", w.Name, first)
		}
		lines[w.Name], _ = t.r.FieldPos(0)
		if total += w.Count; total > maxUnits {
			return nil, t.wrong("count", "brings the number of workloads above %d", maxUnits)
		}
		out = append(out, w)
	}
}

func (t *table) workload() (Workload, error) {
	w := Workload{Name: t.text("name")}
	if err := checkName(w.Name); err != nil {
		return w, t.wrong("name", "%s", err)
	}
	var err error
	if w.MemoryGiB, err = strconv.ParseFloat(t.text("memory_gib"), 64); err != nil {
		return w, t.wrong("memory_gib", "%.40q is not a number", t.text("memory_gib"))
	}
	if !(w.MemoryGiB > 0) || w.MemoryGiB > maxGiB {
		return w, t.wrong("memory_gib", "%.40q: expected over 0 and at most %d", t.text("memory_gib"), maxGiB)
	}
	if w.ComputeSlices, err = t.whole("compute_slices", 1, math.MaxInt16); err != nil {
		return w, err
	}
	w.Count, err = t.whole("count", 0, maxUnits)
	return w, err
}
