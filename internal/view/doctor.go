package view

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/plain"
	"github.com/curfew-dev/curfew/internal/usage"
)

// DoctorSchema names the document of available telemetry.
const DoctorSchema = "curfew.doctor/v1"

// Doctor lists the telemetry of each machine and the signals that are missing to judge it.
type Doctor struct {
	Schema string    `json:"schema"`
	At     time.Time `json:"at"`
	Window Duration  `json:"window"`
	// AuditWindow is the time over which the machines are judged, as in an audit.
	AuditWindow Duration `json:"audit_window"`
	// Sources were read, in order of precedence.
	Sources  []DoctorSource  `json:"sources"`
	Machines []DoctorMachine `json:"machines"`
	// Judged counts machines with a state, Found those without one that a finding of an audit knows to be at
	// rest, and Unmeasured all others, which an audit counts as unmeasured. Lacking counts those with
	// something missing.
	Judged     int                   `json:"judged"`
	Found      int                   `json:"found"`
	Unmeasured int                   `json:"unmeasured"`
	Lacking    int                   `json:"lacking"`
	BlindSpots []inventory.BlindSpot `json:"blind_spots"`
}

// Duration is a length of time, written as "1h".
type Duration string

// DoctorSource is a source of usage.
type DoctorSource struct {
	Name string `json:"name"`
	// Queries and Bytes count the requests to a server and its answers; zero if not counted.
	Queries int64 `json:"queries,omitempty"`
	Bytes   int64 `json:"bytes,omitempty"`
	// Unmatched are names in labels that no machine has, Ambiguous those by which labels
	// name two.
	Unmatched []string `json:"unmatched,omitempty"`
	// Impossible counts readings that cannot be true, such as a utilization over 100%, which
	// were left out.
	Impossible int      `json:"impossible,omitempty"`
	Ambiguous  []string `json:"ambiguous,omitempty"`
}

// DoctorMachine is the telemetry of one machine.
type DoctorMachine struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	Type   string `json:"type,omitempty"`
	Region string `json:"region,omitempty"`
	// GPUs is the number of GPUs; null if unknown.
	GPUs *int `json:"gpus"`
	// State is the verdict of an audit over its window, Why the reason and Coverage the lowest
	// coverage of the signals that decided, 0 to 1.
	State string `json:"state"`
	Why   string `json:"why"`
	// LastingSeconds is the length of the state without a missing sample, at most the audit's
	// window; 0 for busy, warming and unknown.
	LastingSeconds float64    `json:"lasting_seconds"`
	Coverage       float64    `json:"coverage"`
	Evidence       []Evidence `json:"evidence"`
	// Found is the finding of an audit by other evidence than samples, such as the dates of a notebook, that
	// the machine is at rest; empty where its state is known or there is none.
	Found string `json:"found,omitempty"`
	// Now is the duty by the newest samples, which policies act on and which may differ from State.
	Now     ExplainedDuty   `json:"now"`
	Signals []DoctorSignal  `json:"signals"`
	Missing []DoctorMissing `json:"missing"`
	// HeldBy are the workloads that the GPUs are lent to, by the labels of their series.
	HeldBy []DoctorHolder `json:"held_by"`
	// Owner comes from the tags, and without owner tags from the labels of the machine's node, pods
	// and jobs. Disputes are the contradictions among these.
	Owner    inventory.Owner     `json:"owner"`
	Disputes []inventory.Dispute `json:"owner_disputes"`
}

// DoctorHolder is a workload that a GPU is lent to.
type DoctorHolder struct {
	GPU string `json:"gpu"`
	// Namespace and Pod are those of Kubernetes, Job is one of Slurm.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Job       string `json:"job,omitempty"`
}

