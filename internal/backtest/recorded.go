package backtest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Account is a recorded trace as an account: resources that appear with their first
// sample, and what was measured of them. It does not change once it is read, so
// several goroutines may use it.
//
// Times are kept to the microsecond. A sample is known from its own time on, or from
// when it was received.
type Account struct {
	summary   usage.Summary
	params    AccountParams
	step      int64
	floors    [32]float64 // of the signals
	resources []*traced   // by name
	groups    [][]int
}

// AccountParams says how a trace is read as an account.
type AccountParams struct {
	// Format says how to read the trace. Its Step must be known.
	Format usage.Format
	// Only leaves out resources for which it answers false; nil takes all.
	Only func(resource string) bool
	// Tags maps the tags of resources.
	Tags inventory.TagMapping
	// Size returns the size of a machine type; false if the type is unknown. Nil knows none.
	Size func(machineType string) (inventory.Size, bool)
	// Meters returns the meters of a resource; nil if its price is unknown. Nil knows none.
	Meters func(*inventory.Resource) []inventory.Meter
	// Activity says which values are work.
	Activity usage.Activity
	// Governed is true if the configuration lists the resources that policies may act on. Otherwise
	// they may act on every resource whose tags do not deny it.
	Governed bool
}

// traced is the record of one resource of a trace.
type traced struct {
	name   string
	series []*series // by GPU
	// stated are the statements of the trace about the resource, by the time they became known.
	stated []stated
	// known is when its first sample became known, grew when each GPU's did.
	known int64
	grew  []int64
	// plain says that nothing but utilization was measured, and all of it in time.
	plain bool
	*intake
}

// intake accumulates a resource while its rows are read.
type intake struct {
	newest int // the series of the last row
	// descs are the descriptions that its rows give; the first is none.
	descs   []*usage.Description
	said    uint32 // that of the last row
	numbers map[*usage.Description]uint32
}

// stated holds the properties of a resource from a time on; nil is unknown.
type stated struct {
	known int64
	*usage.Description
}

