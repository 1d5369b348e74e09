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
)

const (
	orderKey = "order.json"
	maxOrder = 1 << 20
)

// storeTimeout bounds a call of the control store.
const storeTimeout = time.Minute

// bounded is a store whose calls end with their context, and in time, also where the store does
// not see to it: a folder on a file system that hangs, or with a pipe in place of a file.
type bounded struct{ Store }

// within returns what a call answers, or the context's error where that is over first.
func within[T any](ctx context.Context, call func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	type answer struct {
		v   T
		err error
	}
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
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
		var none T
		return none, ctx.Err()
	}
}

// Get implements Store.
func (b bounded) Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error) {
	return within(ctx, func(ctx context.Context) (checkpoint.Object, error) { return b.Store.Get(ctx, key, limit) })
}

// Create implements Store.
func (b bounded) Create(ctx context.Context, key string, data []byte) error {
	_, err := within(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, b.Store.Create(ctx, key, data)
	})
	return err
}

// Replace implements Store.
func (b bounded) Replace(ctx context.Context, key string, data []byte, version string) (string, error) {
	return within(ctx, func(ctx context.Context) (string, error) { return b.Store.Replace(ctx, key, data, version) })
}

// statusKey is where a node says how it is.
func statusKey(node int) string { return fmt.Sprintf("status-%d.json", node) }

// eventsKey is a file of events of a node.
func eventsKey(node int, number int64) string {
	return fmt.Sprintf("events-%d/%d.jsonl", node, number)
}

// readOrder returns what is ordered now; nil where nothing is.
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
		return nil, nil // for another start of the session
	}
	return &order, nil
}

// poll looks at the orders again and again and hands newer ones over. A store that does not
// answer is told once.
func poll(ctx context.Context, s Store, h *session.HostConfig, every time.Duration, out chan<- ordered) {
	failing := false
	for {
		order, err := readOrder(ctx, s, h)
		if ctx.Err() != nil {
			return
		}
		if order != nil || err != nil && !failing {
			select {
			case out <- ordered{order, err}:
			case <-ctx.Done():
				return
			}
		}
		failing = err != nil
		// Jitter, so that the hosts of a session do not ask at once.
		if pause(ctx, every*4/5+rand.N(every*2/5+1)) != nil {
			return
		}
	}
}

// ordered is what a look at the orders gave: an order, or why there is none.
type ordered struct {
	order *session.Order
	err   error
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// teller writes statuses, one after the other.
type teller struct {
	store   Store
	node    int
	version string
	last    []byte
}

// tell writes a status.
func (t *teller) tell(ctx context.Context, s session.Status) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	key := statusKey(t.node)
	for range 3 {
		t.version, err = t.store.Replace(ctx, key, data, t.version)
		if err == nil {
			t.last = data
			return nil
		}
		if !errors.Is(err, checkpoint.ErrConflict) {
			t.version = ""
			return fmt.Errorf("write %s: %w", key, err)
		}
		// An answer was lost, or an earlier process of this node wrote it.
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
