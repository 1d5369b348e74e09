package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
	"github.com/curfew-dev/curfew/internal/wait"
)

// measurement is one measurement of the machine over the time since the previous one.
type measurement struct {
	start, end time.Duration // since boot
	// cpu is in percent (see sampler.cpuPercent); net and disk are bytes per second, negative if
	// not measured.
	cpu, net, disk float64
	// checkpoints reports that a process keeps writing files, however little (see writeHistory).
	checkpoints    bool
	typedTerminals int // terminals with input during the measurement
	gpus           []GPU
	// noGPUs reports that the session has no GPUs, gpuErr why they could not be read.
	noGPUs      bool
	gpuErr      error
	terminals   []terminal
	connections []session.Connection
	err         error
}

// sampler measures the processes of the cage.
type sampler struct {
	options             *Options
	step                time.Duration
	lastProcesses       map[int]process
	socketBytes         map[uint32]uint64
	interfaceBytes      uint64 // of all interfaces
	interfaceBytesKnown bool
	lastAt              time.Duration // time of the last measurement; 0 before the first
	connectionsSince    map[string]time.Time
	gpusSeen            bool
	writes              map[int]writeHistory
}

// writeHistory has the newest writes of a process; startTicks identifies the process.
type writeHistory struct {
	startTicks uint64
	at         []time.Duration // since boot
}

const (
	// checkpointBytes is the least that counts as a checkpoint: logs of idle programs write less.
	checkpointBytes = 64 << 10
	// checkpointWrites in checkpointWindow are work.
	checkpointWrites = 4
	checkpointWindow = 2 * time.Minute
)

// writesSteadily reports whether a process wrote checkpoints in several of its newest measurements.
// A short write of a few files, as of an editor that saves, is no more than the disks' rate says.
func (s *sampler) writesSteadily(now map[int]process, at time.Duration) (steadily bool) {
	histories := map[int]writeHistory{}
	for pid, p := range now {
		h := s.writes[pid]
		if h.startTicks != p.startTicks {
			h = writeHistory{startTicks: p.startTicks}
		}
		old, ok := s.lastProcesses[pid]
		if ok && old.startTicks == p.startTicks && p.writtenBytes >= old.writtenBytes+checkpointBytes {
			h.at = append(h.at, at)
		}
		for len(h.at) > 0 && at-h.at[0] > checkpointWindow {
			h.at = h.at[1:]
		}
		if len(h.at) > 0 {
			histories[pid] = h
		}
		steadily = steadily || len(h.at) >= checkpointWrites
	}
	s.writes = histories
	return steadily
}

// run measures periodically.
func (s *sampler) run(ctx context.Context, out chan<- measurement) {
	for {
		m, ok := s.measure(ctx)
		if ok {
			select {
			case out <- m:
			case <-ctx.Done():
				return
			}
		}
		if wait.For(ctx, s.step) != nil {
			return
		}
	}
}

// measure measures once; the first measurement only sets the starting point.
func (s *sampler) measure(ctx context.Context) (m measurement, ok bool) {
	_, now := s.options.Uptime()
	m = measurement{start: s.lastAt, end: now, net: -1, disk: -1}
	pids, err := s.options.Cage.Processes()
	if err != nil {
		// Unknown is not idle: without measurements the verdict ages into unknown.
		m.err = fmt.Errorf("list the processes of the session: %w", err)
		s.lastAt = 0
		return m, true
	}
	processes := map[int]process{}
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil {
			p.age = now - time.Duration(p.startTicks)*(time.Second/clockTicks)
			processes[pid] = p
		}
	}
	first := s.lastAt == 0
	elapsed := now - s.lastAt
	m.cpu = s.cpuPercent(processes, elapsed)
	m.disk = s.diskBytes(processes) / elapsed.Seconds()
	m.checkpoints = s.writesSteadily(processes, now)
	socks, err := connections()
	m.net = s.networkBytes(processes, socks, err) / elapsed.Seconds()
	m.terminals = terminals(processes)
	for _, t := range m.terminals {
		if !first && t.lastInput.After(s.options.Now().Add(-elapsed)) {
			m.typedTerminals++
		}
	}
	m.connections = s.findConnections(processes, socks, now)
	s.readGPUs(ctx, &m)
	s.lastProcesses, s.lastAt = processes, now
	return m, !first && elapsed > 0
}

