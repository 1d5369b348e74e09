package gateway

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Config is the gateway section of the configuration.
type Config struct {
	// Listen is the address at which callers reach the gateway.
	Listen string `yaml:"listen"`
	// TLS is what the gateway proves itself by; beyond loopback it is required.
	TLS TLS `yaml:"tls"`
	// Pools are groups of model servers, each with one queue.
	Pools []Pool `yaml:"pools"`
	// Keys are the API keys of callers; beyond loopback at least one is required.
	Keys []Key `yaml:"keys"`
	// OwnerHeader is the request header that names the owner of a request where no keys are
	// configured.
	OwnerHeader string `yaml:"owner_header"`
	// ForwardHeaders are the request headers that batched requests hand to the model server, and
	// credentials that other requests hand on. Requests share a batch only where they are equal.
	ForwardHeaders []string `yaml:"forward_headers"`
	// MaxBodyMiB bounds one request, QueueMiB all requests that are read or wait, in each pool.
	MaxBodyMiB int `yaml:"max_body_mib"`
	QueueMiB   int `yaml:"queue_mib"`
	// Shadow forwards every request untouched and reports what batching would give.
	Shadow bool `yaml:"shadow"`
	// DrainTimeout is how long open requests may take to end when the gateway stops.
	DrainTimeout time.Duration `yaml:"drain_timeout"`
}

// TLS are the files of a TLS server. They are read again when they change.
type TLS struct {
	// CertFile is a PEM file of the certificate and those that lead to its authority.
	CertFile string `yaml:"cert_file"`
	// KeyFile is a PEM file of its key.
	KeyFile string `yaml:"key_file"`
}

// Pool is a group of equal model servers.
type Pool struct {
	// Name is unique; empty is the number of the pool, from 1.
	Name string `yaml:"name"`
	// Upstreams are the URLs of the model servers: http, https, or grpc and grpcs for V2 over gRPC.
	Upstreams []string `yaml:"upstreams"`
	// Models are the names that the servers answer to; empty is all that no other pool has.
	Models []string `yaml:"models"`
	// Batch is auto, always or never: auto batches V1 instances, and V2 requests where the model's
	// metadata proves that all tensors begin with the batch dimension.
	Batch string `yaml:"batch"`
	// MaxBatch is the most rows of one batch; 0 is 32.
	MaxBatch int `yaml:"max_batch"`
	// Slots is how many batches one server works on at once; 0 is 1.
	Slots int `yaml:"slots"`
	// Concurrency is how many requests that are not batched one server gets at once; 0 is 256.
	Concurrency int `yaml:"concurrency"`
	// Timeout bounds one exchange with a server, 0 is 60s; of completions it bounds the time without
	// a byte of the answer, and 0 is 10m.
	Timeout time.Duration `yaml:"timeout"`
	// Aging is how much waiting one level of priority is worth; 0 is 100ms.
	Aging time.Duration `yaml:"aging"`
	// Idempotent lets requests of a failed batch be sent again, each alone and once.
	Idempotent bool `yaml:"idempotent"`
	// HealthPath is asked while a server does not answer; empty is /v2/health/ready.
	HealthPath string `yaml:"health_path"`
	// Price is what one server costs, in dollars an hour.
	Price string `yaml:"price"`
	// InstanceType and Region price a server by the price book where Price is empty.
	InstanceType string `yaml:"instance_type"`
	Region       string `yaml:"region"`
	// Sleep holds requests while all servers are gone or without their models.
	Sleep Sleep `yaml:"sleep"`
}

// Key is an API key of a caller.
type Key struct {
	// Name is shown in statistics and messages.
	Name string `yaml:"name"`
	// Hash is sha256: and the SHA-256 sum of the key in hexadecimal digits; curfew gateway key
	// makes a key with its hash.
	Hash string `yaml:"hash"`
	// Owner is whose requests these are; empty is the name.
	Owner string `yaml:"owner"`
	// Models are the models that the key may use; empty is all.
	Models []string `yaml:"models"`
	// BudgetUSD and BudgetTokens bound what the key may use in a period; empty and 0 are no bound.
	BudgetUSD    string `yaml:"budget_usd"`
	BudgetTokens int64  `yaml:"budget_tokens"`
	// Period is the time of a budget: day (the default) or month, in UTC.
	Period string `yaml:"period"`
	// Admin lets the key read statistics.
	Admin bool `yaml:"admin"`
}

// Defaults of the configuration.
const (
	DefaultListen      = "127.0.0.1:8790"
	DefaultOwnerHeader = "Curfew-Owner"
	defaultMaxBatch    = 32
	defaultConcurrency = 256
	maxMaxBatch        = 65536
)

// DefaultConfig returns the configuration of a gateway without pools.
func DefaultConfig() Config {
	return Config{
		Listen: DefaultListen, OwnerHeader: DefaultOwnerHeader, MaxBodyMiB: 16, QueueMiB: 256,
		DrainTimeout: 30 * time.Second,
	}
}

// FieldError is a mistake at a key of the section.
type FieldError struct{ Path, Message string }

// Error implements error.
func (e *FieldError) Error() string { return e.Path + ": " + e.Message }

func field(path, format string, args ...any) error {
	return &FieldError{Path: path, Message: fmt.Sprintf(format, args...)}
}

