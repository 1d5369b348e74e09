package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/session"
)

// Limits of stored and sent events.
const (
	maxFileBytes   = 64 << 10 // size at which an event file is closed
	maxSpoolFiles  = 1000     // unsent files
	maxOutputBytes = 1 << 20  // output of commands that is sent as events; the rest is sent in parts
	maxLineBytes   = 4 << 10  // one line of output
)

// journal spools events in numbered files until the store has them. The highest file is being
// written.
type journal struct {
	dir   string
	store Store
	node  int
	now   func() time.Time
	log   func(string)

	mu         sync.Mutex
	current    int64 // number of the file being written
	size       int
	dropped    int
	outputSize int64
	newestSent int64 // number of the newest file in the store
	parts      outputParts
}

// openJournal continues after an earlier process; newest is the newest sent file that the state
// records.
func openJournal(dir string, store Store, node int, now func() time.Time, log func(string), newest,
	output int64) (*journal, error) {
	j := &journal{dir: dir, store: store, node: node, now: now, log: log, outputSize: output}
	j.parts = outputParts{dir: dir, now: now}
	files, err := j.spooledFiles()
	if err != nil {
		return nil, err
	}
	if data, err := os.ReadFile(filepath.Join(dir, "sent")); err == nil {
		if n, err := strconv.ParseInt(string(data), 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
	j.newestSent, j.current = newest, newest+1
	if len(files) > 0 {
		// The last file may end within a line, so a new one is begun.
		j.current = max(j.current, files[len(files)-1]+1)
		j.newestSent = max(newest, files[0]-1)
	}
	return j, nil
}

// spooledFiles returns the numbers of the local files in order.
func (j *journal) spooledFiles() ([]int64, error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, fmt.Errorf("read the events on this machine: %w", err)
	}
	var list []int64
	for _, e := range entries {
		if n, err := strconv.ParseInt(strings.TrimSuffix(e.Name(), ".jsonl"), 10, 64); err == nil {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

func (j *journal) file(n int64) string {
	return filepath.Join(j.dir, strconv.FormatInt(n, 10)+".jsonl")
}

// add records an event.
func (j *journal) add(kind, text string) {
	j.mu.Lock()
	j.write(kind, text)
	j.mu.Unlock()
	j.log(kind + ": " + text)
}

// addOutput records a line of command output: as an event up to maxOutputBytes in total, then in parts.
func (j *journal) addOutput(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.outputSize += int64(len(line)) + 1
	if j.outputSize > maxOutputBytes {
		if err := j.parts.add(line); err != nil {
			j.log("write output: " + err.Error())
		}
		return
	}
	if len(line) > maxLineBytes {
		line = strings.ToValidUTF8(line[:maxLineBytes], "") + " …"
	}
	j.write("output", line)
}

func (j *journal) write(kind, text string) {
	line, err := json.Marshal(session.Event{At: j.now().UTC(), Node: j.node, Kind: kind, Text: text})
	if err != nil {
		return
	}
	if j.current-j.newestSent > maxSpoolFiles {
		j.dropped++
		return
	}
	if j.dropped > 0 {
		n := j.dropped
		j.dropped = 0
		j.write("output", fmt.Sprintf("%d events were dropped, because the store did not answer for long", n))
	}
	f, err := os.OpenFile(j.file(j.current), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		j.log("write an event: " + err.Error())
		return
	}
	if j.size += len(line) + 1; j.size >= maxFileBytes {
		j.current, j.size = j.current+1, 0
	}
}

// counters returns the number of the newest sent file and the recorded output in bytes.
func (j *journal) counters() (events, output int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.newestSent, j.outputSize
}

// flush sends all parts of output, and all events in order.
func (j *journal) flush(ctx context.Context) error {
	if err := j.sendParts(ctx); err != nil {
		return err
	}
	j.mu.Lock()
	if j.size > 0 {
		j.current, j.size = j.current+1, 0
	}
	below := j.current
	j.mu.Unlock()
	files, err := j.spooledFiles()
	if err != nil {
		return err
	}
	for _, n := range files {
		if n >= below {
			break
		}
		data, err := os.ReadFile(j.file(n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		data = data[:bytes.LastIndexByte(data, '\n')+1]
		// ErrExists: an earlier process crashed between sending and recording it.
		if err := j.store.Create(ctx, eventsKey(j.node, n), data); err != nil &&
			!errors.Is(err, checkpoint.ErrExists) {
			return fmt.Errorf("write %s: %w", eventsKey(j.node, n), err)
		}
		j.mu.Lock()
		j.newestSent = n
		j.mu.Unlock()
		// The recorded number keeps a later process from reusing it.
		if err := durable.ReplaceBytes(filepath.Join(j.dir, "sent"), 0o600,
			[]byte(strconv.FormatInt(n, 10))); err != nil {
			return err
		}
		if err := os.Remove(j.file(n)); err != nil {
			return err
		}
	}
	return nil
}
