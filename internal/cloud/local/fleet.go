// Package local observes on-premises machines: servers that the configuration lists with
// their sizes and rates. Recorded usage alone tells their duty. No interface stops them,
// so findings about them are advice.
//
// Nodes of a Kubernetes cluster can be listed in the same way.
package local

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
	"github.com/curfew-dev/curfew/internal/round"
)

// The cloud and the account of every machine, and the site of one that names none.
const (
	OnPremises  = "onprem"
	Account     = "own"
	DefaultSite = "onprem"
)

// advice takes the place of fixes: only a person carries it out.
var advice = finding.Advice{
	End: "curfew acts on no machine of yours: give it to other work, power it down or hand it back; its rate is " +
		"charged while it is listed",
	Spare: "curfew acts on no machine of yours: schedule other work on the GPUs that rest",
	Tag:   "write the tags under machines in curfew.yaml; its cost can then be attributed",
}

// FleetOptions say which machines there are and what they cost.
type FleetOptions struct {
	Machines Machines
	Rates    Rates
	// Tags says which tags name the owner.
	Tags inventory.TagMapping
	// Sessions is this computer as a provider of sessions, where it is one: what its sessions
	// are charged is not charged to the listed machine as well.
	Sessions *Provider
	// Prices is where GPUs are known by their other names ("H100" is "H100-80GB"); nil
	// takes each by the name it has.
	Prices *price.Book
}

// Fleet is the machines that are listed. It satisfies round.Lister, never changes, and is
// safe for concurrent use.
type Fleet struct {
	tags     inventory.TagMapping
	rates    tariff
	sessions *Provider
	sites    []string
	machines []*inventory.Resource // by site, then by name; copied for every observation
}

var _ round.Lister = (*Fleet)(nil)

// NewFleet returns the machines that the options list. What is wrong with them, or with the
// rates, is a *FieldError.
func NewFleet(o FleetOptions) (*Fleet, error) {
	if err := o.Machines.Validate(o.Rates); err != nil {
		return nil, fmt.Errorf("machines%w", err) // machines[2].gpus: …
	}
	rates, err := newTariff(o.Prices, o.Rates)
	if err != nil {
		return nil, err
	}
	f := &Fleet{tags: o.Tags, rates: rates, sessions: o.Sessions}
	for _, m := range o.Machines {
		m.GPU = canonical(o.Prices, m.GPU)
		since, err := m.since()
		if err != nil {
			return nil, err
		}
		for _, name := range m.names() {
			r := &inventory.Resource{
				ID: name, Name: name, Kind: inventory.KindInstance, Cloud: OnPremises, Account: Account,
				Region: cmp.Or(m.Site, DefaultSite),
				// when it last booted is not known
				Type: m.kind(), State: inventory.StateRunning, StateSince: since, Tags: m.Tags,
			}
			r.Size = m.size()
			r.Meters = []inventory.Meter{rates.meter(OnPremises, r.Size)}
			f.machines = append(f.machines, r)
			f.sites = append(f.sites, r.Region)
		}
	}
	slices.SortFunc(f.machines, func(a, b *inventory.Resource) int { return inventory.CompareRefs(a.Ref(), b.Ref()) })
	slices.Sort(f.sites)
	f.sites = slices.Compact(f.sites)
	return f, nil
}

// rest is what this computer is charged for besides its sessions: its price, less theirs.
func (f *Fleet) rest(m *inventory.Resource) ([]inventory.Meter, error) {
	whole, err := f.rates.hour(m.Size)
	if err != nil {
		return m.Meters, nil //nolint:nilerr // the meter says that it has no price
	}
	given, err := f.sessions.charged()
	if err != nil {
		return nil, err
	}
	out := slices.Clone(m.Meters)
	if given > 0 {
		out[0].Quantity, out[0].Per = money.HoursPerMonth*int64(max(0, whole-given)), int64(whole)
		out[0].Estimate += ", less what sessions on it are charged"
	}
	return out, nil
}

// canonical is the name under which the book knows a GPU, or the one it was given.
func canonical(book *price.Book, gpu string) string {
	if book != nil {
		if a, ok := book.Accelerator(gpu); ok {
			return a.Name
		}
	}
	return gpu
}

// size is what the configuration says of it; what it leaves out is not known, but for GPUs.
func (m Machine) size() inventory.Size {
	s := inventory.Size{GPUs: inventory.Known(int(m.GPUs)), GPU: m.GPU}
	if m.VCPUs > 0 {
		s.MilliCPUs = inventory.Known(m.VCPUs * 1000)
	}
	if m.MemoryGiB > 0 {
		s.MemoryMiB = inventory.Known(m.MemoryGiB * 1024)
	}
	return s
}

// Sizes are those of the machines by what stands for their type.
func (f *Fleet) Sizes() map[string]inventory.Size {
	out := map[string]inventory.Size{}
	for _, m := range f.machines {
		out[m.Type] = m.Size
	}
	return out
}

// kind is what stands for a machine type: "8xH100-80GB", "64xCPU". It begins with a
// digit, so no cloud's machine type is taken for it.
func (m Machine) kind() string {
	if m.GPUs > 0 {
		return strconv.FormatInt(m.GPUs, 10) + "x" + m.GPU
	}
	return strconv.FormatInt(m.VCPUs, 10) + "xCPU"
}

// List lists the machines that are there at q.Now, all of them running: no
// source states more. It returns an error where a machine of another cloud is to be read, ctx's
// error when ctx ends, and no other.
func (f *Fleet) List(ctx context.Context, q round.Query) (*round.Observation, error) {
	for ref := range q.Only {
		if ref.Cloud != OnPremises || ref.Account != Account {
			return nil, fmt.Errorf("read %s again: it is not one of the machines that are listed", ref)
		}
	}
	obs := &round.Observation{
		Cloud: OnPremises, Accounts: []string{Account}, Regions: slices.Clone(f.sites), Unread: map[string]bool{},
		CommitmentsKnown: true, Advice: &advice,
	}
	for i, site := range f.sites {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, m := range f.machines {
			if m.Region != site || m.StateSince.After(q.Now) || (q.Kinds != nil && !q.Kinds[m.Kind]) ||
				(q.Only != nil && !q.Only[m.Ref()]) {
				continue
			}
			r := *m
			r.Detail, r.Tags = &inventory.Instance{}, maps.Clone(m.Tags)
			if f.sessions != nil && f.sessions.Account() == m.Name {
				var err error
				if r.Meters, err = f.rest(m); err != nil {
					return nil, err
				}
			}
			if r.Tags == nil {
				r.Tags = map[string]string{} // it has none, which is known
			}
			if err := f.tags.Apply(&r); err != nil {
				obs.BlindSpots = append(obs.BlindSpots, inventory.BlindSpot{
					What: "tag of " + r.ID, Why: err.Error(), Effect: "the machine is kept until the tag is corrected",
				})
			}
			obs.Resources = append(obs.Resources, &r)
		}
		if q.Progress != nil {
			q.Progress(round.Progress{
				What: site + " machines", Done: i + 1, Total: len(f.sites), Resources: len(obs.Resources),
			})
		}
	}
	obs.Sort()
	return obs, ctx.Err()
}
