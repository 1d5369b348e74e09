package sandbox_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"
	"github.com/aws/smithy-go"

	"github.com/curfew-dev/curfew/test/wire"
)

// launchRegion is a region without seeded resources.
const launchRegion = "eu-central-1"

// launching holds the parameters of the tests of launches.
type launching struct {
	t       *testing.T
	ec2     *ec2.Client
	subnets []types.Subnet
}

func newLaunching(t *testing.T) *launching {
	t.Helper()
	l := &launching{t: t, ec2: ec2.NewFromConfig(account.Config(launchRegion))}
	out, err := l.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
	if err != nil || len(out.Subnets) < 2 {
		t.Fatalf("subnets: %v, %v", out, err)
	}
	l.subnets = out.Subnets
	t.Cleanup(account.Wire.Launches.Show)
	return l
}

func (l *launching) input(token string, nodes int) *ec2.RunInstancesInput {
	tags := []types.Tag{{Key: aws.String("launch"), Value: aws.String(token)}}
	return &ec2.RunInstancesInput{
		ClientToken: aws.String(token), ImageId: aws.String("ami-03cf127a"), InstanceType: types.InstanceTypeG6Xlarge,
		MinCount: aws.Int32(int32(nodes)), MaxCount: aws.Int32(int32(nodes)), SubnetId: l.subnets[0].SubnetId,
		TagSpecifications: []types.TagSpecification{
			{
				ResourceType: types.ResourceTypeInstance, Tags: tags,
			}, {ResourceType: types.ResourceTypeVolume, Tags: tags},
			{ResourceType: types.ResourceTypeNetworkInterface, Tags: tags}}}
}

// run launches machines, which must succeed, and returns them.
func (l *launching) run(in *ec2.RunInstancesInput) []string {
	l.t.Helper()
	out, err := l.ec2.RunInstances(l.t.Context(), in)
	if err != nil {
		l.t.Fatalf("launch: %v", err)
	}
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, aws.ToString(i.InstanceId))
	}
	l.t.Cleanup(func() { l.end(ids) })
	return ids
}

