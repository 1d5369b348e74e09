package backtest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// statement merges the properties that rows state of a resource, field by field: the newest row
// that states anything counts, and of rows of one time the larger value.
type statement struct {
	usage.Description
	at [11]int64 // of each field
}

// hear takes the statements of a row of a time.
func (s *statement) hear(at int64, d *usage.Description) {
	if d == nil {
		return
	}
	i := 0
	newer := func(states bool, larger func() bool) bool {
		was := s.at[i]
		takes := states && (at > was || at == was && larger())
		if takes {
			s.at[i] = at
		}
		i++
		return takes
	}
	take(newer, &s.Kind, d.Kind)
	take(newer, &s.Lifetime, d.Lifetime)
	take(newer, &s.Purpose, d.Purpose)
	take(newer, &s.Type, d.Type)
	take(newer, &s.Team, d.Team)
	take(newer, &s.Project, d.Project)
	take(newer, &s.User, d.User)
	take(newer, &s.Environment, d.Environment)
	if newer(d.Tags != nil, func() bool { return s.Tags == nil || fmt.Sprint(d.Tags) > fmt.Sprint(s.Tags) }) {
		s.Tags = d.Tags
	}
	if newer(d.GPUs.Known(), func() bool { return d.GPUs.Or(0) > s.GPUs.Or(-1) }) {
		s.GPUs = d.GPUs
	}
	if newer(!d.Launched.IsZero(), func() bool { return d.Launched.After(s.Launched) }) {
		s.Launched = d.Launched
	}
}

func take[T ~string](newer func(bool, func() bool) bool, to *T, v T) {
	if newer(v != "", func() bool { return v > *to }) {
		*to = v
	}
}

// nothing reports whether a description states nothing.
func nothing(d *usage.Description) bool { return d == nil || alike(d, &usage.Description{}) }

// alike reports whether two descriptions state the same.
func alike(a, b *usage.Description) bool {
	return a.Kind == b.Kind && a.Lifetime == b.Lifetime && a.Purpose == b.Purpose && a.Type == b.Type &&
		a.Team == b.Team &&
		a.Project == b.Project && a.User == b.User && a.Environment == b.Environment &&
		(a.Tags == nil) == (b.Tags == nil) &&
		maps.Equal(a.Tags, b.Tags) && a.GPUs == b.GPUs && a.Launched.Equal(b.Launched)
}

// join returns the number of the description that two rows of one time give together.
func (r *traced) join(a, b uint32) uint32 {
	if a == b || b == 0 {
		return a
	}
	if a == 0 {
		return b
	}
	var s statement
	s.hear(1, r.descs[a])
	s.hear(1, r.descs[b])
	for i, d := range r.descs[1:] {
		if alike(d, &s.Description) {
			return uint32(i + 1)
		}
	}
	r.descs = append(r.descs, &s.Description)
	return uint32(len(r.descs) - 1)
}

// statements returns the descriptions of the resource in the trace as they become known.
func (r *traced) statements(step int64) []stated {
	if len(r.descs) == 1 {
		return nil
	}
	if len(r.descs) == 2 && len(r.numbers) == 1 {
		return []stated{{r.known, r.descs[1]}}
	}
	// Every row counts, so that the newest one does.
	type row struct {
		player
		nth int64
	}
	var rows []*row
	for _, s := range r.series {
		if p := (&row{player: s.player(step)}); p.advance() {
			rows = append(rows, p)
		}
	}
	var out []stated
	var all statement
	for len(rows) > 0 {
		next := slices.MinFunc(rows, func(a, b *row) int {
			return cmp.Compare(a.at+a.nth*step+a.lag, b.at+b.nth*step+b.lag)
		})
		at := next.at + next.nth*step
		all.hear(at, r.descs[next.desc])
		if n := len(out); !nothing(&all.Description) && (n == 0 || !alike(out[n-1].Description, &all.Description)) {
			d := all.Description
			if n > 0 && out[n-1].known == at+next.lag {
				out = out[:n-1]
			}
			out = append(out, stated{at + next.lag, &d})
		}
		if next.nth++; next.nth == next.count {
			if next.nth = 0; !next.advance() {
				rows = slices.DeleteFunc(rows, func(o *row) bool { return o == next })
			}
		}
	}
	return out
}

// describedAt returns the description of the resource known at a time.
func (r *traced) describedAt(known int64) *usage.Description {
	i := sort.Search(len(r.stated), func(i int) bool { return r.stated[i].known > known })
	if i == 0 {
		return &undescribed
	}
	return r.stated[i-1].Description
}

// undescribed is a resource of which nothing is stated.
var undescribed usage.Description

// Assumed lists the properties of a resource that a trace does not state, with the values assumed.
// Of every resource it is assumed that nothing else manages it, that nothing protects it from being
// ended and that it has no disks of its own, for no column says so.
type Assumed struct {
	// Governed says that policies may act on it because nothing denies that.
	Governed bool
	// Tags says that it has no tags: none protects it, no policy selects it by one.
	Tags bool
	// Launched says that the launch time is unknown: it has neither age nor warm-up.
	Launched bool
	// GPUs says that neither their number nor a type is stated: those that were seen are
	// all it has.
	GPUs bool
	// Size says that a type is stated of which nothing is known, and no number of GPUs:
	// its size is unknown.
	Size bool
	// Kind, Lifetime and Purpose say that it is taken for an instance, for ephemeral
	// and for experimentation.
	Kind, Lifetime, Purpose bool
}

