package document

import (
	"errors"
	"math"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Type is the type of a value, as JSON Schema names it.
type Type string

// The types. A Decimal is a number or a text with one, such as an amount of dollars.
const (
	Object  Type = "object"
	Array   Type = "array"
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	Decimal Type = "decimal"
)

// Shape describes the values that a reader accepts at one place of a file. It is derived from the
// reader itself, see [Describe].
type Shape struct {
	Type Type
	// Doc explains the value.
	Doc string
	// Keys are the keys of a mapping, Values the shape of the values of all other keys; nil if
	// there are no others.
	Keys   []KeyShape
	Values *Shape
	// KeyNames are all allowed other keys; nil for any.
	KeyNames []string
	// Items is the shape of the items of a list; OrList allows a list of such values instead of
	// one.
	Items  *Shape
	OrList bool
	// Enum lists all values; nil for any. Pattern is a regular expression for texts.
	Enum    []string
	Pattern string
	// Least and Most bound an integer, LeastItems is the minimum number of characters, keys or
	// items; a Most of 0 is unbounded.
	Least, Most, LeastItems int
	// Over is true if a number must be positive.
	Over bool
	// Default is the value of an omitted key; empty if there is none.
	Default string
	// Forms are the alternatives of a value with several forms.
	Forms []*Shape
}

// KeyShape is one key of a mapping.
type KeyShape struct {
	Name     string
	Required bool
	*Shape
}

// Schemas is the URL prefix of the published JSON Schemas.
const Schemas = "https://raw.githubusercontent.com/curfew-dev/curfew/main/schemas/"

// SchemaLine returns the comment by which editors find the schema of a file.
func SchemaLine(schema string) string {
	return "# yaml-language-server: $schema=" + Schemas + schema + "\n"
}

// DecimalPattern matches an amount of dollars in a text.
const DecimalPattern = `^[0-9]+(\.[0-9]+)?$`

// probe replaces a value while a reader is described: the requested types are recorded in it.
type probe struct {
	*ast.NullNode
	shape *Shape
}

// errDescribed ends the reading of a probe.
var errDescribed = errors.New("a probe holds no value")

// Describe returns the shape that a reader accepts. It calls the reader with a probe, and the
// functions of this package record what the reader requests from it: the same calls that read a
// file. Each of them returns an error, so that a reader does not use a missing value.
func Describe(read func(ast.Node) error) *Shape {
	p := &probe{NullNode: ast.Null(token.New("", "", &token.Position{})), shape: &Shape{}}
	_ = read(p)
	return p.shape
}

// Note adds a reader's own checks of a value to its shape. It does nothing while a file is read.
func Note(n ast.Node, s Shape) {
	p, ok := n.(*probe)
	if !ok {
		return
	}
	to := p.shape
	if s.Type != "" {
		to.Type = s.Type
	}
	if s.Enum != nil {
		to.Enum = s.Enum
	}
	if s.Pattern != "" {
		to.Pattern = s.Pattern
	}
	if s.Default != "" {
		to.Default = s.Default
	}
	to.Over = to.Over || s.Over
	to.LeastItems = max(to.LeastItems, s.LeastItems)
}

// described records the type of a probe; it returns false if n is a value of a file.
func described(n ast.Node, t Type) (*Shape, bool) {
	p, ok := n.(*probe)
	if !ok {
		return nil, false
	}
	p.shape.Type = t
	return p.shape, true
}

// describeKeys records the keys of a mapping.
func describeKeys(s *Shape, keys []Key) {
	for _, k := range keys {
		shape := Describe(k.read)
		shape.Doc = k.doc
		s.Keys = append(s.Keys, KeyShape{k.Name, k.required, shape})
	}
}

// describeCount records the bounds of an integer.
func describeCount(s *Shape, least, most int) {
	s.Least, s.Most = least, most
	if most == math.MaxInt32 {
		s.Most = 0
	}
}

// Form is one form of a value with its reader.
type Form struct {
	shape Shape
	is    func(ast.Node) bool
	read  func(ast.Node) error
}

// IfMapping returns the form of a mapping.
func IfMapping(read func(ast.Node) error) Form {
	return Form{is: func(n ast.Node) bool { _, ok := n.(*ast.MappingNode); return ok }, read: read}
}

// IfInteger returns the form of an integer.
func IfInteger(read func(ast.Node) error) Form {
	return Form{shape: Shape{Type: Integer}, is: func(n ast.Node) bool {
		_, ok := n.(*ast.IntegerNode)
		return ok
	}, read: read}
}

// IfText returns the form of a text.
func IfText(read func(ast.Node) error) Form {
	return Form{is: func(n ast.Node) bool { _, ok := n.(*ast.StringNode); return ok }, read: read}
}

// IfWord returns the form of one reserved word.
func IfWord(word string, read func(ast.Node) error) Form {
	return Form{shape: Shape{Type: String, Enum: []string{word}}, is: func(n ast.Node) bool {
		s, ok := n.(*ast.StringNode)
		return ok && s.Value == word
	}, read: read}
}

// IfKey returns the form of a mapping with a key.
func IfKey(key string, read func(ast.Node) error) Form {
	return Form{is: func(n ast.Node) bool {
		mapping, ok := n.(*ast.MappingNode)
		for i := 0; ok && i < len(mapping.Values); i++ {
			if k, isText := mapping.Values[i].Key.(*ast.StringNode); isText && k.Value == key {
				return true
			}
		}
		return false
	}, read: read}
}

// Otherwise returns the form of every other value.
func Otherwise(read func(ast.Node) error) Form {
	return Form{is: func(ast.Node) bool { return true }, read: read}
}

// Forms reads a value by its first matching form. A value without a match is read as the last one,
// whose reader reports the mistake.
func Forms(n ast.Node, forms ...Form) error {
	if p, ok := n.(*probe); ok {
		for _, f := range forms {
			s := Describe(f.read)
			if f.shape.Type != "" {
				s = &f.shape
			}
			p.shape.Forms = append(p.shape.Forms, s)
		}
		return errDescribed
	}
	for _, f := range forms {
		if f.is(n) {
			return f.read(n)
		}
	}
	return forms[len(forms)-1].read(n)
}
