package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
)

// tree navigates documents of foreign formats: unknown keys are ignored; anchors, aliases and
// merged mappings are followed. No alias refers to itself.
type tree struct{ file *document.File }

// get returns the value at a path of keys, or nil.
func (t *tree) get(n ast.Node, path ...string) ast.Node {
	n = t.file.Target(n)
	for _, key := range path {
		n = t.key(n, key)
	}
	return n
}

func (t *tree) key(n ast.Node, key string) ast.Node {
	mapping, ok := n.(*ast.MappingNode)
	if !ok {
		return nil
	}
	var merged ast.Node
	for _, v := range mapping.Values {
		switch k := v.Key.(type) {
		case *ast.StringNode:
			if k.Value == key {
				return t.file.Target(v.Value)
			}
		case *ast.MergeKeyNode:
			for _, m := range t.merged(v.Value) {
				if merged == nil {
					merged = t.key(m, key)
				}
			}
		}
	}
	return merged
}

// merged returns the mappings that a merge key names: one, or a list of them.
func (t *tree) merged(n ast.Node) []ast.Node {
	if list, ok := t.file.Target(n).(*ast.SequenceNode); ok {
		return t.items(list)
	}
	return []ast.Node{t.file.Target(n)}
}

// word returns a scalar at a path as written, or "".
func (t *tree) word(n ast.Node, path ...string) string { return document.Scalar(t.get(n, path...)) }

// text returns a scalar or block of text at a path, or "".
func (t *tree) text(n ast.Node, path ...string) string {
	n = t.get(n, path...)
	if block, ok := n.(*ast.LiteralNode); ok {
		return block.Value.Value
	}
	return document.Scalar(n)
}

// items returns the items of the list at a path.
func (t *tree) items(n ast.Node, path ...string) []ast.Node {
	list, ok := t.get(n, path...).(*ast.SequenceNode)
	if !ok {
		return nil
	}
	out := make([]ast.Node, len(list.Values))
	for i, v := range list.Values {
		out[i] = t.file.Target(v)
	}
	return out
}

// each visits the keys of the mapping at a path, its own before merged ones.
func (t *tree) each(visit func(key string, v ast.Node), n ast.Node, path ...string) {
	t.visit(visit, t.get(n, path...))
}

func (t *tree) visit(visit func(key string, v ast.Node), n ast.Node) {
	mapping, ok := n.(*ast.MappingNode)
	if !ok {
		return
	}
	var merged []ast.Node
	for _, v := range mapping.Values {
		switch k := v.Key.(type) {
		case *ast.StringNode:
			visit(k.Value, t.file.Target(v.Value))
		case *ast.MergeKeyNode:
			merged = append(merged, t.merged(v.Value)...)
		}
	}
	for _, m := range merged {
		t.visit(visit, m)
	}
}

// digest returns the SHA-256 of the documents' content, without formatting, key order and comments.
func (t *tree) digest() (string, error) {
	var plain []any
	for _, body := range t.file.Bodies {
		plain = append(plain, t.plain(body))
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), nil
}

func (t *tree) plain(n ast.Node) any {
	switch v := t.file.Target(n).(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		out := make([]any, 0, len(v.Values))
		for _, item := range v.Values {
			out = append(out, t.plain(item))
		}
		return out
	case *ast.MappingNode:
		out := map[string]any{}
		for _, pair := range v.Values {
			key := pair.Key.String()
			if k, ok := pair.Key.(*ast.StringNode); ok {
				key = k.Value
			}
			out[key] = t.plain(pair.Value)
		}
		return out
	case *ast.StringNode:
		return v.Value
	case *ast.LiteralNode:
		return v.Value.Value
	case *ast.BoolNode:
		return v.Value
	default: // a number, distinct from a string with the same digits
		return map[string]any{"": v.GetToken().Value}
	}
}

// whole reads a non-negative integer, as a number or a string.
func whole(n ast.Node) (int, bool) {
	v, err := strconv.ParseUint(document.Scalar(n), 10, 31)
	return int(v), err == nil
}
