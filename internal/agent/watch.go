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
)

// measured is what one look at the machine gave, over the time since the look before.
type measured struct {
	from, to time.Duration // since boot
	// cpu is percent: see sampler.busiest. net and disk are bytes a second; negative where
	// they were not measured.
	cpu, net, disk float64
	typed          int // terminals with input since the look before
	gpus           []GPU
	// noGPUs says that the session has none, gpuErr why they could not be read.
	noGPUs    bool
	gpuErr    error
	terminals []terminal
	connected []session.Connection
	err       error
}

// sampler measures what the processes of the cage do.
type sampler struct {
	o        *Options
	step     time.Duration
	last     map[int]process
	bytes    map[uint32]uint64
	wire     uint64 // of all interfaces
	wired    bool
	at       time.Duration // of the last look; 0 before the first
	known    map[string]time.Time
	gpusSeen bool
}

// run measures again and again.
func (s *sampler) run(ctx context.Context, out chan<- measured) {
	for {
		m, ok := s.look(ctx)
		if ok {
			select {
			case out <- m:
			case <-ctx.Done():
				return
			}
		}
		if pause(ctx, s.step) != nil {
			return
		}
	}
}

// look measures once; the first look only begins.
func (s *sampler) look(ctx context.Context) (m measured, ok bool) {
	_, now := s.o.Uptime()
	m = measured{from: s.at, to: now, net: -1, disk: -1}
	pids, err := s.o.Cage.Processes()
	if err != nil {
		// What is not known is no rest: the verdict ages into unknown.
		m.err = fmt.Errorf("list the processes of the session: %w", err)
		s.at = 0
		return m, true
	}
	processes := map[int]process{}
	for _, pid := range pids {
		if p, err := readProcess(pid); err == nil {
			processes[pid] = p
		}
	}
	first := s.at == 0
	elapsed := now - s.at
	m.cpu = s.busiest(processes, elapsed)
	m.disk = s.disks(processes) / elapsed.Seconds()
	socks, err := connections()
	m.net = s.network(processes, socks, err) / elapsed.Seconds()
	m.terminals = terminals(processes)
	for _, t := range m.terminals {
		if !first && t.input.After(s.o.Now().Add(-elapsed)) {
			m.typed++
		}
	}
	m.connected = s.connected(processes, socks, now)
	s.readGPUs(ctx, &m)
	s.last, s.at = processes, now
	return m, !first && elapsed > 0
}

// busiest is how much the processes compute, in percent: what the busiest of them takes of
// one CPU, or all of them of all CPUs, whichever is more. So one thread that works is work
// also on a machine of a hundred CPUs, and many that idle, as those of an open editor, are
// none. What a child computed that ended since counts for its parent.
func (s *sampler) busiest(now map[int]process, elapsed time.Duration) float64 {
	ended := map[int]time.Duration{} // counted before, and by now in the parent's
	for pid, p := range s.last {
		if q, ok := now[pid]; !ok || q.began != p.began {
			ended[p.parent] += p.cpu
		}
	}
	var sum, most time.Duration
	for pid, p := range now {
		grown := p.cpu
		if before, ok := s.last[pid]; ok && before.began == p.began {
			grown = p.cpu - before.cpu
		}
		grown = max(0, grown-ended[pid])
		sum += grown
		most = max(most, grown)
	}
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / elapsed.Seconds() }
	return min(100, max(share(most), share(sum)/float64(runtime.NumCPU())))
}

func (s *sampler) disks(now map[int]process) (sum float64) {
	for pid, p := range now {
		before := uint64(0)
		if old, ok := s.last[pid]; ok && old.began == p.began {
			before = old.disk
		}
		if p.disk > before {
			sum += float64(p.disk - before)
		}
	}
	return sum
}

// network is the traffic since the last look: of the machine where all of it is the session,
// else of the TCP connections of its processes to other machines. Where the kernel does not
// tell those, all traffic of the machine counts: it is no less. Negative is not measured.
func (s *sampler) network(now map[int]process, socks []socket, err error) float64 {
	wire, wireErr := interfaceBytes()
	before, known := s.wire, s.wired
	s.wire, s.wired = wire, wireErr == nil
	if s.o.Host.WholeMachine || err != nil {
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
		if old := s.bytes[k.inode]; k.bytes > old {
			sum += float64(k.bytes - old)
		}
	}
	s.bytes = counts
	return sum
}

