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

// Bounds of what is kept and sent.
const (
	fileBytes   = 64 << 10 // a file of events is closed from here on
	spoolFiles  = 1000     // files that wait for a store that does not answer
	outputBytes = 1 << 20  // output of commands that is sent in all
	lineBytes   = 4 << 10  // one line of output
)

// journal keeps events on this machine until the store has them: numbered files, of which
// the highest is being written.
type journal struct {
	dir   string
	store Store
	node  int
	now   func() time.Time
	log   func(string)

	mu      sync.Mutex
	number  int64 // of the file that is being written
	size    int
	dropped int
	output  int64
	sent    int64 // of the newest file that the store has
}

// openJournal goes on after what an earlier process wrote; newest is the number that its
// state knows.
func openJournal(dir string, store Store, node int, now func() time.Time, log func(string), newest,
	output int64) (*journal, error) {
	j := &journal{dir: dir, store: store, node: node, now: now, log: log, output: output}
	files, err := j.waiting()
	if err != nil {
		return nil, err
	}
	if data, err := os.ReadFile(filepath.Join(dir, "sent")); err == nil {
		if n, err := strconv.ParseInt(string(data), 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
	j.sent, j.number = newest, newest+1
	if len(files) > 0 {
		// What was being written may end in the middle of a line, so another file is begun.
		j.number = max(j.number, files[len(files)-1]+1)
		j.sent = max(newest, files[0]-1)
	}
	return j, nil
}

// waiting lists the numbers of the files that are on this machine, in order.
func (j *journal) waiting() ([]int64, error) {
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
	j.put(kind, text)
	j.mu.Unlock()
	j.log(kind + ": " + text)
}

// print records a line that a command printed, up to what is sent in all.
func (j *journal) print(line string) {
	if len(line) > lineBytes {
		line = strings.ToValidUTF8(line[:lineBytes], "") + " …"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.output
	j.output += int64(len(line)) + 1
	switch {
	case j.output <= outputBytes:
		j.put("output", line)
	case before <= outputBytes:
		j.put("output", fmt.Sprintf("more than %d KiB were printed: the rest is in the state folder of the agent alone",
			outputBytes>>10))
	}
}

func (j *journal) put(kind, text string) {
	line, err := json.Marshal(session.Event{At: j.now().UTC(), Node: j.node, Kind: kind, Text: text})
	if err != nil {
		return
	}
	if j.number-j.sent > spoolFiles {
		j.dropped++
		return
	}
	if j.dropped > 0 {
		n := j.dropped
		j.dropped = 0
		j.put("output", fmt.Sprintf("%d events were dropped, because the store did not answer for long", n))
	}
	f, err := os.OpenFile(j.file(j.number), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		j.log("write an event: " + err.Error())
		return
	}
	if j.size += len(line) + 1; j.size >= fileBytes {
		j.number, j.size = j.number+1, 0
	}
}

// numbers returns the number of the newest file that the store has, and how much output was
// recorded.
func (j *journal) numbers() (events, output int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sent, j.output
}

// flush sends everything there is, in order.
func (j *journal) flush(ctx context.Context) error {
	j.mu.Lock()
	if j.size > 0 {
		j.number, j.size = j.number+1, 0
	}
	below := j.number
	j.mu.Unlock()
	files, err := j.waiting()
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
		// One that is there was sent by a process that died before it knew.
		if err := j.store.Create(ctx, eventsKey(j.node, n), data); err != nil && !errors.Is(err, checkpoint.ErrExists) {
			return fmt.Errorf("write %s: %w", eventsKey(j.node, n), err)
		}
		j.mu.Lock()
		j.sent = n
		j.mu.Unlock()
		// Its number is never used again, also where the process dies here.
		if err := durable.ReplaceBytes(filepath.Join(j.dir, "sent"), 0o600, []byte(strconv.FormatInt(n, 10))); err != nil {
			return err
		}
		if err := os.Remove(j.file(n)); err != nil {
			return err
		}
	}
	return nil
}
