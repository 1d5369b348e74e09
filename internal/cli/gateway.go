package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/curfew-dev/curfew/internal/app/fleets"
	"github.com/curfew-dev/curfew/internal/app/govern"
	"github.com/curfew-dev/curfew/internal/app/server"
	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/gateway"
	"github.com/curfew-dev/curfew/internal/gateway/stats"
	"github.com/curfew-dev/curfew/internal/httpclient"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/ops"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/report"
)

// gatewayFlags are the flags of gateway. They make one pool in place of those of the configuration.
type gatewayFlags struct {
	listen, logFormat string
	scalerListen      string
	shadow            bool
	pool              gateway.Pool
}

func (a *app) newGateway() *cobra.Command {
	var f gatewayFlags
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Batch requests in front of model servers, and measure what a prediction costs",
		Long: `Serves the Open Inference Protocol (V2), V1 instances and OpenAI-compatible paths in front of
model servers. Requests that may share a batch go out together where that pays: a free
server takes the queue at once, unless the measured batch times say that waiting is faster.
All other requests pass through.

With --upstream it serves one pool of equal servers. Without it, it serves the pools of the
section gateway of the configuration, and reads them again on SIGHUP. Beyond loopback it needs
TLS and API keys. docs/gateway.md has the details.`,
		Example: `  curfew gateway --upstream http://127.0.0.1:8000
  curfew gateway --upstream http://gpu-1:8000,http://gpu-2:8000 --max-batch 64 --instance-type g6.xlarge
  curfew gateway --upstream http://127.0.0.1:8000 --shadow     # forward untouched, report what batching gives
  curfew gateway --config gateway.yaml`,
		Args: noSuchVerb,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.gateway(c.Context(), c.Flags().Changed("listen"), f)
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.pool.Upstreams, "upstream", nil,
		"`URL` of a model server; several are one pool of equal servers")
	fl.StringVar(&f.listen, "listen", gateway.DefaultListen, "`address` at which callers reach the gateway")
	fl.Var(ops.NewChoice("batch", &f.pool.Batch, []string{"auto", "always", "never"}), "batch",
		"batch V2 requests where the model's metadata proves that they may be (auto), always or never")
	fl.IntVar(&f.pool.MaxBatch, "max-batch", 0, "most rows of one batch (default 32)")
	fl.IntVar(&f.pool.Slots, "slots", 0, "batches that one server works on at once (default 1)")
	fl.BoolVar(&f.pool.Idempotent, "idempotent", false,
		"send the requests of a failed batch again, each alone and once")
	fl.StringVar(&f.pool.Price, "price", "", "price of one server in `dollars` an hour")
	fl.StringVar(&f.pool.InstanceType, "instance-type", "", "machine `type` of a server, priced by the price book")
	fl.StringVar(&f.pool.Region, "region", "us-east-1", "region of that price")
	fl.StringVar(&f.scalerListen, "scaler-listen", "",
		"`address` at which KEDA asks for the sizes of fleets, whose demand this gateway may be")
	fl.BoolVar(&f.shadow, "shadow", false, "forward every request untouched and report what batching would give")
	fl.Var(ops.NewChoice("log-format", &f.logFormat, []string{"text", "json"}), "log-format",
		"form of the log: text or json")
	c.AddCommand(a.newGatewayList(), a.newGatewayStats(), a.newGatewayProfile(), a.newGatewayKey())
	return c
}

// gatewayConfig returns the section of the configuration with the values of flags.
func (a *app) gatewayConfig(listen bool, f gatewayFlags) (gateway.Config, error) {
	cfg, err := a.config()
	if err != nil {
		return gateway.Config{}, err
	}
	c := cfg.Gateway
	if listen {
		c.Listen = f.listen
	}
	c.Shadow = c.Shadow || f.shadow
	if len(f.pool.Upstreams) > 0 {
		c.Pools = []gateway.Pool{f.pool}
	} else if f.pool.MaxBatch != 0 || f.pool.Slots != 0 || f.pool.Idempotent || f.pool.Price != "" ||
		f.pool.InstanceType != "" || f.pool.Batch != "" {
		return c, usageError(
			"the flags of a pool need --upstream; without it, set them in the configuration")
	}
	if len(c.Pools) == 0 {
		return c, usageError(
			"no model server is named: give --upstream URL, or set gateway.pools in curfew.yaml")
	}
	err = c.Validate()
	if err == nil {
		err = c.CheckListen()
	}
	if err != nil {
		return c, usageError("curfew gateway: %w", err)
	}
	return c, nil
}

