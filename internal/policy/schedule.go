package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // for time zones on machines without zone files

	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	minutesPerDay  = 24 * 60
	minutesPerWeek = 7 * minutesPerDay
)

// weekdays are the days as schedules name them, Monday first.
var weekdays = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}

// compiledSchedule is a compiled schedule.
type compiledSchedule struct {
	location *time.Location
	// off holds for every minute of the week, from Monday 00:00, whether it is off.
	off [minutesPerWeek]bool
	// minutesToChange is the number of minutes until off changes; 0 if it never does.
	minutesToChange [minutesPerWeek]uint16
	// ticks are minutes of the week, in order.
	ticks []int
}

// newHours compiles a schedule.
func newHours(s *Schedule) (*compiledSchedule, error) {
	h := &compiledSchedule{location: s.Location}
	if h.location == nil {
		h.location = time.UTC
	}
	for _, span := range s.Off {
		if err := h.addOff(span); err != nil {
			return nil, err
		}
	}
	for _, tick := range s.At {
		if err := h.addTick(tick); err != nil {
			return nil, err
		}
	}
	slices.Sort(h.ticks)
	h.ticks = slices.Compact(h.ticks)
	if slices.Contains(h.off[:], true) && slices.Contains(h.off[:], false) {
		for i := 2*minutesPerWeek - 1; i >= 0; i-- { // twice around the week, so that the last minute sees the first
			here, after := i%minutesPerWeek, (i+1)%minutesPerWeek
			h.minutesToChange[here] = 1
			if h.off[here] == h.off[after] {
				h.minutesToChange[here] += h.minutesToChange[after]
			}
		}
	}
	return h, nil
}

// addOff reads "Mon-Fri 20:00-07:00", "Sat-Sun" or "22:00-06:00". A span that ends at
// or before its start ends on the next day.
func (h *compiledSchedule) addOff(text string) error {
	days, clock, err := splitSpan(text)
	if err != nil {
		return err
	}
	from, length := 0, minutesPerDay
	if clock != "" {
		start, end, ok := strings.Cut(clock, "-")
		a, errA := parseClock(start)
		b, errB := parseClock(end)
		switch {
		case !ok || errA != nil || errB != nil || a == minutesPerDay:
			return fmt.Errorf("%q is not a span such as \"Mon-Fri 20:00-07:00\", \"Sat-Sun\" or \"22:00-06:00\"", text)
		case a == b:
			return fmt.Errorf("%q is empty: it ends when it begins; a whole day is written without hours", text)
		case b > a:
			from, length = a, b-a
		default:
			from, length = a, minutesPerDay-a+b
		}
	}
	for _, day := range days {
		for i := range length {
			h.off[(day*minutesPerDay+from+i)%minutesPerWeek] = true
		}
	}
	return nil
}

// addTick reads "Fri 18:00", "Mon-Fri 20:00" or "20:00".
func (h *compiledSchedule) addTick(text string) error {
	days, clock, err := splitSpan(text)
	if err != nil {
		return err
	}
	at, err := parseClock(clock)
	if err != nil || at == minutesPerDay {
		return fmt.Errorf("%q is not a time such as \"Fri 18:00\", \"Mon-Fri 20:00\" or \"20:00\"", text)
	}
	for _, day := range days {
		h.ticks = append(h.ticks, day*minutesPerDay+at)
	}
	return nil
}

// splitSpan separates days from hours; without days it returns all of them.
func splitSpan(text string) (days []int, clock string, err error) {
	first, rest, both := strings.Cut(text, " ")
	if !both && first != "" && first[0] >= '0' && first[0] <= '9' {
		return []int{0, 1, 2, 3, 4, 5, 6}, first, nil
	}
	for item := range strings.SplitSeq(first, ",") {
		from, to, isRange := strings.Cut(item, "-")
		if !isRange {
			to = from
		}
		a, b := slices.Index(weekdays, from), slices.Index(weekdays, to)
		if a < 0 || b < 0 {
			return nil, "", fmt.Errorf("%q: %q is not a day or a range of days; days are %s", text, item,
				strings.Join(weekdays, ", "))
		}
		for d := a; ; d = (d + 1) % 7 {
			days = append(days, d)
			if d == b {
				break
			}
		}
	}
	return days, rest, nil
}

