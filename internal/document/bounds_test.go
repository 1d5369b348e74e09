package document

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"pgregory.net/rapid"
)

// lines joins n lines of a format with the line number.
func lines(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

// stairs returns n nested block mappings.
func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// laughs returns n anchors, each with nine aliases of the previous one.
func laughs(n int, merge bool) string {
	b := strings.Builder{}
	b.WriteString("a0: &a0 {x: y}\n")
	for i := 1; i < n; i++ {
		alias := fmt.Sprintf("*a%d", i-1)
		list := "[" + strings.Repeat(alias+", ", 8) + alias + "]"
		if merge {
			list = "{<<: " + list + "}"
		}
		fmt.Fprintf(&b, "a%d: &a%d %s\n", i, i, list)
	}
	return b.String()
}

// bombs are files that would cost an unbounded parser gigabytes, minutes or its stack.
var bombs = []struct{ name, src, want string }{
	{"200 kB of [", strings.Repeat("[", 200_000), "1:101: mappings and lists are more than 100 deep"},
	{"40 kB of [", strings.Repeat("[", 40_000), "1:101: mappings and lists are more than 100 deep"},
	{
		"flow mappings in one another", strings.Repeat("{a: ", 100_000),
		"1:401: mappings and lists are more than 100 deep",
	},
	{"block lists in one another", strings.Repeat("- ", 100_000), "1:201: mappings and lists are more than 100 deep"},
	{"block mappings in one another", stairs(1_400), "101:102: mappings and lists are more than 100 deep"},
	{
		"explicit keys in one another", strings.Repeat("? ", 100_000),
		"1:201: mappings and lists are more than 100 deep",
	},
	{"colons in one another", strings.Repeat("a: ", 100_000), "1:302: mappings and lists are more than 100 deep"},
	{"60,000 keys", lines(60_000, "key%d: v"), "2001:8: a mapping has more than 2000 keys"},
	{"60,000 keys without a value", lines(60_000, "key%d:"), "2001:8: a mapping has more than 2000 keys"},
	{"60,000 keys in flow style", "{" + lines(60_000, "key%d: v,") + "}", "2001:8: a mapping has more than 2000 keys"},
	{
		"keys behind anchors of several lengths",
		strings.Repeat("&aaaaaaaa k: v\n&aaaaaa k: v\n&aaaa k: v\n&aa k: v\n", 10_000), "not supported",
	},
	{
		"items without a value", strings.Repeat("-\n", 400_000),
		"50001:1: more than 50000 keys, values and marks in one document",
	},
	{"items with a tag", strings.Repeat("- !a\n", 200_000), "more than 50000 keys, values and marks"},
	{
		"items with a tag that the parser puts into one another", strings.Repeat("- !a\n", MaxTokens/3),
		"more than 100 deep",
	},
	{
		"keys without a value in flow style", "{" + strings.Repeat("a, ", 300_000) + "}",
		"more than 50000 keys, values and marks",
	},
	{"tags in one another", strings.Repeat("!a ", 300_000), "more than 50000 keys, values and marks"},
	{"commas", "[" + strings.Repeat(",", 1<<20-2), "more than 50000 keys, values and marks"},
	{"many documents", strings.Repeat("---\na: b\n", 100_000), "more than 200000 keys, values and marks in the file"},
	{"over 1 MiB", strings.Repeat("a", 1<<20+1), "1:1: the file is over 1 MiB"},
}

// foreign are bombs of aliases, which only files of other programs may have.
var foreign = []struct{ name, src, want string }{
	{"aliases of aliases", laughs(30, false), "more than 200000 values once aliases are followed"},
	{"merged mappings of merged mappings", laughs(30, true), "more than 200000 values once aliases are followed"},
	{"an alias of itself", "a: &a [*a]\n", "1:8: alias *a has no anchor before it"},
	{"aliases of one another", "a: &a [*b]\nb: &b [*a]\n", "1:8: alias *b has no anchor before it"},
	{"a chain of aliases", chain(500), "more than 100 deep"},
	{
		"keys behind anchors of several lengths",
		strings.Repeat("&aaaaaaaa k: v\n&aaaaaa k: v\n&aaaa k: v\n&aa k: v\n", 10_000),
		"a mapping has more than 2000 keys",
	},
}

// chain returns n lists that each hold an alias of the previous one.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("a0: &a0 []\n")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d]\n", i, i, i-1)
	}
	return b.String()
}

