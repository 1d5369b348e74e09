// Package sim is a simulated cloud account: the machines, disks, buckets and
// services of a machine-learning company of three teams, with thirty days of
// usage, waste of every kind and honest work with it. It ships with curfew and
// drives its demonstration; nothing in it costs anything.
//
// It has two halves. The behavior of a machine at a moment is a pure function of
// the seed, the machine and the time ([Cloud.At]). What is measured ([Cloud.Measure])
// looks at that behavior the way a metrics service does, rolled up by the step.
// The same seed and time always give the same account, on every machine.
package sim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/price/aws"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Cloud and account names of everything simulated.
const (
	CloudName = "sim"
	Account   = "000000000000"
)

// Regions of the account, in order.
func Regions() []string { return []string{east, west, ireland} }

const (
	east    = "us-east-1"
	west    = "us-west-2"
	ireland = "eu-west-1"
)

// Options choose the account to simulate.
type Options struct {
	// Seed varies identifiers and everything random. Any value will do.
	Seed uint64
	// Now is the moment for which the account is laid out: ages are counted back
	// from it. It is required.
	Now time.Time
	// Tags maps tags to owners; empty means inventory.DefaultTagMapping.
	Tags inventory.TagMapping
	// BlindSpots are things that cannot be read, as when permissions are missing.
	// There are none by default.
	BlindSpots []Blindness
	// Deaf are resources of which the provider accepts whatever is asked and never does
	// it. There are none by default.
	Deaf []inventory.Ref
}

// Blindness is one thing that cannot be read.
type Blindness struct {
	// Region where it cannot be read; empty for all regions.
	Region string
	// Kind that cannot be listed. Empty means that nothing measured can be read.
	Kind inventory.Kind
}

// Cloud is a simulated account. It is a [round.Lister] and a [usage.Source], and safe for
// concurrent use. What its [Actions] have done to it shows.
type Cloud struct {
	options Options

	mu         sync.Mutex
	operations []operation // in their order
	launched   []*launched
}

var (
	_ round.Lister = (*Cloud)(nil)
	_ usage.Source = (*Cloud)(nil)
)

// New returns the account that the options describe.
func New(o Options) *Cloud {
	o.Now = o.Now.UTC()
	o.BlindSpots, o.Deaf = slices.Clone(o.BlindSpots), slices.Clone(o.Deaf)
	if unmapped(o.Tags) {
		o.Tags = inventory.DefaultTagMapping()
	}
	return &Cloud{options: o}
}

// unmapped reports whether a mapping names no tag at all.
func unmapped(m inventory.TagMapping) bool {
	return len(m.Team)+len(m.Project)+len(m.User)+len(m.Environment)+len(m.CostCenter)+
		len(m.Purpose)+len(m.Lifetime) == 0
}

// List reads the account at q.Now, or at the time it was laid out for when that is zero.
// At an earlier time, what was created later is not there yet and what was stopped later
// still runs; at a later time everything has gone on as it was. What the account holds is
// built for every call, and the caller may change it. A kind that cannot be listed is
// unread.
//
// It returns an error where a resource of another account is to be read, ctx's error when
// ctx ends, and no other.
func (c *Cloud) List(ctx context.Context, q round.Query) (*round.Observation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for ref := range q.Only {
		if ref.Cloud != CloudName || ref.Account != Account {
			return nil, fmt.Errorf("read %s again: it is not in this account", ref)
		}
	}
	now := q.Now.UTC()
	if q.Now.IsZero() {
		now = c.options.Now
	}
	c.mu.Lock()
	entries := c.at(now).entries
	c.mu.Unlock()
	entries = slices.DeleteFunc(entries, func(e *entry) bool {
		return q.Only != nil && !q.Only[e.resource.Ref()] || q.Kinds != nil && !q.Kinds[e.resource.Kind]
	})
	obs := &round.Observation{
		Cloud: CloudName, Accounts: []string{Account}, Regions: Regions(), Unread: map[string]bool{},
		CommitmentsKnown: q.Only == nil && (q.Kinds == nil || q.Kinds[inventory.KindCommitment]),
	}
	c.blind(obs, &entries)
	for i, region := range obs.Regions {
		for _, e := range entries {
			if e.resource.Region == region {
				if err := c.options.Tags.Apply(e.resource); err != nil {
					obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{
						What: "tag of " + e.resource.ID, Why: err.Error(), Effect: "the resource is kept without end"})
				}
				obs.Resources = append(obs.Resources, e.resource)
			}
		}
		if q.Progress != nil {
			q.Progress(round.Progress{
				What: region + " resources", Done: i + 1, Total: len(obs.Regions), Resources: len(obs.Resources),
			})
		}
	}
	obs.Sort()
	return obs, ctx.Err()
}

// at returns the existing resources at a time, in their state at that time, with the operations
// applied and without dangling references. The caller holds the lock.
func (c *Cloud) at(now time.Time) *world {
	w := &world{now: now}
	for _, e := range layout(c.options.Seed, c.options.Now).entries {
		r := e.resource
		if r.CreatedAt.After(now) {
			continue
		}
		if r.StateSince.After(now) {
			r.StateSince = r.CreatedAt
			if r.State == inventory.StateStopped {
				r.State = inventory.StateRunning
			}
		}
		w.entries = append(w.entries, e)
	}
	w.entries = append(w.entries, c.launchedEntries(now)...)
	w.enact(c.operations)
	there := map[presence]bool{}
	for _, e := range w.entries {
		there[presence{e.resource.Kind, e.resource.ID}] = true
	}
	resources := make([]*inventory.Resource, len(w.entries))
	for i, e := range w.entries {
		e.prune(now, there)
		resources[i] = e.resource
	}
	aws.Attach(resources) // it has AWS's offers
	return w
}

// blind leaves out resources that cannot be listed, and records them.
func (c *Cloud) blind(obs *round.Observation, entries *[]*entry) {
	for _, b := range c.options.BlindSpots {
		for _, region := range obs.Regions {
			if b.Kind == "" || b.Region != "" && b.Region != region {
				continue
			}
			if unread := Account + "/" + region + "/" + string(b.Kind); !obs.Unread[unread] {
				obs.Unread[unread] = true
				obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{
					What:   fmt.Sprintf("%s in %s", b.Kind, region),
					Why:    "AccessDenied: " + string(b.Kind),
					Effect: fmt.Sprintf("no %s of %s is judged", b.Kind, region)})
			}
			if b.Kind == inventory.KindCommitment {
				obs.CommitmentsKnown = false
			}
			*entries = slices.DeleteFunc(*entries, func(e *entry) bool {
				return e.resource.Kind == b.Kind && e.resource.Region == region
			})
			if b.Kind == inventory.KindImage {
				for _, e := range *entries {
					if s, ok := e.resource.Detail.(*inventory.Snapshot); ok && e.resource.Region == region {
						s.Images, s.ImagesKnown = nil, false
					}
				}
			}
		}
	}
}

// At returns the state of a resource with a behavior at a time; false if it has none, or does not
// run then. It depends only on the account's options, the resource and the time.
func (c *Cloud) At(ref inventory.Ref, at time.Time) (State, bool) {
	for _, e := range layout(c.options.Seed, c.options.Now).entries {
		if e.resource.Ref() == ref {
			return e.at(at.UTC())
		}
	}
	return State{}, false
}
