package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
)

// Metrics are servers that hold recorded usage.
type Metrics struct {
	// Sources are read, and never written to.
	Sources []MetricsSource `yaml:"sources"`
	// CloudWatch bounds what AWS charges for reading its metrics.
	CloudWatch CloudWatch `yaml:"cloudwatch"`
}

// CloudWatch bounds what AWS charges for reading its metrics.
type CloudWatch struct {
	// MaxUSDPerMonth limits the cost of CloudWatch requests by curfew serve; above it, passes are
	// less frequent.
	MaxUSDPerMonth string `yaml:"max_usd_per_month" form:"dollars"`
}

// MetricsSource is a server that speaks Prometheus's HTTP API.
type MetricsSource struct {
	// URL is its address without /api/v1.
	URL string `yaml:"url"`
	// TokenEnv is the environment variable that holds its bearer token.
	TokenEnv string `yaml:"token_env"`
	// User is the name for basic authentication.
	User string `yaml:"user"`
	// PasswordEnv is the environment variable that holds the password of User.
	PasswordEnv string `yaml:"password_env"`
	// CAFile is a PEM file of the authorities that are trusted; empty is those of the
	// system.
	CAFile string `yaml:"ca_file"`
	// CertFile is a PEM file of the client's certificate.
	CertFile string `yaml:"cert_file"`
	// KeyFile is a PEM file of the key of CertFile.
	KeyFile string `yaml:"key_file"`
	// AWSRegion is the region of Amazon Managed Prometheus, whose requests are signed.
	AWSRegion string `yaml:"aws_region"`
	// AWSProfile has the credentials that sign; empty is the SDK's own chain.
	AWSProfile string `yaml:"aws_profile"`
	// Headers are sent with every request: X-Scope-OrgID names a tenant of Mimir.
	Headers map[string]string `yaml:"headers"`
	// Select are matchers that every series has to meet: cluster="prod".
	Select string `yaml:"select"`
	// Names are further metrics, as columns of recorded usage: npu_busy_ratio:
	// gpu_util*100.
	Names map[string]string `yaml:"names"`
	// Machines are the labels that name machines where the usual ones do not.
	Machines []MetricsRule `yaml:"machines"`
}

// MetricsRule makes a machine's name of a label.
type MetricsRule struct {
	// Label is the label that is read.
	Label string `yaml:"label"`
	// Pattern is a regular expression that the whole value of the label matches.
	Pattern string `yaml:"pattern"`
	// Name is the name of the machine, with groups of Pattern in it: ip-$1.
	Name string `yaml:"name"`
}

// Source returns the configuration of a server, or only its address if there is none.
func (m Metrics) Source(url string) MetricsSource {
	same := func(s MetricsSource) bool { return strings.TrimRight(s.URL, "/") == strings.TrimRight(url, "/") }
	if i := slices.IndexFunc(m.Sources, same); i >= 0 {
		return m.Sources[i]
	}
	return MetricsSource{URL: url}
}

// checkMetrics checks the servers without connecting to them.
func (c *Config) checkMetrics(f *document.File, root ast.Node) error {
	if v, err := money.ParseAmount(c.Metrics.CloudWatch.MaxUSDPerMonth); err != nil || v <= 0 {
		return placed(f, root, "metrics.cloudwatch.max_usd_per_month",
			errors.New("it is an amount of dollars a month over zero such as 50"))
	}
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