// gateway serves until the context ends.
func (a *app) gateway(ctx context.Context, listen bool, f gatewayFlags) error {
	a.quiet = true // a service shows no progress
	c, err := a.gatewayConfig(listen, f)
	if err != nil {
		return err
	}
	log := gatewayLog(a.Stderr, f.logFormat)
	usage, keep, err := a.keyUsage(c)
	if err != nil {
		return err
	}
	starts, keepStarts, err := a.coldStarts(c)
	if err != nil {
		return err
	}
	units, keepUnits, err := a.gatewayUnits(c, len(f.pool.Upstreams) == 0)
	if err != nil {
		return err
	}
	scaler, err := a.serveFleets(ctx, f.scalerListen, log)
	if err != nil {
		return err
	}
	defer scaler.end()
	g, err := gateway.New(c, gateway.Options{
		Metrics:  scaler.metrics,
		KeyUsage: usage, Keep: keep, ColdStarts: starts, KeepColdStarts: keepStarts, Run: a.runWake,
		Units: units, KeepUnits: keepUnits,
		Price: a.poolPrice(log), Transport: httpclient.NewTransport(), GRPC: httpclient.NewHTTP2Transport(), Log: log,
		Version: a.Version,
	})
	if err != nil {
		return usageError("curfew gateway: %w", err)
	}
	at, scheme, err := a.gatewayListener(ctx, c)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler: g.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelDebug), Protocols: gatewayProtocols(),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(at) }()
	plain.Fprintf(a.Stdout, "Listening on %s://%s\n", scheme, at.Addr())
	for hangups := a.hangups(); ; {
		select {
		case <-hangups:
			a.reloadGateway(g, listen, f, log, scaler.reload)
			continue
		case err := <-failed:
			return fmt.Errorf("serve callers: %w", err)
		case <-ctx.Done():
		}
		break
	}
	log.Info("stopping", "drain_timeout", c.DrainTimeout.String())
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.DrainTimeout)
	defer cancel()
	if err := errors.Join(g.Close(end), srv.Shutdown(end)); err != nil {
		return fmt.Errorf("stop: requests were still open after %s: %w", c.DrainTimeout, errors.Join(err, srv.Close()))
	}
	return nil
}

// gatewayListener listens for callers, with TLS where that is configured.
func (a *app) gatewayListener(ctx context.Context, c gateway.Config) (at net.Listener, scheme string, err error) {
	if at, err = (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen); err != nil {
		return nil, "", fmt.Errorf("listen at %s: %w", c.Listen, err)
	}
	if c.TLS.CertFile == "" {
		return at, "http", nil
	}
	load := server.Certificate(a.req.Path(c.TLS.CertFile), a.req.Path(c.TLS.KeyFile))
	if _, err := load(nil); err != nil {
		return nil, "", errors.Join(usageError("read gateway.tls: %w", err), at.Close())
	}
	return tls.NewListener(at, &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: load, NextProtos: []string{"h2", "http/1.1"},
	}), "https", nil
}

// fleetScaler tells the sizes of fleets to KEDA and Prometheus.
type fleetScaler struct {
	metrics prometheus.Collector
	reload  func() error
	end     func()
}

// serveFleets decides the sizes of the fleets of the configuration and tells them; without an address it
// does nothing.
func (a *app) serveFleets(ctx context.Context, address string, log *slog.Logger) (fleetScaler, error) {
	if address == "" {
		return fleetScaler{reload: func() error { return nil }, end: func() {}}, nil
	}
	w := fleets.NewWatcher(log)
	if err := a.setFleets(w); err != nil {
		return fleetScaler{}, err
	}
	closed, err := w.ListenScaler(ctx, address)
	if err != nil {
		return fleetScaler{}, err
	}
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(watching, a.req.Now, func() {})
	}()
	return fleetScaler{
		metrics: w.Collector(), reload: func() error { return a.setFleets(w) },
		end: func() { stop(); closed(); <-done },
	}, nil
}

