// Command kservebatcher serves KServe's own batcher, the one of its agent, in front of a model
// server, to compare the gateway with it. Without a batch size it is a plain reverse proxy.
//
//	kservebatcher LISTEN UPSTREAM [MAX_BATCH MAX_LATENCY_MS]
package main

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/kserve/kserve/pkg/batcher"
	"go.uber.org/zap"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kservebatcher:", err)
		os.Exit(1)
	}
}

func run() error {
	upstream, err := url.Parse(os.Args[2])
	if err != nil {
		return err
	}
	proxy := httputil.NewSingleHostReverseProxy(upstream)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1024
	proxy.Transport = transport
	var handler http.Handler = proxy
	if len(os.Args) > 4 {
		size, err := strconv.Atoi(os.Args[3])
		if err != nil {
			return err
		}
		latency, err := strconv.Atoi(os.Args[4])
		if err != nil {
			return err
		}
		handler = batcher.New(size, latency, proxy, zap.NewNop().Sugar())
	}
	server := &http.Server{Addr: os.Args[1], Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}
