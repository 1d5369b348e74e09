// Package columns checks that Go lines end before column 120.
package columns

import (
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// most is the maximum line length in characters; a tab counts as four.
	most = 119
	// data is the length from which a string may exceed the limit, such as a record, an external
	// name or a sentence that people search for.
	data = 40
)

// TestLinesEndBeforeColumn120 reads every Go file that is not generated. A line may only be longer
// if it contains a long string, is part of a raw string, or has an address in a comment.
func TestLinesEndBeforeColumn120(t *testing.T) {
	list, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files", "*.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, name := range strings.Fields(string(list)) {
		src, err := os.ReadFile("../../" + name)
		if os.IsNotExist(err) {
			continue // the file was removed
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(src[:min(len(src), 1024)]), "Code generated") {
			continue
		}
		read++
		for _, line := range tooLong(src) {
			t.Errorf("%s:%d is longer than %d characters", name, line, most)
		}
	}
	if read < 1000 {
		t.Errorf("%d files were read", read)
	}
}

// tooLong returns the numbers of the lines that are too long.
func tooLong(src []byte) (out []int) {
	excused := stringLines(src)
	for i, line := range strings.Split(string(src), "\n") {
		if width(line) > most && !excused[i+1] && !strings.Contains(line, "://") {
			out = append(out, i+1)
		}
	}
	return out
}

// width is the number of columns of a line.
func width(line string) int { return utf8.RuneCountInString(line) + 3*strings.Count(line, "\t") }

// stringLines returns the lines that long strings are on.
func stringLines(src []byte) map[int]bool {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	out := map[int]bool{}
	for {
		pos, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return out
		case tok != token.STRING:
		case strings.Contains(text, "\n") || utf8.RuneCountInString(text) >= data:
			first := file.Line(pos)
			for i := range strings.Count(text, "\n") + 1 {
				out[first+i] = true
			}
		}
	}
}

func TestTooLongLines(t *testing.T) {
	long := strings.Repeat("x", most)
	for _, tc := range []struct {
		name, src string
		want      int
	}{
		{"an identifier", "package p\n\nvar " + long + " int\n", 1},
		{"tabs", "package p\n\nfunc f() {\n\t\t\t\t//" + long[14:] + "\n}\n", 1},
		{"a comment", "package p\n\n// " + long + "\n", 1},
		{"a line of 119", "package p\n\n//" + long[2:] + "\n", 0},
		{"a string", "package p\n\nconst s = \"" + long + "\"\n", 0},
		{"a raw string", "package p\n\nconst s = `\n" + long + "x\n`\n", 0},
		{"short strings", "package p\n\nvar s = []string{" + strings.Repeat(`"abc", `, 20) + "}\n", 1},
	} {
		if got := tooLong([]byte(tc.src)); len(got) != tc.want {
			t.Errorf("%s: lines %v are too long", tc.name, got)
		}
	}
}
