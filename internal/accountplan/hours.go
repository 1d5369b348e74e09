// Package accountplan connects planners to recorded data of an account: the hours of its ledger as
// the use that commitments cover, a scan as the machines to right-size and the serving fleets to
// plan. It imports planners, the ledger and findings, so that planners do not depend on them.
package accountplan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/plan/commit"
	"github.com/curfew-dev/curfew/internal/price"
)

// sums queries sums of a ledger's entries.
type sums interface {
	Sums(ctx context.Context, q ledger.SumQuery) ([]ledger.Sum, error)
}

// hourOf identifies one key in one hour.
type hourOf struct {
	at  time.Time
	key string
}

// hourUse is the use of a series in one hour, in machine-seconds, and its cost.
type hourUse struct {
	seconds, idle, leaving int64
	amount                 money.Amount
}

// Hours returns the hours of on-demand machines in the ledger, at the ledger's price. Idle, held
// and stalled time counts as idle. All time of leaving machines counts as leaving; a machine that
// changes type or region counts under its new key at the price of the book, if there is one. Only
// AWS machines are included, because commitments cover no others. Notes list omissions and unpriced
// machines.
func Hours(
	ctx context.Context, s sums, since, until time.Time, leaves Leaving, book *price.Book,
) (use []commit.Usage, notes []string, err error) {
	query := ledger.SumQuery{
		By:    []ledger.Dimension{ledger.ByType, ledger.ByRegion, ledger.ByDuty, ledger.ByAccount},
		Since: since, Until: until, Granularity: ledger.Hourly, Accrued: true,
		Filter: ledger.Filter{
			{By: ledger.ByCategory, Values: []string{string(ledger.Compute)}},
			{By: ledger.ByPricing, Values: []string{string(ledger.Standard)}},
			{By: ledger.ByKind, Values: []string{string(inventory.KindInstance)}},
		},
	}
	all, err := s.Sums(ctx, query)
	if err != nil {
		return nil, nil, fmt.Errorf("read the hours of machines: %w", err)
	}
	hours := map[hourOf]*hourUse{}
	elsewhere, unpriced := map[string]money.Amount{}, map[string]bool{}
	for _, sum := range all {
		if sum.Unknown.Unbounded > 0 {
			unpriced[sum.Key[0]] = true
		}
		if sum.Key[0] == "" || sum.Sums.Seconds <= 0 || sum.Sums.Amount <= 0 {
			continue // charged by the day, or without a price
		}
		if cloud, _, _ := strings.Cut(sum.Key[3], "/"); !hasCommitments(cloud) {
			if elsewhere[cloud], err = elsewhere[cloud].Add(sum.Sums.Amount); err != nil {
				return nil, nil, fmt.Errorf("add up the hours of %s: %w", cloud, err)
			}
			continue
		}
		u := useOf(hours, keyOf(sum))
		u.seconds += sum.Sums.Seconds
		if idle(sum.Key[2]) {
			u.idle += sum.Sums.Seconds
		}
		if u.amount, err = u.amount.Add(sum.Sums.Amount); err != nil {
			return nil, nil, fmt.Errorf("add up the hours of %s: %w", sum.Key[0], err)
		}
	}
	for _, cloud := range slices.Sorted(maps.Keys(elsewhere)) {
		notes = append(notes, "left out, because no commitment covers them: machines of "+cloud+" ("+
			elsewhere[cloud].Dollars()+")")
	}
	if len(unpriced) > 0 {
		notes = append(notes, "hours without a price are left out: "+plain.Few(slices.Sorted(maps.Keys(unpriced))))
	}
	if len(leaves) > 0 {
		query.By = append(query.By, ledger.ByResource)
		query.Filter = append(query.Filter, ledger.Match{By: ledger.ByResource, Values: leaves.refs()})
		all, err = s.Sums(ctx, query)
		if folded := (*ledger.FoldedError)(nil); errors.As(err, &folded) && folded.Until.Before(until) {
			query.Since = folded.Until
			all, err = s.Sums(ctx, query)
			notes = append(notes, "hours before "+folded.Until.Format(time.DateOnly)+" are kept without the machine: "+
				"those of machines with findings count there as hours that stay")
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the hours of machines with findings: %w", err)
		}
		more, err := leave(hours, all, leaves, book)
		if err != nil {
			return nil, nil, err
		}
		notes = append(notes, more...)
	}
	for k, u := range hours {
		rate, err := u.amount.Mul(3600, u.seconds)
		if err != nil {
			return nil, nil, fmt.Errorf("price the hours of %s: %w", k.key, err)
		}
		use = append(use, commit.Usage{Hour: k.at, Key: k.key, OnDemand: rate, Quantity: machines(u.seconds),
			Idle: machines(u.idle), Leaving: min(machines(u.leaving), machines(u.seconds)-machines(u.idle))})
	}
	slices.SortFunc(use, func(x, y commit.Usage) int {
		return cmp.Or(x.Hour.Compare(y.Hour), cmp.Compare(x.Key, y.Key))
	})
	return use, notes, nil
}

