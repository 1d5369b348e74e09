package gateway

import (
	"encoding/json"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// TestUnitsAreCountedByHour: rows and tokens belong to the hour in which they were answered, and what was
// counted before a restart stays.
func TestUnitsAreCountedByHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * time.Minute)
		start := time.Now()
		first := start.UTC().Truncate(time.Hour).Add(time.Hour)
		m := newMeter(nil, start)
		m.add("http://a", "p", 0, "", start)
		answer := func(m *meter, model string, rows int64, answered bool) {
			w := m.begin("http://a", []part{{account: account{"p", model, "team"}, rows: rows}}, time.Now())
			m.end("http://a", w, answered, time.Now())
		}
		time.Sleep(time.Hour)
		answer(m, "m", 3, true)
		answer(m, "m", 4, true)
		answer(m, "m", 50, false)
		m.tokens(account{"p", "chat", "team"}, &work{}, 10, 20, true, time.Now())
		m.tokens(account{"p", "chat", "team"}, &work{}, 0, 0, false, time.Now())

		before := m.units(time.Time{}, time.Time{}, time.Now())
		m = newMeter(&before, time.Now())
		m.add("http://a", "p", 0, "", time.Now())
		answer(m, "m", 1, true)
		time.Sleep(time.Hour)
		answer(m, "m", 5, true)

		got := m.units(time.Time{}, time.Time{}, time.Now())
		if !got.CountedFrom.Equal(first) {
			t.Errorf("counted from %s, want the first whole hour %s", got.CountedFrom, first)
		}
		want := []stats.HourUnits{
			{Hour: first, Pool: "p", Model: "chat", Owner: "team", InputTokens: 10, OutputTokens: 20},
			{Hour: first, Pool: "p", Model: "m", Owner: "team", Predictions: 8},
			{Hour: first.Add(time.Hour), Pool: "p", Model: "m", Owner: "team", Predictions: 5},
		}
		if len(got.Hours) != len(want) {
			t.Fatalf("got %+v", got.Hours)
		}
		for i := range want {
			if got.Hours[i] != want[i] {
				t.Errorf("got %+v, want %+v", got.Hours[i], want[i])
			}
		}
		if one := m.units(first.Add(time.Hour), first.Add(2*time.Hour), time.Now()); len(one.Hours) != 1 {
			t.Errorf("one hour has %+v", one.Hours)
		}
	})
}

// TestForgottenHoursAreNotCounted: an hour that had to be dropped is no hour without predictions.
func TestForgottenHoursAreNotCounted(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	m := newHours(nil, start)
	for i := range maxHourUnits + 1 {
		m.of(account{"p", "m", "o"}, start.Add(time.Duration(i)*time.Hour)).Predictions++
	}
	if want := start.Add(time.Hour); !m.first.Equal(want) || len(m.units) != maxHourUnits {
		t.Errorf("%d hours are counted from %s, want %d from %s", len(m.units), m.first, maxHourUnits, want)
	}
}

// TestUnitsAreServedAndKept asks a gateway for its units, and another one after its end.
func TestUnitsAreServedAndKept(t *testing.T) {
	m := newModel(t)
	var mu sync.Mutex
	var kept *stats.Units
	keep := func(o *Options) {
		o.Units = kept
		o.KeepUnits = func(now stats.Units) error {
			mu.Lock()
			defer mu.Unlock()
			kept = &now
			return nil
		}
	}
	g, s := startGatewayWith(t, onePool(m.URL), keep)
	if a := post(t, s.URL+"/v2/models/sum/infer", row("a", 1, 2)); a.status != http.StatusOK {
		t.Fatal(a)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, s = startGatewayWith(t, onePool(m.URL), keep)
	if a := post(t, s.URL+"/v2/models/sum/infer", row("a", 3, 4)); a.status != http.StatusOK {
		t.Fatal(a)
	}
	var doc stats.Units
	if err := json.Unmarshal([]byte(get(t, s.URL+"/curfew/units", "").body), &doc); err != nil {
		t.Fatal(err)
	}
	rows := int64(0)
	for _, one := range doc.Hours { // two where an hour ends during the test
		rows += one.Predictions
	}
	if doc.Schema != stats.UnitsSchema || rows != 2 {
		t.Errorf("got %+v", doc)
	}
	if a := get(t, s.URL+"/curfew/units?since=2026-11-01T00:30:00Z", ""); a.status != http.StatusBadRequest {
		t.Errorf("half an hour: %d %s", a.status, a.body)
	}
}