// cpuPercent returns the CPU use in percent: the share of one CPU used by the busiest process, or
// of all CPUs by all processes, whichever is more. One busy thread thus counts as work on a machine
// with 100 CPUs, while many idle threads, as in an open editor, do not. CPU time of ended children
// counts for their parent. The time for which a starved thread waited for a CPU counts as used: on
// a loaded machine a process with a low priority works as hard as it can.
func (s *sampler) cpuPercent(now map[int]process, elapsed time.Duration) float64 {
	ended := map[int]time.Duration{} // counted before and now part of the parent's time
	for pid, p := range s.lastProcesses {
		if q, ok := now[pid]; !ok || q.startTicks != p.startTicks {
			ended[p.parent] += p.cpuTime
		}
	}
	var sum, most time.Duration
	for pid, p := range now {
		grown := p.cpuTime
		if before, ok := s.lastProcesses[pid]; ok && before.startTicks == p.startTicks {
			grown = p.cpuTime - before.cpuTime
		}
		grown = max(0, grown-ended[pid]) + starved(p, s.lastProcesses[pid], elapsed)
		sum += grown
		most = max(most, grown)
	}
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / elapsed.Seconds() }
	return min(100, max(share(most), share(sum)/float64(runtime.NumCPU())))
}

// starvedShare is the share of the time for which a thread must be runnable for its waits to count.
// A thread that wakes up often for little work waits each time as well, and is runnable for less.
const starvedShare = 0.5

// starved returns how long the starved threads of a process waited for a CPU since it was last
// measured.
func starved(now, before process, elapsed time.Duration) (waited time.Duration) {
	if before.startTicks != now.startTicks {
		before.waits = nil
	}
	if now.age > 0 {
		elapsed = min(elapsed, now.age)
	}
	for tid, t := range now.waits {
		old := before.waits[tid]
		if t.run < old.run || t.wait < old.wait {
			old = threadTime{} // another thread with the same number
		}
		run, wait := t.run-old.run, t.wait-old.wait
		if (run + wait).Seconds() >= starvedShare*elapsed.Seconds() {
			waited += min(wait, elapsed)
		}
	}
	return waited
}

func (s *sampler) diskBytes(now map[int]process) (sum float64) {
	for pid, p := range now {
		before := uint64(0)
		if old, ok := s.lastProcesses[pid]; ok && old.startTicks == p.startTicks {
			before = old.diskBytes
		}
		if p.diskBytes > before {
			sum += float64(p.diskBytes - before)
		}
	}
	return sum
}

// networkBytes returns the traffic since the last measurement: of the machine in a whole-machine
// session, else of the session's TCP connections to other machines. If the kernel cannot list
// those, all traffic counts, which is an upper bound. Negative means not measured.
func (s *sampler) networkBytes(now map[int]process, socks []socket, err error) float64 {
	wire, wireErr := interfaceBytes()
	before, known := s.interfaceBytes, s.interfaceBytesKnown
	s.interfaceBytes, s.interfaceBytesKnown = wire, wireErr == nil
	if s.options.Host.WholeMachine || err != nil {
		if wireErr != nil || !known || wire < before {
			return math.Inf(-1)
		}
		return float64(wire - before)
	}
	own := map[uint32]bool{}
	for pid := range now {
		for _, inode := range sockets(pid) {
			own[inode] = true
		}
	}
	counts := map[uint32]uint64{}
	var sum float64
	for _, k := range socks {
		if !own[k.inode] || k.peer.Addr().IsLoopback() {
			continue
		}
		counts[k.inode] = k.bytes
		if old := s.socketBytes[k.inode]; k.bytes > old {
			sum += float64(k.bytes - old)
		}
	}
	s.socketBytes = counts
	return sum
}

