package inventory

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEveryKindHasTraits reads the constants of type Kind from the source: each has to
// be in the table, but for KindService, which only bills have.
func TestEveryKindHasTraits(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "inventory.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []Kind
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Kind" {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if k := Kind(text); k != KindService {
				declared = append(declared, k)
			}
		}
		return true
	})
	slices.Sort(declared)
	if diff := cmp.Diff(declared, Kinds()); len(declared) == 0 || diff != "" {
		t.Errorf("kinds with traits (-declared +table):\n%s", diff)
	}
	if KindService.Valid() || Kind("").Valid() || KindService.Traits() != (Traits{}) {
		t.Error("a kind that no resource has is valid or has traits")
	}
}

// TestTraitsAreConsistent compares the columns of the table with one another.
func TestTraitsAreConsistent(t *testing.T) {
	for _, k := range Kinds() {
		for rule, broken := range map[string]bool{
			"what is measured computes and has meters": k.Traits().Measured &&
				(!k.Traits().Compute || !k.Traits().Metered),
			"what consists of others has no meters, nor samples": k.Traits().Container &&
				(k.Traits().Metered || k.Traits().Measured),
			"what is not metered consists of others":   !k.Traits().Metered && !k.Traits().Container,
			"what runs only in some states has meters": k.Traits().Stateful && !k.Traits().Metered,
			"what fills has meters, in every state": k.Traits().SizeChanges &&
				(!k.Traits().Metered || k.Traits().Stateful),
			"what computes by itself costs only while it does so ": k.Traits().Compute && !k.Traits().Container &&
				!k.Traits().Stateful,
		} {
			if broken {
				t.Errorf("%s: %s: %+v", k, rule, k.Traits())
			}
		}
	}
}
