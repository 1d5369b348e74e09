package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// document is a YAML file that is being read.
type document struct{ file string }

// maxFile bounds a file, in bytes. A longer one is not written by a person.
const maxFile = 1 << 20

// open parses a file and returns its documents that are not empty.
func (d *document) open(src []byte) ([]ast.Node, error) {
	switch {
	case len(src) > maxFile:
		return nil, d.at(nil, "the file is over %d MiB", maxFile>>20)
	case !utf8.Valid(src):
		return nil, d.at(nil, "the file is not UTF-8 text")
	}
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		var ye yaml.Error
		if errors.As(err, &ye) && ye.GetToken() != nil {
			p := ye.GetToken().Position
			return nil, &Error{File: d.file, Line: p.Line, Column: p.Column, Message: oneLine(ye.GetMessage())}
		}
		return nil, d.at(nil, "%s", oneLine(err.Error()))
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.NullType && doc.Body.Type() != ast.CommentType && doc.Body.Type() != ast.CommentGroupType {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) == 0 {
		return nil, d.at(nil, "the file is empty")
	}
	return bodies, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// at is a mistake at a node; nil is the file's beginning.
func (d *document) at(n ast.Node, format string, args ...any) *Error {
	line, column := 1, 1
	if t := startToken(n); t != nil && t.Position != nil {
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
	values := map[string]ast.Node{}
	err = d.pairs(n, what, func(key string, k, v ast.Node) error {
		if !slices.ContainsFunc(entries, func(e entry) bool { return e.name == key }) {
			var names []string
			for _, e := range entries {
				names = append(names, e.name)
			}
			return d.at(k, "%s has no key %q; it has %s", what, key, strings.Join(names, ", "))
		}
		given[key], values[key] = k, v
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		v, ok := values[e.name]
		switch {
		case ok:
			err = e.read(v)
		case e.required:
			err = d.at(n, "%s needs %s", what, e.name)
		}
		if err != nil {
			return nil, err
		}
	}
	return given, nil
}

// pairs visits the keys and values of a mapping. The parser refuses repeated keys.
func (d *document) pairs(n ast.Node, what string, visit func(key string, k, v ast.Node) error) error {
	values, ok := mappingValues(n)
	if !ok {
		return d.at(n, "%s has keys; this is %s", what, nodeName(n))
	}
	for _, v := range values {
		key, ok := v.Key.(*ast.StringNode)
		if !ok {
			return d.at(v.Key, "%s: a key is a plain word; this is %s", what, nodeName(v.Key))
		}
		if v.Value == nil || v.Value.Type() == ast.NullType {
			return d.at(key, "%s: %s has no value", what, key.Value)
		}
		if isGlued(key, v) {
			return d.at(key, "%s: %s: has no space after the colon", what, key.Value)
		}
		if err := visit(key.Value, key, v.Value); err != nil {
			return err
		}
	}
	return nil
}

func mappingValues(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}, true
	}
	return nil, false
}

// isGlued says whether a value follows the colon of a plain key without a space, which
// YAML takes for a part of the key and the parser for its end.
func isGlued(key *ast.StringNode, v *ast.MappingValueNode) bool {
	colon, value := v.Start, startToken(v.Value)
	return key.Token.Type == token.StringType && value != nil && colon.Position.Line == value.Position.Line &&
		value.Position.Column == colon.Position.Column+1
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

// texts reads a text or a list of them, each once.
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
		if err := check(s); err != nil {
			return nil, d.at(item, "%s", err)
		}
		out = append(out, s)
	}
	return out, nil
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

// count reads a whole number from least to maxCount.
func (d *document) count(n ast.Node, what string, least int) (int, error) {
	v, err := strconv.Atoi(scalar(n))
	if _, ok := n.(*ast.IntegerNode); !ok || err != nil || v < least || v > maxCount {
		return 0, d.at(n, "%s is a whole number from %d to %d", what, least, maxCount)
	}
	return v, nil
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
