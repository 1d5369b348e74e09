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
	// history is how far back a forecast looks.
	history = 8 * 7 // days
	// leastHistory is the fewest days from which anything is forecast: one of each day
	// of the week.
	leastHistory = 7
	// weekly is from how many days on the days of the week are told apart: four of each.
	weekly = 28
	// ledgerMayLag is how far the ledger may be behind before nothing is forecast.
	ledgerMayLag = 48 * time.Hour
	// draws is how many futures are drawn.
	draws = 1000
)

// ErrNoForecast is returned where too little is known to forecast; its text says what.
var ErrNoForecast = errors.New("no forecast")

// Forecast is what a window's spend comes to at its end.
//
// A thousand futures are drawn: each draws days of the past with replacement
// (so that what was learned from few days is as uncertain as it is), and from those the
// days that are left, each from days of the same weekday where there are four weeks of
// them. Low, Median and High are the 10th, 50th and 90th percentile of the futures. Days
// are those of UTC and taken as independent, so a change of habits shows only as it
// happens. The source of the method is Efron & Tibshirani, An Introduction to the
// Bootstrap, 1993, chapter 6; the draws are the same for the same past.
type Forecast struct {
	// Low is the lower end of the range in dollars.
	Low money.Amount `json:"low_usd"`
	// Median is the median in dollars.
	Median money.Amount `json:"median_usd"`
	// High is the upper end of the range in dollars.
	High money.Amount `json:"high_usd"`
	// Days is how many days of the past it stands on.
	Days int `json:"days"`
	// Weekdays says that the days of the week were told apart.
	Weekdays bool `json:"weekdays"`
}

// forecast draws futures. used is what was spent until the ledger's end at through, past
// the whole days before the day of that, oldest first; to is the window's end.
func forecast(used money.Amount, past []money.Amount, through, to time.Time) (Forecast, error) {
	past = sinceFirst(past)
	if !through.Before(to) {
		return Forecast{Low: used, Median: used, High: used, Days: len(past)}, nil
	}
	if len(past) < leastHistory {
		return Forecast{}, fmt.Errorf("%w: %d whole days of spend are known, it takes %d", ErrNoForecast, len(past),
			leastHistory)
	}
	classes := 1
	if len(past) >= weekly {
		classes = 7
	}
	byClass := make([][]money.Amount, classes)
	for i, v := range past {
		// Days are counted from the one in which the ledger ends, so that this is of class 0
		// as is the one a week before.
		c := ((i-len(past))%classes + classes) % classes
		byClass[c] = append(byClass[c], v)
	}
	random := rand.New(rand.NewPCG(1, uint64(len(past))))
	again := make([][]money.Amount, classes)
	for c, days := range byClass {
		again[c] = make([]money.Amount, len(days))
	}
	futures := make([]money.Amount, draws)
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

// sinceFirst drops the days before spending began, and the one on which it did, which
// was hardly a whole one.
func sinceFirst(past []money.Amount) []money.Amount {
	i := slices.IndexFunc(past, func(a money.Amount) bool { return a != 0 })
	if i < 0 {
		return nil
	}
	return past[i+1:]
}
