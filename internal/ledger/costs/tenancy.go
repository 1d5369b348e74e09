package costs

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// WholeGPU is a GPU in the parts in which requests are counted. The number divides without
// a remainder by every count of replicas up to 16, by 7 MIG slices and by 1000.
const WholeGPU = 72_072_000

// million is a share of 1 in the unit of presence and utilization.
const million = 1_000_000

// Tenant is who holds GPUs: a pod of Kubernetes, or a job of Slurm.
type Tenant struct {
	Namespace, Pod, Job string
	// Controller is the creator of the pod: "Job/train". Empty: not known.
	Controller string
	// Owner is derived from the labels of the pod by the tag mapping.
	Owner inventory.Owner
}

// Name is the tenant's name in reports: "vision/train-0", "job 4711".
func (t Tenant) Name() string {
	switch {
	case t.Pod != "" && t.Namespace != "":
		return t.Namespace + "/" + t.Pod
	case t.Pod != "":
		return t.Pod
	case t.Job != "":
		return "job " + t.Job
	}
	return ""
}

// Occupancy is the observed use of a machine in a slot of time.
type Occupancy struct {
	// Machine is the machine's identifier in the ledger.
	Machine string
	// From is the start of the slot. A slot is within one hour, in UTC.
	From   time.Time
	Length time.Duration
	// GPUs are those that were seen, a MIG instance in place of its GPU.
	GPUs []OccupiedGPU
	// Requests are those of pods on the machine, whatever GPU each has.
	Requests []Requested
	// Told says that a tenant of a GPU that is listed would have been seen. Listed says that
	// Requests are all there are on the machine, those of no GPU that was seen among them.
	Told, Listed bool
}

// OccupiedGPU is a GPU, or a MIG instance, in a slot.
type OccupiedGPU struct {
	Name string
	// Size is in parts of a physical GPU: WholeGPU, or those of a MIG instance.
	Size int64
	// Seen is the part of the slot with samples, 0 to a million.
	Seen int64
	// Utilization is that of the GPU, or of the instance, 0 to a million; negative is not
	// known.
	Utilization int64
	// Tenants are who held it.
	Tenants []Held
}

// Held is a tenant on a GPU in a slot.
type Held struct {
	Tenant Tenant
	// Present is the part of the slot, 0 to a million.
	Present int64
	// Utilization is that of the GPU while the tenant held it, 0 to a million; negative is not
	// known.
	Utilization int64
	// Own is the use of the physical GPU by the tenant's own processes, 0 to a million; negative:
	// not measured.
	Own int64
}

// Requested is the request of a tenant on a machine in a slot.
type Requested struct {
	Tenant Tenant
	// Parts are those of GPUs, see [WholeGPU]; 0: a share that is not known.
	Parts int64
	// Present is the part of the slot, 0 to a million.
	Present int64
}

// Tenancy is who held the GPUs of machines, hour by hour.
type Tenancy struct {
	// GPUs are how many GPUs a machine has. A machine that is not there has as many as were
	// seen at once.
	GPUs map[string]int
	// hours are the observations of a machine by hour.
	hours map[machineHour]*occupied
	seen  map[string]int
}

type machineHour struct {
	machine string
	hour    int64 // seconds since 1970
}

// occupied is the observed use of a machine in an hour, in parts of a GPU times seconds.
type occupied struct {
	tenants map[Tenant]*tenure
	// known is time of GPUs whose tenants are known, none among them.
	known int64
	// listed are the seconds in which all tenants of the machine are known, stray is what GPUs
	// had of them that worked for none of these. seen are the seconds in which there is
	// anything of the machine.
	listed, stray, seen int64
	// over says that more was requested than there is.
	over bool
}

// tenure is the part of a tenant in a machine in an hour, in parts of a GPU times seconds.
type tenure struct {
	// requested is the tenant's part by its request, as far as there was so much; measured is the
	// part of it with a known use, and used the part in use.
	requested, measured, used int64
	// byUse is the tenant's whole use, beyond its request as well.
	byUse int64
	// split says that a part of the use is a part of its GPU's, by request.
	split bool
}

// Add adds what was seen of a machine in a slot. Slots of a machine may not overlap.
func (t *Tenancy) Add(o Occupancy) {
	hour := machineHour{o.Machine, o.From.Truncate(time.Hour).Unix()}
	if t.hours == nil {
		t.hours, t.seen = map[machineHour]*occupied{}, map[string]int{}
	}
	at := t.hours[hour]
	if at == nil {
		at = &occupied{tenants: map[Tenant]*tenure{}}
		t.hours[hour] = at
	}
	physical := map[string]bool{}
	for _, g := range o.GPUs {
		name, _, _ := strings.Cut(g.Name, ":")
		physical[name] = true
	}
	t.seen[o.Machine] = max(t.seen[o.Machine], len(physical))
	seconds := int64(o.Length / time.Second)
	single := t.count(o.Machine) == 1 && len(o.GPUs) == 1
	s := slot{at, seconds, o.Told, o.Listed, place(&o, single)}
	for _, g := range o.GPUs {
		s.gpu(g)
	}
	for tenant, r := range s.requests {
		if r.gpus == 0 && r.Parts > 0 { // it has a GPU, and which is not known
			at.tenure(tenant).requested += scaled(r.Parts*seconds, r.Present)
		}
	}
	there := int64(million)
	if len(o.GPUs) > 0 {
		there = 0
		for _, g := range o.GPUs {
			there = max(there, g.Seen)
		}
	}
	if len(o.GPUs) > 0 || o.Listed {
		at.seen += scaled(seconds, there)
	}
	if o.Listed {
		at.listed += scaled(seconds, there)
	}
}

