// Command mutate changes packages of curfew in one place at a time and runs their tests: a mutation
// that no test notices survives, and is printed with its place. The tree is unchanged: the compiler
// reads the changed file through an overlay. An argument names a package and, after commas, further
// packages whose tests also check it: they run if its own tests pass.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

// options select the packages to mutate and their tests.
type options struct {
	number int
	seed   uint64
	limit  time.Duration
	files  *regexp.Regexp
}

// run tests a sample of each package's mutants. It fails if more survive than allowed.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mutate", flag.ContinueOnError)
	number := flags.Int("n", 20, "mutants that compile, of each package")
	seed := flags.Uint64("seed", 1, "what the sample is drawn by: the same seed draws the same")
	limit := flags.Duration("limit", 5*time.Minute,
		"time for the tests of one mutant; one that takes longer is killed")
	files := flags.String("files", "", "regular expression of the names of files to change; empty for all")
	most := flags.Float64("most", 5, "percent of the mutants that may survive")
	if err := flags.Parse(args); err != nil {
		return err
	}
	names, err := regexp.Compile(*files)
	if err != nil {
		return fmt.Errorf("read -files: %w", err)
	}
	tested, survived := 0, 0
	for _, arg := range flags.Args() {
		pattern, further, _ := strings.Cut(arg, ",")
		packages, err := list(ctx, pattern)
		if err != nil {
			return err
		}
		for _, p := range packages {
			p.testers = []pkg{p}
			if further != "" {
				more, err := list(ctx, strings.Split(further, ",")...)
				if err != nil {
					return err
				}
				p.testers = append(p.testers, more...)
			}
			t, s, err := p.test(ctx, options{*number, *seed, *limit, names}, out)
			tested, survived = tested+t, survived+s
			if err != nil {
				return err
			}
		}
	}
	if tested == 0 {
		return errors.New("nothing was tested: no mutant compiles")
	}
	share := 100 * float64(survived) / float64(tested)
	fmt.Fprintf(out, "%d of %d mutants survived: %.1f%%\n", survived, tested, share)
	if share > *most {
		return fmt.Errorf("more than %g%% survived", *most)
	}
	return nil
}

// pkg is a package as the go command lists it.
type pkg struct {
	ImportPath, Dir                    string
	GoFiles, TestImports, XTestImports []string

	// testers are the packages whose tests decide whether a mutant survives; the package itself is
	// the first.
	testers []pkg
}

func list(ctx context.Context, patterns ...string) ([]pkg, error) {
	out, err := exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=ImportPath,Dir,GoFiles,TestImports,XTestImports", "--"},
			patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the list of packages: %w", err)
		}
		all = append(all, p)
	}
}

// test runs a package's tests on a sample of its mutants, after checking that they pass without
// one.
func (p pkg) test(ctx context.Context, o options, out io.Writer) (tested, survived int, err error) {
	var all []mutant
	for _, name := range p.GoFiles {
		if path := filepath.Join(p.Dir, name); o.files.MatchString(name) {
			source, err := os.ReadFile(path)
			if err != nil {
				return 0, 0, err
			}
			found, err := mutants(path, source)
			if err != nil {
				return 0, 0, err
			}
			all = append(all, found...)
		}
	}
	hash := fnv.New64a()
	io.WriteString(hash, p.ImportPath) //nolint:errcheck // a hash takes everything
	draw := rand.New(rand.NewPCG(o.seed, hash.Sum64()))
	draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, by := range p.testers {
		if v, log, err := by.tests(ctx, nil, o.limit); err != nil {
			return 0, 0, err
		} else if v != survives {
			return 0, 0, fmt.Errorf("the tests of %s fail without a mutant:\n%s", by.ImportPath, log)
		}
	}
	broken := 0
	for _, m := range all {
		if tested == o.number {
			break
		}
		var verdict verdict
		for _, by := range p.testers {
			if verdict, _, err = by.tests(ctx, &m, o.limit); err != nil || verdict != survives {
				break
			}
		}
		switch {
		case err != nil:
			return tested, survived, err
		case verdict == senseless:
			broken++
			continue
		case verdict == survives:
			survived++
			fmt.Fprintln(out, "survived", m)
		}
		tested++
	}
	fmt.Fprintf(out, "%s: %d of %d mutants survived (of %d; %d drawn do not compile)\n",
		p.ImportPath, survived, tested,
		len(all), broken)
	return tested, survived, nil
}

// verdict is the result of the tests for a mutant.
type verdict int

const (
	survives verdict = iota
	killed
	senseless // it does not compile
)

// tests runs the package's tests with a mutant, or without one if it is nil.
func (p pkg) tests(ctx context.Context, m *mutant, limit time.Duration) (verdict, []byte, error) {
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-timeout=" + limit.String()}
	if m != nil {
		dir, err := os.MkdirTemp("", "mutate")
		if err != nil {
			return 0, nil, err
		}
		defer os.RemoveAll(dir) //nolint:errcheck // it is temporary
		changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
		doc, err := json.Marshal(map[string]any{"Replace": map[string]string{m.path: changed}})
		if err := errors.Join(err, os.WriteFile(changed, m.apply(), 0o600),
			os.WriteFile(overlay, doc, 0o600)); err != nil {
			return 0, nil, err
		}
		args = append(args, "-overlay="+overlay)
	}
	args = append(args, p.ImportPath)
	if slices.Contains(slices.Concat(p.TestImports, p.XTestImports), "pgregory.net/rapid") {
		args = append(args, "-rapid.nofailfile") // failures must not be written into the tree
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = p.Dir
	// The go command ends its tests when it is interrupted, but not when it is killed.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, 10*time.Second
	log, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, nil, ctx.Err()
	case err == nil:
		return survives, log, nil
	case !errors.As(err, &exit):
		return 0, nil, err
	case bytes.Contains(log, []byte("[build failed]")) || bytes.Contains(log, []byte("[setup failed]")):
		return senseless, log, nil
	}
	return killed, log, nil
}

