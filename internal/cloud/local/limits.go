package local

import "fmt"

// Limits bound what the processes of a session may use together. Zero fields bound nothing.
type Limits struct {
	// Memory is in bytes, Processes a number of processes and threads.
	Memory    int64 `json:"memory,omitempty"`
	Processes int64 `json:"processes,omitempty"`
}

// LimitOptions are the limits of sessions of this computer as the configuration sets them.
type LimitOptions struct {
	// MemoryMiB or MemoryPercent, of the computer's, is the most memory of a machine; both 0: what
	// it is charged for where it runs as another user, and else 90% of the computer's.
	MemoryMiB     int64
	MemoryPercent int64
	// Processes is the most processes and threads of a machine; 0: 4,096.
	Processes int64
}

const (
	defaultProcesses       = 4096
	ownMemoryPercent       = 90
	leastMemory            = 256 << 20
	agentMemory            = 512 << 20 // what the agent may use besides
	agentProcesses         = 128
	bytesPerMiB      int64 = 1 << 20
)

// limits are those of a machine of a size.
func (p *Provider) limits(of size, own *User) Limits {
	o := p.o.Limits
	_, machine := p.whole()
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

// holder is what holds a limit.
type holder string

const (
	byGroup holder = "cgroup"
	byUser  holder = "rlimit"
)

// bounded says by what each limit is held; empty: by nothing.
type bounded struct {
	Memory    holder `json:"memory,omitempty"`
	Processes holder `json:"processes,omitempty"`
}

// notes say, for people, which limits are not those of the session.
func (b bounded) notes(l Limits) (notes []string) {
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
