// Package tco weighs what a change saves against the engineering time that it takes
// and the upkeep that it leaves behind.
package tco

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
)

// Schema names the shape of a [Report] in JSON.
const Schema = "curfew.plan.tco/v1"

// Working time: a day has 8 hours, a week 5 days, a month a twelfth of 52 weeks.
const (
	workDay   = 8 * time.Hour
	workWeek  = 5 * workDay
	workMonth = 52 * workWeek / 12
)

// Params are a change and what it brings.
type Params struct {
	// Saving is dollars a month, before upkeep.
	Saving money.Amount
	// Effort is working time until the change is done, Rate what an hour of it costs.
	Effort time.Duration
	Rate   money.Amount
	// Upkeep is working time a month from then on.
	Upkeep time.Duration
}

// Report is the outcome, in the shape of its JSON.
type Report struct {
	Schema string `json:"schema"`
	// SavingUSD, UpkeepUSD and NetUSD are a month, NetUSD the difference of the others.
	SavingUSD money.Amount `json:"saving_usd_per_month"`
	UpkeepUSD money.Amount `json:"upkeep_usd_per_month"`
	NetUSD    money.Amount `json:"net_usd_per_month"`
	// EffortHours and EffortUSD are spent once.
	EffortHours float64      `json:"effort_hours"`
	EffortUSD   money.Amount `json:"effort_usd"`
	// BreakEvenMonths is when what was spent has come back; null if it never does.
	BreakEvenMonths *float64 `json:"break_even_months"`
	// FirstYearUSD is a year's net saving less the effort.
	FirstYearUSD money.Amount `json:"first_year_usd"`
	// Advised is true if a year's saving repays effort and upkeep.
	Advised bool   `json:"advised"`
	Verdict string `json:"verdict"`
	// LeastSavingUSD is the saving a month from which on it would be advised.
	LeastSavingUSD money.Amount `json:"least_saving_usd_per_month"`
	// Assumptions are those behind the figures.
	Assumptions []string `json:"assumptions"`
	// Changes would change the answer.
	Changes []string `json:"changes"`

	// Balance is dollars at the end of each month of the first two years, from month 0.
	Balance []float64 `json:"-"`
}

// Weigh compares a change's saving with its effort and upkeep. A change whose saving
// does not repay the engineering time and upkeep within a year is advised against.
// It returns an error for negative figures and for sums out of range.
func Weigh(p Params) (Report, error) {
	switch {
	case p.Saving < 0 || p.Rate < 0:
		return Report{}, errors.New("weigh the change: saving and rate must not be negative")
	case p.Effort < 0 || p.Upkeep < 0:
		return Report{}, errors.New("weigh the change: effort and upkeep must not be negative")
	}
	effort, err := p.Rate.Mul(int64(p.Effort/time.Second), 3600)
	if err != nil {
		return Report{}, fmt.Errorf("price the effort: %w", err)
	}
	upkeep, err := p.Rate.Mul(int64(p.Upkeep/time.Second), 3600)
	if err != nil {
		return Report{}, fmt.Errorf("price the upkeep: %w", err)
	}
	net := p.Saving - upkeep // both are at most 2^63, and not negative
	year, err := net.Mul(12, 1)
	if err != nil {
		return Report{}, fmt.Errorf("add up a year: %w", err)
	}
	first := year - effort
	if (year < 0) != (first < 0) && year < 0 {
		return Report{}, errors.New("add up a year: out of range")
	}
	least, err := effort.Mul(1, 12)
	if err != nil {
		return Report{}, fmt.Errorf("find the least saving: %w", err)
	}
	if least, err = least.Add(upkeep); err != nil {
		return Report{}, fmt.Errorf("find the least saving: %w", err)
	}
	r := Report{Schema: Schema, SavingUSD: p.Saving, UpkeepUSD: upkeep, NetUSD: net, EffortHours: p.Effort.Hours(),
		EffortUSD: effort, FirstYearUSD: first, Advised: p.Saving > 0 && first >= 0, LeastSavingUSD: least}
	if net > 0 {
		months := float64(effort) / float64(net)
		r.BreakEvenMonths = &months
	}
	for m := range 25 {
		r.Balance = append(r.Balance, (float64(net)*float64(m)-float64(effort))/float64(money.USD))
	}
	r.Verdict = r.verdict(first)
	r.Assumptions = []string{
		fmt.Sprintf("an engineering hour costs %s; a day has %s working hours, a week %s, a month %s",
			p.Rate.Dollars(),
			plain.Number(workDay.Hours(), 0),
			plain.Number(workWeek.Hours(), 0), plain.Number(workMonth.Hours(), 1)),
		"the saving starts when the work is done, and stays constant",
	}
	r.Changes = []string{
		"the change repays its effort and upkeep within a year from a saving of " + least.Dollars() + " a month",
	}
	return r, nil
}

