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

// Writer is the last guard before a terminal or a pipe. It passes newlines, tabs and, if colors are
// on, color sequences. It escapes every other control character and every mark that hides or
// reorders text as \u001b. JSON and double-quoted YAML decode that escape to the same character, so
// documents stay exact.
type Writer struct {
	out   io.Writer
	color bool

	mu sync.Mutex
	// part is the start of a character or a color sequence that the next Write completes.
	pending []byte
}

// NewWriter returns a Writer to out; color selects whether color sequences pass.
func NewWriter(out io.Writer, color bool) *Writer { return &Writer{out: out, color: color} }

// maxColorLen is the longest color sequence that passes, in bytes. The longest in use sets
// foreground and background in 24 bits.
const maxColorLen = 48

var (
	colorSequence = lazyregexp.New(`^\x1b\[[0-9;:]*m`)
	colorPrefix   = lazyregexp.New(`^\x1b(\[[0-9;:]*)?$`)
)

// Write writes p. Bytes of an incomplete character are held back until the next call and count as
// written.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	src := p
	if len(w.pending) > 0 {
		src = append(w.pending, p...)
		w.pending = nil
	}
	out, rest := w.escape(src, false)
	w.pending = bytes.Clone(rest)
	if _, err := w.out.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes an incomplete character that was held back. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, _ := w.escape(w.pending, true)
	w.pending = nil
	_, err := w.out.Write(out)
	return err
}

// escape returns p with unsafe characters escaped, and the trailing bytes of an incomplete
// character. It returns p itself if there is nothing to escape.
func (w *Writer) escape(p []byte, last bool) (out, incomplete []byte) {
	copied := 0 // the bytes of p that are already in out
	for i := 0; i < len(p); {
		if c := p[i]; c < utf8.RuneSelf && (c >= ' ' && c != 0x7f || c == '\n' || c == '\t') {
			i++
			continue
		}
		if !last && !utf8.FullRune(p[i:]) {
			return w.join(out, p[copied:i]), p[i:]
		}
		r, size := utf8.DecodeRune(p[i:])
		if r == 0x1b && w.color {
			if n := len(colorSequence.Find(p[i:])); n > 0 && n <= maxColorLen {
				i += n
				continue
			}
			if !last && len(p)-i < maxColorLen && colorPrefix.Match(p[i:]) {
				return w.join(out, p[copied:i]), p[i:]
			}
		}
		invalid := r == utf8.RuneError && size == 1
		if !invalid && !unsafe(r) {
			i += size
			continue
		}
		out = append(out, p[copied:i]...)
		switch high, low := utf16.EncodeRune(r); {
		case invalid:
			out = utf8.AppendRune(out, utf8.RuneError)
		case high != utf8.RuneError:
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
		copied = i
	}
	return w.join(out, p[copied:]), nil
}

func (w *Writer) join(out, more []byte) []byte {
	if out == nil {
		return more
	}
	return append(out, more...)
}
