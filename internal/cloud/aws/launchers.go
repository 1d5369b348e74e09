package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// The maximum page sizes (EC2 and Auto Scaling API references).
const (
	templatesPage      = 200
	fleetsPage         = 100
	configurationsPage = 100
)

// latestAndDefault are the versions of launch templates that can be read for all templates at once.
// "$Default" also applies if no version is named (EC2 API reference,
// "DescribeLaunchTemplateVersions", "LaunchTemplateSpecification").
var latestAndDefault = []string{"$Latest", "$Default"}

// goneTemplate are the error codes for a missing version, which starts nothing (EC2 API reference,
// "Error codes").
var goneTemplate = []string{
	"InvalidLaunchTemplateId.NotFound",
	"InvalidLaunchTemplateName.NotFoundException",
	"InvalidLaunchTemplateId.VersionNotFound",
}

// publicParameters are prefixes of parameters with images of AWS, never the account's own.
const publicParameters = "resolve:ssm:/aws/service/"

// templateVersion is a version of a launch template, referenced by ID or name.
type templateVersion struct{ template, version string }

// launchersScan collects the launchers of machines in a region, by image and snapshot.
type launchersScan struct {
	*place
	// by holds the names of the launchers of an image or snapshot, by its ID.
	by map[string][]string
	// read holds the template versions already read, wanted those named by groups and fleets.
	read   map[templateVersion]bool
	wanted []templateVersion
	// complete is true if everything was read.
	complete bool
}

// readLaunchers reads everything that may start machines: launch templates in their latest and
// default version and in versions named by Auto Scaling groups and fleets, launch configurations,
// fleets and spot fleets. EC2 allows deregistering their images, after which they cannot start
// machines.
func (p *place) readLaunchers(ctx context.Context) {
	s := &launchersScan{place: p, by: map[string][]string{}, read: map[templateVersion]bool{}, complete: true}
	s.templates(ctx, &ec2.DescribeLaunchTemplateVersionsInput{Versions: latestAndDefault})
	s.configurations(ctx)
	s.groupVersions(ctx)
	s.fleets(ctx)
	s.spotFleets(ctx)
	s.namedVersions(ctx)
	if s.complete && ctx.Err() == nil {
		p.launchers = s.by
	}
}

// failed records a failed call of the region.
func (s *launchersScan) failed(ctx context.Context, api string, err error) {
	s.complete = s.complete && err == nil
	s.place.failed(ctx, api, err)
}

// add records a launcher of an image or of a disk from a snapshot.
func (s *launchersScan) add(id *string, name string) {
	if k := awssdk.ToString(id); k != "" && !slices.Contains(s.by[k], name) {
		s.by[k] = append(s.by[k], name)
	}
}

// templates reads versions of launch templates.
func (s *launchersScan) templates(ctx context.Context, in *ec2.DescribeLaunchTemplateVersionsInput) {
	in.ResolveAlias = awssdk.Bool(in.LaunchTemplateId != nil || in.LaunchTemplateName != nil)
	all := in.LaunchTemplateId == nil && in.LaunchTemplateName == nil
	if all {
		in.MaxResults = awssdk.Int32(templatesPage)
	}
	err := pages(ctx, func(token *string) (*string, error) {
		in.NextToken = token
		out, err := ec2Client(s.reading).DescribeLaunchTemplateVersions(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, v := range out.LaunchTemplateVersions {
			s.template(v, all)
		}
		return out.NextToken, nil
	})
	if all || !is(err, goneTemplate...) {
		s.failed(ctx, "ec2:DescribeLaunchTemplateVersions", err)
	}
}

// template records the image and snapshots of a launch template version. A version that names its
// image by a parameter is read again on its own, because only then EC2 resolves it.
func (s *launchersScan) template(v types.LaunchTemplateVersion, all bool) {
	id, number := awssdk.ToString(v.LaunchTemplateId), fmt.Sprint(awssdk.ToInt64(v.VersionNumber))
	d := v.LaunchTemplateData
	if d == nil {
		d = &types.ResponseLaunchTemplateData{}
	}
	image := awssdk.ToString(d.ImageId)
	if strings.HasPrefix(image, "resolve:") && !strings.HasPrefix(image, publicParameters) {
		if all {
			s.wanted = append(s.wanted, templateVersion{id, number})
			return
		}
		s.complete = false
		const why = "ec2:DescribeLaunchTemplateVersions, ssm:GetParameters: parameters not resolved"
		s.partly(partialKey{"ec2 " + s.String(), why, unknownLaunchers}, "launch template", id)
	}
	for _, k := range []string{id, awssdk.ToString(v.LaunchTemplateName)} {
		s.read[templateVersion{k, number}] = true
	}
	name := "launch template " + firstOf(awssdk.ToString(v.LaunchTemplateName), id) + " version " + number
	s.add(d.ImageId, name)
	for _, m := range d.BlockDeviceMappings {
		if m.Ebs != nil {
			s.add(m.Ebs.SnapshotId, name)
		}
	}
}

// reference records a reference to a launch template version.
func (s *launchersScan) reference(id, name, version *string) {
	v := templateVersion{firstOf(awssdk.ToString(id), awssdk.ToString(name)), awssdk.ToString(version)}
	if v.template != "" && v.version != "" && !slices.Contains(latestAndDefault, v.version) {
		s.wanted = append(s.wanted, v)
	}
}

// namedVersions reads the referenced template versions that are still unread.
func (s *launchersScan) namedVersions(ctx context.Context) {
	for _, v := range s.wanted {
		if s.read[v] || ctx.Err() != nil {
			continue
		}
		s.read[v] = true
		in := &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: &v.template, Versions: []string{v.version}}
		if !strings.HasPrefix(v.template, "lt-") {
			in.LaunchTemplateId, in.LaunchTemplateName = nil, &v.template
		}
		s.templates(ctx, in)
	}
}

