package costs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// BilledDay is the bill of one resource on one day, summed over rows with equal fields below.
// Amounts are exact to the nano-dollar, rounded once.
type BilledDay struct {
	Cloud, Account, Region string
	// Resource is the bill's ResourceId: an identifier or an ARN; empty if the bill names none.
	Resource string
	Day      time.Time
	// Period is the start of the billing period.
	Period         time.Time
	Service        string
	ChargeCategory ledger.ChargeCategory
	// Pricing is FOCUS's PricingCategory; empty if the bill has none.
	Pricing ledger.Pricing
	// Category is the category as far as the bill tells; may be empty.
	Category ledger.Category
	// Attributes come from the bill's tags and meters.
	Attributes              ledger.Attributes
	Billed, Effective, List money.Amount
	// CommitmentStatus is FOCUS's CommitmentDiscountStatus: "Used", "Unused" or empty.
	CommitmentStatus string
	// Unused is true if the bill marks the paid capacity as unused.
	Unused   bool
	Currency string
}

// Basis selects the cost column of the bill to compare with.
type Basis string

// The bases. The zero value is BilledCost, the total of the invoice. EffectiveCost spreads the cost
// of commitments over the covered usage.
const (
	BilledCost    Basis = ""
	EffectiveCost Basis = "effective"
)

// Reason is the reason of a variance.
type Reason string

// The reasons.
const (
	NotBilledYet  Reason = "not billed yet"      // the day is after the last day of the bill
	NotBilled     Reason = "not in the bill"     // accrued, but not on the bill
	NotObserved   Reason = "not observed"        // billed, but never observed
	NoResource    Reason = "no resource named"   // the bill does not name its subject
	CreditOrFund  Reason = "credit"              // FOCUS Credit
	Taxes         Reason = "tax"                 // FOCUS Tax
	Purchased     Reason = "purchase"            // FOCUS Purchase: commitments, subscriptions
	Adjusted      Reason = "adjustment"          // FOCUS Adjustment
	CoveredBy     Reason = "commitment-covered"  // paid by a commitment
	Discounted    Reason = "negotiated discount" // billed under list price
	NoPrice       Reason = "no price"            // a meter without a price in the book
	UnknownTime   Reason = "unknown time"        // time between observations
	RoundingCents Reason = "rounding"            // at most a cent a day
	Unexplained   Reason = "other usage"         // not observable by rounds: requests, transfer, another price
)

// Cause is a part of a variance with its reason.
type Cause struct {
	Reason Reason       `json:"reason"`
	Amount money.Amount `json:"amount_usd"`
}

// Drift is the variance of one resource on one day. Accrued and the causes sum to Billed.
type Drift struct {
	Account  string    `json:"account"`
	Resource string    `json:"resource"` // empty if the bill names none
	Day      time.Time `json:"day"`
	Service  string    `json:"service,omitempty"`
	// Accrued is at list price; Reconciled is the sum of earlier reconciliations.
	Accrued    money.Amount `json:"accrued_usd"`
	Reconciled money.Amount `json:"reconciled_usd"`
	Billed     money.Amount `json:"billed_usd"`
	// Drift is Billed less the other two: the variance that is not yet posted.
	Drift  money.Amount `json:"drift_usd"`
	Causes []Cause      `json:"causes"`

	parts    []ledger.ResourceDay
	billed   []BilledDay
	observed *Attribution
	// through is the end of the account's last day on the bill.
	through time.Time
	// the costs of billed, on the requested basis
	costs []money.Amount
}

