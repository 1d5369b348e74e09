package runtime

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/curfew-dev/curfew/internal/plan"
)

// Input opens a file of a planner, and decompresses it if its name ends in .gz.
func (req *Request) Input(name string) (io.ReadCloser, error) {
	file, err := os.Open(req.Path(name))
	if err != nil {
		return nil, &Error{Class: Usage, Code: "invalid_file", Err: fmt.Errorf("read %s: %w", name, Cause(err))}
	}
	if !strings.HasSuffix(name, ".gz") {
		return file, nil
	}
	z, err := gzip.NewReader(file)
	if err != nil {
		return nil, &Error{
			Class: Usage, Code: "invalid_file", Err: errors.Join(fmt.Errorf("unpack %s: %w", name, err), file.Close()),
		}
	}
	return unpacked{z, file}, nil
}

// unpacked is a decompressed file with its source.
type unpacked struct {
	*gzip.Reader
	file *os.File
}

func (u unpacked) Close() error { return errors.Join(u.Reader.Close(), u.file.Close()) }

// PlanError classifies an error of a planner: a malformed file is the user's mistake.
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
func ReadPlan[T any](req *Request, name string, read func(string, io.Reader) (T, error)) (T, error) {
	in, err := req.Input(name)
	if err != nil {
		var none T
		return none, err
	}
	v, err := read(name, in)
	return v, PlanError(errors.Join(err, in.Close()))
}

// Env returns an environment variable; empty if it is unset.
func (req *Request) Env(name string) string {
	v, _ := req.Lookup(name)
	return v
}

// OpenFile opens a file that a flag or the environment names.
func (req *Request) OpenFile(what, name string) (*os.File, error) {
	f, err := os.Open(req.Path(name))
	if err != nil {
		return nil, &Error{
			Class: Usage, Code: "invalid_file", Err: fmt.Errorf("read %s %s: %w", what, name, Cause(err)),
		}
	}
	return f, nil
}

// Given parses a text if there is one, otherwise the file.
func Given[T any](req *Request, name, text string, read func(string, io.Reader) (T, error)) (T, error) {
	if text == "" {
		return ReadPlan(req, name, read)
	}
	v, err := read(name, strings.NewReader(text))
	return v, PlanError(err)
}

// Cause returns the reason of a path error without the path, which the message contains already.
func Cause(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// HostName returns the name of this machine, which is the account of its local sessions.
func HostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}