// setFleets gives a watcher the fleets that the configuration and its policies name.
func (a *app) setFleets(w *fleets.Watcher) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	set := &policy.Set{}
	if len(cfg.Policies) > 0 {
		if set, err = govern.Policies(a.req, cfg, nil); err != nil {
			return err
		}
	}
	configured, err := fleets.Configure(a.req, cfg, set)
	switch {
	case err != nil:
		return err
	case len(configured) == 0:
		return usageError("--scaler-listen: no policy scales a fleet: name a policy with do: scale and fleet under " +
			"policies in curfew.yaml, and the fleet under fleets")
	}
	w.Set(configured)
	return nil
}

// runWake runs the command that wakes a pool. What it starts may go on writing to the log of the gateway.
func (a *app) runWake(ctx context.Context, pool string, command []string) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Env = append(os.Environ(), "CURFEW_POOL="+pool)
	if log, ok := a.Stderr.(*os.File); ok {
		c.Stdout, c.Stderr = log, log
	}
	if err := c.Run(); err != nil {
		return fmt.Errorf("run %s: %w", command[0], err)
	}
	return nil
}

// keyUsageFile holds the use of their budgets by API keys, in the data directory.
const keyUsageFile = "gateway-keys.json"

// keyUsage reads the former use of keys, and returns a function that stores it. Keys without a
// budget need no data directory.
func (a *app) keyUsage(c gateway.Config) (map[string]gateway.KeyUsage,
	func(map[string]gateway.KeyUsage) error, error) {
	cfg, err := a.config()
	if err != nil {
		return nil, nil, err
	}
	if !slices.ContainsFunc(c.Keys, func(k gateway.Key) bool { return k.BudgetUSD != "" || k.BudgetTokens > 0 }) {
		return nil, nil, nil
	}
	if cfg.DataDir == "" {
		return nil, nil, usageError(
			"budgets of keys are kept in a data directory: give --data-dir DIR")
	}
	return keptDocument[map[string]gateway.KeyUsage](cfg.DataDir, keyUsageFile, "what API keys used")
}

// coldStartsFile holds the measured cold starts of pools, in the data directory.
const coldStartsFile = "gateway-cold-starts.json"

// coldStarts reads the cold starts that were measured before, and returns a function that stores them.
// Without a data directory they are measured again after each start.
func (a *app) coldStarts(c gateway.Config) (map[string][]time.Duration,
	func(map[string][]time.Duration) error, error) {
	cfg, err := a.config()
	sleeps := slices.ContainsFunc(c.Pools, func(p gateway.Pool) bool { return p.Sleep.Hold > 0 })
	if err != nil || !sleeps || cfg.DataDir == "" {
		return nil, nil, err
	}
	return keptDocument[map[string][]time.Duration](cfg.DataDir, coldStartsFile, "measured cold starts")
}

// gatewayUnits reads the units that a gateway of the configuration counted before, and returns a function
// that stores them. Gateways that share a data directory differ by where they listen.
func (a *app) gatewayUnits(c gateway.Config, configured bool) (*stats.Units, func(stats.Units) error, error) {
	cfg, err := a.config()
	if err != nil || !configured || cfg.DataDir == "" {
		return nil, nil, err
	}
	name := "gateway-units-" + strings.NewReplacer(":", "-", "[", "", "]", "").Replace(c.Listen) + ".json"
	doc, keep, err := keptDocument[stats.Units](cfg.DataDir, name, "the units of each hour")
	if err != nil || doc.Schema == "" {
		return nil, keep, err
	}
	return &doc, keep, nil
}

// keptDocument reads a JSON document of the data directory, and returns a function that replaces it.
func keptDocument[T any](dir, name, what string) (doc T, keep func(T) error, err error) {
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &doc)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return doc, nil, fmt.Errorf("read %s: %s: %w; remove the file to begin again", what, path, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return doc, nil, fmt.Errorf("make the data directory: %w", err)
	}
	return doc, func(now T) error {
		b, err := json.Marshal(now)
		if err != nil {
			return err
		}
		return durable.ReplaceBytes(path, 0o600, b)
	}, nil
}

// gatewayProtocols are HTTP/1.1 and HTTP/2, which gRPC needs, with and without TLS.
func gatewayProtocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

func gatewayLog(to io.Writer, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(to, nil))
	}
	return slog.New(slog.NewTextHandler(to, nil))
}

