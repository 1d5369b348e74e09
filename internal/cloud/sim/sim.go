// Package sim is a simulated cloud account: the machines, disks, buckets and
// services of a machine-learning company of three teams, with thirty days of
// usage, waste of every kind and honest work beside it. It ships with curfew and
// drives its demonstration; nothing in it costs anything.
//
// It has two halves. The behaviour of a machine at a moment is a pure function of
// the seed, the machine and the time ([Cloud.At]). The observation ([Cloud.Observe])
// looks at that behaviour the way a metrics service does, rolled up by the hour.
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

// Options say which account to simulate.
type Options struct {
	// Seed varies identifiers and everything random. Any value will do.
	Seed uint64
	// Now is the moment for which the account is laid out: ages are counted back
	// from it. It is required.
	Now time.Time
	// Tags says which tags name the owner; empty means inventory.DefaultTagMapping.
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

// Cloud is a simulated account. It satisfies round.Observer and is safe for
// concurrent use. What its [Actions] have done to it shows.
type Cloud struct {
	options Options

	mu    sync.Mutex
	deeds []deed // in their order
}

var _ round.Observer = (*Cloud)(nil)

// New returns the account that the options describe.
func New(o Options) *Cloud {
	o.Now = o.Now.UTC()
	o.BlindSpots, o.Deaf = slices.Clone(o.BlindSpots), slices.Clone(o.Deaf)
	if unmapped(o.Tags) {
		o.Tags = inventory.DefaultTagMapping()
	}
	return &Cloud{options: o}
}

// unmapped says whether a mapping names no tag at all.
func unmapped(m inventory.TagMapping) bool {
	return len(m.Team)+len(m.Project)+len(m.User)+len(m.Environment)+len(m.CostCenter)+len(m.Purpose)+len(m.Lifetime) == 0
}

// DefaultWindow is how far back usage is read when a query does not say.
const DefaultWindow = 14 * 24 * time.Hour

// Observe reads the account at q.Now, or at the time it was laid out for when
// that is zero. At an earlier time, what was made later is not there yet and what
// was stopped later still runs; at a later time everything has gone on as it was.
// What the account holds is made anew for every call, and the caller may change it.
//
// It returns ctx's error when ctx ends, and no other.
func (c *Cloud) Observe(ctx context.Context, q round.Query) (*round.Observation, error) {
	return c.observe(ctx, q, nil)
}

// Recheck reads these resources again as Observe reads all of them: what is not there
// any more is absent, a kind that cannot be listed is unread. What is measured of a short
// window is rolled up by five minutes instead of by the hour. It returns an error for
// a resource of another account, and ctx's error when ctx ends.
func (c *Cloud) Recheck(ctx context.Context, refs []inventory.Ref, q round.Query) (*round.Observation, error) {
	only := make(map[inventory.Ref]bool, len(refs))
	for _, ref := range refs {
		if ref.Cloud != CloudName || ref.Account != Account {
			return nil, fmt.Errorf("read %s again: it is not in this account", ref)
		}
		only[ref] = true
	}
	return c.observe(ctx, q, only)
}

// observe looks at the account, or only at some of it.
func (c *Cloud) observe(ctx context.Context, q round.Query, only map[inventory.Ref]bool) (*round.Observation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	now := q.Now.UTC()
	if q.Now.IsZero() {
		now = c.options.Now
	}
	window := q.Window
	if window <= 0 {
		window = DefaultWindow
	}
	c.mu.Lock()
	entries := c.at(now).entries
	c.mu.Unlock()
	entries = slices.DeleteFunc(entries, func(e *entry) bool {
		return only != nil && !only[e.resource.Ref()] || q.Kinds != nil && !q.Kinds[e.resource.Kind]
	})
	obs := &round.Observation{
		Cloud: CloudName, Accounts: []string{Account}, Regions: Regions(),
		Windows: map[inventory.Ref]*usage.Window{}, Unread: map[string]bool{},
		CommitmentsKnown: only == nil && (q.Kinds == nil || q.Kinds[inventory.KindCommitment]),
	}
	measured := c.blind(obs, &entries)
	done, total := 0, 2*len(obs.Regions)
	report := func(what string) {
		done++
		if q.Progress != nil {
			q.Progress(round.Progress{What: what, Done: done, Total: total, Resources: len(obs.Resources)})
		}
	}
	for _, region := range obs.Regions {
		for _, e := range entries {
			if e.resource.Region == region {
				if err := c.options.Tags.Apply(e.resource); err != nil {
					obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{
						What: "tag of " + e.resource.ID, Why: err.Error(), Effect: "the resource is kept for ever"})
				}
				obs.Resources = append(obs.Resources, e.resource)
			}
		}
		report(region + " resources")
	}
	for _, region := range obs.Regions {
		for _, e := range entries {
			if e.resource.Region != region || !measured(region) {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if w := e.window(now, window, q.Floors); w != nil {
				obs.Windows[e.resource.Ref()] = w
			}
		}
		report(region + " usage")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	obs.Sort()
	return obs, nil
}

// at returns what exists at a time, in the state it then has, with what was done to it
// and with references to nothing else. The caller holds the lock.
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
	w.enact(c.deeds)
	there := map[presence]bool{}
	for _, e := range w.entries {
		there[presence{e.resource.Kind, e.resource.ID}] = true
	}
	resources := make([]*inventory.Resource, len(w.entries))
	for i, e := range w.entries {
		e.prune(now, there)
		resources[i] = e.resource
	}
	aws.Attach(resources) // it sells what AWS does
	return w
}

// blind leaves out what cannot be read, records it, and returns whether usage can
// be read in a region.
func (c *Cloud) blind(obs *round.Observation, entries *[]*entry) (measured func(region string) bool) {
	dark := map[string]bool{}
	for _, b := range c.options.BlindSpots {
		for _, region := range obs.Regions {
			if b.Region != "" && b.Region != region {
				continue
			}
			if b.Kind == "" {
				if !dark[region] {
					dark[region] = true
					obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{What: "usage in " + region,
						Why: "AccessDenied: metrics", Effect: "rules that need usage are not evaluated in " + region})
				}
				continue
			}
			if unread := Account + "/" + region + "/" + string(b.Kind); !obs.Unread[unread] {
				obs.Unread[unread] = true
				obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{What: fmt.Sprintf("%s in %s", b.Kind, region),
					Why: "AccessDenied: " + string(b.Kind), Effect: fmt.Sprintf("no %s of %s is judged", b.Kind, region)})
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
	return func(region string) bool { return !dark[region] }
}

// At returns what a resource with a behaviour does at a time, and whether it has
// one and is running then. It depends on nothing but the account's options, the
// resource and the time.
func (c *Cloud) At(ref inventory.Ref, at time.Time) (State, bool) {
	for _, e := range layout(c.options.Seed, c.options.Now).entries {
		if e.resource.Ref() == ref {
			return e.at(at.UTC())
		}
	}
	return State{}, false
}
