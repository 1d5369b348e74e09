package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/gateway/stats"
)

// maxMade bounds the hours, models and owners of which units are kept; the oldest hour goes first.
const maxMade = 50_000

// keepMadeInterval is the time between two writes of what was made.
const keepMadeInterval = time.Minute

// made counts what was made in each hour of the wall clock, which the ledger's dollars are divided by. The
// meter's lock guards it.
type made struct {
	// from is the first hour that was counted from its start.
	from  time.Time
	hours map[madeKey]*stats.HourUnits
	// changed is set by each count, and keptAt is the time of the last write.
	changed bool
	keptAt  time.Time
}

type madeKey struct {
	hour time.Time
	account
}

// newMade goes on with what was counted before.
func newMade(before *stats.Units, now time.Time) made {
	m := made{hours: map[madeKey]*stats.HourUnits{}, keptAt: now}
	if before == nil {
		m.from = hourOf(now.Add(time.Hour - 1))
		return m
	}
	m.from = before.CountedFrom
	for _, one := range before.Hours {
		m.hours[madeKey{one.Hour, account{one.Pool, one.Model, one.Owner}}] = &one
	}
	return m
}

func hourOf(at time.Time) time.Time { return at.UTC().Truncate(time.Hour) }

// of returns the counts of an account in the hour of a time.
func (m *made) of(a account, now time.Time) *stats.HourUnits {
	m.changed = true
	k := madeKey{hourOf(now), a}
	one := m.hours[k]
	if one == nil {
		if len(m.hours) >= maxMade {
			m.forgetOldest()
		}
		one = &stats.HourUnits{Hour: k.hour, Pool: a.pool, Model: a.model, Owner: a.owner}
		m.hours[k] = one
	}
	return one
}

func (m *made) forgetOldest() {
	var oldest time.Time
	for k := range m.hours {
		if oldest.IsZero() || k.hour.Before(oldest) {
			oldest = k.hour
		}
	}
	for k := range m.hours {
		if k.hour.Equal(oldest) {
			delete(m.hours, k)
		}
	}
	if next := oldest.Add(time.Hour); next.After(m.from) {
		m.from = next
	}
}

// units returns what was made in the hours from one time to another; zero times are no bounds.
func (m *meter) units(since, until, now time.Time) stats.Units {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := stats.Units{Schema: stats.UnitsSchema, CountedFrom: m.made.from, At: now.UTC(), Hours: []stats.HourUnits{}}
	for _, one := range m.made.hours {
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

// keepMade stores what was made, where that changed and the last time was long enough ago.
func (g *Gateway) keepMade(now time.Time, every time.Duration) {
	if g.o.KeepUnits == nil {
		return
	}
	g.meter.mu.Lock()
	due := g.meter.made.changed && now.Sub(g.meter.made.keptAt) >= every
	if due {
		g.meter.made.changed, g.meter.made.keptAt = false, now
	}
	g.meter.mu.Unlock()
	if !due {
		return
	}
	if err := g.o.KeepUnits(g.meter.units(time.Time{}, time.Time{}, now)); err != nil {
		g.o.Log.Error("the units of each hour are not kept", "error", err.Error())
		g.meter.mu.Lock()
		g.meter.made.changed = true
		g.meter.mu.Unlock()
	}
}

// serveUnits answers with what was made by hour.
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
