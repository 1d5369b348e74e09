package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/estimate"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/spec"
)

// Gate is when the gate asks, and whom.
type Gate struct {
	// AskOver is the estimate in dollars (p95) over which an approver has to decide; 0 asks
	// for everything.
	AskOver string `yaml:"ask_over" form:"dollars"`
	// Roles are the roles of which an approver needs one; empty is approver.
	Roles []string `yaml:"roles"`
	// Expiry is how long a request can be approved and its approval used.
	Expiry time.Duration `yaml:"expiry"`
}

// Limit returns AskOver as an amount.
func (g Gate) Limit() (money.Amount, error) {
	v, err := money.ParseAmount(strings.TrimPrefix(g.AskOver, "$"))
	if err != nil || v < 0 {
		return 0, fmt.Errorf("%q is not an amount of dollars such as 100", g.AskOver)
	}
	return v, nil
}

// GitHub maps accounts there to people.
type GitHub struct {
	// Identities are curfew's names of logins: {octocat: ana}. Other logins are
	// github:LOGIN.
	Identities map[string]string `yaml:"identities"`
}

// Estimate are the defaults of estimates for fields that a specification leaves out.
type Estimate struct {
	// Regions are those to price where a specification names none; empty is aws.regions.
	Regions []string `yaml:"regions"`
	// DataRegions are the regions of buckets, so that reads from other regions are priced:
	// {datasets: us-east-1}.
	DataRegions map[string]string `yaml:"data_regions"`
	// Runtime is how long a Kubernetes workload runs that does not say; nothing ends it
	// then, so the gate asks.
	Runtime time.Duration `yaml:"runtime"`
	// Nodes are the machines of a cluster, for manifests that name none; the first that fits
	// is taken.
	Nodes []estimate.Node `yaml:"nodes"`
	// Devices maps extended resources and device classes of a cluster to accelerators of the
	// price book, or to none for one that needs no machine: {nvidia.com/gtx-1080-ti: T4}. The
	// gate asks about a resource that is neither known nor listed.
	Devices spec.Devices `yaml:"devices"`
}

// Spot is how often spot machines are taken away, for findings and estimates alike.
type Spot struct {
	// InterruptionsPerHour is how often one spot machine is interrupted in an hour; without
	// it spot.runs says it, else 0.33 is used and the range 0.095 to 1.39 shown.
	InterruptionsPerHour float64 `yaml:"interruptions_per_hour"`
	// Runs is a file of past runs to learn the rate from, as estimate --history reads it.
	Runs string `yaml:"runs"`
	// Advisor is a file with the published data of the Spot Instance Advisor
	// (spot-advisor-data.json): findings and estimates show the band of interruptions of a machine
	// type next to the rate that they calculate with, with the date of the file.
	Advisor string `yaml:"advisor"`
}

// Unit is something that is made and counted.
type Unit struct {
	// Name is the singular of the unit: "token".
	Name string `yaml:"name" form:"required"`
	// Where limits the costs to values of dimensions: {team: search, purpose: inference}.
	Where map[string]string `yaml:"where" keys:"dimensions"`
	// Per is how many units a unit cost is for, such as 1000000; 0 is 1.
	Per int64 `yaml:"per"`
	// Target is the most that so many units should cost, in dollars.
	Target string `yaml:"target" form:"dollars"`
	// Counts is where the counts come from.
	Counts Counts `yaml:"counts" form:"required"`
}

// GPUHours is a value of Counts.File: the GPU hours that the ledger records as used.
const GPUHours = "gpu-hours"

// The values of Counts.Of.
const (
	Predictions  = "predictions"
	InputTokens  = "input_tokens"
	OutputTokens = "output_tokens"
)

// Counts is where the counts of a unit come from: a file, a server that speaks
// Prometheus's HTTP API, or a gateway.
type Counts struct {
	// File is a CSV file of counts, or gpu-hours for the used GPU hours of the ledger.
	File string `yaml:"file"`
	// URL is a server that speaks Prometheus's HTTP API.
	URL string `yaml:"url"`
	// Query is the PromQL query of the server.
	Query string `yaml:"query"`
	// TokenEnv is the environment variable that holds the server's bearer token.
	TokenEnv string `yaml:"token_env"`
	// Gateway is the name of a gateway under serve.gateways, which counts by itself.
	Gateway string `yaml:"gateway"`
	// Of chooses among the counts of the gateway: predictions, input_tokens or output_tokens.
	Of string `yaml:"of"`
	// Model limits it to one model; empty is all.
	Model string `yaml:"model"`
}

// sources returns how many places the counts come from.
func (c Counts) sources() int {
	n := 0
	for _, from := range []string{c.File, c.URL, c.Gateway} {
		if from != "" {
			n++
		}
	}
	return n
}

// check returns an error for an invalid unit.
func (u Unit) check() error {
	switch {
	case u.Name == "":
		return errors.New("a unit needs a name")
	case u.Per < 0:
		return errors.New("per must be more than zero")
	case u.Counts.sources() != 1:
		return errors.New("counts come from a file, from the url of a server, or from a gateway")
	case u.Counts.URL != "" && u.Counts.Query == "":
		return errors.New("counts of a server need a query")
	case u.Counts.Gateway != "" && !slices.Contains([]string{Predictions, InputTokens, OutputTokens}, u.Counts.Of):
		return fmt.Errorf("counts of a gateway are of predictions, input_tokens or output_tokens, not %q", u.Counts.Of)
	case u.Counts.Gateway == "" && (u.Counts.Of != "" || u.Counts.Model != ""):
		return errors.New("of and model choose among the counts of a gateway: name it")
	}
	if u.Target != "" {
		if v, err := money.ParseRate(strings.TrimPrefix(u.Target, "$")); err != nil || v <= 0 {
			return fmt.Errorf("target %q is not an amount of dollars", u.Target)
		}
	}
	for by := range u.Where {
		if !slices.Contains(ledger.Dimensions, ledger.Dimension(by)) {
			return fmt.Errorf("where: %q is no dimension of costs", by)
		}
	}
	return nil
}

// checkBooks checks the lists in the sections about money.
func (c *Config) checkBooks(f *document.File, root ast.Node) error {
	if _, err := c.Gate.Limit(); err != nil {
		return placed(f, root, "gate.ask_over", err)
	}
	for i := range c.SharedCosts {
		if err := c.SharedCosts[i].Validate(); err != nil {
			return placed(f, root, fmt.Sprintf("shared_costs[%d]", i), err)
		}
	}
	for i, u := range c.Units {
		if err := u.check(); err != nil {
			return placed(f, root, fmt.Sprintf("units[%d]", i), err)
		}
	}
	for i, n := range c.Estimate.Nodes {
		if n.Type == "" {
			return placed(f, root, fmt.Sprintf("estimate.nodes[%d]", i), errors.New("a node needs an instance_type"))
		}
	}
	for resource, to := range c.Estimate.Devices {
		if resource == "" || strings.TrimSpace(to) == "" {
			return placed(f, root, "estimate.devices",
				fmt.Errorf("a resource is mapped to an accelerator such as T4, or to %s",
					spec.NoDevice))
		}
	}
	if _, err := budget.NewSet(c.Budgets, c.Quotas); err != nil {
		return placed(f, root, "budgets", err)
	}
	return nil
}
