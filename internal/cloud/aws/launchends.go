package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
)

func tagFilter(key, value string) types.Filter {
	return types.Filter{Name: awssdk.String("tag:" + key), Values: []string{value}}
}

// of returns the filters for the resources of a session of an installation; "" for all sessions.
func of(installation, id string) []types.Filter {
	out := []types.Filter{tagFilter(inventory.TagInstallation, installation)}
	if id != "" {
		out = append(out, tagFilter(inventory.TagSession, id))
	}
	return out
}

// machines visits the matching machines, including terminated ones.
func (l *Launcher) machines(ctx context.Context, region string, filters []types.Filter,
	visit func(types.Instance)) error {
	return pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(l.at(region)).DescribeInstances(ctx, &ec2.DescribeInstancesInput{
			Filters:    filters,
			MaxResults: awssdk.Int32(instancesPage),
			NextToken:  token,
		})
		if err != nil {
			return nil, err
		}
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				visit(i)
			}
		}
		return out.NextToken, nil
	})
}

// Find implements [session.Launcher].
func (l *Launcher) Find(ctx context.Context, installation, id string) ([]session.FoundMachine, error) {
	if installation == "" {
		return nil, errors.New("find the machines of sessions: no installation is named")
	}
	var out []session.FoundMachine
	regions, err := l.watched(ctx)
	if err != nil {
		return nil, err
	}
	for _, region := range regions {
		err := l.machines(ctx, region, of(installation, id), func(i types.Instance) {
			tags := ec2Tags(i.Tags)
			if stateOf(i) == types.InstanceStateNameTerminated || tags[inventory.TagSession] == "" {
				return
			}
			f := session.FoundMachine{
				Machine: sessionMachine(i), Session: tags[inventory.TagSession], Token: tags[inventory.TagIntent],
				LeaseUntil: leaseOf(tags), Owner: inventory.DefaultTagMapping().Owner(tags),
			}
			f.Pool.Region, f.Account = region, l.known()
			out = append(out, f)
		})
		if err != nil {
			return nil, wrapped("find the machines of sessions in "+region, err)
		}
	}
	slices.SortFunc(out, func(a, b session.FoundMachine) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// End implements [session.Launcher]. A machine that belongs to another session is left alone with
// an error. A machine that EC2 does not list is ended all the same, because it may be listed late.
func (l *Launcher) End(ctx context.Context, id string, ids []string) error {
	if id == "" || len(ids) == 0 {
		return nil
	}
	var errs []error
	unseen := slices.Clone(ids)
	regions, err := l.watched(ctx)
	if err != nil {
		return err
	}
	for _, region := range regions {
		var due []string
		err := l.machines(ctx, region, []types.Filter{{Name: awssdk.String("instance-id"), Values: ids}},
			func(i types.Instance) {
				machine := awssdk.ToString(i.InstanceId)
				unseen = slices.DeleteFunc(unseen, func(s string) bool { return s == machine })
				switch whose := ec2Tags(i.Tags)[inventory.TagSession]; {
				case whose != id:
					errs = append(errs,
						fmt.Errorf("end %s of session %s: it is tagged as session %q, and left alone", machine, id,
							whose))
				case stateOf(i) != types.InstanceStateNameTerminated &&
					stateOf(i) != types.InstanceStateNameShuttingDown:
					due = append(due, machine)
				}
			})
		if err != nil {
			errs = append(errs, wrapped("look at the machines of session "+id+" in "+region, err))
			continue
		}
		if len(due) > 0 {
			if _, err := ec2Client(l.at(region)).TerminateInstances(ctx, &ec2.TerminateInstancesInput{
				InstanceIds: due,
			}); err != nil {
				errs = append(errs, wrapped("end "+strings.Join(due, ", "), err))
			}
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for _, machine := range unseen {
		for _, region := range regions {
			_, err := ec2Client(l.at(region)).TerminateInstances(ctx, &ec2.TerminateInstancesInput{
				InstanceIds: []string{machine},
			})
			if err != nil && !is(err, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed") {
				errs = append(errs, wrapped("end "+machine+", which does not show", err))
			}
		}
	}
	return errors.Join(errs...)
}

// Leftovers implements [session.Launcher].
func (l *Launcher) Leftovers(ctx context.Context, installation, id string) ([]string, error) {
	if installation == "" || id == "" {
		return nil, errors.New("remove what a session left: no installation or no session is named")
	}
	found, err := l.Find(ctx, installation, id)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, f := range found {
		left = append(left, f.ID)
	}
	if len(left) > 0 {
		return left, nil
	}
	regions, err := l.watched(ctx)
	if err != nil {
		return nil, err
	}
	for _, region := range regions {
		for _, remove := range []func(context.Context, string, []types.Filter) ([]string, error){
			l.cancelRequests, l.removeVolumes, l.removeInterfaces, l.releaseAddresses,
		} {
			more, err := remove(ctx, region, of(installation, id))
			if err != nil {
				return nil, wrapped("remove what session "+id+" left in "+region, err)
			}
			left = append(left, more...)
		}
	}
	if len(left) > 0 {
		return left, nil
	}
	if left, err = l.removeRoles(ctx, installation, id); err != nil {
		return nil, fmt.Errorf("remove what session %s left: %w", id, err)
	}
	return left, nil
}

// removeVolumes deletes the unused volumes and returns the others.
func (l *Launcher) removeVolumes(ctx context.Context, region string, filters []types.Filter) (left []string,
	err error) {
	var free []string
	err = pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(l.at(region)).DescribeVolumes(ctx, &ec2.DescribeVolumesInput{
			Filters:   filters,
			NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, v := range out.Volumes {
			switch v.State {
			case types.VolumeStateAvailable, types.VolumeStateError:
				free = append(free, awssdk.ToString(v.VolumeId))
			case types.VolumeStateDeleting, types.VolumeStateDeleted:
			default:
				left = append(left, awssdk.ToString(v.VolumeId))
			}
		}
		return out.NextToken, nil
	})
	for _, v := range free {
		if _, e := ec2Client(l.at(region)).DeleteVolume(ctx, &ec2.DeleteVolumeInput{
			VolumeId: awssdk.String(v),
		}); e != nil && !is(e, "InvalidVolume.NotFound") {
			left = append(left, v)
		}
	}
	return left, err
}

// removeInterfaces deletes the unused interfaces and returns the others.
func (l *Launcher) removeInterfaces(ctx context.Context, region string, filters []types.Filter) (left []string,
	err error) {
	var free []string
	err = pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(l.at(region)).DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{
			Filters:   filters,
			NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, x := range out.NetworkInterfaces {
			if x.Status == types.NetworkInterfaceStatusAvailable {
				free = append(free, awssdk.ToString(x.NetworkInterfaceId))
			} else {
				left = append(left, awssdk.ToString(x.NetworkInterfaceId))
			}
		}
		return out.NextToken, nil
	})
	for _, x := range free {
		if _, e := ec2Client(l.at(region)).DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{
			NetworkInterfaceId: awssdk.String(x),
		}); e != nil && !is(e, "InvalidNetworkInterfaceID.NotFound") {
			left = append(left, x)
		}
	}
	return left, err
}

// cancelRequests cancels the spot requests that could still start a machine or count against a
// limit, and returns those that remain.
func (l *Launcher) cancelRequests(ctx context.Context, region string, filters []types.Filter) (left []string,
	err error) {
	var open []string
	err = pages(ctx, func(token *string) (*string, error) {
		out, err := ec2Client(l.at(region)).DescribeSpotInstanceRequests(ctx, &ec2.DescribeSpotInstanceRequestsInput{
			Filters:   filters,
			NextToken: token,
		})
		if err != nil {
			return nil, err
		}
		for _, r := range out.SpotInstanceRequests {
			if r.State == types.SpotInstanceStateOpen || r.State == types.SpotInstanceStateActive {
				open = append(open, awssdk.ToString(r.SpotInstanceRequestId))
			}
		}
		return out.NextToken, nil
	})
	if err != nil || len(open) == 0 {
		return nil, err
	}
	if _, err := ec2Client(l.at(region)).CancelSpotInstanceRequests(ctx, &ec2.CancelSpotInstanceRequestsInput{
		SpotInstanceRequestIds: open,
	}); err != nil && !is(err, "InvalidSpotInstanceRequestID.NotFound") {
		return open, nil //nolint:nilerr // they are named, and asked for again
	}
	return nil, nil
}

// releaseAddresses releases the unused addresses and returns the others.
func (l *Launcher) releaseAddresses(ctx context.Context, region string, filters []types.Filter) (left []string,
	err error) {
	out, err := ec2Client(l.at(region)).DescribeAddresses(ctx, &ec2.DescribeAddressesInput{Filters: filters})
	if err != nil {
		return nil, err
	}
	for _, a := range out.Addresses {
		id := awssdk.ToString(a.AllocationId)
		if a.AssociationId != nil {
			left = append(left, id)
			continue
		}
		if _, err := ec2Client(l.at(region)).ReleaseAddress(ctx, &ec2.ReleaseAddressInput{
			AllocationId: a.AllocationId,
		}); err != nil && !is(err, "InvalidAllocationID.NotFound") {
			left = append(left, id)
		}
	}
	return left, nil
}
