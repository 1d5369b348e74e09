// Package plain makes text from outside fit for people: names, tags, reasons and error
// messages reach a terminal, a mail, Slack or Markdown only through it. What it lets
// through can neither drive a terminal nor hide or reorder text nor begin a line.
package plain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// zeroWidthJoiner joins the parts of one emoji.
const zeroWidthJoiner = 0x200d

// unfit says whether a character must not be shown as it is: C0 and C1 controls, marks
// that reorder or hide text, and separators of lines and paragraphs.
func unfit(r rune) bool {
	switch {
	case r < 0x7f:
		return r < ' '
	case r == 0x2028, r == 0x2029:
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != zeroWidthJoiner
}

// Safe says whether a text can be shown in one line as it is.
func Safe(s string) bool { return utf8.ValidString(s) && strings.IndexFunc(s, unfit) < 0 }

// Line returns s as one line: line ends and tabs become spaces, runs of space become
// one, and characters that drive a terminal or hide or reorder text are left out. What
// is not UTF-8 becomes U+FFFD.
func Line(s string) string {
	if !Safe(s) || strings.ContainsRune(s, zeroWidthJoiner) {
		var out strings.Builder
		last := rune(0)
		for i, r := range s {
			switch {
			case unicode.IsSpace(r):
				out.WriteByte(' ')
			case r == zeroWidthJoiner:
				next, size := utf8.DecodeRuneInString(s[i+utf8.RuneLen(r):])
				if joinable(last) && size > 1 && unicode.Is(unicode.So, next) {
					out.WriteRune(r)
				}
			case !unfit(r):
				out.WriteRune(r)
			}
			last = r
		}
		s = out.String()
	}
	return strings.Join(strings.Fields(s), " ")
}

// joinable says whether a character ends a part of an emoji, to which a joiner may add
// another: a symbol, a modifier of skin tone or a variation selector.
func joinable(r rune) bool {
	return unicode.Is(unicode.So, r) || r >= 0x1f3fb && r <= 0x1f3ff || unicode.Is(unicode.Variation_Selector, r)
}

// Name returns s as it is where [Safe] says so, and else quoted as Go quotes a string,
// so that a reader sees what the name holds.
func Name(s string) string {
	if Safe(s) {
		return s
	}
	return strconv.Quote(s)
}

// Cut returns at most n characters of s, ending in "…" where something was cut.
func Cut(s string, n int) string {
	count := 0
	for i := range s {
		if count == n-1 && len(s) > i {
			if _, size := utf8.DecodeRuneInString(s[i:]); len(s) > i+size {
				return s[:i] + "…"
			}
		}
		count++
	}
	return s
}

// Text is text of several lines that the product laid out from safe parts. [Fprintf]
// prints it as it is.
type Text string

// Fprintf is [fmt.Fprintf] for people: the format lays the text out, and no argument
// adds a line, a column of a table or a control character. Strings are printed as
// [Name] returns them, errors as [Line] does; a [Text] is printed as it is. It replaces
// the elements of args.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	for i, a := range args {
		args[i] = guarded(a)
	}
	return fmt.Fprintf(w, format, args...)
}

// Fprintln is [fmt.Fprintln] with the arguments as [Fprintf] prints them.
func Fprintln(w io.Writer, args ...any) (int, error) {
	for i, a := range args {
		args[i] = guarded(a)
	}
	return fmt.Fprintln(w, args...)
}

// guarded returns an argument that prints safely under any verb.
func guarded(a any) any {
	switch a := a.(type) {
	case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return a
	case Text:
		return string(a)
	case string:
		return Name(a)
	case []byte:
		return Name(string(a))
	}
	return argument{a}
}

// argument prints a value that is neither a plain string nor a number.
type argument struct{ value any }

// Format prints the value, then makes it safe, then pads it.
func (a argument) Format(f fmt.State, verb rune) {
	format := fmt.FormatString(f, verb)
	if verb != 's' && verb != 'v' || f.Flag('#') || f.Flag('+') {
		_, _ = io.WriteString(f, Line(fmt.Sprintf(format, a.value)))
		return
	}
	s := fmt.Sprint(a.value)
	if err, ok := a.value.(error); ok {
		s = Line(err.Error())
	}
	_, _ = fmt.Fprintf(f, format[:len(format)-1]+"s", Name(s))
}

// Shell returns s as one word of a POSIX shell command. Show a command only where
// [Safe] holds for it: a quoted line end is right, but reads as a second command.
func Shell(s string) string {
	safe := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_./:=,@+", c)
	}
	// A word that begins with = is a command's path in zsh.
	if s != "" && s[0] != '=' && strings.IndexFunc(s, func(c rune) bool { return !safe(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
