package cloudtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

var now = time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC)

// recorder replaces a test to record the suite's complaints. It embeds the real test for everything
// else.
type recorder struct {
	testing.TB
	mu         sync.Mutex
	complaints []string
}

func (r *recorder) Helper() {}

func (r *recorder) Error(args ...any) { r.record(fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) { r.record(fmt.Sprintf(format, args...)) }

func (r *recorder) record(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complaints = append(r.complaints, s)
}

// account is an observer of a small account, with hooks to break it.
type account struct {
	tags inventory.TagMapping
	// spoil changes each observation before it is returned.
	spoil func(*round.Observation)
	// instead, if set, replaces the observation.
	instead func(ctx context.Context, q round.Query) (*round.Observation, error)
	// spoilList modifies each list. spoilPoint modifies each point and reports whether to deliver
	// it.
	spoilList  func(*round.Observation, round.Query)
	spoilPoint func(resources []*inventory.Resource, iv usage.Interval, o *usage.SourceInfo, p *usage.Point) bool
	// measure, if set, replaces the measurement.
	measure func(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
		open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error)
}

func (a *account) Name() string { return "test" }

func (a *account) List(ctx context.Context, q round.Query) (*round.Observation, error) {
	for ref := range q.Only {
		if ref.Cloud != "test" && a.spoilList == nil {
			return nil, fmt.Errorf("%s is of another cloud", ref)
		}
	}
	o := sample(a.tags, q)
	o.Windows, o.Calls = nil, o.Calls[1:]
	if q.Only != nil {
		o.Resources = slices.DeleteFunc(o.Resources, func(r *inventory.Resource) bool { return !q.Only[r.Ref()] })
	}
	if a.spoilList != nil {
		a.spoilList(o, q)
	}
	return o, ctx.Err()
}

func (a *account) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) (usage.MeasureResult, error) {
	if a.measure != nil {
		return a.measure(ctx, resources, iv, open)
	}
	if len(resources) == 0 || resources[0].Cloud != "test" {
		return usage.MeasureResult{}, ctx.Err()
	}
	hand(resources, iv, open, a.spoilPoint)
	return usage.MeasureResult{Calls: []inventory.Calls{measuring}}, ctx.Err()
}

// measuring is the number of calls for measuring the account.
var measuring = inventory.Calls{API: "cloudwatch:GetMetricData", Count: 1, Units: 20, Cost: 200_000}

// hand delivers the measurements of the account's machine: a point every full hour.
func hand(resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink,
	spoil func([]*inventory.Resource, usage.Interval, *usage.SourceInfo, *usage.Point) bool,
) {
	for _, r := range resources {
		if r == nil || r.Kind != inventory.KindInstance {
			continue
		}
		o := usage.SourceInfo{From: iv.From, Step: time.Hour, Source: "test"}
		var pt usage.Point
		if spoil != nil && !spoil(resources, iv, &o, &pt) {
			continue
		}
		to := open(r, o)
		if to == nil {
			continue
		}
		for _, x := range []struct {
			gpu       string
			signal    usage.Signal
			mean, max float64
		}{{"", usage.CPUUtil, 3, 4}, {"0", usage.GPUUtil, 90, 97}} {
			at := iv.From.Truncate(time.Hour)
			if at.Before(iv.From) {
				at = at.Add(time.Hour)
			}
			for ; at.Before(iv.To); at = at.Add(time.Hour) {
				pt := usage.Point{Time: at, Mean: x.mean, Max: x.max}
				if spoil == nil || spoil(resources, iv, &o, &pt) {
					to.Add(x.gpu, x.signal, pt)
				}
			}
		}
	}
}