// DoctorSignal is a signal that was found.
type DoctorSignal struct {
	Signal string `json:"signal"`
	Source string `json:"source"`
	// GPUs is the number of GPUs on which it was measured; 0 for signals of the machine.
	GPUs int `json:"gpus,omitempty"`
	// AgeSeconds is the age of the newest sample, of the oldest among the GPUs.
	AgeSeconds float64 `json:"age_seconds"`
	// Coverage is the share of the window with samples, 0 to 1, the least of any GPU.
	Coverage float64 `json:"coverage"`
}

// DoctorMissing is a missing signal that prevents or degrades the verdict on a machine.
type DoctorMissing struct {
	What   string `json:"what"`
	Effect string `json:"effect"`
	// Fix is a command, or a configuration line.
	Fix string `json:"fix"`
	// Optional is true if the machine is judged even without it.
	Optional bool `json:"optional,omitempty"`
}

// Telemetry is the input of NewDoctor.
type Telemetry struct {
	At         time.Time
	Window     time.Duration
	Thresholds duty.Thresholds
	Resources  []*inventory.Resource
	Windows    map[inventory.Ref]*usage.Window
	// Verdicts are those of an audit over AuditWindow, Duties those of the newest samples.
	AuditWindow      time.Duration
	Verdicts, Duties map[inventory.Ref]duty.Verdict
	// Found are the findings of the audit about machines without a verdict.
	Found   map[inventory.Ref]string
	Sources []DoctorSource
	// Holders are the workloads that the GPUs of each machine are lent to.
	Holders map[inventory.Ref][]DoctorHolder
	// Disputes are contradicting statements about the owners.
	Disputes   map[inventory.Ref][]inventory.Dispute
	BlindSpots []inventory.BlindSpot
}

// NewDoctor reports the telemetry of the running machines.
func NewDoctor(t Telemetry) Doctor {
	d := Doctor{
		Schema: DoctorSchema, At: t.At, Window: Duration(plain.Duration(t.Window)),
		AuditWindow: Duration(plain.Duration(t.AuditWindow)), Sources: t.Sources,
		Machines: []DoctorMachine{}, BlindSpots: append([]inventory.BlindSpot{}, t.BlindSpots...),
	}
	for _, r := range t.Resources {
		if traits := r.Kind.Traits(); !traits.Compute || !traits.Measured || r.State != inventory.StateRunning {
			continue
		}
		m := t.machine(r)
		switch {
		case m.State != duty.Unknown.String():
			d.Judged++
		case m.Found != "":
			d.Found++
		default:
			d.Unmeasured++
		}
		if slices.ContainsFunc(m.Missing, func(x DoctorMissing) bool { return !x.Optional }) {
			d.Lacking++
		}
		d.Machines = append(d.Machines, m)
	}
	slices.SortStableFunc(d.Machines, func(a, b DoctorMachine) int { return len(b.Missing) - len(a.Missing) })
	return d
}

// unmeasuredWhy is the reason of a verdict on a machine without samples.
const unmeasuredWhy = "nothing was measured"

func (t Telemetry) machine(r *inventory.Resource) DoctorMachine {
	m := DoctorMachine{
		ID: r.ID, Name: r.Name, Type: r.Type, Region: r.Region, Evidence: []Evidence{},
		Signals: []DoctorSignal{}, Missing: []DoctorMissing{},
		HeldBy: append([]DoctorHolder{}, t.Holders[r.Ref()]...),
		Owner:  r.Owner, Disputes: append([]inventory.Dispute{}, t.Disputes[r.Ref()]...)}
	gpus := r.Size.GPUs.Or(-1)
	if gpus >= 0 {
		m.GPUs = &gpus
	}
	w := t.Windows[r.Ref()]
	v := t.Verdicts[r.Ref()]
	m.State, m.LastingSeconds, m.Coverage = v.State.String(), v.Duration.Seconds(), v.Coverage
	m.Why, m.Found = cmp.Or(v.Why, unmeasuredWhy), t.Found[r.Ref()]
	for _, e := range v.Evidence {
		m.Evidence = append(m.Evidence, newEvidence(e))
	}
	now := t.Duties[r.Ref()]
	m.Now = ExplainedDuty{now.State.String(), now.Duration.Seconds(), cmp.Or(now.Why, unmeasuredWhy)}
	if w != nil {
		for s := range usage.Signal(usage.SignalCount) {
			if x, ok := t.signal(w, s); ok {
				m.Signals = append(m.Signals, x)
			}
		}
	}
	m.Missing = append(m.Missing, t.missing(w, gpus, vendorFixes[usage.VendorOf(r.Size.GPU)], m.Signals)...)
	return m
}

