package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/curfew-dev/curfew/test/shared"
)

// client is the databases that one test process has on this process's server.
type client struct {
	mu        sync.Mutex
	databases map[string]string // their names by URL
}

// Share lets a test process have databases: "create" answers the URL of a fresh one, and
// "drop URL" drops it. The first request starts the server, until Stop.
func Share() shared.Client { return &client{databases: map[string]string{}} }

func (c *client) Answer(ctx context.Context, request string) (string, error) {
	s, err := serverOfProcess()
	if err != nil {
		return "", err
	}
	if request == "create" {
		name := "test_" + strconv.FormatInt(names.Add(1), 10)
		if _, err := s.db.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
			return "", err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.databases[s.url(name)] = name
		return s.url(name), nil
	}
	at, ok := strings.CutPrefix(request, "drop ")
	c.mu.Lock()
	name := c.databases[at]
	delete(c.databases, at)
	c.mu.Unlock()
	if !ok || name == "" {
		return "", fmt.Errorf("PostgreSQL has no answer to %q of this process", request)
	}
	_, err = s.db.ExecContext(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	return "", err
}

// Close drops what a process left that was killed.
func (c *client) Close() error {
	var all error
	for at := range c.databases {
		_, err := c.Answer(context.Background(), "drop "+at)
		all = errors.Join(all, err)
	}
	return all
}

// serverOfProcess returns the server of this process, which the first call starts.
func serverOfProcess() (*server, error) {
	launching.Lock()
	defer launching.Unlock()
	if one == nil {
		s, err := launch()
		if err != nil {
			return nil, err
		}
		one = s
	}
	return one, nil
}