// ReadAccount reads a trace in any format and order of rows that [usage.Read] knows.
// Of two values of one meter at one time the larger counts; a signal of the machine in
// the rows of several GPUs is that of the GPU which had it first.
//
// Memory grows with what changes in the trace and not with the number of samples: a
// value of utilization costs two or three bytes where it changes, any other what
// changed in it. Rows that are out of order cost more while they are read.
//
// It returns a *usage.FileError for a malformed trace, usage.ErrNoSamples for one
// without any, and the error of ctx.
func ReadAccount(ctx context.Context, source io.Reader, p AccountParams) (*Account, error) {
	if err := (Params{Format: p.Format}).check(); err != nil {
		return nil, fmt.Errorf("read %s: %w", p.Format.Name, err)
	}
	a := &Account{params: p, step: micros(p.Format.Step)}
	for _, s := range signals {
		a.floors[s] = p.Activity.Floor(s, p.Format.Step)
	}
	known := map[string]*traced{}
	var current *traced
	last := ""
	summary, err := usage.Read(ctx, source, p.Format, func(s *usage.Sample) error {
		if s.Resource != last || last == "" {
			r, ok := known[s.Resource]
			if !ok {
				if p.Only == nil || p.Only(s.Resource) {
					r = &traced{name: s.Resource, intake: &intake{descs: []*usage.Description{nil}}}
				}
				known[s.Resource] = r
			}
			last, current = s.Resource, r
		}
		if current != nil {
			current.add(s, a.step)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.summary = summary
	if s := summary.Step; s > 0 && s <= p.Format.Step/2 {
		return nil, fmt.Errorf(
			"read %s: samples are %s apart, and each would count as a step of %s: give the step as it was recorded",
			p.Format.Name, s.Round(time.Millisecond), p.Format.Step)
	}
	// By name, so that the order of the rows changes nothing.
	for i, name := range slices.Sorted(maps.Keys(known)) {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("read %s: %w", p.Format.Name, context.Cause(ctx))
		}
		if r := known[name]; r != nil {
			r.finish(a.step)
			a.resources = append(a.resources, r)
		}
		delete(known, name)
	}
	if len(a.resources) == 0 {
		return nil, fmt.Errorf("read %s: %w", p.Format.Name, usage.ErrNoSamples)
	}
	a.groups = a.group()
	return a, nil
}

// add takes a row.
func (r *traced) add(s *usage.Sample, step int64) {
	at, lag := s.Time.UnixMicro(), int64(0)
	if !s.Received.IsZero() {
		lag = max(0, s.Received.UnixMicro()-at)
	}
	r.of(s.GPU).add(at, lag, step, r.described(s.Description), s)
}

// of returns the series of a GPU.
func (r *traced) of(gpu string) *series {
	for i := range r.series { // they come in turn, or again and again
		if j := (r.newest + i) % len(r.series); r.series[j].gpu == gpu {
			r.newest = j
			return r.series[j]
		}
	}
	s := &series{gpu: gpu}
	r.newest = len(r.series)
	r.series = append(r.series, s)
	return s
}

// described returns the number of a description, 0 for one that states nothing.
func (r *traced) described(d *usage.Description) uint32 {
	if d == r.descs[r.said] {
		return r.said
	}
	n, ok := r.numbers[d]
	if !ok {
		if !nothing(d) {
			n = uint32(len(r.descs))
			r.descs = append(r.descs, d)
		}
		if r.numbers == nil {
			r.numbers = map[*usage.Description]uint32{}
		}
		r.numbers[d] = n
	}
	r.said = n
	return n
}

// finish puts everything in order after the last row.
func (r *traced) finish(step int64) {
	slices.SortFunc(r.series, func(a, b *series) int { return cmp.Compare(a.gpu, b.gpu) })
	r.known, r.plain = math.MaxInt64, true
	for _, s := range r.series {
		s.finish(step, r.join)
		r.known = min(r.known, s.blocks[0].known)
		r.plain = r.plain && !s.lags && (len(s.slots) == 0 || len(s.slots) == 1 && s.slots[0] == usage.GPUUtil)
	}
	r.settle()
	r.grew, r.stated = r.growth(), r.statements(step)
	r.intake = nil
}

// settle finds out which GPU's rows tell the signals of the machine: those that had
// them first.
func (r *traced) settle() {
	type carrier struct {
		s     *series
		known int64
	}
	first := map[usage.Signal]carrier{}
	for _, s := range r.series {
		for i, sig := range s.slots {
			if c, ok := first[sig]; !ok || s.first[i] < c.known {
				first[sig] = carrier{s, s.first[i]}
			}
		}
	}
	for _, s := range r.series {
		s.order = make([]uint8, len(s.slots))
		for i, sig := range s.slots {
			s.order[i] = uint8(i)
			if !sig.PerGPU() && first[sig].s != s {
				continue
			}
			s.counts |= 1 << i
			switch {
			case slices.Contains(usage.ComputeSignals(), sig):
				s.compute |= 1 << i
			case slices.Contains(usage.HostWorkSignals(), sig):
				s.hostWork |= 1 << i
			case sig.Counter():
				s.counters |= 1 << i
			}
		}
		slices.SortFunc(s.order, func(a, b uint8) int { return cmp.Compare(s.slots[a], s.slots[b]) })
		if t := s.inTime; t != nil {
			t.counts, t.compute, t.hostWork, t.counters = s.counts, s.compute, s.hostWork, s.counters
		}
	}
}

// Summary returns the summary of the trace.
func (a *Account) Summary() usage.Summary { return a.summary }

// Len returns the number of resources. They are numbered in the order of their names.
func (a *Account) Len() int { return len(a.resources) }

// Groups returns the resources in groups that do not influence one another: the
// machines of a gang are of one group. Policies with caps tie all groups together.
func (a *Account) Groups() [][]int { return a.groups }

// group finds the groups, in the order of their first resources.
func (a *Account) group() [][]int {
	root := make([]int, len(a.resources))
	var find func(i int) int
	find = func(i int) int {
		if root[i] != i {
			root[i] = find(root[i])
		}
		return root[i]
	}
	gangs := map[string]int{}
	for i, r := range a.resources {
		root[i] = i
		for _, d := range r.stated {
			gang := a.tagged(r, d.Description).Gang
			if gang == "" {
				continue
			}
			if first, ok := gangs[gang]; ok {
				one, other := find(first), find(i)
				root[max(one, other)] = min(one, other)
			} else {
				gangs[gang] = i
			}
		}
	}
	members := map[int]int{}
	var out [][]int
	for i := range a.resources {
		g := find(i)
		if g == i {
			members[i] = len(out)
			out = append(out, []int{i})
		} else {
			out[members[g]] = append(out[members[g]], i)
		}
	}
	return out
}

// Index returns the number of a resource, and whether there is one of that name.
func (a *Account) Index(name string) (int, bool) {
	return slices.BinarySearchFunc(a.resources, name, func(r *traced, name string) int {
		return cmp.Compare(r.name, name)
	})
}

// List returns the resources that are known at a time (see [Account.Resource]).
func (a *Account) List(at time.Time) []*inventory.Resource {
	var out []*inventory.Resource
	for i := range a.resources {
		if r := a.Resource(i, at); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// part returns when a GPU was idle.
func (s *series) part(step int64, gpu int, idleBelow float64) *part {
	out := &part{gpu: gpu}
	s = s.byTime()
	slot := slices.Index(s.slots, usage.GPUUtil)
	if slot < 0 {
		return out
	}
	for p := s.player(step); p.advance(); {
		if p.has&(1<<slot) != 0 {
			v := p.values[slot]
			out.addRun(p.at, step, p.count, v == 0 || v < idleBelow)
		}
	}
	return out
}
