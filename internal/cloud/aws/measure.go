package aws

import (
	"context"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/usage"
)

// How far back, and in what steps, usage is read besides the query's own window: the
// windows of the rules that look at it.
const (
	step            = time.Hour
	fineStep        = time.Minute
	fineWindow      = 6 * time.Hour
	middleStep      = 5 * time.Minute
	middleWindow    = 48 * time.Hour
	natStep         = 24 * time.Hour
	natSpan         = 30 * 24 * time.Hour
	reservationSpan = 7 * 24 * time.Hour
	source          = "cloudwatch"
)

// measure reads what was measured of a place's resources.
func (p *place) measure(ctx context.Context, resources []*inventory.Resource) {
	window := p.scan.query.Window
	m := &meters{place: p, usual: p.batch(window, stepOf(window)), daily: p.batch(natSpan, natStep),
		reserved: p.batch(reservationSpan, step), windows: map[*inventory.Resource]*usage.Window{}}
	var accelerated []*inventory.Resource
	for _, r := range resources {
		switch d := r.Detail.(type) {
		case *inventory.Instance:
			if r.State != inventory.StateRunning {
				continue
			}
			m.instance(r)
			if r.Size.Accelerated() {
				accelerated = append(accelerated, r)
			}
		case *inventory.Volume:
			if r.State == inventory.StateAvailable {
				m.volume(r)
			}
		case *inventory.NATGateway:
			if r.State == inventory.StateAvailable {
				m.natGateway(r)
			}
		case *inventory.LoadBalancer:
			m.loadBalancer(r, d)
		case *inventory.Endpoint:
			if r.State == inventory.StateRunning && !p.components[r.ID] {
				m.endpoint(r, d)
			}
		case *inventory.TrainingJob:
			if r.State == inventory.StateRunning {
				m.trainingJob(r, d)
			}
		case *inventory.AutoScalingGroup:
			m.group(r)
		case *inventory.CapacityReservation:
			m.reservation(r)
		}
	}
	if len(accelerated) > 0 {
		m.gpus(ctx, accelerated)
	}
	if n := len(p.components); n > 0 {
		p.scan.blind(inventory.BlindSpot{What: "sagemaker " + p.String(), Why: "inference components: their requests are not counted as the endpoint's",
			Effect: index["cloudwatch:GetMetricData"].Effect + " for " + count(n, "endpoint")})
	}
	outcome := p.read(ctx, m.usual, m.daily, m.reserved)
	p.tellUnmeasured(ctx, outcome)
	p.scan.mu.Lock()
	defer p.scan.mu.Unlock()
	for r, w := range m.windows {
		if !outcome.failed[r] {
			p.scan.windows[r.Ref()] = w
		}
	}
}

// stepOf is the time that one point stands for in a window. What is judged in order to act
// is a window of hours, read as finely as CloudWatch keeps standard metrics; two weeks of
// minutes would be more points than one asks for. (CloudWatch User Guide, "Metrics
// retention": minutes for 15 days, five minutes for 63.)
func stepOf(window time.Duration) time.Duration {
	switch {
	case window <= fineWindow:
		return fineStep
	case window <= middleWindow:
		return middleStep
	}
	return step
}

// slowest is the longest pause between two points of a metric that is reported regularly:
// EC2's basic monitoring. What comes less often is read as what it is, with gaps.
const slowest = 5 * time.Minute

// cadence is the time between the points of a series that was asked for in finer steps than
// it is reported in: then each of its points stands for more time than was asked for. It is
// the least time between two points, so that one that is missing stays a gap, and never
// more than [slowest].
func cadence(asked time.Duration, at []moment) time.Duration {
	if len(at) < 3 {
		return asked
	}
	least := slowest + 1
	for i := 1; i < len(at); i++ {
		least = min(least, at[i].at.Sub(at[i-1].at))
	}
	if least > slowest {
		return asked
	}
	return max(asked, least)
}

// reported puts points into a window, each standing for the time between them.
func reported(b *batch, w *usage.Window, at []moment, add func(moment)) {
	whole := w.Step
	w.Step = cadence(b.period, at)
	for _, m := range at {
		add(m)
	}
	w.Step = whole
}

