package aws

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/usage"
)

// Lookback and step of metrics beyond the query's window, required by the rules that use them.
const (
	step            = time.Hour
	fineStep        = time.Minute
	fineWindow      = 6 * time.Hour
	middleStep      = 5 * time.Minute
	middleWindow    = 48 * time.Hour
	natStep         = 24 * time.Hour
	natSpan         = 30 * 24 * time.Hour
	reservationSpan = 7 * 24 * time.Hour
	// The retention of CloudWatch for one-minute and five-minute steps.
	fineKept   = 15 * 24 * time.Hour
	middleKept = 63 * 24 * time.Hour
	source     = "cloudwatch"
)

// Name implements [usage.Source].
func (c *Cloud) Name() string { return source }

// Measure implements [usage.Source]: it reads CloudWatch metrics of resources, in the finest step
// that is still retained. Gateways and reservations are read over the lookback of their rules,
// whatever the interval. It identifies the credentials only if nothing was listed before.
func (c *Cloud) Measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(r *inventory.Resource, o usage.SourceInfo) usage.Sink,
) (usage.MeasureResult, error) {
	iv.From, iv.To = iv.From.UTC(), iv.To.UTC()
	s := c.scan(round.Query{Now: iv.To}, c.limits())
	type key struct{ account, region string }
	byPlace := map[key][]*inventory.Resource{}
	for _, r := range resources {
		if r.Cloud == cloudName && measurable(r) {
			k := key{r.Account, r.Region}
			byPlace[k] = append(byPlace[k], r)
		}
	}
	if len(byPlace) == 0 {
		return usage.MeasureResult{}, ctx.Err()
	}
	accounts, err := s.reached(ctx)
	if err != nil {
		return usage.MeasureResult{}, err
	}
	s.many = len(accounts) > 1
	var parts []part
	for k, rs := range byPlace {
		i := slices.IndexFunc(accounts, func(a *account) bool { return a.id == k.account })
		if i < 0 {
			s.blind(inventory.BlindSpot{What: "cloudwatch " + k.region + " in " + k.account, Why: unreached,
				Effect: index["cloudwatch:GetMetricData"].Effect + " for " + plain.Count(len(rs), "resource")})
			s.leaveUnmeasured(slices.Values(rs), unreached)
			continue
		}
		p := s.place(accounts[i], k.region)
		parts = append(parts, part{p.String() + " metrics", func(ctx context.Context) {
			p.measure(ctx, rs, iv, open)
		}})
	}
	if err := s.run(ctx, parts); err != nil {
		return usage.MeasureResult{}, err
	}
	calls, err := s.tally.list()
	return usage.MeasureResult{BlindSpots: s.blindSpots, Calls: calls, Unread: s.unmeasured}, err
}

// measurable reports whether a resource may have useful metrics.
func measurable(r *inventory.Resource) bool {
	switch d := r.Detail.(type) {
	case *inventory.Instance, *inventory.Endpoint, *inventory.TrainingJob:
		return r.State == inventory.StateRunning
	case *inventory.Database:
		return r.State == inventory.StateRunning && databaseMetrics(r) != nil
	case *inventory.Table:
		return r.State == inventory.StateRunning && !d.OnDemand
	case *inventory.Volume, *inventory.NATGateway, *inventory.VPCEndpoint:
		return r.State == inventory.StateAvailable
	case *inventory.LoadBalancer, *inventory.AutoScalingGroup, *inventory.CapacityReservation:
		return true
	}
	return false
}

// measure reads the usage of a place's resources.
func (p *place) measure(ctx context.Context, resources []*inventory.Resource, iv usage.Interval,
	open func(*inventory.Resource, usage.SourceInfo) usage.Sink) {
	m := p.meters(iv)
	var accelerated []*subject
	components := 0
	for _, r := range resources {
		switch d := r.Detail.(type) {
		case *inventory.Instance:
			for _, name := range r.Aliases {
				// Networks share addresses, and the addresses of unlisted machines are unknown.
				if _, err := netip.ParseAddr(name); err != nil {
					p.nameHost(name, r.ID)
				}
			}
			if s := m.instance(r); s != nil && r.Size.Accelerated() {
				accelerated = append(accelerated, s)
			}
		case *inventory.Volume:
			m.volume(r)
		case *inventory.NATGateway:
			m.natGateway(r)
		case *inventory.LoadBalancer:
			m.loadBalancer(r, d)
		case *inventory.Endpoint:
			if d.Components {
				components++
			} else {
				m.endpoint(r, d)
			}
		case *inventory.TrainingJob:
			m.trainingJob(r, d)
		case *inventory.AutoScalingGroup:
			m.group(r)
		case *inventory.CapacityReservation:
			m.reservation(r)
		case *inventory.Database:
			m.database(r)
		case *inventory.Table:
			m.table(r, d)
		case *inventory.VPCEndpoint:
			m.vpcEndpoint(r, d)
		}
	}
	if len(accelerated) > 0 {
		m.gpus(ctx, accelerated)
	}
	if components > 0 {
		p.scan.blind(inventory.BlindSpot{
			What:   "sagemaker " + p.String(),
			Why:    "inference components: their requests are not counted as the endpoint's",
			Effect: index["cloudwatch:GetMetricData"].Effect + " for " + plain.Count(components, "endpoint")})
	}
	p.tellUnmeasured(ctx, p.read(ctx, m.batches(open)...))
}

