package aws

import (
	"context"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// The maximum page sizes of the calls.
const (
	instancesPage = 1000
	volumesPage   = 500
	snapshotsPage = 1000
	imagesPage    = 1000
	natPage       = 1000
	routesPage    = 100
)

// groupTag is the tag with the name of a machine's Auto Scaling group.
const groupTag = "aws:autoscaling:groupName"

func (p *place) instances(ctx context.Context) {
	var found []*inventory.Resource
	spot := map[string]*inventory.Instance{}
	err := p.eachInstance(ctx, nil, func(i types.Instance) {
		p.nameHost(awssdk.ToString(i.PrivateDnsName), awssdk.ToString(i.InstanceId))
		found = append(found, p.spotted(i, spot))
	})
	p.failed(ctx, "ec2:DescribeInstances", err)
	p.describeTypes(ctx, found)
	p.describeSpot(ctx, spot)
	if !p.scan.asked(inventory.KindVolume) {
		p.describeDisks(ctx, found)
	}
	for _, r := range found {
		p.scan.add(r)
	}
}

// eachInstance visits the matching machines that are not terminated; no filter matches all.
func (p *place) eachInstance(ctx context.Context, filters []types.Filter, visit func(types.Instance)) error {
	return pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeInstances(ctx, &ec2.DescribeInstancesInput{
			Filters:    filters,
			MaxResults: awssdk.Int32(instancesPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, reservation := range out.Reservations {
			for _, i := range reservation.Instances {
				if i.State != nil && i.State.Name == types.InstanceStateNameTerminated {
					p.ended(i)
					continue
				}
				visit(i)
			}
		}
		return out.NextToken, nil
	})
}

// ended records a terminated machine, which EC2 lists for about an hour, if its end is known.
func (p *place) ended(i types.Instance) {
	r := p.instance(i)
	r.Cloud = cloudName
	if r.StateSince.IsZero() || p.scan.cloud.options.Tags.Apply(r) != nil {
		return
	}
	p.scan.mu.Lock()
	defer p.scan.mu.Unlock()
	p.scan.ended = append(p.scan.ended, r)
}

// nameHost records the private name of a machine. Networks with equal addresses have equal names: a
// name of several machines identifies none.
func (p *place) nameHost(host, id string) {
	if host == "" {
		return
	}
	if _, taken := p.hosts[host]; taken {
		id = ""
	}
	p.hosts[host] = id
}

// instance converts a machine. Its protection is not read, which would take a call per machine.
func (p *place) instance(i types.Instance) *inventory.Resource {
	r := p.resource(inventory.KindInstance, awssdk.ToString(i.InstanceId))
	r.Type = string(i.InstanceType)
	r.CreatedAt = utc(i.LaunchTime)
	r.Tags = ec2Tags(i.Tags)
	r.Name = r.Tags["Name"]
	r.Manager = managerOf(i.Operator, i.Tags)
	r.Aliases = aliases(i)
	d := &inventory.Instance{
		Market:                market(i),
		ImageID:               awssdk.ToString(i.ImageId),
		CapacityReservationID: awssdk.ToString(i.CapacityReservationId),
		PublicAddresses:       lentAddresses(i),
	}
	d.Platform, d.PlatformAssumed = platformOf(i)
	if i.Placement != nil {
		r.Zone = awssdk.ToString(i.Placement.AvailabilityZone)
		d.Tenancy = tenancy(string(i.Placement.Tenancy))
	}
	if i.State != nil {
		r.State = instanceStates[i.State.Name]
	}
	switch r.State {
	case inventory.StateRunning:
		r.StateSince = r.CreatedAt
	case inventory.StateStopping, inventory.StateStopped, inventory.StateDeleting:
		r.StateSince = transitionTime(awssdk.ToString(i.StateTransitionReason))
	}
	for _, m := range i.BlockDeviceMappings {
		if m.Ebs != nil {
			d.Disks = append(d.Disks, inventory.Disk{
				VolumeID:            awssdk.ToString(m.Ebs.VolumeId),
				DeleteOnTermination: awssdk.ToBool(m.Ebs.DeleteOnTermination),
				Device:              awssdk.ToString(m.DeviceName), Root: isRoot(i, m)})
		}
	}
	r.Detail = d
	return r
}

// amazonOwner owns the public addresses that EC2 assigns to running machines.
const amazonOwner = "amazon"

// lentAddresses counts the public IPv4 addresses of a machine that its account does not own:
// addresses of the account, also from its own pool, have the account as owner (EC2 API,
// InstanceNetworkInterfaceAssociation).
func lentAddresses(i types.Instance) (n int64) {
	lent := func(a *types.InstanceNetworkInterfaceAssociation) {
		if a != nil && awssdk.ToString(a.PublicIp) != "" && awssdk.ToString(a.IpOwnerId) == amazonOwner {
			n++
		}
	}
	for _, card := range i.NetworkInterfaces {
		if len(card.PrivateIpAddresses) == 0 {
			lent(card.Association)
		}
		for _, address := range card.PrivateIpAddresses {
			lent(address.Association)
		}
	}
	return n
}

// spotted converts a machine, and records its spot request.
func (p *place) spotted(i types.Instance, requests map[string]*inventory.Instance) *inventory.Resource {
	r := p.instance(i)
	if id := awssdk.ToString(i.SpotInstanceRequestId); id != "" &&
		i.InstanceLifecycle == types.InstanceLifecycleTypeSpot {
		requests[id] = r.Detail.(*inventory.Instance)
	}
	return r
}

// aliases returns the names of a machine in metrics besides its ID: its private DNS name and its
// host part, its private address, and its provider ID as a Kubernetes node.
func aliases(i types.Instance) []string {
	dns, address := awssdk.ToString(i.PrivateDnsName), awssdk.ToString(i.PrivateIpAddress)
	host, _, _ := strings.Cut(dns, ".")
	names := []string{dns, host, address}
	if i.Placement != nil {
		names = append(names, "aws:///"+awssdk.ToString(i.Placement.AvailabilityZone)+"/"+
			awssdk.ToString(i.InstanceId))
	}
	return slices.DeleteFunc(distinct(names), func(n string) bool { return n == "" })
}

var instanceStates = map[types.InstanceStateName]inventory.State{
	types.InstanceStateNamePending:      inventory.StatePending,
	types.InstanceStateNameRunning:      inventory.StateRunning,
	types.InstanceStateNameShuttingDown: inventory.StateDeleting,
	types.InstanceStateNameTerminated:   inventory.StateDeleting,
	types.InstanceStateNameStopping:     inventory.StateStopping,
	types.InstanceStateNameStopped:      inventory.StateStopped,
}

// market returns the purchase option of a machine. EC2 has no lifecycle for on-demand machines; an
// unfamiliar lifecycle is unknown.
func market(i types.Instance) inventory.Market {
	if i.Placement != nil && i.Placement.Tenancy == types.TenancyHost {
		return inventory.DedicatedHost
	}
	switch i.InstanceLifecycle {
	case "":
		return inventory.OnDemand
	case types.InstanceLifecycleTypeSpot:
		return inventory.Spot
	case types.InstanceLifecycleTypeCapacityBlock:
		return inventory.CapacityBlock
	}
	return inventory.MarketUnknown
}

// platforms maps the platform details of machines and the product descriptions of
// reservations, in lower case, to short names.
var platforms = map[string]string{
	"linux/unix":               inventory.LinuxPlatform,
	"linux":                    inventory.LinuxPlatform,
	"red hat enterprise linux": "rhel",
	"suse linux":               "suse",
	"ubuntu pro":               "ubuntu-pro",
	"windows":                  "windows",
	"windows byol":             "windows-byol",
	"windows with sql server":  "windows-sql",
}

// platformOf returns the platform of a machine. EC2 always gives details; other implementations of
// the API may omit them, and then a machine not marked as Windows is assumed to be Linux.
func platformOf(i types.Instance) (name string, assumed bool) {
	switch details := awssdk.ToString(i.PlatformDetails); {
	case details != "":
		return platform(details), false
	case i.Platform != "":
		return platform(string(i.Platform)), false
	}
	return inventory.LinuxPlatform, true
}

// platform returns the short name of a platform; empty means unknown. Old reservations say that
// they are for a VPC, which machines never do (EC2 API, ReservedInstances, ProductDescription).
func platform(details string) string {
	details = strings.TrimSpace(strings.TrimSuffix(strings.ToLower(strings.TrimSpace(details)), "(amazon vpc)"))
	if p := platforms[details]; p != "" {
		return p
	}
	return strings.Join(strings.Fields(details), "-")
}

// tenancy maps EC2's word for shared machines.
func tenancy(t string) string {
	if t == string(types.TenancyDefault) {
		return inventory.SharedTenancy
	}
	return t
}

// transition matches the time of a state transition, as in "User initiated (2024-01-02 03:04:05
// GMT)".
var transition = lazyregexp.New(`\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)`)

// transitionTime returns the time in a state transition reason, or zero.
func transitionTime(reason string) time.Time {
	m := transition.FindStringSubmatch(reason)
	if m == nil {
		return time.Time{}
	}
	t, err := time.Parse(time.DateTime, m[1])
	if err != nil {
		return time.Time{}
	}
	return t
}

func ec2Tags(tags []types.Tag) map[string]string {
	return tagged(tags, func(t types.Tag) (*string, *string) { return t.Key, t.Value })
}

func (p *place) images(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeImages(ctx, &ec2.DescribeImagesInput{
			Owners: []string{"self"}, IncludeDeprecated: awssdk.Bool(true),
			IncludeDisabled: awssdk.Bool(true), MaxResults: awssdk.Int32(imagesPage), NextToken: token})
		if err != nil {
			return nil, err
		}
		for _, i := range out.Images {
			if i.State != types.ImageStateDeregistered {
				p.scan.add(p.image(i))
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeImages", err)
}

var imageStates = map[types.ImageState]inventory.State{
	types.ImageStatePending:   inventory.StatePending,
	types.ImageStateAvailable: inventory.StateAvailable,
	types.ImageStateDisabled:  inventory.StateDisabled,
	types.ImageStateInvalid:   inventory.StateFailed,
	types.ImageStateFailed:    inventory.StateFailed,
	types.ImageStateError:     inventory.StateFailed,
}

func (p *place) image(i types.Image) *inventory.Resource {
	r := p.resource(inventory.KindImage, awssdk.ToString(i.ImageId))
	r.Tags = ec2Tags(i.Tags)
	r.Name = firstOf(r.Tags["Name"], awssdk.ToString(i.Name))
	r.Manager = backupOf(r.Tags)
	r.State = imageStates[i.State]
	r.CreatedAt = stamp(awssdk.ToString(i.CreationDate))
	d := &inventory.Image{
		Public: awssdk.ToBool(i.Public),
		// "enabled-with-cooldown", "enabled-without-cooldown" or "disabled" (EC2 User Guide, "Protect
		// an Amazon EC2 AMI from deregistration").
		Protected: strings.HasPrefix(awssdk.ToString(i.DeregistrationProtection), "enabled"),
	}
	if t := stamp(awssdk.ToString(i.LastLaunchedTime)); !t.IsZero() {
		d.LastLaunched = inventory.Known(t)
	}
	for _, m := range i.BlockDeviceMappings {
		if m.Ebs != nil && awssdk.ToString(m.Ebs.SnapshotId) != "" {
			d.SnapshotIDs = append(d.SnapshotIDs, *m.Ebs.SnapshotId)
		}
	}
	r.Detail = d
	return r
}

// stamp parses a time in a response, or returns zero.
func stamp(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.000Z0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return ""
}

func (p *place) addresses(ctx context.Context) {
	out, err := ec2Client(p.reading).DescribeAddresses(ctx, &ec2.DescribeAddressesInput{})
	if err != nil {
		p.failed(ctx, "ec2:DescribeAddresses", err)
		return
	}
	for _, a := range out.Addresses {
		if ownPool(a) {
			continue
		}
		r := p.resource(inventory.KindAddress, firstOf(awssdk.ToString(a.AllocationId), awssdk.ToString(a.PublicIp)))
		r.Tags = ec2Tags(a.Tags)
		r.Name = firstOf(r.Tags["Name"], awssdk.ToString(a.PublicIp))
		d := &inventory.Address{
			AssociationID: awssdk.ToString(a.AssociationId), InstanceID: awssdk.ToString(a.InstanceId),
		}
		if pool := awssdk.ToString(a.PublicIpv4Pool); strings.HasPrefix(pool, ipamPool) {
			d.Pool = pool
		}
		r.State, r.Detail = inventory.StateAvailable, d
		if d.AssociationID != "" || d.InstanceID != "" {
			r.State = inventory.StateInUse
		}
		p.scan.add(r)
	}
}

// Pools of addresses provided by Amazon: amazonPool for single ones, IPAM pools for contiguous
// blocks that were not brought along.
const (
	amazonPool = "amazon"
	ipamPool   = "ipam-pool-"
)

// ownPool reports whether an address is from a pool of the account's own, brought along or on an
// Outpost: it is free, and releasing it saves nothing. (Amazon VPC pricing, "Public IPv4 address".)
// IPAM pools may hold either kind.
func ownPool(a types.Address) bool {
	pool := awssdk.ToString(a.PublicIpv4Pool)
	return (pool != "" && pool != amazonPool && !strings.HasPrefix(pool, ipamPool)) ||
		awssdk.ToString(a.CustomerOwnedIpv4Pool) != ""
}

func (p *place) natGateways(ctx context.Context) {
	var gateways []types.NatGateway
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeNatGateways(ctx, &ec2.DescribeNatGatewaysInput{
			MaxResults: awssdk.Int32(natPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, g := range out.NatGateways {
			if g.State != types.NatGatewayStateDeleted {
				gateways = append(gateways, g)
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeNatGateways", err)
	if len(gateways) == 0 {
		return
	}
	routes, readable := p.natRoutes(ctx)
	for _, g := range gateways {
		r := p.resource(inventory.KindNATGateway, awssdk.ToString(g.NatGatewayId))
		r.Tags = ec2Tags(g.Tags)
		r.Name = r.Tags["Name"]
		r.Type = string(g.ConnectivityType)
		r.CreatedAt = utc(g.CreateTime)
		r.State = map[types.NatGatewayState]inventory.State{
			types.NatGatewayStatePending:   inventory.StatePending,
			types.NatGatewayStateAvailable: inventory.StateAvailable,
			types.NatGatewayStateFailed:    inventory.StateFailed,
			types.NatGatewayStateDeleting:  inventory.StateDeleting,
		}[g.State]
		d := &inventory.NATGateway{}
		if readable {
			d.Routes = inventory.Known(routes[r.ID])
		}
		r.Detail = d
		p.scan.add(r)
	}
}

// natRoutes counts the route tables with a route to each NAT gateway, and reports whether all could
// be read.
func (p *place) natRoutes(ctx context.Context) (routes map[string]int, readable bool) {
	routes = map[string]int{}
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(p.reading).DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{
			MaxResults: awssdk.Int32(routesPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, t := range out.RouteTables {
			counted := map[string]bool{}
			for _, route := range t.Routes {
				if id := awssdk.ToString(route.NatGatewayId); id != "" && !counted[id] {
					counted[id] = true
					routes[id]++
				}
			}
		}
		return out.NextToken, nil
	})
	p.failed(ctx, "ec2:DescribeRouteTables", err)
	return routes, err == nil
}
