package backtest

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// caps holds back what is over a policy's limits. What is due at one moment is
// admitted together or not at all, as [action.Store] does it.
type caps struct {
	waiting []*subject
	// selected is how many of the resources seen so far the policy selects.
	selected int
	// admitted are the times of the actions of the last hour.
	admitted []int64
	// changed says that the next try may come out differently; retry is when an action
	// leaves the hour, never while nothing waits for that.
	changed bool
	retry   int64
}

// seen counts a resource that the policy selects.
func (c *caps) seen() { c.selected, c.changed = c.selected+1, true }

func (c *caps) wait(s *subject) {
	s.waits, c.changed = true, true
	c.waiting = append(c.waiting, s)
}

func (c *caps) leave(s *subject) {
	if s.waits {
		s.waits, c.changed = false, true
		c.waiting = slices.DeleteFunc(c.waiting, func(o *subject) bool { return o == s })
	}
}

// admit acts on what waits, where the caps allow it.
func (b *bench) admit() {
	c := &b.caps
	if b.now >= c.retry {
		c.changed, c.retry = true, never
	}
	if len(c.waiting) == 0 || !c.changed {
		return
	}
	c.changed = false
	if b.params.Caps && b.over() {
		if len(c.admitted) > 0 {
			c.retry = c.admitted[0] + int64(time.Hour)
		}
		return
	}
	slices.SortFunc(c.waiting, func(a, b *subject) int { return cmp.Compare(a.book.index, b.book.index) })
	for _, s := range c.waiting {
		s.waits = false
		b.act(s)
		b.settle(s)
		if b.params.Caps {
			c.admitted = append(c.admitted, b.now)
		}
	}
	c.waiting = c.waiting[:0]
}

// over says whether what waits is over the policy's limits, with what the last hour
// holds.
func (b *bench) over() bool {
	c := &b.caps
	c.admitted = slices.DeleteFunc(c.admitted, func(at int64) bool { return at+int64(time.Hour) <= b.now })
	batch := action.Batch{
		Source: b.policy.Name, Round: b.round, Now: moment(b.now), Limits: b.policy.Limits, Selected: c.selected,
		Admissions: make([]action.Admission, len(c.waiting)),
	}
	for i := range batch.Admissions {
		batch.Admissions[i].Hourly = *b.params.Price
	}
	hourly, err := b.params.Price.Mul(int64(len(c.admitted)), 1)
	if err != nil {
		return true
	}
	return batch.Over(len(c.admitted), hourly) != nil
}
