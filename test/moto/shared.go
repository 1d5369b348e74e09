package moto

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/curfew-dev/curfew/test/shared"
)

// client gives another test process access to the servers of this one.
type client struct {
	mu      sync.Mutex
	servers map[string]*Server // by process id
}

// Share returns a client that lets another test process start and end servers, as server.py
// describes.
func Share() shared.Client { return &client{servers: map[string]*Server{}} }

func (c *client) Answer(ctx context.Context, request string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if request == "start" {
		m, err := Start(ctx, nil)
		if err != nil {
			return "", err
		}
		c.servers[m.pid] = m
		return m.pid + " " + m.url, nil
	}
	pid, ok := strings.CutPrefix(request, "end ")
	if !ok || c.servers[pid] == nil {
		return "", fmt.Errorf("moto has no answer to %q of this process", request)
	}
	m := c.servers[pid]
	delete(c.servers, pid)
	return "ended", m.Close()
}

func (c *client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all error
	for _, m := range c.servers {
		all = errors.Join(all, m.Close())
	}
	return all
}
