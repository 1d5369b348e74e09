package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/store"
)

// TestKeepsShortInterval checks that a source never waits longer than its interval, from the first
// round on, even if something is always due or its process died.
func TestKeepsShortInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 2 * time.Second
		for _, next := range []time.Duration{0, time.Millisecond, time.Hour} {
			d, leases := newDesk(), newTable()
			d.next = next
			src := d.source("aws")
			src.Every = func() time.Duration { return every }
			_, _, _ = leases.Take(t.Context(), "aws", "dead", DefaultTTL)
			died := time.Now()
			_, end := begin(t, leases, "heir", src)
			time.Sleep(40 * time.Second)
			made := d.made("aws")
			if len(made) < 10 || made[0].Sub(died) >= 15*time.Second {
				t.Errorf("something is due after %s: %d rounds, the first %s after the process died", next, len(made),
					first(made).Sub(died))
			}
			for i, g := range gaps(made) {
				if g > every || g < every/4 {
					t.Errorf("something is due after %s: round %d comes %s after the one before, want %s at most",
						next, i+2, g,
						every)
				}
			}
			end()
		}
	})
}

// TestSpreadsSources checks that sources that were taken at once do not continue at once.
func TestSpreadsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		var sources []Source
		for i := range 40 {
			sources = append(sources, d.source(string(rune('a'+i))))
		}
		_, end := begin(t, newTable(), "a", sources...)
		time.Sleep(70 * time.Second)
		early, late := 0, 0
		for _, src := range sources {
			made := d.made(src.Name)
			if len(made) < 2 {
				t.Fatalf("%s: %d rounds in 70s", src.Name, len(made))
			}
			switch g := made[1].Sub(made[0]); {
			case g < 35*time.Second:
				early++
			default:
				late++
			}
		}
		if early < 4 || late < 4 {
			t.Errorf("%d sources go on within 35s and %d later", early, late)
		}
		end()
	})
}

// TestKeepsSourcesAcrossReload checks that unchanged sources keep their rounds, changed ones are
// reopened, and new ones begin.
func TestKeepsSourcesAcrossReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		d.takes = 20 * time.Second
		of := func(name, made string) Source {
			src := d.source(name)
			src.Made = made
			return src
		}
		s, end := begin(t, newTable(), "a", of("same", "1"), of("changed", "1"), of("gone", "1"), of("unnamed", ""))
		for time.Sleep(5 * time.Minute); ; time.Sleep(time.Second) {
			var at int
			if d.set(func() { at = d.at["gone"] }); at > 0 {
				break // it is removed during its round
			}
		}
		s.Set([]Source{of("same", "1"), of("changed", "2"), of("new", "2"), of("unnamed", "")})
		time.Sleep(time.Minute)
		d.set(func() { d.rounds["gone"] = nil })
		for _, st := range s.Ready().Sources {
			if st.Source == "gone" {
				t.Errorf("what was left out is still told of: %+v", st)
			}
		}
		time.Sleep(5 * time.Minute)
		for name, want := range map[string]int{"same": 1, "changed": 2, "gone": 1, "new": 1, "unnamed": 2} {
			var got int
			d.set(func() { got = d.opened[name] })
			if got != want {
				t.Errorf("%s was opened %d times, want %d", name, got, want)
			}
			if rounds := len(d.made(name)); (rounds > 0) != (name != "gone") {
				t.Errorf("%s: %d rounds afterwards", name, rounds)
			}
		}
		end()
	})
}

