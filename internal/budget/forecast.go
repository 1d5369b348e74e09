package budget

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// Parameters of a forecast.
const (
	day = 24 * time.Hour
	// historyDays is the number of past days that a forecast uses.
	historyDays = 8 * 7 // days
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
// A bootstrap simulates a thousand futures: each resamples the past days, so that few days give a
// wide range, and draws the remaining days from the resampled ones of the same weekday if there are
// four weeks of them. Low, Median and High are the 10th, 50th and 90th percentiles. Days are UTC
// and independent. Source: Efron & Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
// Equal histories give equal forecasts.
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
}

// forecast simulates futures from the amount used until through, the whole days before it (oldest
// first) and the window's end.
func forecast(used money.Amount, past []money.Amount, through, to time.Time) (Forecast, error) {
	past = afterFirstSpend(past)
	if !through.Before(to) {
		return Forecast{Low: used, Median: used, High: used, Days: len(past)}, nil
	}
	if len(past) < minHistoryDays {
		return Forecast{}, fmt.Errorf("%w: %d whole days of spend are known, it takes %d", ErrNoForecast, len(past),
			minHistoryDays)
	}
	classes := 1
	if len(past) >= weekdayHistoryDays {
		classes = 7
	}
	byClass := make([][]money.Amount, classes)
	for i, v := range past {
		// Days are counted from the day in which the ledger ends, which has weekday class 0 like
		// the day a week before.
		c := ((i-len(past))%classes + classes) % classes
		byClass[c] = append(byClass[c], v)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(past))))
	again := make([][]money.Amount, classes)
	for c, days := range byClass {
		again[c] = make([]money.Amount, len(days))
	}
	futures := make([]money.Amount, bootstrapDraws)
	for n := range futures {
		for c, days := range byClass {
			for i := range again[c] {
				again[c][i] = days[random.IntN(len(days))]
			}
		}
		total := used
		for d, from := 0, through; from.Before(to); d++ {
			next := from.UTC().Truncate(day).Add(day)
			if next.After(to) {
				next = to
			}
			of := again[d%classes]
			v, err := of[random.IntN(len(of))].Mul(int64(next.Sub(from)), int64(day))
			if err != nil {
				return Forecast{}, err
			}
			if total, err = total.Add(v); err != nil {
				return Forecast{}, fmt.Errorf("forecast: %w", err)
			}
			from = next
		}
		futures[n] = total
	}
	slices.Sort(futures)
	at := func(percent int) money.Amount { return futures[(len(futures)-1)*percent/100] }
	return Forecast{Low: at(10), Median: at(50), High: at(90), Days: len(past), Weekdays: classes == 7}, nil
}

// afterFirstSpend drops the days before spending began and the first, probably incomplete, day.
func afterFirstSpend(past []money.Amount) []money.Amount {
	i := slices.IndexFunc(past, func(a money.Amount) bool { return a != 0 })
	if i < 0 {
		return nil
	}
	return past[i+1:]
}