// reloadGateway takes the configuration as it is now. One with mistakes changes nothing.
func (a *app) reloadGateway(g *gateway.Gateway, listen bool, f gatewayFlags, log *slog.Logger,
	fleetsOf func() error) {
	c, err := a.gatewayConfig(listen, f)
	if err == nil {
		err = fleetsOf()
	}
	if err == nil {
		err = g.Configure(c)
	}
	if err != nil {
		log.Error("the configuration has mistakes; the one before stays in force", "error", err.Error())
		return
	}
	log.Info("configuration reloaded", "pools", len(c.Pools))
}

// poolPrice returns a function that prices the servers of a pool.
func (a *app) poolPrice(log *slog.Logger) func(gateway.Pool) gateway.Price {
	return func(p gateway.Pool) gateway.Price {
		if p.Price != "" {
			hourly, err := money.ParseAmount(strings.TrimPrefix(p.Price, "$"))
			if err != nil {
				return gateway.Price{Unknown: err.Error()}
			}
			return gateway.Price{Hourly: hourly}
		}
		if p.InstanceType == "" {
			return gateway.Price{Unknown: "the price of a server is not configured (price or instance_type)"}
		}
		hourly, err := a.machinePrice(p.InstanceType, cmp.Or(p.Region, "us-east-1"))
		if err != nil {
			log.Warn("server has no price", "pool", p.Name, "error", err.Error())
			return gateway.Price{Unknown: err.Error()}
		}
		return gateway.Price{Hourly: hourly}
	}
}

func (a *app) machinePrice(machine, region string) (money.Amount, error) {
	book, err := a.book()
	if err != nil {
		return 0, err
	}
	price, err := book.OnDemand(machine, region)
	if err != nil {
		return 0, err
	}
	return price.Hourly()
}

// gatewayClient asks a running gateway.
type gatewayClient struct{ base, ca string }

func (f *gatewayClient) add(c *cobra.Command) {
	c.Flags().StringVar(&f.base, "gateway", "http://"+gateway.DefaultListen, "`URL` of the gateway")
	c.Flags().StringVar(&f.ca, "ca", "", "PEM `file` of the authority that signed its certificate")
}

// gatewayKeyVariable holds the API key for commands that ask a gateway.
const gatewayKeyVariable = "CURFEW_GATEWAY_KEY"

// get reads a document of the gateway.
func (f *gatewayClient) get(ctx context.Context, a *app, path string, query url.Values) ([]byte, error) {
	base, err := url.Parse(f.base)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, usageError("--gateway %q: expected a URL such as http://%s", f.base, gateway.DefaultListen)
	}
	o := httpclient.Options{AttemptTimeout: 30 * time.Second, Attempts: 2}
	if f.ca != "" {
		pem, err := os.ReadFile(a.req.Path(f.ca))
		if err != nil {
			return nil, usageError("read --ca: %w", err)
		}
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usageError("read --ca %s: it holds no certificate in PEM", f.ca)
		}
	}
	client := httpclient.New(o)
	defer client.Close()
	base.Path, base.RawQuery = path, query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.String(), http.NoBody)
	if err != nil {
		return nil, usageError("--gateway %q: %w", f.base, err)
	}
	if key, ok := a.Lookup(gatewayKeyVariable); ok && key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, &failure{
			exit: ExitError, code: "no_gateway", err: fmt.Errorf("ask the gateway at %s: %w", f.base, err),
			hint: "start one with `curfew gateway --upstream URL`, or name it with --gateway URL",
		}
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of the gateway at %s: %w", f.base, err)
	}
	if resp.StatusCode != http.StatusOK {
		var doc struct {
			Error string `json:"error"`
		}
		_ = json.Unmarshal(b, &doc) // the status is told anyway
		err := errors.New(cmp.Or(doc.Error, resp.Status))
		f := &failure{exit: ExitError, code: "gateway", err: fmt.Errorf("ask the gateway at %s: %w", f.base, err)}
		if resp.StatusCode == http.StatusUnauthorized {
			f.exit, f.hint = ExitDenied, "put an API key into the environment variable "+gatewayKeyVariable
		}
		return nil, f
	}
	return b, nil
}

