package sim

import (
	"math"
	"time"
)

// State is the activity of a machine at one moment. The zero value is a machine that does nothing.
type State struct {
	// CPU is the share of all CPUs in use, HostMemory the share of the host's
	// memory, in percent, 0 to 100.
	CPU, HostMemory float64
	// Network is bytes a second received and sent.
	Network float64
	// Requests is requests a second served.
	Requests float64
	// GPUs holds each GPU of the machine, in the order of their indexes.
	GPUs []GPU
	// Works is true if work goes on: it computes, serves, moves data, or a
	// person uses it. It is the truth, which nothing measures.
	Works bool
}

// GPU is the activity of one GPU at one moment, in the units of the usage signals.
type GPU struct {
	// Util is 0 to 100; SMActive, TensorActive and DRAMActive are 0 to 1.
	Util, SMActive, TensorActive, DRAMActive float64
	// Memory is bytes in use, Power is watts.
	Memory, Power float64
	// Processes is how many processes hold the GPU.
	Processes float64
}

// moment is the input of a behavior: the machine's own randomness, its hardware, and the time. It
// has no other machine and no earlier state.
type moment struct {
	key      key
	hardware hardware
	at       time.Time
	// age is the time since the machine was launched.
	age time.Duration
	// unix is the time in seconds.
	unix int64
}

// behavior writes the state of a machine at a moment into a zeroed state, whose GPUs are already as
// many as the machine has. It is a pure function.
type behavior func(m moment, s *State)

// Streams of randomness, so that the quantities of one machine vary apart.
const (
	streamCPU uint64 = iota + 1
	streamNet
	streamHost
	streamBlock
	streamLoad
	streamShape
	streamGPU // and one more for each GPU
)

// wave is noise that changes every period, in [lo, hi).
func (m moment) wave(stream uint64, period int64, lo, hi float64) float64 {
	return m.key.between(stream, m.unix/period, lo, hi)
}

// hour is the hour of the day with its fraction in a place offset hours from UTC.
func (m moment) hour(offset int) float64 {
	day := (m.unix + int64(offset)*3600) % 86400
	return float64(day) / 3600
}

// weekday reports whether it is Monday to Friday in a place offset hours from UTC.
func (m moment) weekday(offset int) bool {
	switch m.at.Add(time.Duration(offset) * time.Hour).Weekday() {
	case time.Saturday, time.Sunday:
		return false
	}
	return true
}

// computes sets one GPU to a utilization in percent with a share of its memory
// held. tensor says how much of the work is matrix products, 0 to 1.
func (m moment) computes(g *GPU, util, memory, tensor float64) {
	util = min(max(util, 0), 100)
	g.Util = util
	g.SMActive = util / 100 * (0.55 + 0.35*tensor)
	g.TensorActive = util / 100 * 0.6 * tensor
	g.DRAMActive = util / 100 * 0.5
	m.holds(g, memory)
	g.Power = m.hardware.idleWatts + (m.hardware.watts-m.hardware.idleWatts)*util/100*0.88
}

// holds sets a share of one GPU's memory as held by a process.
func (m moment) holds(g *GPU, memory float64) {
	g.Memory = memory * m.hardware.memory
	if memory > 0 {
		g.Processes = 1
	}
}

// rest is a machine that is on and has nothing to do: agents of the operating
// system wake up now and then, well under 5% of CPU and 5 MB a day (AWS's line
// for an idle machine).
func rest(m moment, s *State) {
	s.CPU = m.wave(streamCPU, 300, 0.4, 1.9)
	s.HostMemory = m.wave(streamHost, 3600, 4, 6)
	s.Network = m.wave(streamNet, 300, 8, 26)
	for i := range s.GPUs {
		s.GPUs[i].Power = m.hardware.idleWatts
	}
}

// train keeps every GPU at work; each two hours a checkpoint is written, in which
// the GPUs wait and the network does not. memory is the share of device memory
// the model holds, util the level between checkpoints, in percent.
func train(util, memory float64) behavior {
	return func(m moment, s *State) {
		rest(m, s)
		s.Works = true
		saving := m.unix%7200 < 300
		s.CPU, s.HostMemory = m.wave(streamCPU, 300, 18, 34), 41
		s.Network = m.wave(streamNet, 300, 18e6, 45e6)
		if saving {
			s.CPU, s.Network = m.wave(streamCPU, 300, 35, 55), 310e6
		}
		for i := range s.GPUs {
			u := util + m.wave(streamGPU+uint64(i), 300, -4, 4)
			if saving {
				u = m.wave(streamGPU+uint64(i), 300, 8, 22)
			}
			m.computes(&s.GPUs[i], u, memory, 1)
		}
	}
}

// trainQuietly is training whose data fits in device memory: the GPUs work and
// the CPUs have next to nothing to do. CPU alone would call it idle.
func trainQuietly(util, memory float64) behavior {
	return func(m moment, s *State) {
		rest(m, s)
		s.Works = true
		s.CPU = m.wave(streamCPU, 300, 2.2, 4.4)
		for i := range s.GPUs {
			m.computes(&s.GPUs[i], util+m.wave(streamGPU+uint64(i), 300, -3, 3), memory, 1)
		}
	}
}

// sparing applies b to the first n GPUs only; the others stay empty.
func sparing(n int, b behavior) behavior {
	return func(m moment, s *State) {
		b(m, s)
		for i := n; i < len(s.GPUs); i++ {
			s.GPUs[i] = GPU{Power: m.hardware.idleWatts}
		}
	}
}