// stepOf returns the step of points in a window. Windows of hours, on which actions are based, use
// the finest standard step; two weeks of minutes would be too many points. (CloudWatch User Guide,
// "Metrics retention": minutes for 15 days, five minutes for 63.)
func stepOf(window time.Duration) time.Duration {
	switch {
	case window <= fineWindow:
		return fineStep
	case window <= middleWindow:
		return middleStep
	}
	return step
}

// periodOf returns the step of an interval: as requested, in whole minutes, or by its length, and
// never finer than CloudWatch retains.
func periodOf(iv usage.Interval) time.Duration {
	length := iv.To.Sub(iv.From)
	if iv.Step <= 0 {
		return stepOf(length)
	}
	kept := fineStep
	switch {
	case length > middleKept:
		kept = step
	case length > fineKept:
		kept = middleStep
	}
	return (iv.Step + kept - 1) / kept * kept
}

// slowest is the longest regular reporting interval: EC2's basic monitoring. Rarer points are read
// with gaps.
const slowest = 5 * time.Minute

// cadence returns the reporting interval of a series that was queried in finer steps: each of its
// points covers that time. It is the minimum time between two points, so that a missing point stays
// a gap, and at most [slowest].
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

// batchOf returns an empty batch over the last span, from the start of a step up to a time. The
// newest step is incomplete, but can show that activity began.
func batchOf(to time.Time, span, period time.Duration) batch {
	return batch{from: to.Add(-span).Truncate(period), to: to, period: period}
}

// meters collects the series to read for a place.
type meters struct {
	place                  *place
	usual, daily, reserved batch
	subjects               []*subject
}

// meters starts collecting the series of an interval.
func (p *place) meters(iv usage.Interval) *meters {
	return &meters{
		place: p, usual: batchOf(iv.To, iv.To.Sub(iv.From), periodOf(iv)), daily: batchOf(iv.To, natSpan, natStep),
		reserved: batchOf(iv.To, reservationSpan, step)}
}

// subject is a resource to read, all of it in one batch.
type subject struct {
	resource *inventory.Resource
	batch    *batch
	opened   usage.SourceInfo // for a meter with a point in every step
	series   []measurement
	// held holds the runs read so far, until all are complete.
	held []run
}

// measurement combines statistics into one signal of a resource or GPU.
type measurement struct {
	gpu        string
	signal     usage.Signal
	statistics []statistic
	// value returns the point of a moment, if there is one.
	value func(moment) (mean, max float64, ok bool)
}

// run is the points of one signal with their step.
type run struct {
	gpu    string
	signal usage.Signal
	step   time.Duration
	points []usage.Point
}

// subject starts reading a resource within a batch's time, from its creation if that is later, in
// whole steps. It returns nil for a resource younger than a step.
func (m *meters) subject(r *inventory.Resource, b *batch, since time.Time) *subject {
	from := b.from
	if since.After(from) {
		from = ceil(since, b.period)
	}
	if !from.Before(b.to) {
		return nil
	}
	s := &subject{resource: r, batch: b, opened: usage.SourceInfo{From: from, Step: b.period, Source: source}}
	m.subjects = append(m.subjects, s)
	return s
}

// batches returns the requests. A resource's series are adjacent, so that few points have to wait:
// its sinks are opened once all of its series are read.
func (m *meters) batches(open func(*inventory.Resource, usage.SourceInfo) usage.Sink) []batch {
	for _, s := range m.subjects {
		if len(s.series) == 0 {
			m.place.scan.handOver(s, open)
		}
		left := len(s.series)
		for _, x := range s.series {
			s.batch.series = append(s.batch.series, series{
				resource: s.resource, statistics: x.statistics, fold: func(data [][]point) {
					s.hold(x, data)
					if left--; left == 0 {
						m.place.scan.handOver(s, open)
					}
				}})
		}
	}
	return []batch{m.usual, m.daily, m.reserved}
}

// hold stores the points of a series.
func (s *subject) hold(x measurement, data [][]point) {
	at := moments(data)
	r := run{gpu: x.gpu, signal: x.signal, step: cadence(s.batch.period, at)}
	for _, m := range at {
		if mean, most, ok := x.value(m); ok && !m.at.Before(s.opened.From) {
			r.points = append(r.points, usage.Point{Time: m.at, Mean: mean, Max: most})
		}
	}
	s.held = append(s.held, r)
}

