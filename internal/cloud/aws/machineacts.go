package aws

import (
	"context"
	"errors"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
)

// terminateParams are the parameters of a termination, for people to read.
type terminateParams struct {
	// DeletedDisks are deleted with the machine.
	DeletedDisks []string `json:"deleted_disks"`
	// Saved is true if a previous step saves them; otherwise they were declared disposable.
	Saved bool `json:"saved"`
}

// planMachine stops, hibernates or terminates a machine.
func planMachine(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	i, err := s.machine(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	if err := same(r.Ref(), r.CreatedAt, utc(i.LaunchTime)); err != nil {
		return nil, err
	}
	switch state := stateOf(i); {
	case state == types.InstanceStateNameTerminated || state == types.InstanceStateNameShuttingDown:
		return nil, refusal("gone", "machine %s is %s", r.ID, state)
	case do.Verb != policy.Terminate && state != types.InstanceStateNameRunning:
		return nil, refusal("state", "machine %s is %s: only one that runs can be stopped", r.ID, state)
	}
	if err := s.mayEnd(ctx, i, do); err != nil {
		return nil, err
	}
	disks := deleted(i)
	switch priced := do.Change.Arguments.Snapshot; {
	case len(priced) > 0 && !slices.Equal(priced, disks):
		return nil, refusal("changed", "other disks end with machine %s than when the fix was priced: %s", r.ID,
			strings.Join(disks, ", "))
	case do.Verb != policy.Terminate:
		return []action.Step{{Name: string(do.Verb), Params: "{}"}}, nil
	case len(unsaved(i, do)) == 0:
		return []action.Step{{Name: stepTerminate, Params: encoded(terminateParams{DeletedDisks: disks})}}, nil
	case !do.SaveDisks:
		return nil, refusal("unsaved-disk",
			"%s would be deleted with machine %s: declare them scratch, or have them saved",
			strings.Join(unsaved(i, do), ", "), r.ID)
	}
	return []action.Step{
		{Name: stepSnapshot, Params: encoded(snapshotParams{Volumes: disks})},
		{Name: stepTerminate, Params: encoded(terminateParams{DeletedDisks: disks, Saved: true})},
	}, nil
}

// machine reads a machine, including a terminated one while EC2 lists it; inventory.ErrNotFound if
// it does not exist.
func (p *place) machine(ctx context.Context, id string) (types.Instance, error) {
	attempt := "read machine " + id
	out, err := ec2Client(p.reading).DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return types.Instance{}, failed(attempt, err)
	}
	for _, reservation := range out.Reservations {
		for _, i := range reservation.Instances {
			if awssdk.ToString(i.InstanceId) == id {
				return i, nil
			}
		}
	}
	return types.Instance{}, unclear(attempt)
}

func stateOf(i types.Instance) types.InstanceStateName {
	if i.State == nil {
		return ""
	}
	return i.State.Name
}

// deleted returns the disks that are deleted with a machine; if EC2 does not say, they are.
func deleted(i types.Instance) []string { return unsaved(i, policy.Do{}) }

// unsaved returns the disks that are deleted with a machine and not declared scratch by an action.
func unsaved(i types.Instance, do policy.Do) []string {
	disks := []string{}
	for _, m := range i.BlockDeviceMappings {
		if m.Ebs != nil && (m.Ebs.DeleteOnTermination == nil || *m.Ebs.DeleteOnTermination) &&
			!do.MayLoseDisk(isRoot(i, m)) {
			disks = append(disks, awssdk.ToString(m.Ebs.VolumeId))
		}
	}
	slices.Sort(disks)
	return disks
}

// isRoot reports whether a machine boots from a disk; false if EC2 does not say.
func isRoot(i types.Instance, m types.InstanceBlockDeviceMapping) bool {
	name := awssdk.ToString(i.RootDeviceName)
	return name != "" && awssdk.ToString(m.DeviceName) == name
}

// unmanaged refuses a machine that a manager would replace or miss.
func unmanaged(noun, id string, operator *types.OperatorResponse, tags []types.Tag) error {
	if m := managerOf(operator, tags); m != (inventory.Manager{}) {
		return refusal("group-member", "%s %s belongs to %s: only its manager changes it", noun, id, m)
	}
	return nil
}

