package prom

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/curfew-dev/curfew/internal/usage"
)

// dictionary maps metric names of a server to signals.
type dictionary map[string]usage.Metric

// newDictionary adds configured names, such as {"habanalabs_utilization": "gpu_util"}, to the
// built-in ones (see [usage.MetricNames]).
func newDictionary(own map[string]string) (dictionary, error) {
	d := dictionary{}
	for _, name := range usage.MetricNames() {
		if m, _ := usage.LookupMetric(name); m.Signal.PerGPU() || m.Signal == usage.GPUCount {
			d[name] = m
		}
	}
	for name, column := range own {
		to, factor, scaled := strings.Cut(column, "*")
		m := usage.Metric{Scale: 1}
		var ok bool
		if m.Signal, ok = usage.SignalNamed(strings.TrimSpace(to)); !ok {
			return nil, fmt.Errorf("metrics.sources names: %q stands for %q, which is no column of recorded usage",
				name, to)
		}
		if scaled {
			var err error
			if m.Scale, err = strconv.ParseFloat(strings.TrimSpace(factor), 64); err != nil || !(m.Scale > 0) {
				return nil, fmt.Errorf("metrics.sources names: %q is multiplied by %q, which is no number over 0",
					name, factor)
			}
		}
		if !isName(name) {
			return nil, fmt.Errorf("metrics.sources names: %q is no name of a metric", name)
		}
		d[name] = m
	}
	return d, nil
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c == ':' || c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// addend returns the metric, and the tile of an Intel GPU, if its signal is the sum of several
// series.
func (d dictionary) addend(name string, labels map[string]string) string {
	if d[name].Additive {
		return name + labels["sub_dev"]
	}
	return ""
}

// names lists the metrics, sorted.
func (d dictionary) names() []string { return slices.Sorted(maps.Keys(d)) }

// hostExpression computes a signal of the host from counters of node_exporter. RANGE in the
// expression is replaced by the range; the value of a rate is multiplied by the step in seconds.
type hostExpression struct {
	signal usage.Signal
	expr   string
	rate   bool
}

// Interfaces and disks that count the same bytes twice are excluded: loopback, container interfaces
// and bridges; partitions, mapped and RAID devices.
const (
	networks = `device!~"lo|veth.*|cali.*|cni.*|docker.*|flannel.*|br-.*|virbr.*|lxc.*|tunl.*|cilium.*"`
	disks    = `device=~"nvme[0-9]+n[0-9]+|[a-z]+d[a-z]+|mmcblk[0-9]+"`
)

var hostExpressions = []hostExpression{
	{
		usage.CPUUtil, `100 * (1 - avg without (cpu, mode) (rate(node_cpu_seconds_total{mode="idle"SELECT}[RANGE])))`,
		false,
	},
	{
		usage.NetBytes,
		`sum without (device) (rate(node_network_receive_bytes_total{` + networks +
			`SELECT}[RANGE])) + sum without (device) (rate(node_network_transmit_bytes_total{` +
			networks + `SELECT}[RANGE]))`,
		true,
	},
	{
		usage.DiskBytes,
		`sum without (device) (rate(node_disk_read_bytes_total{` + disks +
			`SELECT}[RANGE])) + sum without (device) (rate(node_disk_written_bytes_total{` +
			disks + `SELECT}[RANGE]))`,
		true,
	},
	{
		usage.HostMemUsed,
		`100 * (1 - last_over_time(node_memory_MemAvailable_bytes{job!=""SELECT}[RANGE]) / last_over_time(node_memory_MemTotal_bytes{job!=""SELECT}[RANGE]))`,
		false,
	},
	{usage.Requests, servedRequests, true},
}

// servedRequests are requests a second of the model servers of a machine. Only a counter shows that there
// were none: gauges of running requests miss those between two scrapes, and count where they are over 0. Of
// several servers of a machine the one with the most requests counts.
const servedRequests = `rate(vllm:request_success_total{job!=""SELECT}[RANGE])` +
	` or max_over_time(vllm:num_requests_running{job!=""SELECT}[RANGE]) > 0` +
	` or rate(sglang:num_requests_total{job!=""SELECT}[RANGE])` +
	` or max_over_time(sglang:num_running_reqs{job!=""SELECT}[RANGE]) > 0` +
	` or rate(tgi_request_count{job!=""SELECT}[RANGE])` +
	` or rate(llamacpp:tokens_predicted_total{job!=""SELECT}[RANGE])` +
	` or rate(nv_inference_request_success{job!=""SELECT}[RANGE])` +
	` or rate(request_predict_seconds_count{job!=""SELECT}[RANGE])`
