package mig

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"

	files "github.com/curfew-dev/curfew/internal/plan"
)

// FileError is a file that cannot be read as workloads or placements.
type FileError = files.FileError

// maxFile bounds what is read, in bytes.
const maxFile = 16 << 20

// file is the input file, for errors.
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
		return f, f.fail(0, "the file is over %d MiB", maxFile>>20)
	case len(bytes.TrimSpace(f.data)) == 0:
		return f, f.fail(0, "the file is empty")
	}
	return f, nil
}

func (f file) fail(line int, format string, args ...any) *FileError {
	return &FileError{File: f.name, Line: line, Reason: fmt.Sprintf(format, args...)}
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
	var out []Workload
	lines := map[string]int{}
	total := 0
	err = files.ReadCSV(name, bytes.NewReader(f.data), WorkloadsFile, func(row files.Row) error {
		w, err := workloadOf(row)
		if err != nil {
			return err
		}
		if first := lines[w.Name]; first > 0 {
			return row.Error("name", "name %.60q appears twice, first in line %d", w.Name, first)
		}
		lines[w.Name] = row.Line()
		if total += w.Count; total > maxUnits {
			return row.Error("count", "count brings the number of workloads above %d", maxUnits)
		}
		out = append(out, w)
		return nil
	})
	return out, err
}

func workloadOf(row files.Row) (Workload, error) {
	w := Workload{Name: strings.Clone(row.Text("name"))}
	if err := checkName(w.Name); err != nil {
		return w, row.Error("name", "name %s", err)
	}
	var err error
	if w.MemoryGiB, err = row.Float("memory_gib", 0, maxGiB); err != nil {
		return w, err
	}
	if w.MemoryGiB == 0 {
		return w, row.Error("memory_gib", "memory_gib is 0: expected over 0 and at most %d", maxGiB)
	}
	slices, err := row.Int("compute_slices", 1, math.MaxInt16)
	if err != nil {
		return w, err
	}
	count, err := row.Int("count", 0, maxUnits)
	w.ComputeSlices, w.Count = int(slices), int(count)
	return w, err
}
