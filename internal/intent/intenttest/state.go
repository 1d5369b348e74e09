// Package intenttest supports tests of calls with lasting effects: a journal and a provider with
// real state and one-shot faults, both in memory or in files that survive a process, and the kill
// matrix, which ends a process at each boundary of its external calls and lets another one
// continue.
package intenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// State is a value that is changed atomically. With a path it is stored in a file, so that the next
// process sees it (it need not survive the machine).
type State[T any] struct {
	// Path is the file; empty for memory.
	Path string
	mu   sync.Mutex
	text []byte
}

// Do passes the value to change. The modified value is stored if change returns nil.
func (s *State[T]) Do(change func(v *T) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v T
	if s.Path != "" {
		text, err := os.ReadFile(s.Path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.text = text
	}
	if len(s.text) > 0 {
		if err := json.Unmarshal(s.text, &v); err != nil {
			return fmt.Errorf("read %s: %w", s.Path, err)
		}
	}
	if err := change(&v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	changed := !bytes.Equal(s.text, text)
	if s.text = text; s.Path == "" || !changed {
		return nil
	}
	return replace(s.Path, text)
}

// In is like Do for callers whose context may have ended.
func (s *State[T]) In(ctx context.Context, change func(v *T) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Do(change)
}

// replace writes a file atomically.
func replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
