package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/test/wire"
)

// The regions that are seeded.
const (
	east    = "us-east-1"
	west    = "us-west-2"
	ireland = "eu-west-1"
)

// The second account.
const (
	otherAccount = "222222222222"
	otherRole    = "arn:aws:iam::222222222222:role/curfew-audit"
)

// The people of the three teams.
var (
	ana = inventory.Owner{
		Team: "vision", Project: "detector", User: "ana", Environment: "research", CostCenter: "4711",
	}
	ben = inventory.Owner{
		Team: "vision", Project: "segmentation", User: "ben", Environment: "research", CostCenter: "4711",
	}
	bo = inventory.Owner{
		Team: "language", Project: "tokenizer", User: "bo", Environment: "research", CostCenter: "4712",
	}
	dana = inventory.Owner{
		Team: "language", Project: "assistant", User: "dana", Environment: "production", CostCenter: "4712",
	}
	chen = inventory.Owner{
		Team: "ranking", Project: "feed", User: "chen", Environment: "research", CostCenter: "4713",
	}
	emil   = inventory.Owner{Team: "ranking", Project: "ads", User: "emil", Environment: "staging", CostCenter: "4713"}
	nobody = inventory.Owner{}
)

// seeder creates the account resource by resource, and records them.
type seeder struct {
	*Sandbox
	truth *Truth
	now   time.Time
	nets  map[string]network
}

// network is the private network of a region's machines.
type network struct{ vpc, subnet, subnet2, zone string }

// Seed fills the sandbox and returns the expected results of an audit.
func (s *Sandbox) Seed(ctx context.Context) (*Truth, error) {
	now := s.now().UTC().Truncate(time.Second)
	b := &seeder{
		Sandbox: s, now: now, nets: map[string]network{}, truth: &Truth{Now: now, Account: wire.DefaultAccount,
			OtherAccount: otherAccount, OtherRole: otherRole, Regions: []string{east, west, ireland}}}
	for _, part := range []struct {
		what string
		seed func(context.Context) error
	}{
		{"networks", b.networks},
		{"machines", b.machines},
		{"groups", b.groups},
		{"disks", b.disks},
		{"images", b.images},
		{"addresses", b.addresses},
		{"load balancers", b.balancers},
		{"buckets", b.buckets},
		{"repositories", b.repositories},
		{"log groups", b.logGroups},
		{"notebooks", b.notebooks},
		{"HyperPod cluster", b.hyperPod},
		{"endpoints", b.endpoints},
		{"training jobs", b.trainingJobs},
		{"file systems", b.fileSystems},
		{"databases", b.databases},
		{"data services", b.dataServices},
		{"secrets", b.secrets},
		{"commitments", b.commitments},
		{"second account", b.second},
	} {
		if err := part.seed(ctx); err != nil {
			return nil, fmt.Errorf("seed %s: %w", part.what, err)
		}
	}
	return b.truth, nil
}

// networks creates the network of each region.
func (b *seeder) networks(ctx context.Context) error {
	for _, region := range b.truth.Regions {
		api := ec2.NewFromConfig(b.Config(region))
		vpc, err := api.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
		if err != nil {
			return err
		}
		n := network{vpc: *vpc.Vpc.VpcId, zone: region + "a"}
		for i, cidr := range []string{"10.0.0.0/20", "10.0.16.0/20"} {
			sub, err := api.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: aws.String(cidr),
				AvailabilityZone: aws.String(region + string(rune('a'+i)))})
			if err != nil {
				return err
			}
			if i == 0 {
				n.subnet = *sub.Subnet.SubnetId
			} else {
				n.subnet2 = *sub.Subnet.SubnetId
			}
		}
		gateway, err := api.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})
		if err != nil {
			return err
		}
		if _, err := api.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{VpcId: &n.vpc,
			InternetGatewayId: gateway.InternetGateway.InternetGatewayId}); err != nil {
			return err
		}
		b.nets[region] = n
	}
	return nil
}

// ago returns a time before the seeding.
func (b *seeder) ago(d time.Duration) time.Time { return b.now.Add(-d) }