// parseClock parses "07:00" to "24:00" as minutes of the day.
func parseClock(s string) (int, error) {
	hour, minute, ok := strings.Cut(s, ":")
	h, errH := strconv.ParseUint(hour, 10, 8)
	m, errM := strconv.ParseUint(minute, 10, 8)
	if !ok || len(hour) != 2 || len(minute) != 2 || errH != nil || errM != nil || m > 59 || h*60+m > minutesPerDay {
		return 0, fmt.Errorf("%q is not a time of day such as 07:00", s)
	}
	return int(h*60 + m), nil
}

// minuteOfWeek returns the minute of the week on wall clocks.
func (h *compiledSchedule) minuteOfWeek(t time.Time) int {
	t = t.In(h.location)
	return (int(t.Weekday())+6)%7*minutesPerDay + t.Hour()*60 + t.Minute()
}

// isOff reports whether wall clocks are in an off span.
func (h *compiledSchedule) isOff(now time.Time) bool { return h.off[h.minuteOfWeek(now)] }

// nextChange returns when isOff next changes; zero is never. Between two changes of the zone's
// offset, wall clock minutes are minutes of time.
func (h *compiledSchedule) nextChange(now time.Time) time.Time {
	if h.minutesToChange[0] == 0 {
		return time.Time{}
	}
	was := h.isOff(now)
	for {
		turn := now.Truncate(time.Minute).Add(time.Duration(h.minutesToChange[h.minuteOfWeek(now)]) * time.Minute)
		_, change := now.In(h.location).ZoneBounds()
		if change.IsZero() || turn.Before(change) {
			return turn
		}
		if h.isOff(change) != was {
			return change
		}
		now = change
	}
}

// isDue returns whether a tick is due for a resource running since then: the last tick is later. It
// stays due until the resource restarts, so that a tick without a pass is caught up.
func (h *compiledSchedule) isDue(now, since time.Time) usage.Tristate {
	if since.IsZero() {
		return usage.Unknown
	}
	last := h.lastTick(now)
	return usage.FromBool(!last.IsZero() && since.Before(last))
}

// lastTick returns the newest tick at or before a time; zero without any.
func (h *compiledSchedule) lastTick(now time.Time) time.Time { return h.tick(now, -1) }

// nextTick returns the first tick after a time; zero without any.
func (h *compiledSchedule) nextTick(now time.Time) time.Time { return h.tick(now, 1) }

// tick finds the nearest tick on one side of a time, day by day for a week.
func (h *compiledSchedule) tick(now time.Time, step int) time.Time {
	local, found := now.In(h.location), time.Time{}
	for day := 0; day <= 8 && found.IsZero() && len(h.ticks) > 0; day++ {
		date := time.Date(local.Year(), local.Month(), local.Day()+day*step, 0, 0, 0, 0, time.UTC)
		for _, tick := range h.ticks {
			if tick/minutesPerDay != (int(date.Weekday())+6)%7 {
				continue
			}
			switch t := wallClockTime(date.Add(time.Duration(tick%minutesPerDay)*time.Minute), h.location); {
			case step > 0:
				found = sooner(found, t, now)
			case !t.After(now) && t.After(found):
				found = t
			}
		}
	}
	return found
}

// wallClockTime returns the first moment at which wall clocks of a place show t or later: clocks
// set forward skip minutes, clocks set back repeat them.
func wallClockTime(t time.Time, place *time.Location) time.Time {
	at := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, place)
	start, end := at.ZoneBounds()
	_, offset := at.Zone()
	switch shown := at.Add(time.Duration(offset) * time.Second); {
	case shown.After(t): // skipped; the offset changed when the zone period began
		return start
	case shown.Before(t):
		return end
	case start.IsZero():
		return at
	}
	_, before := start.Add(-1).Zone()
	if earlier := at.Add(time.Duration(offset-before) * time.Second); offset < before && earlier.Before(start) {
		return earlier
	}
	return at
}
