package lazyregexp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestMatchesLikeRegexp(t *testing.T) {
	const text = `([a-z]+)-(\d+)`
	lazy, plain := New(text), regexp.MustCompile(text)
	if got := lazy.String(); got != text {
		t.Errorf("the text is %q, want %q", got, text)
	}
	for _, s := range []string{"", "a-1", "no figure", "gpu-12 and cpu-3"} {
		if got, want := lazy.MatchString(s), plain.MatchString(s); got != want {
			t.Errorf("match of %q: %v, want %v", s, got, want)
		}
		if got, want := lazy.FindStringSubmatch(s), plain.FindStringSubmatch(s); strings.Join(got,
			"|") != strings.Join(want,
			"|") {
			t.Errorf("groups of %q: %q, want %q", s, got, want)
		}
		if got, want := lazy.ReplaceAllString(s, "$2"), plain.ReplaceAllString(s, "$2"); got != want {
			t.Errorf("replacement in %q: %q, want %q", s, got, want)
		}
	}
}

// TestEveryExpressionCompiles compiles what the module passes to New, which a program would
// otherwise learn at the first use.
func TestEveryExpressionCompiles(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			of, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || of.Sel.Name != "New" {
				return true
			}
			if name, ok := of.X.(*ast.Ident); !ok || name.Name != "lazyregexp" {
				return true
			}
			found++
			text, ok := literal(call.Args[0])
			if !ok {
				t.Errorf("%s: the expression is no literal, so that nothing checks it", files.Position(call.Pos()))
			} else if _, err := regexp.Compile(text); err != nil {
				t.Errorf("%s: %v", files.Position(call.Pos()), err)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found == 0 {
		t.Error("the module has no lazy expression")
	}
}

// literal returns the text of string literals and their sums.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, err == nil
	case *ast.BinaryExpr:
		a, okA := literal(e.X)
		b, okB := literal(e.Y)
		return a + b, okA && okB && e.Op == token.ADD
	}
	return "", false
}
