// Package imports checks the imports of this module's packages against order.txt.
package imports

import (
	"bufio"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Module is the path of this module.
const Module = "github.com/curfew-dev/curfew"

// Table is the content of order.txt.
type Table struct {
	sections map[string]*section
	entries  []*entry
	reserved []reservation
	uses     []reservation
	never    []reservation
}

// order lists the packages of its own section that a package may import.
type order string

const (
	above order = "above"
	apart order = "apart"
	free  order = "free"
)

type section struct {
	name, reason string
	order        order
	imports      []string
	deny, calls  []string
}

// entry is the line of one package, or of those below it.
type entry struct {
	name    string // without "/..."
	below   bool
	section *section
	number  int // line number in the table
	// only is nil without a list.
	only, also, except, deny []string
	planned                  bool
	used                     bool
}

// reservation restricts one import to some packages, or forbids it with a reason.
type reservation struct {
	prefix  string
	holders []string
	reason  string
}

// has reports whether a file may use the reserved import.
func (r *reservation) has(importer, file string) bool {
	return slices.Contains(r.holders, short(importer)) || slices.Contains(r.holders, short(importer)+"/"+file)
}

// rule returns the section's rule for errors.
func (s *section) rule() string { return "[" + s.name + "] " + s.reason }

// isTest reports whether the section contains test programs, which reservations do not affect.
func (s *section) isTest() bool { return s.name == "testing" }

// Read parses a table.
func Read(r io.Reader) (*Table, error) {
	t := &Table{sections: map[string]*section{}}
	var in *section
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		line = strings.TrimSpace(line)
		var err error
		switch head, rest, isHead := strings.Cut(line, ":"); {
		case line == "":
		case strings.HasPrefix(line, "["):
			name, reason, ok := strings.Cut(line[1:], "]")
			if !ok || t.sections[name] != nil {
				err = fmt.Errorf("a second or broken head %q", line)
			}
			in = &section{name: name, reason: strings.TrimSpace(reason)}
			t.sections[name] = in
		case strings.HasPrefix(line, "reserve use ") && isHead:
			for _, use := range strings.Fields(strings.TrimPrefix(head, "reserve use ")) {
				t.uses = append(t.uses, reservation{prefix: use, holders: strings.Fields(rest)})
			}
		case strings.HasPrefix(line, "reserve ") && isHead:
			r := reservation{prefix: strings.TrimPrefix(head, "reserve "), holders: strings.Fields(rest)}
			t.reserved = append(t.reserved, r)
		case strings.HasPrefix(line, "never ") && isHead:
			t.never = append(t.never, reservation{
				prefix: strings.TrimPrefix(head, "never "), reason: strings.TrimSpace(rest),
			})
		case in == nil:
			err = fmt.Errorf("%q is in no section", line)
		case isHead && !strings.Contains(head, " "):
			err = in.read(head, strings.Fields(rest))
		default:
			var e *entry
			if e, err = readEntry(strings.Fields(line), in, n); err == nil {
				t.entries = append(t.entries, e)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("read line %d of the order: %w", n, err)
		}
	}
	return t, cmp.Or(lines.Err(), t.check())
}

func (s *section) read(key string, values []string) error {
	switch key {
	case "order":
		s.order = order(strings.Join(values, " "))
		if s.order != above && s.order != apart && s.order != free {
			return fmt.Errorf("the order %q does not exist", s.order)
		}
	case "imports":
		s.imports = values
	case "deny":
		s.deny = values
	case "calls":
		s.calls = values
	default:
		return fmt.Errorf("the key %q does not exist", key)
	}
	return nil
}

func readEntry(words []string, in *section, number int) (*entry, error) {
	e := &entry{section: in, number: number}
	e.name, e.below = strings.CutSuffix(words[0], "/...")
	var list *[]string
	for _, w := range words[1:] {
		switch {
		case w == "planned":
			e.planned, list = true, nil
		case w == "only:":
			e.only, list = []string{}, &e.only
		case w == "also:":
			list = &e.also
		case w == "except:":
			list = &e.except
		case w == "deny:":
			list = &e.deny
		case list == nil:
			return nil, fmt.Errorf("%q stands after no key", w)
		case w != "none":
			*list = append(*list, w)
		}
	}
	return e, nil
}

// check refuses a table with undefined names.
func (t *Table) check() error {
	for _, s := range t.sections {
		if s.order == "" || s.reason == "" {
			return fmt.Errorf("read the order: section %s lacks its order or its reason", s.name)
		}
		for _, other := range s.imports {
			if t.sections[other] == nil {
				return fmt.Errorf("read the order: section %s imports %s, which does not exist", s.name, other)
			}
		}
	}
	for i, e := range t.entries {
		if slices.ContainsFunc(t.entries[:i], func(o *entry) bool { return o.name == e.name }) {
			return fmt.Errorf("read the order: line %d is the second one of %s", e.number, e.name)
		}
		for _, name := range slices.Concat(e.only, e.also, e.except) {
			if t.find(name) == nil {
				return fmt.Errorf("read the order: line %d names %s, which has no line", e.number, name)
			}
		}
	}
	return nil
}

// find returns the entry of a package, the one with the longest name.
func (t *Table) find(name string) *entry {
	var found *entry
	for _, e := range t.entries {
		if e.name == name || e.below && strings.HasPrefix(name, e.name+"/") {
			if found == nil || len(e.name) > len(found.name) {
				found = e
			}
		}
	}
	return found
}

// Package is a package of this module with its files except tests.
type Package struct {
	// Path is relative to the module.
	Path  string
	Files []File
}

// File is a file with its imports and uses.
type File struct {
	Name    string
	Imports []string
	// Uses are the names that it uses from packages of the standard library: "time.Now".
	Uses []string
}

// ParseFile reads the imports and uses of a file.
func ParseFile(name string, source []byte) (File, error) {
	f := File{Name: name}
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	names := map[string]string{} // maps names of imports to their paths
	for _, i := range parsed.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return f, err
		}
		f.Imports = append(f.Imports, p)
		local := path.Base(p)
		if i.Name != nil {
			local = i.Name.Name
		}
		names[local] = p
	}
	uses := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && names[x.Name] != "" {
				uses[names[x.Name]+"."+s.Sel.Name] = true
			}
		}
		return true
	})
	f.Uses = slices.Sorted(maps.Keys(uses))
	return f, nil
}

