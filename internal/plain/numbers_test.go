package plain

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFormatsNumbersForPeople(t *testing.T) {
	day := time.Date(2026, time.November, 22, 15, 4, 5, 0, time.FixedZone("", 3600))
	for _, tc := range []struct{ got, want string }{
		{Number(0.4, 1), "0.4"},
		{Number(12500, 0), "12,500"},
		{Number(-1234.50, 2), "-1,234.5"},
		{Number(-0.01, 1), "0"},
		{Number(3, 2), "3"},
		{Number(math.NaN(), 2), "–"},
		{Number(1e20, 0), "100000000000000000000"},
		{Percent(37.5, 0), "38%"},
		{Percent(37.5, 1), "37.5%"},
		{Share(0.42, 0), "42%"},
		{Share(0, 0), "0%"},
		{Share(1, 1), "100%"},
		{Share(0.004, 0), "<1%"},
		{Share(0.0004, 1), "<0.1%"},
		{Share(0.996, 0), ">99%"},
		{Share(0.9996, 1), ">99.9%"},
		{Share(1.2, 0), "120%"},
		{Share(-0.1, 0), "-10%"},
		{Change(0.124), "+12%"},
		{Change(-0.5), "-50%"},
		{Change(0.001), "0%"},
		{Size(int64(84 << 40)), "84 TiB"},
		{Size(1.5 * (1 << 30)), "1.5 GiB"},
		{Size(int64(0)), "0 B"},
		{Size(int64(1) << 62), "4,096 PiB"},
		{Count(1, "machine"), "1 machine"},
		{Count(1284, "machine"), "1,284 machines"},
		{Count(0, "entry"), "0 entries"},
		{Count(2, "day"), "2 days"},
		{Count(int64(2), "process"), "2 processes"},
		{Count(3, "branch"), "3 branches"},
		{Count(2, "machine is", "machines are"), "2 machines are"},
		{Duration(0), "0s"},
		{Duration(250 * time.Millisecond), "250ms"},
		{Duration(999 * time.Millisecond), "1s"},
		{Duration(4200 * time.Millisecond), "4.2s"},
		{Duration(45 * time.Second), "45s"},
		{Duration(59990 * time.Millisecond), "1m"},
		{Duration(90 * time.Second), "1m 30s"},
		{Duration(10*time.Hour + 2*time.Minute + 59*time.Second), "10h 2m"},
		{Duration(81 * time.Hour), "3d 9h"},
		{Duration(14 * 24 * time.Hour), "14d"},
		{Duration(-time.Hour), "-1h"},
		{Date(day), "2026-11-22"},
		{Month(day), "2026-11"},
		{Time(day), "2026-11-22 14:04 UTC"},
		{When(day, day.Add(-time.Hour)), "14:04:05 UTC"},
		{When(day, day.Add(-48*time.Hour)), "2026-11-22 14:04 UTC"},
		{When(time.Time{}, day), ""},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

// TestDurationHasAtMostTwoUnits checks that the units of any printed duration add up to the
// duration, except for the part smaller than the second unit.
func TestDurationHasAtMostTwoUnits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(int64(time.Minute), math.MaxInt64).Draw(t, "d"))
		s := Duration(d)
		units := strings.Fields(strings.ReplaceAll(s, ",", ""))
		if len(units) > 2 {
			t.Fatalf("%s is printed %q", d, s)
		}
		var back, last time.Duration
		for _, u := range units {
			n, err := time.ParseDuration(strings.Replace(u, "d", "h", 1))
			if err != nil {
				t.Fatal(err)
			}
			last = map[byte]time.Duration{
				'd': 24 * time.Hour, 'h': time.Hour, 'm': time.Minute, 's': time.Second,
			}[u[len(u)-1]]
			if last == 24*time.Hour {
				n *= 24
			}
			back += n
		}
		if back > d || d-back >= max(last, time.Second) && len(units) == 2 {
			t.Fatalf("%s is printed %q, which is %s", d, s, back)
		}
	})
}

func TestFewNamesAtMostFive(t *testing.T) {
	for want, names := range map[string][]string{
		"": nil, "a": {"a"}, "a, b, c, d, e": {"a", "b", "c", "d", "e"},
		"a, b, c, d, e and 2 more": {"a", "b", "c", "d", "e", "f", "g"},
	} {
		if got := Few(names); got != want {
			t.Errorf("%q is %q, want %q", names, got, want)
		}
	}
}
