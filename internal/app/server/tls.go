package server

import (
	"crypto/tls"
	"os"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
)

// certificate is the certificate of a server with its key. It is reloaded when one of the files
// changes; after an error the previous one stays in use.
type certificate struct {
	cert, key string

	mu   sync.Mutex
	as   [2]time.Time
	have *tls.Certificate
}

// newCertificate returns the configured certificate, or nil.
func newCertificate(req *runtime.Request, cfg config.Config) *certificate {
	if cfg.Serve.TLS.CertFile == "" {
		return nil
	}
	return &certificate{cert: req.Path(cfg.Serve.TLS.CertFile), key: req.Path(cfg.Serve.TLS.KeyFile)}
}

// Certificate returns the GetCertificate function of a TLS configuration for the files of a
// certificate and its key, which are reloaded when they change.
func Certificate(cert, key string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return (&certificate{cert: cert, key: key}).load
}

// load implements GetCertificate of a TLS configuration.
func (p *certificate) load(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var as [2]time.Time
	for i, name := range []string{p.cert, p.key} {
		if info, err := os.Stat(name); err == nil {
			as[i] = info.ModTime()
		}
	}
	if p.have != nil && as == p.as {
		return p.have, nil
	}
	c, err := tls.LoadX509KeyPair(p.cert, p.key)
	switch {
	case err == nil:
		p.have, p.as = &c, as
	case p.have == nil:
		return nil, err
	}
	return p.have, nil
}
