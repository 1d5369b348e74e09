package budget

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Parameters of a forecast.
const (
	day = 24 * time.Hour
	// historyDays is the number of past days that a forecast resamples.
	historyDays = 8 * 7
	// monthlyHistoryDays is the number of past days in which monthly charges are detected: each day
	// of a month occurs at least twice in most of them.
	monthlyHistoryDays = 92
	// minHistoryDays is the minimum for a forecast: one of each weekday.
	minHistoryDays = 7
	// weekdayHistoryDays is the number of days from which weekdays are distinguished: four of each.
	weekdayHistoryDays = 28
	// maxLedgerLag is the age of the ledger from which nothing is forecast.
	maxLedgerLag = 48 * time.Hour
	// bootstrapDraws is the number of simulated futures.
	bootstrapDraws = 1000
)

// ErrNoForecast means that too little is known; its text names what is missing.
var ErrNoForecast = errors.New("no forecast")

// Forecast is the forecast spend of a window at its end.
//
// A bootstrap simulates a thousand futures. A third of them assume spend that returns to its mean:
// they resample the past days, so that few days give a wide range, by weekday if there are four
// weeks. The others, given three weeks, assume spend that drifts and grows: they start at the level
// of the last week, continue the growth of a run of past weeks varied by ratios between past weeks,
// and distribute each week like a past one. Monthly charges (support, reserved fees, tax) are
// removed from the past and added on their day. The range is widened on each side by what it would
// have missed in the past. Low, Median and High are the 5th, 50th and 95th percentiles: the range
// is meant to hold nine of ten outcomes. Days are UTC. Source: Efron & Tibshirani, An Introduction
// to the Bootstrap, 1993, chapters 6 and 8. Equal histories give equal forecasts.
type Forecast struct {
	// Low is the lower end of the range in dollars.
	Low money.Amount `json:"low_usd"`
	// Median is the median in dollars.
	Median money.Amount `json:"median_usd"`
	// High is the upper end of the range in dollars.
	High money.Amount `json:"high_usd"`
	// Days is the number of past days used.
	Days int `json:"days"`
	// Weekdays reports that weekdays were distinguished.
	Weekdays bool `json:"weekdays"`
	// MonthlyUSD are the monthly charges due before the end of the window.
	MonthlyUSD money.Amount `json:"monthly_charges_usd,omitempty"`
}

// forecast simulates futures from the amount used until through, the whole days before (oldest
// first), and the window's end.
func forecast(used money.Amount, past []money.Amount, through, to time.Time) (Forecast, error) {
	past = afterFirstSpend(past)
	if !through.Before(to) {
		return Forecast{Low: used, Median: used, High: used, Days: len(past)}, nil
	}
	if len(past) < minHistoryDays {
		return Forecast{}, fmt.Errorf("%w: %d whole days of spend are known, it takes %d", ErrNoForecast, len(past),
			minHistoryDays)
	}
	past, monthly := monthlyCharges(past, through.UTC().Truncate(day))
	due, err := monthly.due(through, to)
	if err != nil {
		return Forecast{}, err
	}
	if used, err = used.Add(due); err != nil {
		return Forecast{}, fmt.Errorf("forecast: %w", err)
	}
	spans := daysOf(through, to)
	missed := hindcast(past, len(spans))
	past = past[max(0, len(past)-historyDays):]
	low, median, high, err := simulate(used, past, spans, bootstrapDraws)
	if err != nil {
		return Forecast{}, fmt.Errorf("%w: %w", ErrNoForecast, err)
	}
	low, high = missed.widen(low, median-used, high, used)
	return Forecast{
		Low: max(used, low), Median: median, High: high, Days: len(past),
		Weekdays: len(past) >= weekdayHistoryDays, MonthlyUSD: due,
	}, nil
}

// simulate generates futures over spans of days, and returns their 5th, 50th and 95th percentiles.
func simulate(used money.Amount, past []money.Amount, spans []time.Duration, draws int) (low, median,
	high money.Amount, err error) {
	random := rand.New(rand.NewPCG(1, uint64(len(past))))
	byDay, byWeek := newDayModel(past), newWeekModel(past)
	futures := make([]money.Amount, draws)
	for n := range futures {
		draw := byDay.draw
		if n%3 != 0 && byWeek != nil {
			draw = byWeek.draw
		}
		if futures[n], err = sumOf(used, draw(random, len(spans)), spans); err != nil {
			return 0, 0, 0, err
		}
	}
	slices.Sort(futures)
	at := func(percent int) money.Amount { return futures[(len(futures)-1)*percent/100] }
	return at(5), at(50), at(95), nil
}

