package alert

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Series are the charges of a person, project or team by day.
type Series struct {
	// Kind is KindPerson, KindProject or KindTeam; KindStorage in Facts.Storage.
	Kind  inventory.Kind
	Name  string
	Owner inventory.Owner
	// Last is the spend of the last 24 hours of the ledger.
	Last money.Amount
	// Days are the 24 hours before Last, newest first: Days[0] ends where Last begins. Its length is
	// the number of days that the ledger covers.
	Days []money.Amount
}

// What makes a day unusual. The dollars keep small sums quiet.
const (
	jumpTimes     = 2
	jumpLeast     = 50_000_000_000 // $50 over the usual day
	leastHistory  = 14             // days
	usualDays     = 28
	sameWeekdays  = 4
	lastMonths    = 62 // days
	growthTimes   = 2
	growthLeast   = 50_000_000_000 // $50 a month more each week
	growthHistory = 35             // days
)

// SpendDays is the number of days before the last one that [Series] need to tell what is usual.
const SpendDays = lastMonths + 2

// jumps proposes to notify of people, projects and teams whose last day cost over twice as much as a
// usual one.
func (f Facts) jumps() (out []action.Proposal) {
	for _, s := range f.Spenders {
		usual, known := s.usual(f.LedgerEnd)
		if !known || s.Last <= jumpTimes*usual || s.Last < usual+jumpLeast {
			continue
		}
		hourly, err := s.Last.Mul(1, 24)
		if err != nil {
			continue
		}
		about := subject{kind: s.Kind, id: s.Name, owner: s.Owner, notify: "team", hourly: inventory.Known(hourly)}
		if s.Kind == KindPerson {
			about.notify = "owner"
		}
		out = append(out, f.propose(SpendJump, about, inventory.Known(s.Last), fmt.Sprintf(
			"%s %s spent %s in 24 hours, and %s on a usual day", s.Kind, s.Name, s.Last.Dollars(), usual.Dollars())))
	}
	return out
}

// usual returns the spend of a usual day: the highest of the median of four weeks, of that of the same
// weekdays, and of the days about the same place in the months before, counted from the month's
// beginning and from its end, so that a batch at each month's end is usual. It is unknown before the
// ledger has 14 days.
func (s Series) usual(through time.Time) (money.Amount, bool) {
	if len(s.Days) < leastHistory {
		return 0, false
	}
	usual := median(s.Days[:min(usualDays, len(s.Days))])
	var weekdays []money.Amount
	for i := 6; i < len(s.Days) && len(weekdays) < sameWeekdays; i += 7 {
		weekdays = append(weekdays, s.Days[i])
	}
	usual = max(usual, median(weekdays))
	today := through.UTC().Add(-day / 2)
	for i, spent := range s.Days[:min(lastMonths, len(s.Days))] {
		then := today.AddDate(0, 0, -1-i)
		if i >= usualDays-2 && samePlaceInMonth(today, then) {
			usual = max(usual, spent)
		}
	}
	return usual, true
}

// samePlaceInMonth reports whether two days are at most a day apart as counted from the beginning or
// from the end of their months.
func samePlaceInMonth(a, b time.Time) bool {
	near := func(x, y int) bool { return x-y >= -1 && x-y <= 1 }
	return near(a.Day(), b.Day()) || near(daysLeft(a), daysLeft(b))
}

// daysLeft returns the days between a day and the end of its month.
func daysLeft(t time.Time) int {
	return time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day() - t.Day()
}

// median returns the higher one of two in the middle; 0 of none.
func median(days []money.Amount) money.Amount {
	if len(days) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(days))
	return sorted[len(sorted)/2]
}

// growing proposes to notify of teams whose storage has grown over twice as much in the last week as in
// the week four weeks before.
func (f Facts) growing() (out []action.Proposal) {
	for _, s := range f.Storage {
		if len(s.Days) < growthHistory {
			continue
		}
		now, before := s.Last-s.Days[6], max(0, s.Days[27]-s.Days[34])
		monthly, err := now.Mul(money.HoursPerMonth, 24)
		if err != nil || now <= growthTimes*before || monthly < growthLeast {
			continue
		}
		earlier, err := before.Mul(money.HoursPerMonth, 24)
		if err != nil {
			continue
		}
		hourly, err := s.Last.Mul(1, 24)
		if err != nil {
			continue
		}
		name := s.Name
		if name == "" {
			name = "unallocated"
		}
		about := subject{kind: KindStorage, id: name, owner: s.Owner, notify: "team", hourly: inventory.Known(hourly)}
		out = append(out, f.propose(StorageGrowth, about, inventory.Known(monthly), fmt.Sprintf(
			"the storage of %s costs %s a month more than a week ago; four weeks ago it grew by %s in a week", name,
			monthly.Dollars(), earlier.Dollars())))
	}
	return out
}
