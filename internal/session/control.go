package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/checkpoint"
)

// Control is how the keeper and the hosts of a session speak with each other: documents below
// the session's control prefix.
type Control interface {
	// Hosts returns what each node said last, by its node; a node that said nothing yet is
	// not there.
	Hosts(ctx context.Context, s *Session, nodes int) (map[int]Status, error)
	// Order returns the order that is there, with its version for Give; the zero Order and ""
	// where there is none.
	Order(ctx context.Context, s *Session) (Order, string, error)
	// Give replaces the order of a version. ErrConflict where another keeper was faster.
	Give(ctx context.Context, s *Session, o Order, version string) error
	// Events returns a file of a node's events; none where it is not there.
	Events(ctx context.Context, s *Session, node int, file int64) ([]Event, error)
}

// Bounds of the documents of a host. A host that was taken over must not fill a keeper's
// memory.
const (
	maxStatus = 256 << 10
	maxOrder  = 256 << 10
	maxEvents = 4 << 20
)

// Documents is Control over object stores: Open returns the one of a prefix.
type Documents struct {
	Open func(ctx context.Context, prefix string) (checkpoint.Backend, error)
}

// Hosts implements Control.
func (d Documents) Hosts(ctx context.Context, s *Session, nodes int) (map[int]Status, error) {
	at, err := d.Open(ctx, s.Control)
	if err != nil {
		return nil, err
	}
	out := map[int]Status{}
	for node := range nodes {
		o, err := at.Get(ctx, "status-"+strconv.Itoa(node)+".json", maxStatus)
		if errors.Is(err, checkpoint.ErrNotFound) {
			continue
		}
		var st Status
		if err == nil {
			err = json.Unmarshal(o.Data, &st)
		}
		if err != nil {
			return nil, fmt.Errorf("read the status of node %d of %s: %w", node, s.Name, err)
		}
		if st.Session == s.ID && st.Epoch == s.Epoch && st.Node == node {
			out[node] = st
		}
	}
	return out, nil
}

// Order implements Control.
func (d Documents) Order(ctx context.Context, s *Session) (order Order, version string, err error) {
	at, err := d.Open(ctx, s.Control)
	if err != nil {
		return order, "", err
	}
	o, err := at.Get(ctx, "order.json", maxOrder)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return order, "", nil
	}
	if err == nil {
		err = json.Unmarshal(o.Data, &order)
	}
	if err != nil {
		return Order{}, o.Version, fmt.Errorf("read the order of %s: %w", s.Name, err)
	}
	return order, o.Version, nil
}

// Give implements Control.
func (d Documents) Give(ctx context.Context, s *Session, o Order, version string) error {
	at, err := d.Open(ctx, s.Control)
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err == nil {
		_, err = at.Replace(ctx, "order.json", text, version)
	}
	if errors.Is(err, checkpoint.ErrConflict) {
		return ErrConflict
	}
	if err != nil {
		return fmt.Errorf("write the order of %s: %w", s.Name, err)
	}
	return nil
}

// Events implements Control. A line that cannot be read is an event that says so, so that
// what a host wrote keeps no one from what it wrote after.
func (d Documents) Events(ctx context.Context, s *Session, node int, file int64) ([]Event, error) {
	at, err := d.Open(ctx, s.Control)
	if err != nil {
		return nil, err
	}
	o, err := at.Get(ctx, "events-"+strconv.Itoa(node)+"/"+strconv.FormatInt(file, 10)+".jsonl", maxEvents)
	if errors.Is(err, checkpoint.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the events of node %d of %s: %w", node, s.Name, err)
	}
	var out []Event
	for line := range bytes.Lines(o.Data) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			e = Event{Kind: "unreadable", Text: strings.ToValidUTF8(err.Error(), "?")}
		}
		e.Node, e.At = node, e.At.UTC()
		out = append(out, e)
	}
	return out, nil
}