// count is the number of a machine's GPUs; 0 is not known.
func (t *Tenancy) count(machine string) int {
	if n := t.GPUs[machine]; n > 0 {
		return n
	}
	return t.seen[machine]
}

// asked is the request of a tenant on a machine, and the number of its GPUs with the tenant.
type asked struct {
	Requested
	gpus int64
}

// place joins requests with GPUs. Where a machine has a single one, it is that of every
// request.
func place(o *Occupancy, single bool) map[Tenant]*asked {
	out := map[Tenant]*asked{}
	for _, r := range o.Requests {
		if known := out[r.Tenant]; known != nil { // another container of the pod
			known.Parts, known.Present = known.Parts+r.Parts, max(known.Present, r.Present)
			continue
		}
		out[r.Tenant] = &asked{Requested: r}
	}
	for i := range o.GPUs {
		g := &o.GPUs[i]
		for _, h := range g.Tenants {
			if r := out[h.Tenant]; r != nil {
				r.gpus++
			}
		}
		if !single {
			continue
		}
		for tenant, r := range out {
			if r.gpus == 0 {
				g.Tenants = append(g.Tenants, Held{tenant, r.Present, g.Utilization, -1})
				r.gpus = 1
			}
		}
	}
	return out
}

// slot is a machine in a slot of time.
type slot struct {
	*occupied
	seconds      int64
	told, listed bool
	requests     map[Tenant]*asked
}

// unplaced says whether a tenant of the machine has a GPU, and which is not known.
func (s slot) unplaced() bool {
	for _, r := range s.requests {
		if r.gpus == 0 {
			return true
		}
	}
	return false
}

// overlap is by how much the presence of tenants may exceed the slot before they count as
// there at the same time, in millionths.
const overlap = 50_000

// gpu adds a GPU.
func (s slot) gpu(g OccupiedGPU) {
	whole := scaled(g.Size*s.seconds, g.Seen)
	// A GPU that works for no tenant that is known has another one.
	stray := len(g.Tenants) == 0 && g.Utilization >= million/100 && !s.unplaced()
	switch {
	case s.listed && stray:
		s.stray += whole
	case s.listed:
	case len(g.Tenants) > 0, s.told && !stray:
		s.known += whole
	}
	if len(g.Tenants) == 0 {
		return
	}
	asks, present := s.asks(g)
	var sum, taken int64 // what they have of the GPU, times seconds
	for i, h := range g.Tenants {
		sum += scaled(asks[i]*s.seconds, h.Present)
		taken += asks[i]
	}
	together := present > million+overlap
	alone := !together && taken == int64(len(g.Tenants))*g.Size // one after another, each all of it
	used := int64(-1)
	if g.Utilization >= 0 {
		used = scaled(whole, g.Utilization)
	}
	if !alone && s.unplaced() {
		used = -1 // others may be on this GPU
	}
	limit := max(whole, scaled(g.Size*s.seconds, min(present, million)))
	s.over = s.over || sum > limit+limit/10
	for i, h := range g.Tenants {
		held := scaled(asks[i]*s.seconds, h.Present)
		had := held
		if sum > limit {
			had = ratio(held, limit, sum)
		}
		t := s.tenure(h.Tenant)
		t.requested += had
		own := int64(-1)
		switch {
		case h.Own >= 0:
			own = scaled(scaled(WholeGPU*s.seconds, h.Present), h.Own)
		case alone && h.Utilization >= 0:
			own = scaled(held, h.Utilization)
		case !alone && used >= 0 && sum > 0:
			own, t.split = ratio(used, held, sum), true
		}
		if own >= 0 {
			t.measured += had
			t.used += min(own, had)
			t.byUse += own
		}
	}
}

// asks are what each tenant of a GPU has of it in parts of a GPU, and how much of the slot
// they were there, together. Who asked for an unknown part has an even part of what the
// others leave.
func (s slot) asks(g OccupiedGPU) (asks []int64, present int64) {
	asks = make([]int64, len(g.Tenants))
	left, unknown := g.Size, int64(0)
	var there int64 // of the unknown ones
	for i, h := range g.Tenants {
		present += h.Present
		if r := s.requests[h.Tenant]; r != nil && r.Parts > 0 {
			asks[i] = min(r.Parts/r.gpus, g.Size)
			left -= scaled(asks[i], h.Present)
			continue
		}
		unknown++
		there += h.Present
	}
	for i := range asks {
		if asks[i] > 0 {
			continue
		}
		asks[i] = max(left, 0)
		if there > million+overlap || left < g.Size { // not one after another
			asks[i] = max(left, 0) / unknown
		}
	}
	return asks, present
}

func (o *occupied) tenure(t Tenant) *tenure {
	x := o.tenants[t]
	if x == nil {
		x = &tenure{}
		o.tenants[t] = x
	}
	return x
}

// scaled returns v times a share in millionths, rounded down, without overflow for what a
// machine has.
func scaled(v, share int64) int64 { return ratio(v, share, million) }

// sorted are the tenants of an hour, in order of their names.
func (o *occupied) sorted() []Tenant {
	return slices.SortedFunc(maps.Keys(o.tenants), compareTenants)
}

func compareTenants(a, b Tenant) int {
	return slices.Compare([]string{a.Name(), a.Controller, a.Owner.Team, a.Owner.Project, a.Owner.User},
		[]string{b.Name(), b.Controller, b.Owner.Team, b.Owner.Project, b.Owner.User})
}
