package costs

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// Attribution maps the charges of a bill to lines of the ledger. `bill show` and the corrections of
// `bill reconcile --post` share it, so that their amounts agree in every dimension.
//
// The bill determines service, category, pricing, owner and purpose as far as it states them. The
// observations of the resource on that day determine the rest: the kind, the duty, and owner,
// purpose and type if the bill has none.
type Attribution struct {
	observed map[billKey][]ledger.ResourceDay
}

// NewAttribution reads the observations over [since, until) of the accounts in some rows of a bill.
// It returns false if there is no row.
func NewAttribution(ctx context.Context, s ledger.Store, rows iter.Seq[bill.Row], since, until time.Time,
) (*Attribution, bool, error) {
	accounts, found := map[ledger.Account]bool{}, false
	for r := range rows {
		d := billedDay(r)
		accounts[ledger.Account{Cloud: d.Cloud, ID: d.Account}], found = true, true
	}
	var days []ledger.ResourceDay
	for a := range accounts {
		of, err := s.ResourceDays(ctx, a, since.UTC().Truncate(day), until)
		if err != nil {
			return nil, found, fmt.Errorf("read what accrued in %s: %w", a, err)
		}
		days = append(days, of...)
	}
	return observedOn(days), found, nil
}

// observedOn returns the attribution by the observed days of resources.
func observedOn(days []ledger.ResourceDay) *Attribution {
	a := &Attribution{observed: map[billKey][]ledger.ResourceDay{}}
	for _, d := range days {
		observed := d.Accrued != 0 || d.Unknown.Seconds != 0 || d.UnpricedSeconds != 0
		if !observed || d.Category == ledger.Committed {
			continue // from a bill, or the cost of a commitment
		}
		k := keyOf(d.Ref.Cloud, d.Ref.Account, d.Ref.ID, d.Day)
		a.observed[k] = append(a.observed[k], d)
	}
	return a
}

// Rows yields rows of a bill with their lines. A row is divided if its resource had several duties
// on that day; the parts sum to the row to the nano-dollar. An error ends the sequence and is
// stored in err.
func (a *Attribution) Rows(rows iter.Seq[bill.Row], err *error) iter.Seq2[ledger.Line, bill.Row] {
	return func(yield func(ledger.Line, bill.Row) bool) {
		for r := range rows {
			d := billedDay(r)
			shares := a.shares(&d)
			if len(shares) == 1 {
				if !yield(shares[0].line, r) {
					return
				}
				continue
			}
			parts, broken := divided(r, shares)
			if broken != nil {
				*err = fmt.Errorf("divide the charges of %s on %s: %w", r.Resource,
					r.Day.Format(time.DateOnly), broken)
				return
			}
			for i, p := range parts {
				if !yield(shares[i].line, p) {
					return
				}
			}
		}
	}
}

// CategoryOf returns the category of a charge among the five of an ML bill, by the duty of its
// line's machine.
func CategoryOf(line *ledger.Line, r *bill.Row) bill.Category {
	switch state := duty.State(line.Duty); {
	case r.Category != bill.Compute:
		return r.Category
	case state.Productive():
		return bill.Active
	case state == "" || state == duty.Unknown:
		return bill.Unmeasured
	}
	return bill.Idle
}

// divided divides the costs of a row. The first part keeps its bytes and lines.
func divided(r bill.Row, shares []share) ([]bill.Row, error) {
	parts := make([]bill.Row, len(shares))
	for i := range parts {
		parts[i] = r
		if i > 0 {
			parts[i].Bytes, parts[i].Lines = 0, 0
		}
	}
	for _, cost := range []func(*bill.Cost) *money.Amount{
		func(c *bill.Cost) *money.Amount {
			return &c.Billed
		}, func(c *bill.Cost) *money.Amount { return &c.Effective },
		func(c *bill.Cost) *money.Amount { return &c.List }, func(c *bill.Cost) *money.Amount { return &c.Contracted },
	} {
		amounts, err := split(*cost(&r.Cost), shares)
		if err != nil {
			return nil, err
		}
		for i, v := range amounts {
			*cost(&parts[i].Cost) = v
		}
	}
	return parts, nil
}

// share is a ledger line with the weight of its part of a charge.
type share struct {
	line   ledger.Line
	weight int64
}

// split divides an amount by the weights of shares.
func split(amount money.Amount, shares []share) ([]money.Amount, error) {
	weights := make([]int64, len(shares))
	for i, s := range shares {
		weights[i] = s.weight
	}
	return money.Split(amount, weights)
}

