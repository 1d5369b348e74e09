package policy

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// TestAnswerIsConstantUntilNext checks Outcome.Next: with the same facts, the answer at every
// second up to it, and just before it, equals the present answer.
func TestAnswerIsConstantUntilNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, f := genPolicy(t), genFacts(t, genTime(t))
		now := f.Now
		out := p.Evaluate(f)
		end := out.Next
		if end.IsZero() || end.Sub(now) > 10*24*time.Hour {
			end = now.Add(10 * 24 * time.Hour)
		} else if !end.After(now) {
			t.Fatalf("Next is %s, not after %s", end, now)
		}
		at := func(moment time.Time) {
			f.Now = moment
			if got := p.Evaluate(f).Answer; got != out.Answer {
				t.Fatalf("where %s, when %s, %+v: %s at %s, %s at %s, before %s", p.Where, p.When,
					p.Schedule, out.Answer, now,
					got, moment, out.Next)
			}
		}
		step := max(time.Second, end.Sub(now)/400).Truncate(time.Second)
		for moment := now.Truncate(time.Second).Add(time.Second); moment.Before(end); moment = moment.Add(step) {
			at(moment)
		}
		at(end.Add(-1))
	})
}

// TestNext checks the exact times of typical conditions.
func TestNext(t *testing.T) {
	never := time.Time{}
	for _, tc := range []struct {
		name, keys string
		change     func(*Facts)
		want       time.Time
	}{
		{"what is never later", `when: resource.gpus > 0`, nil, never},
		{
			"idle long enough: only the samples' age matters", `when: duty.lasting >= duration("30m")`, nil,
			wednesday.Add(2*time.Minute + 1),
		},
		{
			"idle, the span within the known time", `when: duty.lasting >= duration("60m30s")`, nil,
			wednesday.Add(30 * time.Second),
		},
		{
			"idle, the span just over", `when: duty.lasting > duration("60m30s")`, nil,
			wednesday.Add(30*time.Second + 1),
		},
		{
			"idle, the span beyond what is known", `when: duty.lasting >= duration("62m")`, nil,
			wednesday.Add(2*time.Minute + 1),
		},
		{"busy", `when: duty.lasting >= duration("30m")`, func(f *Facts) {
			f.Duty = &duty.Verdict{State: duty.Busy}
		}, never},
		{"not judged", `when: duty.lasting >= duration("30m")`, func(f *Facts) { f.Duty = nil }, never},
		{"an age to come", `when: resource.age >= duration("25h")`, nil, wednesday.Add(time.Hour)},
		{"an age over", `when: resource.age >= duration("12h")`, nil, never},
		{"an age just reached", `when: resource.age > duration("24h")`, nil, wednesday.Add(1)},
		{"an age that is reached", `when: resource.age >= duration("24h")`, nil, never},
		{"an age that is so for a moment", `when: resource.age == duration("24h")`, nil, wednesday.Add(1)},
		{"a creation to come", `when: resource.age >= duration("1m")`, func(f *Facts) {
			f.Resource.CreatedAt = wednesday.Add(time.Hour)
		}, wednesday.Add(time.Hour)},
		{"two ages whose difference stays", `when: resource.age - resource.state_age > duration("4h")`, nil, never},
		{
			"a sum of two ages", `when: resource.age + resource.state_age >= duration("46h")`, nil,
			wednesday.Add(time.Hour),
		},
		{
			"a difference that stays until the samples end", `when: resource.age - duty.lasting >= duration("23h30m")`,
			func(f *Facts) { f.Duty.Expires = never }, wednesday.Add(time.Minute),
		},
		{"a lease's rest", `when: lease.remaining < duration("15m")`, nil, wednesday.Add(45*time.Minute + 1)},
		{"a lease's end", `when: lease.expired`, nil, wednesday.Add(time.Hour)},
		{"a fixed time", `when: now >= timestamp("2026-01-07T13:30:00Z")`, nil, wednesday.Add(90 * time.Minute)},
		{"the hour", `when: now.getHours() >= 20`, func(f *Facts) {
			f.Now = f.Now.Add(10 * time.Second)
		}, wednesday.Add(time.Minute)},
		{
			"a schedule's turn", "schedule: {timezone: Europe/Berlin, off: \"20:00-07:00\"}", nil,
			wednesday.Add(7 * time.Hour),
		},
		{
			"a false part decides alone", "where: resource.gpus > 4\nwhen: resource.age >= duration(\"25h\")", nil,
			never,
		},
		{"what is not selected", "select: {kind: volume}\nwhen: resource.age >= duration(\"25h\")", nil, never},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := machine()
			if tc.change != nil {
				tc.change(f)
			}
			if got := policyOf(t, tc.keys).Evaluate(f).Next; !got.Equal(tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestDurationGrowsWithTime checks that an older verdict's duration grows up to the time of the
// facts, but not beyond its samples.
func TestDurationGrowsWithTime(t *testing.T) {
	p := policyOf(t, `when: duty.lasting > duration("1h") && duty.lasting <= duration("61m")`)
	for offset, want := range map[time.Duration]usage.Tristate{
		0: usage.False, time.Second: usage.True, time.Minute: usage.True, 2 * time.Minute: usage.True,
		2*time.Minute + 1: usage.Unknown,
	} {
		f := machine()
		f.Now = f.Now.Add(offset)
		if got := p.Evaluate(f).Answer; got != want {
			t.Errorf("after %s: %s, want %s", offset, got, want)
		}
	}
}

// TestScheduleFollowsWallClock compares spans with wall clocks, minute by minute, across clock
// changes.
func TestScheduleFollowsWallClock(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHours(&Schedule{Location: berlin, Off: []string{"Mon-Fri 20:00-07:00", "Sat-Sun"}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 3, 23, 0, 0, 0, 0, time.UTC)
	for at := start; at.Before(start.AddDate(0, 0, 14)); at = at.Add(time.Minute) {
		local := at.In(berlin)
		day, hour := local.Weekday(), local.Hour()
		weekend := day == time.Saturday || day == time.Sunday
		evening := hour >= 20 && !weekend
		morning := hour < 7 && day != time.Monday && !weekend
		if got, want := h.isOff(at), weekend || evening || morning; got != want {
			t.Fatalf("%s: off is %t, want %t", local, got, want)
		}
	}
}

// TestScheduleChanges checks the start and end of spans around clock changes.
func TestScheduleChanges(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, off, now, want string }{
		{"the night that is an hour short", "20:00-07:00", "2026-03-28T20:00:00Z", "2026-03-29T05:00:00Z"},
		{"the night that is an hour long", "20:00-07:00", "2026-10-24T20:00:00Z", "2026-10-25T06:00:00Z"},
		{"a span that is skipped", "02:15-02:45", "2026-03-29T00:30:00Z", "2026-03-30T00:15:00Z"},
		{
			"a span whose beginning is when the clocks are set", "02:00-02:30", "2026-03-29T00:30:00Z",
			"2026-03-30T00:00:00Z",
		},
		{
			"a span that the clocks leave when they are set back", "02:30-07:00", "2026-10-25T00:45:00Z",
			"2026-10-25T01:00:00Z",
		},
		{"and that comes again", "02:30-07:00", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"},
		{"always", "Mon-Sun", "2026-10-25T01:00:00Z", "0001-01-01T00:00:00Z"},
	} {
		h, err := newHours(&Schedule{Location: berlin, Off: []string{tc.off}})
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(time.RFC3339, tc.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.nextChange(now).UTC().Format(time.RFC3339); got != tc.want {
			t.Errorf("%s: %q turns at %s, want %s", tc.name, tc.off, got, tc.want)
		}
	}
}

func TestTicks(t *testing.T) {
	place := func(name string) *time.Location {
		l, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	berlin := place("Europe/Berlin")
	for _, tc := range []struct {
		name       string
		at         []string
		place      *time.Location
		now        string
		last, next string
	}{
		{
			"weekly", []string{"Fri 18:00"}, berlin, "2026-01-07T12:00:00Z", "2026-01-02T17:00:00Z",
			"2026-01-09T17:00:00Z",
		},
		{
			"at the tick itself", []string{"Fri 18:00"}, berlin, "2026-01-09T17:00:00Z", "2026-01-09T17:00:00Z",
			"2026-01-16T17:00:00Z",
		},
		{"daily", []string{"20:00"}, time.UTC, "2026-01-07T12:00:00Z", "2026-01-06T20:00:00Z", "2026-01-07T20:00:00Z"},
		{
			"across the change to summer", []string{"20:00"}, berlin, "2026-03-29T12:00:00Z", "2026-03-28T19:00:00Z",
			"2026-03-29T18:00:00Z",
		},
		{
			"in the hour that is skipped", []string{"Sun 02:30"}, berlin,
			"2026-03-29T00:00:00Z", "2026-03-22T01:30:00Z",
			"2026-03-29T01:00:00Z",
		},
		{
			"in the hour that comes twice", []string{"Sun 02:30"}, berlin,
			"2026-10-25T01:00:00Z", "2026-10-25T00:30:00Z",
			"2026-11-01T01:30:00Z",
		},
		{
			"midnight skipped", []string{"Sun 00:00"}, place("America/Santiago"), "2026-09-06T03:00:00Z",
			"2026-08-30T04:00:00Z", "2026-09-06T04:00:00Z",
		},
		{
			"a day skipped", []string{"Fri 12:00"}, place("Pacific/Apia"),
			"2011-12-30T09:00:00Z", "2011-12-23T22:00:00Z",
			"2011-12-30T10:00:00Z",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, err := newHours(&Schedule{Location: tc.place, At: tc.at})
			if err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			if got := h.lastTick(now).UTC().Format(time.RFC3339); got != tc.last {
				t.Errorf("last %s, want %s", got, tc.last)
			}
			if got := h.nextTick(now).UTC().Format(time.RFC3339); got != tc.next {
				t.Errorf("next %s, want %s", got, tc.next)
			}
		})
	}
}

// TestMissedTickStaysDue checks that a tick stays due for resources running since before it,
// however late the pass, and is not due for later ones.
func TestMissedTickStaysDue(t *testing.T) {
	p := policyOf(t, `schedule: {timezone: Europe/Berlin, at: ["Fri 18:00"]}`)
	friday := time.Date(2026, 1, 9, 17, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name           string
		now            time.Time
		created, since time.Time
		want           usage.Tristate
	}{
		{"before the tick", friday.Add(-1), friday.Add(-time.Hour), time.Time{}, usage.False},
		{"at the tick", friday, friday.Add(-time.Hour), time.Time{}, usage.True},
		{"two days late", friday.Add(48 * time.Hour), friday.Add(-time.Hour), time.Time{}, usage.True},
		{"started after it", friday.Add(48 * time.Hour), friday.Add(time.Minute), time.Time{}, usage.False},
		{
			"started again after it", friday.Add(48 * time.Hour), friday.Add(-time.Hour), friday.Add(time.Minute),
			usage.False,
		},
		{"unknown", friday.Add(48 * time.Hour), time.Time{}, time.Time{}, usage.Unknown},
		{"a launch in the future", friday.Add(48 * time.Hour), friday.Add(72 * time.Hour), time.Time{}, usage.Unknown},
	} {
		f := &Facts{Now: tc.now, Resource: &inventory.Resource{CreatedAt: tc.created, StateSince: tc.since}}
		if got := p.Evaluate(f).Answer; got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestParseDuration checks that formatted durations parse again.
func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"30m": 30 * time.Minute, "1d12h": 36 * time.Hour, "1w": 168 * time.Hour, "1.5h": 90 * time.Minute,
		"-2h": -2 * time.Hour,
		"0s":  0, "2h0m0s": 2 * time.Hour, "250ms": 250 * time.Millisecond,
		"106751d23h47m16s854ms775us807ns": math.MaxInt64,
	} {
		if got, err := plain.ParseDuration(in); err != nil || got != want {
			t.Errorf("%q is %s, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "-", "30", "m", "30 m", "1h-2m", "--1h", "999999999999h", "1e3s", "∞"} {
		if got, err := plain.ParseDuration(in); err == nil {
			t.Errorf("%q is read as %s", in, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(-math.MaxInt64, math.MaxInt64).Draw(t, "d"))
		for _, text := range []string{plain.ExactDuration(d), d.String()} {
			if got, err := plain.ParseDuration(text); err != nil || (got-d).Abs() > time.Microsecond {
				t.Fatalf("%s is written %q and read as %s, %v", d, text, got, err)
			}
		}
		if got, _ := plain.ParseDuration(plain.ExactDuration(d)); got != d {
			t.Fatalf("%s is written %q and read as %s", d, plain.ExactDuration(d), got)
		}
	})
}
