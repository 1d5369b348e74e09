// Package actiontest has what the ladder stands on, with real state and none of the
// outside: a store that keeps every rule of its interface, a cloud with resources,
// protections, slow confirmations and one-shot faults, people who can be reached or
// not, and clocks that can be set. All of it can live in files, so that it survives
// the end of a process.
package actiontest

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

// state is a value that is changed as a whole or not at all. With a path it is kept
// in a file, so that it survives the end of a process (not that of the machine), and
// the next process sees it.
type state[T any] struct {
	mu   sync.Mutex
	path string
	text []byte
}

// do hands out the value. What change does to it is kept when it returns nil.
func (s *state[T]) do(change func(v *T) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v T
	if s.path != "" {
		text, err := os.ReadFile(s.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.text = text
	}
	if len(s.text) > 0 {
		if err := json.Unmarshal(s.text, &v); err != nil {
			return fmt.Errorf("read %s: %w", s.path, err)
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
	if s.text = text; s.path == "" || !changed {
		return nil
	}
	return replace(s.path, text)
}

// in is do for callers who may have given up already.
func (s *state[T]) in(ctx context.Context, change func(v *T) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.do(change)
}

// replace writes a file as a whole.
func replace(path string, text []byte) error {
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
