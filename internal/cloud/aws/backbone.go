package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/curfew-dev/curfew/internal/session"
)

// BackboneVersion is the version of the parameters that this curfew reads.
const BackboneVersion = "2"

// BackbonePath is the prefix of the backbone's parameter names.
const BackbonePath = "/curfew/backbone/"

// BackboneParameter is a parameter that terraform/backbone writes and a launch reads.
// docs/terraform.md lists them for people.
type BackboneParameter struct {
	// Name follows [BackbonePath].
	Name string
	// Means describes the value.
	Means string
	put   func(*Backbone, string) error
}

// BackboneParameters are all parameters of the contract.
var BackboneParameters = []BackboneParameter{
	{"version", "the version of this contract: `" + BackboneVersion + "`", func(_ *Backbone, v string) error {
		if v != BackboneVersion {
			return fmt.Errorf(
				"it has version %q, this curfew reads version %s: apply terraform/backbone of this release", v,
				BackboneVersion)
		}
		return nil
	}},
	{"bucket", "the bucket; sessions use what is below `sessions/`", func(b *Backbone, v string) error {
		b.Bucket = v
		return nil
	}},
	{
		"subnets",
		"subnets with their zones, the zones in alphabetical order: `subnet-1=us-east-1a,subnet-2=us-east-1b`",
		func(b *Backbone, v string) error {
			for _, pair := range strings.Split(v, ",") {
				subnet, zone, ok := strings.Cut(pair, "=")
				if !ok || !strings.HasPrefix(subnet, "subnet-") || zone == "" {
					return fmt.Errorf("%q is not of the form subnet-1=us-east-1a,subnet-2=us-east-1b", v)
				}
				b.Subnets = append(b.Subnets, Subnet{subnet, zone})
			}
			return nil
		}},
	{"security-group", "the security group of the machines", func(b *Backbone, v string) error {
		b.SecurityGroup = v
		return nil
	}},
	{
		"machine-policy", "the ARN of the policy of the machines' roles, which is their permission boundary as well",
		func(b *Backbone, v string) error { b.MachinePolicy = v; return nil },
	},
	{"log-group", "the log group of the machines", func(b *Backbone, v string) error { b.LogGroup = v; return nil }},
	{"kms-key", "the ARN of the key that encrypts logs and terminals", func(b *Backbone, v string) error {
		b.Key = v
		return nil
	}},
	{
		"session-document", "Session Manager's document for shells, which records and encrypts them",
		func(b *Backbone, v string) error { b.SessionDocument = v; return nil },
	},
}

// Backbone is the infrastructure that sessions of a region share.
type Backbone struct {
	Bucket, SecurityGroup, MachinePolicy, LogGroup, Key, SessionDocument string
	// Subnets are the subnets for machines; at least one.
	Subnets []Subnet
}

// Subnet is a subnet and its availability zone.
type Subnet struct{ ID, Zone string }

// Subnet returns the subnet of a zone, or "".
func (b *Backbone) Subnet(zone string) string {
	for _, s := range b.Subnets {
		if s.Zone == zone {
			return s.ID
		}
	}
	return ""
}

// errNoBackbone means that a region has no backbone, errNowhere that no region is allowed.
var (
	errNoBackbone = errors.New("there is no backbone: apply terraform/backbone in this region")
	errNowhere    = fmt.Errorf("no region is left: %w", session.ErrUnsupported)
)

// ReadBackbone builds a backbone from its parameters by full name. It fails if one is missing or
// empty, the version differs, or the subnets are invalid.
func ReadBackbone(values map[string]string) (*Backbone, error) {
	var b Backbone
	for _, p := range BackboneParameters {
		v := values[BackbonePath+p.Name]
		if v == "" {
			return nil, fmt.Errorf(
				"read the backbone: parameter %s%s is missing: apply terraform/backbone in this region",
				BackbonePath, p.Name)
		}
		if err := p.put(&b, v); err != nil {
			return nil, fmt.Errorf("read the backbone: parameter %s%s: %w", BackbonePath, p.Name, err)
		}
	}
	return &b, nil
}

// Backbone reads the backbone of a region. Without one, the error names the remedy.
func (l *Launcher) Backbone(ctx context.Context, region string) (*Backbone, error) {
	l.mu.Lock()
	b, ok := l.backbones[region]
	l.mu.Unlock()
	if ok {
		return b, nil
	}
	values := map[string]string{}
	err := pages(ctx, func(token *string) (*string, error) {
		page, err := ssmClient(l.at(region)).GetParametersByPath(ctx, &ssm.GetParametersByPathInput{
			Path:      awssdk.String(BackbonePath),
			NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, p := range page.Parameters {
			values[awssdk.ToString(p.Name)] = awssdk.ToString(p.Value)
		}
		return page.NextToken, nil
	})
	if err != nil {
		return nil, wrapped("read the backbone of "+region, err)
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s: %w", region, errNoBackbone)
	}
	if b, err = ReadBackbone(values); err != nil {
		return nil, fmt.Errorf("%s: %w", region, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backbones[region] = b
	return b, nil
}
