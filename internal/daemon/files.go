package daemon

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/curfew-dev/curfew/internal/plan"
)

// Input opens a file of a planner, and unpacks it where its name ends in .gz.
func (rt *Runtime) Input(name string) (io.ReadCloser, error) {
	file, err := os.Open(rt.Path(name))
	if err != nil {
		return nil, &Error{Class: Usage, Code: "invalid_file", Err: fmt.Errorf("read %s: %w", name, Cause(err))}
	}
	if !strings.HasSuffix(name, ".gz") {
		return file, nil
	}
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, &Error{Class: Usage, Code: "invalid_file", Err: errors.Join(fmt.Errorf("unpack %s: %w", name, err), file.Close())}
	}
	return unpacked{z, file}, nil
}

// unpacked is a compressed file and what it is read from.
type unpacked struct {
	*gzip.Reader
	file *os.File
}

func (u unpacked) Close() error { return errors.Join(u.Reader.Close(), u.file.Close()) }

// PlanError says whose mistake an error of a planner is: a malformed file is the user's.
func PlanError(err error) error {
	if err == nil {
		return nil
	}
	var file *plan.FileError
	if errors.As(err, &file) {
		return &Error{Class: Usage, Code: "invalid_file", Err: err}
	}
	return &Error{Code: "error", Err: err}
}

// ReadPlan reads one file of a planner.
func ReadPlan[T any](rt *Runtime, name string, read func(string, io.Reader) (T, error)) (T, error) {
	in, err := rt.Input(name)
	if err != nil {
		var none T
		return none, err
	}
	v, err := read(name, in)
	return v, PlanError(errors.Join(err, in.Close()))
}

// env returns a variable of the environment, empty where it is not set.
func (rt *Runtime) env(name string) string {
	v, _ := rt.Lookup(name)
	return v
}

// openFile opens a file that a flag or the environment names.
func (rt *Runtime) openFile(what, name string) (*os.File, error) {
	f, err := os.Open(rt.Path(name))
	if err != nil {
		return nil, &Error{Class: Usage, Code: "invalid_file", Err: fmt.Errorf("read %s %s: %w", what, name, Cause(err))}
	}
	return f, nil
}
