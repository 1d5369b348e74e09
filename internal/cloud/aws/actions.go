package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
)

// Actions acts on the accounts of a [Cloud] with the calls in mutations. It reads every resource
// before it plans and again before a destructive call, and refuses (*action.Refusal) a resource
// that changed meanwhile. It is safe for concurrent use.
//
// Steps store their parameters and their reversal as JSON, except documents (the lifecycle of a
// bucket or repository): Step.Undo holds these as the service returned them, byte for byte. Plan
// leaves the keys of steps empty; the writer of the intent sets them.
type Actions struct {
	cloud  *Cloud
	limits *limits

	mu       sync.Mutex
	accounts map[string]*account
	sites    map[string]*site
}

var _ action.Cloud = (*Actions)(nil)

// Actions returns the [Actions] for the accounts of c. It makes no call.
func (c *Cloud) Actions() *Actions {
	return &Actions{cloud: c, limits: c.limits(), sites: map[string]*site{}}
}

// site is one region of one account with clients to read and to change it.
type site struct {
	*place
	// acting holds clients that make only the calls in mutations.
	acting *clients
}

// site returns the site of a resource. The accounts are identified once.
func (a *Actions) site(ctx context.Context, ref inventory.Ref) (*site, error) {
	if ref.Cloud != cloudName {
		return nil, fmt.Errorf("act on %s: it is not in %s", ref, cloudName)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := ref.Account + "/" + ref.Region
	if s := a.sites[key]; s != nil {
		return s, nil
	}
	scan := a.cloud.scan(round.Query{}, a.limits)
	if a.accounts == nil {
		found, err := scan.accounts(ctx)
		if err != nil {
			return nil, err
		}
		a.accounts = make(map[string]*account, len(found))
		for _, x := range found {
			a.accounts[x.id] = x
		}
	}
	account := a.accounts[ref.Account]
	if account == nil {
		a.accounts = nil // a role that could not be assumed may be the right one: retry next time
		return nil, fmt.Errorf("act on %s: %w: neither the credentials nor a role reach account %s", ref,
			inventory.ErrUnauthenticated, ref.Account)
	}
	p := scan.place(account, ref.Region)
	s := &site{place: p, acting: p.acting()}
	a.sites[key] = s
	return s, nil
}

// planner returns the steps of a verb on a kind, or a refusal.
type planner func(ctx context.Context, s *site, r *inventory.Resource, do policy.Do) ([]action.Step, error)

// handler executes a step, checks its progress and undoes it.
type handler struct {
	do   func(ctx context.Context, s *site, t action.Task) (receipt string, err error)
	look func(ctx context.Context, s *site, t action.Task) (action.Progress, string, error)
	// undo reverts it; if nil, lost says why that is impossible.
	undo func(ctx context.Context, s *site, t action.Task) error
	lost string
}

// what identifies a verb, or a step, on a kind.
type what struct {
	kind inventory.Kind
	name string
}

// planners holds every supported verb except tagging, which every kind supports.
var planners = map[what]planner{
	{inventory.KindInstance, string(policy.Stop)}:           planMachine,
	{inventory.KindInstance, string(policy.Hibernate)}:      planMachine,
	{inventory.KindInstance, string(policy.Terminate)}:      planMachine,
	{inventory.KindVolume, string(policy.Delete)}:           planVolume,
	{inventory.KindAddress, string(policy.Release)}:         planAddress,
	{inventory.KindLogGroup, string(policy.PutRetention)}:   planRetention,
	{inventory.KindBucket, string(policy.PutLifecycle)}:     planBucketLifecycle,
	{inventory.KindRepository, string(policy.PutLifecycle)}: planRepositoryLifecycle,
	{inventory.KindNotebook, string(policy.Stop)}:           planNotebook,
	{inventory.KindNotebook, string(policy.Delete)}:         planNotebook,
	{inventory.KindEndpoint, string(policy.Delete)}:         planEndpoint,
	{inventory.KindTrainingJob, string(policy.Stop)}:        planTrainingJob,
	{inventory.KindAutoScalingGroup, string(policy.Scale)}:  planGroup,
	{inventory.KindInstance, string(policy.Scale)}:          planMember,
	{inventory.KindEndpoint, string(policy.Scale)}:          planEndpointScale,
}

// The names of steps.
const (
	stepStop         = "stop"
	stepHibernate    = "hibernate"
	stepTerminate    = "terminate"
	stepSnapshot     = "snapshot"
	stepDelete       = "delete"
	stepDeleteVolume = "delete-volume"
	stepRelease      = "release"
	stepRetention    = "put-retention"
	stepLifecycle    = "put-lifecycle"
	stepTag          = "tag"
	stepScale        = "scale"
)

// handlers holds all steps except tagging.
var handlers = map[what]handler{
	{inventory.KindInstance, stepSnapshot}:  {do: snapshotMachine, look: lookSnapshots, lost: keptSnapshots},
	{inventory.KindInstance, stepStop}:      {do: stopMachine, look: lookStopped, undo: startMachine},
	{inventory.KindInstance, stepHibernate}: {do: stopMachine, look: lookStopped, undo: startMachine},
	{
		inventory.KindInstance, stepTerminate,
	}: {
		do: terminateMachine, look: lookTerminated,
		lost: "a terminated machine cannot be restored; snapshots of its disks are tagged " + actionTag,
	},
	{inventory.KindVolume, stepSnapshot}: {do: snapshotVolume, look: lookSnapshots, lost: keptSnapshots},
	{
		inventory.KindVolume, stepDeleteVolume,
	}: {
		do: deleteVolume, look: lookVolumeGone,
		lost: "the volume is gone; make another from its snapshot: aws ec2 create-volume --snapshot-id … " +
			"--availability-zone …",
	},
	{
		inventory.KindAddress, stepRelease,
	}: {
		do: releaseAddress, look: lookReleased,
		lost: "the address was released; if it is still free: aws ec2 allocate-address --address …",
	},
	{inventory.KindLogGroup, stepRetention}: {do: putRetention, look: lookRetention, undo: restoreRetention},
	{
		inventory.KindBucket, stepLifecycle,
	}: {do: putBucketLifecycle, look: lookBucketLifecycle, undo: restoreBucketLifecycle},
	{
		inventory.KindRepository, stepLifecycle,
	}: {do: putRepositoryLifecycle, look: lookRepositoryLifecycle, undo: restoreRepositoryLifecycle},
	{inventory.KindNotebook, stepStop}: {do: stopNotebook, look: lookNotebookStopped, undo: startNotebook},
	{
		inventory.KindNotebook, stepDelete,
	}: {do: deleteNotebook, look: lookNotebookGone, lost: "the notebook is gone, and its disk with it"},
	{
		inventory.KindEndpoint, stepDelete,
	}: {
		do: deleteEndpoint, look: lookEndpointGone,
		lost: "the endpoint is gone, its configuration is not: aws sagemaker create-endpoint --endpoint-name … " +
			"--endpoint-config-name …",
	},
	{inventory.KindAutoScalingGroup, stepScale}: {do: scaleGroup, look: lookGroup, undo: restoreGroup},
	{inventory.KindInstance, stepScale}:         {do: scaleGroup, look: lookGroup, undo: restoreGroup},
	{inventory.KindEndpoint, stepScale}:         {do: scaleEndpoint, look: lookEndpointScale, undo: restoreEndpoint},
	{
		inventory.KindTrainingJob, stepStop,
	}: {
		do: stopTrainingJob, look: lookTrainingStopped,
		lost: "a training job that was stopped cannot go on; start another from its checkpoint",
	},
}

const keptSnapshots = "the new snapshots are kept; delete them when they are no longer needed"

// Plan implements [action.Cloud].
func (a *Actions) Plan(ctx context.Context, r *inventory.Resource, do policy.Do) ([]action.Step, error) {
	plan := planners[what{r.Kind, string(do.Verb)}]
	if do.Verb == policy.Tag {
		plan = planTags
	}
	if plan == nil {
		return nil, refusal("no-such-verb", "%s is not done to a resource of kind %s", do.Verb, r.Kind)
	}
	s, err := a.site(ctx, r.Ref())
	if err != nil {
		return nil, err
	}
	steps, err := plan(ctx, s, r, do)
	if errors.Is(err, inventory.ErrNotFound) {
		return nil, refusal("gone", "%s %s no longer exists", r.Kind, r.ID)
	}
	return steps, err
}

// Do implements [action.Cloud]. A step without a key is an error.
func (a *Actions) Do(ctx context.Context, t action.Task) (receipt string, err error) {
	s, d, err := a.handler(ctx, t)
	if err != nil {
		return "", err
	}
	if t.Step.Key == "" {
		return "", fmt.Errorf("%s %s: the step has no key to find it again by", t.Step.Name, t.Ref)
	}
	receipt, err = d.do(ctx, s, t)
	if errors.Is(err, inventory.ErrNotFound) {
		return "", refusal("gone", "%s %s no longer exists", t.Ref.Kind, t.Ref.ID)
	}
	return receipt, err
}

// Look implements [action.Cloud]. If a resource of that name was created at another time it returns
// a *action.Refusal: what happened to the first one is unknown.
func (a *Actions) Look(ctx context.Context, t action.Task) (action.Progress, string, error) {
	s, d, err := a.handler(ctx, t)
	if err != nil {
		return action.NotDone, "", err
	}
	return d.look(ctx, s, t)
}

// Undo implements [action.Cloud]. If an action cannot be undone it returns a *action.Refusal with
// alternative steps for a person.
func (a *Actions) Undo(ctx context.Context, t action.Task) error {
	s, d, err := a.handler(ctx, t)
	if err != nil {
		return err
	}
	if d.undo == nil {
		return refusal("irrevocable", "%s", d.lost)
	}
	err = d.undo(ctx, s, t)
	if errors.Is(err, inventory.ErrNotFound) {
		return refusal("gone", "%s %s no longer exists", t.Ref.Kind, t.Ref.ID)
	}
	return err
}

// handler returns a task's site and the handler of its step.
func (a *Actions) handler(ctx context.Context, t action.Task) (*site, handler, error) {
	d, ok := handlers[what{t.Ref.Kind, t.Step.Name}]
	if t.Step.Name == stepTag {
		d, ok = tagging, true
	}
	if !ok {
		return nil, handler{}, fmt.Errorf("%s %s: there is no such step", t.Step.Name, t.Ref)
	}
	s, err := a.site(ctx, t.Ref)
	return s, d, err
}

// refusal returns a refusal by a rule.
func refusal(rule, format string, args ...any) error {
	return &action.Refusal{Rule: rule, Why: fmt.Sprintf(format, args...)}
}

// refusals are error codes that refuse an action because of the resource's state; they are not
// failures.
var refusals = map[string]string{
	"OperationNotPermitted": "protected", "VolumeInUse": "in-use", "InvalidIPAddress.InUse": "in-use",
	"ResourceInUse":          "in-use",
	"IncorrectInstanceState": "state", "IncorrectState": "state", "UnsupportedOperation": "state",
	"UnsupportedHibernationConfiguration": "not-enabled",
}

// errNotThere is returned for a response without the requested resource.
var errNotThere = errors.New("the answer does not hold it")

// missing are error codes for a resource that does not exist.
var missing = map[string]bool{
	"InvalidInstanceID.NotFound": true, "InvalidVolume.NotFound": true, "InvalidAllocationID.NotFound": true,
	"InvalidAddress.NotFound":  true,
	"InvalidSnapshot.NotFound": true, "ResourceNotFoundException": true, "RepositoryNotFoundException": true,
	"NoSuchBucket": true,
}

// failed converts the error of a call about one resource: a refusal if the service refused,
// inventory.ErrNotFound if the resource does not exist, ErrNoCapacity if there is no capacity, else
// the result of [wrapped].
func failed(attempt string, err error) error {
	if err == nil {
		return nil
	}
	c, detail := reason(err)
	switch {
	case refusals[c] != "":
		return refusal(refusals[c], "%s: %s", attempt, joined(c, detail))
	case missing[c] || errors.Is(err, errNotThere):
		return fmt.Errorf("%s: %w (%s)", attempt, inventory.ErrNotFound, c)
	case c == "InsufficientInstanceCapacity":
		return fmt.Errorf("%s: %w (%s)", attempt, inventory.ErrNoCapacity, joined(c, detail))
	}
	return wrapped(attempt, err)
}

// same refuses a resource with another creation time. Times are compared to the second; a resource
// without one is identified by its name only.
func same(ref inventory.Ref, meant, is time.Time) error {
	switch {
	case meant.IsZero() && is.IsZero():
		return nil
	case meant.IsZero():
		return refusal("unknown", "when %s %s was made was not known, so that it may be another one now", ref.Kind,
			ref.ID)
	case !meant.Truncate(time.Second).Equal(is.Truncate(time.Second)):
		return refusal("identity", "%s %s is another one than was meant: it dates from %s, the other from %s",
			ref.Kind, ref.ID, is.UTC().Format(time.RFC3339), meant.UTC().Format(time.RFC3339))
	}
	return nil
}

// identical compares a resource's time with a task's identity.
func identical(t action.Task, is time.Time) error {
	var meant time.Time
	if t.Identity != "" {
		var err error
		if meant, err = time.Parse(time.RFC3339Nano, t.Identity); err != nil {
			return fmt.Errorf("read the identity %q of %s: a time is expected: %w", t.Identity, t.Ref, err)
		}
	}
	return same(t.Ref, meant, is)
}

// encoded encodes a step's parameters.
func encoded(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("encode the parameters of a step: " + err.Error()) // plain values always encode
	}
	return string(b)
}

// decoded decodes a step's parameters.
func decoded[T any](t action.Task, text string) (T, error) {
	var v T
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return v, fmt.Errorf("read what %s of %s is made with: %w", t.Step.Name, t.Ref, err)
	}
	return v, nil
}

// earlier returns the step with a name before a task's own.
func earlier(t action.Task, name string) (action.Step, bool) {
	for _, s := range t.Earlier {
		if s.Name == name {
			return s, true
		}
	}
	return action.Step{}, false
}
