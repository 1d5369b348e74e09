package costs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/ledger"
	"github.com/curfew-dev/curfew/internal/money"
)

// MachineHour is the charge for a machine in one hour.
type MachineHour struct {
	// Resource is the machine's identifier, Ref its full reference, Type its machine type.
	Resource string
	Ref      string
	Type     string
	Hour     time.Time
	Amount   money.Amount
	// Seconds is the charged compute time.
	Seconds int64
}

// MachineHours returns the hourly charges of resources in time order. A reconciliation corrects a
// whole day; it is divided among the hours of the day by their costs.
func MachineHours(ctx context.Context, s ledger.Store, since, until time.Time) ([]MachineHour, error) {
	by := []ledger.Dimension{ledger.ByResource, ledger.ByCategory, ledger.ByType}
	sums, err := s.Sums(ctx, ledger.SumQuery{By: by, Since: since, Until: until, Granularity: ledger.Hourly})
	if err != nil {
		return nil, fmt.Errorf("read what machines cost by the hour: %w", err)
	}
	hours := map[machineHour]*MachineHour{}
	for _, x := range sums {
		category := ledger.Category(x.Key[1])
		if category == ledger.Committed {
			continue // the covered usage is charged at its list price
		}
		id := x.Key[0][strings.LastIndex(x.Key[0], "/")+1:]
		k := machineHour{id, x.Period.Unix()}
		h := hours[k]
		if h == nil {
			h = &MachineHour{Resource: id, Ref: x.Key[0], Hour: x.Period.UTC()}
			hours[k] = h
		}
		if h.Amount, err = h.Amount.Add(x.Sums.Amount); err != nil {
			return nil, fmt.Errorf("add up %s: %w", id, err)
		}
		if category == ledger.Compute {
			h.Type = x.Key[2]
			h.Seconds = min(h.Seconds+x.Sums.Seconds, int64(time.Hour/time.Second))
		}
	}
	if err := spread(ctx, s, since, until, hours); err != nil {
		return nil, err
	}
	out := make([]MachineHour, 0, len(hours))
	for _, h := range hours {
		out = append(out, *h)
	}
	slices.SortFunc(out, func(a, b MachineHour) int {
		return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.Resource, b.Resource))
	})
	return out, nil
}

// spread moves corrections of reconciliations from the first hour of each day, if the ledger has
// it, to all hours of the day.
func spread(ctx context.Context, s ledger.Store, since, until time.Time, hours map[machineHour]*MachineHour) error {
	accounts, err := s.Accounts(ctx)
	if err != nil {
		return fmt.Errorf("read what is recorded: %w", err)
	}
	corrected := map[machineHour]money.Amount{} // by the first hour of the day
	for _, a := range accounts {
		days, err := s.ResourceDays(ctx, a, since.UTC().Truncate(day), until)
		if err != nil {
			return fmt.Errorf("read what was reconciled in %s: %w", a, err)
		}
		for _, d := range days {
			if k := (machineHour{d.Ref.ID, d.Day.Unix()}); d.Reconciled != 0 && d.Category != ledger.Committed &&
				!d.Day.Before(since) {
				if corrected[k], err = corrected[k].Add(d.Reconciled); err != nil {
					return fmt.Errorf("add up what was reconciled of %s: %w", d.Ref.ID, err)
				}
			}
		}
	}
	for k, amount := range corrected {
		first := hours[k]
		if first == nil {
			continue
		}
		first.Amount -= amount
		var parts []*MachineHour
		var weights []int64
		for at := k.hour; at < k.hour+int64(day/time.Second); at += int64(time.Hour / time.Second) {
			if h := hours[machineHour{k.machine, at}]; h != nil && h.Amount > 0 && h.Seconds > 0 {
				parts, weights = append(parts, h), append(weights, int64(h.Amount))
			}
		}
		if len(parts) == 0 {
			first.Amount += amount
			continue
		}
		split, err := money.Split(amount, weights)
		if err != nil {
			return fmt.Errorf("divide what was reconciled of %s: %w", k.machine, err)
		}
		for i, h := range parts {
			h.Amount += split[i]
		}
	}
	return nil
}

