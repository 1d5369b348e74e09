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

// A server may hold the series of many accounts, and each account is read by itself. So it is
// looked now and then which series there are, without their samples, and one label by which
// all series of the machines in question can be told is asked for from then on.
const (
	// nearFor is how long what was found counts, and nearLeast how long where some machine has
	// no series.
	nearFor, nearLeast = 3 * time.Minute, time.Minute
	// nearSpan is how long ago a series may have ended, at most, to be found; a verdict about a
	// machine that was silent for longer is unknown with its samples too.
	nearSpan = 30 * time.Minute
	// maxNear bounds the values of the label.
	maxNear = 5000
)

// nearby is which series were of machines that are known.
type nearby struct {
	at time.Time
	// with are machines that have series, and only a matcher that all of these meet, with a
	// comma before it; empty where no one matcher tells them from enough others.
	with map[inventory.Ref]bool
	only string
}

// fresh reports whether what was found counts for the machines of a reading.
func (n *nearby) fresh(r *reading) bool {
	age := r.iv.To.Sub(n.at)
	if n.at.IsZero() || age < 0 || age >= nearFor {
		return false
	}
	if age < nearLeast {
		return true
	}
	for ref := range r.here {
		if !n.with[ref] {
			return false
		}
	}
	return true
}

// matcher is the matcher by which series are asked for at a time; empty where what was found
// does not count any more.
func (n *nearby) matcher(at time.Time) string {
	if age := at.Sub(n.at); n.at.IsZero() || age < 0 || age > nearFor+nearLeast {
		return ""
	}
	return n.only
}

// narrow finds the matcher by which the series of a short interval are asked for. A server
// that cannot say which series there are is asked for all of them.
func (r *reading) narrow(ctx context.Context) error {
	if r.near.fresh(r) {
		r.only = r.near.only
		return nil
	}
	at, all, err := r.series.list(ctx, r)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return nil //nolint:nilerr // what is asked next says why
	}
	c := census{
		found: r.found, with: map[inventory.Ref]bool{}, has: map[string]int{}, values: map[string]map[string]bool{},
	}
	for _, labels := range all {
		c.count(labels)
	}
	r.near = nearby{at: at, with: c.with, only: c.matcher()}
	r.only = r.near.only
	return nil
}

// Series are which series of GPUs servers have, for several sources that read the same
// servers: it is asked once for all of them.
type Series struct {
	mu sync.Mutex
	of map[string]*listed
}

// listed are the series of one server and selector.
type listed struct {
	turn   chan struct{} // has room for who asks
	at     time.Time
	labels []map[string]string
}

// list returns the labels of the series as they were at a time within [nearLeast] of the end
// of a reading.
func (s *Series) list(ctx context.Context, r *reading) (time.Time, []map[string]string, error) {
	selected := r.selector(r.asked())
	// each tenant has its own
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
	if age := r.iv.To.Sub(l.at); age > -nearLeast && age < nearLeast && !l.at.IsZero() {
		return l.at, l.labels, nil
	}
	var all []map[string]string
	for _, q := range []struct {
		at   time.Time
		over time.Duration
	}{{r.iv.To, nearSpan}, {r.iv.To.Add(future), future}} { // those of clocks that are ahead too
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

// census counts series, and by which labels those of known machines can be told.
type census struct {
	found    *directory
	with     map[inventory.Ref]bool
	all, own int
	// has is how many series of known machines have a label, and values what it is there.
	has    map[string]int
	values map[string]map[string]bool
}

func (c *census) count(labels map[string]string) {
	c.all++
	m := c.found.find(lower(labels))
	if m == nil {
		return
	}
	c.own++
	c.with[m.Ref()] = true
	for k, v := range labels {
		if v == "" || c.found.rank(k) < 0 {
			continue
		}
		c.has[k]++
		if c.values[k] == nil {
			c.values[k] = map[string]bool{}
		}
		c.values[k][v] = true
	}
}

var labelName = lazyregexp.New(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// matcher is the matcher of a label that all series of known machines have: of those labels
// that tell the most of them apart, the one that is believed first, because addresses change
// more often than names.
func (c *census) matcher() string {
	best, rank := "", 0
	for _, k := range slices.Sorted(maps.Keys(c.has)) {
		if c.has[k] != c.own || !labelName.MatchString(k) {
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

// rank is the place of a label among those that may name a machine; -1 where it does not.
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
