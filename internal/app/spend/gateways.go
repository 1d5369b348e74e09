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
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/store"
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

// gatewayUnits reads the units of each hour from a gateway.
func gatewayUnits(ctx context.Context, req *runtime.Request, g config.ServedGateway,
	since, until time.Time) (*stats.Units, error) {
	query := url.Values{
		"since": {since.UTC().Format(time.RFC3339)}, "until": {until.UTC().Format(time.RFC3339)},
	}
	body, err := callGateway(ctx, req, g, http.MethodGet, "/curfew/units?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	doc := &stats.Units{}
	if err := json.Unmarshal(body, doc); err != nil || doc.Schema != stats.UnitsSchema {
		return nil, errors.New("the answer is not " + stats.UnitsSchema)
	}
	return doc, nil
}

// countAtGateway counts by the units of a gateway. Time before it counted ends the count: a unit cost over
// half of the counts would be twice what it is.
func countAtGateway(req *runtime.Request, u config.Unit, c counted) (counted, error) {
	cfg, err := req.Config()
	if err != nil {
		return c, err
	}
	i := slices.IndexFunc(cfg.Serve.Gateways, func(g config.ServedGateway) bool { return g.Name == u.Counts.Gateway })
	if i < 0 {
		return c, runtime.Invalid("units %s: serve.gateways has no gateway %q", u.Name, u.Counts.Gateway)
	}
	c.counts = func(ctx context.Context, _ *store.Store, q costs.Query) ([]costs.Count, error) {
		made, err := gatewayUnits(ctx, req, cfg.Serve.Gateways[i], q.Since, q.Until)
		if err != nil {
			return nil, fmt.Errorf("count %s at gateway %s: %w", u.Name, u.Counts.Gateway, err)
		}
		if q.Since.Before(made.CountedFrom) {
			return nil, &runtime.Error{
				Code: "not_counted", Err: fmt.Errorf("count %s: gateway %s has counted since %s", u.Name,
					u.Counts.Gateway, made.CountedFrom.UTC().Format(time.RFC3339)),
				Hint: "narrow --since and --until to the time in which it was counted"}
		}
		return unitsByHour(made, u.Counts, q)
	}
	return c, nil
}

// unitsByHour returns what is counted in each hour of a time, where costs are shown by team that of each
// owner. An hour of which the gateway tells nothing has none, and its dollars count.
func unitsByHour(made *stats.Units, by config.Counts, q costs.Query) ([]costs.Count, error) {
	byTeam := slices.Equal(q.By, []ledger.Dimension{ledger.ByTeam})
	keys := map[string]bool{}
	if !byTeam {
		keys[""] = true
	}
	sums := map[costs.Count]int64{}
	for _, one := range made.Hours {
		if by.Model != "" && one.Model != by.Model {
			continue
		}
		key := ""
		if byTeam {
			key = one.Owner
		}
		keys[key] = true
		n := map[string]int64{
			config.Predictions: one.Predictions, config.InputTokens: one.InputTokens,
			config.OutputTokens: one.OutputTokens,
		}[by.Of]
		at := costs.Count{Time: one.Hour.UTC(), Key: key}
		if n < 0 || n > math.MaxInt64/1000-sums[at] {
			return nil, fmt.Errorf("count at gateway %s: %d is out of range", by.Gateway, n)
		}
		sums[at] += n
	}
	var out []costs.Count
	for hour := q.Since.UTC(); hour.Before(q.Until) && hour.Before(made.At); hour = hour.Add(time.Hour) {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			count := costs.Count{Time: hour, Key: key}
			count.Count = costs.Quantity(sums[count] * 1000)
			count.Unallocated = byTeam && key == ""
			out = append(out, count)
		}
	}
	return out, nil
}

// DrainGateway keeps new requests from servers of a gateway, or gives them requests again.
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
