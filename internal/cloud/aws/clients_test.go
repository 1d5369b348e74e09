package aws

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
)

func TestClientsAreShared(t *testing.T) {
	configured := map[string]int{}
	c := &clients{config: func(service string) awssdk.Config {
		configured[service]++
		return awssdk.Config{Region: "us-east-1"}
	}}
	first := ec2Client(c)
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if got := ec2Client(c); got != first {
				t.Error("a second client is made")
			}
		})
	}
	wait.Wait()
	if got := configured["ec2"]; got != 1 || len(configured) != 1 {
		t.Errorf("%v were configured, want ec2 once", configured)
	}

	var cache clientCache[string]
	east, west := cache.get("us-east-1", c.config), cache.get("us-west-2", c.config)
	if east == west || cache.get("us-east-1", nil) != east {
		t.Error("each region has clients of its own, and the same ones each time")
	}
}

// TestClientsAreFetchedByFunctions checks that no type of this package has a client in a field or
// method, because the linker would then keep all of the client's methods (see [clients]).
func TestClientsAreFetchedByFunctions(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	positions := token.NewFileSet()
	found := false
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		sdk := map[string]bool{}
		for _, i := range file.Imports {
			imported := strings.Trim(i.Path.Value, `"`)
			if local := path.Base(imported); strings.HasPrefix(imported, "github.com/aws/aws-sdk-go-v2/") {
				if i.Name != nil {
					local = i.Name.Name
				}
				sdk[local] = true
			}
		}
		refuse := func(in string, n ast.Node) {
			ast.Inspect(n, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok || s.Sel.Name != "Client" {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && sdk[x.Name] {
					t.Errorf("%s: %s names %s.Client: fetch it by a function of clients.go",
						positions.Position(s.Pos()), in, x.Name)
				}
				return true
			})
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				refuse("type "+n.Name.Name, n.Type)
			case *ast.FuncDecl:
				if n.Recv != nil {
					refuse("method "+n.Name.Name, n.Type)
				} else if strings.HasSuffix(n.Name.Name, "Client") {
					found = true
				}
			}
			return true
		})
	}
	if !found {
		t.Error("no function returns a client")
	}
}