// allocated returns the number of bytes that f allocates, including garbage.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// maxAllocated bounds the memory for a file of MaxBytes: the scanner uses up to 300 bytes per byte,
// in a file of commas only.
const maxAllocated = 512 << 20

func TestBombs(t *testing.T) {
	for _, tc := range append(bombs, foreign...) {
		isForeign := strings.Contains(tc.src, "&") && !strings.Contains(tc.want, "not supported")
		t.Run(tc.name, func(t *testing.T) {
			var err error
			cost := allocated(func() {
				if isForeign {
					_, err = ParseForeign("f.yaml", []byte(tc.src))
				} else {
					_, err = Parse("f.yaml", []byte(tc.src))
				}
			})
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tc.want) ||
				!strings.HasPrefix(err.Error(), "f.yaml:") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if cost > maxAllocated {
				t.Errorf("%d MiB were allocated, at most %d are due", cost>>20, maxAllocated>>20)
			}
		})
	}
}

// TestCostOfLargestFiles checks the cost of the largest files within the bounds: the parser is
// quadratic in the bounded quantities.
func TestCostOfLargestFiles(t *testing.T) {
	var mappings strings.Builder
	for i := range 8 {
		fmt.Fprintf(&mappings, "m%d:\n%s", i, strings.ReplaceAll(lines(MaxKeys-10, "\tk%d: v"), "\t", "  "))
	}
	for name, src := range map[string]string{
		"mappings of as many keys as may be": mappings.String(),
		"items without a value":              strings.Repeat("-\n", MaxTokens-1),
		"the deepest lists": strings.Repeat("- "+strings.Repeat("[", MaxDepth-1)+strings.Repeat("]",
			MaxDepth-1)+"\n", 240),
		"aliases to the bound": laughs(5, false),
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			if cost := allocated(func() {
				_, err = ParseForeign("f.yaml", []byte(src))
			}); cost > maxAllocated || err != nil {
				t.Errorf("%d MiB were allocated, at most %d are due; %v", cost>>20, maxAllocated>>20, err)
			}
		})
	}
}

// endless never ends, like /dev/zero.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestReadIsBounded(t *testing.T) {
	in := &endless{}
	cost := allocated(func() {
		if _, err := Read("job.yaml", in, MaxBytes); err == nil ||
			err.Error() != "job.yaml:1:1: the file is over 1 MiB" {
			t.Errorf("got %v", err)
		}
	})
	if in.read > 2*MaxBytes || cost > 16<<20 {
		t.Errorf("%d bytes were read, %d allocated", in.read, cost)
	}
	if src, err := Read("f", strings.NewReader(strings.Repeat("a", 64)), 64); err != nil || len(src) != 64 {
		t.Errorf("a file of the limit: %d bytes, %v", len(src), err)
	}
	if _, err := Read("f", io.MultiReader(strings.NewReader("a"), broken{}), 64); err == nil ||
		err.Error() != "f: read the file: torn" {
		t.Errorf("got %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("torn") }

// depthOf returns the nesting of mappings and lists in a parsed node.
func depthOf(n ast.Node) int {
	deepest, own := 0, 1
	var parts []ast.Node
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			parts = append(parts, v.Key, v.Value)
		}
	case *ast.SequenceNode:
		parts = n.Values
	default:
		own = 0
	}
	for _, p := range parts {
		deepest = max(deepest, depthOf(p))
	}
	return own + deepest
}

