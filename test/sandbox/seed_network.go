package sandbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

func (b *seeder) address(ctx context.Context, region, name string, o inventory.Owner) (Resource, error) {
	out, err := ec2.NewFromConfig(b.Config(region)).AllocateAddress(ctx, &ec2.AllocateAddressInput{
		Domain:            ec2types.DomainTypeVpc,
		TagSpecifications: tagSpec(ec2types.ResourceTypeElasticIp, tags(o, name))})
	if err != nil {
		return Resource{}, fmt.Errorf("address %s: %w", name, err)
	}
	return b.record(inventory.KindAddress, *out.AllocationId, region, o), nil
}

// named returns the machine with a name.
func (b *seeder) named(ctx context.Context, region, name string) (string, error) {
	out, err := ec2.NewFromConfig(b.Config(region)).DescribeInstances(ctx,
		&ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
			{Name: aws.String("tag:Name"), Values: []string{name}}}})
	if err != nil {
		return "", fmt.Errorf("find machine %s: %w", name, err)
	}
	if len(out.Reservations) != 1 || len(out.Reservations[0].Instances) != 1 {
		return "", fmt.Errorf("find machine %s: %d reservations", name, len(out.Reservations))
	}
	return *out.Reservations[0].Instances[0].InstanceId, nil
}

func (b *seeder) addresses(ctx context.Context) error {
	free, err := b.address(ctx, east, "old-demo", emil)
	if err != nil {
		return err
	}
	monthly := cost(term{"730", "address"})
	b.plant(free, "address-unused", Planted{SavingsUSD: monthly})
	for _, x := range []struct {
		name, machine string
		owner         inventory.Owner
		unused        bool
	}{
		{"workstation-ip", "old-workstation", ana, true},
		{"api-ip", "api", dana, false},
	} {
		a, err := b.address(ctx, east, x.name, x.owner)
		if err != nil {
			return err
		}
		id, err := b.named(ctx, east, x.machine)
		if err != nil {
			return err
		}
		if _, err := ec2.NewFromConfig(b.Config(east)).AssociateAddress(ctx, &ec2.AssociateAddressInput{
			AllocationId: &a.ID, InstanceId: &id,
		}); err != nil {
			return fmt.Errorf("associate %s: %w", x.name, err)
		}
		if x.unused {
			b.plant(a, "address-unused", Planted{SavingsUSD: monthly, Note: "its machine is stopped"})
		} else {
			b.innocent(a, "in use", "address-unused")
		}
	}
	return b.gateways(ctx)
}

func (b *seeder) gateways(ctx context.Context) error {
	api, net := ec2.NewFromConfig(b.Config(east)), b.nets[east]
	for i, x := range []struct {
		name  string
		owner inventory.Owner
		bytes float64
	}{
		{"old-egress", chen, 0},
		{"egress", bo, 3e9},
	} {
		a, err := b.address(ctx, east, x.name+"-ip", x.owner)
		if err != nil {
			return err
		}
		out, err := api.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{AllocationId: &a.ID, SubnetId: &net.subnet,
			TagSpecifications: tagSpec(ec2types.ResourceTypeNatgateway, tags(x.owner, x.name))})
		if err != nil {
			return fmt.Errorf("gateway %s: %w", x.name, err)
		}
		id := *out.NatGateway.NatGatewayId
		b.age("ec2", "natGatewayId", id, b.ago(days(100)), "createTime")
		// moto does not associate a gateway's address.
		b.Wire.Patch(wire.Patch{Service: "ec2", Operation: "DescribeAddresses", IDField: "allocationId", ID: a.ID,
			Add: map[string]any{
				"associationId":      fmt.Sprintf("eipassoc-%017x", i+1),
				"networkInterfaceId": fmt.Sprintf("eni-%017x", i+1),
			}})
		table, err := api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &net.vpc})
		if err != nil {
			return fmt.Errorf("route table: %w", err)
		}
		if _, err := api.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: table.RouteTable.RouteTableId,
			DestinationCidrBlock: aws.String("0.0.0.0/0"), NatGatewayId: &id}); err != nil {
			return fmt.Errorf("route: %w", err)
		}
		for _, metric := range []string{
			"BytesOutToDestination", "BytesInFromSource", "BytesInFromDestination", "BytesOutToSource",
		} {
			b.steady(east, "AWS/NATGateway", metric, dims("NatGatewayId", id), b.ago(days(31)),
				func(t time.Time) wire.Datum {
					return counter(t, x.bytes)
				})
		}
		r := b.record(inventory.KindNATGateway, id, east, x.owner)
		if x.bytes == 0 {
			b.plant(r, "nat-gateway-idle", Planted{SavingsUSD: cost(term{"730", "nat"})})
		} else {
			b.innocent(r, "3 GB an hour go through it", "nat-gateway-idle")
		}
		b.innocent(a, "a gateway uses it", "address-unused")
	}
	return nil
}

