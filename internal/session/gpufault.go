package session

import (
	"slices"
	"time"
)

// faultRest is the time for which the machines of a place are avoided after a GPU fault there. A provider
// tends to hand out the machine that was just returned.
const faultRest = time.Hour

// PoolFault is a recent GPU fault on a machine of a pool.
type PoolFault struct {
	Pool Pool
	At   time.Time
}

// GPUFaults returns the recent GPU faults in an account, the newest first.
func GPUFaults(all []Session, provider, account string, now time.Time) (out []PoolFault) {
	for _, s := range all {
		o := s.Outcome
		if s.Provider == provider && s.Account == account && o != nil && o.Class == GPUFault &&
			now.Sub(o.At) < faultRest {
			out = append(out, PoolFault{s.Pool, o.At})
		}
	}
	slices.SortStableFunc(out, func(a, b PoolFault) int { return b.At.Compare(a.At) })
	return out
}

// Concerns reports whether a pool may hand out the faulty machine, on spot or on demand.
func (f PoolFault) Concerns(p Pool) bool {
	p.Spot = f.Pool.Spot
	return p.SamePlace(f.Pool)
}

// SoundFirst returns the pools with those of faulty machines last: they are better than none.
func SoundFirst(pools []Pool, faults []PoolFault) []Pool {
	var sound, faulty []Pool
	for _, p := range pools {
		if slices.ContainsFunc(faults, func(f PoolFault) bool { return f.Concerns(p) }) {
			faulty = append(faulty, p)
		} else {
			sound = append(sound, p)
		}
	}
	return append(sound, faulty...)
}