// mayEnd refuses to end a machine that is protected, that a manager would restart, or that has
// local disks with data. An unanswered check refuses.
func (p *place) mayEnd(ctx context.Context, i types.Instance, do policy.Do) error {
	id := awssdk.ToString(i.InstanceId)
	if err := unmanaged("machine", id, i.Operator, i.Tags); err != nil {
		return err
	}
	for name, protects := range map[types.InstanceAttributeName]bool{
		types.InstanceAttributeNameDisableApiTermination: do.Verb == policy.Terminate,
		types.InstanceAttributeNameDisableApiStop:        true,
	} {
		if !protects {
			continue
		}
		switch on, err := p.attribute(ctx, id, name); {
		case err != nil:
			return unanswered(ctx, "whether machine "+id+" is protected", err)
		case !on.Known():
			return refusal("unknown", "whether machine %s is protected is not known: %s was not said", id, name)
		case on.Or(true):
			return refusal("protected", "machine %s is protected: %s is on", id, name)
		}
	}
	if err := p.mayEndSpot(ctx, i, do.Verb); err != nil {
		return err
	}
	if do.Verb != policy.Terminate && i.RootDeviceType != types.DeviceTypeEbs {
		return refusal("unsaved-disk", "machine %s cannot be stopped: its root disk is %s, which ends with it", id,
			firstOf(string(i.RootDeviceType), "not known"))
	}
	if do.Verb == policy.Hibernate &&
		(i.HibernationOptions == nil || !awssdk.ToBool(i.HibernationOptions.Configured)) {
		return refusal("not-enabled", "machine %s was not launched with hibernation", id)
	}
	// its data was lost when it stopped
	if do.LosesInstanceStore() || stateOf(i) == types.InstanceStateNameStopped {
		return nil
	}
	switch local, err := p.localDisks(ctx, i.InstanceType); {
	case err != nil:
		return unanswered(ctx, "whether a "+string(i.InstanceType)+" has instance-store disks", err)
	case local:
		return refusal("unsaved-disk",
			"machine %s is a %s: data on its instance-store disks is lost when it stops, and "+
				"no snapshot saves it; declare them scratch",
			id, i.InstanceType)
	}
	return nil
}

// mayEndSpot refuses to stop a spot machine that cannot be started again, and to
// terminate one whose request would start another (EC2 User Guide, "Stop a Spot
// Instance", "Terminate a Spot Instance").
func (p *place) mayEndSpot(ctx context.Context, i types.Instance, verb policy.Verb) error {
	if i.InstanceLifecycle != types.InstanceLifecycleTypeSpot {
		return nil
	}
	id, request := awssdk.ToString(i.InstanceId), awssdk.ToString(i.SpotInstanceRequestId)
	if request == "" {
		return refusal("unknown", "of what spot request machine %s is, is not known", id)
	}
	out, err := ec2Client(p.reading).DescribeSpotInstanceRequests(ctx, &ec2.DescribeSpotInstanceRequestsInput{
		SpotInstanceRequestIds: []string{request},
	})
	if err != nil {
		return unanswered(ctx, "of what kind spot request "+request+" is", err)
	}
	for _, r := range out.SpotInstanceRequests {
		if awssdk.ToString(r.SpotInstanceRequestId) != request {
			continue
		}
		over := r.State == types.SpotInstanceStateCancelled || r.State == types.SpotInstanceStateClosed ||
			r.State == types.SpotInstanceStateFailed
		switch {
		case verb == policy.Terminate && r.Type == types.SpotInstanceTypePersistent && !over:
			return refusal("group-member",
				"spot request %s is persistent and would start another machine for %s: cancel the request", request,
				id)
		case verb == policy.Terminate && (r.Type == types.SpotInstanceTypeOneTime || over):
			return nil
		case verb != policy.Terminate && r.Type == types.SpotInstanceTypePersistent && !over:
			return nil
		case verb != policy.Terminate && r.Type == types.SpotInstanceTypeOneTime:
			return refusal("spot-request",
				"machine %s is of a one-time spot request: it cannot be stopped, only terminated",
				id)
		}
	}
	return refusal("unknown", "of what kind spot request %s of machine %s is, is not known", request, id)
}

// localDisks reports whether machines of a type have instance-store disks.
func (p *place) localDisks(ctx context.Context, machine types.InstanceType) (bool, error) {
	out, err := ec2Client(p.reading).DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{
		InstanceTypes: []types.InstanceType{machine},
	})
	if err != nil {
		return false, err
	}
	for _, t := range out.InstanceTypes {
		if t.InstanceType == machine && t.InstanceStorageSupported != nil {
			return *t.InstanceStorageSupported, nil
		}
	}
	return false, errors.New("the answer does not say")
}

// unanswered returns the refusal for a check without a response; a canceled caller is not a
// refusal.
func unanswered(ctx context.Context, question string, err error) error {
	if canceled(ctx) {
		return err
	}
	c, detail := reason(err)
	return refusal("unknown", "%s is not known (%s)", question, joined(c, detail))
}

