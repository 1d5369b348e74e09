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

// Control exchanges documents between the keeper and the hosts of a session, below the session's
// control prefix.
type Control interface {
	// Hosts returns the last status of each node that wrote one, and for each unreadable status the
	// reason.
	Hosts(ctx context.Context, s *Session, nodes int) (hosts map[int]Status, unreadable map[int]string, err error)
	// Order returns the current order and its version for WriteOrder; a zero Order and "" if there
	// is none.
	Order(ctx context.Context, s *Session) (Order, string, error)
	// WriteOrder replaces the order of a version. ErrConflict means that another keeper wrote
	// first.
	WriteOrder(ctx context.Context, s *Session, o Order, version string) error
	// Events returns the events in one file of the host with a number; none if the file does not exist.
	Events(ctx context.Context, s *Session, number int, file int64) ([]Event, error)
}

// Limits of host documents, in bytes and values: a compromised host must not fill the keeper's
// memory or the database.
const (
	maxStatus = 256 << 10
	maxOrder  = 256 << 10
	maxEvents = 96 << 10
	maxValues = 10_000
)

// ErrUnreadable means that a host's document is no regular file, too large or malformed. The host
// caused it, so reading again does not help.
var ErrUnreadable = errors.New("the document of a host is not readable")

// ControlStore stores the documents of one session.
type ControlStore interface {
	// Get returns an object of at most limit bytes. Its errors are checkpoint.ErrNotFound,
	// checkpoint.ErrTooLarge and ErrUnreadable.
	Get(ctx context.Context, key string, limit int64) (checkpoint.Object, error)
	// Replace overwrites the given version of an object and returns the new version.
	Replace(ctx context.Context, key string, data []byte, version string) (string, error)
}

// Documents implements Control with the stores that Open returns.
type Documents struct {
	Open func(ctx context.Context, s *Session) (ControlStore, error)
}

// readDocument reads and decodes a document that a host may have written, within its limits.
func readDocument(ctx context.Context, store ControlStore, key string, limit int64, v any) (version string,
	err error) {
	o, err := store.Get(ctx, key, limit)
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
	store, err := d.Open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	hosts, unreadable = map[int]Status{}, map[int]string{}
	for node := range nodes {
		var st Status
		_, err := readDocument(ctx, store, "status-"+strconv.Itoa(s.HostNumber(node))+".json", maxStatus, &st)
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
	store, err := d.Open(ctx, s)
	if err != nil {
		return order, "", err
	}
	version, err = readDocument(ctx, store, OrderFile, maxOrder, &order)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return Order{}, "", nil
	case errors.Is(err, ErrUnreadable) && version != "", err == nil && order.Serial > s.OrderSerial+serialLeeway:
		return Order{}, version, nil // no keeper wrote it, so it is replaced
	case err != nil:
		return Order{}, version, fmt.Errorf("read the order of %s: %w", s.Name, err)
	}
	return order, version, nil
}

// OrderFile is the name of the order document.
const OrderFile = "order.json"

// serialLeeway bounds how far the serial of a genuine order may be ahead of the record: another
// keeper may have written both since the record was read.
const serialLeeway = 1000

// WriteOrder implements Control.
func (d Documents) WriteOrder(ctx context.Context, s *Session, o Order, version string) error {
	store, err := d.Open(ctx, s)
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err == nil {
		_, err = store.Replace(ctx, OrderFile, text, version)
	}
	if errors.Is(err, checkpoint.ErrConflict) {
		return ErrConflict
	}
	if err != nil {
		return fmt.Errorf("write the order of %s: %w", s.Name, err)
	}
	return nil
}

// Events implements Control. An unreadable file or line becomes an event of its own, so that it
// does not hide the events after it.
func (d Documents) Events(ctx context.Context, s *Session, number int, file int64) ([]Event, error) {
	store, err := d.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	o, err := store.Get(ctx, "events-"+strconv.Itoa(number)+"/"+strconv.FormatInt(file, 10)+".jsonl", maxEvents)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return nil, nil
	case errors.Is(err, checkpoint.ErrTooLarge), errors.Is(err, ErrUnreadable):
		return []Event{{Node: number, Kind: eventUnreadable, Text: "a file of events cannot be read"}}, nil
	case err != nil:
		return nil, fmt.Errorf("read the events of host %d of %s: %w", number, s.Name, err)
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
			e = Event{Kind: eventUnreadable, Text: strings.ToValidUTF8(err.Error(), "?")}
		}
		e.Node = number
		out = append(out, e)
	}
	return out, nil
}

// eventUnreadable is the kind of an event that replaces an unreadable file or line.
const eventUnreadable = "unreadable"
