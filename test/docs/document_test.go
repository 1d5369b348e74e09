package docs

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// block is a fenced block of a document with the name of the fence.
type block struct {
	line       int
	kind, text string
}

// kinds are the allowed names of a fence. Blocks sh and console contain commands, and text the
// output of the preceding commands; the others are files, and plain is neither.
var kinds = map[string]bool{
	"sh": true, "console": true, "text": true, "yaml": true, "json": true, "hcl": true, "python": true, "csv": true,
	"crontab": true, "plain": true,
}

// blocks returns the fenced blocks of a document, in order.
func blocks(document string) []block {
	var all []block
	var open *block
	for i, line := range strings.Split(document, "\n") {
		kind, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && open == nil:
			open = &block{line: i + 1, kind: kind}
		case fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}

// command is a command line of a document or of a help text.
type command struct {
	// where is the document and the line, or the help text.
	where string
	// text is the line without its comment.
	text, comment string
	// inline is true for a command within a sentence, which may omit its values.
	inline bool
}

var (
	// inlined is a command within a sentence.
	inlined = regexp.MustCompile("`((?:bin/)?curfew [^`]+)`")
	// quoted matches a comment that lists the figures of a text that a command prints: <!-- curfew
	// price watching: $1 | $2 -->.
	quoted  = regexp.MustCompile(`<!-- ((?:bin/)?curfew .+?): (.+) -->`)
	remarks = regexp.MustCompile(`(?s)<!--.*?-->`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	// remark is a comment of a shell, after at least two spaces.
	remark = regexp.MustCompile(`\s{2,}# (.*)$`)
)

// commands returns the commands of a shell's text, one a line.
func commands(where string, first int, text string) []command {
	var all []command
	for i, line := range strings.Split(text, "\n") {
		c := command{where: fmt.Sprintf("%s:%d", where, first+i)}
		if m := remark.FindStringSubmatchIndex(line); m != nil {
			c.comment, line = line[m[2]:m[3]], line[:m[0]]
		}
		if c.text = strings.TrimSpace(line); c.text != "" && !strings.HasPrefix(c.text, "#") {
			all = append(all, c)
		}
	}
	return all
}

// inline returns the commands within the sentences of a document.
func inline(where, document string) []command {
	var all []command
	// Keep line breaks, so that lines keep their numbers.
	prose := fenced.ReplaceAllStringFunc(document, func(s string) string {
		return strings.Repeat("\n", strings.Count(s, "\n"))
	})
	for i, line := range strings.Split(prose, "\n") {
		for _, m := range inlined.FindAllStringSubmatch(line, -1) {
			all = append(all, command{where: fmt.Sprintf("%s:%d", where, i+1), text: m[1], inline: true})
		}
	}
	return all
}

// examples returns the examples of a help text.
func examples(where, help string) []command {
	_, rest, found := strings.Cut(help, "\nExamples:\n")
	if !found {
		return nil
	}
	text, _, _ := strings.Cut(rest, "\n\n")
	all := commands(where, 1, text)
	for i := range all {
		all[i].where = where
	}
	return all
}

// below returns the names of the subcommands in a help text: those in all groups between the
// examples and the flags.
func below(help string) []string {
	var names []string
	for block := range strings.SplitSeq(help, "\n\n") {
		title, rows, found := strings.Cut(block, ":\n")
		if !found || strings.Contains(title, "\n") ||
			slices.Contains([]string{"Usage", "Examples", "Flags", "Global Flags"}, title) {
			continue
		}
		for line := range strings.Lines(rows) {
			name, indented := strings.CutPrefix(line, "  ")
			if !indented || strings.HasPrefix(name, " ") { // a continued description
				continue
			}
			if name = strings.Fields(name)[0]; name != "help" && name != "completion" {
				names = append(names, name)
			}
		}
	}
	return names
}

// figures matches one or more words that may contain a figure.
const figures = `\S*[0-9█░]\S*(?:\s+\S*[0-9█░]\S*)*`

// passing matches words that differ between runs: times, durations and ids.
var passing = regexp.MustCompile(
	`^[("]*(?:<?[0-9.]+(?:ms|[smhd])|[0-9]{4}-[0-9]{2}-[0-9]{2}\S*|[0-9]{2}:[0-9]{2}\S*|[0-9a-f]*[0-9][0-9a-f]*[a-f][0-9a-f]*)[,;.:)"]*$`)

// pattern matches a line that a document shows. Times, durations, ids and the length of a
// bar may differ.
func pattern(line string) *regexp.Regexp {
	var words []string
	for _, w := range strings.Fields(line) {
		switch {
		case !passing.MatchString(w) && !strings.ContainsAny(w, "█░"):
			words = append(words, regexp.QuoteMeta(w))
		case len(words) == 0 || words[len(words)-1] != figures:
			words = append(words, figures)
		}
	}
	return regexp.MustCompile(`(?m)^\s*` + strings.Join(words, `\s+`) + `\s*$`)
}

// dollars is an amount in a text.
var dollars = regexp.MustCompile(`\$[0-9][0-9,]*(?:\.[0-9]+)?`)

// took matches the duration of a scan.
var took = regexp.MustCompile(`(\d+) s\b`)

// spelled is a date in words, such as Sun 22 Nov 2026.
var spelled = regexp.MustCompile(
	`\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) (\d{4})\b`)

// shows reports whether an output contains a documented line. Amounts may be 2% off, because the
// waste in a window of days depends on the hour.
func shows(line, output string) bool {
	line, output = took.ReplaceAllString(line, "${1}s"), took.ReplaceAllString(output, "${1}s")
	line, output = spelled.ReplaceAllString(line, "$1-01-01"), spelled.ReplaceAllString(output, "$1-01-01")
	if pattern(line).MatchString(output) {
		return true
	}
	blurred := pattern(dollars.ReplaceAllString(line, "$$"))
	for real := range strings.Lines(output) {
		if blurred.MatchString(dollars.ReplaceAllString(real, "$$")) &&
			slices.EqualFunc(dollars.FindAllString(line, -1), dollars.FindAllString(real, -1), near) {
			return true
		}
	}
	return false
}

func near(a, b string) bool {
	var of [2]float64
	for i, s := range []string{a, b} {
		v, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimPrefix(s, "$"), ",", ""), 64)
		if err != nil {
			return false
		}
		of[i] = v
	}
	return math.Abs(of[0]-of[1]) <= 0.02*of[0]
}

