package web

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ops"
)

// fleet holds the machines that a caller may see, with the facts of other documents about them. Its
// visits share it, so that a filter or a page of many machines copies and sorts none of them again.
type fleet struct {
	machines       []machine
	texts          []string // of each machine, in lower case, for the search
	teams, regions []string

	mu     sync.Mutex
	orders map[machineOrder][]int32
}

// machineOrder is one order of the machines: by a column, within groups.
type machineOrder struct{ sort, group string }

func newFleet(machines []machine) *fleet {
	f := &fleet{machines: machines, texts: make([]string, len(machines)), orders: map[machineOrder][]int32{}}
	teams, regions := map[string]bool{}, map[string]bool{}
	for i := range machines {
		m := &machines[i]
		f.texts[i] = strings.ToLower(strings.Join([]string{
			m.ID, m.Name, m.Type, m.Owner.Team, m.Owner.User, m.Owner.Project, m.Purpose,
		}, "\n"))
		teams[teamParameter(m.Owner.Team)], regions[m.Region] = true, true
	}
	f.teams, f.regions = slices.Sorted(maps.Keys(teams)), slices.Sorted(maps.Keys(regions))
	return f
}

// fleet returns the machines that the visitor may see.
func (v *visit) fleet() (*fleet, error) {
	doc, err := v.pages.docs.get("machines "+v.roles(), "", func() (any, error) {
		resources, err := read(v, ops.ListResources, ops.ListInput{})
		if err != nil {
			return nil, err
		}
		about, machines := v.aboutMachines(), []machine{}
		for _, r := range resources.Resources {
			if isMachine(r) {
				machines = append(machines, about.machine(r))
			}
		}
		return newFleet(machines), nil
	})
	if err != nil {
		return nil, err
	}
	f, ok := doc.(*fleet)
	if !ok {
		return nil, fmt.Errorf("read the machines: the kept document is a %T", doc)
	}
	return f, nil
}

// order returns the numbers of the machines in the order of a query, within its groups.
func (f *fleet) order(q machineQuery) []int32 {
	name, down := strings.CutPrefix(q.sort, "-")
	by := columns[name]
	if by == nil {
		name, by = "hour", columns["hour"]
	}
	key := machineOrder{name, ""}
	if down {
		key.sort = "-" + name
	}
	if groups[q.group] != nil {
		key.group = q.group
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.orders[key]; known != nil {
		return known
	}
	order := make([]int32, len(f.machines))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		a, b := &f.machines[i], &f.machines[j]
		c := by(a, b)
		if down {
			c = -c
		}
		return cmp.Or(cmp.Compare(q.groupOf(a), q.groupOf(b)), c, cmp.Compare(a.ID, b.ID))
	})
	f.orders[key] = order
	return order
}

// page returns copies of the machines on the page of a query, the number of the first one, and how
// many machines the query selects.
func (f *fleet) page(q machineQuery) (rows []machine, from, total int) {
	text := strings.ToLower(strings.TrimSpace(q.text))
	begin := q.page * rowsShown
	for _, i := range f.order(q) {
		if !q.selects(&f.machines[i]) || !strings.Contains(f.texts[i], text) {
			continue
		}
		if total >= begin && len(rows) < rowsShown {
			rows = append(rows, f.machines[i])
		}
		total++
	}
	return rows, min(begin, total), total
}

// selects reports whether the filters of a query, except its text, select a machine.
func (q machineQuery) selects(m *machine) bool {
	state := cmp.Or(q.state, string(inventory.StateRunning))
	switch {
	case !isMachine(m.Observed), state != "any" && m.State != state:
		return false
	case q.team != "" && teamParameter(m.Owner.Team) != q.team, q.region != "" && m.Region != q.region:
		return false
	case q.duty == unmeasured && m.why == "", q.duty != "" && q.duty != unmeasured && dutyOf(m.Observed) != q.duty:
		return false
	case q.stops != "" && m.act == nil:
		return false
	}
	return true
}
