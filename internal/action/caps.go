package action

import (
	"fmt"
	"math"
	"strconv"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Over returns which cap a batch is over, together with what its source was admitted
// in the last hour: that many actions on resources that cost so much an hour. Nil is
// none. One single action is always allowed by count and share while the hour holds
// none; by dollars it is not.
func (b Batch) Over(actions int, hourly money.Amount) *CapError {
	l := withDefaults(b.Limits)
	n := actions + len(b.Admissions)
	share := int(math.Ceil(l.Share*float64(b.Selected) - 1e-9))
	over := func(name, limit, want string) *CapError {
		return &CapError{Source: b.Source, Cap: name, Limit: limit, Want: want}
	}
	if n > 1 {
		within := strconv.Itoa(n) + " actions within an hour"
		switch {
		case n > l.PerHour:
			return over("count", strconv.Itoa(l.PerHour)+" an hour", within)
		case n > share:
			return over("share", fmt.Sprintf("%d, which is %g %% of the %d selected", share, 100*l.Share, b.Selected), within)
		}
	}
	for _, a := range b.Admissions {
		sum, err := hourly.Add(a.Hourly)
		if err != nil || sum > l.DollarsPerHour {
			return over("dollars", l.DollarsPerHour.Dollars()+" an hour", "resources that cost "+sum.Dollars()+" an hour")
		}
		hourly = sum
	}
	return nil
}

// withDefaults completes limits: what a policy does not bound has the default bound.
func withDefaults(l policy.Limits) policy.Limits {
	d := policy.DefaultLimits()
	if l.PerHour <= 0 {
		l.PerHour = d.PerHour
	}
	if !(l.Share > 0) {
		l.Share = d.Share
	}
	if l.DollarsPerHour <= 0 {
		l.DollarsPerHour = d.DollarsPerHour
	}
	return l
}
