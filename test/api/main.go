// Command api serves the API over a state of its own, with something of everything that it
// shows, for tests from outside and for a look by hand:
//
//	go run ./test/api -dir /tmp/api -listen 127.0.0.1:8790
//
// It prints the tokens of an admin and of a viewer.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/cli"
)

func main() {
	serveChild()
	dir := flag.String("dir", "", "where the state is made")
	listen := flag.String("listen", "127.0.0.1:8790", "where it listens")
	seed := flag.Int("seed", 1, "what the state is made of")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *listen, *seed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveChild is the program of sessions.
func serveChild() {
	if len(os.Args) > 1 && slices.Contains([]string{"agent", "cage", "session"}, os.Args[1]) {
		os.Exit(cli.Run(context.Background(), cli.System("test")))
	}
}

func run(ctx context.Context, dir, listen string, seed int) error {
	s, err := build(ctx, dir, ".", seed)
	if err != nil {
		return err
	}
	defer s.state.Close()
	defer s.end()
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\nadmin  %s\nviewer %s\n", l.Addr(), s.admin, s.viewer)
	server := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
