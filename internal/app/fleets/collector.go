package fleets

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/curfew-dev/curfew/internal/app/scheduler"
)

// collector shows the sizes of fleets to Prometheus.
type collector struct {
	watcher  *Watcher
	replicas *prometheus.Desc
}

// Collector returns the metric of the service for a process that serves metrics of its own.
func (w *Watcher) Collector() prometheus.Collector {
	return collector{w, prometheus.NewDesc("curfew_fleet_replicas", scheduler.FleetReplicasHelp,
		[]string{"fleet", "kind"}, nil)}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) { to <- c.replicas }

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range c.watcher.Sizes() {
		to <- prometheus.MustNewConstMetric(c.replicas, prometheus.GaugeValue, float64(s.Replicas), s.Fleet, s.Kind)
	}
}
