// Package shared connects the test processes of one run to the servers that the run starts
// once for all of them.
//
// Each process has one connection for each kind of server. It sends a line for each request,
// and the answer is a line: "ok TEXT" or "error TEXT". What was started for a connection ends
// with it, so that nothing outlives a test process that is killed.
package shared

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Variable contains the path of the socket of the shared servers. Without it each test process
// starts its own servers.
const Variable = "CURFEW_TEST_SERVERS"

// Connection is a test process's connection to one kind of server.
type Connection struct {
	mu  sync.Mutex
	out net.Conn
	in  *bufio.Reader
}

// Dial connects to the servers of a kind. It returns nil if the run has none.
func Dial(ctx context.Context, kind string) (*Connection, error) {
	// Not os.Getenv: go test would consider the path an input of the tests, and cache no result
	// because it differs in each run.
	path, ok := syscall.Getenv(Variable)
	if !ok || path == "" {
		return nil, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to the servers of this run: %w", err)
	}
	c := &Connection{out: conn, in: bufio.NewReader(conn)}
	if _, err := c.Answer(ctx, kind); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// Answer sends a request and returns the response. It ends with the run, regardless of the context.
func (c *Connection) Answer(_ context.Context, request string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := fmt.Fprintln(c.out, request); err != nil {
		return "", fmt.Errorf("ask the servers of this run: %w", err)
	}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("read what the servers of this run answer: %w", err)
	}
	verdict, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if text, err = strconv.Unquote(text); err != nil {
		return "", fmt.Errorf("read what the servers of this run answer: %q: %w", line, err)
	}
	if verdict != "ok" {
		return "", errors.New(text)
	}
	return text, nil
}

// Client serves one test process.
type Client interface {
	// Answer answers a request, which is one line.
	Answer(ctx context.Context, request string) (string, error)
	// Close ends everything started for the process.
	Close() error
}

// Serve serves connections until the listener is closed and the last one has ended. kinds create a
// Client for each connection.
func Serve(ctx context.Context, l net.Listener, kinds map[string]func() Client) error {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a test process: %w", err)
		}
		connections.Go(func() {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			defer conn.Close()
			serve(ctx, conn, kinds)
		})
	}
}

// serve answers one connection until it ends.
func serve(ctx context.Context, conn net.Conn, kinds map[string]func() Client) {
	lines := bufio.NewScanner(conn)
	if !lines.Scan() {
		return
	}
	start := kinds[lines.Text()]
	if start == nil {
		answer(conn, "", fmt.Errorf("this run has no servers of the kind %q", lines.Text()))
		return
	}
	client := start()
	answer(conn, "", nil)
	for lines.Scan() {
		text, err := client.Answer(ctx, lines.Text())
		answer(conn, text, err)
	}
	_ = client.Close() // the process that would be told has ended
}

func answer(conn net.Conn, text string, err error) {
	verdict := "ok"
	if err != nil {
		verdict, text = "error", err.Error()
	}
	fmt.Fprintln(conn, verdict, strconv.Quote(text)) // a process that has gone needs no answer
}