// Reconciliation is the comparison of accrued and billed costs.
type Reconciliation struct {
	Basis string  `json:"basis"`
	Rows  []Drift `json:"rows"`
	// The totals are sums over the rows; Causes are by reason, the largest first.
	Accrued    money.Amount `json:"accrued_usd"`
	Reconciled money.Amount `json:"reconciled_usd"`
	Billed     money.Amount `json:"billed_usd"`
	Drift      money.Amount `json:"drift_usd"`
	Causes     []Cause      `json:"causes"`
	// BilledThrough is the end of the last day on the bill.
	BilledThrough time.Time `json:"billed_through"`

	Assumptions   []string `json:"assumptions"`
	CoverageNotes []string `json:"coverage_notes"`
	Changes       []string `json:"changes"`
}

// Reconcile compares accrued costs with a bill, by resource and day. through is the end of the last
// day on the bill; for an account, of its own last day. Later accruals are not billed yet. A bill
// in a currency other than US dollars is an error.
func Reconcile(accrued []ledger.ResourceDay, bill []BilledDay, through time.Time, basis Basis) (*Reconciliation,
	error) {
	rows, ends := map[billKey]*Drift{}, map[string]time.Time{}
	observed := observedOn(accrued)
	row := func(k billKey) *Drift {
		d, ok := rows[k]
		if !ok {
			d = &Drift{Account: k.account, Resource: k.resource, Day: k.day, through: through, observed: observed}
			rows[k] = d
		}
		return d
	}
	for _, a := range accrued {
		d := row(keyOf(a.Ref.Cloud, a.Ref.Account, a.Ref.ID, a.Day))
		d.parts = append(d.parts, a)
	}
	for _, b := range bill {
		if b.Currency != "USD" {
			return nil, fmt.Errorf(
				"reconcile %s of %s: the bill is in %q and the ledger in USD: convert the export first",
				b.Service, b.Day.Format(time.DateOnly), b.Currency)
		}
		d := row(b.key())
		d.billed = append(d.billed, b)
		if end := d.Day.Add(24 * time.Hour); b.ChargeCategory == ledger.Usage && end.After(ends[b.Account]) {
			ends[b.Account] = end
		}
	}
	out := &Reconciliation{
		Basis: cmp.Or(string(basis), "billed"), Rows: make([]Drift, 0, len(rows)), BilledThrough: through.UTC(),
	}
	byReason := map[Reason]money.Amount{}
	var sums [4]money.Amount
	for _, d := range rows {
		if end, ok := ends[d.Account]; ok {
			d.through = earliest(through, end)
		}
		if err := d.settle(basis); err != nil {
			return nil, fmt.Errorf("reconcile %s on %s: %w", cmp.Or(d.Resource, "what names no resource"),
				d.Day.Format(time.DateOnly), err)
		}
		out.Rows = append(out.Rows, *d)
		for i, v := range []money.Amount{d.Accrued, d.Reconciled, d.Billed, d.Drift} {
			var err error
			if sums[i], err = sums[i].Add(v); err != nil {
				return nil, fmt.Errorf("add up the reconciliation: %w", err)
			}
		}
		for _, c := range d.Causes {
			byReason[c.Reason] += c.Amount
		}
	}
	slices.SortFunc(out.Rows, func(a, b Drift) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Resource, b.Resource))
	})
	out.Accrued, out.Reconciled, out.Billed, out.Drift = sums[0], sums[1], sums[2], sums[3]
	out.Causes = causes(byReason)
	out.explain()
	return out, nil
}

// causes lists nonzero reasons, the largest first.
func causes(by map[Reason]money.Amount) []Cause {
	out := []Cause{}
	for _, r := range slices.Sorted(maps.Keys(by)) {
		if by[r] != 0 {
			out = append(out, Cause{r, by[r]})
		}
	}
	slices.SortStableFunc(out, func(a, b Cause) int { return cmp.Compare(size(b.Amount), size(a.Amount)) })
	return out
}

func size(d money.Amount) money.Amount { return max(d, -d) }

