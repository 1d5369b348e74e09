package sessions

import (
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/app/clouds"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/store"
)

// TestFindsNewestSnapshot checks that the newest snapshot comes from single-node sessions with the
// same work prefix, and that a start without snapshots passes its predecessor's on.
func TestFindsNewestSnapshot(t *testing.T) {
	const place = "s3://b/work/demo"
	of := func(manifest string) session.Snapshot { return session.Snapshot{Manifest: manifest} }
	one, two := make([]session.Machine, 1), make([]session.Machine, 2)
	for _, c := range []struct {
		name   string
		before []session.Session
		want   string
	}{
		{"the first start", nil, ""},
		{
			"a start that saved",
			[]session.Session{
				{
					WorkPrefix: place, Machines: one, Snapshot: of("b"),
				}, {WorkPrefix: place, Machines: one, Snapshot: of("a")},
			},
			"b",
		},
		{
			"a start that saved nothing",
			[]session.Session{
				{WorkPrefix: place, Machines: one, PreviousSnapshot: of("c")},
				{WorkPrefix: place, Machines: one, Snapshot: of("a")},
			},
			"c",
		},
		{
			"another place",
			[]session.Session{
				{
					WorkPrefix: place + "/run", Machines: one, Snapshot: of("b"),
				}, {WorkPrefix: place, Machines: one, Snapshot: of("a")},
			},
			"a",
		},
		{"several nodes", []session.Session{{WorkPrefix: place, Machines: two, Snapshot: of("b")}}, ""},
	} {
		if got := newestSnapshot(place, c.before).Manifest; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestChargesSessionsBySeconds checks that the ledger holds seconds times rate to the cent, however
// often it was charged and with several machines.
func TestChargesSessionsBySeconds(t *testing.T) {
	start := time.Now().UTC().Truncate(time.Hour).Add(-5 * time.Hour)
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Host: store.Host{Now: time.Now}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	books := sessionLedger{&Sessions{store: s}}
	hourly, err := money.ParseRate("1.2345")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		nodes int
		from  time.Duration
		ran   time.Duration
		told  []time.Duration
	}{
		{"short", 1, 0, 7 * time.Second, nil},
		{"one second", 1, 0, time.Second, nil},
		{
			"an hour and some, told thrice", 1, 10 * time.Minute, 3725 * time.Second,
			[]time.Duration{time.Minute, time.Minute, 50 * time.Minute},
		},
		{"four machines at the same time", 4, 10 * time.Minute, 3725 * time.Second, []time.Duration{time.Minute}},
		{
			"with parts of seconds", 1, 90 * time.Minute, 100*time.Second + 400*time.Millisecond,
			[]time.Duration{30*time.Second + 700*time.Millisecond},
		},
	} {
		x := &session.Session{
			ID: c.name, Name: c.name, Provider: clouds.ProviderLocal, Account: "lab", LaunchedAt: start.Add(c.from),
			Owner: inventory.Owner{Team: c.name},
		}
		for node := range c.nodes {
			x.Machines = append(x.Machines, session.Machine{
				ID: c.name + "-" + string(rune('0'+node)), Node: node, LaunchedAt: x.LaunchedAt,
				Pool: session.Pool{Type: "1xL4", Rate: &hourly},
			})
		}
		for _, at := range c.told {
			if err := books.Charge(t.Context(), x, x.LaunchedAt.Add(at), false); err != nil {
				t.Fatal(err)
			}
			x.ChargedUntil = x.LaunchedAt.Add(at)
		}
		x.EndedAt = x.LaunchedAt.Add(c.ran)
		for range 2 {
			if err := books.Charge(t.Context(), x, x.EndedAt, true); err != nil {
				t.Fatal(err)
			}
		}
		want, err := hourly.For(int64(c.nodes)*int64(c.ran/time.Second), 3600)
		if err != nil {
			t.Fatal(err)
		}
		cost, _, err := x.Cost(time.Now())
		if err != nil || cost.Cents() != want.Cents() {
			t.Errorf("%s: the record says %s (%v), want %s", c.name, cost.Exact(), err, want.Exact())
		}
		sums, err := s.Ledger().Sums(t.Context(), ledger.SumQuery{
			By: []ledger.Dimension{ledger.ByTeam}, Since: start.Add(-time.Hour), Until: start.Add(10 * time.Hour),
			Filter: ledger.Filter{{By: ledger.ByTeam, Values: []string{c.name}}}})
		if err != nil || len(sums) != 1 {
			t.Fatalf("%s: sums %v, %v", c.name, sums, err)
		}
		if got := sums[0].Sums.Amount; got.Cents() != want.Cents() {
			t.Errorf("%s: the ledger says %s, want %s", c.name, got.Exact(), want.Exact())
		}
	}
}
