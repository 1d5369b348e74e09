package plain

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// hostileText generates text with a preference for harmful characters.
func hostileText() *rapid.Generator[string] {
	parts := rapid.OneOf(
		rapid.SampledFrom([]string{
			"\n", "\r", "\t", "\f", "\v", "\x1b[2J", "\x1b]0;x\a", "\x1b[31m", "\x1b[", "\x1b",
			"\x9b", "\u009b2J", "\u0085",
			"\u202e", "\u2066", "\u2028",
			"\u200b", "\u200d", "\ufeff", "\U000e0041", "\x7f", "\x00", "\xff", "\xe2\x80",
			"by hand    curl x | sh", "'", "\"",
			"\\", "$(id)", "`id`", "*", "~", "=ls", "é", "界", "-rf"}),
		rapid.String())
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(parts, 0, 8).Draw(t, "parts"), "")
	})
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"gpu-1":                  "gpu-1",
		"a\n  by hand    curl":   "a by hand curl",
		"\x1b[2Jred\u202e\u009b": "[2Jred",
		"x\u200by":               "xy",
		"👩\u200d💻 a\u200db":      "👩\u200d💻 ab",
		"\xff":                   "\ufffd",
		"a\u2028b\u0085c":        "a b c",
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		if got := Line(hostileText().Draw(t, "text")); !Safe(got) || Line(got) != got {
			t.Fatalf("the line is %q", got)
		}
	})
}

func TestCut(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"界界界", 2, "界…"}, {"a", 1, "a"}, {"", 1, ""}} {
		if got := Cut(tc.in, tc.n); got != tc.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
}

// TestFprintfArgumentsCannotChangeLayout checks that only the format adds lines and columns, for
// arbitrary arguments.
func TestFprintfArgumentsCannotChangeLayout(t *testing.T) {
	type kind string
	rapid.Check(t, func(t *rapid.T) {
		s := hostileText().Draw(t, "text")
		var b bytes.Buffer
		w := tabwriter.NewWriter(&b, 0, 0, 1, ' ', tabwriter.Debug)
		_, _ = Fprintf(w, "%s\t%v\t%-9s\t%q\n%s\t%d\t%v\t%v\n", s, kind(s), s, s, errors.New(s), 7, []string{s},
			map[string]string{s: s})
		_, _ = Fprintln(w, s)
		_ = w.Flush()
		lines := strings.Split(b.String(), "\n")
		if len(lines) != 4 {
			t.Fatalf("%d lines of %q", len(lines), b.String())
		}
		for _, l := range lines {
			if !Safe(l) {
				t.Fatalf("the line is %q", l)
			}
		}
	})
	var b bytes.Buffer
	_, _ = Fprintf(&b, "%-5s|%5v|%s", "ab", kind("cd"), Text("x\n  y"))
	if got := b.String(); got != "ab   |   cd|x\n  y" {
		t.Errorf("printed %q", got)
	}
}

// TestWriterPreservesJSON checks that no unsafe character passes and that a document decodes to the
// same value, however the writes are split.
func TestWriterPreservesJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := hostileText().Draw(t, "text")
		doc, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		writeInPieces(t, NewWriter(&b, false), doc)
		var got, want string
		if json.Unmarshal(b.Bytes(), &got) != nil || json.Unmarshal(doc, &want) != nil || got != want {
			t.Fatalf("%s became %s", doc, b.String())
		}
		b.Reset()
		color := rapid.Bool().Draw(t, "color")
		writeInPieces(t, NewWriter(&b, color), []byte(s))
		out := b.String()
		if color {
			out = stripColors(out)
		}
		if out = strings.NewReplacer("\n", "", "\t", "").Replace(out); !Safe(out) {
			t.Fatalf("%q became %q", s, b.String())
		}
	})
}

// stripColors removes color sequences without the regular expressions under test.
func stripColors(s string) string {
	for from := 0; ; {
		at := strings.Index(s[from:], "\x1b[")
		if at < 0 {
			return s
		}
		at += from
		end := at + 2
		for end < len(s) && strings.IndexByte("0123456789;:", s[end]) >= 0 {
			end++
		}
		if end == len(s) || s[end] != 'm' {
			from = at + 2
			continue
		}
		s = s[:at] + s[end+1:]
	}
}

// writeInPieces writes p in parts of arbitrary length.
func writeInPieces(t *rapid.T, w *Writer, p []byte) {
	for len(p) > 0 {
		n := rapid.IntRange(1, len(p)).Draw(t, "n")
		if wrote, err := w.Write(p[:n]); err != nil || wrote != n {
			t.Fatalf("Write: %d, %v", wrote, err)
		}
		p = p[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWriter(t *testing.T) {
	for _, tc := range []struct {
		color    bool
		in, want string
	}{
		{true, "\x1b[31;1mred\x1b[0m\n", "\x1b[31;1mred\x1b[0m\n"},
		{false, "\x1b[31mred", `\u001b[31mred`},
		{true, "\x1b[2J\x1b]0;t\a", `\u001b[2J\u001b]0;t\u0007`},
		{true, "\x1b[" + strings.Repeat("1;", 99) + "m", `\u001b[` + strings.Repeat("1;", 99) + "m"},
		{true, "a\r\u0085\u202e\U000e0041界\t", `a\u000d\u0085\u202e\udb40\udc41界` + "\t"},
		{true, "\xe2\x80", "\ufffd\ufffd"},
		{true, "\x1b[3", `\u001b[3`},
	} {
		var b bytes.Buffer
		w := NewWriter(&b, tc.color)
		if _, err := w.Write([]byte(tc.in)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if b.String() != tc.want {
			t.Errorf("%q is written %q, want %q", tc.in, b.String(), tc.want)
		}
	}
}

// TestShellWordsSurviveRealShell passes quoted words through a real shell, which prints each
// argument.
func TestShellWordsSurviveRealShell(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(hostileText(), 1, 40).Draw(t, "words")
		script := `for w; do printf '%s\0' "$w"; done`
		quoted := make([]string, len(words))
		for i, w := range words {
			w = strings.ReplaceAll(w, "\x00", "") // an argument cannot contain a NUL byte
			words[i], quoted[i] = w, Shell(w)
		}
		out, err := exec.Command(sh, "-c", "set -- "+strings.Join(quoted, " ")+"; "+script).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(out), strings.Join(words, "\x00")+"\x00"; got != want {
			t.Fatalf("the shell saw %q, want %q", got, want)
		}
	})
}

func FuzzName(f *testing.F) {
	f.Add("a\n\x1b[2J\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := Name(s)
		if !Safe(got) {
			t.Fatalf("%q is shown as %q", s, got)
		}
		if got != s {
			if back, err := strconv.Unquote(got); err != nil || back != s || !utf8.ValidString(got) {
				t.Fatalf("%q is shown as %q, which reads %q, %v", s, got, back, err)
			}
		}
	})
}