// signal summarizes the samples of a signal.
func (t Telemetry) signal(w *usage.Window, s usage.Signal) (DoctorSignal, bool) {
	x := DoctorSignal{Signal: s.String(), Coverage: 1}
	tracks := []*usage.Track{&w.Machine}
	if s.PerGPU() {
		tracks = append(tracks, w.GPUs...)
	}
	found := false
	for _, track := range tracks {
		st := track.Stats(s)
		if st == nil {
			continue
		}
		found = true
		if track.Name != "" {
			x.GPUs++
		}
		x.Source = w.SourceOf(st)
		x.Coverage = min(x.Coverage, math.Round(1000*w.Coverage(st))/1000)
		x.AgeSeconds = max(x.AgeSeconds, t.At.Sub(st.Last).Seconds())
	}
	return x, found
}

// fixes are the steps that complete GPU telemetry, in terms of the vendor's tools.
type fixes struct{ exporter, counters, profile string }

// vendorFixes are the steps for vendors whose metrics are read: dcgm-exporter, AMD's Device Metrics
// Exporter, Intel's XPU Manager and neuron-monitor. The empty vendor is any other, whose metrics
// are named in the configuration.
var vendorFixes = map[usage.Vendor]fixes{
	usage.NVIDIA: {
		exporter: "`helm install dcgm-exporter gpu-helm-charts/dcgm-exporter`, or on the machine: `docker run -d --gpus " +
			"all --cap-add SYS_ADMIN -p 9400:9400 nvcr.io/nvidia/k8s/dcgm-exporter:latest`",
		counters: "add to dcgm-exporter's counters: `DCGM_FI_DEV_FB_USED, gauge` and `DCGM_FI_DEV_FB_FREE, gauge`",
		profile:  "start dcgm-exporter with `-f /etc/dcgm-exporter/dcp-metrics-included.csv`",
	},
	usage.AMD: {
		exporter: "`docker run -d --device=/dev/dri --device=/dev/kfd -p 5000:5000 " +
			"rocm/device-metrics-exporter:latest`; " +
			"of partitioned GPUs every partition has to be exported",
		counters: "add GPU_USED_VRAM and GPU_TOTAL_VRAM to Fields in the configuration of AMD's Device Metrics Exporter",
		profile: "add GPU_PROF_GUI_UTIL_PERCENT to Fields in the configuration of AMD's Device Metrics Exporter, and " +
			"turn ProfilerMetrics on",
	},
	usage.Intel: {
		exporter: "run Intel XPU Manager with its Prometheus exporter, and scrape it",
		counters: "turn on XPU Manager's metric MEMORY_USED: XPUM_METRICS=0,4-31",
		profile:  "turn on XPU Manager's metric EU_ACTIVE: XPUM_METRICS=0-31",
	},
	usage.AWS: {
		exporter: "run neuron-monitor with neuron-monitor-prometheus.py; it reports cores that a runtime has",
		counters: "run neuron-monitor with its metric group memory_used",
		profile:  "neuron-monitor has no finer counters",
	},
	usage.UnknownVendor: {
		exporter: "run the exporter of the GPUs' maker: dcgm-exporter, AMD's Device Metrics Exporter, Intel XPU Manager; " +
			"names in metrics.sources maps the metrics of others",
		counters: "let the exporter of the GPUs' maker report their memory",
		profile:  "let the exporter of the GPUs' maker report its profiling counters",
	},
}

