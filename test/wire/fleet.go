package wire

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Fleet is an account of synthetic GPU machines that are computed on request, so that it takes no
// memory regardless of its size; machine n always has the same values. Everything else in the
// account is empty.
type Fleet struct {
	Machines int
	// GPUs of each machine; 1 by default.
	GPUs int
	// Type of the machines; g6.2xlarge by default.
	Type string
	// Region is the region of all machines; us-east-1 by default.
	Region string
	Now    time.Time
	// Clock, if set, is the clock of metrics; otherwise their time is Now.
	Clock func() time.Time
	// First is added to the machine numbers in ids, so that several fleets have different ids.
	First int
	// Bare is true if no agent publishes metrics of the GPUs.
	Bare bool
	// Queries, if set, counts the requested metrics.
	Queries *atomic.Int64
}

func (f Fleet) clock() time.Time {
	if f.Clock != nil {
		return f.Clock()
	}
	return f.Now
}

// fleetAge is the age of every machine.
const fleetAge = 40 * 24 * time.Hour

// gpuMetrics are the CloudWatch agent's metrics of a GPU.
var gpuMetrics = []string{
	"nvidia_smi_memory_total", "nvidia_smi_memory_used", "nvidia_smi_power_draw", "nvidia_smi_utilization_gpu",
}

// NewFleet returns a server for the fleet that is not listening yet.
func NewFleet(f Fleet) *Server {
	if f.GPUs == 0 {
		f.GPUs = 1
	}
	if f.Type == "" {
		f.Type = "g6.2xlarge"
	}
	if f.Region == "" {
		f.Region = "us-east-1"
	}
	return New(Options{Now: f.clock, Answers: map[string]Answer{
		"ec2:DescribeInstances":         f.describeInstances,
		"ec2:DescribeVolumes":           f.describeVolumes,
		"ec2:DescribeInstanceAttribute": describeProtection,
		"cloudwatch:ListMetrics":        f.listMetrics,
		"cloudwatch:GetMetricData": func(_ context.Context, c *Call) (*Reply, error) {
			return getMetricData(c, f.read(c))
		},
	}})
}

// InstanceID returns machine n's identifier.
func (f Fleet) InstanceID(n int) string { return fmt.Sprintf("i-%017x", f.First+n+1) }

func (f Fleet) machineOf(id string) (int, bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(id, "i-"), 16, 64)
	return int(n) - 1 - f.First, err == nil && strings.HasPrefix(id, "i-")
}

// Idle reports whether machine n is idle: three in ten are.
func (Fleet) Idle(n int) bool { return n%10 < 3 }

// span returns the machines on a page of a call, and the next page's token.
func (f Fleet) span(c *Call, count, defaultSize, maxSize int) (from, to int, next string, err error) {
	if c.Region != f.Region {
		return 0, 0, "", nil
	}
	size := defaultSize
	if v := c.Form.Get("MaxResults"); v != "" {
		if size, err = strconv.Atoi(v); err != nil || size < 5 || size > maxSize {
			return 0, 0, "", &Failure{400, "InvalidParameterValue",
				fmt.Sprintf("Value ( %s ) for parameter maxResults is invalid. Expecting a value between 5 and %d.", v,
					maxSize)}
		}
	}
	if t := c.Param("NextToken"); t != "" {
		if from, err = strconv.Atoi(t); err != nil || from < 0 || from > count {
			return 0, 0, "", &Failure{400, "InvalidParameterValue", "The token '" + t + "' is invalid"}
		}
	}
	to = min(from+size, count)
	if to < count {
		next = strconv.Itoa(to)
	}
	return from, to, next, nil
}

func (f Fleet) tags(n int) map[string]string {
	return map[string]string{
		"Name": fmt.Sprintf("worker-%05d", n), "team": []string{"vision", "language", "ranking"}[n%3],
		"project": "fleet", "environment": "research", "cost-center": "4711", "curfew:lifetime": "ephemeral"}
}

func (f Fleet) describeInstances(_ context.Context, c *Call) (*Reply, error) {
	from, to, next, err := f.span(c, f.Machines, 1000, 1000)
	if err != nil {
		return nil, err
	}
	if states, ok := filters(c)["instance-state-name"]; ok && !slices.Contains(states, "running") {
		from, to, next = 0, 0, ""
	}
	set := E("reservationSet")
	launched := stamp(f.Now.Add(-fleetAge))
	wanted := make([]int, 0, to-from)
	for n := from; n < to; n++ {
		wanted = append(wanted, n)
	}
	if ids, ok := filters(c)["instance-id"]; ok {
		wanted, next = nil, ""
		for _, id := range ids {
			if n, known := f.machineOf(id); known && n >= 0 && n < f.Machines && c.Region == f.Region {
				wanted = append(wanted, n)
			}
		}
	}
	for _, n := range wanted {
		set.Kids = append(set.Kids, E("item", T("reservationId", fmt.Sprintf("r-%017x", f.First+n+1)),
			T("ownerId", c.Account),
			E("instancesSet", E("item", T("instanceId", f.InstanceID(n)), T("imageId", "ami-0fleet"),
				E("instanceState", T("code", 16), T("name", "running")), T("instanceType", f.Type),
				T("launchTime", launched), E("placement", T("availabilityZone", f.Region+"a"),
					T("tenancy", "default")),
				T("platformDetails", "Linux/UNIX"), T("vpcId", "vpc-1"), T("subnetId", "subnet-1"),
				E("blockDeviceMapping", E("item", T("deviceName", "/dev/xvda"),
					E("ebs", T("volumeId", fmt.Sprintf("vol-%017x", f.First+n+1)), T("status", "attached"),
						T("attachTime", launched), T("deleteOnTermination", "true")))),
				tagSet(f.tags(n))))))
	}
	r := &Reply{XML: []*Node{set}}
	if next != "" {
		r.XML = append(r.XML, T("nextToken", next))
	}
	return r, nil
}

