package bill

import (
	"fmt"
	"slices"
	"time"
)

// CountedTwice is why a bill is refused: it has a billing period that overlaps another
// one of the same account, so that charges would count twice. Nothing was replaced.
type CountedTwice struct {
	// Period is the bill's, Other the one that is there already, in the store or in the
	// bill itself.
	Period, Other Period
}

// Error names the overlapping periods and the remedy.
func (e *CountedTwice) Error() string {
	account, advice := "account "+e.Period.Account, "export both with the same start of the period"
	if e.Period.unnamed() {
		account, advice = "no BillingAccountId", "give the export a BillingAccountId"
	}
	return fmt.Sprintf(
		"the billing period %s of %s overlaps %s of %s, and its charges would count twice: import it as "+
			"%[4]s again, or %s",
		e.Period.span(), account, e.Other.span(), e.Other.Source, advice)
}

// span is a period's time for people; UTC offsets matter in it.
func (p *Period) span() string {
	return p.Start.UTC().Format(time.RFC3339) + " to " + p.Until().UTC().Format(time.RFC3339)
}

// Until returns when a period ends: a month after its start where the bill does not say.
func (p *Period) Until() time.Time {
	if p.End.IsZero() {
		return p.Start.AddDate(0, 1, 0)
	}
	return p.End
}

// unnamed says that the bill names no billing account, and its source stands for one.
func (p *Period) unnamed() bool { return p.Account == clean(p.Source) }

// overlaps reports whether two periods are of one account, as far as their bills say, and share
// time without being the same period.
func (p *Period) overlaps(o *Period) bool {
	if p.Account != o.Account && !(p.unnamed() && o.unnamed()) || p.utc() == o.utc() {
		return false
	}
	return p.Start.Before(o.Until()) && o.Start.Before(p.Until())
}

// overlap looks whether a bill's own periods overlap, which come in the order of their
// starts. One that does overlaps the one of its account that ends last.
func overlap(periods []*Settled) error {
	last := map[string]*Settled{}
	for _, p := range periods {
		o := last[p.Account]
		if o != nil && p.overlaps(&o.Period) {
			return &CountedTwice{Period: p.Period, Other: o.Period}
		}
		last[p.Account] = p // without an overlap it ends last
	}
	return nil
}

// settledBefore returns what a period becomes that a stored one overlaps: Unchanged where
// both hold the same lines without an account, so that a file was renamed; an error where
// its charges would count twice. What came from the same source is replaced.
func settledBefore(p *Settled, stored []Period) (Change, error) {
	for i := range stored {
		switch old := &stored[i]; {
		case !p.overlaps(old) || old.Source == p.Source:
		case p.unnamed() && old.Digest == p.Digest:
			return Unchanged, nil
		default:
			return "", &CountedTwice{Period: p.Period, Other: *old}
		}
	}
	return "", nil
}

// overtakes reports whether a bill holds the time of a stored period again.
func (b *Bill) overtakes(old *Period) bool {
	return slices.ContainsFunc(b.Starts, old.Start.Equal) || slices.ContainsFunc(b.Periods, func(p *Settled) bool {
		return p.overlaps(old)
	})
}
