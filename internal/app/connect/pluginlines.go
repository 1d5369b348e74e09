package connect

import (
	"bytes"
	"io"
	"strings"
	"sync"

	"github.com/curfew-dev/curfew/internal/plain"
)

// pluginLines passes on what the Session Manager plugin says, but for what curfew says itself.
type pluginLines struct {
	to io.Writer

	mu      sync.Mutex
	lines   lineBuffer
	newest  string
	working bool
}

// Write implements io.Writer.
func (l *pluginLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines.add(b, func(text string) {
		if !isNoise(text) {
			l.newest = text
			plain.Fprintf(l.to, "%s\n", text)
		}
	})
	return len(b), nil
}

// lineBuffer cuts what another program writes into lines.
type lineBuffer []byte

// maxLine bounds a line of another program; a longer one is dropped.
const maxLine = 4 << 10

// add takes the next bytes and hands on the lines that are whole, without the space around
// them.
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

// open says that the port is forwarded.
func (l *pluginLines) open() { l.mu.Lock(); defer l.mu.Unlock(); l.working = true }

func (l *pluginLines) isOpen() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.working }

// last is the newest line that was passed on.
func (l *pluginLines) last() string { l.mu.Lock(); defer l.mu.Unlock(); return l.newest }
