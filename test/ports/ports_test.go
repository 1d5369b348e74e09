// Package ports checks docs/internals/ports.md against the code.
package ports

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const (
	module = "github.com/curfew-dev/curfew/internal/"
	page   = "../../docs/internals/ports.md"
	// application represents any package of the application.
	application = "application"
)

// row is one row of the table.
type row struct{ port, implementation, suite string }

var cell = regexp.MustCompile("^`([a-z0-9/]+\\.[A-Za-z0-9]+)`$")

// read returns the rows of a page, and an error for each unreadable one.
func read(text string) (rows []row, errs []error) {
	for _, line := range strings.Split(text, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "| `") || len(cells) != 4 {
			continue
		}
		names := make([]string, len(cells))
		for i, c := range cells {
			c = strings.TrimSpace(c)
			switch m := cell.FindStringSubmatch(c); {
			case m != nil:
				names[i] = m[1]
			case i == 2 && c == application:
				names[i] = application
			case i != 1:
				errs = append(errs, fmt.Errorf("%q in %q is no name", c, line))
			}
		}
		rows = append(rows, row{names[0], names[2], names[3]})
	}
	return rows, errs
}

// split splits "cloud/aws.Actions".
func split(name string) (pkg, of string) {
	i := strings.LastIndexByte(name, '.')
	return name[:i], name[i+1:]
}

// code holds the packages of this module. Each is type-checked from its source, so that unexported
// types are known; its imports come from the compiler.
type code struct {
	importer types.Importer
	files    map[string][]string // of a package, for this platform
	dirs     map[string]string
	checked  map[string]*types.Package
}

// load lists the packages once.
var load = sync.OnceValues(func() (*code, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", //nolint:noctx // tests end with it
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{range .GoFiles}}{{.}} {{end}}", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	c := &code{files: map[string][]string{}, dirs: map[string]string{}, checked: map[string]*types.Package{}}
	exports := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[f[0]] = f[1]
		if p, ok := strings.CutPrefix(f[0], module); ok {
			c.dirs[p], c.files[p] = f[2], strings.Fields(f[3])
		}
	}
	open := func(p string) (io.ReadCloser, error) { return os.Open(exports[p]) }
	c.importer = importer.ForCompiler(token.NewFileSet(), "gc", open)
	return c, nil
})