func (l *launching) end(ids []string) {
	if _, err := l.ec2.TerminateInstances(l.t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil &&
		l.t.Context().Err() == nil {
		l.t.Errorf("terminate: %v", err)
	}
}

// refused checks the code of an error.
func (l *launching) refused(err error, code string) {
	l.t.Helper()
	var api smithy.APIError
	if !errors.As(err, &api) || api.ErrorCode() != code {
		l.t.Errorf("error %v, want %s", err, code)
	}
}

// shown returns the machines with a tag of a launch, including terminated ones.
func (l *launching) shown(token string) (ids []string) {
	l.t.Helper()
	return l.filtered("tag:launch", token)
}

func (l *launching) filtered(name, value string) (ids []string) {
	l.t.Helper()
	out, err := l.ec2.DescribeInstances(l.t.Context(), &ec2.DescribeInstancesInput{
		Filters: []types.Filter{{Name: aws.String(name), Values: []string{value}}},
	})
	if err != nil {
		l.t.Fatalf("describe: %v", err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			ids = append(ids, aws.ToString(i.InstanceId))
		}
	}
	return ids
}

// TestClientTokens checks the documented behavior of the tokens of RunInstances.
func TestClientTokens(t *testing.T) {
	l := newLaunching(t)
	first := l.run(l.input("token-1", 2))
	if again := l.run(l.input("token-1", 2)); !slices.Equal(again, first) || len(first) != 2 {
		t.Errorf("the same token launched %v, and then %v", first, again)
	}
	other := l.input("token-1", 2)
	other.InstanceType = types.InstanceTypeG52xlarge
	_, err := l.ec2.RunInstances(t.Context(), other)
	l.refused(err, "IdempotentParameterMismatch")
	if n := len(l.shown("token-1")); n != 2 {
		t.Errorf("%d machines, want 2", n)
	}
	// The token is zonal if a subnet determines the zone.
	elsewhere := l.input("token-1", 2)
	elsewhere.SubnetId = l.subnets[1].SubnetId
	if there := l.run(elsewhere); slices.Contains(there, first[0]) {
		t.Errorf("another zone answers with the machines of the first: %v", there)
	}
	// Terminated machines still belong to the token.
	l.end(first)
	out, err := l.ec2.RunInstances(t.Context(), l.input("token-1", 2))
	if err != nil || len(out.Instances) != 2 || aws.ToString(out.Instances[0].InstanceId) != first[0] ||
		out.Instances[0].State.Name != types.InstanceStateNameTerminated {
		t.Errorf("after the end: %+v, %v", out, err)
	}
	if got := l.filtered("client-token", "token-1"); len(got) != 4 {
		t.Errorf("by the token: %v", got)
	}
	if got := l.filtered("client-token", "never"); len(got) != 0 {
		t.Errorf("by a token that was never used: %v", got)
	}
}

// TestLaunchRefusals checks that each refusal has its code, occurs as often as configured, and
// launches nothing.
func TestLaunchRefusals(t *testing.T) {
	l := newLaunching(t)
	for code := range map[string]bool{
		"InsufficientInstanceCapacity": true, "VcpuLimitExceeded": true, "MaxSpotInstanceCountExceeded": true,
		"Unsupported": true,
	} {
		tries := 1
		if code == "InsufficientInstanceCapacity" {
			tries = 3 // the SDK retries a 500
		}
		account.Wire.Launches.Refuse(wire.LaunchRefusal{Code: code, Type: "g6.xlarge", Times: tries})
		_, err := l.ec2.RunInstances(t.Context(), l.input(code, 1))
		l.refused(err, code)
		if n := len(l.shown(code)); n != 0 {
			t.Errorf("%s: %d machines", code, n)
		}
		if n := len(l.run(l.input(code, 1))); n != 1 {
			t.Errorf("%s: then %d machines", code, n)
		}
	}
}

// TestLateMachines checks that hidden machines are not listed, but that their token still returns
// them.
func TestLateMachines(t *testing.T) {
	l := newLaunching(t)
	account.Wire.Launches.Late()
	ids := l.run(l.input("late", 1))
	if got := l.shown("late"); len(got) != 0 {
		t.Errorf("shown at once: %v", got)
	}
	_, err := l.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: ids})
	l.refused(err, "InvalidInstanceID.NotFound")
	if again := l.run(l.input("late", 1)); !slices.Equal(again, ids) {
		t.Errorf("launched %v, and then %v", ids, again)
	}
	account.Wire.Launches.Show()
	if got := l.shown("late"); !slices.Equal(got, ids) {
		t.Errorf("shown %v, want %v", got, ids)
	}
}

// TestLostLaunch checks that a launch whose responses are lost is carried out once.
func TestLostLaunch(t *testing.T) {
	l := newLaunching(t)
	remove := account.Wire.Inject(wire.Fault{
		Service: "ec2", Operation: "RunInstances", Region: launchRegion, Kind: wire.Lost,
	})
	_, err := l.ec2.RunInstances(t.Context(), l.input("lost", 2))
	remove()
	if err == nil {
		t.Error("the answer was not lost")
	}
	if ids := l.run(l.input("lost", 2)); len(ids) != 2 || len(l.shown("lost")) != 2 {
		t.Errorf("%v, of %v", ids, l.shown("lost"))
	}
}