// Validate returns a *FieldError about what cannot be served.
func (c Config) Validate() error {
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return field("tls", "a certificate and its key come together: set cert_file and key_file")
	}
	for _, name := range append(slices.Clone(c.ForwardHeaders), c.OwnerHeader) {
		if !isToken(name) {
			return field("forward_headers", "%q is not the name of a header", name)
		}
	}
	names, urls, models := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i, p := range c.Pools {
		at := fmt.Sprintf("pools[%d]", i)
		if err := p.validate(at); err != nil {
			return err
		}
		if names[p.Name] && p.Name != "" {
			return field(at+".name", "two pools have the name %q", p.Name)
		}
		names[p.Name] = true
		for _, u := range p.Upstreams {
			if u = strings.TrimRight(u, "/"); urls[u] {
				return field(at+".upstreams", "%s is in two places: a server has one queue", u)
			}
			urls[u] = true
		}
		served := p.Models
		if len(served) == 0 {
			served = []string{""}
		}
		for _, m := range served {
			if models[m] {
				return field(at+".models", "two pools serve %s", quoteModel(m))
			}
			models[m] = true
		}
	}
	return c.validateKeys()
}

func quoteModel(m string) string {
	if m == "" {
		return "all models: name the models of one of them"
	}
	return fmt.Sprintf("model %q", m)
}

func (p Pool) validate(at string) error {
	if len(p.Upstreams) == 0 {
		return field(at+".upstreams", "the pool has no upstream")
	}
	native := 0
	for _, text := range p.Upstreams {
		u, err := parseUpstream(text)
		if err != nil {
			return field(at+".upstreams", "%s", err.Error())
		}
		if isGRPC(u.Scheme) {
			native++
		}
	}
	if native > 0 && native < len(p.Upstreams) {
		return field(at+".upstreams", "some speak gRPC and some do not: give each kind its own pool")
	}
	if !slices.Contains([]string{"", batchAuto, batchAlways, batchNever}, p.Batch) {
		return field(at+".batch", "%q: expected auto, always or never", p.Batch)
	}
	for name, v := range map[string][2]int{
		"max_batch": {p.MaxBatch, maxMaxBatch}, "slots": {p.Slots, 1024}, "concurrency": {p.Concurrency, 65536},
	} {
		if v[0] < 0 || v[0] > v[1] {
			return field(at+"."+name, "%d: expected 1 to %d", v[0], v[1])
		}
	}
	if p.Timeout < 0 || p.Aging < 0 {
		return field(at, "timeout and aging must not be negative")
	}
	if p.HealthPath != "" && !strings.HasPrefix(p.HealthPath, "/") {
		return field(at+".health_path", "%q: a path begins with /", p.HealthPath)
	}
	if p.Price != "" {
		if v, err := money.ParseAmount(strings.TrimPrefix(p.Price, "$")); err != nil || v <= 0 {
			return field(at+".price", "%q: expected dollars an hour, such as 1.006", p.Price)
		}
	}
	return p.Sleep.validate(at, p.Models)
}

func (c Config) validateKeys() error {
	names, hashes := map[string]bool{}, map[string]bool{}
	for i, k := range c.Keys {
		at := fmt.Sprintf("keys[%d]", i)
		switch {
		case k.Name == "" || names[k.Name]:
			return field(at+".name", "each key has its own name")
		case hashes[k.Hash]:
			return field(at+".hash", "two keys have the same hash")
		case k.Period != "" && k.Period != periodDay && k.Period != periodMonth:
			return field(at+".period", "%q: expected day or month", k.Period)
		case k.BudgetTokens < 0:
			return field(at+".budget_tokens", "%d: a budget is not negative", k.BudgetTokens)
		}
		if _, err := parseHash(k.Hash); err != nil {
			return field(at+".hash", "%s", err.Error())
		}
		if k.BudgetUSD != "" {
			if v, err := money.ParseAmount(strings.TrimPrefix(k.BudgetUSD, "$")); err != nil || v <= 0 {
				return field(at+".budget_usd", "%q: expected dollars, such as 25", k.BudgetUSD)
			}
		}
		names[k.Name], hashes[k.Hash] = true, true
	}
	return nil
}

func parseHash(text string) ([32]byte, error) {
	var out [32]byte
	digits, ok := strings.CutPrefix(text, "sha256:")
	b, err := hex.DecodeString(digits)
	if !ok || err != nil || len(b) != len(out) {
		return out, errors.New("expected sha256: and 64 hexadecimal digits; `curfew gateway key` makes a key")
	}
	return [32]byte(b), nil
}

// parseUpstream reads the URL of a model server.
func parseUpstream(text string) (*url.URL, error) {
	u, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && !isGRPC(u.Scheme) ||
		u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("%q is not the URL of a model server, such as http://127.0.0.1:8000", text)
	}
	return u, nil
}

func isToken(s string) bool {
	for _, r := range s {
		if !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') {
			return false
		}
	}
	return s != ""
}

// Loopback reports whether only this machine reaches an address.
func Loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// CheckListen refuses to serve callers of other machines in the clear or without keys.
func (c Config) CheckListen() error {
	if Loopback(c.Listen) {
		return nil
	}
	if c.TLS.CertFile == "" {
		return field("listen", "%s is reached from other machines, which needs TLS: set gateway.tls", c.Listen)
	}
	if len(c.Keys) == 0 {
		return field("listen", "%s is reached from other machines, which needs API keys: set gateway.keys", c.Listen)
	}
	return nil
}
