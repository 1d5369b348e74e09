package ledger

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Account is one account of one cloud: what a round covers, and what one chain of
// entries belongs to.
type Account struct{ Cloud, ID string }

// String returns "aws/123456789012".
func (a Account) String() string { return a.Cloud + "/" + a.ID }

// Of returns the account that a resource is in.
func (a Account) Of(ref inventory.Ref) bool { return ref.Cloud == a.Cloud && ref.Account == a.ID }

// Part is one kind of resource in one region of an account, the unit in which
// providers list.
type Part struct {
	Region string
	Kind   inventory.Kind
}

// Round is one look at an account. Account and At identify it.
type Round struct {
	Account Account
	// At is the end of the time the round speaks of, in whole seconds UTC.
	At time.Time
	// Source is the command that ran it: "scan", "enforce".
	Source string
	// Complete are the parts that were listed whole, so that what the round did not
	// see there was not there.
	Complete []Part
}

// Meter is one meter of a resource at the time of an observation.
type Meter struct {
	// Name is that of [Charge.Meter].
	Name     string
	Category Category
	// Monthly is the cost of the meter in a month of 730 hours: the list price, exact to the
	// nano-dollar for every price that is stated by the hour or the month. It is meaningless when
	// Unpriced is set.
	Monthly money.Amount
	// AtMost is the most that a month can cost where the price moves; 0 is not known.
	AtMost money.Amount
	// Moves says that the price changes by the hour (spot): a rate that was seen holds
	// only near the time it was seen.
	Moves  bool
	Source string
	AsOf   time.Time
	// Unpriced is the reason why there is no price; empty when there is one.
	Unpriced string
	// MinimumSeconds is the minimum billed time of each run: 60 for machines billed by the second.
	// 0 is no minimum.
	MinimumSeconds int64
}

// Span is time in which measurements say what a resource did.
type Span struct {
	From, To time.Time
	State    duty.State
}

// Observation is one resource as a round saw it: what pricing and attribution need.
// Ref and At identify it; a second one with the same identity is the same one,
// delivered again. Times are whole seconds UTC; a zero time is not known.
type Observation struct {
	At  time.Time
	Ref inventory.Ref
	Attributes
	State inventory.State
	// StateSince is when State was entered, CreatedAt when the resource was made or
	// last launched.
	StateSince, CreatedAt time.Time
	Meters                []Meter
	// Duty are the measured spans of the time before At, in order, without overlap, and with no
	// span that begins after At. Time in no span is unknown.
	Duty []Span
}

// Attributes are the dimensions of the charges of a resource. Empty fields are not known and are
// shown as such.
type Attributes struct {
	Name, Type string
	Market     inventory.Market
	Owner      inventory.Owner
	Purpose    inventory.Purpose
	Lifetime   inventory.Lifetime
	// Hold is the hold under which the resource was started.
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
	// Regions are those that were read, Kinds those that were asked for (nil is all),
	// and Unread what of them could not be listed, by "account/region/kind".
	Regions []string
	Kinds   map[inventory.Kind]bool
	Unread  map[string]bool
	// Resources may hold other accounts' as well; they are passed over.
	Resources []*inventory.Resource
	// Rates are those of [RunRates], by resource.
	Rates map[inventory.Ref][]Charge
	// Spans are measured stretches of resources; where they overlap the first holds.
	Spans map[inventory.Ref][]Span
}

// Observe returns a round and its observations. Resources that have no meter and never had one in
// the round's eyes are observed too, because the observation that they stopped ends their charges.
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

// clean returns a time as the ledger keeps it: whole seconds UTC, in which providers
// bill. The zero time stays zero.
func clean(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}