// readGPUs reads the session's GPUs.
func (s *sampler) readGPUs(ctx context.Context, m *measurement) {
	h := &s.options.Host
	if !hasGPUs(s.options) {
		m.noGPUs = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.step, 10*time.Second))
	defer cancel()
	all, err := s.options.GPUs.Read(ctx)
	if errors.Is(err, ErrNoGPUs) && len(h.GPUs) == 0 && !s.gpusSeen {
		m.noGPUs = true
		return
	}
	if err != nil {
		m.gpuErr = err
		return
	}
	s.gpusSeen = true
	for _, g := range all {
		if len(h.GPUs) == 0 || slices.Contains(h.GPUs, g.Index) || slices.Contains(h.GPUs, g.UUID) {
			m.gpus = append(m.gpus, g)
		}
	}
}

// activityTracker judges measurements with package duty, as rounds do.
type activityTracker struct {
	step, lookBack time.Duration
	// hostTracker judges the signals of the processes, gpuTracker those of the GPUs. A session
	// works when either does: a notebook that holds a GPU may compute on CPUs.
	hostTracker, gpuTracker *duty.Tracker
	// gpuCount is the number of GPUs of the session; unknown before they were read.
	gpuCount inventory.Fact[int]
	// Measurements are tracked up to coveredUntil; pending holds a later one.
	coveredUntil time.Time
	pending      *measurement
	// record receives each tracked measurement; nil discards them.
	record func(session.Measurement)
}

// newActivityTracker returns a tracker that looks back long enough to see the idle time.
func newActivityTracker(step, idle time.Duration, gpus inventory.Fact[int]) *activityTracker {
	w := &activityTracker{step: step, gpuCount: gpus, lookBack: max(duty.DefaultLookBack, 2*idle)}
	w.reset()
	return w
}

// reset discards all measurements, for example after a clock jump.
func (w *activityTracker) reset() {
	t := duty.DefaultThresholds()
	w.hostTracker = duty.NewTracker(t, t.Activity(nil), w.lookBack)
	w.gpuTracker = duty.NewTracker(t, t.Activity(nil), w.lookBack)
	w.coveredUntil, w.pending = time.Time{}, nil
}

// maxMeasurementGap is the longest delay for which a measurement still covers the time since the
// previous one.
const maxMeasurementGap = time.Minute

// add tracks a measurement that covers span before end.
func (w *activityTracker) add(end time.Time, span time.Duration, m *measurement, assignedGPUs int) {
	if m.err != nil || span <= 0 {
		return
	}
	// Each measurement continues at the end of the previous one, in whole steps: the kernel's
	// counters accumulate even if a measurement is late.
	start := w.coveredUntil
	if start.IsZero() || start.After(end) || end.Sub(start) > max(maxMeasurementGap, 6*w.step) {
		start = end.Add(-min(span, w.step))
	}
	w.merge(m)
	count := int(end.Sub(start) / w.step)
	if count == 0 {
		w.coveredUntil = start
		return // less than a whole step is covered
	}
	m = w.pending
	w.pending = nil
	opened := usage.SourceInfo{Step: w.step, Source: "agent"}
	recorded := session.Measurement{
		Start: start.UTC(), Step: session.Duration(w.step), Steps: count, Host: map[string]float64{},
		GPUs: map[string]map[string]float64{},
	}
	put := func(k *duty.Tracker, gpu string, s usage.Signal, v float64) {
		if v < 0 {
			return
		}
		k.AddRun(opened, gpu, s, start, count, v)
		if k == w.hostTracker {
			recorded.Host[s.String()] = v
			return
		}
		if recorded.GPUs[gpu] == nil {
			recorded.GPUs[gpu] = map[string]float64{}
		}
		recorded.GPUs[gpu][s.String()] = v
	}
	put(w.hostTracker, "", usage.CPUUtil, m.cpu)
	put(w.hostTracker, "", usage.NetBytes, m.net*w.step.Seconds())
	put(w.hostTracker, "", usage.DiskBytes, m.disk*w.step.Seconds())
	put(w.hostTracker, "", usage.Sessions, float64(m.typedTerminals))
	for _, g := range m.gpus {
		for s, v := range g.Signals {
			put(w.gpuTracker, g.UUID, s, v)
		}
	}
	switch {
	case m.noGPUs:
		w.gpuCount = inventory.Known(0)
	case assignedGPUs > 0:
		w.gpuCount = inventory.Known(assignedGPUs)
	case m.gpuErr == nil:
		w.gpuCount = inventory.Known(max(len(m.gpus), w.gpuCount.Or(0)))
	}
	w.coveredUntil = start.Add(time.Duration(count) * w.step)
	if w.record != nil {
		w.record(recorded)
	}
}

