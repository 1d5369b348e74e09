// Package cloudtest is the conformance suite for adapters that list, measure or observe a cloud.
// The rest of curfew relies on its properties: resources are identified, described and dated in one
// vocabulary, everything unreadable is reported, and repeated observations are equal.
package cloudtest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
)

// Cloud is the provider under test. If it also implements [usage.Source], its measurements are
// compared with the observations of a round; otherwise observations must have no usage.
type Cloud interface{ round.Lister }

// observer is implemented by a test double that makes observations itself.
type observer interface {
	Observe(ctx context.Context, q round.Query) (*round.Observation, error)
}

// Case is a cloud under test with known facts about its account, which must not change during the
// run.
type Case struct {
	// New returns a new client of the same account. It is called several times.
	New func(tb testing.TB) Cloud
	// Query is the query; Now is required, a zero Window means 14 days.
	Query round.Query
	// Tags is the mapping that the observer applies.
	Tags inventory.TagMapping
	// Holds are resources that the account contains.
	Holds []inventory.Ref
	// Lacks are resources that must not be reported: deleted, or of another account.
	Lacks []inventory.Ref
	// Kinds must each be seen at least once.
	Kinds []inventory.Kind
	// Unreadable is true if something cannot be read, which requires a blind spot. Otherwise there
	// must be none.
	Unreadable bool
	// Calls is true if the observer calls an API that counts calls.
	Calls bool
	// Prompt bounds the time in which a canceled observation must return; 2 seconds if zero.
	Prompt time.Duration
}

// defaultWindow replaces a zero Query.Window.
const defaultWindow = 14 * 24 * time.Hour

// longWindow is the maximum lookback for meters of gateways and reservations, regardless of the
// query: 30 days without a byte is the usual limit for an unused gateway.
const longWindow = 30 * 24 * time.Hour

