package aws

import (
	"context"
	"fmt"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// Backbone is what sessions of a region share, as the parameters below /curfew/backbone/
// name it.
type Backbone struct {
	// Bucket holds the documents and snapshots of sessions.
	Bucket string
	// Subnets are the networks that machines start in, by zone.
	Subnets map[string]string
	// SecurityGroup lets nothing in but from itself; InstanceProfile is an ARN.
	SecurityGroup, InstanceProfile string
}

const (
	backbonePath = "/curfew/backbone/"
	// backboneVersion is the version of the parameters that this program reads.
	backboneVersion = "1"
)

// Backbone reads the backbone of a region. It is an error that says what to do where there is
// none.
func (l *Launcher) Backbone(ctx context.Context, region string) (Backbone, error) {
	return l.backbone(ctx, region)
}

func (l *Launcher) backbone(ctx context.Context, region string) (Backbone, error) {
	l.mu.Lock()
	b, ok := l.backbones[region]
	l.mu.Unlock()
	if ok {
		return b, nil
	}
	values := map[string]string{}
	err := pages(ctx, func(token *string) (*string, error) {
		page, err := l.ssm(region).GetParametersByPath(ctx, &ssm.GetParametersByPathInput{Path: awssdk.String(backbonePath), NextToken: token})
		if err != nil {
			return nil, err
		}
		for _, p := range page.Parameters {
			values[strings.TrimPrefix(awssdk.ToString(p.Name), backbonePath)] = awssdk.ToString(p.Value)
		}
		return page.NextToken, nil
	})
	if err != nil {
		return b, wrapped("read the backbone of "+region, err)
	}
	if b, err = parseBackbone(values); err != nil {
		return b, fmt.Errorf("read the backbone of %s: %w", region, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backbones[region] = b
	return b, nil
}

// parseBackbone reads parameters: the subnets are "subnet=zone,…".
func parseBackbone(values map[string]string) (Backbone, error) {
	b := Backbone{Bucket: values["bucket"], SecurityGroup: values["security-group"], InstanceProfile: values["instance-profile"], Subnets: map[string]string{}}
	switch v := values["version"]; {
	case len(values) == 0:
		return b, fmt.Errorf("there are no parameters below %s: apply the Terraform module terraform/backbone there", backbonePath)
	case v != backboneVersion:
		return b, fmt.Errorf("its parameters are of version %q and this curfew reads version %s: apply the module that came with it", v, backboneVersion)
	}
	for part := range strings.SplitSeq(values["subnets"], ",") {
		subnet, zone, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || subnet == "" || zone == "" {
			return b, fmt.Errorf("parameter %ssubnets is %q, and not subnet=zone,…", backbonePath, values["subnets"])
		}
		b.Subnets[zone] = subnet
	}
	for name, v := range map[string]string{"bucket": b.Bucket, "security-group": b.SecurityGroup, "instance-profile": b.InstanceProfile} {
		if v == "" {
			return b, fmt.Errorf("parameter %s%s is missing", backbonePath, name)
		}
	}
	return b, nil
}