func (r Report) verdict(first money.Amount) string {
	switch {
	case r.BreakEvenMonths == nil:
		return "Do not do it: the upkeep costs as much as it saves, or more"
	case r.Advised:
		return fmt.Sprintf("Do it: gains %s in the first year, and pays back after %s months", first.Dollars(),
			plain.Number(*r.BreakEvenMonths, 1))
	}
	return fmt.Sprintf("Do not do it: loses %s in the first year, and pays back only after %s months",
		(-first).Dollars(),
		plain.Number(*r.BreakEvenMonths, 1))
}

// ParseSaving reads dollars over a time: "1200/month", "$40/day", "0.5/h", "9000/year".
// It returns dollars a month of 730 hours.
func ParseSaving(text string) (money.Amount, error) {
	amount, per, found := strings.Cut(strings.TrimSpace(text), "/")
	v, err := money.ParseAmount(strings.TrimPrefix(strings.TrimSpace(amount), "$"))
	if err != nil || !found || v < 0 {
		return 0, fmt.Errorf("%q: expected dollars over a time, such as 1200/month", text)
	}
	var num, den int64
	switch strings.TrimSpace(per) {
	case "h", "hour":
		num, den = 730, 1
	case "d", "day":
		num, den = 365, 12
	case "w", "week":
		num, den = 365, 84
	case "month":
		num, den = 1, 1
	case "y", "year":
		num, den = 1, 12
	default:
		return 0, fmt.Errorf("%q: unit %q: expected h, day, week, month or year", text, per)
	}
	return v.Mul(num, den)
}

// ParseRate reads dollars an hour of work: "120/h", or with another time of work:
// "960/d".
func ParseRate(text string) (money.Amount, error) {
	amount, per, found := strings.Cut(strings.TrimSpace(text), "/")
	v, err := money.ParseAmount(strings.TrimPrefix(strings.TrimSpace(amount), "$"))
	if err != nil || !found || v < 0 {
		return 0, fmt.Errorf("%q: expected dollars over working time, such as 120/h", text)
	}
	unit, err := workUnit(strings.TrimSpace(per))
	if err != nil {
		return 0, fmt.Errorf("%q: %w", text, err)
	}
	return v.Mul(int64(time.Hour/time.Second), int64(unit/time.Second))
}

// ParseUpkeep reads working time a month: "2h/month", "1d/week".
func ParseUpkeep(text string) (time.Duration, error) {
	amount, per, found := strings.Cut(strings.TrimSpace(text), "/")
	work, err := ParseWork(amount)
	if err != nil || !found {
		return 0, fmt.Errorf("%q: expected working time over a time, such as 2h/month", text)
	}
	times := map[string]float64{
		"d": 365.0 / 12, "day": 365.0 / 12, "w": 365.0 / 84, "week": 365.0 / 84, "month": 1, "y": 1.0 / 12,
		"year": 1.0 / 12,
	}[strings.TrimSpace(per)]
	if times == 0 {
		return 0, fmt.Errorf("%q: unit %q: expected day, week, month or year", text, per)
	}
	v := float64(work) * times
	if v > float64(maxWork) {
		return 0, fmt.Errorf("%q is more than a hundred years", text)
	}
	return time.Duration(v), nil
}

// maxWork bounds working time.
const maxWork = 100 * 52 * workWeek

// ParseWork reads working time: "3w", "2d", "1w2d", "4h", "1.5d", "30m".
func ParseWork(text string) (time.Duration, error) {
	rest, sum := strings.TrimSpace(text), 0.0
	if rest == "" {
		return 0, errors.New("missing working time, such as 3w, 2d or 4h")
	}
	for rest != "" {
		n := strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && c != '.' })
		if n <= 0 {
			return 0, fmt.Errorf("%q: expected working time, such as 3w, 2d or 4h", text)
		}
		v, err := strconv.ParseFloat(rest[:n], 64)
		if err != nil {
			return 0, fmt.Errorf("%q: expected working time, such as 3w, 2d or 4h", text)
		}
		rest = rest[n:]
		end := strings.IndexFunc(rest, func(c rune) bool { return c >= '0' && c <= '9' || c == '.' })
		if end < 0 {
			end = len(rest)
		}
		unit, err := workUnit(rest[:end])
		if err != nil {
			return 0, fmt.Errorf("%q: %w", text, err)
		}
		rest = rest[end:]
		sum += v * float64(unit)
	}
	if math.IsNaN(sum) || sum > float64(maxWork) {
		return 0, fmt.Errorf("%q is more than a hundred years", text)
	}
	return time.Duration(sum), nil
}

func workUnit(name string) (time.Duration, error) {
	switch name {
	case "m", "min":
		return time.Minute, nil
	case "h", "hour":
		return time.Hour, nil
	case "d", "day":
		return workDay, nil
	case "w", "week":
		return workWeek, nil
	case "month":
		return workMonth, nil
	}
	return 0, fmt.Errorf("unit %q: expected m, h, d, w or month", name)
}
