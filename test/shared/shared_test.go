package shared_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/curfew-dev/curfew/test/shared"
)

// echo returns each request, and signals the end of its process.
type echo struct{ closed chan<- struct{} }

func (echo) Answer(_ context.Context, request string) (string, error) {
	if request == "refuse" {
		return "", errors.New("refused:\ntwo lines")
	}
	return request, nil
}

func (e echo) Close() error {
	close(e.closed)
	return nil
}

func TestServersAnswerUntilTheProcessEnds(t *testing.T) {
	closed := make(chan struct{})
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		served <- shared.Serve(ctx, l, map[string]func() shared.Client{"echo": func() shared.Client {
			return echo{closed}
		}})
	}()
	t.Setenv(shared.Variable, path)
	if _, err := shared.Dial(t.Context(), "another"); err == nil {
		t.Error("there is no server of another kind")
	}
	c, err := shared.Dial(t.Context(), "echo")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Answer(t.Context(), "hello there"); got != "hello there" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := c.Answer(t.Context(), "refuse"); err == nil || err.Error() != "refused:\ntwo lines" {
		t.Errorf("got %v, want the server's error", err)
	}
	l.Close()
	stop() // this ends connections, like the end of the process
	<-closed
	if err := <-served; err != nil {
		t.Error(err)
	}
}

func TestDialWithoutServers(t *testing.T) {
	t.Setenv(shared.Variable, "")
	if c, err := shared.Dial(t.Context(), "echo"); c != nil || err != nil {
		t.Errorf("got %v, %v, want none", c, err)
	}
}