// Run checks every property of an observation, each in a subtest.
func Run(t *testing.T, c Case) {
	t.Helper()
	s, err := observe(t.Context(), t, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range properties {
		t.Run(p.name, func(t *testing.T) { p.check(t, s) })
	}
}

// subject holds the observations to check.
type subject struct {
	Case
	ctx      context.Context
	first    *round.Observation
	second   *round.Observation
	progress []round.Progress
	byRef    map[inventory.Ref]*inventory.Resource
}

// observe observes the account twice, with two observers.
func observe(ctx context.Context, tb testing.TB, c Case) (*subject, error) {
	if c.Query.Now.IsZero() {
		return nil, errors.New("a conformance case needs Query.Now")
	}
	if c.Query.Window == 0 {
		c.Query.Window = defaultWindow
	}
	if c.Prompt == 0 {
		c.Prompt = 2 * time.Second
	}
	s := &subject{Case: c, ctx: ctx, byRef: map[inventory.Ref]*inventory.Resource{}}
	q := c.Query
	var log progressLog
	q.Progress = log.add
	var err error
	if s.first, err = Observe(ctx, c.New(tb), q); err != nil {
		return nil, err
	}
	if s.second, err = Observe(ctx, c.New(tb), c.Query); err != nil {
		return nil, err
	}
	if s.first == nil || s.second == nil {
		return nil, errors.New("an observer returned neither an observation nor an error")
	}
	s.progress = log.all()
	for _, o := range []*round.Observation{s.first, s.second} {
		// Nil entries are reported by the identities property; the other properties ignore them.
		if i := slices.Index(o.Resources, nil); i >= 0 {
			tb.Errorf("resource %d is nil", i)
			o.Resources = slices.DeleteFunc(o.Resources, func(r *inventory.Resource) bool { return r == nil })
		}
		o.Sort()
	}
	for _, r := range s.first.Resources {
		s.byRef[r.Ref()] = r
	}
	return s, nil
}

// property is a property of every observation.
type property struct {
	name  string
	check func(tb testing.TB, s *subject)
}

// properties are in a useful reading order for a new adapter.
var properties = []property{
	{"identities are complete and unique", identities},
	{"the account holds what it is known to hold", contents},
	{"kinds are in the vocabulary and have their own detail", kinds},
	{"states are in the vocabulary", states},
	{"times are UTC and not in the future", times},
	{"quantities are not negative", quantities},
	{"tags are read or a blind spot says why", tagsRead},
	{"owners follow from the tags", owners},
	{"references resolve", references},
	{"windows are of what exists and within bounds", windows},
	{"blind spots say what, why and to what effect", blindSpots},
	{"kinds that were not read are blind spots", unread},
	{"calls are counted", calls},
	{"progress is told and only grows", progress},
	{"two observations are equal", deterministic},
	{"two observations share nothing", independent},
	{"a list holds what is observed", listed},
	{"listing some lists those", listsSubset},
	{"lists and points come to observations", folded},
	{"points come in order", inOrder},
	{"one resource is measured as among others", alone},
	{"an interval is measured in parts", inParts},
	{"what is not wanted is not measured", unwanted},
	{"a canceled measurement returns", measuringCanceled},
	{"a canceled observation returns", canceled},
	{"an observation canceled on its way returns", interrupted},
}

// kindDetails maps every kind of an account to its detail type.
var kindDetails = map[inventory.Kind]reflect.Type{
	inventory.KindAddress:             reflect.TypeFor[*inventory.Address](),
	inventory.KindAutoScalingGroup:    reflect.TypeFor[*inventory.AutoScalingGroup](),
	inventory.KindBucket:              reflect.TypeFor[*inventory.Bucket](),
	inventory.KindCache:               reflect.TypeFor[*inventory.Database](),
	inventory.KindCapacityReservation: reflect.TypeFor[*inventory.CapacityReservation](),
	inventory.KindCluster:             reflect.TypeFor[*inventory.Cluster](),
	inventory.KindCommitment:          reflect.TypeFor[*inventory.Commitment](),
	inventory.KindDatabase:            reflect.TypeFor[*inventory.Database](),
	inventory.KindEndpoint:            reflect.TypeFor[*inventory.Endpoint](),
	inventory.KindFileSystem:          reflect.TypeFor[*inventory.FileSystem](),
	inventory.KindHyperPod:            reflect.TypeFor[*inventory.HyperPod](),
	inventory.KindImage:               reflect.TypeFor[*inventory.Image](),
	inventory.KindInstance:            reflect.TypeFor[*inventory.Instance](),
	inventory.KindLoadBalancer:        reflect.TypeFor[*inventory.LoadBalancer](),
	inventory.KindLogGroup:            reflect.TypeFor[*inventory.LogGroup](),
	inventory.KindNATGateway:          reflect.TypeFor[*inventory.NATGateway](),
	inventory.KindNode:                nil,
	inventory.KindNotebook:            reflect.TypeFor[*inventory.Notebook](),
	inventory.KindPod:                 nil,
	inventory.KindRepository:          reflect.TypeFor[*inventory.Repository](),
	inventory.KindSecret:              reflect.TypeFor[*inventory.Secret](),
	inventory.KindSnapshot:            reflect.TypeFor[*inventory.Snapshot](),
	inventory.KindTable:               reflect.TypeFor[*inventory.Table](),
	inventory.KindTrainingJob:         reflect.TypeFor[*inventory.TrainingJob](),
	inventory.KindVolume:              reflect.TypeFor[*inventory.Volume](),
	inventory.KindWarehouse:           reflect.TypeFor[*inventory.Database](),
	inventory.KindVPCEndpoint:         reflect.TypeFor[*inventory.VPCEndpoint](),
}

// vocabulary is the set of all states.
var vocabulary = []inventory.State{
	inventory.StateUnknown, inventory.StatePending, inventory.StateRunning, inventory.StateStopping,
	inventory.StateStopped,
	inventory.StateAvailable, inventory.StateInUse, inventory.StateDisabled, inventory.StateFailed,
	inventory.StateDeleting,
}
