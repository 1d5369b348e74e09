package backtest

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// asFixed holds that the sessions of a report are its fixed wait of the same time: hours,
// launches and dollars.
func asFixed(t interface {
	Helper()
	Fatalf(string, ...any)
}, r Report, fixed string) {
	t.Helper()
	var sessions, wait Result
	for _, res := range r.Results {
		switch {
		case res.AsSessions != nil:
			sessions = res
		case res.Name == fixed:
			wait = res
		}
	}
	s := sessions.AsSessions
	if s == nil {
		t.Fatalf("no result has sessions")
	}
	if want := wait.ResourceHours - wait.ReleasedHours; math.Abs(s.SessionHours-want) > 1e-9 ||
		wait.ResourceHours == 0 {
		t.Fatalf("sessions run %v h, %s %v h", s.SessionHours, fixed, want)
	}
	if want := int64(r.Trace.Resources) + wait.Restarts; s.Launches != want {
		t.Fatalf("%d launches, %s has %d", s.Launches, fixed, want)
	}
	if s.CostUSD.Known() != wait.SavedUSD.Known() {
		t.Fatalf("dollars %v, %s %v", s.CostUSD, fixed, wait.SavedUSD)
	}
	if !s.CostUSD.Known() {
		return
	}
	if s.CostUSD.Or(0)+wait.SavedUSD.Or(0) != wait.CostUSD.Or(0) {
		t.Fatalf("sessions cost %s, %s saves %s of %s", s.CostUSD, fixed, wait.SavedUSD, wait.CostUSD)
	}
}

var sessionTimes = map[string]time.Duration{
	"fixed-1m": time.Minute, "fixed-5m": 5 * time.Minute, "fixed-15m": 15 * time.Minute, "fixed-60m": time.Hour,
}

// TestAsSessions checks on random fleets that machines as sessions run the hours of the fixed wait.
func TestAsSessions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fixed := rapid.SampledFrom([]string{"fixed-1m", "fixed-5m", "fixed-15m", "fixed-60m"}).Draw(t, "wait")
		p := params(time.Duration(rapid.IntRange(0, 600).Draw(t, "restart")) * time.Second)
		p.AsSessions, p.IdleBelow = sessionTimes[fixed], 1
		var err error
		if p.Policies, err = SessionRule(p.AsSessions); err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), strings.NewReader(csvOf(rowsOf(patterns().Draw(t, "patterns")...))), p)
		if err != nil {
			t.Fatal(err)
		}
		asFixed(t, r, fixed)
	})
}

// TestRecordedPets checks it on the public trace: with a restart cost, without a price.
func TestRecordedPets(t *testing.T) {
	for fixed, idle := range sessionTimes {
		p := params(8700 * time.Millisecond)
		p.AsSessions, p.IdleBelow = idle, 1
		var err error
		if p.Policies, err = SessionRule(idle); err != nil {
			t.Fatal(err)
		}
		asFixed(t, recorded(t, p), fixed)
	}
}