// merge combines the measurements of one step by their maximum.
func (w *activityTracker) merge(m *measurement) {
	if w.pending == nil {
		w.pending = m
		return
	}
	c := w.pending
	c.cpu, c.net, c.disk = max(c.cpu, m.cpu), max(c.net, m.net), max(c.disk, m.disk)
	c.typedTerminals, c.noGPUs, c.gpuErr = c.typedTerminals+m.typedTerminals, m.noGPUs, m.gpuErr
	for _, g := range c.gpus {
		for _, n := range m.gpus {
			for s, v := range g.Signals {
				if now, ok := n.Signals[s]; ok && n.UUID == g.UUID && now < v {
					n.Signals[s] = v
				}
			}
		}
	}
	c.gpus = m.gpus
}

// verdict returns what the session does at a time.
func (w *activityTracker) verdict(now time.Time) duty.Verdict {
	host := w.hostTracker.Explain(now, duty.Machine{GPUs: inventory.Known(0)})
	if n, known := w.gpuCount.Get(); known && n == 0 {
		return host
	}
	return combineVerdicts(w.gpuTracker.Explain(now, duty.Machine{GPUs: w.gpuCount}), host)
}

// combineVerdicts judges several verdicts as one gang, with the reason of the verdict that decides.
func combineVerdicts(all ...duty.Verdict) duty.Verdict {
	mute := slices.Clone(all)
	for i := range mute {
		mute[i].Why = ""
	}
	v := duty.Gang(mute)
	for _, a := range all {
		if a.State == v.State {
			v.Why = a.Why
			break
		}
	}
	return v
}

// terminal is a terminal of the session.
type terminal struct {
	path string
	// lastInput is the time of the last keystroke.
	lastInput time.Time
}

// terminal returns the pseudo-terminal of a process; empty if it has none. Bits 8 to 15 of a device
// number are the major number, and 136 to 143 are pseudo-terminals.
func (p process) terminal() string {
	major := p.tty >> 8 & 0xfff
	if major < 136 || major > 143 {
		return ""
	}
	minor := p.tty&0xff | p.tty>>12&0xfff00
	return "/dev/pts/" + strconv.Itoa((major-136)<<8|minor)
}

// terminals returns the pseudo-terminals of processes.
func terminals(now map[int]process) []terminal {
	seen := map[string]bool{}
	var list []terminal
	for _, p := range now {
		path := p.terminal()
		if path == "" || seen[path] {
			continue
		}
		seen[path] = true
		if info, err := os.Stat(path); err == nil {
			list = append(list, terminal{path, accessed(info)})
		}
	}
	slices.SortFunc(list, func(a, b terminal) int { return compareTerminals(a.path, b.path) })
	return list
}

func compareTerminals(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	if a < b {
		return -1
	}
	return 1
}

// warnTerminals writes a message to terminals and returns how many accepted it.
func warnTerminals(list []terminal, text string) (reached int) {
	for _, t := range list {
		// A stuck or closed terminal must not block the agent.
		f, err := os.OpenFile(t.path, os.O_WRONLY|noTerminal, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString("\r\n\a*** curfew: " + text + "\r\n")
		if closeErr := f.Close(); err == nil && closeErr == nil {
			reached++
		}
	}
	return reached
}
