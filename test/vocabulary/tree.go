package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// entry is one name, comment or sentence with its place.
type entry struct {
	file string
	line int
	// name is the qualified identifier, such as store.Store.Close; empty for other entries.
	name string
	text string
}

// tree has the vocabulary of the module, in the order of its files.
type tree struct {
	identifiers []entry
	comments    []entry
	sentences   []entry
	findings    []finding
}

// readTree reads every tracked Go file that is not generated, and every document.
func readTree(dir string) (tree, error) {
	var t tree
	out, err := exec.Command("git", "-C", dir, "ls-files", "*.go", "*.md").Output()
	if err != nil {
		return t, fmt.Errorf("list the files: %w", err)
	}
	for _, file := range strings.Fields(string(out)) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if os.IsNotExist(err) {
			continue // removed, and not committed yet
		}
		if err != nil {
			return t, err
		}
		switch {
		case path.Ext(file) == ".md":
			if file != "CHANGELOG.md" {
				t.sentences = append(t.sentences, documentSentences(file, string(text))...)
			}
		case !strings.Contains(string(text[:min(len(text), 400)]), "Code generated"):
			if err := t.addGo(file, text); err != nil {
				return t, err
			}
		}
	}
	return t, nil
}

func (t *tree) addGo(file string, text []byte) error {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	line := func(pos token.Pos) int { return set.Position(pos).Line }
	test := strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "test/")
	t.findings = append(t.findings, findings(file, f, line, test)...)
	for _, group := range f.Comments {
		if body := strings.TrimSpace(group.Text()); body != "" {
			t.comments = append(t.comments, entry{file: file, line: line(group.Pos()), text: body})
		}
	}
	if test {
		return nil
	}
	for _, d := range declared(f) {
		if d.exported {
			t.identifiers = append(t.identifiers, entry{
				file: file, line: line(d.ident.Pos()),
				name: f.Name.Name + "." + d.qualified, text: strings.TrimSpace(d.doc),
			})
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			return n.Tag == nil // a tag is no sentence
		case *ast.BasicLit:
			if body, err := strconv.Unquote(n.Value); n.Kind == token.STRING && err == nil && isSentence(body) {
				t.sentences = append(t.sentences, entry{file: file, line: line(n.Pos()), text: body})
			}
		}
		return true
	})
	return nil
}

// declaration is a declared name with its comments: those above it and behind it.
type declaration struct {
	ident     *ast.Ident
	qualified string
	doc       string
	exported  bool
	field     bool
}

// declared returns the package-level names, methods and fields of structs and interfaces.
func declared(f *ast.File) []declaration {
	var found []declaration
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name, exported := d.Name.Name, d.Name.IsExported()
			if d.Recv != nil && len(d.Recv.List) == 1 {
				recv := receiver(d.Recv.List[0].Type)
				name, exported = recv+"."+name, exported && ast.IsExported(recv)
			}
			found = append(found, declaration{ident: d.Name, qualified: name, doc: d.Doc.Text(), exported: exported})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				found = append(found, specDeclarations(d, spec)...)
			}
		}
	}
	return found
}

func specDeclarations(d *ast.GenDecl, spec ast.Spec) []declaration {
	var found []declaration
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		doc := spec.Doc.Text() + spec.Comment.Text()
		if !d.Lparen.IsValid() {
			doc = d.Doc.Text() + doc
		}
		found = append(found, declaration{
			ident: spec.Name, qualified: spec.Name.Name, doc: doc, exported: spec.Name.IsExported(),
		})
		found = append(found, fields(spec.Name.Name, spec.Name.IsExported(), spec.Type)...)
	case *ast.ValueSpec:
		doc := spec.Doc.Text() + spec.Comment.Text()
		if !d.Lparen.IsValid() {
			doc = d.Doc.Text() + doc
		}
		for _, name := range spec.Names {
			found = append(found, declaration{
				ident: name, qualified: name.Name, doc: doc, exported: name.IsExported(),
			})
		}
	}
	return found
}

// fields returns the fields of a struct type, those of nested structs too, or the methods of an
// interface type.
func fields(owner string, exported bool, expr ast.Expr) []declaration {
	var found []declaration
	ast.Inspect(expr, func(n ast.Node) bool {
		var list *ast.FieldList
		isStruct := false
		switch n := n.(type) {
		case *ast.StructType:
			list, isStruct = n.Fields, true
		case *ast.InterfaceType:
			list = n.Methods
		default:
			return true
		}
		for _, field := range list.List {
			for _, name := range field.Names {
				found = append(found, declaration{
					ident: name, qualified: owner + "." + name.Name, doc: field.Doc.Text() + field.Comment.Text(),
					exported: exported && name.IsExported(), field: isStruct,
				})
				found = append(found, fields(owner+"."+name.Name, exported && name.IsExported(), field.Type)...)
			}
		}
		return false
	})
	return found
}

func receiver(expr ast.Expr) string {
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

var word = regexp.MustCompile(`[A-Za-z]{2,}`)

// isSentence reports whether a string reads as prose: four words or more, with spaces, and no
// SQL, code or expression.
func isSentence(s string) bool {
	return len(word.FindAllString(s, -1)) >= 4 && strings.Count(s, " ") >= 3 && len(s) < 600 &&
		!strings.ContainsAny(s, "{}<>=*\\") && !sql.MatchString(s)
}

var sql = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|FROM|WHERE|AND|ORDER|PRAGMA)\b`)

var sentenceEnd = regexp.MustCompile(`[.?!:]\s+`)

// documentSentences returns the sentences of a Markdown document outside its blocks of commands,
// tables and comments.
func documentSentences(file, text string) []entry {
	var found []entry
	block := false
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			block = !block
			continue
		}
		if block || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "<!--") ||
			strings.HasPrefix(line, "    ") {
			continue
		}
		rest := line
		for rest != "" {
			sentence := rest
			if at := sentenceEnd.FindStringIndex(rest); at != nil {
				sentence, rest = rest[:at[1]], rest[at[1]:]
			} else {
				rest = ""
			}
			if sentence = strings.TrimSpace(sentence); len(word.FindAllString(sentence, -1)) >= 4 {
				found = append(found, entry{file: file, line: i + 1, text: sentence})
			}
		}
	}
	return found
}