// readGPUs reads the GPUs that are the session's.
func (s *sampler) readGPUs(ctx context.Context, m *measured) {
	h := &s.o.Host
	if !hasGPUs(s.o) {
		m.noGPUs = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, max(s.step, 10*time.Second))
	defer cancel()
	all, err := s.o.GPUs.Read(ctx)
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

// watch judges what was measured, as rounds do: by package duty.
type watch struct {
	step, lookBack time.Duration
	// host takes the signals of the processes, gpu those of the GPUs. A session works when
	// either does: a notebook that holds a GPU may well compute on the CPUs.
	host, gpu *duty.Tracker
	// gpus is how many the session has; unknown before they were read.
	gpus inventory.Fact[int]
	// newest is the end of what was taken, carried what was measured since.
	newest  time.Time
	carried *measured
	// record is told what was taken; nil: no one.
	record func(session.Measurement)
}

// newWatch returns a watch that sees rest as long as idle asks.
func newWatch(step, idle time.Duration, gpus inventory.Fact[int]) *watch {
	w := &watch{step: step, gpus: gpus, lookBack: max(duty.DefaultLookBack, 2*idle)}
	w.reset()
	return w
}

// reset forgets everything, as when the clock was set.
func (w *watch) reset() {
	t := duty.DefaultThresholds()
	w.host = duty.NewTracker(t, t.Activity(nil), w.lookBack)
	w.gpu = duty.NewTracker(t, t.Activity(nil), w.lookBack)
	w.newest, w.carried = time.Time{}, nil
}

// longestGap is how long a look may come late and still speak for the time before it.
const longestGap = time.Minute

// add takes what was measured up to a time, over some time before it.
func (w *watch) add(to time.Time, over time.Duration, m *measured, given int) {
	if m.err != nil || over <= 0 {
		return
	}
	// Each look goes on where the one before it ended, in whole steps: what is counted was
	// counted all along, however late the look is.
	start := w.newest
	if start.IsZero() || start.After(to) || to.Sub(start) > max(longestGap, 6*w.step) {
		start = to.Add(-min(over, w.step))
	}
	w.fold(m)
	count := int(to.Sub(start) / w.step)
	if count == 0 {
		w.newest = start
		return // the rest of the step is looked at first
	}
	m = w.carried
	w.carried = nil
	opened := usage.Opened{Step: w.step, Source: "agent"}
	took := session.Measurement{
		Start: start.UTC(), Step: session.Duration(w.step), Steps: count, Host: map[string]float64{},
		GPUs: map[string]map[string]float64{},
	}
	put := func(k *duty.Tracker, gpu string, s usage.Signal, v float64) {
		if v < 0 {
			return
		}
		k.AddRun(opened, gpu, s, start, count, v)
		if k == w.host {
			took.Host[s.String()] = v
			return
		}
		if took.GPUs[gpu] == nil {
			took.GPUs[gpu] = map[string]float64{}
		}
		took.GPUs[gpu][s.String()] = v
	}
	put(w.host, "", usage.CPUUtil, m.cpu)
	put(w.host, "", usage.NetBytes, m.net*w.step.Seconds())
	put(w.host, "", usage.DiskBytes, m.disk*w.step.Seconds())
	put(w.host, "", usage.Sessions, float64(m.typed))
	for _, g := range m.gpus {
		for s, v := range g.Signals {
			put(w.gpu, g.UUID, s, v)
		}
	}
	switch {
	case m.noGPUs:
		w.gpus = inventory.Known(0)
	case given > 0:
		w.gpus = inventory.Known(given)
	case m.gpuErr == nil:
		w.gpus = inventory.Known(max(len(m.gpus), w.gpus.Or(0)))
	}
	w.newest = start.Add(time.Duration(count) * w.step)
	if w.record != nil {
		w.record(took)
	}
}

// fold takes what was measured within a step together: the most of each.
func (w *watch) fold(m *measured) {
	if w.carried == nil {
		w.carried = m
		return
	}
	c := w.carried
	c.cpu, c.net, c.disk = max(c.cpu, m.cpu), max(c.net, m.net), max(c.disk, m.disk)
	c.typed, c.noGPUs, c.gpuErr = c.typed+m.typed, m.noGPUs, m.gpuErr
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

// verdict says what the session does at a time.
func (w *watch) verdict(now time.Time) duty.Verdict {
	host := w.host.Explain(now, duty.Machine{GPUs: inventory.Known(0)})
	if n, known := w.gpus.Get(); known && n == 0 {
		return host
	}
	return together(w.gpu.Explain(now, duty.Machine{GPUs: w.gpus}), host)
}

// together judges several by one rule, in the words of the one that decides.
func together(all ...duty.Verdict) duty.Verdict {
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
	// input is when something was typed there last.
	input time.Time
}

// terminal is the pseudo-terminal of a process; empty: it has none. Of the number of a terminal,
// bits 8 to 15 are the major number, and 136 to 143 are those of pseudo-terminals.
func (p process) terminal() string {
	major := p.tty >> 8 & 0xfff
	if major < 136 || major > 143 {
		return ""
	}
	minor := p.tty&0xff | p.tty>>12&0xfff00
	return "/dev/pts/" + strconv.Itoa((major-136)<<8|minor)
}

// terminals lists the pseudo-terminals of processes.
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

// warn writes a message to terminals and returns how many took it.
func warn(list []terminal, text string) (told int) {
	for _, t := range list {
		// One that is stuck, or is no one's any more, does not keep the agent.
		f, err := os.OpenFile(t.path, os.O_WRONLY|noTerminal, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString("\r\n\a*** curfew: " + text + "\r\n")
		if closeErr := f.Close(); err == nil && closeErr == nil {
			told++
		}
	}
	return told
}
