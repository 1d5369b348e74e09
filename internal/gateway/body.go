package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// bodyTimeout bounds the time that a caller takes to send a body.
const bodyTimeout = 30 * time.Second

// bodyBlock is the step in which bodies are read. Memory is reserved in these steps as it arrives: a large
// Content-Length alone takes none.
const bodyBlock = 64 << 10

// bodyBlocks are used again: bodies that are refused after many blocks leave nothing to collect.
var bodyBlocks = sync.Pool{New: func() any { return new([bodyBlock]byte) }}

// Reasons for which a body is not read to its end.
var (
	errBodyTooLarge = errors.New("the body is too large")
	errBodiesFull   = errors.New("the gateway holds as many requests as it may")
)

// readBody reads a body within the bounds of one request, and of all that are read at once.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request, s *state) ([]byte, func(), bool) {
	limit, budget := int64(s.config.MaxBodyMiB)<<20, int64(s.config.QueueMiB)<<20
	var reserved int64
	release := func() { g.reading.Add(-reserved) }
	var body []byte
	err := errBodyTooLarge
	if r.ContentLength <= limit {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // tests have no connection
		body, err = g.collect(r.Body, limit, budget, &reserved)
	}
	if err == nil {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
		return body, release, true
	}
	release()
	var timeout net.Error
	switch {
	case errors.Is(err, errBodyTooLarge):
		g.counts.refused("body too large")
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusRequestEntityTooLarge, 0,
			fmt.Sprintf("the body is larger than %d MiB", s.config.MaxBodyMiB))
	case errors.Is(err, errBodiesFull):
		g.counts.refused("queue full")
		refuse(w, http.StatusTooManyRequests, time.Second, err.Error())
	default:
		g.counts.refused("body not read")
		status := http.StatusBadRequest
		if errors.As(err, &timeout) && timeout.Timeout() {
			status = http.StatusRequestTimeout
		}
		w.Header().Set("Connection", "close")
		refuse(w, status, 0, "read the body: "+err.Error())
	}
	return nil, nil, false
}

// collect reads to the end of a body, and adds to what is reserved.
func (g *Gateway) collect(from io.Reader, limit, budget int64, reserved *int64) ([]byte, error) {
	var blocks []*[bodyBlock]byte
	defer func() {
		for _, b := range blocks {
			bodyBlocks.Put(b)
		}
	}()
	for total := 0; ; {
		*reserved += bodyBlock
		if g.reading.Add(bodyBlock) > budget {
			return nil, errBodiesFull
		}
		b := bodyBlocks.Get().(*[bodyBlock]byte)
		blocks = append(blocks, b)
		n, err := fill(b[:], from)
		total += n
		switch {
		case int64(total) > limit:
			return nil, errBodyTooLarge
		case errors.Is(err, io.EOF):
			return joined(blocks, total), nil
		case err != nil:
			return nil, err
		}
	}
}

// fill reads until a block is full or an error comes. io.ReadFull would not tell the end of a body from
// one that is cut off.
func fill(b []byte, from io.Reader) (int, error) {
	n := 0
	for n < len(b) {
		k, err := from.Read(b[n:])
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

func joined(blocks []*[bodyBlock]byte, total int) []byte {
	out := make([]byte, 0, total)
	for _, b := range blocks {
		out = append(out, b[:min(bodyBlock, total-len(out))]...)
	}
	return out
}
