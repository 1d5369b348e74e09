package aws

import (
	"context"
	"errors"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// addressParams is the address to release, for people to read.
type addressParams struct {
	PublicIP string `json:"public_ip"`
}

func planAddress(ctx context.Context, s *site, r *inventory.Resource, _ policy.Do) ([]action.Step, error) {
	a, err := s.addressNow(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := idle(a, r.ID); err != nil {
		return nil, err
	}
	return []action.Step{
		{Name: stepRelease, Params: encoded(addressParams{PublicIP: awssdk.ToString(a.PublicIp)})},
	}, nil
}

// addressNow reads an address by its allocation or, for EC2-Classic addresses, by IP. A missing
// address is inventory.ErrNotFound.
func (p *place) addressNow(ctx context.Context, id string) (types.Address, error) {
	in, attempt := &ec2.DescribeAddressesInput{AllocationIds: []string{id}}, "read address "+id
	if !allocated(id) {
		in = &ec2.DescribeAddressesInput{PublicIps: []string{id}}
	}
	out, err := ec2Client(p.reading).DescribeAddresses(ctx, in)
	if err != nil {
		return types.Address{}, failed(attempt, err)
	}
	for _, a := range out.Addresses {
		if id == firstOf(awssdk.ToString(a.AllocationId), awssdk.ToString(a.PublicIp)) {
			return a, nil
		}
	}
	return types.Address{}, unclear(attempt)
}

func allocated(id string) bool { return strings.HasPrefix(id, "eipalloc-") }

// idle refuses an address that is in use or managed by another service.
func idle(a types.Address, id string) error {
	if by := firstOf(awssdk.ToString(a.AssociationId), awssdk.ToString(a.InstanceId),
		awssdk.ToString(a.NetworkInterfaceId)); by != "" {
		return refusal("in-use", "address %s is associated: %s", id, by)
	}
	if by := string(a.ServiceManaged); by != "" {
		return refusal("group-member", "address %s is managed by %s: only its manager changes it", id, by)
	}
	return unmanaged("address", id, nil, a.Tags)
}

// releaseAddress releases an address if it is still the planned one: addresses have no creation
// time, but allocation IDs are unique.
func releaseAddress(ctx context.Context, s *site, t action.Task) (string, error) {
	params, err := decoded[addressParams](t, t.Step.Params)
	if err != nil {
		return "", err
	}
	a, err := s.addressNow(ctx, t.Ref.ID)
	if err != nil {
		return "", err
	}
	if ip := awssdk.ToString(a.PublicIp); ip != params.PublicIP {
		return "", refusal("identity", "address %s is %s, not %s", t.Ref.ID, ip, params.PublicIP)
	}
	if err := idle(a, t.Ref.ID); err != nil {
		return "", err
	}
	in := &ec2.ReleaseAddressInput{AllocationId: &t.Ref.ID}
	if !allocated(t.Ref.ID) {
		in = &ec2.ReleaseAddressInput{PublicIp: &t.Ref.ID}
	}
	_, err = ec2Client(s.acting).ReleaseAddress(ctx, in)
	return params.PublicIP, failed("release address "+t.Ref.ID, err)
}

func lookReleased(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	switch _, err := twice(ctx, func() (types.Address, error) { return s.addressNow(ctx, t.Ref.ID) }); {
	case errors.Is(err, inventory.ErrNotFound):
		return action.Complete, "", nil
	default:
		return action.NotDone, "", err
	}
}