// Divide divides the hourly charges of machines among the tenants of their GPUs. A machine without
// observations is unallocated and unknown. Machines without GPUs, and those never observed, are
// left out.
func (t *Tenancy) Divide(since, until time.Time, charged []MachineHour) (*Divided, error) {
	out := &Divided{Since: since, Until: until, Tenants: true}
	machines := map[string]*division{}
	for _, h := range charged {
		gpus := t.count(h.Resource)
		if gpus == 0 {
			continue
		}
		d := machines[h.Resource]
		if d == nil {
			d = &division{machine: DividedMachine{Resource: h.Resource, GPUs: gpus}, rows: map[Tenant]*Allocated{}}
			machines[h.Resource] = d
		}
		if err := d.add(h, t.hours[machineHour{h.Resource, h.Hour.Unix()}]); err != nil {
			return nil, fmt.Errorf("divide %s at %s: %w", h.Resource, h.Hour.Format(time.RFC3339), err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.seen)) {
		if machines[id] == nil {
			out.Uncharged = append(out.Uncharged, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(machines)) {
		out.Machines = append(out.Machines, machines[id].done())
	}
	slices.SortStableFunc(out.Machines, func(a, b DividedMachine) int { return cmp.Compare(b.Amount, a.Amount) })
	return out, nil
}

// division accumulates the hours of one machine.
type division struct {
	machine DividedMachine
	rows    map[Tenant]*Allocated
}

// add divides an hour by request and by use.
func (d *division) add(h MachineHour, o *occupied) error {
	m := &d.machine
	seconds, known := h.Seconds, int64(0)
	var tenants []Tenant
	if o != nil {
		// A charge for part of the time that a machine existed represents all of it.
		if tenants = o.sorted(); seconds > 0 {
			seconds = max(seconds, o.seen)
		}
		known = o.known + o.listed*int64(m.GPUs)*WholeGPU - o.stray
		if o.over {
			m.Over = "more was requested of a GPU than there is; each workload has its part of the sum"
		}
	}
	whole := int64(m.GPUs) * WholeGPU * seconds
	// A charge without time is a correction of a whole day and belongs to no workload.
	if whole == 0 {
		tenants, known, whole = nil, 0, 1
	}
	requests, uses := make([]int64, 0, len(tenants)+2), make([]int64, 0, len(tenants)+2)
	var requested, used, measured int64
	for _, x := range tenants {
		h := o.tenants[x]
		requests, uses = append(requests, h.requested), append(uses, h.byUse)
		requested, used, measured = requested+h.requested, used+h.byUse, measured+h.measured
	}
	free := max(whole-requested, 0)
	unknown := min(max(whole-known, 0), free)
	requests = append(requests, unknown, free-unknown)
	// The use of unmeasured GPU time is unknown.
	dark := requested - measured + unknown
	uses = append(uses, min(dark, max(whole-used, 0)), max(whole-used-dark, 0))
	byRequest, err := money.Split(h.Amount, requests)
	if err != nil {
		return err
	}
	byUse, err := money.Split(h.Amount, uses)
	if err != nil {
		return err
	}
	n := len(tenants)
	sums := []struct {
		to *money.Amount
		v  money.Amount
	}{
		{&m.Amount, h.Amount}, {&m.Unknown, byRequest[n]}, {&m.Unallocated, byRequest[n] + byRequest[n+1]},
		{&m.UnknownUse, byUse[n]}, {&m.IdleUse, byUse[n+1]},
	}
	for i, x := range tenants {
		t := o.tenants[x]
		row := d.rows[x]
		if row == nil {
			row = &Allocated{WorkloadCost: WorkloadCost{Workload: x.Name()}, Tenant: x}
			d.rows[x] = row
		}
		for _, sum := range []struct {
			to *int64
			v  int64
		}{{&row.Requested, t.requested}, {&row.Measured, t.measured}, {&row.UsedGPU, t.byUse}} {
			*sum.to += ratio(sum.v, h.Seconds, max(seconds, 1)) // of the charged time
		}
		row.Split = row.Split || t.split
		parts := []money.Amount{0, 0, byRequest[i]}
		if t.requested > 0 {
			if parts, err = money.Split(byRequest[i], []int64{
				t.used, t.measured - t.used, t.requested - t.measured,
			}); err !=
				nil {
				return err
			}
		}
		sums = append(sums, []struct {
			to *money.Amount
			v  money.Amount
		}{
			{&row.Amount, byRequest[i]}, {&row.Used, parts[0]}, {&row.Idle, parts[1]}, {&row.CannotJudge, parts[2]},
			{&row.ByUse, byUse[i]},
		}...)
	}
	for _, s := range sums {
		if *s.to, err = s.to.Add(s.v); err != nil {
			return err
		}
	}
	return nil
}

func (d *division) done() DividedMachine {
	for _, row := range d.rows {
		d.machine.Workloads = append(d.machine.Workloads, *row)
	}
	slices.SortFunc(d.machine.Workloads, func(a, b Allocated) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), compareTenants(a.Tenant, b.Tenant))
	})
	return d.machine
}

