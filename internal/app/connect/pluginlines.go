package connect

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/curfew-dev/curfew/internal/plain"
)

// pluginLines passes on the Session Manager plugin's output, except messages that curfew replaces.
type pluginLines struct {
	to io.Writer

	mu       sync.Mutex
	lines    lineBuffer
	lastLine string
	opened   bool
}

// Write implements io.Writer.
func (l *pluginLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.add(b, func(text string) {
		if !isNoise(text) {
			l.lastLine = text
			plain.Fprintf(l.to, "%s\n", text)
		}
	})
	return len(b), nil
}

// lineBuffer splits the output of another program into lines.
type lineBuffer []byte

// maxLine is the longest accepted line in bytes; longer ones are dropped.
const maxLine = 4 << 10

// add appends bytes and calls each for every complete line, trimmed.
func (l *lineBuffer) add(b []byte, each func(text string)) {
	*l = append(*l, b...)
	for {
		line, rest, whole := bytes.Cut(*l, []byte("\n"))
		if !whole {
			if len(*l) > maxLine {
				*l = nil
			}
			return
		}
		*l = rest
		each(strings.TrimSpace(string(line)))
	}
}

// setOpen records that the port is forwarded.
func (l *pluginLines) setOpen() { l.mu.Lock(); defer l.mu.Unlock(); l.opened = true }

func (l *pluginLines) isOpen() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.opened }

// last returns the last line that was passed on.
func (l *pluginLines) last() string { l.mu.Lock(); defer l.mu.Unlock(); return l.lastLine }
