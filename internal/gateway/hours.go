package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// maxHourUnits bounds the hours, models and owners of which units are kept; the oldest hour goes first.
const maxHourUnits = 50_000

// keepUnitsInterval is the time between two writes of the units of each hour.
const keepUnitsInterval = time.Minute

// hours count the units of each hour of the wall clock, which divide the dollars of the ledger. The meter's
// lock guards them.
type hours struct {
	// first is the first hour that was counted from its start.
	first time.Time
	units map[hourKey]*stats.HourUnits
	// changed is set by each count, and keptAt is the time of the last write.
	changed bool
	keptAt  time.Time
}

type hourKey struct {
	hour time.Time
	account
}

// newHours goes on with what was counted before.
func newHours(before *stats.Units, now time.Time) hours {
	m := hours{units: map[hourKey]*stats.HourUnits{}, keptAt: now}
	if before == nil {
		m.first = hourOf(now.Add(time.Hour - 1))
		return m
	}
	m.first = before.CountedFrom
	for _, one := range before.Hours {
		m.units[hourKey{one.Hour, account{one.Pool, one.Model, one.Owner}}] = &one
	}
	return m
}

func hourOf(at time.Time) time.Time { return at.UTC().Truncate(time.Hour) }

// of returns the counts of an account in the hour of a time.
func (m *hours) of(a account, now time.Time) *stats.HourUnits {
	m.changed = true
	k := hourKey{hourOf(now), a}
	one := m.units[k]
	if one == nil {
		if len(m.units) >= maxHourUnits {
			m.forgetOldest()
		}
		one = &stats.HourUnits{Hour: k.hour, Pool: a.pool, Model: a.model, Owner: a.owner}
		m.units[k] = one
	}
	return one
}

func (m *hours) forgetOldest() {
	var oldest time.Time
	for k := range m.units {
		if oldest.IsZero() || k.hour.Before(oldest) {
			oldest = k.hour
		}
	}
	for k := range m.units {
		if k.hour.Equal(oldest) {
			delete(m.units, k)
		}
	}
	if next := oldest.Add(time.Hour); next.After(m.first) {
		m.first = next
	}
}

// units returns the units of the hours from one time to another; zero times are no bounds.
func (m *meter) units(since, until, now time.Time) stats.Units {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := stats.Units{Schema: stats.UnitsSchema, CountedFrom: m.hourly.first, At: now.UTC()}
	out.Hours = []stats.HourUnits{}
	for _, one := range m.hourly.units {
		if !one.Hour.Before(since) && (until.IsZero() || one.Hour.Before(until)) {
			out.Hours = append(out.Hours, *one)
		}
	}
	slices.SortFunc(out.Hours, func(a, b stats.HourUnits) int {
		return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Owner, b.Owner))
	})
	return out
}

// keepUnits stores the units of each hour, where that changed and the last time was long enough ago.
func (g *Gateway) keepUnits(now time.Time, every time.Duration) {
	if g.o.KeepUnits == nil {
		return
	}
	g.meter.mu.Lock()
	due := g.meter.hourly.changed && now.Sub(g.meter.hourly.keptAt) >= every
	if due {
		g.meter.hourly.changed, g.meter.hourly.keptAt = false, now
	}
	g.meter.mu.Unlock()
	if !due {
		return
	}
	if err := g.o.KeepUnits(g.meter.units(time.Time{}, time.Time{}, now)); err != nil {
		g.o.Log.Error("the units of each hour are not kept", "error", err.Error())
		g.meter.mu.Lock()
		g.meter.hourly.changed = true
		g.meter.mu.Unlock()
	}
}

// serveUnits answers with the units of each hour.
func (g *Gateway) serveUnits(w http.ResponseWriter, r *http.Request) {
	var bounds [2]time.Time
	for i, name := range []string{"since", "until"} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil || !hourOf(at).Equal(at) {
			refuse(w, http.StatusBadRequest, 0, name+" is not a whole hour, such as 2026-11-01T00:00:00Z")
			return
		}
		bounds[i] = at
	}
	b, err := json.Marshal(g.meter.units(bounds[0], bounds[1], time.Now()))
	if err != nil {
		refuse(w, http.StatusInternalServerError, 0, err.Error())
		return
	}
	write(w, http.StatusOK, b)
}
