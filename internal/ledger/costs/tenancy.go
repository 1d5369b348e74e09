package costs

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
)

// WholeGPU is a GPU in units of requests. The number is divisible by all replica counts up to 16,
// by 7 MIG slices and by 1000.
const WholeGPU = 72_072_000

// million is a share of 1 in the unit of presence and utilization.
const million = 1_000_000

// Tenant holds GPUs: a pod of Kubernetes or a job of Slurm.
type Tenant struct {
	Namespace, Pod, Job string
	// Controller is the creator of the pod, such as "Job/train"; empty if unknown.
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

// Occupancy is the observed use of a machine in a time slot.
type Occupancy struct {
	// Machine is the machine's identifier in the ledger.
	Machine string
	// From is the start of the slot, which is within one UTC hour.
	From   time.Time
	Length time.Duration
	// GPUs are the observed GPUs, or their MIG instances.
	GPUs []OccupiedGPU
	// Requests are the requests of pods on the machine, on any of its GPUs.
	Requests []Requested
	// Told reports that the tenants of listed GPUs would have been observed. Listed reports that
	// Requests is complete for the machine, including pods on unobserved GPUs.
	Told, Listed bool
}

// OccupiedGPU is a GPU, or a MIG instance, in a slot.
type OccupiedGPU struct {
	Name string
	// Size is in parts of a physical GPU: WholeGPU, or less for a MIG instance.
	Size int64
	// Seen is the share of the slot with samples, in millionths.
	Seen int64
	// Utilization of the GPU or instance, in millionths; negative if unknown.
	Utilization int64
	// Tenants are the tenants that held it.
	Tenants []Held
}

// Held is a tenant on a GPU in a slot.
type Held struct {
	Tenant Tenant
	// Present is the share of the slot, in millionths.
	Present int64
	// Utilization of the GPU while the tenant held it, in millionths; negative if unknown.
	Utilization int64
	// Own is the use of the physical GPU by the tenant's own processes, in millionths; negative if
	// not measured.
	Own int64
}

// Requested is the request of a tenant on a machine in a slot.
type Requested struct {
	Tenant Tenant
	// Parts is in parts of a GPU, see [WholeGPU]; 0 for an unknown share.
	Parts int64
	// Present is the share of the slot, in millionths.
	Present int64
}

// Tenancy records the tenants of machines' GPUs by hour.
type Tenancy struct {
	// GPUs is the number of GPUs of each machine. For a missing machine it is the maximum observed
	// at once.
	GPUs map[string]int
	// hours holds the observations of each machine by hour.
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
	// known is GPU time with known tenants or known to have none.
	known int64
	// listed is the time with all tenants of the machine known, stray the GPU time within it that
	// worked for none of these, and seen the time with any observation; in seconds.
	listed, stray, seen int64
	// over reports that the requests exceeded the machine.
	over bool
}

// tenure is a tenant's part of a machine in an hour, in parts of a GPU times seconds.
type tenure struct {
	// requested is the part by request, as far as available; measured is the part of it with known
	// use, and used the part in use.
	requested, measured, used int64
	// byUse is the tenant's whole use, including use beyond its request.
	byUse int64
	// split reports that part of the use was measured for a shared GPU and divided by request.
	split bool
}

// Add adds the observation of a machine in a slot. Slots of a machine must not overlap.
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
		if r.gpus == 0 && r.Parts > 0 { // it holds a GPU, but which one is unknown
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

// count returns the number of a machine's GPUs; 0 if unknown.
func (t *Tenancy) count(machine string) int {
	if n := t.GPUs[machine]; n > 0 {
		return n
	}
	return t.seen[machine]
}

// placedRequest is a tenant's request and the number of GPUs on which it was observed.
type placedRequest struct {
	Requested
	gpus int64
}

// place matches requests with GPUs. A machine's only GPU serves every request.
func place(o *Occupancy, single bool) map[Tenant]*placedRequest {
	out := map[Tenant]*placedRequest{}
	for _, r := range o.Requests {
		if known := out[r.Tenant]; known != nil { // another container of the pod
			known.Parts, known.Present = known.Parts+r.Parts, max(known.Present, r.Present)
			continue
		}
		out[r.Tenant] = &placedRequest{Requested: r}
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

// slot is a machine in a time slot.
type slot struct {
	*occupied
	seconds      int64
	told, listed bool
	requests     map[Tenant]*placedRequest
}

// unplaced reports whether a tenant of the machine holds an unknown GPU.
func (s slot) unplaced() bool {
	for _, r := range s.requests {
		if r.gpus == 0 {
			return true
		}
	}
	return false
}

// overlap is the excess of the tenants' total presence over the slot up to which they count as
// sequential, in millionths.
const overlap = 50_000

// gpu adds a GPU.
func (s slot) gpu(g OccupiedGPU) {
	whole := scaled(g.Size*s.seconds, g.Seen)
	// A busy GPU without known tenants has an unknown one.
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
	var sum, taken int64 // their share of the GPU, times seconds
	for i, h := range g.Tenants {
		sum += scaled(asks[i]*s.seconds, h.Present)
		taken += asks[i]
	}
	together := present > million+overlap
	alone := !together && taken == int64(len(g.Tenants))*g.Size // in turn, each on the whole GPU
	used := int64(-1)
	if g.Utilization >= 0 {
		used = scaled(whole, g.Utilization)
	}
	if !alone && s.unplaced() {
		used = -1 // other tenants may use this GPU
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

// asks returns each tenant's part of a GPU, in parts of a GPU, and whether they were present at the
// same time. Tenants with an unknown request share the remainder equally.
func (s slot) asks(g OccupiedGPU) (asks []int64, present int64) {
	asks = make([]int64, len(g.Tenants))
	left, unknown := g.Size, int64(0)
	var there int64 // presence of tenants with an unknown request
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
		if there > million+overlap || left < g.Size { // present at the same time
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

// scaled returns v times a share in millionths, rounded down, without overflow for the capacity of
// a machine.
func scaled(v, share int64) int64 { return ratio(v, share, million) }

// sorted returns the tenants of an hour by name.
func (o *occupied) sorted() []Tenant {
	return slices.SortedFunc(maps.Keys(o.tenants), compareTenants)
}

func compareTenants(a, b Tenant) int {
	return slices.Compare([]string{a.Name(), a.Controller, a.Owner.Team, a.Owner.Project, a.Owner.User},
		[]string{b.Name(), b.Controller, b.Owner.Team, b.Owner.Project, b.Owner.User})
}
