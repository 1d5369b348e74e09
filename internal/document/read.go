package document

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// Key is an allowed key of a mapping.
type Key struct {
	Name string
	// doc explains the key to people.
	doc      string
	required bool
	read     func(ast.Node) error
}

// Required returns a required key with its documentation and the reader of its value.
func Required(name, doc string, read func(ast.Node) error) Key { return Key{name, doc, true, read} }

// Optional returns an optional key with its documentation and the reader of its value.
func Optional(name, doc string, read func(ast.Node) error) Key { return Key{name, doc, false, read} }

// Mapping reads a mapping with known keys; what names it for people. It returns the nodes of the
// given keys. Values are read in the order of keys, after checking for unknown and missing keys.
func (f *File) Mapping(n ast.Node, what string, keys ...Key) (given map[string]ast.Node, err error) {
	if s, ok := described(n, Object); ok {
		describeKeys(s, keys)
		return nil, errDescribed
	}
	given, values := map[string]ast.Node{}, map[string]ast.Node{}
	named := func(name string) int { return slices.IndexFunc(keys, func(k Key) bool { return k.Name == name }) }
	err = f.Pairs(n, what, func(key string, k, v ast.Node) error {
		if named(key) < 0 {
			var names []string
			for _, k := range keys {
				names = append(names, k.Name)
			}
			return f.At(k, "%s has no key %q; it has %s%s", what, key,
				strings.Join(names, ", "), DidYouMean(key, names))
		}
		given[key], values[key] = k, v
		return nil
	})
	var found Errors
	if err := f.keep(&found, err); err != nil {
		return nil, err
	}
	misspelled := len(found) > 0 // the missing key is probably misspelled
	for _, k := range keys {
		if given[k.Name] == nil && k.required && !misspelled {
			if err := f.keep(&found, f.At(n, "%s needs %s", what, k.Name)); err != nil {
				return nil, err
			}
		}
	}
	for _, k := range keys {
		if v := values[k.Name]; v != nil {
			if err := f.keep(&found, k.read(v)); err != nil {
				return given, err
			}
		}
	}
	return given, found.whole()
}

// keep collects the mistakes of an error if every mistake is wanted, and returns the error that
// ends reading, if any.
func (f *File) keep(found *Errors, err error) error {
	if err == nil || !f.EveryMistake {
		return err
	}
	return found.add(err)
}

// Pairs visits the keys and values of a mapping. It refuses repeated keys, keys that are not text,
// and keys without a value.
func (f *File) Pairs(n ast.Node, what string, visit func(key string, k, v ast.Node) error) error {
	if s, ok := described(n, Object); ok {
		s.Values = Describe(func(n ast.Node) error { return visit("", n, n) })
		return errDescribed
	}
	mapping, ok := n.(*ast.MappingNode)
	if !ok {
		return f.At(n, "%s has keys; this is %s", what, NodeName(n))
	}
	seen := map[string]bool{}
	var found Errors
	for _, v := range mapping.Values {
		if err := f.keep(&found, f.pair(v, what, seen, visit)); err != nil {
			return err
		}
	}
	return found.whole()
}

// pair visits one key and its value.
func (f *File) pair(v *ast.MappingValueNode, what string, seen map[string]bool,
	visit func(key string, k, v ast.Node) error) error {
	key, ok := v.Key.(*ast.StringNode)
	if !ok {
		return f.At(v.Key, "%s: a key is a plain word; this is %s", what, NodeName(v.Key))
	}
	if seen[key.Value] {
		return f.At(key, "%s: the key %q is given twice", what, key.Value)
	}
	seen[key.Value] = true
	if v.Value == nil || v.Value.Type() == ast.NullType {
		return f.At(key, "%s: %s has no value", what, key.Value)
	}
	if isGlued(key, v) {
		return f.At(key, "%s: %s: has no space after the colon; a key with a colon inside is written in quotes", what,
			key.Value)
	}
	return visit(key.Value, key, v.Value)
}

// isGlued reports whether a value follows the colon of a plain key without a space. YAML treats
// such a colon as part of the key; the parser ends the key there, and would read {curfew:managed:
// x} as a key curfew.
func isGlued(key *ast.StringNode, v *ast.MappingValueNode) bool {
	colon, value := v.Start, startToken(v.Value)
	return key.Token.Type == token.StringType && value != nil && colon.Position.Line == value.Position.Line &&
		value.Position.Column == colon.Position.Column+1
}

// Items visits the items of a list.
func (f *File) Items(n ast.Node, what string, visit func(ast.Node) error) error {
	if s, ok := described(n, Array); ok {
		s.Items = Describe(visit)
		return errDescribed
	}
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		return f.At(n, "%s is a list; this is %s", what, NodeName(n))
	}
	var found Errors
	for _, item := range list.Values {
		if err := f.keep(&found, visit(item)); err != nil {
			return err
		}
	}
	return found.whole()
}

