package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// filterValues is the maximum number of values in a filter (EC2 API reference, "Filter").
const filterValues = 200

// unreached is the reason why an account is unknown.
const unreached = "neither the credentials nor a role reach the account"

// relist lists the given resources of known accounts again.
func (s *scan) relist(ctx context.Context, accounts []*account, refs []inventory.Ref) error {
	s.only = make(map[inventory.Ref]bool, len(refs))
	s.commitments = false // not all are read
	kinds := map[*place][]inventory.Kind{}
	places := map[string]*place{}
	for _, ref := range refs {
		if ref.Cloud != cloudName {
			return fmt.Errorf("read %s again: it is not in %s", ref, cloudName)
		}
		s.only[ref] = true
		i := slices.IndexFunc(accounts, func(a *account) bool { return a.id == ref.Account })
		if i < 0 {
			s.unread[unreadKey(ref.Account, ref.Region, ref.Kind)] = true
			s.blindSpots = append(s.blindSpots, inventory.BlindSpot{
				What: string(ref.Kind) + " " + ref.ID + " in " + ref.Account,
				Why:  unreached, Effect: "nothing is known of it"})
			continue
		}
		key := ref.Account + "/" + ref.Region
		p := places[key]
		if p == nil {
			p = s.place(accounts[i], ref.Region)
			places[key] = p
			s.places = append(s.places, p)
		}
		if !slices.Contains(kinds[p], ref.Kind) {
			kinds[p] = append(kinds[p], ref.Kind)
		}
	}
	if err := s.run(ctx, s.partsOf(kinds)); err != nil {
		return err
	}
	s.link()
	s.resources = slices.DeleteFunc(s.resources, func(r *inventory.Resource) bool { return !s.only[r.Ref()] })
	return nil
}

// partsOf returns the parts to list for the given kinds.
func (s *scan) partsOf(kinds map[*place][]inventory.Kind) []part {
	var parts []part
	for p, wanted := range kinds {
		add := func(what string, run func(context.Context)) {
			parts = append(parts, part{p.String() + " " + what, run})
		}
		for _, l := range lists {
			switch {
			case !slices.ContainsFunc(l.kinds, func(k inventory.Kind) bool { return slices.Contains(wanted, k) }):
			case slices.Contains(l.kinds, inventory.KindInstance):
				add(l.what, p.instancesAgain)
			default:
				add(l.what, func(ctx context.Context) { l.run(p, ctx) })
			}
		}
		here := map[string]*place{p.region: p}
		if slices.Contains(wanted, inventory.KindBucket) {
			add("buckets", func(ctx context.Context) { s.place(p.account, s.cloud.home()).buckets(ctx, here) })
		}
		if slices.Contains(wanted, inventory.KindCommitment) {
			add("savings plans", func(ctx context.Context) {
				s.place(p.account, s.cloud.home()).savingsPlans(ctx, slices.Collect(maps.Keys(here)))
			})
		}
	}
	slices.SortFunc(parts, func(a, b part) int { return strings.Compare(a.what, b.what) })
	return parts
}

// instancesAgain reads the wanted machines with their protection. It selects them by a filter,
// which skips those that are gone; by ID, one missing machine would fail the whole call.
func (p *place) instancesAgain(ctx context.Context) {
	var hosts []string
	var found []*inventory.Resource
	spot := map[string]*inventory.Instance{}
	err := p.filtered(ctx, "instance-id", p.named(inventory.KindInstance), func(i types.Instance) {
		found = append(found, p.spotted(i, spot))
		if host := awssdk.ToString(i.PrivateDnsName); host != "" {
			hosts = append(hosts, host)
		}
	})
	if err == nil && len(hosts) > 0 {
		// A name shared with another machine identifies neither.
		err = p.filtered(ctx, "private-dns-name", hosts, func(i types.Instance) {
			p.nameHost(awssdk.ToString(i.PrivateDnsName), awssdk.ToString(i.InstanceId))
		})
	}
	if err != nil {
		p.failed(ctx, "ec2:DescribeInstances", err)
		return
	}
	p.describeTypes(ctx, found)
	p.describeSpot(ctx, spot)
	p.describeDisks(ctx, found)
	each(ctx, found, func(r *inventory.Resource) {
		protected, err := p.attribute(ctx, r.ID, types.InstanceAttributeNameDisableApiTermination)
		p.missed(ctx, "ec2:DescribeInstanceAttribute", r.ID, err)
		r.Detail.(*inventory.Instance).TerminationProtected = protected
		p.scan.add(r)
	})
}

// named returns the wanted resources of a kind, in order.
func (p *place) named(kind inventory.Kind) []string {
	var ids []string
	for ref := range p.scan.only {
		if ref.Kind == kind && ref.Account == p.account.id && ref.Region == p.region {
			ids = append(ids, ref.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// filter restricts a list to the wanted resources of a kind, if not all are wanted and one filter
// suffices.
func (p *place) filter(kind inventory.Kind, name string) []types.Filter {
	ids := p.named(kind)
	if len(ids) == 0 || len(ids) > filterValues {
		return nil
	}
	return []types.Filter{{Name: &name, Values: ids}}
}

// filtered visits the machines that have one of the values.
func (p *place) filtered(ctx context.Context, name string, values []string, visit func(types.Instance)) error {
	for chunk := range slices.Chunk(values, filterValues) {
		if err := p.eachInstance(ctx, []types.Filter{{Name: &name, Values: chunk}}, visit); err != nil {
			return err
		}
	}
	return nil
}

// attribute reads whether a machine has termination or stop protection; unknown if the response
// does not say.
func (p *place) attribute(ctx context.Context, id string, name types.InstanceAttributeName) (inventory.Fact[bool],
	error) {
	out, err := ec2Client(p.reading).DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		InstanceId: &id,
		Attribute:  name,
	})
	if err != nil {
		return inventory.Fact[bool]{}, err
	}
	v := out.DisableApiTermination
	if name == types.InstanceAttributeNameDisableApiStop {
		v = out.DisableApiStop
	}
	if v == nil {
		return inventory.Fact[bool]{}, nil
	}
	return known(v.Value), nil
}
