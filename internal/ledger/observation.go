package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Account is one account of one cloud: the scope of a round and of a ledger version.
type Account struct{ Cloud, ID string }

// String returns "aws/123456789012".
func (a Account) String() string { return a.Cloud + "/" + a.ID }

// Of returns the account that a resource is in.
func (a Account) Of(ref inventory.Ref) bool { return ref.Cloud == a.Cloud && ref.Account == a.ID }

// Part is one kind of resource in one region of an account, the unit of listings.
type Part struct {
	Region string
	Kind   inventory.Kind
}

// Round is one pass over an account. Account and At identify it.
type Round struct {
	Account Account
	// At is the end of the observed time, in whole seconds UTC.
	At time.Time
	// Source is the command that ran it: "scan", "enforce".
	Source string
	// Complete holds the parts that were listed completely, so that unlisted resources did not
	// exist.
	Complete []Part
}

// Meter is one meter of a resource at the time of an observation.
type Meter struct {
	// Name equals [Charge.Meter].
	Name     string
	Category Category
	// Monthly is the list price of the meter for 730 hours, exact to the nano-dollar for every
	// price stated by hour or month. It is meaningless when Unpriced is set.
	Monthly money.Amount
	// AtMost is the maximum monthly cost if the price moves; 0 is unknown.
	AtMost money.Amount
	// Moves is true if the price changes hourly (spot): an observed rate is valid only near its
	// time.
	Moves  bool
	Source string
	AsOf   time.Time
	// Unpriced is the reason for a missing price; empty if there is one.
	Unpriced string
	// MinimumSeconds is the minimum billed time of each run: 60 for machines billed by the second;
	// 0 for none.
	MinimumSeconds int64
}

// Span is a time span with a measured duty.
type Span struct {
	From, To time.Time
	State    duty.State
}

// Observation is one resource as observed by a round, with the facts for pricing and attribution.
// Ref and At identify it; a second one with the same identity is a redelivery. Times are whole
// seconds UTC; a zero time is unknown.
type Observation struct {
	At  time.Time
	Ref inventory.Ref
	Attributes
	State inventory.State
	// StateSince is when State was entered, CreatedAt when the resource was made or
	// last launched.
	StateSince, CreatedAt time.Time
	Meters                []Meter
	// Duty holds the measured spans before At, in order, without overlap, none beginning after At.
	// Time outside of them is unknown.
	Duty []Span
}

// Attributes are the dimensions of a resource's charges. Empty fields are unknown and shown as
// such.
type Attributes struct {
	Name, Type string
	Market     inventory.Market
	Owner      inventory.Owner
	Purpose    inventory.Purpose
	Lifetime   inventory.Lifetime
	// Hold is the budget hold under which the resource was started.
	Hold string
}

// compare orders attributes.
func (a Attributes) compare(b Attributes) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner.Team, b.Owner.Team),
		cmp.Compare(a.Owner.Project, b.Owner.Project), cmp.Compare(a.Owner.User, b.Owner.User),
		cmp.Compare(a.Owner.Environment, b.Owner.Environment), cmp.Compare(a.Owner.CostCenter, b.Owner.CostCenter),
		cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Lifetime, b.Lifetime), cmp.Compare(a.Market, b.Market),
		cmp.Compare(a.Hold, b.Hold))
}

// Seen is the input of [Observe]: one round over one account.
type Seen struct {
	Account Account
	At      time.Time
	Source  string
	// Regions are the read regions, Kinds the requested kinds (nil for all), and Unread those that
	// could not be listed, as "account/region/kind".
	Regions []string
	Kinds   map[inventory.Kind]bool
	Unread  map[string]bool
	// Resources may include those of other accounts, which are ignored.
	Resources []*inventory.Resource
	// Rates are those of [RunRates], by resource.
	Rates map[inventory.Ref][]Charge
	// Spans are measured spans of resources; of overlapping ones the first wins.
	Spans map[inventory.Ref][]Span
}

// Observe returns a round and its observations. Resources without meters are observed too, because
// they may have had meters before: the observation ends those charges.
func Observe(s Seen) (Round, []Observation) {
	r := Round{Account: s.Account, At: clean(s.At), Source: s.Source}
	for _, region := range slices.Compact(slices.Sorted(slices.Values(s.Regions))) {
		for _, kind := range inventory.Kinds() {
			if kind.Traits().Metered && (s.Kinds == nil || s.Kinds[kind]) &&
				!s.Unread[s.Account.ID+"/"+region+"/"+string(kind)] {
				r.Complete = append(r.Complete, Part{region, kind})
			}
		}
	}
	out := make([]Observation, 0, len(s.Resources))
	for _, res := range s.Resources {
		ref := res.Ref()
		if !s.Account.Of(ref) || !res.Kind.Traits().Metered {
			continue
		}
		o := Observation{
			At: r.At, Ref: ref, State: res.State, StateSince: clean(res.StateSince), CreatedAt: clean(res.CreatedAt),
			Attributes: Attributes{
				Name: res.Name, Type: res.Type, Owner: res.Owner, Purpose: res.Purpose, Lifetime: res.Lifetime,
				Hold: res.Tags[inventory.TagHold],
			},
			Duty: spans(s, ref, r.At),
		}
		if d, ok := res.Detail.(*inventory.Instance); ok {
			o.Market = d.Market
		}
		for _, c := range s.Rates[ref] {
			o.Meters = append(o.Meters, meterOf(c))
		}
		out = append(out, o)
	}
	return r, out
}

func meterOf(c Charge) Meter {
	return Meter{
		Name: c.Meter, Category: c.Category, Monthly: c.ListCost, AtMost: c.AtMost, Moves: c.Moves, Source: c.Source,
		AsOf:     clean(c.AsOf),
		Unpriced: c.Unpriced, MinimumSeconds: c.MinimumSeconds}
}

// clean truncates a time to whole seconds UTC, in which providers bill. The zero time stays zero.
func clean(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}
