package prom

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/ledger/costs"
	"github.com/curfew-dev/curfew/internal/plan/mig"
	"github.com/curfew-dev/curfew/internal/usage"
)

const (
	// tenancySlot is the resolution of GPU allocation. Within a slot samples are counted, so that
	// short pods get their share.
	tenancySlot = 5 * time.Minute
	// tenancyChunk is the initial range of one query.
	tenancyChunk = 6 * time.Hour
)

// gpuResources are the extended resources by which pods request GPUs, as kube-state-metrics
// writes their names (https://github.com/kubernetes/kube-state-metrics,
// docs/metrics/workload/pod-metrics.md): of device plugins of NVIDIA (time slices may be
// renamed to .shared), AMD and AWS Neuron, and of HAMi, whose gpucores is a percentage.
const gpuResources = `nvidia_com_gpu|nvidia_com_gpu_shared|nvidia_com_mig_.+|nvidia_com_gpucores|amd_com_gpu|aws_amazon_com_neuron|aws_amazon_com_neuroncore|aws_amazon_com_neurondevice`

// podUtilizationMetrics are metrics of the GPU use of one pod's processes in percent: HAMi's monitor under its old
// and new name (Project-HAMi/HAMi, cmd/vGPUmonitor/metrics.go), and dcgm-exporter's for time slices
// (NVIDIA/dcgm-exporter, pull request 638).
var podUtilizationMetrics = []string{
	"Device_utilization_desc_of_container", "hami_container_device_utilization_ratio", "dcgm_fi_dev_sm_util_per_pod",
}

