package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/curfew-dev/curfew/internal/money"
)

// Metrics are those of the service itself.
type Metrics struct {
	Registry *prometheus.Registry
	service  *Scheduler

	rounds   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	costs    *prometheus.CounterVec
	actions  *prometheus.CounterVec
	errors   *prometheus.CounterVec
	losses   prometheus.Counter
	reloads  *prometheus.CounterVec
	valid    prometheus.Gauge
	// Of the newest round.
	resources, verdicts, running, wasted, missing *prometheus.GaugeVec

	age, held, ready, database, frozen *prometheus.Desc
}

func newMetrics(s *Scheduler) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "curfew", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "curfew", Name: name, Help: help}, labels)
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("curfew_"+name, help, labels, nil)
	}
	m := &Metrics{Registry: prometheus.NewRegistry(), service: s,
		rounds: counter("rounds_total", "Rounds by source and result: done, partial (something could not be read) or failed.", "source", "result"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "curfew", Name: "round_duration_seconds", Help: "How long rounds took.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}}, []string{"source"}),
		calls:     counter("cloud_calls_total", "Calls to a provider's APIs.", "source", "api"),
		costs:     counter("cloud_calls_dollars_total", "What the provider charges for calls to its APIs, at list price.", "source", "api"),
		actions:   counter("actions_total", "What rounds did about resources, by verb and result.", "source", "verb", "result"),
		errors:    counter("errors_total", "Errors by what failed: a source, organization, or database.", "what"),
		losses:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: "curfew", Name: "lease_losses_total", Help: "Leases that another process took over."}),
		reloads:   counter("config_reloads_total", "Readings of a changed configuration, by result: done or refused.", "result"),
		valid:     prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "curfew", Name: "config_valid", Help: "1 while the newest configuration is in force, 0 while an earlier one is kept."}),
		resources: gauge("resources", "Resources in the newest round.", "source"),
		verdicts:  gauge("verdicts", "Machines by what they do, in the newest round.", "source", "state"),
		running:   gauge("running_dollars_per_hour", "What the machines cost an hour, in the newest round.", "source"),
		wasted:    gauge("wasted_dollars_per_hour", "What idle, held and stalled machines cost an hour, in the newest round.", "source"),
		missing:   gauge("blind_spots", "What could not be read or recorded, in the newest round.", "source"),
		age:       desc("source_age_seconds", "Time since a source that this process holds was read, or since it was taken.", "source"),
		held:      desc("source_held", "1 for a source that this process holds, 0 for others.", "source"),
		ready:     desc("ready", "1 while /readyz answers 200."),
		database:  desc("database_age_seconds", "Time since the database answered."),
		frozen:    desc("frozen", "1 while all actions are held back, by a freeze or because the state cannot be trusted."),
	}
	m.valid.Set(1)
	m.Registry.MustRegister(m.rounds, m.duration, m.calls, m.costs, m.actions, m.errors, m.losses, m.reloads, m.valid, m.resources, m.verdicts, m.running, m.wasted, m.missing, m,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Describe implements [prometheus.Collector] for what is computed when it is asked.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.age, m.held, m.ready, m.database, m.frozen} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	r := m.service.Ready()
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	send(m.ready, flag(r.Ready))
	send(m.database, r.databaseAge.Seconds())
	send(m.frozen, flag(r.Frozen))
	for _, s := range r.Sources {
		send(m.held, flag(s.Held), s.Source)
		if s.Held && !s.Background {
			send(m.age, m.service.age(s).Seconds(), s.Source)
		}
	}
}

func (m *Metrics) failed(what string) { m.errors.WithLabelValues(what).Inc() }
func (m *Metrics) lost()              { m.losses.Inc() }

func (m *Metrics) reloaded(err error) {
	result, valid := "done", 1.0
	if err != nil {
		result, valid = "refused", 0
	}
	m.reloads.WithLabelValues(result).Inc()
	m.valid.Set(valid)
}

// dollars are for a metric alone, of billionths: sums of money are never made of them.
func dollars(a money.Amount) float64 { return float64(a) / 1e9 }

func (m *Metrics) round(src Source, took time.Duration, o Outcome, err error) {
	source := src.Name
	result := "done"
	switch {
	case err != nil:
		result = "failed"
		m.failed(source)
	case len(o.Missing) > 0:
		result = "partial"
	}
	m.rounds.WithLabelValues(source, result).Inc()
	m.duration.WithLabelValues(source).Observe(took.Seconds())
	for _, c := range o.Calls {
		m.calls.WithLabelValues(source, c.API).Add(float64(c.Count))
		m.costs.WithLabelValues(source, c.API).Add(dollars(c.Cost))
	}
	for _, a := range o.Acts {
		m.actions.WithLabelValues(source, string(a.Verb), a.Result).Inc()
	}
	if err != nil || src.Background { // what it saw is counted where it is watched
		return
	}
	m.resources.WithLabelValues(source).Set(float64(o.Resources))
	m.running.WithLabelValues(source).Set(dollars(o.Running))
	m.wasted.WithLabelValues(source).Set(dollars(o.Wasted))
	m.missing.WithLabelValues(source).Set(float64(len(o.Missing)))
	for _, state := range []string{"busy", "warming", "starved", "stalled", "held", "idle", "unknown"} {
		m.verdicts.WithLabelValues(source, state).Set(float64(o.Verdicts[state]))
	}
}
