package aws

import (
	"context"
	"slices"
	"strings"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	classictypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// Limits of the load balancing calls.
const (
	balancersPage = 400
	tagsPerCall   = 20 // resources per call for tags
	classicType   = "classic"
)

func (p *place) loadBalancers(ctx context.Context) {
	var found []types.LoadBalancer
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := elbClient(p.reading).DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{
			PageSize: awssdk.Int32(balancersPage),
			Marker:   token,
		})
		if err != nil {
			return nil, err
		}
		found = append(found, out.LoadBalancers...)
		return out.NextMarker, nil
	})
	p.failed(ctx, "elasticloadbalancing:DescribeLoadBalancers", err)
	if len(found) == 0 {
		return
	}
	arns := make([]string, len(found))
	for i, b := range found {
		arns[i] = awssdk.ToString(b.LoadBalancerArn)
	}
	tags := p.balancerTags(ctx, arns)
	behind, readable := p.targets(ctx)
	for _, b := range found {
		arn := awssdk.ToString(b.LoadBalancerArn)
		r := p.resource(inventory.KindLoadBalancer, arn)
		r.Name, r.Type, r.CreatedAt, r.Tags = awssdk.ToString(b.LoadBalancerName), string(b.Type), utc(
			b.CreatedTime), tags[arn]
		if b.State != nil {
			r.State = map[types.LoadBalancerStateEnum]inventory.State{
				types.LoadBalancerStateEnumActive:         inventory.StateAvailable,
				types.LoadBalancerStateEnumActiveImpaired: inventory.StateAvailable,
				types.LoadBalancerStateEnumProvisioning:   inventory.StatePending,
				types.LoadBalancerStateEnumFailed:         inventory.StateFailed,
			}[b.State.Code]
		}
		d := &inventory.LoadBalancer{}
		if _, dimension, ok := strings.Cut(arn, ":loadbalancer/"); ok {
			d.Dimension = dimension
		}
		if t := behind[arn]; readable && (t == nil || !t.unknown) {
			if t == nil {
				t = &targets{}
			}
			d.Targets, d.HealthyTargets = inventory.Known(t.all), inventory.Known(t.healthy)
		}
		r.Detail = d
		p.scan.add(r)
	}
}

// targets holds the targets of a load balancer.
type targets struct {
	all, healthy int
	unknown      bool // the health of a group could not be read
}

// targets reads the targets of each load balancer, by its ARN, and reports whether the target groups
// could be listed.
func (p *place) targets(ctx context.Context) (map[string]*targets, bool) {
	var groups []types.TargetGroup
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := elbClient(p.reading).DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{
			PageSize: awssdk.Int32(balancersPage),
			Marker:   token,
		})
		if err != nil {
			return nil, err
		}
		for _, g := range out.TargetGroups {
			if len(g.LoadBalancerArns) == 0 {
				continue
			}
			groups = append(groups, g)
			dimension := lastOf(awssdk.ToString(g.TargetGroupArn), ":") // "targetgroup/name/id"
			for _, arn := range g.LoadBalancerArns {
				p.targetGroups[arn] = append(p.targetGroups[arn], dimension)
			}
		}
		return out.NextMarker, nil
	})
	p.failed(ctx, "elasticloadbalancing:DescribeTargetGroups", err)
	if err != nil {
		return nil, false
	}
	byBalancer := map[string]*targets{}
	var mu sync.Mutex
	each(ctx, groups, func(g types.TargetGroup) {
		out, err := elbClient(p.reading).DescribeTargetHealth(ctx, &elbv2.DescribeTargetHealthInput{
			TargetGroupArn: g.TargetGroupArn,
		})
		p.missed(ctx, "elasticloadbalancing:DescribeTargetHealth", awssdk.ToString(g.TargetGroupName), err)
		mu.Lock()
		defer mu.Unlock()
		for _, arn := range g.LoadBalancerArns {
			t := byBalancer[arn]
			if t == nil {
				t = &targets{}
				byBalancer[arn] = t
			}
			if err != nil {
				t.unknown = true
				continue
			}
			for _, h := range out.TargetHealthDescriptions {
				t.all++
				if h.TargetHealth == nil {
					t.unknown = true
					continue
				}
				switch h.TargetHealth.State {
				case types.TargetHealthStateEnumHealthy, types.TargetHealthStateEnumUnavailable:
					t.healthy++ // "unavailable": without health checks a target may be healthy
				}
			}
		}
	})
	return byBalancer, ctx.Err() == nil
}

