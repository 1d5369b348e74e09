package finding

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/price"
)

// The largest discounts of savings plans off on-demand prices (AWS Savings Plans pricing pages: EC2
// instance plans up to 72%, compute plans up to 66%, SageMaker plans up to 64%), as the minimum
// cost of a dollar of on-demand usage in percent.
const (
	leastUnderEC2Plan       = 100 - 72
	leastUnderSageMakerPlan = 100 - 64
)

// fleet identifies the machines that a set of reserved instances can cover.
type fleet struct{ cloud, account, region, machineType, platform string }

// reserved counts the reserved and the running machines of a fleet.
type reserved struct {
	regional       int64
	zonal, running map[string]int64 // by zone
}

// uncovered returns the number of running machines without a reserved instance: zonal reservations
// cover machines of their zone first, regional ones any of the rest.
func (f *reserved) uncovered() int64 {
	var rest int64
	for zone, n := range f.running {
		rest += max(0, n-f.zonal[zone])
	}
	return max(0, rest-f.regional)
}

// regionalUnused returns the number of regional reserved instances without a machine.
func (f *reserved) regionalUnused() int64 {
	rest := f.regional
	for zone, n := range f.running {
		rest -= max(0, n-f.zonal[zone])
	}
	return max(0, rest)
}

// coverage holds the effect of commitments on the savings of machines.
type coverage struct {
	fleets map[fleet]*reserved
	// families maps cloud, account, region and family to the reserved types of size-flexible
	// regional reservations.
	families map[[4]string][]string
	// opaque holds types with reserved instances of an unknown platform.
	opaque map[[3]string]bool
	// owners maps cloud, region, type and platform to the accounts with reservations: an
	// organization shares those that its accounts do not use themselves.
	owners map[[4]string][]string
	// running counts on-demand machines by cloud, region, type and platform, and by account, if
	// something is reserved.
	running map[[4]string]map[string]int64
	plans   []*plan
	// toSpot holds the machines that a finding would move to spot, where no commitment applies.
	toSpot map[int32]bool
	// ended holds the machines that findings would end, in the order of findings, and whether that
	// lowers the bill.
	ended map[int32]bool
}

// plan is an active savings plan.
type plan struct {
	*inventory.Commitment
	id, account, region string
	monthly             money.Amount
	known               bool
}

// active reports whether a commitment is active.
func active(s *Subject, c *inventory.Commitment, now time.Time) bool {
	return !c.StartsAt.After(now) && (c.EndsAt.IsZero() || c.EndsAt.After(now)) &&
		s.State != inventory.StateDeleting && s.State != inventory.StateFailed && s.State != inventory.StateStopped
}

// onDemand returns the instance if commitments can apply to it: a running on-demand machine on
// shared hardware.
func onDemand(s *Subject) (*inventory.Instance, bool) {
	d, ok := s.Detail.(*inventory.Instance)
	return d, ok && s.State == inventory.StateRunning && d.Market == inventory.OnDemand &&
		d.Tenancy == inventory.SharedTenancy
}

func newCoverage(x *Index) coverage {
	c := coverage{fleets: map[fleet]*reserved{}, families: map[[4]string][]string{}, opaque: map[[3]string]bool{},
		owners: map[[4]string][]string{}, running: map[[4]string]map[string]int64{}, toSpot: map[int32]bool{},
		ended: map[int32]bool{}}
	found := false
	for i := range x.subjects {
		s := &x.subjects[i]
		d, ok := s.Detail.(*inventory.Commitment)
		if !ok || !active(s, d, x.Now) {
			continue
		}
		found = true
		if d.CommitmentType == inventory.ReservedInstances {
			c.reserve(s, d)
			continue
		}
		p := &plan{Commitment: d, id: s.ID, account: s.Account, region: s.Region}
		if hourly, known := d.Hourly.Get(); known {
			monthly, err := hourly.Monthly()
			p.monthly, p.known = monthly, err == nil
		}
		c.plans = append(c.plans, p)
	}
	if !found {
		return c
	}
	for i := range x.subjects {
		s := &x.subjects[i]
		if d, ok := onDemand(s); ok {
			if f := c.fleets[fleet{s.Cloud, s.Account, s.Region, s.Type, d.Platform}]; f != nil {
				f.running[s.Zone]++
			}
			if k := [4]string{s.Cloud, s.Region, s.Type, d.Platform}; c.owners[k] != nil {
				if c.running[k] == nil {
					c.running[k] = map[string]int64{}
				}
				c.running[k][s.Account]++
			}
		}
	}
	return c
}

