package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document is a YAML file that is being read strictly.
type document struct {
	file string
	src  []byte
}

// openDocument parses a file of exactly one document, which is a mapping.
func openDocument(name string, src []byte) (*document, ast.Node, error) {
	d := &document{file: name, src: src}
	if !utf8.Valid(src) {
		return nil, nil, d.at(nil, "the file is not UTF-8 text")
	}
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return nil, nil, d.syntax(err)
	}
	var body ast.Node
	for i, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.NullType:
		case body == nil && i == 0:
			body = doc.Body
		default:
			return nil, nil, d.at(doc.Body, "a second document: one file holds one")
		}
	}
	if body == nil {
		return nil, nil, d.at(nil, "the file is empty")
	}
	return d, body, nil
}

// syntax gives a YAML error its place.
func (d *document) syntax(err error) *Error {
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil {
		p := ye.GetToken().Position
		return &Error{File: d.file, Line: p.Line, Column: p.Column, Message: oneLine(ye.GetMessage())}
	}
	return d.at(nil, "%s", oneLine(err.Error()))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// at is a mistake at a node; nil is the file's beginning.
func (d *document) at(n ast.Node, format string, args ...any) *Error {
	line, column := 1, 1
	if t := startToken(n); t != nil {
		line, column = t.Position.Line, t.Position.Column
	}
	return &Error{File: d.file, Line: line, Column: column, Message: fmt.Sprintf(format, args...)}
}

// startToken is the first token of a node.
func startToken(n ast.Node) *token.Token {
	switch n := n.(type) {
	case nil:
		return nil
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return startToken(n.Values[0].Key)
		}
		return n.Start
	case *ast.MappingValueNode:
		return startToken(n.Key)
	}
	return n.GetToken()
}

// entry is a key that a mapping may have.
type entry struct {
	name     string
	required bool
	read     func(ast.Node) error
}

// mapping reads a mapping whose keys are the entries; what names it for people. It
// returns which keys were given.
func (d *document) mapping(n ast.Node, what string, entries ...entry) (given map[string]ast.Node, err error) {
	given = map[string]ast.Node{}
	err = d.pairs(n, what, func(key string, k, v ast.Node) error {
		i := slices.IndexFunc(entries, func(e entry) bool { return e.name == key })
		if i < 0 {
			var names []string
			for _, e := range entries {
				names = append(names, e.name)
			}
			return d.at(k, "%s has no key %q; it has %s", what, key, strings.Join(names, ", "))
		}
		given[key] = k
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, ok := given[e.name]; e.required && !ok {
			return nil, d.at(n, "%s needs %s", what, e.name)
		}
	}
	return given, d.pairs(n, what, func(key string, _, v ast.Node) error {
		return entries[slices.IndexFunc(entries, func(e entry) bool { return e.name == key })].read(v)
	})
}

// pairs visits the keys and values of a mapping.
func (d *document) pairs(n ast.Node, what string, visit func(key string, k, v ast.Node) error) error {
	var values []*ast.MappingValueNode
	switch m := n.(type) {
	case *ast.MappingNode:
		values = m.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{m}
	default:
		return d.at(n, "%s has keys; this is %s", what, nodeName(n))
	}
	seen := map[string]bool{}
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			return d.at(v.Key, "%s: a key is a plain word; this is %s", what, nodeName(v.Key))
		}
		if seen[key.Value] {
			return d.at(key, "%s: the key %q is given twice", what, key.Value)
		}
		seen[key.Value] = true
		if v.Value == nil || v.Value.Type() == ast.NullType {
			return d.at(key, "%s: %s has no value", what, key.Value)
		}
		if isGlued(key, v) {
			return d.at(key, "%s: %s: has no space after the colon; a key with a colon inside is written in quotes", what, key.Value)
		}
		if err := visit(key.Value, key, v.Value); err != nil {
			return err
		}
	}
	return nil
}

// isGlued says whether a value follows the colon of a plain key without a space. YAML
// takes the colon for a part of the key then; the parser takes it for its end, and would
// read {curfew:managed: x} as a key curfew.
func isGlued(key *ast.StringNode, v *ast.MappingValueNode) bool {
	colon, value := v.Start, startToken(v.Value)
	return key.Token.Type == token.StringType && value != nil && colon.Position.Line == value.Position.Line &&
		value.Position.Column == colon.Position.Column+1
}

// items visits the items of a list.
func (d *document) items(n ast.Node, what string, visit func(ast.Node) error) error {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return d.at(n, "%s is a list; this is %s", what, nodeName(n))
	}
	for _, item := range list.Values {
		if err := visit(item); err != nil {
			return err
		}
	}
	return nil
}

// text reads a text that is not empty.
func (d *document) text(n ast.Node, what string) (string, error) {
	s := ""
	switch n := n.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", d.at(n, "%s is a text; write %q in quotes", what, n.GetToken().Value)
	default:
		return "", d.at(n, "%s is a text; this is %s", what, nodeName(n))
	}
	if strings.TrimSpace(s) == "" {
		return "", d.at(n, "%s is empty", what)
	}
	return s, nil
}

// texts reads a text or a list of them. check says what is wrong with one; nil accepts
// all.
func (d *document) texts(n ast.Node, what string, check func(string) error) ([]string, error) {
	items := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		items = list.Values
	}
	if len(items) == 0 {
		return nil, d.at(n, "%s is an empty list", what)
	}
	var out []string
	for _, item := range items {
		s, err := d.text(item, what)
		if err != nil {
			return nil, err
		}
		if slices.Contains(out, s) {
			return nil, d.at(item, "%s: %q is given twice", what, s)
		}
		if check != nil {
			if err := check(s); err != nil {
				return nil, d.at(item, "%s", err)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// flag reads true or false.
func (d *document) flag(n ast.Node, what string) (bool, error) {
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return false, d.at(n, "%s is true or false; this is %s", what, nodeName(n))
	}
	return b.Value, nil
}

// scalar returns a scalar as it is written, for numbers that are no floats of YAML.
func scalar(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value
	}
	return ""
}

// nodeName says what a node is.
func nodeName(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a text"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or an alias, which are not supported"
	case *ast.TagNode:
		return "a YAML tag, which is not supported"
	}
	return "nothing"
}
