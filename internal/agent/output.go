package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/session"
)

// outputPartAge is the age at which a part of output is sent that is not full.
const outputPartAge = 10 * time.Second

// outputParts spools output in numbered files until the store has them. The highest file is being written.
type outputParts struct {
	dir string
	now func() time.Time
	// file is being written since a time; 0: none.
	file  int64
	size  int
	since time.Time
}

func (p *outputParts) path(n int64) string {
	return filepath.Join(p.dir, fmt.Sprintf("output-%d.log", n))
}

// sentFile has the number of the newest part in the store.
func (p *outputParts) sentFile() string { return filepath.Join(p.dir, "output-sent") }

// spooled returns the numbers of the local files in order.
func (p *outputParts) spooled() ([]int64, error) {
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, fmt.Errorf("read the output on this machine: %w", err)
	}
	var list []int64
	for _, e := range entries {
		name, isPart := strings.CutPrefix(e.Name(), "output-")
		if n, err := strconv.ParseInt(strings.TrimSuffix(name, ".log"), 10, 64); isPart && err == nil {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, nil
}

// next returns the number after those of all parts.
func (p *outputParts) next() (int64, error) {
	newest := int64(0)
	if text, err := os.ReadFile(p.sentFile()); err == nil {
		if newest, err = strconv.ParseInt(string(text), 10, 64); err != nil {
			return 0, fmt.Errorf("read which output was sent: %w", err)
		}
	}
	files, err := p.spooled()
	if len(files) > 0 {
		newest = max(newest, files[len(files)-1])
	}
	return newest + 1, err
}

// add appends a line to the part that is being written.
func (p *outputParts) add(line string) (err error) {
	if p.file == 0 {
		if p.file, err = p.next(); err != nil {
			p.file = 0
			return err
		}
		p.size, p.since = 0, p.now()
	}
	f, err := os.OpenFile(p.path(p.file), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	if p.size += len(line) + 1; p.size >= session.OutputPartSize {
		p.file = 0
	}
	return errors.Join(err, f.Close())
}

// sendParts sends the parts of output that are full or old, each followed by an event that names it.
func (j *journal) sendParts(ctx context.Context) error {
	j.mu.Lock()
	p := &j.parts
	if p.file != 0 && j.now().Sub(p.since) >= outputPartAge {
		p.file = 0
	}
	writing := p.file
	files, err := p.spooled()
	j.mu.Unlock()
	if err != nil {
		return err
	}
	for _, n := range files {
		if n == writing {
			break
		}
		data, err := os.ReadFile(p.path(n))
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, err = z.Write(data)
		if err := errors.Join(err, z.Close()); err != nil {
			return err
		}
		key := session.OutputKey(j.node, n)
		// ErrExists: an earlier process crashed between sending and recording it.
		if err := j.store.Create(ctx, key, packed.Bytes()); err != nil && !errors.Is(err, checkpoint.ErrExists) {
			return fmt.Errorf("write %s: %w", key, err)
		}
		j.mu.Lock()
		j.write(session.OutputPart, strconv.FormatInt(n, 10))
		j.mu.Unlock()
		if err := durable.ReplaceBytes(p.sentFile(), 0o600, []byte(strconv.FormatInt(n, 10))); err != nil {
			return err
		}
		if err := os.Remove(p.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// flushAll sends everything, also the part that is being written.
func (j *journal) flushAll(ctx context.Context) error {
	j.mu.Lock()
	j.parts.file = 0
	j.mu.Unlock()
	return j.flush(ctx)
}
