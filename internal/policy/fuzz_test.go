package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// FuzzCondition checks that a mistake has a position in the condition, and that a result without
// some facts does not change once they are known.
func FuzzCondition(f *testing.F) {
	f.Add(`duty.state in ["idle", "held"] && duty.lasting >= duration("30m")`)
	f.Add(`!has(resource.tags["a b"]) || resource.tags.all(k, k != "x") ? now.getHours() > 20 : lease.expired`)
	f.Add(`resource.hourly_usd * 24.0 / budget.used_share > double("1e3") && [1, 2].exists(i, i == resource.gpus)`)
	f.Add(`type(resource.team) == string && dyn(now) == {"a": resource.age}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, mistake := compile(text, true)
		if mistake != nil {
			if lines := strings.Count(text, "\n") + 1; mistake.line < 1 ||
				mistake.line > lines || mistake.column < 0 ||
				strings.Contains(mistake.message, "\n") {
				t.Fatalf("%+v is not in %d lines of condition", mistake, lines)
			}
			return
		}
		facts := machine()
		h, err := newHours(&Schedule{Off: []string{"Sat-Sun"}, At: []string{"20:00"}})
		if err != nil {
			t.Fatal(err)
		}
		e := evaluation{facts: facts, resource: facts.Resource, schedule: h}
		less, more := c.eval(&activation{overrides: map[string]any{}}), c.answer(e)
		if less != usage.Unknown && less != more {
			t.Fatalf("%s of nothing, %s of a machine", less, more)
		}
		if explained, _ := explainCondition("when", text, c, &e); explained.Answer != more {
			t.Fatalf("%s, explained %s", more, explained.Answer)
		}
		if next := c.next(&e); !next.IsZero() && !next.After(facts.Now) {
			t.Fatalf("next is %s", next)
		}
	})
}

// FuzzSchedule checks that parsed spans and ticks change when they say.
func FuzzSchedule(f *testing.F) {
	f.Add("Mon-Fri 20:00-07:00", "Fri 18:00", int64(1_774_746_000))
	f.Add("Sat-Sun", "Mon-Fri 20:00", int64(1_792_890_000))
	f.Add("Sun,Tue-Wed 00:00-24:00", "00:00", int64(0))
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, off, at string, unix int64) {
		h, err := newHours(&Schedule{Location: berlin, Off: []string{off}, At: []string{at}})
		if err != nil {
			return
		}
		now := time.Unix(unix%4_000_000_000, 0)
		if turn := h.nextChange(now); !turn.IsZero() && (!turn.After(now) || h.isOff(turn) == h.isOff(now) ||
			h.isOff(turn.Add(-1)) != h.isOff(now)) {
			t.Fatalf("%q: off is %t at %s, %t at its turn %s", off, h.isOff(now), now, h.isOff(turn), turn)
		}
		last, next := h.lastTick(now), h.nextTick(now)
		if last.After(now) || !next.After(now) || next.Sub(last) > 8*24*time.Hour || !h.lastTick(next).Equal(next) {
			t.Fatalf("%q: %s lies not between %s and %s", at, now, last, next)
		}
	})
}

// FuzzDuration checks that parsed durations survive a round trip.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"30m", "1w2d", "1.5h", "-9223372036854775807ns", "0.1ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := plain.ParseDuration(s)
		if err != nil {
			return
		}
		if again, err := plain.ParseDuration(plain.ExactDuration(d)); err != nil || again != d {
			t.Fatalf("%q is %s, written %q and read as %s, %v", s, d, plain.ExactDuration(d), again, err)
		}
	})
}
