package duty

import (
	"fmt"
	"slices"

	"github.com/curfew-dev/curfew/internal/usage"
)

// byWaste orders the states that are known by what is wasted in them, the least
// first.
var byWaste = []State{Busy, Warming, Starved, Stalled, Held, Idle}

// Gang judges the machines of one run together by their verdicts of [Now]: it is busy
// when one of them is, unknown when one is and none is busy, and else in the least
// wasteful state of any, for the time in which every machine is known to have rested.
// Without a verdict it is unknown.
func Gang(verdicts []Verdict) Verdict {
	if len(verdicts) == 0 {
		return Verdict{Why: "the run has no machine"}
	}
	best, unknown := -1, -1
	for i, v := range verdicts {
		rank := slices.Index(byWaste, v.State)
		if rank < 0 {
			unknown = i
		} else if best < 0 || rank < slices.Index(byWaste, verdicts[best].State) {
			best = i
		}
	}
	if unknown >= 0 && (best < 0 || verdicts[best].State != Busy) {
		best = unknown
	}
	whole := verdicts[best]
	same, end := 0, whole.Since.Add(whole.Lasting)
	for _, v := range verdicts {
		if v.State == whole.State {
			same++
		}
		switch whole.State {
		case Unknown:
		case Busy: // as long as one of them is
			if v.State == Busy {
				whole.Until, whole.Expires = later(whole.Until, v.Until), later(whole.Expires, v.Expires)
			}
		default:
			whole.Until, whole.Expires = earlier(whole.Until, v.Until), earlier(whole.Expires, v.Expires)
			whole.Coverage = min(whole.Coverage, v.Coverage)
			if whole.State != Warming {
				whole.Since, end = later(whole.Since, v.Since), earlier(end, v.Since.Add(v.Lasting))
			}
		}
	}
	whole.Since = earlier(whole.Since, whole.Until)
	whole.Lasting = max(0, end.Sub(whole.Since))
	whole.Why = fmt.Sprintf("%d of %d machines of the run %s: %s", same, len(verdicts), whole.State, whole.Why)
	whole.Evidence = append(slices.Clone(whole.Evidence), usage.Fact("machines", fmt.Sprint(len(verdicts)), "inventory"))
	whole.GPUs = nil
	return whole
}