// settle sets the variance of a row and its causes.
func (d *Drift) settle(basis Basis) error {
	why := map[Reason]money.Amount{}
	var accrued, reconciled, billed, list, most money.Amount
	var unknown, unpriced int64
	var errs error
	add := func(to *money.Amount, v money.Amount) {
		sum, err := to.Add(v)
		if err != nil {
			errs = err
		}
		*to = sum
	}
	for _, p := range d.parts {
		add(&accrued, p.Accrued)
		add(&reconciled, p.Reconciled)
		add(&most, p.Unknown.AtMost)
		unknown, unpriced = unknown+p.Unknown.Seconds, unpriced+p.UnpricedSeconds
	}
	for _, b := range d.billed {
		cost := b.Billed
		if basis == EffectiveCost {
			cost = b.Effective
		}
		add(&billed, cost)
		d.costs = append(d.costs, cost)
		d.Service = cmp.Or(d.Service, b.Service)
		switch b.ChargeCategory {
		case ledger.Tax:
			why[Taxes] += cost
		case ledger.Credit:
			why[CreditOrFund] += cost
		case ledger.Purchase:
			why[Purchased] += cost
		case ledger.Adjustment:
			why[Adjusted] += cost
		default:
			reason := Discounted
			if b.CommitmentStatus != "" {
				reason = CoveredBy
			}
			why[reason] += cost - b.List
			add(&list, b.List)
		}
	}
	rest := list - accrued
	switch {
	case d.notBilled():
		why[NotBilledYet] += rest
	case len(d.billed) == 0:
		why[NotBilled] += rest
	case d.Resource == "":
		why[NoResource] += rest
	case len(d.parts) == 0:
		why[NotObserved] += rest
	case size(rest) <= money.Cent:
		why[RoundingCents] += rest
	case unpriced > 0:
		why[NoPrice] += rest
	case unknown > 0 && rest > 0:
		part := min(rest, most)
		why[UnknownTime] += part
		why[Unexplained] += rest - part
	default:
		why[Unexplained] += rest
	}
	d.Accrued, d.Reconciled, d.Billed, d.Drift = accrued, reconciled, billed, billed-accrued-reconciled
	d.Causes = causes(why)
	return errs
}

// explain adds the assumptions of the reconciliation.
func (r *Reconciliation) explain() {
	r.Assumptions = []string{
		"accrued is at list price, billed is FOCUS's " + map[string]string{
			"billed": "BilledCost", "effective": "EffectiveCost",
		}[r.Basis],
		"a bill's resource is the inventory's of the same name, an ARN by its last part",
	}
	r.CoverageNotes = []string{"the bill holds days before " + r.BilledThrough.Format(time.DateOnly)}
	r.Changes = []string{"a period can be restated for two weeks after it closes: import it again then"}
	for _, c := range r.Causes {
		if c.Reason == NoResource {
			r.CoverageNotes = append(r.CoverageNotes,
				c.Amount.Dollars()+" of the bill names no resource, so it cannot be allocated by resource")
		}
	}
}

// Corrections returns the entries that make the ledger equal to the bill: for each resource and
// day, the difference between the bill's charges by line and the ledger's lines, reconciled or not.
// Days that are not billed yet, or not any more, return to the accrued cost. After posting them
// another reconciliation has nothing to correct; a restated bill or another basis replaces the
// former.
func (r *Reconciliation) Corrections() ([]ledger.Entry, error) {
	var out []ledger.Entry
	for i := range r.Rows {
		d := &r.Rows[i]
		entries, err := d.corrections()
		if err != nil {
			return nil, fmt.Errorf("correct %s on %s: %w", d.Resource, d.Day.Format(time.DateOnly), err)
		}
		out = append(out, entries...)
	}
	return out, nil
}

// notBilled reports whether the bill lacks the row's day, which then stays as accrued.
func (d *Drift) notBilled() bool { return len(d.billed) == 0 && !d.Day.Before(d.through) }

