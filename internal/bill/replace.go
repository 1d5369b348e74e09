package bill

import (
	"cmp"
	"slices"
	"time"
)

// Change is the effect of importing a bill on one period.
type Change string

// The changes.
const (
	Added     Change = "added"
	Restated  Change = "restated"
	Unchanged Change = "unchanged"
	Removed   Change = "removed"
)

// Planned is a period with its change.
type Planned struct {
	PeriodKey
	Change Change
}

// Plan returns the replacements after which the store holds b and nothing older of the same
// periods. Stored is the result of [Store.Periods]; periods that b does not cover may be among it
// and stay. A period that is there already, to the last digit, is not replaced. One that came from
// the same source and is no longer in b, although b covers its time, is removed. At is kept with
// the imported periods.
//
// A renamed file without billing accounts is known by its digest. A period that overlaps one of the
// same account from another source is a *CountedTwice.
func Plan(b *Bill, stored []Period, at time.Time) ([]Replacement, []Planned, error) {
	kept := make(map[PeriodKey]*Period, len(stored))
	for i := range stored {
		kept[stored[i].utc()] = &stored[i]
	}
	var replace []Replacement
	var planned []Planned
	for _, s := range b.Periods {
		key := s.utc()
		old := kept[key]
		delete(kept, key)
		if old != nil && old.Digest == s.Digest {
			planned = append(planned, Planned{key, Unchanged})
			continue
		}
		switch change, err := settledBefore(s, stored); {
		case err != nil:
			return nil, nil, err
		case change != "":
			planned = append(planned, Planned{key, change})
			continue
		}
		r := Replacement{Period: s.Period, Content: s.Rows()}
		r.ImportedAt = at
		change := Added
		if old != nil {
			r.Replaces, change = old.Digest, Restated
		}
		replace, planned = append(replace, r), append(planned, Planned{key, change})
	}
	for key, old := range kept {
		if old.Source != b.Source || !b.overtakes(old) {
			continue
		}
		replace = append(replace, Replacement{Period: *old, Replaces: old.Digest})
		planned = append(planned, Planned{key, Removed})
	}
	order := func(x, y PeriodKey) int { return cmp.Or(x.Start.Compare(y.Start), cmp.Compare(x.Account, y.Account)) }
	slices.SortFunc(replace, func(x, y Replacement) int { return order(x.PeriodKey, y.PeriodKey) })
	slices.SortFunc(planned, func(x, y Planned) int { return order(x.PeriodKey, y.PeriodKey) })
	return replace, planned, nil
}

// utc returns the key with its time in one form, so that equal keys are one.
func (k PeriodKey) utc() PeriodKey { return PeriodKey{Account: k.Account, Start: k.Start.UTC()} }