// batch is empty, over the last span from the start of a step, and up to now: the newest
// step is not over yet, but what it has so far tells whether something began.
func (p *place) batch(span, period time.Duration) batch {
	return batch{from: p.now().Add(-span).Truncate(period), to: p.now(), period: period}
}

// meters collects what is to be read of a place.
type meters struct {
	place                  *place
	usual, daily, reserved batch
	windows                map[*inventory.Resource]*usage.Window
}

// window returns the resource's window within a batch's time: from when it was made, if
// that is later, in whole steps. It returns nil for a resource that is younger than a
// step.
func (m *meters) window(r *inventory.Resource, b *batch, since time.Time) *usage.Window {
	if w := m.windows[r]; w != nil {
		return w
	}
	from := b.from
	if since.After(from) {
		from = ceil(since, b.period)
	}
	if !from.Before(b.to) {
		return nil
	}
	w := usage.NewWindow(from, b.to, b.period, source, m.place.scan.query.Floors)
	m.windows[r] = w
	return w
}

// level adds a series of a signal with a mean and a maximum in each step, from one or
// several metrics of which the highest counts. With all set, a step counts only when
// every metric has it: a part that is silent might be busy.
func (m *meters) level(r *inventory.Resource, b *batch, w *usage.Window, gpu string, signal usage.Signal, scale float64, all bool, metrics ...metric) {
	s := series{resource: r}
	for _, x := range metrics {
		s.statistics = append(s.statistics, statistic{x, average}, statistic{x, maximum})
	}
	s.fold = func(data [][]point) {
		reported(b, w, moments(data), func(at moment) {
			pt, have := usage.Point{Time: at.at}, 0
			for i := 0; i < len(at.values); i += 2 {
				if !at.given[i] || !at.given[i+1] {
					continue
				}
				have++
				pt.Mean, pt.Max = max(pt.Mean, at.values[i]*scale), max(pt.Max, at.values[i+1]*scale)
			}
			if have > 0 && (!all || have == len(metrics)) {
				w.Add(gpu, signal, pt)
			}
		})
	}
	b.series = append(b.series, s)
}

// gauge adds a series of a signal that needs one statistic only.
func (m *meters) gauge(r *inventory.Resource, w *usage.Window, gpu string, signal usage.Signal, scale float64, stat string, metrics ...metric) {
	s := series{resource: r}
	for _, x := range metrics {
		s.statistics = append(s.statistics, statistic{x, stat})
	}
	s.fold = func(data [][]point) {
		reported(&m.usual, w, moments(data), func(at moment) {
			v := 0.0
			for i, given := range at.given {
				if given {
					v = max(v, at.values[i]*scale)
				}
			}
			w.Add(gpu, signal, usage.Point{Time: at.at, Mean: v, Max: v})
		})
	}
	m.usual.series = append(m.usual.series, s)
}

// counter adds a series of amounts in each step, added up over several metrics. Where
// only some of them have a step, what they have proves activity when it is more than
// nothing, and nothing else.
func (m *meters) counter(r *inventory.Resource, b *batch, w *usage.Window, signal usage.Signal, metrics ...metric) {
	m.counterOf(r, b, w, signal, len(metrics), metrics...)
}

// counterOf is a counter of which only the first few metrics are published where there is
// nothing to count.
func (m *meters) counterOf(r *inventory.Resource, b *batch, w *usage.Window, signal usage.Signal, always int, metrics ...metric) {
	s := series{resource: r}
	for _, x := range metrics {
		s.statistics = append(s.statistics, statistic{x, sum})
	}
	s.fold = func(data [][]point) {
		reported(b, w, moments(data), func(at moment) {
			total, have := 0.0, 0
			for i, given := range at.given {
				if given {
					total += at.values[i]
					if i < always {
						have++
					}
				}
			}
			if have == always || total > 0 {
				w.Add("", signal, usage.Point{Time: at.at, Mean: total, Max: total})
			}
		})
	}
	b.series = append(b.series, s)
}

