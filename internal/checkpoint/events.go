package checkpoint

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// EventsFile is where a training declares what it did, in the folder that CURFEW_RUN_DIR
// names: a line of JSON for each event.
const EventsFile = "events.jsonl"

// maxEvent is the longest line of events in bytes; a longer one is not read.
const maxEvent = 64 << 10

// Saved is the declaration that a checkpoint is finished.
type Saved struct {
	// Path is as it was declared: absolute, or relative to the training's working folder.
	Path string
	Step *int64
	At   time.Time
}

// Events are what a training declared.
type Events struct {
	// Step is the newest step; nil is unknown.
	Step *int64
	// Saved are in the order of the declarations.
	Saved []Saved
	// Unread counts lines that are no event.
	Unread int
}

// ReadEvents reads the declarations in a run's folder. No file is no declaration.
func ReadEvents(runDir string) (Events, error) {
	f, err := os.Open(filepath.Join(runDir, EventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Events{}, nil
	}
	if err != nil {
		return Events{}, fmt.Errorf("read declarations: %w", err)
	}
	defer f.Close()
	e, err := parseEvents(f)
	if err != nil {
		return e, fmt.Errorf("read declarations in %s: %w", runDir, err)
	}
	return e, nil
}

// parseEvents reads lines. A line without its newline is still being written and does not
// count.
func parseEvents(r io.Reader) (Events, error) {
	var e Events
	b := bufio.NewReaderSize(r, maxEvent)
	for {
		line, err := b.ReadSlice('\n')
		switch {
		case err == io.EOF:
			return e, nil
		case errors.Is(err, bufio.ErrBufferFull):
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = b.ReadSlice('\n')
			}
			if err == io.EOF {
				return e, nil
			}
			if err != nil {
				return e, err
			}
			e.Unread++
			continue
		case err != nil:
			return e, err
		}
		e.add(line)
	}
}

func (e *Events) add(line []byte) {
	var event struct {
		Event string
		Path  string
		Step  *int64
		At    time.Time
	}
	switch err := json.Unmarshal(line, &event); {
	case err != nil, event.At.IsZero():
		e.Unread++
	case event.Event == "step" && event.Step != nil:
		e.Step = event.Step
	case event.Event == "saved" && event.Path != "":
		e.Saved = append(e.Saved, Saved{Path: event.Path, Step: event.Step, At: event.At})
	default:
		e.Unread++
	}
}

// resolved is a path without symbolic links, where it leads somewhere.
func resolved(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}

// In returns the declarations of paths in a folder, relative to it and with slashes; "."
// is the folder itself. The folder is absolute. Relative ones are taken from the training's working folder.
func (e Events) In(dir, workdir string) []Saved {
	var in []Saved
	dir = resolved(dir)
	for _, s := range e.Saved {
		at := s.Path
		if !filepath.IsAbs(at) {
			at = filepath.Join(workdir, at)
		}
		rel, err := filepath.Rel(dir, resolved(at))
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		in = append(in, Saved{filepath.ToSlash(rel), s.Step, s.At})
	}
	return in
}