func all(t *testing.T) *code {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// check returns a package with its unexported names.
func (c *code) check(pkg string) (*types.Package, error) {
	if p := c.checked[pkg]; p != nil {
		return p, nil
	}
	if c.files[pkg] == nil {
		return nil, fmt.Errorf("there is no package %s", pkg)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range c.files[pkg] {
		f, err := parser.ParseFile(set, filepath.Join(c.dirs[pkg], name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	conf := types.Config{Importer: c.importer, FakeImportC: true}
	p, err := conf.Check(module+pkg, set, files, nil)
	c.checked[pkg] = p
	return p, err
}

// lookup returns a type, from its package's source or from the compiler.
func (c *code) lookup(name string, source bool) (types.Type, error) {
	pkg, of := split(name)
	p, err := c.check(pkg)
	if err == nil && !source {
		p, err = c.importer.Import(module + pkg)
	}
	if err != nil {
		return nil, err
	}
	o, ok := p.Scope().Lookup(of).(*types.TypeName)
	if !ok {
		return nil, fmt.Errorf("there is no type %s", name)
	}
	return o.Type(), nil
}

// implements reports whether a type, or a pointer to it, implements an interface.
func (c *code) implements(implementation, port string) error {
	// Export data lacks unexported types, and a type used on both sides must come from a single
	// source.
	pkg, of := split(implementation)
	portPkg, portOf := split(port)
	source := !ast.IsExported(of)
	i, err := c.lookup(port, !ast.IsExported(portOf) || source && pkg == portPkg)
	if err != nil {
		return err
	}
	t, err := c.lookup(implementation, source)
	if err != nil {
		return err
	}
	face, ok := i.Underlying().(*types.Interface)
	if !ok {
		return fmt.Errorf("%s is no interface", port)
	}
	if m, _ := types.MissingMethod(types.NewPointer(t), face, true); m != nil && !types.Implements(t, face) {
		return fmt.Errorf("%s does not implement %s: %s is missing or different", implementation, port, m.Name())
	}
	return nil
}

// applies reports whether a package of the application has a type that implements an interface.
func (c *code) applies(port string) error {
	for _, pkg := range slices.Sorted(maps.Keys(c.files)) {
		if !strings.HasPrefix(pkg, "app/") {
			continue
		}
		p, err := c.check(pkg)
		if err != nil {
			return err
		}
		for _, name := range p.Scope().Names() {
			o, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || o.IsAlias() || types.IsInterface(o.Type()) {
				continue
			}
			if n, ok := o.Type().(*types.Named); ok && n.TypeParams().Len() == 0 &&
				c.implements(pkg+"."+name, port) == nil {
				return nil
			}
		}
	}
	return fmt.Errorf("no package of the application implements %s", port)
}

// held reports whether a test suite exists, and whether the package of an implementation runs it if
// it is a shared one.
func (c *code) held(implementation, suite string) error {
	pkg, of := split(suite)
	if !c.mentions(pkg, "func "+of+"(", strings.HasPrefix(of, "Test") && !strings.HasSuffix(pkg, "test")) {
		return fmt.Errorf("there is no suite %s", suite)
	}
	if strings.HasSuffix(pkg, "test") && implementation != application {
		if by, _ := split(implementation); by != pkg && !c.mentions(by, filepath.Base(pkg)+"."+of+"(", true) {
			return fmt.Errorf("no test of %s runs %s", by, suite)
		}
	}
	return nil
}

// mentions reports whether a file or test of a package contains a text.
func (c *code) mentions(pkg, text string, inTests bool) bool {
	pattern := "*.go"
	if inTests {
		pattern = "*_test.go"
	}
	files, _ := filepath.Glob(filepath.Join(c.dirs[pkg], pattern)) // the pattern is valid
	return slices.ContainsFunc(files, func(f string) bool {
		source, err := os.ReadFile(f)
		return err == nil && bytes.Contains(source, []byte(text))
	})
}

// checkRow returns the problem of a row.
func (c *code) checkRow(r row) error {
	if r.implementation == application {
		if err := c.applies(r.port); err != nil {
			return err
		}
	} else if err := c.implements(r.implementation, r.port); err != nil {
		return err
	}
	return c.held(r.implementation, r.suite)
}

func TestTableIsTrue(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows, errs := read(string(text))
	for _, err := range errs {
		t.Error(err)
	}
	if len(rows) < 40 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	c := all(t)
	for i, r := range rows {
		if err := c.checkRow(r); err != nil {
			t.Errorf("the row of %s by %s: %v", r.port, r.implementation, err)
		}
		if slices.Contains(rows[:i], r) {
			t.Errorf("the row of %s by %s stands twice", r.port, r.implementation)
		}
	}
	for _, port := range c.exported(t) {
		if !slices.ContainsFunc(rows, func(r row) bool { return r.port == port }) {
			t.Errorf("%s has no row in docs/internals/ports.md", port)
		}
	}
}

// noPorts matches packages whose interfaces do not describe needs of the domain.
var noPorts = regexp.MustCompile(`^(app/|ops|cli|api|report)|test$`)

// exported returns the exported interfaces that others can implement.
func (c *code) exported(t *testing.T) (ports []string) {
	for _, pkg := range slices.Sorted(maps.Keys(c.files)) {
		if noPorts.MatchString(pkg) {
			continue
		}
		p, err := c.importer.Import(module + pkg)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.Scope().Names() {
			o, ok := p.Scope().Lookup(name).(*types.TypeName)
			if !ok || !o.Exported() || o.IsAlias() {
				continue
			}
			face, ok := o.Type().Underlying().(*types.Interface)
			if !ok || face.NumMethods() == 0 || !face.IsMethodSet() {
				continue
			}
			closed := false // it has a method that no other package can implement
			for i := range face.NumMethods() {
				closed = closed || !face.Method(i).Exported()
			}
			if !closed {
				ports = append(ports, pkg+"."+name)
			}
		}
	}
	return ports
}

func TestRejectsFalseRow(t *testing.T) {
	c := all(t)
	for name, tt := range map[string]struct {
		row  row
		says string
	}{
		"another type": {
			row{"action.Cloud", "notify.Router", "cloud/cloudtest.RunActions"}, "does not implement action.Cloud",
		},
		"no such type": {
			row{"action.Cloud", "cloud/aws.Nothing", "cloud/cloudtest.RunActions"}, "no type cloud/aws.Nothing",
		},
		"no such port": {
			row{"action.Cloudy", "cloud/sim.Actions", "cloud/cloudtest.RunActions"}, "no type action.Cloudy",
		},
		"no such package": {
			row{"action.Cloud", "cloud/none.Actions", "cloud/cloudtest.RunActions"}, "no package cloud/none",
		},
		"no such suite": {
			row{"action.Cloud", "cloud/sim.Actions", "cloud/cloudtest.RunNothing"},
			"no suite cloud/cloudtest.RunNothing",
		},
		"no such test": {
			row{"action.Cloud", "cloud/sim.Actions", "cloud/sim.TestNothing"}, "no suite cloud/sim.TestNothing",
		},
		"a suite of others": {
			row{"action.Store", "action.Memory", "cloud/cloudtest.RunActions"}, "no test of action runs",
		},
		"no interface": {row{"action.Memory", "action.Memory", "store/storetest.RunInMemory"}, "is no interface"},
		"no application": {
			row{"checkpoint.Backend", application, "objectstore.TestStores"}, "no package of the application",
		},
		"a row as it must be": {row{"action.Store", "action.Memory", "store/storetest.RunInMemory"}, ""},
	} {
		err := c.checkRow(tt.row)
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
	if _, errs := read("| `action.Cloud` | x | cloud/sim.Actions | `x.Y` |"); len(errs) != 1 {
		t.Errorf("a name without quotes: %v", errs)
	}
}