func elbv2Tags(t map[string]string) []elbv2types.Tag {
	var out []elbv2types.Tag
	for k, v := range t {
		out = append(out, elbv2types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	return out
}

func (b *seeder) balancers(ctx context.Context) error {
	api, net := elbv2.NewFromConfig(b.Config(east)), b.nets[east]
	for _, x := range []struct {
		name    string
		owner   inventory.Owner
		targets bool
		// requests per hour; negative has no datapoints
		requests float64
		idle     bool
		note     string
	}{
		{"old-api", emil, false, -1, true, "no targets"},
		{"demo-api", chen, true, 2, true, "48 requests a day"},
		{"assistant-api", dana, true, 4_000, false, "it serves"},
		{"quiet-api", bo, true, -1, false, "healthy targets and no datapoint: unknown"},
	} {
		out, err := api.CreateLoadBalancer(ctx, &elbv2.CreateLoadBalancerInput{
			Name: &x.name, Subnets: []string{net.subnet, net.subnet2},
			Type: elbv2types.LoadBalancerTypeEnumApplication, Tags: elbv2Tags(tags(x.owner, x.name))})
		if err != nil {
			return fmt.Errorf("load balancer %s: %w", x.name, err)
		}
		arn := *out.LoadBalancers[0].LoadBalancerArn
		b.age("elasticloadbalancing", "LoadBalancerArn", arn, b.ago(days(120)), "CreatedTime")
		if err := b.targets(ctx, x.name, arn, x.targets); err != nil {
			return err
		}
		_, dimension, _ := strings.Cut(arn, ":loadbalancer/")
		if x.requests >= 0 {
			b.steady(east, "AWS/ApplicationELB", "RequestCount", dims("LoadBalancer", dimension), b.ago(days(15)),
				func(t time.Time) wire.Datum { return counter(t, x.requests) })
		}
		r := b.record(inventory.KindLoadBalancer, arn, east, x.owner)
		if x.idle {
			b.plant(r, "load-balancer-idle", Planted{SavingsUSD: cost(term{"730", "lb:application"}), Note: x.note})
		} else {
			b.innocent(r, x.note, "load-balancer-idle")
		}
	}
	return b.classic(ctx)
}

// targets gives a load balancer a target group, with or without a machine.
func (b *seeder) targets(ctx context.Context, name, arn string, filled bool) error {
	api := elbv2.NewFromConfig(b.Config(east))
	group, err := api.CreateTargetGroup(ctx, &elbv2.CreateTargetGroupInput{
		Name: aws.String(name + "-targets"), Port: aws.Int32(80),
		Protocol: elbv2types.ProtocolEnumHttp, VpcId: aws.String(b.nets[east].vpc),
		TargetType: elbv2types.TargetTypeEnumInstance})
	if err != nil {
		return fmt.Errorf("target group: %w", err)
	}
	groupARN := group.TargetGroups[0].TargetGroupArn
	if _, err := api.CreateListener(ctx, &elbv2.CreateListenerInput{LoadBalancerArn: &arn, Port: aws.Int32(80),
		Protocol: elbv2types.ProtocolEnumHttp, DefaultActions: []elbv2types.Action{
			{Type: elbv2types.ActionTypeEnumForward, TargetGroupArn: groupARN},
		}}); err != nil {
		return fmt.Errorf("listener: %w", err)
	}
	if !filled {
		return nil
	}
	id, err := b.named(ctx, east, "api")
	if err != nil {
		return err
	}
	if _, err := api.RegisterTargets(ctx, &elbv2.RegisterTargetsInput{TargetGroupArn: groupARN,
		Targets: []elbv2types.TargetDescription{{Id: &id}}}); err != nil {
		return fmt.Errorf("register target: %w", err)
	}
	return nil
}

// classic creates two Classic Load Balancers: an unused one and one in use.
func (b *seeder) classic(ctx context.Context) error {
	api := elb.NewFromConfig(b.Config(east))
	for _, x := range []struct {
		name  string
		owner inventory.Owner
		used  bool
	}{{"legacy-web", emil, false}, {"legacy-serving", dana, true}} {
		var t []elbtypes.Tag
		for k, v := range tags(x.owner, x.name) {
			t = append(t, elbtypes.Tag{Key: aws.String(k), Value: aws.String(v)})
		}
		if _, err := api.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{LoadBalancerName: &x.name,
			Subnets: []string{b.nets[east].subnet}, Tags: t,
			Listeners: []elbtypes.Listener{
				{InstancePort: aws.Int32(80), LoadBalancerPort: 80, Protocol: aws.String("HTTP")},
			}}); err != nil {
			return fmt.Errorf("load balancer %s: %w", x.name, err)
		}
		b.age("elasticloadbalancing", "LoadBalancerName", x.name, b.ago(days(900)), "CreatedTime")
		r := b.record(inventory.KindLoadBalancer, x.name, east, x.owner)
		if !x.used {
			b.plant(r, "load-balancer-idle", Planted{
				SavingsUSD: cost(term{"730", "lb:classic"}), Note: "classic, no machines",
			})
			continue
		}
		id, err := b.named(ctx, east, "api")
		if err != nil {
			return err
		}
		if _, err := api.RegisterInstancesWithLoadBalancer(ctx, &elb.RegisterInstancesWithLoadBalancerInput{
			LoadBalancerName: &x.name,
			Instances:        []elbtypes.Instance{{InstanceId: &id}}}); err != nil {
			return fmt.Errorf("register with %s: %w", x.name, err)
		}
		b.steady(east, "AWS/ELB", "RequestCount", dims("LoadBalancerName", x.name), b.ago(days(15)),
			func(t time.Time) wire.Datum { return counter(t, 900) })
		b.innocent(r, "it serves", "load-balancer-idle")
	}
	return nil
}
