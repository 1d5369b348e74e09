package prom

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/lazyregexp"
)

// A server may hold the series of many accounts, while each account is read on its own. So the
// labels of all series are listed now and then, without samples, to find one label matcher that
// selects all series of the wanted machines; later queries use it.
const (
	// nearbyTTL is the lifetime of a found matcher, incompleteNearbyTTL its lifetime while some machine has no
	// series.
	nearbyTTL, incompleteNearbyTTL = 3 * time.Minute, time.Minute
	// nearbyLookback is how long ago a series may have ended and still be found. A machine that was
	// silent for longer is unknown in any case.
	nearbyLookback = 30 * time.Minute
	// maxNear bounds the label values in a matcher.
	maxNear = 5000
)

// nearby caches which machines have series, and the matcher that selects them.
type nearby struct {
	at time.Time
	// measured holds the machines that have series. selector is a matcher that all of these series meet,
	// with a leading comma; empty if no single matcher excludes enough others.
	measured map[inventory.Ref]bool
	selector string
}

// fresh reports whether the cached matcher is valid for the machines of a reading.
func (n *nearby) fresh(r *reading) bool {
	age := r.iv.To.Sub(n.at)
	if n.at.IsZero() || age < 0 || age >= nearbyTTL {
		return false
	}
	if age < incompleteNearbyTTL {
		return true
	}
	for ref := range r.here {
		if !n.measured[ref] {
			return false
		}
	}
	return true
}

// matcher returns the label matcher to use at a time; empty if the cache has expired.
func (n *nearby) matcher(at time.Time) string {
	if age := at.Sub(n.at); n.at.IsZero() || age < 0 || age > nearbyTTL+incompleteNearbyTTL {
		return ""
	}
	return n.selector
}

// narrow finds the label matcher for the series of a short interval. If the server cannot list
// series, all of them are queried.
func (r *reading) narrow(ctx context.Context) error {
	if r.near.fresh(r) {
		r.ownSeries = r.near.selector
		return nil
	}
	at, all, err := r.series.list(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return nil //nolint:nilerr // the next query reports the cause
	}
	c := census{
		found: r.found, with: map[inventory.Ref]bool{},
		machineSeries: map[string]int{}, values: map[string]map[string]bool{},
	}
	for _, labels := range all {
		c.count(labels)
	}
	r.near = nearby{at: at, measured: c.with, selector: c.matcher()}
	r.ownSeries = r.near.selector
	return nil
}

// Series caches the GPU series that servers hold, so that several sources of one server list them
// once.
type Series struct {
	mu sync.Mutex
	of map[string]*listed
}

// listed is the list of series of one server and selector.
type listed struct {
	turn   chan struct{} // a semaphore of one
	at     time.Time
	labels []map[string]string
}

// list returns the labels of the series as of a time within [incompleteNearbyTTL] of the end of a reading.
func (s *Series) list(ctx context.Context, r *reading) (time.Time, []map[string]string, error) {
	selected := r.selector(r.queriedMetrics())
	// tenants of one server have different series
	key := fmt.Sprint(r.server.URL, r.server.User, r.server.Password, r.server.Token, r.server.Headers, selected)
	s.mu.Lock()
	if s.of == nil {
		s.of = map[string]*listed{}
	}
	l := s.of[key]
	if l == nil {
		l = &listed{turn: make(chan struct{}, 1)}
		s.of[key] = l
	}
	s.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return time.Time{}, nil, context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	if age := r.iv.To.Sub(l.at); age > -incompleteNearbyTTL && age < incompleteNearbyTTL && !l.at.IsZero() {
		return l.at, l.labels, nil
	}
	var all []map[string]string
	for _, q := range []struct {
		at   time.Time
		over time.Duration
		// series of machines whose clock is ahead
	}{{r.iv.To, nearbyLookback}, {r.iv.To.Add(futureLookahead), futureLookahead}} {
		query := fmt.Sprintf("group without (__name__) (last_over_time(%s[%s]))", selected, seconds(q.over))
		if err := r.server.instant(ctx, query, q.at, func(x series) error {
			all = append(all, x.Labels)
			return nil
		}); err != nil {
			return time.Time{}, nil, err
		}
	}
	l.at, l.labels = r.iv.To, all
	return l.at, l.labels, nil
}

// census counts series by the labels that may identify known machines.
type census struct {
	found    *directory
	with     map[inventory.Ref]bool
	all, own int
	// machineSeries counts the series of known machines that have each label, values collects its values on
	// them.
	machineSeries map[string]int
	values        map[string]map[string]bool
}

func (c *census) count(labels map[string]string) {
	c.all++
	m := c.found.find(lowerKeys(labels))
	if m == nil {
		return
	}
	c.own++
	c.with[m.Ref()] = true
	for k, v := range labels {
		if v == "" || c.found.rank(k) < 0 {
			continue
		}
		c.machineSeries[k]++
		if c.values[k] == nil {
			c.values[k] = map[string]bool{}
		}
		c.values[k][v] = true
	}
}

var labelName = lazyregexp.New(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// matcher returns a matcher on a label that all series of known machines have. Among labels that
// tell the most machines apart it prefers the most stable one: addresses change more often than
// names.
func (c *census) matcher() string {
	best, rank := "", 0
	for _, k := range slices.Sorted(maps.Keys(c.machineSeries)) {
		if c.machineSeries[k] != c.own || !labelName.MatchString(k) {
			continue
		}
		if at := c.found.rank(k); best == "" || len(c.values[k]) > len(c.values[best]) ||
			len(c.values[k]) == len(c.values[best]) && at < rank {
			best, rank = k, at
		}
	}
	if best == "" || 2*c.own > c.all || len(c.values[best]) > maxNear {
		return ""
	}
	values := slices.Sorted(maps.Keys(c.values[best]))
	for i, v := range values {
		values[i] = regexp.QuoteMeta(v)
	}
	return "," + best + "=~" + strconv.Quote(strings.Join(values, "|"))
}

// rank returns the position of a label in machineLabels, or -1.
func (d *directory) rank(label string) int {
	label = strings.ToLower(label)
	if i := slices.IndexFunc(d.rules, func(r rule) bool { return strings.ToLower(r.Label) == label }); i >= 0 {
		return i
	}
	if i := slices.Index(machineLabels, strings.TrimPrefix(label, "exported_")); i >= 0 {
		return len(d.rules) + i
	}
	return -1
}