// Assumptions counts resources by assumed property.
type Assumptions struct {
	Resources                                                     int
	Governed, Tags, Launched, GPUs, Size, Kind, Lifetime, Purpose int
}

// assumed returns the properties that the trace does not state of a resource up to a time.
func (a *Account) assumed(i int, known int64) Assumed {
	r := a.resources[i]
	d := r.describedAt(known)
	tagged := a.tagged(r, d)
	size, gpus := a.size(r, known, d)
	return Assumed{
		Governed: a.assumesGoverned(tagged), Tags: d.Tags == nil, Launched: d.Launched.IsZero(), GPUs: gpus,
		Size: !size.GPUs.Known(),
		Kind: d.Kind == "", Lifetime: tagged.Lifetime == inventory.LifetimeUnknown,
		Purpose: tagged.Purpose == inventory.PurposeUnknown,
	}
}

// Assumptions counts over all resources the properties that the whole trace does not state.
func (a *Account) Assumptions() Assumptions {
	c := Assumptions{Resources: len(a.resources)}
	for i := range a.resources {
		s := a.assumed(i, never)
		for n, assumed := range map[*int]bool{
			&c.Governed: s.Governed, &c.Tags: s.Tags, &c.Launched: s.Launched, &c.GPUs: s.GPUs, &c.Size: s.Size,
			&c.Kind: s.Kind, &c.Lifetime: s.Lifetime, &c.Purpose: s.Purpose,
		} {
			if assumed {
				*n++
			}
		}
	}
	return c
}

// tagged returns a resource by its tags and columns. Columns win.
func (a *Account) tagged(r *traced, d *usage.Description) *inventory.Resource {
	out := &inventory.Resource{
		ID: r.name, Name: r.name, Cloud: Cloud, Kind: cmp.Or(d.Kind, inventory.KindInstance), Type: d.Type,
		State: inventory.StateRunning,
		Tags:  d.Tags, CreatedAt: d.Launched, Incarnation: incarnation,
	}
	// A keep-until that cannot be read keeps without end, as the error says.
	_ = a.params.Tags.Apply(out)
	o := &out.Owner
	o.Team, o.Project, o.User = cmp.Or(d.Team, o.Team), cmp.Or(d.Project, o.Project), cmp.Or(d.User, o.User)
	o.Environment = cmp.Or(d.Environment, o.Environment)
	out.Lifetime, out.Purpose = cmp.Or(d.Lifetime, out.Lifetime), cmp.Or(d.Purpose, out.Purpose)
	return out
}

// Cloud is the cloud of an account that is a trace.
const Cloud = "trace"

// incarnation stands for the one resource that a trace has under a name.
const incarnation = "recorded"

// assumesGoverned reports whether policies may act on a resource because nothing denies it.
func (a *Account) assumesGoverned(r *inventory.Resource) bool {
	_, stated := r.Tags[inventory.TagManaged]
	return !a.params.Governed && !stated && !r.Managed
}

// size returns the size of a resource as known at a time, and reports whether the seen GPUs are
// taken for all of them.
func (a *Account) size(r *traced, known int64, d *usage.Description) (size inventory.Size, assumed bool) {
	if d.Type != "" && a.params.Size != nil {
		if of, ok := a.params.Size(d.Type); ok {
			size = of
		}
	}
	switch {
	case d.GPUs.Known():
		size.GPUs = d.GPUs
	case d.Type == "":
		size.GPUs = inventory.Known(r.gpus(known))
		return size, true
	}
	return size, false
}

// gpus returns how many GPUs were seen up to a time.
func (r *traced) gpus(known int64) int {
	n := 0
	for n < len(r.grew) && r.grew[n] <= known {
		n++
	}
	return n
}

// growth returns when each GPU was first seen. One without a name is the only one,
// and a MIG instance is part of one.
func (r *traced) growth() []int64 {
	named, unnamed := map[string]int64{}, int64(never)
	for _, s := range r.series {
		seen := int64(never)
		for i, sig := range s.slots {
			if sig.PerGPU() {
				seen = min(seen, s.first[i])
			}
		}
		if seen == never {
			continue
		}
		if s.gpu == "" {
			unnamed = seen
			continue
		}
		gpu, _ := usage.Parent(s.gpu)
		if was, ok := named[gpu]; !ok || seen < was {
			named[gpu] = seen
		}
	}
	out := slices.Sorted(maps.Values(named))
	switch {
	case unnamed == never:
	case len(out) == 0:
		return []int64{unnamed}
	default:
		out[0] = min(out[0], unnamed)
	}
	return out
}

// Resource returns a resource as it is known at a time, nil before its first sample.
// What the trace does not say is assumed (see [Assumptions]).
func (a *Account) Resource(i int, at time.Time) *inventory.Resource {
	r, known := a.resources[i], at.UnixMicro()
	if known < r.known {
		return nil
	}
	d := r.describedAt(known)
	out := a.tagged(r, d)
	out.Managed = out.Managed || a.assumesGoverned(out)
	if out.Tags == nil {
		out.Tags = map[string]string{}
	}
	out.Lifetime, out.Purpose = cmp.Or(out.Lifetime, inventory.Ephemeral), cmp.Or(out.Purpose,
		inventory.Experimentation)
	out.Size, _ = a.size(r, known, d)
	if out.Kind == inventory.KindInstance {
		out.Detail = &inventory.Instance{}
	}
	if a.params.Meters != nil {
		out.Meters = a.params.Meters(out)
	}
	return out
}
