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
	"strings"
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
	// Precise reports that At has a fraction of a second.
	Precise bool
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
func ReadEvents(runDir string) (Events, error) { return (&EventReader{RunDir: runDir}).Read() }

func (e *Events) add(line []byte) {
	var event struct {
		Event string
		Path  string
		Step  *int64
		At    string
	}
	err := json.Unmarshal(line, &event)
	at, invalid := time.Parse(time.RFC3339, event.At)
	switch {
	case err != nil, invalid != nil, at.IsZero():
		e.InvalidLines++
	case event.Event == "step" && event.Step != nil:
		e.Step = event.Step
	case event.Event == "saved" && event.Path != "":
		e.Saved = append(e.Saved, Declaration{
			Path: event.Path, Step: event.Step, At: at, Precise: strings.Contains(event.At, "."),
		})
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
		s.Path = filepath.ToSlash(rel)
		in = append(in, s)
	}
	return in
}

// EventReader reads the events of a run as they are appended. It is not safe for concurrent use.
type EventReader struct {
	// RunDir is the run's folder.
	RunDir string
	offset int64
	events Events
	// highest is the highest step.
	highest *int64
}

// Read returns all events up to now. The declarations are shared with later calls.
func (r *EventReader) Read() (Events, error) {
	f, err := os.Open(filepath.Join(r.RunDir, EventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r.events, nil
	}
	if err != nil {
		return r.events, fmt.Errorf("read declarations: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < r.offset {
		r.offset, r.events = 0, Events{} // the work replaced the file
	}
	if _, err := f.Seek(r.offset, io.SeekStart); err != nil {
		return r.events, fmt.Errorf("read declarations: %w", err)
	}
	if err := r.parse(f); err != nil {
		return r.events, fmt.Errorf("read declarations in %s: %w", r.RunDir, err)
	}
	return r.events, nil
}

// parse parses lines. A line without newline is still being written and is read again later.
func (r *EventReader) parse(from io.Reader) error {
	lines := bufio.NewReaderSize(from, maxEventLine)
	for {
		line, err := lines.ReadSlice('\n')
		size, long := int64(len(line)), errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			line, err = lines.ReadSlice('\n')
			size += int64(len(line))
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case long:
			r.events.InvalidLines++
		default:
			r.events.add(line)
			r.noteSteps()
		}
		r.offset += size
	}
}

// HighestStep returns the highest step that the work ever declared; nil if none.
func (r *EventReader) HighestStep() *int64 { return r.highest }

// noteSteps keeps the highest step: a step of a checkpoint counts too.
func (r *EventReader) noteSteps() {
	note := func(s *int64) {
		if s != nil && (r.highest == nil || *s > *r.highest) {
			r.highest = s
		}
	}
	note(r.events.Step)
	if n := len(r.events.Saved); n > 0 {
		note(r.events.Saved[n-1].Step)
	}
}