// mutant is one change of a file: it replaces the bytes of [from, to).
type mutant struct {
	path     string
	source   []byte
	line     int
	from, to int
	with     string
	what     string
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d: %s", short(m.path), m.line, m.what) }

func (m mutant) apply() []byte {
	return slices.Concat(m.source[:m.from], []byte(m.with), m.source[m.to:])
}

// short returns a path relative to the working directory if it is below that.
func short(path string) string {
	if here, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rel) {
			return rel
		}
	}
	return path
}

// swaps maps operators to their replacements.
var swaps = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ,
	token.GEQ: token.GTR,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.LAND: token.LOR,
	token.LOR:        token.LAND,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
}

// mutants returns the useful mutations of a file.
func mutants(path string, source []byte) ([]mutant, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []mutant
	add := func(from, to token.Pos, with, what string) {
		at := set.Position(from)
		out = append(out, mutant{path, source, at.Line, at.Offset, set.Position(to).Offset, with, what})
	}
	text := func(n ast.Node) string {
		return string(source[set.Position(n.Pos()).Offset:set.Position(n.End()).Offset])
	}
	swap := func(at token.Pos, op token.Token) {
		if with, ok := swaps[op]; ok {
			add(at, at+token.Pos(len(op.String())), with.String(), op.String()+" becomes "+with.String())
		}
	}
	ast.PreorderStack(file, nil, func(n ast.Node, stack []ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			// A capacity has no effect that a test can see.
			if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "make" {
				return false
			}
		case *ast.BinaryExpr:
			swap(n.OpPos, n.Op)
		case *ast.IncDecStmt:
			swap(n.TokPos, n.Tok)
		case *ast.IfStmt:
			add(n.Cond.Pos(), n.Cond.End(), "!("+text(n.Cond)+")", "the condition is negated: "+line(text(n.Cond)))
			add(n.Cond.Pos(), n.Cond.End(), "false && ("+text(n.Cond)+")",
				"the condition never holds: "+line(text(n.Cond)))
		case *ast.CaseClause:
			for _, e := range n.List {
				if s, ok := stack[len(stack)-2].(*ast.SwitchStmt); ok && s.Tag == nil {
					add(e.Pos(), e.End(), "false && ("+text(e)+")", "the case never holds: "+line(text(e)))
				}
			}
		case *ast.AssignStmt:
			swap(n.TokPos, n.Tok)
			if len(n.Lhs) != 1 || len(n.Rhs) != 1 || n.Tok == token.DEFINE {
				for i, to := range n.Lhs {
					if _, ok := to.(*ast.SelectorExpr); ok && len(n.Lhs) == len(n.Rhs) {
						add(to.Pos(), to.End(), "_", text(to)+" is not set to "+line(text(n.Rhs[i])))
					}
				}
			} else if _, ok := n.Lhs[0].(*ast.SelectorExpr); ok {
				add(n.Pos(), n.End(), "_ = "+text(n.Rhs[0]), "not done: "+line(text(n)))
			}
		case *ast.ReturnStmt:
			if last := len(n.Results) - 1; last >= 0 && failing(around(stack), n) {
				add(n.Results[last].Pos(), n.Results[last].End(), "nil", "returns no error: "+line(text(n)))
			}
		case *ast.BasicLit:
			if v, err := strconv.ParseInt(n.Value, 0, 63); n.Kind == token.INT && err == nil {
				add(n.Pos(), n.End(), strconv.FormatInt(v+1, 10), fmt.Sprintf("%d becomes %d", v, v+1))
			}
		case *ast.Ident:
			if with, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok {
				add(n.Pos(), n.End(), with, n.Name+" becomes "+with)
			}
		}
		return true
	})
	return out, nil
}

// around returns the type of the innermost function of a stack.
func around(stack []ast.Node) (f *ast.FuncType) {
	for _, n := range stack {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f = n.Type
		case *ast.FuncLit:
			f = n.Type
		}
	}
	return f
}

// failing reports whether a return statement returns an error as its last result.
func failing(f *ast.FuncType, n *ast.ReturnStmt) bool {
	if f.Results == nil || len(f.Results.List) == 0 {
		return false
	}
	kind, ok := f.Results.List[len(f.Results.List)-1].Type.(*ast.Ident)
	last, isName := n.Results[len(n.Results)-1].(*ast.Ident)
	return ok && kind.Name == "error" && len(n.Results) == f.Results.NumFields() && !(isName && last.Name == "nil")
}

// line returns a text in one line, for a message.
func line(text string) string { return strings.Join(strings.Fields(text), " ") }