// meant reads a task's machine and refuses another one under the same name.
func (s *site) meant(ctx context.Context, t action.Task) (types.Instance, error) {
	i, err := s.machine(ctx, t.Ref.ID)
	if err != nil {
		return i, err
	}
	return i, identical(t, utc(i.LaunchTime))
}

// stopMachine stops or hibernates a machine.
func stopMachine(ctx context.Context, s *site, t action.Task) (string, error) {
	i, err := s.meant(ctx, t)
	if err != nil {
		return "", err
	}
	if state := stateOf(i); state == types.InstanceStateNameStopping || state == types.InstanceStateNameStopped {
		return string(state), nil
	}
	if err := s.mayEnd(ctx, i, t.Do); err != nil {
		return "", err
	}
	in := &ec2.StopInstancesInput{InstanceIds: []string{t.Ref.ID}}
	if t.Step.Name == stepHibernate {
		in.Hibernate = awssdk.Bool(true)
	}
	out, err := ec2Client(s.acting).StopInstances(ctx, in)
	if err != nil {
		return "", failed(t.Step.Name+" machine "+t.Ref.ID, err)
	}
	return becomes(out.StoppingInstances), nil
}

// terminateMachine terminates a machine once the disks to be saved are saved.
func terminateMachine(ctx context.Context, s *site, t action.Task) (string, error) {
	i, err := s.meant(ctx, t)
	if err != nil {
		return "", err
	}
	if state := stateOf(i); state == types.InstanceStateNameShuttingDown ||
		state == types.InstanceStateNameTerminated {
		return string(state), nil
	}
	if err := s.mayEnd(ctx, i, t.Do); err != nil {
		return "", err
	}
	if disks := unsaved(i, t.Do); len(disks) > 0 {
		if err := s.saved(ctx, t, disks); err != nil {
			return "", err
		}
	}
	out, err := ec2Client(s.acting).TerminateInstances(ctx, &ec2.TerminateInstancesInput{
		InstanceIds: []string{t.Ref.ID},
	})
	if err != nil {
		return "", failed("terminate machine "+t.Ref.ID, err)
	}
	return becomes(out.TerminatingInstances), nil
}

// becomes returns the state that a machine enters.
func becomes(changes []types.InstanceStateChange) string {
	for _, c := range changes {
		if c.CurrentState != nil {
			return string(c.CurrentState.Name)
		}
	}
	return ""
}

func lookStopped(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	i, err := twice(ctx, func() (types.Instance, error) { return s.meant(ctx, t) })
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return action.Impossible, "", nil
	case err != nil:
		return action.NotDone, "", err
	}
	switch state := stateOf(i); state {
	case types.InstanceStateNameStopped:
		return action.Complete, string(state), nil
	case types.InstanceStateNameStopping:
		return action.InProgress, string(state), nil
	case types.InstanceStateNameTerminated, types.InstanceStateNameShuttingDown:
		return action.Impossible, string(state), nil
	}
	return action.NotDone, "", nil
}

// lookTerminated confirms a termination if EC2 reports it, or if, an hour later, EC2 twice does not
// know the machine.
func lookTerminated(ctx context.Context, s *site, t action.Task) (action.Progress, string, error) {
	i, err := twice(ctx, func() (types.Instance, error) { return s.meant(ctx, t) })
	switch {
	case errors.Is(err, inventory.ErrNotFound):
		return action.Complete, string(types.InstanceStateNameTerminated), nil
	case err != nil:
		return action.NotDone, "", err
	}
	switch state := stateOf(i); state {
	case types.InstanceStateNameTerminated:
		return action.Complete, string(state), nil
	case types.InstanceStateNameShuttingDown:
		return action.InProgress, string(state), nil
	}
	return action.NotDone, "", nil
}

// startMachine starts a stopped machine. Without capacity it stays stopped, and the error is
// inventory.ErrNoCapacity.
func startMachine(ctx context.Context, s *site, t action.Task) error {
	i, err := s.machine(ctx, t.Ref.ID)
	if err != nil {
		return err
	}
	switch state := stateOf(i); state {
	case types.InstanceStateNameRunning, types.InstanceStateNamePending:
		return nil
	case types.InstanceStateNameStopped:
	default:
		return refusal("state", "machine %s is %s: only one that is stopped can be started", t.Ref.ID, state)
	}
	if err := identical(t, utc(i.LaunchTime)); err != nil {
		return err
	}
	_, err = ec2Client(s.acting).StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{t.Ref.ID}})
	return failed("start machine "+t.Ref.ID, err)
}
