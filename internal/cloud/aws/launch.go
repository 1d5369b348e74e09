package aws

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/spec"
)

// LaunchOptions configure the machines of sessions.
type LaunchOptions struct {
	// Regions are the allowed regions, the preferred first; empty for the configured one. Regions
	// without a backbone are skipped.
	Regions []string
	// Watched returns further regions that may have machines of sessions; nil for none.
	Watched func(ctx context.Context) ([]string, error)
	// Types returns suitable machine types for a specification without one, and Rate the hourly
	// price of a type; nil if there is none.
	Types func(s *spec.Spec) ([]string, error)
	Rate  func(machineType, region string, spot bool) *money.Rate
	// Image returns the image of a specification for a machine type: its ID ("ami-0abc"), or the
	// name of the public parameter with the ID.
	Image func(s *spec.Spec, machineType string) string
	// Agent is the program that machines run.
	Agent Agent
	// DiskGiB is the default size of the root disk, unless the image's own is larger.
	DiskGiB int64
}

// Launcher starts and ends the machines of sessions in the account of the credentials. It makes
// only the calls in [LaunchCalls]. It is safe for concurrent use, and caches only the backbones.
type Launcher struct {
	cloud   *Cloud
	options LaunchOptions
	limits  *limits
	clients clientCache[string]

	mu        sync.Mutex
	backbones map[string]*Backbone
	identity  identity
}

var _ session.Launcher = (*Launcher)(nil)

// Launcher returns a [Launcher] of sessions. It makes no call.
func (c *Cloud) Launcher(o LaunchOptions) *Launcher {
	return &Launcher{cloud: c, options: o, limits: c.limits(), backbones: map[string]*Backbone{}}
}

// launchClasses maps EC2's launch errors to classes (API Reference, "Error codes for the Amazon EC2
// API").
var launchClasses = map[string]error{
	"InsufficientInstanceCapacity": session.ErrCapacity, "InsufficientCapacity": session.ErrCapacity,
	"InsufficientHostCapacity": session.ErrCapacity,
	"SpotMaxPriceTooLow":       session.ErrCapacity,
	"VcpuLimitExceeded":        session.ErrQuota, "MaxSpotInstanceCountExceeded": session.ErrQuota,
	"InstanceLimitExceeded": session.ErrQuota,
	"VolumeLimitExceeded":   session.ErrQuota, "NetworkInterfaceLimitExceeded": session.ErrQuota,
	"MaxIOPSLimitExceeded": session.ErrQuota,
	"Unsupported":          session.ErrUnsupported, "UnsupportedOperation": session.ErrUnsupported,
	"IdempotentParameterMismatch": session.ErrMismatch,
}

// launchAttempts is the number of immediate attempts. The keeper of the session retries later with
// the same token.
const launchAttempts = 3

func (l *Launcher) config(region, service string) awssdk.Config {
	c := l.cloud.config.Copy()
	c.Region = region
	c.APIOptions = append(c.APIOptions[:len(c.APIOptions):len(c.APIOptions)],
		guardLaunches(service, l.limits.of("", region, service)))
	if retryer := c.Retryer; service == "ec2" || service == "iam" {
		c.Retryer = func() awssdk.Retryer { return decided{retry.AddWithMaxAttempts(retryer(), launchAttempts)} }
	}
	return c
}

// at returns the clients of a region.
func (l *Launcher) at(region string) *clients {
	return l.clients.get(region, func(service string) awssdk.Config { return l.config(region, service) })
}