func days(n float64) time.Duration { return time.Duration(n * 24 * float64(time.Hour)) }

// record records a resource and returns its entry.
func (b *seeder) record(kind inventory.Kind, id, region string, o inventory.Owner) Resource {
	r := Resource{Kind: kind, ID: id, Region: region, Owner: o}
	b.truth.Resources = append(b.truth.Resources, r)
	return r
}

// plant requires that an audit reports rule for r.
func (b *seeder) plant(r Resource, rule string, p Planted) {
	p.Resource, p.Rule = r, rule
	b.truth.Planted = append(b.truth.Planted, p)
}

// innocent requires that an audit does not report these rules for r.
func (b *seeder) innocent(r Resource, note string, not ...string) {
	b.truth.LookAlikes = append(b.truth.LookAlikes, LookAlike{Resource: r, Not: not, Note: note})
}

// age gives something in a service's responses its intended age.
func (b *seeder) age(service, idField, id string, t time.Time, fields ...string) {
	set := map[string]any{}
	for _, f := range fields {
		set[f] = t
	}
	b.Wire.Patch(wire.Patch{Service: service, IDField: idField, ID: id, Set: set})
}

// spellings are the tag keys of the teams for owners; each team has its own.
var spellings = map[string][5]string{
	"vision":   {"team", "project", "owner", "environment", "cost-center"},
	"language": {"Team", "Project", "User", "Env", "CostCenter"},
	"ranking":  {"TEAM", "project-name", "created-by", "stage", "cost_center"},
}

// tags returns an owner's tags with a name and additional key-value pairs.
func tags(o inventory.Owner, name string, more ...string) map[string]string {
	out := map[string]string{}
	if name != "" {
		out["Name"] = name
	}
	keys, ok := spellings[o.Team]
	if ok {
		for i, v := range []string{o.Team, o.Project, o.User, o.Environment, o.CostCenter} {
			out[keys[i]] = v
		}
	}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

func ec2Tags(t map[string]string) []ec2types.Tag {
	var out []ec2types.Tag
	for k, v := range t {
		out = append(out, ec2types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	return out
}

func tagSpec(kind ec2types.ResourceType, t map[string]string) []ec2types.TagSpecification {
	return []ec2types.TagSpecification{{ResourceType: kind, Tags: ec2Tags(t)}}
}

// OtherConfig returns an SDK configuration for the second account, by assuming its
// role.
func (s *Sandbox) OtherConfig(region string) aws.Config {
	cfg := s.Config(region)
	cfg.Credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(sts.NewFromConfig(s.Config(region)),
		otherRole))
	return cfg
}

// second creates a forgotten disk and address in the second account.
func (b *seeder) second(ctx context.Context) error {
	api := ec2.NewFromConfig(b.OtherConfig(east))
	v, err := api.CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: aws.String(east + "a"), Size: aws.Int32(100),
		VolumeType: ec2types.VolumeTypeGp3, TagSpecifications: tagSpec(ec2types.ResourceTypeVolume,
			tags(dana, "other-scratch"))})
	if err != nil {
		return err
	}
	b.age("ec2", "volumeId", *v.VolumeId, b.ago(days(90)), "createTime")
	a, err := api.AllocateAddress(ctx, &ec2.AllocateAddressInput{Domain: ec2types.DomainTypeVpc,
		TagSpecifications: tagSpec(ec2types.ResourceTypeElasticIp, tags(dana, "other-address"))})
	if err != nil {
		return err
	}
	b.truth.Other = []Planted{
		{
			Rule: "volume-unattached", Resource: Resource{
				Kind: inventory.KindVolume, ID: *v.VolumeId, Region: east, Owner: dana,
			},
			WasteUSD:   cost(term{"100", "ebs:gp3"}),
			SavingsUSD: cost(term{"100", "ebs:gp3"}, term{"-100", "snapshot"})},
		{
			Rule: "address-unused", Resource: Resource{
				Kind: inventory.KindAddress, ID: *a.AllocationId, Region: east, Owner: dana,
			},
			SavingsUSD: cost(term{"730", "address"})},
	}
	return nil
}