// TestBackgroundPassesDelayNoOthers checks that background rounds run one at a time, begin when
// their source says so, are rarely retried, and delay neither other rounds, nor the readiness or
// the end of the service.
func TestBackgroundPassesDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, fast := newDesk(), newDesk()
		slow.takes = 20 * time.Minute
		var sources []Source
		for _, name := range []string{"a", "b", "c"} {
			src := slow.source("audit:" + name)
			src.Every, src.Deadline, src.Background = func() time.Duration { return 6 * time.Hour }, 3*time.Hour, true
			src.First = func(context.Context) (time.Duration, error) { return 30 * time.Second, nil }
			src.Open = func(context.Context, store.Lease) (Rounds, error) { return &deskRounds{slow, "audits"}, nil }
			sources = append(sources, src, fast.source(name))
		}
		began := time.Now()
		s, end := begin(t, newTable(), "p", sources...)
		time.Sleep(55 * time.Minute)
		made := slow.made("audits")
		if len(made) != 3 || slow.worst != 1 || made[0].Sub(began) < 30*time.Second {
			t.Errorf("%d rounds in the background, %d at once, the first after %s", len(made), slow.worst,
				first(made).Sub(began))
		}
		for _, name := range []string{"a", "b", "c"} {
			for _, g := range gaps(fast.made(name)) {
				if g > time.Minute {
					t.Errorf("%s waited %s for the background", name, g)
				}
			}
		}
		if r := s.Ready(); !r.Ready {
			t.Errorf("not ready next to the background: %+v", r)
		}
		told := time.Now()
		end()
		if took := time.Since(told); took > time.Second {
			t.Errorf("the end took %s", took)
		}

		failing := newDesk()
		failing.err = errors.New("denied")
		src := failing.source("audit:a")
		src.Every, src.Background = func() time.Duration { return 6 * time.Hour }, true
		s, end = begin(t, newTable(), "p", src)
		time.Sleep(24 * time.Hour)
		if n := len(failing.made("audit:a")); n < 8 || n > 14 {
			t.Errorf("a failing one was tried %d times in a day", n)
		}
		if r := s.Ready(); !r.Ready || r.Sources[0].Problem == "" {
			t.Errorf("a failing one in the background: %+v", r)
		}
		end()
	})
}

// TestNamesDeniedAccounts checks that unreadable accounts back off and are named, as is an
// organization whose accounts are unknown, and that the service still answers and stops actions.
func TestNamesDeniedAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := newDesk(), newDesk()
		bad.err = errors.New("assume role: denied")
		s, end := begin(t, newTable(), "p", good.source("aws/1"), bad.source("aws/2"))
		time.Sleep(10 * time.Minute)
		r := s.Ready()
		if !r.Ready || len(r.Sources) != 2 || r.Sources[1].Failures < 3 || !r.Sources[1].Late || r.Sources[0].Late ||
			!slices.Equal(r.Degraded, []string{"aws/2: assume role: denied"}) {
			t.Errorf("one account is denied: %+v", r)
		}
		good.set(func() { good.err = errors.New("throttled") })
		time.Sleep(30 * time.Minute)
		if r := s.Ready(); !r.Ready ||
			!slices.Equal(r.Degraded, []string{"aws/1: throttled", "aws/2: assume role: denied"}) {
			t.Errorf("no account is read: %+v", r)
		}
		s.Set(nil)
		s.Problem(ProblemOrganization, errors.New("denied"))
		time.Sleep(time.Minute)
		if r := s.Ready(); !r.Ready || !slices.Equal(r.Problems, []string{"organization: denied"}) {
			t.Errorf("the accounts are not known: %+v", r)
		}
		s.Problem(ProblemOrganization, nil)
		if r := s.Ready(); !r.Ready || len(r.Problems) != 0 {
			t.Errorf("they are: %+v", r)
		}
		end()
	})
}

// TestReadsDueSourceEarly checks that the next round of a source begins within a minute or two
// after it became due, and only then.
func TestReadsDueSourceEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk()
		src := d.source("audit")
		src.Every = func() time.Duration { return 6 * time.Hour }
		var due atomic.Bool
		src.Due = func(context.Context) (bool, error) { return due.Swap(false), nil }
		_, end := begin(t, newTable(), "a", src)
		time.Sleep(time.Hour)
		if n := len(d.made("audit")); n != 1 {
			t.Errorf("%d rounds in the first hour, want 1", n)
		}
		due.Store(true)
		time.Sleep(2 * time.Minute)
		if n := len(d.made("audit")); n != 2 {
			t.Errorf("%d rounds after it became due, want 2", n)
		}
		time.Sleep(time.Hour)
		if n := len(d.made("audit")); n != 2 {
			t.Errorf("%d rounds an hour later, want 2", n)
		}
		end()
	})
}