// Text reads a text that is not empty.
func (f *File) Text(n ast.Node, what string) (string, error) {
	if s, ok := described(n, String); ok {
		s.LeastItems = 1
		return "", errDescribed
	}
	s := ""
	switch n := n.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return "", f.At(n, "%s is a text; write %q in quotes", what, n.GetToken().Value)
	default:
		return "", f.At(n, "%s is a text; this is %s", what, NodeName(n))
	}
	if strings.TrimSpace(s) == "" {
		return "", f.At(n, "%s is empty", what)
	}
	return s, nil
}

// Texts reads a text or a list of distinct texts. check returns the problem with one; nil accepts
// all.
func (f *File) Texts(n ast.Node, what string, check func(string) error) ([]string, error) {
	if s, ok := described(n, String); ok {
		s.OrList = true
		return nil, errDescribed
	}
	items := []ast.Node{n}
	if list, ok := n.(*ast.SequenceNode); ok {
		items = list.Values
	}
	if len(items) == 0 {
		return nil, f.At(n, "%s is an empty list", what)
	}
	var out []string
	seen := map[string]bool{}
	for _, item := range items {
		s, err := f.Text(item, what)
		if err != nil {
			return nil, err
		}
		if seen[s] {
			return nil, f.At(item, "%s: %q is given twice", what, s)
		}
		seen[s] = true
		if check != nil {
			if err := check(s); err != nil {
				return nil, f.At(item, "%s", err)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// Choice reads one of the given values; without values any text.
func Choice[T ~string](f *File, n ast.Node, what string, values []string, to *T) error {
	Note(n, Shape{Enum: values})
	s, err := f.Text(n, what)
	if err == nil && values != nil && !slices.Contains(values, s) {
		err = f.At(n, "%s %q does not exist; it is %s%s", what, s, OneOf(values), DidYouMean(s, values))
	}
	*to = T(s)
	return err
}

// OneOf joins what is allowed: "a, b or c".
func OneOf(values []string) string {
	if len(values) < 2 {
		return strings.Join(values, "")
	}
	return strings.Join(values[:len(values)-1], ", ") + " or " + values[len(values)-1]
}

// Flag reads true or false.
func (f *File) Flag(n ast.Node, what string) (bool, error) {
	if _, ok := described(n, Boolean); ok {
		return false, errDescribed
	}
	b, ok := n.(*ast.BoolNode)
	if !ok {
		return false, f.At(n, "%s is true or false; this is %s", what, NodeName(n))
	}
	return b.Value, nil
}

// Count reads an integer from least to most; most is math.MaxInt32 for unbounded.
func (f *File) Count(n ast.Node, what string, least, most int) (int, error) {
	if s, ok := described(n, Integer); ok {
		describeCount(s, least, most)
		return 0, errDescribed
	}
	v, err := strconv.ParseUint(Scalar(n), 10, 31)
	if _, ok := n.(*ast.IntegerNode); !ok || err != nil || int(v) < least || int(v) > most {
		if most == math.MaxInt32 {
			return 0, f.At(n, "%s is a whole number from %d", what, least)
		}
		return 0, f.At(n, "%s is a whole number from %d to %d", what, least, most)
	}
	return int(v), nil
}

// Scalar returns a text or number as written, "" for other nodes. Amounts of money are read from
// it, so that they never pass through a float.
func Scalar(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.IntegerNode, *ast.FloatNode:
		return n.GetToken().Value
	}
	return ""
}

// NodeName names the type of a node.
func NodeName(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode:
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

// DidYouMean returns "; did you mean NAME?" with a similar name, or "". Letter case is ignored. Of
// equally close names the first is used. It is part of every message about an unknown name.
func DidYouMean(given string, names []string) string {
	if best := Nearest(given, names); best != "" {
		return "; did you mean " + best + "?"
	}
	return ""
}

// Nearest returns the name that [DidYouMean] suggests, or "": at most two edits apart, and at most
// half of the length.
func Nearest(given string, names []string) string {
	if slices.Contains(names, given) {
		return ""
	}
	best, least := "", min(2, len(given)/2)
	for _, name := range names {
		if d := distance(strings.ToLower(given), strings.ToLower(name)); d <= least && (best == "" || d < least) {
			best, least = name, d
		}
	}
	return best
}

// distance returns the number of letters to insert, delete, replace or swap with the next one to
// get from a to b. Words that cannot be close have distance 3.
func distance(a, b string) int {
	if len(a) > len(b)+2 || len(b) > len(a)+2 {
		return 3
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j], rows[i][j-1], rows[i-1][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// fieldNames returns the yaml names of the fields of a struct and of nested structs.
func fieldNames(v any) (names []string) {
	seen := map[reflect.Type]bool{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			visit(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				if name, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); name != "" && name != "-" {
					names = append(names, name)
				}
				visit(t.Field(i).Type)
			}
		}
	}
	visit(reflect.TypeOf(v))
	return names
}