func (m *meters) instance(r *inventory.Resource) {
	w := m.window(r, &m.usual, r.CreatedAt)
	if w == nil {
		return
	}
	of := func(name string) metric { return metric{"AWS/EC2", name, dims("InstanceId", r.ID)} }
	m.level(r, &m.usual, w, "", usage.CPUUtil, 1, true, of("CPUUtilization"))
	m.counter(r, &m.usual, w, usage.NetBytes, of("NetworkIn"), of("NetworkOut"))
}

func (m *meters) volume(r *inventory.Resource) {
	if w := m.window(r, &m.usual, r.CreatedAt); w != nil {
		of := func(name string) metric { return metric{"AWS/EBS", name, dims("VolumeId", r.ID)} }
		m.counter(r, &m.usual, w, usage.DiskOps, of("VolumeReadOps"), of("VolumeWriteOps"))
	}
}

func (m *meters) natGateway(r *inventory.Resource) {
	if w := m.window(r, &m.daily, r.CreatedAt); w != nil {
		of := func(name string) metric { return metric{"AWS/NATGateway", name, dims("NatGatewayId", r.ID)} }
		m.counter(r, &m.daily, w, usage.NetBytes, of("BytesOutToDestination"), of("BytesInFromSource"))
	}
}

// balancerMetrics says which metric counts what a load balancer of a type serves.
var balancerMetrics = map[string]struct{ namespace, name, dimension string }{
	"application": {"AWS/ApplicationELB", "RequestCount", "LoadBalancer"},
	"network":     {"AWS/NetworkELB", "NewFlowCount", "LoadBalancer"},
	"gateway":     {"AWS/GatewayELB", "NewFlowCount", "LoadBalancer"},
	classicType:   {"AWS/ELB", "RequestCount", "LoadBalancerName"},
}

// answeredMetrics count what an application load balancer answers by itself, without a
// target; its requests do not (Application Load Balancer guide, "CloudWatch metrics").
var answeredMetrics = []string{"HTTP_Redirect_Count", "HTTP_Fixed_Response_Count"}

func (m *meters) loadBalancer(r *inventory.Resource, d *inventory.LoadBalancer) {
	x, ok := balancerMetrics[r.Type]
	if !ok || d.Dimension == "" {
		return
	}
	w := m.window(r, &m.usual, r.CreatedAt)
	if w == nil {
		return
	}
	requests := []metric{{x.namespace, x.name, dims(x.dimension, d.Dimension)}}
	if r.Type == "application" {
		for _, name := range answeredMetrics {
			requests = append(requests, metric{x.namespace, name, requests[0].dims})
		}
	}
	m.counterOf(r, &m.usual, w, usage.Requests, 1, requests...)
	// Requests are published only where there are some; that targets are healthy is
	// published always, and proves that the balancer is measured.
	var healthy []metric
	if r.Type == classicType {
		healthy = append(healthy, metric{x.namespace, healthyMetric, dims(x.dimension, d.Dimension)})
	}
	for _, group := range m.place.targetGroups[r.ID] {
		healthy = append(healthy, metric{x.namespace, healthyMetric, dims("TargetGroup", group, x.dimension, d.Dimension)})
	}
	if len(healthy) > 0 && len(healthy) <= maxTargetGroups {
		m.gauge(r, w, "", usage.Healthy, 1, maximum, healthy...)
	}
}

const (
	healthyMetric = "HealthyHostCount"
	// maxTargetGroups bounds how many groups of one balancer are asked for; AWS allows
	// 100 to each.
	maxTargetGroups = 100
)

// endpoint reads requests and the machines' use of each variant. SageMaker's GPU
// utilisation is the sum over a machine's GPUs (0 to 100 % times their number), so that
// it is no less than any one of them.
func (m *meters) endpoint(r *inventory.Resource, d *inventory.Endpoint) {
	w := m.window(r, &m.usual, r.CreatedAt)
	if w == nil || len(d.Variants) == 0 {
		return
	}
	var invocations []metric
	var cpu, gpu []hostMetric
	for _, v := range d.Variants {
		of := dims("EndpointName", r.ID, "VariantName", v.Name)
		invocations = append(invocations, metric{"AWS/SageMaker", "Invocations", of})
		if v.Serverless {
			continue
		}
		cpu = append(cpu, hostMetric{metric{"/aws/sagemaker/Endpoints", "CPUUtilization", of}, v.Type})
		if n, ok := m.place.scan.cloud.accelerators(v.Type); n > 0 || !ok {
			gpu = append(gpu, hostMetric{metric{"/aws/sagemaker/Endpoints", "GPUUtilization", of}, v.Type})
		}
	}
	m.counter(r, &m.usual, w, usage.Requests, invocations...)
	m.hosts(r, w, cpu, gpu)
}