// describeProtection reports every machine as unprotected.
func describeProtection(_ context.Context, c *Call) (*Reply, error) {
	return &Reply{
		XML: []*Node{T("instanceId", c.Form.Get("InstanceId")), E(c.Form.Get("Attribute"), T("value", false))},
	}, nil
}

func (f Fleet) describeVolumes(_ context.Context, c *Call) (*Reply, error) {
	from, to, next, err := f.span(c, f.Machines, 1000, 1000)
	if err != nil {
		return nil, err
	}
	set := E("volumeSet")
	created := stamp(f.Now.Add(-fleetAge))
	for n := from; n < to; n++ {
		id := fmt.Sprintf("vol-%017x", f.First+n+1)
		set.Kids = append(set.Kids, E("item", T("volumeId", id), T("size", 200), T("availabilityZone", f.Region+"a"),
			T("status", "in-use"), T("createTime", created), T("volumeType", "gp3"),
			T("iops", 3000), T("throughput", 125),
			E("attachmentSet", E("item", T("volumeId", id), T("instanceId", f.InstanceID(n)), T("status", "attached"),
				T("attachTime", created), T("deleteOnTermination", "true"))), tagSet(f.tags(n))))
	}
	r := &Reply{XML: []*Node{set}}
	if next != "" {
		r.XML = append(r.XML, T("nextToken", next))
	}
	return r, nil
}

// listMetrics lists the agent's metrics of every GPU, metric by metric.
func (f Fleet) listMetrics(_ context.Context, c *Call) (*Reply, error) {
	names := gpuMetrics
	if n := asString(c.Input["MetricName"]); n != "" {
		names = slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s != n })
	}
	total := len(names) * f.Machines * f.GPUs
	if f.Bare {
		total = 0
	}
	if ns := asString(c.Input["Namespace"]); c.Region != f.Region || (ns != "" && ns != "CWAgent") {
		total = 0
	}
	from := 0
	if t := asString(c.Input["NextToken"]); t != "" {
		var err error
		if from, err = strconv.Atoi(t); err != nil || from < 0 || from > total {
			return nil, invalid("Invalid nextToken.")
		}
	}
	to, next := min(from+metricsPage, total), ""
	if to < total {
		next = strconv.Itoa(to)
	}
	out := make([]any, 0, to-from)
	for i := from; i < to; i++ {
		gpu := i % (f.Machines * f.GPUs)
		out = append(out, metricDocument("CWAgent", names[i/(f.Machines*f.GPUs)], []Dimension{
			{"InstanceId", f.InstanceID(gpu / f.GPUs)}, {"arch", "Ada Lovelace"},
			{"index", strconv.Itoa(gpu % f.GPUs)},
			{"name", "NVIDIA L4"}}))
	}
	return metricsReply(out, next), nil
}

// read returns the values of a query: hourly ones since the launch.
func (f Fleet) read(c *Call) func(metricQuery) ([]time.Time, []float64) {
	end := f.clock()
	return func(q metricQuery) (times []time.Time, values []float64) {
		if f.Queries != nil {
			f.Queries.Add(1)
		}
		machine, gpu, perGPU := -1, 0, false
		for _, d := range q.dims {
			switch d.Name {
			case "InstanceId":
				if n, ok := f.machineOf(d.Value); ok {
					machine = n
				}
			case "index":
				gpu, perGPU = atoi(d.Value), true
			}
		}
		known := (q.namespace == "CWAgent" && perGPU && slices.Contains(gpuMetrics, q.name)) ||
			(q.namespace == "AWS/EC2" && len(q.dims) == 1)
		if c.Region != f.Region || machine < 0 || machine >= f.Machines || gpu >= f.GPUs || !known {
			return nil, nil
		}
		start := q.from.Truncate(q.period)
		if start.Before(q.from) {
			start = start.Add(q.period)
		}
		for t := start; t.Before(q.to) && t.Before(end); t = t.Add(q.period) {
			v, ok := f.value(machine, gpu, q, t)
			if !ok {
				return nil, nil
			}
			times, values = append(times, t), append(values, v)
		}
		return times, values
	}
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

// value returns a metric of a machine in the period at t.
func (f Fleet) value(machine, gpu int, q metricQuery, t time.Time) (float64, bool) {
	h := uint64(machine)*0x9e3779b97f4a7c15 ^ uint64(gpu)*0xbf58476d1ce4e5b9 ^ uint64(t.Unix()/3600)*0x94d049bb133111eb
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	noise := float64(h>>40) / (1 << 24) // 0 to 1
	peak := 1.0
	if q.stat == "Maximum" {
		peak = 1.1
	}
	idle := f.Idle(machine)
	switch q.name {
	case "nvidia_smi_utilization_gpu":
		if idle {
			return 0, true
		}
		return min(100, (60+30*noise)*peak), true
	case "nvidia_smi_memory_used":
		if idle {
			return 3, true
		}
		return 18_000 + 2_000*noise, true
	case "nvidia_smi_memory_total":
		return 23_034, true
	case "nvidia_smi_power_draw":
		if idle {
			return 12, true
		}
		return 60 + 10*noise, true
	case "CPUUtilization":
		if idle {
			return (0.5 + noise) * peak, true
		}
		return (30 + 40*noise) * peak, true
	case "NetworkIn", "NetworkOut":
		if idle {
			return 20_000 * noise, true
		}
		return 5e8 * (1 + noise), true
	}
	return 0, false
}
