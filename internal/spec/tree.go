package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// tree is documents of a foreign form: keys that nobody looks for are passed over, and
// anchors, aliases and merged mappings are followed.
type tree struct {
	anchors map[string]ast.Node
}

// maxValues bounds what documents come to once aliases are followed.
const maxValues = 200_000

func newTree(bodies []ast.Node) *tree {
	t := &tree{anchors: map[string]ast.Node{}}
	for _, body := range bodies {
		for _, n := range ast.Filter(ast.AnchorType, body) {
			if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
				t.anchors[a.Name.GetToken().Value] = a.Value
			}
		}
	}
	return t
}

// value follows anchors, aliases and tags; nil where there is nothing.
func (t *tree) value(n ast.Node) ast.Node {
	for range 100 { // an alias of an alias, not a circle
		switch v := n.(type) {
		case *ast.AnchorNode:
			n = v.Value
		case *ast.AliasNode:
			n = t.anchors[v.Value.GetToken().Value]
		case *ast.TagNode:
			n = v.Value
		case *ast.NullNode:
			return nil
		default:
			return n
		}
	}
	return nil
}

// get returns the value at a path of keys; nil where there is none.
func (t *tree) get(n ast.Node, path ...string) ast.Node {
	n = t.value(n)
	for _, key := range path {
		n = t.key(n, key, 0)
	}
	return n
}

func (t *tree) key(n ast.Node, key string, depth int) ast.Node {
	values, _ := mappingValues(n)
	var merged ast.Node
	for _, v := range values {
		switch k := v.Key.(type) {
		case *ast.StringNode:
			if k.Value == key {
				return t.value(v.Value)
			}
		case *ast.MergeKeyNode:
			for _, m := range t.merged(v.Value) {
				if depth < 100 && merged == nil {
					merged = t.key(m, key, depth+1)
				}
			}
		}
	}
	return merged
}

// merged are the mappings that a merge key names: one, or a list of them.
func (t *tree) merged(n ast.Node) []ast.Node {
	if list, ok := t.value(n).(*ast.SequenceNode); ok {
		return t.items(list)
	}
	return []ast.Node{t.value(n)}
}

// word returns a scalar at a path as it is written; "" where there is none.
func (t *tree) word(n ast.Node, path ...string) string { return scalar(t.get(n, path...)) }

// items returns the items of a list at a path.
func (t *tree) items(n ast.Node, path ...string) []ast.Node {
	list, ok := t.get(n, path...).(*ast.SequenceNode)
	if !ok {
		return nil
	}
	out := make([]ast.Node, len(list.Values))
	for i, v := range list.Values {
		out[i] = t.value(v)
	}
	return out
}

// each visits the keys of a mapping at a path, those that it has itself before those that
// are merged into it.
func (t *tree) each(visit func(key string, v ast.Node), n ast.Node, path ...string) {
	t.visit(visit, t.get(n, path...), 0)
}

func (t *tree) visit(visit func(key string, v ast.Node), n ast.Node, depth int) {
	values, _ := mappingValues(n)
	var merged []ast.Node
	for _, v := range values {
		switch k := v.Key.(type) {
		case *ast.StringNode:
			visit(k.Value, t.value(v.Value))
		case *ast.MergeKeyNode:
			merged = append(merged, t.merged(v.Value)...)
		}
	}
	for _, m := range merged {
		if depth < 20 {
			t.visit(visit, m, depth+1)
		}
	}
}

// find returns the value of a key that matches, wherever it is; nil where there is none.
func (t *tree) find(n ast.Node, match func(key string) bool) (found ast.Node) {
	for _, kind := range []ast.NodeType{ast.MappingType, ast.MappingValueType} {
		for _, m := range ast.Filter(kind, n) {
			t.each(func(key string, v ast.Node) {
				if match(key) && v != nil && found == nil {
					found = v
				}
			}, m)
		}
	}
	return found
}

// digest returns the SHA-256 of what documents say, without their formatting, order of
// keys and comments, and whether it could be followed to its end.
func (t *tree) digest(bodies []ast.Node) (string, bool) {
	left := maxValues
	var plain []any
	for _, body := range bodies {
		plain = append(plain, t.plain(body, &left))
	}
	if left <= 0 {
		return "", false
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return "", false
	}
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:]), true
}

func (t *tree) plain(n ast.Node, left *int) any {
	if *left--; *left <= 0 {
		return nil
	}
	switch v := t.value(n).(type) {
	case nil:
		return nil
	case *ast.SequenceNode:
		out := make([]any, 0, len(v.Values))
		for _, item := range v.Values {
			out = append(out, t.plain(item, left))
		}
		return out
	case *ast.MappingNode, *ast.MappingValueNode:
		values, _ := mappingValues(v)
		out := map[string]any{}
		for _, pair := range values {
			key := pair.Key.String()
			if k, ok := pair.Key.(*ast.StringNode); ok {
				key = k.Value
			}
			out[key] = t.plain(pair.Value, left)
		}
		return out
	case *ast.StringNode:
		return v.Value
	case *ast.LiteralNode:
		return v.Value.Value
	case *ast.BoolNode:
		return v.Value
	default: // a number, kept apart from a text that is written like it
		return map[string]any{"": v.GetToken().Value}
	}
}

// whole reads a whole number that is not negative, as a number or a text.
func whole(n ast.Node) (int, bool) {
	v, err := strconv.ParseUint(scalar(n), 10, 31)
	return int(v), err == nil
}