// corrections returns the entries of one row.
func (d *Drift) corrections() ([]ledger.Entry, error) {
	differences := map[ledger.Line]money.Amount{}
	charges := map[ledger.Line]ledger.ChargeCategory{}
	add := func(line ledger.Line, v money.Amount) error {
		sum, err := differences[line].Add(v)
		differences[line] = sum
		return err
	}
	for i := range d.billed {
		shares := d.observed.shares(&d.billed[i])
		amounts, err := split(d.costs[i], shares)
		if err != nil {
			return nil, err
		}
		for j, s := range shares {
			if charges[s.line] == "" {
				charges[s.line] = d.billed[i].ChargeCategory
			}
			if err := add(s.line, amounts[j]); err != nil {
				return nil, err
			}
		}
	}
	for i := range d.parts {
		p := &d.parts[i]
		err := add(p.Line(), -p.Reconciled)
		if !d.notBilled() {
			err = errors.Join(err, add(p.Line(), -p.Accrued))
		}
		if err != nil {
			return nil, err
		}
	}
	base := ledger.Entry{
		Kind: ledger.Reconciled, Hour: d.Day, BillPeriod: time.Date(d.Day.Year(), d.Day.Month(),
			1, 0, 0, 0, 0, time.UTC),
	}
	if len(d.billed) > 0 && !d.billed[0].Period.IsZero() {
		base.BillPeriod = d.billed[0].Period.UTC()
	}
	why := d.why()
	var out []ledger.Entry
	for line, amount := range differences {
		if amount == 0 {
			continue
		}
		e := base
		e.Line, e.Amount = line, amount
		e.Meter, e.ChargeCategory, e.Why = "bill", cmp.Or(charges[line], ledger.Adjustment), why
		out = append(out, e)
	}
	slices.SortFunc(out, func(x, y ledger.Entry) int { return ledger.CompareLines(&x.Line, &y.Line) })
	return out, nil
}

// why returns the explanation stored with the entries of a row.
func (d *Drift) why() string {
	var why []string
	for _, c := range d.Causes {
		why = append(why, string(c.Reason)+" "+c.Amount.Cents())
	}
	if len(why) == 0 {
		return "as the bill attributes it"
	}
	return strings.Join(why, ", ")
}

// ReconcileAccount reconciles the ledger of an account over the whole days of [from, to) with a
// bill, and with post adds the corrections. It returns the differences before, and the number of
// added entries.
func ReconcileAccount(ctx context.Context, s ledger.Store, a ledger.Account, bill []BilledDay, from, to,
	through time.Time, basis Basis, post bool) (*Reconciliation, int, error) {
	read := func(ctx context.Context) ([]ledger.ResourceDay, error) { return s.ResourceDays(ctx, a, from, to) }
	return reconcileDays(ctx, s, a, read, bill, through, basis, post)
}

// reconcileDays reconciles the days of an account that read returns.
func reconcileDays(ctx context.Context, s ledger.Store, a ledger.Account,
	read func(context.Context) ([]ledger.ResourceDay, error),
	bill []BilledDay, through time.Time, basis Basis, post bool,
) (*Reconciliation, int, error) {
	for tries := 1; ; tries++ {
		version, err := s.Version(ctx, a)
		if err != nil {
			return nil, 0, fmt.Errorf("read the ledger of %s: %w", a, err)
		}
		accrued, err := read(ctx)
		if err != nil {
			return nil, 0, fmt.Errorf("read the ledger of %s: %w", a, err)
		}
		r, err := Reconcile(accrued, bill, through, basis)
		if err != nil || !post {
			return r, 0, err
		}
		entries, err := r.Corrections()
		if err != nil || len(entries) == 0 {
			return r, 0, err
		}
		_, err = s.Append(ctx, a, version, entries)
		switch {
		case errors.Is(err, ledger.ErrConflict) && tries < ledger.MaxConflicts:
			continue
		case err != nil:
			return nil, 0, fmt.Errorf("correct the ledger of %s: %w", a, err)
		}
		return r, len(entries), nil
	}
}