// Tenancy reports to a sink who held the GPUs of machines in each slot, as far as labels of series
// and requests of pods show. tags maps labels of a pod to its owner.
func (s *Source) Tenancy(ctx context.Context, machines []*inventory.Resource, from, to time.Time,
	tags inventory.TagMapping, sink func(costs.Occupancy)) ([]inventory.BlindSpot, error) {
	from, to = from.Truncate(tenancySlot), to.Truncate(tenancySlot)
	s.found.add(machines)
	r := &reading{
		Source: s, iv: usage.Interval{From: from, To: to, Step: tenancySlot},
		here:        map[inventory.Ref]*inventory.Resource{},
		clocksAhead: map[inventory.Ref]time.Time{}}
	for _, m := range machines {
		r.here[m.Ref()] = m
	}
	t := &tenancy{reading: r, tags: tags, full: map[string]float64{}, podOwners: map[podName]costs.Tenant{}}
	length, least := tenancyChunk, time.Hour
	err := r.chunks(ctx, from, to, &length, &least, func(ctx context.Context, from, to time.Time) error {
		got, err := t.read(ctx, from, to)
		if err != nil {
			return err
		}
		got.tell(sink)
		return nil
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return r.blindSpots(err), nil
}

// tenancy reads who holds GPUs.
type tenancy struct {
	*reading
	tags inventory.TagMapping
	// full is the number of samples in a complete slot, of a GPU and of a machine as a node.
	full map[string]float64
	// podOwners maps pods to their owners.
	podOwners map[podName]costs.Tenant
}

type podName struct{ namespace, pod string }

// slotTable is one chunk of time, by machine and slot.
type slotTable struct {
	*tenancy
	slots map[slotKey]*machineSlot
	// labeled holds machines whose series name tenants.
	labeled map[inventory.Ref]bool
	uuids   map[string]*inventory.Resource
}

type slotKey struct {
	ref inventory.Ref
	at  int64
}

// machineSlot is one machine in one slot.
type machineSlot struct {
	gpus map[string]*slotGPU
	// requests are the requests of pods by resource, offers the node's capacity of each resource.
	requests map[podResource]*request
	offers   map[string]float64
	// nodeCount is the number of samples of the node.
	nodeCount float64
}

type podResource struct {
	podName
	container, resource string
}

type request struct{ value, count, done float64 }

type slotGPU struct {
	profile string
	tenants map[costs.Tenant]*presence // the zero tenant means unallocated
}

// presence counts the samples that show a tenant on a GPU, and its utilization.
type presence struct {
	count, utilization, own float64
	// utilized is true if utilization was measured directly.
	utilized bool
}

// read queries one chunk.
func (t *tenancy) read(ctx context.Context, from, to time.Time) (*slotTable, error) {
	e := &slotTable{
		tenancy: t, slots: map[slotKey]*machineSlot{}, labeled: map[inventory.Ref]bool{},
		uuids: map[string]*inventory.Resource{},
	}
	for _, step := range []func(context.Context, time.Time, time.Time) error{e.names, e.gpus, e.own, e.pods} {
		if err := step(ctx, from, to); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// over queries an expression over every slot of [from, to). The samples of the response describe
// the slot before them.
func (e *slotTable) over(ctx context.Context, expression string, from, to time.Time, each func(x series)) error {
	expression = strings.ReplaceAll(expression, "RANGE", "["+seconds(tenancySlot)+"] offset 1ms")
	query := "(" + strings.ReplaceAll(expression, "SELECT", e.where) + ")[" +
		seconds(to.Sub(from)-tenancySlot+time.Second) + ":" + seconds(tenancySlot) + "]"
	return e.server.instant(ctx, query, to, func(x series) error { each(x); return nil })
}

// newest queries the series of a range with their last labels.
func (e *slotTable) newest(ctx context.Context, expression string, from, to time.Time,
	each func(labels map[string]string)) error {
	query := strings.NewReplacer("SELECT", e.where, "RANGE", "["+seconds(to.Sub(from))+"]").Replace(expression)
	return e.server.instant(ctx, query, to, func(x series) error { each(lowerKeys(x.Labels)); return nil })
}

const (
	requestsOf  = `kube_pod_container_resource_requests{resource=~"` + gpuResources + `"SELECT}RANGE`
	offersOf    = `kube_node_status_allocatable{resource=~"` + gpuResources + `"SELECT}RANGE`
	withRequest = ` and on (namespace, pod) count_over_time(` + requestsOf + `)`
)

// names reads the names of nodes, and the owners of pods with GPUs.
func (e *slotTable) names(ctx context.Context, from, to time.Time) error {
	err := e.newest(ctx, `last_over_time(kube_node_info{job!=""SELECT}RANGE)`, from, to,
		func(labels map[string]string) {
			node, provider := first(labels, "node"), first(labels, "provider_id")
			id := provider[strings.LastIndex(provider, "/")+1:]
			if m := e.found.named[strings.ToLower(id)]; m != nil && id != "" && node != "" {
				e.found.call(node, m)
			}
		})
	if err != nil {
		return err
	}
	know := func(labels map[string]string, add func(*costs.Tenant)) {
		p := podName{first(labels, "namespace"), first(labels, "pod")}
		x := e.podOwners[p]
		x.Namespace, x.Pod = p.namespace, p.pod
		add(&x)
		e.podOwners[p] = x
	}
	err = e.newest(ctx, `last_over_time(kube_pod_owner{owner_kind!="",owner_kind!="<none>"SELECT}RANGE)`+withRequest,
		from, to, func(labels map[string]string) {
			know(labels, func(x *costs.Tenant) {
				x.Controller = first(labels, "owner_kind") + "/" + first(labels, "owner_name")
			})
		})
	if err != nil {
		return err
	}
	return e.newest(ctx, `last_over_time(kube_pod_labels{job!=""SELECT}RANGE)`+withRequest, from, to,
		func(labels map[string]string) {
			know(labels, func(x *costs.Tenant) { x.Owner = e.tags.Owner(podLabels(labels)) })
		})
}

// podLabels returns the labels of a pod, which kube-state-metrics writes with a prefix.
func podLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range labels {
		if name, ok := strings.CutPrefix(k, "label_"); ok {
			out[name] = v
		}
	}
	return out
}

// at returns the record of a machine in the slot before a time.
func (e *slotTable) at(m *inventory.Resource, ms int64) *machineSlot {
	end := time.UnixMilli(ms).UTC().Round(tenancySlot)
	k := slotKey{m.Ref(), end.Add(-tenancySlot).Unix()}
	s := e.slots[k]
	if s == nil {
		s = &machineSlot{
			gpus: map[string]*slotGPU{}, requests: map[podResource]*request{}, offers: map[string]float64{},
		}
		e.slots[k] = s
	}
	return s
}

func (s *machineSlot) gpu(name string) *slotGPU {
	g := s.gpus[name]
	if g == nil {
		g = &slotGPU{tenants: map[costs.Tenant]*presence{}}
		s.gpus[name] = g
	}
	return g
}

func (g *slotGPU) tenant(t costs.Tenant) *presence {
	p := g.tenants[t]
	if p == nil {
		p = &presence{utilization: -1, own: -1}
		g.tenants[t] = p
	}
	return p
}

// tenantOf returns the tenant that lower-case labels allocate a GPU to; the zero tenant if none.
func (e *slotTable) tenantOf(labels map[string]string) costs.Tenant {
	h, ok := holderOf("", labels)
	if !ok {
		return costs.Tenant{}
	}
	if h.Pod != "" {
		if known, ok := e.podOwners[podName{h.Namespace, h.Pod}]; ok {
			return known
		}
		return costs.Tenant{Namespace: h.Namespace, Pod: h.Pod}
	}
	return costs.Tenant{Job: h.Job, Owner: e.tags.Owner(labels)}
}

// gpus records the tenants in the series of GPUs, and their utilization.
func (e *slotTable) gpus(ctx context.Context, from, to time.Time) error {
	names := slices.DeleteFunc(e.words.names(), func(name string) bool {
		signal := e.words[name].Signal
		return signal != usage.GPUUtil && signal != usage.GREngine
	})
	// The graphics engine is a substitute for utilization where that is not measured.
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(e.words[a].Signal, e.words[b].Signal) })
	for _, name := range names {
		signal, full := e.words[name].Signal, 1.0
		if signal == usage.GPUUtil {
			full = 100
		}
		known := false
		of := name + "{" + strings.TrimPrefix(e.where, ",") + "}RANGE"
		for _, statistic := range []string{"count", "avg"} {
			if statistic == "avg" && !known {
				break
			}
			err := e.over(ctx, statistic+"_over_time("+of+")", from, to, func(x series) {
				labels := lowerKeys(x.Labels)
				m := e.machineOf(labels)
				device := deviceOf(labels)
				gpu := device.Name("")
				if m == nil || gpu == "" {
					return
				}
				known = true
				if device.UUID != "" {
					e.uuids[strings.ToLower(device.UUID)] = m
				}
				tenant := e.tenantOf(labels)
				if tenant != (costs.Tenant{}) {
					e.labeled[m.Ref()] = true
				}
				for _, p := range x.Points {
					g := e.at(m, p.At).gpu(gpu)
					g.profile = first(labels, "gpu_i_profile")
					at := g.tenant(tenant)
					if statistic == "count" {
						at.count = max(at.count, p.V)
					} else if v, reading := e.words[name].Read(p.V, device); reading == usage.Valid &&
						(signal == usage.GPUUtil || !at.utilized) {
						at.utilization, at.utilized = max(at.utilization, v/full), at.utilized ||
							signal == usage.GPUUtil
					}
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// own reads the GPU use of the processes of single pods.
func (e *slotTable) own(ctx context.Context, from, to time.Time) error {
	for _, name := range podUtilizationMetrics {
		err := e.over(ctx, "avg_over_time("+name+"{"+strings.TrimPrefix(e.where, ",")+"}RANGE)",
			from, to, func(x series) {
				labels := lowerKeys(x.Labels)
				uuid := deviceOf(labels).UUID
				m, tenant := e.uuids[strings.ToLower(uuid)], e.tenantOf(labels)
				if m == nil || tenant == (costs.Tenant{}) {
					return
				}
				for _, p := range x.Points {
					if !usage.IsMeasurement(p.V) || p.V > 100 {
						continue
					}
					g := e.at(m, p.At).gpu(uuid)
					at := g.tenant(tenant)
					at.own = max(at.own, 0) + p.V/100 // sum over the pod's containers
					if at.count == 0 {
						at.count = g.most()
					}
				}
			})
		if err != nil {
			return err
		}
	}
	return nil
}

// most returns the highest sample count of any series of a GPU in a slot.
func (g *slotGPU) most() float64 {
	var most float64
	for _, p := range g.tenants {
		most = max(most, p.count)
	}
	return most
}

// pods reads the requests of pods and the capacity of nodes.
func (e *slotTable) pods(ctx context.Context, from, to time.Time) error {
	onNode := func(labels map[string]string) *inventory.Resource {
		// The other labels name the pod of kube-state-metrics.
		return e.machineOf(map[string]string{"node": first(labels, "node")})
	}
	where := map[podName][]*inventory.Resource{}
	for _, statistic := range []string{"count", "avg"} {
		err := e.over(ctx, statistic+"_over_time("+requestsOf+")", from, to, func(x series) {
			labels := lowerKeys(x.Labels)
			p := podResource{
				podName{first(labels, "namespace"), first(labels, "pod")}, first(labels, "container"),
				first(labels, "resource"),
			}
			if first(labels, "node") == "" {
				return // not scheduled
			}
			m := onNode(labels)
			if m == nil {
				return
			}
			if !slices.Contains(where[p.podName], m) {
				where[p.podName] = append(where[p.podName], m)
			}
			for _, v := range x.Points {
				s := e.at(m, v.At)
				q := s.requests[p]
				if q == nil {
					q = &request{}
					s.requests[p] = q
				}
				if statistic == "count" {
					q.count = max(q.count, v.V)
				} else {
					q.value = max(q.value, v.V)
				}
			}
		})
		if err != nil {
			return err
		}
	}
	if len(where) > 0 {
		// Completed pods are listed until they are deleted, and hold nothing.
		done := `sum by (namespace, pod) (max by (namespace, pod, phase) (avg_over_time(kube_pod_status_phase{phase=~"Succeeded|Failed"SELECT}RANGE)))` + withRequest
		told := map[podName]bool{}
		err := e.over(ctx, done, from, to, func(x series) {
			labels := lowerKeys(x.Labels)
			name := podName{first(labels, "namespace"), first(labels, "pod")}
			told[name] = true
			for _, m := range where[name] {
				for _, v := range x.Points {
					for p, q := range e.at(m, v.At).requests {
						if p.podName == name {
							q.done = v.V
						}
					}
				}
			}
		})
		if err != nil {
			return err
		}
		e.forget(told)
	}
	for _, statistic := range []string{"count", "max"} {
		err := e.over(ctx, statistic+"_over_time("+offersOf+")", from, to, func(x series) {
			labels := lowerKeys(x.Labels)
			m := onNode(labels)
			if m == nil {
				return
			}
			for _, v := range x.Points {
				if s := e.at(m, v.At); statistic == "count" {
					s.nodeCount = max(s.nodeCount, v.V)
				} else {
					s.offers[first(labels, "resource")] = v.V
				}
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forget removes requests of pods that may have completed: their phase is unknown and no GPU's
// series names them.
func (e *slotTable) forget(told map[podName]bool) {
	for _, s := range e.slots {
		seen := map[podName]bool{}
		for _, g := range s.gpus {
			for t := range g.tenants {
				seen[podName{t.Namespace, t.Pod}] = true
			}
		}
		maps.DeleteFunc(s.requests, func(p podResource, _ *request) bool {
			return !told[p.podName] && !seen[p.podName]
		})
	}
}

// tell passes the occupancy on, per machine in time order.
func (e *slotTable) tell(sink func(costs.Occupancy)) {
	e.detectCompleteSlot()
	keys := slices.SortedFunc(maps.Keys(e.slots), func(a, b slotKey) int {
		return cmp.Or(inventory.CompareRefs(a.ref, b.ref), cmp.Compare(a.at, b.at))
	})
	for _, k := range keys {
		s, m := e.slots[k], e.here[k.ref]
		o := costs.Occupancy{
			Machine: m.ID, From: time.Unix(k.at, 0).UTC(), Length: tenancySlot, Listed: len(s.offers) > 0,
		}
		o.Told = o.Listed || e.labeled[k.ref]
		divided := map[string]bool{} // GPUs in MIG mode
		for name := range s.gpus {
			if gpu, part, ok := strings.Cut(name, usage.PartSeparator); ok && part != "" {
				divided[gpu] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.gpus)) {
			if !divided[name] {
				o.GPUs = append(o.GPUs, e.gpuOf(k, name, s.gpus[name]))
			}
		}
		o.Requests = e.requested(s, m)
		sink(o)
	}
}

// detectCompleteSlot sets the number of samples in a complete slot to the median over the slots.
func (e *slotTable) detectCompleteSlot() {
	counts := map[string][]float64{}
	for k, s := range e.slots {
		for name, g := range s.gpus {
			id := k.ref.ID + "\x00" + name
			counts[id] = append(counts[id], g.most())
		}
		node := s.nodeCount
		for _, q := range s.requests {
			node = max(node, q.count)
		}
		counts[k.ref.ID] = append(counts[k.ref.ID], node)
	}
	for id, list := range counts {
		slices.Sort(list)
		e.full[id] = max(e.full[id], list[len(list)/2])
	}
}

// present returns the share of a slot that samples cover, in millionths.
func (e *slotTable) present(id string, count float64) int64 {
	share := count / max(e.full[id], 1)
	if share >= minCoverage {
		share = 1
	}
	return int64(math.Round(1e6 * share))
}

// gpuOf returns the record of a GPU in a slot.
func (e *slotTable) gpuOf(k slotKey, name string, g *slotGPU) costs.OccupiedGPU {
	out := costs.OccupiedGPU{Name: name, Size: costs.WholeGPU, Utilization: -1}
	if g.profile != "" {
		out.Size = sliceOf(g.profile)
	}
	id := k.ref.ID + "\x00" + name
	var sum, weights float64
	tenants := slices.SortedFunc(maps.Keys(g.tenants), func(a, b costs.Tenant) int {
		return cmp.Compare(a.Name(), b.Name())
	})
	for _, t := range tenants {
		p := g.tenants[t]
		present := e.present(id, p.count)
		out.Seen = min(out.Seen+present, 1e6)
		if p.utilization >= 0 {
			sum, weights = sum+p.utilization*p.count, weights+p.count
		}
		if t == (costs.Tenant{}) {
			continue
		}
		out.Tenants = append(out.Tenants, costs.Held{
			Tenant: t, Present: present, Utilization: millionths(p.utilization), Own: millionths(p.own),
		})
	}
	if weights > 0 {
		out.Utilization = millionths(sum / weights)
	}
	return out
}

// millionths converts a share of 0 to 1; negative values stay negative.
func millionths(v float64) int64 {
	if v < 0 {
		return -1
	}
	return int64(math.Round(1e6 * min(v, 1)))
}

// sliceOf returns the number of compute slices of a MIG profile.
func sliceOf(profile string) int64 {
	profile = strings.ToLower(profile)
	for _, m := range mig.Models() {
		if p, ok := m.Profile(profile); ok {
			return costs.WholeGPU / int64(m.ComputeSlices) * int64(p.ComputeSlices)
		}
	}
	var slices int64
	if _, err := fmt.Sscanf(profile, "%dg.", &slices); err != nil || slices < 1 || slices > 7 {
		return costs.WholeGPU
	}
	return costs.WholeGPU / 7 * slices
}

// requested returns the requests of a machine's pods in parts of its GPUs.
func (e *slotTable) requested(s *machineSlot, m *inventory.Resource) []costs.Requested {
	gpus := float64(m.Size.GPUs.Or(0))
	var out []costs.Requested
	for _, p := range slices.SortedFunc(maps.Keys(s.requests), func(a, b podResource) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod),
			cmp.Compare(a.container, b.container), cmp.Compare(a.resource, b.resource))
	}) {
		q := s.requests[p]
		if p.resource == "nvidia_com_gpucores" || q.done >= 1 || q.value <= 0 {
			continue
		}
		unit := s.unit(p.resource, gpus)
		cores := p
		cores.resource = "nvidia_com_gpucores"
		if c := s.requests[cores]; c != nil && c.value > 0 && c.value <= 100 {
			unit = c.value / 100 * costs.WholeGPU
		}
		tenant, known := e.podOwners[p.podName]
		if !known {
			tenant = costs.Tenant{Namespace: p.namespace, Pod: p.pod}
		}
		present := e.present(m.ID, q.count)
		out = append(out, costs.Requested{
			Tenant: tenant, Parts: int64(unit * q.value), Present: int64(float64(present) * (1 - q.done)),
		})
	}
	return out
}

// unit returns the share of a GPU that one unit of a resource is, in parts; 0 if unknown. If a node
// offers more units than the machine has GPUs, each GPU is divided: time slices, MPS, MIG instances
// of one size, cores of a device.
func (s *machineSlot) unit(resource string, gpus float64) float64 {
	if profile, ok := strings.CutPrefix(resource, "nvidia_com_mig_"); ok {
		compute, memory, _ := strings.Cut(profile, "_")
		return float64(sliceOf(compute + "." + memory))
	}
	offered := s.offers[resource]
	if resource == "nvidia_com_gpu_shared" {
		gpus -= s.offers["nvidia_com_gpu"]
	}
	switch {
	case offered > gpus && gpus > 0:
		return costs.WholeGPU * gpus / offered
	case resource == "nvidia_com_gpu_shared", resource == "aws_amazon_com_neuroncore":
		return 0
	}
	return costs.WholeGPU
}