// handOver opens a subject's sinks and delivers its points, one subject at a time.
func (s *scan) handOver(x *subject, open func(*inventory.Resource, usage.SourceInfo) usage.Sink) {
	s.handing.Lock()
	defer s.handing.Unlock()
	sinks := map[time.Duration]usage.Sink{x.opened.Step: open(x.resource, x.opened)}
	for _, r := range x.held {
		sink, ok := sinks[r.step]
		if !ok {
			o := x.opened
			o.Step = r.step
			sink = open(x.resource, o)
			sinks[r.step] = sink
		}
		for _, pt := range r.points {
			if sink != nil {
				sink.Add(r.gpu, r.signal, pt)
			}
		}
	}
	x.held = nil
}

// level adds a series with mean and maximum in each step, from the highest of one or several
// metrics. With all set, a step counts only if every metric has it: a missing part might be busy.
func (s *subject) level(gpu string, signal usage.Signal, scale float64, all bool, metrics ...metric) {
	x := measurement{gpu: gpu, signal: signal}
	for _, of := range metrics {
		x.statistics = append(x.statistics, statistic{of, average}, statistic{of, maximum})
	}
	x.value = func(at moment) (mean, most float64, ok bool) {
		have := 0
		for i := 0; i < len(at.values); i += 2 {
			if at.given[i] && at.given[i+1] {
				have++
				mean, most = max(mean, at.values[i]*scale), max(most, at.values[i+1]*scale)
			}
		}
		return mean, most, have > 0 && (!all || have == len(metrics))
	}
	s.series = append(s.series, x)
}

// gauge adds a series with one statistic.
func (s *subject) gauge(gpu string, signal usage.Signal, scale float64, stat string, metrics ...metric) {
	x := measurement{gpu: gpu, signal: signal}
	for _, of := range metrics {
		x.statistics = append(x.statistics, statistic{of, stat})
	}
	x.value = func(at moment) (mean, most float64, ok bool) {
		for i, given := range at.given {
			if given {
				most = max(most, at.values[i]*scale)
			}
		}
		return most, most, true
	}
	s.series = append(s.series, x)
}

// counter adds a series of amounts in each step, summed over several metrics. If some metrics lack
// a step, a positive sum proves activity, but zero does not prove idleness.
func (s *subject) counter(signal usage.Signal, metrics ...metric) {
	s.counterOf(signal, len(metrics), metrics...)
}

// counterOf is a counter of which only the first metrics are published while there is nothing to
// count.
func (s *subject) counterOf(signal usage.Signal, always int, metrics ...metric) {
	x := measurement{signal: signal}
	for _, of := range metrics {
		x.statistics = append(x.statistics, statistic{of, sum})
	}
	x.value = func(at moment) (mean, most float64, ok bool) {
		total, have := 0.0, 0
		for i, given := range at.given {
			if given {
				total += at.values[i]
				if i < always {
					have++
				}
			}
		}
		return total, total, have == always || total > 0
	}
	s.series = append(s.series, x)
}

func (m *meters) instance(r *inventory.Resource) *subject {
	s := m.subject(r, &m.usual, r.CreatedAt)
	if s != nil {
		of := func(name string) metric { return metric{"AWS/EC2", name, dims("InstanceId", r.ID)} }
		s.level("", usage.CPUUtil, 1, true, of("CPUUtilization"))
		s.counter(usage.NetBytes, of("NetworkIn"), of("NetworkOut"))
	}
	return s
}

func (m *meters) volume(r *inventory.Resource) {
	if s := m.subject(r, &m.usual, r.CreatedAt); s != nil {
		of := func(name string) metric { return metric{"AWS/EBS", name, dims("VolumeId", r.ID)} }
		s.counter(usage.DiskOps, of("VolumeReadOps"), of("VolumeWriteOps"))
	}
}

func (m *meters) natGateway(r *inventory.Resource) {
	if s := m.subject(r, &m.daily, r.CreatedAt); s != nil {
		of := func(name string) metric { return metric{"AWS/NATGateway", name, dims("NatGatewayId", r.ID)} }
		s.counter(usage.NetBytes, of("BytesOutToDestination"), of("BytesInFromSource"))
	}
}

// balancerMetrics holds the request metric of each type of load balancer.
var balancerMetrics = map[string]struct{ namespace, name, dimension string }{
	"application": {"AWS/ApplicationELB", "RequestCount", "LoadBalancer"},
	"network":     {"AWS/NetworkELB", "NewFlowCount", "LoadBalancer"},
	"gateway":     {"AWS/GatewayELB", "NewFlowCount", "LoadBalancer"},
	classicType:   {"AWS/ELB", "RequestCount", "LoadBalancerName"},
}