func (c *coverage) reserve(s *Subject, d *inventory.Commitment) {
	if d.Platform == "" {
		c.opaque[[3]string{s.Account, s.Region, s.Type}] = true
		return
	}
	k := fleet{s.Cloud, s.Account, s.Region, s.Type, d.Platform}
	f := c.fleets[k]
	if f == nil {
		f = &reserved{zonal: map[string]int64{}, running: map[string]int64{}}
		c.fleets[k] = f
	}
	shared := [4]string{s.Cloud, s.Region, s.Type, d.Platform}
	if !slices.Contains(c.owners[shared], s.Account) {
		c.owners[shared] = append(c.owners[shared], s.Account)
	}
	if d.Zonal {
		f.zonal[s.Zone] += d.Count
		return
	}
	f.regional += d.Count
	if d.Platform == inventory.LinuxPlatform && price.SizeFlexible(s.Type) {
		k := [4]string{s.Cloud, s.Account, s.Region, price.Family(s.Type)}
		if !slices.Contains(c.families[k], s.Type) {
			c.families[k] = append(c.families[k], s.Type)
		}
	}
}

// elsewhere returns the number of machines of a fleet's type in other accounts without their own
// reserved instance: accounts of an organization share reservations, so the fleet's may cover them.
func (c *coverage) elsewhere(own fleet) (n int64) {
	for account, running := range c.running[[4]string{own.cloud, own.region, own.machineType, own.platform}] {
		if account == own.account {
			continue
		}
		other := own
		other.account = account
		if f := c.fleets[other]; f != nil {
			running = f.uncovered()
		}
		n += running
	}
	return n
}

// saves reports whether ending a machine lowers the bill. Of the ended machines of a fleet, those
// beyond the reserved number do, in the order of calls; ending the rest leaves a paid reserved
// instance unused.
func (c *coverage) saves(s *Subject) bool {
	d, ok := onDemand(s)
	if !ok {
		return true
	}
	f := c.fleets[fleet{s.Cloud, s.Account, s.Region, s.Type, d.Platform}]
	if f == nil {
		return true
	}
	saves, asked := c.ended[s.at]
	if !asked {
		before := f.uncovered()
		f.running[s.Zone]--
		saves = f.uncovered() < before
		c.ended[s.at] = saves
	}
	return saves
}

// committable reports whether commitments can apply to a resource's compute.
func committable(s *Subject) bool {
	switch s.Kind {
	case inventory.KindInstance:
		_, ok := onDemand(s)
		return ok
	case inventory.KindNotebook, inventory.KindEndpoint, inventory.KindCapacityReservation:
		return true
	case inventory.KindTrainingJob:
		j, ok := s.Detail.(*inventory.TrainingJob)
		return ok && !j.Spot
	}
	return false
}

// doubt marks the saving of a draft that claims compute as unknown if commitments make it so
// regardless of other findings.
func (x *Index) doubt(d *Draft) {
	for i := range d.claims {
		if d.Unknown != "" {
			return
		}
		if c := &d.claims[i]; c.savings && x.charge(c).Category == ledger.Compute {
			d.Unknown = x.uncertain(&x.subjects[c.subject])
		}
	}
}

// uncertain returns why the saving of ending s is unknown, or "".
func (x *Index) uncertain(s *Subject) string {
	if !committable(s) {
		return ""
	}
	if !x.account.CommitmentsKnown {
		return "savings plans and reserved instances could not be read; at list price"
	}
	machineType, platform := s.Type, inventory.LinuxPlatform
	if d, ok := s.Detail.(*inventory.CapacityReservation); ok {
		if d.Tenancy != inventory.SharedTenancy {
			return ""
		}
		platform = d.Platform
	}
	if d, ok := s.Detail.(*inventory.Instance); ok {
		if d.CapacityReservationID != "" {
			return "it runs in capacity reservation " + d.CapacityReservationID +
				", which is still charged until it is made smaller"
		}
		if d.Tenancy != inventory.SharedTenancy {
			return ""
		}
		platform = d.Platform
	}
	if s.Kind != inventory.KindInstance && s.Kind != inventory.KindCapacityReservation {
		return "" // reserved instances do not cover managed machines
	}
	for _, owner := range x.cover.owners[[4]string{s.Cloud, s.Region, machineType, platform}] {
		if owner != s.Account {
			return "reserved instances of account " + owner + " may cover it"
		}
	}
	if x.cover.opaque[[3]string{s.Account, s.Region, machineType}] {
		return "reserved instances of an unknown platform may cover it"
	}
	if platform != inventory.LinuxPlatform {
		return "" // only Linux reservations are size-flexible
	}
	for _, t := range x.cover.families[[4]string{s.Cloud, s.Account, s.Region, price.Family(machineType)}] {
		if t != machineType {
			return "reserved instances of " + t + " may cover it in part"
		}
		if s.Kind == inventory.KindCapacityReservation {
			return "reserved instances of " + t + " may cover the unused capacity"
		}
	}
	return ""
}