func machines(seconds int64) commit.Quantity {
	return commit.Quantity(seconds * int64(commit.Machine) / 3600)
}

// hasCommitments reports whether commitments of a cloud can be planned; the simulator uses AWS's.
func hasCommitments(cloud string) bool { return cloud == price.AWS || cloud == "sim" }

// idle reports whether a duty is time that no commitment should cover.
func idle(state string) bool {
	s := duty.State(state)
	return s == duty.Idle || s == duty.Held || s == duty.Stalled
}

func keyOf(sum ledger.Sum) hourOf {
	return hourOf{sum.Period.UTC(), commit.PriceKey(sum.Key[0], sum.Key[1])}
}

func useOf(hours map[hourOf]*hourUse, k hourOf) *hourUse {
	if hours[k] == nil {
		hours[k] = &hourUse{}
	}
	return hours[k]
}

// leave removes the time of leaving machines from their keys, and adds working time under the new
// key of those that change type or region.
func leave(hours map[hourOf]*hourUse, all []ledger.Sum, leaves Leaving, book *price.Book) ([]string, error) {
	byRef := map[string]leaving{}
	for r, l := range leaves {
		byRef[r.String()] = l
	}
	rates, unpriced := map[string]money.Amount{}, map[string]bool{}
	for _, sum := range all {
		cloud, _, _ := strings.Cut(sum.Key[3], "/")
		if sum.Key[0] == "" || sum.Sums.Seconds <= 0 || sum.Sums.Amount <= 0 || idle(sum.Key[2]) ||
			!hasCommitments(cloud) {
			continue
		}
		useOf(hours, keyOf(sum)).leaving += sum.Sums.Seconds
		to := byRef[sum.Key[4]].to
		if to == "" || unpriced[to] {
			continue
		}
		rate, ok := rates[to]
		if !ok {
			machineType, region, _ := strings.Cut(to, "/")
			p, err := book.OnDemand(machineType, region)
			if err == nil {
				rate, err = p.Hourly()
			}
			if errors.Is(err, price.ErrUnpriced) {
				unpriced[to] = true
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("price %s: %w", to, err)
			}
			rates[to] = rate
		}
		amount, err := rate.Mul(sum.Sums.Seconds, 3600)
		if err != nil {
			return nil, fmt.Errorf("price the hours of %s: %w", to, err)
		}
		u := useOf(hours, hourOf{sum.Period.UTC(), to})
		u.seconds += sum.Sums.Seconds
		if u.amount, err = u.amount.Add(amount); err != nil {
			return nil, fmt.Errorf("add up the hours of %s: %w", to, err)
		}
	}
	if len(unpriced) == 0 {
		return nil, nil
	}
	return []string{
		"the price book has no on-demand price for " + strings.Join(slices.Sorted(maps.Keys(unpriced)), ", ") +
			": machines that a finding turns into it are left out"}, nil
}
