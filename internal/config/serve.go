package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Serve is how curfew serve runs.
type Serve struct {
	// Interval is the time between two rounds of an account; rounds come earlier where
	// something is due, and later where CloudWatch would cost more than its limit.
	Interval time.Duration `yaml:"interval"`
	// Deadline is how long one round may take.
	Deadline time.Duration `yaml:"deadline"`
	// AuditInterval is the time between two audits of an account, which find what to fix;
	// SkipAudits makes none.
	AuditInterval time.Duration `yaml:"audit_interval"`
	SkipAudits    bool          `yaml:"skip_audits"`
	// BillPaths are where the API may import bills from: files, folders and s3://bucket/prefix,
	// each with all that is under it.
	BillPaths []string `yaml:"bill_paths"`
	// TracePaths are folders and files with recorded usage that the API may replay.
	TracePaths []string `yaml:"trace_paths"`
	// PublicURL is where people reach the service, such as https://curfew.example.com; without
	// it the API answers by the loopback names of this machine alone.
	PublicURL string `yaml:"public_url"`
	// TLS is the certificate of the service; without it a proxy must terminate TLS.
	TLS ServeTLS `yaml:"tls"`
	// SignIn is the OpenID Connect provider by which people sign in.
	SignIn SignIn `yaml:"sign_in"`
	// Gateways are the gateways that the service shows (docs/gateway.md).
	Gateways []ServedGateway `yaml:"gateways"`
}

// ServedGateway is a running gateway that the service asks for its statistics.
type ServedGateway struct {
	// Name is shown; URL is where the gateway listens, such as https://gateway.example.com:8790.
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
	// KeyEnv is the environment variable that holds an API key with admin: true; empty sends none.
	KeyEnv string `yaml:"key_env"`
	// CAFile is a PEM file of the authorities that are trusted; empty is those of the system.
	CAFile string `yaml:"ca_file"`
}

// ServeTLS are the files of a TLS server. They are read again when they change.
type ServeTLS struct {
	// CertFile is a PEM file of the certificate and those that lead to its authority.
	CertFile string `yaml:"cert_file"`
	// KeyFile is a PEM file of its key.
	KeyFile string `yaml:"key_file"`
}

// SignIn is an OpenID Connect provider.
type SignIn struct {
	// Issuer is the URL of the provider.
	Issuer string `yaml:"issuer"`
	// ClientID is the id of this service there.
	ClientID string `yaml:"client_id"`
	// ClientSecretEnv is the environment variable that holds the secret of this service there.
	ClientSecretEnv string `yaml:"client_secret_env"`
}

// check returns an error for an invalid section, and its key.
func (s Serve) check() (key string, err error) {
	for i, g := range s.Gateways {
		u, err := url.Parse(g.URL)
		if g.Name == "" || err != nil || u.Host == "" || u.Scheme != "https" &&
			!(u.Scheme == "http" && OnThisMachine(u)) ||
			u.User != nil || u.RawQuery != "" {
			return fmt.Sprintf("serve.gateways[%d]",
					i), fmt.Errorf("%q: a gateway needs a name, and a URL of https, or of http "+
					"on this machine", g.URL)
		}
	}
	u, err := url.Parse(s.PublicURL)
	switch {
	case s.PublicURL != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" ||
		strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil):
		return "serve.public_url", fmt.Errorf("%q: it is a URL such as https://curfew.example.com", s.PublicURL)
	case (s.TLS.CertFile == "") != (s.TLS.KeyFile == ""):
		return "serve.tls", errors.New("a certificate and its key come together: cert_file and key_file")
	case s.SignIn == SignIn{}:
		return "", nil
	case s.SignIn.Issuer == "" || s.SignIn.ClientID == "":
		return "serve.sign_in", errors.New("it needs the issuer and the client_id")
	case s.PublicURL == "":
		return "serve.sign_in", errors.New("the provider leads back to serve.public_url, which is missing")
	}
	if u, err := url.Parse(s.SignIn.Issuer); err != nil || u.Host == "" || u.Scheme != "https" && !OnThisMachine(u) {
		return "serve.sign_in.issuer", fmt.Errorf(
			"%q: it is a URL such as https://accounts.example.com", s.SignIn.Issuer)
	}
	return "", nil
}
