package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plan/capacity"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Fleet is a serving fleet: what one replica can do, and where its demand is read. Its bounds are in
// a policy.
type Fleet struct {
	// ID is the fleet as policies name it: asg/embed, endpoint/embed.
	ID string `yaml:"id" form:"required"`
	// Profile is the time of n requests on one replica: a=48ms,b=1.74s is a·n + b.
	Profile string `yaml:"profile" form:"required"`
	// MaxBatch is the most requests of one batch. A fleet has max_batch or max_running.
	MaxBatch int `yaml:"max_batch"`
	// MaxRunning is the most requests side by side, of a server that batches continuously.
	MaxRunning int `yaml:"max_running"`
	// LateAfter is the latency that an answer should keep.
	LateAfter time.Duration `yaml:"late_after" form:"required"`
	// AddTime is the time from the start of a replica until it serves, until it has been measured;
	// 0 is 5m.
	AddTime time.Duration `yaml:"add_time"`
	// Stabilization is the time throughout which fewer replicas have to be enough; 0 is the time to
	// add one, and at least 5m.
	Stabilization time.Duration `yaml:"stabilization"`
	// Window is the time over which demand is averaged; 0 is 1m.
	Window time.Duration `yaml:"window"`
	// Demand are the sources of demand, which are added: each is for other replicas.
	Demand []FleetDemand `yaml:"demand" form:"required"`
	// Scale sets the size of a fleet custom/NAME.
	Scale FleetScale `yaml:"scale"`
}

// FleetScale is the command or webhook of its owner that sets the size of a fleet custom/NAME.
type FleetScale struct {
	// Command is run with the argument size, and prints {"replicas": 2}; or with set N, and the servers that
	// end. It runs as the user of the service.
	Command []string `yaml:"command"`
	// URL, in place of a command, is asked by GET and set by PUT.
	URL string `yaml:"url"`
	// KeyEnv is the environment variable that holds a bearer token for it.
	KeyEnv string `yaml:"key_env"`
	// Price is what one replica costs, in dollars an hour.
	Price string `yaml:"price"`
	// Drains declares that replicas which it chooses end after their requests in flight.
	Drains bool `yaml:"drains"`
	// Timeout bounds one command or call; 0 is 1m.
	Timeout time.Duration `yaml:"timeout"`
	// Tags are those of the fleet, from which its owner is read.
	Tags map[string]string `yaml:"tags"`
}

// IsZero reports whether nothing is given.
func (s FleetScale) IsZero() bool {
	return len(s.Command) == 0 && s.URL == "" && s.KeyEnv == "" && s.Price == "" && !s.Drains && s.Timeout == 0 &&
		len(s.Tags) == 0
}

// Hourly returns the price of one replica.
func (s FleetScale) Hourly() (money.Amount, error) {
	v, err := money.ParseAmount(strings.TrimPrefix(s.Price, "$"))
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("scale.price %q: expected dollars an hour, such as 1.006", s.Price)
	}
	return v, nil
}

// check returns an error for a fleet whose size cannot be set.
func (s FleetScale) check(id string) error {
	custom := strings.HasPrefix(id, "custom/")
	switch {
	case !custom && !s.IsZero():
		return fmt.Errorf("scale is for fleets custom/NAME: the size of %s is set at its provider", id)
	case !custom:
		return nil
	case (len(s.Command) > 0) == (s.URL != ""):
		return errors.New("a fleet custom/NAME needs scale.command or scale.url, and not both")
	case len(s.Command) > 0 && s.Command[0] == "":
		return errors.New("scale.command is empty: name the program first")
	case s.URL == "" && s.KeyEnv != "":
		return errors.New("scale.key_env needs scale.url")
	case s.Timeout < 0:
		return errors.New("scale.timeout must not be negative")
	}
	if u, err := url.Parse(s.URL); s.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" &&
		u.Scheme != "https") {
		return fmt.Errorf("scale.url %q: expected a URL of http or https", s.URL)
	}
	_, err := s.Hourly()
	return err
}

// FleetDemand is a server that speaks Prometheus's HTTP API and has the metrics of model servers, a gateway,
// or CloudWatch.
type FleetDemand struct {
	// URL is its address without /api/v1. Credentials are those of the same url in metrics.sources.
	URL string `yaml:"url"`
	// Server is the kind of model server: kserve, llama.cpp, sglang, tgi, triton, vllm; gateway, for a gateway of
	// curfew, whose key is that of the same url in serve.gateways; or cloudwatch, without url and select, for
	// the metrics of the SageMaker endpoint that the fleet is.
	Server string `yaml:"server" form:"required"`
	// Select are matchers of the labels of the replicas: job="embed"; of a gateway the name of its pool.
	Select string `yaml:"select"`
	// Step is the time between two scrapes; 0 is 15s.
	Step time.Duration `yaml:"step"`
}

// Decided returns the fleet as decisions need it, without its bounds and its target.
func (f Fleet) Decided() (fleet.Config, error) {
	profile, err := capacity.ParseProfile(f.Profile)
	if err != nil {
		return fleet.Config{}, err
	}
	c := fleet.Config{
		Server:  fleet.Server{Law: fleet.Batch, Profile: profile, Limit: f.MaxBatch, Objective: f.LateAfter},
		AddTime: f.AddTime, Stabilization: f.Stabilization, Window: f.Window,
	}
	if f.MaxRunning > 0 {
		c.Server.Law, c.Server.Limit = fleet.Concurrency, f.MaxRunning
	}
	return c, c.Server.Check()
}

// check returns an error for a fleet that cannot be decided about.
func (f Fleet) check() error {
	switch {
	case !policy.IsFleetID(f.ID):
		return fmt.Errorf("id %q is not the id of a fleet, such as asg/NAME, endpoint/NAME or custom/NAME", f.ID)
	case f.MaxBatch < 0 || f.MaxRunning < 0 || (f.MaxBatch > 0) == (f.MaxRunning > 0):
		return errors.New("give max_batch or max_running, and not both")
	case f.AddTime < 0 || f.Stabilization < 0 || f.Window < 0:
		return errors.New("add_time, stabilization and window must not be negative")
	case len(f.Demand) == 0:
		return errors.New("a fleet needs a source of demand")
	}
	for _, d := range f.Demand {
		if d.Server == "cloudwatch" {
			alone := d.URL == "" && d.Select == "" && d.Step == 0 && len(f.Demand) == 1
			if !strings.HasPrefix(f.ID, "endpoint/") || !alone {
				return errors.New("a source of demand cloudwatch is of a fleet endpoint/NAME, and its only one: it has " +
					"neither url, select nor step")
			}
			continue
		}
		if d.URL == "" || d.Server == "" || strings.TrimSpace(d.Select) == "" || d.Step < 0 {
			return errors.New("a source of demand needs url, server and select, and a step that is not negative")
		}
	}
	if err := f.Scale.check(f.ID); err != nil {
		return err
	}
	_, err := f.Decided()
	return err
}

// checkFleets checks the fleets; each id once.
func (c *Config) checkFleets(f *document.File, root ast.Node) error {
	seen := map[string]bool{}
	for i, one := range c.Fleets {
		err := one.check()
		if err == nil && seen[one.ID] {
			err = fmt.Errorf("%s is there already", one.ID)
		}
		if err != nil {
			return placed(f, root, fmt.Sprintf("fleets[%d]", i), err)
		}
		seen[one.ID] = true
	}
	return nil
}
