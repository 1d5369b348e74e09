package contributing

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declared holds the names in the product: declarations by package, members by type, and tests.
type declared struct {
	packages map[string]map[string]bool
	members  map[string]map[string]bool
	tests    map[string]bool
}

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	dotted   = regexp.MustCompile(`^([A-Za-z]\w*)\.([A-Za-z]\w*)(?:\.([A-Za-z]\w*))?$`)
	testName = regexp.MustCompile(`^Test[A-Z]\w*$`)
	treePath = regexp.MustCompile(`^(internal|test|cmd|docs)/[\w/.-]+$`)
	fileName = regexp.MustCompile(`^[a-z]+(/[a-z]+)*/\w+\.go$`) // below internal
)

// TestPagesNameWhatExists checks that the packages, functions, methods, files and tests that
// ARCHITECTURE.md and docs/internals mention exist.
func TestPagesNameWhatExists(t *testing.T) {
	names := collect(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "internals", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	checked := 0
	for _, page := range append(pages, filepath.Join(root, "ARCHITECTURE.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, span := range codeSpan.FindAllStringSubmatch(string(text), -1) {
			known, ok := names.has(span[1])
			if !known {
				continue
			}
			if checked++; !ok {
				t.Errorf("%s names %s, which is not there", filepath.Base(page), span[1])
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d names were checked", checked)
	}
}

// has reports whether a name refers to Go code of this tree, and whether it exists.
func (d *declared) has(name string) (known, there bool) {
	if testName.MatchString(name) {
		return true, d.tests[name]
	}
	if treePath.MatchString(name) {
		_, err := os.Stat(filepath.Join(root, name))
		return true, err == nil
	}
	if fileName.MatchString(name) {
		_, err := os.Stat(filepath.Join(root, "internal", name))
		return true, err == nil
	}
	m := dotted.FindStringSubmatch(name)
	if m == nil || m[1] == "http" || !ast.IsExported(m[1]) && !ast.IsExported(m[2]) {
		return false, false // a file, a configuration key or a name of the standard library
	}
	if own := d.packages[m[1]]; own != nil && ast.IsExported(m[2]) {
		return true, own[m[2]] && (m[3] == "" || d.members[m[2]][m[3]])
	}
	return true, d.members[m[1]][m[2]]
}

// collect parses the product and lists its names.
func collect(t *testing.T) *declared {
	t.Helper()
	d := &declared{map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}}
	for _, dir := range []string{"internal", "test", "cmd"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, decl := range file.Decls {
				d.add(file.Name.Name, decl, strings.HasSuffix(path, "_test.go"))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *declared) add(pkg string, decl ast.Decl, test bool) {
	put := func(in map[string]map[string]bool, key, name string) {
		if in[key] == nil {
			in[key] = map[string]bool{}
		}
		in[key][name] = true
	}
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		switch {
		case test:
			d.tests[decl.Name.Name] = true
			put(d.packages, strings.TrimSuffix(pkg, "_test"), decl.Name.Name)
		case decl.Recv == nil:
			put(d.packages, pkg, decl.Name.Name)
		default:
			put(d.members, receiver(decl.Recv.List[0].Type), decl.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				put(d.packages, pkg, spec.Name.Name)
				for _, name := range fields(spec.Type) {
					put(d.members, spec.Name.Name, name)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					put(d.packages, pkg, name.Name)
				}
			}
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(typ ast.Expr) string {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return receiver(typ.X)
	case *ast.IndexExpr:
		return receiver(typ.X)
	case *ast.IndexListExpr:
		return receiver(typ.X)
	case *ast.Ident:
		return typ.Name
	}
	return ""
}

// fields returns the names of the fields of a struct, or of the methods of an interface.
func fields(typ ast.Expr) (out []string) {
	var list *ast.FieldList
	switch typ := typ.(type) {
	case *ast.StructType:
		list = typ.Fields
	case *ast.InterfaceType:
		list = typ.Methods
	default:
		return nil
	}
	for _, f := range list.List {
		for _, name := range f.Names {
			out = append(out, name.Name)
		}
	}
	return out
}
