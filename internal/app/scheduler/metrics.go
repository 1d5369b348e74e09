package scheduler

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/curfew-dev/curfew/internal/lazyregexp"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/policy"
)

// Metrics are the service's own metrics.
type Metrics struct {
	Registry *prometheus.Registry
	service  *Scheduler

	rounds   *prometheus.CounterVec
	duration *prometheus.HistogramVec
	calls    *prometheus.CounterVec
	costs    *prometheus.CounterVec
	actions  *prometheus.CounterVec
	failures *prometheus.CounterVec
	told     *prometheus.CounterVec
	errors   *prometheus.CounterVec
	losses   prometheus.Counter
	reloads  *prometheus.CounterVec
	valid    prometheus.Gauge
	// replicas are the sizes of serving fleets.
	replicas *prometheus.GaugeVec
	// Metrics of the newest round.
	resources, verdicts, running, wasted, missing *prometheus.GaugeVec

	age, interval, late, held, ready, database, frozen, fuses, owed, problem, certificate, token *prometheus.Desc
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
		rounds: counter("rounds_total",
			"Passes by source and result: done, partial (something could not be read) or failed.", "source", "result"),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "curfew", Name: "round_duration_seconds", Help: "Duration of passes.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600}}, []string{"source"}),
		calls: counter("cloud_calls_total", "Calls to a provider's APIs.", "source", "api"),
		costs: counter("cloud_calls_dollars_total", "What the provider charges for calls to its APIs, at list price.",
			"source", "api"),
		actions: counter("actions_total", "Actions of passes on resources, by verb and result.", "source", "verb",
			"result"),
		failures: counter("actions_failed_total",
			"Actions that failed, counted in each pass in which they did, by verb.", "verb"),
		told:   counter("notifications_total", "Messages to people by result: accepted or refused.", "result"),
		errors: counter("errors_total", "Errors by what failed: a source, organization, or database.", "what"),
		losses: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "curfew", Name: "lease_losses_total", Help: "Leases that another process took over.",
		}),
		reloads: counter("config_reloads_total", "Readings of a changed configuration, by result: done or refused.",
			"result"),
		valid: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "curfew", Name: "config_valid",
			Help: "1 while the newest configuration is in force, 0 while an earlier one is kept.",
		}),
		replicas:  gauge("fleet_replicas", FleetReplicasHelp, "fleet", "kind"),
		resources: gauge("resources", "Resources in the newest pass.", "source"),
		verdicts:  gauge("verdicts", "Machines by duty, in the newest pass.", "source", "state"),
		running:   gauge("running_dollars_per_hour", "Hourly cost of the machines, in the newest pass.", "source"),
		wasted: gauge("wasted_dollars_per_hour",
			"Hourly cost of idle, held and stalled machines, in the newest pass.", "source"),
		missing: gauge("blind_spots", "Sources that could not be read or recorded, in the newest pass.", "source"),
		age: desc("source_age_seconds",
			"Time since a source that this process holds was read, or since it was taken.", "source"),
		interval: desc("source_interval_seconds", "Time between two passes over a source.", "source"),
		late: desc("source_late",
			"1 for a source that was not read in time by this process, or by no process, else 0.", "source"),
		held:     desc("source_held", "1 for a source that this process holds, 0 for others.", "source"),
		ready:    desc("ready", "1 while /readyz answers 200."),
		database: desc("database_age_seconds", "Time since the database answered."),
		frozen: desc("frozen",
			"1 while all actions are held back, by a freeze or because the state cannot be trusted."),
		fuses: desc("fuses_blown", "Fuses that have blown and were not confirmed: their policies act on nothing."),
		owed: desc("notices_owed",
			"Notices of actions and alarms that no channel accepted yet; each is tried again for a week."),
		problem: desc("problem", "1 while something is wrong besides a source: state (it is older than its witness, "+
			"or cannot be compared) or organization.", "what"),
		certificate: desc("certificate_expiry_timestamp_seconds",
			"When the certificate of the server expires; absent without TLS."),
		token: desc("token_expiry_timestamp_seconds",
			"When the first of the tokens of the API expires that were made for "+
				"over a week and still count; absent without one."),
	}
	m.valid.Set(1)
	for _, verb := range policy.Verbs() {
		m.failures.WithLabelValues(string(verb))
	}
	for _, result := range []string{notified, notNotified} {
		m.told.WithLabelValues(result)
	}
	m.Registry.MustRegister(m.own()...)
	m.Registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// own returns the collectors of curfew's own metrics.
func (m *Metrics) own() []prometheus.Collector {
	return []prometheus.Collector{
		m.rounds, m.duration, m.calls, m.costs, m.actions, m.failures, m.told, m.errors, m.losses, m.reloads, m.valid,
		m.replicas, m.resources, m.verdicts, m.running, m.wasted, m.missing, m,
	}
}

// Description describes a metric for its reference.
type Description struct {
	// Name and Help are as exported; Type is counter, gauge or histogram.
	Name, Help, Type string
	Labels           []string
}