// ratio returns a × b / c rounded down; a and b are not negative, b is at most c.
func ratio(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// Groups are the groups of tenants that can be shown.
var Groups = []string{"pod", "controller", "namespace", "team", "project", "user"}

// Group returns a tenant's name in one of [Groups]. Empty is unknown.
func (t Tenant) Group(by string) string {
	switch by {
	case "controller":
		if t.Controller != "" {
			return strings.TrimPrefix(t.Namespace+"/"+t.Controller, "/")
		}
	case "namespace":
		return t.Namespace
	case "team":
		return t.Owner.Team
	case "project":
		return t.Owner.Project
	case "user":
		return t.Owner.User
	}
	return t.Name()
}

// Group merges the workloads of each machine by one of [Groups], and those of all machines into
// [Divided.Totals].
func (d *Divided) Group(by string) error {
	var all []Allocated
	for i := range d.Machines {
		m := &d.Machines[i]
		var err error
		if m.Workloads, err = grouped(m.Workloads, by); err != nil {
			return fmt.Errorf("add up %s: %w", m.Resource, err)
		}
		all = append(all, m.Workloads...)
	}
	var err error
	if d.Totals, err = grouped(all, ""); err != nil {
		return fmt.Errorf("add up the workloads: %w", err)
	}
	return nil
}

// grouped merges rows by one of [Groups]; empty for their own names.
func grouped(rows []Allocated, by string) ([]Allocated, error) {
	var out []Allocated
	known := map[string]int{}
	for _, row := range rows {
		if by != "" {
			row.Workload = row.Tenant.Group(by)
		}
		i, ok := known[row.Workload]
		if !ok {
			known[row.Workload] = len(out)
			out = append(out, row)
			continue
		}
		sum := &out[i]
		for _, x := range []struct {
			to *money.Amount
			v  money.Amount
		}{
			{&sum.Amount, row.Amount}, {&sum.Used, row.Used}, {&sum.Idle, row.Idle},
			{&sum.CannotJudge, row.CannotJudge},
			{&sum.ByUse, row.ByUse},
		} {
			var err error
			if *x.to, err = x.to.Add(x.v); err != nil {
				return nil, err
			}
		}
		sum.Requested, sum.Measured, sum.UsedGPU, sum.Split = sum.Requested+row.Requested, sum.Measured+
			row.Measured, sum.UsedGPU+row.UsedGPU, sum.Split || row.Split
	}
	slices.SortStableFunc(out, func(a, b Allocated) int {
		return cmp.Or(cmp.Compare(b.Amount, a.Amount), cmp.Compare(a.Workload, b.Workload))
	})
	return out, nil
}
