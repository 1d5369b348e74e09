package ledger

import (
	"fmt"
	"maps"
	"slices"

	"github.com/curfew-dev/curfew/internal/money"
)

// Method is how a shared cost is divided.
type Method string

// The methods.
const (
	Even         Method = "even"         // the same for each
	Proportional Method = "proportional" // by what each costs itself
)

// SharedRule divides what some keys cost among others: what the platform team runs for
// all, or what nobody is named for (the empty key).
type SharedRule struct {
	Name string
	// From are the keys whose cost is shared, To those that pay; To empty is every key
	// that is in no rule's From and is not empty.
	From, To []string
	Method   Method
}

// SharedCost is one key's part.
type SharedCost struct {
	// Key is the value of the dimension; empty is spend that can be attributed to nobody.
	Key string
	// Own is what it cost itself; Shared what rules added, by rule, or took away
	// (negative). Amount is all of them together.
	Own    money.Amount
	Shared map[string]money.Amount
	Amount money.Amount
}

// Allocate applies rules in their order, each to own costs. The amounts add up to what
// they did before, to the nano-dollar. A rule without anyone to pay, or proportional to
// costs that are all zero, divides nothing and is an error that names it.
func Allocate(own map[string]money.Amount, rules []SharedRule) ([]SharedCost, error) {
	rows := map[string]*SharedCost{}
	at := func(key string) *SharedCost {
		if rows[key] == nil {
			rows[key] = &SharedCost{Key: key, Own: own[key], Amount: own[key], Shared: map[string]money.Amount{}}
		}
		return rows[key]
	}
	shared := map[string]string{}
	for _, r := range rules {
		for _, k := range r.From {
			if other, twice := shared[k]; twice {
				return nil, fmt.Errorf("share costs: %q is shared by %s and by %s: one rule may share it", k, other, r.Name)
			}
			shared[k] = r.Name
		}
	}
	keys := slices.Sorted(maps.Keys(own))
	for _, k := range keys {
		at(k)
	}
	for _, r := range rules {
		to := slices.Compact(slices.Sorted(slices.Values(r.To)))
		if len(r.To) == 0 {
			for _, k := range keys {
				if _, from := shared[k]; !from && k != "" {
					to = append(to, k)
				}
			}
		}
		weights, err := r.weights(own, shared, to)
		if err != nil {
			return nil, fmt.Errorf("share costs by rule %s: %w", r.Name, err)
		}
		for _, k := range r.From {
			if own[k] == 0 {
				continue
			}
			parts, err := money.Split(own[k], weights)
			if err != nil {
				return nil, fmt.Errorf("share costs by rule %s: %w", r.Name, err)
			}
			at(k).move(r.Name, -own[k])
			for i, p := range parts {
				at(to[i]).move(r.Name, p)
			}
		}
	}
	out := make([]SharedCost, 0, len(rows))
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		out = append(out, *rows[k])
	}
	return out, nil
}

func (c *SharedCost) move(rule string, a money.Amount) {
	c.Shared[rule] += a
	c.Amount += a
}

// weights returns how much of a shared cost each of to pays.
func (r *SharedRule) weights(own map[string]money.Amount, shared map[string]string, to []string) ([]int64, error) {
	if len(to) == 0 {
		return nil, fmt.Errorf("nobody is left to pay: name them in `to`")
	}
	out := make([]int64, len(to))
	var some bool
	for i, k := range to {
		if by, from := shared[k]; from {
			return nil, fmt.Errorf("%q pays, and is itself shared by %s", k, by)
		}
		switch r.Method {
		case Even:
			out[i] = 1
		case Proportional:
			out[i] = int64(max(0, own[k]))
		default:
			return nil, fmt.Errorf("method %q is not known: there are even and proportional", r.Method)
		}
		some = some || out[i] > 0
	}
	if !some {
		return nil, fmt.Errorf("nobody who pays has a cost to be proportional to: use even")
	}
	return out, nil
}
