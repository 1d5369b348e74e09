package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/wait"
)

const (
	orderKey = "order.json"
	maxOrder = 1 << 20
)

// storeTimeout bounds a call of the control store.
const storeTimeout = time.Minute

// timedStore is a Store whose calls return when their context ends, even if the file system hangs
// or a file is a pipe.
type timedStore struct{ Store }

// callWithTimeout returns the result of a call, or the context's error if that ends first.
func callWithTimeout[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	type answer struct {
		v   T
		err error
	}
	if err := ctx.Err(); err != nil {
		var zero T
		return zero, err
	}
	done := make(chan answer, 1)
	go func() {
		v, err := call(ctx)
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.v, a.err
	case <-ctx.Done():
		var zero T
		return zero, ctx.Err()
	}
}

// Get implements Store.
func (b timedStore) Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	return callWithTimeout(ctx, func(ctx context.Context) (checkpoint.Object, error) {
		return b.Store.Get(ctx, key, limit)
	})
}

// Create implements Store.
func (b timedStore) Create(ctx context.Context, key string, data []byte) error {
	_, err := callWithTimeout(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.Store.Create(ctx, key, data)
	})
	return err
}

// Replace implements Store.
func (b timedStore) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	return callWithTimeout(ctx, func(ctx context.Context) (string, error) {
		return b.Store.Replace(ctx, key, data, version)
	})
}

// statusKey returns the key of the status of the host with a number.
func statusKey(number int) string { return fmt.Sprintf("status-%d.json", number) }

// eventsKey returns the key of a node's event file.
func eventsKey(node int, number int64) string {
	return fmt.Sprintf("events-%d/%d.jsonl", node, number)
}

// readOrder returns the current order; nil if there is none.
func readOrder(ctx context.Context, s Store, h *session.HostConfig) (*session.Order, error) {
	o, err := s.Get(ctx, orderKey, maxOrder)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", orderKey, err)
	}
	var order session.Order
	if err := json.Unmarshal(o.Data, &order); err != nil {
		return nil, fmt.Errorf("read %s: %w", orderKey, err)
	}
	switch {
	case order.Schema != session.OrderSchema:
		return nil, fmt.Errorf("read %s: its schema is %q, not %s", orderKey, order.Schema, session.OrderSchema)
	case order.Session != h.Session:
		return nil, fmt.Errorf("read %s: it is for session %q", orderKey, order.Session)
	case order.Epoch != h.Epoch:
		return nil, nil // belongs to another start of the session
	}
	return &order, nil
}

// pollOrders reads the order repeatedly and sends it. It reports a failing store once.
func pollOrders(ctx context.Context, s Store, h *session.HostConfig, every time.Duration, out chan<- orderResult) {
	failing := false
	for {
		order, err := readOrder(ctx, s, h)
		if ctx.Err() != nil {
			return
		}
		if order != nil || err != nil && !failing {
			select {
			case out <- orderResult{order, err}:
			case <-ctx.Done():
				return
			}
		}
		failing = err != nil
		// Jitter keeps the hosts of a session from polling in step.
		if wait.For(ctx, every*4/5+rand.N(every*2/5+1)) != nil {
			return
		}
	}
}

// orderResult is the result of reading the order.
type orderResult struct {
	order *session.Order
	err   error
}

// statusWriter writes the statuses of a node one after the other.
type statusWriter struct {
	store       Store
	number      int
	version     string
	lastWritten []byte
}

// write writes a status.
func (t *statusWriter) write(ctx context.Context, s session.Status) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	key := statusKey(t.number)
	for range 3 {
		t.version, err = t.store.Replace(ctx, key, data, t.version)
		if err == nil {
			t.lastWritten = data
			return nil
		}
		if !errors.Is(err, checkpoint.ErrConflict) {
			t.version = ""
			return fmt.Errorf("write %s: %w", key, err)
		}
		// A response was lost, or an earlier process of this node wrote the status.
		o, readErr := t.store.Get(ctx, key, maxOrder)
		if readErr != nil && !errors.Is(readErr, checkpoint.ErrNotFound) {
			return fmt.Errorf("write %s: %w", key, readErr)
		}
		t.version = o.Version
		if bytes.Equal(o.Data, data) {
			return nil
		}
	}
	return fmt.Errorf("write %s: another process of this node writes it: %w", key, err)
}