// shares returns the lines that a charge belongs to, at least one, with positive weights: the
// machine's duties in proportion to their accruals.
func (a *Attribution) shares(b *BilledDay) []share {
	base := ledger.Line{
		Ref:        inventory.Ref{Cloud: b.Cloud, Account: b.Account, Region: b.Region, ID: b.Resource},
		Attributes: b.Attributes,
		Category:   b.Category, Service: b.Service, Pricing: b.Pricing,
	}
	if b.Unused {
		base.Duty = ledger.Unused
	}
	var observed []ledger.ResourceDay
	if b.Resource != "" {
		observed = a.observed[b.key()]
	}
	weight := func(d ledger.ResourceDay) int64 { return int64(d.Accrued) }
	same, others := partsOf(b, observed, weight)
	if len(same) == 0 { // without prices, divide by time
		weight = func(d ledger.ResourceDay) int64 { return d.UnpricedSeconds }
		same, others = partsOf(b, observed, weight)
	}
	if len(same) == 0 {
		if len(others) > 0 {
			main := slices.MaxFunc(others, func(x, y ledger.ResourceDay) int {
				return cmp.Compare(x.Accrued, y.Accrued)
			})
			base.Ref, base.Attributes = main.Ref, merged(b.Attributes, main.Attributes)
		}
		return []share{{base, 1}}
	}
	var out []share
	at := map[ledger.Line]int{}
	for _, d := range same {
		line := base
		line.Ref, line.Attributes = d.Ref, merged(b.Attributes, d.Attributes)
		if !b.Unused {
			line.Duty = d.Duty
		}
		i, ok := at[line]
		if !ok {
			i, at[line] = len(out), len(out)
			out = append(out, share{line: line})
		}
		out[i].weight += weight(d)
	}
	return out
}

// partsOf returns the observed days of a resource that match a charge and have a weight, and the
// others. If a machine's tags changed within the day, those with the charge's tags are preferred.
func partsOf(b *BilledDay, observed []ledger.ResourceDay, weight func(ledger.ResourceDay) int64,
) (same, others []ledger.ResourceDay) {
	var tagged []ledger.ResourceDay
	for _, d := range observed {
		if weight(d) <= 0 || !alike(d.Category, b.Category) {
			others = append(others, d)
			continue
		}
		same = append(same, d)
		if merged(b.Attributes, d.Attributes).Owner == merged(d.Attributes, b.Attributes).Owner {
			tagged = append(tagged, d)
		}
	}
	if len(tagged) > 0 {
		same = tagged
	}
	return same, others
}

// alike reports whether a meter and a charge may have the same subject by their categories: bills
// list gateways, load balancers and addresses under overhead and egress.
func alike(accrued, billed ledger.Category) bool {
	one := func(c ledger.Category) ledger.Category {
		if c == ledger.Compute || c == ledger.Storage {
			return c
		}
		return ledger.Network
	}
	return one(accrued) == one(billed)
}

// merged fills empty attributes of a charge from the observation.
func merged(billed, observed ledger.Attributes) ledger.Attributes {
	out := observed
	out.Type = cmp.Or(observed.Type, billed.Type)
	out.Purpose = cmp.Or(billed.Purpose, observed.Purpose)
	out.Owner = inventory.Owner{
		Team:        cmp.Or(billed.Owner.Team, observed.Owner.Team),
		Project:     cmp.Or(billed.Owner.Project, observed.Owner.Project),
		User:        cmp.Or(billed.Owner.User, observed.Owner.User),
		Environment: cmp.Or(billed.Owner.Environment, observed.Owner.Environment),
		CostCenter:  cmp.Or(billed.Owner.CostCenter, observed.Owner.CostCenter),
	}
	return out
}

// billKey is a resource's day, under the name that bill and ledger share.
type billKey struct {
	cloud, account, resource string
	day                      time.Time
}

func keyOf(cloud, account, resource string, at time.Time) billKey {
	return billKey{cloud, account, BillID(resource), at.UTC().Truncate(day)}
}

func (b *BilledDay) key() billKey { return keyOf(b.Cloud, b.Account, b.Resource, b.Day) }

// BillID returns a resource's name in the form that bill and inventory share: of an ARN the part
// after the type ("log-group:/aws/x:*" becomes "/aws/x"), of a secret the name without its six
// random characters, otherwise the ID itself.
func BillID(id string) string {
	parts := strings.SplitN(id, ":", 6)
	if len(parts) < 6 || parts[0] != "arn" {
		return id
	}
	name := parts[5]
	if i := strings.IndexAny(name, "/:"); i >= 0 {
		name = name[i+1:]
	}
	if i := len(name) - len("-AbCdEf"); parts[2] == "secretsmanager" && i > 0 && name[i] == '-' {
		name = name[:i]
	}
	return strings.TrimSuffix(name, ":*")
}
