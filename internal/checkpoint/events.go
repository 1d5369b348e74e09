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

// EventsFile is the file in CURFEW_RUN_DIR to which a training appends its events, one JSON object
// a line.
const EventsFile = "events.jsonl"

// maxEventLine is the longest accepted line in bytes.
const maxEventLine = 64 << 10

// Declaration is the declaration that a checkpoint is finished.
type Declaration struct {
	// Path is the declared path: absolute, or relative to the training's working folder.
	Path string
	Step *int64
	At   time.Time
}

// Events are the declarations of a training.
type Events struct {
	// Step is the newest step; nil if unknown.
	Step *int64
	// Saved is in order of declaration.
	Saved []Declaration
	// InvalidLines counts lines that are no event.
	InvalidLines int
}

// ReadEvents reads the events in a run's folder. A missing file means no events.
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

// parseEvents parses lines. A line without newline is still being written and is ignored.
func parseEvents(r io.Reader) (Events, error) {
	var e Events
	b := bufio.NewReaderSize(r, maxEventLine)
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
			e.InvalidLines++
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
		e.InvalidLines++
	case event.Event == "step" && event.Step != nil:
		e.Step = event.Step
	case event.Event == "saved" && event.Path != "":
		e.Saved = append(e.Saved, Declaration{Path: event.Path, Step: event.Step, At: event.At})
	default:
		e.InvalidLines++
	}
}

// resolveLinks resolves symbolic links where the target exists.
func resolveLinks(p string) string {
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	return p
}

// DeclaredIn returns the declarations inside an absolute folder, with slash-separated paths
// relative to it; "." is the folder itself. Relative declarations are resolved against workdir.
func (e Events) DeclaredIn(dir, workdir string) []Declaration {
	var in []Declaration
	dir = resolveLinks(dir)
	for _, s := range e.Saved {
		at := s.Path
		if !filepath.IsAbs(at) {
			at = filepath.Join(workdir, at)
		}
		rel, err := filepath.Rel(dir, resolveLinks(at))
		if err != nil || !filepath.IsLocal(rel) {
			continue
		}
		in = append(in, Declaration{filepath.ToSlash(rel), s.Step, s.At})
	}
	return in
}