// answeredMetrics count the requests that an application load balancer answers without a target,
// which its request metrics exclude (Application Load Balancer guide, "CloudWatch metrics").
var answeredMetrics = []string{"HTTP_Redirect_Count", "HTTP_Fixed_Response_Count"}

func (m *meters) loadBalancer(r *inventory.Resource, d *inventory.LoadBalancer) {
	x, ok := balancerMetrics[r.Type]
	if !ok || d.Dimension == "" {
		return
	}
	s := m.subject(r, &m.usual, r.CreatedAt)
	if s == nil {
		return
	}
	requests := []metric{{x.namespace, x.name, dims(x.dimension, d.Dimension)}}
	if r.Type == "application" {
		for _, name := range answeredMetrics {
			requests = append(requests, metric{x.namespace, name, requests[0].dims})
		}
	}
	s.counterOf(usage.Requests, 1, requests...)
	// Requests are published only if there are some; the number of healthy targets is always
	// published, and shows that the balancer is measured.
	var healthy []metric
	if r.Type == classicType {
		healthy = append(healthy, metric{x.namespace, healthyMetric, dims(x.dimension, d.Dimension)})
	}
	for _, group := range d.TargetGroups {
		healthy = append(healthy, metric{
			x.namespace, healthyMetric, dims("TargetGroup", group, x.dimension, d.Dimension),
		})
	}
	if len(healthy) > 0 && len(healthy) <= maxTargetGroups {
		s.gauge("", usage.Healthy, 1, maximum, healthy...)
	}
}

const (
	healthyMetric = "HealthyHostCount"
	// maxTargetGroups bounds the target groups per balancer; AWS allows 100.
	maxTargetGroups = 100
)

// endpoint reads requests and machine utilization of each variant. SageMaker's GPU utilization is
// the sum over a machine's GPUs (0 to 100% times their number), an upper bound for each.
func (m *meters) endpoint(r *inventory.Resource, d *inventory.Endpoint) {
	s := m.subject(r, &m.usual, r.CreatedAt)
	if s == nil || len(d.Variants) == 0 {
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
	s.counter(usage.Requests, invocations...)
	m.hosts(s, cpu, gpu)
}

// maxHosts bounds the machines of a measured training job; a larger job is not measured at all,
// because an omitted machine may be the busy one.
const maxHosts = 64

func (m *meters) trainingJob(r *inventory.Resource, d *inventory.TrainingJob) {
	if r.Type == "" {
		return // several types, or an unreadable one: the type of the idle machine is unknown
	}
	since := r.CreatedAt
	if d.StartedAt.After(since) {
		since = d.StartedAt
	}
	s := m.subject(r, &m.usual, since)
	if s == nil || d.Count < 1 || d.Count > maxHosts {
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
	m.hosts(s, cpu, gpu)
}

// hostMetric is a metric of a managed service's machine, with the machine's type.
type hostMetric struct {
	metric
	machine string
}

// hosts reads the utilization of a managed service's machines. SageMaker's CPU utilization is the
// sum over the cores, 0 to 100% times their number; if that is unknown the sum is used as an upper
// bound.
func (m *meters) hosts(s *subject, cpu, gpu []hostMetric) {
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
		s.level("", usage.CPUUtil, 1/float64(max(1, cores)), true, metrics...)
	}
	if len(gpu) == 0 {
		return
	}
	metrics = nil
	for _, x := range gpu {
		metrics = append(metrics, x.metric)
	}
	s.opened.Aggregated = true
	s.level("", usage.GPUUtil, 1, true, metrics...)
	if len(gpu) == 1 {
		m.heldMemory(s, gpu[0].machine, metric{gpu[0].namespace, "GPUMemoryUtilization", gpu[0].dims})
	}
}

// heldMemory reads the memory of a machine with one GPU of known size: SageMaker publishes a share,
// for several GPUs their sum.
func (m *meters) heldMemory(s *subject, machine string, x metric) {
	c := m.place.scan.cloud
	n, _ := c.accelerators(machine)
	bytes, ok := c.gpuMemory(machine)
	if n != 1 || !ok {
		return
	}
	s.level("", usage.MemUsed, bytes/100, true, x)
}

func (m *meters) group(r *inventory.Resource) {
	if s := m.subject(r, &m.usual, r.CreatedAt); s != nil {
		s.level("", usage.Capacity, 1, true, metric{
			"AWS/AutoScaling", "GroupDesiredCapacity", dims("AutoScalingGroupName", r.ID),
		})
	}
}

func (m *meters) reservation(r *inventory.Resource) {
	if s := m.subject(r, &m.reserved, r.CreatedAt); s != nil {
		s.level("", usage.Capacity, 1, true, metric{
			"AWS/EC2CapacityReservations", "UsedInstanceCount", dims("CapacityReservationId", r.ID),
		})
	}
}