// TestInterfacesGoWithMachines checks that interfaces have the tags of their launch and are deleted
// with their machine, unless the launch requests otherwise.
func TestInterfacesGoWithMachines(t *testing.T) {
	l := newLaunching(t)
	interfaces := func(token string) (out []types.NetworkInterface) {
		found, err := l.ec2.DescribeNetworkInterfaces(t.Context(), &ec2.DescribeNetworkInterfacesInput{
			Filters: []types.Filter{{Name: aws.String("tag:launch"), Values: []string{token}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return found.NetworkInterfaces
	}
	named := l.input("kept", 1)
	named.SubnetId = nil
	named.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{
		{DeviceIndex: aws.Int32(0), SubnetId: l.subnets[0].SubnetId, DeleteOnTermination: aws.Bool(false)},
	}
	deleted := l.input("deleted", 1)
	deleted.SubnetId = nil
	deleted.NetworkInterfaces = []types.InstanceNetworkInterfaceSpecification{
		{DeviceIndex: aws.Int32(0), SubnetId: l.subnets[0].SubnetId, DeleteOnTermination: aws.Bool(true)},
	}
	for _, tc := range []struct {
		in   *ec2.RunInstancesInput
		left int
	}{{l.input("gone", 2), 0}, {named, 1}, {deleted, 0}} {
		token, machines := aws.ToString(tc.in.ClientToken), int(aws.ToInt32(tc.in.MinCount))
		ids := l.run(tc.in)
		if n := len(interfaces(token)); n != machines {
			t.Errorf("%s: %d interfaces of %d machines", token, n, machines)
		}
		l.end(ids)
		l.end(ids) // as a client does that lost the response
		left := interfaces(token)
		if len(left) != tc.left {
			t.Errorf("%s: %d interfaces are left", token, len(left))
		}
		for _, x := range left {
			if x.Status != types.NetworkInterfaceStatusAvailable {
				t.Errorf("%s: the interface that is left is %s", token, x.Status)
			}
		}
	}
}

// TestConnections checks that sessions of Systems Manager open on running machines, are listed, and
// close.
func TestConnections(t *testing.T) {
	l := newLaunching(t)
	api := ssm.NewFromConfig(account.Config(launchRegion))
	id := l.run(l.input("connected", 1))[0]
	for _, target := range []string{"i-00000000000000000", "nothing"} {
		_, err := api.StartSession(t.Context(), &ssm.StartSessionInput{Target: aws.String(target)})
		if target == "nothing" {
			l.refused(err, "TargetNotConnected")
		} else if !errors.As(err, new(*ssmtypes.TargetNotConnected)) {
			t.Errorf("%s: %v", target, err)
		}
	}
	open, err := api.StartSession(t.Context(), &ssm.StartSessionInput{
		Target: aws.String(id), DocumentName: aws.String("AWS-StartSSHSession"), Reason: aws.String("curfew connect"),
		Parameters: map[string][]string{"portNumber": {"22"}}})
	if err != nil || aws.ToString(open.SessionId) == "" || aws.ToString(open.TokenValue) == "" ||
		aws.ToString(open.StreamUrl) == "" {
		t.Fatalf("start: %+v, %v", open, err)
	}
	listed := func(state ssmtypes.SessionState) (out []ssmtypes.Session) {
		pages := ssm.NewDescribeSessionsPaginator(api, &ssm.DescribeSessionsInput{
			State: state, Filters: []ssmtypes.SessionFilter{
				{Key: ssmtypes.SessionFilterKeyTargetId, Value: aws.String(id)},
			},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, page.Sessions...)
		}
		return out
	}
	if got := listed(ssmtypes.SessionStateActive); len(got) != 1 ||
		aws.ToString(got[0].SessionId) != aws.ToString(open.SessionId) ||
		got[0].Status != ssmtypes.SessionStatusConnected {
		t.Errorf("open: %+v", got)
	}
	if _, err := api.ResumeSession(t.Context(), &ssm.ResumeSessionInput{SessionId: open.SessionId}); err != nil {
		t.Errorf("resume: %v", err)
	}
	for range 2 {
		if _, err := api.TerminateSession(t.Context(), &ssm.TerminateSessionInput{
			SessionId: open.SessionId,
		}); err != nil {
			t.Errorf("terminate: %v", err)
		}
	}
	if open, closed := listed(ssmtypes.SessionStateActive), listed(ssmtypes.SessionStateHistory); len(open) != 0 ||
		len(closed) != 1 || closed[0].EndDate == nil {
		t.Errorf("open %+v, closed %+v", open, closed)
	}
	_, err = api.ResumeSession(t.Context(), &ssm.ResumeSessionInput{SessionId: open.SessionId})
	l.refused(err, "DoesNotExistException")
	l.end([]string{id})
	_, err = api.StartSession(t.Context(), &ssm.StartSessionInput{Target: aws.String(id)})
	l.refused(err, "TargetNotConnected")
}
