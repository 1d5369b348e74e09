package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// partition is a part of AWS with its own accounts, regions and endpoints. The patterns are from
// the SDKs' partition metadata.
type partition struct {
	name    string
	pattern *lazyregexp.Regexp
	// home is the region of partition-wide endpoints.
	home string
}

var partitions = []partition{
	{"aws", lazyregexp.New(`^(us|eu|ap|sa|ca|me|af|il|mx)-\w+-\d+$`), "us-east-1"},
	{"aws-cn", lazyregexp.New(`^cn-\w+-\d+$`), "cn-northwest-1"},
	{"aws-us-gov", lazyregexp.New(`^us-gov-\w+-\d+$`), "us-gov-west-1"},
	{"aws-iso", lazyregexp.New(`^us-iso-\w+-\d+$`), "us-iso-east-1"},
	{"aws-iso-b", lazyregexp.New(`^us-isob-\w+-\d+$`), "us-isob-east-1"},
	{"aws-iso-e", lazyregexp.New(`^eu-isoe-\w+-\d+$`), "eu-isoe-west-1"},
	{"aws-iso-f", lazyregexp.New(`^us-isof-\w+-\d+$`), "us-isof-south-1"},
	{"aws-eusc", lazyregexp.New(`^eusc-(de)-\w+-\d+$`), "eusc-de-east-1"},
}

func partitionOf(region string) *partition {
	for i := range partitions {
		if partitions[i].pattern.MatchString(region) {
			return &partitions[i]
		}
	}
	return nil
}

// partitionNamed returns the partition of a region; "aws" if unknown.
func partitionNamed(region string) string {
	if p := partitionOf(region); p != nil {
		return p.name
	}
	return partitions[0].name
}

// Partition returns the partition of regions, "aws" if there are none. Regions of several
// partitions are an error, because no credentials and no ARN span partitions.
func Partition(regions []string) (string, error) {
	name := ""
	for _, region := range regions {
		p := partitionOf(region)
		switch {
		case p == nil:
		case name != "" && name != p.name:
			return "", &RegionError{
				Region: region, Reason: "it is in the partition " + p.name + ", and another region is in " + name,
			}
		default:
			name = p.name
		}
	}
	return cmp.Or(name, partitions[0].name), nil
}

// checkName refuses an invalid region name.
func checkName(region string) error {
	if partitionOf(region) == nil {
		why := "no region has such a name"
		switch {
		case region == "all":
			why = "all cannot be combined with other regions"
		case region == "":
			why = "the name is empty"
		case partitionOf(strings.TrimRight(region, "abcdefghijklmnopqrstuvwxyz")) != nil:
			why = "that is a zone; its region is " + strings.TrimRight(region, "abcdefghijklmnopqrstuvwxyz")
		}
		return &RegionError{Region: region, Reason: why}
	}
	return nil
}

// home returns the region of account-wide endpoints.
func (c *Cloud) home() string {
	for _, r := range append(slices.Clone(c.regions), c.config.Region) {
		if p := partitionOf(r); p != nil {
			return p.home
		}
	}
	return partitions[0].home
}

// first returns the region to ask first about the account: one named by the user, which may be the
// only reachable one.
func (c *Cloud) first() string {
	if len(c.regions) > 0 {
		return c.regions[0]
	}
	if checkName(c.config.Region) == nil {
		return c.config.Region
	}
	return c.home()
}

// accountRegions returns the regions to read in an account. Names are checked against the account's
// own list, read in the partition's home region or, if an organization forbids that, in the first
// region to read; if it is unreadable, given names are used as they are. Errors are a [RegionError]
// or, if all regions were requested, the reason why they cannot be listed.
func (s *scan) accountRegions(ctx context.Context, a *account) ([]string, error) {
	var out *ec2.DescribeRegionsOutput
	var err error
	for _, region := range distinct([]string{s.cloud.home(), s.cloud.first()}) {
		p := s.place(a, region)
		out, err = ec2Client(p.reading).DescribeRegions(ctx, &ec2.DescribeRegionsInput{AllRegions: awssdk.Bool(true)})
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if s.cloud.all {
			return nil, wrapped("list the regions of account "+a.id, err)
		}
		s.place(a, s.cloud.first()).failed(ctx, "ec2:DescribeRegions", err)
		return s.cloud.regions, nil
	}
	known := map[string]bool{} // whether each is enabled
	var enabled []string
	for _, r := range out.Regions {
		name := awssdk.ToString(r.RegionName)
		known[name] = awssdk.ToString(r.OptInStatus) != "not-opted-in"
		if known[name] {
			enabled = append(enabled, name)
		}
	}
	slices.Sort(enabled)
	if s.cloud.all {
		if len(enabled) == 0 {
			return nil, &RegionError{Region: "all", Reason: "account " + a.id + " has enabled none"}
		}
		return enabled, nil
	}
	var read []string
	for _, r := range s.cloud.regions {
		switch on, exists := known[r]; {
		case !exists && len(known) > 0:
			return nil, &RegionError{Region: r, Reason: "there is no such region", Known: enabled}
		case !on && len(known) > 0:
			s.blind(inventory.BlindSpot{
				What:   fmt.Sprintf("%s in account %s", r, a.id),
				Why:    "OptInRequired: the account has not enabled the region",
				Effect: "nothing can run there, and nothing of it is read"})
		default:
			read = append(read, r)
		}
	}
	return read, nil
}
