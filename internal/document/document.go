// Package document reads YAML and JSON files strictly and within bounds. A file that is
// too long, too deep or too large is refused before it is parsed, and every mistake is an
// *Error with its line and column.
package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxBytes bounds a YAML file, in bytes. A longer one is not written by a person.
const MaxBytes = 1 << 20

// maxMessage bounds the length of a mistake's quotation, in bytes.
const maxMessage = 1_000

// Error is a mistake in a file.
type Error struct {
	// File is the name of the file.
	File string
	// Line and Column of the mistake are 1-based, the column in characters. Line 0 means that the
	// mistake has no position.
	Line, Column int
	Message      string
}

// Error returns "job.yaml:7:11: message".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// Errors are several mistakes in order. Error returns the first one and the number of the others.
type Errors []*Error

// Error implements error.
func (e Errors) Error() string {
	switch len(e) {
	case 1:
		return e[0].Error()
	case 2:
		return e[0].Error() + " (and 1 more mistake)"
	}
	return fmt.Sprintf("%s (and %d more mistakes)", e[0].Error(), len(e)-1)
}

// Unwrap returns the mistakes.
func (e Errors) Unwrap() []error {
	out := make([]error, len(e))
	for i, one := range e {
		out[i] = one
	}
	return out
}

// Join returns all mistakes of some errors as Errors, or as an *Error if there is one; nil if all
// are nil. An error that is not a mistake in a file is returned alone.
func Join(errs ...error) error {
	var all Errors
	for _, err := range errs {
		if other := all.add(err); other != nil {
			return other
		}
	}
	return all.whole()
}

// add adds the mistakes of an error; it returns the error if it has none.
func (e *Errors) add(err error) error {
	var several Errors
	var one *Error
	switch {
	case err == nil:
	case errors.As(err, &several):
		*e = append(*e, several...)
	case errors.As(err, &one):
		*e = append(*e, one)
	default:
		return err
	}
	return nil
}

func (e Errors) whole() error {
	switch len(e) {
	case 0:
		return nil
	case 1:
		return e[0]
	}
	return e
}

// Read reads at most limit bytes from r; name is the file's. Errors are an *Error. An endless
// input, such as /dev/zero, is refused at the limit.
func Read(name string, r io.Reader, limit int64) ([]byte, error) {
	src, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		var file *fs.PathError
		if errors.As(err, &file) {
			err = file.Err
		}
		return nil, &Error{File: name, Message: "read the file: " + err.Error()}
	}
	return src, checkSize(name, src, limit)
}

func checkSize(name string, src []byte, limit int64) error {
	if int64(len(src)) > limit {
		return &Error{File: name, Line: 1, Column: 1, Message: fmt.Sprintf("the file is over %d MiB", limit>>20)}
	}
	return nil
}

// File is a YAML file. The zero value reads nodes of an unknown file; [File.Decode] adds the name
// to their errors.
type File struct {
	// Name is the file's name, for errors.
	Name string
	// Source is the text of the file.
	Source []byte
	// Bodies are its non-empty documents.
	Bodies []ast.Node
	// EveryMistake continues reading mappings and lists after a mistake and returns all mistakes as
	// Errors; otherwise reading stops at the first.
	EveryMistake bool

	targets map[*ast.AliasNode]ast.Node
	values  int
}

// Parse parses a file of at most MaxBytes within the bounds of this package. It refuses
// anchors and aliases. Errors are an *Error.
func Parse(name string, src []byte) (*File, error) { return parse(name, src, false) }

// ParseForeign is like Parse for files of other programs: it allows anchors and aliases if the
// expanded values stay within bounds.
func ParseForeign(name string, src []byte) (*File, error) { return parse(name, src, true) }

func parse(name string, src []byte, aliases bool) (*File, error) {
	f := &File{Name: name, Source: src, targets: map[*ast.AliasNode]ast.Node{}}
	if err := checkSize(name, src, MaxBytes); err != nil {
		return nil, err
	}
	if !utf8.Valid(src) {
		return nil, f.At(nil, "the file is not UTF-8 text")
	}
	documents, err := f.scan(aliases)
	if err != nil {
		return nil, err
	}
	for _, tokens := range documents {
		if len(tokens) == 0 {
			continue
		}
		parsed, err := parser.Parse(tokens, 0)
		if err != nil {
			return nil, f.Placed(err)
		}
		for _, doc := range parsed.Docs {
			if doc.Body == nil || doc.Body.Type() == ast.NullType {
				continue
			}
			if err := f.expand(doc.Body); err != nil {
				return nil, err
			}
			f.Bodies = append(f.Bodies, doc.Body)
		}
	}
	return f, nil
}

// Body returns the only document of a file. An empty file and a second document are an
// *Error.
func (f *File) Body() (ast.Node, error) {
	switch len(f.Bodies) {
	case 0:
		return nil, f.At(nil, "the file is empty")
	case 1:
		return f.Bodies[0], nil
	}
	return nil, f.At(f.Bodies[1], "a second document: one file holds one")
}

// At returns a mistake at a node; nil means the start of the file.
func (f *File) At(n ast.Node, format string, args ...any) *Error {
	return f.atToken(startToken(n), format, args...)
}

func (f *File) atToken(t *token.Token, format string, args ...any) *Error {
	e := &Error{File: f.Name, Line: 1, Column: 1, Message: fmt.Sprintf(format, args...)}
	if t != nil && t.Position != nil {
		e.Line, e.Column = t.Position.Line, t.Position.Column
	}
	if len(e.Message) > maxMessage {
		e.Message = strings.ToValidUTF8(e.Message[:maxMessage], "") + "…"
	}
	return e
}

// startToken returns the first token of a node.
func startToken(n ast.Node) *token.Token {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return startToken(n.Values[0].Key)
		}
		return n.Start
	}
	return n.GetToken()
}

// Placed converts an error of reading the file to an *Error: one line of text, with the file's name
// and the position if the error has one.
func (f *File) Placed(err error) *Error {
	var placed *Error
	if errors.As(err, &placed) {
		out := *placed
		out.File = f.Name
		return &out
	}
	var broken yaml.Error
	if errors.As(err, &broken) {
		return f.atToken(broken.GetToken(), "%s", oneLine(broken.GetMessage()))
	}
	return f.At(nil, "%s", oneLine(err.Error()))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Decode decodes a node strictly into the struct that v points to, by its yaml tags. Types with
// UnmarshalYAML(ast.Node) decode themselves; their mistakes keep their positions. Errors are an
// *Error.
func (f *File) Decode(n ast.Node, v any, options ...yaml.DecodeOption) error {
	err := yaml.NodeToValue(n, v, append(options, yaml.Strict())...)
	if err == nil {
		return nil
	}
	placed := f.Placed(err)
	var unknown *yaml.UnknownFieldError
	if errors.As(err, &unknown) && unknown.Token != nil {
		placed.Message += DidYouMean(unknown.Token.Value, fieldNames(v))
	}
	return placed
}

// Value returns a value of a document by its path ("aws.regions", "machines[0].gpus"), or nil if it
// is absent.
func Value(n ast.Node, path string) ast.Node {
	p, err := yaml.PathString("$." + path)
	if err != nil || n == nil {
		return nil
	}
	found, err := p.FilterNode(n)
	if err != nil {
		return nil
	}
	return found
}
