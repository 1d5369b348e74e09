package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// pattern is a way of writing that the linter refuses.
type pattern string

const (
	// clause is a doc comment with a relative clause for a noun: "X is what …".
	clause pattern = "is-what"
	// question is a doc comment with an indirect question for a noun: "X is how much …".
	question pattern = "is-how"
	// speech is a doc comment that lets a name speak: "X says whether …".
	speech pattern = "says"
	// wordField is a field of a struct named by a participle, pronoun or preposition.
	wordField pattern = "field"
)

// advice has what to write instead of each pattern.
var advice = map[pattern]string{
	clause:    "name the noun instead of a clause with what, who or that which",
	question:  "name the noun, its unit and its range instead of how, when, where, whether or which",
	speech:    `write "reports whether", "returns" or the noun`,
	wordField: "name the field by a noun, with its unit or role",
}

// subject is the start of a sentence: one name or several.
const subject = `^\S+(,? (and |or )?\S+){0,3}? `

var (
	clauseText   = regexp.MustCompile(subject + `(is|are|was|were) (what|whatever|who|whose|all that|those that|that which|that of which)\b`)
	questionText = regexp.MustCompile(subject + `(is|are|was|were) (how|when|where|whether|which|until when|since when|by when)\b`)
	speechText   = regexp.MustCompile(subject + `(say|says|said|tell|tells|speak|speaks) (\S+ )?` +
		`(whether|what|how|which|that|when|where|why|who|whose|if|of|for)\b`)
)

// fieldWords are no names of fields: they say nothing without the sentence around them.
var fieldWords = wordSet(`
	asked told said spoken looked given gone taken climbed vouched unvouched woken fallen risen grown
	rested parted meddled folded thinned followed blurred gapped crowded hurried mistaken
	does did had has was is been
	what who whom which whose how it others one once again aside apart alone else
	from to toward towards with without through against`)

func wordSet(text string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(text) {
		set[w] = true
	}
	return set
}

// finding is one use of a pattern.
type finding struct {
	file    string
	line    int
	pattern pattern
	text    string
}

// findings returns the uses of the patterns in a file. Fields are checked outside tests only:
// a table of cases may say from and to.
func findings(file string, f *ast.File, line func(token.Pos) int, test bool) []finding {
	var found []finding
	seen := map[string]bool{} // several names share one comment
	for _, d := range declared(f) {
		at := line(d.ident.Pos())
		if p := docPattern(d.doc); p != "" && !seen[d.doc] {
			seen[d.doc] = true
			text, _, _ := strings.Cut(strings.TrimSpace(d.doc), "\n")
			found = append(found, finding{file, at, p, text})
		}
		if d.field && !test && fieldWords[strings.ToLower(d.ident.Name)] {
			found = append(found, finding{file, at, wordField, d.qualified})
		}
	}
	return found
}

// docPattern returns the pattern of a doc comment, or nothing.
func docPattern(doc string) pattern {
	doc = strings.Join(strings.Fields(doc), " ")
	switch {
	case clauseText.MatchString(doc):
		return clause
	case speechText.MatchString(doc):
		return speech
	case questionText.MatchString(doc):
		return question
	}
	return ""
}

// key is a pattern in a package.
type key struct {
	dir     string
	pattern pattern
}

func count(all []finding) map[key]int {
	n := map[key]int{}
	for _, f := range all {
		n[key{path.Dir(f.file), f.pattern}]++
	}
	return n
}

// exceeding returns the findings of each package and pattern of which there are more than the
// baseline has, each as a line.
func exceeding(base map[key]int, all []finding) []string {
	n := count(all)
	var lines []string
	for _, f := range all {
		k := key{path.Dir(f.file), f.pattern}
		if n[k] > base[k] {
			lines = append(lines, fmt.Sprintf("%s:%d: %q: %s (%s has %d of these, the baseline %d)",
				f.file, f.line, f.text, advice[f.pattern], k.dir, n[k], base[k]))
		}
	}
	return lines
}

// lowered returns the baseline with the present counts where they are lower. It never rises.
func lowered(base, now map[key]int) map[key]int {
	out := map[key]int{}
	for k, n := range base {
		if n = min(n, now[k]); n > 0 {
			out[k] = n
		}
	}
	return out
}

// parseBaseline reads lines of a package, a pattern and a count.
func parseBaseline(text string) (map[key]int, error) {
	base := map[key]int{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Fields(line)
		if len(parts) != 3 {
			return nil, fmt.Errorf("line %d: %q is not a package, a pattern and a count", i+1, line)
		}
		n, err := strconv.Atoi(parts[2])
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("line %d: %q is not a positive count", i+1, parts[2])
		}
		if advice[pattern(parts[1])] == "" {
			return nil, fmt.Errorf("line %d: %q is not a pattern", i+1, parts[1])
		}
		base[key{parts[0], pattern(parts[1])}] = n
	}
	return base, nil
}

func formatBaseline(base map[key]int) string {
	keys := make([]key, 0, len(base))
	for k := range base {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.pattern, b.pattern))
	})
	var b strings.Builder
	b.WriteString("# Uses of refused patterns that older code still has: package, pattern, count.\n" +
		"# Counts only shrink: go run ./test/vocabulary -lower\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "%s %s %d\n", k.dir, k.pattern, base[k])
	}
	return b.String()
}