// description matches the text form of a metric, because the library does not export these fields.
var description = lazyregexp.New(
	`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)",(?: unit: "[^"]*",)? constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

// Descriptions returns the service's own metrics, ordered by name.
func Descriptions() ([]Description, error) {
	m := New(Options{Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Metrics
	var out []Description
	for _, c := range m.own() {
		descs := make(chan *prometheus.Desc, 64)
		c.Describe(descs)
		close(descs)
		for d := range descs {
			part := description.FindStringSubmatch(d.String())
			if part == nil {
				return nil, fmt.Errorf("read what a metric is: %s", d)
			}
			help, err := strconv.Unquote(`"` + part[2] + `"`)
			if err != nil {
				return nil, fmt.Errorf("read what %s says: %w", part[1], err)
			}
			one := Description{Name: part[1], Help: help, Type: "gauge"}
			switch {
			case strings.HasSuffix(one.Name, "_total"):
				one.Type = "counter"
			case c == m.duration:
				one.Type = "histogram"
			}
			if part[3] != "" {
				one.Labels = strings.Split(part[3], ",")
			}
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Description) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Describe implements [prometheus.Collector] for metrics computed on collection.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.age, m.interval, m.late, m.held, m.ready, m.database, m.frozen, m.fuses, m.owed,
		m.problem, m.certificate, m.token,
	} {
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
	facts := m.service.known()
	send(m.fuses, float64(facts.Fuses))
	send(m.owed, float64(facts.Owed))
	if !facts.TokenExpires.IsZero() {
		send(m.token, float64(facts.TokenExpires.Unix()))
	}
	if m.service.Certificate != nil {
		if expires, ok := m.service.Certificate(); ok {
			send(m.certificate, float64(expires.Unix()))
		}
	}
	for _, what := range []string{ProblemState, ProblemOrganization} {
		send(m.problem, flag(r.problem(what)), what)
	}
	for _, s := range r.Sources {
		send(m.held, flag(s.Held), s.Source)
		if !s.Background {
			send(m.late, flag(s.Late), s.Source)
			send(m.interval, s.every.Seconds(), s.Source)
		}
		if s.Held && !s.Background {
			send(m.age, m.service.age(s).Seconds(), s.Source)
		}
	}
}

func (m *Metrics) failed(what string) { m.errors.WithLabelValues(what).Inc() }
func (m *Metrics) lost()              { m.losses.Inc() }

// Results of messages to people.
const notified, notNotified = "accepted", "refused"

// Told counts a message to people, which a channel accepted or all refused.
func (m *Metrics) Told(accepted bool) {
	result := notNotified
	if accepted {
		result = notified
	}
	m.told.WithLabelValues(result).Inc()
}

// FleetReplicasHelp explains the metric fleet_replicas.
const FleetReplicasHelp = "Replicas of a serving fleet: wanted by its demand, actual as they were seen, " +
	"min and max of its policy; absent where unknown."

// FleetReplicas is a size of a serving fleet; Kind is wanted, actual, min or max.
type FleetReplicas struct {
	Fleet, Kind string
	Replicas    int
}

// Fleets replaces the sizes of all serving fleets.
func (m *Metrics) Fleets(sizes []FleetReplicas) {
	m.replicas.Reset()
	for _, s := range sizes {
		m.replicas.WithLabelValues(s.Fleet, s.Kind).Set(float64(s.Replicas))
	}
}

func (m *Metrics) reloaded(err error) {
	result, valid := "done", 1.0
	if err != nil {
		result, valid = "refused", 0
	}
	m.reloads.WithLabelValues(result).Inc()
	m.valid.Set(valid)
}

// dollars converts an amount for a metric. Sums of money never use it.
func dollars(a money.Amount) float64 { return float64(a) / 1e9 }

// Results of rounds.
const roundDone, roundPartial, roundFailed = "done", "partial", "failed"

// begin sets the round counters of a source to 0, so that the first result is an increase.
func (m *Metrics) begin(source string) {
	for _, result := range []string{roundDone, roundPartial, roundFailed} {
		m.rounds.WithLabelValues(source, result)
	}
}

// forget removes the values of a source's newest round: another process reports them from now on,
// or nothing reads the source.
func (m *Metrics) forget(source string) {
	for _, g := range []*prometheus.GaugeVec{m.resources, m.verdicts, m.running, m.wasted, m.missing} {
		g.DeletePartialMatch(prometheus.Labels{"source": source})
	}
}

func (m *Metrics) round(src Source, took time.Duration, o Outcome, err error) {
	source := src.Name
	result := roundDone
	switch {
	case err != nil:
		result = roundFailed
		m.failed(source)
	case len(o.Missing) > 0:
		result = roundPartial
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
	for verb, n := range o.Failed {
		m.failures.WithLabelValues(string(verb)).Add(float64(n))
	}
	if err != nil || src.Background { // its resources are counted by the source that watches them
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
