package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// module is the path of this module.
const module = "github.com/curfew-dev/curfew"

// source is the documentation in the code: comments of types and fields, and constants of string
// types.
type source struct {
	// comments are keyed by "package.Type" and "package.Type.Field".
	comments map[string]string
	// constants maps "package.Type" to the values of the constants of that type.
	constants map[string][]string
	// versions maps constants such as "curfew.scan/v1" to their values.
	versions map[string]string
	// listed holds the constants of some lists, with their comments.
	listed map[string][]constant
	// recorded lists the event texts that the code writes to the audit log.
	recorded []string
}

// constant is the value of a constant, and its comment.
type constant struct{ value, doc string }

// lists maps packages to name prefixes of the constants on pages.
var lists = map[string]string{module + "/internal/cli": "Exit", module + "/internal/action": "Event"}

// readSource reads the packages under a directory of the repository.
func readSource(root string) (*source, error) {
	s := &source{
		comments: map[string]string{}, constants: map[string][]string{}, versions: map[string]string{},
		listed: map[string][]constant{},
	}
	files := token.NewFileSet()
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(files, file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if strings.HasSuffix(f.Name.Name, "test") {
			return nil // test suites and fixtures
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		s.add(path.Join(module, filepath.ToSlash(dir)), f)
		return nil
	})
	return s, err
}

func (s *source) add(pkg string, f *ast.File) {
	ast.Inspect(f, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok || !isEntry(literal.Type) {
			return true
		}
		for _, e := range literal.Elts {
			pair, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "What" {
				if text, ok := pair.Value.(*ast.BasicLit); ok {
					s.recorded = append(s.recorded, strings.Trim(text.Value, `"`))
				}
			}
		}
		return true
	})
	for _, decl := range f.Decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				doc := spec.Doc
				if doc == nil && len(d.Specs) == 1 {
					doc = d.Doc
				}
				s.addType(pkg, spec, doc)
			case *ast.ValueSpec:
				s.addConstants(pkg, spec)
			}
		}
	}
}

// isEntry reports whether a type is an entry of the audit log.
func isEntry(t ast.Expr) bool {
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name == "Entry"
	case *ast.SelectorExpr:
		pkg, ok := t.X.(*ast.Ident)
		return ok && pkg.Name == "action" && t.Sel.Name == "Entry"
	}
	return false
}

func (s *source) addType(pkg string, t *ast.TypeSpec, doc *ast.CommentGroup) {
	name := pkg + "." + t.Name.Name
	s.comments[name] = said(doc, t.Name.Name)
	structure, ok := t.Type.(*ast.StructType)
	if !ok {
		return
	}
	var names []string
	keys := map[string]string{} // field names to keys in files
	for _, f := range structure.Fields.List {
		for _, field := range f.Names {
			comment := f.Doc
			if comment == nil {
				comment = f.Comment
			}
			names = append(names, field.Name)
			s.comments[name+"."+field.Name] = said(comment, field.Name)
			if m := fieldKey.FindStringSubmatch(tagOf(f)); m != nil && !acronym.MatchString(field.Name) {
				keys[field.Name] = m[1]
			}
		}
	}
	shared := "" // comment above several fields that names them
	for _, field := range names {
		at := name + "." + field
		if comment := s.comments[at]; comment != "" {
			shared = comment
		} else if slices.Contains(word.FindAllString(shared, -1), field) {
			s.comments[at] = shared
		}
	}
	for _, field := range names {
		s.comments[name+"."+field] = keyed(s.comments[name+"."+field], keys)
	}
}

// keyed replaces field names by the keys of files: names that are not ordinary words, and
// capitalized names inside a sentence.
func keyed(comment string, keys map[string]string) string {
	last := 0
	var b strings.Builder
	for _, at := range word.FindAllStringIndex(comment, -1) {
		w := comment[at[0]:at[1]]
		before := strings.TrimSpace(comment[:at[0]])
		inside := before != "" && !strings.HasSuffix(before, ".") && !strings.HasSuffix(before, ":") ||
			leading.MatchString(comment[at[0]:]) && before == ""
		if key := keys[w]; key != "" && (inside || camel.MatchString(w)) {
			b.WriteString(comment[last:at[0]] + "`" + key + "`")
			last = at[1]
		}
	}
	return b.String() + comment[last:]
}

var (
	// camel matches names that are not ordinary words, such as IdleCPU.
	camel   = regexp.MustCompile("[a-z][A-Z]|[A-Z]{2}[a-z]{2}")
	acronym = regexp.MustCompile("^([A-Z]+s?|GitHub)$")
	// leading matches the beginning of a comment on several fields.
	leading = regexp.MustCompile("^[A-Z][A-Za-z0-9]*(, [A-Z][A-Za-z0-9]*)* and [A-Z]")
	word    = regexp.MustCompile("[A-Za-z0-9]+")
)

// fieldKey matches the key of a field in files and documents.
var fieldKey = regexp.MustCompile("(?:yaml|json):\"([a-z0-9_]+)")

func tagOf(f *ast.Field) string {
	if f.Tag == nil {
		return ""
	}
	return f.Tag.Value
}

// addConstants records typed constants of texts, and the versions of documents.
func (s *source) addConstants(pkg string, spec *ast.ValueSpec) {
	for i, name := range spec.Names {
		if i >= len(spec.Values) {
			return
		}
		literal, ok := spec.Values[i].(*ast.BasicLit)
		if prefix := lists[pkg]; ok && prefix != "" && strings.HasPrefix(name.Name, prefix) {
			s.listed[prefix] = append(s.listed[prefix], constant{
				strings.Trim(literal.Value, `"`), said(cmp.Or(spec.Comment, spec.Doc), name.Name),
			})
		}
		if !ok || literal.Kind != token.STRING {
			return
		}
		value, err := strconv.Unquote(literal.Value)
		if err != nil {
			return
		}
		if t, ok := spec.Type.(*ast.Ident); ok {
			s.constants[pkg+"."+t.Name] = append(s.constants[pkg+"."+t.Name], value)
		}
		if strings.HasPrefix(value, "curfew.") && strings.HasSuffix(value, "/v1") {
			s.versions[pkg+"."+name.Name] = value
		}
	}
}

// said returns a comment as one line without the name of its declaration.
func said(comment *ast.CommentGroup, name string) string {
	text := strings.Join(strings.Fields(comment.Text()), " ")
	for _, verb := range []string{
		" is ", " are ", " reports whether ", " says whether ", " says that ", " says ", " ",
	} {
		if strings.HasPrefix(text, name+" and ") || strings.HasPrefix(text, name+" or ") {
			break // the comment covers several fields and names them
		}
		if rest, ok := strings.CutPrefix(text, name+verb); ok {
			text = rest
			if verb == " reports whether " || verb == " says whether " || verb == " says that " {
				text = "whether " + rest
			}
			break
		}
	}
	return strings.TrimSuffix(text, ".")
}

// comment returns the comment of a struct field.
func (s *source) comment(t reflect.Type, field string) string {
	return s.comments[t.PkgPath()+"."+t.Name()+"."+field]
}
