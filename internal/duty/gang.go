package duty

import (
	"fmt"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/usage"
)

// wasteOf ranks the known states by waste, the least first. It is negative for unknown.
func wasteOf(s State) int {
	switch s {
	case Busy:
		return 0
	case Warming:
		return 1
	case Starved:
		return 2
	case Stalled:
		return 3
	case Held:
		return 4
	case Idle:
		return 5
	}
	return -1
}

// Gang judges the machines of one run together. The run is busy if one machine is, unknown if one
// is and none is busy, and otherwise in the least wasteful state of any, for the time in which all
// are known to have rested. Without verdicts it is unknown. Verdicts without text, as of
// [Tracker.Verdict], give one without text.
func Gang(verdicts []Verdict) Verdict {
	if len(verdicts) == 0 {
		return Verdict{Why: "the run has no machine"}
	}
	best, unknown := -1, -1
	for i := range verdicts {
		rank := wasteOf(verdicts[i].State)
		if rank < 0 {
			unknown = i
		} else if best < 0 || rank < wasteOf(verdicts[best].State) {
			best = i
		}
	}
	if unknown >= 0 && (best < 0 || verdicts[best].State != Busy) {
		best = unknown
	}
	whole := verdicts[best]
	same, end := 0, whole.Since.Add(whole.Duration)
	for i := range verdicts {
		v := &verdicts[i]
		whole.Next = sooner(whole.Next, v.Next)
		if v.State == whole.State {
			same++
		}
		switch whole.State {
		case Unknown:
		case Busy: // as long as any machine is busy
			if v.State == Busy {
				whole.Until, whole.Expires = later(whole.Until, v.Until), later(whole.Expires, v.Expires)
			}
		default:
			whole.Until, whole.Expires = earlier(whole.Until, v.Until), earlier(whole.Expires, v.Expires)
			whole.Coverage = min(whole.Coverage, v.Coverage)
			if whole.State != Warming {
				whole.Since, end = later(whole.Since, v.Since), earlier(end, v.Since.Add(v.Duration))
			}
		}
	}
	whole.Since = earlier(whole.Since, whole.Until)
	whole.Duration = max(0, end.Sub(whole.Since))
	whole.GPUs = nil
	if whole.Why != "" {
		whole.Why = fmt.Sprintf("%d of %d machines of the run %s: %s", same, len(verdicts), whole.State, whole.Why)
		whole.Evidence = append(slices.Clone(whole.Evidence),
			usage.Fact("machines", fmt.Sprint(len(verdicts)), "inventory"))
	}
	return whole
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// sooner returns the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