// balancerTags reads the tags of load balancers by ARN; unreadable ones are absent.
func (p *place) balancerTags(ctx context.Context, arns []string) map[string]map[string]string {
	tags := map[string]map[string]string{}
	for chunk := range slices.Chunk(arns, tagsPerCall) {
		out, err := elbClient(p.reading).DescribeTags(ctx, &elbv2.DescribeTagsInput{ResourceArns: chunk})
		if err != nil {
			for _, arn := range chunk {
				p.missed(ctx, "elasticloadbalancing:DescribeTags", lastOf(arn, "/"), err)
			}
			continue
		}
		for _, d := range out.TagDescriptions {
			tags[awssdk.ToString(d.ResourceArn)] = tagged(d.Tags, func(t types.Tag) (*string, *string) {
				return t.Key, t.Value
			})
		}
	}
	return tags
}

// lastOf returns the part after the last separator.
func lastOf(s, separator string) string {
	return s[strings.LastIndex(s, separator)+len(separator):]
}

func (p *place) classicLoadBalancers(ctx context.Context) {
	var found []classictypes.LoadBalancerDescription
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := classicClient(p.reading).DescribeLoadBalancers(ctx,
			&elasticloadbalancing.DescribeLoadBalancersInput{
				PageSize: awssdk.Int32(balancersPage),
				Marker:   token,
			})
		if err != nil {
			return nil, err
		}
		found = append(found, out.LoadBalancerDescriptions...)
		return out.NextMarker, nil
	})
	p.failed(ctx, "elasticloadbalancing:DescribeLoadBalancers", err)
	tags := p.classicTags(ctx, found)
	each(ctx, found, func(b classictypes.LoadBalancerDescription) {
		name := awssdk.ToString(b.LoadBalancerName)
		r := p.resource(inventory.KindLoadBalancer, name)
		r.Name, r.Type, r.CreatedAt, r.Tags = name, classicType, utc(b.CreatedTime), tags[name]
		r.State = inventory.StateAvailable
		d := &inventory.LoadBalancer{Dimension: name, Targets: inventory.Known(len(b.Instances))}
		r.Detail = d
		if len(b.Instances) == 0 {
			d.HealthyTargets = inventory.Known(0)
		} else if out, err := classicClient(p.reading).DescribeInstanceHealth(ctx,
			&elasticloadbalancing.DescribeInstanceHealthInput{
				LoadBalancerName: b.LoadBalancerName,
			}); err == nil {
			healthy := 0
			for _, s := range out.InstanceStates {
				if awssdk.ToString(s.State) != "OutOfService" {
					healthy++ // "Unknown" targets may be in service
				}
			}
			d.HealthyTargets = inventory.Known(healthy)
		} else {
			p.missed(ctx, "elasticloadbalancing:DescribeInstanceHealth", name, err)
		}
		p.scan.add(r)
	})
}

// classicTags reads the tags of classic load balancers by name.
func (p *place) classicTags(ctx context.Context,
	found []classictypes.LoadBalancerDescription) map[string]map[string]string {
	tags := map[string]map[string]string{}
	for chunk := range slices.Chunk(found, tagsPerCall) {
		names := make([]string, len(chunk))
		for i, b := range chunk {
			names[i] = awssdk.ToString(b.LoadBalancerName)
		}
		out, err := classicClient(p.reading).DescribeTags(ctx, &elasticloadbalancing.DescribeTagsInput{
			LoadBalancerNames: names,
		})
		if err != nil {
			for _, n := range names {
				p.missed(ctx, "elasticloadbalancing:DescribeTags", n, err)
			}
			continue
		}
		for _, d := range out.TagDescriptions {
			tags[awssdk.ToString(d.LoadBalancerName)] = tagged(d.Tags, func(t classictypes.Tag) (*string, *string) {
				return t.Key, t.Value
			})
		}
	}
	return tags
}
