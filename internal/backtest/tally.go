package backtest

import (
	"math"

	"github.com/curfew-dev/curfew/internal/backtest/learn"
	"github.com/curfew-dev/curfew/internal/money"
)

// dated is an idle period with its times: that of its first sample, and that at which it
// was known to be over, which is never for the one that the trace ends in.
type dated struct {
	learn.Period
	from, known int64
}

// idlePeriods hands every idle period of a track to each, in order.
func (t *track) idlePeriods(step int64, each func(dated)) {
	var s dated
	for c := t.cursor(step); c.advance(); {
		if s.Samples > 0 && (c.run.gap || !c.run.idle) {
			s.Busy, s.known = !c.run.gap, c.run.start
			each(s)
			s = dated{}
		}
		if c.run.idle {
			if s.Samples == 0 {
				s.from = c.run.start
			}
			s.Samples += c.run.count
		}
	}
	if s.Samples > 0 {
		s.known = math.MaxInt64
		each(s)
	}
}

// counted is how many samples there are, and how many of them idle.
type counted struct{ samples, idle int64 }

// totals sums a trace before anything is released.
type totals struct {
	counted
	by      []counted // by resource
	unknown int64
	learn.Periods
	// rated divides the resources by their price an hour, class says in which part each is.
	rated []rated
	class []int
}

// rated is the resources of one price an hour; nil is unknown.
type rated struct {
	hourly *money.Amount
	counted
	learn.Periods
}

// divide makes a part for each price.
func (s *totals) divide(hourly []*money.Amount) {
	known := map[money.Amount]int{}
	unknown := -1
	for _, h := range hourly {
		i, ok := unknown, unknown >= 0
		if h != nil {
			i, ok = known[*h]
		}
		if !ok {
			if i = len(s.rated); h != nil {
				known[*h] = i
			} else {
				unknown = i
			}
			s.rated = append(s.rated, rated{hourly: h, Periods: learn.Periods{}})
		}
		s.class = append(s.class, i)
	}
	if len(s.rated) == 1 {
		s.rated[0].Periods = s.Periods
	}
}

// share is a part of the resources, of one price an hour, with the result of a rule.
type share struct {
	hourly *money.Amount
	counted
	learn.Tally
}

func (c *counted) count(o counted) { c.samples, c.idle = c.samples+o.samples, c.idle+o.idle }

// together adds up shares; its price is none.
func together(parts []share) share {
	var all share
	for i := range parts {
		all.count(parts[i].counted)
		all.Add(parts[i].Tally)
	}
	return all
}

// shares returns an empty share for each price.
func (s *totals) shares() []share {
	out := make([]share, len(s.rated))
	for i := range out {
		out[i].hourly = s.rated[i].hourly
	}
	return out
}

// each applies a rule to every share of the resources.
func (s *totals) each(does func(learn.Periods) learn.Tally) []share {
	out := s.shares()
	for i := range out {
		out[i].counted, out[i].Tally = s.rated[i].counted, does(s.rated[i].Periods)
	}
	return out
}

// split sums the results of a rule with each resource by share.
func (s *totals) split(by []learn.Tally) []share {
	out := s.shares()
	for i := range by {
		out[s.class[i]].count(s.by[i])
		out[s.class[i]].Add(by[i])
	}
	return out
}

func (t *trace) totals() totals {
	sum := totals{Periods: learn.Periods{}, by: make([]counted, len(t.tracks))}
	sum.divide(t.hourly)
	for i, track := range t.tracks {
		by := &sum.by[i]
		var drift int64 // since the last gap: samples that come early make up for late ones
		for c := track.cursor(t.step); c.advance(); {
			by.samples += c.run.count
			if c.run.idle {
				by.idle += c.run.count
			}
			if c.run.gap {
				sum.unknown += max(0, drift) + c.run.offset
				drift = 0
			} else {
				drift += c.run.offset
			}
		}
		sum.count(*by)
		sum.unknown += max(0, drift) + track.unknown
		part := &sum.rated[sum.class[i]]
		part.count(*by)
		track.idlePeriods(t.step, func(s dated) {
			if sum.Periods[s.Period]++; len(sum.rated) > 1 {
				part.Periods[s.Period]++
			}
		})
	}
	return sum
}

// deadman adds the release a fixed time after the first sample, busy or not: until the next busy
// sample, from which the time runs again. Time that was not sampled is not counted as released.
func (t *track) deadman(after, step, restart int64, sum *learn.Tally) {
	ends := t.first + after
	for c := t.cursor(step); c.advance(); {
		from, to := c.run.start, c.run.start+c.run.count*step
		if c.run.idle {
			sum.Released += max(0, to-max(from, ends))
			continue
		}
		for {
			wake := from
			if n := (ends - from + step - 1) / step; ends > from {
				wake = from + n*step
			}
			if wake >= to {
				sum.Released += max(0, to-max(from, ends))
				break
			}
			sum.Released += max(0, wake-max(from, ends))
			sum.Restarts++
			if wake-ends <= restart {
				sum.Interrupted++
			}
			ends = wake + after
			from = wake
		}
	}
}
