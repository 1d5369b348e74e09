package clouds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/metrics/prom"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/view"
)

// MetricsSources opens the servers with recorded usage that flags name, or otherwise the configured
// ones, which the simulated account does not use.
func MetricsSources(req *runtime.Request, cfg config.Config, f Source) ([]*prom.Source, error) {
	sources := make([]config.MetricsSource, 0, len(f.Metrics))
	for _, url := range f.Metrics {
		sources = append(sources, cfg.Metrics.Source(url))
	}
	if len(f.Metrics) == 0 && !Of(f.Cloud).Simulated {
		sources = cfg.Metrics.Sources
	}
	out := make([]*prom.Source, 0, len(sources))
	for _, s := range sources {
		o, err := metricsOptions(req, s)
		if err == nil {
			var source *prom.Source
			if source, err = prom.New(o); err == nil {
				out = append(out, source)
				continue
			}
		}
		return nil, &runtime.Error{
			Class: runtime.Usage, Code: "invalid_metrics_source", Err: err,
			Hint: "docs/metrics.md says how servers are read",
		}
	}
	return out, nil
}

// metricsOptions returns the options to reach a configured server.
func metricsOptions(req *runtime.Request, s config.MetricsSource) (prom.Options, error) {
	o := prom.Options{
		Select: s.Select, Names: s.Names, Series: req.Series, Left: leftOut(req, s.URL),
		Access: prom.Access{URL: s.URL, User: s.User, Headers: s.Headers, Now: req.Now},
	}
	for _, m := range s.Machines {
		o.Machines = append(o.Machines, prom.Rule(m))
	}
	for _, secret := range []struct {
		name string
		to   *string
	}{{s.TokenEnv, &o.Token}, {s.PasswordEnv, &o.Password}} {
		if secret.name == "" {
			continue
		}
		v, ok := req.Lookup(secret.name)
		if !ok || v == "" {
			return o, fmt.Errorf("read metrics of %s: the variable %s, which holds a secret, is not set", s.URL,
				secret.name)
		}
		*secret.to = v
	}
	if s.AWSRegion != "" {
		o.Sign = signer(s.AWSProfile, s.AWSRegion, req.Now)
	}
	var err error
	o.TLS, err = clientTLS(req, s)
	return o, err
}

// MetricsAccess returns the address and the credentials of a configured server.
func MetricsAccess(req *runtime.Request, s config.MetricsSource) (prom.Access, error) {
	o, err := metricsOptions(req, s)
	return o.Access, err
}

// clientTLS returns the configured authorities and certificate; nil if there are none.
func clientTLS(req *runtime.Request, s config.MetricsSource) (*tls.Config, error) {
	if s.CAFile == "" && s.CertFile == "" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CAFile != "" {
		pem, err := os.ReadFile(req.Path(s.CAFile))
		if err != nil {
			return nil, fmt.Errorf("read ca_file %s: %w", s.CAFile, runtime.Cause(err))
		}
		if t.RootCAs = x509.NewCertPool(); !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read ca_file %s: %w", s.CAFile, errors.New("it holds no certificate in PEM"))
		}
	}
	if s.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(req.Path(s.CertFile), req.Path(s.KeyFile))
		if err != nil {
			return nil, fmt.Errorf("read cert_file %s: %w", s.CertFile, runtime.Cause(err))
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// owners holds the owners of machines according to metrics servers, for machines whose tags do not
// name one.
type owners struct {
	servers []*prom.Source
	tags    inventory.TagMapping
}

// learn fills owners. A server that does not respond adds none.
func (o *owners) learn(ctx context.Context, resources []*inventory.Resource, now time.Time) ([]inventory.BlindSpot,
	error) {
	spots, _, err := o.disputes(ctx, resources, now)
	return spots, err
}

// disputes fills owners and returns the machines about which sources disagree.
func (o *owners) disputes(ctx context.Context, resources []*inventory.Resource, now time.Time) ([]inventory.BlindSpot,
	map[inventory.Ref][]inventory.Dispute, error) {
	var machines []*inventory.Resource
	for _, r := range resources {
		if t := r.Kind.Traits(); t.Measured && t.Compute {
			machines = append(machines, r)
		}
	}
	if len(machines) == 0 {
		return nil, nil, nil
	}
	var spots []inventory.BlindSpot
	out := map[inventory.Ref][]inventory.Dispute{}
	for _, s := range o.servers {
		claims, err := s.Claims(ctx, machines, now, o.tags)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil {
			spots = append(spots, inventory.BlindSpot{
				What: s.Name(), Why: err.Error(), Effect: "owners are those of tags alone",
			})
			continue
		}
		for _, m := range machines {
			if c, ok := claims[m.Ref()]; ok {
				out[m.Ref()] = append(out[m.Ref()], m.ApplyClaims(c)...)
			}
		}
	}
	return spots, out, nil
}

// asUsage are the servers as sources of usage.
func asUsage(servers []*prom.Source) []usage.Source {
	out := make([]usage.Source, len(servers))
	for i, s := range servers {
		out[i] = s
	}
	return out
}

// usageSummary lists the contents of usage sources after they were read.
func usageSummary(sources []usage.Source) []view.DoctorSource {
	out := make([]view.DoctorSource, 0, len(sources))
	for _, s := range sources {
		x := view.DoctorSource{Name: s.Name()}
		if server, ok := s.(*prom.Source); ok {
			asked := server.Asked()
			x.Queries, x.Bytes = asked.Queries, asked.Bytes
			x.Unmatched, x.Ambiguous = server.Unmatched()
			x.Impossible = server.Impossible()
		}
		out = append(out, x)
	}
	return out
}

// leftOut reports impossible readings of a server, once per machine and signal.
func leftOut(req *runtime.Request, server string) func(machine string, signal usage.Signal, n int) {
	type meter struct {
		machine string
		signal  usage.Signal
	}
	said := map[meter]bool{}
	return func(machine string, signal usage.Signal, n int) {
		if m := (meter{machine, signal}); !said[m] {
			said[m] = true
			plain.Fprintf(req.Log, "curfew: warning: %s: left out %s of %s on %s that cannot be true (%s)\n",
				plain.Text(server), plain.Count(n, "reading"), signal, plain.Text(machine), signal.Unit())
		}
	}
}
