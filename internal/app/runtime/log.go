package runtime

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
)

// sayAgainAfter is how long repetitions of a line are suppressed.
const sayAgainAfter = time.Minute

// NewLogger returns a log as text or JSON: times in UTC in RFC 3339 format, durations in JSON in
// seconds. Warnings and errors that are repeated within a minute are suppressed, and the next such
// line contains their number.
func NewLogger(w io.Writer, asJSON bool) *slog.Logger {
	var h slog.Handler = slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: inUTC})
	if asJSON {
		h = slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				a.Value = slog.Float64Value(a.Value.Duration().Seconds())
			}
			return inUTC(groups, a)
		}})
	}
	return slog.New(&sparing{Handler: h, said: &said{at: map[string]time.Time{}, left: map[string]int{}}})
}

func inUTC(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

// sparing suppresses recently repeated lines.
type sparing struct {
	slog.Handler
	said *said
	// of contains the values of attributes that all its lines have.
	of string
}

// said holds the time at which each line was last logged, and the number of repetitions suppressed
// since.
type said struct {
	mu   sync.Mutex
	at   map[string]time.Time
	left map[string]int
}

// mostSaid limits the number of remembered lines.
const mostSaid = 4096

// Handle implements [slog.Handler]. Lines are equal if their message, error and names are; numbers,
// times and durations do not distinguish them.
func (h *sparing) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return h.Handler.Handle(ctx, r)
	}
	var key strings.Builder
	key.WriteString(r.Message + "\x00" + h.of)
	r.Attrs(func(a slog.Attr) bool {
		key.WriteString(naming(a))
		return true
	})
	left, again := h.said.again(key.String(), r.Time)
	if !again {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("repeated", left))
	}
	return h.Handler.Handle(ctx, r)
}

// naming returns the value of an attribute that distinguishes lines; empty for others.
func naming(a slog.Attr) string {
	switch a.Value.Kind() {
	case slog.KindString, slog.KindAny:
		return a.Key + "\x00" + a.Value.String() + "\x00"
	}
	return ""
}

// again reports whether to log a line, and how often it was suppressed before.
func (s *said) again(key string, now time.Time) (left int, again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.at[key]; ok && now.Sub(at) < sayAgainAfter && !now.Before(at) {
		s.left[key]++
		return 0, false
	}
	if len(s.at) >= mostSaid {
		clear(s.at)
		clear(s.left)
	}
	left = s.left[key]
	s.at[key] = now
	delete(s.left, key)
	return left, true
}

// WithAttrs implements [slog.Handler].
func (h *sparing) WithAttrs(attrs []slog.Attr) slog.Handler {
	of := h.of
	for _, a := range attrs {
		of += naming(a)
	}
	return &sparing{h.Handler.WithAttrs(attrs), h.said, of}
}

// WithGroup implements [slog.Handler].
func (h *sparing) WithGroup(name string) slog.Handler {
	return &sparing{h.Handler.WithGroup(name), h.said, h.of + name + "\x00"}
}

// LogLines returns a writer that turns lines into warnings of a log, for a service whose whole
// output has one format.
func LogLines(log *slog.Logger) io.Writer { return &logLines{log: log} }

type logLines struct {
	log *slog.Logger

	mu   sync.Mutex
	rest []byte
}

// Write implements [io.Writer].
func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		if text := plain.Line(strings.TrimPrefix(string(line), "curfew: ")); text != "" {
			l.log.Warn(text)
		}
	}
}
