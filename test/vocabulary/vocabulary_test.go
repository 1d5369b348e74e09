package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNoNewPatterns checks each package to the counts of baseline.txt.
func TestNoNewPatterns(t *testing.T) {
	tree, err := readTree("../..")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(tree.identifiers); n < 3000 {
		t.Errorf("%d exported identifiers were read", n)
	}
	text, err := os.ReadFile("baseline.txt")
	if err != nil {
		t.Fatal(err)
	}
	base, err := parseBaseline(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range exceeding(base, tree.findings) {
		t.Error(line)
	}
	if got := formatBaseline(base); got != string(text) {
		t.Error("baseline.txt is not as -lower writes it")
	}
}

func TestDocPattern(t *testing.T) {
	for doc, want := range map[string]pattern{
		"View is all that a decision rests on.":                    clause,
		"price is what an hour costs.":                             clause,
		"Old and New are what the file had.":                       clause,
		"Until is when the lease ends.":                            question,
		"fewCells is how many are looked through\none by one.":     question,
		"Whole says whether the cage ends all.":                    speech,
		"Reason tells how it came to this.":                        speech,
		"Reason says in words why it was refused.":                 "",
		"Whole reports whether ending the cage also ends daemons.": "",
		"Price returns the hourly price.":                          "",
		"It is what it is":                                         clause,
		"A run that nothing else asks for is what is left over.":   "",
		"": "",
	} {
		if got := docPattern(doc); got != want {
			t.Errorf("docPattern(%q) = %q, want %q", doc, got, want)
		}
	}
}

const source = `package a

// Lease is what a session has.
type Lease struct {
	// Until is when it ends.
	Until int
	from, to int
	nested struct{ Asked bool }
}

// Held says whether the lease is held.
func (l *Lease) Held() bool {
	// what is left is what remains
	panic("no lease of this session is held")
}

// One and Two are what comes first.
const (
	One = 1
)

var deny, ask int // deny and ask tell what to do
`

func parse(t *testing.T) (*ast.File, func(token.Pos) int) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "a.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f, func(pos token.Pos) int { return set.Position(pos).Line }
}

func TestFindings(t *testing.T) {
	f, line := parse(t)
	got := findings("x/a.go", f, line, false)
	want := []finding{
		{"x/a.go", 4, clause, "Lease is what a session has."},
		{"x/a.go", 6, question, "Until is when it ends."},
		{"x/a.go", 7, wordField, "Lease.from"},
		{"x/a.go", 7, wordField, "Lease.to"},
		{"x/a.go", 8, wordField, "Lease.nested.Asked"},
		{"x/a.go", 12, speech, "Held says whether the lease is held."},
		{"x/a.go", 22, speech, "deny and ask tell what to do"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(finding{})); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	for _, f := range findings("x/a.go", f, line, true) {
		if f.pattern == wordField {
			t.Errorf("a test has the field %s, which is allowed there", f.text)
		}
	}
}

func TestReadsNamesCommentsAndSentences(t *testing.T) {
	var tree tree
	if err := tree.addGo("x/a.go", []byte(source)); err != nil {
		t.Fatal(err)
	}
	names := func(all []entry) (out []string) {
		for _, e := range all {
			out = append(out, e.name+"|"+e.text)
		}
		return out
	}
	if diff := cmp.Diff([]string{
		"a.Lease|Lease is what a session has.", "a.Lease.Until|Until is when it ends.",
		"a.Lease.Held|Held says whether the lease is held.", "a.One|",
	}, names(tree.identifiers)); diff != "" {
		t.Errorf("identifiers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"|no lease of this session is held"}, names(tree.sentences)); diff != "" {
		t.Errorf("sentences (-want +got):\n%s", diff)
	}
	if got := len(tree.comments); got != 6 {
		t.Errorf("%d comments, want 6", got)
	}
}

func TestDocumentSentences(t *testing.T) {
	got := documentSentences("a.md", "# One two three four\n\nFirst it runs once. Then it stops for good.\n"+
		"```sh\ncurfew scan of the account\n```\n| a table of four words |\nToo short.\n")
	var texts []string
	for _, e := range got {
		texts = append(texts, e.text)
	}
	want := []string{"# One two three four", "First it runs once.", "Then it stops for good."}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("sentences (-want +got):\n%s", diff)
	}
}

func TestBaselineOnlyShrinks(t *testing.T) {
	base := map[key]int{{"a", clause}: 2, {"b", clause}: 2, {"c", speech}: 1}
	now := map[key]int{{"a", clause}: 3, {"b", clause}: 1, {"d", clause}: 5}
	want := map[key]int{{"a", clause}: 2, {"b", clause}: 1}
	if diff := cmp.Diff(want, lowered(base, now)); diff != "" {
		t.Errorf("lowered (-want +got):\n%s", diff)
	}
	all := []finding{{"a/x.go", 1, clause, ""}, {"a/x.go", 2, clause, ""}, {"a/y.go", 3, clause, ""}}
	if got := exceeding(base, all); len(got) != 3 {
		t.Errorf("exceeding has %d lines, want every use of the package: %q", len(got), got)
	}
	if got := exceeding(base, all[:2]); got != nil {
		t.Errorf("exceeding has %q within the baseline", got)
	}
}

func TestBaselineSurvivesWritingAndReading(t *testing.T) {
	base := map[key]int{{"internal/b", speech}: 3, {"internal/a", clause}: 1}
	got, err := parseBaseline(formatBaseline(base))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(base, got); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	for _, text := range []string{"a is-what", "a is-what x", "a is-what 0", "a unheard-of 1"} {
		if _, err := parseBaseline(text); err == nil {
			t.Errorf("parseBaseline(%q) is accepted", text)
		}
	}
}

func TestDrawIsTheSameForASeed(t *testing.T) {
	var all tree
	for range 40 {
		if err := all.addGo("x/a.go", []byte(source)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range all.comments {
		all.comments[i].line = i
	}
	sample := func(seed uint64) string {
		var b bytes.Buffer
		draw(&b, all, seed)
		return b.String()
	}
	if first, second := sample(3), sample(3); first != second {
		t.Error("two draws of one seed differ")
	}
	if sample(3) == sample(4) {
		t.Error("two seeds have the same draw")
	}
	if !strings.Contains(sample(3), "comments: 200 of 240") {
		t.Errorf("the draw does not have 200 comments of 240:\n%s", sample(3)[:200])
	}
}