const (
	// hindcasts is the maximum number of past forecasts that check a range, hindcastDraws the
	// number of futures in each.
	hindcasts, hindcastDraws = 20, 100
	// minHindcasts is the minimum number of hindcasts to widen a range.
	minHindcasts = 4
	// hindcastErrors scales the range around its median in standard errors of the hindcasts'
	// medians: Student's t at the 95th percentile for five independent ones.
	hindcastErrors = 2.0
	// maxErrorFactor bounds the factor from hindcast errors.
	maxErrorFactor = 8.0
)

// misses are the errors of hindcasts. The zero value widens nothing.
type misses struct {
	// below and above are the largest amounts by which an outcome was outside of its range.
	below, above money.Amount
	// factor is the ratio between outcome and median, over 1, that the range has to reach; 0 is unknown.
	factor float64
}

// widen extends a range by the misses. ahead is the median without the amount used already.
func (m misses) widen(low, ahead, high, used money.Amount) (money.Amount, money.Amount) {
	low, high = low-m.below, high+m.above
	if m.factor > 1 {
		low = min(low, used+money.Amount(float64(ahead)/m.factor))
		if top := float64(ahead) * m.factor; top < math.MaxInt64/4 {
			high = max(high, used+money.Amount(top))
		}
	}
	return low, high
}

// hindcast forecasts spans of the same length from earlier days, and returns how much wider the
// range must be on each side to include all of their outcomes, at today's level, and the standard
// error of their medians: overlapping hindcasts count as few independent ones, so that including
// all of them covers fewer than nine of ten later outcomes. It returns zero if the past is too
// short. Source: Romano, Patterson & Candès, Conformalized Quantile Regression, 2019.
func hindcast(past []money.Amount, days int) misses {
	spans := make([]time.Duration, days)
	for i := range spans {
		spans[i] = day
	}
	first, last := weekdayHistoryDays, len(past)-days
	step := max(1, (last-first)/hindcasts)
	var under, over []float64 // shares of the level
	squares := 0.0            // of the logarithms of outcome by median
	for at := last; at >= first; at -= step {
		before := past[max(0, at-historyDays):at]
		low, median, high, err := simulate(0, before, spans, hindcastDraws)
		level := levelOf(before)
		if err != nil || level <= 0 {
			continue
		}
		truth := 0.0
		for _, v := range past[at : at+days] {
			truth += float64(v)
		}
		under, over = append(under, (float64(low)-truth)/level), append(over, (truth-float64(high))/level)
		if truth > 0 && median > 0 {
			squares += math.Pow(math.Log(truth/float64(median)), 2)
		}
	}
	if len(under) < minHindcasts {
		return misses{}
	}
	margin := func(missed []float64) money.Amount {
		if m := slices.Max(missed) * levelOf(past); m > 0 && m < math.MaxInt64/4 {
			return money.Amount(m)
		}
		return 0
	}
	usual := math.Sqrt(squares / float64(len(under)))
	return misses{margin(under), margin(over), min(maxErrorFactor, math.Exp(hindcastErrors*usual))}
}

// levelOf returns the spend of the last week.
func levelOf(past []money.Amount) float64 {
	sum := 0.0
	for _, v := range past[max(0, len(past)-7):] {
		sum += float64(v)
	}
	return sum
}

// daysOf divides a time span at UTC midnights.
func daysOf(from, to time.Time) []time.Duration {
	var out []time.Duration
	for from.Before(to) {
		next := from.UTC().Truncate(day).Add(day)
		if next.After(to) {
			next = to
		}
		out = append(out, next.Sub(from))
		from = next
	}
	return out
}

// sumOf adds the parts of days that their spans are.
func sumOf(total money.Amount, days []money.Amount, spans []time.Duration) (money.Amount, error) {
	for i, span := range spans {
		v, err := days[i].Mul(int64(span), int64(day))
		if err == nil {
			total, err = total.Add(v)
		}
		if err != nil {
			return 0, err
		}
	}
	return total, nil
}

// afterFirstSpend drops the days before spending began and the first, probably incomplete, day.
func afterFirstSpend(past []money.Amount) []money.Amount {
	i := slices.IndexFunc(past, func(a money.Amount) bool { return a != 0 })
	if i < 0 {
		return nil
	}
	return past[i+1:]
}
