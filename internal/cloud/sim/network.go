package sim

import (
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// network adds gateways, balancers and addresses.
func (a *account) network() {
	for _, x := range []struct {
		name, region string
		age          float64
		routes       int
		rate         float64
		planted      Planted
	}{
		{"nat-use1", east, 420, 3, 2.4e6, honest("in use")},
		{"nat-usw2", west, 300, 2, 9e5, honest("in use")},
		{"nat-euw1", ireland, 390, 1, 0, waste("not a byte in thirty days", "nat-gateway-idle")},
	} {
		z := zone(x.region, x.name)
		e := a.add(inventory.Resource{
			Name: x.name, Kind: inventory.KindNATGateway, Region: x.region, Zone: z, Type: "public",
			State:     inventory.StateAvailable,
			CreatedAt: a.ago(days(x.age)),
			Detail:    &inventory.NATGateway{Routes: inventory.Known(x.routes)},
		}, "nat-", 18, ops.production(), x.planted)
		e.model, e.signals = silent, []usage.Signal{usage.NetBytes}
		if x.rate > 0 {
			e.model = gateway(x.rate, 0)
		}
		a.address(x.name+"-address", x.region, x.age, "eipassoc-0"+e.key.hex(16), "", ops.production(),
			honest("a gateway's"))
	}
	a.balancers()
	for _, x := range []struct {
		name, machine, region string
		owner                 owner
		age                   float64
		planted               Planted
	}{
		{"bastion-address", "bastion", east, ops.production(), 139, honest("of a machine that runs")},
		{"support-serve-address", "support-serve-01", east, dmitri.production(), 65, honest("of a machine that runs")},
		{
			"ablation-07-address", "ablation-07", east, chloe, 70,
			waste("of a machine that is stopped", "address-unused"),
		},
		{"pose-demo-address", "", east, chloe, 74, waste("of nothing", "address-unused")},
		{"vpn-old", "", ireland, owner{care: careless}, 380, waste("of nothing, and unowned", "address-unused")},
		{"nmt-annotators", "", west, emeka, 160, waste("of nothing", "address-unused")},
	} {
		association, instance := "", ""
		if x.machine != "" {
			instance = a.id(x.machine)
			association = "eipassoc-0" + newKey(a.seed, "association/"+x.name).hex(16)
		}
		a.address(x.name, x.region, x.age, association, instance, x.owner, x.planted)
	}
}

func (a *account) address(name, region string, age float64, association, instance string, o owner, p Planted) {
	state := inventory.StateAvailable
	if association != "" {
		state = inventory.StateInUse
	}
	e := a.add(inventory.Resource{
		Name: name, Kind: inventory.KindAddress, Region: region, State: state, CreatedAt: a.ago(days(age)),
	}, "eipalloc-", 17, o, p)
	e.resource.Detail = &inventory.Address{AssociationID: association, InstanceID: instance}
}

func (a *account) balancers() {
	for _, x := range []struct {
		name, region, kind string
		owner              owner
		age                float64
		targets, healthy   int
		requests           float64 // a second at most
		planted            Planted
	}{
		{"ranker", east, "application", goran.production(), 130, 6, 6, 340, honest("in use")},
		{"rag", east, "application", fatima.production(), 90, 2, 2, 16, honest("in use")},
		{"console", east, "application", ops.production(), 160, 3, 3, 5, honest("in use")},
		{"ads-serve", ireland, "network", hana.production(), 150, 2, 2, 210, honest("in use")},
		{"pose-demo", east, "application", chloe, 74, 0, 0, 0, waste("nothing is behind it", "load-balancer-idle")},
		{
			"nmt-preview", west, "application", emeka, 220, 2, 0, 0,
			waste("none of what is behind it answers", "load-balancer-idle"),
		},
		{
			"label-hook", east, "application", ben, 310, 1, 1, 0.0006,
			waste("thirty requests a day", "load-balancer-idle"),
		},
	} {
		family := map[string]string{"application": "app", "network": "net"}[x.kind]
		dimension := family + "/" + x.name + "/" + newKey(a.seed, "balancer/"+x.name).hex(16)
		e := a.add(inventory.Resource{
			ID: "arn:aws:elasticloadbalancing:" + x.region + ":" + Account + ":loadbalancer/" +
				dimension, Name: x.name + "-lb",
			Kind: inventory.KindLoadBalancer, Region: x.region, Type: x.kind, State: inventory.StateAvailable,
			CreatedAt: a.ago(days(x.age)),
			Detail: &inventory.LoadBalancer{
				Dimension: dimension, Targets: inventory.Known(x.targets), HealthyTargets: inventory.Known(x.healthy),
			},
		}, "", 0, x.owner, x.planted)
		if x.requests > 0 {
			e.model, e.signals = gateway(0, x.requests), []usage.Signal{usage.Requests}
		}
	}
}
