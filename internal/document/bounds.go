package document

import (
	"errors"
	"io"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a YAML file. The scanner is linear in time and memory. The parser is quadratic in the
// depth, in the keys of a mapping and in the tokens of a document.
const (
	// MaxDepth bounds the nesting of mappings and lists.
	MaxDepth = 100
	// MaxKeys bounds the keys of one mapping.
	MaxKeys = 2_000
	// MaxTokens bounds the tokens of one document.
	MaxTokens = 50_000
	// MaxValues bounds the tokens of a file plus the keys and values added by expanding aliases.
	MaxValues = 200_000
)

const tooDeep = "mappings and lists are more than %d deep in one another"

// level is a mapping or list that is open at the scanner's position.
type level struct {
	// column is the column of its keys or items; 0 in flow style.
	column int
	list   bool
	keys   int
}

// bounds counts tokens, keys and nesting.
type bounds struct {
	file *File
	open []level
	// first is the first token of the current key or item.
	first, last *token.Token
}

// scan splits a file into the tokens of its documents, checks the bounds that the parser needs, and
// drops comments. Documents are parsed one by one, because the parser drops those after an empty
// one.
func (f *File) scan(aliases bool) ([]token.Tokens, error) {
	var s scanner.Scanner
	s.Init(string(f.Source))
	var documents []token.Tokens
	var tokens token.Tokens
	b := bounds{file: f}
	total := 0
	for {
		found, err := s.Scan()
		if errors.Is(err, io.EOF) {
			break
		}
		for _, t := range found {
			switch t.Type {
			case token.CommentType:
				continue
			case token.DirectiveType:
				return nil, f.atToken(t, "a YAML directive, which is not supported")
			case token.DocumentHeaderType, token.DocumentEndType:
				documents, tokens, b = append(documents, tokens), nil, bounds{file: f}
				continue
			case token.AnchorType, token.AliasType:
				if !aliases {
					return nil, f.atToken(t, "an anchor or an alias, which are not supported: write the value out")
				}
			}
			if total++; total > MaxValues {
				return nil, f.atToken(t, "more than %d keys, values and marks in the file", MaxValues)
			}
			if len(tokens) == MaxTokens {
				return nil, f.atToken(t, "more than %d keys, values and marks in one document", MaxTokens)
			}
			if err := b.add(t); err != nil {
				return nil, err
			}
			tokens.Add(t)
		}
	}
	return append(documents, tokens), nil
}

// add counts one token.
func (b *bounds) add(t *token.Token) error {
	last := b.last
	b.last = t
	if last == nil || last.Position.Line != t.Position.Line || last.Type == token.MappingValueType ||
		last.Type == token.MappingKeyType || last.Type == token.SequenceEntryType {
		b.first = t
	}
	inFlow := len(b.open) > 0 && b.open[len(b.open)-1].column == 0
	switch t.Type {
	case token.SequenceStartType, token.MappingStartType:
		b.open = append(b.open, level{list: t.Type == token.SequenceStartType})
	case token.SequenceEndType, token.MappingEndType:
		if inFlow {
			b.open = b.open[:len(b.open)-1]
		}
	case token.MappingValueType:
		if inFlow {
			b.open[len(b.open)-1].keys++
		} else {
			b.indent(b.first.Position.Column, false)
		}
	case token.SequenceEntryType, token.MappingKeyType:
		if !inFlow {
			b.indent(t.Position.Column, t.Type == token.SequenceEntryType)
		}
	default:
		return nil
	}
	switch {
	case len(b.open) > MaxDepth:
		return b.file.atToken(t, tooDeep, MaxDepth)
	case len(b.open) > 0 && b.open[len(b.open)-1].keys > MaxKeys:
		return b.file.atToken(t, "a mapping has more than %d keys", MaxKeys)
	}
	return nil
}

// indent counts a key or an item in block style: it closes deeper levels and opens one at a new
// column.
func (b *bounds) indent(column int, list bool) {
	for n := len(b.open); n > 0; n = len(b.open) {
		top := &b.open[n-1]
		if top.column < column || top.column == column && list && !top.list {
			break // a list may have the column of its key
		}
		if top.column == column && top.list == list {
			if !list {
				top.keys++
			}
			return
		}
		b.open = b.open[:n-1]
	}
	b.open = append(b.open, level{column: column, list: list, keys: 1})
}

// expand follows the aliases of a document to their anchors and bounds the expanded size.
func (f *File) expand(body ast.Node) error {
	e := expansion{file: f, anchors: map[string]ast.Node{}, sizes: map[ast.Node]size{}}
	s, err := e.size(body)
	if err != nil {
		return err
	}
	if f.values += s.values; f.values > MaxValues {
		return f.At(body, "more than %d values once aliases are followed", MaxValues)
	}
	return nil
}

// size is the size of a node with aliases expanded.
type size struct{ values, depth int }

// expansion computes the expanded size of one document.
type expansion struct {
	file    *File
	anchors map[string]ast.Node
	sizes   map[ast.Node]size
}

func (e *expansion) size(n ast.Node) (size, error) {
	switch n := n.(type) {
	case *ast.AnchorNode:
		// An anchor is registered after its value, so that no alias refers to itself.
		s, err := e.size(n.Value)
		if name := n.Name; err == nil && name != nil {
			e.anchors[name.GetToken().Value], e.sizes[n.Value] = n.Value, s
		}
		return s, err
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		target, ok := e.anchors[name]
		if !ok {
			return size{}, e.file.At(n, "alias *%s has no anchor before it", name)
		}
		e.file.targets[n] = target
		return e.sizes[target], nil
	case *ast.TagNode:
		return e.size(n.Value)
	case *ast.MappingKeyNode:
		return e.size(n.Value)
	case *ast.MappingNode:
		parts := make([]ast.Node, 0, 2*len(n.Values))
		for _, v := range n.Values {
			parts = append(parts, v.Key, v.Value)
		}
		return e.sum(n, parts...)
	case *ast.SequenceNode:
		return e.sum(n, n.Values...)
	}
	return size{values: 1}, nil
}

func (e *expansion) sum(n ast.Node, parts ...ast.Node) (size, error) {
	total := size{values: 1}
	for _, part := range parts {
		s, err := e.size(part)
		if err != nil {
			return size{}, err
		}
		total.values += s.values
		total.depth = max(total.depth, s.depth)
		if total.values > MaxValues {
			return size{}, e.file.At(part, "more than %d values once aliases are followed", MaxValues)
		}
	}
	if total.depth++; total.depth > MaxDepth {
		return size{}, e.file.At(n, tooDeep, MaxDepth)
	}
	return total, nil
}

// Target returns the value of a node behind an alias, anchor or tag, or nil.
func (f *File) Target(n ast.Node) ast.Node {
	for {
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			n = f.targets[v]
		case *ast.TagNode:
			n = v.Value
		case *ast.NullNode:
			return nil
		default:
			return n
		}
	}
}