// Pools implements [session.Launcher]: the zones of backbones that offer a type, cheapest first,
// unpriced ones last.
func (l *Launcher) Pools(ctx context.Context, s *spec.Spec) ([]session.Pool, error) {
	wanted := []string{s.Resources.InstanceType}
	if wanted[0] == "" {
		var err error
		if wanted, err = l.options.Types(s); err != nil {
			return nil, err
		}
	}
	nothing := fmt.Errorf("no machine type does for %s: %w", s.Name, session.ErrUnsupported)
	if len(wanted) == 0 {
		return nil, nothing
	}
	var out []session.Pool
	regions, err := l.Regions(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, region := range regions {
		b, err := l.Backbone(ctx, region)
		if err != nil {
			return nil, err
		}
		offered, err := l.offered(ctx, region, wanted)
		if err != nil {
			return nil, err
		}
		images := map[string]string{}
		for _, machineType := range wanted {
			name := l.options.Image(s, machineType)
			image, read := images[name]
			if !read {
				if image, err = l.image(ctx, region, name); err != nil {
					return nil, fmt.Errorf("%s: %w", s.Name, err)
				}
				images[name] = image
			}
			for _, subnet := range b.Subnets {
				zone := subnet.Zone
				if !offered[machineType+" "+zone] {
					continue
				}
				for _, spot := range bought(s.Capacity) {
					p := session.Pool{Type: machineType, Region: region, Zone: zone, Spot: spot, Image: image}
					if l.options.Rate != nil {
						p.Rate = l.options.Rate(machineType, region, spot)
					}
					out = append(out, p)
				}
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s in %s: %w", strings.Join(wanted, ", "), strings.Join(regions, ", "), nothing)
	}
	slices.SortStableFunc(out, func(a, b session.Pool) int {
		switch {
		case a.Rate == nil && b.Rate == nil:
			return 0
		case a.Rate == nil:
			return 1
		case b.Rate == nil:
			return -1
		}
		return cmp.Compare(*a.Rate, *b.Rate)
	})
	return out, nil
}

// bought returns the markets of a capacity, spot first.
func bought(c spec.Capacity) []bool {
	switch c {
	case spec.Spot:
		return []bool{true}
	case spec.Auto:
		return []bool{true, false}
	}
	return []bool{false}
}

// offered returns the types offered in each zone of a region, as "type zone".
func (l *Launcher) offered(ctx context.Context, region string, wanted []string) (map[string]bool, error) {
	out := map[string]bool{}
	err := pages(ctx, func(token *string) (*string, error) {
		page, err := ec2Client(l.at(region)).DescribeInstanceTypeOfferings(ctx,
			&ec2.DescribeInstanceTypeOfferingsInput{LocationType: types.LocationTypeAvailabilityZone,
				Filters: []types.Filter{{Name: awssdk.String("instance-type"), Values: wanted}}, NextToken: token})
		if err != nil {
			return nil, err
		}
		for _, o := range page.InstanceTypeOfferings {
			out[string(o.InstanceType)+" "+awssdk.ToString(o.Location)] = true
		}
		return page.NextToken, nil
	})
	if err != nil {
		return nil, wrapped("read which zones of "+region+" have "+strings.Join(wanted, ", "), err)
	}
	return out, nil
}

// image returns the current ID of an image parameter.
func (l *Launcher) image(ctx context.Context, region, name string) (string, error) {
	if strings.HasPrefix(name, "ami-") {
		return name, nil
	}
	out, err := ssmClient(l.at(region)).GetParameter(ctx, &ssm.GetParameterInput{Name: awssdk.String(name)})
	if err != nil {
		return "", wrapped("read the image from parameter "+name+" in "+region, err)
	}
	if out.Parameter == nil || !strings.HasPrefix(awssdk.ToString(out.Parameter.Value), "ami-") {
		return "", fmt.Errorf("parameter %s in %s names no image", name, region)
	}
	return *out.Parameter.Value, nil
}

// Launch implements [session.Launcher]: one RunInstances for all machines of a pool, so that
// EC2 starts all of them or none.
func (l *Launcher) Launch(ctx context.Context, want session.Launch) ([]session.Machine, error) {
	attempt := fmt.Sprintf("launch %d of %s in %s", want.Nodes, want.Pool.Type, want.Pool.Zone)
	in, err := l.request(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", attempt, err)
	}
	out, err := withProfile(ctx, func() (*ec2.RunInstancesOutput, error) {
		return ec2Client(l.at(want.Pool.Region)).RunInstances(ctx, in)
	})
	if class := launchClasses[code(err)]; class != nil {
		_, detail := reason(err)
		detail = joined(code(err), detail)
		if errors.Is(class, session.ErrQuota) {
			detail += "; " + raise(code(err), want.Pool)
		}
		return nil, fmt.Errorf("%s: %w (%s)", attempt, class, detail)
	}
	if err != nil {
		return nil, wrapped(attempt, err)
	}
	machines := make([]session.Machine, len(out.Instances))
	for i, x := range out.Instances {
		machines[i] = sessionMachine(x)
		machines[i].Pool.Image, machines[i].Pool.Rate, machines[i].Pool.Region = want.Pool.Image, want.Pool.Rate,
			want.Pool.Region
		if want.Host.Round > 0 {
			machines[i].Node = want.FirstNode
		}
	}
	slices.SortFunc(machines, func(a, b session.Machine) int { return a.Node - b.Node })
	if len(machines) != want.Nodes {
		return nil, unclear(attempt)
	}
	return machines, nil
}

// sessionMachine maps a machine of a session. Its node is its place in the launch, or that of its tag if it
// replaces a lost machine.
func sessionMachine(i types.Instance) session.Machine {
	m := session.Machine{
		ID: awssdk.ToString(i.InstanceId), Node: int(awssdk.ToInt32(i.AmiLaunchIndex)), LaunchedAt: utc(i.LaunchTime),
		State: instanceStates[stateOf(i)],
		Pool: session.Pool{
			Type: string(i.InstanceType), Spot: i.InstanceLifecycle == types.InstanceLifecycleTypeSpot,
			Image: awssdk.ToString(i.ImageId),
		}}
	if node, err := strconv.Atoi(ec2Tags(i.Tags)[inventory.TagNode]); err == nil && node >= 0 {
		m.Node = node
	}
	if i.Placement != nil {
		m.Pool.Zone = awssdk.ToString(i.Placement.AvailabilityZone)
	}
	return m
}

// request builds the call of a launch, deterministically for a token. It creates the role of the
// machines last, after everything that may be refused.
func (l *Launcher) request(ctx context.Context, want session.Launch) (*ec2.RunInstancesInput, error) {
	if want.Token == "" || want.Nodes < 1 || want.Session.ID == "" || want.Tags[inventory.TagInstallation] == "" ||
		want.Tags[inventory.TagSession] != want.Session.ID {
		return nil, errors.New("it has no token, no machines, or no tags of its session and installation")
	}
	b, err := l.Backbone(ctx, want.Pool.Region)
	if err != nil {
		return nil, err
	}
	subnet := b.Subnet(want.Pool.Zone)
	if subnet == "" {
		return nil, fmt.Errorf("the backbone of %s has no network in %s: %w", want.Pool.Region, want.Pool.Zone,
			session.ErrUnsupported)
	}
	if want.Pool.Image == "" {
		return nil, errors.New("its pool names no image")
	}
	if err := b.CheckPlaces(want.Tags[inventory.TagInstallation], want.Session.ID,
		want.Session.Name, want.Host.Control,
		want.Host.Work); err != nil {
		return nil, err
	}
	root, err := l.root(ctx, want)
	if err != nil {
		return nil, err
	}
	data, err := l.userData(want)
	if err != nil {
		return nil, err
	}
	profile, err := l.makeRole(ctx, want, b)
	if err != nil {
		return nil, err
	}
	in := &ec2.RunInstancesInput{
		ClientToken: awssdk.String(clientToken(want.Token)), MinCount: awssdk.Int32(int32(want.Nodes)),
		MaxCount:     awssdk.Int32(int32(want.Nodes)),
		InstanceType: types.InstanceType(want.Pool.Type), ImageId: awssdk.String(want.Pool.Image),
		UserData:                          awssdk.String(data),
		IamInstanceProfile:                &types.IamInstanceProfileSpecification{Arn: awssdk.String(profile)},
		InstanceInitiatedShutdownBehavior: types.ShutdownBehaviorTerminate,
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens: types.HttpTokensStateRequired, HttpEndpoint: types.InstanceMetadataEndpointStateEnabled,
			HttpPutResponseHopLimit: awssdk.Int32(1)},
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{
			{DeviceIndex: awssdk.Int32(0), SubnetId: awssdk.String(subnet),
				Groups: []string{b.SecurityGroup}, DeleteOnTermination: awssdk.Bool(true)}},
		BlockDeviceMappings: []types.BlockDeviceMapping{root},
	}
	made := []types.ResourceType{
		types.ResourceTypeInstance, types.ResourceTypeVolume, types.ResourceTypeNetworkInterface,
	}
	if want.Pool.Spot {
		in.InstanceMarketOptions = &types.InstanceMarketOptionsRequest{
			MarketType: types.MarketTypeSpot, SpotOptions: &types.SpotMarketOptions{
				SpotInstanceType:             types.SpotInstanceTypeOneTime,
				InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate}}
		made = append(made, types.ResourceTypeSpotInstancesRequest)
	}
	var tags []types.Tag
	for _, k := range slices.Sorted(maps.Keys(want.Tags)) {
		tags = append(tags, types.Tag{Key: awssdk.String(k), Value: awssdk.String(want.Tags[k])})
	}
	for _, kind := range made {
		in.TagSpecifications = append(in.TagSpecifications, types.TagSpecification{ResourceType: kind, Tags: tags})
	}
	return in, nil
}

// maxToken is the maximum length of a client token.
const maxToken = 64

// clientToken returns a token for EC2, hashed if it is too long.
func clientToken(token string) string {
	if len(token) <= maxToken {
		return token
	}
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// root returns the root disk of a machine: encrypted, and deleted with it.
func (l *Launcher) root(ctx context.Context, want session.Launch) (types.BlockDeviceMapping, error) {
	attempt := "read image " + want.Pool.Image
	out, err := ec2Client(l.at(want.Pool.Region)).DescribeImages(ctx, &ec2.DescribeImagesInput{
		ImageIds: []string{want.Pool.Image},
	})
	if err != nil {
		return types.BlockDeviceMapping{}, wrapped(attempt, err)
	}
	if len(out.Images) != 1 || awssdk.ToString(out.Images[0].RootDeviceName) == "" {
		return types.BlockDeviceMapping{}, unclear(attempt)
	}
	image := out.Images[0]
	disk := &types.EbsBlockDevice{
		VolumeType: types.VolumeTypeGp3, Encrypted: awssdk.Bool(true), DeleteOnTermination: awssdk.Bool(true),
	}
	size := cmp.Or(want.Spec.DiskGiB, l.options.DiskGiB)
	for _, m := range image.BlockDeviceMappings {
		if m.Ebs != nil && awssdk.ToString(m.DeviceName) == *image.RootDeviceName {
			size = max(size, int64(awssdk.ToInt32(m.Ebs.VolumeSize)))
		}
	}
	if size > 0 {
		disk.VolumeSize = awssdk.Int32(int32(size))
	}
	return types.BlockDeviceMapping{DeviceName: image.RootDeviceName, Ebs: disk}, nil
}

// leaseOf returns the end of a machine's lease from its tags, or zero.
func leaseOf(tags map[string]string) time.Time {
	t, err := time.Parse(time.RFC3339, tags[inventory.TagLease])
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