// nested generates a value with exactly the given nesting.
func nested(t *rapid.T, depth, indent int, inFlow bool) string {
	pad := strings.Repeat(" ", indent)
	side := rapid.SampledFrom([]string{"", "1", "[]", "{}", "[a, {b: c}]", "'x: [y'", "\"{[\""}).Draw(t, "side")
	if depth <= 2 || side == "" {
		side = "x"
	}
	if depth == 0 {
		return side + "\n"
	}
	style := rapid.IntRange(0, 5).Draw(t, "style")
	if inFlow || style == 5 {
		inner := strings.TrimSuffix(nested(t, depth-1, indent, true), "\n")
		if rapid.Bool().Draw(t, "list") {
			return "[" + side + ", " + inner + "]\n"
		}
		return "{s: " + side + ", k: " + inner + "}\n"
	}
	switch style {
	case 0: // a block mapping
		return "\n" + pad + "s: " + side + " # [{\n" + pad + "k: " + nested(t, depth-1,
			indent+1+rapid.IntRange(0, 2).Draw(t, "more"), false)
	case 1: // a block list
		return "\n" + pad + "- " + side + "\n" + pad + "- " + nested(t, depth-1, indent+2, false)
	case 2: // a list in the column of its key
		if depth < 2 {
			break
		}
		return "\n" + pad + "\"k\":\n" + pad + "- " + side + "\n" + pad + "- " + nested(t, depth-2, indent+2, false)
	case 3: // a literal
		return "\n" + pad + "s: |\n" + pad + "  - - [{\n" + pad + "k: " + nested(t, depth-1, indent+1, false)
	}
	return "\n" + pad + "k: " + nested(t, depth-1, indent+1, false)
}

// TestDepthIsExact checks that the depth counted over tokens is that of the parsed document: the
// maximum passes, and one more level does not.
func TestDepthIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(MaxDepth-3, MaxDepth+3).Draw(t, "depth")
		src := strings.TrimPrefix(nested(t, depth, 0, false), "\n")
		f, err := Parse("f.yaml", []byte(src))
		if depth > MaxDepth {
			if err == nil || !strings.Contains(err.Error(), "more than 100 deep") {
				t.Fatalf("%d deep gives %v:\n%s", depth, err, src)
			}
			return
		}
		if err != nil || len(f.Bodies) != 1 || depthOf(f.Bodies[0]) != depth {
			t.Fatalf("%d deep gives %v:\n%s", depth, err, src)
		}
	})
}

func TestKeysAreCountedExactly(t *testing.T) {
	for name, src := range map[string]func(n int) string{
		"block":            func(n int) string { return lines(n, "k%d: v") },
		"quoted":           func(n int) string { return lines(n, "\"k %d\": v") },
		"with comments":    func(n int) string { return lines(n, "k%d: v # and\n# more") },
		"of a list's item": func(n int) string { return "- " + strings.ReplaceAll(lines(n, "k%d: v"), "\n", "\n  ") },
		"with lists":       func(n int) string { return lines(n, "k%d:\n- a\n- b: c\n  d: e") },
		"with texts":       func(n int) string { return lines(n, "k%d: |\n  a: b\n  c: d") },
		"flow":             func(n int) string { return "{" + lines(n, "k%d: [a],") + "}" },
		"explicit":         func(n int) string { return lines(n, "? k%d\n: v") },
		"with tags":        func(n int) string { return lines(n, "!!str k%d: v") },
	} {
		f, err := Parse("f.yaml", []byte(src(MaxKeys/2)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n := f.Bodies[0]
		if list, ok := n.(*ast.SequenceNode); ok {
			n = list.Values[0]
		}
		if read := len(n.(*ast.MappingNode).Values); read != MaxKeys/2 {
			t.Errorf("%s: %d keys were read", name, read)
		}
		if _, err := Parse("f.yaml", []byte(src(MaxKeys+1))); err == nil ||
			!strings.Contains(err.Error(), "more than 2000 keys") {
			t.Errorf("%s: more than may be give %v", name, err)
		}
	}
}

// TestReadsEveryDocument checks that all documents are read, whatever is between them: the gate
// cannot price a document that it does not see.
func TestReadsEveryDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		n := rapid.IntRange(1, 6).Draw(t, "documents")
		for range n {
			for range rapid.IntRange(0, 2).Draw(t, "empty") {
				b.WriteString(rapid.SampledFrom([]string{
					"---\n", "---\n# nothing\n", "---\n\n", "---\n...\n", "--- # a\n", "---\nnull\n",
				}).Draw(t, "between"))
			}
			fmt.Fprintf(&b, "---\n%s",
				rapid.SampledFrom([]string{
					"n: %d\n", "{n: %d}\n", "# c\nn: %d # c\n", "n: %d\n...\n", "n: %d\n# end\n", "n: %d\n\n",
				}).Draw(t, "body"))
		}
		src := b.String()
		for i := range n {
			src = strings.Replace(src, "%d", fmt.Sprint(i), 1)
		}
		if rapid.Bool().Draw(t, "bare") {
			src = strings.TrimPrefix(src, "---\n")
		}
		f, err := Parse("f.yaml", []byte(src))
		if err != nil {
			t.Fatalf("%v in\n%s", err, src)
		}
		var got []string
		for _, body := range f.Bodies {
			got = append(got, Scalar(Value(body, "n")))
		}
		want := make([]string, n)
		for i := range want {
			want[i] = fmt.Sprint(i)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("documents %v, want %v:\n%q", got, want, src)
		}
	})
}