func TestShows(t *testing.T) {
	for _, test := range []struct {
		shown, real string
		want        bool
	}{
		{"  Enforced: 2 refused, 4 warned", "  Enforced: 2 refused, 4 warned", true},
		{"  Enforced: 2 refused, 4 warned", "  Enforced: 3 refused, 4 warned", false},
		{"46 cases, 0 failed", "46 cases, 0 failed and more", false},
		{"1 policy is valid", "x\n1 policy is valid\ny", true},
		{"max 12 over 7h 5m (100% covered)", "  max 12 over 7h (100% covered)", true},
		{"max 12 over 7h 5m (100% covered)", "  max 11.5 over 7h 5m (100% covered)", false},
		{"at 2026-11-22 12:46 UTC, $5,022", "at 2027-01-02 09:00 UTC, $5,022", true},
		{"$5,022  5fbf  idle", "$5,022  77aa1  idle", true},
		{"$5,022  5fbf  idle", "a\n$5,023  5fbf  idle\nb", true},
		{"$5,022  5fbf  idle", "$5,223  5fbf  idle", false},
		{"$5,022 of $10", "$5,022 of $11", false},
		{"166 resources, 3 s", "166 resources, 21 s", true},
		{"20%  ████░░░░", "20%  ███░░░░░", true},
		{"20%  ████░░░░", "21%  ████░░░░", false},
	} {
		if got := shows(test.shown, test.real); got != test.want {
			t.Errorf("%q for %q: %v, want %v", test.shown, test.real, got, test.want)
		}
	}
}

func TestCommandsAreFound(t *testing.T) {
	const document = "Run `curfew scan -o json` or `make`.\n\n```sh\ncurfew keep x --reason \"# 3\"   # exit code " +
		"3\n\n# alone\nmake a\n```\n\n```yaml\na: `curfew b`\n```\nand `bin/curfew fix ID`.\n"
	all := inline("a.md", document)
	for _, b := range blocks(document) {
		if b.kind == "sh" {
			all = append(all, commands("a.md", b.line+1, b.text)...)
		}
	}
	want := []command{{"a.md:1", "curfew scan -o json", "", true}, {"a.md:13", "bin/curfew fix ID", "", true},
		{"a.md:4", `curfew keep x --reason "# 3"`, "exit code 3", false}, {"a.md:7", "make a", "", false}}
	if fmt.Sprint(all) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", all, want)
	}
	help := "Does it.\n\nUsage:\n  curfew\n\nExamples:\n  curfew a   # one\n  curfew b\n\nSee:\n  audit " +
		"  shows\n         more\n  help   Help\n\nStop:\n  fix    fixes\n\nFlags:\n      --x  y\n"
	if got, want := fmt.Sprint(examples("h", help), below(help)), fmt.Sprint([]command{
		{"h", "curfew a", "one", false}, {"h", "curfew b", "", false},
	}, []string{"audit", "fix"}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
