// Command words checks the words of everything that a person reads: comments, strings and
// names of the Go code, and the documents. Each phrase that it refuses has a replacement
// that it prints. It exits with 1 when it finds one.
//
//	go run ./test/words [PATH...]
package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// phrase is a refused text with its replacement.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

func say(pattern, instead string) phrase {
	return phrase{regexp.MustCompile(`(?i)` + pattern), instead}
}

// phrases are refused in comments, strings and documents.
var phrases = []phrase{
	say(`\bnobody\b`, "no one, or the subject that acts"),
	say(`\bsomebody\b`, "a person, or the role: approver, owner"),
	say(`\banew\b`, "again"),
	say(`\bfor ever\b`, "forever, or without end"),
	say(`\bof (one's|your) own\b`, "own, separate, on-premises"),
	say(`\bdear(er|est)?\b`, "expensive"),
	say(`\bbeside\b`, "next to, with, in addition to"),
	say(`\b(it|that|which|this|there) lies\b|\blies (in|on|between|within|under|over|above|below|outside)\b`,
		"is, is stored"),
	say(`\bthere is nothing that\b`, "no …"),
	say(`\bnineteen (cases )?(of|in) twenty\b`, "p95"),
	say(`\bknows the future\b`, "perfect foresight"),
	say(`\bwithout foresight\b`, "online policy"),
	say(`\bunder a clock that jumps\b`, "simulated time"),
	say(`\bwhose it is\b`, "by team"),
	say(`\bcannot judge\b`, "unmeasured"),
	say(`\bwhat was (billed|accrued|made)\b`, "billed, accrued, units"),
	say(`\bspent up\b`, "exceeded"),
	say(`\btheir like\b|\bthe like of\b`, "similar ones"),
	say(`\bby hand of\b`, "by"),
	say(`\bit is not so that\b`, "not"),
	say(`\bwithout a figure\b`, "not estimated"),
	say(`\btelemetry that tells\b`, "GPU metrics"),
	say(`\bin no time of its own\b`, "takes no time (assumed)"),
	say(`\ba case costs\b`, "one run costs"),
	say(`\bspent or held\b`, "spent or reserved"),
	say(`\bNo fuse has blown\b`, "Nothing waits for confirmation"),
	say(`\bSavings are net\b`, "… already cover part of this and are subtracted"),
}

// style is refused only in strings and documents, where people read figures.
var style = []phrase{
	say(`[0-9] %(?:$|[^a-z%])`, "42%, without a space"),
	say(`%[a-z] %%`, "42%, without a space"),
}

// private are names that only this project knows.
var private = []phrase{
	say(`^(petition|wish|deed|crew|purse|glimpse|bout|estate)(e?s)?$`,
		"request, fix request, operation, job group, budget key, last sample, episode, inventory with sizes"),
}

func main() {
	files := os.Args[1:]
	if len(files) == 0 {
		out, err := exec.Command("git", "ls-files", "*.go", "*.md", "*.templ", "*.yaml", "*.yml", "Makefile").Output()
		if err != nil {
			fmt.Fprintln(os.Stderr, "words: list the files:", err)
			os.Exit(2)
		}
		files = strings.Fields(string(out))
	}
	found := 0
	for _, file := range files {
		// The checker names what it refuses, and recorded outputs are what the product says.
		// The one that starts PostgreSQL names the account "nobody" of Unix.
		if file == "test/postgres/process_linux.go" || strings.HasPrefix(file, "test/words/") ||
			strings.Contains(file, "testdata/") || file == "CHANGELOG.md" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "words:", err)
			os.Exit(2)
		}
		for _, m := range check(file, text) {
			fmt.Println(m)
			found++
		}
	}
	if found > 0 {
		fmt.Fprintf(os.Stderr, "words: %d phrases to replace\n", found)
		os.Exit(1)
	}
}

// check returns the refused texts of a file, each with its place and replacement.
func check(file string, text []byte) []string {
	if filepath.Ext(file) == ".go" {
		return checkGo(file, text)
	}
	var found []string
	for i, line := range strings.Split(string(text), "\n") {
		found = append(found, match(token.Position{Filename: file, Line: i + 1, Column: 1}, line, phrases, style)...)
	}
	return found
}

func checkGo(file string, text []byte) []string {
	var s scanner.Scanner
	set := token.NewFileSet()
	f := set.AddFile(file, set.Base(), len(text))
	s.Init(f, text, nil, scanner.ScanComments)
	var found []string
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return found
		case token.COMMENT:
			// A sentence may span lines, so match the whole text.
			found = append(found, match(set.Position(pos), lit, phrases)...)
		case token.STRING:
			lists := [][]phrase{phrases}
			if !strings.HasSuffix(file, "_test.go") {
				lists = append(lists, style)
			}
			found = append(found, match(set.Position(pos), lit, lists...)...)
		case token.IDENT:
			for _, word := range words(lit) {
				found = append(found, match(set.Position(pos), word, private)...)
			}
		}
	}
}

// words returns the parts of a name in camel case.
func words(name string) []string {
	var parts []string
	start := 0
	runes := []rune(name)
	for i := 1; i < len(runes); i++ {
		if unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) {
			parts = append(parts, string(runes[start:i]))
			start = i
		}
	}
	return append(parts, string(runes[start:]))
}

func match(at token.Position, text string, lists ...[]phrase) []string {
	var found []string
	for _, p := range slices.Concat(lists...) {
		for _, m := range p.pattern.FindAllStringIndex(text, -1) {
			place := at
			if n := strings.Count(text[:m[0]], "\n"); n > 0 {
				place.Line, place.Column = at.Line+n, m[0]-strings.LastIndex(text[:m[0]], "\n")
			} else {
				place.Column += m[0]
			}
			found = append(found,
				fmt.Sprintf("%s: %q: write %s", place, strings.Trim(text[m[0]:m[1]], " \t\n\\\"`.,;:()"),
					p.instead))
		}
	}
	return found
}
