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

// unsafe reports whether a character must be escaped: C0 and C1 controls, marks that reorder or
// hide text, and line and paragraph separators.
func unsafe(r rune) bool {
	switch {
	case r < 0x7f:
		return r < ' '
	case r == 0x2028, r == 0x2029:
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != zeroWidthJoiner
}

// Safe reports whether a text can be shown in one line unchanged.
func Safe(s string) bool { return utf8.ValidString(s) && strings.IndexFunc(s, unsafe) < 0 }

// Line returns s as one line: line ends and tabs become spaces, runs of spaces become one, and
// characters that control a terminal or hide or reorder text are removed. Invalid UTF-8 becomes
// U+FFFD.
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
			case !unsafe(r):
				out.WriteRune(r)
			}
			last = r
		}
		s = out.String()
	}
	return strings.Join(strings.Fields(s), " ")
}

// joinable reports whether a zero-width joiner may follow a character inside an emoji: a symbol, a
// skin-tone modifier or a variation selector.
func joinable(r rune) bool {
	return unicode.Is(unicode.So, r) || r >= 0x1f3fb && r <= 0x1f3ff || unicode.Is(unicode.Variation_Selector, r)
}

// Name returns s unchanged if it is [Safe], and otherwise as a quoted Go string, so that a reader
// sees the hidden characters.
func Name(s string) string {
	if Safe(s) {
		return s
	}
	return strconv.Quote(s)
}

// Cut returns at most n characters of s; a cut text ends in "…".
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

// Text is multi-line text that the product laid out from safe parts. [Fprintf] prints it unchanged.
type Text string

// Fprintf is [fmt.Fprintf] for output to people: only the format controls the layout, so no
// argument can add a line, a table column or a control character. Strings are printed as [Name]
// returns them, errors as [Line] does, and a [Text] unchanged. It replaces the elements of args.
func Fprintf(w io.Writer, format string, args ...any) (int, error) {
	for i, a := range args {
		args[i] = safeArgument(a)
	}
	return fmt.Fprintf(w, format, args...)
}

// Fprintln is [fmt.Fprintln] with the arguments printed as by [Fprintf].
func Fprintln(w io.Writer, args ...any) (int, error) {
	for i, a := range args {
		args[i] = safeArgument(a)
	}
	return fmt.Fprintln(w, args...)
}

// safeArgument returns an argument that prints safely under any verb.
func safeArgument(a any) any {
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

// Format formats the value, makes the result safe, and then pads it.
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

// Shell quotes s as one word of a POSIX shell command. Use it only for [Safe] text: a quoted
// newline is valid, but reads like a second command.
func Shell(s string) string {
	safe := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.ContainsRune("-_./:=,@+", c)
	}
	// zsh expands a word that begins with = to a command's path.
	if s != "" && s[0] != '=' && strings.IndexFunc(s, func(c rune) bool { return !safe(c) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
