package budget

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// dayModel resamples past days by class: the weekday, or a single class.
type dayModel struct {
	byClass, again [][]money.Amount
}

func newDayModel(past []money.Amount) *dayModel {
	classes := 1
	if len(past) >= weekdayHistoryDays {
		classes = 7
	}
	m := &dayModel{byClass: make([][]money.Amount, classes), again: make([][]money.Amount, classes)}
	for i, v := range past {
		// Days are counted from the last day of the ledger, whose weekday is class 0, like the day
		// a week before.
		c := ((i-len(past))%classes + classes) % classes
		m.byClass[c] = append(m.byClass[c], v)
	}
	for c, days := range m.byClass {
		m.again[c] = make([]money.Amount, len(days))
	}
	return m
}

// draw returns a future of n days.
func (m *dayModel) draw(random *rand.Rand, n int) []money.Amount {
	for c, days := range m.byClass {
		for i := range m.again[c] {
			m.again[c][i] = days[random.IntN(len(days))]
		}
	}
	out := make([]money.Amount, n)
	for d := range out {
		of := m.again[d%len(m.again)]
		out[d] = of[random.IntN(len(of))]
	}
	return out
}

const (
	// minWeeks is the minimum number of past weeks to estimate weekly changes.
	minWeeks = 3
	// maxWeekChange bounds the change from one week to the next in both directions.
	maxWeekChange = 2.0
	// maxDrift bounds the level of a future week relative to the last one in both directions: a few
	// weeks of changes do not predict levels far from any observed one.
	maxDrift = 8.0
)

// weekModel continues the level of the last week by the growth of past weeks. Each future uses the
// mean growth of one run of weeks throughout, because growth persists: drawn week by week it would
// average out.
type weekModel struct {
	last   float64     // dollars of the last week in nano-dollars
	shapes [][]float64 // shares of the days of past weeks
	ratios []float64   // of a week to the previous one
}

// newWeekModel returns nil if there are too few weeks, or the last one has no spend.
func newWeekModel(past []money.Amount) *weekModel {
	n := len(past) / 7
	if n < minWeeks {
		return nil
	}
	m := &weekModel{}
	for w := range n {
		days := past[len(past)-7*(n-w):][:7]
		sum := 0.0
		for _, v := range days {
			sum += float64(v)
		}
		if sum <= 0 {
			m.last = 0
			continue
		}
		shape := make([]float64, 7)
		for i, v := range days {
			shape[i] = float64(v) / sum
		}
		m.shapes = append(m.shapes, shape)
		if m.last > 0 {
			m.ratios = append(m.ratios, min(maxWeekChange, max(1/maxWeekChange, sum/m.last)))
		}
		m.last = sum
	}
	if m.last == 0 || len(m.ratios) == 0 {
		return nil
	}
	return m
}

// draw returns a future of n days.
func (m *weekModel) draw(random *rand.Rand, n int) []money.Amount {
	out := make([]money.Amount, n)
	again := make([]float64, len(m.ratios))
	for i := range again {
		again[i] = m.ratios[random.IntN(len(m.ratios))]
	}
	first := random.IntN(len(m.ratios))
	run := m.ratios[first:][:1+random.IntN(len(m.ratios)-first)]
	growth := math.Exp(meanLog(run) - meanLog(m.ratios))
	level := m.last
	var shape []float64
	for d := range out {
		if d%7 == 0 {
			level = min(maxDrift*m.last, max(m.last/maxDrift, level*growth*again[random.IntN(len(again))]))
			shape = m.shapes[random.IntN(len(m.shapes))]
		}
		out[d] = money.Amount(min(math.Round(level*shape[d%7]), math.MaxInt64/4))
	}
	return out
}

// meanLog returns the mean of the logarithms of ratios.
func meanLog(ratios []float64) float64 {
	sum := 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	return sum / float64(len(ratios))
}

const (
	// monthlyFactor is the minimum ratio of a day with a monthly charge to the usual spend of its
	// weekday.
	monthlyFactor = 3
	// firstDays are the first days of a month, on which one occurrence suffices: providers charge
	// support, fees and tax at the start of a month.
	firstDays = 3
	// maxMonthlyDays is the maximum number of days of a month with a monthly charge; more are
	// spikes.
	maxMonthlyDays = 3
	// monthlySpread is the maximum difference of two occurrences, relative to the larger one.
	monthlySpread = 0.5
)

// monthly holds the monthly charges by day of the month.
type monthly map[int]money.Amount

// monthlyCharges finds monthly charges in past days, the last of which is yesterday, and returns
// the days without them. A day of the month has a monthly charge if each of its occurrences is far
// above the usual spend of its weekday, by a similar amount.
func monthlyCharges(past []money.Amount, today time.Time) ([]money.Amount, monthly) {
	usual := func(i int) money.Amount {
		var same []money.Amount
		for j := i % 7; j < len(past); j += 7 {
			same = append(same, past[j])
		}
		slices.Sort(same)
		return same[(len(same)-1)/2]
	}
	on, seen, spikes := map[int][]int{}, map[int]int{}, 0
	for i, v := range past {
		date := today.AddDate(0, 0, i-len(past)).Day()
		seen[date]++
		if u := usual(i); u > 0 && v/monthlyFactor > u {
			on[date] = append(on[date], i)
			spikes++
		}
	}
	found := monthly{}
	cleaned := slices.Clone(past)
	if spikes > maxMonthlyDays*(len(past)/28+1) {
		return past, nil
	}
	for date, days := range on {
		low, high := money.Amount(math.MaxInt64), money.Amount(0)
		var sum money.Amount
		for _, i := range days {
			extra := past[i] - usual(i)
			low, high, sum = min(low, extra), max(high, extra), sum+extra/money.Amount(len(days))
		}
		if len(days) < seen[date] || len(days) == 1 && date > firstDays ||
			float64(high-low) > monthlySpread*float64(high) {
			continue
		}
		found[date] = sum
		for _, i := range days {
			cleaned[i] = usual(i)
		}
	}
	return cleaned, found
}

// due sums the monthly charges due on whole days of a time span.
func (m monthly) due(from, to time.Time) (money.Amount, error) {
	var sum money.Amount
	first := from.UTC().Truncate(day)
	if first.Before(from) {
		first = first.Add(day) // today's charges are already in the amount used
	}
	for d := first; d.Before(to) && len(m) > 0; d = d.Add(day) {
		var err error
		if sum, err = sum.Add(m[d.Day()]); err != nil {
			return 0, fmt.Errorf("forecast charges of once a month: %w", err)
		}
	}
	return sum, nil
}
