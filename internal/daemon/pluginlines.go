package daemon

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
	buffer  []byte
	newest  string
	working bool
}

// maxPluginLine bounds a line of the plugin.
const maxPluginLine = 4 << 10

// Write implements io.Writer.
func (l *pluginLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buffer = append(l.buffer, b...)
	for {
		line, rest, whole := bytes.Cut(l.buffer, []byte("\n"))
		if !whole {
			if len(l.buffer) > maxPluginLine {
				l.buffer = nil
			}
			return len(b), nil
		}
		l.buffer = rest
		if text := strings.TrimSpace(string(line)); !isNoise(text) {
			l.newest = text
			plain.Fprintf(l.to, "%s\n", text)
		}
	}
}

// open says that the port is forwarded.
func (l *pluginLines) open() { l.mu.Lock(); defer l.mu.Unlock(); l.working = true }

func (l *pluginLines) isOpen() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.working }

// last is the newest line that was passed on.
func (l *pluginLines) last() string { l.mu.Lock(); defer l.mu.Unlock(); return l.newest }