// covers reports whether a savings plan can apply to a resource's compute in any account: plans are
// shared within an organization.
func (p *plan) covers(s *Subject) bool {
	sageMaker := s.Kind == inventory.KindNotebook || s.Kind == inventory.KindEndpoint ||
		s.Kind == inventory.KindTrainingJob
	switch {
	case !committable(s):
		return false
	case p.CommitmentType == inventory.MachineLearningPlan:
		return sageMaker
	case sageMaker:
		return false
	case p.CommitmentType == inventory.InstanceSavingsPlan:
		return price.Family(s.Type) == p.Family && s.Region == p.region
	}
	return p.CommitmentType == inventory.ComputeSavingsPlan
}

// least returns the minimum cost under the plan of a dollar of on-demand usage, in percent.
func (p *plan) least() int64 {
	if p.CommitmentType == inventory.MachineLearningPlan {
		return leastUnderSageMakerPlan
	}
	return leastUnderEC2Plan
}

// plansStayUsed marks savings as unknown if a savings plan might lose usage that it pays for: then
// ending a machine saves less than its list price. A plan surely stays used if the remaining usage
// of its own account costs, at the largest discount, at least as much as the plan and the plans
// applied before it.
func (x *Index) plansStayUsed(left []money.Amount) error {
	var unsure []*plan
	for _, p := range x.cover.plans {
		sure, err := x.staysUsed(p, left)
		if err != nil {
			return err
		}
		if !sure {
			unsure = append(unsure, p)
		}
	}
	if len(unsure) == 0 {
		return nil
	}
	for _, d := range x.drafts {
		if !d.Savings.Known || d.Savings.Amount == 0 {
			continue
		}
		for i := range d.claims {
			c := &d.claims[i]
			if !c.savings || x.charge(c).Category != ledger.Compute {
				continue
			}
			if p := x.covering(unsure, &x.subjects[c.subject]); p != nil {
				d.Savings = Saving{UpperBound: d.Savings.Amount, Bounded: true,
					Why: "savings plan " + p.id + " may be left unused and is still charged; at list price"}
				for j := range d.Claims {
					d.Claims[j].Savings = 0
				}
				break
			}
		}
	}
	return nil
}

func (x *Index) covering(plans []*plan, s *Subject) *plan {
	for _, p := range plans {
		if p.covers(s) {
			return p
		}
	}
	return nil
}

// staysUsed reports whether the remaining usage proves that the plan stays used.
func (x *Index) staysUsed(p *plan, left []money.Amount) (bool, error) {
	if !p.known {
		return false, nil
	}
	promised := p.monthly
	var err error
	for _, q := range x.cover.plans {
		switch {
		case q == p || q.account != p.account:
			continue
		case q.CommitmentType == p.CommitmentType && (p.CommitmentType != inventory.InstanceSavingsPlan ||
			(q.Family == p.Family && q.region == p.region)):
		case q.CommitmentType == inventory.InstanceSavingsPlan && p.CommitmentType == inventory.ComputeSavingsPlan:
		default:
			continue
		}
		if !q.known {
			return false, nil
		}
		if promised, err = promised.Add(q.monthly); err != nil {
			return false, err
		}
	}
	running, err := x.remaining(p, left)
	if err != nil {
		return false, err
	}
	atLeast, err := running.Mul(p.least(), 100)
	return atLeast >= promised, err
}

// remaining returns the monthly on-demand usage that the plan can apply to after the findings. It
// excludes machines covered by reserved instances, and those that a finding moves out of the plan's
// scope: to spot or, for a plan of one family, possibly to another.
func (x *Index) remaining(p *plan, left []money.Amount) (money.Amount, error) {
	var total money.Amount
	byFleet := map[*reserved][]money.Amount{}
	for i := range x.subjects {
		s := &x.subjects[i]
		if s.Account != p.account || s.Kind == inventory.KindCapacityReservation ||
			!p.covers(s) || x.cover.toSpot[s.at] {
			continue
		}
		for j := range s.Charges {
			if s.Charges[j].Category != ledger.Compute {
				continue
			}
			v := left[int(s.meters)+j]
			if v <= 0 || (p.CommitmentType == inventory.InstanceSavingsPlan && v < s.Charges[j].ListCost) {
				continue
			}
			if d, ok := onDemand(s); ok {
				if f := x.cover.fleets[fleet{s.Cloud, s.Account, s.Region, s.Type, d.Platform}]; f != nil {
					byFleet[f] = append(byFleet[f], v)
					continue
				}
			}
			var err error
			if total, err = total.Add(v); err != nil {
				return 0, fmt.Errorf("add up what plan %s covers: %w", p.id, err)
			}
		}
	}
	for f, machines := range byFleet {
		// The provider chooses which machines of a fleet are covered: assume the most expensive
		// ones.
		slices.SortFunc(machines, func(a, b money.Amount) int { return cmp.Compare(a, b) })
		n := min(int64(len(machines)), f.uncovered())
		for _, v := range machines[:n] {
			var err error
			if total, err = total.Add(v); err != nil {
				return 0, fmt.Errorf("add up what plan %s covers: %w", p.id, err)
			}
		}
	}
	return total, nil
}