// TestAliasesReferToPrecedingAnchor checks that a redefined anchor applies from there on, within its
// document.
func TestAliasesReferToPrecedingAnchor(t *testing.T) {
	f, err := ParseForeign("f.yaml", []byte("a: &n 8\nb: *n\nc: &n 0\nd: *n\n---\na: &n 3\nb: *n\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []map[string]string{{"b": "8", "d": "0"}, {"b": "3"}} {
		for key, value := range want {
			if got := Scalar(f.Target(Value(f.Bodies[i], key))); got != value {
				t.Errorf("document %d: %s is %q, want %s", i, key, got, value)
			}
		}
	}
	if _, err := ParseForeign("f.yaml", []byte("a: &n 8\n---\nb: *n\n")); err == nil ||
		err.Error() != "f.yaml:3:4: alias *n has no anchor before it" {
		t.Errorf("an anchor of another document: %v", err)
	}
}

// FuzzParse checks that a mistake is one line with a position, and that no small file is expensive,
// which would be an unknown bomb.
func FuzzParse(f *testing.F) {
	for _, b := range append(bombs, foreign...) {
		f.Add(b.src[:min(len(b.src), 600)])
	}
	f.Add("a: &x [1, {b: *x}]\n---\n%YAML 1.2\n--- |\n  c\n...\n? d\n: - e\n")
	f.Add("<<: {a: !!map {b: 'c''d'}}\n\"\\u0041\": >-\n  x\n  y\n")
	f.Fuzz(func(t *testing.T, src string) {
		if len(src) > 4<<10 {
			return
		}
		for _, read := range []func(string, []byte) (*File, error){Parse, ParseForeign} {
			var file *File
			var err error
			if cost := allocated(func() { file, err = read("f", []byte(src)) }); cost > 32<<20 {
				t.Fatalf("%d MiB for %d bytes", cost>>20, len(src))
			}
			if err == nil {
				for _, body := range file.Bodies {
					if d := depthOf(body); d > MaxDepth {
						t.Fatalf("%d deep was accepted", d)
					}
				}
				continue
			}
			var e *Error
			last := strings.Count(src, "\n") + strings.Count(src, "\r") + 1
			if !errors.As(err, &e) || e.File != "f" || e.Line < 1 || e.Line > last+1 || e.Column < 1 ||
				strings.Contains(e.Message, "\n") {
				t.Fatalf("%v is not in %d lines", err, last)
			}
		}
	})
}