// What makes the telemetry of hosts whole.
const (
	fixHost   = "`apt-get install prometheus-node-exporter`, and scrape port 9100"
	fixScrape = "scrape_interval: 30s, and alert on up == 0"
)

// missing lists the signals that a machine lacks.
func (t Telemetry) missing(w *usage.Window, gpus int, fix fixes, signals []DoctorSignal) []DoctorMissing {
	has := map[string]DoctorSignal{}
	for _, s := range signals {
		has[s.Signal] = s
	}
	found := func(s usage.Signal) bool { _, ok := has[s.String()]; return ok }
	var out []DoctorMissing
	lacks := func(what, effect, fix string) { out = append(out, DoctorMissing{What: what, Effect: effect, Fix: fix}) }
	if gpus < 0 {
		lacks("number of GPUs", "it is never judged by its CPU, and never idle",
			"name its type or its GPUs: machines in curfew.yaml")
	}
	if gpus != 0 {
		vouched := max(has[usage.GPUUtil.String()].GPUs, has[usage.SMActive.String()].GPUs)
		switch aggregated := w != nil && len(w.GPUs) == 0 && len(w.GPUTracks()) > 0; {
		case !found(usage.GPUUtil) && !found(usage.SMActive):
			lacks("GPU utilization", "its state is unknown", fix.exporter)
		case !aggregated && vouched < gpus:
			lacks(fmt.Sprintf("GPU utilization of %d of %d GPUs", gpus-vouched, gpus),
				"its state is unknown unless one of the others computes", fix.exporter)
		}
		if found(usage.GPUUtil) && !found(usage.MemUsed) && !found(usage.Processes) {
			lacks("GPU memory", "GPUs without work count as held, never as idle", fix.counters)
		}
		if found(usage.GPUUtil) && !found(usage.SMActive) && !found(usage.GREngine) {
			lacks("profiling counters", "only memory and processes distinguish a latched meter from work", fix.profile)
			out[len(out)-1].Optional = true
		}
	}
	if !found(usage.CPUUtil) {
		effect := "data that is prepared by CPUs is not seen"
		if gpus == 0 {
			effect = "its state is unknown"
		}
		lacks("CPU utilization", effect, fixHost)
	}
	if !found(usage.NetBytes) {
		effect := "data that comes in is not seen"
		if gpus == 0 {
			effect = "its state is unknown"
		}
		lacks("network traffic", effect, fixHost)
	}
	return append(out, t.poor(w)...)
}

// poor names decisive signals that are too old or have too many gaps.
func (t Telemetry) poor(w *usage.Window) []DoctorMissing {
	if w == nil {
		return nil
	}
	least := t.Thresholds.MinCoverage
	if least <= 0 {
		least = duty.DefaultThresholds().MinCoverage
	}
	var old, holes []string
	var age time.Duration
	coverage := 1.0
	for _, s := range []usage.Signal{usage.GPUUtil, usage.SMActive, usage.MemUsed, usage.CPUUtil, usage.NetBytes} {
		for _, track := range append([]*usage.Track{&w.Machine}, w.GPUs...) {
			st := track.Stats(s)
			switch {
			case st == nil:
			case !w.Fresh(st, t.At):
				old, age = append(old, s.String()), max(age, t.At.Sub(st.Last))
			case w.Coverage(st) < least:
				holes, coverage = append(holes, s.String()), min(coverage, w.Coverage(st))
			}
		}
	}
	var out []DoctorMissing
	if names := slices.Compact(old); len(names) > 0 {
		out = append(out, DoctorMissing{
			What:   "fresh samples of " + strings.Join(names, ", "),
			Effect: "the newest is " + plain.Duration(age) + " old, so that its state is unknown", Fix: fixScrape,
		})
	}
	if names := slices.Compact(holes); len(names) > 0 {
		out = append(out, DoctorMissing{
			What:   "samples of " + strings.Join(names, ", "),
			Effect: "they cover " + plain.Share(coverage, 0) + " of the window; rest is known only since the last gap",
			Fix:    fixScrape,
		})
	}
	return out
}
