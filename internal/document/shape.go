package document

import (
	"errors"
	"math"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Type is the type of a value, as JSON Schema names it.
type Type string

// The types. A Decimal is a number, or a text that holds one: an amount of dollars.
const (
	Object  Type = "object"
	Array   Type = "array"
	String  Type = "string"
	Integer Type = "integer"
	Number  Type = "number"
	Boolean Type = "boolean"
	Decimal Type = "decimal"
)

// Shape is the set of values that a reader accepts at one place of a file. The reader itself says
// it: see [Describe].
type Shape struct {
	Type Type
	// Doc explains the value.
	Doc string
	// Keys are those of a mapping, Values the shape of the values of all other keys; nil
	// where there are no others.
	Keys   []KeyShape
	Values *Shape
	// KeyNames are all other keys there can be; nil for any.
	KeyNames []string
	// Items is the shape of the items of a list; OrList says that a value may be a list of
	// what the shape says.
	Items  *Shape
	OrList bool
	// Enum are all values; nil for any. Pattern is a regular expression that texts match.
	Enum    []string
	Pattern string
	// Least and Most bound a whole number, and LeastItems the characters, keys or items;
	// Most 0 is no bound.
	Least, Most, LeastItems int
	// Over is true if a number is more than zero.
	Over bool
	// Default is the value of a key that is not given, empty where there is none.
	Default string
	// Forms are the forms of a value that has several.
	Forms []*Shape
}

// KeyShape is one key of a mapping.
type KeyShape struct {
	Name     string
	Required bool
	*Shape
}

// Schemas is where the JSON Schemas of this project's files are published.
const Schemas = "https://raw.githubusercontent.com/curfew-dev/curfew/main/schemas/"

// SchemaLine is the comment by which editors find the schema of a file.
func SchemaLine(schema string) string {
	return "# yaml-language-server: $schema=" + Schemas + schema + "\n"
}

// DecimalPattern is the form of an amount of dollars in a text.
const DecimalPattern = `^[0-9]+(\.[0-9]+)?$`

// probe stands in for a value while a reader is described: what is read from it is
// written down.
type probe struct {
	*ast.NullNode
	shape *Shape
}

// errDescribed ends the reading of a probe.
var errDescribed = errors.New("a probe holds no value")

// Describe returns the shape that a reader accepts. It calls the reader with a value of
// no content, and the functions of this package write down what they are asked to read
// from it: the same calls that read a file. Each of them ends with an error, so that a
// reader goes no further with a value that is not there.
func Describe(read func(ast.Node) error) *Shape {
	p := &probe{NullNode: ast.Null(token.New("", "", &token.Position{})), shape: &Shape{}}
	_ = read(p)
	return p.shape
}

// Note adds what a reader checks of a value by itself to its shape. It does nothing
// while a file is read.
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

// described writes down the type of a probe; false where n is a value of a file.
func described(n ast.Node, t Type) (*Shape, bool) {
	p, ok := n.(*probe)
	if !ok {
		return nil, false
	}
	p.shape.Type = t
	return p.shape, true
}

// describeKeys writes down the keys of a mapping.
func describeKeys(s *Shape, keys []Key) {
	for _, k := range keys {
		shape := Describe(k.read)
		shape.Doc = k.doc
		s.Keys = append(s.Keys, KeyShape{k.Name, k.required, shape})
	}
}

// describeCount writes down the bounds of a whole number.
func describeCount(s *Shape, least, most int) {
	s.Least, s.Most = least, most
	if most == math.MaxInt32 {
		s.Most = 0
	}
}

// Form is one of the forms that a value can have, and what reads it.
type Form struct {
	shape Shape
	is    func(ast.Node) bool
	read  func(ast.Node) error
}

// IfMapping is the form of a mapping.
func IfMapping(read func(ast.Node) error) Form {
	return Form{is: func(n ast.Node) bool { _, ok := n.(*ast.MappingNode); return ok }, read: read}
}

// IfInteger is the form of a whole number.
func IfInteger(read func(ast.Node) error) Form {
	return Form{shape: Shape{Type: Integer}, is: func(n ast.Node) bool {
		_, ok := n.(*ast.IntegerNode)
		return ok
	}, read: read}
}

// IfText is the form of a text.
func IfText(read func(ast.Node) error) Form {
	return Form{is: func(n ast.Node) bool { _, ok := n.(*ast.StringNode); return ok }, read: read}
}

// IfWord is the form of one word with a meaning of its own.
func IfWord(word string, read func(ast.Node) error) Form {
	return Form{shape: Shape{Type: String, Enum: []string{word}}, is: func(n ast.Node) bool {
		s, ok := n.(*ast.StringNode)
		return ok && s.Value == word
	}, read: read}
}

// IfKey is the form of a mapping that has a key.
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

// Otherwise is the form of every value that has none of the forms before it.
func Otherwise(read func(ast.Node) error) Form {
	return Form{is: func(ast.Node) bool { return true }, read: read}
}

// Forms reads a value by the first of its forms that it has. A value that has none is
// read as the last one, whose reader says what is wrong with it.
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
