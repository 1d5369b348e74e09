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

// client holds the databases of another test process on this process's server.
type client struct {
	mu        sync.Mutex
	databases map[string]string // names by URL
}

// Share returns a client for another test process: "create" returns the URL of a new database, and
// "drop URL" drops it. The first request starts the server, which runs until Stop.
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

// Close drops the databases that a killed process left.
func (c *client) Close() error {
	var all error
	for at := range c.databases {
		_, err := c.Answer(context.Background(), "drop "+at)
		all = errors.Join(all, err)
	}
	return all
}

// serverOfProcess returns the server of this process and starts it on the first call.
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
