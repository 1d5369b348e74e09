// Package local observes on-premises machines that the configuration lists with sizes and rates,
// and runs sessions on this machine. Listed machines have no control interface, so findings about
// them are advice only, and their duty comes from recorded usage.
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

// Cloud and account of every machine, and the default site.
const (
	OnPremises  = "onprem"
	Account     = "own"
	DefaultSite = "onprem"
)

// manualAdvice replaces fixes, because only a person can act on these machines.
var manualAdvice = finding.Advice{
	End: "curfew acts on no machine of yours: give it to other work, power it down or hand it back; its rate is " +
		"charged while it is listed",
	Spare: "curfew acts on no machine of yours: schedule other work on the GPUs that rest",
	Tag:   "write the tags under machines in curfew.yaml; its cost can then be attributed",
}

// FleetOptions list the machines and their prices.
type FleetOptions struct {
	Machines Machines
	Rates    Rates
	// Tags maps tags to owners.
	Tags inventory.TagMapping
	// Sessions is this computer's session provider, if any: charges of its sessions are subtracted
	// from the listed machine.
	Sessions *Provider
	// Prices knows alternative GPU names ("H100" is "H100-80GB"); nil uses names unchanged.
	Prices *price.Book
}

// Fleet is the list of machines. It implements round.Lister, is immutable and safe for concurrent
// use.
type Fleet struct {
	tags     inventory.TagMapping
	rates    tariff
	sessions *Provider
	sites    []string
	machines []*inventory.Resource // by site, then by name; copied for every observation
}

var _ round.Lister = (*Fleet)(nil)

// NewFleet returns the listed machines. Invalid machines or rates are a *FieldError.
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
		m.GPU = canonicalGPU(o.Prices, m.GPU)
		since, err := m.since()
		if err != nil {
			return nil, err
		}
		for _, name := range m.hostNames() {
			r := &inventory.Resource{
				ID: name, Name: name, Kind: inventory.KindInstance, Cloud: OnPremises, Account: Account,
				Region: cmp.Or(m.Site, DefaultSite),
				// the boot time is unknown
				Type: m.typeName(), State: inventory.StateRunning, StateSince: since, Tags: m.Tags,
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

// chargeWithoutSessions returns the charge for this computer minus that of its sessions.
func (f *Fleet) chargeWithoutSessions(m *inventory.Resource) ([]inventory.Meter, error) {
	whole, err := f.rates.hour(m.Size)
	if err != nil {
		return m.Meters, nil //nolint:nilerr // the meter says that it has no price
	}
	given, err := f.sessions.chargedRate()
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

// canonicalGPU returns the book's name of a GPU, or the name itself.
func canonicalGPU(book *price.Book, gpu string) string {
	if book != nil {
		if a, ok := book.Accelerator(gpu); ok {
			return a.Name
		}
	}
	return gpu
}

// size returns the configured size; omitted values are unknown, except GPUs.
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

// Sizes returns the sizes by type name.
func (f *Fleet) Sizes() map[string]inventory.Size {
	out := map[string]inventory.Size{}
	for _, m := range f.machines {
		out[m.Type] = m.Size
	}
	return out
}

// typeName returns a substitute for a machine type: "8xH100-80GB", "64xCPU". The leading digit
// distinguishes it from cloud machine types.
func (m Machine) typeName() string {
	if m.GPUs > 0 {
		return strconv.FormatInt(m.GPUs, 10) + "x" + m.GPU
	}
	return strconv.FormatInt(m.VCPUs, 10) + "xCPU"
}

// List returns the machines that exist at q.Now, all of them running. Its only errors are a request
// for another cloud and the context's error.
func (f *Fleet) List(ctx context.Context, q round.Query) (*round.Observation, error) {
	for ref := range q.Only {
		if ref.Cloud != OnPremises || ref.Account != Account {
			return nil, fmt.Errorf("read %s again: it is not one of the machines that are listed", ref)
		}
	}
	obs := &round.Observation{
		Cloud: OnPremises, Accounts: []string{Account}, Regions: slices.Clone(f.sites), Unread: map[string]bool{},
		CommitmentsKnown: true, Advice: &manualAdvice,
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
				if r.Meters, err = f.chargeWithoutSessions(m); err != nil {
					return nil, err
				}
			}
			if r.Tags == nil {
				r.Tags = map[string]string{} // known to have no tags
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
