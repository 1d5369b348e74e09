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
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Control is how the keeper and the hosts of a session speak with each other: documents below
// the session's control prefix.
type Control interface {
	// Hosts returns what each node said last, by its node; a node that said nothing yet is
	// not there. Unreadable says why what a node wrote is no status.
	Hosts(ctx context.Context, s *Session, nodes int) (hosts map[int]Status, unreadable map[int]string, err error)
	// Order returns the order that is there, with its version for Give; the zero Order and ""
	// where there is none.
	Order(ctx context.Context, s *Session) (Order, string, error)
	// Give replaces the order of a version. ErrConflict where another keeper was faster.
	Give(ctx context.Context, s *Session, o Order, version string) error
	// Events returns a file of a node's events; none where it is not there.
	Events(ctx context.Context, s *Session, node int, file int64) ([]Event, error)
}

// Bounds of the documents of a host, in bytes and values. A host that was taken over must not fill
// a keeper's memory or the state.
const (
	maxStatus = 256 << 10
	maxOrder  = 256 << 10
	maxEvents = 96 << 10
	maxValues = 10_000
)

// ErrUnreadable says that a document of a host is not what it can be: no regular file, too large,
// or nothing that can be decoded. It is the host's doing, and reading it again changes nothing.
var ErrUnreadable = errors.New("the document of a host is not readable")

// ControlStore is where the documents of one session are.
type ControlStore interface {
	// Get returns an object of at most limit bytes: checkpoint.ErrNotFound where there is none,
	// checkpoint.ErrTooLarge or ErrUnreadable where it is not what it can be.
	Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error)
	// Replace writes an object over the version that was read, and returns its new version.
	Replace(ctx context.Context, key string, data []byte, version string) (string, error)
}

// Documents is Control over stores: Open returns the one of a session.
type Documents struct {
	Open func(ctx context.Context, s *Session) (ControlStore, error)
}

// readDocument reads an object that a host may have written, and decodes it where it holds to its
// bounds.
func readDocument(ctx context.Context, at ControlStore, key string, limit int64, v any) (version string, err error) {
	o, err := at.Get(ctx, key, limit)
	if errors.Is(err, checkpoint.ErrTooLarge) {
		err = fmt.Errorf("%s has over %s: %w", key, plain.Size(limit), ErrUnreadable)
	}
	if err != nil {
		return "", err
	}
	if err = document.CheckJSON(key, o.Data, maxValues); err == nil {
		err = json.Unmarshal(o.Data, v)
	}
	if err != nil {
		return o.Version, fmt.Errorf("%s: %w: %w", key, ErrUnreadable, err)
	}
	return o.Version, nil
}

// Hosts implements Control.
func (d Documents) Hosts(ctx context.Context, s *Session, nodes int) (hosts map[int]Status, unreadable map[int]string,
	err error) {
	at, err := d.Open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	hosts, unreadable = map[int]Status{}, map[int]string{}
	for node := range nodes {
		var st Status
		_, err := readDocument(ctx, at, "status-"+strconv.Itoa(node)+".json", maxStatus, &st)
		switch {
		case errors.Is(err, checkpoint.ErrNotFound):
		case errors.Is(err, ErrUnreadable):
			unreadable[node] = "its status cannot be read"
		case err != nil:
			return nil, nil, fmt.Errorf("read the status of node %d of %s: %w", node, s.Name, err)
		case st.Session == s.ID && st.Epoch == s.Epoch && st.Node == node:
			hosts[node] = st
		}
	}
	return hosts, unreadable, nil
}

// Order implements Control.
func (d Documents) Order(ctx context.Context, s *Session) (order Order, version string, err error) {
	at, err := d.Open(ctx, s)
	if err != nil {
		return order, "", err
	}
	version, err = readDocument(ctx, at, OrderFile, maxOrder, &order)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return Order{}, "", nil
	case errors.Is(err, ErrUnreadable) && version != "", err == nil && order.Serial > s.Serial+serialLeeway:
		return Order{}, version, nil // no keeper wrote it: it is replaced
	case err != nil:
		return Order{}, version, fmt.Errorf("read the order of %s: %w", s.Name, err)
	}
	return order, version, nil
}

// OrderFile is the name of the document with the order.
const OrderFile = "order.json"

// serialLeeway is how far the serial of an order may be ahead of the record: another keeper may have
// written both since the record was read.
const serialLeeway = 1000

// Give implements Control.
func (d Documents) Give(ctx context.Context, s *Session, o Order, version string) error {
	at, err := d.Open(ctx, s)
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err == nil {
		_, err = at.Replace(ctx, OrderFile, text, version)
	}
	if errors.Is(err, checkpoint.ErrConflict) {
		return ErrConflict
	}
	if err != nil {
		return fmt.Errorf("write the order of %s: %w", s.Name, err)
	}
	return nil
}

// Events implements Control. A file or a line that cannot be read is an event that says so, so that
// what a host wrote keeps no one from what it wrote after.
func (d Documents) Events(ctx context.Context, s *Session, node int, file int64) ([]Event, error) {
	at, err := d.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	o, err := at.Get(ctx, "events-"+strconv.Itoa(node)+"/"+strconv.FormatInt(file, 10)+".jsonl", maxEvents)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return nil, nil
	case errors.Is(err, checkpoint.ErrTooLarge), errors.Is(err, ErrUnreadable):
		return []Event{{Node: node, Kind: unreadable, Text: "a file of events cannot be read"}}, nil
	case err != nil:
		return nil, fmt.Errorf("read the events of node %d of %s: %w", node, s.Name, err)
	}
	var out []Event
	for line := range bytes.Lines(o.Data) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var e Event
		err := document.CheckJSON("event", line, maxValues)
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			e = Event{Kind: unreadable, Text: strings.ToValidUTF8(err.Error(), "?")}
		}
		e.Node = node
		out = append(out, e)
	}
	return out, nil
}

// unreadable is the kind of an event that stands for what could not be read.
const unreadable = "unreadable"
