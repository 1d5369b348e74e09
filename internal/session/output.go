package session

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/plain"
)

// OutputPart is the kind of an event that names a part of the output of a command by its number: what is
// printed after the first MiB is not sent as events.
const OutputPart = "output-part"

// OutputPartSize is the size of a full part of output, which may end with a longer line.
const OutputPartSize = 1 << 20

// maxOutputPart bounds a part of output, packed and unpacked.
const maxOutputPart = 4 << 20

// OutputKey returns the key of a part of a node's output.
func OutputKey(node int, n int64) string { return fmt.Sprintf("events-%d/output-%d.log.gz", node, n) }

// maxOutputParts bounds the parts of a node's output.
const maxOutputParts = 8192

// keepOutput keeps the parts of output that events name.
func (k *Keeper) keepOutput(ctx context.Context, s *Session, node int, events []Event) error {
	for i := range events {
		e := &events[i]
		if e.Kind != OutputPart {
			continue
		}
		n, err := strconv.ParseInt(e.Text, 10, 64)
		if err != nil || n < 1 || n > maxOutputParts {
			e.Kind, e.Text = eventUnreadable, fmt.Sprintf("it names no part of its output: %q", plain.Line(e.Text))
			continue
		}
		if k.KeepOutput == nil {
			continue
		}
		err = k.KeepOutput(ctx, s, node, n)
		if errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, checkpoint.ErrTooLarge) ||
			errors.Is(err, ErrUnreadable) {
			e.Kind, e.Text = eventUnreadable, fmt.Sprintf("part %d of its output cannot be read", n)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// PackedOutput returns a part of the output of a node as its host wrote it.
func (d Documents) PackedOutput(ctx context.Context, s *Session, node int, n int64) ([]byte, error) {
	store, err := d.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	key := OutputKey(node, n)
	o, err := store.Get(ctx, key, maxOutputPart)
	if err != nil {
		return nil, fmt.Errorf("read %s of %s: %w", key, s.Name, err)
	}
	return o.Data, nil
}

// UnpackOutput returns the text of a part of output.
func UnpackOutput(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	data, err := io.ReadAll(io.LimitReader(z, maxOutputPart+1))
	if err == nil && len(data) > maxOutputPart {
		err = fmt.Errorf("it has over %s", plain.Size(int64(maxOutputPart)))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return data, nil
}