// maxHosts bounds how many machines of a training job are measured; a larger job is not
// measured at all, because one machine left out may be the busy one.
const maxHosts = 64

func (m *meters) trainingJob(r *inventory.Resource, d *inventory.TrainingJob) {
	if r.Type == "" {
		return // of several types, or of one that could not be read: what idles cannot be told
	}
	since := r.CreatedAt
	if d.StartedAt.After(since) {
		since = d.StartedAt
	}
	w := m.window(r, &m.usual, since)
	if w == nil || d.Count < 1 || d.Count > maxHosts {
		return
	}
	var cpu, gpu []hostMetric
	n, ok := m.place.scan.cloud.accelerators(r.Type)
	for host := range d.Count {
		of := dims("Host", trainingHost(r.ID, host))
		cpu = append(cpu, hostMetric{metric{"/aws/sagemaker/TrainingJobs", "CPUUtilization", of}, r.Type})
		if n > 0 || !ok {
			gpu = append(gpu, hostMetric{metric{"/aws/sagemaker/TrainingJobs", "GPUUtilization", of}, r.Type})
		}
	}
	m.hosts(r, w, cpu, gpu)
}

// hostMetric is a metric of a managed service's machine, with the machine's type.
type hostMetric struct {
	metric
	machine string
}

// hosts reads the use of a managed service's machines. SageMaker's CPU utilisation is the
// sum over the cores, 0 to 100 % times their number; where nobody knows how many there
// are it is taken as it is, which is at least the machine's share.
func (m *meters) hosts(r *inventory.Resource, w *usage.Window, cpu, gpu []hostMetric) {
	c := m.place.scan.cloud
	cores := 0
	var metrics []metric
	for i, x := range cpu {
		metrics = append(metrics, x.metric)
		n := c.cores(x.machine)
		if i == 0 || n < cores {
			cores = n
		}
	}
	if len(metrics) > 0 {
		m.level(r, &m.usual, w, "", usage.CPUUtil, 1/float64(max(1, cores)), true, metrics...)
	}
	if len(gpu) == 0 {
		return
	}
	metrics = nil
	for _, x := range gpu {
		metrics = append(metrics, x.metric)
	}
	w.Aggregated = true
	m.level(r, &m.usual, w, "", usage.GPUUtil, 1, true, metrics...)
	if len(gpu) == 1 {
		m.heldMemory(r, w, gpu[0].machine, metric{gpu[0].namespace, "GPUMemoryUtilization", gpu[0].dims})
	}
}

// heldMemory reads the memory of a machine with one GPU, where its size is known:
// SageMaker gives a share, and of several GPUs their sum.
func (m *meters) heldMemory(r *inventory.Resource, w *usage.Window, machine string, x metric) {
	c := m.place.scan.cloud
	n, _ := c.accelerators(machine)
	bytes, ok := c.gpuMemory(machine)
	if n != 1 || !ok {
		return
	}
	w.GPUMemory = bytes
	m.level(r, &m.usual, w, "", usage.MemUsed, bytes/100, true, x)
}

func (m *meters) group(r *inventory.Resource) {
	if w := m.window(r, &m.usual, r.CreatedAt); w != nil {
		m.level(r, &m.usual, w, "", usage.Capacity, 1, true, metric{"AWS/AutoScaling", "GroupDesiredCapacity", dims("AutoScalingGroupName", r.ID)})
	}
}

func (m *meters) reservation(r *inventory.Resource) {
	if w := m.window(r, &m.reserved, r.CreatedAt); w != nil {
		m.level(r, &m.reserved, w, "", usage.Capacity, 1, true, metric{"AWS/EC2CapacityReservations", "UsedInstanceCount", dims("CapacityReservationId", r.ID)})
	}
}