func (a *app) newGatewayStats() *cobra.Command {
	var f gatewayClient
	c := &cobra.Command{
		Use:   "stats",
		Short: "Show what a running gateway did, and what a prediction costs",
		Example: `  curfew gateway stats
  curfew gateway stats --gateway https://gateway.example.com:8790 -o json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			b, err := f.get(c.Context(), a, "/curfew/stats", nil)
			if err != nil {
				return err
			}
			var doc stats.Stats
			if err := json.Unmarshal(b, &doc); err != nil || doc.Schema != stats.Schema {
				return fmt.Errorf("read the answer of %s: it is not a gateway of this version (%s)", f.base,
					stats.Schema)
			}
			return a.show(doc, func() report.Sheet { return report.Gateway(doc) })
		},
	}
	f.add(c)
	a.outputs(c, reports...)
	return c
}

func (a *app) newGatewayList() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "Show the gateways of the configuration: utilization, unit costs, refused requests",
		Long: `Asks each gateway under serve.gateways of the configuration for its statistics. At a service it
lists those that the service registers.`,
		Example: "  curfew gateway list\n  curfew gateway list -o json",
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			doc, err := ops.GetGateways.Call(c.Context(), a.at, ops.None{})
			return shown(a, report.Gateways)(doc, err)
		},
	}
	a.outputs(c, reports...)
	return c
}

func (a *app) newGatewayProfile() *cobra.Command {
	var f gatewayClient
	var model string
	var arrivals bool
	c := &cobra.Command{
		Use:   "profile",
		Short: "Print the measured batch time of a model for curfew plan capacity",
		Long: `Prints the batch time that a running gateway measured, in the form of plan capacity --profile.
For a server that batches continuously it is the time of a request by the requests that run.
With --arrivals it prints the recent requests instead, in the form of plan capacity --arrivals.
Too few batch sizes, or numbers of running requests, are an error: the line is never extrapolated.`,
		Example: `  curfew gateway profile --model resnet50
  curfew gateway profile --model resnet50 --arrivals > arrivals.csv`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			query := url.Values{}
			if model != "" {
				query.Set("model", model)
			}
			if arrivals {
				b, err := f.get(c.Context(), a, "/curfew/arrivals", query)
				if err != nil {
					return err
				}
				_, err = a.Stdout.Write(b)
				return err
			}
			b, err := f.get(c.Context(), a, "/curfew/profile", query)
			if err != nil {
				return err
			}
			var doc stats.Profile
			if err := json.Unmarshal(b, &doc); err != nil || doc.Schema != stats.ProfileSchema {
				return fmt.Errorf("read the answer of %s: it is not a gateway of this version (%s)",
					f.base, stats.ProfileSchema)
			}
			if doc.MaxBatch > 0 && doc.Fit.MaxRows < doc.MaxBatch {
				plain.Fprintf(a.Stderr, "measured for batches of %d to %d rows: plan with --max-batch %d\n",
					doc.Fit.MinRows, doc.Fit.MaxRows, doc.Fit.MaxRows)
			}
			return a.say(doc, "%s", doc.Profile)
		},
	}
	f.add(c)
	c.Flags().StringVar(&model, "model", "", "`name` of the model (default: the only one that was measured)")
	c.Flags().BoolVar(&arrivals, "arrivals", false, "print the recent requests as CSV")
	a.outputs(c, tableJSON...)
	return c
}

func (a *app) newGatewayKey() *cobra.Command {
	c := &cobra.Command{
		Use:   "key",
		Short: "Make an API key for callers of a gateway, with the hash for its configuration",
		Long: `Makes a random key. The configuration holds only its hash: keep the key itself where the
caller reads it, because nothing shows it again.`,
		Example: `  curfew gateway key`,
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			b := make([]byte, 32)
			if _, err := rand.Read(b); err != nil {
				return fmt.Errorf("make a key: %w", err)
			}
			doc := stats.NewKey{Schema: stats.KeySchema, Key: "cfg_" + base64.RawURLEncoding.EncodeToString(b)}
			sum := sha256.Sum256([]byte(doc.Key))
			doc.Hash = "sha256:" + hex.EncodeToString(sum[:])
			return a.say(doc, "key:  %s\nhash: %s", doc.Key, doc.Hash)
		},
	}
	a.outputs(c, tableJSON...)
	return c
}
