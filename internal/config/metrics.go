package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
)

// Metrics are servers that hold recorded usage.
type Metrics struct {
	// Sources are read, and never written to.
	Sources []MetricsSource `yaml:"sources"`
}

// MetricsSource is a server that speaks Prometheus's HTTP API.
type MetricsSource struct {
	// URL is its address without /api/v1.
	URL string `yaml:"url"`
	// TokenEnv names the variable that holds its bearer token; User and PasswordEnv are
	// for basic authentication.
	TokenEnv    string `yaml:"token_env"`
	User        string `yaml:"user"`
	PasswordEnv string `yaml:"password_env"`
	// CAFile holds the authorities that are trusted; CertFile and KeyFile are the client's
	// certificate.
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// AWSRegion is that of Amazon Managed Prometheus, whose requests are signed by the
	// credentials of AWSProfile; empty: the SDK's own chain.
	AWSRegion  string `yaml:"aws_region"`
	AWSProfile string `yaml:"aws_profile"`
	// Headers are sent with every request: X-Scope-OrgID names a tenant of Mimir.
	Headers map[string]string `yaml:"headers"`
	// Select are matchers that every series has to meet: cluster="prod".
	Select string `yaml:"select"`
	// Names are further metrics, as columns of recorded usage: neuroncore_utilization_ratio:
	// gpu_util*100.
	Names map[string]string `yaml:"names"`
	// Machines say which labels name machines where the usual ones do not.
	Machines []MetricsRule `yaml:"machines"`
}

// MetricsRule makes a machine's name of a label: where the whole value matches Pattern,
// Name is the machine's, with the groups of the pattern in it.
type MetricsRule struct {
	Label   string `yaml:"label"`
	Pattern string `yaml:"pattern"`
	Name    string `yaml:"name"`
}

// Source returns what is configured for a server, and only its address where nothing is.
func (m Metrics) Source(url string) MetricsSource {
	same := func(s MetricsSource) bool { return strings.TrimRight(s.URL, "/") == strings.TrimRight(url, "/") }
	if i := slices.IndexFunc(m.Sources, same); i >= 0 {
		return m.Sources[i]
	}
	return MetricsSource{URL: url}
}

// checkMetrics checks the servers, as far as that goes without reading them.
func (c *Config) checkMetrics(f *document.File, root ast.Node) error {
	for i, s := range c.Metrics.Sources {
		var err error
		switch {
		case s.URL == "":
			err = errors.New("a source needs a url")
		case (s.CertFile == "") != (s.KeyFile == ""):
			err = errors.New("cert_file and key_file belong together")
		case (s.User == "") != (s.PasswordEnv == ""):
			err = errors.New("user and password_env belong together")
		case s.AWSProfile != "" && s.AWSRegion == "":
			err = errors.New("aws_profile needs an aws_region")
		}
		if err != nil {
			return placed(f, root, fmt.Sprintf("metrics.sources[%d]", i), err)
		}
	}
	return nil
}
