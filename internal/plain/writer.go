package plain

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// Writer is the last guard before a terminal or a pipe. It passes line ends, tabs and,
// where colors are on, the sequences that set colors. It writes every other control
// character and every mark that hides or reorders text as the escape \u001b. JSON and
// double-quoted YAML mean the same character by that escape, so documents stay exact.
type Writer struct {
	out   io.Writer
	color bool

	mu sync.Mutex
	// part is the beginning of a character or a color that the next Write completes.
	part []byte
}

// NewWriter returns a Writer to out; color says whether the product's colors pass.
func NewWriter(out io.Writer, color bool) *Writer { return &Writer{out: out, color: color} }

// maxColor bounds a color's sequence, in bytes; the longest that is written sets the
// foreground and the background in 24 bits.
const maxColor = 48

var (
	colored = lazyregexp.New(`^\x1b\[[0-9;:]*m`)
	started = lazyregexp.New(`^\x1b(\[[0-9;:]*)?$`)
)

// Write writes p. It reports as written what it holds back of an incomplete character.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	src := p
	if len(w.part) > 0 {
		src = append(w.part, p...)
		w.part = nil
	}
	out, rest := w.escape(src, false)
	w.part = bytes.Clone(rest)
	if _, err := w.out.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what an incomplete character left behind. It does not close what is
// written to.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, _ := w.escape(w.part, true)
	w.part = nil
	_, err := w.out.Write(out)
	return err
}

// escape returns p with what may not pass escaped, and what the next bytes complete.
// Without anything to escape it returns p itself.
func (w *Writer) escape(p []byte, last bool) (out, rest []byte) {
	done := 0 // of p, in out
	for i := 0; i < len(p); {
		if c := p[i]; c < utf8.RuneSelf && (c >= ' ' && c != 0x7f || c == '\n' || c == '\t') {
			i++
			continue
		}
		if !last && !utf8.FullRune(p[i:]) {
			return w.joined(out, p[done:i]), p[i:]
		}
		r, size := utf8.DecodeRune(p[i:])
		if r == 0x1b && w.color {
			if n := len(colored.Find(p[i:])); n > 0 && n <= maxColor {
				i += n
				continue
			}
			if !last && len(p)-i < maxColor && started.Match(p[i:]) {
				return w.joined(out, p[done:i]), p[i:]
			}
		}
		broken := r == utf8.RuneError && size == 1
		if !broken && !unfit(r) {
			i += size
			continue
		}
		out = append(out, p[done:i]...)
		switch high, low := utf16.EncodeRune(r); {
		case broken:
			out = utf8.AppendRune(out, utf8.RuneError)
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
		done = i
	}
	return w.joined(out, p[done:]), nil
}

func (w *Writer) joined(out, more []byte) []byte {
	if out == nil {
		return more
	}
	return append(out, more...)
}