// short returns the name of a package of this module in the table.
func short(p string) string {
	p = strings.TrimPrefix(strings.TrimPrefix(p, Module), "/")
	return strings.TrimPrefix(p, "internal/")
}

// Violation is a violation of a rule by a package.
type Violation struct {
	// File is empty if the package has no line.
	Package, File, Import, Rule string
}

// String returns the package, the import and the rule.
func (v Violation) String() string {
	if v.Import == "" {
		return v.Package + ": " + v.Rule
	}
	return fmt.Sprintf("%s (%s) imports %s: %s", v.Package, v.File, v.Import, v.Rule)
}

// Check returns the violations of the table, and its lines without a package.
func (t *Table) Check(packages []Package) []Violation {
	var out []Violation
	for _, p := range packages {
		e := t.find(short(p.Path))
		if e == nil {
			const rule = "it has no line in test/imports/order.txt; add one where its imports allow"
			out = append(out, Violation{Package: p.Path, Rule: rule})
			continue
		}
		e.used = true
		for _, f := range p.Files {
			for _, i := range f.Imports {
				if rule := t.refuse(e, p.Path, f.Name, i); rule != "" {
					out = append(out, Violation{p.Path, f.Name, i, rule})
				}
			}
			for _, use := range f.Uses {
				if slices.Contains(e.section.calls, use) {
					out = append(out, Violation{p.Path, f.Name, use, e.section.rule()})
				}
				for _, r := range t.uses {
					if use == r.prefix && !e.section.isTest() && !r.has(p.Path, f.Name) {
						rule := "only " + strings.Join(r.holders, ", ") + " may use it"
						out = append(out, Violation{p.Path, f.Name, use, rule})
					}
				}
			}
		}
	}
	for _, e := range t.entries {
		if !e.used && !e.planned {
			rule := fmt.Sprintf("line %d of test/imports/order.txt stands for no package", e.number)
			out = append(out, Violation{Package: e.name, Rule: rule})
		}
	}
	return out
}

// refuse returns the rule that an import violates, or empty.
func (t *Table) refuse(e *entry, importer, file, imported string) string {
	own := imported == Module || strings.HasPrefix(imported, Module+"/")
	name := imported
	if own {
		name = short(imported)
	}
	for _, n := range t.never {
		if begins(imported, n.prefix) {
			return n.reason
		}
	}
	for _, r := range t.reserved {
		if begins(name, r.prefix) && !e.section.isTest() && !r.has(importer, file) {
			return fmt.Sprintf("only %s may import it", strings.Join(r.holders, ", "))
		}
	}
	if !own {
		for _, d := range slices.Concat(e.section.deny, e.deny) {
			if begins(imported, d) {
				return e.section.rule()
			}
		}
		return ""
	}
	to := t.find(name)
	switch {
	case to == nil:
		return "it has no line in test/imports/order.txt"
	case slices.Contains(e.also, name), to == e:
		return ""
	case slices.Contains(e.except, name):
		return fmt.Sprintf("line %d excepts it", e.number)
	case e.only != nil:
		if slices.Contains(e.only, name) {
			return ""
		}
		allowed := cmp.Or(strings.Join(e.only, ", "), "no package of this module")
		return fmt.Sprintf("line %d allows only %s", e.number, allowed)
	case to.section == e.section:
		if e.section.order == free || e.section.order == above && to.number < e.number {
			return ""
		}
	case slices.Contains(e.section.imports, to.section.name):
		return ""
	}
	return fmt.Sprintf("%s; it is in [%s], line %d", e.section.rule(), to.section.name, to.number)
}

// begins reports whether an import path is, or is below, a prefix.
func begins(imported, prefix string) bool {
	if strings.HasSuffix(prefix, "/") {
		return strings.HasPrefix(imported, prefix)
	}
	return imported == prefix || strings.HasPrefix(imported, prefix+"/")
}
