package local

import "fmt"

// Limits bound the processes of a session together. Zero fields set no limit.
type Limits struct {
	// Memory is in bytes; Processes counts processes and threads.
	Memory    int64 `json:"memory,omitempty"`
	Processes int64 `json:"processes,omitempty"`
}

// LimitOptions are the configured limits of local sessions.
type LimitOptions struct {
	// MemoryMiB, or MemoryPercent of the computer's memory, bounds a machine. If both are 0, a
	// machine of another user gets the memory it is charged for, any other 90% of the computer's.
	MemoryMiB     int64
	MemoryPercent int64
	// Processes bounds the processes and threads of a machine; 0 means 4,096.
	Processes int64
}

const (
	defaultProcesses       = 4096
	ownMemoryPercent       = 90
	leastMemory            = 256 << 20
	agentMemory            = 512 << 20 // memory for the agent in addition
	agentProcesses         = 128
	bytesPerMiB      int64 = 1 << 20
)

// limits returns the limits of a machine of a size.
func (p *Provider) limits(of size, own *User) Limits {
	o := p.options.Limits
	_, machine := p.capacity()
	mib := o.MemoryMiB
	switch {
	case mib > 0:
	case o.MemoryPercent > 0:
		mib = machine * o.MemoryPercent / 100
	case own != nil:
		mib = of.MemoryMiB
	default:
		mib = machine * ownMemoryPercent / 100
	}
	l := Limits{Processes: o.Processes}
	if l.Processes == 0 {
		l.Processes = defaultProcesses
	}
	if mib > 0 {
		l.Memory = max(mib*bytesPerMiB, leastMemory)
	}
	return l
}

// limitHolder is the mechanism that enforces a limit.
type limitHolder string

const (
	byGroup limitHolder = "cgroup"
	byUser  limitHolder = "rlimit"
)

// limitHolders names the mechanism of each limit; empty if there is none.
type limitHolders struct {
	Memory    limitHolder `json:"memory,omitempty"`
	Processes limitHolder `json:"processes,omitempty"`
}

// warnings describes, for people, limits that do not apply to the session as a whole.
func (b limitHolders) warnings(l Limits) (notes []string) {
	switch {
	case l.Memory > 0 && b.Memory == "":
		notes = append(notes, "its memory is not limited")
	case l.Memory > 0 && b.Memory == byUser:
		notes = append(
			notes,
			fmt.Sprintf(
				"memory is limited for each process to %d MiB, and not for the session: there is no memory controller",
				l.Memory/bytesPerMiB,
			),
		)
	}
	switch {
	case l.Processes > 0 && b.Processes == "":
		notes = append(notes, "the number of its processes is not limited")
	case l.Processes > 0 && b.Processes == byUser:
		notes = append(
			notes,
			fmt.Sprintf(
				"the number of processes is limited to %d for its user, and not for the session: there is no pids controller",
				l.Processes,
			),
		)
	}
	return notes
}