// hold is a process that keeps a share of the memory of every GPU and computes
// nothing: a notebook kernel that was never shut down.
func hold(memory float64) behavior {
	return func(m moment, s *State) {
		rest(m, s)
		s.HostMemory = m.wave(streamHost, 3600, 21, 24)
		for i := range s.GPUs {
			m.holds(&s.GPUs[i], memory)
			s.GPUs[i].Power = m.hardware.idleWatts * 1.6
		}
	}
}

// latch is the driver fault of some Blackwell boards: 100% utilization is
// reported while no process exists and no memory is held.
func latch(m moment, s *State) {
	rest(m, s)
	for i := range s.GPUs {
		s.GPUs[i].Util = 100
	}
}

// until does one thing for the first part of a machine's life and another after.
func until(age time.Duration, first, then behavior) behavior {
	return func(m moment, s *State) {
		if m.age < age {
			first(m, s)
			return
		}
		then(m, s)
	}
}

// office is an interactive machine that is used on weekdays, in office hours offset
// hours from UTC, and left on the rest of the time: editors are open from 9 to 18,
// and from 10 to 16 half-hours of computing alternate with reading.
func office(offset int, memory float64) behavior {
	return func(m moment, s *State) {
		rest(m, s)
		h := m.hour(offset)
		if !m.weekday(offset) || h < 9 || h >= 18 {
			return
		}
		s.Works = true
		s.Network = m.wave(streamNet, 300, 2e3, 4e4)
		if h < 10 || h >= 16 {
			s.CPU = m.wave(streamCPU, 300, 1.5, 4.2)
			return
		}
		s.CPU = m.wave(streamCPU, 300, 6, 28)
		s.HostMemory = 22
		s.Network = m.wave(streamNet, 300, 2e4, 9e5)
		works := m.wave(streamBlock, 1800, 0, 1) < 0.72
		for i := range s.GPUs {
			if works {
				m.computes(&s.GPUs[i], m.wave(streamGPU+uint64(i), 300, 18, 86), memory, 0.6)
			} else {
				m.holds(&s.GPUs[i], memory)
			}
		}
	}
}

// nightly is a job that runs every night from 2 to 2+hours, UTC.
func nightly(hours float64, memory float64) behavior {
	busy := train(88, memory)
	return func(m moment, s *State) {
		if h := m.hour(0); h >= 2 && h < 2+hours {
			busy(m, s)
			return
		}
		rest(m, s)
	}
}

// experiment runs jobs of three hours with a probability, day and night: a queue
// of experiments that people and schedulers fill.
func experiment(share, memory float64) behavior {
	return func(m moment, s *State) {
		rest(m, s)
		block := m.unix / 10800
		if m.key.uniform(streamBlock, block) >= share {
			return
		}
		s.Works = true
		level := m.key.between(streamLoad, block, 58, 90)
		s.CPU, s.HostMemory = m.wave(streamCPU, 300, 12, 30), 30
		s.Network = m.wave(streamNet, 300, 2e6, 3e7)
		for i := range s.GPUs {
			m.computes(&s.GPUs[i], level+m.wave(streamGPU+uint64(i), 300, -8, 8), memory, 0.8)
		}
	}
}

// demand is the shape of a day's traffic, 0 to 1, lowest at 4 and highest at 16
// o'clock offset hours from UTC, lower at weekends.
func (m moment) demand(offset int) float64 {
	d := 0.5 - 0.5*math.Cos((m.hour(offset)-4)/24*2*math.Pi)
	if !m.weekday(offset) {
		d *= 0.7
	}
	return d
}

// serve answers requests with a daily curve: utilization between low and high
// percent, requests up to rate a second, a constant share of memory.
func serve(low, high, memory, rate float64) behavior {
	return func(m moment, s *State) {
		rest(m, s)
		s.Works = true
		d := m.demand(0)
		s.CPU = 7 + 22*d + m.wave(streamCPU, 300, -2, 4)
		s.HostMemory = 34
		s.Requests = rate * (0.15 + 0.85*d) * m.wave(streamLoad, 300, 0.85, 1.15)
		s.Network = 2e4 + s.Requests*3e4
		for i := range s.GPUs {
			u := low + (high-low)*d
			m.computes(&s.GPUs[i], u*m.wave(streamGPU+uint64(i), 300, 0.9, 1.1), memory, 0.5)
		}
	}
}

// download copies a dataset: CPUs and network work, the GPUs wait for it to end.
func download(m moment, s *State) {
	rest(m, s)
	s.Works = true
	s.CPU = m.wave(streamCPU, 300, 42, 71)
	s.HostMemory = 55
	s.Network = m.wave(streamNet, 300, 1.4e8, 2.6e8)
}

// compute is a machine without GPUs at work, its CPUs around a level in percent.
func compute(level float64) behavior {
	return func(m moment, s *State) {
		rest(m, s)
		s.Works = true
		s.CPU = min(level*m.wave(streamCPU, 300, 0.6, 1.4), 98)
		s.HostMemory = 48
		s.Network = m.wave(streamNet, 300, 4e5, 6e6)
	}
}

// jump is a machine that people pass through: next to no CPU, but traffic.
func jump(m moment, s *State) {
	rest(m, s)
	s.Works = true
	s.Network = m.wave(streamNet, 300, 6e2, 4e3)
}

// gateway is a NAT gateway or balancer in use.
func gateway(rate, requests float64) behavior {
	return func(m moment, s *State) {
		s.Works = true
		d := 0.2 + 0.8*m.demand(0)
		s.Network = rate * d * m.wave(streamNet, 300, 0.8, 1.2)
		s.Requests = requests * d * m.wave(streamLoad, 300, 0.8, 1.2)
	}
}

// silent moves nothing at all.
func silent(moment, *State) {}
