package spend

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/view"
)

// gatewayTimeout bounds a request to one gateway.
const gatewayTimeout = 10 * time.Second

// Gateways queries the registered gateways for their statistics. One that does not respond is
// listed with the reason.
func Gateways(ctx context.Context, req *runtime.Request) (view.Gateways, error) {
	cfg, err := req.Config()
	if err != nil {
		return view.Gateways{}, err
	}
	doc := view.Gateways{Schema: view.GatewaysSchema, Gateways: make([]view.Gateway, len(cfg.Serve.Gateways))}
	var all sync.WaitGroup
	for i, g := range cfg.Serve.Gateways {
		all.Go(func() {
			one := view.Gateway{Name: g.Name, URL: g.URL}
			told, err := AskGateway(ctx, req, g)
			if one.Stats = told; err != nil {
				one.Reason = err.Error()
			}
			doc.Gateways[i] = one
		})
	}
	all.Wait()
	return doc, nil
}

// AskGateway reads the statistics of a gateway.
func AskGateway(ctx context.Context, req *runtime.Request, g config.ServedGateway) (*stats.Stats, error) {
	body, err := callGateway(ctx, req, g, http.MethodGet, "/curfew/stats", nil)
	if err != nil {
		return nil, err
	}
	doc := &stats.Stats{}
	if err := json.Unmarshal(body, doc); err != nil || doc.Schema != stats.Schema {
		return nil, errors.New("the answer is not " + stats.Schema)
	}
	return doc, nil
}

// DrainGateway excludes servers of a gateway from new requests, or includes them again.
func DrainGateway(ctx context.Context, req *runtime.Request, g config.ServedGateway,
	in stats.DrainRequest) (*stats.Drained, error) {
	content, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	body, err := callGateway(ctx, req, g, http.MethodPost, "/curfew/drain", content)
	if err != nil {
		return nil, err
	}
	doc := &stats.Drained{}
	if err := json.Unmarshal(body, doc); err != nil || doc.Schema != stats.DrainedSchema {
		return nil, errors.New("the answer is not " + stats.DrainedSchema)
	}
	return doc, nil
}

// callGateway sends a request to a gateway and returns the body of its response.
func callGateway(ctx context.Context, req *runtime.Request, g config.ServedGateway, method, path string,
	content []byte) ([]byte, error) {
	o := httpclient.Options{Attempts: 1, AttemptTimeout: gatewayTimeout}
	if g.CAFile != "" {
		pem, err := os.ReadFile(req.Path(g.CAFile))
		if err != nil {
			return nil, fmt.Errorf("read ca_file %s: %w", g.CAFile, runtime.Cause(err))
		}
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read ca_file %s: it holds no certificate in PEM", g.CAFile)
		}
	}
	call, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(g.URL, "/")+path, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if g.KeyEnv != "" {
		key, ok := req.Lookup(g.KeyEnv)
		if !ok || key == "" {
			return nil, fmt.Errorf("the environment has no %s, which key_env names", g.KeyEnv)
		}
		call.Header.Set("Authorization", "Bearer "+key)
	}
	client := httpclient.New(o)
	defer client.Close()
	resp, err := client.Do(call)
	if err != nil {
		return nil, fmt.Errorf("ask the gateway: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read completely, or is useless
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer of the gateway: %w", err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the gateway answered %s: %.200s", resp.Status, body)
	}
	return body, nil
}