func (s *launchersScan) configurations(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := autoscalingClient(s.reading).DescribeLaunchConfigurations(ctx,
			&autoscaling.DescribeLaunchConfigurationsInput{
				MaxRecords: awssdk.Int32(configurationsPage),
				NextToken:  token,
			})
		if err != nil {
			return nil, err
		}
		for _, c := range out.LaunchConfigurations {
			name := "launch configuration " + awssdk.ToString(c.LaunchConfigurationName)
			s.add(c.ImageId, name)
			for _, m := range c.BlockDeviceMappings {
				if m.Ebs != nil {
					s.add(m.Ebs.SnapshotId, name)
				}
			}
		}
		return out.NextToken, nil
	})
	s.failed(ctx, "autoscaling:DescribeLaunchConfigurations", err)
}

// groupVersions records the launch template versions named by Auto Scaling groups.
func (s *launchersScan) groupVersions(ctx context.Context) {
	groups, read := s.scalingGroups(ctx)
	s.complete = s.complete && read
	for _, g := range groups {
		if t := g.LaunchTemplate; t != nil {
			s.reference(t.LaunchTemplateId, t.LaunchTemplateName, t.Version)
		}
		m := g.MixedInstancesPolicy
		if m == nil || m.LaunchTemplate == nil {
			continue
		}
		if t := m.LaunchTemplate.LaunchTemplateSpecification; t != nil {
			s.reference(t.LaunchTemplateId, t.LaunchTemplateName, t.Version)
		}
		for _, o := range m.LaunchTemplate.Overrides {
			if t := o.LaunchTemplateSpecification; t != nil {
				s.reference(t.LaunchTemplateId, t.LaunchTemplateName, t.Version)
			}
			s.add(o.ImageId, "Auto Scaling group "+awssdk.ToString(g.AutoScalingGroupName))
		}
	}
}

// ended reports whether a fleet in a state starts no more machines.
func ended[T ~string](state T) bool {
	s := string(state)
	return strings.HasPrefix(s, "deleted") || strings.HasPrefix(s, "cancelled") || s == "failed"
}

func (s *launchersScan) fleets(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(s.reading).DescribeFleets(ctx, &ec2.DescribeFleetsInput{
			MaxResults: awssdk.Int32(fleetsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, f := range out.Fleets {
			if ended(f.FleetState) {
				continue
			}
			for _, c := range f.LaunchTemplateConfigs {
				if t := c.LaunchTemplateSpecification; t != nil {
					s.reference(t.LaunchTemplateId, t.LaunchTemplateName, t.Version)
				}
				for _, o := range c.Overrides {
					s.add(o.ImageId, "fleet "+awssdk.ToString(f.FleetId))
				}
			}
		}
		return out.NextToken, nil
	})
	s.failed(ctx, "ec2:DescribeFleets", err)
}

func (s *launchersScan) spotFleets(ctx context.Context) {
	err := pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(s.reading).DescribeSpotFleetRequests(ctx, &ec2.DescribeSpotFleetRequestsInput{
			MaxResults: awssdk.Int32(fleetsPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, f := range out.SpotFleetRequestConfigs {
			if ended(f.SpotFleetRequestState) || f.SpotFleetRequestConfig == nil {
				continue
			}
			name := "spot fleet " + awssdk.ToString(f.SpotFleetRequestId)
			for _, l := range f.SpotFleetRequestConfig.LaunchSpecifications {
				s.add(l.ImageId, name)
				for _, m := range l.BlockDeviceMappings {
					if m.Ebs != nil {
						s.add(m.Ebs.SnapshotId, name)
					}
				}
			}
			for _, c := range f.SpotFleetRequestConfig.LaunchTemplateConfigs {
				if t := c.LaunchTemplateSpecification; t != nil {
					s.reference(t.LaunchTemplateId, t.LaunchTemplateName, t.Version)
				}
			}
		}
		return out.NextToken, nil
	})
	s.failed(ctx, "ec2:DescribeSpotFleetRequests", err)
}

// launchersOf returns the groups and templates that would start machines from an image or snapshot
// of a region, in any account, because images may be shared. It is unknown if part of the region
// was not read.
func (s *scan) launchersOf(r *inventory.Resource) inventory.Fact[[]string] {
	names := []string{}
	for _, p := range s.places {
		if p.region != r.Region {
			continue
		}
		if p.launchers == nil {
			return inventory.Fact[[]string]{}
		}
		for _, name := range p.launchers[r.ID] {
			if p.account.id != r.Account {
				name += " of account " + p.account.id
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return inventory.Known(names)
}
