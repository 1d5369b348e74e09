package wire

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Datum is the statistics of one metric over a minute or an hour.
type Datum struct {
	Time                 time.Time
	Sum, Min, Max, Count float64
}

// Dimension narrows a metric.
type Dimension struct{ Name, Value string }

// Metrics stores CloudWatch's series by account and region. It is fast enough for weeks of hourly
// values, which moto is not: it scans all its values for every period of every query.
type Metrics struct {
	mu     sync.RWMutex
	places map[string]map[string]*series
	now    func() time.Time
}

type series struct {
	namespace, name string
	dims            []Dimension
	data            []Datum // in time order
}

func newMetrics(now func() time.Time) *Metrics {
	return &Metrics{places: map[string]map[string]*series{}, now: now}
}

func sortDims(dims []Dimension) []Dimension {
	dims = slices.Clone(dims)
	slices.SortFunc(dims, func(a, b Dimension) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
	})
	return dims
}

// seriesKey expects sorted dimensions.
func seriesKey(namespace, name string, dims []Dimension) string {
	var b strings.Builder
	b.WriteString(namespace)
	b.WriteByte(0)
	b.WriteString(name)
	for _, d := range dims {
		b.WriteByte(0)
		b.WriteString(d.Name)
		b.WriteByte(1)
		b.WriteString(d.Value)
	}
	return b.String()
}

// Put adds data to a metric.
func (m *Metrics) Put(account, region, namespace, name string, dims []Dimension, data ...Datum) {
	dims = sortDims(dims)
	key := seriesKey(namespace, name, dims)
	m.mu.Lock()
	defer m.mu.Unlock()
	place := m.places[account+"/"+region]
	if place == nil {
		place = map[string]*series{}
		m.places[account+"/"+region] = place
	}
	s := place[key]
	if s == nil {
		s = &series{namespace: namespace, name: name, dims: dims}
		place[key] = s
	}
	for _, d := range data {
		i, _ := slices.BinarySearchFunc(s.data, d.Time, func(a Datum, t time.Time) int {
			if a.Time.After(t) {
				return 1
			}
			return -1
		})
		s.data = slices.Insert(s.data, i, d)
	}
}

// stat returns a statistic over the data in [t, t+period).
func stat(name string, data []Datum) float64 {
	var sum, count float64
	lo, hi := data[0].Min, data[0].Max
	for _, d := range data {
		sum, count, lo, hi = sum+d.Sum, count+d.Count, min(lo, d.Min), max(hi, d.Max)
	}
	switch name {
	case "Average":
		return sum / count
	case "Sum":
		return sum
	case "Minimum":
		return lo
	case "Maximum":
		return hi
	}
	return count // SampleCount
}

// periods returns the values of a statistic by period, oldest first; the periods
// begin at multiples of their length.
func (s *series) periods(name string, from, to time.Time, period time.Duration) (times []time.Time, values []float64) {
	i, _ := slices.BinarySearchFunc(s.data, from, func(a Datum, t time.Time) int { return a.Time.Compare(t) })
	for i < len(s.data) && s.data[i].Time.Before(to) {
		start := s.data[i].Time.Truncate(period)
		j := i
		for j < len(s.data) && s.data[j].Time.Before(to) && s.data[j].Time.Before(start.Add(period)) {
			j++
		}
		times, values = append(times, start), append(values, stat(name, s.data[i:j]))
		i = j
	}
	return times, values
}

// find returns the series that ListMetrics would list.
func (m *Metrics) find(account, region, namespace, name string, dims []Dimension, since time.Time) []*series {
	m.mu.RLock()
	defer m.mu.RUnlock()
	place := m.places[account+"/"+region]
	var out []*series
	for _, k := range sorted(place) {
		s := place[k]
		if (namespace == "" || s.namespace == namespace) && (name == "" || s.name == name) && s.has(dims) &&
			len(s.data) > 0 && !s.data[len(s.data)-1].Time.Before(since) {
			out = append(out, s)
		}
	}
	return out
}

// has reports whether the series has all these dimensions; an empty value matches any.
func (s *series) has(dims []Dimension) bool {
	for _, d := range dims {
		if !slices.ContainsFunc(s.dims, func(x Dimension) bool {
			return x.Name == d.Name && (d.Value == "" || x.Value == d.Value)
		}) {
			return false
		}
	}
	return true
}