func (a *account) Observe(ctx context.Context, q round.Query) (*round.Observation, error) {
	if a.instead != nil {
		return a.instead(ctx, q)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := sample(a.tags, q)
	if q.Progress != nil {
		q.Progress(round.Progress{What: "us-east-1 resources", Done: 1, Total: 2, Resources: 3})
		q.Progress(round.Progress{What: "us-east-1 usage", Done: 2, Total: 2, Resources: 3})
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if a.spoil != nil {
		a.spoil(o)
	}
	return o, nil
}

// sample is a valid observation with most kinds.
func sample(tags inventory.TagMapping, q round.Query) *round.Observation {
	made := q.Now.Add(-100 * 24 * time.Hour)
	o := &round.Observation{
		Cloud: "test", Accounts: []string{"1"}, Regions: []string{"us-east-1", "eu-west-1"},
		Windows: map[inventory.Ref]*usage.Window{}, Unread: map[string]bool{}, CommitmentsKnown: true,
		Calls: []round.Calls{measuring, {API: "ec2:DescribeInstances", Count: 1}},
	}
	add := func(kind inventory.Kind, id string, state inventory.State, d inventory.Detail) *inventory.Resource {
		r := &inventory.Resource{
			ID: id, Kind: kind, Cloud: "test", Account: "1", Region: "us-east-1", State: state, CreatedAt: made,
			Tags: map[string]string{"team": "vision", "purpose": "training"}, Detail: d}
		if err := tags.Apply(r); err != nil {
			panic(err)
		}
		o.Resources = append(o.Resources, r)
		return r
	}
	machine := add(inventory.KindInstance, "i-1", inventory.StateRunning, &inventory.Instance{
		Disks: []inventory.Disk{{VolumeID: "vol-1"}}, ImageID: "ami-public"})
	machine.Zone, machine.StateSince = "us-east-1a", made
	machine.Manager = inventory.Manager{Kind: inventory.ManagerAutoScaling, Name: "group"}
	add(inventory.KindVolume, "vol-1", inventory.StateInUse, &inventory.Volume{
		SizeGiB: 8, AttachedTo: []string{"i-1"},
	})
	add(inventory.KindVolume, "vol-2", inventory.StateAvailable, &inventory.Volume{SizeGiB: 8})
	add(inventory.KindSnapshot, "snap-1", inventory.StateAvailable, &inventory.Snapshot{
		VolumeID: "vol-gone", Images: []string{"ami-1"}, ImagesKnown: true,
	})
	add(inventory.KindImage, "ami-1", inventory.StateAvailable, &inventory.Image{
		SnapshotIDs: []string{"snap-1"}, LastLaunched: inventory.Known(made),
	})
	add(inventory.KindAddress, "eip-1", inventory.StateInUse, &inventory.Address{
		AssociationID: "a", InstanceID: "i-1",
	})
	add(inventory.KindAutoScalingGroup, "group", inventory.StateAvailable,
		&inventory.AutoScalingGroup{Max: 1, Desired: 1, Instances: []string{"i-1"}})
	add(inventory.KindBucket, "bucket", inventory.StateAvailable, &inventory.Bucket{
		Uploads: inventory.Known(inventory.Uploads{Count: 1, Oldest: made}),
		Prefixes: inventory.Known([]inventory.Prefix{
			{Name: "a/", Listing: inventory.Listing{Stored: inventory.Stored{Bytes: 100, Objects: 10}},
				Small: inventory.Stored{
					Bytes: 10, Objects: 5,
				}, OlderThan: map[int]inventory.Stored{30: {Bytes: 40, Objects: 4}},
				Newest: made, Oldest: made}})})
	add(inventory.KindNotebook, "notebook", inventory.StateRunning, &inventory.Notebook{
		LastModified: made, LastActivity: inventory.Known(made),
	})
	add(inventory.KindCapacityReservation, "cr-1", inventory.StateAvailable,
		&inventory.CapacityReservation{Total: 2, Available: 1})
	add(inventory.KindCommitment, "ri-1", inventory.StateRunning, &inventory.Commitment{
		StartsAt: made, EndsAt: q.Now.AddDate(1, 0, 0),
	})
	add(inventory.KindLoadBalancer, "lb-1", inventory.StateAvailable, &inventory.LoadBalancer{
		Targets: inventory.Known(2), HealthyTargets: inventory.Known(1),
	})
	add(inventory.KindRepository, "repo", inventory.StateAvailable, &inventory.Repository{
		Images: 3, UntaggedImages: 1, UnpulledImages: 1,
	})
	add(inventory.KindTrainingJob, "job", inventory.StateRunning, &inventory.TrainingJob{StartedAt: made})
	add(inventory.KindSecret, "secret", inventory.StateAvailable, nil)

	hand(o.Resources, usage.Interval{From: q.Now.Add(-q.Window), To: q.Now},
		func(_ *inventory.Resource, opened usage.SourceInfo) usage.Sink {
			w := usage.NewWindow(opened.From, q.Now, opened.Step, opened.Source, q.Floors)
			o.Windows[machine.Ref()] = w
			return w
		}, nil)
	return o
}

func valid() (Case, *account) {
	a := &account{tags: inventory.DefaultTagMapping()}
	return Case{
		New:   func(testing.TB) Cloud { return a },
		Query: round.Query{Now: now}, Tags: a.tags, Calls: true, Prompt: 50 * time.Millisecond,
		Holds: []inventory.Ref{
			{Cloud: "test", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-1"},
		},
		Lacks: []inventory.Ref{
			{Cloud: "test", Account: "1", Region: "us-east-1", Kind: inventory.KindInstance, ID: "i-gone"},
		},
		Kinds: []inventory.Kind{inventory.KindVolume},
	}, a
}

func TestValidObserverPasses(t *testing.T) {
	c, _ := valid()
	Run(t, c)
}

// of returns the first resource of a kind.
func of(o *round.Observation, kind inventory.Kind) *inventory.Resource {
	for _, r := range o.Resources {
		if r.Kind == kind {
			return r
		}
	}
	panic("no " + kind)
}

// detail returns the first detail of a type.
func detail[D inventory.Detail](o *round.Observation) D {
	for _, r := range o.Resources {
		if d, ok := r.Detail.(D); ok {
			return d
		}
	}
	panic("no such detail")
}

func window(o *round.Observation) *usage.Window {
	for _, w := range o.Windows {
		return w
	}
	panic("no window")
}
