// Package sandbox is an AWS account for tests: moto behind a [wire.Server] that fills its gaps,
// seeded with typical waste of a team and with similar-looking legitimate resources, and a
// description of which is which.
package sandbox

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/curfew-dev/curfew/test/moto"
	"github.com/curfew-dev/curfew/test/wire"
)

// Options configure a sandbox.
type Options struct {
	// Port is the port of the endpoint on loopback; 0 selects a free one.
	Port int
	// Log receives moto's own log; nil discards it.
	Log io.Writer
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Sandbox is a running AWS endpoint.
type Sandbox struct {
	// Wire is the proxy in front of moto: it records calls and injects faults.
	Wire *wire.Server

	moto *moto.Server
	now  func() time.Time
}

// Start installs moto if necessary, starts it and the endpoint in front of it, and returns when
// both respond.
func Start(ctx context.Context, o Options) (*Sandbox, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	m, err := moto.Start(ctx, o.Log)
	if err != nil {
		return nil, err
	}
	s := &Sandbox{Wire: wire.New(wire.Options{Upstream: m.URL(), Now: o.Now}), moto: m, now: o.Now}
	if err := s.Wire.Listen(o.Port); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return s, nil
}

// URL returns the endpoint for all services.
func (s *Sandbox) URL() string { return s.Wire.URL() }

// MotoURL returns the address of moto itself, without the proxy.
func (s *Sandbox) MotoURL() string {
	s.Wire.Bypassed()
	return s.moto.URL()
}

// Close ends the endpoint and moto.
func (s *Sandbox) Close() error {
	return errors.Join(s.Wire.Close(), s.moto.Close())
}

// The keys of the sandbox's own account, [wire.DefaultAccount].
const (
	AccessKey = "testing"
	SecretKey = "testing"
)

// Env returns the variables to export ("KEY=value") so that the AWS SDK of any language only uses
// the sandbox.
func (s *Sandbox) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.URL(),
		"AWS_ACCESS_KEY_ID=" + AccessKey,
		"AWS_SECRET_ACCESS_KEY=" + SecretKey,
		"AWS_SESSION_TOKEN=",
		"AWS_REGION=us-east-1",
		"AWS_DEFAULT_REGION=us-east-1",
		"AWS_DISABLE_REQUEST_COMPRESSION=true",
		"AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null",
		"AWS_PROFILE=",
	}
}

// Config returns an SDK configuration for a region of the sandbox's own account.
func (s *Sandbox) Config(region string) aws.Config {
	return config(s.URL(), region, AccessKey, SecretKey, "")
}

func config(url, region, key, secret, token string) aws.Config {
	return aws.Config{
		Region: region, BaseEndpoint: aws.String(url), DisableRequestCompression: true, HTTPClient: wire.Client{},
		Credentials: credentials.NewStaticCredentialsProvider(key, secret, token)}
}
