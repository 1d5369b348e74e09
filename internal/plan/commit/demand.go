package commit

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/money"
)

// maxCells bounds keys times hours, maxHours the window to 20 years.
const (
	maxCells = 1 << 26
	maxHours = 20 * 8766
)

// demand is use by key and hour without idle and leaving machines.
type demand struct {
	start time.Time
	hours int
	keys  []string
	// need is the number of machines, rate the hourly price of one, by key and hour; both are 0 in
	// hours without data.
	need [][]Quantity
	rate [][]money.Amount
	// pools are the keys that reserved machines cover together, units the size of one machine.
	pools []pool
	units []int64
	// onDemand is the cost without commitments; idle and leaving are the costs of the subtracted
	// machines.
	onDemand, idle, leaving money.Amount
	// rows counts key-hours with data, empty the hours without any.
	rows, empty int
}

func newDemand(usage []Usage) (*demand, error) {
	if len(usage) == 0 {
		return nil, errors.New("plan commitments: the usage has no hour")
	}
	d := &demand{start: usage[0].Hour, rows: len(usage)}
	end, at := d.start, map[string]int{}
	for _, u := range usage {
		switch {
		case u.Quantity < 0 || u.Quantity > maxMachines*Machine || u.Idle < 0 || u.Idle > u.Quantity ||
			u.Leaving < 0 || u.Leaving > u.Quantity-u.Idle:
			return nil, fmt.Errorf("plan commitments: of %d millionths of a machine, %s has %d idle and %d leaving",
				u.Quantity, u.Key, u.Idle, u.Leaving)
		case u.OnDemand <= 0:
			return nil, fmt.Errorf("plan commitments: %s has no on-demand price", u.Key)
		case !u.Hour.Equal(u.Hour.Truncate(time.Hour)):
			return nil, fmt.Errorf("plan commitments: %s is not a full hour", u.Hour.Format(time.RFC3339))
		}
		if u.Hour.Before(d.start) {
			d.start = u.Hour
		}
		if u.Hour.After(end) {
			end = u.Hour
		}
		at[u.Key] = 0
	}
	span := end.Sub(d.start)
	if span/time.Hour+1 > min(maxHours, maxCells/time.Duration(len(at))) {
		return nil, fmt.Errorf("plan commitments: %d keys from %s to %s: too many hours to replay", len(at),
			d.start.Format(time.DateOnly), end.Format(time.DateOnly))
	}
	d.hours = int(span/time.Hour) + 1
	for key := range at {
		d.keys = append(d.keys, key)
	}
	slices.Sort(d.keys)
	d.need, d.rate = make([][]Quantity, len(d.keys)), make([][]money.Amount, len(d.keys))
	for k, key := range d.keys {
		at[key] = k
		p, units := sizeOf(key)
		d.pools, d.units = append(d.pools, p), append(d.units, units)
		d.need[k], d.rate[k] = make([]Quantity, d.hours), make([]money.Amount, d.hours)
	}
	return d, d.fill(usage, at)
}

func (d *demand) fill(usage []Usage, at map[string]int) error {
	seen := make([]bool, d.hours)
	d.empty = d.hours
	for _, u := range usage {
		k, t := at[u.Key], int(u.Hour.Sub(d.start)/time.Hour)
		if d.rate[k][t] != 0 {
			return fmt.Errorf("plan commitments: %s of %s appears twice", u.Hour.Format(time.RFC3339), u.Key)
		}
		if !seen[t] {
			seen[t] = true
			d.empty--
		}
		d.need[k][t], d.rate[k][t] = u.Quantity-u.Idle-u.Leaving, u.OnDemand
		used, err := cost(u.OnDemand, d.need[k][t])
		if err != nil {
			return err
		}
		idle, err := cost(u.OnDemand, u.Idle)
		if err != nil {
			return err
		}
		if d.onDemand, err = d.onDemand.Add(used); err != nil {
			return fmt.Errorf("add up the window on demand: %w", err)
		}
		if d.idle, err = d.idle.Add(idle); err != nil {
			return fmt.Errorf("add up idle machines: %w", err)
		}
		leaving, err := cost(u.OnDemand, u.Leaving)
		if err != nil {
			return err
		}
		if d.leaving, err = d.leaving.Add(leaving); err != nil {
			return fmt.Errorf("add up machines that leave: %w", err)
		}
	}
	return nil
}

// scaled returns the demand with a share of every hour, in thousandths.
func (d *demand) scaled(thousandths int64) (*demand, error) {
	less := *d
	less.need, less.onDemand = make([][]Quantity, len(d.keys)), 0
	for k, need := range d.need {
		less.need[k] = make([]Quantity, d.hours)
		for t, q := range need {
			q = q * Quantity(thousandths) / 1000
			less.need[k][t] = q
			a, err := cost(d.rate[k][t], q)
			if err != nil {
				return nil, err
			}
			less.onDemand += a // at most the sum before
		}
	}
	return &less, nil
}

// cost returns rate times quantity, rounded to the nano-dollar like a line of a bill.
func cost(rate money.Amount, q Quantity) (money.Amount, error) {
	if q == 0 || rate <= math.MaxInt64/money.Amount(q) { // as money.Amount.Mul rounds, in a few steps less
		v, half := rate*money.Amount(q), money.Amount(Machine)/2
		whole, rest := v/money.Amount(Machine), v%money.Amount(Machine)
		if rest > half || rest == half && whole&1 == 1 {
			whole++
		}
		return whole, nil
	}
	a, err := rate.Mul(int64(q), int64(Machine))
	if err != nil {
		return 0, fmt.Errorf("price machines: %w", err)
	}
	return a, nil
}

// matching returns the indexes of the keys that match a pattern.
func (d *demand) matching(pattern string) []int {
	var out []int
	for k, key := range d.keys {
		if matches(pattern, key) {
			out = append(out, k)
		}
	}
	return out
}

// matches reports whether a key matches a pattern, in which * stands for any text.
func matches(pattern, key string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == key
	}
	first, last := parts[0], parts[len(parts)-1]
	if !strings.HasPrefix(key, first) || !strings.HasSuffix(key[len(first):], last) {
		return false
	}
	key = key[len(first) : len(key)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(key, p)
		if i < 0 {
			return false
		}
		key = key[i+len(p):]
	}
	return true
}

// until returns the number of hours of the window before a time.
func (d *demand) until(expires time.Time) int {
	left := expires.Sub(d.start)
	if left <= 0 {
		return 0
	}
	return int(min(int64((left+time.Hour-1)/time.Hour), int64(d.hours)))
}
